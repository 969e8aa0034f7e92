"""Make a LangChain tool of a flow: one function for every domain."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial, wraps
from typing import Any

import httpx
from langchain_core.tools import BaseTool, StructuredTool

from domains.mapping import Flow, Progress, arun, run

TIMEOUT_S = 20.0
"""Seconds without a byte until a vendor counts as silent."""


def as_tool(
    flow: Callable[..., Flow],
    *,
    client: httpx.Client | None,
    async_client: httpx.AsyncClient | None = None,
    free_text: Sequence[str] = (),
    amount: str | None = None,
) -> BaseTool:
    """Return a tool that runs ``flow`` and answers with ``(content, artifact)``.

    The progress that its calls carry goes to LangGraph's custom stream (``stream_mode="custom"``), as
    ``{"progress": {"tool": ..., "about": ..., "says": ..., "percent": ...}}``, and nowhere else.

    Args:
        flow: The flow; its name, signature and docstring are what the model sees.
        client: Sends a sync run's calls.
        async_client: Sends an async run's calls; without it those run in a thread on ``client``.
        free_text: Arguments that the model words anew each time: two calls that differ in these alone
            are the same call.
        amount: The argument that says what a call spends, in minor units of its currency.

    Raises:
        ValueError: Neither client is given.
    """
    if client is None and async_client is None:
        raise ValueError(f"{flow.__name__}: give a client, an async_client or both")

    tell = partial(_show, flow.__name__)

    @wraps(flow)
    def call(**arguments: Any) -> tuple[str, dict[str, Any]]:
        assert client is not None  # StructuredTool gets no sync function without one
        return run(flow(**arguments), client, tell).as_tool_result()

    @wraps(flow)
    async def acall(**arguments: Any) -> tuple[str, dict[str, Any]]:
        assert async_client is not None
        return (await arun(flow(**arguments), async_client, tell)).as_tool_result()

    return StructuredTool.from_function(
        func=call if client is not None else None,
        coroutine=acall if async_client is not None else None,
        response_format="content_and_artifact",
        parse_docstring=True,
        metadata={"free_text": list(free_text), "amount": amount},
    )


def _show(tool: str, progress: Progress) -> None:
    """Write progress to the stream of the graph that runs us."""
    from langgraph.config import get_stream_writer

    try:
        write = get_stream_writer()
    except (RuntimeError, KeyError):  # run by hand, or by another framework: there is no stream
        return
    write({"progress": {"tool": tool, **asdict(progress)}})


def connect(
    base_url: str, key_name: str, headers: Callable[[str], Mapping[str, str]]
) -> tuple[httpx.Client, httpx.AsyncClient]:
    """Return a sync and an async client for the real vendor.

    Args:
        base_url: The vendor's address.
        key_name: The environment variable that holds the key.
        headers: Key -> the headers that every request carries.

    Raises:
        RuntimeError: The variable is not set.
    """
    key = os.environ.get(key_name, "").strip()
    if not key:
        raise RuntimeError(f"{key_name} is not set. Set it to the key of {base_url}, or pass clients.")
    fixed = dict(headers(key))
    return (
        httpx.Client(base_url=base_url, headers=fixed, timeout=TIMEOUT_S),
        httpx.AsyncClient(base_url=base_url, headers=fixed, timeout=TIMEOUT_S),
    )
