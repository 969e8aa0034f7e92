"""The mapping pattern: a table translates a vendor's raw answers into outcomes.

``Call`` is what a flow sends, ``Reply`` what came back, ``When`` what it must look like, ``Rule`` one row of
a table, ``RuleBook`` the table; ``run`` and ``arun`` drive a flow, written once sans I/O, over a sync or an
async client.
"""

import asyncio
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import httpx

from domains.reply import Call, Progress, Reply
from domains.retry_after import retry_after
from domains.when import When, present
from orchestration.outcomes import Outcome
from orchestration.reasons import Effect, Reason

__all__ = [
    "Call",
    "Flow",
    "Progress",
    "Reply",
    "Rule",
    "RuleBook",
    "When",
    "arun",
    "present",
    "proven",
    "run",
]

ANYTHING: Final = When()
"""What every reply looks like."""

LONGEST_WORD: Final = 80
"""Characters of a vendor's code or request id that an outcome keeps."""

_WORDS: Final = re.compile(r"(?i)\b(?:completed?|transient|fatal|policy[ _]?block(?:ed)?)\b")
_ID: Final = re.compile(r"[a-z0-9]+(?:[-/][a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row: which replies, which reason, what people read, and the argument for it.

    Raises:
        ValueError: The row lacks what a reviewer needs, or says what users must not read.
    """

    id: str
    """``<domain>/<name>``, lower case with hyphens."""

    when: When = ANYTHING
    """Which replies. A row without it stands last, or is picked by a flow."""

    reason: Reason
    """How the call ended."""

    say: str
    """Our own sentence, for people and models."""

    why: str
    """The argument for the reason: reviewers argue with this row, not with control flow."""

    source: str
    """The vendor's own page that says so, an https link."""

    effect: Effect | None = None
    """What the reply proves; None leaves it to the status or the exception (see ``proven``)."""

    retry_after_s: int | None = None
    """Seconds to wait if the reply itself names none."""

    def __post_init__(self) -> None:
        lacks = [name for name in ("say", "why", "source") if not getattr(self, name).strip()]
        if lacks:
            raise ValueError(f"rule {self.id}: {' and '.join(lacks)} must not be empty")
        if not _ID.fullmatch(self.id):
            raise ValueError(f"rule {self.id!r}: an id is lower case words joined by - and /")
        if not self.source.startswith("https://"):
            raise ValueError(f"rule {self.id}: source must be an https link to the vendor's own page")
        if word := _WORDS.search(self.say):
            raise ValueError(f"rule {self.id}: say must not hold the control word {word.group()!r}")
        if self.reason is Reason.COMPLETED and self.effect is Effect.UNKNOWN:
            raise ValueError(f"rule {self.id}: what is proven done cannot have an unknown effect")


_Asked: TypeAlias = tuple[Rule, tuple[Callable[[Reply], bool], ...]]
"""A row, and what it asks of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleBook:
    """A domain's table. The first row that matches decides; the last one matches everything.

    Raises:
        ValueError: A row is named twice, the fallback is not last, or a row behind it is dead.
    """

    domain: str
    """The domain's name."""

    rules: tuple[Rule, ...]
    """The rows, in order."""

    picked: tuple[Rule, ...] = ()
    """Rows that a flow picks by id: they compare a reply with what was asked for."""

    codes: tuple[str, ...] = ()
    """Body paths of the vendor's own code, the most telling first."""

    request_ids: tuple[str, ...] = ("x-request-id",)
    """Header names of the vendor's id for the request."""

    writes: bool = True
    """Whether a reply is taken for a write's if it does not say."""

    unchanged: str = ""
    """Said when a write is proven to have changed nothing."""

    unconfirmed: str = ""
    """Said when a write may have changed something."""

    _rows: dict[str, Rule] = field(init=False, repr=False, compare=False)
    _by_status: dict[int | None, tuple[_Asked, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows = {rule.id: rule for rule in (*self.rules, *self.picked)}
        ids = [rule.id for rule in (*self.rules, *self.picked)]
        if twice := {name for name in ids if ids.count(name) > 1}:
            raise ValueError(f"book {self.domain}: {', '.join(sorted(twice))} stands twice")
        if not self.rules or not self.rules[-1].when.everything:
            raise ValueError(f"book {self.domain}: the last row must be a fallback, without `when`")
        if early := [rule.id for rule in self.rules[:-1] if rule.when.everything]:
            raise ValueError(f"book {self.domain}: {early[0]} matches everything and is not last")
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_by_status", {})

    @property
    def fallback(self) -> Rule:
        """The last row."""
        return self.rules[-1]

    def classify(self, reply: Reply) -> Outcome:
        """Return the outcome that the first matching row gives.

        Raises:
            BaseException: The reply holds a cancellation or an exit; those are never an outcome.
        """
        if reply.error is not None and not isinstance(reply.error, Exception):
            raise reply.error
        if reply.error is not None:  # an exception that holds a response is that response
            reply = Reply.from_exception(reply.error, write=reply.write)
        for rule, questions in self._admitted(reply.status):
            for holds in questions:
                if not holds(reply):
                    break
            else:
                return self.outcome(rule, reply)
        return self.outcome(self.fallback, reply)

    def _admitted(self, status: int | None) -> tuple[_Asked, ...]:
        """Return the rows that a status leaves, in order, with what is left to ask.

        Most rows of a book name another status, so each status is asked about once.
        """
        if (rows := self._by_status.get(status)) is None:
            rows = tuple((rule, rule.when.beyond_status) for rule in self.rules if rule.when.admits(status))
            self._by_status[status] = rows
        return rows

    def pick(self, rule_id: str, reply: Reply, **facts: object) -> Outcome:
        """Return the outcome of the row that a flow chose; ``facts`` go into the evidence."""
        return self.outcome(self[rule_id], reply, **facts)

    def explain(self, reply: Reply) -> Iterator[tuple[Rule, str | None]]:
        """Yield the rows up to the one that fires, each with what did not hold (None: it fires)."""
        if isinstance(reply.error, Exception):
            reply = Reply.from_exception(reply.error, write=reply.write)
        for rule in self.rules:
            mismatch = rule.when.mismatch(reply)
            yield rule, mismatch
            if mismatch is None:
                return

    def outcome(self, rule: Rule, reply: Reply, **facts: object) -> Outcome:
        """Return what ``rule`` says of ``reply``: the sentence, and the facts beside it."""
        effect = self._effect(rule, reply)
        wait = retry_after(reply.named)
        wait = rule.retry_after_s if wait is None else wait
        said = [rule.say]
        if rule.reason is not Reason.COMPLETED and effect is not Effect.APPLIED and self._write(reply):
            said.append(self.unchanged if effect is Effect.NONE else self.unconfirmed)
        if rule.reason is Reason.TRANSIENT and wait:
            said.append(f"The wait is about {wait} second{'s' * (wait != 1)}.")
        request_id = next((v for name in self.request_ids if (v := reply.named.get(name))), "")
        evidence = {
            "status": reply.status,
            "request_id": request_id[:LONGEST_WORD] or None,
            "exception": None if reply.error is None else type(reply.error).__name__,
            **facts,
        }
        return Outcome(
            content=" ".join(filter(None, said)),
            reason=rule.reason,
            rule=rule.id,
            effect=effect,
            retry_after_s=wait,
            evidence={name: value for name, value in evidence.items() if value is not None},
            domain=self.domain,
            vendor_code=_one_word(reply.first(*self.codes)),
        )

    def _write(self, reply: Reply) -> bool:
        return self.writes if reply.write is None else reply.write

    def _effect(self, rule: Rule, reply: Reply) -> Effect:
        if not self._write(reply):
            return Effect.NONE
        done = Effect.APPLIED if rule.reason is Reason.COMPLETED else proven(reply)
        return rule.effect or done

    def __getitem__(self, rule_id: str) -> Rule:
        try:
            return self._rows[rule_id]
        except KeyError:
            raise KeyError(f"book {self.domain} has no row {rule_id!r}") from None

    def replace(self, rule_id: str, **changes: Any) -> "RuleBook":
        """Return a book in which one row is changed; every check runs again.

        Raises:
            KeyError: There is no such row.
            ValueError: The changed row or book breaks a rule of its type.
        """
        changed = replace(self[rule_id], **changes)
        return replace(
            self,
            rules=tuple(changed if rule.id == rule_id else rule for rule in self.rules),
            picked=tuple(changed if rule.id == rule_id else rule for rule in self.picked),
        )

    def before(self, rule: Rule, rule_id: str | None = None) -> "RuleBook":
        """Return a book with ``rule`` put before the row ``rule_id``, or before all rows.

        Raises:
            KeyError: There is no such row.
            ValueError: The new book breaks a rule of its type, or a flow picks that row: it has no place.
        """
        if rule_id is not None and self[rule_id] in self.picked:
            raise ValueError(f"book {self.domain}: {rule_id} is picked by a flow: nothing stands before it")
        at = 0 if rule_id is None else self.rules.index(self[rule_id])
        return replace(self, rules=(*self.rules[:at], rule, *self.rules[at:]))


def _one_word(code: str | None) -> str | None:
    """Return a code, short; None for a sentence in its place: prose may quote a key."""
    return code[:LONGEST_WORD] if code and not re.search(r"\s", code) else None


_NOT_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.LocalProtocolError,
    httpx.InvalidURL,
    UnicodeEncodeError,
)
_CLOUDFLARE_NOT_SENT: Final = frozenset({521, 523, 525, 526, 530})
_CLIENT_CLOSED: Final = 499


def proven(reply: Reply) -> Effect:
    """Return what a failed write's reply proves by its status or exception alone.

    Sources: https://www.python-httpx.org/exceptions/,
    https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-5xx-errors/
    """
    status = reply.status
    if status is None:
        return Effect.NONE if isinstance(reply.error, _NOT_SENT) else Effect.UNKNOWN
    refused = 300 <= status < 500 and status != _CLIENT_CLOSED  # noqa: PLR2004 - HTTP's own classes
    overloaded = status == httpx.codes.SERVICE_UNAVAILABLE and "retry-after" in reply.named
    return Effect.NONE if refused or overloaded or status in _CLOUDFLARE_NOT_SENT else Effect.UNKNOWN


Flow: TypeAlias = Generator[Call, Reply, Outcome]
"""A tool, sans I/O: it yields calls, is sent back replies, and returns an outcome."""


def _unheard(progress: Progress) -> None:
    """Show progress to nobody."""


def run(flow: Flow, client: httpx.Client, tell: Callable[[Progress], None] = _unheard) -> Outcome:
    """Drive ``flow`` over a sync client and return its outcome; no HTTP exception leaves it.

    Args:
        flow: What to drive.
        client: What sends its calls.
        tell: Shows the progress of a job that takes several calls.
    """
    with closing(flow):  # an interrupt leaves it half way, and what it holds must be let go
        try:
            call = next(flow)
            while True:
                if call.progress is not None:
                    tell(call.progress)
                if call.after_s:
                    time.sleep(call.after_s)
                try:
                    reply = Reply(response=client.send(_request(client, call)), write=call.write)
                except Exception as error:
                    reply = Reply.from_exception(error, write=call.write)
                call = flow.send(reply)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what a Flow returns is an Outcome


async def arun(flow: Flow, client: httpx.AsyncClient, tell: Callable[[Progress], None] = _unheard) -> Outcome:
    """Drive ``flow`` over an async client: ``run``, but for the awaits. Cancellation passes through."""
    with closing(flow):
        try:
            call = next(flow)
            while True:
                if call.progress is not None:
                    tell(call.progress)
                if call.after_s:
                    await asyncio.sleep(call.after_s)
                try:
                    reply = Reply(response=await client.send(_request(client, call)), write=call.write)
                except Exception as error:
                    reply = Reply.from_exception(error, write=call.write)
                call = flow.send(reply)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what a Flow returns is an Outcome


def _request(client: httpx.Client | httpx.AsyncClient, call: Call) -> httpx.Request:
    """Build through the client: a bare ``httpx.Request`` would lose its base URL and headers."""
    return client.build_request(
        call.method, call.path, params=call.params, data=call.data, json=call.json, headers=call.headers
    )
