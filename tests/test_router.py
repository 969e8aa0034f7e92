"""The router against an oracle written from DESIGN's sections 4 and 5, before the router was read."""

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations_with_replacement, permutations, product
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from orchestration.outcomes import NOT_CARRIED_OUT
from orchestration.router import (
    CONTINUE_RULES,
    STOP_RULES,
    BatchRule,
    Decision,
    Route,
    StopMode,
    StopPolicy,
    decide,
)

Said: TypeAlias = tuple[str, bool]
"""How a call ended, and whether the model called it its last step."""

Calls: TypeAlias = Sequence[tuple[str, str | None, str, bool]]
"""The calls of one turn: tool, key, how it ended, last step."""

ARTIFACTS: dict[str, dict[str, Any] | None] = {
    "completed": {"schema": 1, "stop": True, "reason": "completed"},
    "pending": {"schema": 1, "stop": False, "reason": "completed"},
    "transient": {"schema": 1, "stop": False, "reason": "transient"},
    "fatal": {"schema": 1, "stop": True, "reason": "fatal"},
    "policy_block": {"schema": 1, "stop": True, "reason": "policy_block"},
    "unusable": None,
    "older_stop": {"stop": True},
    "older_go": {"stop": False},
}
FAILED = {"transient", "fatal"}
STOPS = ("policy_block", "fatal", "completed", "attempts_exhausted", "turns_exhausted")
GOES = ("transient", "unusable", "more_steps", "no_call")
FOUR = {"completed", "transient", "fatal", "policy_block"}
HTML = "html"


# The oracle: DESIGN, sentence by sentence.


def ballot(kind: str, attempts: int, max_attempts: int, *, last_step: bool) -> str:
    """Return what one call votes (section 4 for the kinds, rule 2 of section 5)."""
    if kind == "policy_block":
        return "policy_block"
    if kind in {"pending", "transient", "unusable", "older_go"}:
        if attempts < max_attempts:
            return {"pending": "more_steps", "unusable": "unusable"}.get(kind, "transient")
        vote = "attempts_exhausted"
    else:
        vote = "completed" if kind == "completed" else "fatal"
    return vote if last_step else "more_steps"


def verdict_of(
    votes: Sequence[str], kinds: Sequence[str], batch: str, mode: str, *, spent: bool
) -> tuple[str, str]:
    """Return the rule and the route (rules 3 to 5 of section 5, and its modes)."""
    stops = [vote for vote in votes if vote in STOPS]
    unanimous = len(stops) == len(votes)
    stopped = {
        "priority": "policy_block" in votes or unanimous,
        "all": unanimous,
        "any": bool(stops),
    }[batch]
    if stopped:
        rule = min(stops, key=STOPS.index)
    elif spent:
        rule = "turns_exhausted"
    else:
        return min((vote for vote in votes if vote in GOES), key=GOES.index), "agent"
    if mode == "never":
        # The attempts and the turns hold in every mode: a run of mode never has an end, too.
        return rule, "finalize" if spent or rule in {"attempts_exhausted", "turns_exhausted"} else "agent"
    if mode == "polish" and rule == "completed" and set(kinds) <= {"completed", "pending"}:
        return rule, "polish"
    return rule, "finalize"


def voted_on(calls: Calls) -> set[tuple[str, str | None]]:
    """Return the (tool, key) of every continue vote of a turn; where nothing vouches, no key does."""
    again = {"pending", "transient", "older_go"}
    keyed = {(tool, key) for tool, key, kind, _ in calls if kind in again}
    return keyed | {(tool, None) for tool, _, kind, _ in calls if kind == "unusable"}


def verdict_on_run(run: Sequence[Calls], policy: StopPolicy) -> tuple[str, str, list[str]]:
    """Return rule, route and votes for the newest of the turns since the user last spoke."""
    tally = [voted_on(calls) for calls in run]
    votes = [
        ballot(
            kind,
            sum((tool, None if kind == "unusable" else key) in turn for turn in tally),
            policy.max_attempts,
            last_step=last,
        )
        for tool, key, kind, last in run[-1]
    ]
    kinds = [kind for _, _, kind, _ in run[-1]]
    spent = len(run) >= policy.max_turns
    return *verdict_of(votes, kinds, policy.batch.value, policy.mode.value, spent=spent), votes


# Histories.


def call(name: str = "pay", call_id: str | None = "c1", **args: Any) -> Any:
    """Return a tool call as an AIMessage holds it."""
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def asked(*calls: Any, message_id: str = "ai-1") -> AIMessage:
    """Return the model's message that makes the calls."""
    return AIMessage(content="", tool_calls=list(calls), id=message_id)


def text_of_kind(kind: str) -> str:
    """Return the content that a call of this kind has, unless a test says another."""
    return f"Text of {kind}."


def answer(kind: str, call_id: str = "c1", content: Any = None, **keys: Any) -> ToolMessage:
    """Return a tool's answer that ended as ``kind`` says."""
    artifact = ARTIFACTS[kind]
    return ToolMessage(
        content=text_of_kind(kind) if content is None else content,
        tool_call_id=call_id,
        artifact=None if artifact is None else {**artifact, **keys},
        status="error" if kind in FAILED else "success",
    )


def turn(calls: Calls, number: int = 1) -> list[Any]:
    """Return one turn: the model's message and an answer to each of its calls."""
    ids = [f"c{number}-{place}" for place in range(len(calls))]
    return [
        asked(
            *(call(tool, i, last_step=last) for i, (tool, _, _, last) in zip(ids, calls, strict=True)),
            message_id=f"ai-{number}",
        ),
        *(answer(kind, i, key=key) for i, (_, key, kind, _) in zip(ids, calls, strict=True)),
    ]


def history(*run: Calls, user: str = "Pay for cart 7.") -> list[Any]:
    """Return a thread: the user speaks, then one turn after another."""
    return [
        HumanMessage(user),
        *(message for number, calls in enumerate(run, 1) for message in turn(calls, number)),
    ]


def once(kind: str, *, tool: str = "pay", key: str | None = None, last: bool = True) -> Calls:
    """Return a turn of one call."""
    return [(tool, key, kind, last)]


def seen(decision: Decision) -> tuple[str, str]:
    """Return what the oracle speaks of: the rule and the route."""
    return decision.rule, decision.route.value


def votes_of(decision: Decision) -> list[str]:
    """Return the votes of the turn, in call order."""
    return [vote.rule for vote in decision.calls]


POLICIES = [StopPolicy(mode=mode, batch=batch) for mode in StopMode for batch in BatchRule]


def said_together(sizes: Iterable[int], full: int = 3) -> Iterator[tuple[Said, ...]]:
    """Yield every multiset of endings, with every last_step up to size ``full`` and three patterns above."""
    for size in sizes:
        patterns = (
            list(product((True, False), repeat=size))
            if size <= full
            else [(True,) * size, (False,) * size, (False, *(True,) * (size - 1))]
        )
        for kinds in combinations_with_replacement(ARTIFACTS, size):
            yield from (tuple(zip(kinds, pattern, strict=True)) for pattern in patterns)


def spread(said: Sequence[Said]) -> Calls:
    """Return a turn in which every call is of another tool, so that no budget is shared."""
    return [(f"tool_{place}", None, kind, last) for place, (kind, last) in enumerate(said)]


# The turn as a whole.


def test_rules_are_a_closed_list() -> None:
    """The rules and their order are DESIGN's."""
    assert STOPS == STOP_RULES
    assert GOES == CONTINUE_RULES


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_every_turn_is_decided_as_the_design_says(size: int) -> None:
    """Rule, route, votes and text of every turn of up to five calls are the oracle's."""
    for said in said_together([size]):
        calls, kinds = spread(said), [kind for kind, _ in said]
        messages = history(calls)
        votes = [ballot(kind, 1, 3, last_step=last) for kind, last in said]
        texts = [NOT_CARRIED_OUT if kind == "unusable" else text_of_kind(kind) for kind in kinds]
        text = "\n\n".join(dict.fromkeys(texts))
        for policy in POLICIES:
            case = (policy.batch.value, policy.mode.value, said)
            expected = verdict_of(votes, kinds, policy.batch, policy.mode, spent=False)
            actual = decide(messages, policy)

            assert expected == seen(actual), case
            assert votes == votes_of(actual), case
            assert not actual.would_stop or text == actual.text, case
            assert (expected[0] in STOPS) == actual.would_stop, case
            assert "ai-1" == actual.message_id, case
            assert "" != actual.because.strip(), case


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(("max_attempts", "max_turns"), [(1, 8), (3, 1), (1, 1)])
def test_every_turn_at_the_end_of_a_budget(size: int, max_attempts: int, max_turns: int) -> None:
    """At the end of either budget, the oracle's rule and route stand in every mode and batch."""
    for said in said_together([size], full=2):
        run = [spread(said)]
        messages = history(*run)
        for mode, batch in product(StopMode, BatchRule):
            policy = StopPolicy(mode=mode, batch=batch, max_attempts=max_attempts, max_turns=max_turns)
            rule, route, votes = verdict_on_run(run, policy)
            actual = decide(messages, policy)

            assert (rule, route) == seen(actual), (batch.value, mode.value, said)
            assert votes == votes_of(actual), (batch.value, mode.value, said)


def test_order_of_calls_changes_no_decision() -> None:
    """Rule and route are the same for every order of the calls (B13, O8)."""
    for said in said_together([2, 3], full=2):
        calls = spread(said)
        orders = [history(order) for order in permutations(calls)]
        for policy in POLICIES:
            decisions = [decide(messages, policy) for messages in orders]

            assert {seen(decisions[0])} == set(map(seen, decisions)), (policy.batch.value, said)
            for order, decision in zip(permutations(calls), decisions, strict=True):
                assert [tool for tool, *_ in order] == [vote.tool for vote in decision.calls]


def test_order_of_answers_changes_nothing_at_all() -> None:
    """The whole decision, its text too, is the same in whatever order the answers landed (O8)."""
    for said in said_together([2, 3], full=2):
        user, model, *answers = history(spread(said))
        expected = decide([user, model, *answers])
        for order in permutations(answers):
            assert expected == decide([user, model, *order]), said


@given(said=st.permutations(list(ARTIFACTS)), policy=st.sampled_from(POLICIES), data=st.data())
@settings(deadline=None, max_examples=60)
def test_order_of_many_answers_changes_nothing(
    said: list[str], policy: StopPolicy, data: st.DataObject
) -> None:
    """Eight parallel calls are decided alike in any order of their answers."""
    user, model, *answers = history(spread([(kind, True) for kind in said]))
    order = data.draw(st.permutations(answers))

    assert decide([user, model, *answers], policy) == decide([user, model, *order], policy)


RUNS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["pay", "find"]),
            st.sampled_from([None, "k"]),
            st.sampled_from([*ARTIFACTS, "transient", "transient", "unusable", "pending"]),
            st.booleans(),
        ),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=6,
)
ANY_POLICY = st.builds(
    StopPolicy,
    mode=st.sampled_from(StopMode),
    batch=st.sampled_from(BatchRule),
    max_attempts=st.integers(1, 4),
    max_turns=st.integers(1, 8),
)


@given(before=st.lists(RUNS, max_size=2), run=RUNS, policy=ANY_POLICY)
@settings(deadline=None, max_examples=250)
def test_whole_threads_are_decided_as_the_design_says(
    before: list[list[Calls]], run: list[Calls], policy: StopPolicy
) -> None:
    """Budgets count the turns since the user last spoke, whatever the thread holds before."""
    earlier = [message for old in before for message in [*history(*old), AIMessage("Done.")]]
    actual = decide([*earlier, *history(*run)], policy)

    assert verdict_on_run(run, policy) == (*seen(actual), votes_of(actual))


@given(run=RUNS, policy=ANY_POLICY)
@settings(deadline=None, max_examples=100)
def test_every_outcome_has_one_of_the_four_reasons(run: list[Calls], policy: StopPolicy) -> None:
    """The reason is one of the four on every path, or nothing vouches for the call (O5)."""
    for vote in decide(history(*run), policy).calls:
        assert vote.outcome is None or vote.outcome.reason.value in FOUR
        assert (vote.outcome is None) == (vote.text == NOT_CARRIED_OUT)


# Single facts, readable without the oracle.


@pytest.mark.parametrize(
    ("kind", "rule", "route"),
    [
        ("completed", "completed", Route.FINALIZE),
        ("fatal", "fatal", Route.FINALIZE),
        ("policy_block", "policy_block", Route.FINALIZE),
        ("older_stop", "fatal", Route.FINALIZE),
        ("transient", "transient", Route.AGENT),
        ("older_go", "transient", Route.AGENT),
        ("unusable", "unusable", Route.AGENT),
        ("pending", "more_steps", Route.AGENT),
    ],
)
def test_one_call(kind: str, rule: str, route: Route) -> None:
    """One call goes where its reason says."""
    actual = decide(history(once(kind)))

    assert (rule, route) == (actual.rule, actual.route)


@pytest.mark.parametrize(
    ("first", "second", "priority", "every", "one"),
    [
        ("completed", "transient", "transient", "transient", "completed"),
        ("completed", "fatal", "fatal", "fatal", "fatal"),
        ("completed", "policy_block", "policy_block", "policy_block", "policy_block"),
        ("transient", "policy_block", "policy_block", "transient", "policy_block"),
        ("fatal", "unusable", "unusable", "unusable", "fatal"),
        ("transient", "unusable", "transient", "transient", "transient"),
        ("completed", "pending", "more_steps", "more_steps", "completed"),
    ],
)
def test_batch_rules(first: str, second: str, priority: str, every: str, one: str) -> None:
    """Two calls of one turn become one decision as the batch rule says."""
    messages = history(spread([(first, True), (second, True)]))
    actual = [decide(messages, StopPolicy(batch=batch)).rule for batch in BatchRule]

    assert [BatchRule.PRIORITY, BatchRule.ALL, BatchRule.ANY] == list(BatchRule)
    assert [priority, every, one] == actual


def test_mode_never_says_what_hard_would_have_done() -> None:
    """In mode never, the rule is hard's and the route goes back to the model."""
    messages = history(once("fatal"))
    hard = decide(messages)
    never = decide(messages, StopPolicy(mode=StopMode.NEVER))

    assert ("fatal", Route.AGENT, True) == (never.rule, never.route, never.would_stop)
    assert (hard.rule, hard.text, hard.calls) == (never.rule, never.text, never.calls)


@pytest.mark.parametrize(
    ("kinds", "route"),
    [
        (["completed"], Route.POLISH),
        (["completed", "completed"], Route.POLISH),
        (["completed", "fatal"], Route.FINALIZE),
        (["completed", "policy_block"], Route.FINALIZE),
        (["older_stop"], Route.FINALIZE),
        (["completed", "transient"], Route.FINALIZE),
        (["completed", "unusable"], Route.FINALIZE),
    ],
)
def test_only_good_news_is_polished(kinds: list[str], route: Route) -> None:
    """A turn is reworded only if every reason of it is completed."""
    policy = StopPolicy(mode=StopMode.POLISH, batch=BatchRule.ANY)

    assert route == decide(history(spread([(kind, True) for kind in kinds])), policy).route


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("completed", "more_steps"),
        ("fatal", "more_steps"),
        ("older_stop", "more_steps"),
        ("pending", "more_steps"),
        ("policy_block", "policy_block"),
        ("transient", "transient"),
        ("unusable", "unusable"),
    ],
)
def test_more_steps_to_come(kind: str, rule: str) -> None:
    """last_step=false lets the run go on after anything but a refusal by rule."""
    assert rule == decide(history(once(kind, last=False))).rule


@pytest.mark.parametrize(
    ("args", "rule"),
    [
        ({}, "completed"),
        ({"last_step": True}, "completed"),
        ({"last_step": "true"}, "completed"),
        ({"last_step": None}, "completed"),
        ({"last_step": False}, "more_steps"),
        ({"last_step": "false"}, "more_steps"),
        ({"last_step": "False"}, "more_steps"),
    ],
)
def test_last_step_as_models_write_it(args: dict[str, Any], rule: str) -> None:
    """An absent last_step is true, and a boolean written as a word counts."""
    assert rule == decide([HumanMessage("Go."), asked(call(**args)), answer("completed")]).rule


# No call.


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([], id="empty"),
        pytest.param([SystemMessage("Be kind.")], id="system alone"),
        pytest.param([HumanMessage("Hello.")], id="human alone"),
        pytest.param([HumanMessage("Hello."), AIMessage("Hello.")], id="an answer without calls"),
        pytest.param([*history(once("completed")), HumanMessage("And now?")], id="human after the turn"),
        pytest.param(
            [*history(once("fatal")), AIMessage("Sorry."), HumanMessage("And now?")],
            id="human after the answer",
        ),
        pytest.param(
            [*history(once("policy_block")), HumanMessage("And now?"), SystemMessage("Be kind.")],
            id="system after the human",
        ),
        pytest.param(
            [HumanMessage("Hello."), asked(call()), HumanMessage("Stop.")], id="human before the answer"
        ),
    ],
)
def test_no_call(messages: list[Any]) -> None:
    """Where no call is open since the user spoke, the model speaks, in every mode."""
    for policy in POLICIES:
        actual = decide(messages, policy)

        assert ("no_call", Route.AGENT, "", ()) == (actual.rule, actual.route, actual.text, actual.calls)
        assert actual.would_stop is False


def test_second_turn_inherits_nothing() -> None:
    """Turn two is never answered with turn one's receipt."""
    first = [*history(once("completed")), AIMessage("Paid.", id="final-ai-1")]
    actual = decide([*first, *history(once("transient"), user="And a second mug.")])

    assert ("transient", Route.AGENT) == (actual.rule, actual.route)
    assert "Text of completed." not in actual.text


def test_system_messages_end_no_turn() -> None:
    """Only a HumanMessage ends a turn: a note between and after the answers does not."""
    user, model, first, second = history(spread([("completed", True), ("fatal", True)]))
    note = SystemMessage("A summary.")

    assert decide([user, model, first, second]) == decide(
        [note, user, note, model, note, first, note, second, note]
    )


def test_newest_turn_decides() -> None:
    """A stop further up is not found again: only the newest turn's calls count."""
    actual = decide(history(once("fatal", last=False), once("transient", tool="find")))

    assert ("transient", ["find"]) == (actual.rule, [vote.tool for vote in actual.calls])


# Attempts.


def many(calls: Calls, times: int) -> list[Calls]:
    """Return the same turn over and over."""
    return [calls] * times


@pytest.mark.parametrize("kind", ["transient", "unusable", "pending", "older_go"])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_attempts_run_out(kind: str, limit: int) -> None:
    """The continue vote of one (tool, key) becomes a stop in the max_attempts-th turn, not before."""
    policy = StopPolicy(max_attempts=limit)
    rules = [decide(history(*many(once(kind, key="k"), n)), policy).rule for n in range(1, limit + 2)]

    assert ["attempts_exhausted"] * 2 == rules[limit - 1 :]
    assert "attempts_exhausted" not in rules[: limit - 1]


@pytest.mark.parametrize("mode", list(StopMode))
def test_attempts_hold_in_every_mode(mode: StopMode) -> None:
    """A call that used up its attempts ends the run in every mode, never as good news."""
    for kind in ("transient", "unusable", "pending"):
        actual = decide(history(*many(once(kind), 3)), StopPolicy(mode=mode))

        assert ("attempts_exhausted", Route.FINALIZE) == (actual.rule, actual.route)
        assert 3 == actual.calls[0].attempts


@pytest.mark.parametrize(
    ("run", "rule"),
    [
        pytest.param([once("transient", key="a"), once("transient", key="b")], "transient", id="other key"),
        pytest.param([once("transient"), once("transient", tool="find")], "transient", id="other tool"),
        pytest.param(
            [once("transient"), once("transient", key="a")], "transient", id="no key is a key of its own"
        ),
        pytest.param(
            [once("transient", key="a"), once("transient", key="a")], "attempts_exhausted", id="same"
        ),
        pytest.param([once("transient"), once("unusable")], "attempts_exhausted", id="kinds add up"),
        pytest.param([once("unusable"), once("pending")], "attempts_exhausted", id="pending counts"),
        pytest.param([once("completed"), once("transient")], "transient", id="a stop is no attempt"),
        pytest.param(
            [once("completed", last=False), once("transient")], "transient", id="nor one with more to do"
        ),
        pytest.param(
            [once("transient"), once("completed", last=False), once("transient")],
            "attempts_exhausted",
            id="not only in a row",
        ),
        pytest.param([once("transient"), once("completed")], "completed", id="a success stands"),
        pytest.param([once("transient"), once("fatal")], "fatal", id="a fatal stands"),
        pytest.param(
            [once("transient", last=False), once("transient", last=False)], "more_steps", id="more to do"
        ),
        pytest.param(
            [once("transient", last=False), once("transient")], "attempts_exhausted", id="earlier last_step"
        ),
        pytest.param(
            [[*once("transient"), *once("transient"), *once("unusable")]],
            "transient",
            id="parallel calls count once",
        ),
        pytest.param(
            [[*once("transient"), *once("transient")]] * 2,
            "attempts_exhausted",
            id="parallel calls, two turns",
        ),
        pytest.param(
            [once("transient"), [*once("transient"), *once("transient", tool="find")]],
            "transient",
            id="a sibling with attempts left",
        ),
    ],
)
def test_what_counts_as_an_attempt(run: list[Calls], rule: str) -> None:
    """Attempts are counted per (tool, key) and per model turn; two are allowed here."""
    assert rule == decide(history(*run), StopPolicy(max_attempts=2)).rule


def test_parallel_calls_of_an_earlier_turn_count_once() -> None:
    """Two calls of one (tool, key) in one turn are one attempt, later as well."""
    twice = [*once("transient"), *once("unusable")]
    actual = decide(history(twice, once("transient")))

    assert ("transient", 2) == (actual.rule, actual.calls[0].attempts)
    assert "attempts_exhausted" == decide(history(twice, twice, once("transient"))).rule


def test_user_resets_the_attempts() -> None:
    """What the user says next gives every call its attempts back."""
    spent = history(*many(once("transient"), 3))

    assert "attempts_exhausted" == decide(spent).rule
    assert "transient" == decide([*spent, AIMessage("It did not work."), *history(once("transient"))]).rule


def test_a_dead_end_keeps_the_receipt() -> None:
    """A receipt beside a call without attempts left is shown, and the run ends as completed (B40)."""
    actual = decide(
        history([*once("completed"), *once("transient", tool="find")]), StopPolicy(max_attempts=1)
    )

    assert ("completed", ["completed", "attempts_exhausted"]) == (actual.rule, votes_of(actual))
    assert "Text of completed.\n\nText of transient." == actual.text


# Turns.


@pytest.mark.parametrize("mode", list(StopMode))
@pytest.mark.parametrize("batch", list(BatchRule))
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_turns_run_out(mode: StopMode, batch: BatchRule, limit: int) -> None:
    """After max_turns turns the run ends, in every mode and batch, whatever the model is up to."""
    policy = StopPolicy(mode=mode, batch=batch, max_turns=limit, max_attempts=99)
    for kind, last in [("transient", True), ("unusable", True), ("pending", True), ("completed", False)]:
        run = many(once(kind, last=last), limit + 1)
        rules = [seen(decide(history(*run[:n]), policy)) for n in range(1, limit + 2)]

        assert [("turns_exhausted", "finalize")] * 2 == rules[limit - 1 :], (kind, last)
        assert "turns_exhausted" not in dict(rules[: limit - 1])


@pytest.mark.parametrize("kind", ["completed", "fatal", "policy_block"])
def test_mode_never_ends_with_its_turns(kind: str) -> None:
    """Mode never ends at max_turns even where every call stops: the shadow mode has an end."""
    policy = StopPolicy(mode=StopMode.NEVER, max_turns=2)

    assert Route.AGENT == decide(history(*many(once(kind), 1)), policy).route
    assert Route.FINALIZE == decide(history(*many(once(kind), 2)), policy).route


def test_turns_are_turns_with_calls_since_the_user_spoke() -> None:
    """A message without calls is no turn, and the user starts the count anew."""
    policy = StopPolicy(max_turns=2)
    run = history(once("transient", key="a"))

    assert "transient" == decide([run[0], AIMessage("Let me see."), *run[1:]], policy).rule
    assert "transient" == decide([*history(*many(once("transient"), 2)), AIMessage("No."), *run], policy).rule


def test_stop_of_the_last_turn_keeps_its_name() -> None:
    """A call that stops in the last turn allowed gives the rule its own name."""
    assert "completed" == decide(history(once("completed")), StopPolicy(max_turns=1)).rule


# Ids.


@pytest.mark.parametrize(
    ("ids", "answers", "votes"),
    [
        pytest.param("ab", [("a", "completed"), ("b", "fatal")], "completed fatal", id="in order"),
        pytest.param("ab", [("b", "fatal"), ("a", "completed")], "completed fatal", id="permuted"),
        pytest.param("aa", [("a", "completed"), ("a", "transient")], "completed transient", id="repeated"),
        pytest.param(
            "aa", [("a", "transient"), ("a", "completed")], "transient completed", id="repeated, other way"
        ),
        pytest.param("aa", [("a", "completed")], "completed unusable", id="repeated, one missing"),
        pytest.param(
            "aba",
            [("b", "fatal"), ("a", "completed"), ("a", "transient")],
            "completed fatal transient",
            id="repeated beside another",
        ),
        pytest.param(["", ""], [("", "completed"), ("", "fatal")], "completed fatal", id="empty"),
        pytest.param([None, None], [("", "completed"), ("", "fatal")], "completed fatal", id="none"),
        pytest.param(
            ["a", "", "b", ""],
            [("", "transient"), ("b", "fatal"), ("", "completed"), ("a", "policy_block")],
            "policy_block transient fatal completed",
            id="empty beside others",
        ),
        pytest.param("ab", [("b", "completed")], "unusable completed", id="first missing"),
        pytest.param("ab", [("a", "completed")], "completed unusable", id="second missing"),
        pytest.param("a", [], "unusable", id="no answer at all"),
        pytest.param(
            "a", [("z", "policy_block"), ("a", "completed")], "completed", id="a stranger's answer first"
        ),
        pytest.param(
            "a", [("a", "completed"), ("z", "policy_block")], "completed", id="a stranger's answer last"
        ),
        pytest.param(
            "a", [("", "policy_block"), ("a", "completed")], "completed", id="an answer without an id"
        ),
    ],
)
def test_answers_find_their_calls(
    ids: Sequence[str | None], answers: list[tuple[str, str]], votes: str
) -> None:
    """Answers are matched by id, repeated and empty ids by position; a missing one is unusable."""
    model = asked(*(call(f"tool_{place}", i) for place, i in enumerate(ids)))
    actual = decide([HumanMessage("Go."), model, *(answer(kind, i) for i, kind in answers)])

    assert votes.split() == votes_of(actual)
    assert [f"tool_{place}" for place in range(len(ids))] == [vote.tool for vote in actual.calls]


def test_ids_of_none_in_dicts() -> None:
    """A ToolMessage that lost its id answers the call that never had one."""
    messages = [message.model_dump() for message in history(once("completed"))]
    messages[1]["tool_calls"][0]["id"] = messages[2]["tool_call_id"] = None

    assert "completed" == decide(messages).rule


def test_ids_of_an_earlier_turn_are_not_this_turns() -> None:
    """A model that counts its ids from zero anew gets no answer of an earlier turn."""
    first = [HumanMessage("Go."), asked(call(last_step=False)), answer("completed")]

    assert "unusable" == decide([*first, asked(call(), message_id="ai-2")]).rule
    assert "fatal" == decide([*first, asked(call(), message_id="ai-2"), answer("fatal")]).rule


def test_ids_of_a_later_turn_answer_no_earlier_one() -> None:
    """A call that was never answered stays so, whatever a later turn's call of the same id got."""
    second = [
        asked(call(), call(call_id="c2"), message_id="ai-2"),
        answer("completed"),
        answer("transient", "c2"),
    ]
    actual = decide([HumanMessage("Go."), asked(call()), *second], StopPolicy(max_attempts=2))

    assert ["completed", "attempts_exhausted"] == votes_of(actual)


def test_a_second_answer_to_one_call_is_no_second_vote() -> None:
    """A call has one vote, however often it is answered."""
    actual = decide([HumanMessage("Go."), asked(call()), answer("completed"), answer("completed")])

    assert ["completed"] == votes_of(actual)
    assert "Text of completed." == actual.text


# Text.


@pytest.mark.parametrize(
    ("said", "text"),
    [
        pytest.param([("completed", "A", "text")], "A", id="verbatim"),
        pytest.param(
            [("completed", "<b>A</b> & co", "text")], "<b>A</b> & co", id="text alone is not escaped"
        ),
        pytest.param([("completed", "<b>A</b> & co", HTML)], "<b>A</b> & co", id="html alone is not escaped"),
        pytest.param([("completed", "  A \n B  ", "text")], "  A \n B  ", id="white space stands"),
        pytest.param(
            [("completed", "A", "text"), ("fatal", "B", "text")], "A\n\nB", id="a blank line between"
        ),
        pytest.param([("fatal", "B", "text"), ("completed", "A", "text")], "B\n\nA", id="call order"),
        pytest.param([("fatal", "A", "text"), ("policy_block", "A", "text")], "A", id="equal ones once"),
        pytest.param(
            [("fatal", "A", "text"), ("fatal", "B", "text"), ("fatal", "A", "text")],
            "A\n\nB",
            id="first place stands",
        ),
        pytest.param(
            [("policy_block", "A", "text"), ("transient", "B", "text")], "A\n\nB", id="transient siblings too"
        ),
        pytest.param(
            [("policy_block", "A", "text"), ("pending", "B", "text")], "A\n\nB", id="pending siblings too"
        ),
        pytest.param([("older_stop", "A", "text")], "A", id="the older contract's text"),
        pytest.param([("unusable", "Traceback", "text")], NOT_CARRIED_OUT, id="unusable"),
        pytest.param(
            [("unusable", "KeyError", "text"), ("unusable", "ValueError", "text")],
            NOT_CARRIED_OUT,
            id="stand-in once",
        ),
        pytest.param(
            [("completed", "<p>A</p>", HTML), ("fatal", "1 < 2 & 3 <script>", "text")],
            "<p>A</p>\n\n<p>1 &lt; 2 &amp; 3 &lt;script&gt;</p>",
            id="text beside html is escaped",
        ),
        pytest.param(
            [("fatal", "B", "text"), ("completed", "<p>A</p>", HTML)],
            "<p>B</p>\n\n<p>A</p>",
            id="before it, too",
        ),
        pytest.param(
            [
                ("completed", "<p>A</p>", HTML),
                ("completed", "<p>B</p>", HTML),
                ("completed", "<p>A</p>", HTML),
            ],
            "<p>A</p>\n\n<p>B</p>",
            id="html once",
        ),
        pytest.param(
            [("completed", "<p>A</p>", HTML), ("unusable", "<b>oops</b>", "text")],
            f"<p>A</p>\n\n<p>{NOT_CARRIED_OUT}</p>",
            id="stand-in beside html",
        ),
        pytest.param(
            [("completed", [{"type": "text", "text": "A"}, {"type": "image", "base64": "QUJD"}], "text")],
            "A",
            id="blocks",
        ),
    ],
)
def test_text(said: list[tuple[str, Any, str]], text: str) -> None:
    """Where a run ends, every call's text is read in call order, equal ones once, and nothing unvouched."""
    model = asked(*(call(f"tool_{place}", str(place)) for place in range(len(said))))
    answers = [answer(kind, str(i), content, format=form) for i, (kind, content, form) in enumerate(said)]

    assert text == decide([HumanMessage("Go."), model, *reversed(answers)], StopPolicy(max_turns=1)).text


def test_html_is_never_escaped() -> None:
    """A text that reads as another call's html does not make text of that html."""
    said = [("<p>A</p>", HTML), ("<p>B</p>", HTML), ("<p>A</p>", "text")]
    model = asked(*(call(f"tool_{place}", str(place)) for place in range(3)))
    answers = [answer("completed", str(i), content, format=form) for i, (content, form) in enumerate(said)]

    assert decide([HumanMessage("Go."), model, *answers]).text.startswith("<p>A</p>\n\n<p>B</p>")


@pytest.mark.parametrize("content", ["", "  \n", []])
def test_text_of_an_empty_result(content: Any) -> None:
    """An empty string is never an answer."""
    actual = decide([HumanMessage("Go."), asked(call()), answer("completed", content=content)])

    assert ("completed", True) == (actual.rule, bool(actual.text.strip()))


def test_completed_on_a_failed_message_is_unusable() -> None:
    """A success that the message calls an error ends nothing and is not shown."""
    failed = answer("completed").model_copy(update={"status": "error"})
    actual = decide([HumanMessage("Go."), asked(call()), failed])

    assert ("unusable", NOT_CARRIED_OUT) == (actual.rule, actual.calls[0].text)


# Forms of a message.


def through_json(messages: list[Any]) -> list[Any]:
    """Return the messages after a store that keeps JSON."""
    copies: list[Any] = json.loads(json.dumps([message.model_dump() for message in messages]))
    return copies


def through_msgpack(messages: list[Any]) -> list[Any]:
    """Return the messages after langgraph's checkpoint."""
    serde = JsonPlusSerializer()
    copies: list[Any] = serde.loads_typed(serde.dumps_typed(messages))
    return copies


def through_strict_msgpack(messages: list[Any]) -> list[Any]:
    """Return the messages after langgraph's checkpoint, with no foreign types allowed."""
    try:
        serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    except TypeError:
        pytest.skip("this langgraph has no strict mode")
    copies: list[Any] = serde.loads_typed(serde.dumps_typed(messages))
    return copies


def as_chunks(messages: list[Any]) -> list[Any]:
    """Return the messages with the model's own as the chunk that a stream leaves."""
    return [
        AIMessageChunk(content=message.content, tool_calls=message.tool_calls, id=message.id)
        if isinstance(message, AIMessage)
        else message
        for message in messages
    ]


def alternately(messages: list[Any]) -> list[Any]:
    """Return the messages, every other one as a dict."""
    return [message.model_dump() if place % 2 else message for place, message in enumerate(messages)]


FORMS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "a tuple": tuple,  # type: ignore[dict-item]  # a sequence is a sequence
    "model_dump": lambda messages: [message.model_dump() for message in messages],
    "model_dump in mode json": lambda messages: [message.model_dump(mode="json") for message in messages],
    "message_to_dict": lambda messages: [message_to_dict(message) for message in messages],
    "messages_from_dict": lambda messages: messages_from_dict(
        [message_to_dict(message) for message in messages]
    ),
    "json": through_json,
    "json of message_to_dict": lambda messages: json.loads(
        json.dumps([message_to_dict(m) for m in messages])
    ),
    "msgpack": through_msgpack,
    "strict msgpack": through_strict_msgpack,
    "chunks": as_chunks,
    "dicts of chunks": lambda messages: [message.model_dump() for message in as_chunks(messages)],
    "message_to_dict of chunks": lambda messages: [
        message_to_dict(message) for message in as_chunks(messages)
    ],
    "half and half": alternately,
}


@pytest.mark.parametrize("form", list(FORMS))
@given(run=RUNS, policy=ANY_POLICY)
@settings(deadline=None, max_examples=15)
def test_form_of_the_messages_changes_nothing(form: str, run: list[Calls], policy: StopPolicy) -> None:
    """The decision is equal for objects, their dicts and what any checkpoint makes of them (B38, O8)."""
    messages = [*history(once("fatal")), AIMessage("No."), *history(*run)]

    assert decide(messages, policy) == decide(FORMS[form](messages), policy)


@pytest.mark.parametrize("form", list(FORMS))
def test_form_of_the_messages_keeps_the_end_of_a_turn(form: str) -> None:
    """A user who speaks ends the turn in every form of the message."""
    assert "no_call" == decide(FORMS[form]([*history(once("completed")), HumanMessage("And now?")])).rule


def test_stream_chunks_that_add_up() -> None:
    """A call that arrived in pieces is a call."""
    first = AIMessageChunk(
        content="",
        id="ai-1",
        tool_call_chunks=[
            {"name": "pay", "args": '{"last_', "id": "c1", "index": 0, "type": "tool_call_chunk"}
        ],
    )
    rest = AIMessageChunk(
        content="",
        tool_call_chunks=[
            {"name": None, "args": 'step": false}', "id": None, "index": 0, "type": "tool_call_chunk"}
        ],
    )

    assert "more_steps" == decide([HumanMessage("Go."), first + rest, answer("completed")]).rule


@pytest.mark.parametrize("form", ["a tuple", "msgpack", "json"])
@pytest.mark.parametrize(
    "artifact",
    [
        [Document(page_content="A", metadata={"stop": True})],
        "completed",
        "",
        0,
        1.5,
        True,
        [],
        {},
        [{"stop": True}],
        {"stop": None},
        {"reason": "completed"},
        {"documents": ["A"]},
        {"stop": True, "reason": ["completed"]},
        {"stop": True, "reason": {"completed": True}},
    ],
    ids=repr,
)
def test_foreign_artifacts_are_unusable(artifact: object, form: str) -> None:
    """What a stranger's tool leaves in an artifact is no contract: the model decides."""
    message = ToolMessage(content="A", tool_call_id="c1", artifact=artifact)
    messages = [HumanMessage("Go."), asked(call()), message]
    actual = decide(FORMS[form](messages))

    assert ("unusable", Route.AGENT, NOT_CARRIED_OUT) == (actual.rule, actual.route, actual.calls[0].text)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "false", "html", "\x00", "\ud83d", *sorted(FOUR)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["schema", "stop", "reason", "key", "format", "effect", "evidence", "x"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=8,
)


@given(
    artifact=JSON_VALUES, args=st.dictionaries(st.sampled_from(["last_step", "x"]), JSON_VALUES, max_size=2)
)
@settings(deadline=None, max_examples=100)
def test_no_artifact_and_no_argument_raises(artifact: Any, args: dict[str, Any]) -> None:
    """Whatever stands in an artifact or in the arguments, there is a decision of the closed list."""
    message = ToolMessage(content="A", tool_call_id="c1", artifact=artifact)

    assert decide([HumanMessage("Go."), asked(call(**args)), message]).rule in {*STOPS, *GOES}


# Settings.


def test_default_policy_is_the_designs() -> None:
    """The defaults are hard, priority, three attempts and eight turns."""
    actual = StopPolicy()

    assert ("hard", "priority", 3, 8) == (actual.mode, actual.batch, actual.max_attempts, actual.max_turns)
    assert "" != actual.polish_prompt.strip()


def test_settings_may_be_words() -> None:
    """A setting that came as a word, from a config, decides as the member does."""
    for mode, batch in product(StopMode, BatchRule):
        words: dict[str, Any] = {"mode": mode.value, "batch": batch.value}
        expected = StopPolicy(mode=mode, batch=batch)
        for said in said_together([2]):
            messages = history(spread(said))
            assert decide(messages, expected) == decide(messages, StopPolicy(**words)), (words, said)


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("mode", "soft", ["hard", "polish", "never"]),
        ("mode", "HARD", ["hard", "polish", "never"]),
        ("mode", None, ["hard", "polish", "never"]),
        ("batch", "most", ["priority", "all", "any"]),
        ("batch", "", ["priority", "all", "any"]),
        ("max_attempts", 0, ["1"]),
        ("max_attempts", -1, ["1"]),
        ("max_turns", 0, ["1"]),
        ("max_turns", -8, ["1"]),
        ("max_attempts", "3", ["1"]),
        ("max_turns", 1.5, ["1"]),
        ("max_turns", None, ["1"]),
    ],
)
def test_wrong_settings_say_what_is_allowed(setting: str, value: object, allowed: list[str]) -> None:
    """A wrong setting is refused with its name, its value and what may stand there."""
    settings_: dict[str, Any] = {setting: value}
    with pytest.raises(ValueError, match=setting) as caught:
        StopPolicy(**settings_)

    said = str(caught.value)
    assert [] == [word for word in [*allowed, repr(value).strip("'")] if word not in said], said


# Cost and purity.


class Counted(Sequence[Any]):
    """A history that counts how many of its messages are read."""

    def __init__(self, messages: list[Any]) -> None:
        self.messages = messages
        self.reads = 0

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, index: Any) -> Any:
        found = self.messages[index]
        self.reads += len(found) if isinstance(index, slice) else 1
        return found


@pytest.mark.parametrize("user_spoke", [False, True])
def test_cost_does_not_grow_with_the_history(user_spoke: bool) -> None:
    """As many messages are read of ten thousand as of ten."""
    past = history(once("completed"), once("transient"))
    tail = [HumanMessage("And now?")] if user_spoke else history(once("transient"), once("completed"))
    reads = []
    for size in (10, 10_000):
        counted = Counted([*past * (size // len(past)), *tail])
        decide(counted)
        reads.append(counted.reads)

    assert reads[0] == reads[1]
    assert reads[1] <= 2 * len(tail)


def test_decide_changes_nothing_and_remembers_nothing() -> None:
    """The messages are as they were, and the second answer is the first."""
    messages = history(
        once("transient", key="k"),
        [*spread([(kind, True) for kind in ARTIFACTS]), *once("completed", last=False)],
    )
    dicts = [message.model_dump() for message in messages]
    for policy in POLICIES:
        for given_messages in (messages, dicts):
            before = copy.deepcopy(given_messages)
            first = decide(given_messages, policy)

            assert first == decide(given_messages, policy)
            assert before == given_messages


def test_decisions_are_values() -> None:
    """A decision can be kept, compared and not changed."""
    actual = decide(history(once("completed")))

    with pytest.raises(AttributeError):
        actual.rule = "fatal"  # type: ignore[misc]
