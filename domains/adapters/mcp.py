"""An MCP server for the domains' tools, and the way back: outcomes travel in ``_meta``.

The model's text is the content of a result; the artifact lies beside it, where no model reads: in ``_meta``,
under ``envelope.KEY``. ``isError`` says what ``ToolMessage.status`` says: a refusal by rule is an answer.

    python -m domains.adapters.mcp [DOMAIN...]

serves them over stdio. A vendor's fake answers unless its key is set. Needs the extra ``mcp``.

https://modelcontextprotocol.io/specification/2025-06-18/server/tools
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp

from domains.adapters.envelope import DECLARED, KEY
from domains.found import DOMAINS
from domains.infrastructure import BARE
from domains.mapping import Reply
from orchestration.outcomes import text_of
from orchestration.router import outcome_of
from orchestration.tools import prepare, unknown_tool

if TYPE_CHECKING:
    from langchain_mcp_adapters.interceptors import MCPToolCallRequest, MCPToolCallResult
    from mcp import ClientSession
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolResult, Tool

NAME: Final = "short-circuit"
"""What the server calls itself."""

INSTALL: Final = "install the extra: pip install 'short-circuit[mcp]'"
INSTALL_CLIENT: Final = "install it: pip install 'langchain-mcp-adapters>=0.3.2'"


def server(tools: Sequence[BaseTool]) -> "Server[Any, Any]":
    """Return an MCP server that serves the tools.

    They are prepared here, so no exception leaves them, and bad arguments are an outcome as well.

    Raises:
        ImportError: The official SDK is missing; the message says how to install it.
        ValueError: A tool cannot be prepared.
    """
    try:
        from mcp.server.lowlevel import Server
    except ImportError as error:
        raise ImportError(f"serving over MCP needs the package mcp: {INSTALL}") from error
    served: Server[Any, Any] = Server(NAME)
    prepared = {tool.name: tool for tool in prepare(tools)}

    async def list_tools() -> "list[Tool]":
        return [_described(tool) for tool in tools]

    async def call_tool(name: str, arguments: Mapping[str, Any]) -> "CallToolResult":
        call = {"type": "tool_call", "name": name, "args": dict(arguments), "id": uuid4().hex}
        tool = prepared.get(name)
        answer = unknown_tool(call, list(prepared)) if tool is None else await tool.ainvoke(call)
        return as_result(answer)

    served.list_tools()(list_tools)  # type: ignore[no-untyped-call]  # the SDK has left it out
    # Not validated by the SDK: its refusal would be a text that nothing vouches for.
    served.call_tool(validate_input=False)(call_tool)
    return served


def _described(tool: BaseTool) -> "Tool":
    """Return a tool as MCP lists it: what the model may fill in, without what a runtime injects."""
    from mcp.types import Tool

    schema: Any = tool.tool_call_schema
    declared = {name: value for name, value in (tool.metadata or {}).items() if name in _PASSED and value}
    return Tool(
        name=tool.name,
        description=tool.description,
        inputSchema=schema if isinstance(schema, dict) else schema.model_json_schema(),
        _meta={DECLARED: declared} if declared else None,
    )


_PASSED: Final = frozenset({"free_text", "amount"})
"""What the other side's guards need to know of a tool."""


def as_result(answer: Any) -> "CallToolResult":
    """Return a tool's answer as MCP sends it. What the router cannot use is sent without ``_meta``."""
    from mcp.types import CallToolResult, TextContent

    if not isinstance(answer, ToolMessage):  # a Command directs a graph that is not here
        return as_result(ToolMessage("", tool_call_id="", status="error"))
    return CallToolResult(
        content=[TextContent(type="text", text=text_of(answer.content))],
        isError=answer.status == "error",
        _meta=None if outcome_of(answer) is None else {KEY: answer.artifact},
    )


async def from_mcp(session: "ClientSession") -> list[BaseTool]:
    """Return a session's tools, as ``build_graph`` and ``build_agent`` take them; they can only be awaited.

    Raises:
        ImportError: langchain-mcp-adapters is missing; the message says how to install it.
    """
    try:
        from langchain_mcp_adapters.tools import load_mcp_tools
    except ImportError as error:
        raise ImportError(f"a client of MCP needs langchain-mcp-adapters: {INSTALL_CLIENT}") from error
    tools = await load_mcp_tools(session, tool_interceptors=[keep_outcome])
    for tool in tools:
        said = tool.metadata or {}
        declared = (said.get("_meta") or {}).get(DECLARED)
        known = {name: value for name, value in declared.items() if name in _PASSED} if declared else {}
        tool.metadata = {**said, **known}
    return tools


async def keep_outcome(
    request: "MCPToolCallRequest", handler: "Callable[[MCPToolCallRequest], Awaitable[MCPToolCallResult]]"
) -> "MCPToolCallResult":
    """Carry ``_meta`` of a result over into the artifact; an interceptor of langchain-mcp-adapters.

    The adapter keeps ``structuredContent`` alone, and of an error nothing but its text. A result without our
    key is left to it: then no artifact vouches for the text, and the router asks the model. A connection that
    broke is an outcome as well: nobody knows what the server had done by then.

    Whoever may set the key ends runs with a text of their own: connect to servers that you trust.
    """
    from mcp.types import CallToolResult, TextContent

    try:
        result = await handler(request)
    except GraphBubbleUp:
        raise  # interrupts are exceptions too
    except Exception as error:  # the SDK and its transports share no base class
        return _lost(error, request)
    artifact = (result.meta or {}).get(KEY) if isinstance(result, CallToolResult) else None
    if artifact is None or not isinstance(result, CallToolResult):
        return result
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    return ToolMessage(
        content="\n".join(texts),
        artifact=artifact,
        name=request.name,
        tool_call_id=_call_id(request),
        status="error" if result.isError else "success",
    )


def _lost(error: Exception, request: "MCPToolCallRequest") -> ToolMessage:
    """Return what the table for vendors that nobody mapped makes of it, as of any client's exception."""
    content, artifact = BARE.classify(Reply.from_exception(error, write=True)).as_tool_result()
    return ToolMessage(
        content, artifact=artifact, name=request.name, tool_call_id=_call_id(request), status="error"
    )


def _call_id(request: "MCPToolCallRequest") -> str:
    return getattr(request.runtime, "tool_call_id", None) or ""


def domain_tools(names: Sequence[str] = ()) -> list[BaseTool]:
    """Return the domains' tools over their vendors, or over the fakes of those whose key is not set.

    Who answers is said on stderr.

    Raises:
        KeyError: There is no such domain.
    """
    from domains.runner import vendor

    tools: list[BaseTool] = []
    for name in names or list(DOMAINS):
        domain = DOMAINS[name]
        try:
            tools += domain.tools()
            _note(f"{name}: the vendor itself answers")
        except RuntimeError as error:
            fake = vendor(name)
            tools += domain.tools(client=fake.client(), async_client=fake.async_client())
            _note(f"{name}: a fake answers, for {str(error).partition('.')[0]}")
    return tools


def _note(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # stdout is the wire


async def serve(names: Sequence[str] = ()) -> None:
    """Serve the domains over stdio until the client hangs up."""
    served = server(domain_tools(names))
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await served.run(read, write, served.create_initialization_options())


def main(arguments: Sequence[str]) -> int:
    """Run the server, and return its exit code."""
    try:
        asyncio.run(serve(arguments))
    except (KeyError, ImportError) as error:
        _note(f"domains.adapters.mcp: {error.args[0]}")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
