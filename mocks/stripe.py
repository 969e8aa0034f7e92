"""Stripe as it looks on the wire: customers, PaymentIntents and charges.

Where the facts come from:

- life of a PaymentIntent: https://docs.stripe.com/payments/paymentintents/lifecycle
- endpoints and fields: https://docs.stripe.com/api/payment_intents
- idempotency keys: https://docs.stripe.com/api/idempotent_requests
- errors: https://docs.stripe.com/api/errors and https://docs.stripe.com/error-codes
- decline and advice codes: https://docs.stripe.com/declines/codes
- test payment methods: https://docs.stripe.com/testing
- `Stripe-Should-Retry`: https://docs.stripe.com/error-low-level

Error messages are our own words: a client must not depend on prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Final

from mocks.vendor import Ask, Fault, Vendor, Wire, Work, answer

API_VERSION: Final = "2025-09-30.clover"
"""Sent back as `stripe-version` to a client that names none."""

KEY_LIFE: Final = 24 * 3600
"""Seconds after which an idempotency key is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a test payment method does when it is charged."""

    outcome: str = "ok"
    """`ok`, `authenticate`, `authenticate:<decline code>` (declined once authenticated), or a
    decline code."""

    last4: str = "4242"
    """Last four digits."""

    brand: str = "visa"
    """Card brand."""


CARDS: Final[Mapping[str, Card]] = MappingProxyType(
    {
        "pm_card_visa": Card(),
        "pm_card_visa_debit": Card(last4="5556"),
        "pm_card_mastercard": Card(last4="4444", brand="mastercard"),
        "pm_card_mastercard_debit": Card(last4="8210", brand="mastercard"),
        "pm_card_mastercard_prepaid": Card(last4="5100", brand="mastercard"),
        "pm_card_amex": Card(last4="0005", brand="amex"),
        "pm_card_discover": Card(last4="1117", brand="discover"),
        "pm_card_diners": Card(last4="0004", brand="diners"),
        "pm_card_jcb": Card(last4="0505", brand="jcb"),
        "pm_card_unionpay": Card(last4="0005", brand="unionpay"),
        "pm_card_visa_chargeDeclined": Card(outcome="generic_decline", last4="0002"),
        "pm_card_visa_chargeDeclinedInsufficientFunds": Card(outcome="insufficient_funds", last4="9995"),
        "pm_card_visa_chargeDeclinedLostCard": Card(outcome="lost_card", last4="9987"),
        "pm_card_visa_chargeDeclinedStolenCard": Card(outcome="stolen_card", last4="9979"),
        "pm_card_visa_chargeDeclinedVelocityLimitExceeded": Card(
            outcome="card_velocity_exceeded", last4="6975"
        ),
        "pm_card_chargeDeclinedExpiredCard": Card(outcome="expired_card", last4="0069"),
        "pm_card_chargeDeclinedIncorrectCvc": Card(outcome="incorrect_cvc", last4="0127"),
        "pm_card_chargeDeclinedProcessingError": Card(outcome="processing_error", last4="0119"),
        # Names that Stripe's pages used earlier; they still work.
        "pm_card_chargeDeclined": Card(outcome="generic_decline", last4="0002"),
        "pm_card_chargeDeclinedInsufficientFunds": Card(outcome="insufficient_funds", last4="9995"),
        "pm_card_chargeDeclinedLostCard": Card(outcome="lost_card", last4="9987"),
        "pm_card_chargeDeclinedStolenCard": Card(outcome="stolen_card", last4="9979"),
        "pm_card_chargeDeclinedFraudulent": Card(outcome="fraudulent", last4="0019"),
        "pm_card_radarBlock": Card(outcome="fraudulent", last4="0019"),
        "pm_card_chargeCustomerFail": Card(outcome="generic_decline", last4="0341"),
        "pm_card_threeDSecure2Required": Card(outcome="authenticate", last4="3220"),
        "pm_card_threeDSecureRequired": Card(outcome="authenticate", last4="3063"),
        "pm_card_authenticationRequired": Card(outcome="authenticate", last4="3184"),
        "pm_card_authenticationRequiredOnSetup": Card(outcome="authenticate", last4="3155"),
        "pm_card_authenticationRequiredChargeDeclinedInsufficientFunds": Card(
            outcome="authenticate:insufficient_funds", last4="3178"
        ),
    }
)
"""Stripe's test payment methods, by the names its pages give them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decline:
    """What Stripe adds to one decline code."""

    code: str = "card_declined"
    """Error code; some decline codes are their own error code."""

    message: str = "Your card was declined."
    """Text for the cardholder."""

    advice: str | None = None
    """`advice_code`; None: not sent."""

    network: str | None = None
    """`network_decline_code`; None: not sent."""


# A code that is missing here is a plain decline without advice, as for a code Stripe adds later.
# Advice stands only where a real reply has shown it: even `generic_decline` says
# `try_again_later`, so advice alone must not decide anything.
DECLINES: Final[Mapping[str, Decline]] = MappingProxyType(
    {
        "generic_decline": Decline(advice="try_again_later", network="01"),
        "do_not_honor": Decline(network="05"),
        "insufficient_funds": Decline(
            message="The card lacks the funds.", advice="try_again_later", network="51"
        ),
        "lost_card": Decline(network="41"),
        "stolen_card": Decline(network="43"),
        "try_again_later": Decline(advice="try_again_later"),
        "transaction_not_allowed": Decline(advice="do_not_try_again", network="57"),
        "expired_card": Decline(code="expired_card", message="The card has expired."),
        "incorrect_cvc": Decline(code="incorrect_cvc", message="The CVC is wrong."),
        "invalid_cvc": Decline(code="invalid_cvc", message="The CVC is no CVC."),
        "incorrect_number": Decline(code="incorrect_number", message="The number is wrong."),
        "incorrect_zip": Decline(code="incorrect_zip", message="The postal code is wrong."),
        "invalid_expiry_month": Decline(code="invalid_expiry_month"),
        "invalid_expiry_year": Decline(code="invalid_expiry_year"),
        "processing_error": Decline(
            code="processing_error", message="The card could not be processed just now."
        ),
        "authentication_required": Decline(
            code="authentication_required", message="The card needs authentication."
        ),
    }
)
"""Decline codes that carry more than the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One attempt to take money; every confirm that reaches the card network makes one."""

    id: str
    """`ch_` and a number."""

    intent: str
    """Id of its PaymentIntent."""

    amount: int
    """Minor units."""

    currency: str
    """Three lower-case letters."""

    customer: str | None
    """Customer id."""

    payment_method: str
    """Payment method id."""

    status: str
    """`succeeded`, `pending` or `failed`."""

    created: int
    """Seconds since 1970."""

    metadata: Mapping[str, str]
    """Copied from the intent when the charge is made."""

    decline_code: str | None = None
    """Why a failed one failed."""


@dataclass(slots=True, kw_only=True)
class _Intent:
    """A PaymentIntent as the vendor keeps it."""

    id: str
    amount: int
    currency: str
    customer: str | None
    metadata: dict[str, str]
    created: int
    redirects: str | None
    status: str = "requires_payment_method"
    payment_method: str | None = None
    latest_charge: str | None = None
    amount_received: int = 0
    last_payment_error: dict[str, Any] | None = None
    next_action: dict[str, Any] | None = None
    canceled_at: int | None = None
    cancellation_reason: str | None = None

    def json(self) -> dict[str, Any]:
        """Return the object as Stripe sends it."""
        return {
            "id": self.id,
            "object": "payment_intent",
            "amount": self.amount,
            "amount_capturable": 0,
            "amount_received": self.amount_received,
            "automatic_payment_methods": (
                {"allow_redirects": self.redirects, "enabled": True} if self.redirects else None
            ),
            "canceled_at": self.canceled_at,
            "cancellation_reason": self.cancellation_reason,
            "capture_method": "automatic_async",
            "client_secret": f"{self.id}_secret_mock",
            "confirmation_method": "automatic",
            "created": self.created,
            "currency": self.currency,
            "customer": self.customer,
            "description": None,
            "last_payment_error": self.last_payment_error,
            "latest_charge": self.latest_charge,
            "livemode": False,
            "metadata": dict(self.metadata),
            "next_action": self.next_action,
            "payment_method": self.payment_method,
            "payment_method_types": ["card"],
            "processing": {"type": "card"} if self.status == "processing" else None,
            "receipt_email": None,
            "setup_future_usage": None,
            "status": self.status,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """The stored result of a request that carried an idempotency key."""

    at: int
    same: tuple[Any, ...]
    request_id: str
    wire: Wire


class _RefusedError(Exception):
    """A reply that ends the work of an endpoint; `executed` says whether a key keeps it."""

    def __init__(self, status: int, error: Mapping[str, Any], *, executed: bool = False) -> None:
        super().__init__(error.get("message"))
        self.status = status
        self.error = error
        self.executed = executed


def _invalid(status: int, code: str | None, message: str, *, param: str | None = None) -> _RefusedError:
    error: dict[str, Any] = {"message": message, "type": "invalid_request_error"}
    if code is not None:
        error |= {"code": code, "doc_url": _doc(code)}
    if param is not None:
        error["param"] = param
    return _RefusedError(status, error)


def _doc(code: str) -> str:
    return f"https://stripe.com/docs/error-codes/{code.replace('_', '-')}"


def rate_limit(*, at: str = "*", nth: int | None = None, times: int = 1) -> Fault:
    """Make Stripe's 429, which it sends before any work and without Retry-After."""
    error = {
        "code": "rate_limit",
        "doc_url": _doc("rate_limit"),
        "message": "Too many requests.",
        "type": "invalid_request_error",
    }
    headers = {"stripe-rate-limited-reason": "global-rate", "stripe-should-retry": "false"}
    return answer(429, {"error": error}, at=at, headers=headers, nth=nth, times=times)


def lock_timeout(*, at: str = "*", nth: int | None = None) -> Fault:
    """Make the 409 for an object that another request holds; Stripe advises to retry."""
    error = {
        "code": "lock_timeout",
        "doc_url": _doc("lock_timeout"),
        "message": "Another request holds this object.",
        "type": "invalid_request_error",
    }
    return answer(409, {"error": error}, at=at, headers={"stripe-should-retry": "true"}, nth=nth)


def server_error(
    *, at: str = "*", when: str = "before", nth: int | None = None, saved: bool = False
) -> Fault:
    """Make Stripe's own 500; `saved` stores it under the key, whatever the work has done."""
    error = {"message": "Something went wrong on our side.", "type": "api_error"}
    return answer(500, {"error": error}, at=at, when=when, nth=nth, saved=saved)


_CREATE: Final = frozenset(
    {
        "amount",
        "automatic_payment_methods",
        "confirm",
        "currency",
        "customer",
        "description",
        "error_on_requires_action",
        "expand",
        "metadata",
        "off_session",
        "payment_method",
        "payment_method_types",
        "receipt_email",
        "return_url",
    }
)
_CONFIRM: Final = frozenset(
    {
        "error_on_requires_action",
        "expand",
        "mandate_data",
        "off_session",
        "payment_method",
        "payment_method_options",
        "receipt_email",
        "return_url",
        "use_stripe_sdk",
    }
)
_LIST: Final = frozenset({"customer", "ending_before", "expand", "limit", "starting_after"})
_PAYABLE: Final = ("requires_payment_method", "requires_confirmation", "requires_action")
_MINIMUM: Final[Mapping[str, int]] = {"usd": 50, "eur": 50, "gbp": 30}
_MAXIMUM: Final = 99_999_999
_KEY_LENGTH: Final = 255


class StripeMock(Vendor):
    """Stripe's money part, with its true idempotency and its true state machine.

    Args:
        faults: what goes wrong, see `Fault`.
        declines: for a payment method, the decline codes of its next attempts in turn; after
            them it behaves as usual.
        processing: payment methods whose confirm leaves the intent `processing` until `settle`.
        redirects: imitate an account that has redirect-based methods switched on: an intent
            that may redirect then needs a `return_url` to be confirmed.
        clones: imitate what Stripe does with a `pm_card_...` test name: each use makes a new
            payment method with an id of its own. False keeps the name, as with a stored card.
        late_holds_key: whether a request whose work is late holds its idempotency key meanwhile
            (409 for others). False imitates one that is still on its way.
        base_url, key: see `Vendor`.
    """

    url: ClassVar[str] = "https://api.stripe.com"

    def __init__(
        self,
        *,
        faults: Iterable[Fault] = (),
        declines: Mapping[str, Sequence[str]] | None = None,
        processing: Iterable[str] = (),
        redirects: bool = False,
        clones: bool = False,
        late_holds_key: bool = True,
        base_url: str | None = None,
        key: str = "sk_test_mock",
    ) -> None:
        """Start with one customer, `cus_demo`."""
        super().__init__(faults=faults, base_url=base_url, key=key)
        self.declines: dict[str, list[str]] = {card: list(codes) for card, codes in (declines or {}).items()}
        self.processing = set(processing)
        self.redirects = redirects
        self.clones = clones
        self.late_holds_key = late_holds_key
        self._customers: dict[str, dict[str, Any]] = {}
        self._intents: dict[str, _Intent] = {}
        self._charges: dict[str, Charge] = {}
        self._clones: dict[str, str] = {}
        self._kept: dict[str, _Kept] = {}
        self._held: dict[str, tuple[Any, ...]] = {}
        self.add_customer("cus_demo")
        intent = r"/v1/payment_intents/(?P<intent>[^/]+)"
        self.route("GET", "/v1/payment_intents", self._list_intents)
        self.route("POST", "/v1/payment_intents", self._create)
        self.route("GET", intent, self._read)
        self.route("POST", f"{intent}/confirm", self._confirm)
        self.route("POST", f"{intent}/cancel", self._cancel)
        self.route("GET", "/v1/charges", self._list_charges)
        self.route("GET", r"/v1/charges/(?P<charge>[^/]+)", self._read_charge)
        self.route("POST", "/v1/customers", self._create_customer)
        self.route("GET", r"/v1/customers/(?P<customer>[^/]+)", self._read_customer)

    # Oracles and levers for tests.

    @property
    def charges(self) -> list[Charge]:
        """Charges booked: money that moved, oldest first."""
        return [charge for charge in self.attempts if charge.status == "succeeded"]

    def done(self) -> int:
        """Return how many charges were booked."""
        return len(self.charges)

    @property
    def attempts(self) -> list[Charge]:
        """Every charge, the failed and the pending ones too, oldest first."""
        with self._lock:
            return list(self._charges.values())

    def charged(self, cart_id: str) -> list[Charge]:
        """Return the charges booked for one cart (`metadata.cart_id`)."""
        return [charge for charge in self.charges if charge.metadata.get("cart_id") == cart_id]

    def intents(self, cart_id: str | None = None) -> list[dict[str, Any]]:
        """Return the intents (of one cart), oldest first, as Stripe would send them."""
        with self._lock:
            found = [intent.json() for intent in self._intents.values()]
        return [intent for intent in found if cart_id in (None, intent["metadata"].get("cart_id"))]

    def add_customer(self, customer: str, *, email: str | None = None) -> None:
        """Make a customer with this id."""
        with self._lock:
            self._customers[customer] = {
                "id": customer,
                "object": "customer",
                "created": self.now,
                "email": email,
                "livemode": False,
                "metadata": {},
                "name": None,
            }

    def authenticate(self, intent: str, *, passed: bool = True) -> None:
        """Let the customer finish (or fail) the authentication that `next_action` asks for.

        Raises:
            ValueError: if the intent asks for none.
        """
        with self._lock:
            waiting = self._intents[intent]
            if waiting.status != "requires_action" or waiting.payment_method is None:
                msg = f"{intent} is {waiting.status}: nothing to authenticate"
                raise ValueError(msg)
            card, waiting.next_action = waiting.payment_method, None
            declined = _card(self._plain(card)).outcome.partition(":")[2]
            if not passed:
                self._fail_intent(waiting, self._failed_authentication(card))
            elif declined:
                self._decline(waiting, card, declined)
            else:
                self._pay(waiting, card)

    def settle(self) -> None:
        """Do all late work, then finish every intent that is `processing`."""
        with self._lock:
            super().settle()
            for intent in self._intents.values():
                if intent.status == "processing" and intent.payment_method is not None:
                    self._finish(intent, intent.payment_method)

    # Authentication and idempotency, around every endpoint.

    def perform(self, ask: Ask, work: Work) -> Wire:
        """Check the key of the account, then the idempotency key, then do the work."""
        if ask.headers.get("authorization") != f"Bearer {self.key}":
            return self._refuse(ask, _invalid(401, None, "No valid API key."))
        name = ask.headers.get("idempotency-key") if ask.method == "POST" else None
        if name is None:
            return self._attempt(ask, work)[0]
        if not 0 < len(name) <= _KEY_LENGTH:
            return self._refuse(ask, _invalid(400, None, "Idempotency keys have 1 to 255 chars."))
        return self._once(ask, work, name)

    def _once(self, ask: Ask, work: Work, name: str) -> Wire:
        """Do the work unless this idempotency key has a result already."""
        same, kept = _same(ask), self._kept.get(name)
        if kept is not None and self.now - kept.at >= KEY_LIFE:
            del self._kept[name]
            kept = None
        if (kept.same if kept else self._held.get(name, same)) != same:
            error = {"message": "Key was used with other values.", "type": "idempotency_error"}
            return self._refuse(ask, _RefusedError(400, error))
        if name in self._held:
            code = "idempotency_key_in_use"
            error = {"code": code, "doc_url": _doc(code), "message": "Key is in use."}
            return self._refuse(ask, _RefusedError(409, {**error, "type": "idempotency_error"}))
        if kept is not None:
            replayed = {"idempotent-replayed": "true", "original-request": kept.request_id}
            return replace(kept.wire, headers={**kept.wire.headers, **replayed})
        wire, executed = self._attempt(ask, work)
        if executed:
            self.save(ask, wire)
        return wire

    def own_headers(self, ask: Ask) -> dict[str, str]:
        """Return the headers Stripe puts on its replies."""
        headers = {
            "content-type": self.json_type,
            "request-id": _request_id(ask),
            "stripe-version": ask.headers.get("stripe-version", API_VERSION),
        }
        if "idempotency-key" in ask.headers and ask.method == "POST":
            headers["idempotency-key"] = ask.headers["idempotency-key"]
            headers["original-request"] = _request_id(ask)
        return headers

    def hold(self, ask: Ask) -> None:
        """Keep others off the key of a request whose work is late."""
        name = ask.headers.get("idempotency-key")
        if self.late_holds_key and name is not None and name not in self._kept:
            self._held.setdefault(name, _same(ask))

    def release(self, ask: Ask) -> None:
        """Let go of the key: the work is done now."""
        self._held.pop(ask.headers.get("idempotency-key", ""), None)

    def save(self, ask: Ask, wire: Wire) -> None:
        """Keep a result under its key for 24 hours."""
        name = ask.headers.get("idempotency-key")
        if name is not None and ask.method == "POST":
            self._kept[name] = _Kept(at=self.now, same=_same(ask), request_id=_request_id(ask), wire=wire)

    def _attempt(self, ask: Ask, work: Work) -> tuple[Wire, bool]:
        try:
            return work(ask), True
        except _RefusedError as refused:
            return self._refuse(ask, refused), refused.executed

    def _refuse(self, ask: Ask, refused: _RefusedError) -> Wire:
        log = f"https://dashboard.stripe.com/test/logs/{_request_id(ask)}"
        wire = self.reply(refused.status, {"error": {**refused.error, "request_log_url": log}})
        if ask.method == "POST" and refused.status in (400, 402):
            return replace(wire, headers={"stripe-should-retry": "false"})
        return wire

    # Endpoints.

    def _create(self, ask: Ask) -> Wire:
        form, metadata = _form(ask, _CREATE)
        amount = _integer(form, "amount")
        currency = _required(form, "currency").lower()
        if not re.fullmatch("[a-z]{3}", currency):
            raise _invalid(400, None, "No such currency.", param="currency")
        if amount < _MINIMUM.get(currency, 1):
            raise _invalid(400, "amount_too_small", "The amount is too small.", param="amount")
        if amount > _MAXIMUM:
            raise _invalid(400, "amount_too_large", "The amount is too large.", param="amount")
        customer = form.get("customer")
        if customer is not None and customer not in self._customers:
            raise _invalid(400, "resource_missing", "No such customer.", param="customer")
        card = form.get("payment_method")
        if card is not None:
            self._known(card)
        intent = _Intent(
            id=self.count("pi_"),
            amount=amount,
            currency=currency,
            customer=customer,
            metadata=metadata,
            created=self.now,
            redirects=_redirects(ask.form),
        )
        self._intents[intent.id] = intent
        if card is not None:
            intent.payment_method, intent.status = card, "requires_confirmation"
        if form.get("confirm") == "true":
            self._charge(intent, form)
        return self.reply(200, intent.json())

    def _read(self, ask: Ask) -> Wire:
        return self.reply(200, self._intent(ask).json())

    def _confirm(self, ask: Ask) -> Wire:
        intent = self._intent(ask)
        form, _ = _form(ask, _CONFIRM)
        if intent.status not in _PAYABLE:
            raise _unexpected(intent, f"A {intent.status} intent cannot be confirmed.")
        if "payment_method" in form:
            self._known(form["payment_method"])
        self._charge(intent, form)
        return self.reply(200, intent.json())

    def _cancel(self, ask: Ask) -> Wire:
        intent = self._intent(ask)
        form, _ = _form(ask, frozenset({"cancellation_reason", "expand"}))
        if intent.status not in _PAYABLE:
            raise _unexpected(intent, f"A {intent.status} intent cannot be canceled.")
        intent.status, intent.canceled_at, intent.next_action = "canceled", self.now, None
        intent.cancellation_reason = form.get("cancellation_reason")
        return self.reply(200, intent.json())

    def _list_intents(self, ask: Ask) -> Wire:
        customer = self._filter(ask, _LIST).get("customer")
        rows = [intent.json() for intent in self._intents.values()]
        wanted = [row for row in rows if customer in (None, row["customer"])]
        return self._page(ask, wanted)

    def _list_charges(self, ask: Ask) -> Wire:
        params = self._filter(ask, _LIST | {"payment_intent"})
        rows = [_charge_json(charge) for charge in self._charges.values()]
        for name in ("customer", "payment_intent"):
            rows = [row for row in rows if params.get(name) in (None, row[name])]
        return self._page(ask, rows)

    def _read_charge(self, ask: Ask) -> Wire:
        charge = self._charges.get(ask.parts["charge"])
        if charge is None:
            raise _invalid(404, "resource_missing", "No such charge.", param="id")
        return self.reply(200, _charge_json(charge))

    def _create_customer(self, ask: Ask) -> Wire:
        form, _ = _form(ask, frozenset({"description", "email", "expand", "metadata", "name"}))
        made = self.count("cus_")
        self.add_customer(made, email=form.get("email"))
        return self.reply(200, self._customers[made])

    def _read_customer(self, ask: Ask) -> Wire:
        customer = self._customers.get(ask.parts["customer"])
        if customer is None:
            raise _invalid(404, "resource_missing", "No such customer.", param="id")
        return self.reply(200, customer)

    def _intent(self, ask: Ask) -> _Intent:
        intent = self._intents.get(ask.parts["intent"])
        if intent is None:
            raise _invalid(404, "resource_missing", "No such payment_intent.", param="intent")
        return intent

    def _filter(self, ask: Ask, known: frozenset[str]) -> Mapping[str, str]:
        for name in ask.params:
            if name.partition("[")[0] not in known:
                raise _invalid(400, "parameter_unknown", "Unknown parameter.", param=name)
        if "customer" in ask.params and ask.params["customer"] not in self._customers:
            raise _invalid(400, "resource_missing", "No such customer.", param="customer")
        return ask.params

    def _page(self, ask: Ask, rows: list[dict[str, Any]]) -> Wire:
        """Return one page of rows, which come oldest first; Stripe lists the newest first."""
        limit = _integer({"limit": "10", **ask.params}, "limit")
        if not 1 <= limit <= 100:  # noqa: PLR2004  https://docs.stripe.com/api/pagination
            raise _invalid(400, "parameter_invalid_integer", "From 1 to 100.", param="limit")
        rows.reverse()
        after = ask.params.get("starting_after")
        if after is not None:
            ids = [row["id"] for row in rows]
            if after not in ids:
                raise _invalid(400, "resource_missing", "No such object.", param="starting_after")
            rows = rows[ids.index(after) + 1 :]
        page: dict[str, Any] = {"object": "list", "data": rows[:limit]}
        return self.reply(200, {**page, "has_more": len(rows) > limit, "url": ask.path})

    # The state machine.

    def _charge(self, intent: _Intent, form: Mapping[str, str]) -> None:
        """Try to take the money; refuses on a decline, else leaves the intent's new status."""
        name = form.get("payment_method") or intent.payment_method
        if name is None:
            raise _unexpected(intent, "The intent has no payment method.")
        if self.redirects and intent.redirects == "always" and "return_url" not in form:
            raise _invalid(400, None, "A return_url is needed.", param="return_url")
        card, plain = self._clone(name), self._plain(name)
        intent.payment_method, intent.next_action = card, None
        if plain in self.processing:
            intent.status, intent.last_payment_error = "processing", None
            self._book(intent, card, "pending")
            return
        outcome = self._scripted(plain) or _card(plain).outcome
        if outcome == "ok":
            self._pay(intent, card)
        elif outcome.partition(":")[0] == "authenticate":
            self._ask_customer(intent, card, form)
        else:
            raise self._decline(intent, card, outcome)

    def _ask_customer(self, intent: _Intent, card: str, form: Mapping[str, str]) -> None:
        """Send the customer to their bank, or decline when nobody is there to be sent."""
        if form.get("off_session") not in (None, "false"):
            raise self._decline(intent, card, "authentication_required")
        if form.get("error_on_requires_action") == "true":
            error = self._decline_error(intent, card, "authentication_required")
            raise self._fail_intent(intent, error)
        intent.status, intent.last_payment_error = "requires_action", None
        back = form.get("return_url")
        if back is None:
            sdk = {"type": "three_d_secure_redirect", "stripe_js": f"{self.base_url}/3ds"}
            intent.next_action = {"type": "use_stripe_sdk", "use_stripe_sdk": sdk}
        else:
            link = {"return_url": back, "url": f"{self.base_url}/3ds/{intent.id}"}
            intent.next_action = {"type": "redirect_to_url", "redirect_to_url": link}

    def _pay(self, intent: _Intent, card: str) -> None:
        intent.status, intent.last_payment_error = "succeeded", None
        intent.payment_method, intent.amount_received = card, intent.amount
        self._book(intent, card, "succeeded")

    def _decline(self, intent: _Intent, card: str, code: str) -> _RefusedError:
        self._book(intent, card, "failed", code)
        error = self._decline_error(intent, card, code)
        return self._fail_intent(intent, {**error, "charge": intent.latest_charge})

    def _fail_intent(self, intent: _Intent, error: dict[str, Any]) -> _RefusedError:
        intent.status, intent.payment_method = "requires_payment_method", None
        intent.last_payment_error, intent.next_action = error, None
        return _RefusedError(402, {**error, "payment_intent": intent.json()}, executed=True)

    def _decline_error(self, intent: _Intent, card: str, code: str) -> dict[str, Any]:
        decline = DECLINES.get(code, Decline())
        error: dict[str, Any] = {
            "code": decline.code,
            "decline_code": code,
            "doc_url": _doc(decline.code),
            "message": decline.message,
            "payment_method": self._method_json(card, intent.customer),
            "type": "card_error",
        }
        if decline.advice is not None:
            error["advice_code"] = decline.advice
        if decline.network is not None:
            error["network_decline_code"] = decline.network
        return error

    def _failed_authentication(self, card: str) -> dict[str, Any]:
        code = "payment_intent_authentication_failure"
        return {
            "code": code,
            "doc_url": _doc(code),
            "message": "The customer could not be authenticated.",
            "payment_method": self._method_json(card, None),
            "type": "invalid_request_error",
        }

    def _book(self, intent: _Intent, card: str, status: str, decline_code: str | None = None) -> None:
        charge = Charge(
            id=self.count("ch_"),
            intent=intent.id,
            amount=intent.amount,
            currency=intent.currency,
            customer=intent.customer,
            payment_method=card,
            status=status,
            created=self.now,
            metadata=dict(intent.metadata),
            decline_code=decline_code,
        )
        self._charges[charge.id] = charge
        intent.latest_charge = charge.id

    def _finish(self, intent: _Intent, card: str) -> None:
        """End `processing`: the pending charge succeeds, or fails with the next scripted code."""
        pending = self._charges[intent.latest_charge or ""]
        code = self._scripted(self._plain(card))
        if code is None:
            self._charges[pending.id] = replace(pending, status="succeeded")
            intent.status, intent.amount_received = "succeeded", intent.amount
        else:
            self._charges[pending.id] = replace(pending, status="failed", decline_code=code)
            error = self._decline_error(intent, card, code)
            self._fail_intent(intent, {**error, "charge": pending.id})

    # Payment methods.

    def _scripted(self, name: str) -> str | None:
        """Take the next scripted decline code of a payment method."""
        codes = self.declines.get(name)
        return codes.pop(0) if codes else None

    def _known(self, card: str) -> None:
        """Refuse a payment method that does not exist."""
        scripted = card in self.declines or card in self.processing or card in self._clones
        stored = card.startswith("pm_") and not card.startswith("pm_card_")
        if card not in CARDS and not scripted and not stored:
            raise _invalid(400, "resource_missing", "No such PaymentMethod.", param="payment_method")

    def _clone(self, name: str) -> str:
        if not self.clones or not name.startswith("pm_card_"):
            return name
        made = self.count("pm_")
        self._clones[made] = name
        return made

    def _plain(self, card: str) -> str:
        return self._clones.get(card, card)

    def _method_json(self, card: str, customer: str | None) -> dict[str, Any]:
        known = _card(self._plain(card))
        number = {"brand": known.brand, "last4": known.last4, "exp_month": 12, "exp_year": 2034}
        return {
            "id": card,
            "object": "payment_method",
            "card": {**number, "country": "US", "funding": "credit"},
            "created": self.now,
            "customer": customer,
            "livemode": False,
            "type": "card",
        }


def _card(name: str) -> Card:
    return CARDS.get(name, Card())


def _redirects(form: Mapping[str, str]) -> str | None:
    """Return `allow_redirects`: automatic methods are the default, fixed types switch them off."""
    if any(name.startswith("payment_method_types") for name in form):
        return None
    return form.get("automatic_payment_methods[allow_redirects]", "always")


def _same(ask: Ask) -> tuple[Any, ...]:
    """Return what two requests with one idempotency key must have in common."""
    return ask.method, ask.path, tuple(sorted(ask.form.items())), tuple(sorted(ask.params.items()))


def _request_id(ask: Ask) -> str:
    return f"req_{ask.position}"


def _unexpected(intent: _Intent, message: str) -> _RefusedError:
    code = "payment_intent_unexpected_state"
    error = {"code": code, "doc_url": _doc(code), "message": message}
    error = {**error, "type": "invalid_request_error"}
    return _RefusedError(400, {**error, "payment_intent": intent.json()}, executed=True)


def _form(ask: Ask, known: frozenset[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split a form into plain parameters and metadata; refuse names the endpoint lacks."""
    plain: dict[str, str] = {}
    metadata: dict[str, str] = {}
    for name, value in ask.form.items():
        root, _, rest = name.partition("[")
        if root not in known:
            raise _invalid(400, "parameter_unknown", "Unknown parameter.", param=name)
        if root == "metadata":
            metadata[rest.removesuffix("]")] = value
        elif value == "":
            raise _invalid(400, "parameter_invalid_empty", "An empty value.", param=name)
        else:
            plain[root] = value
    return plain, metadata


def _required(form: Mapping[str, str], name: str) -> str:
    if name not in form:
        raise _invalid(400, "parameter_missing", "A parameter is missing.", param=name)
    return form[name]


def _integer(form: Mapping[str, str], name: str) -> int:
    text = _required(form, name)
    if not re.fullmatch(r"-?[0-9]+", text):
        raise _invalid(400, "parameter_invalid_integer", "No integer.", param=name)
    return int(text)


_SELLER: Final[Mapping[str, tuple[str, str, str]]] = {
    "succeeded": ("approved_by_network", "authorized", "normal"),
    "pending": ("approved_by_network", "authorized", "normal"),
    "failed": ("declined_by_network", "issuer_declined", "normal"),
}


def _charge_json(charge: Charge) -> dict[str, Any]:
    decline = DECLINES.get(charge.decline_code or "", Decline())
    network, kind, risk = _SELLER[charge.status]
    reason = charge.decline_code
    if reason == "fraudulent":  # Radar stops it before the network sees it.
        network, kind, risk = "not_sent_to_network", "blocked", "highest"
        reason = "highest_risk_level"
    failed, paid = charge.status == "failed", charge.status == "succeeded"
    return {
        "id": charge.id,
        "object": "charge",
        "amount": charge.amount,
        "amount_captured": charge.amount if paid else 0,
        "amount_refunded": 0,
        "captured": paid,
        "created": charge.created,
        "currency": charge.currency,
        "customer": charge.customer,
        "disputed": False,
        "failure_code": decline.code if failed else None,
        "failure_message": decline.message if failed else None,
        "livemode": False,
        "metadata": dict(charge.metadata),
        "outcome": {
            "advice_code": decline.advice if failed else None,
            "network_advice_code": None,
            "network_decline_code": decline.network if failed else None,
            "network_status": network,
            "reason": reason,
            "risk_level": risk,
            "type": kind,
        },
        "paid": paid,
        "payment_intent": charge.intent,
        "payment_method": charge.payment_method,
        "refunded": False,
        "status": charge.status,
    }
