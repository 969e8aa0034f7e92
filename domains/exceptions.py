"""Read what a vendor's SDK raised, by duck typing: no SDK is a dependency.

The attribute names are those of stripe (``http_status``, ``http_body``), elasticsearch (``meta``, ``body``),
PyGithub (``status``, ``data``), httpx, requests and openai (``response``), and generated clients (``body``).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import httpx

_STATUS: Final = ("status_code", "http_status", "status", "code")
_BODY: Final = ("http_body", "content", "body", "data", "json_body", "text")
_OF_THE_WIRE: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_LINKS: Final = 8
"""Causes looked at: a longer chain is a loop, or says nothing more."""


def response_of(error: BaseException) -> httpx.Response | None:
    """Return the response that an exception carries, as httpx would have given it; None if none."""
    for source in (_get(error, "response"), _get(error, "meta"), error):
        if isinstance(source, httpx.Response):
            return source
        status = next((s for name in _STATUS if (s := _status(_get(source, name)))), None)
        if status is not None:
            body = next((b for owner in (error, source) for b in _bodies(owner)), b"")
            return httpx.Response(status, headers=_headers(source, error), content=body)
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and what it was raised from. A mere context may have nothing to do with it."""
    link: BaseException | None = error
    for _ in range(_LINKS):
        if link is None:
            return
        yield link
        link = link.__cause__


def _get(owner: object, name: str) -> Any:
    """Return an attribute; a foreign one may be a property that reads from a connection long closed."""
    try:
        return getattr(owner, name, None)
    except Exception:  # foreign code, and reading an exception never raises
        return None


def _status(value: object) -> int | None:
    return int(value) if isinstance(value, int) and 100 <= value <= 999 else None  # noqa: PLR2004 - HTTP


def _headers(*owners: object) -> list[tuple[bytes, bytes]]:
    """Return the first mapping of headers, as sendable bytes."""
    for owner in owners:
        headers = _get(owner, "headers")
        if isinstance(headers, Mapping) or hasattr(headers, "items"):
            return sendable(headers.items())
    return []


def sendable(headers: Iterable[tuple[object, object]]) -> list[tuple[bytes, bytes]]:
    """Return headers as httpx takes them from a wire: any text, and a list of values as one each.

    Those that describe the bytes on the wire are left out: we have the body as it reads.
    """
    return [
        (str(name).encode("utf-8", "replace"), str(value).encode("utf-8", "replace"))
        for name, values in headers
        for value in (values if isinstance(values, (list, tuple)) else [values])
        if value is not None and str(name).lower() not in _OF_THE_WIRE
    ]


def _bodies(owner: object) -> Iterator[bytes]:
    for name in _BODY:
        value = _get(owner, name)
        if isinstance(value, (bytes, bytearray)):
            yield bytes(value)
        elif isinstance(value, str) and value:
            yield value.encode("utf-8", "replace")
        elif isinstance(value, (dict, list)):
            try:
                yield json.dumps(value).encode()
            except (TypeError, ValueError, RecursionError):
                continue
