"""The contract: four reasons, one artifact, and what is done with everything else that stands in one."""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, asdict
from enum import Enum, IntEnum
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from orchestration.outcomes import NO_TEXT, Outcome, plain, printable, text_of
from orchestration.reasons import Effect, Reason

C, T, F, P = Reason.COMPLETED, Reason.TRANSIENT, Reason.FATAL, Reason.POLICY_BLOCK
LEGAL = {(C, True), (C, False), (T, False), (F, True), (P, True)}
HTML = "html"

DECLINED = Outcome(
    "The bank declined this card.",
    F,
    "checkout/declined",
    Effect.NONE,
    None,
    {"status": 402, "request_id": "req_1"},
    domain="checkout",
    key="c1f0",
    vendor_code="insufficient_funds",
)
DECLINED_ARTIFACT = {
    "schema": 1,
    "stop": True,
    "reason": "fatal",
    "domain": "checkout",
    "rule": "checkout/declined",
    "key": "c1f0",
    "effect": "none",
    "retry_after_s": None,
    "vendor_code": "insufficient_funds",
    "format": "text",
    "evidence": {"status": 402, "request_id": "req_1"},
}


def named(value: object) -> str:
    """Name a case by its value, without what differs from run to run."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def read(artifact: object, content: object = "A", *, failed: bool = False) -> Outcome | None:
    """Return what a reader makes of an artifact."""
    return Outcome.from_tool_result(content, artifact, failed=failed)


def reason_of(artifact: object, *, failed: bool = False) -> Reason | None:
    """Return the reason that a reader finds; None if the artifact is unusable."""
    outcome = read(artifact, failed=failed)
    return None if outcome is None else outcome.reason


class Other(Enum):
    """Somebody else's enum with our words."""

    FATAL = "fatal"
    WRONG = "declined"
    NUMBER = 1


class Status(IntEnum):
    """An enum that is a number."""

    DECLINED = 402


# The vocabulary.


def test_reasons_are_four() -> None:
    """There are four reasons and three effects, and their words are the contract's."""
    assert ["completed", "transient", "fatal", "policy_block"] == list(Reason)
    assert ["none", "applied", "unknown"] == list(Effect)


@pytest.mark.parametrize(
    ("reason", "pending", "stop", "failed"),
    [
        (C, False, True, False),
        (C, True, False, False),
        (T, False, False, True),
        (F, False, True, True),
        (P, False, True, False),
    ],
)
def test_what_follows_from_a_reason(reason: Reason, pending: bool, stop: bool, failed: bool) -> None:
    """The reason says whether a call stops, and whether its message is an error."""
    outcome = Outcome("A", reason, pending=pending)

    assert (stop, failed) == (outcome.stop, outcome.failed)
    assert stop == outcome.as_tool_result()[1]["stop"]


@pytest.mark.parametrize("reason", [T, F, P])
def test_only_a_success_can_be_pending(reason: Reason) -> None:
    """Pending is "done, but no answer yet"; anything else cannot be it."""
    with pytest.raises(ValueError, match=reason.value):
        Outcome("A", reason, pending=True)


def test_outcomes_are_values() -> None:
    """An outcome is compared by what it says and cannot be changed."""
    assert Outcome("A", F) == Outcome("A", F)
    with pytest.raises(FrozenInstanceError):
        DECLINED.reason = C  # type: ignore[misc]


# Writing.


def test_artifact_is_the_designs() -> None:
    """The artifact holds the contract's keys in the contract's order, and no other."""
    content, artifact = DECLINED.as_tool_result()

    assert "The bank declined this card." == content
    assert DECLINED_ARTIFACT == artifact
    assert list(DECLINED_ARTIFACT) == list(artifact)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_key_is_always_written(reason: Reason) -> None:
    """An outcome without details still writes every key."""
    artifact = Outcome("A", reason).as_tool_result()[1]

    assert DECLINED_ARTIFACT.keys() == artifact.keys()
    assert ("", "", None, "none", None, None, "text", {}) == tuple(
        artifact[name]
        for name in ("domain", "rule", "key", "effect", "retry_after_s", "vendor_code", "format", "evidence")
    )


def test_artifact_is_a_copy() -> None:
    """Who changes an artifact changes no outcome."""
    outcome = Outcome("A", C, evidence={"hits": [1]})
    artifact: Any = outcome.as_tool_result()[1]
    artifact["evidence"]["hits"].append(2)

    assert {"hits": [1]} == outcome.evidence


def test_artifact_types_are_json_types() -> None:
    """No enum, no tuple and no object of ours is left in an artifact: checkpoints do not keep them."""
    evidence = {
        "status": Status.DECLINED,
        "reason": C,
        "ids": (1, 2),
        "other": Other.FATAL,
        "nan": float("nan"),
    }
    artifact: Any = Outcome("A", C, effect=Effect.APPLIED, evidence=evidence).as_tool_result()[1]
    kinds = {type(value) for value in [*artifact.values(), *artifact["evidence"].values()]}

    assert {str, int, bool, list, dict, type(None)} == kinds
    assert {"status": 402, "reason": "completed", "ids": [1, 2], "other": "fatal", "nan": None} == artifact[
        "evidence"
    ]


# Round trips.


def by_hand(content: object, artifact: object) -> tuple[object, object]:
    """Return both as they are."""
    return content, artifact


def by_json(content: object, artifact: object) -> tuple[object, object]:
    """Return both after a store that keeps JSON, strictly."""
    copies: list[Any] = json.loads(json.dumps([content, artifact], allow_nan=False))
    return copies[0], copies[1]


def by_msgpack(content: Any, artifact: object) -> tuple[object, object]:
    """Return both after langgraph's checkpoint, as strict as it can be set."""
    try:
        serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    except TypeError:  # an older langgraph knows no allow list
        serde = JsonPlusSerializer()
    message: Any = ToolMessage(content=content, artifact=artifact, tool_call_id="c1")
    message = serde.loads_typed(serde.dumps_typed(message))
    return message.content, message.artifact


ROUTES: dict[str, Callable[[object, object], tuple[object, object]]] = {
    "by hand": by_hand,
    "json": by_json,
    "msgpack": by_msgpack,
}
WORDS = st.sampled_from(["", "a", "checkout/declined", "é", "👩‍👧", "שלום", "{}", "null"])
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
OUTCOMES = st.builds(
    lambda reason, done, **rest: Outcome(reason=reason, pending=reason is C and not done, **rest),
    content=st.sampled_from(["A", " A\n", "<p>A &amp; B</p>", "עברית 👩‍👧 e\u0301"]),
    reason=st.sampled_from(Reason),
    done=st.booleans(),
    rule=WORDS,
    effect=st.sampled_from(Effect),
    retry_after_s=st.none() | st.integers(0, 86400),
    evidence=st.dictionaries(WORDS, JSON_VALUES, max_size=4),
    domain=WORDS,
    key=st.none() | WORDS,
    vendor_code=st.none() | WORDS,
    format=st.sampled_from(["text", HTML]),
)


@pytest.mark.parametrize("route", list(ROUTES))
@given(outcome=OUTCOMES)
@settings(deadline=None, max_examples=60)
def test_round_trip(route: str, outcome: Outcome) -> None:
    """An outcome comes back as it went, through a message, JSON and a strict checkpoint."""
    content, artifact = ROUTES[route](*outcome.as_tool_result())

    assert outcome == Outcome.from_tool_result(content, artifact, failed=outcome.failed)


def test_checkpoint_says_nothing_of_our_types(caplog: pytest.LogCaptureFixture) -> None:
    """Saving and loading an outcome's message warns of no unregistered type (B38)."""
    outcome = Outcome(
        "A", C, effect=Effect.APPLIED, evidence={"reason": F, "status": Status.DECLINED, "ids": (1,)}
    )
    with caplog.at_level(logging.DEBUG):
        by_msgpack(*outcome.as_tool_result())

    assert [] == [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(2**63 - 1, id="the largest that fits"),
        pytest.param(2**64, id="a number past 64 bits"),
        pytest.param(-(2**64), id="a negative one"),
        pytest.param(float("inf"), id="infinity"),
        pytest.param("\ud83d\x00", id="half a surrogate pair"),
        pytest.param({"\ud83d\x00": 1}, id="in a name"),
        pytest.param({1: 2, None: 3}, id="names that are no strings"),
        pytest.param({C: F}, id="enums"),
        pytest.param(b"\xff", id="bytes"),
        pytest.param({1, 2}, id="a set"),
        pytest.param(object(), id="an object"),
        pytest.param(ValueError("sk_live_1"), id="an exception"),
    ],
)
def test_no_fact_stops_the_save(fact: object) -> None:
    """Whatever a vendor made a tool note down, the message can be saved: the money has moved already."""
    content, artifact = Outcome("Paid.", C, evidence={"fact": fact}).as_tool_result()

    for route in ROUTES.values():
        assert (content, artifact) == route(content, artifact)


@pytest.mark.parametrize("field", ["rule", "domain", "key", "vendor_code"])
def test_no_name_changes_in_the_save(field: str) -> None:
    """A half surrogate pair makes no other string of a key: it still ties calls together."""
    details: dict[str, Any] = {field: "a\ud83d"}

    content, artifact = Outcome("Paid.", C, **details).as_tool_result()
    assert (content, artifact) == by_msgpack(content, artifact)


# Reading.


@pytest.mark.parametrize(("reason", "stop"), list(product(Reason, [True, False])))
def test_legal_pairs(reason: Reason, stop: bool) -> None:
    """Five pairs of reason and stop make sense; a contradiction is unusable."""
    expected = reason if (reason, stop) in LEGAL else None

    assert expected == reason_of({"schema": 1, "stop": stop, "reason": reason.value})
    assert expected == reason_of({"stop": stop, "reason": reason.value})


@pytest.mark.parametrize(("reason", "stop"), sorted(LEGAL))
def test_what_was_read_votes_as_it_was_written(reason: Reason, stop: bool) -> None:
    """A reader's outcome stops if the artifact said stop."""
    outcome = read({"stop": stop, "reason": reason.value})

    assert outcome is not None
    assert (stop, reason is C and not stop) == (outcome.stop, outcome.pending)


@pytest.mark.parametrize("failed", [False, True])
def test_older_contract(failed: bool) -> None:
    """Without a reason, stop ranks as fatal and go on as transient, whatever the status."""
    assert F == reason_of({"stop": True}, failed=failed)
    assert T == reason_of({"stop": False}, failed=failed)
    assert F == reason_of({"schema": 1, "stop": True, "note": "old"}, failed=failed)


@pytest.mark.parametrize(
    "schema", [2, 0, -1, "1", 1.0, True, False, None, [1], {"version": 1}, "", Status.DECLINED]
)
def test_other_versions_are_unusable(schema: object) -> None:
    """A version that is present and not the integer 1 is unusable, an older contract's too."""
    assert None is reason_of({"schema": schema, "stop": True, "reason": "fatal"})
    assert None is reason_of({"schema": schema, "stop": True})


@pytest.mark.parametrize(
    "stop", [1, 0, 1.0, "true", "True", "false", "", None, [], [True], {}, {"stop": True}]
)
def test_stop_is_a_boolean(stop: object) -> None:
    """Whatever is no boolean is unusable, with any reason and with none."""
    for reason in ({}, *({"reason": member.value} for member in Reason)):
        assert None is reason_of({"schema": 1, "stop": stop, **reason})


@pytest.mark.parametrize("reason", list(Reason))
def test_stop_is_required(reason: Reason) -> None:
    """A reason alone is unusable."""
    assert None is reason_of({"schema": 1, "reason": reason.value})


@pytest.mark.parametrize(
    "reason",
    [
        "declined",
        "FATAL",
        "Completed",
        " fatal",
        "",
        None,
        0,
        1,
        True,
        [],
        ["fatal"],
        {},
        {"fatal": 1},
        "none",
        Effect.NONE,
        Other.WRONG,
        Other.NUMBER,
    ],
    ids=named,
)
def test_unknown_reasons_are_unusable(reason: object) -> None:
    """A reason outside the four, null too, is unusable with either stop."""
    assert (None, None) == (
        reason_of({"stop": True, "reason": reason}),
        reason_of({"stop": False, "reason": reason}),
    )


@pytest.mark.parametrize("reason", list(Reason))
def test_enums_read_as_their_words(reason: Reason) -> None:
    """A reason that is still an enum reads as its word does (B38)."""
    stop = reason is not T

    assert read({"stop": stop, "reason": reason.value}) == read({"stop": stop, "reason": reason})
    assert read({"stop": True, "reason": "fatal"}) == read({"stop": True, "reason": Other.FATAL})


@pytest.mark.parametrize(
    "artifact",
    [
        *(
            None,
            "",
            "fatal",
            '{"stop": true}',
            0,
            1,
            True,
            1.5,
            [],
            [("stop", True)],
            [{"stop": True}],
            {},
            b"{}",
        ),
        *(Document(page_content="A"), [Document(page_content="A")], DECLINED, asdict(DECLINED), object()),
    ],
    ids=lambda artifact: type(artifact).__name__,
)
def test_foreign_artifacts_are_unusable(artifact: object) -> None:
    """What is no artifact of the contract is unusable, an outcome that nobody wrote out too."""
    assert None is reason_of(artifact)


@pytest.mark.parametrize(("reason", "stop"), sorted(LEGAL))
def test_success_on_a_failed_message_is_unusable(reason: Reason, stop: bool) -> None:
    """Completed contradicts a message that calls itself an error, pending or not; the others do not."""
    assert (None if reason is C else reason) == reason_of({"stop": stop, "reason": reason.value}, failed=True)


def test_unknown_keys_are_ignored() -> None:
    """A key that a later version adds changes nothing."""
    assert DECLINED == read(
        {**DECLINED_ARTIFACT, "next": 1, "Stop": False, "REASON": "completed"}, DECLINED.content
    )


@pytest.mark.parametrize("junk", [3, 1.5, True, [], {}, ["a"], {"a": 1}, "?", -1, None], ids=named)
@pytest.mark.parametrize(
    "name", ["domain", "rule", "key", "effect", "retry_after_s", "vendor_code", "format", "evidence"]
)
def test_details_never_decide(name: str, junk: object) -> None:
    """Junk in any key but stop and reason leaves the outcome usable, and its types right."""
    outcome = read({**DECLINED_ARTIFACT, name: junk})

    assert outcome is not None
    assert F == outcome.reason
    assert isinstance(outcome.evidence, Mapping)
    assert isinstance(outcome.effect, Effect)
    assert outcome.format in {"text", HTML}
    assert outcome.retry_after_s is None or (
        type(outcome.retry_after_s) is int and outcome.retry_after_s >= 0
    )
    assert all(type(text) is str for text in (outcome.domain, outcome.rule))
    assert all(text is None or type(text) is str for text in (outcome.key, outcome.vendor_code))


@pytest.mark.parametrize(
    ("effect", "read_as"),
    [
        ("none", Effect.NONE),
        ("applied", Effect.APPLIED),
        ("unknown", Effect.UNKNOWN),
        ("maybe", Effect.UNKNOWN),
        (None, Effect.UNKNOWN),
        (Effect.APPLIED, Effect.APPLIED),
    ],
)
def test_effects(effect: object, read_as: Effect) -> None:
    """An effect in a word we do not know is unknown: nothing is proven."""
    outcome = read({**DECLINED_ARTIFACT, "effect": effect})

    assert outcome is not None
    assert read_as == outcome.effect


ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(
        ["", "true", "html", "a\x00", "a\ud83d", *(member.value for member in [*Reason, *Effect])]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*DECLINED_ARTIFACT, "x"]), inner, max_size=8)
    ),
    max_leaves=12,
)
NEAR_MISSES = st.fixed_dictionaries(
    {"stop": st.booleans() | ANY_JSON},
    optional={name: ANY_JSON for name in DECLINED_ARTIFACT if name != "stop"},
)


@given(artifact=ANY_JSON | NEAR_MISSES, content=ANY_JSON, failed=st.booleans())
@settings(deadline=None, max_examples=150)
def test_reading_never_raises(artifact: Any, content: Any, failed: bool) -> None:
    """Any JSON in an artifact is unusable, or one of the four reasons with a legal stop (O5)."""
    outcome = Outcome.from_tool_result(content, artifact, failed=failed)

    if outcome is not None:
        assert (outcome.reason, outcome.stop) in LEGAL
        assert "" != outcome.content.strip()
        assert outcome.stop is artifact["stop"]


# Text.


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("A", "A"),
        (" A\n", " A\n"),
        ("", NO_TEXT),
        (" \n\t", NO_TEXT),
        ([], NO_TEXT),
        (None, NO_TEXT),
        (b"A", NO_TEXT),
        (7, NO_TEXT),
        ({"type": "text", "text": "A"}, NO_TEXT),
        (["A"], "A"),
        ([{"type": "text", "text": "A"}], "A"),
        (({"type": "text", "text": "A"},), "A"),
        ([{"type": "image", "base64": "QUJD", "mime_type": "image/png"}], NO_TEXT),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}, "A"], "A"),
        ([{"type": "file", "base64": "QUJD", "text": "B"}, {"type": "text", "text": "A"}], "A"),
        (
            [
                {"type": "text"},
                {"type": "text", "text": None},
                {"type": "text", "text": ["B"]},
                {},
                None,
                3,
                "A",
            ],
            "A",
        ),
        ([{"type": "text", "text": " "}, ""], NO_TEXT),
        ("A\x00\ud83dB", "AB"),
        ("\x00", NO_TEXT),
        (" \ud83d", NO_TEXT),
        ([{"type": "text", "text": "\x00"}], NO_TEXT),
        ([{"type": "text", "text": "A\x00"}], "A"),
    ],
)
def test_text_of(content: object, text: str) -> None:
    """The text of a content is its words: no repr, no base64, and never nothing."""
    assert text == text_of(content)


def test_text_of_several_blocks() -> None:
    """Every text block is there, in order, and nothing of Python between them."""
    text = text_of(["One.", {"type": "text", "text": "Two."}, {"type": "image", "base64": "QUJD"}, "Three."])

    assert ["One.", "Two.", "Three."] == text.split()


def test_text_of_a_real_message() -> None:
    """Blocks read alike as a message holds them."""
    message = AIMessage(content=[{"type": "text", "text": "A"}, {"type": "image", "base64": "QUJD"}])

    assert "A" == text_of(message.content)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("👩‍👩‍👧", id="ZWJ"),
        pytest.param("שלום \u200fabc\u202e", id="RTL and its marks"),
        pytest.param("e\u0301 o\u0308", id="combining"),
        pytest.param("\ufeffA", id="BOM"),
        pytest.param("\u200b\u00a0\u2028\u2029", id="invisible"),
        pytest.param("\t\r\n\x1b\x7f\x85", id="other controls"),
        pytest.param("\uffff\U0010ffff\ufffd", id="the last code points"),
        pytest.param("plain", id="ascii"),
        pytest.param("", id="empty"),
    ],
)
def test_printable_keeps(text: str) -> None:
    """What can be saved and sent stays, byte for byte (B46)."""
    assert text.encode() == printable(text).encode()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("\x00", ""),
        ("A\x00B", "AB"),
        ("é\x00é", "éé"),
        ("\ud83d", ""),
        ("A\udc00B", "AB"),
        ("👩‍👧\ud83d\x00e\u0301", "👩‍👧e\u0301"),
    ],
)
def test_printable_removes(text: str, left: str) -> None:
    """NUL and half surrogate pairs go: they break saving or sending."""
    assert left == printable(text)


@given(
    text=st.lists(
        st.sampled_from(["\x00", "\ud800", "\udfff", "a", "é", "\u200d", "👩", "\u0301", "\u202e", "\ufeff"])
    ).map("".join)
)
@settings(deadline=None)
def test_printable_loses_nothing_else(text: str) -> None:
    """What is left is the text without them, and it can be encoded."""
    expected = "".join(char for char in text if char != "\x00" and not "\ud800" <= char <= "\udfff")

    assert expected.encode() == printable(text).encode()


# Plain values.


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (None, None),
        (True, True),
        (0, 0),
        (1.5, 1.5),
        ("A", "A"),
        ("A\x00", "A"),
        (float("nan"), None),
        (float("inf"), None),
        (float("-inf"), None),
        (F, "fatal"),
        (Status.DECLINED, 402),
        (Other.NUMBER, 1),
        ((1, (2, 3)), [1, [2, 3]]),
        ([], []),
        ({"a": {"b": (F, None)}}, {"a": {"b": ["fatal", None]}}),
        ({1: "A"}, {"1": "A"}),
        (b"A", "<bytes>"),
        ({1, 2}, "<set>"),
        (object(), "<object>"),
        (ValueError("secret"), "<ValueError>"),
        ([object()], ["<object>"]),
    ],
    ids=named,
)
def test_plain(value: object, left: object) -> None:
    """What JSON holds stays, and the rest is named by its type, never by what it says."""
    assert (left, type(left)) == (plain(value), type(plain(value)))


class Unspeakable:
    """An object that raises when it is asked for its text."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def endless() -> dict[str, Any]:
    """Return a value that holds itself."""
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def deep() -> list[Any]:
    """Return a value with more floors than Python climbs."""
    value: list[Any] = []
    for _ in range(10_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "make",
    [Unspeakable, lambda: {Unspeakable(): 1}, endless, deep],
    ids=["object", "name", "endless", "deep"],
)
def test_plain_never_raises(make: Callable[[], object]) -> None:
    """A lost detail is cheaper than a lost receipt: no value makes an artifact fail."""
    content, artifact = Outcome("Paid.", C, evidence={"fact": make(), "status": 200}).as_tool_result()

    assert ("Paid.", "completed") == (content, artifact["reason"])
    assert "" != json.dumps(artifact, allow_nan=False)
