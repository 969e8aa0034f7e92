"""The tool ``search``: words in, the best few documents out."""

import os
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

import httpx
from langchain_core.tools import BaseTool

from domains.mapping import Call, Flow, Reply
from domains.search.rules import BOOK
from domains.tool import as_tool, connect
from orchestration.outcomes import Outcome, printable
from orchestration.reasons import Reason

SHOWN: Final = 5
"""Hits that the model and the user read; the rest of the page stays out of the prompt."""

LONGEST_QUERY: Final = 1000
"""Characters. Every word becomes a clause, and Elasticsearch refuses queries of too many."""

LONGEST_TITLE: Final = 120
LONGEST_SNIPPET: Final = 200
LONGEST_ID: Final = 64
"""Characters of a hit's parts: five of them fit a prompt and a screen, whatever the documents hold."""

HIGHEST_PRICE: Final = 10**9
"""A number above it is no price."""

RESENT: Final = frozenset({500, 502, 503, 504})
"""Statuses after which the same read is sent once more: nothing can have been changed."""

_BREAKS: Final = frozenset({"Cc", "Zl", "Zp"})
"""Unicode categories of what ends a line or steers a terminal."""

_JOINER: Final = "\u200d"
"""Zero width joiner: what stands around it is one character to the eye."""


def tools(
    *,
    client: httpx.Client | None = None,
    async_client: httpx.AsyncClient | None = None,
    index: str = "products",
) -> list[BaseTool]:
    """Return the tool ``search``, bound to one index.

    Args:
        client: Sends a sync run's requests. With neither client the real service is used:
            ``ELASTICSEARCH_URL`` names it, ``ELASTICSEARCH_API_KEY`` opens it.
        async_client: Sends an async run's requests.
        index: An index, an alias, or a pattern of names. Configuration: the model never chooses it.

    Raises:
        RuntimeError: No client is given and no key is set.
    """
    if client is None and async_client is None:
        url = os.environ.get("ELASTICSEARCH_URL", "http://localhost:9200")
        client, async_client = connect(url, "ELASTICSEARCH_API_KEY", _headers)
    path = f"/{quote(index, safe='*,:<>')}/_search"

    def search(query: str) -> Flow:
        """Search the shop for products; returns the best few with id, price and a short description.

        Args:
            query: The words to look for, the telling ones only.
        """
        words = " ".join(printable(query).split())
        if not words:
            return BOOK.pick("search/empty-query", Reply())
        if len(words) > LONGEST_QUERY:
            return BOOK.pick("search/long-query", Reply())
        call = Call("POST", path, json=_request(words))
        reply = yield call
        outcome = BOOK.classify(reply)
        if outcome.reason is Reason.TRANSIENT and _lost(reply):
            reply = yield call
            outcome = BOOK.classify(reply)
        return _presented(outcome, reply)

    return [as_tool(search, client=client, async_client=async_client)]


def _headers(key: str) -> Mapping[str, str]:
    return {"authorization": f"ApiKey {key}", "accept": "application/json"}


def _request(words: str) -> Mapping[str, Any]:
    """Ask with the query that has no syntax: whatever the model writes, it is words to look for."""
    return {
        "query": {"multi_match": {"query": words, "fields": ["title^2", "body"]}},
        "_source": ["title", "body", "price"],
        "size": SHOWN,
    }


def _lost(reply: Reply) -> bool:
    """Whether the answer is missing, unreadable or a passing fault that names no time to wait."""
    if reply.status is None:
        return True
    if reply.status in RESENT:
        return "retry-after" not in reply.headers
    return 200 <= reply.status < 300 and reply.body is None  # noqa: PLR2004 - HTTP's own class


def _presented(outcome: Outcome, reply: Reply) -> Outcome:
    """Put what was found into the text, and its count beside it."""
    found = _object(reply.body) if reply.status == httpx.codes.OK else {}
    hits = _object(found.get("hits"))
    rows = [row for row in _listed(hits.get("hits")) if isinstance(row, dict)]
    total, exact = _count(hits.get("total"))
    facts = {"took": found.get("took"), "total": total}
    evidence = {**outcome.evidence, **{name: fact for name, fact in facts.items() if type(fact) is int}}
    lines = [_line(number, row) for number, row in enumerate(rows[:SHOWN], start=1)]
    if not lines or outcome.reason not in {Reason.COMPLETED, Reason.TRANSIENT}:
        return replace(outcome, evidence=evidence)
    if outcome.reason is Reason.TRANSIENT:
        heading = f"{outcome.content} So far there is:"
    else:
        count = len(rows) if total is None else total
        results = f"{'' if exact else 'at least '}{count} result{'s' * (count != 1)}"
        heading = f"Found {results}{f', the best {len(lines)} of them' * (count > len(lines))}:"
    return replace(outcome, content="\n".join([heading, *lines]), evidence=evidence)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(total: object) -> tuple[int | None, bool]:
    """Read a total: a number up to 6.x, from 7.x on an object that may say it is a lower bound."""
    count = total.get("value") if isinstance(total, dict) else total
    exact = not (isinstance(total, dict) and total.get("relation") == "gte")
    return (count if type(count) is int else None), exact


def _line(number: int, hit: Mapping[str, Any]) -> str:
    """Write one hit on one line, from whitelisted fields alone."""
    fields = _object(hit.get("_source"))
    title = _plain(fields.get("title"), LONGEST_TITLE) or "(no title)"
    price = fields.get("price")
    cost = f", price {price:.2f}" if _is_price(price) else ""
    snippet = _plain(fields.get("body"), LONGEST_SNIPPET)
    tail = f": {snippet}" if snippet else ""
    return f"{number}. {title} [{_plain(hit.get('_id'), LONGEST_ID)}{cost}]{tail}"


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < HIGHEST_PRICE


def _plain(value: object, longest: int) -> str:
    """Return a document's text as part of one line: data, whatever it says and however long it is.

    Line breaks and control characters become spaces, lone surrogates vanish; every other code point
    stays as it is. The cut falls between words if it can, never inside a composed character.
    """
    first = next((v for v in value if isinstance(v, str)), "") if isinstance(value, list) else value
    # A little more is read than shown: the rest of 5 MB is never looked at.
    text = printable(first[: 4 * longest]) if isinstance(first, str) else ""
    spaced = "".join(" " if unicodedata.category(c) in _BREAKS else c for c in text)
    line = " ".join(part for part in spaced.split(" ") if part)
    if len(line) <= longest:
        return line
    end = line.rfind(" ", longest // 2, longest)
    if end < 0:
        end = longest - 1
        while end and (unicodedata.combining(line[end]) or _JOINER in line[end - 1 : end + 1]):
            end -= 1
    return f"{line[:end]}…"
