"""What ``create_react_agent`` does from langgraph 0.6.6 on: what it cannot do, and the one router that works.

Nothing of ours is under test but ``decide``. Where a version differs, both answers are pinned.
"""

import asyncio
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import ToolNode, create_react_agent

from mocks.model import ScriptedModel
from orchestration import Outcome, Reason, Route, decide
from orchestration.relay import relay
from orchestration.tools import prepare

# Deprecated since langgraph 1.0. By its message, since 0.6 has no such category.
pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")

PREBUILT = tuple(int(part) for part in version("langgraph-prebuilt").split(".")[:3])
AGAIN = "Something the model says when it is asked again."
QUESTION: Any = {"messages": [("user", "Pay for my cart.")]}

PAID = Outcome("Paid.", Reason.COMPLETED)
BUSY = Outcome("The bank is busy.", Reason.TRANSIENT)
DECLINED = Outcome("The card was declined.", Reason.FATAL)
BLOCKED = Outcome("This payment is not possible.", Reason.POLICY_BLOCK)
OUTCOMES = {outcome.reason.value: outcome for outcome in (PAID, BUSY, DECLINED, BLOCKED)}

Run = Callable[[Any], list[AnyMessage]]


def invoke(agent: Any) -> list[AnyMessage]:
    """Run, and return the messages at the end."""
    messages: list[AnyMessage] = agent.invoke(QUESTION)["messages"]
    return messages


def ainvoke(agent: Any) -> list[AnyMessage]:
    """Run asynchronously."""
    messages: list[AnyMessage] = asyncio.run(agent.ainvoke(QUESTION))["messages"]
    return messages


def stream(agent: Any) -> list[AnyMessage]:
    """Run as a stream, and return the messages of its last value."""
    *_, last = agent.stream(QUESTION, stream_mode="values")
    messages: list[AnyMessage] = last["messages"]
    return messages


every_way = pytest.mark.parametrize("run", [invoke, ainvoke, stream])


def asking(*turns: Sequence[str]) -> ScriptedModel:
    """Return a model that calls the named tools turn by turn, and says AGAIN from then on."""
    calls = [
        AIMessage(
            "",
            id=f"turn-{at}",
            tool_calls=[
                {"name": name, "args": {}, "id": f"c{at}.{number}"} for number, name in enumerate(names)
            ],
        )
        for at, names in enumerate(turns)
    ]
    return ScriptedModel(calls, narration=AGAIN)


def answering(name: str, *outcomes: Outcome | Exception, return_direct: bool = False) -> BaseTool:
    """Return a tool that answers with these outcomes, one a call, and raises the exceptions among them."""
    left = list(outcomes)

    def act() -> tuple[str, Any]:
        """Act."""
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome.as_tool_result()

    return StructuredTool.from_function(
        act, name=name, response_format="content_and_artifact", return_direct=return_direct
    )


def ending(messages: Sequence[AnyMessage]) -> tuple[str, object]:
    """Return the type and the content of the last message: what the user is shown."""
    return messages[-1].type, messages[-1].content


class TestWhatItCannotDo:
    """The static flag, and nothing beside it."""

    @every_way
    @pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
    def test_no_stop_without_the_flag(self, run: Run, outcome: Outcome) -> None:
        """A finished call costs a second model call, whose words replace the tool's."""
        model = asking(["pay"])

        messages = run(create_react_agent(model, [answering("pay", outcome)]))

        assert (2, ("ai", AGAIN)) == (model.calls, ending(messages))

    @every_way
    @pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
    def test_no_retry_with_the_flag(self, run: Run, outcome: Outcome) -> None:
        """The flag stands per tool, not per call: a busy bank ends the run as a receipt does."""
        model = asking(["pay"])

        messages = run(create_react_agent(model, [answering("pay", outcome, return_direct=True)]))

        assert (1, ("tool", outcome.content)) == (model.calls, ending(messages))

    @pytest.mark.parametrize("names", [["pay", "look"], ["look", "pay"]], ids="-".join)
    @every_way
    def test_one_flag_ends_the_turn(self, run: Run, names: list[str]) -> None:
        """One flagged tool ends a turn of several: the search that must be retried is left unread."""
        model = asking(names)
        tools = [answering("pay", PAID, return_direct=True), answering("look", BUSY)]

        messages = run(create_react_agent(model, tools))

        assert 1 == model.calls
        # The user is shown one of the two answers: the last one, or the last one flagged.
        assert "tool" == messages[-1].type
        assert {PAID.content, BUSY.content} == {message.content for message in messages[-2:]}

    @every_way
    def test_a_raising_tool(self, run: Run) -> None:
        """Up to prebuilt 1.0.1 the model reads the exception's repr; from then on the run is lost."""
        model = asking(["pay"])
        agent = create_react_agent(model, [answering("pay", RuntimeError("key=sk_live_1"))])

        if PREBUILT > (1, 0, 1):
            with pytest.raises(RuntimeError, match="sk_live_1"):
                run(agent)
            assert 1 == model.calls
            return

        answer = run(agent)[2]

        assert isinstance(answer, ToolMessage)
        assert "Error: RuntimeError('key=sk_live_1')\n Please fix your mistakes." == answer.content
        assert ("error", None) == (answer.status, answer.artifact)
        assert 2 == model.calls

    @every_way
    def test_a_raising_tool_with_the_flag(self, run: Run) -> None:
        """Handled, a flagged tool's exception is what the user reads."""
        model = asking(["pay"])
        pay = answering("pay", RuntimeError("key=sk_live_1"), return_direct=True)

        messages = run(create_react_agent(model, ToolNode([pay], handle_tool_errors=True)))

        said = "Error: RuntimeError('key=sk_live_1')\n Please fix your mistakes."
        assert (1, ("tool", said)) == (model.calls, ending(messages))


def relaying(model: ScriptedModel, tools: Sequence[BaseTool]) -> Any:
    """Return the router that works: the model is chosen by the state, and a stop chooses the relay."""
    bound = model.bind_tools(tools)

    def choose(state: Any, runtime: Any) -> Any:
        decision = decide(state["messages"])
        return bound if decision.route is Route.AGENT else ScriptedModel([relay(decision)])

    return create_react_agent(choose, list(tools))


class TestDynamicModel:
    """``lambda state, runtime: relay if stop else bound``, with our ``decide``."""

    @every_way
    @pytest.mark.parametrize("outcome", [PAID, DECLINED, BLOCKED], ids=lambda outcome: outcome.reason.value)
    def test_a_stop_costs_one_call(self, run: Run, outcome: Outcome) -> None:
        """The user reads the tool's own text, and the model is asked once."""
        model = asking(["pay"])

        messages = run(relaying(model, [answering("pay", outcome)]))

        assert (1, ("ai", outcome.content)) == (model.calls, ending(messages))
        assert "final-turn-0" == messages[-1].id
        assert outcome.reason.value == messages[-1].response_metadata["stopped_by"]

    @every_way
    def test_a_retry_costs_two(self, run: Run) -> None:
        """What another call can fix goes back to the model, per call."""
        model = asking(["pay"], ["pay"])

        messages = run(relaying(model, [answering("pay", BUSY, PAID)]))

        assert (2, ("ai", PAID.content)) == (model.calls, ending(messages))

    @every_way
    def test_the_model_may_end_it(self, run: Run) -> None:
        """After a transient outcome the model may answer itself."""
        model = asking(["pay"])

        messages = run(relaying(model, [answering("pay", BUSY)]))

        assert (2, ("ai", AGAIN)) == (model.calls, ending(messages))

    @every_way
    @pytest.mark.parametrize("names", [["pay", "look"], ["look", "pay"]], ids="-".join)
    def test_parallel_calls(self, run: Run, names: list[str]) -> None:
        """A turn of several stops if all of it says so, or a rule refused, in either order."""
        tools = {
            "pay": answering("pay", PAID, DECLINED, BLOCKED),
            "look": answering("look", BUSY, PAID, BUSY),
        }
        model = asking(names, names, names)
        texts = {"pay": DECLINED.content, "look": PAID.content}

        messages = run(relaying(model, list(tools.values())))

        assert (2, ("ai", "\n\n".join(texts[name] for name in names))) == (model.calls, ending(messages))

    @every_way
    def test_prepared_tools(self, run: Run) -> None:
        """``prepare`` serves here too: an exception is answered, not shown, and ``last_step`` is offered."""
        model = asking(["pay"])

        messages = run(relaying(model, prepare([answering("pay", RuntimeError("key=sk_live_1"))])))

        assert all("sk_live_1" not in str(message) for message in messages)
        assert [("pay",)] == model.tools_bound[:1]
        assert "last_step" in str(model.schemas_bound[0])

    @every_way
    def test_turn_two(self, run: Run) -> None:
        """A stop of turn one does not answer turn two: the model is asked anew."""
        model = asking(["pay"])
        agent = relaying(model, [answering("pay", PAID)])
        before = run(agent)

        messages = agent.invoke({"messages": [*before, ("user", "And now?")]})["messages"]

        assert (2, ("ai", AGAIN)) == (model.calls, ending(messages))
