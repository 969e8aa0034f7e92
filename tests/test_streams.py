"""Streams: the user's text once, in every mode of both runtimes, and no artifact for a browser."""

import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send

from mocks.model import ScriptedModel
from orchestration import Outcome, Reason
from orchestration.asking import CANNOT_GO_ON, NO_ANSWER, NOT_FINISHED
from orchestration.streams import user_text, without_artifacts
from tests.runtimes import BUSY, NO_LANGCHAIN, PAID, Runtime, Till, agent_build, call, turn

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

TYPED = tuple(map(int, version("langgraph").split(".")[:2])) >= (1, 1)
LATER = "I will try later, all right?"

Args = dict[str, Any]


def streamed(app: Any, way: str, given: Any = "Pay.", config: Args | None = None, **how: Any) -> list[Any]:
    """Return every chunk of a run."""
    state = {"messages": [("user", given)]} if isinstance(given, str) else given

    async def every() -> list[Any]:
        return [chunk async for chunk in app.astream(state, config, **how)]

    return list(app.stream(state, config, **how)) if way == "invoke" else asyncio.run(every())


def events(app: Any, given: Any = "Pay.", config: Args | None = None, **how: Any) -> list[Any]:
    """Return every event of a run."""
    state = {"messages": [("user", given)]} if isinstance(given, str) else given

    async def every() -> list[Any]:
        return [event async for event in app.astream_events(state, config, version="v2", **how)]

    return asyncio.run(every())


def read(chunks: Sequence[Any], seen: dict[str, str] | None = None) -> list[str]:
    """Return what the user reads of the chunks."""
    return [text for chunk in chunks if (text := user_text(chunk, seen)) is not None]


def going_on(*rest: AIMessage | Exception) -> list[AIMessage | Exception]:
    """Return a script whose receipt does not end the run."""
    return [turn(call(last_step=False), message_id="m1"), *rest]


STOP = turn(call(), message_id="m1")
FLOWS: dict[str, tuple[list[AIMessage | Exception], Args, str]] = {
    # the model's script, the run's config, what the user reads
    "stop": ([STOP], {}, PAID.content),
    "two of a turn": ([turn(call(), call("busy", "c1"), call("pay", "c2"))], {}, LATER),
    "polish": ([STOP, AIMessage("Yes: 1999 for cart 7.")], {"stop_mode": "polish"}, "Yes: 1999 for cart 7."),
    "polish that is turned down": ([STOP, AIMessage("Paid!")], {"stop_mode": "polish"}, PAID.content),
    "never": ([STOP], {"stop_mode": "never"}, LATER),
    "transient": ([turn(call("busy"))], {}, LATER),
    "attempts": ([turn(call("busy"))], {"stop_max_attempts": 1}, BUSY.content),
    "no call": ([], {}, LATER),
    "more steps": (going_on(turn(call("busy", "c1"))), {}, LATER),
    "asked once more": ([AIMessage(""), AIMessage("There.")], {}, "There."),
    "nothing to say": (going_on(AIMessage(""), AIMessage("")), {}, f"{PAID.content}\n\n{NO_ANSWER}"),
    "provider down": (going_on(OSError("down")), {}, f"{PAID.content}\n\n{CANNOT_GO_ON}"),
    "blocks": ([AIMessage([{"type": "text", "text": "In blocks."}])], {}, "In blocks."),
}
ALONE = ("updates", "values", "messages")
TOGETHER = (["updates", "messages"], ["values", "updates", "messages", "custom", "debug"], ["updates"])


def built(runtime: Runtime, script: Sequence[AIMessage | Exception], **more: Any) -> Any:
    """Return an agent that pays, or is busy."""
    model = ScriptedModel(script, narration=LATER)
    return runtime.build(model, [Till([PAID]).tool, Till([BUSY], "busy").tool], **more)


@pytest.mark.parametrize("flow", FLOWS)
def test_read_once(flow: str, both: Runtime) -> None:
    """In every mode the chunks of a run hold the user's text once; in several at once for who remembers."""
    script, configurable, text = FLOWS[flow]

    chunks = streamed(built(both, script), both.way, stream_mode=[*ALONE], **_config(configurable))

    for alone in ALONE:
        texts = read([part for mode, part in chunks if mode == alone])
        assert text == "".join(texts), alone
        assert alone == "messages" or 1 == len(texts)
    assert text == "".join(read(chunks, {}))


@pytest.mark.parametrize("modes", TOGETHER)
def test_read_once_of_several_modes(modes: list[str], both: Runtime) -> None:
    """Whichever modes are asked for together, the text is read once."""
    for script, text in (([STOP], PAID.content), ([turn(call("busy"))], LATER)):
        chunks = streamed(built(both, script), both.way, stream_mode=modes)
        assert text == "".join(read(chunks, {}))


@pytest.mark.parametrize("flow", FLOWS)
def test_read_once_of_events(flow: str, runtime: Runtime) -> None:
    """Of events it is read once, whichever of them show it."""
    script, configurable, text = FLOWS[flow]

    assert [text] == read(events(built(runtime, script), **_config(configurable)))


def _config(configurable: Args) -> Args:
    return {"config": {"configurable": configurable}}


@pytest.mark.parametrize("mode", [*ALONE, TOGETHER[1]])
def test_out_of_steps(mode: str | list[str], both: Runtime) -> None:
    """The text of a run that its caller's limit ends is read like any other."""
    for limit, text in ((2, NOT_FINISHED), (8, f"{PAID.content}\n\n{NOT_FINISHED}")):
        app = built(both, going_on(*(turn(call(f"t{at}", f"t{at}")) for at in range(9))))
        chunks = streamed(app, both.way, config={"recursion_limit": limit}, stream_mode=mode)
        assert text == "".join(read(chunks, {})), limit


@pytest.mark.parametrize("mode", [*ALONE, *TOGETHER[:2]])
def test_read_once_with_subgraphs(mode: Any, runtime: Runtime) -> None:
    """With subgraphs every chunk carries a namespace, and the text is the same."""
    chunks = streamed(built(runtime, [STOP]), "invoke", stream_mode=mode, subgraphs=True)

    assert [PAID.content] == read(chunks, {})


class Outer(TypedDict):
    """The state of somebody's own graph."""

    messages: Annotated[list[Any], add_messages]


@pytest.mark.parametrize("subgraphs", [False, True])
@pytest.mark.parametrize("mode", ALONE)
def test_read_once_of_a_part(mode: str, subgraphs: bool, runtime: Runtime) -> None:
    """An agent that is a node of somebody's graph is read once as well, its own updates or the graph's."""
    for script, text in (([STOP], PAID.content), ([turn(call("busy"))], LATER)):
        graph = StateGraph(Outer)
        graph.add_node("assistant", built(runtime, script))
        graph.add_edge(START, "assistant")
        graph.add_edge("assistant", END)
        chunks = streamed(graph.compile(), "invoke", stream_mode=mode, subgraphs=subgraphs)
        assert text == "".join(read(chunks, {}))


@pytest.mark.skipif(not TYPED, reason="langgraph has typed parts from 1.1 on")
@pytest.mark.parametrize("mode", [*ALONE, *TOGETHER])
def test_read_once_of_typed_parts(mode: Any, runtime: Runtime) -> None:
    """Typed parts are read like bare ones."""
    chunks = streamed(built(runtime, [STOP]), "invoke", stream_mode=mode, version="v2")

    assert {"type", "ns", "data"} <= chunks[0].keys()
    assert [PAID.content] == read(chunks, {})


@pytest.mark.parametrize("mode", ["custom", "debug", "tasks", "checkpoints", ["custom", "debug", "tasks"]])
def test_other_modes_hold_no_text(mode: Any, runtime: Runtime) -> None:
    """What tasks and checkpoints hold, another mode brings: nothing is read of them."""
    app = built(runtime, [STOP], checkpointer=InMemorySaver())
    for script in ([STOP], [turn(call("busy"))]):
        app = built(runtime, script, checkpointer=InMemorySaver())
        assert [] == read(streamed(app, "invoke", config=_thread(), stream_mode=mode))


def _thread(**more: Any) -> Args:
    return {"configurable": {"thread_id": "t", **more}}


# Beside the answer


def test_progress(both: Runtime) -> None:
    """A long tool reports through the custom stream while it works; that is no answer."""

    @tool(response_format="content_and_artifact")
    def pack() -> tuple[str, Any]:
        """Pack."""
        for part in (1, 2):
            get_stream_writer()({"progress": part / 2})
        return Outcome("Packed.", Reason.COMPLETED).as_tool_result()

    app = both.build(ScriptedModel([turn(call("pack"))]), [pack])
    chunks = streamed(app, both.way, stream_mode=["custom", "updates"])

    assert [{"progress": 0.5}, {"progress": 1.0}] == [part for mode, part in chunks if mode == "custom"]
    before = chunks.index(("custom", {"progress": 1.0}))
    assert [] == read(chunks[: before + 1])
    assert ["Packed."] == read(chunks)


def test_a_model_inside_a_tool(both: Runtime) -> None:
    """What a tool's own model says goes to the tool, and into no stream."""
    inner = ScriptedModel(narration="Just between us.")

    @tool(response_format="content_and_artifact")
    def ask() -> tuple[str, Any]:
        """Ask another model."""
        return Outcome(f"It said {inner.invoke('?').content!r}.", Reason.COMPLETED).as_tool_result()

    for mode in ALONE:
        app = both.build(ScriptedModel([turn(call("ask"))]), [ask])
        chunks = streamed(app, both.way, stream_mode=mode, subgraphs=True)
        assert ["It said 'Just between us.'."] == read(chunks)
    app = both.build(ScriptedModel([turn(call("ask"))]), [ask])
    assert ["It said 'Just between us.'."] == read(events(app))


def test_words_beside_a_call(runtime: Runtime) -> None:
    """Words before a call are no answer; only in pieces nobody can tell."""
    talking = AIMessage("Let me see. ", id="m1", tool_calls=[call()])

    texts = {
        mode: "".join(read(streamed(built(runtime, [talking]), "invoke", stream_mode=mode))) for mode in ALONE
    }

    assert {
        "updates": PAID.content,
        "values": PAID.content,
        "messages": f"Let me see. {PAID.content}",
    } == texts


@pytest.mark.parametrize("mode", [*ALONE, *TOGETHER])
def test_hooks(mode: Any) -> None:
    """A hook that asks a model, or that touches the state after the answer, brings no second text."""
    build = agent_build()
    middleware = pytest.importorskip("langchain.agents.middleware", reason=NO_LANGCHAIN)
    summary = ScriptedModel(narration="A summary of it all.")

    def summarise(self: Any, state: Any, runtime: Any) -> None:
        summary.invoke("Summarise.")

    def touch(self: Any, state: Any, runtime: Any) -> Any:
        return {"messages": [state["messages"][-1]]}

    hooks = [
        type(name, (middleware.AgentMiddleware,), made)()
        for name, made in (("Summary", {"before_model": summarise}), ("Touch", {"after_model": touch}))
    ]
    app = build(
        ScriptedModel([turn(call("busy"))], narration=LATER), [Till([BUSY], "busy").tool], middleware=hooks
    )

    assert LATER == "".join(read(streamed(app, "invoke", stream_mode=mode), {}))


# One message


def test_one_message_with_a_stable_id(both: Runtime) -> None:
    """A stop is one AIMessage, under the id of its turn, in every mode; two runs give it the same id."""
    for _ in range(2):
        for mode in ALONE:
            chunks = streamed(built(both, [STOP]), both.way, stream_mode=mode)
            assert {"final-m1"} == {m.id for m in _said(mode, chunks)}
            assert 1 == len(_said(mode, chunks))


def _said(mode: str, chunks: list[Any]) -> list[AIMessage]:
    """Return the AIMessages with a text."""
    if mode == "messages":
        messages = [message for message, _ in chunks]
    elif mode == "values":
        messages = chunks[-1]["messages"]
    else:
        messages = [
            m for chunk in chunks for part in chunk.values() for m in (part or {}).get("messages", [])
        ]
    return [message for message in messages if isinstance(message, AIMessage) and message.content]


@pytest.mark.parametrize("mode", ["hard", "polish"])
def test_replay(mode: str, both: Runtime) -> None:
    """Going back to before the stop and on again replaces its message, and asks the model no further."""
    model = ScriptedModel([STOP, *([AIMessage("Yes: 1999 for cart 7.")] * 2 if mode == "polish" else [])])
    till = Till([PAID])
    app = both.build(model, [till.tool], checkpointer=InMemorySaver())
    config = _thread(stop_mode=mode)
    streamed(app, both.way, config=config, stream_mode="updates")
    before = app.get_state(config).values["messages"]
    [place] = [
        s for s in app.get_state_history(config) if s.next and s.values["messages"][-1:] == before[-2:-1]
    ]
    replayed = {**place.config["configurable"], "stop_mode": mode}

    again = streamed(app, both.way, given=None, config={"configurable": replayed}, stream_mode="updates")

    assert [before[-1].content] == read(again)
    assert before == app.get_state(config).values["messages"]
    assert 1 == len(till.asked)
    assert 0 == model.left


@pytest.mark.parametrize("mode", ALONE)
def test_a_finished_thread(mode: str, both: Runtime) -> None:
    """Going on where nothing is left to do adds no message, and nothing is read twice."""
    app = built(both, [STOP], checkpointer=InMemorySaver())
    seen: dict[str, str] = {}

    first = read(streamed(app, both.way, config=_thread(), stream_mode=mode), seen)
    second = read(streamed(app, both.way, given=None, config=_thread(), stream_mode=mode), seen)

    assert ([PAID.content], []) == (first, second)


@pytest.mark.parametrize("mode", ALONE)
def test_second_turn(mode: str, both: Runtime) -> None:
    """A thread's second turn brings its own text, and not the first turn's again."""
    app = built(both, [STOP, turn(call("busy", "c1"))], checkpointer=InMemorySaver())
    streamed(app, both.way, config=_thread(), stream_mode=mode)

    chunks = streamed(app, both.way, given="And?", config=_thread(), stream_mode=mode)

    assert LATER == "".join(read(chunks))


# For a browser


def holds_artifact(chunk: Any) -> bool:
    """Return whether an artifact of ours is to be seen in a chunk, in whatever depth."""
    return "'schema': 1" in repr(chunk) or any(holds_artifact(part.arg) for part in _sends(chunk))


def _sends(chunk: Any) -> list[Any]:
    if isinstance(chunk, dict):
        return [send for part in chunk.values() for send in _sends(part)]
    if isinstance(chunk, (list, tuple)):
        return [send for part in chunk for send in _sends(part)]
    return [chunk] if type(chunk).__name__ == "Send" else []


@pytest.mark.parametrize(
    "mode", ["updates", "values", "messages", "debug", "tasks", "checkpoints", TOGETHER[1]]
)
def test_no_artifact_for_a_browser(mode: Any, runtime: Runtime) -> None:
    """Stripped chunks show no artifact, not even an earlier turn's; text and state are as they were."""
    app = built(runtime, [turn(call("busy")), turn(call(), message_id="m1")], checkpointer=InMemorySaver())

    chunks = streamed(app, "invoke", config=_thread(), stream_mode=mode)
    stripped = list(map(without_artifacts, chunks))

    assert holds_artifact(chunks)
    assert not holds_artifact(stripped)
    assert read(chunks, {}) == read(stripped, {})
    state = app.get_state(_thread()).values["messages"]
    assert ["transient", "completed"] == [m.artifact["reason"] for m in state if isinstance(m, ToolMessage)]


def test_no_artifact_in_events(runtime: Runtime) -> None:
    """Stripped events show no artifact: neither what tools returned nor what a model was sent."""
    app = built(runtime, [turn(call("busy")), turn(call(), message_id="m1")])

    chunks = events(app)
    stripped = list(map(without_artifacts, chunks))

    assert holds_artifact(chunks)
    assert not holds_artifact(stripped)
    assert [PAID.content] == read(stripped)


BARE: dict[str, tuple[Any, Any]] = {
    "a message": (ToolMessage("x", tool_call_id="c", artifact={"a": 1}), ToolMessage("x", tool_call_id="c")),
    "a message as a dict": (
        {"type": "tool", "content": "x", "tool_call_id": "c", "artifact": {"a": 1}},
        {"type": "tool", "content": "x", "tool_call_id": "c", "artifact": None},
    ),
    "an argument of that name": (
        {"name": "t", "args": {"artifact": 1}},
        {"name": "t", "args": {"artifact": 1}},
    ),
    "a Command": (
        Command(update={"messages": [ToolMessage("x", tool_call_id="c", artifact=1)]}, goto="y"),
        Command(update={"messages": [ToolMessage("x", tool_call_id="c")]}, goto="y"),
    ),
    "a Send": (
        Send("tools", {"messages": [ToolMessage("x", tool_call_id="c", artifact=1)]}),
        Send("tools", {"messages": [ToolMessage("x", tool_call_id="c")]}),
    ),
    "a string": ("x", "x"),
    "nothing": (None, None),
    "a number": (4, 4),
}


@pytest.mark.parametrize("case", BARE)
def test_without_artifacts(case: str) -> None:
    """An artifact is a message's, wherever that stands; everything else stays."""
    given, expected = BARE[case]

    assert expected == without_artifacts(given)
    assert [expected] == without_artifacts([given])


# By hand

SAID = AIMessage("Hello.", id="a")
AT = {"langgraph_node": "agent", "ls_model_type": "chat"}

CHUNKS: dict[str, tuple[Any, str | None]] = {
    "an update": ({"agent": {"messages": [SAID]}}, "Hello."),
    "an update in parts": ({"agent": [{"messages": [SAID]}]}, "Hello."),
    "an update that ends in a call": ({"agent": {"messages": [SAID, turn(call())]}}, None),
    "an update of one message": ({"agent": {"messages": SAID}}, None),
    "an update of nothing": ({"agent": None}, None),
    "an update of the tools": ({"tools": {"messages": [SAID]}}, None),
    "an interrupt": ({"__interrupt__": ()}, None),
    "a state": ({"messages": [HumanMessage("Hi."), SAID]}, "Hello."),
    "a state without messages": ({"messages": []}, None),
    "a state in which the user spoke last": ({"messages": [SAID, HumanMessage("Hi.")]}, None),
    "a whole message": ((SAID, AT), "Hello."),
    "a piece": ((AIMessageChunk(content=" Hel"), AT), " Hel"),
    "a piece in blocks": (
        (AIMessageChunk(content=[{"type": "text", "text": " Hel", "index": 0}]), AT),
        " Hel",
    ),
    "an empty piece": ((AIMessageChunk(content=""), AT), None),
    "a piece of reasoning": ((AIMessageChunk(content=[{"type": "reasoning", "reasoning": "Hm."}]), AT), None),
    "a piece with a lone surrogate": ((AIMessageChunk(content="a\ud83d"), AT), "a"),
    "a tool's answer": ((ToolMessage("x", tool_call_id="c"), AT), None),
    "a hook's model": ((AIMessageChunk(content="x"), {**AT, "langgraph_node": "Summary.before_model"}), None),
    "a hook's own message": ((SAID, {"langgraph_node": "Limit.before_model"}), "Hello."),
    "a tool's model": ((AIMessageChunk(content="x"), {**AT, "langgraph_node": "tools"}), None),
    "a tool's agent": (
        (AIMessageChunk(content="x"), {**AT, "langgraph_checkpoint_ns": "tools:1|agent:2"}),
        None,
    ),
    "a server's message": ([{"type": "ai", "content": "Hello.", "id": "a"}, AT], "Hello."),
    "a server's update": ({"agent": {"messages": [{"type": "ai", "content": "Hello."}]}}, "Hello."),
    "a mode and its payload": (("values", {"messages": [SAID]}), "Hello."),
    "a namespace, a mode and its payload": (((), "updates", {"agent": {"messages": [SAID]}}), "Hello."),
    "a subgraph's update": ((("outer:1",), "updates", {"agent": {"messages": [SAID]}}), None),
    "a subgraph's message": ((("outer:1",), (SAID, AT)), "Hello."),
    "custom": (("custom", {"messages": [SAID]}), None),
    "another event": ({"event": "on_chain_end", "data": {"output": {"messages": [SAID]}}}, None),
    "an inner event": (
        {"event": "on_chain_stream", "data": {"chunk": {"messages": [SAID]}}, "parent_ids": ["r"]},
        None,
    ),
    "blank": ({"agent": {"messages": [AIMessage(" ")]}}, None),
    "progress": ({"progress": 0.5}, None),
    "a pair": ((1, 2), None),
    "three": ([1, 2, 3], None),
    "text": ("custom", None),
    "None": (None, None),
}


@pytest.mark.parametrize("case", CHUNKS)
def test_user_text(case: str) -> None:
    """Whatever a chunk looks like, its text is read, or nothing is."""
    chunk, expected = CHUNKS[case]

    assert expected == user_text(chunk)
    assert expected == user_text(chunk, {})
