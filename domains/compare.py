"""The same scenarios in five wirings, side by side: what a stop saves, and what a static stop breaks.

Every wiring runs the same tools against the same fakes, and the model is the same fake of Groq's wire. It
plays the scenario's script as long as the run goes on. Asked again after that, it says what the scenario
narrates, if all that was asked is done and the narration is true to it, and the tools' own words if not:
**the scripted model never errs in its words**, so what goes wrong below is the wiring's. A real model can
only be worse.

The plain loop is ``create_agent`` with the domains' tools and nothing else. (Not ``StopMode.NEVER``: that
keeps our budget of attempts and our guard against sending a declined call again, both of which would
flatter the baseline.) With ``return_direct`` it gets copies of the tools that carry the flag: the marks
that come off best over all scenarios of the domain, found by trying them. What the user reads in a wiring
is its last message. ``domains.answers`` finds what is wrong with it; what a run has missed is what the plain
loop got done after the point where that run ended.

**Live**, a real model is asked in place of the script, in every wiring alike: what a stop avoided is then
measured.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, wraps
from inspect import signature
from itertools import combinations, count
from typing import Any, Final

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_core.outputs import LLMResult
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from domains.answers import Called, Heard, Ran, Round, Wrong, in_words, lacks, wrong
from domains.found import DOMAINS
from domains.found import scenarios as all_scenarios
from domains.runner import build, scripted, vendors
from domains.runner import play as play_on
from domains.scenario import Scenario, Turn
from orchestration.asking import garbled, too_large
from orchestration.guards import essence
from orchestration.ledger import EXCUSE, MODEL, OPEN, ledger
from orchestration.outcomes import Outcome, text_of
from orchestration.reasons import Reason
from orchestration.relay import PLAIN_PROMPT, SYSTEM_PROMPT
from orchestration.router import Route, StopMode, StopPolicy, outcome_of, turns
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


FEW: Final = 2
"""Tools that may carry the flag alone, or be alone without it, where there are too many to try all marks."""

OURS: Final = (Wiring.HARD, Wiring.POLISH)


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
        "wrong_answers": sum(bool(each.wrong) for each in heard),
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
    marks = {home: _best_marks(home, scenarios, on_play) for home in dict.fromkeys(map(_home, scenarios))}
    found: list[Compared] = []
    for scenario in scenarios:
        on_play(scenario.id)
        as_written = play_on(scenario, "graph").surprises
        true, plain = _told_truly(scenario)
        hard = play(true, Wiring.HARD, plain=plain.heard)
        # A polish is sent the stop's text alone, and its model knows no more than that.
        reworded = replace(true, turns=tuple(map(_reworded, true.turns, hard.heard)))
        found += [
            plain,
            play(true, Wiring.RETURN_DIRECT, marks=marks[_home(scenario)], plain=plain.heard),
            play(true, Wiring.TO_END, plain=plain.heard),
            replace(hard, surprises=as_written),
            play(reworded, Wiring.POLISH, plain=plain.heard),
        ]
    return found


def compare_live(
    scenarios: Sequence[Scenario], model: Any, *, on_play: Callable[[str], None] = lambda _: None
) -> Iterator[Compared]:
    """Play scenarios in every wiring with a real model, one scenario after the other.

    ``return_direct`` stands on the tools where it comes off best with the script: to try all marks with a
    real model would cost a multiple of all the rest.

    Args:
        scenarios: What to play.
        model: A chat model.
        on_play: Told the scenario's id and the wiring before it is played.

    Yields:
        One item a scenario and wiring, in their order; those of a scenario once all of them are there.

    Raises:
        Exception: The model's provider refused; what was yielded before stands.
    """
    marks = {home: _best_marks(home, scenarios, on_play) for home in dict.fromkeys(map(_home, scenarios))}
    for scenario in scenarios:
        found: list[Compared] = []
        for wiring in Wiring:
            on_play(f"{scenario.id}, {wiring.value}")
            plain = found[0].heard if found else ()
            found.append(play(scenario, wiring, marks=marks[_home(scenario)], live=model, plain=plain))
        yield from found


def _home(scenario: Scenario) -> str:
    """Return whose tools a scenario has; empty for all of them."""
    home = scenario.id.split("/")[0]
    return home if home in DOMAINS else ""


def _best_marks(home: str, chosen: Sequence[Scenario], on_play: Callable[[str], None]) -> tuple[str, ...]:
    """Return the tools on which ``return_direct`` comes off best over all scenarios of a home.

    The flag is one choice for all of them, whichever are looked at. With more than five tools those marks are
    tried that leave out at most two of them, or take at most two.
    """
    own = {each.id: each for each in (*all_scenarios().values(), *chosen) if _home(each) == home}
    names = sorted(set().union(*map(_asked, own.values())))
    sizes = [size for size in range(len(names), 0, -1) if size <= FEW or size >= len(names) - FEW]
    marks = [some for size in sizes for some in combinations(names, size)]
    if len(marks) <= 1:
        return (*names,)
    on_play(f"return_direct, {home or 'across domains'}")
    true = {each.id: _told_truly(each) for each in own.values()}

    @cache
    def played(name: str, some: frozenset[str]) -> Compared:
        scenario, plain = true[name]
        return play(scenario, Wiring.RETURN_DIRECT, marks=sorted(some), plain=plain.heard)

    def badness(some: tuple[str, ...]) -> tuple[int, int]:
        # A mark on a tool that a scenario does not ask for changes nothing in it.
        sums = figures(played(each.id, frozenset(some) & _asked(each)) for each in own.values())
        return sums["wrong_answers"], sums["model_calls"]

    return min(marks, key=badness)


def _asked(scenario: Scenario) -> frozenset[str]:
    """Return the tools that a script asks for."""
    steps = (step for turn in scenario.turns for step in turn.script)
    return frozenset(ask.tool for step in steps if not isinstance(step, str) for ask in step)


@dataclass(eq=False)
class Meter(BaseCallbackHandler):
    """Counts what a run asks of its model, whatever becomes of the answers."""

    calls: int = 0
    """How often it was asked."""

    input_tokens: int | None = 0
    """Tokens sent; None if an answer did not say."""

    output_tokens: int | None = 0
    """Tokens received, likewise."""

    refused: BaseException | None = None
    """Why the provider gave no answer, if it was not the model's own fault."""

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        """Count a call."""
        self.calls += 1

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        """Add up what it cost."""
        usage = getattr(response.generations[0][0], "message", AIMessage("")).usage_metadata or {}
        self.input_tokens = _sum((self.input_tokens, usage.get("input_tokens")))
        self.output_tokens = _sum((self.output_tokens, usage.get("output_tokens")))

    def on_llm_error(self, error: BaseException, **_: Any) -> None:
        """Note a refusal. What it cost is not known."""
        self.input_tokens = self.output_tokens = None
        if not isinstance(error, Exception) or not (garbled(error) or too_large(error)):
            self.refused = error


def play(
    scenario: Scenario,
    wiring: Wiring,
    *,
    marks: Sequence[str] = (),
    live: Any = None,
    plain: Sequence[Heard] = (),
) -> Compared:
    """Play a scenario in one wiring.

    Args:
        scenario: What to play.
        wiring: How model and tools are wired.
        marks: The tools that carry ``return_direct`` in the wiring of that name.
        live: A real model in place of the script.
        plain: What came of the same in the plain loop, to say what a run has missed.

    Raises:
        Exception: The real model's provider refused.
    """
    fakes = vendors(scenario)
    ran: list[Ran] = []
    tools = [
        _noting(tool, ran)
        for name, fake in fakes.items()
        for tool in DOMAINS[name].tools(client=fake.client())
    ]
    if wiring is Wiring.RETURN_DIRECT:
        tools = [tool.model_copy(update={"return_direct": tool.name in marks}) for tool in tools]
    ours = wiring in OURS
    history: list[AnyMessage] = [SystemMessage(SYSTEM_PROMPT if ours else PLAIN_PROMPT)] if live else []
    heard: list[Heard] = []
    ids = count(1)
    for turn in scenario.turns:
        model = live or scripted(turn, ids, without=() if ours else (LAST_STEP,)).model()
        meter, log, raised = Meter(), _Log(fakes, ran), ""
        history = [*history, HumanMessage(turn.user)]
        log.note(history)
        try:
            agent = _WIRED[wiring](model, tools)
            for state in agent.stream({"messages": history}, {"callbacks": [meter]}, stream_mode="values"):
                history = state["messages"]
                log.note(history)
        except AssertionError:
            raise  # the script's own failure
        except Exception as error:
            raised = type(error).__name__
        if meter.refused:
            raise meter.refused
        came = _heard(history, meter, log, raised)
        if len(heard) < len(plain):
            came = replace(came, missed=_missed(came, plain[len(heard)], live=bool(live)))
        seen = [called for each in heard for called in each.calls]
        heard.append(replace(came, wrong=tuple(wrong(came, seen))))
        if raised:
            break
    return Compared(
        scenario=scenario.id,
        wiring=wiring,
        heard=tuple(heard),
        marks=tuple(marks),
    )


def _noting(tool: BaseTool, ran: list[Ran]) -> BaseTool:
    """Return a copy of a tool that notes what it carries out."""
    assert isinstance(tool, StructuredTool)  # as_tool makes no other
    call = tool.func
    assert call is not None
    free_text = (tool.metadata or {}).get("free_text") or ()
    defaults = {name: each.default for name, each in signature(call).parameters.items()}

    @wraps(call)
    def noted(**arguments: Any) -> Any:
        what = repr(essence({"name": tool.name, "args": {**defaults, **arguments}}, free_text))
        content, artifact = answer = call(**arguments)
        outcome = Outcome.from_tool_result(content, artifact)
        ran.append(Ran(what, outcome is not None and outcome.reason in {Reason.FATAL, Reason.POLICY_BLOCK}))
        return answer

    return tool.model_copy(update={"func": noted})


class _Log:
    """What the vendors were asked and the tools carried out, by the length of the history then."""

    def __init__(self, fakes: Mapping[str, Any], ran: Sequence[Ran]) -> None:
        self._fakes, self._ran = fakes, ran
        self.requests: list[int] = []
        self.carried_out: dict[int, int] = {}

    def note(self, history: Sequence[AnyMessage]) -> None:
        self.requests.append(sum(len(fake.requests) for fake in self._fakes.values()))
        self.carried_out[len(history)] = len(self._ran)

    def between(self, first: int, last: int) -> tuple[Ran, ...]:
        """Return what was carried out while the history grew; all of the rest if it never got there."""
        return tuple(self._ran[self.carried_out[first] : self.carried_out.get(last)])


def _heard(history: Sequence[AnyMessage], meter: Meter, log: _Log, raised: str) -> Heard:
    last = history[-1]
    places = {id(message): at for at, message in enumerate(history, start=1)}
    rounds = []
    for each in reversed(list(turns(history))):
        calls = tuple(Called(call, outcome_of(answer)) for call, answer in each.answers)
        asked = places[id(each.message)]
        rounds.append(Round(calls, log.between(asked, asked + len(calls))))
    return Heard(
        rounds=tuple(rounds),
        final="" if raised else text_of(last.content),
        format="html" if _told(last).get("format") == "html" else "text",
        by_model=isinstance(last, AIMessage) and _told(last).get("route") != Route.FINALIZE,
        model_calls=meter.calls,
        input_tokens=meter.input_tokens,
        output_tokens=meter.output_tokens,
        vendor_calls=log.requests[-1] - log.requests[0],
        ended_by=OPEN if last.type == "human" else ledger(history).runs[-1].ended_by,
        raised=raised,
    )


def _told(message: AnyMessage) -> Mapping[str, Any]:
    """Return what a message says about itself; a tool's is known by its artifact."""
    return getattr(message, "artifact", None) or message.response_metadata


def _missed(came: Heard, plain: Heard, *, live: bool) -> bool:
    """Whether the plain loop got something done after the point where a wiring ended its run.

    A script makes the same calls everywhere, so what came after is what it has not reached. A real model
    chooses anew, so there it is what the plain loop got done with a tool that here got nothing done.
    """
    if came.raised:
        return False
    if not live:
        return any(called.done for called in plain.calls[len(came.calls) :])
    if came.ended_by in {MODEL, EXCUSE}:
        return False
    done, would = ({each.call["name"] for each in heard.calls if each.done} for heard in (came, plain))
    return not would <= done


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


def _told_truly(scenario: Scenario) -> tuple[Scenario, Compared]:
    """Return a scenario whose model, asked after its script, says nothing but the truth; and its plain play.

    What it narrates stands if all that it did last is done, and it neither leaves out a receipt nor claims
    more; else it repeats what the tools said.
    """
    plain = play(scenario, Wiring.PLAIN)
    heard = plain.heard
    true = [
        _true(turn, came, [called for each in heard[:at] for called in each.calls])
        for at, (turn, came) in enumerate(zip(scenario.turns, heard, strict=False))
    ]
    told = replace(scenario, turns=(*true, *scenario.turns[len(true) :]))
    return told, plain if told == scenario else play(told, Wiring.PLAIN)


def _true(turn: Turn, heard: Heard, before: Sequence[Called]) -> Turn:
    last = heard.rounds[-1].calls if heard.rounds else ()
    told = replace(heard, final=turn.narration, by_model=True)
    if all(called.done for called in last) and not {*wrong(told, before)} - {Wrong.RETRIED}:
        return turn
    said = [each.outcome for each in last if each.outcome is not None]
    return _retold(turn, *heard.receipts.values(), *said)


def _reworded(turn: Turn, heard: Heard) -> Turn:
    """Return the turn with a narration that is true to what a polish call is sent: the stop's text alone."""
    stop = Outcome(heard.final, Reason.COMPLETED, format=heard.format)
    return _retold(turn, stop) if lacks(turn.narration, stop) else turn


def _retold(turn: Turn, *outcomes: Outcome) -> Turn:
    texts = dict.fromkeys(map(in_words, outcomes))
    return replace(turn, narration=" ".join(["Here is what came of it.", *texts]))


def of_plays(compared: Iterable[Compared], wiring: Wiring) -> list[Compared]:
    """Return the plays in one wiring."""
    return [each for each in compared if each.wiring is wiring]


def avoided(compared: Sequence[Compared], wiring: Wiring) -> dict[str, int | None]:
    """Return what a wiring did without, counted against the plain loop: model calls and tokens."""
    before, after = (figures(of_plays(compared, each)) for each in (Wiring.PLAIN, wiring))
    return {
        name: None if None in {before[name], after[name]} else before[name] - after[name]
        for name in ("model_calls", "input_tokens", "output_tokens")
    }


def as_dict(compared: Sequence[Compared], *, model: str | None = None) -> dict[str, Any]:
    """Return what ``domains compare --json`` prints.

    Args:
        compared: What came of it.
        model: The model that was asked; None for the script.
    """
    return {
        "scenarios": len({each.scenario for each in compared}),
        "model": model or "script",
        "tokens": "reported" if model else "approximate",
        "wirings": {
            wiring.value: figures(of_plays(compared, wiring)) | {"avoided": avoided(compared, wiring)}
            for wiring in Wiring
        },
        "return_direct_on": {
            each.scenario: list(each.marks) for each in of_plays(compared, Wiring.RETURN_DIRECT)
        },
        "plays": [each.row() for each in compared],
        "surprises": {each.scenario: list(each.surprises) for each in compared if each.surprises},
    }
