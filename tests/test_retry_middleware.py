"""The same faults under LangChain's own retries: what an error that is tried again costs a customer."""

from collections import Counter
from random import Random
from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool

from domains import DOMAINS
from mocks.model import ScriptedModel
from mocks.stripe import StripeMock
from mocks.vendor import PAIRS, Fault
from orchestration.agent import build_agent

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

CART = {"cart_id": "cart_7", "amount": 1999}
SCHEDULES = 60


def naive(client: httpx.Client) -> BaseTool:
    """Return checkout as many write it: one request, and an exception for whatever goes wrong."""

    @tool
    def checkout(cart_id: str, amount: int) -> str:
        """Pay for the cart."""
        data = {
            "amount": amount,
            "currency": "usd",
            "customer": "cus_demo",
            "payment_method": "pm_card_visa",
            "confirm": "true",
            "metadata[cart_id]": cart_id,
        }
        client.post("/v1/payment_intents", data=data).raise_for_status()
        return "Paid."

    return checkout


def schedule(seed: int) -> list[Fault]:
    """Return up to three faults at the first requests, the same for both."""
    draw = Random(seed)  # noqa: S311 - a schedule, no secret
    faults = []
    for nth in sorted(draw.sample(range(1, 6), draw.randint(1, 3))):
        kind, when = draw.choice(sorted(PAIRS))
        status = draw.choice([500, 502, 503])
        faults.append(Fault(kind=kind, when=when, nth=nth, status=status if kind == "answer" else 500))
    return faults


def charges(agent: Any, vendor: StripeMock) -> int:
    """Run the agent to its end, and return how often the cart was charged."""
    agent.invoke({"messages": [("user", "Pay for cart 7.")]})
    vendor.settle()
    return len(vendor.charged("cart_7"))


def calling(times: int) -> ScriptedModel:
    """Return a model that calls the tool as often as it is asked to, and then tells about it."""
    turns = [
        AIMessage("", tool_calls=[{"name": "checkout", "args": CART, "id": f"call_{at}"}])
        for at in range(times)
    ]
    return ScriptedModel(turns=turns, narration="That is how it went.")


def test_charges_side_by_side(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Retried by middleware, a plain tool charges carts twice; ours charges none twice."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    counted: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        theirs, ours = StripeMock(faults=schedule(seed)), StripeMock(faults=schedule(seed))
        retried = create_agent(calling(1), [naive(theirs.client())], middleware=[ToolRetryMiddleware()])
        routed = build_agent(calling(3), DOMAINS["checkout"].tools(client=ours.client()))
        counted["middleware"] += charges(retried, theirs) > 1
        counted["ours"] += charges(routed, ours) > 1
    with capsys.disabled():
        print(  # noqa: T201 - the figures are the point
            f"\ncarts charged twice in {SCHEDULES} schedules: {counted['middleware']} under "
            f"ToolRetryMiddleware's defaults, {counted['ours']} under ours"
        )
    assert 0 == counted["ours"]
    assert 0 < counted["middleware"]
