"""What a user heard, and what is wrong with it, found by checks on messages and on the vendors' logs.

- *gave up*: the run ended on a failure that could pass: the model was not asked, and a call that it would
  have made next does pass;
- *left undone*: the same after a step that did not fail: the user asked for more than that step;
- *retried*: a call that was declined in this run was made once more, and the vendor was asked once more;
- *lost a receipt*: something was done, and the last message lacks a number or a link of its receipt;
- *claimed success*: the model's own words say that something is done, and no call of the run did it. Found
  by a few English verbs, so a claim in other words is missed;
- *raised*: an exception left the run, and the user read nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import unescape
from typing import Any, Final

from orchestration.guards import essence
from orchestration.outcomes import Outcome
from orchestration.reasons import Reason


class Wrong(StrEnum):
    """What can be wrong with an answer."""

    GAVE_UP = "gave up"
    LEFT_UNDONE = "left undone"
    RETRIED = "retried"
    LOST_RECEIPT = "lost a receipt"
    CLAIMED = "claimed success"
    RAISED = "raised"


@dataclass(frozen=True, slots=True)
class Called:
    """One tool call, and how it ended."""

    call: Mapping[str, Any]
    """The call, as the model made it."""

    outcome: Outcome | None
    """None if nothing vouches for the answer."""

    @property
    def done(self) -> bool:
        """Whether what was asked is done, and not only under way."""
        return (
            self.outcome is not None and self.outcome.reason is Reason.COMPLETED and not self.outcome.pending
        )


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of tool calls."""

    calls: tuple[Called, ...]
    """In call order."""

    sent: int
    """Requests that the vendors saw meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What came of one thing that the user said."""

    rounds: tuple[Round, ...]
    """The turns of tool calls."""

    final: str
    """What the user read last; empty if the run raised."""

    by_model: bool
    """Whether these are the model's own words."""

    model_calls: int
    """How often the model was asked."""

    input_tokens: int | None
    """Tokens sent, approximate on the fake wire; None if an answer did not say."""

    output_tokens: int | None
    """Tokens received, likewise."""

    vendor_calls: int
    """Requests that the vendors saw."""

    missed: tuple[str, ...]
    """The reasons of the calls that the model would have made next, had it been asked."""

    ended_by: str
    """The router's rule that ended it; ``model``, ``excuse`` or ``open`` if none did."""

    raised: str = ""
    """The exception that left the run; empty if none did."""

    wrong: tuple[Wrong, ...] = ()
    """What the checks found."""

    @property
    def calls(self) -> list[Called]:
        """Every tool call."""
        return [called for each in self.rounds for called in each.calls]

    @property
    def receipts(self) -> dict[str, Outcome]:
        """What was done, by what it was done to: the last answer about a thing counts."""
        outcomes = [called.outcome for called in self.calls if called.done and called.outcome is not None]
        return {each.key: each for each in outcomes if each.key is not None}


def wrong(
    came: Heard, free_text: Mapping[str, Sequence[str]], before: Sequence[Called] = ()
) -> Iterator[Wrong]:
    """Yield what is wrong with an answer.

    Args:
        came: The answer, and what led to it.
        free_text: Tool -> the arguments that a model words anew each time.
        before: The calls of what the user said earlier.
    """
    if came.raised:
        yield Wrong.RAISED
    if Reason.COMPLETED in came.missed:
        failed = any(_can_pass(called.outcome) for called in came.rounds[-1].calls)
        yield Wrong.GAVE_UP if failed else Wrong.LEFT_UNDONE
    if _retried(came, free_text):
        yield Wrong.RETRIED
    if _lost(came):
        yield Wrong.LOST_RECEIPT
    if came.by_model and _claims(came) and not _did(came.calls or before):
        yield Wrong.CLAIMED


def _can_pass(outcome: Outcome | None) -> bool:
    return outcome is None or outcome.reason is Reason.TRANSIENT


def _did(calls: Iterable[Called]) -> bool:
    """Whether something was done, not only looked up."""
    return any(each.done and each.outcome and each.outcome.key is not None for each in calls)


def _retried(came: Heard, free_text: Mapping[str, Sequence[str]]) -> bool:
    declined = []
    for each in came.rounds:
        own = [
            (essence(called.call, free_text.get(called.call["name"], ())), called) for called in each.calls
        ]
        if each.sent and any(what in declined for what, _ in own):
            return True
        declined += [
            what
            for what, called in own
            if called.outcome and called.outcome.reason in {Reason.FATAL, Reason.POLICY_BLOCK}
        ]
    return False


def _lost(came: Heard) -> bool:
    return any(lacks(came.final, receipt.content) for receipt in came.receipts.values())


def lacks(told: str, receipt: str) -> bool:
    """Whether a text lacks a link or a number of a receipt, or all of it if it holds neither."""
    facts = _facts(receipt)
    return not facts <= _facts(told) if facts else shown(receipt) not in shown(told)


def _facts(text: str) -> set[str]:
    """Return the links and numbers of a text; 1,999.00 is 1999.00."""
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", shown(text))
    found = re.findall(r"https?://[^\s<>\"]+|\d+(?:[.,:]\d+)*", text)
    return {fact.rstrip(".,;:!?)]*_'") for fact in found}


def shown(text: str) -> str:
    """Return a text as it looks on a page: without tags, white space folded."""
    return " ".join(unescape(re.sub(r"</?[a-zA-Z][^<>]*>", " ", text)).split())


_CLAIM: Final = re.compile(
    r"\b(?:I(?:['\u2019]ve| have)|(?:is|are|was|were|been)(?: now| all| already)?) "
    r"(?:paid|charged|bought|ordered|booked|opened|open|filed|created|sent|submitted|done|completed)\b",
    re.IGNORECASE,
)
_DENIAL: Final = re.compile(
    r"\b(?:no|not|none|nothing|never|nobody|cannot|unable)\b|n['\u2019]t\b|\?", re.IGNORECASE
)


def _claims(came: Heard) -> bool:
    own = shown(came.final)
    for each in came.calls:
        for sentence in _sentences(shown(each.outcome.content) if each.outcome else ""):
            own = own.replace(sentence, " ")
    return any(_CLAIM.search(each) and not _DENIAL.search(each) for each in _sentences(own))


def _sentences(text: str) -> list[str]:
    return [each.strip() for each in re.findall(r"[^.!?]+[.!?]*", text) if each.strip()]
