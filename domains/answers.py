"""What a user heard, and what is wrong with it, found by checks on messages and on what the tools did.

- *gave up*: the wiring ended the run after a failure that could pass, and a call that the model would have
  made next does get something done;
- *left undone*: the same after a step that did not fail, or cannot pass: the user asked for more than it;
- *retried*: a call that was declined in this run was carried out once more;
- *lost a receipt*: something was done, and what the user read last lacks a number, a name or a link of its
  receipt;
- *claimed success*: the model's own words say that something is done which was not. Found by English forms of
  speech, so a claim in other words, or in another language, is missed;
- *raised*: an exception left the run, and the user read nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import unescape
from typing import Any, Final

from orchestration.outcomes import Format, Outcome
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

    @property
    def can_pass(self) -> bool:
        """Whether another call could still get it done."""
        return self.outcome is None or self.outcome.reason is Reason.TRANSIENT


@dataclass(frozen=True, slots=True)
class Ran:
    """A tool that was carried out: a call that is answered from a record runs nothing."""

    what: str
    """What makes two calls the same one: the tool, and its arguments but for those that are worded anew."""

    declined: bool
    """Whether it ended in a decline: fatal, or blocked by a policy."""


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of tool calls."""

    calls: tuple[Called, ...]
    """In call order."""

    ran: tuple[Ran, ...] = ()
    """What was carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What came of one thing that the user said."""

    rounds: tuple[Round, ...]
    """The turns of tool calls."""

    final: str
    """What the user read last; empty if the run raised."""

    format: Format = "text"
    """How it is to be shown: what a tool said in HTML is HTML."""

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

    ended_by: str
    """The router's rule that ended it; ``model``, ``excuse`` or ``open`` if none did."""

    missed: bool = False
    """Whether a call that the model would have made next gets something done."""

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


def wrong(came: Heard, before: Sequence[Called] = ()) -> Iterator[Wrong]:
    """Yield what is wrong with an answer.

    Args:
        came: The answer, and what led to it.
        before: The calls of what the user said earlier.
    """
    if came.raised:
        yield Wrong.RAISED
    if came.missed:
        failed = came.rounds and any(called.can_pass for called in came.rounds[-1].calls)
        yield Wrong.GAVE_UP if failed else Wrong.LEFT_UNDONE
    if _retried(came.rounds):
        yield Wrong.RETRIED
    if any(lacks(came.final, each) for each in came.receipts.values()):
        yield Wrong.LOST_RECEIPT
    if came.by_model and _claims(came, [*before, *came.calls]):
        yield Wrong.CLAIMED


def _retried(rounds: Iterable[Round]) -> bool:
    declined: set[str] = set()
    for each in rounds:
        if any(ran.what in declined for ran in each.ran):
            return True
        declined |= {ran.what for ran in each.ran if ran.declined}
    return False


def lacks(told: str, receipt: Outcome) -> bool:
    """Whether a text lacks a link, a name or a number of a receipt, or all of it if it holds none."""
    content = in_words(receipt)
    facts = _facts(content)
    if not facts:
        return _plain(content) not in _plain(told)
    # A model's words are no HTML, but they may quote some.
    known = _facts(told) | _facts(shown(told))
    return any(fact not in known and not _says(told, fact) for fact in facts)


def in_words(outcome: Outcome) -> str:
    """Return an outcome's text without markup."""
    return shown(outcome.content) if outcome.format == "html" else outcome.content


_FACT: Final = re.compile(
    r"""
    https?://[^\s<>"]+
    | (?:[^\W\d_]+[_-]|\#)\d+\b              # cart_7, cart-7, #7
    | \b(?=\w*\d)(?=\w*[^\W\d_])\w+          # A7, 9f3c
    | \d+(?:[.,:]\d+)*
    """,
    re.VERBOSE,
)


def _facts(text: str) -> set[str]:
    """Return the links, names with a number and numbers of a text: 1,999.00, 1999.00 and 1999 are one."""
    found = (each.rstrip(".,;:!?)]_'").lower() for each in _FACT.findall(unescape(_visible(text))))
    return {_number(each) if each[:1].isdigit() else each for each in found if each}


def _says(told: str, fact: str) -> bool:
    """Whether a text holds a name in another spelling: cart 7 for cart_7, issue 7 for #7."""
    name = re.fullmatch(r"([^\W\d_]*)[_#-](\d+)", fact)
    return name is not None and re.search(rf"\b{name[1]}[\W_]?{name[2]}\b", _plain(told)) is not None


def _number(text: str) -> str:
    text = re.sub(r"[.,](?=\d{3}(?:\D|$))", "", text).replace(",", ".")
    return re.sub(r"\.0+$|(?<=\.\d)0$", "", text)


def _visible(text: str) -> str:
    """Return a text without what no reader sees: zero-width characters, and the marks of Markdown."""
    return re.sub(r"[\u200b-\u200f\u2060\ufeff*`]", "", text)


def _plain(text: str) -> str:
    return " ".join(_visible(text).split()).lower()


def shown(text: str) -> str:
    """Return a fragment as it looks on a page: without tags, white space folded."""
    return " ".join(unescape(re.sub(r"</?[a-zA-Z][^<>]*>", " ", text)).split())


_DONE: Final = (
    r"(?:paid|charged|bought|ordered|purchased|booked|opened|filed|created|sent|submitted|done|completed|exported|"
    r"saved|recorded|noted|updated|changed|added|placed|processed|confirmed|received|refunded|registered|issued|"
    r"delivered|scheduled|cancel?led|successful)\b"
)
_ADVERBS: Final = r"(?:(?:now|all|already|just|also|both|been|being|\w+ly)\ )*"
_CLAIM: Final = re.compile(
    rf"""
    \b(?:I|we)(?:['\u2019]ve|\ have|\ just)?\ {_ADVERBS}
      (?:{_DONE}|put\ (?:that|it|this)\ down\b|made\ the\ payment\b)
    | \b(?:is|are|was|were|been|(?:it|that)['\u2019]s|you['\u2019]re)\ {_ADVERBS}{_DONE}
    | \b(?:ticket|issue|case)\b[^.!?]*\bis\ {_ADVERBS}open\b
    | \b(?:went|gone|go)\ through\b | \ball\ set\b | \btaken\ care\ of\b | ^(?:all\ )?done\b
    | ^(?:payment|order|ticket|report)\ (?:\w+\ )?{_DONE}
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NO_CLAIM: Final = re.compile(
    r"\b(?:no(?! problem| worries)|nothing(?! else| more)|not|none|never|nobody|cannot|unable|without|failed|"
    r"if|whether|once|until|unless|when|before|later|could|would|should|can|may|might|will|must|to be)\b"
    r"|n['\u2019]t\b|\?",
    re.IGNORECASE,
)


def _claims(came: Heard, calls: Sequence[Called]) -> bool:
    """Whether the model's own words say that something is done which was not."""
    own = _visible(shown(came.final))
    for each in came.calls:
        for sentence in _sentences(in_words(each.outcome) if each.outcome else ""):
            own = own.replace(sentence, " ")
    claims = [each for each in _sentences(own) if _CLAIM.search(each) and not _NO_CLAIM.search(each)]
    done = [each for each in came.calls or calls if _changed(each)]
    if not claims or not done:
        return bool(claims)
    backed = _named(each for each in calls if _changed(each))
    return any(name not in backed for each in claims for name in _names(each))


def _changed(called: Called) -> bool:
    """Whether something was done, not only looked up."""
    return called.done and called.outcome is not None and called.outcome.key is not None


def _named(calls: Iterable[Called]) -> set[str]:
    """Return the names that calls and their answers hold."""
    texts = [f"{each.call.get('args')} {in_words(each.outcome) if each.outcome else ''}" for each in calls]
    return {name for text in texts for name in _names(text)}


def _names(text: str) -> set[str]:
    """Return the names with a number in a text: carts and tickets, not amounts."""
    return {fact for fact in _facts(text) if not fact[:1].isdigit() and not fact.startswith("http")}


def _sentences(text: str) -> list[str]:
    return [each.strip() for each in re.findall(r"(?:[^.!?]|[.!?](?=\S))+[.!?]*", text) if each.strip()]
