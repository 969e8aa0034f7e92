"""Whole runs: batches, modes, budgets and steps, on both runtimes, against what ``decide`` says of a turn."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations_with_replacement, permutations, product
from time import sleep
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from domains.found import scenarios
from domains.runner import RUNTIMES, expected, play
from domains.runner import Runtime as RuntimeName
from domains.scenario import Turn
from mocks.model import ScriptedModel
from orchestration import BatchRule, Effect, Outcome, Reason, Route, StopMode, StopPolicy, decide
from orchestration.asking import (
    ASK_AGAIN,
    CANNOT_GO_ON,
    LONGEST_RESULT,
    NO_ANSWER,
    NOT_FINISHED,
    SHORT_RESULT,
    TOO_LONG,
)
from orchestration.graph import build_graph
from orchestration.outcomes import NO_TEXT, NOT_CARRIED_OUT
from orchestration.relay import numbers
from tests.runtimes import (
    BUSY,
    DECLINED,
    PAID,
    Runtime,
    Till,
    agent_build,
    assert_valid,
    call,
    endless,
    garbled,
    rule_of,
    turn,
    walk,
)

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

Args = dict[str, Any]

KINDS = ("completed", "pending", "transient", "fatal", "policy_block", "unusable")
SAID = "In other words: 1, 2 and 3."
"""The model's next answer. It holds every number of the tools' texts, so a polish may use it."""


def ending(kind: str) -> BaseTool:
    """Return a tool whose calls end as its name says; its text names the call."""

    def run(at: int) -> tuple[str, Any]:
        """Do it."""
        text = f"Call {at} ended as {kind.replace('_', ' ')}."
        if kind == "unusable":
            return text, {"stop": "yes"}
        reason = Reason.COMPLETED if kind == "pending" else Reason(kind)
        return Outcome(text, reason, f"row/{kind}", pending=kind == "pending").as_tool_result()

    return StructuredTool.from_function(run, name=kind, response_format="content_and_artifact")


@dataclass(frozen=True)
class Rig:
    """An agent that is built once; each run has its own script, mode and batch."""

    model: ScriptedModel
    app: Any

    def run(self, calls: Sequence[tuple[str, bool]], way: str, **configurable: Any) -> dict[str, Any]:
        """Run one turn of these calls, and return all that must be equal on both runtimes."""
        made = [
            call(kind, f"c{at}", at=at, **({} if last else {"last_step": False}))
            for at, (kind, last) in enumerate(calls, start=1)
        ]
        self.model._script = ScriptedModel([turn(*made, message_id="m1"), AIMessage(SAID)])._script
        path, messages = walk(way, self.app, configurable=configurable)
        assert_valid(messages)
        return {
            "path": path,
            "model calls": self.model.calls,
            "bound": [sorted(names) for names in self.model.tools_bound],
            "answers": [m for m in messages if isinstance(m, ToolMessage)],
            "final": messages[-1].content,
            "rule": rule_of(messages[-1]),
            "turn": messages[:-1],
        }


@cache
def rig(name: str) -> Rig:
    """Return the agent of one runtime."""
    model = ScriptedModel()
    build = build_graph if name == "graph" else agent_build()
    return Rig(model, build(model, [ending(kind) for kind in KINDS]))


def comparable(seen: Args) -> Args:
    """Return what a run has shown, without the ids that LangGraph made up."""
    return {
        name: [(m.content, m.artifact, m.status, m.tool_call_id) for m in value]
        if name == "answers"
        else value
        for name, value in seen.items()
        if name != "turn"
    }


TURNS = [kinds for size in (1, 2, 3) for kinds in combinations_with_replacement(KINDS, size)]
"""Every multiset of up to three endings."""


def sample(offset: int) -> Iterator[list[tuple[str, bool]]]:
    """Yield turns: each single call, every second pair, every ninth three.

    Nine offsets in a row show every multiset, of one and two calls with every pattern of ``last_step``.
    """
    for at, kinds in enumerate(TURNS):
        every = (1, 2, 9)[len(kinds) - 1]
        if (at + offset) % every == 0:
            patterns = list(product((True, False), repeat=len(kinds)))
            number = at if every == 9 else (at + offset) // every
            yield [*zip(kinds, patterns[number % len(patterns)], strict=True)]


@pytest.mark.parametrize("mode", StopMode)
@pytest.mark.parametrize("batch", BatchRule)
def test_every_run_goes_as_decided(batch: BatchRule, mode: StopMode) -> None:
    """Path, calls, bound tools, text and rule are those of ``decide``, and equal on both runtimes."""
    policy = StopPolicy(mode=mode, batch=batch)
    offset = 3 * [*BatchRule].index(batch) + [*StopMode].index(mode)
    ways = ("invoke", "ainvoke")
    for at, calls in enumerate(sample(offset)):
        configurable = {"stop_mode": mode.value, "stop_batch": batch.value}
        seen = rig("graph").run(calls, ways[at % 2], **configurable)
        decision = decide(seen["turn"], policy)
        rewrites = decision.route is not Route.FINALIZE
        assert comparable(seen) == {
            "path": ["agent", "tools", decision.route.value],
            "model calls": 1 + rewrites,
            "bound": [
                sorted(KINDS),
                *([[]] if decision.route is Route.POLISH else [sorted(KINDS)] * rewrites),
            ],
            "answers": comparable(seen)["answers"],
            "final": SAID if rewrites else decision.text,
            "rule": None if decision.route is Route.AGENT else decision.rule,
        }, calls
        assert len(calls) == len(seen["answers"])
        if "agent" in RUNTIMES:
            other = rig("agent").run(calls, ways[(at + 1) % 2], **configurable)
            assert comparable(seen) == comparable(other), calls


@pytest.mark.parametrize("batch", BatchRule)
def test_order_of_parallel_calls(batch: BatchRule) -> None:
    """Whatever order the model writes its calls in, the run takes the same course and hides no text (O8)."""
    names = [*RUNTIMES]
    for at, kinds in enumerate(TURNS[len(KINDS) :: 8]):
        lasts = [kind != "completed" or at % 2 == 0 for kind in kinds]
        seen = []
        for number, mixed in enumerate(sorted(set(permutations([*zip(kinds, lasts, strict=True)])))):
            way = ("invoke", "ainvoke")[number % 2]
            seen.append(rig(names[number % len(names)]).run(mixed, way, stop_batch=batch.value))
            texts = [m.content for m in seen[-1]["answers"]]
            stands = [
                NOT_CARRIED_OUT if kind == "unusable" else text
                for (kind, _), text in zip(mixed, texts, strict=True)
            ]
            assert seen[-1]["final"] in {SAID, "\n\n".join(dict.fromkeys(stands))}
        for name in ("path", "model calls", "rule"):
            assert all(seen[0][name] == each[name] for each in seen), (kinds, name)


@pytest.mark.parametrize("slowest", [0, 2])
def test_order_of_finishing(slowest: int, both: Runtime) -> None:
    """Answers stand in call order, whichever call is the slowest."""

    def wait(at: int) -> tuple[str, Any]:
        """Wait a little."""
        sleep(0.03 if at == slowest else 0)
        return Outcome(f"Done {at}.", Reason.COMPLETED).as_tool_result()

    async def await_(at: int) -> tuple[str, Any]:
        await asyncio.sleep(0.03 if at == slowest else 0)
        return Outcome(f"Done {at}.", Reason.COMPLETED).as_tool_result()

    slow = StructuredTool.from_function(wait, await_, response_format="content_and_artifact")
    model = ScriptedModel([turn(*(call("wait", f"c{at}", at=at) for at in range(3)))])

    for saver in (None, InMemorySaver()):
        model._script = ScriptedModel([turn(*(call("wait", f"c{at}", at=at) for at in range(3)))])._script
        messages = both(both.build(model, [slow], checkpointer=saver), thread_id="t")
        assert_valid(messages)
        assert "Done 0.\n\nDone 1.\n\nDone 2." == messages[-1].content


# Modes


def test_a_mode_is_a_runs_own(both: Runtime) -> None:
    """One built agent serves each run in the mode that it asks for, and the next one in its own."""
    model = ScriptedModel()
    app = both.build(model, [Till([PAID]).tool], policy=StopPolicy(mode=StopMode.POLISH))
    for mode, route, calls in (("hard", "finalize", 1), (None, "polish", 2), ("never", "agent", 2)):
        model._script = ScriptedModel([turn(call()), AIMessage("1999 for cart 7.")])._script
        path, _ = walk(both.way, app, configurable={} if mode is None else {"stop_mode": mode})
        assert (["agent", "tools", route], calls) == (path, model.calls)


class ProviderError(Exception):
    """What a provider's client raises, as far as we look at it."""

    def __init__(self, status: int | None, code: str = "", headers: Args | None = None) -> None:
        super().__init__(f"provider answered {status}")
        self.status_code = status
        self.body = {"error": {"code": code}}
        self.response = type("Response", (), {"headers": headers or {}})()


@pytest.mark.parametrize("status", [413, 429, 500])
def test_polish_is_asked_once(status: int, both: Runtime) -> None:
    """Whatever the provider says to a polish, it is asked no second time, and the tool's text stands."""
    model = ScriptedModel([turn(call(last_step=False)), turn(call(cart="b")), ProviderError(status)])

    messages = both(both.build(model, [Till([PAID]).tool]), stop_mode="polish")

    assert (3, 0, PAID.content) == (model.calls, model.left, messages[-1].content)


@pytest.mark.parametrize("nothing", ["", " \n", [], [{"type": "image", "base64": "QUJD"}], "\x00"])
def test_polish_without_a_word(nothing: Any, runtime: Runtime) -> None:
    """Where the tool's text holds no number either, an answer without a word is no rewording."""
    model = ScriptedModel([turn(call()), AIMessage(nothing)])

    done = Till([Outcome("It is done.", Reason.COMPLETED)])
    messages = runtime(runtime.build(model, [done.tool]), stop_mode="polish")

    assert (2, "It is done.") == (model.calls, messages[-1].content)


def test_polish_of_html(both: Runtime) -> None:
    """A model is asked to reword words, not markup; what it says is text, so that no page renders it."""
    receipt = Outcome(
        "<p>Paid: <b>5</b> for O&#x27;Neill.</p><p>Note: &lt;b&gt;</p>", Reason.COMPLETED, format="html"
    )
    for answer, said, form in (("5 <b>!", "5 <b>!", "text"), ("All paid.", receipt.content, "html")):
        model = ScriptedModel([turn(call()), AIMessage(answer)])
        messages = both(both.build(model, [Till([receipt]).tool]), stop_mode="polish")
        assert "Paid: 5 for O'Neill.\nNote: <b>" == model.requests[1][-1].content
        assert (said, form) == (messages[-1].content, messages[-1].response_metadata["format"])


def test_polish_is_no_place_for_calls(both: Runtime) -> None:
    """A polish that calls a tool runs nothing."""
    till = Till([PAID])
    model = ScriptedModel([turn(call()), turn(call(cart="b"))])

    messages = both(both.build(model, [till.tool]), stop_mode="polish")

    assert_valid(messages)
    assert (PAID.content, ["a"]) == (messages[-1].content, [args["cart"] for args in till.asked])


# Budgets


def text_of_run(runtime: Runtime, script: Sequence[Any], tools: Sequence[Any], **configurable: Any) -> str:
    """Return what the user reads at the end of a run whose history is valid."""
    messages = runtime(runtime.build(ScriptedModel(script), tools), **configurable)
    assert_valid(messages)
    return f"{rule_of(messages[-1])}: {messages[-1].content}"


PENDING = Outcome("40 % are done.", Reason.COMPLETED, pending=True)
LIMITED = Outcome("Not now. The wait is about 86400 seconds.", Reason.TRANSIENT, retry_after_s=86_400)

NO_INTEGER = (
    "The arguments were not accepted: amount: Input should be a valid integer, "
    "unable to parse string as an integer. Nothing was done."
)
FOREVER: dict[str, tuple[list[Any], Any, str]] = {
    # the model's script, what the tool answers, what the user reads
    "busy": (endless(call()), BUSY, BUSY.content),
    "a poller": (endless(call()), PENDING, PENDING.content),
    "unusable": (endless(call()), ("Fine!", {"stop": "no"}), NOT_CARRIED_OUT),
    "no artifact": (endless(call()), ("Fine!", None), NOT_CARRIED_OUT),
    "bad arguments": (
        endless(call(amount="much")),
        PAID,
        NO_INTEGER,
    ),
    "no JSON": (
        [turn(invalid_tool_calls=[garbled(call_id=f"g{at}")]) for at in range(30)],
        PAID,
        "The arguments were no readable JSON object. Nothing was done.",
    ),
    "unknown tool": (endless(call("fly")), PAID, "There is no tool of that name. There are: pay."),
    "now this, now that": (
        [turn(call(amount="much")), turn(invalid_tool_calls=[garbled()]), *endless(call())],
        BUSY,
        BUSY.content,
    ),
    "a wait longer than any run": (endless(call()), LIMITED, LIMITED.content),
}


@pytest.mark.parametrize("case", FOREVER)
def test_nothing_goes_on_forever(case: str, both: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that never ends well is stopped in its third turn, in its own text, and nobody has slept."""
    script, answer, text = FOREVER[case]
    monkeypatch.setattr("time.sleep", _never)
    monkeypatch.setattr("asyncio.sleep", _anever)

    assert f"attempts_exhausted: {text}" == text_of_run(both, script, [Till([answer]).tool])


def _never(seconds: float) -> None:
    raise AssertionError(f"slept for {seconds}")


async def _anever(seconds: float, result: object = None) -> None:
    assert 0 == seconds, f"slept for {seconds}"


def test_attempts_are_per_thing(runtime: Runtime) -> None:
    """Two carts have three turns each; one of them ends the run, not the six together."""
    keyed = [Outcome(f"Cart {key} waits.", Reason.TRANSIENT, key=key) for key in "abab"]
    last = Outcome("Cart a waits.", Reason.TRANSIENT, key="a")
    till = Till([*keyed, last])

    assert "attempts_exhausted: Cart a waits." == text_of_run(runtime, endless(call()), [till.tool])
    assert 5 == len(till.asked)


def test_a_run_that_a_budget_ends_keeps_its_results(both: Runtime) -> None:
    """A receipt of an earlier turn is read before the text that ended the run (B40)."""
    html = Outcome("<p>Paid.</p>", Reason.COMPLETED, effect=Effect.APPLIED, key="k", format="html")
    for receipt, joined in (
        (PAID, f"{PAID.content}\n\n{BUSY.content}"),
        (html, f"<p>Paid.</p>\n\n<p>{BUSY.content}</p>"),
    ):
        script = [turn(call(last_step=False)), *endless(call("search"))]
        tools = [Till([receipt]).tool, Till([BUSY], "search").tool]
        assert f"attempts_exhausted: {joined}" == text_of_run(both, script, tools)
        assert f"turns_exhausted: {joined}" == text_of_run(both, script, tools, stop_max_turns=2)


def test_of_one_thing_the_newest_result_is_kept(runtime: Runtime) -> None:
    """A payment that was open and is done now is not called open, and not the other way round."""
    lost = Outcome("Not confirmed.", Reason.TRANSIENT, effect=Effect.UNKNOWN, key="k")
    script = [turn(call()), turn(call(last_step=False)), *endless(call("search"))]
    for answers, kept in (
        ([lost, PAID], PAID.content),
        ([lost, DECLINED], "Not confirmed.\n\nThe card was declined."),
    ):
        tools = [Till(answers).tool, Till([BUSY], "search").tool]
        assert f"attempts_exhausted: {kept}\n\n{BUSY.content}" == text_of_run(runtime, script, tools)


def test_results_are_read_in_the_order_in_which_they_were_settled(runtime: Runtime) -> None:
    """A payment that was open when another one was made, and is done after it, is read after it."""
    done = [
        Outcome(text, reason, effect=effect, key=key)
        for text, reason, effect, key in (
            ("A is open.", Reason.TRANSIENT, Effect.UNKNOWN, "a"),
            ("B is paid.", Reason.COMPLETED, Effect.APPLIED, "b"),
            ("A is paid.", Reason.COMPLETED, Effect.APPLIED, "a"),
        )
    ]
    script = [*endless(call(last_step=False))[:3], turn(call("search"))]

    said = text_of_run(runtime, script, [Till(done).tool, Till([FOUND], "search").tool])

    assert f"completed: B is paid.\n\nA is paid.\n\n{FOUND.content}" == said


FOUND = Outcome("Found a mug.", Reason.COMPLETED)
ON_THE_WAY: dict[str, tuple[Outcome, str]] = {
    # what the first step ended with, what is read of it when a second step ends the run
    "changed something": (PAID, f"{PAID.content}\n\n"),
    "may have changed something": (
        Outcome("It is not confirmed.", Reason.TRANSIENT, effect=Effect.UNKNOWN, key="k"),
        "It is not confirmed.\n\n",
    ),
    "found something": (FOUND, ""),
    "was declined": (DECLINED, ""),
}


@pytest.mark.parametrize("last", [FOUND, DECLINED, Outcome("Not allowed.", Reason.POLICY_BLOCK)])
@pytest.mark.parametrize("first", ON_THE_WAY)
def test_what_a_run_has_changed_is_read_at_its_end(first: str, last: Outcome, runtime: Runtime) -> None:
    """Whatever ends a run, what an earlier step of it has changed, or may have, is read before that."""
    outcome, kept = ON_THE_WAY[first]
    script = [turn(call(last_step=False)), turn(call("search"))]

    said = text_of_run(runtime, script, [Till([outcome]).tool, Till([last], "search").tool])

    assert f"{last.reason.value}: {kept}{last.content}" == said


def test_mode_never_has_an_end(both: Runtime) -> None:
    """A model that calls on and on, whatever is done, is stopped by its turns, with all that was done."""
    paid = [Outcome(f"Paid cart {at}.", Reason.COMPLETED, key=str(at)) for at in range(30)]

    said = text_of_run(both, endless(call()), [Till(paid).tool], stop_mode="never", stop_max_turns=3)

    assert "completed: Paid cart 0.\n\nPaid cart 1.\n\nPaid cart 2." == said


FLOWS: dict[str, tuple[list[AIMessage], str]] = {
    # the model's script, the run's mode
    "transient for ever": (endless(call("search")), "hard"),
    "receipt, then endless search": ([turn(call(last_step=False)), *endless(call("search"))], "polish"),
    "both at once": (endless(call(), call("search", "s")), "hard"),
    "both at once, never stopped": (endless(call(), call("search", "s")), "never"),
    "no such tool": (endless(call("fly")), "never"),
}


@pytest.mark.parametrize("flow", FLOWS)
def test_a_callers_own_limit(flow: str, runtime: Runtime) -> None:
    """From 2 up a recursion limit ends in a text; what was done by then stands in it."""
    script, mode = FLOWS[flow]
    till, model = Till([PAID]), ScriptedModel()
    tools = [till.tool, Till([BUSY], "search").tool]
    apps = [runtime.build(model, tools, checkpointer=saver) for saver in (None, InMemorySaver())]
    for limit in range(2, 13):
        till.asked.clear()
        model._script = ScriptedModel(script)._script
        configurable = {"stop_mode": mode, "thread_id": str(limit)}
        way = ("invoke", "ainvoke")[limit // 2 % 2]
        path, messages = walk(way, apps[limit % 2], recursion_limit=limit, configurable=configurable)
        assert_valid(messages)
        assert path.count("tools") == sum(bool(getattr(m, "tool_calls", None)) for m in messages)
        assert bool(till.asked) == (PAID.content in messages[-1].content), limit
        assert NOT_FINISHED in messages[-1].content or rule_of(messages[-1]) is not None


ENOUGH: dict[str, tuple[list[AIMessage], int, int, list[str], str]] = {
    # the model's script, the smallest limit in the graph and in create_agent, the path, what the user reads
    "a stop": ([turn(call())], 4, 5, ["agent", "tools", "finalize"], PAID.content),
    "a turn, then a text": ([turn(call("search"))], 4, 6, ["agent", "tools", "agent"], SAID),
    "a text": ([], 2, 3, ["agent"], SAID),
}


@pytest.mark.parametrize("case", ENOUGH)
def test_a_limit_that_is_enough_changes_nothing(case: str, runtime: Runtime) -> None:
    """The smallest limit that a run needs lets it end as without one."""
    script, in_graph, in_agent, nodes, text = ENOUGH[case]
    enough = in_graph if runtime.name == "graph" else in_agent
    for limit in (enough, enough + 1, 100):
        model = ScriptedModel(script, narration=SAID)
        app = runtime.build(model, [Till([PAID]).tool, Till([BUSY], "search").tool])
        path, messages = walk("invoke", app, recursion_limit=limit)
        assert (nodes, text) == (path, messages[-1].content), limit


# The model's provider

OPEN = Outcome("The payment is not confirmed.", Reason.TRANSIENT, effect=Effect.UNKNOWN, key="k")

BEFORE: dict[str, tuple[AIMessage, Outcome, Args, str]] = {
    # the turn that the provider's failure follows, what it ended with, the run's settings, what is kept
    "mode never": (turn(call()), PAID, {"stop_mode": "never"}, PAID.content),
    "more steps": (turn(call(last_step=False)), PAID, {}, PAID.content),
    "mixed batch": (turn(call(), call("search", "c1")), PAID, {}, PAID.content),
    "declined, more steps": (turn(call(last_step=False)), DECLINED, {}, DECLINED.content),
    "not confirmed": (turn(call()), OPEN, {}, OPEN.content),
}
DOWN: dict[str, tuple[Exception, str]] = {
    "429": (ProviderError(429), CANNOT_GO_ON),
    "429 that says how long": (
        ProviderError(429, headers={"retry-after": "7200"}),
        f"{CANNOT_GO_ON} The wait is about 7200 seconds.",
    ),
    "500": (ProviderError(500), CANNOT_GO_ON),
    "timeout": (TimeoutError("read"), CANNOT_GO_ON),
    "413": (ProviderError(413), TOO_LONG),
    "tool_use_failed": (ProviderError(400, "tool_use_failed"), NO_ANSWER),
}


@pytest.mark.parametrize("failure", DOWN)
@pytest.mark.parametrize("case", BEFORE)
def test_a_provider_that_fails_loses_no_result(case: str, failure: str, runtime: Runtime) -> None:
    """What the run has done, or what is open, is read, whatever the model's provider then says."""
    first, outcome, configurable, kept = BEFORE[case]
    error, said = DOWN[failure]
    script = [first, error, error]

    way = "invoke" if len(case + failure) % 2 else "ainvoke"
    tools = [Till([outcome]).tool, Till([BUSY], "search").tool]
    text = text_of_run(replace(runtime, way=way), script, tools, **configurable)

    assert f"None: {kept}\n\n{said}" == text


@pytest.mark.parametrize("first", [[], [turn(call("search"))]], ids=["at once", "after a transient turn"])
@pytest.mark.parametrize("failure", ["429", "500", "timeout"])
def test_a_provider_that_fails_is_its_own_error(failure: str, first: list[AIMessage], both: Runtime) -> None:
    """Where a run has no result to tell, the caller gets the provider's own exception."""
    error, _ = DOWN[failure]
    app = both.build(ScriptedModel([*first, error]), [Till([BUSY], "search").tool])

    with pytest.raises(type(error)) as raised:
        both(app)

    assert error is raised.value


def test_too_large_twice_is_a_text(both: Runtime) -> None:
    """A conversation that stays too large ends in a text that says so: there is nothing to try again."""
    model = ScriptedModel([ProviderError(413)] * 2)

    messages = both(both.build(model, [Till([PAID]).tool]))

    assert (2, TOO_LONG) == (model.calls, messages[-1].content)


def test_too_large_is_asked_shorter(both: Runtime) -> None:
    """After a 413 the model is asked once more, with long results cut further; the history has them whole."""
    long = Outcome("x" * 5_000, Reason.TRANSIENT)
    model = ScriptedModel([turn(call()), ProviderError(413), AIMessage("There.")])

    messages = both(both.build(model, [Till([long]).tool]))

    assert [5_000, SHORT_RESULT] == [request[-1].content.count("x") for request in model.requests[1:]]
    assert (long.content, "There.") == (messages[2].content, messages[-1].content)


@pytest.mark.parametrize("results", [[], [turn(call(last_step=False))]], ids=["no result", "a result"])
def test_a_garbled_call_is_asked_once_more(results: list[AIMessage], both: Runtime) -> None:
    """A call that the provider could not read is asked for once more; twice is a text, and nothing runs."""
    error = ProviderError(400, "tool_use_failed")
    for again, calls, said in (([AIMessage("There.")], 2, "There."), ([error], 2, NO_ANSWER)):
        till = Till([PAID])
        model = ScriptedModel([*results, error, *again])
        messages = both(both.build(model, [till.tool]))
        assert (len(results) + calls, len(results)) == (model.calls, len(till.asked))
        assert ASK_AGAIN == model.requests[-1][-1].content
        assert str(messages[-1].content).endswith(said)
        assert ASK_AGAIN not in [message.content for message in messages]


@pytest.mark.parametrize(
    "nothing",
    [
        AIMessage(""),
        AIMessage(" \n"),
        AIMessage([]),
        AIMessage([{"type": "reasoning", "reasoning": "Hm."}]),
        AIMessage("\x00"),
    ],
    ids=["empty", "blank", "no blocks", "thoughts", "NUL"],
)
def test_an_empty_answer_is_never_final(nothing: AIMessage, both: Runtime) -> None:
    """An answer without a word is asked for once more, and if there is none again the user reads a text."""
    for again, said in (("There.", "There."), (nothing, NO_ANSWER)):
        model = ScriptedModel([nothing, AIMessage(again) if isinstance(again, str) else again])
        messages = both(both.build(model, [Till([PAID]).tool]))
        assert (2, said) == (model.calls, messages[-1].content)
        assert 2 == len(messages)


# Content


def test_a_long_result(both: Runtime) -> None:
    """The model is sent a long result cut, with a note; the history and the user have it whole."""
    whole = "x" * (LONGEST_RESULT + 5)
    model = ScriptedModel([turn(call())], narration="There.")

    messages = both(both.build(model, [Till([Outcome(whole, Reason.TRANSIENT)]).tool]))

    sent = model.requests[1][-1].content
    assert f"{'x' * LONGEST_RESULT}\n[5 characters are left out here; the user gets the whole.]" == sent
    assert whole == messages[2].content


@pytest.mark.parametrize(("mode", "calls"), [("hard", 1), ("polish", 1), ("never", 2)])
def test_five_megabytes(mode: str, calls: int, both: Runtime) -> None:
    """No model is sent 5 MB: a stop shows them whole, unpolished; in mode never they are cut (B44)."""
    whole = "A hit. " * 750_000
    model = ScriptedModel([turn(call())], narration="There.")

    messages = both(both.build(model, [Till([Outcome(whole, Reason.COMPLETED)]).tool]), stop_mode=mode)

    assert calls == model.calls
    assert (whole if mode != "never" else "There.") == messages[-1].content
    assert max(len(m.content) for request in model.requests for m in request) < LONGEST_RESULT + 100


def test_a_long_error_page(both: Runtime) -> None:
    """A tool that is no domain's may answer with a 5 MB page: the model is sent its beginning."""

    @tool
    def fetch() -> str:
        """Fetch a page."""
        return "<html>" + "x" * 5_000_000

    model = ScriptedModel([turn(call("fetch"))], narration="There.")
    both(both.build(model, [fetch]))

    assert LONGEST_RESULT < len(model.requests[1][-1].content) < LONGEST_RESULT + 100


IMAGE = {"type": "image", "base64": "QUJD" * 10, "mime_type": "image/png"}
WORDS = [{"type": "text", "text": "One."}, IMAGE, {"type": "text", "text": "Two."}]
DONE = Outcome("", Reason.COMPLETED).as_tool_result()[1]

CONTENTS: dict[str, tuple[Any, str]] = {
    "blocks": (WORDS, "One.\nTwo."),
    "an image alone": ([IMAGE], NO_TEXT),
    "nothing": ("", NO_TEXT),
    "blank": (" ", NO_TEXT),
    "no blocks": ([], NO_TEXT),
}


@pytest.mark.parametrize("case", CONTENTS)
def test_contents(case: str, both: Runtime) -> None:
    """A stop shows the text of blocks, never bytes, and a sentence where there is no text."""
    content, text = CONTENTS[case]

    assert f"completed: {text}" == text_of_run(both, [turn(call())], [Till([(content, DONE)]).tool])


def test_long_blocks(runtime: Runtime) -> None:
    """Of blocks that go to the model each text is cut by itself, and images are left as they are."""
    content = [{"type": "text", "text": "x" * (LONGEST_RESULT + 1)}, IMAGE]
    later = Outcome("", Reason.TRANSIENT).as_tool_result()[1]
    model = ScriptedModel([turn(call())], narration="There.")

    runtime(runtime.build(model, [Till([(content, later)]).tool]))

    sent: Any = model.requests[1][-1].content
    text, image = sent
    assert ("x" * LONGEST_RESULT, IMAGE) == (text["text"][:LONGEST_RESULT], image)
    assert "[1 characters are left out here" in text["text"]


# Scenarios in the other modes


ALL = scenarios()
PAYMENT = ALL["checkout/paid"].turns[0]
CHANGED = [
    (name, mode)
    for at, (name, scenario) in enumerate(ALL.items())
    for mode in (StopMode.POLISH, StopMode.NEVER)
    if any(expected(turn, mode) != turn for turn in scenario.turns)
    if (mode is StopMode.POLISH) == at % 2
]
"""Scenarios that go another way in another mode, each in one of the two."""


@pytest.mark.parametrize(("name", "mode"), CHANGED)
def test_scenarios_in_other_modes(name: str, mode: StopMode) -> None:
    """In never a stop goes back to the model, in polish good news keeps its numbers; all else is the same."""
    scenario, at = ALL[name], [*ALL].index(name)
    runtime: RuntimeName = RUNTIMES[at % len(RUNTIMES)]

    played = play(scenario, runtime, policy=StopPolicy(mode=mode), use_async=at % 4 > 1)

    assert () == played.surprises
    hard = sum(turn.model_calls for turn in scenario.turns)
    ends = [turn for turn in scenario.turns if turn.stopped_by not in {None, "attempts_exhausted"}]
    if mode is StopMode.NEVER:
        assert hard + len(ends) == played.model_calls
        assert len(ends) == sum(turn.narration in _texts(played.messages) for turn in ends)
    else:
        assert hard + sum(map(all_well, ends)) == played.model_calls
        assert numbers(scenario.turns[-1].final) <= numbers(played.final)


@pytest.mark.parametrize(
    ("mode", "path", "final"),
    [
        ("hard", ["agent", "tools", "finalize"], PAYMENT.final),
        ("polish", ["agent", "tools", "polish"], PAYMENT.narration),
        ("never", ["agent", "tools", "agent"], PAYMENT.narration),
    ],
)
@pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")  # of typers older than their click
def test_mode_of_the_command_line(mode: str, path: list[str], final: str) -> None:
    """``domains run --mode`` plays in that mode, and says so."""
    from typer.testing import CliRunner

    from domains.cli import app

    done = CliRunner().invoke(app, ["run", "checkout/paid", "--mode", mode, "--json"])

    [row] = json.loads(done.stdout)
    assert (0, mode, True, path, final) == (done.exit_code, row["mode"], row["ok"], row["path"], row["final"])
    assert len(path) - 1 - (mode == "hard") == row["model_calls"]


def test_tokens_of_a_polish() -> None:
    """The call that rewords a text is paid for like any other, whether its words are used or not."""
    for name in ("checkout/paid", "search/found"):
        hard, polish = (
            play(ALL[name], "graph", policy=StopPolicy(mode=mode)).tokens
            for mode in (StopMode.HARD, StopMode.POLISH)
        )
        assert all((hard[each] or 0) < (polish[each] or 0) for each in ("input", "output"))


def _texts(messages: Sequence[AnyMessage]) -> list[Any]:
    return [message.content for message in messages]


def all_well(turn: Turn) -> bool:
    """Return whether every call of a turn that ends a run did what was asked."""
    return {"completed"} == {*turn.reasons[-len(turn.script[-1]) :]}
