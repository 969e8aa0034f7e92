"""Scenarios across domains: one wish of the customer, several tools, one final text.

A call with ``last_step`` false says that another tool follows: its success, or its failure, does not end
the run. The texts stand here to the letter, since that is what a customer reads.
"""

from typing import Any, Final

from domains.scenario import Ask, Scenario, Turn

_NO_FUNDS: Final = "pm_card_visa_chargeDeclinedInsufficientFunds"

FOUND: Final = (
    "Found 7 results, the best 5 of them:\n"
    "1. Blue mug [mug-1, price 19.99]: Stoneware coffee mug in deep blue, 350 ml, dishwasher safe.\n"
    "2. Mug set [mug-5, price 49.00]: Four stackable mugs in blue, green, grey and sand.\n"
    "3. Blue shirt [shirt-2, price 29.00]: Cotton T-shirt in blue, sizes S to XL.\n"
    "4. White mug [mug-2, price 14.50]: Plain porcelain mug for coffee or tea, 300 ml.\n"
    "5. Travel mug [mug-3, price 24.00]: Steel travel mug with lid, keeps coffee hot for six hours."
)
PAID: Final = "<p>Payment received: <strong>19.99 USD</strong> for cart <strong>cart_7</strong>.</p>"
FILED: Final = "The ticket is open. Its number is 1: https://github.com/acme/support/issues/1"
DECLINED: Final = "The payment was declined. Nothing was charged."


def _search(query: str, **more: Any) -> Ask:
    return Ask("search", {"query": query, **more})


def _pay(**more: Any) -> Ask:
    return Ask("checkout", {"cart_id": "cart_7", "amount": 1999, **more})


def _ticket(title: str, body: str) -> Ask:
    return Ask("create_ticket", {"title": title, "body": body, "reference": "cart_7"})


SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        id="journey/find-buy-wrap",
        about="A search, a payment and a ticket, one after the other: only the last one ends the run.",
        turns=(
            Turn(
                user="Find the blue mug, buy it as cart_7, and have it gift-wrapped.",
                script=(
                    (_search("blue mug", last_step=False),),
                    (_pay(last_step=False),),
                    (_ticket("Gift wrap for cart_7", "One blue mug."),),
                ),
                narration="The mug is yours, and it will be wrapped.",
                path=("agent", "tools", "agent", "tools", "agent", "tools", "finalize"),
                reasons=("completed", "completed", "completed"),
                rules=("search/found", "checkout/paid", "ticketing/filed"),
                stopped_by="completed",
                final=f"{PAID}\n\n<p>{FILED}</p>",
            ),
        ),
    ),
    Scenario(
        id="journey/buy-and-wrap-at-once",
        about="Payment and ticket in one turn: the customer reads both, the plain text as a paragraph.",
        turns=(
            Turn(
                user="Find the blue mug, buy it as cart_7, and have it gift-wrapped.",
                script=(
                    (_search("blue mug", last_step=False),),
                    (_pay(), _ticket("Gift wrap for cart_7", "One blue mug.")),
                ),
                narration="The mug is yours, and it will be wrapped.",
                path=("agent", "tools", "agent", "tools", "finalize"),
                reasons=("completed", "completed", "completed"),
                rules=("search/found", "checkout/paid", "ticketing/filed"),
                stopped_by="completed",
                final=f"{PAID}\n\n<p>{FILED}</p>",
            ),
        ),
    ),
    Scenario(
        id="journey/declined-then-ticket",
        about="The payment fails for good, and a ticket was asked for in that case: the run goes on to it.",
        turns=(
            Turn(
                user="Find the blue mug and buy it as cart_7. If the payment fails, open a ticket.",
                script=(
                    (_search("blue mug", last_step=False),),
                    (_pay(payment_method=_NO_FUNDS, last_step=False),),
                    (_ticket("Payment for cart_7 failed", "The card was declined."),),
                ),
                narration="The card was declined, so I have opened a ticket.",
                path=("agent", "tools", "agent", "tools", "agent", "tools", "finalize"),
                reasons=("completed", "fatal", "completed"),
                rules=("search/found", "checkout/declined", "ticketing/filed"),
                stopped_by="completed",
                final=FILED,
            ),
        ),
    ),
    Scenario(
        id="journey/blocked-then-nothing",
        about="A risk rule stops the payment: no announced next step lifts that.",
        turns=(
            Turn(
                user="Buy the blue mug as cart_7. If the payment fails, open a ticket.",
                script=((_pay(payment_method="pm_card_radarBlock", last_step=False),),),
                narration="The payment was stopped, so I have opened a ticket.",
                path=("agent", "tools", "finalize"),
                reasons=("policy_block",),
                rules=("checkout/risk",),
                stopped_by="policy_block",
                final=DECLINED,
            ),
        ),
    ),
    Scenario(
        id="journey/nothing-to-buy",
        about="The search that should come first finds nothing: nothing is paid, and the model says why.",
        turns=(
            Turn(
                user="Find a submarine and buy it as cart_7.",
                script=(
                    (_search("submarine", last_step=False),),
                    "We sell no submarines, so I bought nothing.",
                ),
                narration="We sell no submarines, so I bought nothing.",
                path=("agent", "tools", "agent"),
                reasons=("fatal",),
                rules=("search/nothing-found",),
                final="We sell no submarines, so I bought nothing.",
            ),
        ),
    ),
    Scenario(
        id="journey/turn-by-turn",
        about="The same wishes in three turns: each ends with its own tool's text.",
        turns=(
            Turn(
                user="Do you have a blue mug?",
                script=((_search("blue mug"),),),
                narration="Yes, we have one for 19.99.",
                path=("agent", "tools", "finalize"),
                reasons=("completed",),
                rules=("search/found",),
                stopped_by="completed",
                final=FOUND,
            ),
            Turn(
                user="I take it. It is cart_7.",
                script=((_pay(),),),
                narration="It is paid.",
                path=("agent", "tools", "finalize"),
                reasons=("completed",),
                rules=("checkout/paid",),
                stopped_by="completed",
                final=PAID,
            ),
            Turn(
                user="And wrap it, please.",
                script=((_ticket("Gift wrap for cart_7", "One blue mug."),),),
                narration="It will be wrapped.",
                path=("agent", "tools", "finalize"),
                reasons=("completed",),
                rules=("ticketing/filed",),
                stopped_by="completed",
                final=FILED,
            ),
        ),
    ),
)
"""The conversations, each with its expected course."""
