"""What a table, an artifact and a text must be like: pure functions that yield what is wrong.

``domains.check`` runs them on tools. They need no agent framework and no network, so they suit a unit test.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, Final, TypeAlias

import httpx

from domains.infrastructure import INFRASTRUCTURE
from domains.mapping import Reply, Rule, RuleBook
from domains.shadows import dead_rows
from orchestration.outcomes import LARGEST_INT, SCHEMA, printable
from orchestration.reasons import Effect, Reason

Flaw: TypeAlias = tuple[str, str]
"""What is wrong, and what to change."""


# Tables.

_WORDS: Final = re.compile(r"(?i)\b(?:completed?|transient|fatal|policy[ _]?block(?:ed)?)\b")
_SENTENCES: Final = (
    (_WORDS, "control word", "Say what happened in everyday words"),
    (
        re.compile(r"(?i)\bhttps?://\S*|\bwww\.\S*"),
        "address",
        "Leave links out: what a page says belongs into `why` and `source`",
    ),
    (
        re.compile(r"<[a-zA-Z/!][^>]*>?|&#?\w+;|\*\*|\]\(|`|[{}]"),
        "markup",
        "Write plain text: it is shown as it stands",
    ),
    (re.compile(r"\b\w+_\w+\b"), "code", "Say it in everyday words: codes belong into the evidence"),
    (
        re.compile(r"(?i)\b(?:re-?try|try (?:\w+ )?again|call (?:\w+ )?again)\b"),
        "order",
        "Say what would help; whether to call once more is the model's to decide",
    ),
)


def _own(book: RuleBook) -> tuple[Rule, ...]:
    """Return the book's own rows: the shared ones are checked where they stand."""
    shared = {id(rule) for rule in INFRASTRUCTURE} if book.domain != "infrastructure" else set()
    return tuple(rule for rule in (*book.rules, *book.picked) if id(rule) not in shared)


def ids_unique(book: RuleBook) -> Iterator[Flaw]:
    """Find rows that share a name."""
    ids = [rule.id for rule in (*book.rules, *book.picked)]
    for name in dict.fromkeys(name for name in ids if ids.count(name) > 1):
        yield f"row {name} stands {ids.count(name)} times", "Rename one: logs name a row by its id"


def one_fallback(book: RuleBook) -> Iterator[Flaw]:
    """Find rows that match everything before the last, or a last row that does not."""
    *rows, last = book.rules
    if not last.when.everything:
        yield f"the last row, {last.id}, does not match everything", "Put a row without `when` behind it"
    for rule in rows:
        if rule.when.everything:
            yield f"row {rule.id} matches everything before the end", "Give it a `when`, or put it last"


def no_dead_row(book: RuleBook) -> Iterator[Flaw]:
    """Find rows that no reply reaches. A domain's row may well take a shared one's replies."""
    own = {id(rule) for rule in _own(book)}
    for rule, taker in dead_rows(book.rules):
        if id(rule) in own:
            yield (
                f"no reply reaches row {rule.id}: {taker.id} stands before it and takes all of its replies",
                f"Put {rule.id} before {taker.id}, narrow {taker.id}, or delete {rule.id}",
            )


def argued(book: RuleBook) -> Iterator[Flaw]:
    """Find rows that a reviewer cannot argue with."""
    for rule in _own(book):
        for name in ("say", "why", "source"):
            if not str(getattr(rule, name)).strip():
                yield f"row {rule.id} has no `{name}`", f"Write `{name}`: a row is argued with, not trusted"
        if rule.source.strip() and not rule.source.startswith("https://"):
            yield f"row {rule.id} names the source {rule.source!r}", "Link the vendor's own page, by https"


def sentences(book: RuleBook) -> Iterator[Flaw]:
    """Find sentences that people must not read."""
    for rule in _own(book):
        for pattern, kind, change in _SENTENCES:
            if found := pattern.search(rule.say):
                yield f"row {rule.id} says the {kind} {found.group()!r}", change


def every_exception(book: RuleBook) -> Iterator[Flaw]:
    """Find exceptions of httpx that no row knows, and cancellations that are taken for an answer."""
    kinds = [kind for kind in vars(httpx).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    for kind in kinds:
        error = kind.__new__(kind)  # their constructors differ, and a row looks at the class
        error.args = ("no words",)
        outcome = book.classify(Reply(error=error, write=True))
        if outcome.reason is Reason.COMPLETED:
            yield (
                f"{kind.__name__} is taken for success by row {outcome.rule}",
                "Ask for a status in that row",
            )
        elif outcome.rule == book.fallback.id:
            yield (
                f"no row knows the exception {kind.__name__}",
                "End the table with the rows of INFRASTRUCTURE, before the fallback",
            )
    ends: tuple[type[BaseException], ...] = (asyncio.CancelledError, KeyboardInterrupt)
    for end in ends:
        try:
            rule = book.classify(Reply(error=end())).rule
        except end:
            continue
        yield f"{end.__name__} is classified by row {rule}", "Raise it again: it is no answer of a vendor's"


_SUCCESSES: Final = (200, 201, 202, 204, 299)
_PROVES_NOTHING: Final = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"true",
    b'"ok"',
    b"<html></html>",
    b'{"id": ',
    b"\x1f\x8b",
)


def proof_of_success(book: RuleBook) -> Iterator[Flaw]:
    """Find rows that take an empty, unreadable or unexpected answer for success."""
    for status in _SUCCESSES:
        for body in _PROVES_NOTHING:
            reply = Reply(response=httpx.Response(status, content=body), write=True)
            outcome = book.classify(reply)
            if outcome.reason is Reason.COMPLETED:
                yield (
                    f"row {outcome.rule} takes a {status} with the body {body!r} for success",
                    "Ask in its `when` for the field of the body that proves the work done",
                )


# Artifacts.

_KEYS: Final[Mapping[str, tuple[type, ...]]] = {
    "schema": (int,),
    "stop": (bool,),
    "reason": (str,),
    "domain": (str,),
    "rule": (str,),
    "key": (str, type(None)),
    "effect": (str,),
    "retry_after_s": (int, type(None)),
    "vendor_code": (str, type(None)),
    "format": (str,),
    "evidence": (dict,),
}
_LEGAL: Final = (
    ("completed", True),
    ("completed", False),
    ("transient", False),
    ("fatal", True),
    ("policy_block", True),
)
_FORMATS: Final = ("text", "html")


def plain_json(artifact: object) -> Iterator[Flaw]:
    """Find what does not survive a checkpoint."""
    for where, kind in _foreign("artifact", artifact):
        yield (
            f"{where} is {kind}",
            "Put plain JSON values in (orchestration.outcomes.plain makes them): saving fails after the work",
        )


def _foreign(where: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield what is no plain JSON. Types are compared exactly: a subclass comes back as something else."""
    if type(value) is dict:
        for name, item in value.items():
            if type(name) is str:
                yield from _foreign(f"{where}.{name}", item)
            else:
                yield f"the key {name!r} of {where}", f"a {type(name).__name__}"
    elif type(value) is list:
        for at, item in enumerate(value):
            yield from _foreign(f"{where}[{at}]", item)
    elif type(value) not in {str, int, float, bool, type(None)}:
        yield where, f"a {type(value).__name__}"
    elif type(value) is float and not isfinite(value):
        yield where, "no finite number"
    elif type(value) is int and not -LARGEST_INT - 1 <= value <= LARGEST_INT:
        yield where, "a number of more than 64 bits"
    elif type(value) is str and value != printable(value):
        yield where, "a text with NUL or lone surrogates"


def version_one(artifact: object) -> Iterator[Flaw]:
    """Find what the router cannot use, or what says two things at once."""
    if not isinstance(artifact, dict):
        yield f"the artifact is {artifact!r:.40}", "Return Outcome(...).as_tool_result()"
        return
    stop, reason = artifact.get("stop"), artifact.get("reason")
    if lacks := [name for name in ("stop", "reason") if name not in artifact]:
        yield f"the artifact lacks {' and '.join(lacks)}", "Return both; the rest of version 1 is optional"
    elif type(stop) is not bool or (reason, stop) not in _LEGAL:
        pairs = ", ".join(f"{name}/{str(flag).lower()}" for name, flag in _LEGAL)
        yield f"reason is {reason!r} and stop is {stop!r}", f"Return one of the pairs {pairs}"
    schema = artifact.get("schema", SCHEMA)
    if type(schema) is not int or schema != SCHEMA:
        yield f"schema is {schema!r}", f"Write {SCHEMA}, or leave it out"
    for name, kinds in _KEYS.items():
        if (
            name in artifact
            and name not in {"schema", "stop", "reason"}
            and type(artifact[name]) not in kinds
        ):
            wanted = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
            yield f"{name} is {artifact[name]!r:.40}", f"Make it {wanted}"
    for name, words in (("effect", tuple(Effect)), ("format", _FORMATS)):
        if isinstance(word := artifact.get(name, words[0]), str) and word not in words:
            yield f"{name} is {word!r}", f"Make it one of {', '.join(words)}"
    if reason == Reason.COMPLETED and artifact.get("effect") == Effect.UNKNOWN:
        yield "done, with an unknown effect", "Call it transient until something proves the work done"


def no_own_keys(artifact: object) -> Iterator[Flaw]:
    """Find keys that only one tool has."""
    for name, value in (artifact if isinstance(artifact, dict) else {}).items():
        if name not in _KEYS:
            kind = "a one-off boolean" if isinstance(value, bool) else "a key of its own"
            yield (
                f"{name!r} is {kind}",
                f"Move it into evidence: the router, logs and reports know no {name!r}",
            )


# Texts.

_EVERYDAY: Final = "Say it in everyday words: the artifact tells the router"
_FLAG: Final = re.compile(
    r"[\"'](?:schema|stop|reason|effect|retry_after_s|vendor_code|isError)[\"']\s*:"
    r"|\b(?:stop|is_error|return_direct)\s*=\s*\w+"
)
_TAG: Final = re.compile(r"<[a-zA-Z/!][^>]*>")
_TEXTS: Final = (
    (_WORDS, "control word", _EVERYDAY),
    (_FLAG, "flag", _EVERYDAY),
    (
        re.compile(r"\b[A-Z]\w*(?:Error|Exception|Timeout)\b|Traceback \(most recent"),
        "exception",
        "Say what it means; its name belongs into the evidence",
    ),
    (
        re.compile(r"https?://(?:[^\s\"'<>/]*@|[^\s\"'<>]*\?)[^\s\"'<>]*"),
        "address",
        "Leave out what stands before @ and after ?: keys travel there",
    ),
)


def words(text: str, artifact: object) -> Iterator[Flaw]:
    """Find what neither people nor models are to read."""
    said = artifact if isinstance(artifact, dict) else {}
    if not text.strip():
        yield "there is no text", "Say what was done, or what was not"
    for pattern, kind, change in _TEXTS:
        if found := pattern.search(text):
            yield f"the {kind} {found.group()[:60]!r} stands in the text", change
    if said.get("format") != "html" and (found := _TAG.search(text)):
        yield f"the markup {found.group()[:60]!r} stands in the text", 'Escape it, or say format="html"'
    code = said.get("vendor_code")
    if isinstance(code, str) and re.search(r"[\W_\d]", code) and code in text:
        yield f"the vendor's code {code!r} stands in the text", "Say it in everyday words"


OfTable: TypeAlias = Callable[[RuleBook], Iterable[Flaw]]
OfArtifact: TypeAlias = Callable[[object], Iterable[Flaw]]
