"""What Stripe's answers to a payment mean.

Stripe says what went wrong three times, ever more coarsely: a decline code or an error code, the class of
errors (``type``), and the HTTP status. The most telling one decides. A 200 says that a request was handled,
not that anything was paid: the proof is in the body.

Names: https://docs.stripe.com/declines/codes, https://docs.stripe.com/error-codes,
https://github.com/stripe/stripe-go/blob/master/error.go (v1),
https://github.com/stripe/stripe-java/blob/master/src/main/java/com/stripe/exception/StripeException.java (v2)
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from domains.infrastructure import INFRASTRUCTURE
from domains.mapping import Rule, RuleBook, When, present
from orchestration.reasons import Effect, Reason

DECLINES: Final = "https://docs.stripe.com/declines/codes"
ERRORS: Final = "https://docs.stripe.com/error-codes"
LIFECYCLE: Final = "https://docs.stripe.com/payments/paymentintents/lifecycle"
ADVICE_PAGE: Final = "https://docs.stripe.com/declines#retrying-issuer-declines"
IDEMPOTENCY: Final = "https://docs.stripe.com/api/idempotent_requests"
LOW_LEVEL: Final = "https://docs.stripe.com/error-low-level"
LIMITS: Final = "https://docs.stripe.com/rate-limits"
STATUSES: Final = "https://docs.stripe.com/api/errors"
KEYS: Final = "https://docs.stripe.com/keys"
RADAR: Final = "https://docs.stripe.com/declines#blocked-payments"
SESSIONS: Final = "https://docs.stripe.com/api/checkout/sessions/object"

NAME: Final = (
    "error.decline_code|error.code|error.type|error"
    "|last_payment_error.decline_code|last_payment_error.code"
    "|last_setup_error.decline_code|last_setup_error.code|outcome.reason|failure_code"
)
"""Where Stripe says what went wrong: errors of both API versions, OAuth's plain string, an unpaid or unsaved
intent, a failed charge. No word stands for two things among them, so one look finds all; the most telling first."""

CLASS: Final = "error.type|last_payment_error.type|last_setup_error.type"
"""The class of errors."""

ADVICE: Final = (
    "error.advice_code|error.network_advice_code"
    "|last_payment_error.advice_code|last_payment_error.network_advice_code"
    "|last_setup_error.advice_code|last_setup_error.network_advice_code"
)
"""What the issuer (a word) and the card network (two digits, of Visa one) advise after a decline."""

RISK: Final = "error.payment_intent.latest_charge.outcome|latest_charge.outcome|outcome"
"""What became of the attempt inside Stripe: there if the charge is expanded."""

ANSWERED: Final = range(200, 300)


def json_or_unnamed(value: object) -> bool:
    """Match the media type of a JSON reply, and none at all."""
    return isinstance(value, str) and (not value or "json" in value.lower())


def blocked(value: object) -> bool:
    """Match an attempt that Stripe's risk rules stopped, before the bank was asked or after it agreed."""
    return isinstance(value, dict) and (
        value.get("type") == "blocked" or value.get("network_status") == "reversed_after_approval"
    )


def proves_payment(value: object) -> bool:
    """Match an intent, a charge or a Checkout Session that says that the whole amount was taken and kept."""
    if not isinstance(value, dict) or value.get("error") is not None or value.get("errors"):
        return False
    proof = _PROOFS.get(str(value.get("object")))
    return proof is not None and proof(value)


def _paid_intent(intent: Mapping[str, Any]) -> bool:
    received = intent.get("amount_received")
    return (
        intent.get("status") == "succeeded"
        and type(received) is int
        and received > 0
        and received == intent.get("amount")
        and _kept(intent.get("latest_charge"))
    )


def _paid_charge(charge: Mapping[str, Any]) -> bool:
    # A charge that is paid but not captured is a hold, not a payment; captured in part, it is a part.
    amount = charge.get("amount")
    return (
        charge.get("status") == "succeeded"
        and charge.get("paid") is True
        and charge.get("captured") is True
        and charge.get("amount_captured", amount) == amount
        and _kept(charge)
    )


def _paid_session(session: Mapping[str, Any]) -> bool:
    # Without a payment status of its own, a session that is over has still to be paid by a slow method.
    return session.get("status") == "complete" and session.get("payment_status") == "paid"


def _kept(charge: object) -> bool:
    """Whether nothing of a charge was paid back; one that is no object (an id) says nothing of it."""
    if not isinstance(charge, dict):
        return True
    return not charge.get("refunded") and not charge.get("amount_refunded") and not charge.get("disputed")


_PROOFS: Final = {
    "payment_intent": _paid_intent,
    "charge": _paid_charge,
    "checkout.session": _paid_session,
}

BOOK: Final = RuleBook(
    domain="checkout",
    codes=(NAME,),
    request_ids=("request-id", "x-request-id"),
    unchanged="Nothing was charged.",
    unconfirmed="Whether the payment went through is not confirmed.",
    rules=(
        # The proof of success.
        Rule(
            id="checkout/paid",
            when=When(status=ANSWERED, header={"content-type": json_or_unnamed}, body={"": proves_payment}),
            reason=Reason.COMPLETED,
            say="The payment was received.",
            why="The object itself says that the whole amount arrived and stayed.",
            source=LIFECYCLE,
        ),
        # The vendor's explicit advice to retry. "false" decides nothing: it stands on 429s, too.
        Rule(
            id="checkout/advised",
            when=When(header={"stripe-should-retry": "true"}),
            reason=Reason.TRANSIENT,
            say="The payment service could not take this up at the moment. Waiting a little would help.",
            why="Stripe itself says that the same request may be sent again.",
            source=LOW_LEVEL,
        ),
        # What an answer says that is a 200 and no payment.
        Rule(
            id="checkout/returned",
            when=When(status=ANSWERED, body={"latest_charge.refunded|refunded": True}),
            reason=Reason.FATAL,
            say="This was paid before, and the payment was paid back. A new order is needed.",
            why="The intent is used up: Stripe never charges it a second time.",
            source="https://docs.stripe.com/refunds",
            effect=Effect.APPLIED,
        ),
        Rule(
            id="checkout/processing",
            when=When(status=ANSWERED, body={"object": {"payment_intent"}, "status": {"processing"}}),
            reason=Reason.TRANSIENT,
            say="The payment is on its way at the bank. Looking again after a short wait would help.",
            why="Stripe took it and does not know yet how it ends; it must not be sent as a new payment.",
            source=LIFECYCLE,
            effect=Effect.UNKNOWN,
            retry_after_s=10,
        ),
        Rule(
            id="checkout/action",
            when=When(
                status=ANSWERED,
                body={"object": {"payment_intent"}, "status": {"requires_action", "requires_source_action"}},
            ),
            reason=Reason.TRANSIENT,
            say="The customer's bank wants the customer to confirm the payment, in its app or on its page.",
            why="The same payment passes once the customer has authenticated.",
            source="https://docs.stripe.com/payments/3d-secure",
            effect=Effect.NONE,
        ),
        Rule(
            id="checkout/held",
            when=When(status=ANSWERED, body={"object": {"payment_intent"}, "status": {"requires_capture"}}),
            reason=Reason.TRANSIENT,
            say="The amount is held on the card and not yet taken.",
            why="A hold is no payment: somebody has to capture it, or it lapses.",
            source="https://docs.stripe.com/payments/place-a-hold-on-a-payment-method",
            effect=Effect.UNKNOWN,
        ),
        Rule(
            id="checkout/canceled-risk",
            when=When(status=ANSWERED, body={"status": {"canceled"}, "cancellation_reason": {"fraudulent"}}),
            reason=Reason.POLICY_BLOCK,
            say="The payment for this order was withdrawn and is not taken up again.",
            why="Somebody withdrew it on suspicion: that is a rule's refusal, said in neutral words.",
            source=LIFECYCLE,
            effect=Effect.NONE,
        ),
        Rule(
            id="checkout/canceled",
            when=When(
                status=ANSWERED, body={"object": {"payment_intent", "setup_intent"}, "status": {"canceled"}}
            ),
            reason=Reason.FATAL,
            say="The payment for this order was withdrawn. A new order is needed.",
            why="A withdrawn intent stays so, and a second one for the cart could charge it twice.",
            source=LIFECYCLE,
            effect=Effect.NONE,
        ),
        Rule(
            id="checkout/session-expired",
            when=When(status=ANSWERED, body={"object": {"checkout.session"}, "status": {"expired"}}),
            reason=Reason.FATAL,
            say="The payment page of this order has lapsed. A new order is needed.",
            why="A lapsed session cannot be paid, and a new one is a new request.",
            source=SESSIONS,
            effect=Effect.NONE,
        ),
        Rule(
            id="checkout/session-open",
            when=When(status=ANSWERED, body={"object": {"checkout.session"}, "status": {"open"}}),
            reason=Reason.TRANSIENT,
            say="The payment page is open and the customer has not paid yet.",
            why="A link was made and nothing more; the customer can still use it.",
            source=SESSIONS,
            effect=Effect.NONE,
        ),
        # Somebody's rule, before any code that could hide it.
        Rule(
            id="checkout/blocked",
            when=When(body={RISK: blocked}),
            reason=Reason.POLICY_BLOCK,
            say="The payment was declined.",
            why="Stripe's risk rules stopped it: further attempts count against the customer, and hints help thieves.",
            source=RADAR,
        ),
        Rule(
            id="checkout/risk",
            when=When(body={NAME: {"fraudulent", "merchant_blacklist"}}),
            reason=Reason.POLICY_BLOCK,
            say="The payment was declined.",
            why="Suspicion or a block list, which Stripe asks to show as a plain decline.",
            source=DECLINES,
        ),
        # What issuer and network advise after a decline.
        Rule(
            id="checkout/advised-stop",
            when=When(
                body={
                    ADVICE: {
                        *("do_not_try_again", "1"),
                        # Mastercard: new account data, never, no token, cancelled, not eligible.
                        *("01", "03", "04", "21", "22"),
                        # After an hour, a day, 2, 4, 6, 8 or 10 days: no run waits so long.
                        *("24", "25", "26", "27", "28", "29", "30"),
                        # Prepaid and single-use cards, sanctions.
                        *("40", "41", "42", "43"),
                    }
                }
            ),
            reason=Reason.FATAL,
            say="The card was declined. Another card, or a word with the bank that issued this one, can help.",
            why="The advice is never, or not for hours: no call that could be made now succeeds.",
            source=ADVICE_PAGE,
        ),
        Rule(
            id="checkout/advised-details",
            when=When(body={ADVICE: {"confirm_card_data", "3"}}),
            reason=Reason.TRANSIENT,
            say="The bank could not match the card's details. The customer has to check number, date and code.",
            why="The advice is to confirm the card's data, which the customer has.",
            source=ADVICE_PAGE,
        ),
        # Decline codes; many are error codes as well.
        Rule(
            id="checkout/card-details",
            when=When(
                body={
                    NAME: {
                        *("incorrect_number", "invalid_number", "incorrect_cvc", "invalid_cvc"),
                        *("invalid_expiry_month", "invalid_expiry_year"),
                        *("incorrect_zip", "incorrect_postal_code", "incorrect_address"),
                    }
                }
            ),
            reason=Reason.TRANSIENT,
            say="Some of the card's details do not fit. The customer has to check and enter them anew.",
            why="A slip of the customer's hand, and the same payment passes once it is put right.",
            source=DECLINES,
        ),
        Rule(
            id="checkout/pin",
            when=When(
                body={
                    NAME: {
                        *("incorrect_pin", "invalid_pin"),
                        *("offline_pin_required", "online_or_offline_pin_required"),
                    }
                }
            ),
            reason=Reason.TRANSIENT,
            say="The card's PIN is needed. The customer has to enter it at the reader.",
            why="The customer knows the PIN, and the same payment passes with it.",
            source=DECLINES,
        ),
        Rule(
            id="checkout/authentication",
            when=When(
                body={
                    NAME: {
                        *("authentication_required", "authentication_failure"),
                        *("authentication_not_handled", "mobile_device_authentication_required"),
                        *("payment_intent_action_required", "invoice_payment_intent_requires_action"),
                        *("payment_intent_authentication_failure", "setup_intent_authentication_failure"),
                        *("payment_intent_payment_attempt_expired", "setup_intent_setup_attempt_expired"),
                    }
                }
            ),
            reason=Reason.TRANSIENT,
            say="The bank wants to know that it is really the customer. The customer has to confirm the payment.",
            why="Authentication is missing, failed or ran out; the customer can still do it.",
            source="https://docs.stripe.com/payments/3d-secure",
        ),
        Rule(
            id="checkout/issuer-busy",
            when=When(
                body={
                    NAME: {
                        *("processing_error", "try_again_later", "issuer_not_available"),
                        *("reenter_transaction", "approve_with_id"),
                    }
                }
            ),
            reason=Reason.TRANSIENT,
            say="The bank could not be asked at the moment. A short wait, or another card, would help.",
            why="The issuer or the way to it failed, and nobody said no to this card.",
            source=DECLINES,
        ),
        Rule(
            id="checkout/declined",
            when=When(
                body={
                    NAME: {
                        # Not the declines that name no reason (do_not_honor, generic_decline): advice decides.
                        *("call_issuer", "do_not_try_again", "no_action_taken"),
                        *("insufficient_funds", "card_velocity_exceeded", "withdrawal_count_limit_exceeded"),
                        *("gift_card_balance_insufficient", "balance_insufficient"),
                        # Lost and stolen cards get the words of every other decline: the bearer may be the thief.
                        *("lost_card", "stolen_card", "pickup_card", "restricted_card", "security_violation"),
                        *("expired_card", "expired_payment_method", "new_account_information_available"),
                        *("invalid_account", "invalid_amount", "duplicate_transaction", "testmode_decline"),
                        *("card_not_supported", "currency_not_supported", "not_permitted"),
                        *("service_not_allowed", "transaction_not_allowed", "pin_try_exceeded"),
                        *("revocation_of_authorization", "revocation_of_all_authorizations"),
                        *("stop_payment_order", "debit_not_authorized", "refer_to_customer"),
                        *("card_decline_rate_limit_exceeded", "bank_account_declined"),
                        *("payment_method_provider_decline", "payment_method_customer_decline"),
                        *("payment_intent_payment_attempt_failed", "setup_attempt_failed"),
                    }
                }
            ),
            reason=Reason.FATAL,
            say="The card was declined. Another card, or a word with the bank that issued this one, can help.",
            why="The issuer said no to this card, and another card is a new decision of the customer.",
            source=DECLINES,
        ),
        Rule(
            id="checkout/advised-later",
            when=When(body={ADVICE: {"try_again_later", "02", "2"}}),
            reason=Reason.TRANSIENT,
            say="The bank did not approve the payment at the moment. A short wait, or another card, would help.",
            why="No reason and the advice to try later; without advice, and with a reason, a decline is final.",
            source=ADVICE_PAGE,
        ),
        # Codes that speak of requests.
        Rule(
            id="checkout/in-use",
            when=When(body={NAME: {"idempotency_key_in_use"}}),
            reason=Reason.TRANSIENT,
            say="This very payment is being worked on at the moment. A short wait would help.",
            why="The first request with this key has not ended yet, and the same key will show how it did.",
            source=IDEMPOTENCY,
            effect=Effect.UNKNOWN,
            retry_after_s=2,
        ),
        Rule(
            id="checkout/locked",
            when=When(body={NAME: {"lock_timeout", "token_in_use", "terminal_reader_busy"}}),
            reason=Reason.TRANSIENT,
            say="Something else is at work on this payment at the moment. A short wait would help.",
            why="The object is taken by another request for seconds; this one was not carried out.",
            source="https://docs.stripe.com/rate-limits#object-lock-timeouts",
            retry_after_s=2,
        ),
        Rule(
            id="checkout/rate",
            when=When(
                body={NAME: {"rate_limit", "rate_limit_error", "payment_intent_rate_limit_exceeded"}},
            ),
            reason=Reason.TRANSIENT,
            say="The payment service gets too many requests from us at the moment. Waiting a little would help.",
            why="Stripe turns requests away before any work; the limits are counted by the second.",
            source=LIMITS,
            retry_after_s=5,
        ),
        Rule(
            id="checkout/in-use-unnamed",
            when=When(status=409, body={"error.type": {"idempotency_error"}, "error.code": None}),
            reason=Reason.TRANSIENT,
            say="This very payment is being worked on at the moment. A short wait would help.",
            why="Stripe's 409 is about two requests at one time; other contents under a key are a 400.",
            source=STATUSES,
            effect=Effect.UNKNOWN,
            retry_after_s=2,
        ),
        Rule(
            id="checkout/key-reused",
            when=When(body={NAME: {"idempotency_error", "idempotency_conflict", "payload_mismatch"}}),
            reason=Reason.FATAL,
            say="A payment for this order was already started with other details. Somebody has to look at it.",
            why="One key, two contents: a new key could pay the cart twice, so nobody makes one.",
            source=IDEMPOTENCY,
        ),
        Rule(
            id="checkout/limit",
            when=When(
                body={
                    NAME: {
                        *("charge_exceeds_source_limit", "charge_exceeds_transaction_limit"),
                        *("payouts_limit_exceeded", "instant_payouts_limit_exceeded", "quota_exceeded"),
                        *("customer_max_payment_methods", "customer_max_subscriptions"),
                        "progressive_onboarding_limit_exceeded",
                    }
                }
            ),
            reason=Reason.POLICY_BLOCK,
            say="A limit of this shop's payment account is reached.",
            why="A cap that somebody set for days or for good; only they can raise it.",
            source=ERRORS,
        ),
        Rule(
            id="checkout/not-permitted",
            when=When(
                body={
                    NAME: {
                        *("request_blocked", "action_blocked", "blocked_by_stripe", "approval_required"),
                        *("anomalous_money_movement_request", "application_fees_not_allowed"),
                        *("payouts_not_allowed", "transfers_not_allowed", "not_allowed_on_standard_account"),
                        *("ownership_declaration_not_allowed", "access_denied"),
                        *("bank_account_restricted", "payment_method_restricted"),
                        *("payment_method_bank_account_blocked", "feature_not_enabled"),
                        *(
                            "capability_not_active",
                            "storer_capability_missing",
                            "storer_capability_not_active",
                        ),
                        *("instant_payouts_config_disabled", "instant_payouts_currency_disabled"),
                        "forwarding_api_inactive",
                        *(
                            "financial_account_capability_not_enabled",
                            "financial_account_capability_restricted",
                        ),
                        *("controlled_by_dashboard", "controlled_by_alternate_resource"),
                        *("permission_error", "invalid_permissions", "more_permissions_required"),
                    }
                }
            ),
            reason=Reason.POLICY_BLOCK,
            say="This shop's payment account is not allowed to do this.",
            why="The account, the key or the bank account lacks a permission that somebody withholds.",
            source=ERRORS,
        ),
        Rule(
            id="checkout/misconfigured",
            when=When(
                body={
                    NAME: {
                        *("api_key_expired", "platform_api_key_expired", "secret_key_required"),
                        *("authentication_error", "account_invalid", "platform_account_required"),
                        *("livemode_mismatch", "testmode_charges_only", "tls_version_unsupported"),
                        *("account_error_country_change_requires_additional_steps", "stripe_tax_inactive"),
                        *("account_token_required_for_v2_account", "payment_method_unactivated"),
                        *("payment_method_configuration_failures", "invoice_no_payment_method_types"),
                        *("alipay_upgrade_required", "bitcoin_upgrade_required"),
                        *("sepa_unsupported_account", "country_unsupported"),
                        # OAuth's words, in a body whose `error` is a plain string.
                        *("invalid_client", "invalid_grant", "invalid_scope", "invalid_redirect_uri"),
                        *("unauthorized_client", "unsupported_grant_type", "unsupported_response_type"),
                    }
                }
            ),
            reason=Reason.FATAL,
            say="Payments are not set up correctly here. Somebody has to look at the setup.",
            why="Key, account, mode or version: no argument changes it.",
            source=KEYS,
        ),
        Rule(
            id="checkout/behind",
            when=When(
                body={
                    NAME: {
                        *("payment_method_not_available", "payment_method_provider_timeout"),
                        *("payment_method_microdeposit_processing_error", "payout_reconciliation_not_ready"),
                        *(
                            "shipping_calculation_failed",
                            "taxes_calculation_failed",
                            "failed_tax_calculation",
                        ),
                        *("forwarding_api_upstream_error", "forwarding_api_retryable_upstream_error"),
                        *("forwarding_api_upstream_connection_error", "server_error"),
                        *("forwarding_api_upstream_connection_timeout", "temporarily_unavailable"),
                        *("terminal_reader_offline", "terminal_reader_timeout"),
                        "financial_connections_account_pending_account_numbers",
                        "financial_connections_no_successful_transaction_refresh",
                    }
                }
            ),
            reason=Reason.TRANSIENT,
            say="A service behind the payment did not answer in time. A short wait would help.",
            why="Something that Stripe asks is down for the moment, and nobody refused.",
            source=ERRORS,
        ),
        # An intent in another state than the request wants: its own status says more than the code.
        Rule(
            id="checkout/state-open",
            when=When(
                body={
                    NAME: {"payment_intent_unexpected_state"},
                    "error.payment_intent.status": {
                        *(
                            "processing",
                            "requires_action",
                            "requires_payment_method",
                            "requires_confirmation",
                        ),
                        *("requires_capture", "requires_source", "requires_source_action"),
                    },
                }
            ),
            reason=Reason.TRANSIENT,
            say="The payment of this order is still open, and another step is due first.",
            why="The intent that Stripe shows can still be paid.",
            source=LIFECYCLE,
            effect=Effect.UNKNOWN,
        ),
        Rule(
            id="checkout/state-over",
            when=When(body={NAME: {"payment_intent_unexpected_state"}}),
            reason=Reason.FATAL,
            say="The payment of this order is over already, or was withdrawn. Somebody has to look at it.",
            why="Paid or withdrawn before this request, which proves nothing about who did so.",
            source=LIFECYCLE,
            effect=Effect.UNKNOWN,
        ),
        Rule(
            id="checkout/already",
            when=When(
                body={
                    NAME: {
                        *("charge_already_captured", "charge_already_refunded", "already_canceled"),
                        *("return_intent_already_processed", "token_already_used", "already_exists"),
                        *("payment_method_bank_account_already_verified", "bank_account_exists"),
                        *("resource_already_exists", "gift_card_code_exists"),
                    }
                }
            ),
            reason=Reason.FATAL,
            say="This was done before and is not done twice.",
            why="It is there already, and nothing proves that this request made it.",
            source=ERRORS,
        ),
        Rule(
            id="checkout/over",
            when=When(
                body={
                    NAME: {
                        # Payments that can no longer be taken, or given back.
                        *("charge_not_refundable", "charge_disputed", "refund_disputed_payment"),
                        *("charge_expired_for_capture", "capture_charge_authorization_expired"),
                        *("capture_unauthorized_payment", "not_cancelable", "cannot_proceed"),
                        # Accounts, mandates and payment methods that are beyond repair.
                        *("account_closed", "no_account", "bank_account_unusable", "bank_account_unverified"),
                        *("bank_account_verification_failed", "payment_method_microdeposit_failed"),
                        "payment_method_microdeposit_verification_attempts_exceeded",
                        "payment_method_microdeposit_verification_timeout",
                        *("billing_invalid_mandate", "payment_intent_mandate_invalid"),
                        *("setup_intent_mandate_invalid", "india_recurring_payment_mandate_canceled"),
                        *("financial_account_not_open", "non_zero_balance", "recipient_not_notifiable"),
                        *("financial_connections_account_inactive", "gift_card_inactive"),
                        "financial_connections_account_unavailable_account_numbers",
                        "instant_payouts_unsupported",
                        # Goods and offers that are gone.
                        *("out_of_inventory", "product_inactive", "sku_inactive", "coupon_expired"),
                        # Sessions, invoices and other objects in a state without a way back.
                        *("customer_session_expired", "temporary_session_expired"),
                        *("sensitive_data_access_expired", "terminal_reader_hardware_fault"),
                        *("invoice_not_editable", "invoice_on_behalf_of_not_editable"),
                        *("invoice_upcoming_none", "invoice_no_customer_line_items"),
                        *("invoice_no_subscription_line_items", "intent_invalid_state"),
                        *("payment_method_unexpected_state", "setup_intent_unexpected_state"),
                        "status_transition_invalid",
                    }
                }
            ),
            reason=Reason.FATAL,
            say="This can no longer be done. A new order, or another way to pay, is needed.",
            why="The object is in a state from which the request never works.",
            source=ERRORS,
        ),
        Rule(
            id="checkout/other-mode",
            when=When(
                body={NAME: {"resource_missing"}, "error.message": re.compile("(?i)similar object exists in")}
            ),
            reason=Reason.FATAL,
            say="Payments are not set up correctly here. Somebody has to look at the setup.",
            why="Test keys with live objects or the other way round; Stripe says so in prose alone.",
            source=KEYS,
        ),
        Rule(
            id="checkout/version",
            when=When(
                status=400,
                body={"error.code": None, "error.message": re.compile(r"(?i)\bapi version\b|stripe-version")},
            ),
            reason=Reason.FATAL,
            say="Payments are not set up correctly here. Somebody has to look at the setup.",
            why="An API version that is none is a bug of the tool; Stripe has no code for it.",
            source="https://docs.stripe.com/api/versioning",
        ),
        Rule(
            id="checkout/no-such-method",
            when=When(
                body={NAME: {"resource_missing"}, "error.param": {"payment_method", "source", "token"}}
            ),
            reason=Reason.TRANSIENT,
            say="There is no such card on file. The name of a stored card, or a new one, would help.",
            why="The payment method is an argument of the call.",
            source=ERRORS,
        ),
        Rule(
            id="checkout/missing",
            when=When(
                body={
                    NAME: {"resource_missing"},
                    "error.param": {"customer", "intent", "payment_intent", "account"},
                }
            ),
            reason=Reason.FATAL,
            say="The payment service does not know this customer or order. Somebody has to look at the setup.",
            why="Customer and account are configuration, and the intent is one that the service itself named.",
            source=ERRORS,
        ),
        # The vendor's class field.
        Rule(
            id="checkout/card-error",
            when=When(body={CLASS: {"card_error"}}),
            reason=Reason.FATAL,
            say="The card was declined. Another card, or a word with the bank that issued this one, can help.",
            why="A decline whose code nobody knows yet is a decline.",
            source=STATUSES,
        ),
        Rule(
            id="checkout/api-error",
            when=When(body={CLASS: {"api_error", "api_connection_error"}}),
            reason=Reason.TRANSIENT,
            say="The payment service has a problem at the moment. Waiting a little would help.",
            why="Stripe's own fault says nothing against the payment.",
            source=STATUSES,
        ),
        Rule(
            id="checkout/arguments",
            when=When(status=(400, 409, 422), body={CLASS: {"invalid_request_error", "invalid_fields"}}),
            reason=Reason.TRANSIENT,
            say="The payment service did not accept part of the request. Other details would help: the amount, "
            "the currency or the card.",
            why="A parameter is missing, malformed or does not fit: the model or the customer can change it.",
            source=STATUSES,
        ),
        # The status.
        Rule(
            id="checkout/request-failed",
            when=When(status=402, body={"error": present}),
            reason=Reason.FATAL,
            say="The payment was declined. Another way to pay can help.",
            why="Stripe's 402 means valid parameters and a failed payment.",
            source=STATUSES,
        ),
        Rule(
            id="checkout/dependency",
            when=When(status=424),
            reason=Reason.TRANSIENT,
            say="A service behind the payment did not answer in time. A short wait would help.",
            why="Stripe's 424 means that something outside Stripe failed.",
            source=STATUSES,
        ),
        Rule(
            id="checkout/forbidden",
            when=When(status=403, body={CLASS: {"invalid_request_error"}}),
            reason=Reason.POLICY_BLOCK,
            say="This shop's payment account is not allowed to do this.",
            why="Stripe's 403 means that the key lacks a permission, or may not be used from here.",
            source=STATUSES,
        ),
        Rule(
            id="checkout/charge-failed",
            when=When(status=ANSWERED, body={"object": {"charge"}, "status": {"failed"}}),
            reason=Reason.FATAL,
            say="The card was declined. Another card, or a word with the bank that issued this one, can help.",
            why="A failed charge stays failed; those that can pass yet have a code (above).",
            source="https://docs.stripe.com/api/charges/object",
            effect=Effect.NONE,
        ),
        Rule(
            id="checkout/unpaid",
            when=When(
                status=ANSWERED,
                body={
                    "object": {"payment_intent"},
                    "status": {"requires_payment_method", "requires_confirmation", "requires_source"},
                },
            ),
            reason=Reason.TRANSIENT,
            say="The payment is prepared and not made yet. A way to pay is still needed.",
            why="The intent waits for a payment method or a confirmation, and can still get it.",
            source=LIFECYCLE,
            effect=Effect.NONE,
        ),
        Rule(
            id="checkout/unproven",
            when=When(status=ANSWERED, body={"object": present}),
            reason=Reason.TRANSIENT,
            say="The answer of the payment service does not show a payment.",
            why="A 200 around any object of Stripe's but a paid one proves nothing; others' bodies come later.",
            source=LIFECYCLE,
        ),
        *INFRASTRUCTURE,
    ),
    picked=(
        Rule(
            id="checkout/order-refused",
            reason=Reason.TRANSIENT,
            say="No payment was started: it takes the id of a cart, an amount above zero in the currency's "
            "smallest unit, a currency of three letters and the name of a card.",
            why="The model controls these arguments, and nothing was sent.",
            source="https://docs.stripe.com/api/payment_intents/create",
            effect=Effect.NONE,
        ),
        Rule(
            id="checkout/unconfirmed",
            reason=Reason.TRANSIENT,
            say="The payment was sent and no clear answer came back. The same call looks it up and never pays twice.",
            why="The request may still land, even if the intent looks unpaid now.",
            source=LOW_LEVEL,
            effect=Effect.UNKNOWN,
            retry_after_s=5,
        ),
        Rule(
            id="checkout/paid-otherwise",
            reason=Reason.FATAL,
            say="This cart was already paid, with another amount or currency. Nothing more was charged.",
            why="A cart is paid once: what was asked now is not what was paid.",
            source=LIFECYCLE,
            effect=Effect.APPLIED,
        ),
        Rule(
            id="checkout/amount-changed",
            reason=Reason.FATAL,
            say="A payment for this cart was already started with another amount or currency. The order needs a "
            "new cart.",
            why="An intent that may have a confirm in flight is never updated, and a cart has one intent.",
            source=LIFECYCLE,
            effect=Effect.NONE,
        ),
    ),
)
"""The rows in order. Stripe's reply to a write moves money unless something proves otherwise."""
