"""What the frameworks do by themselves, pinned: an upgrade that changes a row of this file is seen.

Nothing of ours is under test here. Each test is a reason for something in our design, and when one
fails after an upgrade, the design is to be looked at before the test.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelCallLimitMiddleware,
    ToolCallRequest,
    hook_config,
)
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.types import Command
from pydantic import BaseModel

from mocks.groq import GroqMock
from mocks.model import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain.agents.middleware import AgentState, ModelRequest, ModelResponse
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.runtime import Runtime

    Agent = CompiledStateGraph[Any, Any, Any, Any]
    Run = Callable[[Agent], list[AnyMessage]]
    State = AgentState[Any]
    Update = dict[str, Any] | None

QUESTION: dict[str, Any] = {"messages": [("user", "Pay for my cart.")]}
AGAIN = "Something the model says when it is asked again."


def invoke(agent: Agent) -> list[AnyMessage]:
    """Run, and return the messages at the end."""
    messages: list[AnyMessage] = agent.invoke(QUESTION)["messages"]
    return messages


def ainvoke(agent: Agent) -> list[AnyMessage]:
    """Run asynchronously."""
    messages: list[AnyMessage] = asyncio.run(agent.ainvoke(QUESTION))["messages"]
    return messages


def stream(agent: Agent) -> list[AnyMessage]:
    """Run as a stream, and return the messages of its last value."""
    *_, last = agent.stream(QUESTION, stream_mode="values")
    messages: list[AnyMessage] = last["messages"]
    return messages


every_way = pytest.mark.parametrize("run", [invoke, ainvoke, stream])
# Deprecated, and pinned nevertheless: its rule for parallel calls is the opposite of its heir's.
react_is_deprecated = pytest.mark.filterwarnings("ignore::langgraph.warnings.LangGraphDeprecatedSinceV10")


def calling(*names: str, **args: object) -> AIMessage:
    """Return a turn that calls the named tools, with ids c0, c1, ..."""
    return AIMessage(
        "",
        tool_calls=[{"name": name, "args": args, "id": f"c{index}"} for index, name in enumerate(names)],
    )


def model_that_calls(*names: str, **args: object) -> ScriptedModel:
    """Return a model that calls the named tools once, and says AGAIN whenever it is asked again."""
    return ScriptedModel([calling(*names, **args)], narration=AGAIN)


def ending(messages: Sequence[BaseMessage]) -> tuple[str, object]:
    """Return the type and the content of the last message: what the user is shown."""
    return messages[-1].type, messages[-1].content


def answers(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    """Return the tools' answers."""
    return [message for message in messages if isinstance(message, ToolMessage)]


def paying(*, return_direct: bool = False) -> BaseTool:
    """Return a tool that succeeds."""

    @tool(return_direct=return_direct)
    def pay() -> str:
        """Pay."""
        return "receipt"

    return pay


@tool(return_direct=True)
def pay_badly() -> str:
    """Fail in a way that another call could fix."""
    msg = "wrong CVC"
    raise ToolException(msg)


pay_badly.handle_tool_error = True


@tool
def look() -> str:
    """Look."""
    return "hits"


@tool
def count(number: int) -> int:
    """Take an argument."""
    return number


@tool
def crash() -> str:
    """Fail as bugs do."""
    msg = "a bug"
    raise RuntimeError(msg)


@tool
def crash_on_reply() -> str:
    """Do the work, and then find that the vendor's reply has not the shape it should have."""

    class Reply(BaseModel):
        paid: bool

    return str(Reply.model_validate({}))


class TestReturnDirect:
    """The switch is set when the tool is defined, and knows nothing of how a call ended."""

    @pytest.mark.parametrize(
        ("name", "shown"),
        [
            pytest.param("pay", "receipt", id="success"),
            pytest.param("pay_badly", "wrong CVC", id="a failure the model could fix"),
        ],
    )
    @every_way
    def test_it_stops_whatever_happened(self, run: Run, name: str, shown: str) -> None:
        """One model call, and the tool's text is the answer, though a second could have paid."""
        model = model_that_calls(name)

        messages = run(create_agent(model, [paying(return_direct=True), pay_badly]))

        assert ("tool", shown) == ending(messages)
        assert 1 == model.calls

    def test_it_stops_on_arguments_the_tool_never_saw(self) -> None:
        """Bad arguments end the run as well, and the user reads the validator's advice."""

        @tool(return_direct=True)
        def order(number: int) -> int:
            """Order."""
            return number

        model = model_that_calls("order", number="many")

        kind, shown = ending(invoke(create_agent(model, [order])))

        assert "tool" == kind
        assert "Please fix the error and try again." in str(shown)
        assert 1 == model.calls

    @pytest.mark.parametrize(
        ("names", "calls_of_create_agent", "calls_of_react"),
        [
            (["pay", "pay"], 1, 1),
            (["pay", "pay_badly"], 1, 1),
            (["pay", "look"], 2, 1),
            (["look", "pay"], 2, 1),
            (["look", "look"], 2, 2),
            # A name that does not exist does not count: nobody tells the model.
            (["pay", "no_such_tool"], 1, 1),
        ],
    )
    @react_is_deprecated
    def test_parallel_calls(self, names: list[str], calls_of_create_agent: int, calls_of_react: int) -> None:
        """Of the tools of one turn, all decide in create_agent and any in create_react_agent."""
        tools = [paying(return_direct=True), pay_badly, look]
        model, react_model = model_that_calls(*names), model_that_calls(*names)

        invoke(create_agent(model, tools))
        invoke(create_react_agent(react_model, tools))

        assert (calls_of_create_agent, calls_of_react) == (model.calls, react_model.calls)


class AnswerWithCommand(AgentMiddleware):
    """The article's stop: the tool's message, a relay if wanted, and a goto."""

    def __init__(self, goto: str | None, *, relay: bool) -> None:
        """Take what the Command is to hold."""
        self._goto = goto
        self._relay = relay

    def _command(self, answer: ToolMessage | Command[Any]) -> Command[Any]:
        assert isinstance(answer, ToolMessage)
        messages = [answer, AIMessage(answer.content)] if self._relay else [answer]
        return Command(update={"messages": messages}, goto=self._goto or ())

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> Command[Any]:
        """Run the tool."""
        return self._command(handler(request))

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> Command[Any]:
        """Run the tool."""
        return self._command(await handler(request))


class Idle(AgentMiddleware):
    """A `before_model` hook that does nothing but exist."""

    def before_model(self, state: State, runtime: Runtime[Any]) -> Update:
        """Do nothing."""


class TestGotoFromWrapToolCall:
    """A `goto` is one more edge: the agent's own edge from `tools` runs beside it."""

    @pytest.mark.parametrize(
        ("goto", "relay", "return_direct", "calls", "calls_beside_a_hook", "kind"),
        [
            # An ordinary tool: neither a goto nor a relay keeps the model from being asked again.
            (None, False, False, 2, 2, "ai"),
            (END, False, False, 2, 2, "ai"),
            (END, True, False, 2, 2, "ai"),
            # With return_direct it stops, and would without the goto.
            (None, False, True, 1, 1, "tool"),
            (END, False, True, 1, 1, "tool"),
            # The relay undoes even that: the exit check looks at the newest AIMessage.
            (None, True, True, 2, 2, "ai"),
            (END, True, True, 2, 2, "ai"),
            # "model" is reached twice beside a hook: by the goto, and through the hook's node.
            ("model", False, False, 2, 3, "ai"),
            ("model", True, False, 2, 3, "ai"),
            ("model", True, True, 2, 3, "ai"),
            # Here the edge ends the run and the goto goes on: the goto wins.
            ("model", False, True, 2, 2, "ai"),
        ],
    )
    @every_way
    def test_model_calls(
        self,
        run: Run,
        goto: str | None,
        relay: bool,
        return_direct: bool,
        calls: int,
        calls_beside_a_hook: int,
        kind: str,
    ) -> None:
        """The number of model calls, alone and beside a hook, and who has the last word."""
        tools = [paying(return_direct=return_direct)]
        stop = AnswerWithCommand(goto, relay=relay)
        model, hooked = model_that_calls("pay"), model_that_calls("pay")

        messages = run(create_agent(model, tools, middleware=[stop]))
        run(create_agent(hooked, tools, middleware=[stop, Idle()]))

        assert (kind, AGAIN if kind == "ai" else "receipt") == ending(messages)
        assert (calls, calls_beside_a_hook) == (model.calls, hooked.calls)


def relay_of(messages: Sequence[BaseMessage]) -> AIMessage | None:
    """Return the tool's text as an answer, if the turn has one."""
    last = messages[-1]
    return AIMessage(last.content) if isinstance(last, ToolMessage) else None


class Undeclared(AgentMiddleware):
    """A `before_model` hook that relays and jumps, without having said that it may."""

    def before_model(self, state: State, runtime: Runtime[Any]) -> Update:
        """Relay."""
        relay = relay_of(state["messages"])
        return None if relay is None else {"messages": [relay], "jump_to": "end"}


class Declared(Undeclared):
    """The same hook with the declaration."""

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: State, runtime: Runtime[Any]) -> Update:
        """Relay."""
        return super().before_model(state, runtime)


class InsteadOfTheModel(AgentMiddleware):
    """A `wrap_model_call` that answers with the relay and never calls the model."""

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any] | AIMessage:
        """Relay."""
        return relay_of(request.messages) or handler(request)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | AIMessage:
        """Relay."""
        return relay_of(request.messages) or await handler(request)


class Witness(AgentMiddleware):
    """Hooks that note what they could still change."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.before: list[object] = []
        self.after: list[object] = []

    def before_model(self, state: State, runtime: Runtime[Any]) -> Update:
        """Note the newest text on the way in."""
        self.before.append(state["messages"][-1].content)
        return None

    def after_model(self, state: State, runtime: Runtime[Any]) -> Update:
        """Note the newest text on the way out."""
        self.after.append(state["messages"][-1].content)
        return None


class TestStopHooks:
    """The places a middleware can stop from."""

    @pytest.mark.parametrize(
        ("stop", "calls", "shown"),
        [
            (Declared, 1, "receipt"),
            (InsteadOfTheModel, 1, "receipt"),
            # Silently: no warning, no exception, the relay in the history, and the model on top.
            (Undeclared, 2, AGAIN),
        ],
    )
    @every_way
    def test_who_stops(self, run: Run, stop: type[AgentMiddleware], calls: int, shown: str) -> None:
        """A declared jump and an answer in the model's place stop; an undeclared jump does not."""
        model = model_that_calls("pay")

        messages = run(create_agent(model, [paying()], middleware=[stop()]))

        assert ("ai", shown) == ending(messages)
        assert "receipt" in [message.content for message in messages if message.type == "ai"]
        assert calls == model.calls

    @pytest.mark.parametrize(
        ("stop", "stop_first", "before", "after"),
        [
            # The first question and the empty text of the calling message come first, each time.
            (Declared, True, [], []),
            (Declared, False, ["receipt"], []),
            (InsteadOfTheModel, True, ["receipt"], ["receipt"]),
            (InsteadOfTheModel, False, ["receipt"], ["receipt"]),
        ],
    )
    @every_way
    def test_what_other_hooks_see(
        self,
        run: Run,
        stop: type[AgentMiddleware],
        stop_first: bool,
        before: list[str],
        after: list[str],
    ) -> None:
        """No `after_model` hook sees the text of a jump, so masking there is skipped."""
        witness = Witness()
        middleware = [stop(), witness] if stop_first else [witness, stop()]

        run(create_agent(model_that_calls("pay"), [paying()], middleware=middleware))

        assert ["Pay for my cart.", *before] == witness.before
        assert ["", *after] == witness.after

    @pytest.mark.parametrize(
        ("stop", "limit_first", "kept"),
        [
            (Declared, True, False),
            (Declared, False, True),
            (InsteadOfTheModel, True, False),
            (InsteadOfTheModel, False, False),
        ],
    )
    @every_way
    def test_a_call_limit_replaces_the_receipt(
        self,
        run: Run,
        stop: type[AgentMiddleware],
        limit_first: bool,
        kept: bool,
    ) -> None:
        """The limit speaks first unless it stands behind a jump, though no call is due any more."""
        limit = ModelCallLimitMiddleware(run_limit=1)
        middleware: list[Any] = [limit, stop()] if limit_first else [stop(), limit]
        model = model_that_calls("pay")

        messages = run(create_agent(model, [paying()], middleware=middleware))

        limited = "Model call limits exceeded: run limit (1/1)"
        assert ("ai", "receipt" if kept else limited) == ending(messages)
        assert 1 == model.calls

    def test_sync_wrap_hooks_fail_under_ainvoke(self) -> None:
        """A `before_model` of one colour serves both; a wrap hook of one colour does not."""

        class SyncOnly(AgentMiddleware):
            def wrap_model_call(
                self,
                request: ModelRequest[Any],
                handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
            ) -> ModelResponse[Any]:
                return handler(request)

        agent = create_agent(model_that_calls("pay"), [paying()], middleware=[SyncOnly()])

        assert ("ai", AGAIN) == ending(invoke(agent))
        with pytest.raises(NotImplementedError, match="awrap_model_call"):
            ainvoke(agent)

    @react_is_deprecated
    @every_way
    def test_a_dynamic_model_is_the_stop_of_react(self, run: Run) -> None:
        """In create_react_agent the model may be chosen by the state, so a relay can stand in."""
        model = model_that_calls("pay")

        def choose(state: Any, runtime: Any) -> Any:
            relay = relay_of(state["messages"])
            return model.bind_tools([paying()]) if relay is None else ScriptedModel([relay])

        messages = run(create_react_agent(choose, [paying()]))

        assert ("ai", "receipt") == ending(messages)
        assert 1 == model.calls


def tools_graph(node: ToolNode) -> Agent:
    """Return the smallest graph a ToolNode runs in."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return graph.compile()


class TestToolNode:
    """What becomes of a call that does not end as it should."""

    def test_it_does_not_run_outside_a_graph(self) -> None:
        """The snippet of many tutorials fails: there is no runtime to inject."""
        with pytest.raises(ValueError, match="Missing required config key"):
            ToolNode([look]).invoke({"messages": [calling("look")]})

    def test_it_runs_inside_a_graph(self) -> None:
        """The same node, the same input, one graph around it."""
        messages = tools_graph(ToolNode([look])).invoke({"messages": [calling("look")]})

        assert ("tool", "hits") == ending(messages["messages"])

    @pytest.mark.parametrize(
        ("turn", "said"),
        [
            pytest.param(calling("no_such_tool"), "is not a valid tool", id="unknown name"),
            pytest.param(calling("count"), "number: Field required", id="missing argument"),
            pytest.param(calling("count", number="x"), "a valid integer", id="bad argument"),
            # The work may be done; the model is told to fix its arguments and calls once more.
            pytest.param(calling("crash_on_reply"), "paid: Field required", id="bug in the body"),
        ],
    )
    def test_what_becomes_a_message(self, turn: AIMessage, said: str) -> None:
        """Such a call is answered by the node, with an error text and without an artifact."""
        graph = tools_graph(ToolNode([count, crash_on_reply]))

        (answer,) = answers(graph.invoke({"messages": [turn]})["messages"])

        assert "error" == answer.status
        assert said in answer.text
        assert answer.artifact is None

    def test_any_other_exception_propagates(self) -> None:
        """It leaves the graph, and takes the answer of a sibling that succeeded with it."""
        graph = tools_graph(ToolNode([look, crash]))

        with pytest.raises(RuntimeError, match="a bug"):
            graph.invoke({"messages": [calling("look", "crash")]})

    def test_handled_exceptions_are_shown_to_the_model(self) -> None:
        """With handle_tool_errors=True the repr of the exception is the content."""
        graph = tools_graph(ToolNode([crash], handle_tool_errors=True))

        (answer,) = answers(graph.invoke({"messages": [calling("crash")]})["messages"])

        assert "RuntimeError('a bug')" in answer.text
        assert ("error", None) == (answer.status, answer.artifact)


SECRET = {"reason": "for-the-router-only"}


@tool(response_format="content_and_artifact")
def pay_with_artifact() -> tuple[str, dict[str, str]]:
    """Pay."""
    return "receipt", SECRET


@tool(response_format="content_and_artifact")
def fail_with_artifact() -> tuple[str, dict[str, str]]:
    """Fail by raising."""
    msg = "declined"
    raise ToolException(msg)


fail_with_artifact.handle_tool_error = True


class TestArtifact:
    """The second return value: for the program, not for the model."""

    @every_way
    def test_it_is_on_the_message_and_not_in_the_request(self, run: Run) -> None:
        """The real client sends role, content and tool_call_id of a tool's answer, and no more."""
        mock = GroqMock([calling("pay_with_artifact")], narration=AGAIN)

        messages = run(create_agent(mock.model(), [pay_with_artifact]))

        assert [SECRET] == [answer.artifact for answer in answers(messages)]
        first, second = mock.requests
        assert ["user"] == [message["role"] for message in first["messages"]]
        assert {"role": "tool", "content": "receipt", "tool_call_id": "c0"} == second["messages"][-1]
        assert "for-the-router-only" not in json.dumps(second)

    @every_way
    def test_a_raised_failure_has_none(self, run: Run) -> None:
        """A tool that fails by raising leaves the router nothing to read."""
        model = model_that_calls("fail_with_artifact")

        (answer,) = answers(run(create_agent(model, [fail_with_artifact])))

        assert ("declined", "error", None) == (answer.content, answer.status, answer.artifact)


class TestTurns:
    """How a turn is read, and in which order its answers land."""

    @pytest.mark.parametrize("on_the_wire", [False, True])
    @every_way
    def test_broken_calls_end_the_run_with_nothing(
        self,
        run: Run,
        on_the_wire: bool,
    ) -> None:
        """A turn of invalid calls only is no call at all: the answer is empty, the model not told.

        The same through the real client.
        """
        broken = {"name": "pay", "args": '{"cart": ', "id": "c0", "error": None}
        turns = [AIMessage("", invalid_tool_calls=[broken])]
        scripted, mock = ScriptedModel(turns, narration=AGAIN), GroqMock(turns, narration=AGAIN)

        messages = run(create_agent(mock.model() if on_the_wire else scripted, [paying()]))

        assert ("ai", "") == ending(messages)
        assert 1 == (mock if on_the_wire else scripted).calls

    def test_answers_land_in_call_order_and_stream_in_finish_order(self) -> None:
        """The slow first call is answered last in the stream and first in the state."""
        fast_was_seen = threading.Event()

        @tool
        def slow() -> str:
            """Wait until the consumer of the stream has the other answer."""
            return "slow" if fast_was_seen.wait(timeout=10) else "the stream kept call order"

        @tool
        def fast() -> str:
            """Answer at once."""
            return "fast"

        streamed: list[object] = []
        landed: list[object] = []
        agent: Any = create_agent(model_that_calls("slow", "fast"), [slow, fast])
        for mode, value in agent.stream(QUESTION, stream_mode=["updates", "values"]):
            if mode == "values":
                landed = [answer.content for answer in answers(value["messages"])]
            elif "tools" in value:
                streamed += [answer.content for answer in answers(value["tools"]["messages"])]
                fast_was_seen.set()

        assert ["fast", "slow"] == streamed
        assert ["slow", "fast"] == landed
