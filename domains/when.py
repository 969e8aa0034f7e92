"""Conditions on a reply, compiled when a table is built, and told in words when a person asks."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from reprlib import repr as brief_repr
from typing import Any, Final, NamedTuple, TypeAlias

from domains.reply import Reply

Match: TypeAlias = "str | bool | int | Collection[str] | re.Pattern[str] | Callable[[Any], bool] | None"
"""What a field must hold: one value, one of several strings, a pattern, or a named predicate."""

Raised: TypeAlias = "type[BaseException] | str | Callable[[BaseException], bool]"
"""What an exception must be: of a class, of a class of this name, or as a named predicate says."""

LONGEST_LIST: Final = 60
"""Characters of a row's codes that one line of an explanation shows."""

LONGEST_VALUE: Final = 40
"""Characters of what a reply holds that one line of an explanation shows."""


def present(value: object) -> bool:
    """Match any value but null and the empty ones."""
    return value not in (None, "", [], {})


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """What a reply must look like. Every part given must hold; none given matches every reply.

    Raises:
        TypeError: A part is of no form that can be matched.
    """

    status: int | range | tuple[int | range, ...] | None = None
    """The HTTP status."""

    header: Mapping[str, Match] | None = None
    """Headers by name; an absent one is the empty string."""

    body: Mapping[str, Match] | re.Pattern[str] | None = None
    """JSON fields by path (see ``Reply.found``; one of the values found must match; None stands for an
    absent one), or a pattern in the text."""

    phrases: tuple[str, ...] | None = None
    """Lower-case phrases, one of which must stand in the text, in any case: many times faster than a
    pattern on a long page."""

    error: tuple["Raised", ...] | type[BaseException] | None = None
    """Exception classes; a name stands for a class that we do not import, a named predicate for what a
    class does not tell."""

    conditions: tuple["Condition", ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "conditions", tuple(self._compile()))

    def _compile(self) -> Iterator["Condition"]:
        if self.status is not None:
            wanted = self.status if isinstance(self.status, tuple) else (self.status,)
            if not wanted or not all(isinstance(part, (int, range)) for part in wanted):
                raise TypeError(f"cannot match {self.status!r}: a status is a number or a range, or several")
            statuses = frozenset(s for part in wanted for s in (part if isinstance(part, range) else (part,)))
            yield Condition(
                "status", self.status, lambda reply: reply.status in statuses, lambda reply: (reply.status,)
            )
        if self.error is not None:
            raised = self.error if isinstance(self.error, tuple) else (self.error,)
            yield Condition("exception", raised, _raised(raised), lambda reply: (type(reply.error).__name__,))
        for name, match in (self.header or {}).items():
            yield _header(name.lower(), match)
        if self.phrases is not None:
            yield Condition("text", self.phrases, _phrased(self.phrases), lambda reply: (reply.text,))
        if isinstance(self.body, re.Pattern):
            search = self.body.search
            yield Condition(
                "text", self.body, lambda reply: search(reply.text) is not None, lambda reply: (reply.text,)
            )
        else:
            yield from (_field(path, match) for path, match in (self.body or {}).items())

    @property
    def everything(self) -> bool:
        """Whether every reply matches."""
        return not self.conditions

    def admits(self, status: int | None) -> bool:
        """Whether a reply with this status, or an exception (None), could match at all."""
        if self.status is None:
            return self.error is None or status is None
        parts = self.status if isinstance(self.status, tuple) else (self.status,)
        return any(status in part if isinstance(part, range) else status == part for part in parts)

    @property
    def beyond_status(self) -> tuple[Callable[[Reply], bool], ...]:
        """What is left to ask of a reply whose status is admitted."""
        return tuple(c.holds for c in self.conditions[self.status is not None :])

    def matches(self, reply: Reply) -> bool:
        """Whether the reply looks like this."""
        for condition in self.conditions:  # noqa: SIM110 - the hot path: all() costs twice as much
            if not condition.holds(reply):
                return False
        return True

    def mismatch(self, reply: Reply) -> str | None:
        """Say, for a person, which part did not hold; None if the reply matches."""
        for condition in self.conditions:
            if not condition.holds(reply):
                found, name = _shown(condition.read(reply)), condition.name.partition("|")[0]
                return f"{name} is {found}, not {_brief(condition.wanted)}"
        return None

    def __str__(self) -> str:
        return "; ".join(f"{c.name} {wording(c.wanted)}" for c in self.conditions) or "anything else"


class Condition(NamedTuple):
    """One condition, compiled when the table is built."""

    name: str
    """What is looked at."""

    wanted: Any
    """What it must be, as the row says it."""

    holds: Callable[[Reply], bool]
    """Whether it is."""

    read: Callable[[Reply], tuple[Any, ...]]
    """What it is instead, for people."""


def _header(name: str, match: Match) -> Condition:
    holds = _predicate(match)

    def read(reply: Reply) -> tuple[str, ...]:
        return (reply.named.get(name, "").strip(),)

    return Condition(f"header {name}", match, lambda reply: holds(*read(reply)), read)


def _phrased(phrases: tuple[str, ...]) -> Callable[[Reply], bool]:
    # One string is a sequence of letters: it would match nearly every text.
    if isinstance(phrases, str) or not phrases or any(not p or p != p.lower() for p in phrases):
        msg = f"cannot match {phrases!r}: phrases must be a tuple, lower case, and at least one"
        raise TypeError(msg)

    def holds(reply: Reply) -> bool:
        text = reply.lower
        for phrase in phrases:  # noqa: SIM110 - the hot path: any() costs twice as much
            if phrase in text:
                return True
        return False

    return holds


def _field(path: str, match: Match) -> Condition:
    def read(reply: Reply) -> tuple[Any, ...]:
        return reply.found[path] or (None,)

    name = f"body {path}" if path else "body"
    if isinstance(match, (set, frozenset, tuple, list)):
        apart = _strings(match).isdisjoint
        return Condition(name, match, lambda reply: not apart(reply.found.strings[path]), read)
    holds = _predicate(match)
    return Condition(name, match, lambda reply: any(map(holds, read(reply))), read)


def _raised(wanted: tuple[Raised, ...]) -> Callable[[Reply], bool]:
    classes = tuple(item for item in wanted if isinstance(item, type))
    names = frozenset(item for item in wanted if isinstance(item, str))
    tests = tuple(item for item in wanted if not isinstance(item, (type, str)))
    if not wanted or not all(map(callable, tests)):
        raise TypeError(f"cannot match {wanted!r}: an exception is a class, a name or a predicate")
    return lambda reply: (
        reply.error is not None
        and (
            isinstance(reply.error, classes)
            or not names.isdisjoint(base.__name__ for base in type(reply.error).__mro__)
            or any(test(reply.error) for test in tests)
        )
    )


def _strings(match: Collection[str]) -> frozenset[str]:
    if not match or not all(isinstance(item, str) for item in match):
        msg = f"cannot match against {match!r}: a collection must hold strings, and at least one"
        raise TypeError(msg)
    return frozenset(match)


def _predicate(match: Match) -> Callable[[Any], bool]:
    if isinstance(match, (bool, type(None))):
        return lambda value: value is match
    if isinstance(match, (int, str)):
        return lambda value: type(value) is type(match) and value == match
    if isinstance(match, re.Pattern):
        search = match.search
        return lambda value: isinstance(value, str) and search(value) is not None
    if callable(match):
        return match
    wanted = _strings(match)
    return lambda value: isinstance(value, str) and value in wanted


def wording(wanted: Any) -> str:
    """Return a condition's value as a person reads it in a table."""
    if isinstance(wanted, range):
        return f"{wanted.start}-{wanted.stop - 1}"
    if isinstance(wanted, re.Pattern):
        return f"/{wanted.pattern}/"
    if isinstance(wanted, type) or callable(wanted):
        return str(wanted.__name__)
    if isinstance(wanted, (tuple, set, frozenset, list)):
        parts = wanted if isinstance(wanted, (tuple, list)) else sorted(wanted)
        return ", ".join(map(wording, parts))
    return "absent" if wanted is None else str(wanted).lower() if isinstance(wanted, bool) else str(wanted)


def _brief(wanted: Any) -> str:
    """Return ``wording`` without the tail of a long list."""
    words = wording(wanted)
    return words if len(words) <= LONGEST_LIST else f"one of {words[:LONGEST_LIST].rpartition(', ')[0]}, ..."


def _shown(found: tuple[Any, ...]) -> str:
    """Show what was found, short: a person looks at it, and it may be 5 MB."""
    text = ", ".join("absent" if value in (None, "") else _glimpse(value) for value in found[:3])
    return text if len(found) <= 3 else f"{text}, ..."  # noqa: PLR2004 - as above


def _glimpse(value: object) -> str:
    """Show one value, of any depth; a string that reads as another type stands in quotes."""
    if not isinstance(value, str):
        return one_line(wording(value) if isinstance(value, (bool, int)) else brief_repr(value))
    return f'"{value}"' if _UNQUOTED.fullmatch(value) else one_line(value)


def one_line(text: str, longest: int = LONGEST_VALUE) -> str:
    """Return a text's beginning as a terminal can show it: on one line, without control codes."""
    words = " ".join(text[: 4 * longest].split())
    return "".join(filter(str.isprintable, words))[:longest]


_UNQUOTED: Final = re.compile(r"true|false|null|absent|-?[0-9]{1,20}")
