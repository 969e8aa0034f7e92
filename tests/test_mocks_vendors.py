"""The imitated vendors behave like the real ones, also when the wire does not."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mocks import elasticsearch, github, stripe
from mocks.elasticsearch import PRODUCTS, ElasticsearchMock
from mocks.github import GitHubMock
from mocks.stripe import CARDS, DECLINES, StripeMock
from mocks.vendor import (
    EXCEPTIONS,
    NEVER_SENT,
    PAIRS,
    Fault,
    Seen,
    UnmatchedRequestError,
    Vendor,
    answer,
    html_502,
    rate_limited,
    refused,
    reset,
    timeout,
    truncated,
)

INTENTS = "/v1/payment_intents"
CONFIRM = f"POST {INTENTS}/*/confirm"
CART = {"amount": "1999", "currency": "usd", "customer": "cus_demo", "metadata[cart_id]": "cart_7"}
ISSUES = "/repos/acme/support/issues"


def create(client: httpx.Client, key: str | None = "k-create", **more: str) -> httpx.Response:
    """Send the create of the demo cart."""
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post(INTENTS, data={**CART, **more}, headers=headers)


def confirm(
    client: httpx.Client,
    intent: str,
    card: str = "pm_card_visa",
    key: str | None = None,
    **more: str,
) -> httpx.Response:
    """Send the confirm of an intent."""
    headers = {} if key is None else {"Idempotency-Key": key}
    form = {"payment_method": card, **more}
    return client.post(f"{INTENTS}/{intent}/confirm", data=form, headers=headers)


def ask(client: httpx.Client, query: dict[str, Any], **more: Any) -> httpx.Response:
    """Send a search."""
    return client.post("/products/_search", json={"query": query, **more})


def attempt(client: httpx.Client, intent: str, **more: str) -> str:
    """Return what a confirm came back with: a status, or the name of an exception."""
    try:
        return str(confirm(client, intent, **more).status_code)
    except Exception as error:
        return type(error).__name__


# Faults.


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kind": "ReadTimeuot"}, "unknown fault kind"),
        ({"kind": "answer", "when": "soon"}, "unknown moment"),
        ({"kind": "ConnectError", "when": "after"}, "cannot come with"),
        ({"kind": "PoolTimeout", "when": "late"}, "cannot come with"),
        ({"kind": "truncated", "when": "late"}, "cannot come with"),
        ({"kind": "answer", "times": 0}, "count from 1"),
        ({"kind": "answer", "nth": 0}, "count from 1"),
        ({"kind": "answer", "delay": 0}, "count from 1"),
    ],
)
def test_impossible_faults_are_refused(wrong: dict[str, Any], words: str) -> None:
    """A fault that no wire can show is refused where it is written."""
    with pytest.raises(ValueError, match=words):
        Fault(**wrong)


def test_every_httpx_exception_has_a_kind() -> None:
    """No concrete transport exception of httpx is missing from the kinds."""

    def leaves(base: type[Exception]) -> set[str]:
        # Others derive from httpx as well, once they are imported: httpx_sse, for one.
        below = [cls for cls in base.__subclasses__() if cls.__module__.partition(".")[0] == "httpx"]
        return set().union(*map(leaves, below)) if below else {base.__name__}

    assert leaves(httpx.RequestError) == set(EXCEPTIONS) - {"InvalidURL", "StreamError"}


@pytest.mark.parametrize(("kind", "when"), PAIRS)
def test_a_fault_shows_and_the_work_is_done_when_it_says(kind: str, when: str) -> None:
    """What the client sees and what the vendor did are independent of each other."""
    vendor = StripeMock()
    with vendor.client() as client:
        intent = create(client).json()["id"]
        vendor.script(Fault(kind=kind, at=CONFIRM, when=when))
        seen = attempt(client, intent)
        whole = kind == "truncated"
        assert {"answer": "500", "truncated": "200"}.get(kind, kind) == seen
        assert (1 if when == "after" or whole else 0) == len(vendor.charges)
        assert (when == "after" or whole) == vendor.requests[-1].worked
        client.get(f"{INTENTS}/{intent}")
        assert (0 if when == "before" and not whole else 1) == len(vendor.charged("cart_7"))
        assert (when != "before" or whole) == vendor.requests[1].worked
        second = "400" if vendor.charges else "200"
        assert second == attempt(client, intent)
        assert 1 == len(vendor.charged("cart_7"))


@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_exceptions_are_the_real_ones(kind: str) -> None:
    """A fault raises httpx's own class, with the request where httpx gives one."""
    client = StripeMock(faults=[Fault(kind=kind)]).client()
    with pytest.raises(getattr(httpx, kind)) as caught:
        client.get(INTENTS)
    if isinstance(caught.value, httpx.RequestError):
        assert caught.value.request.url.path == INTENTS


@pytest.mark.parametrize(
    ("fault", "status", "kind", "text"),
    [
        (html_502(), 502, "text/html", "<html>"),
        (answer(503, "busy"), 503, "text/plain; charset=utf-8", "busy"),
        (answer(200, b"\xff"), 200, "text/plain; charset=utf-8", "\ufffd"),
        (answer(418, {"a": 1}), 418, "application/json", '{"a": 1}'),
        (answer(204), 204, "application/json", ""),
        (answer(500, "{}", headers={"Content-Type": "x/y"}), 500, "x/y", "{}"),
        (rate_limited(retry_after=7), 429, "application/json", "slow"),
    ],
)
def test_forced_answers_go_out_as_written(fault: Fault, status: int, kind: str, text: str) -> None:
    """Status, headers and body of a forced answer reach the client; headers of it win."""
    with StripeMock(faults=[fault]).client() as client:
        reply = client.get(INTENTS)
    assert (status, kind) == (reply.status_code, reply.headers["content-type"])
    assert text in reply.text
    assert fault.headers.get("retry-after") == reply.headers.get("retry-after")


def test_faults_address_requests_by_place_position_and_count() -> None:
    """`at` names the endpoint, `nth` the position on the whole vendor, `times` how often."""
    faults = [timeout("GET /v1/charges", nth=3), refused("POST *"), rate_limited("GET *", times=2)]
    vendor = StripeMock(faults=faults)
    with vendor.client() as client:
        client.get("/v1/charges")
        client.get("/v1/charges")
        with pytest.raises(httpx.ReadTimeout):
            client.get("/v1/charges")
        with pytest.raises(httpx.ConnectError):
            create(client)
        create(client)
        client.get("/v1/charges")
    assert [429, 429, "ReadTimeout", "ConnectError", 200, 200] == [seen.outcome for seen in vendor.requests]


def test_a_truncated_reply_keeps_its_status() -> None:
    """Half a body comes with the true status and headers, and nothing raises on the way."""
    vendor = StripeMock(faults=[truncated()])
    with vendor.client() as client:
        half, whole = create(client), create(client)
    assert (200, "application/json") == (half.status_code, half.headers["content-type"])
    assert whole.content[: len(whole.content) // 2] == half.content


def test_late_work_waits_for_its_request_or_for_settle() -> None:
    """Late work is done just before the delay-th later request, or when the test says so."""
    late = Fault(kind="ReadError", at="POST *", when="late", delay=2, times=2)
    vendor = StripeMock(faults=[late])
    with vendor.client() as client:
        with pytest.raises(httpx.ReadError):
            create(client, key=None)
        assert [] == client.get(INTENTS).json()["data"]
        assert 1 == len(client.get(INTENTS).json()["data"])
        with pytest.raises(httpx.ReadError):
            create(client, key=None)
        assert [True, True, True, False] == [seen.worked for seen in vendor.requests]
        vendor.settle()
    assert 2 == len(vendor.intents("cart_7"))
    assert Seen(method="POST", path=INTENTS, outcome="ReadError", worked=True) == (vendor.requests[-1])


def test_faults_pickle() -> None:
    """A schedule is data: it can be stored and replayed."""
    schedule = [Fault(kind=kind, when=when, nth=1) for kind, when in PAIRS]
    assert schedule == pickle.loads(pickle.dumps(schedule))  # noqa: S301  our own bytes


def test_one_schedule_gives_one_outcome() -> None:
    """No clock, no chance: the same requests and faults give the same bytes."""

    def run() -> list[object]:
        vendor = StripeMock(faults=[reset(CONFIRM, when="after"), html_502(nth=4)])
        with vendor.client() as client:
            intent = create(client).json()["id"]
            seen: list[object] = [attempt(client, intent, key="a") for _ in range(3)]
            return [*seen, client.get(INTENTS).content, vendor.requests, vendor.attempts]

    assert run() == run()


@pytest.mark.parametrize("make", [StripeMock, ElasticsearchMock, GitHubMock])
@pytest.mark.parametrize("path", ["/v1/refunds?key=secret", "/"])
def test_a_hole_in_the_mock_is_loud(make: type[Vendor], path: str) -> None:
    """An unmatched request is an AssertionError with method and path, and it is remembered."""
    vendor = make()
    with vendor.client() as client, pytest.raises(AssertionError, match="no route for DELETE"):
        client.delete(path)
    assert [f"DELETE {vendor.base_url}{path.partition('?')[0]}"] == vendor.unmatched
    assert not issubclass(UnmatchedRequestError, httpx.HTTPError)
    assert [] == vendor.requests


@pytest.mark.parametrize("make", [StripeMock, ElasticsearchMock, GitHubMock])
def test_a_wrong_credential_is_refused(make: type[Vendor]) -> None:
    """Every vendor answers 401 to a key that is not its own."""
    path = {StripeMock: INTENTS, ElasticsearchMock: "/products/_search", GitHubMock: ISSUES}[make]
    with make(key="right").client(headers={"Authorization": "Bearer wrong"}) as client:
        assert 401 == client.get(path).status_code


def test_a_base_url_is_configuration() -> None:
    """The same routes answer under another base URL, a path prefix included."""
    vendor = GitHubMock(base_url="https://ghe.example/api/v3", key="t")
    with vendor.client() as client:
        made = client.post(ISSUES, json={"title": "x"})
    assert f"https://ghe.example/api/v3{ISSUES}/1" == made.json()["url"]


def test_the_async_client_reaches_the_same_vendor() -> None:
    """Both clients share state, faults and log."""
    vendor = StripeMock(faults=[timeout(CONFIRM, when="after")])

    async def pay() -> str:
        async with vendor.async_client() as client:
            made = (await client.post(INTENTS, data=CART)).json()["id"]
            with pytest.raises(httpx.ReadTimeout):
                await client.post(f"{INTENTS}/{made}/confirm", data={"payment_method": "pm_card_visa"})
            return str((await client.get(f"{INTENTS}/{made}")).json()["status"])

    assert "succeeded" == asyncio.run(pay())
    assert 1 == len(vendor.charged("cart_7"))


# Stripe: the state machine.


def test_a_payment_from_create_to_receipt() -> None:
    """Create asks for a card, confirm charges it once, a second confirm is refused."""
    vendor = StripeMock()
    with vendor.client() as client:
        made = create(client).json()
        assert ("requires_payment_method", None) == (made["status"], made["latest_charge"])
        paid = confirm(client, made["id"]).json()
        assert ("succeeded", 1999, "ch_1") == (
            paid["status"],
            paid["amount_received"],
            paid["latest_charge"],
        )
        again = confirm(client, made["id"])
        assert (400, "payment_intent_unexpected_state") == (
            again.status_code,
            again.json()["error"]["code"],
        )
        assert again.json()["error"]["payment_intent"] == paid
        charge = client.get("/v1/charges/ch_1").json()
        assert (True, 1999, {"cart_id": "cart_7"}) == (
            charge["paid"],
            charge["amount_captured"],
            charge["metadata"],
        )
    assert ["ch_1"] == [charge.id for charge in vendor.charged("cart_7")]
    assert [] == vendor.charged("cart_8")


DECLINING = {name: card for name, card in CARDS.items() if card.outcome in DECLINES}


@pytest.mark.parametrize("name", DECLINING)
def test_a_decline_is_a_402_that_leaves_a_charge(name: str) -> None:
    """A declined attempt makes a failed charge and asks for another payment method."""
    vendor = StripeMock()
    with vendor.client() as client:
        intent = create(client).json()["id"]
        refusal = confirm(client, intent, name)
        error, after = refusal.json()["error"], client.get(f"{INTENTS}/{intent}").json()
        paid = confirm(client, intent)
    assert (402, "card_error", DECLINING[name].outcome, "ch_1") == (
        refusal.status_code,
        error["type"],
        error["decline_code"],
        error["charge"],
    )
    assert DECLINES[error["decline_code"]].code == error["code"]
    assert after == error["payment_intent"]
    assert ("requires_payment_method", None, "ch_1", name) == (
        after["status"],
        after["payment_method"],
        after["latest_charge"],
        after["last_payment_error"]["payment_method"]["id"],
    )
    assert ("succeeded", None, "ch_2") == (
        paid.json()["status"],
        paid.json()["last_payment_error"],
        paid.json()["latest_charge"],
    )
    assert [False, True] == [charge.status == "succeeded" for charge in vendor.attempts]


def test_cards_and_codes_fit_together() -> None:
    """Every outcome of a test card is one the state machine knows."""
    special = {"ok", "authenticate", "authenticate:insufficient_funds"}
    others = {"fraudulent", "card_velocity_exceeded"}  # plain declines without advice
    assert {card.outcome for card in CARDS.values()} <= special | others | set(DECLINES)


def test_scripted_declines_come_in_turn() -> None:
    """`declines` goes through the state machine, then the card behaves as usual."""
    vendor = StripeMock(declines={"pm_card_visa": ["processing_error", "brand_new_code"]})
    with vendor.client() as client:
        intent = create(client).json()["id"]
        codes = [confirm(client, intent).json()["error"]["decline_code"] for _ in range(2)]
        assert ["processing_error", "brand_new_code"] == codes
        assert "succeeded" == confirm(client, intent).json()["status"]
        vendor.declines["pm_9"] = ["do_not_honor"]
        second = create(client, key=None).json()["id"]
        assert 402 == confirm(client, second, "pm_9").status_code
        assert 200 == confirm(client, second, "pm_9").status_code


def test_authentication_takes_the_customer() -> None:
    """A card with 3-D Secure waits for its holder; without a holder it is declined."""
    vendor = StripeMock()
    card = "pm_card_threeDSecure2Required"
    with vendor.client() as client:
        first, second, third = (create(client, key=None).json()["id"] for _ in range(3))
        waiting = confirm(client, first, card, return_url="https://shop.example/").json()
        assert ("requires_action", "redirect_to_url", None) == (
            waiting["status"],
            waiting["next_action"]["type"],
            waiting["latest_charge"],
        )
        vendor.authenticate(first)
        assert "succeeded" == client.get(f"{INTENTS}/{first}").json()["status"]
        away = confirm(client, second, card, off_session="true")
        strict = confirm(client, third, card, error_on_requires_action="true")
        assert {(402, "authentication_required")} == {
            (reply.status_code, reply.json()["error"]["code"]) for reply in (away, strict)
        }
        assert "requires_action" == confirm(client, second, card).json()["status"]
        vendor.authenticate(second, passed=False)
        failed = client.get(f"{INTENTS}/{second}").json()
        assert ("requires_payment_method", "payment_intent_authentication_failure") == (
            failed["status"],
            failed["last_payment_error"]["code"],
        )
        with pytest.raises(ValueError, match="nothing to authenticate"):
            vendor.authenticate(second)
    assert 1 == len(vendor.charges)


@pytest.mark.parametrize(("codes", "end"), [([], "succeeded"), (["expired_card"], "failed")])
def test_processing_ends_when_it_settles(codes: list[str], end: str) -> None:
    """A slow payment is neither paid nor payable until it settles, either way."""
    vendor = StripeMock(processing=["pm_card_visa"], declines={"pm_card_visa": codes})
    with vendor.client() as client:
        intent = create(client).json()["id"]
        assert "processing" == confirm(client, intent).json()["status"]
        assert 400 == confirm(client, intent).status_code
        assert (["pending"], []) == ([one.status for one in vendor.attempts], vendor.charges)
        vendor.settle()
        status = client.get(f"{INTENTS}/{intent}").json()["status"]
    assert [end] == [one.status for one in vendor.attempts]
    assert status == {"succeeded": "succeeded", "failed": "requires_payment_method"}[end]


def test_a_canceled_intent_stays_unpaid() -> None:
    """Cancel works once, and only before the money."""
    vendor = StripeMock()
    with vendor.client() as client:
        intent = create(client).json()["id"]
        cancel = f"{INTENTS}/{intent}/cancel"
        gone = client.post(cancel, data={"cancellation_reason": "fraudulent"}).json()
        assert ("canceled", "fraudulent") == (gone["status"], gone["cancellation_reason"])
        again = [client.post(cancel), confirm(client, intent)]
        assert [400, 400] == [reply.status_code for reply in again]
    assert [] == vendor.attempts


@pytest.mark.parametrize(
    ("form", "code", "param"),
    [
        ({"amount": ""}, "parameter_invalid_empty", "amount"),
        ({"amount": "19.99"}, "parameter_invalid_integer", "amount"),
        ({"amount": "49"}, "amount_too_small", "amount"),
        ({"amount": "100000000"}, "amount_too_large", "amount"),
        ({"currency": "dollars"}, None, "currency"),
        ({"customer": "cus_nobody"}, "resource_missing", "customer"),
        ({"note": "x"}, "parameter_unknown", "note"),
        ({"payment_method": "visa"}, "resource_missing", "payment_method"),
    ],
)
def test_invalid_creates(form: dict[str, str], code: str | None, param: str) -> None:
    """A refused create names the parameter, makes nothing and leaves the key free."""
    vendor = StripeMock()
    with vendor.client() as client:
        reply = create(client, **form)
        error = reply.json()["error"]
        assert (400, "invalid_request_error", code, param) == (
            reply.status_code,
            error["type"],
            error.get("code"),
            error["param"],
        )
        assert [] == vendor.intents()
        assert 200 == create(client).status_code


@pytest.mark.parametrize("missing", ["amount", "currency"])
def test_missing_parameters(missing: str) -> None:
    """A required parameter that is absent is named."""
    form = {name: value for name, value in CART.items() if name != missing}
    with StripeMock().client() as client:
        error = client.post(INTENTS, data=form).json()["error"]
    assert ("parameter_missing", missing) == (error["code"], error["param"])


def test_unknown_ids() -> None:
    """An unknown id in the path is 404, in a parameter 400; both are `resource_missing`."""
    with StripeMock().client() as client:
        intent = create(client).json()["id"]
        replies = [
            client.get(f"{INTENTS}/pi_0"),
            confirm(client, "pi_0"),
            client.get("/v1/charges/ch_0"),
            client.get("/v1/customers/cus_0"),
            client.get(INTENTS, params={"customer": "cus_0"}),
            client.get(INTENTS, params={"starting_after": "pi_0"}),
            confirm(client, intent, "pm_card_typo"),
        ]
        assert 200 == client.get("/v1/customers/cus_demo").status_code
    assert [404, 404, 404, 404, 400, 400, 400] == [reply.status_code for reply in replies]
    assert {"resource_missing"} == {reply.json()["error"]["code"] for reply in replies}


def test_lists_are_paged_newest_first() -> None:
    """Every intent of a customer is on exactly one page."""
    vendor = StripeMock()
    vendor.add_customer("cus_other")
    with vendor.client() as client:
        for _ in range(5):
            create(client, key=None)
        create(client, key=None, customer="cus_other")
        params, found, pages = {"customer": "cus_demo", "limit": "2"}, [], 0
        while True:
            page = client.get(INTENTS, params=params).json()
            found += [row["id"] for row in page["data"]]
            pages += 1
            if not page["has_more"]:
                break
            params["starting_after"] = page["data"][-1]["id"]
        assert 400 == client.get(INTENTS, params={"limit": "101"}).status_code
    assert (["pi_5", "pi_4", "pi_3", "pi_2", "pi_1"], 3) == (found, pages)
    assert ("list", INTENTS) == (page["object"], page["url"])


def test_an_account_with_redirects_wants_a_return_url() -> None:
    """With redirect-based methods on, a confirm says where the customer comes back."""
    with StripeMock(redirects=True).client() as client:
        open_ended = create(client, key=None).json()["id"]
        fixed = create(client, key=None, **{"payment_method_types[]": "card"}).json()["id"]
        never = {"automatic_payment_methods[enabled]": "true"}
        never |= {"automatic_payment_methods[allow_redirects]": "never"}
        closed = create(client, key=None, **never).json()["id"]
        got = [confirm(client, one).status_code for one in (open_ended, fixed, closed)]
        assert [400, 200, 200] == got
        assert 200 == confirm(client, open_ended, return_url="https://a.example").status_code


def test_test_names_can_be_cloned() -> None:
    """With `clones` a test name comes back as a payment method of its own, as at Stripe."""
    with StripeMock(clones=True).client() as client:
        intent = create(client).json()["id"]
        error = confirm(client, intent, "pm_card_chargeDeclined").json()["error"]
        assert "pm_1" == error["payment_method"]["id"]
        assert "pm_1" == confirm(client, intent, "pm_1").json()["error"]["payment_method"]["id"]


# Stripe: idempotency.


def test_a_key_replays_its_first_result() -> None:
    """The stored snapshot comes back, marked, even when the object has moved on."""
    vendor = StripeMock()
    with vendor.client() as client:
        first = create(client)
        paid = confirm(client, first.json()["id"], key="k-confirm")
        again, twice = create(client), confirm(client, first.json()["id"], key="k-confirm")
    assert (first.content, paid.content) == (again.content, twice.content)
    assert {"true"} == {reply.headers["idempotent-replayed"] for reply in (again, twice)}
    assert "idempotent-replayed" not in first.headers
    assert ("req_1", "req_1", "req_3") == (
        first.headers["request-id"],
        again.headers["original-request"],
        again.headers["request-id"],
    )
    assert 1 == len(vendor.charges)


def test_a_key_replays_a_decline() -> None:
    """A 402 was executed: the key gives it again although the card would pass now."""
    vendor = StripeMock(declines={"pm_card_visa": ["try_again_later"]})
    with vendor.client() as client:
        intent = create(client).json()["id"]
        same = [confirm(client, intent, key="one") for _ in range(2)]
        assert [402, 402] == [reply.status_code for reply in same]
        assert same[0].content == same[1].content
        assert 200 == confirm(client, intent, key="two").status_code


def test_a_key_replays_a_stored_500_although_the_money_moved() -> None:
    """Stripe's own 500 in the middle of the work is what the key gives from then on."""
    vendor = StripeMock(faults=[stripe.server_error(at=CONFIRM, when="after", saved=True)])
    with vendor.client() as client:
        intent = create(client).json()["id"]
        replies = [confirm(client, intent, key="one") for _ in range(2)]
        assert [500, 500] == [reply.status_code for reply in replies]
        assert "succeeded" == client.get(f"{INTENTS}/{intent}").json()["status"]
    assert 1 == len(vendor.charges)


@pytest.mark.parametrize(
    "fault",
    [stripe.server_error(), html_502(), rate_limited(), stripe.rate_limit(), stripe.lock_timeout()],
)
def test_what_came_before_the_work_is_not_stored(fault: Fault) -> None:
    """Limits, locks and gateways leave the key free."""
    with StripeMock(faults=[fault]).client() as client:
        assert fault.status == create(client).status_code
        done = create(client)
    assert (200, False) == (done.status_code, "idempotent-replayed" in done.headers)


def test_a_key_belongs_to_its_parameters() -> None:
    """Another amount or another path under a key is refused, and the stored result stands."""
    vendor = StripeMock()
    with vendor.client() as client:
        intent = create(client).json()["id"]
        for reply in (create(client, amount="2999"), confirm(client, intent, key="k-create")):
            error = reply.json()["error"]
            assert (400, "idempotency_error") == (reply.status_code, error["type"])
        assert "true" == create(client).headers["idempotent-replayed"]
    assert 1 == len(vendor.intents())


@pytest.mark.parametrize(("hours", "made"), [(23, 1), (24, 2), (25, 2)])
def test_keys_live_for_a_day(hours: int, made: int) -> None:
    """After 24 hours of the vendor's clock a key is new again."""
    vendor = StripeMock()
    with vendor.client() as client:
        create(client)
        vendor.advance(hours=hours)
        create(client)
    assert made == len(vendor.intents("cart_7"))


@pytest.mark.parametrize(("held", "status", "charges"), [(True, 409, 1), (False, 200, 1)])
def test_a_key_in_use(held: bool, status: int, charges: int) -> None:
    """While late work holds its key others get 409; still under way, it finds the key used."""
    late = Fault(kind="ReadTimeout", at=CONFIRM, when="late", delay=2)
    vendor = StripeMock(faults=[late], late_holds_key=held)
    with vendor.client() as client:
        intent = create(client).json()["id"]
        assert "ReadTimeout" == attempt(client, intent, key="one")
        reply = confirm(client, intent, key="one")
        assert status == reply.status_code
        if held:
            assert "idempotency_key_in_use" == reply.json()["error"]["code"]
        assert 200 == confirm(client, intent, key="one").status_code
    assert charges == len(vendor.charged("cart_7"))


def test_a_late_confirm_meets_a_paid_intent() -> None:
    """A confirm that lands after another one was paid charges nothing."""
    late = Fault(kind="ReadTimeout", at=CONFIRM, when="late", delay=9)
    vendor = StripeMock(faults=[late])
    with vendor.client() as client:
        intent = create(client).json()["id"]
        assert "ReadTimeout" == attempt(client, intent, key="one")
        assert "200" == attempt(client, intent, key="two")
        vendor.settle()
    assert 1 == len(vendor.charged("cart_7"))


FAULTS = st.builds(
    lambda pair, nth, delay, saved: Fault(kind=pair[0], when=pair[1], nth=nth, delay=delay, saved=saved),
    st.sampled_from(PAIRS),
    st.integers(1, 8),
    st.integers(1, 4),
    st.booleans(),
)


def shop(faults: list[Fault], *, held: bool) -> StripeMock:
    """Pay one cart as a careless client does: a new confirm key for every try."""
    vendor = StripeMock(faults=faults, late_holds_key=held, declines={"pm_card_visa": ["processing_error"]})
    with vendor.client() as client:
        for step in range(4):
            with suppress(httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, ValueError):
                create(client)
            for intent in vendor.intents("cart_7"):
                attempt(client, intent["id"], key=f"try {step}")
    vendor.settle()
    return vendor


@settings(max_examples=60, deadline=None)
@given(faults=st.lists(FAULTS, max_size=5), held=st.booleans())
def test_no_schedule_of_faults_breaks_the_books(faults: list[Fault], held: bool) -> None:
    """Whatever the wire does, an intent is charged once at most, and the run can be repeated."""
    vendor, again = (shop(faults, held=held) for _ in range(2))
    paid = [charge.intent for charge in vendor.charges]
    assert len(set(paid)) == len(paid)
    assert set(paid) == {intent["id"] for intent in vendor.intents() if intent["status"] == "succeeded"}
    assert (vendor.requests, vendor.attempts) == (again.requests, again.attempts)


def test_threads_share_one_cart() -> None:
    """Twenty threads with one key make one intent and one charge; without keys, twenty."""
    vendor = StripeMock()
    with vendor.client() as client, ThreadPoolExecutor(20) as pool:
        made = set(pool.map(lambda _: create(client).json()["id"], range(20)))
        assert 1 == len(made)
        paid = pool.map(lambda _: attempt(client, *made, key="one"), range(20))
        assert {"200"} == set(paid)
        assert 1 == len(vendor.charged("cart_7"))
        loose = list(pool.map(lambda _: create(client, key=None).json()["id"], range(20)))
    assert 20 == len(set(loose))
    assert 60 == len(vendor.requests)


# Elasticsearch.


def test_a_search_reply() -> None:
    """Hits come best first, in the vendor's shape and with its headers."""
    with ElasticsearchMock().client() as client:
        reply = ask(client, {"match": {"title": "blue mug"}}, size=2)
    body = reply.json()
    assert ("Elasticsearch", "application/vnd.elasticsearch+json;compatible-with=8") == (
        reply.headers["x-elastic-product"],
        reply.headers["content-type"],
    )
    assert (False, 0, "eq", "mug-1", 2) == (
        body["timed_out"],
        body["_shards"]["failed"],
        body["hits"]["total"]["relation"],
        body["hits"]["hits"][0]["_id"],
        len(body["hits"]["hits"]),
    )
    hit = body["hits"]["hits"][0]
    assert ("products", PRODUCTS["mug-1"]) == (hit["_index"], hit["_source"])
    assert body["hits"]["max_score"] == hit["_score"]
    assert all(a["_score"] >= b["_score"] for a, b in pairwise(body["hits"]["hits"]))


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({"match": {"title": "zebra"}}, set()),
        ({"match": {"title": {"query": "blue mug", "operator": "and"}}}, {"mug-1"}),
        ({"match_phrase": {"body": "coffee beans for espresso"}}, {"coffee-1"}),
        ({"multi_match": {"query": "atlas", "fields": ["title^3", "body"]}}, {"book-4"}),
        ({"simple_query_string": {"query": '"green tea" -zebra'}}, {"tea-1"}),
        ({"simple_query_string": {"query": "backp*"}}, {"bag-2"}),
        ({"simple_query_string": {"query": '((( " +'}}, set()),
        ({"query_string": {"query": "atlas OR backpack"}}, {"book-4", "bag-2"}),
        ({"term": {"sku": "MUG-1"}}, {"mug-1"}),
        ({"terms": {"sku.keyword": ["MUG-1", "TEA-1"]}}, {"mug-1", "tea-1"}),
        ({"range": {"price": {"gte": 79}}}, {"coffee-3", "bag-2"}),
        (
            {
                "bool": {
                    "must": [{"match": {"title": "shirt"}}],
                    "filter": {"range": {"price": {"lt": 50}}},
                    "must_not": [{"match": {"title": "blue"}}],
                }
            },
            {"shirt-1", "shirt-4"},
        ),
    ],
)
def test_queries(query: dict[str, Any], ids: set[str]) -> None:
    """Each kind of query finds what it asks for."""
    with ElasticsearchMock().client() as client:
        hits = ask(client, query).json()["hits"]
    assert ids == {hit["_id"] for hit in hits["hits"]}
    assert (len(ids), None if not ids else hits["max_score"]) == (
        hits["total"]["value"],
        hits["max_score"],
    )


@pytest.mark.parametrize(
    ("path", "content", "status", "kind"),
    [
        ("/nope/_search", None, 404, "index_not_found_exception"),
        ("/products/_search", '{"query": ', 400, "x_content_parse_exception"),
        ("/products/_search", "[]", 400, "parsing_exception"),
        ("/products/_search", '{"qury": {}}', 400, "parsing_exception"),
        ("/products/_search", '{"query": {}}', 400, "illegal_argument_exception"),
        ("/products/_search", '{"query": {"fuzz": {}}}', 400, "parsing_exception"),
        ("/products/_search", '{"query": {"match": "mug"}}', 400, "parsing_exception"),
        ("/products/_search", '{"query": {"match": {"a": 1, "b": 2}}}', 400, "parsing_exception"),
        ("/products/_search", '{"size": -1}', 400, "illegal_argument_exception"),
        ("/products/_search", '{"size": "x"}', 400, "x_content_parse_exception"),
        ("/products/_search", '{"from": 9999}', 400, "illegal_argument_exception"),
        (
            "/products/_search",
            '{"query": {"query_string": {"query": "mug AND ("}}}',
            400,
            "search_phase_execution_exception",
        ),
    ],
)
def test_refused_searches(path: str, content: str | None, status: int, kind: str) -> None:
    """A search that cannot be read names its reason in the vendor's error body."""
    with ElasticsearchMock().client() as client:
        headers = {"content-type": "application/json"}
        reply = client.request("POST", path, content=content, headers=headers)
    body = reply.json()
    assert (status, status, kind) == (reply.status_code, body["status"], body["error"]["type"])
    assert body["error"]["root_cause"][0]["reason"]


def test_parts_of_a_search() -> None:
    """`from`, `size`, `_source` and `highlight` shape the page; GET works as POST does."""
    with ElasticsearchMock().client() as client:
        everything = client.get("/products/_search").json()["hits"]
        page = ask(client, {"match_all": {}}, size=5, **{"from": 30}).json()["hits"]
        lean = ask(client, {"match": {"body": "mug"}}, _source=["title"]).json()["hits"]["hits"]
        bare = ask(client, {"match_all": {}}, _source=False).json()["hits"]["hits"]
        fields: dict[str, Any] = {"fields": {"body": {}, "title": {}}}
        marked = ask(client, {"match": {"body": "mugs"}}, highlight=fields).json()["hits"]["hits"]
        other = client.get("/pro*/_search").json()["hits"]["total"]["value"]
        none = client.get("/zz*/_search").json()["hits"]["total"]["value"]
    assert (10, len(PRODUCTS)) == (len(everything["hits"]), everything["total"]["value"])
    assert len(PRODUCTS) - 30 == len(page["hits"])
    assert {("title",)} == {tuple(hit["_source"]) for hit in lean}
    assert not any("_source" in hit for hit in bare)
    assert any("<em>mug</em>" in hit["highlight"]["body"][0] for hit in marked)
    assert (len(PRODUCTS), 0) == (other, none)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (elasticsearch.rejected(), 429),
        (elasticsearch.unavailable(), 503),
        (elasticsearch.timed_out(), 200),
        (elasticsearch.shards_failed(), 200),
    ],
)
def test_troubles_of_a_cluster(fault: Fault, status: int) -> None:
    """Trouble comes with the vendor's headers; an incomplete 200 says that it is incomplete."""
    with ElasticsearchMock(faults=[fault]).client() as client:
        reply = client.get("/products/_search")
        assert client.get("/products/_search").json()["hits"]["total"]["value"] > 0
    assert (status, "Elasticsearch") == (reply.status_code, reply.headers["x-elastic-product"])
    if status == 200:
        assert reply.json()["timed_out"] or reply.json()["_shards"]["failed"]


# GitHub.


def test_an_issue_from_open_to_duplicate() -> None:
    """Create, comment, close as duplicate, read."""
    vendor = GitHubMock()
    vendor.advance(hours=1)
    with vendor.client() as client:
        made = client.post(ISSUES, json={"title": "Late parcel", "body": "b", "labels": ["x"]})
        said = client.post(f"{ISSUES}/1/comments", json={"body": "same as #7"})
        closed = client.patch(f"{ISSUES}/1", json={"state": "closed", "state_reason": "duplicate"})
        read = client.get(f"{ISSUES}/1").json()
        assert said.json() == client.get(f"{ISSUES}/1/comments").json()[0]
    issue = made.json()
    assert (201, 201, 200) == (made.status_code, said.status_code, closed.status_code)
    assert (1, "open", "2026-01-01T01:00:00Z", "https://github.com/acme/support/issues/1") == (
        issue["number"],
        issue["state"],
        issue["created_at"],
        issue["html_url"],
    )
    assert made.headers["location"] == issue["url"]
    assert ("closed", "duplicate", 1) == (read["state"], read["state_reason"], read["comments"])
    assert [] == vendor.open_issues()


def test_issues_are_paged_by_links() -> None:
    """Following `next` sees every open issue once, newest first; other states on request."""
    vendor = GitHubMock()
    for number in range(7):
        vendor.add(f"issue {number}", pull=number == 3)
    with vendor.client() as client:
        client.patch(f"{ISSUES}/2", json={"state": "closed"})
        url, found, pages = f"{ISSUES}?per_page=3", [], 0
        while url:
            reply = client.get(url)
            found += [row["number"] for row in reply.json()]
            pages += 1
            url = reply.links.get("next", {}).get("url", "")
        assert [2] == [row["number"] for row in client.get(f"{ISSUES}?state=closed").json()]
        every = client.get(ISSUES, params={"state": "all", "direction": "asc"}).json()
    assert ([7, 6, 5, 4, 3, 1], 2) == (found, pages)
    assert {"prev", "first"} == set(reply.links)
    assert [4] == [row["number"] for row in every if "pull_request" in row]
    assert [1, 3, 5, 6, 7] == [issue.number for issue in vendor.open_issues()]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, None),
        ({"title": ""}, 422, "title"),
        ({"title": None}, 422, "title"),
        ({"title": 5}, 422, None),
        ({"title": "x" * 257}, 422, "title"),
        ({"title": "x", "body": "y" * 65_537}, 422, "body"),
        ({"title": "x", "labels": "bug"}, 422, None),
        ([], 400, None),
    ],
)
def test_invalid_issues(body: object, status: int, field: str | None) -> None:
    """A refused issue says which field, in `errors` where GitHub has such a list."""
    vendor = GitHubMock()
    with vendor.client() as client:
        reply = client.post(ISSUES, json=body)
    error = reply.json()
    assert (status, str(status)) == (reply.status_code, error["status"])
    assert ([] if field is None else [field]) == [row["field"] for row in error.get("errors", [])]
    assert [] == vendor.issues()


def test_repositories_that_refuse() -> None:
    """Unknown is 404, without issues 410, archived 403 for writes only."""
    vendor = GitHubMock(without_issues=["acme/mute"], archived=["acme/old"])
    with vendor.client() as client:
        got = [
            client.post(f"/repos/acme/{name}/issues", json={"title": "x"}).status_code
            for name in ("nope", "mute", "old", "support")
        ]
        assert [404, 410, 403, 201] == got
        assert 200 == client.get("/repos/acme/old/issues").status_code
        assert 404 == client.get(f"{ISSUES}/99").status_code
        bad = [{"state": "shut"}, {"state_reason": "meh"}]
        assert {422} == {client.patch(f"{ISSUES}/1", json=one).status_code for one in bad}


def test_the_primary_limit_is_a_403_that_ends() -> None:
    """The request over the limit is refused with `remaining: 0`, until the hour is over."""
    vendor = GitHubMock(limit=2)
    with vendor.client() as client:
        replies = [client.get(ISSUES) for _ in range(3)]
        vendor.advance(hours=1)
        fresh = client.get(ISSUES)
    assert [200, 200, 403, 200] == [reply.status_code for reply in (*replies, fresh)]
    assert ["1", "0", "0", "1"] == [reply.headers["x-ratelimit-remaining"] for reply in (*replies, fresh)]
    assert all(reply.headers["x-github-request-id"] for reply in replies)


@pytest.mark.parametrize("fault", [github.secondary_limit(), github.forbidden()])
def test_both_kinds_of_403(fault: Fault) -> None:
    """A limit names its pause; a missing permission does not."""
    with GitHubMock(faults=[fault]).client() as client:
        reply = client.post(ISSUES, json={"title": "x"})
    assert (403, fault.headers.get("retry-after")) == (
        reply.status_code,
        reply.headers.get("retry-after"),
    )


def test_each_post_makes_an_issue() -> None:
    """Without idempotency keys a lost answer and its repetition leave two issues."""
    vendor = GitHubMock(faults=[timeout("POST *", when="after")])
    with vendor.client() as client:
        with pytest.raises(httpx.ReadTimeout):
            client.post(ISSUES, json={"title": "x"})
        client.post(ISSUES, json={"title": "x"})
    assert 2 == len(vendor.open_issues())


def test_never_sent_means_before() -> None:
    """An exception that proves an unsent request has only one moment."""
    assert {"before"} == {when for kind, when in PAIRS if kind in NEVER_SENT}
