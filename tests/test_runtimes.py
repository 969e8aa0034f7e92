"""Two runtimes, one decision: the hand-built graph and ``create_agent`` side by side."""

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product
from time import sleep
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import convert_to_openai_messages
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END
from langgraph.types import Command, interrupt

from mocks.model import ScriptedModel
from orchestration import Effect, Outcome, Reason, StopPolicy
from orchestration.graph import build_graph
from orchestration.guards import Guard, allow, mask, spend_cap
from orchestration.outcomes import NOT_CARRIED_OUT, text_of
from tests.runtimes import (
    BUSY,
    CARD,
    NO_LANGCHAIN,
    PAID,
    REASONS,
    SECRET,
    Runtime,
    Till,
    agent_build,
    assert_valid,
    call,
    drive,
    endless,
    garbled,
    needs_langchain,
    rule_of,
    turn,
)

# One call


@pytest.mark.parametrize("reason", REASONS)
def test_reasons(reason: str, anyhow: Runtime) -> None:
    """A stop costs one model call and shows the tool's text; transient goes back to the model."""
    model = ScriptedModel([turn(call(), message_id="m1")], narration="I will try later.")

    messages = anyhow(anyhow.build(model, [Till([REASONS[reason]]).tool]))

    assert_valid(messages)
    if reason == "transient":
        assert (2, "I will try later.", None) == (model.calls, messages[-1].content, rule_of(messages[-1]))
        return
    assert (1, REASONS[reason].content, reason) == (model.calls, messages[-1].content, rule_of(messages[-1]))
    assert "final-m1" == messages[-1].id
    assert "finalize" == messages[-1].response_metadata["route"]


def test_no_tools(runtime: Runtime) -> None:
    """A run without tools is the model's."""
    assert "Hello." == runtime(runtime.build(ScriptedModel(narration="Hello."), []))[-1].content


def test_reworked_arguments(anyhow: Runtime) -> None:
    """Bad arguments, then good ones, then the receipt: two model calls (B08)."""
    till = Till([PAID])
    model = ScriptedModel([turn(call(amount="much")), turn(call(amount=1999))])

    messages = anyhow(anyhow.build(model, [till.tool]))

    assert_valid(messages)
    assert (2, 1, PAID.content) == (model.calls, len(till.asked), messages[-1].content)


def test_several_steps(runtime: Runtime) -> None:
    """A completed search does not end a run whose user also asked to buy."""
    look = Till([Outcome("A mug.", Reason.COMPLETED)], "search")
    model = ScriptedModel([turn(call("search", last_step=False)), turn(call("pay", "c1"))])

    messages = runtime(runtime.build(model, [look.tool, Till([PAID]).tool]))

    assert_valid(messages)
    assert (2, PAID.content) == (model.calls, messages[-1].content)


def test_artifact_is_in_no_prompt(runtime: Runtime) -> None:
    """The second request holds what people may read, and nothing for the router."""
    model = ScriptedModel([turn(call())], narration="Later.")

    runtime(runtime.build(model, [Till([BUSY]).tool]))

    request = json.dumps(convert_to_openai_messages(model.requests[1]))
    assert BUSY.content in request
    assert [] == [word for word in ("artifact", "transient", "pay/busy", "schema") if word in request]


def test_commands(both: Runtime) -> None:
    """A tool may answer with a Command; its siblings keep their places."""

    @tool
    def hand_over(call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Hand over."""
        return Command(update={"messages": [ToolMessage("Handed over.", tool_call_id=call_id)]})

    model = ScriptedModel(
        [turn(call("hand_over"), call("pay", "c1"), call("nothing", "c2"))], narration="Done."
    )

    messages = both(both.build(model, [hand_over, Till([BUSY]).tool]))

    assert_valid(messages)
    assert (2, "Done.") == (model.calls, messages[-1].content)


def test_strict(both: Runtime) -> None:
    """With strict a tool's exception ends the run, for tests."""
    with pytest.raises(KeyError, match="cart"):
        both(both.build(ScriptedModel([turn(call())]), [Till([KeyError("cart")]).tool], strict=True))


# One turn with anything in it

ODD: dict[str, tuple[list[Any], int, int, str, str | None]] = {
    # what the model says; model calls, tool runs, last text, rule
    "unknown tool": ([turn(call("fly"))], 2, 0, "I see.", None),
    "unknown beside known": ([turn(call("fly"), call("pay", "c1"))], 2, 1, "I see.", None),
    "unknown after known": ([turn(call("pay"), call("fly", "c1"))], 2, 1, "I see.", None),
    "two unknown": ([turn(call("fly"), call("swim", "c1"))], 2, 0, "I see.", None),
    "no name": ([turn(call(""))], 2, 0, "I see.", None),
    "garbled alone": ([turn(invalid_tool_calls=[garbled()])], 2, 0, "I see.", None),
    "garbled, then right": (
        [turn(invalid_tool_calls=[garbled()]), turn(call())],
        2,
        1,
        PAID.content,
        "completed",
    ),
    "garbled beside valid": ([turn(call(), invalid_tool_calls=[garbled()])], 2, 1, "I see.", None),
    "null and a list": (
        [turn(invalid_tool_calls=[garbled(args="null"), garbled(args="[1]", call_id="g1")])],
        *(2, 0, "I see.", None),
    ),
    "garbled without args": ([turn(invalid_tool_calls=[garbled(args=None)])], 2, 0, "I see.", None),
    "garbled without id": ([turn(invalid_tool_calls=[garbled(call_id=None)])], 2, 0, "I see.", None),
    "garbled and unknown": ([turn(invalid_tool_calls=[garbled("fly")])], 2, 0, "I see.", None),
    "repeated ids": ([turn(call(cart="a"), call(cart="b"))], 1, 2, PAID.content, "completed"),
    "repeated ids and arguments": ([turn(call(), call())], 1, 2, PAID.content, "completed"),
    "empty ids": ([turn(call(call_id=""), call(call_id=""))], 1, 2, PAID.content, "completed"),
    "no ids": ([turn(call(call_id=None), call(call_id=None))], 1, 2, PAID.content, "completed"),
    "one id of a garbled one": (
        [turn(call(), invalid_tool_calls=[garbled(call_id="c0")])],
        *(2, 1, "I see.", None),
    ),
    "an id of an earlier turn": (
        [turn(call(cart="a", last_step=False)), turn(call(cart="b"))],
        *(2, 2, PAID.content, "completed"),
    ),
    "a raising sibling": (
        [turn(call("search"), call("pay", "c1"))],
        *(1, 1, f"{NOT_CARRIED_OUT}\n\n{PAID.content}", "fatal"),
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_turns(case: str, both: Runtime) -> None:
    """Whatever a model says, every call is answered once, and no run ends without a word."""
    script, model_calls, runs, text, rule = ODD[case]
    till = Till([PAID])
    model = ScriptedModel(script, narration="I see.")

    messages = both(both.build(model, [till.tool, Till([KeyError(SECRET)], "search").tool]))

    assert_valid(messages)
    assert (model_calls, runs, text, rule) == (
        model.calls,
        len(till.asked),
        messages[-1].content,
        rule_of(messages[-1]),
    )


def test_receipt_outlives_a_raising_sibling(both: Runtime) -> None:
    """The receipt is in the next turn's prompt, and the thread can go on (B02)."""
    till = Till([PAID])
    model = ScriptedModel(
        [turn(call(), call("search", "c1", last_step=False))], narration="It is paid already."
    )
    tools = [till.tool, Till([KeyError(SECRET)], "search").tool]
    app = both.build(model, tools, checkpointer=InMemorySaver())

    both(app, "Pay and search.", thread_id="t")
    messages = both(app, "And now?", thread_id="t")

    assert_valid(messages)
    assert 1 == len(till.asked)
    assert PAID.content in [message.content for message in model.requests[-1]]
    assert SECRET not in repr(messages)


def expected_of(reasons: Sequence[str], batch: str) -> str | None:
    """Return the rule that stops a turn with these reasons, None if the model goes on."""
    stops = [reason for reason in reasons if reason != "transient"]
    if (
        len(stops) == len(reasons)
        or (stops and batch == "any")
        or (batch == "priority" and "policy_block" in stops)
    ):
        return next(rule for rule in ("policy_block", "fatal", "completed") if rule in stops)
    return None


@pytest.mark.parametrize("batch", ["priority", "all", "any"])
def test_batches(batch: str, runtime: Runtime) -> None:
    """Every answer of a turn counts, wherever it stands, and a stop shows every text in call order."""
    mixes = [*product(REASONS, repeat=2), *permutations(REASONS, 3)]
    script = []
    for reasons in mixes:
        script.append(turn(*(call(reason, f"c{at}") for at, reason in enumerate(reasons))))
        script += [] if expected_of(reasons, batch) else [AIMessage("On.")]
    model = ScriptedModel(script)
    tools = [Till([outcome], reason).tool for reason, outcome in REASONS.items()]
    app = runtime.build(model, tools, policy=StopPolicy(batch=batch))  # type: ignore[arg-type]

    for reasons in mixes:
        messages = runtime(app)
        rule = expected_of(reasons, batch)
        texts = dict.fromkeys(REASONS[reason].content for reason in reasons)
        assert_valid(messages)
        assert (rule, "\n\n".join(texts) if rule else "On.") == (rule_of(messages[-1]), messages[-1].content)

    assert 0 == model.left


@needs_langchain
@pytest.mark.parametrize("case", ODD)
def test_runtimes_agree(case: str) -> None:
    """Both runtimes leave the same history behind (O7)."""
    seen = []
    for build in (build_graph, agent_build()):
        model = ScriptedModel(ODD[case][0], narration="I see.")
        tools = [Till([PAID]).tool, Till([KeyError(SECRET)], "search").tool]
        messages = drive("invoke", build(model, tools), "Pay.", {})
        seen.append(
            [
                (
                    message.type,
                    message.content,
                    getattr(message, "tool_calls", None),
                    getattr(message, "tool_call_id", None),
                    getattr(message, "artifact", None),
                    message.name,
                    rule_of(message),
                )
                for message in messages
            ]
        )

    assert seen[0] == seen[1]


# Modes


@pytest.mark.parametrize(
    ("mode", "model_calls", "text", "rule"),
    [
        (None, 1, PAID.content, "completed"),
        ("hard", 1, PAID.content, "completed"),
        ("polish", 2, "Lovely: 1999 for cart 7.", "completed"),
        ("never", 2, "Lovely: 1999 for cart 7.", None),
    ],
)
def test_modes(mode: str | None, model_calls: int, text: str, rule: str | None, anyhow: Runtime) -> None:
    """A run may choose its mode, whatever it was built with."""
    model = ScriptedModel([turn(call())], narration="Lovely: 1999 for cart 7.")
    app = anyhow.build(model, [Till([PAID]).tool])

    messages = anyhow(app, **({"stop_mode": mode} if mode else {}))

    assert_valid(messages)
    assert (model_calls, text, rule) == (model.calls, messages[-1].content, rule_of(messages[-1]))


def test_a_mode_that_is_none(runtime: Runtime) -> None:
    """A mode that does not exist is refused, not ignored."""
    app = runtime.build(ScriptedModel([turn(call())]), [Till([PAID]).tool])

    with pytest.raises(ValueError, match="soft"):
        runtime(app, stop_mode="soft")


def test_what_polish_asks(both: Runtime) -> None:
    """The polish call holds the prompt and the text: no history, no tools."""
    model = ScriptedModel([turn(call(), message_id="m1"), AIMessage("1999! Cart 7!")])
    app = both.build(model, [Till([PAID]).tool], policy=StopPolicy(mode="polish"))  # type: ignore[arg-type]

    messages = both(app, stop_polish_prompt="Be loud.")

    assert [SystemMessage("Be loud."), HumanMessage(PAID.content)] == model.requests[1]
    assert () == model.tools_bound[1]
    assert ("1999! Cart 7!", "final-m1", "polish") == (
        messages[-1].content,
        messages[-1].id,
        messages[-1].response_metadata["route"],
    )


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("down"),
        AIMessage(""),
        AIMessage(" \n"),
        AIMessage([]),
        AIMessage("1999 for cart 7.", tool_calls=[call()]),
        AIMessage("It is paid."),
        AIMessage("Paid 199 for cart 7."),
        AIMessage([{"type": "image", "base64": "1999 7"}]),
    ],
)
def test_polish_falls_back(answer: AIMessage | Exception, both: Runtime) -> None:
    """An error, an empty answer, a call or a lost number: the tool's own text stands."""
    model = ScriptedModel([turn(call()), answer])

    messages = both(both.build(model, [Till([PAID]).tool]), stop_mode="polish")

    assert_valid(messages)
    assert (2, PAID.content, "completed") == (model.calls, messages[-1].content, rule_of(messages[-1]))


@pytest.mark.parametrize("reason", ["fatal", "policy_block"])
def test_only_good_news_is_polished(reason: str, runtime: Runtime) -> None:
    """A refusal keeps its words, and so does a receipt beside one."""
    tools = [Till([PAID]).tool, Till([REASONS[reason]], "other").tool]
    model = ScriptedModel([turn(call(), call("other", "c1"))])

    messages = runtime(runtime.build(model, tools), stop_mode="polish")

    assert f"{PAID.content}\n\n{REASONS[reason].content}" == messages[-1].content


# Endings


@pytest.mark.parametrize("mode", ["hard", "polish", "never"])
def test_attempts_end(mode: str, both: Runtime) -> None:
    """A tool that is busy for ever ends in its own text, in every mode (B40)."""
    model = ScriptedModel(endless(call()))

    messages = both(both.build(model, [Till([BUSY]).tool]), stop_mode=mode)

    assert_valid(messages)
    assert (3, BUSY.content, "attempts_exhausted") == (
        model.calls,
        messages[-1].content,
        rule_of(messages[-1]),
    )


@pytest.mark.parametrize(
    ("script", "model_calls"),
    [
        (endless(call(last_step=False)), 8),
        ([turn(call(f"t{at}", f"c{at}")) for at in range(9)], 8),
        ([turn(call(last_step=False)), *endless(call("t0"))], 4),
    ],
)
def test_turns_end(script: list[AIMessage], model_calls: int, runtime: Runtime) -> None:
    """Any mix without an end ends in text, and never in a GraphRecursionError."""
    tools = [Till([PAID]).tool, *(Till([BUSY], f"t{at}").tool for at in range(9))]

    model = ScriptedModel(script)
    messages = runtime(runtime.build(model, tools))

    assert_valid(messages)
    assert model_calls == model.calls
    assert ("turns_exhausted" if model_calls == 8 else "attempts_exhausted") == rule_of(messages[-1])


def test_unknown_tools_end(runtime: Runtime) -> None:
    """A model that insists on a tool that is not there is stopped too."""
    messages = runtime(runtime.build(ScriptedModel(endless(call("fly"))), [Till([PAID]).tool]))

    assert_valid(messages)
    assert "attempts_exhausted" == rule_of(messages[-1])


def test_budget_of_a_run(runtime: Runtime) -> None:
    """A run may set a budget above the one it was built with."""
    model = ScriptedModel(endless(call(last_step=False)))

    messages = runtime(runtime.build(model, [Till([PAID]).tool]), stop_max_turns=25)

    assert (25, "turns_exhausted") == (model.calls, rule_of(messages[-1]))


# Guards


def test_roles(both: Runtime) -> None:
    """A run's role decides which calls run; without a role none does."""
    till = Till([PAID])
    for role, runs in (({"role": "manager"}, 1), ({"role": "clerk"}, 0), ({}, 0)):
        till.asked.clear()
        app = both.build(ScriptedModel([turn(call())]), [till.tool], guards=[allow({"manager": ["pay"]})])
        messages = both(app, **role)

        assert_valid(messages)
        assert (runs, "completed" if runs else "policy_block") == (len(till.asked), rule_of(messages[-1]))


@pytest.mark.parametrize("amounts", [(600, 600), ("600", 600), ("6_00", "600.0"), (600.0, 600)])
def test_spend_of_a_turn(amounts: tuple[Any, Any], both: Runtime) -> None:
    """Over the cap together: neither runs (B21)."""
    till = Till([PAID])
    calls = [call(call_id=f"c{at}", cart=str(at), amount=amount) for at, amount in enumerate(amounts)]

    messages = both(both.build(ScriptedModel([turn(*calls)]), [till.tool], guards=[spend_cap(1000)]))

    assert_valid(messages)
    assert ([], "policy_block") == (till.asked, rule_of(messages[-1]))


def test_spend_of_a_run(runtime: Runtime) -> None:
    """What may have been spent is spent; asking for the same again is not spending twice."""
    lost = Outcome("Not confirmed.", Reason.TRANSIENT, effect=Effect.UNKNOWN, key="k")
    till = Till([lost, PAID])
    model = ScriptedModel(
        [
            turn(call(cart="a", amount=600)),
            turn(call(cart="a", amount=600, note="again", last_step=False)),
            turn(call(cart="b", amount=600)),
        ]
    )

    messages = runtime(runtime.build(model, [till.tool], guards=[spend_cap(1000)]))

    assert_valid(messages)
    assert (["a", "a"], "policy_block") == ([args["cart"] for args in till.asked], rule_of(messages[-1]))


class _Broken:
    name = "broken"

    def check(self, calls: Any, run: Any) -> dict[int, str]:
        raise KeyError(SECRET)

    def clean(self, value: str) -> str:
        return value


def test_broken_guard(both: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    """A guard with a bug lets nothing run, and the run ends in text."""
    caplog.set_level(logging.DEBUG)
    till = Till([PAID])

    messages = both(both.build(ScriptedModel([turn(call())]), [till.tool], guards=[_Broken()]))

    assert_valid(messages)
    assert ([], NOT_CARRIED_OUT) == (till.asked, messages[-1].content)
    assert SECRET not in f"{messages!r}{caplog.text}"


MODES = ["updates", "messages", "values", "debug", "custom", "checkpoints", "tasks"]


@dataclass
class Leak:
    """A run whose tool answers with what nobody may read."""

    runtime: Runtime
    guards: Sequence[Guard] = (mask(CARD),)

    def __post_init__(self) -> None:
        self.till = Till([Outcome(f"Paid with {SECRET}.", Reason.COMPLETED, evidence={"card": [SECRET]})])
        self.model = ScriptedModel([turn(call(cart="a"), message_id="m1")])
        self.app = self.runtime.build(self.model, [self.till.tool], guards=self.guards)


@pytest.mark.parametrize("mode", MODES)
def test_mask_in_streams(mode: str, runtime: Runtime) -> None:
    """No stream shows what is masked."""
    streamed = list(Leak(runtime).app.stream({"messages": [("user", "Pay.")]}, stream_mode=mode))

    assert SECRET not in repr(streamed)
    assert mode in {"custom", "checkpoints"} or "[REDACTED_TEXT]" in repr(streamed)


def events(app: Any) -> list[Any]:
    """Return every event of a run."""

    async def all_of() -> list[Any]:
        state = {"messages": [("user", "Pay.")]}
        return [event async for event in app.astream_events(state, version="v2")]

    return asyncio.run(all_of())


def test_mask_in_events(runtime: Runtime) -> None:
    """No event shows what is masked, the tool's own least of all."""
    seen = events(Leak(runtime).app)

    assert SECRET not in repr(seen)
    assert ["pay"] == [event["name"] for event in seen if event["event"] == "on_tool_end"]


def test_state_in_no_event(runtime: Runtime) -> None:
    """What is injected is not among a tool's inputs: a trace would print the whole history."""
    [started] = [event for event in events(Leak(runtime).app) if event["event"] == "on_tool_start"]

    assert "user" not in repr(started["data"])
    # langchain-core 0.3 leaves what is injected among the inputs: an object that prints as nothing.
    assert {"cart"} == set(started["data"]["input"]) - {"run_given"}


@pytest.mark.parametrize("mode", ["hard", "polish"])
def test_answer_arrives_once(mode: str, runtime: Runtime) -> None:
    """In each stream one AIMessage carries the answer, under one id (B36)."""
    text = "Paid 1999 for cart 7!"

    def run(stream_mode: str) -> list[Any]:
        model = ScriptedModel([turn(call(), message_id="m1"), AIMessage(text)])
        app = runtime.build(model, [Till([PAID]).tool])
        config = {"configurable": {"stop_mode": mode}}
        return list(app.stream({"messages": [("user", "Pay.")]}, config, stream_mode=stream_mode))

    updates = [
        m for part in run("updates") for update in part.values() for m in (update or {}).get("messages", [])
    ]
    chunks = [message for message, _ in run("messages")]
    values = run("values")[-1]["messages"]
    for messages in (updates, chunks, values):
        assert ["final-m1"] == [
            m.id for m in messages if isinstance(m, AIMessage) and text_of(m.content) and m.content
        ]


def test_a_finished_thread_adds_nothing(both: Runtime) -> None:
    """Going on from a checkpoint after a stop repeats neither the call nor the answer."""
    till = Till([PAID])
    app = both.build(ScriptedModel([turn(call())]), [till.tool], checkpointer=InMemorySaver())
    before = both(app, thread_id="t")

    app.invoke(None, {"configurable": {"thread_id": "t"}})

    assert before == app.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    assert 1 == len(till.asked)


# Interrupts


def test_interrupt_in_a_tool(both: Runtime) -> None:
    """A tool may pause for a person; the run goes on with what that person says (B04)."""
    asked: list[str] = []

    @tool(response_format="content_and_artifact")
    def approve(what: str) -> tuple[str, Any]:
        """Ask a person."""
        asked.append(what)
        return Outcome(f"{interrupt(what)} 1.", Reason.COMPLETED).as_tool_result()

    till = Till([PAID])
    model = ScriptedModel([turn(call(), call("approve", "c1", what="sure?"))])
    app = both.build(model, [till.tool, approve], checkpointer=InMemorySaver())

    both(app, thread_id="t")
    state = app.get_state({"configurable": {"thread_id": "t"}})
    assert ["sure?"] == [each.value for task in state.tasks for each in task.interrupts]
    messages = both(app, Command(resume="Granted"), thread_id="t")

    assert_valid(messages)
    assert (1, f"{PAID.content}\n\nGranted 1.") == (model.calls, messages[-1].content)
    assert 1 == len(till.asked)


def test_interrupted_twice(both: Runtime) -> None:
    """A tool may pause more than once."""

    @tool(response_format="content_and_artifact")
    def approve() -> tuple[str, Any]:
        """Ask two people."""
        said = [interrupt("one"), interrupt("two")]
        return Outcome(" and ".join(said), Reason.COMPLETED).as_tool_result()

    app = both.build(ScriptedModel([turn(call("approve"))]), [approve], checkpointer=InMemorySaver())

    both(app, thread_id="t")
    both(app, Command(resume="yes"), thread_id="t")
    messages = both(app, Command(resume="no"), thread_id="t")

    assert_valid(messages)
    assert "yes and no" == messages[-1].content


def test_two_interrupts_of_a_turn(both: Runtime) -> None:
    """What one person granted is not taken for another's answer, whichever call is the slower."""

    @tool
    def approve(what: str) -> str:
        """Ask a person."""
        sleep(0.05 if what == "a" else 0)
        return f"{what}: {interrupt(what)}"

    model = ScriptedModel(
        [turn(call("approve", "c0", what="a"), call("approve", "c1", what="b"))], narration="."
    )
    app = both.build(model, [approve], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}

    messages = both(app, thread_id="t")
    while open_ones := [each for task in app.get_state(config).tasks for each in task.interrupts]:
        said = {each.id: f"granted {each.value}" for each in open_ones}
        messages = both(app, Command(resume=said), thread_id="t")

    answers = [message.content for message in messages if isinstance(message, ToolMessage)]
    assert ["a: granted a", "b: granted b"] == answers


# Among foreign middleware


def middleware() -> Any:
    """Return langchain's module, with which foreign middleware is made."""
    return pytest.importorskip("langchain.agents.middleware", reason=NO_LANGCHAIN)


def foreign(name: str, **hooks: Any) -> Any:
    """Return a middleware of somebody else's with these hooks."""
    return type(name, (middleware().AgentMiddleware,), hooks)()


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_stop_anywhere_in_the_list(place: int, reason: str) -> None:
    """Used by itself, the stop works as the first, a middle and the last entry (B47)."""
    build = agent_build()
    from langchain.agents import create_agent

    from orchestration.agent import StopOnOutcome

    seen: list[str] = []
    hooks = [
        foreign(
            name,
            before_model=lambda self, state, runtime: seen.append("before"),
            after_model=lambda self, state, runtime: seen.append("after"),
        )
        for name in ("One", "Two")
    ]
    hooks.insert(place, StopOnOutcome())
    model = ScriptedModel([turn(call(), message_id="m1")], narration="Later.")

    messages = drive(
        "invoke", create_agent(model, [Till([REASONS[reason]]).tool], middleware=hooks), "Pay.", {}
    )

    assert build is not None
    assert_valid(messages)
    assert (
        (2, "Later.")
        if reason == "transient"
        else (1, REASONS[reason].content)
        == (
            model.calls,
            messages[-1].content,
        )
    )


def test_a_second_stop_is_refused() -> None:
    """Two stops would answer twice."""
    build = agent_build()
    from orchestration.agent import StopOnOutcome

    with pytest.raises(ValueError, match="leave StopOnOutcome out"):
        build(ScriptedModel(), [Till([PAID]).tool], middleware=[StopOnOutcome()])


def test_tools_past_the_guards_are_refused() -> None:
    """A middleware's own tools would run unguarded: with guards they are refused."""
    build = agent_build()
    brings = foreign("Brings", tools=[Till([PAID], "gift").tool])

    with pytest.raises(ValueError, match="Brings brings tools that no guard would see"):
        build(ScriptedModel(), [Till([PAID]).tool], guards=[allow({})], middleware=[brings])


@pytest.mark.parametrize("hook", ["before_model", "after_model"])
def test_foreign_jump_to_tools(hook: str) -> None:
    """A denied call stays denied when somebody jumps back to the tools, and keeps its one answer (B10)."""
    build = agent_build()
    from langchain.agents import create_agent

    from orchestration.agent import StopOnOutcome
    from orchestration.tools import prepare

    jumps: list[int] = []

    @middleware().hook_config(can_jump_to=["tools"])  # type: ignore[untyped-decorator]
    def jump(self: Any, state: Any, runtime: Any) -> Any:
        if len(jumps) < 2 and (hook == "after_model" or state["messages"][-1].type == "tool"):
            jumps.append(1)
            return {"jump_to": "tools"}
        return None

    till = Till([PAID])
    model = ScriptedModel([turn(call(amount=900))])
    tools = prepare([till.tool], guards=[spend_cap(500)])
    app = create_agent(model, tools, middleware=[foreign("Jumps", **{hook: jump}), StopOnOutcome()])

    messages = drive("invoke", app, "Refund.", {})

    assert build is not None
    assert jumps
    assert_valid(messages)
    assert ([], "policy_block", 1) == (till.asked, rule_of(messages[-1]), model.calls)


def test_foreign_change_of_arguments() -> None:
    """Arguments that somebody changes on the way are the ones the guards are asked about."""
    build = agent_build()
    till = Till([PAID])

    def change(self: Any, request: Any, handler: Any) -> Any:
        changed = {**request.tool_call, "args": {**request.tool_call["args"], "amount": 5000}}
        return handler(request.override(tool_call=changed))

    model = ScriptedModel([turn(call(amount=1))])
    smuggler = foreign("Smuggler", wrap_tool_call=change)

    messages = drive(
        "invoke", build(model, [till.tool], guards=[spend_cap(1000)], middleware=[smuggler]), "Pay.", {}
    )

    assert_valid(messages)
    assert ([], "policy_block") == (till.asked, rule_of(messages[-1]))


def test_foreign_goto_end() -> None:
    """Somebody's Command to the end changes nothing: one model call, and the relay is there (B34)."""
    build = agent_build()

    def end(self: Any, request: Any, handler: Any) -> Any:
        return Command(goto=END, update={"messages": [handler(request)]})

    model = ScriptedModel([turn(call())])
    messages = drive(
        "invoke",
        build(model, [Till([PAID]).tool], middleware=[foreign("Ends", wrap_tool_call=end)]),
        "Pay.",
        {},
    )

    assert_valid(messages)
    assert (1, PAID.content) == (model.calls, messages[-1].content)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_limits_stand_after_the_stop(mode: str) -> None:
    """A model-call limit in the list does not replace a finished receipt."""
    build = agent_build()
    limit = middleware().ModelCallLimitMiddleware(run_limit=1)
    model = ScriptedModel([turn(call())])

    messages = drive(
        "invoke" if mode == "sync" else "ainvoke",
        build(model, [Till([PAID]).tool], middleware=[limit]),
        "Pay.",
        {},
    )

    assert (1, PAID.content) == (model.calls, messages[-1].content)


def test_pii_stands_before_the_stop() -> None:
    """PII middleware sees a turn before it is relayed, wherever it is listed."""
    build = agent_build()
    pii = middleware().PIIMiddleware(
        "card", detector=r"\d{4} \d{4}", strategy="redact", apply_to_tool_results=True, apply_to_input=False
    )
    told = Till([Outcome(f"Paid with {SECRET}.", Reason.COMPLETED)])

    messages = drive(
        "invoke", build(ScriptedModel([turn(call())]), [told.tool], middleware=[pii]), "Pay.", {}
    )

    assert SECRET not in messages[-1].content
    assert "completed" == rule_of(messages[-1])
