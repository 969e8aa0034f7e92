"""Read raw replies and say, row by row, what a table makes of them.

Reads what a team has at hand: a log of replies, one JSON object a line, or one ``curl -i`` response. A line
holds ``status``, ``headers`` and ``body`` (JSON, or the text as sent), or ``exception`` (a class name); and,
if it is known, ``write`` (whether the request could change something) or ``method``.
"""

import builtins
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx

from domains.exceptions import sendable
from domains.found import DOMAINS, unknown
from domains.infrastructure import BARE
from domains.mapping import Reply, Rule, RuleBook
from domains.when import one_line
from orchestration.outcomes import Outcome

READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HEAD: Final = re.compile(r"HTTP/[\d.]+ (\d{3})[^\n]*\n?((?:[^\n]+(?:\n|\Z))*)\n?")
UNMAPPED: Final = "infrastructure"
"""The name of the table for vendors that nobody mapped."""


def book(name: str) -> RuleBook:
    """Return a domain's table, or the shared one.

    Raises:
        KeyError: There is none of that name; the message names the nearest.
    """
    if name not in (known := [*DOMAINS, UNMAPPED]):
        raise KeyError(unknown(name, known))
    return BARE if name == UNMAPPED else DOMAINS[name].book


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that cannot be read."""

    line: int
    """Its number, from 1."""

    because: str
    """What is wrong with it."""


@dataclass(frozen=True, slots=True)
class Read:
    """A reply that can."""

    line: int
    """Its line's number, from 1."""

    reply: Reply
    """What came back from the vendor."""


def read(text: str) -> Iterator[Read | Broken]:
    """Yield every reply of a log or of one ``curl -i`` response; a broken line stops no other."""
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("HTTP/"):
        yield _tried(1, _curl, text.lstrip())
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _tried(number, _line, line)


def _tried(number: int, reader: Callable[[str], Reply], text: str) -> Read | Broken:
    try:
        return Read(number, reader(text))
    except json.JSONDecodeError as error:
        return Broken(number, f"no JSON object ({error.msg} at column {error.colno})")
    except ValueError as error:
        return Broken(number, str(error))
    except RecursionError:
        return Broken(number, "nested too deep to be read")


def _line(text: str) -> Reply:
    return _reply(json.loads(text))


def _curl(text: str) -> Reply:
    """Read what ``curl -i`` printed; of several responses (100, a proxy's, redirects) the last counts."""
    rest, status, head = text.replace("\r\n", "\n"), 0, ""
    while found := _HEAD.match(rest):
        status, head, rest = int(found[1]), found[2], rest[found.end() :]
    if not status:
        raise ValueError("the first line must be like 'HTTP/1.1 402 Payment Required'")
    headers: dict[str, list[str]] = {}
    for name, colon, value in (line.partition(":") for line in head.split("\n")):
        if colon:
            headers.setdefault(name.strip(), []).append(value.strip())
    return _reply({"status": status, "headers": headers, "body": rest})


def _reply(row: object) -> Reply:
    if not isinstance(row, dict):
        raise ValueError(f"a line must be a JSON object, not {type(row).__name__}")  # noqa: TRY004 - its value
    write = row.get("write")
    if not isinstance(write, bool):
        method = row.get("method")
        write = method.upper() not in READS if isinstance(method, str) else None
    if name := row.get("exception"):
        return Reply(error=_exception(str(name), str(row.get("body") or "")), write=write)
    status = row.get("status")
    if isinstance(status, str) and status.isascii() and status.isdigit():
        status = int(status)
    if type(status) is not int or not 100 <= status <= 999:  # noqa: PLR2004 - HTTP's own range
        raise ValueError(
            f"status must be a number from 100 to 999, or exception a class name; status is {status!r}"
        )
    headers, body = row.get("headers") or {}, row.get("body")
    if not isinstance(headers, dict):
        raise ValueError("headers must be an object of names and values")  # noqa: TRY004 - as above
    content = "" if body is None else body if isinstance(body, str) else json.dumps(body)
    response = httpx.Response(
        status, headers=sendable(headers.items()), content=content.encode("utf-8", "replace")
    )
    return Reply(response=response, write=write)


def _exception(name: str, text: str) -> Exception:
    """Return an exception of that name: httpx's own class, a built-in, or one that is only named so."""
    short = name.rpartition(".")[2]
    found: Any = getattr(httpx, short, None) or getattr(builtins, short, None)
    # An ExceptionGroup cannot be empty, so it is only named so.
    known = isinstance(found, type) and issubclass(found, Exception) and found is not ExceptionGroup
    kind: type[Exception] = found if known else type(short, (Exception,), {})
    error = kind.__new__(kind)  # httpx's own take a request or a response that is long gone
    error.args = (text,)
    return error


def answer(outcome: Outcome) -> dict[str, Any]:
    """Return what ``domains explain --json`` prints of an outcome."""
    return {
        "reason": outcome.reason.value,
        "stop": outcome.stop,
        "rule": outcome.rule,
        "effect": outcome.effect.value,
        "retry_after_s": outcome.retry_after_s,
        "vendor_code": outcome.vendor_code,
    }


def summary(table: RuleBook, replies: Iterable[Reply]) -> dict[str, Any]:
    """Count replies by row, and what no row of the table or of the shared one knew, most frequent first."""
    rows: Counter[str] = Counter()
    unknown: Counter[tuple[str, str]] = Counter()
    for reply in replies:
        outcome = table.classify(reply)
        rows[outcome.rule] += 1
        if outcome.rule == table.fallback.id:
            status = str(reply.status or type(reply.error).__name__)
            unknown[status, outcome.vendor_code or one_line(reply.text, 60)] += 1
    return {
        "replies": rows.total(),
        "rows": [
            {"rule": rule, "reason": table[rule].reason.value, "count": n} for rule, n in rows.most_common()
        ],
        "unmapped": [
            {"status": status, "reply": said, "count": n} for (status, said), n in unknown.most_common()
        ],
    }


def table_rows(name: str) -> list[dict[str, Any]]:
    """Return a table's own rows as plain data, in order; the shared rows are those of ``infrastructure``."""
    table = book(name)
    shared = {rule.id for rule in BARE.rules} if name != UNMAPPED else set()
    return [_row(rule, "") for rule in table.rules if rule.id not in shared] + [
        _row(rule, "picked by the flow") for rule in table.picked
    ]


def _row(rule: Rule, when: str) -> dict[str, Any]:
    return {
        "id": rule.id,
        "reason": rule.reason.value,
        "when": when or str(rule.when),
        "say": rule.say,
        "why": rule.why,
        "source": rule.source,
        "effect": rule.effect.value if rule.effect else None,
        "retry_after_s": rule.retry_after_s,
    }
