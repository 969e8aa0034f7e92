"""The checkout tool: find the cart's payment, make it if there is none, confirm it once, prove it.

Stripe forgets idempotency keys after a day, replays a first answer that may be out of date, and can carry
out a request long after its caller gave up. Hence the order of things here: look before every write, take
no answer but a paid intent for success, and call nothing a failure that may still land. (Out of reach: a
caller that is frozen for a day between its look and its create, while another one pays; its key is
forgotten by then.)

Keys: https://docs.stripe.com/api/idempotent_requests
Life of a PaymentIntent: https://docs.stripe.com/payments/paymentintents/lifecycle
"""

import json
import logging
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from html import escape
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import httpx
from langchain_core.tools import BaseTool

from domains.checkout.rules import BOOK, json_or_unnamed
from domains.mapping import Call, Flow, Reply, Rule
from domains.tool import as_tool, connect
from orchestration.outcomes import Outcome
from orchestration.reasons import Effect, Reason

API: Final = "https://api.stripe.com"
API_VERSION: Final = "2025-09-30.clover"
"""The version whose fields the table reads: without one, Stripe takes the account's own."""

INTENTS: Final = "/v1/payment_intents"
PAGE: Final = 100
"""Intents a page: the most that Stripe gives."""

Intent: TypeAlias = dict[str, Any]
Steps: TypeAlias = Generator[Call, Reply, "Outcome | Intent"]
"""A part of the flow: it ends the call, or finds an intent to go on with."""

_LOG: Final = logging.getLogger("domains.checkout")
_CURRENCY: Final = re.compile(r"[a-z]{3}", re.ASCII)
_LONGEST_ID: Final = 500
"""Characters that Stripe takes in a metadata value."""

_LONGEST_NOTE: Final = 200
"""Characters of a note on a receipt."""

_FURTHEST: Final = (
    "succeeded",
    "processing",
    "requires_capture",
    "requires_action",
    "requires_confirmation",
    "requires_payment_method",
)
"""States of an intent, the one furthest along first; any other (canceled) stands behind."""

# https://docs.stripe.com/currencies#minor-units
_NO_DECIMALS: Final = frozenset(
    ["bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf"]
)
_THREE_DECIMALS: Final = frozenset({"bhd", "jod", "kwd", "omr", "tnd"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be paid, by whom, with what."""

    account: str
    """Our name for the Stripe account; never its key."""

    customer: str
    """Stripe's id of the customer."""

    cart: str
    """Our id of the cart: it is paid at most once."""

    amount: int
    """Minor units."""

    currency: str
    """Three lower-case letters."""

    card: str
    """Stripe's id of the payment method."""

    note: str
    """Printed on the receipt, and sent nowhere: reworded, it would spoil the idempotency key."""

    return_url: str | None
    """Where a bank's page sends the customer back to."""

    @property
    def payable(self) -> bool:
        """Whether the arguments are of the right form: a wrong one is never sent."""
        return (
            0 < len(self.cart) <= _LONGEST_ID
            and type(self.amount) is int  # True is an int, too
            and self.amount > 0
            and _CURRENCY.fullmatch(self.currency) is not None
            and bool(self.card)
        )

    @property
    def key(self) -> str:
        """What ties the calls for this cart together: it tells nothing of the cart."""
        return _hash("cart", self.account, self.customer, self.cart)[:24]

    @property
    def create_key(self) -> str:
        """The idempotency key of the cart's one intent. No amount is in it: a changed one must collide."""
        return _hash("create", self.account, self.customer, self.cart)

    def confirm_key(self, intent: Intent) -> str:
        """Return the idempotency key of one attempt with this card.

        The latest charge makes it new after every decline; else a passing one is replayed for a day.
        """
        return _hash("confirm", intent["id"], self.card, _charge(intent))

    def is_for(self, intent: Intent) -> bool:
        """Whether the intent stands for the cart."""
        metadata = intent.get("metadata")
        return isinstance(metadata, dict) and metadata.get("cart_id") == self.cart

    def asks(self, intent: Intent) -> bool:
        """Whether the intent is about the amount that is to be paid."""
        return intent.get("amount") == self.amount and intent.get("currency") == self.currency

    def receipt(self) -> str:
        """Return the receipt: a fragment of HTML for the customer, the same on every call."""
        price, cart, note = map(
            escape, (_money(self.amount, self.currency), self.cart, self.note.strip()[:_LONGEST_NOTE])
        )
        paid = f"<p>Payment received: <strong>{price}</strong> for cart <strong>{cart}</strong>.</p>"
        return f"{paid}<p>Note: {note}</p>" if note else paid


def tools(
    *,
    client: httpx.Client | None = None,
    async_client: httpx.AsyncClient | None = None,
    customer: str = "cus_demo",
    account: str = "default",
    return_url: str | None = None,
) -> list[BaseTool]:
    """Return the checkout tool.

    Args:
        client: Sends a sync run's calls. Without any client, ``STRIPE_API_KEY`` makes both.
        async_client: Sends an async run's calls.
        customer: Stripe's id of the customer who pays.
        account: A name for the Stripe account, if carts of several accounts share their ids.
        return_url: Where a bank's page sends the customer back to. Accounts with redirect-based payment
            methods switched on need one.

    Raises:
        RuntimeError: No client is given, and ``STRIPE_API_KEY`` is not set.
    """
    if client is None and async_client is None:
        client, async_client = connect(
            API,
            "STRIPE_API_KEY",
            lambda key: {"authorization": f"Bearer {key}", "stripe-version": API_VERSION},
        )

    def checkout(
        cart_id: str,
        amount: int,
        currency: str = "usd",
        payment_method: str = "pm_card_visa",
        note: str = "",
    ) -> Flow:
        """Pay for the customer's shopping cart. A cart is charged at most once, however often this is called.

        Args:
            cart_id: The id of the cart.
            amount: The price in the currency's smallest unit: 1999 for 19.99 dollars.
            currency: The currency's three letters.
            payment_method: The customer's card, by its stored name.
            note: A line for the receipt.
        """
        order = Order(
            account=account,
            customer=customer,
            cart=cart_id.strip(),
            amount=amount,
            currency=currency.strip().lower(),
            card=payment_method.strip(),
            note=note,
            return_url=return_url,
        )
        return (yield from pay(order))

    return [as_tool(checkout, client=client, async_client=async_client, free_text=("note",), amount="amount")]


def pay(order: Order) -> Flow:
    """Find the order's payment, make it if there is none, confirm it once, prove it."""
    outcome = yield from _find_and_confirm(order)
    return replace(outcome, key=order.key)


def _find_and_confirm(order: Order) -> Flow:
    if not order.payable:
        return BOOK.pick("checkout/order-refused", Reply(write=True))
    found = yield from _find(order)
    if found is None:
        found = yield from _create(order)
    if isinstance(found, Outcome):
        return found
    known = _known(order, found)
    if known is not None:
        return known
    return (yield from _confirm(order, found))


def _find(order: Order) -> "Generator[Call, Reply, Outcome | Intent | None]":
    """Find the cart's intent in the customer's list. Not in the search, which lags behind."""
    params: dict[str, Any] = {"customer": order.customer, "limit": PAGE}
    ours: list[Intent] = []
    seen: set[str] = set()
    while True:
        reply = yield Call("GET", INTENTS, params=params)
        page = _page(reply)
        if page is None or not seen.isdisjoint(intent["id"] for intent in page):
            return _unread(reply)
        seen.update(intent["id"] for intent in page)
        ours += filter(order.is_for, page)
        if reply.body["has_more"] is False:
            # Of equals the oldest: whoever looks at whatever moment must pick the same one.
            return min(reversed(ours), key=_distance, default=None)
        if not page:
            return _unread(reply)
        params = {**params, "starting_after": page[-1]["id"]}


def _create(order: Order) -> Steps:
    call = Call(
        "POST",
        INTENTS,
        data={
            "amount": order.amount,
            "currency": order.currency,
            "customer": order.customer,
            "metadata[cart_id]": order.cart,
        },
        headers={"idempotency-key": order.create_key},
        write=True,
    )
    reply = yield call
    first = not _lost(reply)
    if not first:
        reply = yield call
    intent = _intent(reply, order)
    if intent is None:
        outcome = _classified(order, reply)
        return _unread(reply) if outcome.reason is Reason.COMPLETED else outcome
    if first and "idempotent-replayed" not in reply.headers:
        return intent
    # What is replayed shows the intent as it was made, up to a day ago.
    return (yield from _read(order, intent["id"]))


def _read(order: Order, intent_id: str) -> Steps:
    reply = yield Call("GET", f"{INTENTS}/{quote(intent_id, safe='')}")
    return _intent(reply, order) or _unread(reply)


def _confirm(order: Order, before: Intent) -> Flow:
    data = {"payment_method": order.card}
    if order.return_url is not None:
        data["return_url"] = order.return_url
    reply = yield Call(
        "POST",
        f"{INTENTS}/{quote(before['id'], safe='')}/confirm",
        data=data,
        headers={"idempotency-key": order.confirm_key(before)},
        write=True,
    )
    after = _intent(reply, order)
    # A replay shows how things stood when the key was new.
    if "idempotent-replayed" not in reply.headers:
        if reply.status == httpx.codes.PAYMENT_REQUIRED and reply.found.strings["error.type"]:
            return BOOK.classify(reply)
        known = None if after is None else _ended(order, after, card=after.get("payment_method"))
        if known is not None:
            return known
    # No clear answer. One look, and no second confirm: the first may still land.
    look = yield Call("GET", f"{INTENTS}/{quote(before['id'], safe='')}")
    now = _intent(look, order)
    if now is None:
        return BOOK.pick("checkout/unconfirmed", reply)
    known = _ended(order, now, card=order.card) or _declined(order, now, since=before)
    if known is not None:
        return known
    refused = _classified(order, reply)
    # Never sent, or refused before any work: then nothing can land later.
    answered = after is not None or not httpx.codes.is_success(reply.status or 0)
    if answered and refused.effect is Effect.NONE:
        return refused
    return BOOK.pick("checkout/unconfirmed", reply)


def _known(order: Order, intent: Intent) -> Outcome | None:
    """Return what an intent says of the order before anything was confirmed; None if it may be confirmed."""
    ended = _ended(order, intent, card=order.card, found=True)
    if ended is not None:
        return ended
    if not order.asks(intent):
        return BOOK.pick("checkout/amount-changed", _shown(intent), intent=intent["id"])
    declined = _declined(order, intent)
    # A passing decline may be tried again; a firm one is not asked twice.
    return declined if declined is not None and declined.stop else None


def _ended(order: Order, intent: Intent, *, card: object, found: bool = False) -> Outcome | None:
    """Return what an intent says that is paid, withdrawn, or in somebody else's hands; else None.

    Args:
        order: What is to be paid.
        intent: The intent, as just read.
        card: The card whose authentication counts: another one's may stand there from before.
        found: Whether it was so before this call did anything.
    """
    state, facts = intent["status"], {"intent": intent["id"]}
    if state == "succeeded":
        if intent.get("amount_received") != order.amount or not order.asks(intent):
            return BOOK.pick("checkout/paid-otherwise", _shown(intent), **facts)
        outcome = BOOK.outcome(_row(_shown(intent)), _shown(intent), **facts, already_applied=found)
        # It may have been paid back since.
        paid = outcome.reason is Reason.COMPLETED
        return replace(outcome, content=order.receipt(), format="html") if paid else outcome
    if state == "requires_action":
        waits = intent.get("payment_method") == card and (not found or order.asks(intent))
        return _say(intent) if waits else None
    return _say(intent) if state in {"processing", "requires_capture", "canceled"} else None


def _declined(order: Order, intent: Intent, since: Intent | None = None) -> Outcome | None:
    """Return the decline that an unpaid intent remembers, if it is this card's (and newer than ``since``)."""
    error = intent.get("last_payment_error")
    card = error.get("payment_method") if isinstance(error, dict) else None
    ours = isinstance(card, dict) and card.get("id") == order.card
    fresh = since is None or _charge(intent) != _charge(since)
    if intent.get("status") != "requires_payment_method" or not ours or not fresh:
        return None
    return _say(intent, effect=Effect.NONE)


def _say(intent: Intent, effect: Effect | None = None) -> Outcome:
    """Return what the table says of an intent, with a proven effect where the row names none."""
    reply = _shown(intent)
    rule = _row(reply)
    return BOOK.outcome(replace(rule, effect=rule.effect or effect), reply, intent=intent["id"])


def _classified(order: Order, reply: Reply) -> Outcome:
    """Return what the table says of the answer to a write. A key that met itself is a bug: that is loud."""
    outcome = BOOK.classify(reply)
    if outcome.rule == "checkout/key-reused":
        request = outcome.evidence.get("request_id", "unnamed")
        _LOG.error("cart %s: an idempotency key met other values (request %s)", order.key, request)
    return outcome


def _unread(reply: Reply) -> Outcome:
    """Return what a failed look means: nothing was sent now, and what earlier calls did is not known."""
    rule = _row(reply)
    if rule.reason is Reason.COMPLETED:
        rule = BOOK["checkout/unproven"]
    said = f"{rule.say} No payment was sent this time."
    return BOOK.outcome(replace(rule, say=said, effect=Effect.UNKNOWN), replace(reply, write=True))


def _row(reply: Reply) -> Rule:
    return BOOK[BOOK.classify(reply).rule]


def _shown(intent: Intent) -> Reply:
    """Return an intent as if it had been asked for alone, since the table reads replies."""
    return Reply(response=httpx.Response(httpx.codes.OK, json=intent), write=True)


def _page(reply: Reply) -> list[Intent] | None:
    """Return a page of intents; None if it cannot be trusted to be one."""
    body = _json(reply)
    if not isinstance(body, dict) or not isinstance(body.get("has_more"), bool):
        return None
    rows = body.get("data")
    if not isinstance(rows, list) or not all(map(_is_intent, rows)):
        return None
    return rows


def _intent(reply: Reply, order: Order) -> Intent | None:
    """Return the order's intent that a reply shows; None if it shows anything else."""
    body = _json(reply)
    return body if _is_intent(body) and order.is_for(body) else None


def _json(reply: Reply) -> Any:
    """Return what Stripe itself answered; None for failures, and for pages of whoever stands in between."""
    ours = reply.status == httpx.codes.OK and json_or_unnamed(reply.headers.get("content-type", ""))
    return reply.body if ours else None


def _is_intent(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.get("object") == "payment_intent"
        and isinstance(value.get("id"), str)
        and isinstance(value.get("status"), str)
    )


def _lost(reply: Reply) -> bool:
    """Whether nobody can say what became of a request: no answer, a server's fault, or an unreadable 200."""
    status = reply.status
    if status is None or status >= httpx.codes.INTERNAL_SERVER_ERROR:
        return True
    return httpx.codes.is_success(status) and not _is_intent(_json(reply))


def _distance(intent: Intent) -> int:
    state = intent["status"]
    return _FURTHEST.index(state) if state in _FURTHEST else len(_FURTHEST)


def _charge(intent: Mapping[str, Any]) -> str:
    """Return the id of the latest charge; it may come whole, if the account expands it."""
    charge = intent.get("latest_charge")
    found = charge.get("id") if isinstance(charge, dict) else charge
    return found if isinstance(found, str) else ""


def _hash(*parts: str) -> str:
    """Hash names so that no two lists of them meet: JSON keeps the borders between them."""
    return sha256(json.dumps(parts).encode()).hexdigest()


def _money(amount: int, currency: str) -> str:
    places = 0 if currency in _NO_DECIMALS else 3 if currency in _THREE_DECIMALS else 2
    whole, rest = divmod(amount, 10**places)
    return f"{whole:,}.{rest:0{places}d} {currency.upper()}" if places else f"{whole:,} {currency.upper()}"
