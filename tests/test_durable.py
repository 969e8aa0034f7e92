"""A turn that is saved, interrupted, retried or cancelled decides as before, and charges a cart once."""

import asyncio
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from fnmatch import fnmatchcase
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, interrupt
from rich.console import Console
from typer.testing import CliRunner

from domains import DOMAINS
from domains.chat import GO_ON, Chat, Clerk, course, default_store, plain_text, shown
from domains.checkout.tool import Order, pay
from domains.checkout.tool import tools as checkout_tools
from domains.cli import app as command_line
from domains.mapping import run
from domains.runner import vendor
from mocks.groq import GroqMock, unauthorized
from mocks.model import ScriptedModel
from mocks.stripe import StripeMock
from orchestration import Effect, Outcome, Reason, decide
from orchestration.asking import INTERRUPTED, repaired
from orchestration.graph import build_graph
from orchestration.tools import EARLIER_UNCONFIRMED, prepare
from tests.runtimes import Runtime, assert_valid, call, turn

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

RECEIPT = "<p>Payment received: <strong>19.99 USD</strong> for cart <strong>cart_7</strong>.</p>"
CART: dict[str, Any] = {"cart_id": "cart_7", "amount": 1999}
CONFIG: Any = {"configurable": {"thread_id": "t"}}


def said(text: str) -> dict[str, Any]:
    """Return what starts a turn."""
    return {"messages": [HumanMessage(text)]}


def asks(call_id: str = "c1", **more: Any) -> AIMessage:
    """Return a turn that calls checkout."""
    return turn(call("checkout", call_id, **CART, **more))


# What a checkpoint makes of messages


def packed(messages: list[AnyMessage], **settings: Any) -> list[AnyMessage]:
    """Return the messages after langgraph's own serialiser."""
    try:
        serde = JsonPlusSerializer(**settings)
    except TypeError:
        pytest.skip("this langgraph has no strict mode")
    copies: list[AnyMessage] = serde.loads_typed(serde.dumps_typed(messages))
    return copies


def through_sqlite(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return the messages after a thread in SQLite, read by another saver."""
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite", reason="the extra `durable` is not installed")
    graph = StateGraph(MessagesState).add_node("n", lambda _: {}).add_edge(START, "n")
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as file:
        graph.compile(sqlite.SqliteSaver(file)).invoke({"messages": messages}, CONFIG)
        read: list[AnyMessage] = graph.compile(sqlite.SqliteSaver(file)).get_state(CONFIG).values["messages"]
    return read


FORMS: dict[str, Callable[[list[AnyMessage]], Any]] = {
    "msgpack": packed,
    "strict msgpack": partial(packed, allowed_msgpack_modules=None),
    "sqlite": through_sqlite,
    "messages_from_dict": lambda messages: messages_from_dict([message_to_dict(m) for m in messages]),
    "json": lambda messages: messages_from_dict(
        json.loads(json.dumps([message_to_dict(m) for m in messages]))
    ),
    "dicts": lambda messages: [m.model_dump() for m in messages],
}


def turns_of(domain: str) -> list[list[AnyMessage]]:
    """Return the domain's sample call with its answer, one history a reason."""
    histories = []
    for settings, forced in DOMAINS[domain].forced.values():
        ask = DOMAINS[domain].sample
        model = ScriptedModel([turn(call(ask.tool, "c1", **ask.args))], narration="So.")
        tools = DOMAINS[domain].tools(client=vendor(domain, settings, forced).client())
        histories.append(build_graph(model, tools).invoke(said("Pay for cart_7."))["messages"][:3])
    return histories


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("domain", DOMAINS)
def test_decisions_after_a_round_trip(
    domain: str, form: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reason of every domain decides as it did, and no checkpoint warns of a type of ours (B38, O8)."""
    for name in ("_warned_unregistered_types", "_warned_blocked_types"):
        monkeypatch.setattr(jsonplus, name, set(), raising=False)
    histories = turns_of(domain)
    with caplog.at_level(logging.WARNING, logger="langgraph"):
        copies = [FORMS[form](messages) for messages in histories]

    assert 4 == len({decide(messages).rule for messages in histories})
    assert [decide(messages) for messages in histories] == [decide(messages) for messages in copies]
    assert [] == [record.getMessage() for record in caplog.records if record.name.startswith("langgraph")]


def test_an_object_in_an_artifact_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """What the artifact is kept free of: an enum comes back with a warning, or not at all."""
    message = ToolMessage("Paid.", tool_call_id="c1", artifact={"stop": True, "reason": Reason.COMPLETED})
    with caplog.at_level(logging.WARNING, logger="langgraph"):
        packed([message], allowed_msgpack_modules=None)

    assert any("orchestration" in record.getMessage() for record in caplog.records)


# Interrupt and resume


@tool
def approve(what: str) -> str:
    """Ask a person."""
    return f"{what}: {interrupt(what)}"


def resumed(app: Any, value: str, config: Any = None) -> list[AnyMessage]:
    """Resume a run, and return its messages."""
    messages: list[AnyMessage] = app.invoke(Command(resume=value), config or CONFIG)["messages"]
    return messages


def test_approval_beside_a_charge(runtime: Runtime) -> None:
    """However often, and with whatever value, an approval is resumed: its sibling charges once (B04)."""
    shop = StripeMock()
    asked = turn(call("checkout", "c1", **CART), call("approve", "c2", what="gift wrap"))
    model = ScriptedModel([asked], narration="Done.")
    tools = [*checkout_tools(client=shop.client()), approve]
    app = runtime.build(model, tools, checkpointer=InMemorySaver())
    app.invoke(said("Pay for cart_7."), CONFIG)
    waiting = app.get_state(CONFIG).config

    for value in ("yes", "no"):
        messages = resumed(app, value, waiting)
        assert_valid(messages)
        charged, approved = (m.content for m in messages if m.type == "tool")
        assert RECEIPT == charged
        assert approved in {"gift wrap: yes", "gift wrap: no"}  # what was resumed before is replayed
    assert 1 == len(shop.charged("cart_7"))


def test_charge_then_ask(runtime: Runtime) -> None:
    """A tool body that charges and then asks runs anew on every resume, and charges once (B04)."""
    shop = StripeMock()
    order = Order(
        account="default",
        customer="cus_demo",
        cart="cart_7",
        amount=1999,
        currency="usd",
        card="pm_card_visa",
        note="",
        return_url=None,
    )

    def pay_and_ask() -> tuple[str, dict[str, Any]]:
        """Pay for the cart, and ask whether to send a receipt."""
        paid = run(pay(order), shop.client())
        interrupt("send a receipt?")
        return paid.as_tool_result()

    ask = StructuredTool.from_function(pay_and_ask, response_format="content_and_artifact")
    app = runtime.build(ScriptedModel([turn(call("pay_and_ask", "c1"))]), [ask], checkpointer=InMemorySaver())
    app.invoke(said("Pay for cart_7."), CONFIG)
    waiting = app.get_state(CONFIG).config
    assert 1 == len(shop.charged("cart_7"))

    for value in ("yes", "no"):
        messages = resumed(app, value, waiting)
        assert_valid(messages)
        assert RECEIPT == messages[-1].content
    assert 1 == len(shop.charged("cart_7"))


def test_a_message_in_place_of_an_approval(runtime: Runtime) -> None:
    """A user who writes on where an approval waits leaves no call unanswered."""
    shop = StripeMock()
    model = ScriptedModel([turn(call("approve", "c1", what="this")), asks("c2")])
    app = runtime.build(model, [*checkout_tools(client=shop.client()), approve], checkpointer=InMemorySaver())
    app.invoke(said("Pay for cart_7."), CONFIG)

    messages = runtime(app, "Never mind, pay.", thread_id="t")

    assert_valid(messages)
    assert [INTERRUPTED, RECEIPT] == [m.content for m in messages if m.type == "tool"]


# Retries

RETRY = RetryPolicy(
    initial_interval=0.0, max_interval=0.0, max_attempts=3, jitter=False, retry_on=ConnectionError
)


def broken(times: int) -> Callable[[], None]:
    """Return a function that fails so many times."""
    left = [ConnectionError("no route")] * times

    def once() -> None:
        if left:
            raise left.pop()

    return once


def test_retried_node_of_ones_own() -> None:
    """A tools node of somebody else's graph that fails after the charge is retried: one charge."""
    shop, fails = StripeMock(), broken(2)
    node = ToolNode(prepare(checkout_tools(client=shop.client())))

    def tools(state: MessagesState) -> Any:
        answered = node.invoke(state)
        fails()
        return answered

    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda _: {"messages": [asks()]})
    graph.add_node("tools", tools, retry_policy=RETRY)
    graph.add_edge(START, "agent").add_edge("agent", "tools").add_edge("tools", END)

    messages = graph.compile().invoke(cast("Any", said("Pay for cart_7.")))["messages"]

    assert RECEIPT == messages[-1].content
    assert 1 == len(shop.charged("cart_7"))
    assert 3 == [seen.path for seen in shop.requests].count("/v1/payment_intents") - 1


def test_retried_node_of_the_graph() -> None:
    """The hand-built graph's own tools node takes a RetryPolicy: a raising sibling's retries charge once."""
    shop, fails = StripeMock(), broken(2)

    @tool
    def look() -> str:
        """Look."""
        fails()
        return "There."

    tools: list[BaseTool] = [*checkout_tools(client=shop.client()), look]
    model = ScriptedModel([turn(call("checkout", "c1", **CART), call("look", "c2"))], narration="Done.")
    builder = build_graph(model, tools, strict=True).builder
    builder.nodes["tools"].retry_policy = RETRY

    messages = builder.compile().invoke(said("Pay for cart_7."))["messages"]

    assert_valid(messages)
    assert [RECEIPT, "There."] == [m.content for m in messages if m.type == "tool"]
    assert 1 == len(shop.charged("cart_7"))


# Cancellation

REQUESTS = {
    "find": "GET /v1/payment_intents",
    "create": "POST /v1/payment_intents",
    "confirm": "POST /v1/payment_intents/*/confirm",
}


class Hanging(httpx.AsyncBaseTransport):
    """A wire to the vendor that hangs once, before or after the vendor's work."""

    def __init__(self, shop: StripeMock, at: str, *, done: bool) -> None:
        self.shop, self.at, self.done = shop, at, done
        self.reached = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Hang at the request, once."""
        here = fnmatchcase(f"{request.method} {request.url.path}", self.at) and not self.reached.is_set()
        await request.aread()
        if here and not self.done:
            await self._hang()
        response = self.shop.transport.handle_request(request)
        if here:
            await self._hang()
        return response

    async def _hang(self) -> None:
        self.reached.set()
        await asyncio.sleep(60)


async def cancelled(way: str, running: Any, reached: asyncio.Event) -> None:
    """Cancel a run once it has got there, from outside or by a time limit."""
    if way == "wait_for":

        async def limit() -> None:
            await reached.wait()

        task = asyncio.ensure_future(running)
        await asyncio.wait_for(limit(), 10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 0.01)
        return
    task = asyncio.ensure_future(running)
    await asyncio.wait_for(reached.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("way", ["cancel", "wait_for"])
@pytest.mark.parametrize("done", [False, True], ids=["lost", "done"])
@pytest.mark.parametrize("at", REQUESTS)
def test_cancelled_in_a_charge(at: str, done: bool, way: str, runtime: Runtime) -> None:
    """A turn cancelled at any request is reported as not confirmed, and charged for once."""

    async def both_turns() -> list[AnyMessage]:
        shop = StripeMock()
        wire = Hanging(shop, REQUESTS[at], done=done)
        tools = checkout_tools(async_client=shop.async_client(transport=wire))
        app = runtime.build(ScriptedModel([asks("c1"), asks("c2")]), tools, checkpointer=InMemorySaver())
        await cancelled(way, app.ainvoke(said("Pay for cart_7."), CONFIG), wire.reached)
        assert (at == "confirm" and done) == bool(shop.charged("cart_7"))
        ended = await app.ainvoke(said("Did it work? If not, pay."), CONFIG)
        assert 1 == len(shop.charged("cart_7"))
        messages: list[AnyMessage] = ended["messages"]
        return messages

    messages = asyncio.run(both_turns())

    assert_valid(messages)
    assert [INTERRUPTED, RECEIPT] == [m.content for m in messages if m.type == "tool"]
    assert "not confirmed" in INTERRUPTED
    assert RECEIPT == messages[-1].content


@pytest.mark.parametrize("between", ["model", "save", "relay"])
def test_cancelled_between(between: str, runtime: Runtime) -> None:
    """A turn cancelled while the model is asked, or while its charge is saved, leaves a whole thread."""

    async def both_turns() -> tuple[int, list[AnyMessage]]:
        shop, reached = StripeMock(), asyncio.Event()

        async def hang(seconds: float) -> None:
            if not reached.is_set():
                reached.set()
                await asyncio.sleep(seconds)

        class Model(ScriptedModel):
            async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
                if between == "model":
                    await hang(60)
                return await super()._agenerate(*args, **kwargs)

        class Saver(InMemorySaver):
            async def aput_writes(self, config: Any, writes: Any, *rest: Any) -> None:
                kinds = {m.type for name, value in writes if name == "messages" for m in value}
                if between == "save" and kinds == {"tool"}:
                    await hang(0.1)  # langgraph waits for it: a save is not cancelled
                await super().aput_writes(config, writes, *rest)
                if between == "relay" and kinds == {"tool"}:
                    await hang(0.1)

        tools = checkout_tools(async_client=shop.async_client())
        app = runtime.build(cast("Any", Model)([asks("c1"), asks("c2")]), tools, checkpointer=Saver())
        await cancelled("cancel", app.ainvoke(said("Pay for cart_7."), CONFIG, durability="sync"), reached)
        ended = await app.ainvoke(said("Pay."), CONFIG)
        return len(shop.charged("cart_7")), ended["messages"]

    charges, messages = asyncio.run(both_turns())

    assert_valid(messages)
    assert 1 == charges
    assert RECEIPT == messages[-1].content


def test_ctrl_c_in_a_charge(runtime: Runtime) -> None:
    """Ctrl-C in a sync run, with the charge done and its answer unread: one charge, and a whole thread."""
    shop = StripeMock()
    pressed: list[str] = []

    def send(request: httpx.Request) -> httpx.Response:
        response = shop.transport.handle_request(request)
        if request.url.path.endswith("/confirm") and not pressed:
            pressed.append("^C")
            raise KeyboardInterrupt
        return response

    tools = checkout_tools(client=shop.client(transport=httpx.MockTransport(send)))
    app = runtime.build(ScriptedModel([asks("c1"), asks("c2")]), tools, checkpointer=InMemorySaver())
    with pytest.raises(KeyboardInterrupt):
        app.invoke(said("Pay for cart_7."), CONFIG)

    messages = runtime(app, "Pay.", thread_id="t")

    assert_valid(messages)
    assert [INTERRUPTED, RECEIPT] == [m.content for m in messages if m.type == "tool"]
    assert 1 == len(shop.charged("cart_7"))


# The repair


def test_whole_histories_are_left_alone() -> None:
    """A history in which every call is answered needs no repair, whatever its ids."""
    done: list[AnyMessage] = [
        HumanMessage("Pay."),
        asks(),
        ToolMessage("Paid.", tool_call_id="c1"),
        AIMessage("Done."),
    ]

    assert None is repaired([])
    assert None is repaired([*done, *done])


def test_every_dead_turn_is_repaired() -> None:
    """Runs that died one after another, under the same ids, leave each call one answer, after its turn."""
    messages: list[AnyMessage] = [
        *(HumanMessage("Pay."), asks("c1"), HumanMessage("Pay!")),
        *(turn(call("checkout", "c1", **CART), call("search", "c2", query="mug")),),
        *(ToolMessage("Paid.", tool_call_id="c1"), HumanMessage("And?"), HumanMessage("Hello?")),
    ]

    whole = repaired(messages)

    assert whole is not None
    assert_valid([*whole, AIMessage("Here.")])
    assert [INTERRUPTED, "Paid.", INTERRUPTED] == [m.content for m in whole if m.type == "tool"]
    assert messages == [m for m in whole if m in messages]
    assert None is repaired(whole)


def test_an_interrupted_call_is_unknown(runtime: Runtime) -> None:
    """A payment that is declined after an interrupted one may be paid yet, and both texts say so."""
    shop = StripeMock(declines={"pm_card_mastercard": ["do_not_honor"]})
    model = ScriptedModel([asks("c2", payment_method="pm_card_mastercard")])
    app = runtime.build(model, checkout_tools(client=shop.client()))

    messages = runtime(app, {"messages": [("user", "Pay."), asks("c1"), ("user", "With my other card.")]})

    assert_valid(messages)
    interrupted, declined = (m for m in messages if isinstance(m, ToolMessage))
    assert (INTERRUPTED, "unknown") == (interrupted.content, interrupted.artifact["effect"])
    assert ("fatal", "unknown") == (declined.artifact["reason"], declined.artifact["effect"])
    assert str(messages[-1].content).endswith(EARLIER_UNCONFIRMED)


# The conversation in the terminal


def chat(store: Path, *lines: str, thread: str = "t", runtime: str = "graph") -> Any:
    """Have a conversation over a pipe."""
    pytest.importorskip("langgraph.checkpoint.sqlite", reason="the extra `durable` is not installed")
    arguments = ["chat", "--store", str(store), "--thread", thread, "--runtime", runtime]
    return CliRunner().invoke(command_line, arguments, input="".join(f"{line}\n" for line in lines))


def confirms(store: Path) -> int:
    """Count the confirms that the fakes of a store were ever asked for."""
    with closing(sqlite3.connect(store.with_name(f"{store.stem}-vendors{store.suffix}"))) as file:
        (count,) = file.execute("SELECT count(*) FROM asked WHERE url LIKE '%/confirm'").fetchone()
    return int(count)


@pytest.mark.parametrize("runtime", ["graph", "agent"])
def test_chat_goes_on(runtime: str, tmp_path: Path) -> None:
    """A conversation goes on after a restart, and a paid cart is paid in every thread of its store."""
    store = tmp_path / "deep" / "chat.sqlite"
    first = chat(store, "find mugs", "pay cart_7 for 19.99", runtime=runtime)
    again = chat(store, "pay cart_7 for 19.99", runtime=runtime)
    other = chat(store, "pay cart_7 for 19.99", thread="u", runtime=runtime)

    assert [0, 0, 0] == [first.exit_code, again.exit_code, other.exit_code]
    assert first.stdout.startswith("Found 5 results:\n1. Blue mug")
    for ended in (first, again, other):
        assert ended.stdout.endswith("Payment received: 19.99 USD for cart cart_7.\n")
    assert "you> pay cart_7 for 19.99" in again.stderr
    assert "you>" not in other.stderr
    assert "checkout/paid (completed) -> completed -> finalize" in other.stderr
    assert 1 == confirms(store)


def test_chat_ends(tmp_path: Path) -> None:
    """The end of the input is the end, with nothing said as with something."""
    ended = chat(tmp_path / "chat.sqlite")

    assert (0, "") == (ended.exit_code, ended.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--thread", " "], "--thread needs an id"),
        (["--live"], "--live needs GROQ_API_KEY"),
        (["--store", "junk"], "file is not a database"),
    ],
)
def test_chat_refuses(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that cannot be carried out says why in one line, and exits 2."""
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("junk").write_text("no database at all", encoding="utf-8")

    ended = CliRunner().invoke(command_line, ["chat", *arguments], input="")

    assert 2 == ended.exit_code
    assert said in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_chat_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra it talks, keeps nothing and says how to; a store that was asked for is refused."""
    monkeypatch.setitem(sys.modules, "langgraph.checkpoint.sqlite.aio", None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ended = CliRunner().invoke(command_line, ["chat"], input="pay cart_7 for 19.99\n")
    refused = CliRunner().invoke(command_line, ["chat", "--store", "x"], input="")

    assert (0, "Payment received: 19.99 USD for cart cart_7.\n") == (ended.exit_code, ended.stdout)
    assert "pip install 'short-circuit[durable]'" in ended.stderr
    assert [] == list(tmp_path.iterdir())
    assert 2 == refused.exit_code


class Stubborn(Clerk):
    """A model that is interrupted by Ctrl-C the first time it is asked."""

    asked: list[int] = []  # noqa: RUF012 - a field, copied for each model

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.asked.append(len(messages))
        if len(self.asked) == 1:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        return self._generate(messages)


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot press Ctrl-C here")
def test_ctrl_c_keeps_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C stops the turn, Enter finishes it, and Ctrl-D ends it all."""
    lines = iter(["pay cart_7 for 19.99", "", ""])
    stdin = StringIO()
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)

    def typed(_: str) -> str:
        with suppress(StopIteration):
            return next(lines)
        raise EOFError

    monkeypatch.setattr("builtins.input", typed)
    out, err = StringIO(), StringIO()
    model = Stubborn()
    talk = Chat(
        thread="t", runtime="graph", store=None, model=model, out=Console(file=out), err=Console(file=err)
    )

    assert False is talk.run()
    assert "Payment received: 19.99 USD for cart cart_7.\n" == out.getvalue()
    assert f"Stopped. {GO_ON}" in err.getvalue()
    assert [2, 2] == model.asked


def test_a_model_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider's refusal is said in one line, the turn waits, and an empty line asks again."""
    monkeypatch.setattr(sys, "stdin", StringIO("Pay for cart_7.\n\n"))
    out, err = StringIO(), StringIO()
    wire = GroqMock([unauthorized(), asks()])
    talk = Chat(
        thread="t",
        runtime="graph",
        store=None,
        model=wire.model(),
        out=Console(file=out),
        err=Console(file=err),
    )

    assert False is talk.run()
    assert "Groq answered 401 (AuthenticationError). Enter asks again.\n" in err.getvalue()
    assert "Payment received: 19.99 USD for cart cart_7.\n" == out.getvalue()
    assert ["system", "user"] == [message["role"] for message in wire.requests[0]["messages"]]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL here")
def test_chat_killed(tmp_path: Path) -> None:
    """A conversation whose process was killed goes on in the next one."""
    store = tmp_path / "chat.sqlite"
    command = [sys.executable, "-m", "domains", "chat", "--store", str(store)]
    with subprocess.Popen(  # noqa: S603 - our own command line
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("pay cart_7 for 19.99\n")
        child.stdin.flush()
        assert "Payment received: 19.99 USD for cart cart_7.\n" == child.stdout.readline()
        child.kill()

    ended = chat(store, "pay cart_7 for 19.99", thread="default")

    assert "you> pay cart_7 for 19.99" in ended.stderr
    assert "Payment received: 19.99 USD for cart cart_7.\n" == ended.stdout
    assert 1 == confirms(store)


def clerk(*messages: Any) -> AIMessage:
    """Return what the clerk says."""
    answer = Clerk().invoke(list(messages))
    assert isinstance(answer, AIMessage)
    return answer


@pytest.mark.parametrize(
    ("said", "name", "args"),
    [
        ("find mugs", "search", {"query": "mugs"}),
        ("Do you have a blue mug?", "search", {"query": "blue mug"}),
        ("please look for the desk lamp.", "search", {"query": "desk lamp"}),
        ("pay cart_7 for 19.99", "checkout", {"cart_id": "cart_7", "amount": 1999}),
        ("Buy cart-12, it is $5", "checkout", {"cart_id": "cart-12", "amount": 500}),
        ("pay 7,50 € for cart_9", "checkout", {"cart_id": "cart_9", "amount": 750, "currency": "eur"}),
        (
            "pay cart_7 for 19.99 with pm_card_mastercard",
            "checkout",
            {"cart_id": "cart_7", "amount": 1999, "payment_method": "pm_card_mastercard"},
        ),
        ("open a ticket: my mug is broken", "create_ticket", {"title": "my mug is broken"}),
        ("File a ticket about a late parcel.", "create_ticket", {"title": "a late parcel"}),
    ],
)
def test_clerk(said: str, name: str, args: dict[str, Any]) -> None:
    """The scripted model makes a call of a sentence."""
    calls = clerk(HumanMessage(said)).tool_calls

    assert [(name, args, "call_1")] == [(made["name"], made["args"], made["id"]) for made in calls]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("pay cart_7", "What does cart_7 cost?"),
        ("pay cart_7 for 1,999", "What does cart_7 cost?"),
        ("buy it", "Which cart is it?"),
        ("find", "What are you looking for?"),
        ("open a ticket", "What is the ticket about?"),
        ("tell me a joke", "I am a script, and I know sentences such as: find mugs"),
    ],
)
def test_clerk_asks_back(said: str, answer: str) -> None:
    """A sentence that lacks something is asked about, and no amount is guessed."""
    came = clerk(HumanMessage(said))

    assert [] == came.tool_calls
    assert str(came.content).startswith(answer)


def test_clerk_reads_answers_out() -> None:
    """What tools answered is read out, and a later call has an id of its own."""
    busy = ToolMessage("Busy.", tool_call_id="c1")

    assert "Busy." == clerk(HumanMessage("Pay."), asks(), busy).content
    assert "call_2" == clerk(asks(), busy, HumanMessage("find mugs")).tool_calls[0]["id"]


def test_what_a_terminal_is_shown() -> None:
    """A receipt is shown without its tags, and nothing that is shown steers the terminal."""
    html = AIMessage(
        "<p>Paid &amp; <b>sent</b>.</p><p>Note: &lt;hi&gt;</p>", response_metadata={"format": "html"}
    )

    assert "Paid & sent.\nNote: <hi>" == shown(html)
    assert "a < b" == shown(AIMessage("a < b"))
    assert "[31mred\n" == shown(AIMessage("\x1b[31mred\x07\n"))
    assert "one\ntwo" == plain_text("<p>one</p>\n\n<p>two</p>")


def test_course_names_the_rows() -> None:
    """The line under an answer names the rows of this turn alone."""
    outcome = Outcome("Busy.", Reason.TRANSIENT, "pay/busy", Effect.NONE)
    content, artifact = outcome.as_tool_result()
    messages = [
        *(HumanMessage("Pay."), asks(), ToolMessage("Paid.", tool_call_id="c1"), HumanMessage("Again.")),
        *(asks(), ToolMessage(content, artifact=artifact, tool_call_id="c1"), AIMessage("Later.")),
    ]

    assert "pay/busy (transient) -> agent" == course(messages)
    assert "agent" == course([HumanMessage("Hello."), AIMessage("Hello.")])


def test_default_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Conversations are kept where the platform keeps an application's state."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)

    assert tmp_path / ".local/state/domains/chat.sqlite" == default_store({}, windows=False)
    assert tmp_path / "s/domains/chat.sqlite" == default_store(
        {"XDG_STATE_HOME": str(tmp_path / "s")}, windows=False
    )
    assert tmp_path / ".local/state/domains/chat.sqlite" == default_store(
        {"XDG_STATE_HOME": "relative"}, windows=False
    )
    assert tmp_path / "l/domains/chat.sqlite" == default_store(
        {"LOCALAPPDATA": str(tmp_path / "l")}, windows=True
    )
