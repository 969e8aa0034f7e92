"""Every scenario goes as written, on both runtimes, sync and async."""

from dataclasses import replace
from functools import cache

import pytest

from domains import DOMAINS
from domains.found import scenarios
from domains.runner import RUNTIMES, Played, Runtime, play
from domains.scenario import Scenario

ALL = scenarios()
needs_both = pytest.mark.skipif(len(RUNTIMES) < 2, reason="no langchain here: one runtime alone")
MUST_HAVE = ("completed", "fatal", "policy_block")


@cache
def played(name: str, runtime: Runtime, *, use_async: bool = False) -> Played:
    """Play a scenario once, however many tests look at what came of it."""
    return play(ALL[name], runtime, use_async=use_async)


@pytest.mark.parametrize(
    "use_async", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sync", "async"]
)
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", ALL)
def test_goes_as_written(name: str, runtime: Runtime, use_async: bool) -> None:
    """Path, reasons, rules, model calls and final text are those of the scenario."""
    assert () == played(name, runtime, use_async=use_async).surprises


@needs_both
@pytest.mark.parametrize("name", ALL)
def test_runtimes_agree(name: str) -> None:
    """Both runtimes give the same row, but for their name and the ids that count into tokens."""
    graph, agent = (_comparable(played(name, runtime)) for runtime in RUNTIMES)
    assert graph == agent


def _comparable(played: Played) -> dict[str, object]:
    return {name: value for name, value in played.row().items() if name != "runtime"}


@pytest.mark.parametrize("domain", DOMAINS)
def test_eight_a_domain(domain: str) -> None:
    """A domain has at least eight scenarios, all under its own name."""
    own = DOMAINS[domain].scenarios
    assert len(own) >= 8
    assert {domain} == {scenario.id.split("/")[0] for scenario in own}


@pytest.mark.parametrize("domain", DOMAINS)
def test_what_every_domain_shows(domain: str) -> None:
    """Each stop, a retry that succeeds, parallel calls, and a second turn are played in every domain."""
    turns = [turn for scenario in DOMAINS[domain].scenarios for turn in scenario.turns]
    assert {*MUST_HAVE} <= {turn.stopped_by for turn in turns}
    assert any(turn.path.count("tools") == 2 and turn.reasons[0] == "transient" for turn in turns)
    assert any(len({*turn.reasons}) > 1 and turn.path.count("tools") < len(turn.reasons) for turn in turns)
    assert any(len(scenario.turns) > 1 for scenario in DOMAINS[domain].scenarios)


def test_one_call_for_a_stop() -> None:
    """A single call that stops costs one model call; a retry then a stop costs two."""
    for scenario in ALL.values():
        for turn in scenario.turns:
            stopping = [reason for reason in turn.reasons if reason != "transient"]
            if turn.stopped_by and len(turn.reasons) == len(stopping) == 1:
                assert 1 == turn.model_calls, scenario.id


@pytest.mark.parametrize("scenario", ALL.values(), ids=list(ALL))
def test_narration_is_not_the_text(scenario: Scenario) -> None:
    """What the model would say after a stop differs from the tool's text, so a call too many is seen."""
    for turn in scenario.turns:
        assert turn.narration != turn.final or turn.stopped_by is None
        assert turn.narration.strip()


def test_a_surprise_names_both_sides() -> None:
    """A scenario that goes otherwise says what was expected and what came."""
    scenario = next(iter(ALL.values()))
    wrong = _with_final(scenario, "something else")
    said = play(wrong, "graph").surprises
    assert 1 == len(said)
    assert "final: expected 'something else', came " in said[0]


def _with_final(scenario: Scenario, final: str) -> Scenario:
    return replace(scenario, turns=(*scenario.turns[:-1], replace(scenario.turns[-1], final=final)))


def test_a_script_that_runs_out_is_named() -> None:
    """A model answer that nobody asked for is a surprise of its own."""
    scenario = next(iter(ALL.values()))
    last = scenario.turns[-1]
    longer = replace(scenario, turns=(*scenario.turns[:-1], replace(last, script=(*last.script, "more"))))
    assert ["script: 1 of the model's"] == [line[:24] for line in play(longer, "graph").surprises]
