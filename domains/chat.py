"""A conversation in the terminal that survives a restart.

The thread is kept in a SQLite file by langgraph's own saver (the extra ``durable``). The vendors are fakes:
what they were asked to do is kept beside it, so that a cart paid yesterday is paid today. Without a key the
model is a ``Clerk``, who knows three kinds of sentence.
"""

import asyncio
import json
import os
import re
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, Final
from unicodedata import category

import httpx
from groq import GroqError
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool
from rich.console import Console

from domains.found import DOMAINS
from domains.runner import Runtime, vendor
from orchestration.outcomes import text_of
from orchestration.relay import SYSTEM_PROMPT
from orchestration.router import Route, outcome_of

INSTALL: Final = "pip install 'short-circuit[durable]'"
PROMPT: Final = "you> "
SHOWN: Final = 6
"""Lines of an earlier conversation that are shown when it is gone on with."""

GO_ON: Final = "What was under way is not confirmed. Enter finishes it; anything else leaves it at that."
KNOWN: Final = "find mugs | pay cart_7 for 19.99 | open a ticket: my mug is broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One conversation."""

    thread: str
    """Its id: the same id goes on with the same conversation."""

    runtime: Runtime
    """``graph`` or ``agent``."""

    store: Path | None
    """The SQLite file; None: nothing is kept."""

    model: BaseChatModel
    """Who answers."""

    out: Console
    """Takes the answers."""

    err: Console
    """Takes everything else."""

    def run(self) -> bool:
        """Talk until the input ends; returns whether every turn was answered.

        Raises:
            sqlite3.Error: The store cannot be used.
            OSError: Its folder cannot be made.
        """
        if self.store is not None:
            self.store.parent.mkdir(parents=True, exist_ok=True)
        with asyncio.Runner() as loop, _shop(self.store) as tools:
            # Opened and closed by tasks of their own: Ctrl-C cancels a turn's task, and no more.
            opened = AsyncExitStack()
            saver = loop.run(opened.enter_async_context(_saver(self.store)))
            try:
                return self._talk(loop, _agent(self.runtime, self.model, tools, saver))
            finally:
                loop.run(opened.aclose())

    def _talk(self, loop: asyncio.Runner, agent: Any) -> bool:
        config: Any = {"configurable": {"thread_id": self.thread}}
        state = loop.run(agent.aget_state(config))
        self._show(state.values.get("messages", []))
        pending, every = bool(state.next), True
        if pending:
            self._note(f"The last turn was cut off. {GO_ON}")
        for line in self._lines():
            if not line.strip() and not pending:
                continue
            fresh = not loop.run(agent.aget_state(config)).values.get("messages")
            given = _said(line, fresh=fresh) if line.strip() else None
            answered = self._turn(loop, agent, given, config)
            pending, every = not answered, every and answered
        return every

    def _turn(self, loop: asyncio.Runner, agent: Any, given: Any, config: Any) -> bool:
        """Have one turn; returns whether it was answered."""
        try:
            # Every step is on the disk before the next one: a charge before anything is said of it.
            ended = loop.run(agent.ainvoke(given, config, durability="sync"))
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            self._note(f"Stopped. {GO_ON}")
        except GroqError as error:
            status = getattr(error, "status_code", None)  # its text may name an organisation
            said = "could not be asked" if status is None else f"answered {status}"
            self._note(f"Groq {said} ({type(error).__name__}). Enter asks again.")
        else:
            messages = ended["messages"]
            self.out.print(shown(messages[-1]), markup=False, highlight=False, soft_wrap=True)
            self._note(course(messages))
            return True
        return False

    def _lines(self) -> Iterator[str]:
        """Yield what the user writes. Ctrl-C forgets the line, Ctrl-D (and a pipe's end) ends it."""
        if not sys.stdin.isatty():
            yield from sys.stdin
            return
        with suppress(ImportError):
            import readline  # noqa: F401 - gives input() its editing
        while True:
            try:
                yield input(PROMPT)
            except KeyboardInterrupt:
                self.err.print()
            except EOFError:
                self.err.print()
                return

    def _show(self, messages: Sequence[AnyMessage]) -> None:
        """Show the end of what was said before."""
        said = [f"{PROMPT}{shown(m)}" if m.type == "human" else shown(m) for m in messages if _is_said(m)]
        if not said:
            return
        lines = "\n".join(said).splitlines()
        more = [f"... {len(lines) - SHOWN} earlier lines"] if len(lines) > SHOWN else []
        for line in [*more, *lines[-SHOWN:]]:
            self._note(line)

    def _note(self, text: str) -> None:
        self.err.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


def default_store(environ: Mapping[str, str] = os.environ, *, windows: bool = os.name == "nt") -> Path:
    """Return where conversations are kept unless somebody says otherwise."""
    if windows:
        local = environ.get("LOCALAPPDATA")
        base = Path(local) if local else Path.home() / "AppData" / "Local"
    else:
        state = environ.get("XDG_STATE_HOME", "")
        # https://specifications.freedesktop.org/basedir-spec/latest/: a relative path is to be ignored.
        base = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return base / "domains" / "chat.sqlite"


def can_keep() -> bool:
    """Whether the extra ``durable`` is installed."""
    try:
        import langgraph.checkpoint.sqlite.aio  # noqa: F401 - to see whether it is there
    except ImportError:
        return False
    return True


def shown(message: BaseMessage) -> str:
    """Return a message's text as a terminal can show it: no tags, and nothing that steers it."""
    text = text_of(message.content)
    if message.response_metadata.get("format") == "html":
        text = plain_text(text)
    return "".join(c for c in text if c in "\n\t" or category(c) != "Cc")


def plain_text(html: str) -> str:
    """Return a fragment of HTML, such as a receipt, as text: a paragraph is a line."""
    lines = re.sub(r"\s*</p>\s*<p>\s*", "\n", html)
    return unescape(re.sub(r"<[^<>]*>", "", lines)).strip()


def course(messages: Sequence[BaseMessage]) -> str:
    """Return in one line which rows decided a turn, and where that led."""
    start = max(at for at, message in enumerate(messages) if message.type == "human")
    outcomes = [outcome_of(m) for m in messages[start:] if isinstance(m, ToolMessage)]
    rows = [f"{each.rule} ({each.reason})" if each else "no artifact" for each in outcomes]
    end = messages[-1].response_metadata
    route = end.get("route", Route.AGENT.value)
    because = [end["stopped_by"]] if "stopped_by" in end else []
    return " -> ".join([*rows, *because, route])


def _is_said(message: BaseMessage) -> bool:
    return message.type == "human" or (isinstance(message, AIMessage) and not message.tool_calls)


def _said(line: str, *, fresh: bool) -> dict[str, list[BaseMessage]]:
    """Return what a turn starts with: on a new thread what the model must know, too."""
    return {"messages": [*([SystemMessage(SYSTEM_PROMPT)] if fresh else []), HumanMessage(line.strip())]}


def _agent(runtime: Runtime, model: BaseChatModel, tools: Sequence[BaseTool], checkpointer: Any) -> Any:
    if runtime == "graph":
        from orchestration.graph import build_graph as build
    else:
        from orchestration.agent import build_agent as build
    return build(model, tools, checkpointer=checkpointer)


@asynccontextmanager
async def _saver(store: Path | None) -> AsyncIterator[Any]:
    if store is None:
        from langgraph.checkpoint.memory import InMemorySaver

        yield InMemorySaver()
        return
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(str(store)) as saver:
        yield saver


# The vendors


@contextmanager
def _shop(store: Path | None) -> Iterator[list[BaseTool]]:
    """Give the tools of all domains over their fakes, and the fakes a memory."""
    fakes = {name: vendor(name) for name in DOMAINS}
    if store is None:
        yield _tools(fakes, lambda _, fake: fake.transport)
        return
    # A file of its own: a write that waits for the saver's would wait for its own event loop.
    path = store.with_name(f"{store.stem}-vendors{store.suffix}")
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as file:
        file.execute(
            "CREATE TABLE IF NOT EXISTS asked"
            " (id INTEGER PRIMARY KEY, vendor TEXT, method TEXT, url TEXT, headers TEXT, body BLOB)"
        )
        yield _tools(fakes, lambda name, fake: httpx.MockTransport(_Memory(file, name, fake)))


def _tools(fakes: Mapping[str, Any], wire: Callable[[str, Any], httpx.AsyncBaseTransport]) -> list[BaseTool]:
    return [
        tool
        for name, fake in fakes.items()
        for tool in DOMAINS[name].tools(async_client=fake.async_client(transport=wire(name, fake)))
    ]


@dataclass(slots=True)
class _Memory:
    """What a fake was asked to do, in the order it was asked.

    A fake has neither a clock nor chance, so that the same requests make it what it was: those of earlier
    processes, and those of one that runs beside this one.
    """

    file: sqlite3.Connection
    name: str
    fake: Any  # a mocks.vendor.Vendor: the composition root alone may name it
    seen: int = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.file.execute("BEGIN IMMEDIATE")  # one process at a time
        try:
            self._catch_up()
            response: httpx.Response = self.fake.transport.handle_request(request)
            if request.method != "GET" and not request.url.path.endswith("/_search"):
                self._keep(request)
        except BaseException:
            self.file.execute("ROLLBACK")
            raise
        self.file.execute("COMMIT")
        return response

    def _catch_up(self) -> None:
        rows = self.file.execute(
            "SELECT id, method, url, headers, body FROM asked WHERE vendor = ? AND id > ? ORDER BY id",
            (self.name, self.seen),
        ).fetchall()
        for self.seen, method, url, kept, body in rows:
            headers = {**self.fake.headers(), **json.loads(kept)}
            self.fake.transport.handle_request(httpx.Request(method, url, headers=headers, content=body))

    def _keep(self, request: httpx.Request) -> None:
        kept = {name: request.headers[name] for name in _KEPT if name in request.headers}
        row = (self.name, request.method, str(request.url), json.dumps(kept), request.content)
        done = self.file.execute(
            "INSERT INTO asked (vendor, method, url, headers, body) VALUES (?, ?, ?, ?, ?)", row
        )
        self.seen = done.lastrowid or self.seen


_KEPT: Final = ("content-type", "idempotency-key")
"""Headers that a fake reads, but for its credential."""


# The model


class Clerk(BaseChatModel):
    """Answers without a key: three kinds of sentence become calls, a tool's answer is read out."""

    @property
    def _llm_type(self) -> str:
        return "clerk"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Bind nothing: a clerk knows the tools."""
        del tools, kwargs
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        del args, kwargs
        return ChatResult(generations=[ChatGeneration(message=_answer(messages))])


def _answer(messages: Sequence[BaseMessage]) -> AIMessage:
    last = messages[-1]
    if isinstance(last, ToolMessage):
        start = max(at for at, m in enumerate(messages) if isinstance(m, AIMessage) and m.tool_calls)
        return AIMessage("\n".join(dict.fromkeys(shown(m) for m in messages[start + 1 :])))
    said = text_of(last.content)
    for sentence, calling in _SENTENCES:
        found = sentence.search(said)
        if found is not None:
            made = calling(found)
            if isinstance(made, str):
                return AIMessage(made)
            name, args = made
            number = sum(len(m.tool_calls) for m in messages if isinstance(m, AIMessage)) + 1
            return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call_{number}"}])
    return AIMessage(f"I am a script, and I know sentences such as: {KNOWN}. With --live a model answers.")


def _ticket(found: "re.Match[str]") -> "tuple[str, dict[str, Any]] | str":
    title = found["rest"].strip(" .:'\"")
    return ("create_ticket", {"title": title}) if title else "What is the ticket about?"


def _payment(found: "re.Match[str]") -> "tuple[str, dict[str, Any]] | str":
    rest = found["rest"]
    cart = re.search(r"\bcart[\w-]*", rest, re.IGNORECASE)
    if cart is None:
        return "Which cart is it? Say for example: pay cart_7 for 19.99."
    price = re.search(r"(?<![\w.,])(\d{1,6})(?:[.,](\d\d))?(?![\w]|[.,]\d)", rest.replace(cart[0], " ", 1))
    if price is None:
        return f"What does {cart[0]} cost? Say for example: pay {cart[0]} for 19.99."
    args: dict[str, Any] = {"cart_id": cart[0], "amount": int(price[1]) * 100 + int(price[2] or 0)}
    if re.search(r"€|\beur(os?)?\b", rest, re.IGNORECASE):
        args["currency"] = "eur"
    card = re.search(r"\bpm_card_\w+", rest)
    return "checkout", {**args, "payment_method": card[0]} if card else args


def _search(found: "re.Match[str]") -> "tuple[str, dict[str, Any]] | str":
    words = found["rest"].strip(" .?!'\"")
    return ("search", {"query": words}) if words else "What are you looking for?"


def _heard(words: str) -> "re.Pattern[str]":
    return re.compile(rf"\b(?:{words})\b(?P<rest>.*)", re.IGNORECASE | re.DOTALL)


_SENTENCES: Final = (
    (_heard(r"ticket(?:\W+(?:about|for|that|saying))?"), _ticket),
    (_heard(r"buy|pay|check\s?out|purchase"), _payment),
    (
        _heard(r"(?:find|search(?:\s+for)?|look\s+for|show(?:\s+me)?|have)(?:\s+(?:an?|the|some|any))?"),
        _search,
    ),
)
"""What the clerk understands, in the order it listens for it."""
