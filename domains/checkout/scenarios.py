"""What must happen at a checkout, for the command line to play and the tests to check."""

from collections.abc import Mapping
from typing import Any, Final

from domains.scenario import Ask, Forced, Scenario, Turn
from orchestration.reasons import Reason

VENDOR: Final = "mocks.stripe:StripeMock"
"""The fake that answers in these scenarios."""

SAMPLE: Final = Ask("checkout", {"cart_id": "cart_7", "amount": 1999})
"""A call that pays if nothing is forced."""

FIND: Final = "GET /v1/payment_intents"
CONFIRM: Final = "POST /v1/payment_intents/*/confirm"

FORCED: Final[Mapping[Reason, tuple[Mapping[str, Any], tuple[Forced, ...]]]] = {
    Reason.COMPLETED: ({}, ()),
    Reason.TRANSIENT: ({"declines": {"pm_card_visa": ["processing_error"]}}, ()),
    Reason.FATAL: ({"declines": {"pm_card_visa": ["lost_card"]}}, ()),
    Reason.POLICY_BLOCK: ({"declines": {"pm_card_visa": ["fraudulent"]}}, ()),
}
"""Reason -> settings of the fake and forced answers that make ``SAMPLE`` end with it."""

RECEIPT: Final = "<p>Payment received: <strong>19.99 USD</strong> for cart <strong>cart_7</strong>.</p>"
OTHER_RECEIPT: Final = "<p>Payment received: <strong>5.00 USD</strong> for cart <strong>cart_8</strong>.</p>"
DECLINED: Final = (
    "The card was declined. Another card, or a word with the bank that issued this one, can help. "
    "Nothing was charged."
)
PAID_OTHERWISE: Final = (
    "This cart was already paid, with another amount or currency. Nothing more was charged."
)
DOWN: Final = (
    "The service could not be reached behind its gateway. Waiting a little may help. "
    "No payment was sent this time. Whether the payment went through is not confirmed."
)
PAID: Final = "Good news: I have paid 19.99 USD for cart_7, and your receipt is above."
ASK_BACK: Final = "Your bank wants you to confirm this payment. Tell me when you have done so."
SORRY: Final = "I am sorry, I could not pay for cart_7."


def _buy(**more: Any) -> tuple[Ask, ...]:
    return (Ask("checkout", {**SAMPLE.args, **more}),)


def _limited() -> Forced:
    """Answer with a limit, the way a gateway in front of Stripe adds a time to wait."""
    body = {"error": {"code": "rate_limit", "message": "vendor's words", "type": "invalid_request_error"}}
    return Forced(at=FIND, status=429, headers={"retry-after": "7"}, body=body)


_PAGE: Final = Forced(at=FIND, status=502, body="<html><head><title>502 Bad Gateway</title></head></html>")

SCENARIOS: Final = (
    Scenario(
        id="checkout/paid",
        about="The payment goes through, and the receipt is the answer.",
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(_buy(),),
                narration=PAID,
                path=("agent", "tools", "finalize"),
                reasons=("completed",),
                rules=("checkout/paid",),
                stopped_by="completed",
                final=RECEIPT,
            ),
        ),
    ),
    Scenario(
        id="checkout/bank-busy",
        about="The bank cannot be asked at first; the same call, its note reworded, pays on the second try.",
        vendors={"checkout": {"declines": {"pm_card_visa": ["processing_error"]}}},
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(_buy(note="Blue mug"), _buy(note="One mug, in blue")),
                narration=PAID,
                path=("agent", "tools", "agent", "tools", "finalize"),
                reasons=("transient", "completed"),
                rules=("checkout/issuer-busy", "checkout/paid"),
                stopped_by="completed",
                final=f"{RECEIPT}<p>Note: One mug, in blue</p>",
            ),
        ),
    ),
    Scenario(
        id="checkout/wrong-amount",
        about="The model writes an amount that nobody can pay, reads why, and puts it right.",
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(_buy(amount=-1999), _buy()),
                narration=PAID,
                path=("agent", "tools", "agent", "tools", "finalize"),
                reasons=("transient", "completed"),
                rules=("checkout/order-refused", "checkout/paid"),
                stopped_by="completed",
                final=RECEIPT,
            ),
        ),
    ),
    Scenario(
        id="checkout/declined",
        about="The card is declined for good: the run ends there, and nobody asks the bank again.",
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(_buy(payment_method="pm_card_visa_chargeDeclinedInsufficientFunds"),),
                narration=f"{SORRY} Shall I try the card once more?",
                path=("agent", "tools", "finalize"),
                reasons=("fatal",),
                rules=("checkout/declined",),
                stopped_by="fatal",
                final=DECLINED,
            ),
        ),
    ),
    Scenario(
        id="checkout/blocked",
        about="A risk rule stops the payment: the run ends in words that help no thief.",
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(_buy(payment_method="pm_card_radarBlock"),),
                narration=f"{SORRY} The card was reported as fraudulent.",
                path=("agent", "tools", "finalize"),
                reasons=("policy_block",),
                rules=("checkout/risk",),
                stopped_by="policy_block",
                final="The payment was declined. Nothing was charged.",
            ),
        ),
    ),
    Scenario(
        id="checkout/lost-answer",
        about="The money moves and the answer is lost: the payment is found again, and it is one payment.",
        forced={"checkout": (Forced(kind="ReadTimeout", at=CONFIRM, when="after"),)},
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(_buy(),),
                narration=PAID,
                path=("agent", "tools", "finalize"),
                reasons=("completed",),
                rules=("checkout/paid",),
                stopped_by="completed",
                final=RECEIPT,
            ),
        ),
    ),
    Scenario(
        id="checkout/lost-request",
        about="The confirm is lost on its way: not confirmed, never called a failure; the next call pays.",
        forced={"checkout": (Forced(kind="ReadTimeout", at=CONFIRM, when="before"),)},
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(_buy(), _buy()),
                narration=PAID,
                path=("agent", "tools", "agent", "tools", "finalize"),
                reasons=("transient", "completed"),
                rules=("checkout/unconfirmed", "checkout/paid"),
                stopped_by="completed",
                final=RECEIPT,
            ),
        ),
    ),
    Scenario(
        id="checkout/gateway-page",
        about="A gateway answers with an HTML page: no markup reaches anybody, and the next call pays.",
        forced={"checkout": (_PAGE,)},
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(_buy(), _buy()),
                narration=PAID,
                path=("agent", "tools", "agent", "tools", "finalize"),
                reasons=("transient", "completed"),
                rules=("infra/gateway", "checkout/paid"),
                stopped_by="completed",
                final=RECEIPT,
            ),
        ),
    ),
    Scenario(
        id="checkout/gateway-down",
        about="The service stays away: after three attempts the run ends with what is known.",
        forced={"checkout": (_PAGE, _PAGE, _PAGE)},
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(_buy(), _buy(), _buy()),
                narration=SORRY,
                path=("agent", "tools", "agent", "tools", "agent", "tools", "finalize"),
                reasons=("transient", "transient", "transient"),
                rules=("infra/gateway",) * 3,
                stopped_by="attempts_exhausted",
                final=DOWN,
            ),
        ),
    ),
    Scenario(
        id="checkout/rate-limited",
        about="Too many requests: the model reads how long to wait, and the next call pays.",
        forced={"checkout": (_limited(),)},
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(_buy(), _buy()),
                narration=PAID,
                path=("agent", "tools", "agent", "tools", "finalize"),
                reasons=("transient", "completed"),
                rules=("checkout/rate", "checkout/paid"),
                stopped_by="completed",
                final=RECEIPT,
            ),
        ),
    ),
    Scenario(
        id="checkout/bank-asks",
        about="The bank wants to see the customer (3-D Secure): the model hands that on and ends by itself.",
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(
                    _buy(payment_method="pm_card_threeDSecure2Required"),
                    ASK_BACK,
                ),
                narration="Have you confirmed it?",
                path=("agent", "tools", "agent"),
                reasons=("transient",),
                rules=("checkout/action",),
                stopped_by=None,
                final=ASK_BACK,
            ),
        ),
    ),
    Scenario(
        id="checkout/two-carts-one-waits",
        about="Two carts in one turn, one paid, one not yet: the run goes on, and nothing is paid twice.",
        vendors={"checkout": {"declines": {"pm_card_mastercard": ["try_again_later"]}}},
        turns=(
            Turn(
                user="Please pay for cart_7 (19.99 dollars, Visa) and cart_8 (5 dollars, Mastercard).",
                script=(
                    _buy() + _buy(cart_id="cart_8", amount=500, payment_method="pm_card_mastercard"),
                    _buy() + _buy(cart_id="cart_8", amount=500, payment_method="pm_card_mastercard"),
                ),
                narration="Both carts are paid.",
                path=("agent", "tools", "agent", "tools", "finalize"),
                reasons=("completed", "transient", "completed", "completed"),
                rules=("checkout/paid", "checkout/issuer-busy", "checkout/paid", "checkout/paid"),
                stopped_by="completed",
                final=f"{RECEIPT}\n\n{OTHER_RECEIPT}",
            ),
        ),
    ),
    Scenario(
        id="checkout/two-carts-one-declined",
        about="Two carts in one turn, one paid, one declined: the run ends, and both are told in call order.",
        turns=(
            Turn(
                user="Please pay for cart_7 (19.99 dollars, Visa) and cart_8 (5 dollars, the other Visa).",
                script=(
                    _buy(payment_method="pm_card_visa_chargeDeclinedLostCard")
                    + _buy(cart_id="cart_8", amount=500),
                ),
                narration="cart_8 is paid, and the card for cart_7 was declined.",
                path=("agent", "tools", "finalize"),
                reasons=("fatal", "completed"),
                rules=("checkout/declined", "checkout/paid"),
                stopped_by="fatal",
                final=f"<p>{DECLINED}</p>\n\n{OTHER_RECEIPT}",
            ),
        ),
    ),
    Scenario(
        id="checkout/next-turn",
        about="Declined, then another card on the user's word: turn two inherits no stop of turn one.",
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(_buy(payment_method="pm_card_chargeDeclinedExpiredCard"),),
                narration=SORRY,
                path=("agent", "tools", "finalize"),
                reasons=("fatal",),
                rules=("checkout/declined",),
                stopped_by="fatal",
                final=DECLINED,
            ),
            Turn(
                user="Then take my Mastercard.",
                script=(_buy(payment_method="pm_card_mastercard"),),
                narration=PAID,
                path=("agent", "tools", "finalize"),
                reasons=("completed",),
                rules=("checkout/paid",),
                stopped_by="completed",
                final=RECEIPT,
            ),
        ),
    ),
    Scenario(
        id="checkout/paid-before",
        about="A paid cart is asked for again, then at another price: a receipt, a refusal, one payment.",
        turns=(
            Turn(
                user="Please pay for cart_7, it is 19.99 dollars.",
                script=(_buy(),),
                narration=PAID,
                path=("agent", "tools", "finalize"),
                reasons=("completed",),
                rules=("checkout/paid",),
                stopped_by="completed",
                final=RECEIPT,
            ),
            Turn(
                user="Did that work? Pay for cart_7 to be sure.",
                script=(_buy(),),
                narration=PAID,
                path=("agent", "tools", "finalize"),
                reasons=("completed",),
                rules=("checkout/paid",),
                stopped_by="completed",
                final=RECEIPT,
            ),
            Turn(
                user="I meant 25 dollars for cart_7.",
                script=(_buy(amount=2500),),
                narration="I have paid 25 dollars more.",
                path=("agent", "tools", "finalize"),
                reasons=("fatal",),
                rules=("checkout/paid-otherwise",),
                stopped_by="fatal",
                final=PAID_OTHERWISE,
            ),
        ),
    ),
)
"""The scenarios, the plainest first."""
