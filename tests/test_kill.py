"""``kill -9`` at twenty named points of a turn that pays: one charge, and nobody is told otherwise.

Every process is a real one; the vendor's fake lives on in this one, behind a loopback socket.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from time import sleep

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, messages_from_dict

from mocks.elasticsearch import ElasticsearchMock
from mocks.stripe import StripeMock
from mocks.vendor import Fault, Vendor
from orchestration.asking import INTERRUPTED

pytest.importorskip("langgraph.checkpoint.sqlite", reason="the extra `durable` is not installed here")
if sys.platform == "win32":
    pytest.skip("there is no SIGKILL here", allow_module_level=True)

from tests.kill_child import OWN_POINTS, Durability, Life, Step, live
from tests.vendor_server import served

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

INTENTS = "/v1/payment_intents"
RECEIPT = "<p>Payment received: <strong>19.99 USD</strong> for cart <strong>cart_7</strong>.</p>"
UNCONFIRMED = "not confirmed"

# Lost: the request arrives and is never carried out. Unheard: it is, and nobody hears the answer. Late: it
# is carried out only when the next process has sent as many requests.
_DEATH = partial(Fault, kind="RemoteProtocolError")
AT_THE_VENDOR = {
    "find-unheard": _DEATH(at=f"GET {INTENTS}", when="after"),
    "create-lost": _DEATH(at=f"POST {INTENTS}", when="before"),
    "create-unheard": _DEATH(at=f"POST {INTENTS}", when="after"),
    "create-late": _DEATH(at=f"POST {INTENTS}", when="late", delay=2),
    "confirm-lost": _DEATH(at=f"POST {INTENTS}/*/confirm", when="before"),
    "confirm-unheard": _DEATH(at=f"POST {INTENTS}/*/confirm", when="after"),
    "confirm-late": _DEATH(at=f"POST {INTENTS}/*/confirm", when="late", delay=3),
}
DEAD: tuple[int, list[list[BaseMessage]]] = (-signal.SIGKILL, [])
"""What is left of a process that was killed in its first step."""

BESIDE = "sibling-running"
"""The payment is done, and another call of the turn is not: the search's server kills the process."""

POINTS = (*OWN_POINTS, *AT_THE_VENDOR, BESIDE)

# A process of its own each time, forked by a server that has imported the frameworks: 0.1 s in place of 2.
_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        *("__main__", "httpcore", "h11", "langgraph.checkpoint.sqlite", "langgraph.func"),
        *("orchestration.graph", "orchestration.agent", "domains.checkout.tool", "domains.search.tool"),
    ]
)


@dataclass
class Till:
    """The vendors of one test, and the processes that call them."""

    folder: Path
    runtime: str
    durability: Durability
    stripe: StripeMock = field(default_factory=StripeMock)
    vendors: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    victim: "Future[int]" = field(default_factory=Future)
    dead: Event = field(default_factory=Event)

    def kill(self) -> None:
        """Kill the first process, as the kernel would."""
        os.kill(self.victim.result(timeout=10), signal.SIGKILL)
        self.dead.set()

    def process(
        self, *steps: Step, point: str | None = None, naive: bool = False
    ) -> tuple[int | None, list[list[BaseMessage]]]:
        """Run a process to its end; returns its exit code, and the history after each step it took."""
        said = self.folder / "said.jsonl"
        said.write_text("", encoding="utf-8")
        life = Life(
            runtime=self.runtime,
            durability=self.durability,
            store=self.folder / "thread.sqlite",
            vendors=self.vendors,
            said=said,
            steps=steps,
            point=point,
            naive=naive,
        )
        child = _FORKS.Process(target=live, args=(life,))
        child.start()
        if not self.victim.done():
            assert child.pid is not None
            self.victim.set_result(child.pid)
        child.join(timeout=60)
        code = child.exitcode
        child.kill()
        child.join()
        child.close()
        rows = [json.loads(line) for line in said.read_text(encoding="utf-8").splitlines()]
        return code, [messages_from_dict(row["messages"]) for row in rows]


@contextmanager
def till(folder: Path, runtime: str, durability: Durability, point: str) -> Iterator[Till]:
    """Open the vendors, the first process's death scripted where they bring it."""
    made = Till(folder, runtime, durability)
    if point in AT_THE_VENDOR:
        made.stripe.script(AT_THE_VENDOR[point])

    def paid_then_killed() -> None:
        if made.dead.is_set():
            return
        for _ in range(500):
            if made.stripe.charged("cart_7"):
                break
            sleep(0.01)
        sleep(0.1)  # create_agent keeps a finished call while its sibling runs
        made.kill()

    with ExitStack() as open_:

        def serve(vendor: Vendor, **hooks: Callable[[], None]) -> tuple[str, dict[str, str]]:
            return open_.enter_context(served(vendor, **hooks)), vendor.headers()

        made.vendors["checkout"] = serve(made.stripe, on_fault=made.kill)
        if point == BESIDE:
            made.vendors["search"] = serve(ElasticsearchMock(), before=paid_then_killed)
        yield made


def assert_answered(messages: list[BaseMessage]) -> None:
    """Assert that every call is answered exactly once, directly after its turn (O3)."""
    due: set[str | None] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in due
            due.remove(message.tool_call_id)
            continue
        assert set() == due
        if isinstance(message, AIMessage):
            due = {call["id"] for call in message.tool_calls}
    assert set() == due
    assert "ai" == messages[-1].type


def answers(messages: list[BaseMessage], tool: str = "checkout") -> list[str]:
    """Return what a tool's calls were answered, in order."""
    return [str(m.content) for m in messages if isinstance(m, ToolMessage) and m.name == tool]


def check(folder: Path, point: str, runtime: str, durability: Durability, then: Step) -> None:
    """Kill the turn at the point, go on in a second process, pay again, and judge."""
    with till(folder, runtime, durability, point) as shop:
        assert DEAD == shop.process("pay", point=point if point in OWN_POINTS else None)
        before = len(shop.stripe.charged("cart_7"))

        code, histories = shop.process(then, "pay")

        shop.stripe.settle()
        assert 0 == code
        for messages in histories:
            assert_answered(messages)
            assert all(said == RECEIPT or UNCONFIRMED in said for said in answers(messages))
            assert any(words in str(messages[-1].content) for words in (RECEIPT, UNCONFIRMED))
        assert RECEIPT in histories[-1][-1].content
        assert before <= 1
        assert 1 == len(shop.stripe.charged("cart_7"))
        assert [] == shop.stripe.unmatched


SAMPLE: list[tuple[str, str, Durability, Step]] = [
    ("confirm-unheard", "graph", "async", "resume"),
    ("confirm-unheard", "agent", "sync", "pay"),
    ("confirm-late", "agent", "sync", "resume"),
    ("create-late", "graph", "sync", "pay"),
    ("answer-unwritten", "graph", "sync", "resume"),
    ("sibling-running", "agent", "async", "resume"),
]
EVERY = list(product(POINTS, ["graph", "agent"], ["sync", "async"], ["resume", "pay"]))


def test_points() -> None:
    """There are twenty points, each with a name of its own."""
    assert 20 == len(set(POINTS))


@pytest.mark.parametrize(("point", "runtime", "durability", "then"), SAMPLE)
def test_death(point: str, runtime: str, durability: Durability, then: Step, tmp_path: Path) -> None:
    """A turn that is killed is gone on with, or asked for anew: one charge, and a receipt in the end."""
    check(tmp_path, point, runtime, durability, then)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "runtime", "durability", "then"), [each for each in EVERY if each not in SAMPLE]
)
def test_every_death(point: str, runtime: str, durability: Durability, then: Step, tmp_path: Path) -> None:
    """At every point, on both runtimes, saved at once or later: one charge, and a receipt in the end."""
    check(tmp_path, point, runtime, durability, then)


@pytest.mark.parametrize("runtime", ["graph", "agent"])
def test_death_of_the_repair(runtime: str, tmp_path: Path) -> None:
    """A run that dies before it could save the repair of the one before it leaves no call unanswered."""
    with till(tmp_path, runtime, "sync", "confirm-unheard") as shop:
        assert DEAD == shop.process("pay")
        assert DEAD == shop.process("pay", point="model-answered")

        _, [messages] = shop.process("pay")

        assert_answered(messages)
        assert [INTERRUPTED, RECEIPT] == answers(messages)
        assert ["human", "ai", "tool", "human", "human", "ai", "tool", "ai"] == [m.type for m in messages]
        assert 1 == len(shop.stripe.charged("cart_7"))


def test_a_tool_that_does_not_look_charges_twice(tmp_path: Path) -> None:
    """The same death finds out a tool that pays under a new key each time: these tests can fail."""
    with till(tmp_path, "graph", "sync", "create-unheard") as shop:
        assert DEAD == shop.process("pay", naive=True)

        shop.process("resume", naive=True)

        assert 2 == len(shop.stripe.charged("cart_7"))
