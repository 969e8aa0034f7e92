"""The mapping pattern: a table translates a vendor's raw answers into outcomes.

``Call`` is what a flow sends, ``Reply`` what came back, ``Rule`` one row of a table, ``RuleBook`` the
table; ``run`` and ``arun`` drive a flow, written once sans I/O, over a sync or an async client.

Copy this file, ``retry_after.py``, ``infrastructure.py`` and one ``rules.py`` to map a vendor of your own.
"""

import json
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import httpx

from domains.exceptions import causes, response_of
from domains.retry_after import retry_after
from orchestration.outcomes import Outcome
from orchestration.reasons import Effect, Reason

Match: TypeAlias = "str | bool | int | Collection[str] | re.Pattern[str] | Callable[[Any], bool] | None"
"""What a field must hold: one value, one of several strings, a pattern, or a named predicate."""

Raised: TypeAlias = "type[BaseException] | str | Callable[[BaseException], bool]"
"""What an exception must be: of a class, of a class of this name, or as a named predicate says."""

LARGEST_JSON: Final = 32 * 1024 * 1024
"""Bytes. A longer body is not parsed: it proves nothing, and memory stays bounded."""

LONGEST_LIST: Final = 60
"""Characters of a row's codes that one line of an explanation shows."""

LARGEST_TEXT: Final = 4096
"""Characters of a body that patterns see: pages say who they are at their top."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request that a flow wants sent."""

    method: str
    """HTTP method, upper case."""

    path: str
    """Path below the client's base URL."""

    params: Mapping[str, Any] | None = None
    """Query parameters."""

    data: Mapping[str, Any] | None = None
    """A form-encoded body."""

    json: Any = None
    """A JSON body."""

    headers: Mapping[str, str] | None = None
    """Headers beyond the client's own."""

    write: bool = False
    """Whether the request can change something at the vendor: then silence proves nothing."""


@dataclass(frozen=True)
class Reply:
    """What came back: a response, or the exception that stands in its place.

    Nothing here raises on bad bytes: what cannot be read is absent.
    """

    response: httpx.Response | None = None
    """The response, whatever its status."""

    error: BaseException | None = None
    """What the client raised instead. Never logged, never kept: it holds the request and its keys."""

    write: bool | None = None
    """Whether the call could change something; None takes the book's word for it."""

    @classmethod
    def from_exception(cls, error: Exception, *, write: bool | None = None) -> "Reply":
        """Read an exception, ours or any vendor SDK's: the response it carries counts first."""
        for link in causes(error):
            if (response := response_of(link)) is not None:
                return cls(response=response, write=write)
            if isinstance(link, (httpx.TransportError, httpx.InvalidURL)):
                return cls(error=link, write=write)
        return cls(error=error, write=write)

    @property
    def status(self) -> int | None:
        """The HTTP status; None if there was no response."""
        return None if self.response is None else self.response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, looked up in any case."""
        return {} if self.response is None else self.response.headers

    @cached_property
    def content(self) -> bytes:
        """The body's bytes; empty if there are none to be had."""
        try:
            return b"" if self.response is None else self.response.content
        except (httpx.StreamError, httpx.DecodingError):
            return b""

    @cached_property
    def body(self) -> Any:
        """The body as JSON; None if it is too long, no JSON, cut short or nested beyond sense."""
        raw = self.content.lstrip(b"\xef\xbb\xbf \t\r\n") if len(self.content) <= LARGEST_JSON else b""
        if raw[:1] not in {b"{", b"["}:
            return None
        try:
            return json.loads(raw.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None

    @cached_property
    def text(self) -> str:
        """The body's first ``LARGEST_TEXT`` characters."""
        return self.content[:LARGEST_TEXT].decode("utf-8", "replace")

    @cached_property
    def lower(self) -> str:
        """The text in lower case, for phrases."""
        return self.text.lower()

    @cached_property
    def found(self) -> "_Found":
        """The body's values by path: names joined by dots, alternatives by ``|``, lists fanned out.

        Each path is walked once, however many rows ask for it.
        """
        return _Found(self.body)

    def first(self, *paths: str) -> str | None:
        """Return the first non-empty string at any of the paths; None if there is none."""
        return next(
            (text for path in paths for text in self.found[path] if text and isinstance(text, str)), None
        )


class _Found(dict[str, tuple[Any, ...]]):
    """Path -> values, filled when asked for."""

    def __init__(self, body: object) -> None:
        super().__init__()
        self.body = body
        self.strings = _Strings(self)

    def __missing__(self, path: str) -> tuple[Any, ...]:
        if not path:  # the whole body, a list too: a list of proofs proves nothing
            return self.setdefault(path, (self.body,))
        ways = path.split("|")
        return self.setdefault(path, tuple(v for way in ways for v in _walk(self.body, way.split("."))))


class _Strings(dict[str, frozenset[str]]):
    """Path -> the strings among its values: what most rows ask about, at the cost of one set look-up."""

    def __init__(self, found: _Found) -> None:
        super().__init__()
        self.found = found

    def __missing__(self, path: str) -> frozenset[str]:
        return self.setdefault(path, frozenset(v for v in self.found[path] if isinstance(v, str)))


def _walk(value: Any, names: list[str]) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _walk(item, names)
    elif not names or names == [""]:
        yield value
    elif isinstance(value, dict) and names[0] in value:
        yield from _walk(value[names[0]], names[1:])


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
        return (reply.headers.get(name, "").strip(),)

    return Condition(f"header {name}", match, lambda reply: holds(*read(reply)), read)


def _phrased(phrases: tuple[str, ...]) -> Callable[[Reply], bool]:
    if not phrases or any(not phrase or phrase != phrase.lower() for phrase in phrases):
        msg = f"cannot match {phrases!r}: phrases must be lower case, and at least one"
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

    if isinstance(match, (set, frozenset, tuple, list)):
        apart = _strings(match).isdisjoint
        return Condition(f"body {path}", match, lambda reply: not apart(reply.found.strings[path]), read)
    holds = _predicate(match)
    return Condition(f"body {path}", match, lambda reply: any(map(holds, read(reply))), read)


def _raised(wanted: tuple[Raised, ...]) -> Callable[[Reply], bool]:
    classes = tuple(item for item in wanted if isinstance(item, type))
    names = frozenset(item for item in wanted if isinstance(item, str))
    tests = tuple(item for item in wanted if not isinstance(item, (type, str)))
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
    text = ", ".join("absent" if value in (None, "") else f"{value}"[:40] for value in found[:3])
    return text if len(found) <= 3 else f"{text}, ..."  # noqa: PLR2004 - as above


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

    when: When = When()
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
    _by_status: dict[int | None, tuple[Rule, ...]] = field(init=False, repr=False, compare=False)

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
        rows = self._admitted(reply.status)
        return self.outcome(next(rule for rule in rows if rule.when.matches(reply)), reply)

    def _admitted(self, status: int | None) -> tuple[Rule, ...]:
        """Return the rows that a status leaves, in order: most rows of a book name another one."""
        if (rows := self._by_status.get(status)) is None:
            rows = tuple(rule for rule in self.rules if rule.when.admits(status))
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
        wait = retry_after(reply.headers)
        wait = rule.retry_after_s if wait is None else wait
        said = [rule.say]
        if rule.reason is not Reason.COMPLETED and self._write(reply):
            said.append({Effect.NONE: self.unchanged, Effect.UNKNOWN: self.unconfirmed}.get(effect, ""))
        if rule.reason is Reason.TRANSIENT and wait:
            said.append(f"The service asks callers to wait about {wait} second{'s' * (wait != 1)}.")
        evidence = {
            "status": reply.status,
            "request_id": next((v for name in self.request_ids if (v := reply.headers.get(name))), None),
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
            vendor_code=(reply.first(*self.codes) or "")[:80] or None,
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
            ValueError: The new book breaks a rule of its type.
        """
        at = 0 if rule_id is None else self.rules.index(self[rule_id])
        return replace(self, rules=(*self.rules[:at], rule, *self.rules[at:]))


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
    overloaded = status == httpx.codes.SERVICE_UNAVAILABLE and "retry-after" in reply.headers
    return Effect.NONE if refused or overloaded or status in _CLOUDFLARE_NOT_SENT else Effect.UNKNOWN


Flow: TypeAlias = Generator[Call, Reply, Outcome]
"""A tool, sans I/O: it yields calls, is sent back replies, and returns an outcome."""


def run(flow: Flow, client: httpx.Client) -> Outcome:
    """Drive ``flow`` over a sync client and return its outcome; no HTTP exception leaves it."""
    try:
        call = next(flow)
        while True:
            try:
                reply = Reply(response=client.send(_request(client, call)), write=call.write)
            except Exception as error:
                reply = Reply.from_exception(error, write=call.write)
            call = flow.send(reply)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what a Flow returns is an Outcome


async def arun(flow: Flow, client: httpx.AsyncClient) -> Outcome:
    """Drive ``flow`` over an async client: ``run``, but for the await. Cancellation passes through."""
    try:
        call = next(flow)
        while True:
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
