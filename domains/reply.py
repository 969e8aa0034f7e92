"""What a flow sends, and what came back, read without ever raising.

``Call`` is one request, ``Progress`` what a screen shows before it is sent, ``Reply`` a response or the
exception in its place.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final

import httpx

from domains.exceptions import causes, response_of

LARGEST_JSON: Final = 32 * 1024 * 1024
"""Bytes. A longer body is not parsed: it proves nothing, and memory stays bounded."""

LARGEST_TEXT: Final = 4096
"""Characters of a body that patterns see: pages say who they are at their top."""

DEEPEST_LIST: Final = 16
"""Lists right inside each other. Vendors nest one or two; a reply of thousands is looked at no further."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a long job is, for a screen. No model reads it, and no router acts on it."""

    about: str
    """What the job is about, as the caller named it."""

    says: str
    """Our own sentence."""

    percent: int | None = None
    """0 to 100; None if the vendor does not say."""


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

    after_s: float = 0.0
    """Seconds to wait before it is sent: a poll must not come too early."""

    progress: Progress | None = None
    """What a screen shows meanwhile."""


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
    def named(self) -> dict[str, str]:
        """The headers by lower-case name, read once: httpx searches its list at every look-up."""
        return {name.lower(): value for name, value in self.headers.items()}

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
        return self.setdefault(path, tuple(_walk(self.body, _ways(path))))


class _Strings(dict[str, frozenset[str]]):
    """Path -> the strings among its values: what most rows ask about, at the cost of one set look-up."""

    def __init__(self, found: _Found) -> None:
        super().__init__()
        self.found = found

    def __missing__(self, path: str) -> frozenset[str]:
        return self.setdefault(path, frozenset(v for v in self.found[path] if isinstance(v, str)))


@cache  # the tables' own paths, a few hundred
def _ways(path: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(way.split(".")) for way in path.split("|"))


def _walk(body: object, ways: tuple[tuple[str, ...], ...]) -> list[Any]:
    """Return what stands at the ends of the ways. Loops, not generators: most time is spent here."""
    tops = _items(body) if isinstance(body, list) else [body]
    ends: list[Any] = []
    for way in ways:
        values = tops
        for name in way:
            inner: list[Any] = []
            for value in values:
                if isinstance(value, dict) and name in value:
                    item = value[name]
                    if isinstance(item, list):
                        inner += _items(item)
                    else:
                        inner.append(item)
            values = inner
            if not values:
                break
        ends += values
    return ends


def _items(value: list[Any], lists: int = DEEPEST_LIST) -> list[Any]:
    """Return a list's items, those of the lists in it in their place."""
    items: list[Any] = []
    for item in value:
        if not isinstance(item, list):
            items.append(item)
        elif lists > 1:
            items += _items(item, lists - 1)
    return items
