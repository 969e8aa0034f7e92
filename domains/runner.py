"""Plays scenarios: the composition root, where tools, vendors' fakes and models meet.

Vendors are always fakes, so that a reply can be forced. The model is the real ``ChatGroq`` client, over a
fake of Groq's wire, or over Groq's own with ``live``.
"""

import asyncio
from collections.abc import AsyncIterator, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from typing import Any, Literal, TypeAlias

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_groq import ChatGroq
from langgraph.graph.state import CompiledStateGraph

from domains.found import DOMAINS
from domains.scenario import Ask, Forced, Scenario, Turn
from mocks.groq import MODEL, GroqMock
from mocks.vendor import Fault, Vendor
from orchestration.relay import SYSTEM_PROMPT, numbers
from orchestration.router import (
    BUDGET_RULES,
    DEFAULT_POLICY,
    Decision,
    Route,
    StopMode,
    StopPolicy,
    decide,
    outcome_of,
)

Runtime: TypeAlias = Literal["graph", "agent"]
RUNTIMES: tuple[Runtime, ...] = ("graph", "agent") if find_spec("langchain") else ("graph",)
"""The runtimes that can be built here: without langchain there is no create_agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of one scenario on one runtime."""

    scenario: str
    """The scenario's id."""

    runtime: Runtime
    """``graph`` or ``agent``."""

    mode: str
    """The stop mode."""

    path: tuple[str, ...]
    """The nodes that ran, over all turns."""

    model_calls: int
    """Requests that the model's wire saw."""

    tool_calls: int
    """Tool calls that were answered."""

    reasons: tuple[str | None, ...]
    """The reason of every call, in call order; None for an unusable artifact."""

    rules: tuple[str | None, ...]
    """The table row of every call, in call order."""

    stopped_by: str | None
    """The router's rule that ended the last turn; None if the model ended it."""

    final: str
    """The text that the user read last."""

    tokens: Mapping[str, int | None]
    """``input`` and ``output``; None if a reply did not say. Approximate on the fake wire."""

    surprises: tuple[str, ...]
    """What was expected and what came; empty if all went as written."""

    messages: tuple[AnyMessage, ...]
    """The whole conversation."""

    @property
    def ok(self) -> bool:
        """Whether all went as written."""
        return not self.surprises

    def row(self) -> dict[str, Any]:
        """Return what ``domains run --json`` prints of it."""
        return {
            "scenario": self.scenario,
            "runtime": self.runtime,
            "mode": self.mode,
            "ok": self.ok,
            "path": list(self.path),
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
            "reasons": list(self.reasons),
            "rules": list(self.rules),
            "stopped_by": self.stopped_by,
            "final": self.final,
            "tokens": dict(self.tokens),
        }


def build(
    runtime: Runtime, model: Any, tools: Sequence[BaseTool], policy: StopPolicy
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the scenario's agent on one of the two runtimes."""
    if runtime == "graph":
        return import_module("orchestration.graph").build_graph(model, tools, policy=policy, strict=True)  # type: ignore[no-any-return]
    return import_module("orchestration.agent").build_agent(model, tools, policy=policy, strict=True)  # type: ignore[no-any-return]


def vendors(scenario: Scenario) -> dict[str, Vendor]:
    """Return the fakes that a scenario needs, by domain, set up as it says.

    A scenario of one domain offers the model that domain's tools; one across domains, those it asks for.
    """
    home = scenario.id.split("/")[0]
    steps = (step for turn in scenario.turns for step in turn.script if not isinstance(step, str))
    asked = {ask.tool for step in steps for ask in step}
    across = (name for name, domain in DOMAINS.items() if domain.sample.tool in asked)
    names = [home] if home in DOMAINS else list(across)
    return {
        name: vendor(name, scenario.vendors.get(name, {}), scenario.forced.get(name, ())) for name in names
    }


def vendor(domain: str, settings: Mapping[str, Any] | None = None, forced: Sequence[Forced] = ()) -> Vendor:
    """Return a domain's fake."""
    module, _, name = DOMAINS[domain].vendor.partition(":")
    made: Vendor = getattr(import_module(module), name)(**settings or {})
    made.script(*(Fault(**{each.name: getattr(one, each.name) for each in fields(Forced)}) for one in forced))
    return made


def play(
    scenario: Scenario,
    runtime: Runtime,
    *,
    policy: StopPolicy = DEFAULT_POLICY,
    live: Any = None,
    use_async: bool = False,
) -> Played:
    """Play a scenario on one runtime and compare it with what it says must happen.

    It is written for mode ``hard``; ``expected`` says what must come of it in another.

    Args:
        scenario: What to play.
        runtime: On which of the two.
        policy: The run's settings.
        live: A real model in place of the script; then the claims are checked, not the letter.
        use_async: Whether to drive the run with ``astream``.
    """
    fakes = vendors(scenario)
    history: list[AnyMessage] = [SystemMessage(SYSTEM_PROMPT)] if live else []
    path: list[str] = []
    surprises: list[str] = []
    answers: list[ToolMessage] = []
    ids, model_calls = count(1), 0
    for at, turn in enumerate(scenario.turns, start=1):
        with_clients = {
            name: {"client": fake.client(), "async_client": fake.async_client() if use_async else None}
            for name, fake in fakes.items()
        }
        tools = [tool for name, clients in with_clients.items() for tool in DOMAINS[name].tools(**clients)]
        wire = scripted(turn, ids)
        agent = build(runtime, live or wire.model(), tools, policy)
        steps, messages = walk(agent, [*history, HumanMessage(turn.user)], use_async=use_async)
        new = messages[len(history) + 1 :]
        calls = [m for m in new if isinstance(m, ToolMessage)]
        asked = steps.count("agent") + steps.count("polish") if live else wire.calls
        wanted = expected(turn, policy.mode)
        found = _claims(new, steps, policy) if live else _compare(wanted, steps, asked, calls, messages, wire)
        surprises += [f"turn {at}: {line}" if len(scenario.turns) > 1 else line for line in found]
        history, path, answers, model_calls = messages, path + steps, answers + calls, model_calls + asked
    surprises += [
        f"{name}: an unmatched request {where}" for name, fake in fakes.items() for where in fake.unmatched
    ]
    outcomes = [outcome_of(answer) for answer in answers]
    last = history[-1]
    return Played(
        scenario=scenario.id,
        runtime=runtime,
        mode=policy.mode.value,
        path=tuple(path),
        model_calls=model_calls,
        tool_calls=len(answers),
        reasons=tuple(outcome.reason.value if outcome else None for outcome in outcomes),
        rules=tuple(outcome.rule if outcome else None for outcome in outcomes),
        stopped_by=_stopped_by(last),
        final=str(last.content),
        tokens=_tokens(history),
        surprises=tuple(surprises),
        messages=tuple(history),
    )


def expected(turn: Turn, mode: StopMode) -> Turn:
    """Return what must come of a turn in a mode.

    In ``never`` a stop, but for one by a budget, goes back to the model: one call more, and its narration
    is what the user reads. In ``polish`` a turn of nothing but good news costs that call too; the narration
    counts if it holds every number of the tools' text. All the rest is as in ``hard``.
    """
    if turn.stopped_by is None or turn.stopped_by in BUDGET_RULES:
        return turn
    if mode is StopMode.NEVER:
        return replace(turn, path=(*turn.path[:-1], "agent"), stopped_by=None, final=turn.narration)
    last = turn.reasons[-len(turn.script[-1]) :]
    if mode is StopMode.POLISH and {*last} == {"completed"}:
        kept = numbers(turn.final) <= numbers(turn.narration)
        final = turn.narration if kept else turn.final
        return replace(turn, path=(*turn.path[:-1], "polish"), final=final)
    return turn


def scripted(turn: Turn, ids: Iterator[int], *, without: Container[str] = ()) -> GroqMock:
    """Return Groq's wire with a turn's script behind it.

    Args:
        turn: Whose script.
        ids: Numbers for the calls' ids.
        without: Arguments that the model does not write, since it is not shown them.
    """
    return GroqMock([_said(step, ids, without) for step in turn.script], narration=turn.narration)


def _said(step: tuple[Ask, ...] | str, ids: Iterator[int], without: Container[str]) -> AIMessage:
    if isinstance(step, str):
        return AIMessage(step)
    calls = [
        {
            "name": ask.tool,
            "args": {name: value for name, value in ask.args.items() if name not in without},
            "id": f"call_{next(ids)}",
        }
        for ask in step
    ]
    return AIMessage("", tool_calls=calls)


def groq(model: str | None = None) -> ChatGroq:
    """Return Groq's own client, with the key in ``GROQ_API_KEY``."""
    return ChatGroq(model=model or MODEL, temperature=0)


def walk(
    agent: CompiledStateGraph[Any, Any, Any, Any], messages: list[AnyMessage], *, use_async: bool
) -> tuple[list[str], list[AnyMessage]]:
    """Return the path and the history of one run."""
    start = {"messages": messages}
    if use_async:
        events = asyncio.run(_collect(agent.astream(start, stream_mode=["updates", "values"])))
    else:
        events = list(agent.stream(start, stream_mode=["updates", "values"]))
    path: list[str] = []
    for name, update in (item for mode, payload in events if mode == "updates" for item in payload.items()):
        node = _node(name, update)
        # Parallel calls of create_agent are one update each: a turn of tools is one step.
        if node and not (node == "tools" and path[-1:] == ["tools"]):
            path.append(node)
    return path, [payload for mode, payload in events if mode == "values"][-1]["messages"]


async def _collect(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


def _node(name: str, update: Any) -> str | None:
    """Return a node's name in the vocabulary of both runtimes; None for one that is not in it."""
    if name in {"agent", "tools", "finalize", "polish"}:
        return name
    if name == "model":
        return "agent"
    if name == "StopOnOutcome.before_model" and update and update.get("messages"):
        return str(update["messages"][-1].response_metadata["route"])
    return None


def _stopped_by(message: AnyMessage) -> str | None:
    return message.response_metadata.get("stopped_by") if isinstance(message, AIMessage) else None


def _tokens(messages: Sequence[AnyMessage]) -> dict[str, int | None]:
    """Sum the usage; one reply that does not say makes the sum unknown, never smaller."""
    said = [
        m.usage_metadata
        for m in messages
        if isinstance(m, AIMessage) and (_stopped_by(m) is None or m.usage_metadata)  # a polish costs, too
    ]
    whole = all(usage is not None for usage in said)
    return {
        name: sum(usage[f"{name}_tokens"] for usage in said if usage) if whole else None  # type: ignore[literal-required]
        for name in ("input", "output")
    }


def _compare(
    turn: Turn,
    path: list[str],
    asked: int,
    calls: list[ToolMessage],
    messages: list[AnyMessage],
    wire: GroqMock,
) -> Iterator[str]:
    outcomes = [outcome_of(call) for call in calls]
    came = {
        "path": tuple(path),
        "model_calls": asked,
        "reasons": tuple(outcome.reason.value if outcome else None for outcome in outcomes),
        "rules": tuple(outcome.rule if outcome else None for outcome in outcomes),
        "stopped_by": _stopped_by(messages[-1]),
        "final": str(messages[-1].content),
    }
    for name, value in came.items():
        wanted = getattr(turn, name)
        if value != wanted:
            yield f"{name}: expected {_shown(wanted)}, came {_shown(value)}"
    if wire.left:
        yield f"script: {wire.left} of the model's {len(turn.script)} answers were never asked for"


def _shown(value: object) -> str:
    return " > ".join(map(str, value)) or "nothing" if isinstance(value, tuple) else repr(value)


def _claims(new: Sequence[AnyMessage], path: list[str], policy: StopPolicy) -> Iterator[str]:
    """Check what must hold whatever a real model says: a stop asks it no more, a transient turn does."""
    for at, message in enumerate(new):
        if not (isinstance(message, AIMessage) and message.tool_calls):
            continue
        answered = (
            at + 1 + sum(1 for each in new[at + 1 : at + 1 + len(message.tool_calls)] if each.type == "tool")
        )
        decision = decide(new[:answered], policy)
        then = new[answered] if answered < len(new) else None
        if (claim := _broken(decision, then)) is not None:
            yield f"after {decision.rule}: expected {claim}"
    if "tools" not in path:
        yield "the model called no tool"


def _broken(decision: Decision, then: AnyMessage | None) -> str | None:
    """Return what had to follow a decision; None if it did."""
    relayed = then is not None and _stopped_by(then) is not None
    if decision.route is Route.AGENT:
        return "another turn of the model" if then is None or relayed else None
    if then is None or not relayed:
        return "no other turn of the model"
    if decision.route is Route.POLISH:
        kept = numbers(decision.text) <= numbers(str(then.content))
        return None if kept else "every number of the tool's text"
    return None if then.content == decision.text else "the tool's own text"
