"""The checkout: no cart is charged twice, and nothing that may have been charged is called a failure."""

import asyncio
import logging
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import httpx
import pytest

from domains.checkout.scenarios import FORCED, SAMPLE, SCENARIOS
from domains.checkout.tool import Order, pay, tools
from domains.mapping import Call, Flow, Reply, arun, run
from mocks.stripe import StripeMock, lock_timeout, rate_limit, server_error
from mocks.vendor import PAIRS, Fault, answer, html_502, refused, reset, timeout, truncated
from orchestration.outcomes import Outcome
from orchestration.reasons import Effect, Reason

DONE, AGAIN, OVER, RULED = Reason.COMPLETED, Reason.TRANSIENT, Reason.FATAL, Reason.POLICY_BLOCK
NONE, APPLIED, UNKNOWN = Effect.NONE, Effect.APPLIED, Effect.UNKNOWN

LIST: Final = "GET /v1/payment_intents"
CREATE: Final = "POST /v1/payment_intents"
LOOK: Final = "GET /v1/payment_intents/*"
CONFIRM: Final = "POST /v1/payment_intents/*/confirm"

ORDER: Final = Order(
    account="default",
    customer="cus_demo",
    cart="cart_7",
    amount=1999,
    currency="usd",
    card="pm_card_visa",
    note="",
    return_url=None,
)


@pytest.fixture(params=["sync", "async"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    """Run a test over both drivers."""
    return bool(request.param == "async")


def checkout(stripe: StripeMock, *, asynchronous: bool = False, **changes: Any) -> Outcome:
    """Pay for the order, with some of it changed."""
    order = replace(ORDER, **changes)
    if not asynchronous:
        with stripe.client() as client:
            return run(pay(order), client)

    async def main() -> Outcome:
        async with stripe.async_client() as client:
            return await arun(pay(order), client)

    return asyncio.run(main())


def sent(stripe: StripeMock) -> list[str]:
    """Return the requests that the vendor saw, ids left out."""
    return [f"{row.method} {row.path}".replace("/pi_1", "/*") for row in stripe.requests]


def recorded(stripe: StripeMock, order: Order = ORDER) -> list[Call]:
    """Pay and return what was asked to be sent."""
    calls = []
    with stripe.client() as client:
        flow = pay(order)
        try:
            call = next(flow)
            while True:
                calls.append(call)
                call = flow.send(send(client, call))
        except StopIteration:
            return calls


def send(client: httpx.Client, call: Call) -> Reply:
    """Send one request by hand, as the driver does."""
    try:
        response = client.request(
            call.method, call.path, params=call.params, data=dict(call.data or {}), headers=call.headers
        )
        return Reply(response=response, write=call.write)
    except Exception as error:
        return Reply.from_exception(error, write=call.write)


class TestPaying:
    """The plain course of things."""

    def test_a_cart_is_looked_up_made_and_confirmed(self, *, asynchronous: bool) -> None:
        """Three requests pay for a new cart, on both drivers, and the receipt is HTML for the customer."""
        stripe = StripeMock()

        paid = checkout(stripe, asynchronous=asynchronous)

        assert [LIST, CREATE, CONFIRM] == sent(stripe)
        assert (DONE, APPLIED, "html") == (paid.reason, paid.effect, paid.format)
        assert "<strong>19.99 USD</strong>" in paid.content
        assert [1999] == [charge.amount for charge in stripe.charged("cart_7")]

    def test_a_paid_cart_is_shown_its_receipt_again(self, *, asynchronous: bool) -> None:
        """The second call sends one read, and says in its evidence that nothing was done now."""
        stripe = StripeMock()
        first = checkout(stripe)

        second = checkout(stripe, asynchronous=asynchronous)

        assert first.content == second.content
        assert [LIST] == sent(stripe)[3:]
        assert (False, True) == (first.evidence["already_applied"], second.evidence["already_applied"])
        assert 1 == len(stripe.charged("cart_7"))

    def test_one_intent_on_the_second_day(self) -> None:
        """Stripe forgets keys after a day; the list does not forget the payment."""
        stripe = StripeMock()
        checkout(stripe)
        stripe.advance(hours=25)

        assert DONE is checkout(stripe).reason
        assert 1 == len(stripe.charged("cart_7"))

    def test_a_payment_behind_a_hundred_others_is_found(self) -> None:
        """All pages are read: the cart's payment may be an old one."""
        stripe = StripeMock()
        checkout(stripe)
        for number in range(120):
            checkout(stripe, cart=f"cart_{100 + number}")

        assert DONE is checkout(stripe).reason
        assert 1 == len(stripe.charged("cart_7"))

    def test_the_key_is_opaque_and_the_carts_own(self) -> None:
        """Same cart, same key, whatever card, amount or note; another cart, customer or account, another."""
        stripe = StripeMock()
        stripe.add_customer("cus_2")
        changes: list[dict[str, Any]] = [{}, {"note": "x", "card": "pm_2", "amount": 1}, {"cart": "c"}]
        keys = [
            checkout(stripe, **change).key for change in [*changes, {"customer": "cus_2"}, {"account": "b"}]
        ]

        assert keys[0] == keys[1]
        assert 4 == len(set(keys))
        assert not [key for key in keys if key is None or "cart" in key or len(key) < 16]

    @pytest.mark.parametrize(
        "change",
        [
            {"cart": ""},
            {"cart": "c" * 501},
            {"amount": 0},
            {"amount": -1},
            {"amount": True},
            {"amount": 19.99},
            {"currency": "us"},
            {"currency": "€€€"},
            {"currency": "dollars"},
            {"card": ""},
        ],
    )
    def test_malformed_orders_are_not_sent(self, change: dict[str, Any]) -> None:
        """An argument that cannot be meant is told to the model, and nothing leaves the house."""
        stripe = StripeMock()

        told = checkout(stripe, **change)

        assert (AGAIN, NONE, "checkout/order-refused") == (told.reason, told.effect, told.rule)
        assert [] == sent(stripe)

    def test_nothing_of_the_caller_is_markup(self) -> None:
        """Ids and notes are escaped in the receipt, and the same call gives the same bytes."""
        cart, note = "<script>7</script>", '"Tom & Jerry\'s" <b>'
        said = {checkout(StripeMock(), cart=cart, note=note).content for _ in range(2)}

        receipt = (
            "<p>Payment received: <strong>19.99 USD</strong> for cart "
            "<strong>&lt;script&gt;7&lt;/script&gt;</strong>.</p>"
            "<p>Note: &quot;Tom &amp; Jerry&#x27;s&quot; &lt;b&gt;</p>"
        )
        assert {receipt} == said

    @pytest.mark.parametrize(
        ("amount", "currency", "shown"),
        [
            (1999, "usd", "19.99 USD"),
            (5, "eur", "0.05 EUR"),
            (1999, "jpy", "1,999 JPY"),
            (1999, "kwd", "1.999 KWD"),
        ],
    )
    def test_amounts_are_shown_in_their_own_units(self, amount: int, currency: str, shown: str) -> None:
        """A yen has no cents and a dinar has a thousand fils."""
        assert f"<strong>{shown}</strong>" in replace(ORDER, amount=amount, currency=currency).receipt()

    def test_a_return_url_goes_with_the_confirm(self) -> None:
        """Accounts with redirect-based methods need one, and it does not touch the key."""
        stripe = StripeMock(redirects=True)

        assert AGAIN is checkout(stripe).reason
        assert DONE is checkout(stripe, return_url="https://shop.example/back").reason

    def test_the_tool_is_made_for_a_model(self) -> None:
        """The tool names its arguments, its free text and what it spends, and answers with an artifact."""
        stripe = StripeMock()
        tool = tools(client=stripe.client())[0]

        message = tool.invoke(
            {"type": "tool_call", "id": "call_1", "name": tool.name, "args": dict(SAMPLE.args)}
        )

        assert ["cart_id", "amount", "currency", "payment_method", "note"] == list(tool.args)
        assert {"free_text": ["note"], "amount": "amount"} == tool.metadata
        assert ("completed", True) == (message.artifact["reason"], message.artifact["stop"])

    def test_without_clients_a_key_is_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing is guessed: the message names the variable."""
        monkeypatch.delenv("STRIPE_API_KEY", raising=False)

        with pytest.raises(RuntimeError, match="STRIPE_API_KEY"):
            tools()


class TestFinding:
    """Look before any write, and send nothing if nothing could be seen."""

    @pytest.mark.parametrize(
        "fault",
        [timeout(LIST), reset(LIST), refused(LIST), html_502(LIST), truncated(LIST), rate_limit(at=LIST)],
    )
    def test_a_failed_look_sends_nothing(self, fault: Fault, *, asynchronous: bool) -> None:
        """What earlier calls did is not known then, and this call did nothing."""
        stripe = StripeMock(faults=[fault])

        unread = checkout(stripe, asynchronous=asynchronous)

        assert (AGAIN, UNKNOWN) == (unread.reason, unread.effect)
        assert "No payment was sent this time." in unread.content
        assert [LIST] == sent(stripe)

    @pytest.mark.parametrize(
        "page",
        [
            {"object": "list", "data": [], "has_more": True},
            {"object": "list", "data": [{"object": "payment_intent", "id": "pi_9"}], "has_more": False},
            {"object": "list", "data": ["pi_9"], "has_more": False},
            {"object": "list", "data": None, "has_more": False},
            {"object": "list", "data": []},
            {"object": "payment_intent", "status": "succeeded", "amount": 1, "amount_received": 1},
        ],
    )
    def test_half_a_list_is_no_list(self, page: dict[str, Any]) -> None:
        """A page that cannot be trusted to be whole is a failed look, whatever it shows."""
        stripe = StripeMock(faults=[answer(200, page, at=LIST)])

        unread = checkout(stripe)

        assert (AGAIN, UNKNOWN) == (unread.reason, unread.effect)
        assert [LIST] == sent(stripe)

    def test_a_list_in_a_page_is_no_list(self) -> None:
        """JSON that says it is HTML did not come from Stripe."""
        page = answer(200, {"data": [], "has_more": False}, at=LIST, headers={"content-type": "text/html"})
        stripe = StripeMock(faults=[page])

        assert UNKNOWN is checkout(stripe).effect
        assert [LIST] == sent(stripe)

    def test_a_list_that_goes_in_circles_ends(self) -> None:
        """The same page twice is a failed look, not an endless one."""
        row = {"object": "payment_intent", "id": "pi_9", "status": "canceled", "metadata": {}}
        stripe = StripeMock(faults=[answer(200, {"data": [row], "has_more": True}, at=LIST, times=9)])

        assert UNKNOWN is checkout(stripe).effect
        assert [LIST, LIST] == sent(stripe)

    def test_a_bad_credential_ends_the_run(self) -> None:
        """What no call can mend is no reason to look again, though earlier calls remain unknown."""
        stripe = StripeMock()
        with stripe.client(headers={"authorization": "Bearer sk_test_other"}) as client:
            ended = run(pay(ORDER), client)

        assert (OVER, UNKNOWN) == (ended.reason, ended.effect)

    def test_of_two_intents_the_one_furthest_along_counts(self) -> None:
        """A paid one stands before an open one, whichever is newer."""
        stripe = StripeMock()
        form = {"amount": 1999, "currency": "usd", "customer": "cus_demo", "metadata[cart_id]": "cart_7"}
        with stripe.client() as client:
            made = [client.post("/v1/payment_intents", data=form).json()["id"] for _ in range(3)]
            client.post(f"/v1/payment_intents/{made[1]}/confirm", data={"payment_method": "pm_card_visa"})

        assert made[1] == checkout(stripe).evidence["intent"]
        assert 1 == len(stripe.charged("cart_7"))

    def test_of_equals_the_oldest_counts(self) -> None:
        """Two agents that look at different moments pick the same one."""
        stripe = StripeMock()
        form = {"amount": 1999, "currency": "usd", "customer": "cus_demo", "metadata[cart_id]": "cart_7"}
        with stripe.client() as client:
            made = [client.post("/v1/payment_intents", data=form).json()["id"] for _ in range(2)]

        assert made[0] == checkout(stripe).evidence["intent"]


class TestCreating:
    """One intent a cart, under one key, whatever the model words anew."""

    def test_the_body_holds_what_the_cart_is(self) -> None:
        """No note, no card and nothing else that a model rewords stands under the key."""
        _, create, confirm = recorded(StripeMock(), replace(ORDER, note="Blue mug"))

        assert {
            "amount": 1999,
            "currency": "usd",
            "customer": "cus_demo",
            "metadata[cart_id]": "cart_7",
        } == create.data
        assert {"payment_method": "pm_card_visa"} == confirm.data

    def test_the_key_holds_no_amount(self) -> None:
        """Another amount for a cart must meet the key of the first one."""
        one, other, elsewhere = (
            recorded(StripeMock(), order)[1].headers
            for order in (
                ORDER,
                replace(ORDER, amount=500, note="n", card="pm_2"),
                replace(ORDER, cart="cart_8"),
            )
        )

        assert one == other != elsewhere

    @pytest.mark.parametrize(
        "fault",
        [
            timeout(CREATE),
            timeout(CREATE, when="after"),
            timeout(CREATE, when="late"),
            reset(CREATE, when="after"),
            truncated(CREATE),
            html_502(CREATE, when="after"),
            answer(200, "<html>Log in</html>", at=CREATE),
        ],
    )
    def test_a_lost_answer_is_asked_for_once_more(self, fault: Fault, *, asynchronous: bool) -> None:
        """The same key makes the second request harmless; a replay is looked up before it is believed."""
        stripe = StripeMock(faults=[fault], late_holds_key=False)

        paid = checkout(stripe, asynchronous=asynchronous)

        assert DONE is paid.reason
        assert [CREATE, CREATE, LOOK, CONFIRM] == sent(stripe)[1:]
        assert 1 == len(stripe.intents("cart_7")) == len(stripe.charged("cart_7"))

    def test_a_create_lost_twice_ends_the_call(self) -> None:
        """Two requests are enough for one call."""
        stripe = StripeMock(faults=[timeout(CREATE), timeout(CREATE)])

        assert (AGAIN, UNKNOWN) == ((lost := checkout(stripe)).reason, lost.effect)
        assert [LIST, CREATE, CREATE] == sent(stripe)

    @pytest.mark.parametrize("fault", [rate_limit(at=CREATE), lock_timeout(at=CREATE)])
    def test_a_create_turned_away_is_not_sent_again(self, fault: Fault) -> None:
        """A limit is told with its wait, and proves that nothing was charged."""
        stripe = StripeMock(faults=[fault])

        assert (AGAIN, NONE) == ((turned := checkout(stripe)).reason, turned.effect)
        assert [LIST, CREATE] == sent(stripe)

    def test_an_amount_that_meets_the_key_is_loud_and_final(self, caplog: pytest.LogCaptureFixture) -> None:
        """Same cart, other amount, not in the list yet: nobody makes a new key, and somebody hears of it."""
        stripe = StripeMock()
        checkout(stripe, card="pm_card_visa_chargeDeclinedLostCard")
        stripe.script(answer(200, {"object": "list", "data": [], "has_more": False}, at=LIST))

        with caplog.at_level(logging.ERROR, "domains.checkout"):
            refused_now = checkout(stripe, amount=2500)

        assert (OVER, "checkout/key-reused") == (refused_now.reason, refused_now.rule)
        assert [LIST, CREATE] == sent(stripe)[-2:]
        assert 1 == len(caplog.records)
        assert "cart_7" not in caplog.text
        assert "sk_test" not in caplog.text

    def test_a_replayed_create_is_looked_up(self) -> None:
        """The stored answer shows an unpaid intent long after it was paid."""
        stripe = StripeMock()
        checkout(stripe)
        stripe.script(answer(200, {"object": "list", "data": [], "has_more": False}, at=LIST))

        assert DONE is checkout(stripe).reason
        assert [LIST, CREATE, LOOK] == sent(stripe)[3:]

    def test_a_look_that_fails_sends_no_confirm(self) -> None:
        """Without a fresh intent nothing is confirmed."""
        stripe = StripeMock(faults=[timeout(CREATE, when="after"), html_502(LOOK)])

        assert UNKNOWN is checkout(stripe).effect
        assert [LIST, CREATE, CREATE, LOOK] == sent(stripe)


class TestReading:
    """What an intent says before anything is confirmed."""

    @pytest.mark.parametrize("change", [{"amount": 2500}, {"currency": "eur"}])
    def test_a_cart_paid_otherwise_is_not_paid_again(self, change: dict[str, Any]) -> None:
        """Another amount or currency is refused, and the money that moved is not denied."""
        stripe = StripeMock()
        checkout(stripe)

        told = checkout(stripe, **change)

        assert (OVER, APPLIED, "checkout/paid-otherwise") == (told.reason, told.effect, told.rule)
        assert 1 == len(stripe.charged("cart_7"))

    @pytest.mark.parametrize("card", ["pm_card_chargeDeclinedIncorrectCvc", "pm_card_threeDSecure2Required"])
    def test_an_open_payment_keeps_its_amount(self, card: str) -> None:
        """An intent that may have a confirm in flight is never updated, and gets no sibling."""
        stripe = StripeMock()
        checkout(stripe, card=card)

        told = checkout(stripe, card=card, amount=2500)

        assert (OVER, NONE, "checkout/amount-changed") == (told.reason, told.effect, told.rule)
        assert [LIST] == sent(stripe)[3:]
        assert [1999] == [intent["amount"] for intent in stripe.intents("cart_7")]

    def test_a_payment_that_was_paid_back_is_no_receipt(self) -> None:
        """The intent still says succeeded; an expanded charge says more, and the cart is not charged anew."""
        stripe = StripeMock()
        checkout(stripe)
        charge = {"id": "ch_1", "object": "charge", "refunded": True}
        page = {"data": [{**stripe.intents()[0], "latest_charge": charge}], "has_more": False}
        stripe.script(answer(200, page, at=LIST))

        assert (OVER, "checkout/returned") == ((told := checkout(stripe)).reason, told.rule)
        assert 1 == len(stripe.charged("cart_7"))

    def test_a_payment_on_its_way_is_waited_for(self) -> None:
        """Processing is neither paid nor open: no second confirm, not confirmed, and a receipt in the end."""
        stripe = StripeMock(processing=["pm_bank"])
        waits = [checkout(stripe, card="pm_bank"), checkout(stripe, card="pm_bank"), checkout(stripe)]
        stripe.settle()

        assert {(AGAIN, UNKNOWN)} == {(each.reason, each.effect) for each in waits}
        assert DONE is checkout(stripe).reason
        assert 1 == sent(stripe).count(CONFIRM) == len(stripe.charged("cart_7"))

    def test_a_bank_that_asks_is_not_asked_again(self) -> None:
        """The same card waits for its holder, who ends the matter at the bank."""
        stripe = StripeMock()
        asked = [checkout(stripe, card="pm_card_threeDSecure2Required") for _ in range(2)]
        stripe.authenticate("pi_1")

        assert {(AGAIN, NONE, "checkout/action")} == {(each.reason, each.effect, each.rule) for each in asked}
        assert DONE is checkout(stripe, card="pm_card_threeDSecure2Required").reason
        assert 1 == sent(stripe).count(CONFIRM)

    def test_another_card_need_not_wait_for_the_first_ones_bank(self) -> None:
        """A card that asks for nothing pays the same intent."""
        stripe = StripeMock()
        checkout(stripe, card="pm_card_threeDSecure2Required")

        assert DONE is checkout(stripe).reason
        assert 1 == len(stripe.charged("cart_7"))

    @pytest.mark.parametrize(("why", "reason"), [({}, OVER), ({"cancellation_reason": "fraudulent"}, RULED)])
    def test_a_withdrawn_payment_gets_no_successor(self, why: dict[str, str], reason: Reason) -> None:
        """A second intent could charge the cart twice."""
        stripe = StripeMock()
        checkout(stripe, card="pm_card_chargeDeclinedIncorrectCvc")
        with stripe.client() as client:
            client.post("/v1/payment_intents/pi_1/cancel", data=why)

        assert (reason, NONE) == ((told := checkout(stripe)).reason, told.effect)
        assert 1 == len(stripe.intents("cart_7"))

    @pytest.mark.parametrize(
        ("card", "reason"),
        [("pm_card_visa_chargeDeclinedStolenCard", OVER), ("pm_card_radarBlock", RULED)],
    )
    def test_a_firm_decline_is_not_asked_for_twice(self, card: str, reason: Reason) -> None:
        """The intent remembers it: the bank sees one attempt, and the answer is the same."""
        stripe = StripeMock()
        first, second = checkout(stripe, card=card), checkout(stripe, card=card)

        assert (reason, NONE) == (first.reason, first.effect)
        assert (first.content, first.rule, first.effect) == (second.content, second.rule, second.effect)
        assert 1 == len(stripe.attempts)

    def test_another_card_is_another_decision(self) -> None:
        """What one card was refused says nothing against the next."""
        stripe = StripeMock()
        checkout(stripe, card="pm_card_visa_chargeDeclinedLostCard")

        assert DONE is checkout(stripe).reason
        assert ["failed", "succeeded"] == [charge.status for charge in stripe.attempts]


class TestConfirming:
    """One confirm a call, and no failure claimed while it may land."""

    @pytest.mark.parametrize("code", ["processing_error", "incorrect_cvc", "try_again_later"])
    def test_a_passing_decline_is_really_asked_again(self, code: str, *, asynchronous: bool) -> None:
        """The key changes with the latest charge, or the decline would be replayed for a day."""
        stripe = StripeMock(declines={"pm_card_visa": [code]})

        first, second = (checkout(stripe, asynchronous=asynchronous) for _ in range(2))

        assert [(AGAIN, NONE), (DONE, APPLIED)] == [(each.reason, each.effect) for each in (first, second)]
        assert 1 == len(stripe.charged("cart_7"))

    @pytest.mark.parametrize(
        "fault",
        [
            timeout(CONFIRM, when="after"),
            timeout(CONFIRM, when="late"),
            reset(CONFIRM, when="after"),
            truncated(CONFIRM),
            html_502(CONFIRM, when="after"),
            server_error(at=CONFIRM, when="after", saved=True),
            answer(200, "<html>Log in</html>", at=CONFIRM, when="after"),
            answer(403, "<html>blocked</html>", at=CONFIRM, when="after"),
            answer(402, "<html>pay up</html>", at=CONFIRM, when="after"),
        ],
    )
    def test_money_that_moved_is_found(self, fault: Fault, *, asynchronous: bool) -> None:
        """Whatever came instead of the answer, one look finds the payment."""
        stripe = StripeMock(faults=[fault])

        assert DONE is checkout(stripe, asynchronous=asynchronous).reason
        assert [LIST, CREATE, CONFIRM, LOOK] == sent(stripe)
        assert 1 == len(stripe.charged("cart_7"))

    @pytest.mark.parametrize(
        "fault",
        [
            timeout(CONFIRM),
            reset(CONFIRM),
            html_502(CONFIRM),
            server_error(at=CONFIRM),
            Fault(kind="ReadTimeout", at=CONFIRM, when="late", delay=9),
        ],
    )
    def test_an_intent_that_looks_unpaid_is_not_believed(self, fault: Fault, *, asynchronous: bool) -> None:
        """The confirm may land later: not confirmed, no second confirm, and one payment in the end."""
        stripe = StripeMock(faults=[fault])

        unclear = checkout(stripe, asynchronous=asynchronous)

        assert (AGAIN, UNKNOWN, "checkout/unconfirmed") == (unclear.reason, unclear.effect, unclear.rule)
        assert "not confirmed" in unclear.content
        assert [LIST, CREATE, CONFIRM, LOOK] == sent(stripe)
        stripe.settle()
        assert DONE is checkout(stripe).reason
        assert 1 == len(stripe.charged("cart_7"))

    def test_a_confirm_and_a_look_lost(self) -> None:
        """If the look fails as well, nothing is claimed."""
        stripe = StripeMock(faults=[timeout(CONFIRM, when="after"), html_502(LOOK)])

        assert (AGAIN, UNKNOWN) == ((unclear := checkout(stripe)).reason, unclear.effect)
        assert DONE is checkout(stripe).reason
        assert 1 == len(stripe.charged("cart_7"))

    def test_a_refusal_without_a_look_is_not_believed(self) -> None:
        """The confirm was turned away, but nobody saw whether the cart is paid: nothing is claimed."""
        stripe = StripeMock(faults=[rate_limit(at=CONFIRM), html_502(LOOK)])

        assert (AGAIN, UNKNOWN) == ((unclear := checkout(stripe)).reason, unclear.effect)

    def test_a_decline_whose_answer_was_lost_is_found(self) -> None:
        """A new charge and an error about this card: that decline, and nothing was taken."""
        stripe = StripeMock(faults=[timeout(CONFIRM, when="after")])

        told = checkout(stripe, card="pm_card_visa_chargeDeclinedLostCard")

        assert (OVER, NONE, "checkout/declined") == (told.reason, told.effect, told.rule)

    def test_a_replayed_decline_is_looked_up(self) -> None:
        """It is as old as its key: another caller may have paid with another card since."""
        stripe = StripeMock(declines={"pm_one": ["processing_error"]})
        checkout(stripe, card="pm_card_visa_chargeDeclinedLostCard")
        with stripe.client() as client:
            slow = pay(replace(ORDER, card="pm_one"))
            confirm = slow.send(send(client, next(slow)))
            first, second = checkout(stripe, card="pm_one"), checkout(stripe)
            look = slow.send(send(client, confirm))
            with pytest.raises(StopIteration) as end:
                slow.send(send(client, look))

        assert [AGAIN, DONE, DONE] == [first.reason, second.reason, end.value.value.reason]
        assert "GET" == look.method
        assert 1 == len(stripe.charged("cart_7"))

    def test_an_old_decline_is_no_answer_to_a_new_confirm(self) -> None:
        """The error that stood there before proves nothing about the confirm that was lost."""
        stripe = StripeMock(declines={"pm_card_visa": ["processing_error"]})
        checkout(stripe)
        stripe.script(Fault(kind="ReadTimeout", at=CONFIRM, when="late", delay=9))

        assert (AGAIN, UNKNOWN) == ((unclear := checkout(stripe)).reason, unclear.effect)

    def test_another_cards_authentication_is_no_answer(self) -> None:
        """The intent waits for the first card's bank as before, while the second card's confirm may land."""
        stripe = StripeMock()
        checkout(stripe, card="pm_card_threeDSecure2Required")
        stripe.script(Fault(kind="ReadTimeout", at=CONFIRM, when="late", delay=9))

        assert (AGAIN, UNKNOWN) == ((unclear := checkout(stripe)).reason, unclear.effect)

    @pytest.mark.parametrize(
        ("fault", "rule"),
        [(refused(CONFIRM), "infra"), (rate_limit(at=CONFIRM), "checkout/rate")],
    )
    def test_what_was_never_taken_up_cannot_land(self, fault: Fault, rule: str) -> None:
        """A request that never left, or was turned away at the door: an intent that looks unpaid is so."""
        stripe = StripeMock(faults=[fault])

        told = checkout(stripe)

        assert (AGAIN, NONE) == (told.reason, told.effect)
        assert told.rule.startswith(rule)
        assert [LIST, CREATE, CONFIRM, LOOK] == sent(stripe)

    def test_a_card_that_is_none_is_told(self) -> None:
        """The payment method is the model's argument, and another one pays."""
        stripe = StripeMock()

        told = checkout(stripe, card="card_of_mine")

        assert (AGAIN, NONE, "checkout/no-such-method") == (told.reason, told.effect, told.rule)
        assert DONE is checkout(stripe).reason

    def test_cards_that_stripe_copies_are_not_lost(self) -> None:
        """Test names give a new payment method at each use: the intent never shows the name that was sent."""
        stripe = StripeMock(clones=True)
        asked = [checkout(stripe, card="pm_card_threeDSecure2Required") for _ in range(2)]

        assert {(AGAIN, NONE)} == {(each.reason, each.effect) for each in asked}
        assert DONE is checkout(stripe).reason
        assert 1 == len(stripe.charged("cart_7"))

    def test_cards_stand_in_the_key(self) -> None:
        """Another card is another attempt; another note is not."""
        keys = [
            recorded(StripeMock(), order)[2].headers
            for order in (ORDER, replace(ORDER, note="n"), replace(ORDER, card="pm_2"))
        ]

        assert keys[0] == keys[1] != keys[2]


# Random schedules. The caller calls again each time, as a model does; what it once could not know
# stays unknown until it is proven (DESIGN of the thread: `orchestration.tools.prepare` does this).

STATUSES: Final = (500, 502, 503, 504)
PLACES: Final = ("*", LIST, CREATE, CONFIRM, LOOK, "POST *", "GET *")
CARDS: Final = (
    "pm_one",
    "pm_two",
    "pm_slow",
    "pm_card_visa_chargeDeclinedLostCard",
    "pm_card_chargeDeclinedIncorrectCvc",
    "pm_card_threeDSecure2Required",
)


def faults(dice: random.Random) -> Iterator[Fault]:
    """Draw up to three faults: of every kind, at every place, before, after and late."""
    for _ in range(dice.randint(0, 3)):
        kind, when = dice.choice(PAIRS)
        body = dice.choice(["<html>a page</html>", {"error": {"type": "api_error"}}, None])
        yield Fault(
            kind=kind,
            when=when,
            at=dice.choice(PLACES),
            times=dice.choice([1, 1, 2]),
            delay=dice.randint(1, 6),
            status=dice.choice(STATUSES),
            body=body,
            saved=kind == "answer" and isinstance(body, dict) and dice.random() < 0.3,
        )


def schedule(seed: int) -> tuple[random.Random, StripeMock]:
    """Return the dice of one schedule and a vendor on which things go wrong."""
    dice = random.Random(seed)  # noqa: S311 - a schedule must be replayed from its seed
    stripe = StripeMock(
        faults=faults(dice),
        declines={
            "pm_one": dice.choices(
                ["processing_error", "insufficient_funds", "incorrect_cvc"], k=dice.choice([0, 0, 1, 2])
            ),
            "pm_two": dice.choices(["try_again_later", "fraudulent"], k=dice.choice([0, 0, 1])),
        },
        processing=["pm_slow"],
        late_holds_key=dice.random() < 0.5,
        clones=dice.random() < 0.2,
    )
    return dice, stripe


def sticky(earlier: Outcome | None, now: Outcome) -> Outcome:
    """Keep what is unknown unknown until something proves the cart paid."""
    unknown = earlier is not None and earlier.effect is UNKNOWN and now.reason is not DONE
    return replace(now, effect=UNKNOWN) if unknown else now


def drawn(dice: random.Random, *, cards: tuple[str, ...], amounts: tuple[int, ...]) -> Order:
    """Draw an order for the cart."""
    return replace(ORDER, card=dice.choice(cards), amount=dice.choice(amounts))


def one_agent(seed: int) -> None:
    """Play one schedule with one caller, and check what it was told against what was charged."""
    dice, stripe = schedule(seed)
    cards = CARDS if dice.random() < 0.5 else CARDS[:1]
    amounts = (1999, 1999, 2500) if dice.random() < 0.3 else (1999,)
    told: Outcome | None = None
    with stripe.client() as client:
        for _ in range(dice.randint(1, 5)):
            order = drawn(dice, cards=cards, amounts=amounts)
            told = sticky(told, run(pay(order), client))
            if told.reason is DONE:
                assert [order.amount] == [charge.amount for charge in stripe.charged("cart_7")]
            if dice.random() < 0.15:
                stripe.advance(hours=25)
            if dice.random() < 0.1:
                stripe.settle()
    stripe.settle()
    charged = stripe.charged("cart_7")

    assert len(charged) <= 1
    assert not charged or (told is not None and told.effect is not NONE)
    assert [] == stripe.unmatched


def two_agents(seed: int) -> None:
    """Play one schedule with two callers who take turns request by request."""
    dice, stripe = schedule(seed)
    calls, told = [dice.randint(1, 3), dice.randint(1, 3)], [None, None]  # type: list[int], list[Outcome | None]
    flows: list[tuple[Flow, Call] | None] = [None, None]
    with stripe.client() as client:
        while who := [i for i in (0, 1) if calls[i] or flows[i]]:
            agent = dice.choice(who)
            try:
                running = flows[agent]
                if running is None:
                    calls[agent] -= 1
                    flow = pay(drawn(dice, cards=("pm_one", "pm_two", CARDS[3]), amounts=(1999, 1999, 2500)))
                    flows[agent] = flow, next(flow)
                else:
                    flows[agent] = running[0], running[0].send(send(client, running[1]))
            except StopIteration as end:
                flows[agent], told[agent] = None, sticky(told[agent], end.value)
                # Between calls: one that sleeps for a day after its look has lost its key (see the tool).
                if not any(flows) and dice.random() < 0.3:
                    stripe.advance(hours=25)
    stripe.settle()
    charged = stripe.charged("cart_7")

    assert len(charged) <= 1
    assert not charged or [each for each in told if each is not None and each.effect is not NONE]
    assert [] == stripe.unmatched


@pytest.mark.filterwarnings("ignore::ResourceWarning")
class TestSchedules:
    """Faults in any order, calls again and again: one charge at the most, and no false word about it."""

    @pytest.mark.parametrize("block", range(4))
    def test_one_agent(self, block: int) -> None:
        """A sample of the schedules below."""
        for seed in range(40 * block, 40 * (block + 1)):
            one_agent(seed)

    @pytest.mark.parametrize("block", range(4))
    def test_two_agents(self, block: int) -> None:
        """A sample of those with two callers on one cart."""
        for seed in range(25 * block, 25 * (block + 1)):
            two_agents(seed)

    @pytest.mark.slow
    def test_ten_thousand_schedules(self) -> None:
        """The full count; a seed in a failure replays its schedule."""
        for seed in range(1_000, 11_000):
            (two_agents if seed % 3 == 0 else one_agent)(seed)


class TestSamples:
    """What the command line promises of this domain."""

    @pytest.mark.parametrize("reason", list(Reason))
    def test_every_reason_can_be_forced(self, reason: Reason) -> None:
        """The sample call ends with each of the four reasons, as set up."""
        settings, forced = FORCED[reason]
        stripe = StripeMock(**settings)
        stripe.script(
            *(Fault(kind=each.kind, at=each.at, status=each.status, body=each.body) for each in forced)
        )
        tool = tools(client=stripe.client())[0]

        message = tool.invoke(
            {"type": "tool_call", "id": "call_1", "name": tool.name, "args": dict(SAMPLE.args)}
        )

        assert reason == message.artifact["reason"]

    def test_scenarios_are_many_and_named_apart(self) -> None:
        """At least eight, each under its own name, each with every reason of its calls."""
        names = [scenario.id for scenario in SCENARIOS]
        asked = [
            sum(len(step) for step in turn.script if not isinstance(step, str))
            for scenario in SCENARIOS
            for turn in scenario.turns
        ]

        assert 8 <= len(names) == len(set(names))
        assert asked == [len(turn.reasons) for scenario in SCENARIOS for turn in scenario.turns]
        assert set(Reason) == {
            reason for scenario in SCENARIOS for turn in scenario.turns for reason in turn.reasons
        }
