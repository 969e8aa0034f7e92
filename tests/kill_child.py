"""A durable agent in a process of its own, and the named points at which it dies.

The process kills itself where its own code can; where only the vendor can, the vendor's server does it.
"""

import json
import os
import signal
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import httpx
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, messages_to_dict
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver

from domains.checkout.tool import tools as checkout_tools
from domains.search.tool import tools as search_tools
from orchestration.outcomes import Outcome, text_of
from orchestration.reasons import Reason

OWN_POINTS = (
    *("model-asked", "model-answered"),
    *("input-unsaved", "input-saved", "call-unsaved", "call-saved"),
    "confirm-heard",
    *("answer-unwritten", "answer-written", "answer-saved", "final-unwritten", "final-saved"),
)
"""Where the process kills itself. A thing is written as one task's, and then saved as the thread's."""

Step = Literal["resume", "pay"]
Durability = Literal["sync", "async"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What one process is to do."""

    runtime: str
    """``graph`` or ``agent``."""

    durability: Durability
    """When langgraph saves: ``async`` is its default."""

    store: Path
    """The thread's SQLite file."""

    vendors: Mapping[str, tuple[str, Mapping[str, str]]]
    """Domain -> base URL and headers; a domain that is here is called once a turn."""

    said: Path
    """Where the process leaves what came of each step."""

    steps: Sequence[Step]
    """What it does, in order: go on with what was interrupted, or have the user ask (anew)."""

    point: str | None = None
    """Where it dies; None: nowhere, or where the vendor's server kills it."""

    naive: bool = False
    """Whether it pays with a tool that does not look first: what the harness must be able to see."""


def live(life: Life) -> None:
    """Live as the life says; what comes of each step is left in its file, as JSON."""
    if life.runtime == "graph":
        from orchestration.graph import build_graph as build
    else:
        from orchestration.agent import build_agent as build
    die = partial(_die, life.point)
    tools = [
        tool
        for domain, (url, headers) in life.vendors.items()
        for tool in (_naive if life.naive else _TOOLS[domain])(client=_client(url, headers, die))
    ]
    saver = Mortal(die, life.store)
    app = build(Buyer(die=die, domains=tuple(life.vendors)), tools, checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    for step in life.steps:
        going_on = step == "resume"
        if going_on and not app.get_state(config).next:
            continue
        given = None if going_on else {"messages": [HumanMessage("Pay for cart_7.")]}
        ended = app.invoke(given, config, durability=life.durability)
        with life.said.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "messages": messages_to_dict(ended["messages"])}) + "\n")


def _die(chosen: str | None, point: str) -> None:
    """Die without a word, if this is the point."""
    if chosen == point:
        os.kill(os.getpid(), signal.SIGKILL)


class Mortal(SqliteSaver):
    """A saver that can die before and after it saves."""

    def __init__(self, die: Callable[[str], None], path: Path) -> None:
        super().__init__(sqlite3.connect(path, check_same_thread=False))
        self.die = die

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Save where the thread stands."""
        messages = checkpoint["channel_values"].get("messages") or []
        what = "input" if metadata["source"] == "input" else _named(messages[-1:])
        self.die(f"{what}-unsaved")
        saved = super().put(config, checkpoint, metadata, new_versions)
        self.die(f"{what}-saved")
        return saved

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        """Save what one task has done."""
        what = _named([message for name, value in writes if name == "messages" for message in value])
        self.die(f"{what}-unwritten")
        super().put_writes(config, writes, task_id, task_path)
        self.die(f"{what}-written")


class Buyer(BaseChatModel):
    """Calls every tool there is when the user speaks, and then says what they said."""

    die: Callable[[str], None]
    domains: tuple[str, ...]

    @property
    def _llm_type(self) -> str:
        return "buyer"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Bind nothing: it knows its tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.die("model-asked")
        # Ids are new each time: a resumed run may call under other ones.
        calls = [
            {"name": name, "args": dict(arguments), "id": f"call_{uuid4().hex}"}
            for name, arguments in (_CALLS[domain] for domain in self.domains)
        ]
        answer = (
            AIMessage("", tool_calls=calls)
            if isinstance(messages[-1], HumanMessage)
            else AIMessage("\n".join(text_of(m.content) for m in messages if m.type == "tool"))
        )
        self.die("model-answered")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def _client(url: str, headers: Mapping[str, str], die: Callable[[str], None]) -> httpx.Client:
    """Return a client that can die when it hears the answer to a confirm."""

    def heard(response: httpx.Response) -> None:
        if response.request.url.path.endswith("/confirm"):
            die("confirm-heard")

    return httpx.Client(
        base_url=url,
        headers=headers,
        event_hooks={"response": [heard]},
        trust_env=False,
        verify=False,  # noqa: S501 - no TLS on a loopback socket, and loading the CAs takes its time
    )


def _naive(client: httpx.Client) -> list[Any]:
    """Return a tool that creates and confirms under a key of its own, new each time."""

    def checkout(cart_id: str, amount: int) -> tuple[str, dict[str, Any]]:
        """Pay for the cart."""
        client.post(
            "/v1/payment_intents",
            headers={"idempotency-key": uuid4().hex},
            data={
                "amount": amount,
                "currency": "usd",
                "payment_method": "pm_card_visa",
                "confirm": "true",
                "metadata[cart_id]": cart_id,
            },
        )
        return Outcome("Paid.", Reason.COMPLETED).as_tool_result()

    return [StructuredTool.from_function(checkout, response_format="content_and_artifact")]


def _named(messages: Sequence[BaseMessage]) -> str:
    """Return what it is that is being saved, by its newest message."""
    if not messages:
        return "nothing"
    last = messages[-1]
    if isinstance(last, AIMessage):
        return "call" if last.tool_calls else "final"
    return {"human": "input", "tool": "answer"}.get(last.type, last.type)


_CALLS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "checkout": ("checkout", {"cart_id": "cart_7", "amount": 1999}),
    "search": ("search", {"query": "mug"}),
}
_TOOLS: Mapping[str, Any] = {"checkout": checkout_tools, "search": search_tools}
