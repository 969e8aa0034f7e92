"""Rules of our own: what they refuse, what they hide, and that nothing gets past them."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from orchestration import Effect, Outcome, Reason
from orchestration.guards import Guard, Run, allow, mask, spend_cap
from orchestration.outcomes import NOT_CARRIED_OUT
from orchestration.tools import prepare

SECRET = "4242 4242"  # noqa: S105 - planted, to be looked for
CARD = re.compile(r"\d{4} \d{4}")

Args = dict[str, Any]
DECLARED: dict[str, Any] = {"pay": {"amount": "amount", "free_text": ["note"]}}


def call(name: str = "pay", at: int = 0, **args: Any) -> Args:
    """Return a call."""
    return {"name": name, "args": args, "id": f"c{at}", "type": "tool_call"}


def ended(outcome: Outcome | None, *calls: Args) -> list[AnyMessage]:
    """Return a turn that is over, every call of it with this outcome."""
    content, artifact = ("Done.", None) if outcome is None else outcome.as_tool_result()
    return [
        AIMessage("", tool_calls=[{**each, "id": f"e-{each['id']}"} for each in calls]),
        *(ToolMessage(content, artifact=artifact, tool_call_id=f"e-{each['id']}") for each in calls),
    ]


# Who may call


@pytest.mark.parametrize(
    ("configurable", "denied"),
    [
        ({"role": "clerk"}, {1}),
        ({"role": "manager"}, {0}),
        ({"role": ["clerk", "manager"]}, set()),
        ({"role": ("clerk",)}, {1}),
        ({"role": "guest"}, {0, 1}),
        ({"role": "cler"}, {0, 1}),
        ({"role": ""}, {0, 1}),
        ({"role": None}, {0, 1}),
        ({"role": []}, {0, 1}),
        ({"Role": "clerk"}, {0, 1}),
        ({}, {0, 1}),
    ],
)
def test_allow(configurable: Args, denied: set[int]) -> None:
    """A role calls its own tools; a run without a known role calls none."""
    guard = allow({"clerk": ["search"], "manager": {"pay"}}, say="No.")

    said = guard.check([call("search"), call("pay")], Run(configurable=configurable))

    assert dict.fromkeys(denied, "No.") == said


# What may be spent

PAID = Outcome("Paid.", Reason.COMPLETED, "pay/ok", Effect.APPLIED)
LOST = Outcome("Not confirmed.", Reason.TRANSIENT, "pay/lost", Effect.UNKNOWN)
DECLINED = Outcome("Declined.", Reason.FATAL, "pay/declined", Effect.NONE)

A600, B600 = call(cart="a", amount=600), call(cart="b", amount=600)
USER = HumanMessage("More.")

SPENT: dict[str, tuple[list[AnyMessage], list[Args], set[int]]] = {
    "below": ([], [A600], set()),
    "at the cap": ([], [call(amount=1000)], set()),
    "over": ([], [call(amount=1001)], {0}),
    "two at once": ([], [A600, B600], {0, 1}),
    "two at once, and a look": ([], [A600, call("search"), B600], {0, 2}),
    "the same twice at once": ([], [A600, A600], set()),
    "the same in other words": ([], [call(amount=600, note="x"), call(amount=600, note="y")], set()),
    "the same with another last_step": ([], [call(amount=600), call(amount=600, last_step=False)], set()),
    "paid before": (ended(PAID, A600), [B600], {0}),
    "lost before": (ended(LOST, A600), [B600], {0}),
    "declined before": (ended(DECLINED, A600), [B600], set()),
    "vouched for by nothing": (ended(None, A600), [B600], {0}),
    "never answered": (ended(PAID, A600)[:1], [B600], set()),
    "the same again": (ended(LOST, A600), [A600], set()),
    "the same again, in other words": (ended(LOST, A600), [call(cart="a", amount=600, note="!")], set()),
    "the same three times": ([*ended(LOST, A600), *ended(LOST, A600)], [A600], set()),
    "again with another": (ended(LOST, A600), [A600, B600], {0, 1}),
    "two turns ago": ([*ended(PAID, A600), *ended(DECLINED, call("search"))], [B600], {0}),
    "before the user spoke": ([*ended(PAID, A600), USER], [B600], set()),
    "another tool": ([], [call("gift", amount=5000)], set()),
}


@pytest.mark.parametrize("case", SPENT)
def test_spend_cap(case: str) -> None:
    """Spent is what is proven or open, each thing once, plus this turn's calls."""
    before, calls, denied = SPENT[case]
    now: Any = AIMessage("", tool_calls=[{**each, "id": f"c{at}"} for at, each in enumerate(calls)])

    said = spend_cap(1000, say="No.").check(calls, Run([*before, now], {}, DECLARED))

    assert dict.fromkeys(denied, "No.") == said


@pytest.mark.parametrize(
    ("amount", "denied"),
    [
        *((amount, False) for amount in (1000, "1000", " 1000 ", "1_000", 1000.0, "1000.0", "0999")),
        *((amount, True) for amount in (1001, "1001", "1_001", " 1001", 1000.5, "1001.0", "+1001")),
        *((amount, True) for amount in ("1e9", float("inf"), "inf", 10**400, "9" * 400)),
        *((amount, False) for amount in (0, -5, "-5", None, "abc", "", "nan", float("nan"))),
        ([], False),
        ({}, False),
    ],
)
def test_amounts(amount: object, denied: bool) -> None:
    """Whatever a schema accepts as a number is one; what none accepts spends nothing."""
    calls = [call(amount=amount)]

    assert denied == bool(spend_cap(1000).check(calls, Run((), {}, DECLARED)))


def test_cap_of_nothing() -> None:
    """A cap of 0 is a cap; less is a mistake."""
    assert {0} == set(spend_cap(0).check([call(amount=1)], Run((), {}, DECLARED)))
    with pytest.raises(ValueError, match="0 or more"):
        spend_cap(-1)


@given(
    amounts=st.lists(st.integers(-50, 700) | st.integers(0, 700).map(str), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=50, deadline=None)
def test_order_of_a_turn(amounts: list[int | str], order: Any) -> None:
    """Who is refused does not depend on where in its turn it stands."""
    calls = [call(at=at, cart=at, amount=amount) for at, amount in enumerate(amounts)]
    mixed = order.sample(calls, len(calls))

    def refused(these: list[Args]) -> set[str]:
        return {these[at]["id"] for at in spend_cap(1000).check(these, Run((), {}, DECLARED))}

    assert refused(calls) == refused(mixed)


# What nobody may read


def spans(*places: tuple[int, int], kind: str = "card") -> Any:
    """Return a detector that finds these places."""
    return lambda value: [{"type": kind, "start": start, "end": end, "value": value} for start, end in places]


MASKED: dict[str, tuple[mask, str, str]] = {
    "nothing found": (mask(CARD), "hello", "hello"),
    "no detector": (mask(), "4242 4242", "4242 4242"),
    "a pattern": (mask(CARD), "a 4242 4242 b", "a [REDACTED_TEXT] b"),
    "twice": (mask(CARD), "1111 2222, 3333 4444", "[REDACTED_TEXT], [REDACTED_TEXT]"),
    "a function": (mask(spans((0, 2))), "abcd", "[REDACTED_CARD]cd"),
    "a function of matches": (mask(CARD.finditer), "x4242 4242", "x[REDACTED_TEXT]"),
    "side by side": (mask(spans((0, 2), (2, 4))), "abcd", "[REDACTED_CARD][REDACTED_CARD]"),
    "overlapping": (mask(spans((0, 3), (2, 5))), "abcdef", "[REDACTED_CARD]f"),
    "one in another": (mask(spans((0, 5), (1, 2))), "abcdef", "[REDACTED_CARD]f"),
    "overlapping, from two": (mask(spans((2, 5)), spans((0, 3), kind="iban")), "abcdef", "[REDACTED_IBAN]f"),
    "in any order": (mask(spans((4, 5), (0, 1))), "abcdef", "[REDACTED_CARD]bcd[REDACTED_CARD]f"),
    "empty findings": (mask(re.compile("x*")), "abxc", "ab[REDACTED_TEXT]c"),
    "another word": (mask(CARD, replace="***"), "4242 4242", "***"),
    "no word": (mask(CARD, replace=""), "a4242 4242", "a"),
}


@pytest.mark.parametrize("case", MASKED)
def test_mask(case: str) -> None:
    """Every finding is replaced, overlapping ones as one."""
    guard, text, expected = MASKED[case]

    assert expected == guard.clean(text)


@given(
    text=st.text("ab0", max_size=12),
    places=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_mask_keeps_the_rest(text: str, places: list[tuple[int, int]]) -> None:
    """What stands after masking is what no finding covers, in its order."""
    inside = [(start, end) for start, end in places if start < end <= len(text)]
    covered = {at for start, end in inside for at in range(start, end)}

    assert "".join(c for at, c in enumerate(text) if at not in covered) == mask(
        spans(*inside), replace=""
    ).clean(text)


@pytest.mark.parametrize("detector", ["email", None, 5])
def test_no_detector(detector: Any) -> None:
    """What can find nothing is refused when it is built."""
    with pytest.raises(TypeError, match="a detector is"):
        mask(detector)


# In front of a tool


class Till:
    """Makes tools that answer from one value, and remembers what they were asked."""

    def __init__(self, outcome: Outcome = PAID) -> None:
        self.asked: list[Args] = []

        def pay(cart: str = "a", amount: int = 5, note: str = "") -> tuple[str, Any]:
            """Pay for a cart."""
            self.asked.append({"cart": cart, "amount": amount, "note": note})
            return outcome.as_tool_result()

        self.tool = StructuredTool.from_function(
            pay, response_format="content_and_artifact", metadata=DECLARED["pay"]
        )


def answers(
    tools: Sequence[BaseTool],
    *calls: Args,
    before: Sequence[AnyMessage] = (),
    run: str = "sync",
    role: str = "clerk",
) -> list[ToolMessage]:
    """Run one turn's calls in a graph that is a ToolNode and nothing else; return the new messages."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=False))
    graph.add_edge(START, "tools")
    app = graph.compile()
    asked: list[Any] = [{**each, "id": f"c{at}"} for at, each in enumerate(calls)]
    messages: list[AnyMessage] = [HumanMessage("q"), *before, AIMessage("", tool_calls=asked)]
    state: Any = {"messages": messages}
    config: Any = {"configurable": {"role": role}}
    after = app.invoke(state, config) if run == "sync" else asyncio.run(app.ainvoke(state, config))
    new: list[ToolMessage] = after["messages"][len(messages) :]
    return new


@pytest.mark.parametrize("run", ["sync", "async"])
def test_denied(run: str) -> None:
    """A denied call does not run, and is answered once, by the guard's rule and in its words."""
    till = Till()

    [message] = answers(prepare([till.tool], guards=[allow({})]), call(), run=run)

    assert [] == till.asked
    assert ("You are not permitted to do this.", "c0", "success") == (
        message.content,
        message.tool_call_id,
        message.status,
    )
    assert ("policy_block", "guard/allow", True, "none") == tuple(
        message.artifact[key] for key in ("reason", "rule", "stop", "effect")
    )


@pytest.mark.parametrize("run", ["sync", "async"])
def test_over_the_cap_together(run: str) -> None:
    """Of two calls that go over the cap together neither runs."""
    till = Till()

    messages = answers(prepare([till.tool], guards=[spend_cap(1000)]), A600, B600, run=run)

    assert [] == till.asked
    assert ["guard/spend-cap"] * 2 == [message.artifact["rule"] for message in messages]


def test_over_the_cap_later() -> None:
    """What an earlier turn of the run has spent is counted, and not twice."""
    till = Till()
    tools = prepare([till.tool], guards=[spend_cap(1000)])

    [first] = answers(tools, A600)
    [second] = answers(tools, B600, before=ended(PAID, A600))
    [again] = answers(tools, A600, before=ended(LOST, A600))

    assert ["pay/ok", "guard/spend-cap", "pay/ok"] == [m.artifact["rule"] for m in (first, second, again)]
    assert ["a", "a"] == [args["cart"] for args in till.asked]


class Broken:
    """A guard with a bug."""

    def __init__(self, where: str, name: str = "broken") -> None:
        self.where, self.name = where, name

    def check(self, calls: Sequence[Mapping[str, Any]], run: Run) -> dict[int, str]:
        """Fail, or deny nothing."""
        if self.where == "check":
            raise KeyError(SECRET)
        return {}

    def clean(self, value: str) -> str:
        """Fail, or change nothing."""
        if self.where == "clean":
            raise KeyError(SECRET)
        return value


@pytest.mark.parametrize("run", ["sync", "async"])
def test_guard_that_cannot_check(run: str) -> None:
    """A guard that raises lets nothing run, and its error stays inside."""
    till = Till()

    [message] = answers(prepare([till.tool], guards=[Broken("check")]), call(), run=run)

    assert ([], NOT_CARRIED_OUT, "fatal") == (till.asked, message.content, message.artifact["reason"])
    assert SECRET not in repr(message)


@pytest.mark.parametrize("run", ["sync", "async"])
def test_guard_that_cannot_clean(run: str) -> None:
    """What could not be masked is not shown, and every call of the turn is answered."""
    tools = prepare([Till(Outcome(SECRET, Reason.COMPLETED)).tool], guards=[Broken("clean")])

    messages = answers(tools, A600, B600, run=run)

    assert ["c0", "c1"] == [message.tool_call_id for message in messages]
    assert {NOT_CARRIED_OUT} == {message.content for message in messages}
    assert SECRET not in repr(messages)


def test_order_of_guards() -> None:
    """Guards may be listed in any order: the answer is the same."""
    guards: list[Guard] = [allow({}), spend_cap(1), mask(CARD), Broken("check", "zz")]

    seen = {
        repr([(m.content, m.artifact) for m in answers(prepare([Till().tool], guards=listed), A600)])
        for listed in permutations(guards)
    }

    assert 1 == len(seen)


def test_masks_the_denial() -> None:
    """A guard's own words are masked like any others."""
    guards: list[Guard] = [allow({}, say=f"Not for {SECRET}."), mask(CARD)]

    [message] = answers(prepare([Till().tool], guards=guards), call())

    assert "Not for [REDACTED_TEXT]." == message.content


DEEP = {"schema": 1, "stop": True, "reason": "fatal", "vendor_code": SECRET, "more": [{"x": SECRET}]}

HIDDEN: dict[str, tuple[Any, Any]] = {
    "an outcome": Outcome(
        SECRET, Reason.FATAL, evidence={"a": [SECRET], "b": {"c": SECRET}}
    ).as_tool_result(),
    "every key of an artifact": ("x", DEEP),
    "ordinary text": (f"card {SECRET}", None),
    "an ordinary artifact": ("x", {"rows": [SECRET, {"card": SECRET}]}),
    "a tuple in an artifact": ("x", {"rows": (SECRET,)}),
    "blocks": ([{"type": "text", "text": SECRET}, SECRET], None),
    "nested blocks": ([{"type": "document", "content": [{"type": "text", "text": SECRET}]}], None),
    "blocks with an outcome": ([{"type": "text", "text": SECRET}], DEEP),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_masks_everything_that_comes_back(case: str) -> None:
    """No part of an answer shows what a detector finds."""

    @tool(response_format="content_and_artifact")
    def show() -> tuple[Any, Any]:
        """Show."""
        return HIDDEN[case]

    [message] = answers(prepare([show], guards=[mask(CARD)]), call("show"))

    assert SECRET not in repr(message)
    assert "[REDACTED_TEXT]" in repr(message)


def test_images_stay_whole() -> None:
    """A detector finds numbers in an image too: its bytes are left alone."""
    image = {"type": "image", "base64": "AAAA4242 4242", "mime_type": "image/png"}
    linked = {"type": "image_url", "image_url": {"url": "data:image/png;base64,4242 4242"}}

    @tool
    def show() -> Any:
        """Show."""
        return [image, linked]

    [message] = answers(prepare([show], guards=[mask(CARD)]), call("show"))

    assert [image, linked] == message.content


def test_arguments_run_unmasked() -> None:
    """Masking is for readers: the tool gets what the model wrote, and the recorded call stays."""
    till = Till()

    answers(prepare([till.tool], guards=[mask(CARD)]), call(cart=SECRET))

    assert [SECRET] == [args["cart"] for args in till.asked]


def test_masks_bad_arguments() -> None:
    """A field's name comes from the model, too."""

    @tool
    def pay(lines: dict[str, int]) -> str:
        """Pay."""
        return str(lines)

    [message] = answers(prepare([pay], guards=[mask(CARD)]), call("pay", lines={SECRET: "x"}))

    assert "lines.[REDACTED_TEXT]: " in str(message.content)


def test_guard_sees_what_runs() -> None:
    """A guard is asked about the arguments that are about to run, not those in the history."""
    till = Till()
    [prepared] = prepare([till.tool], guards=[spend_cap(1000)])
    history: Any = [HumanMessage("q"), AIMessage("", tool_calls=[call(amount=1), call(at=1, amount=600)])]

    for changed in ({"id": "c0", "amount": 5000}, {"id": "c0", "amount": 600}, {"id": "new", "amount": 600}):
        args = {"cart": "z", "amount": changed["amount"], "run_state": {"messages": history}}
        message = prepared.invoke({"type": "tool_call", "name": "pay", "id": changed["id"], "args": args})
        assert "guard/spend-cap" == message.artifact["rule"]

    assert [] == till.asked
