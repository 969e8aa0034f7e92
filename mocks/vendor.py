"""What every imitated vendor shares: a wire, a clock of its own, and faults on a schedule.

A vendor answers through real routes of a [respx](https://lundberg.github.io/respx/) router that
is mounted on `httpx.MockTransport`. Nothing is patched, so only the clients made here reach it.
There is no real clock and no randomness: the same requests and faults give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from threading import RLock
from typing import Any, ClassVar, Final, TypeAlias
from urllib.parse import parse_qsl

import httpx
import respx
from respx.models import AllMockedAssertionError

JSON: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None
"""A JSON value as Python holds it."""

START: Final = 1_767_225_600
"""Where every vendor's clock starts: 2026-01-01T00:00:00Z, in seconds since 1970."""

NEVER_SENT: Final[Mapping[str, Callable[[str, httpx.Request], Exception]]] = {
    "ConnectError": lambda text, request: httpx.ConnectError(text, request=request),
    "ConnectTimeout": lambda text, request: httpx.ConnectTimeout(text, request=request),
    "PoolTimeout": lambda text, request: httpx.PoolTimeout(text, request=request),
    "ProxyError": lambda text, request: httpx.ProxyError(text, request=request),
    "UnsupportedProtocol": lambda text, request: httpx.UnsupportedProtocol(text, request=request),
    "LocalProtocolError": lambda text, request: httpx.LocalProtocolError(text, request=request),
    "InvalidURL": lambda text, _: httpx.InvalidURL(text),
}
"""Exceptions that prove that no request left, by class name."""

MAYBE_SENT: Final[Mapping[str, Callable[[str, httpx.Request], Exception]]] = {
    "ReadTimeout": lambda text, request: httpx.ReadTimeout(text, request=request),
    "WriteTimeout": lambda text, request: httpx.WriteTimeout(text, request=request),
    "ReadError": lambda text, request: httpx.ReadError(text, request=request),
    "WriteError": lambda text, request: httpx.WriteError(text, request=request),
    "CloseError": lambda text, request: httpx.CloseError(text, request=request),
    "RemoteProtocolError": lambda text, request: httpx.RemoteProtocolError(text, request=request),
    "DecodingError": lambda text, request: httpx.DecodingError(text, request=request),
    "TooManyRedirects": lambda text, request: httpx.TooManyRedirects(text, request=request),
    "StreamError": lambda text, _: httpx.StreamError(text),
}
"""Exceptions after which the vendor may have done the work, by class name."""

EXCEPTIONS: Final = {**NEVER_SENT, **MAYBE_SENT}
"""Every httpx exception a fault can raise; see https://www.python-httpx.org/exceptions/."""

KINDS: Final = ("answer", "truncated", *EXCEPTIONS)
"""The closed list of fault kinds."""

WHENS: Final = ("before", "after", "late")
"""The closed list of moments; see `Fault.when`."""


def _possible(kind: str, when: str) -> bool:
    """Say whether the pair can happen on a real wire."""
    if kind in NEVER_SENT:
        return when == "before"
    return when != "late" if kind == "truncated" else True


PAIRS: Final = tuple((kind, when) for kind in KINDS for when in WHENS if _possible(kind, when))
"""Every pair (kind, when) a `Fault` accepts, for tests that draw schedules."""


class UnmatchedRequestError(AllMockedAssertionError):
    """A request that the imitated vendor has no route for: a hole in the mock, or a wrong path.

    It is an AssertionError on purpose: code that treats it as a bad network is wrong. It is also
    kept in `Vendor.unmatched`, since a net that catches every exception would hide it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong on the wire; plain data, so a schedule pickles and replays.

    Raises:
        ValueError: at construction, for a kind or moment outside the closed lists, for a pair
            that cannot happen (an unsent request whose work was done), or for a count below 1.
    """

    kind: str
    """`answer`, `truncated`, or the class name of an httpx exception: one of `KINDS`."""

    at: str = "*"
    """Glob on "METHOD /path", e.g. `POST /v1/payment_intents/*/confirm`; `*` matches `/` too."""

    nth: int | None = None
    """Only the nth request (from 1) that this vendor receives on any path; None: any position."""

    when: str = "before"
    """`before`: the vendor never does the work. `after`: it does, then the fault is what the
    client gets. `late`: the client gets the fault now, the work is done `delay` requests later.
    `truncated` cuts the vendor's own reply, so it is always `after`."""

    times: int = 1
    """How many matching requests it applies to."""

    delay: int = 1
    """For `late`: the work is done just before the delay-th later request is handled."""

    status: int = 500
    """HTTP status of an `answer`."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of an `answer`; they win over the vendor's own."""

    body: JSON | bytes = None
    """Body of an `answer`: JSON value, text or bytes as sent. Text and bytes come from a
    gateway, so they get none of the vendor's headers. None: the vendor's headers, no body."""

    saved: bool = False
    """Whether the vendor itself made this `answer` and stores it under the request's idempotency
    key (a 500 in the middle of the work). False: something between client and vendor did."""

    def __post_init__(self) -> None:
        """Refuse what cannot happen, where it is written and not where it would bite."""
        if self.kind not in KINDS:
            msg = f"unknown fault kind {self.kind!r}; known kinds: {', '.join(KINDS)}"
            raise ValueError(msg)
        if self.when not in WHENS:
            msg = f"unknown moment {self.when!r}; known moments: {', '.join(WHENS)}"
            raise ValueError(msg)
        if not _possible(self.kind, self.when):
            msg = f"{self.kind} cannot come with when={self.when!r}"
            raise ValueError(msg)
        if min(self.times, self.delay, self.nth or 1) < 1 or self.nth == 0:
            msg = "times, delay and nth count from 1"
            raise ValueError(msg)
        if self.kind == "truncated":
            object.__setattr__(self, "when", "after")

    def fits(self, where: str, position: int) -> bool:
        """Say whether it applies to the request `where` ("METHOD /path") at this position."""
        return self.nth in (None, position) and fnmatchcase(where, self.at)


def answer(
    status: int,
    body: JSON | bytes = None,
    *,
    at: str = "*",
    headers: Mapping[str, str] | None = None,
    when: str = "before",
    nth: int | None = None,
    times: int = 1,
    saved: bool = False,
) -> Fault:
    """Make a fault that forces this reply."""
    return Fault(
        kind="answer",
        at=at,
        nth=nth,
        when=when,
        times=times,
        status=status,
        headers=headers or {},
        body=body,
        saved=saved,
    )


def timeout(at: str = "*", *, when: str = "before", nth: int | None = None) -> Fault:
    """Make a read timeout: the request was sent, no answer came in time."""
    return Fault(kind="ReadTimeout", at=at, when=when, nth=nth)


def reset(at: str = "*", *, when: str = "before", nth: int | None = None) -> Fault:
    """Make a connection that breaks while the client waits for the answer."""
    return Fault(kind="ReadError", at=at, when=when, nth=nth)


def refused(at: str = "*", *, nth: int | None = None) -> Fault:
    """Make a refused connection: nothing was sent."""
    return Fault(kind="ConnectError", at=at, nth=nth)


def truncated(at: str = "*", *, nth: int | None = None) -> Fault:
    """Make a reply that keeps its status and loses the second half of its body."""
    return Fault(kind="truncated", at=at, when="after", nth=nth)


def html_502(at: str = "*", *, when: str = "before", nth: int | None = None) -> Fault:
    """Make the HTML page of a gateway in front of the vendor."""
    page = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    return answer(502, page, at=at, when=when, nth=nth)


def rate_limited(
    at: str = "*", *, retry_after: int | None = None, nth: int | None = None, times: int = 1
) -> Fault:
    """Make a plain 429; `retry_after` is in seconds. The work is never done."""
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    return answer(429, {"message": "slow down"}, at=at, headers=headers, nth=nth, times=times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request as the vendor reads it."""

    method: str
    """HTTP method, upper case."""

    path: str
    """URL path, decoded, without the query."""

    params: Mapping[str, str]
    """Query parameters; of repeated names the last value."""

    form: Mapping[str, str]
    """Form-encoded body; empty for other bodies."""

    text: str
    """The body as text, invalid UTF-8 replaced."""

    headers: httpx.Headers
    """Request headers, names in any case."""

    parts: Mapping[str, str]
    """The variable parts of the path, by name."""

    position: int
    """The how-many-eth request of this vendor it is, from 1."""

    @property
    def where(self) -> str:
        """The "METHOD /path" that `Fault.at` is matched with."""
        return f"{self.method} {self.path}"

    def json(self) -> JSON:
        """Return the body as JSON.

        Raises:
            ValueError: if it is none.
        """
        parsed: JSON = json.loads(self.text)
        return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One reply as it goes over the wire."""

    status: int
    """HTTP status."""

    body: bytes = b""
    """Body as sent."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """Response headers, lower-case names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request in a vendor's log."""

    method: str
    """HTTP method."""

    path: str
    """URL path."""

    outcome: int | str
    """What the client got: an HTTP status, or the class name of an exception."""

    worked: bool
    """Whether the vendor handled it; turns true later for `late` work."""


Work: TypeAlias = Callable[[Ask], Wire]
"""One endpoint of a vendor."""


@dataclass(slots=True, kw_only=True)
class _Late:
    """Work that the client was already told has failed."""

    due: int
    ask: Ask
    work: Work
    row: int


class Vendor:
    """An imitated vendor: routes, faults, a log and a clock; safe to call from many threads."""

    url: ClassVar[str] = "https://vendor.example"
    """Where the real vendor lives; the default base URL."""

    json_type: ClassVar[str] = "application/json"
    """Content type of the vendor's JSON replies."""

    scheme: ClassVar[str] = "Bearer"
    """Authorization scheme of the clients made here."""

    def __init__(
        self,
        *,
        faults: Iterable[Fault] = (),
        base_url: str | None = None,
        key: str = "mock-key",
    ) -> None:
        """Start empty; `key` is the one credential the vendor accepts."""
        self.base_url = base_url or self.url
        self.key = key
        self.now = START
        self.requests: list[Seen] = []
        self.unmatched: list[str] = []
        self.router = respx.Router(assert_all_mocked=True, assert_all_called=False, base_url=self.base_url)
        self.transport = httpx.MockTransport(self._receive)
        self._faults: list[tuple[Fault, int]] = []
        self._late: list[_Late] = []
        self._position = 0
        self._counts: dict[str, int] = {}
        # One lock around all work: real vendors serialise per object, which looks the same from
        # outside. It is re-entrant because oracles may be called by code that holds it.
        self._lock = RLock()
        self.script(*faults)

    def script(self, *faults: Fault) -> None:
        """Add faults behind those already scripted; the first that fits a request applies."""
        with self._lock:
            self._faults += [(fault, fault.times) for fault in faults]

    def advance(self, *, seconds: int = 0, minutes: int = 0, hours: int = 0) -> None:
        """Move the vendor's clock forward."""
        with self._lock:
            self.now += seconds + 60 * minutes + 3600 * hours

    def settle(self) -> None:
        """Do all late work now, in the order it was received."""
        with self._lock:
            self._run_late(upto=None)

    def done(self) -> int:
        """Return how many things in the real world were changed for good: money, tickets, records.

        The oracle of the fault schedule. A vendor that is only asked has nothing to count.
        """
        return 0

    def headers(self) -> dict[str, str]:
        """Return the headers a client of this vendor sends with every request."""
        return {"authorization": f"{self.scheme} {self.key}"}

    def client(self, **options: Any) -> httpx.Client:
        """Return a client with base URL and credential; options go to `httpx.Client`."""
        return httpx.Client(**self._options(options))

    def async_client(self, **options: Any) -> httpx.AsyncClient:
        """Return the asynchronous twin of `client`."""
        return httpx.AsyncClient(**self._options(options))

    # What an imitation is made of.

    def route(self, method: str, path: str, work: Work) -> None:
        """Add an endpoint; `path` is a regular expression, its named groups become `Ask.parts`."""

        def serve(request: httpx.Request, **parts: str) -> httpx.Response:
            return self._serve(request, work, parts)

        self.router.route(method=method, path__regex=f"^{path}$").mock(side_effect=serve)

    def count(self, prefix: str) -> str:
        """Return the next id with this prefix: `pi_1`, `pi_2`, and so on."""
        self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}{self._counts[prefix]}"

    def reply(self, status: int, body: JSON, **headers: str) -> Wire:
        """Return a JSON reply; `_` in a header's name stands for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Wire(status=status, body=json.dumps(body).encode(), headers=named)

    def perform(self, ask: Ask, work: Work) -> Wire:
        """Handle one request; imitations put authentication and idempotency around it."""
        return work(ask)

    def own_headers(self, ask: Ask) -> dict[str, str]:
        """Return the headers of every reply that the vendor itself makes."""
        del ask
        return {"content-type": self.json_type}

    def hold(self, ask: Ask) -> None:
        """Note that this request is received and its work will be done later."""

    def release(self, ask: Ask) -> None:
        """Note that the work of a held request is about to be done."""

    def save(self, ask: Ask, wire: Wire) -> None:
        """Store a forced answer as this request's own result (see `Fault.saved`)."""

    # The engine.

    def _options(self, given: dict[str, Any]) -> dict[str, Any]:
        # httpx.Headers compares names in any case; two dicts would send both credentials.
        headers = httpx.Headers(self.headers())
        headers.update(given.get("headers"))
        own = {"base_url": self.base_url, "transport": self.transport}
        return {**own, **given, "headers": headers}

    def _receive(self, request: httpx.Request) -> httpx.Response:
        try:
            return self.router.handler(request)
        except AllMockedAssertionError:
            where = f"{request.method} {request.url.copy_with(query=None)}"
            with self._lock:
                self.unmatched.append(where)
            msg = f"{type(self).__name__} has no route for {where}"
            raise UnmatchedRequestError(msg) from None

    def _serve(self, request: httpx.Request, work: Work, parts: Mapping[str, str]) -> httpx.Response:
        with self._lock:
            self._position += 1
            self._run_late(upto=self._position)
            ask = _read(request, parts, self._position)
            fault = self._take(ask)
            if fault is None:
                wire = self._dress(ask, self.perform(ask, work))
                self._log(ask, wire.status, worked=True)
            else:
                wire = self._fail(ask, work, fault, request)
            return httpx.Response(wire.status, headers=dict(wire.headers), content=wire.body, request=request)

    def _take(self, ask: Ask) -> Fault | None:
        for index, (fault, left) in enumerate(self._faults):
            if left and fault.fits(ask.where, ask.position):
                self._faults[index] = (fault, left - 1)
                return fault
        return None

    def _fail(self, ask: Ask, work: Work, fault: Fault, request: httpx.Request) -> Wire:
        truth: Wire | None = None
        if fault.when == "after":
            truth = self.perform(ask, work)
        elif fault.when == "late":
            self.hold(ask)
            row = len(self.requests)
            due = ask.position + fault.delay
            self._late.append(_Late(due=due, ask=ask, work=work, row=row))
        made = EXCEPTIONS.get(fault.kind)
        if made is not None:
            self._log(ask, fault.kind, worked=truth is not None)
            msg = f"{fault.kind} made by {type(self).__name__}"
            raise made(msg, request)
        if fault.kind == "truncated" and truth is not None:
            whole = self._dress(ask, truth)
            self._log(ask, whole.status, worked=True)
            return replace(whole, body=whole.body[: len(whole.body) // 2])
        forced = self._forced(ask, fault)
        self._log(ask, forced.status, worked=truth is not None)
        return forced

    def _forced(self, ask: Ask, fault: Fault) -> Wire:
        headers = {name.lower(): value for name, value in fault.headers.items()}
        if isinstance(fault.body, bytes | str):
            raw = fault.body.encode() if isinstance(fault.body, str) else fault.body
            kind = "text/html" if raw.lstrip()[:1] == b"<" else "text/plain; charset=utf-8"
            return Wire(status=fault.status, body=raw, headers={"content-type": kind, **headers})
        body = b"" if fault.body is None else json.dumps(fault.body).encode()
        wire = Wire(status=fault.status, body=body, headers=headers)
        if fault.saved:
            self.save(ask, wire)
        return self._dress(ask, wire)

    def _dress(self, ask: Ask, wire: Wire) -> Wire:
        return replace(wire, headers={**self.own_headers(ask), **wire.headers})

    def _log(self, ask: Ask, outcome: int | str, *, worked: bool) -> None:
        row = Seen(method=ask.method, path=ask.path, outcome=outcome, worked=worked)
        self.requests.append(row)

    def _run_late(self, *, upto: int | None) -> None:
        due = [late for late in self._late if upto is None or late.due <= upto]
        self._late = [late for late in self._late if upto is not None and late.due > upto]
        for late in due:
            self.release(late.ask)
            self.perform(late.ask, late.work)
            self.requests[late.row] = replace(self.requests[late.row], worked=True)


def _read(request: httpx.Request, parts: Mapping[str, str], position: int) -> Ask:
    text = request.content.decode("utf-8", "replace")
    form = "application/x-www-form-urlencoded" in request.headers.get("content-type", "")
    return Ask(
        method=request.method,
        path=request.url.path,
        params=dict(request.url.params.multi_items()),
        form=dict(parse_qsl(text, keep_blank_values=True)) if form else {},
        text=text,
        headers=request.headers,
        parts=dict(parts),
        position=position,
    )
