"""Rules of our own, checked before any call of a turn runs.

A guard is pure: it sees every call of the turn and the run's messages, and says which calls may not
run. What it refuses is answered once, as ``policy_block``, by the rule ``guard/<name>``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

from orchestration.outcomes import JSON
from orchestration.reasons import Effect
from orchestration.router import outcome_of, turns

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_DIGITS: Final = 18
"""Digits of a number that a schema could read from a string; a longer one is a name."""

Denials: TypeAlias = Mapping[int, str]
"""Position of a call in its turn -> what the user reads in place of its answer."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a guard may look at."""

    messages: Sequence[Any] = ()
    """The thread's history, oldest first; the newest AIMessage holds the calls to be checked."""

    configurable: Mapping[str, Any] = field(default_factory=dict)
    """The run's ``config["configurable"]``: who is asking."""

    declared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Tool name -> what the tool declares of itself: ``amount``, ``free_text``; and its ``defaults``."""


class Guard(Protocol):
    """A rule of our own. Both methods are pure."""

    @property
    def name(self) -> str:
        """Lower case, without spaces: it stands in ``guard/<name>``."""

    def check(self, calls: Sequence[Mapping[str, Any]], run: Run) -> Denials:
        """Return the calls of the turn that may not run, with what the user reads instead."""

    def clean(self, value: str) -> str:
        """Return ``value`` without what nobody may read."""


@dataclass(frozen=True, slots=True)
class allow:  # noqa: N801 - reads as a verb where it is used
    """Let a role call only its tools. A run without a known role may call none.

    ``allow({"clerk": ["search", "create_ticket"], "manager": ["checkout", "search"]})`` reads the
    role, or several, from ``config["configurable"]["role"]``.
    """

    tools_by_role: Mapping[str, Collection[str]]
    """Role -> names of the tools it may call."""

    say: str = "You are not permitted to do this."
    """What the user reads."""

    name: str = "allow"

    def check(self, calls: Sequence[Mapping[str, Any]], run: Run) -> Denials:
        """Deny every call whose tool none of the run's roles may use."""
        role = run.configurable.get("role") or ()
        roles = (role,) if isinstance(role, str) else role
        allowed = {tool for name in roles for tool in self.tools_by_role.get(name, ())}
        return {at: self.say for at, call in enumerate(calls) if call["name"] not in allowed}

    def clean(self, value: str) -> str:
        """Return ``value`` as it is."""
        return value


@dataclass(frozen=True, slots=True)
class spend_cap:  # noqa: N801 - reads as a noun where it is used
    """Refuse what would spend more than ``limit`` in one run.

    Spent is what the run's answers prove or leave open (effect applied or unknown), each thing once,
    plus this turn's calls: summed anew each time, so that a replay cannot count twice. Over the cap,
    every spending call of the turn is refused, so that their order cannot matter.

    Raises:
        ValueError: A negative limit.
    """

    limit: int
    """Minor units of the one currency that the tools spend."""

    say: str = "This would go over the spending limit. Nothing was charged."
    """What the user reads."""

    name: str = "spend-cap"

    def __post_init__(self) -> None:
        if self.limit < 0:
            msg = f"a spend cap must be 0 or more minor units, not {self.limit}"
            raise ValueError(msg)

    def check(self, calls: Sequence[Mapping[str, Any]], run: Run) -> Denials:
        """Deny every spending call of a turn that goes over the cap."""
        asked = {at: amount for at, call in enumerate(calls) if (amount := _amount(call, run))}
        # The same call once more is the same purchase, not another one.
        identities = {_identity(calls[at], run): amount for at, amount in asked.items()}
        spent = sum(amount for identity, amount in _spent(run).items() if identity not in identities)
        over = spent + sum(identities.values()) > self.limit
        return dict.fromkeys(asked, self.say) if over else {}

    def clean(self, value: str) -> str:
        """Return ``value`` as it is."""
        return value


def _spent(run: Run) -> dict[str, float]:
    """Return, by call, what the run's earlier turns have spent or may have spent."""
    return {
        _identity(call, run): amount
        for turn in turns(run.messages)
        for call, answer in turn.answers
        if _may_have_spent(answer) and (amount := _amount(call, run))
    }


def _may_have_spent(answer: Any) -> bool:
    """Whether an answer leaves open that money moved: one that nothing vouches for does."""
    outcome = outcome_of(answer)
    return answer is not None and (outcome is None or outcome.effect is not Effect.NONE)


def _identity(call: Mapping[str, Any], run: Run) -> str:
    said = run.declared.get(call["name"], {})
    return repr(essence(call, said.get("free_text") or (), said.get("defaults") or _NONE))


def essence(
    call: Mapping[str, Any], free_text: Collection[str], defaults: Mapping[str, Any] = _NONE
) -> tuple[str, list[tuple[str, str]]]:
    """Return what makes two calls the same one: the tool, and the arguments it does not reword.

    A default that is written out is the same as one left out, and 5 the same as "5", as schemas have it.
    """
    args = {**defaults, **(call.get("args") or {})}
    words = {*free_text, "last_step"}
    return call["name"], sorted((name, _same(value)) for name, value in args.items() if name not in words)


def _same(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str) and len(value) <= _DIGITS and value.isdecimal() and value == str(int(value)):
        return value
    return repr(value)


def _amount(call: Mapping[str, Any], run: Run) -> float:
    """Return what a call spends; an amount that cannot be read counts as none: the tool refuses it."""
    name = run.declared.get(call["name"], {}).get("amount")
    value = (call.get("args") or {}).get(name) if name else None
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)  # models write numbers as words too, and schemas accept "1_000" and "5.0"
    return value if isinstance(value, (int, float)) and value > 0 else 0


Span: TypeAlias = "Mapping[str, Any] | re.Match[str]"
Detector: TypeAlias = "re.Pattern[str] | Callable[[str], Iterable[Span]]"
"""Finds what to mask: a pattern, or a function that returns ``{"type", "start", "end"}`` mappings."""


class mask:  # noqa: N801 - reads as a verb where it is used
    """Mask what detectors find: in content, artifact, streams and history, never in arguments.

    Raises:
        TypeError: A detector is neither a pattern nor callable.
    """

    name = "mask"

    def __init__(self, *detectors: Detector, replace: str | None = None) -> None:
        """Take the detectors, and the text to put in place (None: ``[REDACTED_<TYPE>]``)."""
        for detector in detectors:
            if not isinstance(detector, re.Pattern) and not callable(detector):
                msg = f"a detector is a compiled pattern or a function, not {detector!r}"
                raise TypeError(msg)
        self.detectors = detectors
        self.replace = replace

    def check(self, calls: Sequence[Mapping[str, Any]], run: Run) -> Denials:  # noqa: ARG002 - protocol
        """Deny nothing."""
        return {}

    def clean(self, value: str) -> str:
        """Return ``value`` with every finding replaced, overlapping ones as one."""
        spans = sorted(
            span for detector in self.detectors for span in _spans(detector, value) if span[0] < span[1]
        )
        kept, end = [], 0
        for start, stop, kind in spans:
            if start >= end:
                kept += [value[end:start], f"[REDACTED_{kind}]" if self.replace is None else self.replace]
            end = max(end, stop)
        return "".join([*kept, value[end:]]) if kept else value


def _spans(detector: Detector, value: str) -> Iterable[tuple[int, int, str]]:
    found = detector.finditer(value) if isinstance(detector, re.Pattern) else detector(value)
    for span in found:
        if isinstance(span, re.Match):
            yield (*span.span(), "TEXT")
        else:
            yield span["start"], span["end"], str(span.get("type", "text")).upper()


def cleaned(value: JSON, guards: Sequence[Guard]) -> JSON:
    """Return a JSON value with every string in it cleaned."""
    if isinstance(value, str):
        return clean(value, guards)
    if isinstance(value, list):
        return [cleaned(item, guards) for item in value]
    if isinstance(value, dict):
        return {name: cleaned(item, guards) for name, item in value.items()}
    return value


def clean(text: str, guards: Sequence[Guard]) -> str:
    """Return a text cleaned by every guard."""
    for guard in guards:
        text = guard.clean(text)
    return text
