"""The same scenarios in five wirings, side by side: what a stop saves, and what a static stop breaks.

Every wiring runs the same tools against the same fakes, and the model is the same fake of Groq's wire. It
plays the scenario's script as long as the run goes on. Asked again after that, it says what the scenario
narrates, if that is true to what the tools said, and their own words if it is not: **the model never errs
in its words**, so what goes wrong below is the wiring's. A real model can only be worse.

The plain loop is ``create_agent`` with the domains' tools and nothing else. (Not ``StopMode.NEVER``: that
keeps our budget of attempts and our guard against sending a declined call again, both of which would
flatter the baseline.) With ``return_direct`` it gets copies of the tools that carry the flag: the marks
that come off best, found by trying all of them. What the user reads in a wiring is its last message.

Wrong answers are found by checks on messages and on the vendors' logs:

- *gave up*: the run ended on a failure that could pass: the model was not asked, and a call that it would
  have made next does pass;
- *left undone*: the same after a step that did not fail: the user asked for more than that step;
- *retried*: a call that was declined in this run was made once more, and the vendor was asked once more;
- *lost a receipt*: something was done, and the last message lacks a number or a link of its receipt;
- *claimed success*: the model's own words say that something is done, and no call of the run did it. Found
  by a few English verbs, so a claim in other words is missed.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from html import unescape
from itertools import combinations, count
from typing import Any, Final

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from domains.found import DOMAINS
from domains.runner import build, vendors
from domains.scenario import Ask, Scenario, Turn
from mocks.groq import GroqMock
from orchestration.guards import essence
from orchestration.ledger import ledger
from orchestration.outcomes import Outcome, text_of
from orchestration.reasons import Reason
from orchestration.router import StopMode, StopPolicy, outcome_of, turns
from orchestration.tools import LAST_STEP


class Wiring(StrEnum):
    """How model and tools are wired."""

    PLAIN = "plain"
    """The model is asked after every turn of tools."""

    RETURN_DIRECT = "return_direct"
    """A flag that is set where a tool is made ends the run, if every call of the turn carries it."""

    TO_END = "tools->END"
    """A graph wired by hand whose tools lead to its end."""

    HARD = "hard"
    """The router, mode ``hard``."""

    POLISH = "polish"
    """The router, mode ``polish``."""


OURS: Final = (Wiring.HARD, Wiring.POLISH)


class Wrong(StrEnum):
    """What can be wrong with an answer."""

    GAVE_UP = "gave up"
    LEFT_UNDONE = "left undone"
    RETRIED = "retried"
    LOST_RECEIPT = "lost a receipt"
    CLAIMED = "claimed success"


@dataclass(frozen=True, slots=True)
class Called:
    """One tool call, and how it ended."""

    call: Mapping[str, Any]
    """The call, as the model made it."""

    outcome: Outcome | None
    """None if nothing vouches for the answer."""


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of tool calls."""

    calls: tuple[Called, ...]
    """In call order."""

    sent: int
    """Requests that the vendors saw meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What came of one thing that the user said."""

    rounds: tuple[Round, ...]
    """The turns of tool calls."""

    final: str
    """What the user read last."""

    by_model: bool
    """Whether these are the model's own words."""

    model_calls: int
    """Requests that the model's wire saw."""

    input_tokens: int | None
    """Tokens sent, approximate; None if an answer did not say."""

    output_tokens: int | None
    """Tokens received, likewise."""

    vendor_calls: int
    """Requests that the vendors saw."""

    missed: tuple[str, ...]
    """The reasons of the calls that the model would have made next, had it been asked."""

    ended_by: str
    """The router's rule that ended it, or ``model``."""

    wrong: tuple[Wrong, ...] = ()
    """What the checks found."""

    @property
    def calls(self) -> list[Called]:
        """Every tool call."""
        return [called for each in self.rounds for called in each.calls]

    @property
    def receipts(self) -> dict[str, Outcome]:
        """What was done, by what it was done to: the last answer about a thing counts."""
        outcomes = [called.outcome for called in self.calls if called.outcome is not None]
        return {each.key: each for each in outcomes if each.key is not None and _done(each)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One scenario in one wiring."""

    scenario: str
    """The scenario's id."""

    wiring: Wiring
    """How it was wired."""

    heard: tuple[Heard, ...]
    """What came of each thing that the user said."""

    marks: tuple[str, ...] = ()
    """The tools that carried ``return_direct``."""

    surprises: tuple[str, ...] = ()
    """In mode ``hard``: what did not go as written."""

    @property
    def wrong(self) -> Counter[Wrong]:
        """Wrong answers by kind."""
        return Counter(kind for each in self.heard for kind in each.wrong)

    def row(self) -> dict[str, Any]:
        """Return what ``domains compare --json`` prints of it."""
        return {
            "scenario": self.scenario,
            "wiring": self.wiring.value,
            **figures([self]),
            "finals": [each.final for each in self.heard],
        }


def figures(compared: Iterable[Compared]) -> dict[str, Any]:
    """Add up what several plays cost, and what was wrong with them."""
    plays = list(compared)
    heard = [each for play in plays for each in play.heard]
    wrong = Counter(kind for each in heard for kind in each.wrong)
    return {
        "model_calls": sum(each.model_calls for each in heard),
        "input_tokens": _sum(each.input_tokens for each in heard),
        "output_tokens": _sum(each.output_tokens for each in heard),
        "vendor_calls": sum(each.vendor_calls for each in heard),
        "wrong": {kind.value: wrong[kind] for kind in Wrong},
    }


def _sum(parts: Iterable[int | None]) -> int | None:
    known = list(parts)
    return None if None in known else sum(part for part in known if part is not None)


def compare(
    scenarios: Sequence[Scenario], *, on_play: Callable[[str], None] = lambda _: None
) -> list[Compared]:
    """Play scenarios in every wiring.

    Args:
        scenarios: What to play.
        on_play: Told the scenario's id before it is played.

    Returns:
        One item a scenario and wiring, in the order of the scenarios, then of the wirings.
    """
    found: dict[tuple[str, Wiring], Compared] = {}
    truthful: dict[str, Scenario] = {}
    for scenario in scenarios:
        on_play(scenario.id)
        hard = play(scenario, Wiring.HARD)
        true = replace(scenario, turns=tuple(map(_true, scenario.turns, hard.heard)))
        reworded = replace(scenario, turns=tuple(map(_reworded, scenario.turns, hard.heard)))
        truthful[scenario.id] = true
        found[scenario.id, Wiring.HARD] = hard
        found[scenario.id, Wiring.PLAIN] = play(true, Wiring.PLAIN)
        found[scenario.id, Wiring.TO_END] = play(true, Wiring.TO_END)
        found[scenario.id, Wiring.POLISH] = play(reworded, Wiring.POLISH)
    for home in dict.fromkeys(map(_home, scenarios)):
        own = [truthful[scenario.id] for scenario in scenarios if _home(scenario) == home]
        on_play(f"return_direct, {home or 'across domains'}")
        found |= {(each.scenario, each.wiring): each for each in _best_marked(own)}
    return [found[scenario.id, wiring] for scenario in scenarios for wiring in Wiring]


def _home(scenario: Scenario) -> str:
    """Return whose tools a scenario has; empty for all of them."""
    home = scenario.id.split("/")[0]
    return home if home in DOMAINS else ""


def _best_marked(scenarios: Sequence[Scenario]) -> list[Compared]:
    """Play with ``return_direct`` on the tools that make it come off best: the flag is one choice for all."""
    names = [tool.name for _, tool in _tools(scenarios[0])]
    marks = [some for size in range(len(names), 0, -1) for some in combinations(names, size)]
    tried = [[play(scenario, Wiring.RETURN_DIRECT, marks=some) for scenario in scenarios] for some in marks]
    return min(tried, key=_badness)


def _badness(compared: Sequence[Compared]) -> tuple[int, int]:
    return sum(each.wrong.total() for each in compared), figures(compared)["model_calls"]


def _tools(scenario: Scenario, fakes: Mapping[str, Any] | None = None) -> Iterator[tuple[str, BaseTool]]:
    for name, fake in (fakes if fakes is not None else vendors(scenario)).items():
        for tool in DOMAINS[name].tools(client=fake.client()):
            yield name, tool


def play(scenario: Scenario, wiring: Wiring, *, marks: Sequence[str] = ()) -> Compared:
    """Play a scenario in one wiring.

    Args:
        scenario: What to play.
        wiring: How model and tools are wired.
        marks: The tools that carry ``return_direct`` in the wiring of that name.
    """
    fakes = vendors(scenario)
    tools = [tool for _, tool in _tools(scenario, fakes)]
    if wiring is Wiring.RETURN_DIRECT:
        tools = [tool.model_copy(update={"return_direct": tool.name in marks}) for tool in tools]
    free_text = {tool.name: (tool.metadata or {}).get("free_text") or () for tool in tools}
    history: list[AnyMessage] = []
    heard: list[Heard] = []
    ids = count(1)
    for turn in scenario.turns:
        wire = GroqMock(
            turns=[_said(step, ids, ours=wiring in OURS) for step in turn.script], narration=turn.narration
        )
        agent = _WIRED[wiring](wire.model(), tools)
        start, asked = [*history, HumanMessage(turn.user)], _requests(fakes)
        log: dict[int, int] = {len(start): asked}
        for state in agent.stream({"messages": start}, stream_mode="values"):
            history = state["messages"]
            log[len(history)] = _requests(fakes)
        came = _heard(turn, history, len(start), wire, log)
        seen = [called for each in heard for called in each.calls]
        heard.append(replace(came, wrong=tuple(_wrong(came, free_text, seen))))
    written = zip(scenario.turns, heard, strict=True) if wiring is Wiring.HARD else ()
    return Compared(
        scenario=scenario.id,
        wiring=wiring,
        heard=tuple(heard),
        marks=tuple(marks),
        surprises=tuple(
            f"expected {turn.final!r}, came {each.final!r}"
            for turn, each in written
            if turn.final != each.final
        ),
    )


def _requests(fakes: Mapping[str, Any]) -> int:
    return sum(len(fake.requests) for fake in fakes.values())


def _said(step: tuple[Ask, ...] | str, ids: Iterator[int], *, ours: bool) -> AIMessage:
    """Return a step of the script. A model that is not shown ``last_step`` does not write it."""
    if isinstance(step, str):
        return AIMessage(step)
    calls = [
        {
            "name": ask.tool,
            "args": {name: value for name, value in ask.args.items() if ours or name != LAST_STEP},
            "id": f"call_{next(ids)}",
        }
        for ask in step
    ]
    return AIMessage("", tool_calls=calls)


def _heard(
    turn: Turn, history: Sequence[AnyMessage], started: int, wire: GroqMock, log: Mapping[int, int]
) -> Heard:
    run = ledger(history).runs[-1]
    last = history[-1]
    places = {id(message): at for at, message in enumerate(history, start=1)}
    rounds = []
    for each in reversed(list(turns(history))):
        calls = tuple(Called(call, outcome_of(answer)) for call, answer in each.answers)
        asked = places[id(each.message)]
        rounds.append(Round(calls, log[asked + len(calls)] - log[asked]))
    return Heard(
        rounds=tuple(rounds),
        final=text_of(last.content),
        by_model=isinstance(last, AIMessage) and last.response_metadata.get("route") != "finalize",
        model_calls=wire.calls,
        input_tokens=run.cost.input_tokens,
        output_tokens=run.cost.output_tokens,
        vendor_calls=log[len(history)] - log[started],
        missed=turn.reasons[sum(len(each.calls) for each in rounds) :],
        ended_by=run.ended_by,
    )


def _plain(model: Any, tools: Sequence[BaseTool]) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Build the plain loop; tools that carry ``return_direct`` end it."""
    from langchain.agents import create_agent

    return create_agent(model, tools)


def _to_end(model: Any, tools: Sequence[BaseTool]) -> CompiledStateGraph[Any, Any, Any, Any]:
    bound = model.bind_tools(tools)
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [bound.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", END)
    return graph.compile()


def _routed(mode: StopMode) -> Callable[[Any, Sequence[BaseTool]], CompiledStateGraph[Any, Any, Any, Any]]:
    return lambda model, tools: build("graph", model, tools, StopPolicy(mode=mode))


_WIRED: Final[Mapping[Wiring, Callable[..., CompiledStateGraph[Any, Any, Any, Any]]]] = {
    Wiring.PLAIN: _plain,
    Wiring.RETURN_DIRECT: _plain,
    Wiring.TO_END: _to_end,
    Wiring.HARD: _routed(StopMode.HARD),
    Wiring.POLISH: _routed(StopMode.POLISH),
}


def _wrong(
    came: Heard, free_text: Mapping[str, Sequence[str]], before: Sequence[Called] = ()
) -> Iterator[Wrong]:
    """Yield what is wrong with an answer.

    Args:
        came: The answer, and what led to it.
        free_text: Tool -> the arguments that a model words anew each time.
        before: The calls of what the user said earlier.
    """
    if Reason.COMPLETED in came.missed:
        failed = any(_can_pass(called.outcome) for called in came.rounds[-1].calls)
        yield Wrong.GAVE_UP if failed else Wrong.LEFT_UNDONE
    if _retried(came, free_text):
        yield Wrong.RETRIED
    if _lost(came):
        yield Wrong.LOST_RECEIPT
    if came.by_model and _claims(came) and not _did(came.calls or before):
        yield Wrong.CLAIMED


def _done(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.reason is Reason.COMPLETED and not outcome.pending


def _can_pass(outcome: Outcome | None) -> bool:
    return outcome is None or outcome.reason is Reason.TRANSIENT


def _did(calls: Iterable[Called]) -> bool:
    """Whether something was done, not only looked up."""
    return any(_done(each.outcome) and each.outcome and each.outcome.key is not None for each in calls)


def _retried(came: Heard, free_text: Mapping[str, Sequence[str]]) -> bool:
    declined = []
    for each in came.rounds:
        own = [
            (essence(called.call, free_text.get(called.call["name"], ())), called) for called in each.calls
        ]
        if each.sent and any(what in declined for what, _ in own):
            return True
        declined += [
            what
            for what, called in own
            if called.outcome and called.outcome.reason in {Reason.FATAL, Reason.POLICY_BLOCK}
        ]
    return False


def _lost(came: Heard) -> bool:
    told = shown(came.final)
    return any(fact not in told for receipt in came.receipts.values() for fact in _facts(receipt.content))


def _facts(text: str) -> set[str]:
    """Return the links and numbers of a text, or the whole of it if it has none."""
    text = shown(text)
    return set(re.findall(r"https?://\S+|\d+(?:[.,:]\d+)*", text)) or {text}


def shown(text: str) -> str:
    """Return a text as it looks on a page: without tags, white space folded."""
    return " ".join(unescape(re.sub(r"</?[a-zA-Z][^<>]*>", " ", text)).split())


_CLAIM: Final = re.compile(
    r"\b(?:I(?:['\u2019]ve| have)|(?:is|are|was|were|been)(?: now| all| already)?) "
    r"(?:paid|charged|bought|ordered|booked|opened|open|filed|created|sent|submitted|done|completed)\b",
    re.IGNORECASE,
)
_DENIAL: Final = re.compile(
    r"\b(?:no|not|none|nothing|never|nobody|cannot|unable)\b|n['\u2019]t\b|\?", re.IGNORECASE
)


def _claims(came: Heard) -> bool:
    tools = " ".join(shown(each.outcome.content) for each in came.calls if each.outcome)
    own = [each.strip() for each in re.findall(r"[^.!?]+[.!?]*", shown(came.final))]
    return any(_CLAIM.search(each) and not _DENIAL.search(each) for each in own if each not in tools)


def _true(turn: Turn, heard: Heard) -> Turn:
    """Return the turn with a narration that is true to all that the run's tools said."""
    told = replace(heard, final=turn.narration, by_model=True)
    if not {Wrong.LOST_RECEIPT, Wrong.CLAIMED} & set(_wrong(told, {})):
        return turn
    last = [each.outcome for each in heard.rounds[-1].calls] if heard.rounds else []
    said = [each.content for each in (*heard.receipts.values(), *last) if each is not None]
    return _retold(turn, *said)


def _reworded(turn: Turn, heard: Heard) -> Turn:
    """Return the turn with a narration that is true to what a polish call is sent: the stop's text alone."""
    if _facts(heard.final) <= _facts(turn.narration):
        return turn
    return _retold(turn, heard.final)


def _retold(turn: Turn, *texts: str) -> Turn:
    return replace(turn, narration=" ".join(["Here is what came of it.", *dict.fromkeys(map(shown, texts))]))


def of_plays(compared: Iterable[Compared], wiring: Wiring) -> list[Compared]:
    """Return the plays in one wiring."""
    return [each for each in compared if each.wiring is wiring]


def as_dict(compared: Sequence[Compared]) -> dict[str, Any]:
    """Return what ``domains compare --json`` prints."""
    return {
        "scenarios": len({each.scenario for each in compared}),
        "tokens": "approximate",
        "wirings": {wiring.value: figures(of_plays(compared, wiring)) for wiring in Wiring},
        "return_direct_on": {
            each.scenario: list(each.marks) for each in of_plays(compared, Wiring.RETURN_DIRECT)
        },
        "plays": [each.row() for each in compared],
        "surprises": {each.scenario: list(each.surprises) for each in compared if each.surprises},
    }
