"""The table of the checkout: which answer of Stripe means what."""

from typing import Any, Final

import httpx
import pytest

from domains.checkout.rules import BOOK, json_or_unnamed, proves_payment
from domains.infrastructure import INFRASTRUCTURE
from domains.mapping import Reply
from orchestration.reasons import Effect, Reason

DONE, AGAIN, OVER, RULED = Reason.COMPLETED, Reason.TRANSIENT, Reason.FATAL, Reason.POLICY_BLOCK

# https://docs.stripe.com/declines/codes
DECLINE_CODES: Final = {
    AGAIN: (
        "approve_with_id authentication_required incorrect_cvc incorrect_number incorrect_pin "
        "incorrect_zip invalid_cvc invalid_expiry_month invalid_expiry_year invalid_number "
        "invalid_pin issuer_not_available offline_pin_required online_or_offline_pin_required "
        "processing_error reenter_transaction try_again_later"
    ),
    OVER: (
        "call_issuer card_not_supported card_velocity_exceeded currency_not_supported do_not_honor "
        "do_not_try_again duplicate_transaction expired_card generic_decline insufficient_funds "
        "invalid_account invalid_amount lost_card new_account_information_available no_action_taken "
        "not_permitted pickup_card pin_try_exceeded restricted_card revocation_of_all_authorizations "
        "revocation_of_authorization security_violation service_not_allowed stolen_card "
        "stop_payment_order testmode_decline transaction_not_allowed withdrawal_count_limit_exceeded"
    ),
    RULED: "fraudulent merchant_blacklist",
}
DECLINES: Final = [(code, reason) for reason, codes in DECLINE_CODES.items() for code in codes.split()]

# https://docs.stripe.com/error-codes: those of a request, most of which come as a 400.
ERROR_CODES: Final = {
    AGAIN: (
        "amount_too_large amount_too_small email_invalid invalid_characters parameter_invalid_empty "
        "parameter_invalid_integer parameter_invalid_string_blank parameter_missing parameter_unknown "
        "parameters_exclusive payment_intent_incompatible_payment_method "
        "payment_intent_invalid_parameter payment_intent_konbini_rejected_confirmation_number "
        "payment_method_currency_mismatch payment_method_unsupported_type postal_code_invalid "
        "a_code_that_stripe_adds_tomorrow payment_intent_action_required "
        "payment_intent_authentication_failure payment_intent_payment_attempt_expired "
        "payment_method_not_available payment_method_provider_timeout "
        "forwarding_api_upstream_connection_timeout terminal_reader_offline token_in_use lock_timeout "
        "payment_intent_rate_limit_exceeded rate_limit acss_debit_session_incomplete "
        "financial_connections_no_successful_transaction_refresh"
    ),
    OVER: (
        "account_closed account_invalid api_key_expired bank_account_exists bank_account_unusable "
        "billing_invalid_mandate capture_charge_authorization_expired "
        "card_decline_rate_limit_exceeded charge_already_captured charge_disputed "
        "charge_expired_for_capture coupon_expired customer_session_expired debit_not_authorized "
        "intent_invalid_state livemode_mismatch out_of_inventory payment_intent_mandate_invalid "
        "payment_intent_payment_attempt_failed payment_intent_unexpected_state "
        "payment_method_customer_decline payment_method_provider_decline payment_method_unactivated "
        "platform_api_key_expired product_inactive refer_to_customer resource_already_exists "
        "secret_key_required sku_inactive stripe_tax_inactive testmode_charges_only "
        "tls_version_unsupported token_already_used instant_payouts_unsupported"
    ),
    RULED: (
        "application_fees_not_allowed bank_account_restricted charge_exceeds_source_limit "
        "charge_exceeds_transaction_limit customer_max_payment_methods "
        "not_allowed_on_standard_account payment_method_bank_account_blocked payouts_not_allowed "
        "request_blocked storer_capability_missing"
    ),
}
ERRORS: Final = [(code, reason) for reason, codes in ERROR_CODES.items() for code in codes.split()]

INTENT: Final[dict[str, Any]] = {
    "id": "pi_1",
    "object": "payment_intent",
    "amount": 1999,
    "amount_received": 0,
    "currency": "usd",
    "last_payment_error": None,
    "latest_charge": "ch_1",
    "status": "requires_payment_method",
}
PAID: Final = {**INTENT, "amount_received": 1999, "status": "succeeded"}
CHARGE: Final = {"object": "charge", "captured": True, "paid": True, "refunded": False, "status": "succeeded"}
SETUP: Final = {"object": "setup_intent", "last_setup_error": None, "status": "requires_payment_method"}
SESSION: Final = {"object": "checkout.session", "payment_status": "unpaid", "status": "open"}


def answer(status: int, body: Any = None, **headers: str) -> Reply:
    """Return a reply to a write; a string is a page, anything else JSON."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if isinstance(body, str):
        return Reply(
            response=httpx.Response(status, headers={"content-type": "text/html", **named}, text=body),
            write=True,
        )
    return Reply(response=httpx.Response(status, headers=named, json=body), write=True)


def error(status: int, **fields: Any) -> Reply:
    """Return one of Stripe's errors; its prose must reach nobody."""
    return answer(status, {"error": {"message": "vendor prose", "type": "invalid_request_error", **fields}})


def decline(code: str | None = None, /, **fields: Any) -> Reply:
    """Return a declined card."""
    named = {} if code is None else {"decline_code": code}
    return error(402, **{"code": "card_declined", "type": "card_error", **named, **fields})


def outcome(kind: str, network: str = "declined_by_network") -> dict[str, Any]:
    """Return a decline's intent with its charge expanded."""
    return {"latest_charge": {"outcome": {"type": kind, "network_status": network, "reason": "rule"}}}


EXAMPLES: Final = [
    ("checkout/paid", DONE, answer(200, PAID)),
    ("checkout/paid", DONE, answer(200, PAID, idempotent_replayed="true")),
    ("checkout/paid", DONE, answer(200, CHARGE)),
    ("checkout/paid", DONE, answer(200, {**SESSION, "payment_status": "paid", "status": "complete"})),
    ("checkout/advised", AGAIN, answer(500, {"error": {"type": "api_error"}}, stripe_should_retry="true")),
    ("checkout/advised", AGAIN, answer(503, "<html></html>", stripe_should_retry="true")),
    ("checkout/returned", OVER, answer(200, {**PAID, "latest_charge": {"id": "ch_1", "refunded": True}})),
    ("checkout/processing", AGAIN, answer(200, {**INTENT, "status": "processing"})),
    ("checkout/action", AGAIN, answer(200, {**INTENT, "status": "requires_action"})),
    ("checkout/held", AGAIN, answer(200, {**INTENT, "status": "requires_capture"})),
    ("checkout/canceled", OVER, answer(200, {**INTENT, "status": "canceled"})),
    ("checkout/canceled", OVER, answer(200, {**SETUP, "status": "canceled"})),
    (
        "checkout/canceled-risk",
        RULED,
        answer(200, {**INTENT, "status": "canceled", "cancellation_reason": "fraudulent"}),
    ),
    ("checkout/session-expired", OVER, answer(200, {**SESSION, "status": "expired"})),
    ("checkout/session-open", AGAIN, answer(200, SESSION)),
    ("checkout/blocked", RULED, decline("generic_decline", payment_intent=outcome("blocked"))),
    (
        "checkout/blocked",
        RULED,
        decline(payment_intent=outcome("issuer_declined", "reversed_after_approval")),
    ),
    ("checkout/risk", RULED, decline("fraudulent")),
    ("checkout/risk", RULED, decline("fraudulent", advice_code="do_not_try_again")),
    ("checkout/risk", RULED, answer(200, {**INTENT, "last_payment_error": {"decline_code": "fraudulent"}})),
    ("checkout/risk", RULED, answer(200, {**SETUP, "last_setup_error": {"decline_code": "fraudulent"}})),
    ("checkout/advised-stop", OVER, decline("processing_error", advice_code="do_not_try_again")),
    ("checkout/advised-stop", OVER, decline("do_not_honor", network_advice_code="03")),
    ("checkout/advised-stop", OVER, decline("do_not_honor", network_advice_code="26")),
    ("checkout/advised-details", AGAIN, decline("do_not_honor", advice_code="confirm_card_data")),
    ("checkout/card-details", AGAIN, decline("incorrect_cvc", code="incorrect_cvc")),
    ("checkout/card-details", AGAIN, error(400, code="invalid_number", type="card_error")),
    ("checkout/pin", AGAIN, decline("incorrect_pin")),
    ("checkout/authentication", AGAIN, decline("authentication_required")),
    ("checkout/authentication", AGAIN, decline("authentication_not_handled")),
    ("checkout/authentication", AGAIN, decline("mobile_device_authentication_required")),
    ("checkout/issuer-busy", AGAIN, decline("issuer_not_available")),
    ("checkout/declined", OVER, decline("insufficient_funds", advice_code="try_again_later")),
    ("checkout/declined", OVER, decline("insufficient_funds", payment_intent=outcome("issuer_declined"))),
    ("checkout/declined", OVER, answer(200, {**INTENT, "last_payment_error": {"decline_code": "lost_card"}})),
    (
        "checkout/declined",
        OVER,
        answer(200, {**CHARGE, "status": "failed", "paid": False, "failure_code": "expired_card"}),
    ),
    ("checkout/advised-later", AGAIN, decline("do_not_honor", network_advice_code="02")),
    ("checkout/advised-later", AGAIN, decline("do_not_honor", advice_code="try_again_later")),
    ("checkout/advised-later", AGAIN, decline("generic_decline", advice_code="try_again_later")),
    ("checkout/card-error", OVER, decline("do_not_honor")),
    ("checkout/card-error", OVER, decline("generic_decline")),
    (
        "checkout/blocked",
        RULED,
        decline("generic_decline", advice_code="try_again_later", payment_intent=outcome("blocked")),
    ),
    ("checkout/in-use", AGAIN, error(409, code="idempotency_key_in_use", type="idempotency_error")),
    ("checkout/locked", AGAIN, error(409, code="lock_timeout")),
    ("checkout/locked", AGAIN, error(429, code="lock_timeout")),
    ("checkout/rate", AGAIN, error(429, code="rate_limit")),
    ("checkout/rate", AGAIN, answer(429, {"error": {"type": "rate_limit", "message": "of API version 2"}})),
    ("checkout/rate", AGAIN, error(429, type="rate_limit_error")),
    ("checkout/in-use-unnamed", AGAIN, error(409, type="idempotency_error")),
    ("checkout/key-reused", OVER, error(400, type="idempotency_error")),
    ("checkout/key-reused", OVER, error(409, type="idempotency_error", code="idempotency_error")),
    ("checkout/key-reused", OVER, error(422, code="idempotency_conflict")),
    ("checkout/key-reused", OVER, error(409, code="payload_mismatch")),
    ("checkout/limit", RULED, answer(400, {"error": {"type": "quota_exceeded", "message": "v2"}})),
    ("checkout/not-permitted", RULED, answer(400, {"error": {"type": "feature_not_enabled"}})),
    ("checkout/not-permitted", RULED, answer(403, {"error": "access_denied", "error_description": "prose"})),
    ("checkout/not-permitted", RULED, error(403, type="permission_error")),
    ("checkout/misconfigured", OVER, answer(400, {"error": "invalid_grant", "error_description": "prose"})),
    ("checkout/misconfigured", OVER, answer(401, {"error": "invalid_client"})),
    ("checkout/misconfigured", OVER, error(401, type="authentication_error")),
    ("checkout/behind", AGAIN, error(400, code="payment_method_provider_timeout")),
    (
        "checkout/state-open",
        AGAIN,
        error(400, code="payment_intent_unexpected_state", payment_intent={"status": "processing"}),
    ),
    (
        "checkout/state-over",
        OVER,
        error(400, code="payment_intent_unexpected_state", payment_intent={"status": "succeeded"}),
    ),
    ("checkout/already", OVER, error(400, code="charge_already_refunded")),
    ("checkout/already", OVER, answer(400, {"error": {"type": "already_canceled"}})),
    ("checkout/over", OVER, answer(400, {"error": {"type": "temporary_session_expired"}})),
    (
        "checkout/other-mode",
        OVER,
        error(404, code="resource_missing", message="a similar object exists in live mode"),
    ),
    ("checkout/version", OVER, error(400, message="Invalid Stripe API version: tomorrow")),
    ("checkout/no-such-method", AGAIN, error(400, code="resource_missing", param="payment_method")),
    ("checkout/missing", OVER, error(400, code="resource_missing", param="customer")),
    ("checkout/card-error", OVER, decline("a_code_that_stripe_adds_tomorrow")),
    ("checkout/card-error", OVER, decline()),
    ("checkout/card-error", OVER, answer(200, {"error": {"type": "card_error"}})),
    ("checkout/api-error", AGAIN, error(500, type="api_error")),
    ("checkout/arguments", AGAIN, error(400)),
    ("checkout/request-failed", OVER, error(402, type="a_class_that_stripe_adds_tomorrow")),
    ("checkout/dependency", AGAIN, error(424, type="external_error")),
    (
        "checkout/forbidden",
        RULED,
        error(403, message="This API key does not allow requests from your IP address."),
    ),
    ("checkout/charge-failed", OVER, answer(200, {**CHARGE, "status": "failed", "paid": False})),
    (
        "checkout/charge-failed",
        OVER,
        answer(
            200,
            {
                **CHARGE,
                "status": "failed",
                "failure_code": "card_declined",
                "outcome": {"reason": "do_not_honor"},
            },
        ),
    ),
    ("checkout/unpaid", AGAIN, answer(200, INTENT)),
    ("checkout/unpaid", AGAIN, answer(200, {**INTENT, "status": "requires_confirmation"})),
    ("checkout/unproven", AGAIN, answer(200, {"object": "list", "data": [PAID], "has_more": False})),
    ("checkout/unproven", AGAIN, answer(200, {"id": "pi_1", "object": "payment_intent", "deleted": True})),
    ("checkout/unproven", AGAIN, answer(200, {"object": "event", "data": {"object": PAID}})),
    ("checkout/unproven", AGAIN, answer(200, {"object": "refund", "amount": 1999, "status": "succeeded"})),
    ("checkout/unproven", AGAIN, answer(200, {"object": "setup_intent", "status": "succeeded"})),
    ("checkout/unproven", AGAIN, answer(200, {**SESSION, "status": "complete"})),
    ("checkout/unproven", AGAIN, answer(200, {**CHARGE, "captured": False})),
    ("checkout/unproven", AGAIN, answer(200, {**CHARGE, "amount": 1999, "amount_captured": 1})),
    ("checkout/unproven", AGAIN, answer(200, {**PAID, "errors": [{"message": "vendor prose"}]})),
    ("checkout/paid", DONE, answer(200, {**CHARGE, "amount": 1999, "amount_captured": 1999})),
    ("checkout/unproven", AGAIN, answer(200, {**PAID, "amount_received": 0})),
    ("checkout/unproven", AGAIN, answer(200, {**PAID, "amount_received": 1})),
    ("checkout/unproven", AGAIN, answer(200, {**PAID, "amount_received": True, "amount": True})),
    (
        "checkout/unproven",
        AGAIN,
        answer(200, {**SESSION, "payment_status": "no_payment_required", "status": "complete"}),
    ),
]


@pytest.mark.parametrize(("rule", "reason", "reply"), EXAMPLES)
def test_an_answer_is_decided_by_its_row(rule: str, reason: Reason, reply: Reply) -> None:
    """Each of these answers of Stripe is decided by the row that was made for it."""
    decided = BOOK.classify(reply)

    assert (rule, reason) == (decided.rule, decided.reason)


def test_no_row_is_dead() -> None:
    """Each row of the checkout's own decides at least one of the examples."""
    own = {rule.id for rule in BOOK.rules} - {rule.id for rule in INFRASTRUCTURE}

    assert own == {rule for rule, _, _ in EXAMPLES}


@pytest.mark.parametrize(("code", "reason"), DECLINES)
def test_decline_codes(code: str, reason: Reason) -> None:
    """Each documented decline code has the reason it is documented for, and proves that nothing was taken."""
    decided = BOOK.classify(decline(code))

    assert (reason, Effect.NONE, code) == (decided.reason, decided.effect, decided.vendor_code)


def test_there_are_47_decline_codes() -> None:
    """The table above is whole: as many codes as stripe-go names, none of them twice."""
    assert 47 == len(DECLINES) == len(dict(DECLINES))


@pytest.mark.parametrize(("code", "reason"), ERRORS)
def test_error_codes(code: str, reason: Reason) -> None:
    """Each error code has its reason; one that nobody knows is the model's to correct."""
    assert reason is BOOK.classify(error(400, code=code)).reason


@pytest.mark.parametrize("code", [code for code, _ in DECLINES])
def test_a_decline_says_nothing_a_thief_could_use(code: str) -> None:
    """No code, no word of suspicion and nothing of Stripe's prose reaches the reader."""
    said = BOOK.classify(decline(code)).content.lower()

    for word in (code, code.replace("_", " "), "prose", "fraud", "stolen", "lost", "risk", "suspic", "block"):
        assert word not in said


@pytest.mark.parametrize("code", ["lost_card", "stolen_card", "pickup_card", "restricted_card"])
def test_a_stolen_card_is_told_like_an_empty_one(code: str) -> None:
    """Whoever holds the card learns nothing from how the refusal is worded."""
    assert BOOK.classify(decline("insufficient_funds")).content == BOOK.classify(decline(code)).content


@pytest.mark.parametrize("reply", [reply for _, _, reply in EXAMPLES])
def test_no_codes_and_no_markup_in_any_text(reply: Reply) -> None:
    """Whatever Stripe wrote, the text is ours: no underscore word, no tag, no prose, no identifier."""
    decided = BOOK.classify(reply)

    for mark in ("_", "<", "prose", "pi_1", "ch_1"):
        assert mark not in decided.content


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (301, OVER),
        (400, AGAIN),
        (401, OVER),
        (403, RULED),
        (404, OVER),
        (405, OVER),
        (409, AGAIN),
        (410, OVER),
        (415, OVER),
        (424, AGAIN),
        (429, AGAIN),
        (451, RULED),
        (500, AGAIN),
        (502, AGAIN),
        (503, AGAIN),
        (504, AGAIN),
        (520, AGAIN),
    ],
)
def test_statuses_without_a_code(status: int, reason: Reason) -> None:
    """Where Stripe gives no code, the class and the status decide, a page or an error alike."""
    assert [reason, reason] == [
        BOOK.classify(reply).reason for reply in (error(status), answer(status, "<html>a page</html>"))
    ]


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206])
def test_a_page_or_nothing_is_never_a_payment(status: int) -> None:
    """A login page, an empty body, half a JSON and a paid intent sent as HTML prove nothing."""
    whole = httpx.Response(200, json=PAID).content
    bodies = [b"", b"<html>Log in</html>", whole[:-20], b"null", b"[]", b"true"]
    bodies.append(b'{"ok": true, "status": "succeeded", "paid": true}')
    replies = [
        httpx.Response(status, content=body, headers={"content-type": "application/json"}) for body in bodies
    ]
    replies.append(httpx.Response(status, content=whole, headers={"content-type": "text/html"}))

    decided = [BOOK.classify(Reply(response=reply, write=True)) for reply in replies]

    assert not [each for each in decided if each.reason is DONE or each.effect is Effect.NONE]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"error": {"type": "insufficient_quota", "message": "You exceeded your current quota."}}, {}),
        ({"error": {"type": "invalid_request_error", "message": "The daily limit is reached."}}, {}),
        ({"message": "Limit Exceeded"}, {"x-amzn-errortype": "LimitExceededException"}),
        ({"message": "API rate limit exceeded"}, {"x-ratelimit-remaining-day": "0"}),
    ],
)
def test_a_spent_plan_is_no_rush_hour(body: Any, headers: dict[str, str]) -> None:
    """A 429 of a plan or a daily cap, Stripe's or a gateway's before it, is a rule's."""
    assert RULED is BOOK.classify(answer(429, body, **headers)).reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"ok": False, "error": "ratelimited"}, AGAIN),
        ({"ok": False, "error": "invalid_auth"}, OVER),
        ({"data": None, "errors": [{"extensions": {"code": "FORBIDDEN"}}]}, RULED),
        ({"data": {"a": 1}, "errors": [{"extensions": {"code": "FORBIDDEN"}}]}, AGAIN),
    ],
)
def test_an_error_of_somebody_else_in_a_200(body: Any, reason: Reason) -> None:
    """What is no object of Stripe's is read by the rows that every domain shares."""
    assert reason is BOOK.classify(answer(200, body)).reason


@pytest.mark.parametrize("status", [301, 400, 402, 403, 409, 429, 500, 503])
def test_a_paid_intent_under_any_other_status_is_no_payment(status: int) -> None:
    """The status is the first half of the proof."""
    assert DONE is not BOOK.classify(answer(status, PAID)).reason


def test_a_missing_content_type_is_no_reason_to_doubt() -> None:
    """Only a media type that is not JSON speaks against a body that reads as JSON."""
    assert [True, True, True, False] == list(
        map(json_or_unnamed, ["", "application/json", "application/vnd.api+JSON; charset=utf-8", "text/html"])
    )


@pytest.mark.parametrize(
    "body", [None, "succeeded", 1, [], {"object": ["payment_intent"], "status": "succeeded"}]
)
def test_what_is_no_object_of_stripe_proves_nothing(body: object) -> None:
    """The proof is asked of any JSON value and fails on all but three kinds of object."""
    assert not proves_payment(body)


@pytest.mark.parametrize("row", [row.id for row in BOOK.rules])
def test_a_row_is_argued_for(row: str) -> None:
    """Each row has one short sentence for its reason, and no sentence orders a retry."""
    rule = BOOK[row]

    assert len(rule.why) < 120
    assert not [word for word in ("try again", "retry", "please") if word in rule.say.lower()]


@pytest.mark.parametrize(
    ("raised", "reason", "effect"),
    [
        (httpx.ConnectError, AGAIN, Effect.NONE),
        (httpx.ConnectTimeout, AGAIN, Effect.NONE),
        (httpx.PoolTimeout, AGAIN, Effect.NONE),
        (httpx.ReadTimeout, AGAIN, Effect.UNKNOWN),
        (httpx.WriteTimeout, AGAIN, Effect.UNKNOWN),
        (httpx.ReadError, AGAIN, Effect.UNKNOWN),
        (httpx.WriteError, AGAIN, Effect.UNKNOWN),
        (httpx.CloseError, AGAIN, Effect.UNKNOWN),
        (httpx.RemoteProtocolError, AGAIN, Effect.UNKNOWN),
        (httpx.DecodingError, AGAIN, Effect.UNKNOWN),
        (httpx.LocalProtocolError, OVER, Effect.NONE),
        (httpx.UnsupportedProtocol, OVER, Effect.NONE),
        (httpx.InvalidURL, OVER, Effect.NONE),
    ],
)
def test_exceptions(raised: type[Exception], reason: Reason, effect: Effect) -> None:
    """An exception on a write says whether the request can have arrived, and never that it worked."""
    decided = BOOK.classify(Reply(error=raised("sk_test_key"), write=True))

    assert (reason, effect) == (decided.reason, decided.effect)
    assert "sk_test_key" not in str(decided)


def test_a_cancelled_run_is_no_answer() -> None:
    """What is no Exception is raised again, never classified."""
    with pytest.raises(KeyboardInterrupt):
        BOOK.classify(Reply(error=KeyboardInterrupt()))


@pytest.mark.parametrize(
    ("reply", "wait"),
    [
        (error(429, code="rate_limit"), 5),
        (answer(429, {"error": {"code": "rate_limit"}}, retry_after="17"), 17),
    ],
)
def test_a_limit_names_a_wait(reply: Reply, wait: int) -> None:
    """Stripe sends no Retry-After with its limits: ours stands in, and gives way to one that is there."""
    decided = BOOK.classify(reply)

    assert wait == decided.retry_after_s
    assert f"about {wait} seconds" in decided.content
