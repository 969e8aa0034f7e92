"""Five wirings of the same tools: what they cost, and what the checks find wrong with them."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, Final

import httpx
import pytest
from langchain_core.messages import AIMessage
from typer.testing import CliRunner

from domains import answers
from domains import compare as comparing
from domains.answers import Called, Heard, Round, Wrong
from domains.cli import app
from domains.compare import OURS, Compared, Wiring, compare, figures, play
from domains.found import scenarios
from domains.scenario import Ask, Scenario, Turn
from mocks.groq import MODEL, rate_limited, tool_use_failed, unauthorized
from orchestration.outcomes import Outcome
from orchestration.reasons import Reason
from tests.groq_server import GroqServer, sensible

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

ALL: Final = scenarios()
SOME: Final = (
    "checkout/paid",
    "checkout/bank-busy",
    "checkout/gateway-down",
    "checkout/declined",
    "checkout/two-carts-one-waits",
    "ticketing/success",
    "ticketing/issues-disabled",
    "journey/find-buy-wrap",
    "journey/declined-then-ticket",
)
LOST_CARD: Final = "pm_card_visa_chargeDeclinedLostCard"
STATIC: Final = (Wiring.RETURN_DIRECT, Wiring.TO_END)


@pytest.fixture(scope="module")
def compared() -> dict[tuple[str, Wiring], Compared]:
    """Some scenarios in every wiring."""
    return {(each.scenario, each.wiring): each for each in compare([ALL[name] for name in SOME])}


def model_calls(one: Compared) -> int:
    """Return how often the model was asked."""
    return sum(each.model_calls for each in one.heard)


def scenario(
    *script: tuple[Ask, ...] | str, reasons: tuple[str, ...] = (), narration: str = "Well."
) -> Scenario:
    """Return a scenario of one turn."""
    turn = Turn(user="Pay.", script=script, narration=narration, path=(), reasons=reasons, final="")
    return Scenario(id="checkout/made-up", about="Made up.", turns=(turn,))


def pay(**more: object) -> tuple[Ask, ...]:
    """Return a turn that pays for a cart."""
    return (Ask("checkout", {"cart_id": "cart_7", "amount": 1999, **more}),)


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("checkout/paid", (2, 1, 1, 1, 2)),
        ("checkout/bank-busy", (3, 1, 1, 2, 3)),
        ("checkout/gateway-down", (4, 1, 1, 3, 3)),
        ("checkout/declined", (2, 1, 1, 1, 1)),
        ("journey/find-buy-wrap", (4, 3, 1, 3, 4)),
    ],
)
def test_model_calls(compared: dict[tuple[str, Wiring], Compared], name: str, calls: tuple[int, ...]) -> None:
    """A stop saves one call, a polish spends it again, a static stop saves those that were needed too."""
    assert calls == tuple(model_calls(compared[name, wiring]) for wiring in Wiring)


@pytest.mark.parametrize(
    ("name", "wirings", "kind"),
    [
        ("checkout/bank-busy", STATIC, Wrong.GAVE_UP),
        ("checkout/two-carts-one-waits", STATIC, Wrong.GAVE_UP),
        ("checkout/two-carts-one-waits", STATIC, Wrong.LOST_RECEIPT),
        ("journey/find-buy-wrap", (Wiring.TO_END,), Wrong.LEFT_UNDONE),
        ("journey/find-buy-wrap", (Wiring.RETURN_DIRECT,), Wrong.LOST_RECEIPT),
    ],
)
def test_what_a_static_stop_breaks(
    compared: dict[tuple[str, Wiring], Compared], name: str, wirings: tuple[Wiring, ...], kind: Wrong
) -> None:
    """The checks find what a stop that knows no outcome does to a run."""
    for wiring in wirings:
        assert kind in compared[name, wiring].wrong
    assert kind not in compared[name, Wiring.PLAIN].wrong


@pytest.mark.parametrize("name", ["checkout/paid", "checkout/gateway-down", "checkout/declined"])
def test_nothing_is_held_against_a_static_stop_that_is_right(
    compared: dict[tuple[str, Wiring], Compared], name: str
) -> None:
    """Where no further call would have passed, ending at once is no wrong answer."""
    for wiring in STATIC:
        assert Counter() == compared[name, wiring].wrong


def test_the_router_gives_up_on_nothing(compared: dict[tuple[str, Wiring], Compared]) -> None:
    """In our wirings every call that would pass is made, and every scenario goes as written."""
    for one in compared.values():
        if one.wiring in OURS:
            assert not {Wrong.GAVE_UP, Wrong.LEFT_UNDONE, Wrong.RETRIED, Wrong.CLAIMED} & set(one.wrong)
        assert () == one.surprises


@pytest.mark.parametrize("name", ["ticketing/success", "ticketing/issues-disabled"])
def test_the_model_never_errs_in_its_words(compared: dict[tuple[str, Wiring], Compared], name: str) -> None:
    """A narration that keeps the ticket's number back, or claims a ticket there is not, is put right."""
    plain, hard = (compared[name, wiring].heard[0] for wiring in (Wiring.PLAIN, Wiring.HARD))
    assert ALL[name].turns[0].narration != plain.final
    assert plain.final.endswith(hard.final)
    assert () == plain.wrong


def test_the_marks_are_the_best_ones(compared: dict[tuple[str, Wiring], Compared]) -> None:
    """The flag stands on the tools where it does least harm: on the last step of a journey."""
    assert ("create_ticket",) == compared["journey/find-buy-wrap", Wiring.RETURN_DIRECT].marks


def test_a_polish_knows_the_stops_text_alone(compared: dict[tuple[str, Wiring], Compared]) -> None:
    """A polish rewords what the stop says, the receipt too, and nothing that the stop does not say."""
    polished, hard = (
        compared["journey/find-buy-wrap", wiring].heard[0] for wiring in (Wiring.POLISH, Wiring.HARD)
    )
    assert all(word in said.final for said in (polished, hard) for word in ("19.99 USD", "issues/1"))
    assert not any("Blue mug" in said.final for said in (polished, hard))
    assert () == polished.wrong == hard.wrong


def test_a_plain_model_is_not_shown_last_step() -> None:
    """A model writes no argument that its tools do not have."""
    plain, hard = (play(ALL["journey/find-buy-wrap"], wiring) for wiring in (Wiring.PLAIN, Wiring.HARD))
    assert ["last_step" in called.call["args"] for called in plain.heard[0].calls] == [False] * 3
    assert ["last_step" in called.call["args"] for called in hard.heard[0].calls] == [True, True, False]


@pytest.mark.parametrize(
    ("wiring", "last_step", "wrong"),
    [
        (Wiring.PLAIN, True, {Wrong.RETRIED}),
        (Wiring.HARD, True, set()),  # the run has ended by then
        (Wiring.HARD, False, set()),  # the recorded answer, and the bank is not asked
    ],
)
def test_a_retried_decline(wiring: Wiring, last_step: bool, wrong: set[Wrong]) -> None:
    """A declined payment that is sent again is found, in other words for the receipt too."""
    declined = {"payment_method": LOST_CARD, "last_step": last_step}
    again = scenario(pay(**declined, note="One"), pay(**declined, note="Two"), reasons=("fatal", "fatal"))
    assert wrong == set(play(again, wiring).wrong)


def test_another_card_is_no_retry() -> None:
    """Another card is another call."""
    other = scenario(pay(payment_method=LOST_CARD), pay(), reasons=("fatal", "completed"))
    assert Wrong.RETRIED not in play(other, Wiring.PLAIN).wrong


DONE: Final = Outcome("Paid: 19.99.", Reason.COMPLETED, key="k")
FOUND: Final = Outcome("Found 1 mug.", Reason.COMPLETED)
FAILED: Final = Outcome("Not paid. It is open until 9.", Reason.FATAL, key="k")


def heard(final: str, *outcomes: Outcome, by_model: bool = True) -> Heard:
    """Return an answer after one turn of calls that ended so."""
    calls = tuple(Called({"name": "checkout", "args": {}}, outcome) for outcome in outcomes)
    return Heard(
        rounds=(Round(calls),) if calls else (),
        final=final,
        by_model=by_model,
        model_calls=2,
        input_tokens=10,
        output_tokens=1,
        vendor_calls=1,
        ended_by="model",
    )


PENDING: Final = Outcome("It is on its way.", Reason.COMPLETED, key="k", pending=True)
RECEIPT: Final = Outcome(
    "<p>Payment received: <strong>19.99 USD</strong> for cart <strong>cart_7</strong>.</p>",
    Reason.COMPLETED,
    key="k7",
    format="html",
)
OTHER: Final = Outcome("Not paid: cart_8.", Reason.FATAL, key="k8")


def compared_with(one: Scenario) -> dict[Wiring, Compared]:
    """Return a scenario in every wiring."""
    return {each.wiring: each for each in compare([one])}


def wrongs(found: dict[Wiring, Compared]) -> dict[Wiring, set[Wrong]]:
    """Return what was wrong with it in each wiring."""
    return {wiring: set(each.wrong) for wiring, each in found.items()}


def test_a_budget_can_give_up_too() -> None:
    """Where the fourth attempt would pass, a router that stops after three gave up, and that is found."""
    down = ALL["checkout/gateway-down"]
    longer = replace(down, turns=(replace(down.turns[0], script=(*down.turns[0].script, pay())),))
    found = wrongs(compared_with(longer))
    assert set() == found[Wiring.PLAIN]
    assert all({Wrong.GAVE_UP} == found[wiring] for wiring in Wiring if wiring is not Wiring.PLAIN)


def test_a_model_that_forgets_last_step() -> None:
    """A router that ends at the hit list, where the model would have paid next, left something undone."""
    search = (Ask("search", {"query": "blue mug"}),)
    found = wrongs(compared_with(replace(scenario(search, pay()), id="journey/forgets")))
    assert set() == found[Wiring.PLAIN]
    assert {Wrong.LEFT_UNDONE} == found[Wiring.HARD] == found[Wiring.POLISH]


def test_nothing_is_missed_that_never_gets_done() -> None:
    """A job that is never ready is no reason to go on: every wiring may end there."""
    found = wrongs(compared_with(ALL["export/never-done"]))
    assert all(set() == wrong for wrong in found.values())


def test_a_recorded_answer_is_no_retry() -> None:
    """The guard answers a declined call from its record; what else the turn does is not held against it."""
    declined = pay(payment_method=LOST_CARD)
    beside = (*declined, Ask("checkout", {"cart_id": "cart_8", "amount": 500}))
    found = wrongs(compared_with(scenario(pay(payment_method=LOST_CARD, last_step=False), beside)))
    assert {Wrong.RETRIED} == found[Wiring.PLAIN]
    assert set() == found[Wiring.HARD]


@pytest.mark.parametrize("other", [{"currency": "usd"}, {"note": "please"}, {"amount": "1999"}])
def test_the_same_call_in_another_spelling(other: dict[str, object]) -> None:
    """A default written out, other free text and a number as a string make no other call: it is not sent."""
    first = pay(payment_method=LOST_CARD, last_step=False)
    found = wrongs(compared_with(scenario(first, pay(**{"payment_method": LOST_CARD, **other}))))
    assert {Wrong.RETRIED} == found[Wiring.PLAIN]
    assert set() == found[Wiring.HARD]


def test_the_plain_model_claims_nothing() -> None:
    """Whatever a scenario narrates, in the plain loop the model says what its tools said, or nothing more."""
    for one in ALL.values():
        true, _ = comparing._told_truly(one)
        for written, told in zip(one.turns, true.turns, strict=True):
            done = set(written.reasons[-1:]) <= {"completed"}
            assert done or told.narration != written.narration or not written.reasons, one.id


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (heard("I have paid for it.", FAILED), {Wrong.CLAIMED}),
        (heard("It is paid.", FOUND), {Wrong.CLAIMED}),
        (
            heard("I am sorry. It\N{RIGHT SINGLE QUOTATION MARK}s odd: all are ordered.", FAILED),
            {Wrong.CLAIMED},
        ),
        (heard("I've paid."), {Wrong.CLAIMED}),
        (heard("It is paid.", FAILED, by_model=False), set()),
        (heard("It is not paid. Is it open?", FAILED), set()),
        (heard("So I bought nothing, and nothing is paid.", FAILED), set()),
        (heard("Here: It is open until 9.", FAILED), set()),  # quoted
        (heard("The ticket is now open.", FAILED), {Wrong.CLAIMED}),
        (heard("The shop is open until ten.", FAILED), set()),
        (heard("Your payment went through.", FAILED), {Wrong.CLAIMED}),
        (heard("Payment received. Thank you!", FAILED), {Wrong.CLAIMED}),
        (heard("The ticket has been successfully created.", FAILED), {Wrong.CLAIMED}),
        (heard("It is **pa\u200bid**.", FAILED), {Wrong.CLAIMED}),
        (heard("It is paid, no problem.", FAILED), {Wrong.CLAIMED}),
        (heard("If it is paid, you get a mail. It could have been paid.", FAILED), set()),
        (heard("It is exported.", PENDING), {Wrong.CLAIMED}),
        (heard("Paid 19.99 for cart 7, and cart_8 is paid.", RECEIPT, OTHER), {Wrong.CLAIMED}),
        (heard("I have paid 19.99 USD for cart_7. Not for cart_8.", RECEIPT, OTHER), set()),
        (heard("Sorry. It is open until 9.", FAILED), set()),  # the tool's own sentence
        (heard("It is paid: 19.99.", DONE), set()),
        (heard("It is paid.", DONE), {Wrong.LOST_RECEIPT}),
        (heard("It is paid: 19.99.", DONE, FAILED), set()),
        (heard("<p>Paid: <b>19.99</b></p>", DONE, by_model=False), set()),
        (heard("A mug.", FOUND), set()),  # hits are no receipt
        (heard("You paid $19.99 for cart 7.", RECEIPT), set()),
        (heard("You paid 19,99 USD for cart_7.", RECEIPT), set()),
        (heard("A blue mug for 19.99, and 7 more.", RECEIPT), {Wrong.LOST_RECEIPT}),
        (heard("You paid 119.99 USD for cart_7.", RECEIPT), {Wrong.LOST_RECEIPT}),
        (heard("Paid, see <https://a.b/1>.", replace(DONE, content="Paid: https://a.b/1")), set()),
        (heard("Paid for a<b7>.", replace(DONE, content="Paid: a<b7>.")), set()),
        (heard("Paid 1,999.00", replace(DONE, content="Paid: 1999")), set()),
    ],
)
def test_words(said: Heard, wrong: set[Wrong]) -> None:
    """A claim needs something done; a receipt needs its numbers; a denial is no claim."""
    assert wrong == set(answers.wrong(said))


def test_earlier_receipts_back_a_claim() -> None:
    """Who asks whether it worked is told the truth without another call."""
    done = [Called({"name": "checkout", "args": {}}, DONE)]
    assert [] == list(answers.wrong(heard("It is paid."), done))
    assert [Wrong.CLAIMED] == list(answers.wrong(heard("It is paid, for cart_9 too."), done))


def test_unknown_tokens_stay_unknown() -> None:
    """One answer that does not say its tokens makes the sum unknown, never smaller."""
    known, unknown = heard("A."), replace(heard("B."), input_tokens=None)
    sums = figures([Compared(scenario="a/b", wiring=Wiring.PLAIN, heard=(known, unknown))])
    assert (None, 2, 4) == (sums["input_tokens"], sums["output_tokens"], sums["model_calls"])


@pytest.mark.parametrize("field", ["final", "path", "reasons", "rules", "stopped_by"])
def test_a_surprise_is_told(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario that goes otherwise in mode hard exits 1, and says what was expected, as in run."""
    once = ALL["checkout/declined"]
    wrong: Any = {"final": "Paid.", "stopped_by": "completed"}.get(field, ("other",))
    odd = replace(once, turns=(replace(once.turns[0], **{field: wrong}),))
    monkeypatch.setattr("domains.cli.scenarios", lambda: {"checkout/declined": odd})
    result = CliRunner().invoke(app, ["compare", "--json"])
    told = json.loads(result.stdout)["surprises"]["checkout/declined"]
    assert 1 == result.exit_code
    assert any(line.startswith(f"{field}: expected") for line in told)
    assert f"{field}: expected" in result.stderr


def test_json() -> None:
    """One object, and nothing else on stdout."""
    result = CliRunner().invoke(app, ["compare", "checkout/paid", "--json"])
    told = json.loads(result.stdout)
    assert (0, "") == (result.exit_code, result.stderr)
    assert [wiring.value for wiring in Wiring] == [each["wiring"] for each in told["plays"]]
    assert 2 == told["wirings"]["plain"]["model_calls"]
    assert {"checkout/paid": ["checkout"]} == told["return_direct_on"]


def test_table() -> None:
    """Totals by wiring, then the scenarios in which the wirings differ."""
    result = CliRunner().invoke(app, ["compare", "checkout/bank-busy"], env={"COLUMNS": "120"})
    assert 0 == result.exit_code
    assert "Scenarios: 1, 0 of them alike in all wirings." in result.stdout
    assert 3 == result.stdout.count("gave up")


# Live.


def live(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Return exit code, object and errors of a live comparison."""
    result = CliRunner().invoke(app, ["compare", *arguments, "--live", "--json"])
    return result.exit_code, json.loads(result.stdout or "{}"), result.stderr


def by_wiring(told: dict[str, Any], name: str) -> list[Any]:
    """Return one figure of every wiring."""
    return [each[name] for each in told["wirings"].values()]


def test_live(groq: Callable[..., GroqServer]) -> None:
    """A real model is asked in every wiring, and every question is counted, with what it reported."""
    server = groq(sensible("checkout/paid"))
    code, told, err = live("checkout/paid")
    calls = [request for request in server.requests if "tools" in request]
    prompts = [request["messages"][0]["content"] for request in calls]

    assert (0, "") == (code, err)
    assert ("reported", MODEL) == (told["tokens"], told["model"])
    assert [2, 1, 1, 1, 2] == by_wiring(told, "model_calls")
    assert sum(by_wiring(told, "model_calls")) == len(server.requests)
    assert [0] * 5 == [sum(wrong.values()) for wrong in by_wiring(told, "wrong")]
    assert 1 == told["wirings"]["hard"]["avoided"]["model_calls"]
    assert told["wirings"]["hard"]["avoided"]["input_tokens"] > 100
    # Only who takes last_step is told of it.
    assert ["last_step" in prompt for prompt in prompts] == [
        "last_step" in str(each["tools"]) for each in calls
    ]


def test_live_finds_what_a_static_stop_missed(groq: Callable[..., GroqServer]) -> None:
    """What the plain loop got done and a wiring did not is what that wiring gave up on, or left undone."""
    groq(sensible("checkout/bank-busy"))
    _, told, _ = live("checkout/bank-busy")
    gave_up = [wrong[Wrong.GAVE_UP] for wrong in by_wiring(told, "wrong")]
    assert ([3, 1, 1, 2, 3], [0, 1, 1, 0, 0]) == (by_wiring(told, "model_calls"), gave_up)


def test_live_a_call_written_as_text(groq: Callable[..., GroqServer]) -> None:
    """What Groq could not read leaves a plain loop as an exception; the router's asks once more."""
    sane = sensible("checkout/paid")
    refused: Counter[bool] = Counter()

    def answer(body: dict[str, Any]) -> AIMessage | httpx.Response:
        ours = "last_step" in str(body.get("tools"))
        refused[ours] += 1
        return tool_use_failed() if refused[ours] == 1 else sane(body)

    groq(answer)
    code, told, _ = live("checkout/paid")
    assert 0 == code
    assert [1, 0, 0, 0, 0] == [wrong[Wrong.RAISED] for wrong in by_wiring(told, "wrong")]
    assert [1, 1, 1, 2, 2] == by_wiring(told, "model_calls")
    # What the refused request has cost is not known.
    assert [True, False, False, True, False] == [each is None for each in by_wiring(told, "input_tokens")]
    assert told["wirings"]["hard"]["avoided"]["input_tokens"] is None


def test_live_keeps_what_was_compared(groq: Callable[..., GroqServer]) -> None:
    """A refusal in the middle costs the rest, not the scenarios that are there in all wirings."""
    sane = sensible("checkout/paid")
    asked = count(1)
    groq(lambda body: sane(body) if next(asked) < 9 else rate_limited(retry_after_s=0))
    code, told, err = live("checkout/paid", "checkout/declined")
    said = "domains: Groq answered 429 (RateLimitError). What was played before that is shown."
    assert (2, {"checkout/paid"}) == (code, {each["scenario"] for each in told["plays"]})
    assert said == " ".join(err.split())


def test_live_with_nothing_compared(groq: Callable[..., GroqServer]) -> None:
    """Without a figure there is no empty table."""
    groq(unauthorized())
    result = CliRunner().invoke(app, ["compare", "checkout/paid", "--live"])
    assert (2, "") == (result.exit_code, result.stdout)
    assert "domains: Groq answered 401 (AuthenticationError)." == result.stderr.strip()


def test_an_exception_is_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that raises has answered nobody, and the others are compared all the same."""
    broken = {**comparing._WIRED, Wiring.PLAIN: lambda *_: 1 / 0}
    monkeypatch.setattr(comparing, "_WIRED", broken)
    plain = play(ALL["checkout/next-turn"], Wiring.PLAIN)
    assert ({Wrong.RAISED: 1}, [""]) == (plain.wrong, [each.final for each in plain.heard])
    assert {} == play(ALL["checkout/next-turn"], Wiring.HARD).wrong


def test_no_such_scenario() -> None:
    """A glob that matches nothing is refused, as in run."""
    assert 2 == CliRunner().invoke(app, ["compare", "no/such"]).exit_code


@pytest.mark.slow
def test_all_of_them() -> None:
    """Over every scenario the router asks less than the plain loop, and fails less than a static stop."""
    found = compare(list(ALL.values()))
    sums = {wiring: figures(comparing.of_plays(found, wiring)) for wiring in Wiring}
    wrong = {wiring: sum(sums[wiring]["wrong"].values()) for wiring in Wiring}
    assert [] == [each.scenario for each in found if each.surprises]
    assert sums[Wiring.HARD]["model_calls"] < 0.7 * sums[Wiring.PLAIN]["model_calls"]
    assert sums[Wiring.HARD]["vendor_calls"] == sums[Wiring.PLAIN]["vendor_calls"]
    assert wrong[Wiring.HARD] <= 2
    assert min(wrong[wiring] for wiring in STATIC) > 15
