"""Decision events: exactly one a decision, on both runtimes, and not a word of what was said."""

import asyncio
import json
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt
from pydantic import BaseModel

from mocks.model import ScriptedModel
from orchestration import Effect, Outcome, Reason, Route, StopMode, StopPolicy, decide
from orchestration.events import (
    UNFIT,
    CallEvent,
    DecisionEvent,
    Emitter,
    JsonFormatter,
    LogSink,
    SpanSink,
    StreamSink,
    event_of,
    span_attributes,
)
from orchestration.graph import build_graph
from orchestration.guards import mask
from orchestration.ledger import STRUCTURED, ledger
from tests.runtimes import Runtime, Till, agent_build

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

SECRET = "sk-4242"  # noqa: S105 - planted everywhere, to be looked for
PAID = Outcome(
    f"Paid {SECRET}.",
    Reason.COMPLETED,
    "pay/ok",
    Effect.APPLIED,
    evidence={"status": 200, "request_id": SECRET},
    key=SECRET,
    vendor_code="succeeded",
)
BUSY = Outcome(f"Busy {SECRET}.", Reason.TRANSIENT, "pay/busy", Effect.UNKNOWN, key=SECRET)
DECLINED = Outcome(
    f"Declined {SECRET}.", Reason.FATAL, "pay/declined", vendor_code="insufficient_funds", key=SECRET
)
BLOCKED = Outcome(f"Not possible {SECRET}.", Reason.POLICY_BLOCK, "pay/risk")
OUTCOMES = {outcome.reason.value: outcome for outcome in (PAID, BUSY, DECLINED, BLOCKED)}
MODES = [mode.value for mode in StopMode]

Events = list[DecisionEvent]


def till(*outcomes: Outcome | Exception, name: str = "pay") -> BaseTool:
    """Return a tool that answers from a list; the last answer again and again."""
    return Till(outcomes, name).tool


def call(name: str = "pay", call_id: str = "c0", **args: Any) -> Any:
    """Return a call whose arguments hold the secret."""
    return {"name": name, "args": {"cart": SECRET, **args}, "id": call_id, "type": "tool_call"}


def turn(*calls: Any, message_id: str | None = None) -> AIMessage:
    """Return a turn with these calls, and with a text beside them."""
    return AIMessage(f"I pay {SECRET}.", tool_calls=list(calls), id=message_id)


def model(*turns: AIMessage | Exception) -> ScriptedModel:
    """Return a model that says these turns, and then a text."""
    return ScriptedModel(list(turns), narration=f"That was {SECRET}.")


def answered(artifact: Any, *, name: str = "pay", call_id: str = "c0", **fields: Any) -> DecisionEvent:
    """Return the event of a turn with one call and this answer."""
    messages = [
        turn(call(name, call_id), message_id="m1"),
        ToolMessage(SECRET, artifact=artifact, tool_call_id=call_id),
    ]
    return event_of(decide(messages), StopPolicy(), **fields)


def strings(value: Any) -> Iterator[str]:
    """Yield every string in a value, names and values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from strings(name)
            yield from strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from strings(item)


def leaks(*values: Any) -> list[str]:
    """Return every string that holds the secret."""
    return [text for text in strings(values) if SECRET in text]


# The event itself


def test_whole() -> None:
    """An event says everything that support asks, as plain JSON."""
    _, artifact = DECLINED.as_tool_result()
    event = answered(artifact)

    assert {
        "id": event.id,
        "message_id": "m1",
        "rule": "fatal",
        "route": "finalize",
        "mode": "hard",
        "batch": "priority",
        "would_stop": True,
        "saved_model_calls_estimated": 1,
        "calls": [
            {
                "tool": "pay",
                "call_id": "c0",
                "vote": "fatal",
                "reason": "fatal",
                "row": "pay/declined",
                "vendor_code": "insufficient_funds",
                "effect": "none",
                "attempts": 0,
            }
        ],
    } == json.loads(json.dumps(event.as_dict()))
    assert re.fullmatch("[0-9a-f]{32}", event.id)


def test_plain() -> None:
    """No enum, no tuple: any encoder takes it."""
    _, artifact = BUSY.as_tool_result()

    def kinds(value: Any) -> set[type]:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return {type(value)}.union(*map(kinds, inner))

    assert kinds(answered(artifact).as_dict()) <= {dict, list, str, int, bool, type(None)}


def test_frozen() -> None:
    """Nobody changes an event on its way from sink to sink."""
    with pytest.raises(FrozenInstanceError):
        answered(None).rule = "completed"  # type: ignore[misc]


def test_unusable() -> None:
    """Of an answer that nothing vouches for, nothing is claimed."""
    event = answered({"stop": "yes", "vendor_code": SECRET, "rule": SECRET})

    assert ("unusable", "agent", False, 0) == (
        event.rule,
        event.route,
        event.would_stop,
        event.saved_model_calls_estimated,
    )
    assert (
        CallEvent(
            tool="pay",
            call_id="c0",
            vote="unusable",
            reason=None,
            row=None,
            vendor_code=None,
            effect=None,
            attempts=1,
        ),
    ) == event.calls


@pytest.mark.parametrize(
    ("mode", "rule", "route", "would_stop", "saved"),
    [
        ("hard", "completed", "finalize", True, 1),
        ("polish", "completed", "polish", True, 0),
        ("never", "completed", "agent", True, 0),
        ("hard", "fatal", "finalize", True, 1),
        ("polish", "fatal", "finalize", True, 1),
        ("never", "fatal", "agent", True, 0),
        ("hard", "transient", "agent", False, 0),
        ("never", "transient", "agent", False, 0),
    ],
)
def test_saved(mode: str, rule: str, route: str, would_stop: bool, saved: int) -> None:
    """A relayed text saved the call that would have told it; a polish and a shadow saved none."""
    policy = StopPolicy(mode=StopMode(mode))
    content, artifact = OUTCOMES[rule].as_tool_result()
    decision = decide([turn(call()), ToolMessage(content, artifact=artifact, tool_call_id="c0")], policy)
    event = event_of(decision, policy)

    assert (rule, route, would_stop, saved, mode) == (
        event.rule,
        event.route,
        event.would_stop,
        event.saved_model_calls_estimated,
        event.mode,
    )


@pytest.mark.parametrize(
    "odd",
    ["Paid for Ann, 12 High Street", "ann@example.com", "x" * 200, "a\nb", "naïve", "支付", "<b>", "a=b&c"],
)
def test_names_alone(odd: str) -> None:
    """What a model or a foreign tool wrote in place of a name is left out."""
    event = answered({"stop": True, "rule": odd, "vendor_code": odd}, name=odd)

    assert (UNFIT, UNFIT, UNFIT) == (event.calls[0].tool, event.calls[0].row, event.calls[0].vendor_code)
    assert odd not in list(strings(event.as_dict()))


@pytest.mark.parametrize(
    "odd",
    [
        "4242424242424242",
        "card_4242424242424242",
        "sk_live_51Habcdefghijkl",
        "ghp_16C7e42F292c6912E7",
        "sk-proj-abc12345",
    ],
)
def test_what_looks_like_a_secret(odd: str) -> None:
    """A number as long as a card's and a vendor's key are no names."""
    event = answered({"stop": True, "rule": odd, "vendor_code": odd}, name=odd)

    assert [UNFIT] * 3 == [event.calls[0].tool, event.calls[0].row, event.calls[0].vendor_code]


@pytest.mark.parametrize(
    "name", ["ask_for_permission_now", "tasks/created-by-user", "network-error-timeout", "mark_test_passed"]
)
def test_what_only_sounds_like_one(name: str) -> None:
    """Names that hold the letters of a key are names."""
    event = answered({"stop": True, "rule": name, "vendor_code": name}, name=name)

    assert [name] * 3 == [event.calls[0].tool, event.calls[0].row, event.calls[0].vendor_code]


def test_no_strings() -> None:
    """A model that gives ids of other types costs no run its record."""
    said = turn(call(), message_id="m1")
    said.id, said.tool_calls[0]["id"] = 7, 8  # type: ignore[assignment,typeddict-item]
    events: Events = []

    Emitter([events.append])(decide([said]), StopPolicy(), {"configurable": {"thread_id": 0}})

    assert [(UNFIT, UNFIT)] == [(event.message_id, event.calls[0].call_id) for event in events]


@pytest.mark.parametrize(
    "call_id", ["call_1", "toolu_01A", "functions.pay:0", "chatcmpl-tool-9f", "call_x/Qm9i+g==", ""]
)
def test_call_ids(call_id: str) -> None:
    """Ids of every provider stand as they are."""
    assert call_id == answered(None, call_id=call_id).calls[0].call_id
    assert UNFIT == answered(None, call_id="of Ann Smith").calls[0].call_id


def test_id() -> None:
    """The same decision has the same id; another thread, turn or outcome has another."""
    _, artifact = PAID.as_tool_result()
    first = answered(artifact, thread="t")

    assert first == answered(artifact, thread="t")
    assert "t" not in strings(first.as_dict())
    assert first.id != answered(artifact, thread="u").id
    assert first.id != answered(DECLINED.as_tool_result()[1], thread="t").id
    assert first.id != answered(artifact, call_id="c1", thread="t").id
    assert first.id != answered(replace(PAID, key="another cart").as_tool_result()[1], thread="t").id
    # What is no name is not shown, and told apart all the same.
    assert UNFIT == answered(artifact, call_id="a b").calls[0].call_id
    assert answered(artifact, call_id="a b").id != answered(artifact, call_id="a c").id


def test_id_in_another_process() -> None:
    """An id is no process's own: a store drops what a restart repeats."""
    _, artifact = PAID.as_tool_result()

    assert "469c5015a1a485bd445be298fadac723" == answered(artifact, thread="t").id


# Exactly one a decision


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reason", OUTCOMES)
def test_one_turn(reason: str, mode: str, both: Runtime) -> None:
    """One turn of calls is one event, that of the decision that was taken."""
    events: Events = []
    policy = StopPolicy(mode=StopMode(mode))
    app = both.build(model(turn(call())), [till(OUTCOMES[reason])], policy=policy, sinks=[events.append])

    messages = both(app)

    (event,) = events
    assert event_of(decide(messages[:3], policy), policy) == event
    stopped = messages[-1].response_metadata
    assert (None if event.route == "agent" else event.rule) == stopped.get("stopped_by")
    assert event.message_id == messages[1].id


def test_each_turn(both: Runtime) -> None:
    """Three turns are three events, in order, with the attempts used."""
    events: Events = []
    script = [turn(call(call_id=f"c{at}", note=str(at))) for at in range(3)]
    app = both.build(model(*script), [till(BUSY, BUSY, PAID)], sinks=[events.append])

    both(app)

    assert [("transient", 1), ("transient", 2), ("completed", 0)] == [
        (event.rule, event.calls[0].attempts) for event in events
    ]
    assert ["c0", "c1", "c2"] == [event.calls[0].call_id for event in events]
    assert 3 == len({event.id for event in events})


def test_budget(both: Runtime) -> None:
    """A budget that ends a run is a stop like any other."""
    events: Events = []
    script = [turn(call(call_id=f"c{at}", note=str(at))) for at in range(3)]
    app = both.build(model(*script), [till(BUSY)], sinks=[events.append])

    both(app)

    assert ["transient", "transient", "attempts_exhausted"] == [event.rule for event in events]
    assert [0, 0, 1] == [event.saved_model_calls_estimated for event in events]


@pytest.mark.parametrize("saver", [False, True])
def test_parallel(saver: bool, both: Runtime) -> None:
    """Parallel calls are one decision: one event, calls in order, whoever was ready first."""
    events: Events = []
    tools = [till(PAID), till(DECLINED, name="search"), till(BLOCKED, name="ticket")]
    app = both.build(
        model(turn(call("search", "c0"), call("pay", "c1"), call("ticket", "c2"), call("fly", "c3"))),
        tools,
        checkpointer=InMemorySaver() if saver else None,
        sinks=[events.append],
    )

    both(app, thread_id="t")

    (event,) = events
    assert ("policy_block", "finalize") == (event.rule, event.route)
    assert [
        ("search", "c0", "fatal", "pay/declined"),
        ("pay", "c1", "completed", "pay/ok"),
        ("ticket", "c2", "policy_block", "pay/risk"),
        (UNFIT, "c3", "transient", "tool/unknown"),  # a name that the model made up
    ] == [(each.tool, each.call_id, each.reason, each.row) for each in event.calls]


def test_nothing_to_decide(both: Runtime) -> None:
    """A run without calls emits nothing, and neither does the start of the next turn of a thread."""
    events: Events = []
    app = both.build(model(turn(call())), [till(PAID)], checkpointer=InMemorySaver(), sinks=[events.append])

    both(app, thread_id="t")
    both(app, "Thanks.", thread_id="t")

    assert ["completed"] == [event.rule for event in events]


def test_the_user_spoke_since(both: Runtime) -> None:
    """Results that a killed run left undecided are not decided once the user has said more."""
    events: Events = []
    app = both.build(model(), [till(PAID)], sinks=[events.append])

    both(app, {"messages": [turn(call()), ToolMessage("", tool_call_id="c0"), HumanMessage("And now?")]})

    assert [] == events


def test_runs_without_a_thread(both: Runtime) -> None:
    """Two runs are two decisions, even if a model gives its messages the same id twice."""
    events: Events = []
    script = [turn(call(), message_id="m1"), turn(call(), message_id="m1")]
    app = both.build(model(*script), [till(PAID)], sinks=[events.append])

    both(app)
    both(app)

    assert ["completed", "completed"] == [event.rule for event in events]


def test_unanswered(both: Runtime) -> None:
    """A killed run's turn without answers is repaired, not decided."""
    events: Events = []
    app = both.build(model(), [till(PAID)], sinks=[events.append])

    both(app, {"messages": [HumanMessage("Pay."), turn(call(), message_id="m1")]})

    assert [] == events


def test_run_settings(both: Runtime) -> None:
    """The event names the settings that the run was given, not the graph's own."""
    events: Events = []
    app = both.build(model(turn(call())), [till(PAID)], sinks=[events.append])

    both(app, stop_mode="never", stop_batch="any")

    assert [("never", "any", "agent", True)] == [
        (event.mode, event.batch, event.route, event.would_stop) for event in events
    ]


def test_shadow(both: Runtime) -> None:
    """In mode never the run is the plain loop's, and the first event that would stop says where."""
    events: Events = []
    script = [turn(call(call_id="c0", note="0")), turn(call(call_id="c1", note="1"))]
    app = both.build(
        model(*script), [till(BUSY, PAID)], policy=StopPolicy(mode=StopMode.NEVER), sinks=[events.append]
    )

    messages = both(app)

    assert f"That was {SECRET}." == messages[-1].content
    assert [("transient", False), ("completed", True)] == [(each.rule, each.would_stop) for each in events]
    assert [("agent", 0)] * 2 == [(each.route, each.saved_model_calls_estimated) for each in events]


@pytest.mark.parametrize("voice", [AIMessage("It is paid."), AIMessage(""), ValueError(SECRET)])
def test_polish(voice: Any, both: Runtime) -> None:
    """A polish is one event, whatever becomes of its call."""
    events: Events = []
    policy = StopPolicy(mode=StopMode.POLISH)
    app = both.build(model(turn(call()), voice), [till(PAID)], policy=policy, sinks=[events.append])

    both(app)

    assert [("completed", "polish")] == [(event.rule, event.route) for event in events]


def test_nobody_to_polish() -> None:
    """Middleware without a model relays the text as it is, and the event says so."""
    agent_build()
    from langchain.agents import create_agent

    from orchestration.agent import StopOnOutcome

    events: Events = []
    stop = StopOnOutcome(StopPolicy(mode=StopMode.POLISH), sinks=[events.append])
    app: Any = create_agent(model(turn(call())), [till(PAID)], middleware=[stop])

    messages = app.invoke({"messages": [("user", "Pay.")]})["messages"]

    assert [("finalize", 1)] == [(event.route, event.saved_model_calls_estimated) for event in events]
    assert "finalize" == messages[-1].response_metadata["route"]


def test_handed_over(both: Runtime) -> None:
    """A tool that answers with a Command is decided on once too."""

    @tool
    def hand_over(call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Hand over."""
        return Command(update={"messages": [ToolMessage("Handed over.", tool_call_id=call_id)]})

    events: Events = []
    app = both.build(model(turn(call("hand_over"))), [hand_over], sinks=[events.append])

    both(app)

    assert ["unusable"] == [event.rule for event in events]


def test_jump_back() -> None:
    """A hook that sends the run back to the model does not have an old turn decided as a new one."""
    build_agent = agent_build()
    from langchain.agents.middleware import after_model

    events: Events = []
    said: list[Any] = []

    @after_model(can_jump_to=["model"])
    def once_more(state: Any, runtime: Any) -> Any:
        last = state["messages"][-1]
        if last.tool_calls or said:
            return None
        said.append(last)
        return {"jump_to": "model"}

    app = build_agent(model(turn(call())), [till(BUSY)], middleware=[once_more], sinks=[events.append])

    app.invoke({"messages": [("user", "Pay.")]})

    assert (1, ["transient"]) == (len(said), [event.rule for event in events])


# Interrupts, retries, replay


@pytest.mark.parametrize("others", [0, 2])
def test_interrupt(others: int, both: Runtime) -> None:
    """A turn that waits for a person is decided once, when every call of it has its answer."""

    @tool
    def approve(cart: str = "") -> str:
        """Ask a person."""
        return str(interrupt(SECRET))

    events: Events = []
    calls = [call("approve"), *(call("pay", f"c{at + 1}", note=str(at)) for at in range(others))]
    app = both.build(
        model(turn(*calls)), [approve, till(PAID)], checkpointer=InMemorySaver(), sinks=[events.append]
    )

    both(app, thread_id="t")
    assert [] == events
    both(app, Command(resume="yes"), thread_id="t")

    assert [("unusable", 1 + others)] == [(event.rule, len(event.calls)) for event in events]


def test_interrupt_after_tools(runtime: Runtime) -> None:
    """A run that is held between the calls and its end emits one event, not one a part."""
    events: Events = []
    app = runtime.build(
        model(turn(call())), [till(PAID)], checkpointer=InMemorySaver(), sinks=[events.append]
    )
    config: Any = {"configurable": {"thread_id": "t"}}

    app.invoke({"messages": [("user", "Pay.")]}, config, interrupt_after=["tools"])
    messages = app.invoke(None, config)["messages"]

    assert (PAID.content, ["completed"]) == (messages[-1].content, [event.rule for event in events])


def test_retries(runtime: Runtime) -> None:
    """A node that fails and is run again has decided nothing before."""
    events: Events = []
    app = runtime.build(
        model(turn(call())), [till(KeyError(SECRET), PAID)], strict=True, sinks=[events.append]
    )
    app.nodes["tools"].retry_policy = [RetryPolicy(initial_interval=0.001, jitter=False, retry_on=KeyError)]

    runtime(app)

    assert ["completed"] == [event.rule for event in events]


@pytest.mark.parametrize("mode", MODES)
def test_replay(mode: str, both: Runtime) -> None:
    """Going back to any checkpoint repeats no event: the same decision was emitted before."""
    events: Events = []
    app = both.build(
        model(turn(call(), message_id="m1")),
        [till(PAID)],
        policy=StopPolicy(mode=StopMode(mode)),
        checkpointer=InMemorySaver(),
        sinks=[events.append],
    )
    both(app, thread_id="t")
    before = list(app.get_state_history({"configurable": {"thread_id": "t"}}))
    assert {("tools",)} < {each.next for each in before}

    for checkpoint in before:
        both(app, None, **checkpoint.config["configurable"])

    assert ["completed"] == [event.rule for event in events]


def test_replay_with_another_end(both: Runtime) -> None:
    """Calls that are carried out anew and end otherwise are another decision: that is news."""
    events: Events = []
    app = both.build(
        model(turn(call(), message_id="m1")),
        [till(PAID, DECLINED)],
        checkpointer=InMemorySaver(),
        sinks=[events.append],
    )
    both(app, thread_id="t")
    history = app.get_state_history({"configurable": {"thread_id": "t"}})
    (before,) = [each for each in history if each.next == ("tools",)]

    both(app, None, **before.config["configurable"])

    assert ["completed", "fatal"] == [event.rule for event in events]
    assert 1 == len({event.message_id for event in events})


def test_replay_elsewhere(both: Runtime) -> None:
    """Another process remembers nothing, but what it repeats has the id it had."""
    events: Events = []
    saver = InMemorySaver()

    def process() -> Any:
        script = model(turn(call(), message_id="m1"))
        return both.build(script, [till(PAID)], checkpointer=saver, sinks=[events.append])

    both(process(), thread_id="t")
    app = process()
    history = app.get_state_history({"configurable": {"thread_id": "t"}})
    (before,) = [each for each in history if each.next == ("tools",)]
    both(app, None, **before.config["configurable"])

    assert 1 == len(set(events))


def test_memory_is_bounded() -> None:
    """Ids are forgotten, the oldest first: a process may live for years."""
    events: Events = []
    emit = Emitter([events.append], remembered=3)
    config = {"configurable": {"thread_id": "t"}}
    _, artifact = PAID.as_tool_result()

    def decided(at: int) -> Any:
        return decide(
            [turn(call(), message_id=f"m{at}"), ToolMessage("", artifact=artifact, tool_call_id="c0")]
        )

    for at in (0, 1, 2, 0, 3, 0, 3, 1):
        emit(decided(at), StopPolicy(), config)

    # 0 was met again before 3 came, so 1 is the oldest and the one that is forgotten.
    assert ["m0", "m1", "m2", "m3", "m1"] == [event.message_id for event in events]


@pytest.mark.parametrize("key", [SECRET, None])
def test_edited_arguments(key: str | None, both: Runtime) -> None:
    """A fork that pays for another cart is another decision, whatever its ids are."""
    events: Events = []
    app = both.build(
        model(turn(call(), message_id="m1")),
        [till(replace(PAID, key=key))],
        checkpointer=InMemorySaver(),
        sinks=[events.append],
    )
    both(app, thread_id="t")
    thread: Any = {"configurable": {"thread_id": "t"}}
    (before,) = [each for each in app.get_state_history(thread) if each.next == ("tools",)]

    for cart in (SECRET, "another"):
        app.invoke(
            None,
            app.update_state(before.config, {"messages": [turn(call(cart=cart), message_id="m1")]}),
        )

    assert 2 == len(events)


def test_threads_that_are_no_strings(both: Runtime) -> None:
    """A thread named 0 is a thread, and none that is empty."""
    events: Events = []
    script = [turn(call(), message_id="m1")] * 2
    app = both.build(model(*script), [till(PAID)], checkpointer=InMemorySaver(), sinks=[events.append])

    for thread in (0, "0x"):
        both(app, thread_id=thread)

    assert 2 == len({event.id for event in events})


def test_a_history_that_ends_in_answers(both: Runtime) -> None:
    """Answers that nobody has decided on are decided first, on both runtimes: no call for a receipt."""
    events: Events = []
    content, artifact = PAID.as_tool_result()
    talker = model()
    app = both.build(talker, [till(PAID)], sinks=[events.append])
    start = [
        HumanMessage("Pay."),
        turn(call(), message_id="m1"),
        ToolMessage(content, artifact=artifact, tool_call_id="c0"),
    ]

    messages = both(app, {"messages": start})

    assert (content, 0, ["completed"]) == (
        messages[-1].content,
        talker.calls,
        [event.rule for event in events],
    )


def test_a_hook_that_jumps_back() -> None:
    """A foreign hook that sends the run through ours again repeats no event."""
    build = agent_build()
    from langchain.agents.middleware import AgentMiddleware, hook_config

    events: Events = []

    class Again(AgentMiddleware[Any, Any]):
        jumped = False

        @hook_config(can_jump_to=["model"])
        def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
            if self.jumped or not isinstance(state["messages"][-1], ToolMessage):
                return None
            self.jumped = True
            return {"jump_to": "model"}

    app = build(model(turn(call())), [till(BUSY)], middleware=[Again()], sinks=[events.append])

    app.invoke({"messages": [("user", "Pay.")]})

    assert ["transient"] == [event.rule for event in events]


@pytest.mark.parametrize("mode", ["hard", "never", "polish"])
def test_resumed_with_other_settings(mode: str) -> None:
    """A stop that was decided stays one, with its text, when the run is resumed without its settings.

    So in the hand-built graph; create_agent decides when it is resumed, by the settings that it then has.
    """
    events: Events = []
    app = build_graph(
        model(turn(call(), message_id="m1")),
        [till(BUSY)],
        checkpointer=InMemorySaver(),
        sinks=[events.append],
    )
    first: Any = {"configurable": {"thread_id": "t", "stop_max_attempts": 1}}
    app.invoke({"messages": [("user", "Pay.")]}, first, interrupt_after=["tools"])
    app.invoke(None, {"configurable": {"thread_id": "t", "stop_mode": mode}})
    messages = app.get_state({"configurable": {"thread_id": "t"}}).values["messages"]

    assert [("attempts_exhausted", "finalize")] == [(event.rule, event.route) for event in events]
    assert BUSY.content == messages[-1].content
    said = messages[-1].response_metadata
    assert ("attempts_exhausted", "finalize") == (said["stopped_by"], said["route"])


def test_a_text_too_long_to_polish(both: Runtime) -> None:
    """Where no polish can be asked for, the event says what happened: the tool's own text."""
    events: Events = []
    long = replace(PAID, content="x" * 20_000)
    policy = StopPolicy(mode=StopMode.POLISH)
    talker = model(turn(call()))
    app = both.build(talker, [till(long)], policy=policy, sinks=[events.append])

    messages = both(app)

    assert [("completed", "finalize", 1)] == [
        (event.rule, event.route, event.saved_model_calls_estimated) for event in events
    ]
    assert (1, 1) == (talker.calls, ledger(messages).total.model_calls)


def test_a_structured_response_beside_a_call() -> None:
    """A model that pays and fills in a form at once has the payment decided, and its receipt told."""
    build = agent_build()
    from langchain.agents.structured_output import ToolStrategy

    class Form(BaseModel):
        """A form."""

        total: int

    form: Any = {"name": "Form", "args": {"total": 1}, "id": "r1", "type": "tool_call"}
    for script, rule, end in (
        ([turn(call(), form)], "completed", None),
        ([turn(call(), form), turn(form)], "transient", 1),
    ):
        events: Events = []
        outcome = OUTCOMES[rule]
        app = build(
            ScriptedModel(script), [till(outcome)], response_format=ToolStrategy(Form), sinks=[events.append]
        )
        ran = app.invoke({"messages": [("user", "Pay.")]})

        assert [rule] == [event.rule for event in events]
        assert end == getattr(ran.get("structured_response"), "total", None)
        assert (STRUCTURED if end else rule) == ledger(ran["messages"]).runs[-1].ended_by
        if not end:
            assert outcome.content == ran["messages"][-1].content


# Sinks


class Panic(BaseException):
    """What an exporter written in another language raises."""


ODD = [Panic(SECRET), SystemExit(SECRET), GeneratorExit(SECRET), asyncio.CancelledError(SECRET)]


@pytest.mark.parametrize("error", [KeyError(SECRET), AssertionError(SECRET), RecursionError(SECRET), *ODD])
def test_a_sink_that_raises(error: BaseException, both: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    """A broken sink costs its own record: the run ends as it should, and the other sinks are served."""
    events: Events = []

    def broken(event: DecisionEvent) -> None:
        raise error

    app = both.build(model(turn(call())), [till(PAID)], sinks=[broken, events.append])

    messages = both(app)

    assert (PAID.content, 1) == (messages[-1].content, len(events))
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [f"a sink raised {type(error).__name__}: the run goes on"] == [r.getMessage() for r in warned]
    assert [] == leaks([vars(record) for record in warned])


def test_a_sink_that_interrupts(runtime: Runtime) -> None:
    """A sink cannot hold a run: an interrupt from it is one more error of its own."""
    app = runtime.build(
        model(turn(call())), [till(PAID)], checkpointer=InMemorySaver(), sinks=[lambda _: interrupt("?")]
    )

    assert PAID.content == runtime(app, thread_id="t")[-1].content


def test_ctrl_c_in_a_sink() -> None:
    """Ctrl-C goes through, and the event it came between is not lost."""
    events: Events = []
    pressed = [KeyboardInterrupt()]

    def sink(event: DecisionEvent) -> None:
        if pressed:
            raise pressed.pop()

    emit = Emitter([sink, events.append])
    decision = decide([turn(call(), message_id="m1")])
    with pytest.raises(KeyboardInterrupt):
        emit(decision, StopPolicy(), {"configurable": {"thread_id": "t"}})
    emit(decision, StopPolicy(), {"configurable": {"thread_id": "t"}})

    assert 1 == len(events)


def test_a_broken_log(both: Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    """A filter of the user's that raises costs records, never a run that has paid."""

    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError(SECRET)

    handler = logging.StreamHandler()
    handler.addFilter(Broken())
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        app = both.build(
            model(turn(call())),
            [till(PAID)],
            sinks=[LogSink(level=logging.ERROR)],
        )
        assert PAID.content == both(app)[-1].content
    finally:
        root.removeHandler(handler)
    err = capsys.readouterr().err
    assert "orchestration: a log record was lost, logging raised RuntimeError\n" == err


def test_a_sink_that_hides_a_coroutine(both: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    """What a sink returns to be awaited is told, each time."""
    app = both.build(model(turn(call())), [till(PAID)], sinks=[lambda event: (later(event), event)[0]])

    both(app)

    assert ["a sink raised TypeError: the run goes on"] == [each.getMessage() for each in caplog.records]


async def later(event: DecisionEvent) -> None:
    """Do nothing, later."""


def pieces(event: DecisionEvent) -> Iterator[None]:
    """Do nothing, in pieces."""
    yield


async def later_pieces(event: DecisionEvent) -> Any:
    """Do nothing, later and in pieces."""
    yield


class Later:
    """A sink that nobody would await."""

    async def __call__(self, event: DecisionEvent) -> None:
        """Do nothing, later."""


@pytest.mark.parametrize("sink", [later, Later(), pieces, later_pieces, LogSink, "log", None])
def test_what_is_no_sink(sink: Any, runtime: Runtime) -> None:
    """What would fail on every event is refused when the graph is built."""
    with pytest.raises(TypeError, match="a sink is a plain function of one event, not"):
        runtime.build(model(), [], sinks=[sink])


# The log


@pytest.mark.parametrize(
    ("reason", "mode", "line"),
    [
        ("completed", "hard", "completed -> finalize: pay (pay/ok)"),
        ("completed", "never", "completed -> agent, hard would stop: pay (pay/ok)"),
        ("transient", "hard", "transient -> agent: pay (pay/busy)"),
    ],
)
def test_log(reason: str, mode: str, line: str, both: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    """One record a decision: a line for people, the event for machines."""
    caplog.set_level(logging.INFO, "orchestration.decisions")
    policy = StopPolicy(mode=StopMode(mode))
    app = both.build(model(turn(call())), [till(OUTCOMES[reason])], policy=policy, sinks=[LogSink()])

    both(app)

    (record,) = [each for each in caplog.records if each.name == "orchestration.decisions"]
    assert (line, logging.INFO) == (record.getMessage(), record.levelno)
    assert reason == record.__dict__["decision"]["rule"]


def test_log_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    """Logger and level are the user's to choose."""
    logger = logging.getLogger("support")
    caplog.set_level(logging.DEBUG, "support")

    LogSink(logger, logging.DEBUG)(answered(None))

    assert [("support", logging.DEBUG)] == [(each.name, each.levelno) for each in caplog.records]
    assert "unusable -> agent: pay (unusable)" == caplog.records[0].getMessage()


def test_a_name_is_no_format(caplog: pytest.LogCaptureFixture) -> None:
    """A percent sign in a line formats nothing."""
    caplog.set_level(logging.INFO, "orchestration.decisions")
    event = answered(None)

    LogSink()(replace(event, calls=(replace(event.calls[0], tool="%s%d"),)))

    assert "unusable -> agent: %s%d (unusable)" == caplog.records[0].getMessage()


def formatted(**fields: Any) -> Any:
    """Return a record as JSON, read back; it must be one line."""
    record = logging.makeLogRecord({"name": "n", "levelname": "INFO", "created": 0.5, **fields})
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "\r" not in line
    return json.loads(line)


def test_json() -> None:
    """A record with an event is one line of JSON with the event in it."""
    event = answered(None).as_dict()

    assert {
        "time": "1970-01-01T00:00:00.500+00:00",
        "level": "INFO",
        "logger": "n",
        "message": "hello",
        "decision": event,
    } == formatted(msg="hello", decision=event)


def test_json_of_anything() -> None:
    """Any other record is one line of JSON too: it may stand in the same file."""
    error = KeyError("gone")
    failed = formatted(
        msg="a\r\nb\u2028\ud800 %s", args=(object,), exc_info=(KeyError, error, error.__traceback__)
    )

    assert "a\r\nb\u2028\ud800 <class 'object'>" == failed["message"]
    assert "KeyError: 'gone'" in failed["exception"]
    assert "decision" not in failed
    assert "<object>" == formatted(msg="", decision=object())["decision"]
    assert {"decision": {"x": None, "1": ["<bytes>"]}} == {
        "decision": formatted(msg="", decision={"x": float("nan"), 1: [b""]})["decision"]
    }
    assert "gone" == formatted(msg="", exc_text="gone")["exception"]
    assert "here" == formatted(msg="", stack_info="here")["stack"]
    assert "a record that cannot be written (TypeError)" == formatted(msg="%d", args=("x",))["message"]


# The custom stream


def test_stream(both: Runtime) -> None:
    """Whoever watches a run reads its decisions in the custom stream."""
    app = both.build(
        model(turn(call(note="0")), turn(call(note="1"))), [till(BUSY, PAID)], sinks=[StreamSink()]
    )
    start = {"messages": [("user", "Pay.")]}

    async def collected() -> list[Any]:
        return [each async for each in app.astream(start, stream_mode="custom")]

    came = (
        asyncio.run(collected()) if both.way == "ainvoke" else list(app.stream(start, stream_mode="custom"))
    )

    assert ["transient", "completed"] == [each["decision"]["rule"] for each in came]
    assert [["decision"]] * 2 == [list(each) for each in came]
    assert came == json.loads(json.dumps(came))


def test_nobody_streams(both: Runtime) -> None:
    """A run that nobody streams ends as any other."""
    app = both.build(model(turn(call())), [till(PAID)], sinks=[StreamSink()])

    assert PAID.content == both(app)[-1].content


# OpenTelemetry


@pytest.fixture
def spans() -> Iterator[Any]:
    """OpenTelemetry as users have it: a tracer, and what it exported."""
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed here")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    @dataclass
    class Spans:
        exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
        provider: TracerProvider = field(default_factory=TracerProvider)

        def __post_init__(self) -> None:
            self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
            self.tracer = self.provider.get_tracer("tests")

        @property
        def events(self) -> list[tuple[str, dict[str, Any]]]:
            """Name and attributes of every event of every span."""
            finished = self.exporter.get_finished_spans()
            return [(e.name, dict(e.attributes or {})) for span in finished for e in span.events]

    kept = Spans()
    yield kept
    kept.provider.shutdown()


@pytest.mark.parametrize("mode", MODES)
def test_span(mode: str, both: Runtime, spans: Any) -> None:
    """The span around a run holds one event a decision, with the conventions' names."""
    policy = StopPolicy(mode=StopMode(mode))
    app = both.build(model(turn(call())), [till(PAID)], policy=policy, sinks=[SpanSink()])

    with spans.tracer.start_as_current_span("invoke_agent"):
        both(app)

    ((name, attributes),) = spans.events
    assert "short_circuit.decision" == name
    assert ("execute_tool", "pay", "c0") == (
        attributes["gen_ai.operation.name"],
        attributes["gen_ai.tool.name"],
        attributes["gen_ai.tool.call.id"],
    )
    assert ("completed", mode, True) == (
        attributes["short_circuit.rule"],
        attributes["short_circuit.mode"],
        attributes["short_circuit.would_stop"],
    )
    assert ("applied",) == attributes["short_circuit.calls.effect"]


def test_span_of_parallel_calls(both: Runtime, spans: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Lists hold one type and one entry a call; what describes one call is left out for several."""
    app = both.build(model(turn(call(), call("look", "c1"))), [till(PAID), plain_tool()], sinks=[SpanSink()])

    with spans.tracer.start_as_current_span("invoke_agent"):
        both(app)

    ((_, attributes),) = spans.events
    assert {
        "gen_ai.operation.name": "execute_tool",
        "short_circuit.id": attributes["short_circuit.id"],
        "short_circuit.message_id": attributes["short_circuit.message_id"],
        "short_circuit.rule": "unusable",
        "short_circuit.route": "agent",
        "short_circuit.mode": "hard",
        "short_circuit.batch": "priority",
        "short_circuit.would_stop": False,
        "short_circuit.saved_model_calls_estimated": 0,
        "short_circuit.calls.tool": ("pay", "look"),
        "short_circuit.calls.call_id": ("c0", "c1"),
        "short_circuit.calls.vote": ("completed", "unusable"),
        "short_circuit.calls.reason": ("completed", ""),
        "short_circuit.calls.row": ("pay/ok", ""),
        "short_circuit.calls.vendor_code": ("succeeded", ""),
        "short_circuit.calls.effect": ("applied", ""),
        "short_circuit.calls.attempts": (0, 1),
    } == attributes
    assert [] == caplog.records  # OpenTelemetry warns of attributes that it drops


def plain_tool() -> BaseTool:
    """Return a tool that knows nothing of outcomes."""

    @tool
    def look(cart: str = "") -> str:
        """Look."""
        return SECRET

    return look


def test_conventions() -> None:
    """The conventions' names are those that OpenTelemetry's own package has."""
    known = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    names = {name for name in span_attributes(answered(None)) if name.startswith("gen_ai.")}

    assert {known.GEN_AI_OPERATION_NAME, known.GEN_AI_TOOL_NAME, known.GEN_AI_TOOL_CALL_ID} == names
    assert known.GenAiOperationNameValues.EXECUTE_TOOL.value == "execute_tool"


def test_no_span(spans: Any) -> None:
    """Where nobody records a span there is nothing to add to, and no error."""
    SpanSink()(answered(None))

    assert [] == spans.events


def test_no_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without OpenTelemetry the sink says what to install; the rest of the module works."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)

    with pytest.raises(ImportError, match=r"pip install 'short-circuit\[otel\]'"):
        SpanSink()


# Not a word


ODD_TOOL = f"tell Ann {SECRET}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "calls",
    [
        [call()],
        [call(note=SECRET), call("look", "c1")],
        [call(ODD_TOOL, f"id of {SECRET}")],
        [call("raises")],
        [call("pay", "c0", cart=[SECRET])],
        [call("foreign")],
    ],
    ids=["completed", "unusable", "unknown tool", "exception", "bad arguments", "foreign artifact"],
)
def test_no_content(
    calls: Sequence[Any], mode: str, both: Runtime, spans: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What was planted in content, arguments, evidence, key, errors, settings and names is in no record."""
    caplog.set_level(logging.INFO, "orchestration.decisions")
    events: Events = []

    def foreign(cart: str = "") -> tuple[str, Any]:
        """Answer as a stranger does."""
        return SECRET, {"stop": True, "rule": f"x {SECRET}", "vendor_code": f"y {SECRET}", SECRET: SECRET}

    strange = StructuredTool.from_function(foreign, response_format="content_and_artifact")
    app = both.build(
        model(turn(*calls)),
        [till(PAID), plain_tool(), till(KeyError(SECRET), name="raises"), strange],
        policy=StopPolicy(mode=StopMode(mode), polish_prompt=SECRET),
        sinks=[events.append, LogSink(), SpanSink()],
    )

    with spans.tracer.start_as_current_span("invoke_agent"):
        both(app, thread_id=SECRET, role=SECRET, key=SECRET)

    records = [record for record in caplog.records if record.name == "orchestration.decisions"]
    assert (1, 1, 1) == (len(events), len(records), len(spans.events))
    lines = [JsonFormatter().format(record) for record in records]
    assert [] == leaks([event.as_dict() for event in events], spans.events, lines)
    assert [] == leaks([vars(record) for record in records])
    assert SECRET not in repr(events)


def test_masked(both: Runtime) -> None:
    """What a guard masks in an artifact is masked in the event: it stands there no more."""
    events: Events = []
    coded = replace(PAID, vendor_code=SECRET, rule=f"pay/{SECRET}")
    app = both.build(
        model(turn(call())),
        [till(coded)],
        guards=[mask(re.compile(SECRET), replace="masked")],
        sinks=[events.append],
    )

    both(app)

    assert [("masked", "pay/masked")] == [(each.calls[0].vendor_code, each.calls[0].row) for each in events]


def test_both_runtimes_agree() -> None:
    """For the same run both runtimes emit the same events, to the id."""
    came: list[Events] = []
    for build in (build_graph, agent_build()):
        events: Events = []
        script = [turn(call(note="0"), message_id="m0"), turn(call(), call("fly", "c1"), message_id="m1")]
        app = build(model(*script), [till(BUSY, PAID)], sinks=[events.append])
        app.invoke({"messages": [("user", "Pay.")]})
        came.append(events)

    assert 2 == len(came[0])
    assert came[0] == came[1]


def test_inside_another_graph(both: Runtime) -> None:
    """A graph that is a node of another one emits once too."""
    events: Events = []
    inner = both.build(model(turn(call())), [till(PAID)], sinks=[events.append])
    outer = StateGraph(MessagesState)
    outer.add_node("inner", inner)
    outer.add_edge(START, "inner")

    both(outer.compile(checkpointer=InMemorySaver()), thread_id="t")

    assert ["completed"] == [event.rule for event in events]


def test_routes_are_names() -> None:
    """The event's route is the router's word for it."""
    assert {"agent", "finalize", "polish"} == {route.value for route in Route}
