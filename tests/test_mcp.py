"""Outcomes over MCP, and in an envelope: the router decides as if the tool were here."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool

from domains import DOMAINS
from domains import cases as subjects
from domains import check as kit
from domains.adapters import mcp as over
from domains.adapters.envelope import DECLARED, KEY, as_message, envelope
from domains.runner import RUNTIMES, Runtime, build, vendor
from orchestration import Reason, decide
from orchestration.outcomes import NOT_CARRIED_OUT
from orchestration.router import DEFAULT_POLICY, Route, outcome_of

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

mcp = pytest.importorskip("mcp")
pytest.importorskip("langchain_mcp_adapters")

from mcp import ClientSession, StdioServerParameters, stdio_client  # noqa: E402
from mcp.server.lowlevel import Server  # noqa: E402
from mcp.shared.memory import create_connected_server_and_client_session as connect  # noqa: E402
from mcp.types import CallToolResult, TextContent  # noqa: E402
from mcp.types import Tool as Listed  # noqa: E402

ROOT: Final = Path(__file__).parents[1]
FORCED: Final = [(name, run) for name in DOMAINS for run in subjects.cases(name)[0].forced]
NODES: Final = {"agent": "agent", "model": "agent", "tools": "tools", "finalize": "finalize"}
WORDS: Final = ("completed", "transient", "fatal", "policy_block", "stop", "schema", KEY)


def with_session(server: "Server[Any, Any]", use: "Callable[[ClientSession], Awaitable[Any]]") -> Any:
    """Use a client that is connected to a server within this process."""

    async def connected() -> Any:
        async with connect(server) as session:
            return await use(session)

    return asyncio.run(connected())


async def course(tools: Sequence[BaseTool], rig: subjects.Rig, runtime: Runtime) -> tuple[kit.Course, Any]:
    """Run the call on a runtime, and return its course and its answer."""
    model = kit._model(rig)
    agent = build(runtime, model, tools, DEFAULT_POLICY)
    start: Any = {"messages": [HumanMessage(kit.ASKED)]}
    path: list[str] = []
    history: list[Any] = []
    events: Any = agent.astream(start, stream_mode=["updates", "values"])
    async for mode, part in events:
        if mode == "values":
            history = part["messages"]
            continue
        for name, update in part.items():
            relayed = name == "StopOnOutcome.before_model" and update and update.get("messages")
            path += ["finalize"] if relayed else [NODES[name]] if name in NODES else []
    answer = next(message for message in history if isinstance(message, ToolMessage))
    outcome = outcome_of(answer)
    reason = None if outcome is None else outcome.reason.value
    return kit.Course(tuple(path), model.calls, history[-1].content, reason, str(answer.content)), answer


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(("name", "run"), FORCED, ids=lambda each: getattr(each, "label", each))
def test_over_mcp_as_here(name: str, run: subjects.Run, runtime: Runtime) -> None:
    """Path, model calls, text and artifact are those of the tool itself, for every reason and domain."""
    here, answer = asyncio.run(course([run.start().tool], run.start(), runtime))
    rig = run.start()

    async def there(session: ClientSession) -> Any:
        return await course(await over.from_mcp(session), rig, runtime)

    came, came_answer = with_session(over.server([rig.tool]), there)

    assert here == came
    assert (answer.artifact, answer.status) == (came_answer.artifact, came_answer.status)


@pytest.mark.parametrize(("name", "run"), FORCED, ids=lambda each: getattr(each, "label", each))
def test_on_the_wire(name: str, run: subjects.Run) -> None:
    """The text holds no control word, ``_meta`` the artifact; a refusal by rule is no error."""
    rig = run.start()

    result = with_session(
        over.server([rig.tool]), lambda session: session.call_tool(rig.tool.name, dict(rig.args))
    )

    (block,) = result.content
    assert isinstance(block, TextContent)
    assert [] == [word for word in WORDS if word in block.text]
    assert result.structuredContent is None
    assert run.label == result.meta[KEY]["reason"]
    assert (run.reason in {Reason.TRANSIENT, Reason.FATAL}) == result.isError


def test_what_is_listed() -> None:
    """A tool is listed as the model sees it, with what the other side's guards need to know."""

    def pay(cart: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Pay for a cart."""
        return cart + call_id

    (checkout,) = DOMAINS["checkout"].tools(client=vendor("checkout").client())

    async def listed(session: ClientSession) -> Any:
        return (await session.list_tools()).tools, await over.from_mcp(session)

    (first, second), (tool, _) = with_session(
        over.server([checkout, StructuredTool.from_function(pay)]), listed
    )

    assert {"cart_id", "amount", "currency", "payment_method", "note"} == {*first.inputSchema["properties"]}
    assert {"cart"} == {*second.inputSchema["properties"]}
    assert {"free_text": ["note"], "amount": "amount"} == first.meta[DECLARED]
    assert (["note"], "amount") == (tool.metadata["free_text"], tool.metadata["amount"])


@pytest.mark.parametrize(
    ("name", "arguments", "rule"),
    [
        ("search", {}, "tool/arguments"),
        ("search", {"query": ["a", "list"]}, "tool/arguments"),
        ("serch", {"query": "mug"}, "tool/unknown"),
    ],
)
def test_a_wrong_call_is_an_outcome(name: str, arguments: dict[str, Any], rule: str) -> None:
    """The SDK's own refusal would be a text that nothing vouches for."""
    tools = DOMAINS["search"].tools(client=vendor("search").client())

    result = with_session(over.server(tools), lambda session: session.call_tool(name, arguments))

    assert (rule, "transient", True) == (result.meta[KEY]["rule"], result.meta[KEY]["reason"], result.isError)


def test_a_tool_that_raises_is_an_outcome(caplog: pytest.LogCaptureFixture) -> None:
    """No exception's text goes over the wire."""

    def pay(cart: str) -> str:
        """Pay for a cart."""
        raise RuntimeError(f"key-5ecret for {cart}")

    result = with_session(
        over.server([StructuredTool.from_function(pay)]),
        lambda session: session.call_tool("pay", {"cart": "a"}),
    )

    assert ("tool/bug", True) == (result.meta[KEY]["rule"], result.isError)
    assert "5ecret" not in result.model_dump_json() + caplog.text


def foreign(result: CallToolResult | Exception) -> "Server[Any, Any]":
    """Return somebody else's server, whose one tool answers so."""
    served: Server[Any, Any] = Server("foreign")

    async def list_tools() -> list[Listed]:
        return [Listed(name="search", description="Search.", inputSchema={"type": "object"})]

    async def call_tool(name: str, arguments: dict[str, Any]) -> CallToolResult:
        if isinstance(result, Exception):
            raise result
        return result

    served.list_tools()(list_tools)  # type: ignore[no-untyped-call]
    served.call_tool()(call_tool)
    return served


def result(meta: Any, *, failed: bool = False) -> CallToolResult:
    """Return a result with that side channel."""
    return CallToolResult(content=[TextContent(type="text", text="Trust me.")], isError=failed, _meta=meta)


DONE: Final = {"stop": True, "reason": "completed"}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "answer",
    [
        result(None),
        result({}),
        result({"other/outcome": DONE}),
        result({KEY: "completed"}),
        result({KEY: {**DONE, "reason": "done"}}),
        result({KEY: {**DONE, "schema": 2}}),
        result({KEY: DONE}, failed=True),
        result(None, failed=True),
        RuntimeError("Trust me."),
    ],
)
def test_nothing_vouches_for_it(answer: CallToolResult | Exception, runtime: Runtime) -> None:
    """Without a usable artifact the model is asked, and an error that calls itself done is none."""
    rig = subjects.Rig(next(iter(DOMAINS["search"].tools(client=vendor("search").client()))), {})

    async def there(session: ClientSession) -> Any:
        return await course(await over.from_mcp(session), rig, runtime)

    came, message = with_session(foreign(answer), there)

    assert (("agent", "tools", "agent"), 2, None) == (came.path, came.model_calls, came.reason)
    assert "error" == message.status or not isinstance(answer, CallToolResult) or not answer.isError
    history = [
        {"type": "ai", "tool_calls": [{"name": "search", "args": {}, "id": "c"}]},
        {"type": "tool", "tool_call_id": "c", "content": message.content, "artifact": message.artifact,
         "status": message.status},
    ]  # fmt: skip
    assert NOT_CARRIED_OUT == decide(history).calls[0].text


def test_a_server_of_anybodys_may_speak_the_contract() -> None:
    """Two keys are enough."""
    rig = subjects.Rig(next(iter(DOMAINS["search"].tools(client=vendor("search").client()))), {})

    async def there(session: ClientSession) -> Any:
        return await course(await over.from_mcp(session), rig, "graph")

    came, _ = with_session(foreign(result({KEY: DONE})), there)

    assert (("agent", "tools", "finalize"), 1, "Trust me.") == (came.path, came.model_calls, came.final)


def test_without_our_wrapper() -> None:
    """The interceptor alone answers the call it is asked: any ToolNode can run it."""
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    rig = subjects.cases("search")[0].forced[0].start()

    async def there(session: ClientSession) -> Any:
        graph = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode(await over.from_mcp(session)))
        graph.add_edge(START, "tools")
        graph.add_edge("tools", END)
        (call, _) = kit._model(rig).invoke("x"), None
        return (await graph.compile().ainvoke({"messages": [call]}))["messages"]

    *_, answer = with_session(over.server([rig.tool]), there)

    assert ("call_1", "completed") == (answer.tool_call_id, answer.artifact["reason"])


def test_a_lost_connection_is_an_outcome() -> None:
    """Nobody knows what the server had done by then, so nothing is called a failure."""

    async def handler(request: Any) -> Any:
        raise ConnectionResetError("key-5ecret")

    from langchain_mcp_adapters.interceptors import MCPToolCallRequest

    request = MCPToolCallRequest(name="search", args={}, server_name="s")
    answer: Any = asyncio.run(over.keep_outcome(request, handler))
    outcome = outcome_of(answer)

    assert outcome is not None
    assert ("transient", "unknown") == (outcome.reason.value, outcome.effect.value)
    assert "5ecret" not in repr(answer)


# As a program.


@asynccontextmanager
async def program(*arguments: str) -> "AsyncIterator[ClientSession]":
    """Start the server as a program of its own."""
    env = {name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_TOKEN"))}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "domains.adapters.mcp", *arguments], env=env, cwd=ROOT
    )
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: ASYNC230, PTH123 - it never blocks
        async with (
            stdio_client(command, errlog=nowhere) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            yield session


def test_over_stdio() -> None:
    """The fakes answer where no key is set."""

    async def ask() -> Any:
        async with program("search", "ticketing") as session:
            names = [tool.name for tool in (await session.list_tools()).tools]
            return names, await session.call_tool("search", {"query": "teapot"})

    names, came = asyncio.run(ask())

    assert ["search", "create_ticket"] == names
    assert ("search/found", False) == (came.meta[KEY]["rule"], came.isError)


def test_an_unknown_domain(capsys: pytest.CaptureFixture[str]) -> None:
    """It exits 2 and names the nearest; stdout is the wire, and stays silent."""
    assert 2 == over.main(["serch"])

    out, err = capsys.readouterr()
    assert "" == out
    assert "Did you mean 'search'?" in err


@pytest.mark.parametrize("missing", ["mcp", "langchain_mcp_adapters"])
def test_a_missing_package_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are extras: what to install is said, not guessed."""
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)

    with pytest.raises(ImportError, match="pip install"):
        over.server([]) if missing == "mcp" else asyncio.run(over.from_mcp(None))  # type: ignore[arg-type]


# Without a side channel.


@pytest.mark.parametrize("reason", Reason)
def test_an_envelope_decides_the_same(reason: Reason) -> None:
    """JSON there and back: the router reads it, the model is sent the content alone."""
    _, run = next((name, run) for name, run in FORCED if run.reason is reason)
    message = subjects.call(run.start())
    call = {"name": "checkout", "args": {}, "id": "c1"}
    before = [{"type": "human", "content": "Pay."}, {"type": "ai", "content": "", "tool_calls": [call]}]

    sent = json.dumps(envelope(message.content, message.artifact))
    read = as_message("c1", json.loads(sent))

    decision = decide([*before, read])
    assert (Route.AGENT if reason is Reason.TRANSIENT else Route.FINALIZE) == decision.route
    assert message.content == read["content"]
    assert (reason in {Reason.TRANSIENT, Reason.FATAL}) == (read["status"] == "error")


@pytest.mark.parametrize(
    "given", [None, 7, "a text", {}, {"content": "x"}, {"content": "x", "outcome": "stop"}]
)
def test_what_is_no_envelope_is_unusable(given: object) -> None:
    """The run goes on, and the user never reads its text."""
    call = {"name": "checkout", "args": {}, "id": "c1"}

    decision = decide([{"type": "ai", "tool_calls": [call]}, as_message("c1", given)])

    assert ("unusable", NOT_CARRIED_OUT) == (decision.rule, decision.calls[0].text)
