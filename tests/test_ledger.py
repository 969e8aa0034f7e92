"""The ledger: what was reported is counted, what was not is unknown, what never happened is estimated."""

import json
from dataclasses import asdict, fields
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.base import message_to_dict
from langgraph.checkpoint.memory import InMemorySaver

from mocks.model import ScriptedModel
from orchestration import StopMode, StopPolicy
from orchestration.asking import LONGEST_RESULT
from orchestration.ledger import EXCUSE, LONGEST_SENT, MODEL, OPEN, Cost, Ledger, ledger
from orchestration.router import Route, decide
from tests.runtimes import BUSY, DECLINED, PAID, Runtime, Till, call


def usage(sent: int, answered: int) -> Any:
    """Return what a provider reports."""
    return {"input_tokens": sent, "output_tokens": answered, "total_tokens": sent + answered}


def said(text: str = "Done.", *calls: Any, used: Any = None) -> AIMessage:
    """Return what a model said."""
    return AIMessage(text, tool_calls=list(calls), usage_metadata=used)


def result(text: str = "x" * 40, call_id: str = "c0") -> ToolMessage:
    """Return what a tool answered."""
    return ToolMessage(text, tool_call_id=call_id)


def relayed(rule: str = "completed", route: str = "finalize", used: Any = None) -> AIMessage:
    """Return the message that ends a stopped run."""
    return AIMessage("Paid.", response_metadata={"stopped_by": rule, "route": route}, usage_metadata=used)


USER = HumanMessage("Pay.")


# What one run has cost


def test_a_stop() -> None:
    """A stopped run made one call; the next would have been sent that again, its answer and the result."""
    (run,) = ledger([USER, said("", call(), used=usage(100, 20)), result("x" * 40), relayed()]).runs

    assert "completed" == run.ended_by
    assert (
        Cost(
            model_calls=1,
            tool_calls=1,
            input_tokens=100,
            output_tokens=20,
            avoided_model_calls_estimated=1,
            avoided_input_tokens_estimated=100 + 20 + 10,
        )
        == run.cost
    )


def test_the_model_has_the_last_word() -> None:
    """A run that the model ended avoided nothing."""
    messages = [USER, said("", call(), used=usage(100, 20)), result(), said(used=usage(150, 5))]
    (run,) = ledger(messages).runs

    assert MODEL == run.ended_by
    assert Cost(model_calls=2, tool_calls=1, input_tokens=250, output_tokens=25) == run.cost


def test_the_newest_call_counts() -> None:
    """What a stop avoided is measured by the turn that it followed, not by the first of the run."""
    messages = [
        *(USER, said("", call(), used=usage(100, 20)), result("x" * 4_000)),
        *(said("", call(call_id="c1"), used=usage(1_200, 30)), result("x" * 80, "c1"), relayed("fatal")),
    ]

    assert 1_200 + 30 + 20 == ledger(messages).total.avoided_input_tokens_estimated


def test_parallel_results() -> None:
    """Every result of the turn would have been sent."""
    calls = [call(), call("search", "c1")]
    messages = [USER, said("", *calls, used=usage(100, 20)), result(), result("y" * 80, "c1"), relayed()]
    total = ledger(messages).total

    assert (2, 100 + 20 + 30) == (total.tool_calls, total.avoided_input_tokens_estimated)


def test_a_long_result() -> None:
    """A result counts as far as the model would have been sent it."""
    messages = [USER, said("", call(), used=usage(100, 20)), result("x" * 1_000_000), relayed()]

    assert LONGEST_RESULT == LONGEST_SENT
    assert 120 + LONGEST_SENT // 4 == ledger(messages).total.avoided_input_tokens_estimated


def test_a_polish() -> None:
    """A polish is one call more, and so avoided none; what it cost stands with its message."""
    used = usage(60, 15)
    messages = [USER, said("", call(), used=usage(100, 20)), result(), relayed(route="polish", used=used)]

    assert Cost(model_calls=2, tool_calls=1, input_tokens=160, output_tokens=35) == ledger(messages).total


@pytest.mark.parametrize(
    ("unused", "cost"),
    [
        ([], (0, 0, 0)),
        ([None], (1, None, 1)),
        ([usage(100, 0), usage(110, 0)], (2, 210, 0)),
        ([usage(100, 0), None], (2, None, 1)),
    ],
)
def test_excuse(unused: list[Any], cost: tuple[int, int | None, int]) -> None:
    """Words of ours in place of the model's cost nothing; the answers that they stand for do."""
    said = {"excuse": True, "unused_answers": unused}
    (run,) = ledger([USER, AIMessage("I cannot go on.", response_metadata=said)]).runs

    assert EXCUSE == run.ended_by
    assert cost == (run.cost.model_calls, run.cost.input_tokens, run.cost.calls_without_usage)


@pytest.mark.parametrize(
    "messages",
    [
        [USER, said("", call())],
        [USER, said("", call()), result()],
        [USER, said("", call()), SystemMessage("")],
    ],
)
def test_open(messages: list[AnyMessage]) -> None:
    """A run that waits or was killed is open, and its calls are counted all the same."""
    (run,) = ledger(messages).runs

    assert (OPEN, 1) == (run.ended_by, run.cost.model_calls)


# Unknown is not 0


@pytest.mark.parametrize(
    ("used", "sent", "answered", "without"),
    [
        (None, None, None, 1),
        ({}, None, None, 1),
        ({"input_tokens": 7}, 7, None, 1),
        ({"output_tokens": 7}, None, 7, 1),
        ({"input_tokens": None, "output_tokens": None}, None, None, 1),
        ({"input_tokens": "7", "output_tokens": 7.0}, None, None, 1),
        ({"input_tokens": -1, "output_tokens": True}, None, None, 1),
        ({"input_tokens": 0, "output_tokens": 0}, 0, 0, 0),
    ],
)
def test_unknown(used: Any, sent: int | None, answered: int | None, without: int) -> None:
    """A count that a provider did not give, or that is none, is unknown; a 0 that it gave is 0."""
    total = ledger([{"type": "human"}, {"type": "ai", "content": "Hi.", "usage_metadata": used}]).total

    assert (sent, answered, without) == (total.input_tokens, total.output_tokens, total.calls_without_usage)


def test_unknown_stays() -> None:
    """One silent call makes its run, its tool and the total unknown, and no other run."""
    known = [USER, said(used=usage(100, 20))]
    silent = [USER, said("", call()), result(), relayed()]
    found = ledger([*known, *silent])

    assert [100, None] == [run.cost.input_tokens for run in found.runs]
    assert (None, None) == (found.total.input_tokens, found.total.avoided_input_tokens_estimated)
    assert 100 == found.by_rule[MODEL].input_tokens
    assert None is found.by_tool["pay"].output_tokens
    assert (2, 1) == (found.total.model_calls, found.total.calls_without_usage)


def test_nothing() -> None:
    """Where nobody asked a model, nothing was spent: that is known."""
    for messages in ([], [USER], [SystemMessage("Be kind."), USER, USER]):
        assert Ledger() == ledger(messages)
    assert (0, 0, 0) == (Cost().input_tokens, Cost().output_tokens, Cost().avoided_input_tokens_estimated)


# Runs, rules, tools


def thread() -> list[AnyMessage]:
    """Return three runs: a stop, a text, another stop."""
    return [
        SystemMessage("Be kind."),
        *(USER, said("", call(), used=usage(100, 20)), result(), relayed()),
        *(HumanMessage("Thanks."), said(used=usage(200, 5))),
        *(HumanMessage("Find a mug."), said("", call("search"), used=usage(300, 10)), result()),
        *(said("", call(), call("search", "c1"), used=usage(400, 10)), result(), result("", "c1")),
        relayed("fatal"),
    ]


def test_runs() -> None:
    """A run begins where the user speaks."""
    runs = ledger(thread()).runs

    assert ["completed", MODEL, "fatal"] == [run.ended_by for run in runs]
    assert [1, 1, 2] == [run.cost.model_calls for run in runs]
    assert [100, 200, 700] == [run.cost.input_tokens for run in runs]


def test_by_rule() -> None:
    """Runs are added up by what ended them."""
    by_rule = ledger([*thread(), *thread()]).by_rule

    assert {"completed": 200, MODEL: 400, "fatal": 1400} == {
        rule: cost.input_tokens for rule, cost in by_rule.items()
    }
    assert {"completed": 2, MODEL: 0, "fatal": 2} == {
        rule: cost.avoided_model_calls_estimated for rule, cost in by_rule.items()
    }


def test_by_tool() -> None:
    """A model call counts for each tool that it asked for; a text counts for none."""
    by_tool = ledger(thread()).by_tool

    assert {"pay": (2, 2, 500), "search": (2, 2, 700)} == {
        name: (cost.model_calls, cost.tool_calls, cost.input_tokens) for name, cost in by_tool.items()
    }
    assert {"pay": 2, "search": 1} == {
        name: cost.avoided_model_calls_estimated for name, cost in by_tool.items()
    }


def test_a_tool_called_twice_at_once() -> None:
    """Two calls of one tool in one turn are one model call."""
    messages = [USER, said("", call(), call(call_id="c1"), used=usage(9, 1)), result(), result("", "c1")]
    cost = ledger(messages).by_tool["pay"]

    assert (1, 2, 9) == (cost.model_calls, cost.tool_calls, cost.input_tokens)


def test_history_without_its_beginning() -> None:
    """A history that was cut before the user's words has still cost what it has."""
    assert 2 == ledger([said("", call()), result(), said()]).total.model_calls


def test_as_dict() -> None:
    """The whole is plain JSON, and what is estimated says so."""
    came = ledger(thread()).as_dict()

    assert came == json.loads(json.dumps(came))
    assert ["total", "by_rule", "by_tool", "runs"] == list(came)
    assert {
        "model_calls": 4,
        "tool_calls": 4,
        "input_tokens": 1000,
        "output_tokens": 45,
        "calls_without_usage": 0,
        "avoided_model_calls_estimated": 2,
        "avoided_input_tokens_estimated": 100
        + 20
        + 10
        + 400
        + 10
        + 10
        + len("The step ended without a text.") // 4,
    } == came["total"]


def test_dicts() -> None:
    """Messages that became dicts cost the same."""
    messages = thread()

    assert ledger(messages) == ledger([message_to_dict(message) for message in messages])
    assert ledger(messages) == ledger([message.model_dump() for message in messages])


@pytest.mark.parametrize("odd", [{"role": "user", "content": "Pay."}, ("user", "Pay."), "Pay.", None])
def test_no_messages(odd: Any) -> None:
    """What is no message would cost nothing: it is refused, with what makes a message of it."""
    with pytest.raises(TypeError, match="convert_to_messages"):
        ledger([USER, odd])


def test_odd_usage() -> None:
    """What a provider reports in a form of its own is unknown."""
    odd = said()
    odd.usage_metadata = "1000 tokens"  # type: ignore[assignment]

    assert (1, None) == ((total := ledger([USER, odd]).total).model_calls, total.input_tokens)


def test_what_it_thought_is_sent_once() -> None:
    """A model's reasoning is paid for, and is no part of the request that a stop avoided."""
    used = {**usage(100, 1000), "output_token_details": {"reasoning": 950}}
    total = ledger([USER, said("", call(), used=used), result("x" * 40), relayed()]).total

    assert (1000, 100 + 50 + 10) == (total.output_tokens, total.avoided_input_tokens_estimated)


ONES = Cost(**{each.name: 1 for each in fields(Cost)})
costs = st.builds(
    Cost,
    model_calls=st.integers(0, 9),
    input_tokens=st.none() | st.integers(0, 9),
    avoided_input_tokens_estimated=st.none() | st.integers(0, 9),
)


@given(costs, costs, costs)
def test_sums(one: Cost, two: Cost, three: Cost) -> None:
    """Costs add up in any order, nothing changes nothing, and unknown is never lost."""
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert one == one + Cost()
    assert [2] * len(fields(Cost)) == list(asdict(ONES + ONES).values())
    assert (None in {one.input_tokens, two.input_tokens}) == ((one + two).input_tokens is None)


# Both runtimes


@pytest.mark.parametrize("mode", StopMode)
def test_counts_what_was_asked(mode: StopMode, both: Runtime) -> None:
    """The ledger counts the calls that the model's wire saw, in every mode, over the turns of a thread."""
    script = [
        *(said("", call(call_id=f"c{at}"), used=usage(100 * at, 10)) for at in (1, 2)),
        *(said(f"Paid 1999 for cart 7, {at}.", used=usage(300, 10)) for at in range(2)),
    ]
    model = ScriptedModel(script)
    tools = [Till([BUSY, PAID]).tool]
    app = both.build(model, tools, policy=StopPolicy(mode=mode), checkpointer=InMemorySaver())

    both(app, "Pay.", thread_id="t")
    found = ledger(both(app, "Thanks.", thread_id="t"))

    hard = mode is StopMode.HARD
    assert [MODEL if mode is StopMode.NEVER else "completed", MODEL] == [run.ended_by for run in found.runs]
    assert (model.calls, 600 if hard else 900, 10 * model.calls) == (
        found.total.model_calls,
        found.total.input_tokens,
        found.total.output_tokens,
    )
    assert (int(hard), 200 + 10 + len(PAID.content) // 4 if hard else 0) == (
        found.total.avoided_model_calls_estimated,
        found.total.avoided_input_tokens_estimated,
    )


@pytest.mark.parametrize("voice", [ValueError("no"), said("", used=usage(60, 1))])
def test_a_polish_in_vain(voice: Any, both: Runtime) -> None:
    """A polish that came to nothing was a call; what it cost is counted if it said so."""
    model = ScriptedModel([said("", call(), used=usage(100, 10)), voice])
    app = both.build(model, [Till([PAID]).tool], policy=StopPolicy(mode=StopMode.POLISH))

    messages = both(app)

    total = ledger(messages).total
    assert PAID.content == messages[-1].content
    assert (2, None if isinstance(voice, Exception) else 160) == (total.model_calls, total.input_tokens)


def test_events_and_ledger_agree() -> None:
    """What the event of a stop says was saved is what the ledger says was avoided."""
    from orchestration.events import event_of

    for outcome, mode in product((PAID, DECLINED, BUSY), StopMode):
        content, artifact = outcome.as_tool_result()
        policy = StopPolicy(mode=mode)
        history = [USER, said("", call()), ToolMessage(content, artifact=artifact, tool_call_id="c0")]
        decision = decide(history, policy)
        end = said() if decision.route is Route.AGENT else relayed(decision.rule, decision.route.value)

        avoided = ledger([*history, end]).total.avoided_model_calls_estimated

        assert event_of(decision, policy).saved_model_calls_estimated == avoided


@pytest.mark.parametrize(
    ("first", "sent"), [(said("", used=usage(100, 1)), 200), (said(""), None), (ValueError("no"), None)]
)
def test_an_unused_answer(first: Any, sent: int | None, both: Runtime) -> None:
    """An answer that was empty or garbled and was asked for again is a call, and its tokens are counted."""
    if isinstance(first, Exception):
        first.body = {"error": {"code": "tool_use_failed"}}  # type: ignore[attr-defined]
    model = ScriptedModel([first, said("Hello.", used=usage(100, 3))])

    total = ledger(both(both.build(model, [Till([PAID]).tool]))).total

    assert (2, 2, sent) == (model.calls, total.model_calls, total.input_tokens)


def test_an_excuse_after_two_answers(both: Runtime) -> None:
    """Two answers without a word are two calls; the words that stand in for them are none."""
    model = ScriptedModel([said("", used=usage(100, 0)), said("", used=usage(120, 0))])

    (run,) = ledger(both(both.build(model, [Till([PAID]).tool]))).runs

    assert (EXCUSE, 2, 220) == (run.ended_by, run.cost.model_calls, run.cost.input_tokens)
