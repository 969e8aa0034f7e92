"""Find rows of a table that no reply can reach, as far as the rows themselves tell.

A row is dead if an earlier one takes every reply that it would match. Patterns and predicates are opaque:
two of them are compared by identity, and a string is tried against them. What cannot be decided is alive.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any, Final, TypeAlias

from domains.mapping import Rule, When, present

MOST_CASES: Final = 2000
"""Single statuses and codes that a row is taken apart into; a longer row is compared as a whole."""

Wanted: TypeAlias = Any
"""What a field must hold: ``mapping.Match``."""


def dead_rows(rules: Iterable[Rule]) -> Iterator[tuple[Rule, Rule]]:
    """Yield the rows that no reply reaches, each with a row before it that takes its replies."""
    earlier: list[Rule] = []
    for rule in rules:
        if (taker := _taker(rule.when, earlier)) is not None:
            yield rule, taker
        earlier.append(rule)


def _taker(when: When, earlier: list[Rule]) -> Rule | None:
    """Return the last row needed to take all that ``when`` matches; None if something is left for it."""
    rivals = [rule for rule in earlier if _about_no_more(rule.when, when)]
    if not rivals:
        return None
    taker = None
    for case in _cases(when):
        taker = next((rule for rule in rivals if covers(rule.when, case)), None)
        if taker is None:
            return None
    return taker


def _about_no_more(one: When, other: When) -> bool:
    """Whether ``one`` asks about nothing that ``other`` leaves open: else it cannot take all of it."""
    return _subjects(one) <= _subjects(other)


def _subjects(when: When) -> set[str]:
    return {condition.name for condition in when.conditions}


def _cases(when: When) -> Iterator[When]:
    """Take a row apart into single statuses and codes: two earlier rows may share them between them."""
    statuses: list[int | None] = [*_statuses(when)] or [None]
    body = when.body if isinstance(when.body, Mapping) else {}
    fields = {path: [*_values(match)] for path, match in body.items()}
    if len(statuses) * prod(map(len, fields.values())) > MOST_CASES:
        yield when
        return
    for status, *values in product(statuses, *fields.values()):
        one = dict(zip(fields, values, strict=True)) if fields else when.body
        yield replace(when, status=status, body=one)


def _statuses(when: When) -> Iterator[int]:
    parts = when.status if isinstance(when.status, tuple) else () if when.status is None else (when.status,)
    for part in parts:
        yield from part if isinstance(part, range) else (part,)


def _values(match: Wanted) -> Iterable[Wanted]:
    return match if _several(match) else [match]


def _several(match: Wanted) -> bool:
    return isinstance(match, Collection) and not isinstance(match, str)


def covers(earlier: When, later: When) -> bool:
    """Whether every reply that ``later`` matches is matched by ``earlier``; False in doubt."""
    return (
        (
            earlier.status is None
            or (later.status is not None and {*_statuses(later)} <= {*_statuses(earlier)})
        )
        and _covers_errors(earlier.error, later.error)
        and _covers_fields(_lower(earlier.header), _lower(later.header))
        and _covers_phrases(earlier, later)
        and _covers_body(earlier.body, later.body)
    )


def _lower(header: Mapping[str, Wanted] | None) -> dict[str, Wanted]:
    return {name.lower(): match for name, match in (header or {}).items()}


def _covers_errors(earlier: Any, later: Any) -> bool:
    if earlier is None:
        return True
    if later is None:
        return False
    takes, wants = (error if isinstance(error, tuple) else (error,) for error in (earlier, later))
    names = {
        item if isinstance(item, str) else item.__name__ for item in takes if isinstance(item, (str, type))
    }
    classes = tuple(item for item in takes if isinstance(item, type))
    return all(
        want in takes
        or (
            isinstance(want, type)
            and (issubclass(want, classes) or not names.isdisjoint(base.__name__ for base in want.__mro__))
        )
        for want in wants
    )


def _covers_fields(earlier: Mapping[str, Wanted], later: Mapping[str, Wanted]) -> bool:
    return all(name in later and takes(match, later[name]) for name, match in earlier.items())


def _covers_body(earlier: Any, later: Any) -> bool:
    if not earlier:
        return True
    if isinstance(earlier, re.Pattern) or isinstance(later, re.Pattern):
        return bool(earlier == later)
    return _covers_fields(earlier, later or {})


def _covers_phrases(earlier: When, later: When) -> bool:
    """A text that holds "over the limit" holds "limit" as well."""
    if earlier.phrases is None:
        return True
    wanted = later.phrases or ()
    return bool(wanted) and all(any(part in phrase for part in earlier.phrases) for phrase in wanted)


def takes(earlier: Wanted, later: Wanted) -> bool:
    """Whether a field that holds what ``later`` wants holds what ``earlier`` wants; False in doubt."""
    if earlier is later or (type(earlier) is type(later) and earlier == later):
        return True
    wants = [*_values(later)]
    if not wants or not all(isinstance(want, (str, bool, int)) for want in wants):
        return False
    return all(_holds(earlier, want) for want in wants)


def _holds(match: Wanted, value: object) -> bool:
    if match is present:
        return value != ""
    if isinstance(match, re.Pattern):
        return isinstance(value, str) and match.search(value) is not None
    if isinstance(match, Collection) and not isinstance(match, str):
        return bool(value in match)
    if callable(match):
        return bool(match(value))
    return type(match) is type(value) and match == value
