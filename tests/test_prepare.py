"""One wrapper for every tool: what the model sees, what runs, and what comes back."""

import asyncio
import logging
from asyncio import CancelledError
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, Literal

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    ToolException,
    tool,
)
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter
from pydantic import v1 as pydantic_v1
from pydantic_core import PydanticCustomError

from orchestration import Effect, Outcome, Reason
from orchestration.asking import settle
from orchestration.guards import Guard, mask
from orchestration.outcomes import NO_TEXT, NOT_CARRIED_OUT
from orchestration.tools import EARLIER_UNCONFIRMED, NOT_READABLE, UNREADABLE, prepare

SECRET = "sk_live_51Hunter2"  # noqa: S105 - planted, to be looked for
BOUGHT = {"schema": 1, "stop": True, "reason": "completed"}

Args = dict[str, Any]


def calling(*calls: tuple[str, Args], ids: Sequence[str] = ()) -> AIMessage:
    """Return a turn with these calls, under ids c0, c1, ..."""
    names = [*ids, *(f"c{at}" for at in range(len(ids), len(calls)))]
    return AIMessage(
        "",
        id="calls",
        tool_calls=[
            {"name": name, "args": args, "id": names[at], "type": "tool_call"}
            for at, (name, args) in enumerate(calls)
        ],
    )


def answers(  # noqa: D417
    tools: Sequence[BaseTool],
    *calls: tuple[str, Args],
    before: Sequence[AnyMessage] = (),
    ids: Sequence[str] = (),
    run: str = "sync",
    config: RunnableConfig | None = None,
) -> list[ToolMessage]:
    """Run one turn's calls in a graph that is a ToolNode and nothing else; return the new messages.

    Args:
        run: ``sync`` or ``async``.
    """
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=False))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    app = graph.compile(store=InMemoryStore())
    messages: list[AnyMessage] = [HumanMessage("q", id="q"), *before, calling(*calls, ids=ids)]
    state: Any = {"messages": messages}
    ended = app.invoke(state, config) if run == "sync" else asyncio.run(app.ainvoke(state, config))
    new: list[ToolMessage] = ended["messages"][len(messages) :]
    return new


def answer(made: Any, args: Args, **settings: Any) -> ToolMessage:
    """Prepare one tool, call it once, and return its answer."""
    [prepared] = prepare([made])
    [message] = answers([prepared], (prepared.name, args), **settings)
    return message


def refund(amount: int, note: str = "none") -> str:
    """Refund an amount."""
    return f"{amount} {note}"


class Refund(BaseTool):
    """A tool as a class, with no schema but its signature."""

    name: str = "refund"
    description: str = "Refund an amount."

    def _run(self, amount: int, note: str = "none") -> str:
        return f"{amount} {note}"


class RefundArgs(BaseModel):
    """A schema that refuses what it does not know."""

    model_config = ConfigDict(extra="forbid")
    amount: int = Field(description="in cents")
    note: str = "none"


class OldRefundArgs(pydantic_v1.BaseModel):
    """The same in pydantic 1."""

    amount: int
    note: str = "none"


class StrictRefund(Refund):
    """A tool as a class, with a schema of its own."""

    args_schema: type[BaseModel] = RefundArgs


@tool(response_format="content_and_artifact")
def refund_pair(amount: int, note: str = "none") -> tuple[str, dict[str, Any]]:
    """Refund an amount."""
    return f"{amount} {note}", {"note": note}


async def arefund(amount: int, note: str = "none") -> str:
    """Refund an amount."""
    return f"{amount} {note}"


def seen(amount: int, state: Annotated[dict[str, Any], InjectedState], note: str = "none") -> str:
    """Refund an amount."""
    return f"{amount} {note if state['messages'][0].content == 'q' else 'blind'}"


def counted(
    amount: int, messages: Annotated[list[AnyMessage], InjectedState("messages")], note: str = "none"
) -> str:
    """Refund an amount."""
    return f"{amount} {note if len(messages) == 2 else 'blind'}"


def named(amount: int, call: Annotated[str, InjectedToolCallId], note: str = "none") -> str:
    """Refund an amount."""
    return f"{amount} {note if call in {'c0', 'c1', 'c2', 'c3'} else call}"


def stored(amount: int, store: Annotated[BaseStore, InjectedStore()], note: str = "none") -> str:
    """Refund an amount."""
    return f"{amount} {note if isinstance(store, BaseStore) else 'no store'}"


def configured(amount: int, config: RunnableConfig, note: str = "none") -> str:
    """Refund an amount."""
    return f"{amount} {note if 'configurable' in config else 'no config'}"


def unseen(amount: int, note: str = "none", who: Annotated[str, InjectedToolArg] = "nobody") -> str:
    """Refund an amount."""
    return f"{amount} {note if who == 'nobody' else who}"


REFUND_JSON = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["amount"],
}


def loosely(**arguments: Any) -> str:
    """Refund an amount."""
    return f"{arguments['amount']} {arguments.get('note', 'none')}"


KINDS: dict[str, Any] = {
    "function": refund,
    "tool": tool(refund),
    "pair": refund_pair,
    "class": Refund(),
    "class with a schema": StrictRefund(),
    "schema that forbids": StructuredTool.from_function(refund, args_schema=RefundArgs),
    "pydantic 1": StructuredTool.from_function(refund, args_schema=OldRefundArgs),
    "sync and async": StructuredTool.from_function(refund, arefund),
    "dict schema": StructuredTool(name="refund", description="-", args_schema=REFUND_JSON, func=loosely),
    "state": seen,
    "a part of the state": counted,
    "call id": named,
    "store": stored,
    "config": configured,
    "injected by nobody": unseen,
}


SAID: list[tuple[Args, str]] = [
    ({"amount": 5, "note": "late"}, "5 late"),
    ({"amount": 6}, "6 none"),
    ({"amount": 7, "note": "late", "last_step": "false"}, "7 late"),
    ({"amount": 8, "last_step": True}, "8 none"),
]


@pytest.mark.parametrize("run", ["sync", "async"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tool(kind: str, run: str) -> None:
    """Whatever it is made of, a tool gets its own arguments and no others."""
    prepared = prepare([KINDS[kind]])

    messages = answers(prepared, *((prepared[0].name, args) for args, _ in SAID), run=run)

    assert [expected for _, expected in SAID] == [message.content for message in messages]
    assert ["c0", "c1", "c2", "c3"] == [message.tool_call_id for message in messages]


@pytest.mark.skipif(find_spec("langchain") is None, reason="langgraph 0.6 has no ToolRuntime")
@pytest.mark.parametrize("run", ["sync", "async"])
def test_tool_runtime(run: str) -> None:
    """A tool that asks for the runtime gets it, and the model is not told."""
    runtime_type: Any = import_module("langgraph.prebuilt").ToolRuntime

    def refund(amount: int, runtime: Any) -> str:
        """Refund an amount."""
        return f"{amount} {runtime.tool_call_id} {runtime.state['messages'][0].content}"

    refund.__annotations__["runtime"] = runtime_type
    [prepared] = prepare([refund])

    assert {"amount", "last_step"} == set(prepared.args)
    [message] = answers([prepared], ("refund", {"amount": 5}), run=run)
    assert "5 c0 q" == message.content


def test_async_only() -> None:
    """A tool without a sync half runs in an async run."""
    only = StructuredTool.from_function(coroutine=arefund, name="refund")

    assert "5 none" == answer(only, {"amount": 5}, run="async").content


def test_async_only_in_a_sync_run(caplog: pytest.LogCaptureFixture) -> None:
    """In a sync run it is answered, and the log names the error."""
    message = answer(StructuredTool.from_function(coroutine=arefund, name="refund"), {"amount": 5})

    assert (NOT_CARRIED_OUT, "fatal") == (message.content, message.artifact["reason"])
    assert "tool refund raised NotImplementedError" in caplog.text


@pytest.mark.parametrize(
    "name", ["state", "input", "runtime", "tool_call_id", "run_manager_", "messages", "x"]
)
def test_arguments_named_like_the_frameworks_own(name: str) -> None:
    """An argument may have a name that frameworks use, and is the model's to fill."""
    schema = {"type": "object", "properties": {name: {"type": "string"}}}
    echo = StructuredTool(
        name="echo", description="-", args_schema=schema, func=lambda **given: f"{sorted(given.items())}"
    )

    assert f"[('{name}', 'here')]" == answer(echo, {name: "here"}).content


def test_plain_state_argument() -> None:
    """An argument called ``state`` without a mark is the model's: a tool may ask for a US state."""

    def tax(state: str, input: str, tool_call_id: str) -> str:  # noqa: A002
        """Look up a tax."""
        return f"{state} {input} {tool_call_id}"

    assert "OR 2 x" == answer(tax, {"state": "OR", "input": "2", "tool_call_id": "x"}).content


@pytest.mark.parametrize("name", ["config", "self", "run_given", "run_config", "run_state"])
def test_reserved_argument_names(name: str) -> None:
    """What the wrapper or LangChain keeps for itself may not reach the tool, but is answered."""
    schema = {"type": "object", "properties": {name: {"type": "string"}}}
    echo = StructuredTool(
        name="echo", description="-", args_schema=schema, func=lambda **given: f"{sorted(given)}"
    )

    message = answer(echo, {name: "here"})

    assert "c0" == message.tool_call_id
    assert message.content in {"[]", NOT_CARRIED_OUT}


@pytest.mark.parametrize("run", ["sync", "async"])
def test_no_arguments(run: str) -> None:
    """A tool may have no arguments at all."""

    def now() -> str:
        """Tell the time."""
        return "noon"

    assert "noon" == answer(now, {}, run=run).content
    assert "noon" == answer(now, {"last_step": False}, run=run).content


def test_arguments_of_a_class() -> None:
    """A nested model arrives as an instance, not as a dict."""

    class Item(BaseModel):
        sku: str

    def buy(item: Item) -> str:
        """Buy."""
        return f"{type(item).__name__} {item.sku}"

    assert "Item s1" == answer(buy, {"item": {"sku": "s1"}}).content


def test_schema_with_names_nobody_else_can_resolve() -> None:
    """A schema made inside a function works, though its annotations cannot be read from outside."""
    made: dict[str, Any] = {}
    source = (
        "from __future__ import annotations\n"
        "from pydantic import BaseModel\n"
        "def make():\n"
        "    class Item(BaseModel):\n"
        "        sku: str\n"
        "    class Args(BaseModel):\n"
        "        item: Item\n"
        "    return Args\n"
    )
    exec(source, made)  # noqa: S102 - the future import must not reach this file
    buy = StructuredTool.from_function(
        lambda item: item.sku, name="buy", description="-", args_schema=made["make"]()
    )

    assert "s1" == answer(buy, {"item": {"sku": "s1"}}).content


def test_run_by_hand() -> None:
    """A prepared tool runs outside a graph too: with a call, with arguments, with a string."""

    def shout(word: str) -> str:
        """Shout."""
        return word.upper()

    [prepared] = prepare([shout])
    call = {"type": "tool_call", "name": "shout", "id": "c9", "args": {"word": "a", "last_step": False}}

    assert ("A", "c9") == (prepared.invoke(call).content, prepared.invoke(call).tool_call_id)
    assert "A" == prepared.invoke({"word": "a"}).content
    assert "A" == prepared.invoke("a").content
    assert "A" == asyncio.run(prepared.ainvoke({"word": "a"})).content


# What the model sees


@pytest.mark.parametrize("kind", KINDS)
def test_schema_has_last_step(kind: str) -> None:
    """The model sees the tool's own arguments and ``last_step``; what is injected it does not see."""
    [prepared] = prepare([KINDS[kind]])
    function = convert_to_openai_tool(prepared)["function"]

    assert {"amount", "note", "last_step"} == set(function["parameters"]["properties"])
    assert ["amount"] == function["parameters"]["required"]
    assert ("boolean", True) == (
        function["parameters"]["properties"]["last_step"]["type"],
        function["parameters"]["properties"]["last_step"]["default"],
    )


def test_schema_is_a_copy() -> None:
    """The tool that was given is as it was, and takes the same calls as before."""
    inner = StructuredTool(name="refund", description="-", args_schema=REFUND_JSON, func=loosely)
    before = convert_to_openai_tool(inner)

    prepare([inner])

    assert before == convert_to_openai_tool(inner)
    assert {"amount", "note"} == set(REFUND_JSON["properties"])
    assert {"amount", "note"} == set(prepare([StrictRefund()])[0]._inner.args)  # type: ignore[attr-defined]


def test_prepared_tools_are_left_as_they_are() -> None:
    """Preparing twice is preparing once, whatever order the guards are given in."""
    guards: list[Guard] = [mask(), _Deny("one")]
    once = prepare([refund], guards=guards)

    assert once == prepare(once)
    assert once == prepare(once, guards=guards[::-1])


class _Deny:
    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, calls: Any, run: Any) -> dict[int, str]:
        return dict.fromkeys(range(len(calls)), f"{self.name} says no")

    def clean(self, value: str) -> str:
        return value


def own_last_step(last_step: int) -> str:
    """Count."""
    return str(last_step)


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "return_direct": ([tool("refund", return_direct=True)(refund)], ValueError, "return_direct"),
    "own last_step": ([own_last_step], ValueError, "last_step"),
    "two of one name": ([refund, Refund()], ValueError, "two tools are named 'refund'"),
    "a dict": ([{"type": "web_search"}], TypeError, "is no tool"),
    "a string": (["refund"], TypeError, "is no tool"),
    "None": ([None], TypeError, "is no tool"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    """What cannot be prepared is refused when it is built, in words that say why."""
    tools, error, words = REFUSED[case]

    with pytest.raises(error, match=words):
        prepare(tools)


def test_guards_on_prepared_tools() -> None:
    """Guards that would not be asked are refused."""
    with pytest.raises(ValueError, match="prepared already"):
        prepare(prepare([refund]), guards=[_Deny("late")])


# The net


def raising(error: BaseException) -> StructuredTool:
    """Return a tool that raises."""

    def refund(amount: int) -> str:
        """Refund an amount."""
        raise error

    return StructuredTool.from_function(refund)


class _Mute(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError(SECRET)


def invalid() -> Exception:
    """Return the error of a model that was built inside a tool."""
    try:
        TypeAdapter(int).validate_python(SECRET)
    except ValueError as error:
        return error
    raise AssertionError


ERRORS: dict[str, Exception] = {
    "KeyError": KeyError(SECRET),
    "ToolException": ToolException(SECRET),
    "ValidationError": invalid(),
    "RecursionError": RecursionError(SECRET),
    "ExceptionGroup": ExceptionGroup(SECRET, [KeyError(SECRET)]),
    "_Mute": _Mute(),
}


@pytest.mark.parametrize("run", ["sync", "async"])
@pytest.mark.parametrize("name", ERRORS)
def test_exceptions_are_answered(name: str, run: str, caplog: pytest.LogCaptureFixture) -> None:
    """No exception leaves a tool, and none of its words reach a message, an artifact or a log."""
    caplog.set_level(logging.DEBUG)

    message = answer(raising(ERRORS[name]), {"amount": 5}, run=run)

    assert (NOT_CARRIED_OUT, "error") == (message.content, message.status)
    assert ("fatal", "tool/bug", "unknown", {"exception": name}) == tuple(
        message.artifact[key] for key in ("reason", "rule", "effect", "evidence")
    )
    assert f"tool refund raised {name}" in caplog.text
    assert SECRET not in f"{message!r}{caplog.text}{[vars(record) for record in caplog.records]}"


def test_log_shows_where_but_no_source(caplog: pytest.LogCaptureFixture) -> None:
    """The log says in which function it happened; source lines may hold a key, and are left out."""

    def refund(amount: int) -> str:
        """Refund an amount."""
        raise ConnectionError("https://vendor/?api_key=sk_live_51Hunter2")

    answer(refund, {"amount": 5})

    assert "test_prepare.py" in caplog.text
    assert "in refund" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("returned", ["text", ("one",), ("a", "b", "c"), None, 7])
def test_no_pair(returned: object) -> None:
    """A tool that promises a pair and returns something else has a bug, and is answered."""

    @tool(response_format="content_and_artifact")
    def refund(amount: int) -> Any:
        """Refund an amount."""
        return returned

    message = answer(refund, {"amount": 5})

    assert (NOT_CARRIED_OUT, "tool/bug") == (message.content, message.artifact["rule"])


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), CancelledError()])
def test_what_is_no_error_passes(error: BaseException) -> None:
    """Nobody swallows the end of the process, or of the task."""
    [prepared] = prepare([raising(error)])

    with pytest.raises(type(error)):
        prepared.invoke({"amount": 5})


def test_a_cancelled_task_stays_cancelled() -> None:
    """The async half swallows no cancellation either."""

    async def refund(amount: int) -> str:
        """Refund an amount."""
        raise CancelledError

    [prepared] = prepare([StructuredTool.from_function(coroutine=refund)])

    with pytest.raises(CancelledError):
        asyncio.run(prepared.ainvoke({"amount": 5}))


def test_strict() -> None:
    """With strict a tool's exception is raised, for tests."""
    [prepared] = prepare([raising(KeyError("cart"))], strict=True)

    with pytest.raises(KeyError, match="cart"):
        answers([prepared], ("refund", {"amount": 5}))


def refuse(value: str) -> str:
    """Refuse, and say what was given."""
    raise ValueError(f"{value} is not wanted")


def refuse_in_own_words(value: str) -> str:
    """Refuse in an error of its own, and say what was given."""
    raise PydanticCustomError("own", "{value} is not wanted", {"value": value})


class _Card(BaseModel):
    kind: Literal["card"]


class _Cash(BaseModel):
    kind: Literal["cash"]


class Fields(BaseModel):
    """One field for each way to be wrong."""

    model_config = ConfigDict(extra="forbid")
    amount: int = 1
    size: Literal["s", "m"] = "s"
    short: str = Field("", max_length=3)
    picky: Annotated[str, AfterValidator(refuse)] = ""
    custom: Annotated[str, AfterValidator(refuse_in_own_words)] = ""
    parts: list[int] = []
    paid: Annotated[_Card | _Cash, Field(discriminator="kind")] = _Cash(kind="cash")


BAD: dict[str, tuple[Args, str]] = {
    "wrong type": ({"amount": SECRET}, "amount: Input should be a valid integer"),
    "not in the list": ({"size": SECRET}, "size: Input should be 's' or 'm'"),
    "too long": ({"short": SECRET}, "short: String should have at most 3 characters"),
    "a validator's own words": ({"picky": SECRET}, "picky: the value is not accepted"),
    "an error of its own": ({"custom": SECRET}, "custom: the value is not accepted"),
    "nested": ({"parts": [1, SECRET]}, "parts.1: Input should be a valid integer"),
    "a tag": ({"paid": {"kind": SECRET}}, "paid: the value is not accepted"),
    "unknown": ({"colour": SECRET}, "colour: Extra inputs are not permitted"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("run", ["sync", "async"])
def test_bad_arguments(case: str, run: str) -> None:
    """The model is told which argument was wrong and why, never what it was; the tool does not run."""
    ran: list[Args] = []
    taking = StructuredTool.from_function(
        lambda **given: ran.append(given), name="taking", description="-", args_schema=Fields
    )
    args, words = BAD[case]

    message = answer(taking, args, run=run)

    assert [] == ran
    assert f"The arguments were not accepted: {words}" in str(message.content)
    assert SECRET not in repr(message)
    assert ("transient", "tool/arguments", "none", "error") == (
        *(message.artifact[key] for key in ("reason", "rule", "effect")),
        message.status,
    )


@pytest.mark.parametrize("kind", ["function", "pydantic 1", "class with a schema"])
def test_missing_argument(kind: str) -> None:
    """A missing argument is the model's to add."""
    message = answer(KINDS[kind], {"note": "x"})

    assert ("transient", "tool/arguments") == (message.artifact["reason"], message.artifact["rule"])
    assert "amount: " in str(message.content).lower()


def test_unreadable_arguments() -> None:
    """Arguments that were no JSON object are answered, and the tool does not run."""
    message = answer(refund, {UNREADABLE: True})

    assert (NOT_READABLE, "transient") == (message.content, message.artifact["reason"])


# What comes back


IMAGE = {"type": "image", "base64": "AAAA", "mime_type": "image/png"}

CONTENTS: dict[str, tuple[Any, Any]] = {
    "text": ("done", "done"),
    "empty": ("", NO_TEXT),
    "blank": (" \n", NO_TEXT),
    "no blocks": ([], NO_TEXT),
    "blocks": ([{"type": "text", "text": "done"}, IMAGE], [{"type": "text", "text": "done"}, IMAGE]),
    "an image alone": ([IMAGE], [IMAGE]),
    "text deep in blocks": (
        [{"type": "search_result", "content": [{"type": "text", "text": "a\x00b"}]}],
        [{"type": "search_result", "content": [{"type": "text", "text": "ab"}]}],
    ),
    "NUL": ("a\x00b", "ab"),
    "lone surrogate": ("a\ud83db", "ab"),
    "joined and right to left": ("👩‍👧 שלום é", "👩‍👧 שלום é"),
}


@pytest.mark.parametrize("artifact", [None, BOUGHT])
@pytest.mark.parametrize("case", CONTENTS)
def test_contents(case: str, artifact: object) -> None:
    """Text is kept but for what breaks saving; blocks stay blocks; nothing is never an answer."""
    returned, expected = CONTENTS[case]

    @tool(response_format="content_and_artifact")
    def show() -> tuple[Any, Any]:
        """Show."""
        return returned, artifact

    message = answer(show, {})

    assert expected == message.content
    assert (artifact is None) == (message.artifact is None)


def test_own_artifact_keys_are_kept() -> None:
    """Keys that an artifact holds beyond the contract come through, as plain JSON."""

    @tool(response_format="content_and_artifact")
    def show() -> tuple[str, dict[str, Any]]:
        """Show."""
        return "done", {**BOUGHT, "trace": object(), "page": (1, 2)}

    artifact = answer(show, {}).artifact

    assert ("<object>", [1, 2]) == (artifact["trace"], artifact["page"])


def test_message_with_another_calls_id() -> None:
    """A tool that returns a ToolMessage of its own still answers its own call."""

    def show() -> ToolMessage:
        """Show."""
        return ToolMessage("done", tool_call_id="somebody else")

    assert ("done", "c0") == (answer(show, {}).content, answer(show, {}).tool_call_id)


def test_command_passes() -> None:
    """A Command is the tool's own word to the graph."""

    def hand_over(call: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Hand over."""
        return Command(update={"messages": [ToolMessage("handed over", tool_call_id=call)]})

    assert "handed over" == answer(hand_over, {}).content


def test_handled_tool_error_is_unusable() -> None:
    """A tool that words its own failure is shown to the model, and vouched for by nothing."""
    told = StructuredTool.from_function(
        raising(ToolException("sold out")).func, name="refund", handle_tool_error=True
    )

    message = answer(told, {"amount": 5})

    assert ("sold out", "error", None) == (message.content, message.status, message.artifact)


# The same call again


class Till:
    """A tool that answers from a list, and remembers what it was asked."""

    def __init__(self, *outcomes: Outcome, name: str = "pay") -> None:
        self.asked: list[Args] = []

        def pay(cart: str = "a", amount: int = 5, note: str = "") -> tuple[str, Any]:
            """Pay for a cart."""
            self.asked.append({"cart": cart, "amount": amount, "note": note})
            return outcomes[min(len(self.asked), len(outcomes)) - 1].as_tool_result()

        declared = {"amount": "amount", "free_text": ["note"]}
        [self.tool] = prepare(
            [
                StructuredTool.from_function(
                    pay, name=name, response_format="content_and_artifact", metadata=declared
                )
            ]
        )


def ended(outcome: Outcome, args: Args, *, name: str = "pay", call: str = "e0") -> list[AnyMessage]:
    """Return a turn that is over."""
    content, artifact = outcome.as_tool_result()
    asked = {"name": name, "args": args, "id": call, "type": "tool_call"}
    return [
        AIMessage("", tool_calls=[asked]),
        ToolMessage(content, artifact=artifact, tool_call_id=call, id=f"m-{call}", name=name),
    ]


PAID = Outcome("Paid.", Reason.COMPLETED, "pay/ok", Effect.APPLIED, key="k")
DECLINED = Outcome("Declined.", Reason.FATAL, "pay/declined", evidence={"status": 402}, key="k")
BLOCKED = Outcome("Refused.", Reason.POLICY_BLOCK, "pay/risk", key="k")
BUSY = Outcome("Busy.", Reason.TRANSIENT, "pay/busy", key="k")
LOST = Outcome("Not confirmed.", Reason.TRANSIENT, "pay/lost", Effect.UNKNOWN, key="k")

CALL = {"cart": "a", "amount": 5, "note": "blue mug"}
REWORDED = {"amount": 5, "cart": "a", "note": "the blue mug please"}

RESENT: dict[str, tuple[list[AnyMessage], Args, bool]] = {
    "the same": (ended(DECLINED, CALL), CALL, False),
    "blocked": (ended(BLOCKED, CALL), CALL, False),
    "reworded": (ended(DECLINED, CALL), REWORDED, False),
    "without the words": (ended(DECLINED, CALL), {"cart": "a", "amount": 5}, False),
    "another last_step": (ended(DECLINED, {**CALL, "last_step": False}), CALL, False),
    "another cart": (ended(DECLINED, CALL), {**CALL, "cart": "b"}, True),
    "another amount": (ended(DECLINED, CALL), {**CALL, "amount": 6}, True),
    "one argument more": (ended(DECLINED, {"cart": "a"}), {**CALL, "amount": 6}, True),
    "a default written out": (ended(DECLINED, {"cart": "a"}), CALL, False),
    "a number as a string": (ended(DECLINED, CALL), {**CALL, "amount": "5"}, False),
    "a name of digits": (ended(DECLINED, {**CALL, "cart": "07"}), {**CALL, "cart": "7"}, True),
    "another tool": (ended(DECLINED, CALL, name="pay_later"), CALL, True),
    "transient": (ended(BUSY, CALL), CALL, True),
    "completed": (ended(PAID, CALL), CALL, True),
    "the user spoke": ([*ended(DECLINED, CALL), HumanMessage("Try again.", id="h")], CALL, True),
    "turns between": ([*ended(DECLINED, CALL), *ended(BUSY, {"cart": "c"}, call="e1")], CALL, False),
    "no artifact": (
        [*ended(DECLINED, CALL)[:1], ToolMessage("?", tool_call_id="e0", id="m")],
        CALL,
        True,
    ),
}


@pytest.mark.parametrize("case", RESENT)
def test_resend(case: str) -> None:
    """A call that was refused for good is answered from the record in this run, not sent again."""
    before, args, runs = RESENT[case]
    till = Till(PAID)

    [message] = answers([till.tool], ("pay", args), before=before)

    assert runs == bool(till.asked)
    if not runs:
        earlier = before[1]
        assert isinstance(earlier, ToolMessage)
        assert (earlier.content, earlier.artifact, "c0") == (
            message.content,
            message.artifact,
            message.tool_call_id,
        )


def test_resent_in_one_turn() -> None:
    """Two equal calls of one turn both run: neither has an answer yet."""
    till = Till(DECLINED)

    messages = answers([till.tool], ("pay", CALL), ("pay", REWORDED))

    assert (2, ["c0", "c1"]) == (len(till.asked), [message.tool_call_id for message in messages])


STICKY: dict[str, tuple[list[AnyMessage], Outcome, str, str]] = {
    "nothing earlier": ([], DECLINED, "none", "Declined."),
    "lost earlier": (ended(LOST, {}), DECLINED, "unknown", f"Declined. {EARLIER_UNCONFIRMED}"),
    "lost again": (ended(LOST, {}), LOST, "unknown", "Not confirmed."),
    "paid now": (ended(LOST, {}), PAID, "applied", "Paid."),
    "paid in between": (
        [*ended(LOST, {}), *ended(PAID, {}, call="e1")],
        DECLINED,
        "none",
        "Declined.",
    ),
    "before the user spoke": (
        [*ended(LOST, {}), HumanMessage("And?", id="h")],
        BUSY,
        "unknown",
        f"Busy. {EARLIER_UNCONFIRMED}",
    ),
    "another key": (
        ended(LOST, {}),
        Outcome("Declined.", Reason.FATAL, key="other"),
        "none",
        "Declined.",
    ),
    "another key between": (
        [*ended(LOST, {}), *ended(Outcome("Gone.", Reason.FATAL, key="other"), {}, call="e1")],
        BUSY,
        "unknown",
        f"Busy. {EARLIER_UNCONFIRMED}",
    ),
    "no key": (ended(LOST, {}), Outcome("Gone.", Reason.FATAL), "none", "Gone."),
    "another tool": (ended(LOST, {}, name="pay_later"), BUSY, "unknown", f"Busy. {EARLIER_UNCONFIRMED}"),
}


@pytest.mark.parametrize("case", STICKY)
def test_unknown_is_sticky(case: str) -> None:
    """What may have happened to a thing stays open until something proves it done."""
    before, outcome, effect, text = STICKY[case]

    [message] = answers([Till(outcome).tool], ("pay", {"cart": "z"}), before=before)

    assert (effect, text) == (message.artifact["effect"], message.content)


def test_recorded_answer_is_sticky_too() -> None:
    """A recorded refusal does not hide that a later attempt on the same thing is open."""
    before = [*ended(DECLINED, CALL), *ended(LOST, {**CALL, "amount": 6}, call="e1")]

    [message] = answers([Till(PAID).tool], ("pay", CALL), before=before)

    assert ("unknown", f"Declined. {EARLIER_UNCONFIRMED}") == (message.artifact["effect"], message.content)


def test_sticky_with_blocks() -> None:
    """The sentence stands as a block of its own after blocks."""

    @tool("pay", response_format="content_and_artifact")
    def pay() -> tuple[Any, Any]:
        """Pay."""
        return [IMAGE], DECLINED.as_tool_result()[1]

    message = answer(pay, {}, before=ended(LOST, {}))

    assert [IMAGE, {"type": "text", "text": EARLIER_UNCONFIRMED}] == message.content


# Replay


@pytest.mark.parametrize("run", ["sync", "async"])
def test_replay(run: str) -> None:
    """A call that the state answers already is answered by the same message, and does not run."""
    till = Till(PAID)
    [prepared] = [till.tool]
    asked = calling(("pay", CALL))
    said = ToolMessage("Denied.", tool_call_id="c0", id="said", artifact=BLOCKED.as_tool_result()[1])
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([prepared], handle_tool_errors=False))
    graph.add_edge(START, "tools")
    app = graph.compile()
    state: Any = {"messages": [HumanMessage("q", id="q"), asked, said]}

    after = app.invoke(state) if run == "sync" else asyncio.run(app.ainvoke(state))

    assert [] == till.asked
    assert ["q", "calls", "said"] == [message.id for message in after["messages"]]


def test_replay_answers_the_open_call_alone() -> None:
    """Of two calls the one without an answer runs."""
    till = Till(PAID)
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([till.tool], handle_tool_errors=False))
    graph.add_edge(START, "tools")
    state: Any = {
        "messages": [
            HumanMessage("q", id="q"),
            calling(("pay", {"cart": "a"}), ("pay", {"cart": "b"})),
            ToolMessage("Paid.", tool_call_id="c0", id="said", artifact=PAID.as_tool_result()[1]),
        ]
    }

    after = graph.compile().invoke(state)

    assert ["b"] == [args["cart"] for args in till.asked]
    assert ["c0", "c1"] == [m.tool_call_id for m in after["messages"] if isinstance(m, ToolMessage)]


def test_an_id_of_an_earlier_turn_is_no_replay() -> None:
    """Some models number their calls anew each turn."""
    till = Till(PAID)

    [message] = answers([till.tool], ("pay", {"cart": "b"}), before=ended(BUSY, {}, call="c0"))

    assert (1, "Paid.") == (len(till.asked), message.content)


# History


class Untouchable(dict[str, Any]):
    """An artifact that nobody may print, walk or copy."""

    def _touched(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the history was walked")

    __repr__ = __str__ = __iter__ = items = keys = values = __len__ = __reduce_ex__ = _touched
    model_dump = copy = __copy__ = __deepcopy__ = __eq__ = _touched
    __hash__ = None


@pytest.mark.parametrize("run", ["sync", "async"])
def test_history_is_not_walked(run: str) -> None:
    """A call costs the same after a thousand messages: no state is dumped, printed or validated."""
    before: list[AnyMessage] = []
    for at in range(250):
        before += [
            HumanMessage("q", id=f"h{at}"),
            AIMessage("", id=f"a{at}", tool_calls=[{"name": "x", "args": {}, "id": f"x{at}"}]),
            ToolMessage("x", tool_call_id=f"x{at}", id=f"t{at}", artifact=Untouchable()),
            AIMessage("done", id=f"d{at}"),
        ]
    before.append(HumanMessage("q", id="last"))

    [message] = answers([Till(DECLINED).tool], ("pay", CALL), before=before, run=run)

    assert "Declined." == message.content


# Making a turn answerable


def ids_of(message: AIMessage) -> list[str | None]:
    """Return the ids of a message's calls."""
    return [call["id"] for call in message.tool_calls]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a"], ["a", "a_2"]),
        (["a", "a", "a"], ["a", "a_2", "a_3"]),
        (["", ""], ["call_1", "call_2"]),
        ([None, "a"], ["call_1", "a"]),
        (["a", "a", "a_2"], ["a", "a_2", "a_2_3"]),
        (["call_2", None], ["call_2", "call_2_2"]),
    ],
)
def test_settle_ids(ids: list[str | None], expected: list[str]) -> None:
    """Missing and repeated ids are replaced, others are kept."""
    calls: Any = [{"name": "pay", "args": {"n": at}, "id": name} for at, name in enumerate(ids)]
    settled = settle(AIMessage("", tool_calls=calls))

    assert expected == ids_of(settled)
    assert [{"n": at} for at in range(len(ids))] == [call["args"] for call in settled.tool_calls]


def test_settle_leaves_a_good_turn() -> None:
    """A turn that can be answered is not copied."""
    message = calling(("pay", {}))

    assert settle(message) is message


def test_settle_garbled() -> None:
    """Garbled calls become calls to be answered, and nothing of them is sent twice."""
    garbled: Any = [{"name": "pay", "args": "{", "id": "b", "error": "x"}, {"name": None, "id": None}]
    message = AIMessage(
        "",
        id="calls",
        tool_calls=[{"name": "pay", "args": {}, "id": "a"}],
        invalid_tool_calls=[
            {"type": "invalid_tool_call", "args": None, "error": None, **each} for each in garbled
        ],
        additional_kwargs={"tool_calls": [{"id": "b"}], "kept": 1},
    )

    settled = settle(message)

    assert (["a", "b", "call_3"], [], {"kept": 1}, "calls") == (
        ids_of(settled),
        settled.invalid_tool_calls,
        settled.additional_kwargs,
        settled.id,
    )
    assert [{}, {UNREADABLE: True}, {UNREADABLE: True}] == [call["args"] for call in settled.tool_calls]
