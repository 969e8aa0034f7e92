"""What routing costs, as ratios of two things measured side by side in one process.

``uv run pytest tests/benchmarks -m slow -n 0 -s`` prints the figures; README shows some of them. Times differ
from machine to machine; ratios are what is asserted on.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool

import orchestration.graph
from domains.checkout.rules import BOOK
from domains.infrastructure import BARE
from domains.mapping import Reply
from mocks.model import ScriptedModel
from orchestration import Outcome, Reason, decide
from orchestration.agent import build_agent
from orchestration.graph import build_graph

pytestmark = pytest.mark.slow

DONE = Outcome("Paid 19.99 for cart 7.", Reason.COMPLETED, "checkout/paid", domain="checkout", key="k")
CALL = {"name": "pay", "args": {"cart": "7"}, "id": "call_1"}


def side_by_side(
    first: Callable[[], Any], second: Callable[[], Any], rounds: int = 60, each: int = 1
) -> float:
    """Return how much longer ``first`` takes: the median ratio of pairs run in turn, whichever goes first."""
    ratios = []
    for at in range(rounds):
        pair = {}
        for name, run in ((0, first), (1, second)) if at % 2 else ((1, second), (0, first)):
            start = time.perf_counter()
            for _ in range(each):
                run()
            pair[name] = time.perf_counter() - start
        ratios.append(pair[0] / pair[1])
    return median(ratios)


def tell(benchmark: Any, what: str, ratio: float) -> None:
    """Keep a ratio beside the benchmark's own figures, and print it (``-s`` shows it)."""
    benchmark.extra_info[what] = round(ratio, 3)
    print(f"\n{what} = {ratio:.2f}")  # noqa: T201 - the figures are the point


def history(length: int) -> list[AnyMessage]:
    """Return a thread of that many messages that ends in one finished call."""
    content, artifact = DONE.as_tool_result()
    # Each with an id of its own: add_messages folds what has the same.
    earlier: list[AnyMessage] = [
        message
        for at in range(length // 2)
        for message in (HumanMessage("Hello.", id=f"h{at}"), AIMessage("Hello, what can I do?", id=f"a{at}"))
    ]
    answer = ToolMessage(content, artifact=artifact, tool_call_id="call_1")
    return [*earlier, HumanMessage("Pay."), AIMessage("", id="m", tool_calls=[CALL]), answer]


def pay(*, direct: bool = False) -> BaseTool:
    """Return a tool that does nothing but answer."""

    def answer(cart: str) -> tuple[str, Any]:
        """Pay."""
        return DONE.as_tool_result()

    return tool("pay", response_format="content_and_artifact", return_direct=direct)(answer)


def asked(agent: Any) -> Callable[[], Any]:
    """Return one whole run of an agent whose model calls the tool once."""
    return lambda: agent.invoke({"messages": [("user", "Pay.")]})


def model(runs: int = 5_000) -> ScriptedModel:
    """Return a model with enough turns for every run."""
    return ScriptedModel(turns=[AIMessage("", tool_calls=[CALL])] * runs)


def test_decide_is_flat(benchmark: Any) -> None:
    """A decision costs the same after 10 messages and after 10,000."""
    short, long = history(10), history(10_000)
    ratio = side_by_side(lambda: decide(long), lambda: decide(short), each=200)
    tell(benchmark, "10,000 messages : 10", ratio)
    benchmark(decide, long)
    assert ratio < 1.25


def test_classify_scales_with_rows(benchmark: Any) -> None:
    """A page of 5 MB costs no more to classify than one of 5 KB."""
    small, large = (_page(size) for size in (5_000, 5_000_000))
    ratio = side_by_side(
        lambda: BARE.classify(Reply(response=large)), lambda: BARE.classify(Reply(response=small)), each=50
    )
    tell(benchmark, "5 MB : 5 KB", ratio)
    body = {"error": {"type": "card_error", "code": "card_declined", "decline_code": "insufficient_funds"}}
    decline = httpx.Response(402, json=body)
    benchmark(lambda: BOOK.classify(Reply(response=decline)))
    assert ratio < 1.5


def _page(size: int) -> httpx.Response:
    return httpx.Response(502, headers={"content-type": "text/html"}, content=b"<html>502" + b"." * size)


def test_whole_run_against_a_constant_decision(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deciding is lost in what a graph costs anyway: at most 5 % of a whole run."""
    routed = asked(build_graph(model(), [pay()]))
    constant = decide(history(0))
    fixed = asked(build_graph(model(), [pay()]))

    def unrouted() -> None:
        with monkeypatch.context() as patch:
            for name in ("decided", "stopped"):
                patch.setattr(orchestration.graph, name, lambda *_: constant)
            fixed()

    # The least of three: what else the machine does only ever adds.
    ratio = min(side_by_side(routed, unrouted, rounds=150) for _ in range(3))
    tell(benchmark, "whole run : constant decision", ratio)
    benchmark(routed)
    assert ratio < 1.05


def test_whole_runs_beside_return_direct(benchmark: Any) -> None:
    """A stop by outcome costs little beside one by a static flag, and saves the second model call."""
    direct = asked(create_agent(model(), [pay(direct=True)]))
    graph, agent = asked(build_graph(model(), [pay()])), asked(build_agent(model(), [pay()]))
    ratios = {
        name: side_by_side(run, direct, rounds=150) for name, run in (("graph", graph), ("agent", agent))
    }
    tell(benchmark, "graph : return_direct", ratios["graph"])
    tell(benchmark, "agent : return_direct", ratios["agent"])
    benchmark(agent)
    assert ratios["graph"] < 2
    assert ratios["agent"] < 2.5


def test_history_growth(benchmark: Any) -> None:
    """What 2,000 messages more cost a run is langgraph's own work, and at most twice as much of it."""
    short, long = history(10)[:-2], history(2_000)[:-2]
    apps: dict[str, Any] = {
        "graph": build_graph(model(), [pay()]),
        "agent": build_agent(model(), [pay()]),
        "return_direct": create_agent(model(), [pay(direct=True)]),
    }
    assert len(long) + 3 == len(apps["graph"].invoke({"messages": long})["messages"])

    def takes(app: Any, messages: list[AnyMessage]) -> float:
        start = time.perf_counter()
        app.invoke({"messages": messages})
        return time.perf_counter() - start

    rounds = [{name: takes(app, long) - takes(app, short) for name, app in apps.items()} for _ in range(30)]
    growth = {name: median(each[name] for each in rounds) for name in apps}
    for name in ("graph", "agent"):
        ratio = growth[name] / growth["return_direct"]
        tell(benchmark, f"{name} : return_direct, what 2,000 messages add", ratio)
        assert ratio < 2
    benchmark.pedantic(lambda: apps["agent"].invoke({"messages": long}), rounds=5)


def test_concurrency(benchmark: Any) -> None:
    """Fifty runs whose tool waits wait together: nothing is held from one run to the next."""

    @tool("pay", response_format="content_and_artifact")
    async def waits(cart: str) -> tuple[str, Any]:
        """Pay."""
        await asyncio.sleep(0.02)
        return DONE.as_tool_result()

    agent = build_graph(model(), [waits])

    async def together() -> None:
        await asyncio.gather(*(agent.ainvoke({"messages": [("user", "Pay.")]}) for _ in range(50)))

    async def in_turn() -> None:
        for _ in range(50):
            await agent.ainvoke({"messages": [("user", "Pay.")]})

    ratio = side_by_side(lambda: asyncio.run(together()), lambda: asyncio.run(in_turn()), rounds=6)
    tell(benchmark, "50 at once : 50 in turn", ratio)
    benchmark.pedantic(lambda: asyncio.run(together()), rounds=3)
    assert ratio < 0.4


def test_start_up(benchmark: Any) -> None:
    """The verbs that need no framework answer in less time than importing one takes."""

    def python(*arguments: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)  # noqa: S603

    listing = python("-m", "domains", "list")
    ratio = side_by_side(listing, python("-c", "import langgraph.graph"), rounds=3)
    tell(benchmark, "domains list : import langgraph.graph", ratio)
    benchmark.pedantic(listing, rounds=3)
    assert ratio < 1
