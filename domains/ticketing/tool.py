"""``create_ticket``: one open issue for one request, however often it is called.

GitHub has no idempotency key. The key's place is taken by a marker, a hash of what the ticket is about, in a
comment on the first line of the issue's text; the text of the customer always stands behind it, so that
nothing that a customer writes can be taken for a marker. (People who open issues by hand can forge one: it
guards against repetition, not against them.) What holds:

- before anything is sent, the open issues are read; the marker found is a ticket on file;
- after a write, whatever its answer, they are read again: of several open issues with one marker the one
  with the lowest number stays, the others are closed as duplicates. Every call does that for what an
  earlier one left behind;
- in one process, calls with one marker run one after another (``lanes``).

A request that reaches GitHub after our last look stays open until the next call with its marker.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from hashlib import sha256
from typing import Any, Final, TypeAlias
from unicodedata import normalize
from urllib.parse import parse_qsl

import httpx
from langchain_core.tools import BaseTool, StructuredTool

from domains.mapping import Call, Flow, Reply
from domains.ticketing.lanes import Lanes
from domains.ticketing.rules import BOOK
from domains.tool import as_tool, connect
from orchestration.outcomes import Outcome, printable
from orchestration.reasons import Effect, Reason

LONGEST_TITLE: Final = 256
"""Characters."""

LONGEST_TEXT: Final = 65_536 - 50
"""Characters: GitHub's limit, less the marker's line and an empty one."""

MOST_PAGES: Final = 200
"""Pages of 100 open issues that a look-up reads: a longer list is a broken server."""

PATIENCE_S: Final = 120.0
"""Seconds that a call waits for another one with the same marker."""

LANES: Final = Lanes(PATIENCE_S)
"""Of the whole process: two tools on one repository share their tickets."""

_API: Final = "https://api.github.com"
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")


def tools(
    *,
    client: httpx.Client | None = None,
    async_client: httpx.AsyncClient | None = None,
    repository: str = "acme/support",
) -> list[BaseTool]:
    """Return the ticketing tools.

    Args:
        client: Sends a sync run's calls. With neither client given, both are made for GitHub itself, with the
            token in ``GITHUB_TOKEN``.
        async_client: Sends an async run's calls.
        repository: ``owner/name`` of the repository whose issues are the tickets.

    Raises:
        ValueError: ``repository`` is of another form.
        RuntimeError: No client is given and ``GITHUB_TOKEN`` is not set.
    """
    if not _REPOSITORY.fullmatch(repository):
        raise ValueError(f"repository must read owner/name, not {repository!r}")
    if client is None and async_client is None:
        client, async_client = connect(_API, "GITHUB_TOKEN", _headers)
    address = next(c.base_url for c in (client, async_client) if c is not None)
    flow = ticket_flow(repository, host=address.host.removeprefix("api.") or "github.com")
    # The title is no free text: without a reference it is what the ticket is about, and two titles are two
    # tickets. With a reference, a reworded title costs one look-up and opens nothing.
    tool = as_tool(flow, client=client, async_client=async_client, free_text=("body",))
    return [_one_by_one(tool, lambda arguments: marker(repository, **arguments))]


def _headers(token: str) -> Mapping[str, str]:
    return {
        "authorization": f"Bearer {token}",
        "accept": "application/vnd.github+json",
        "x-github-api-version": "2022-11-28",
        "user-agent": "short-circuit-ticketing",
    }


def marker(repository: str, title: str, body: str = "", reference: str = "") -> str:
    """Return the hash of what a ticket is about: its reference, or else its title.

    Case and spacing do not count: models reword them. Nor does the text: it is worded anew each time.
    """
    del body
    named = _folded(reference)
    about = ["reference", named] if named else ["title", _folded(title)]
    return sha256(json.dumps([_folded(repository), *about]).encode()).hexdigest()[:32]


def _folded(text: str) -> str:
    return " ".join(normalize("NFC", printable(text)).casefold().split())


@dataclass(frozen=True, slots=True)
class Issue:
    """One open issue that holds the marker."""

    number: int
    """Counts from 1 within its repository; the lowest one of a marker stays."""

    link: str | None
    """Its page, for people; None if the reply names none that we would show."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """What the list of open issues says of a marker."""

    issues: tuple[Issue, ...]
    """The open issues with the marker, lowest number first."""

    reply: Reply
    """The last reply."""

    failed: Outcome | None = None
    """Why the list could not be read to its end."""


LookUpFlow: TypeAlias = Generator[Call, Reply, LookUp]


def ticket_flow(repository: str, host: str = "github.com") -> Callable[..., Flow]:
    """Return the flow for one repository.

    Args:
        repository: ``owner/name``.
        host: Where people read issues; a link to any other place is not shown.
    """
    page = re.compile(rf"https://{re.escape(host)}/[\w.-]+/[\w.-]+/issues/(\d+)", re.ASCII)
    desk = _Desk(f"/repos/{repository}/issues", page)

    def create_ticket(title: str, body: str = "", reference: str = "") -> Flow:
        """Open a support ticket for the customer. The same ticket is never opened twice.

        Args:
            title: What it is about, in a few words.
            body: The details, in Markdown.
            reference: What identifies the matter elsewhere, such as an order number, if there is one.
        """
        key = marker(repository, title, body, reference)
        outcome = yield from desk.file(printable(title), printable(body), key)
        return replace(outcome, key=key)

    return create_ticket


@dataclass(frozen=True, slots=True)
class _Desk:
    """The issues of one repository."""

    path: str
    page: re.Pattern[str]
    """What the address of an issue's page looks like; its group is the number."""

    def file(self, title: str, body: str, key: str) -> Flow:
        flaw = _flaw(title, body)
        if flaw is not None:
            return BOOK.pick(flaw, Reply())
        mark = f"<!-- ticket {key} -->"
        before = yield from self._look_up(mark)
        if before.issues:
            on_file = BOOK.pick("ticketing/on-file", before.reply, already_applied=True)
            return (yield from self._keep_one(before, on_file))
        if before.failed is not None:
            # Nothing was sent: whatever the list would have said, this call has opened no ticket.
            return replace(before.failed, content=f"{before.failed.content} {BOOK.unchanged}")
        return (yield from self._post(title, f"{mark}\n\n{body}" if body else mark, mark))

    def _post(self, title: str, text: str, mark: str) -> Flow:
        reply = yield Call("POST", self.path, json={"title": title, "body": text}, write=True)
        outcome = BOOK.classify(reply)
        own = self._issue(reply.body) if outcome.reason is Reason.COMPLETED else None
        exists = outcome.rule == "ticketing/exists" or reply.status == httpx.codes.CONFLICT
        if own is None and outcome.effect is not Effect.UNKNOWN and not exists:
            return outcome
        after = yield from self._look_up(mark)
        if own is not None:
            # The list may lag behind the answer, which is the better witness of our own issue.
            issues = _sorted({issue.number: issue for issue in (*after.issues, own)})
            return (yield from self._keep_one(replace(after, issues=issues), outcome, own))
        if after.issues:
            facts = {"already_applied": True} if exists else {"answer_lost": True}
            return (yield from self._keep_one(after, BOOK.pick("ticketing/on-file", reply, **facts)))
        if outcome.effect is Effect.UNKNOWN and outcome.reason is not Reason.TRANSIENT:
            return BOOK.pick("ticketing/unconfirmed", reply)
        return outcome

    def _look_up(self, mark: str) -> LookUpFlow:
        """Read the open issues to the end, newest first, and return those with the marker.

        The list, not the search: that one lags by seconds to minutes. Of the link to the next page only the
        query is taken: it may hold a cursor, without which GitHub serves no long list, but the host and the
        repository are ours. What was found before a page failed is kept: it is proof.
        """
        params: dict[str, str] = {"state": "open", "sort": "created", "direction": "desc", "per_page": "100"}
        issues: dict[int, Issue] = {}
        reply = Reply()
        for _ in range(MOST_PAGES):
            reply = yield Call("GET", self.path, params=params)
            rows = _rows(reply)
            if rows is None:
                return LookUp(_sorted(issues), reply, _unread(reply))
            ours = (self._issue(row) for row in rows if _holds(row, mark))
            issues |= {issue.number: issue for issue in ours}
            following = _next_page(reply)
            if following is None:
                return LookUp(_sorted(issues), reply)
            params = following
        return LookUp(_sorted(issues), reply, BOOK.pick("ticketing/endless-list", reply))

    def _keep_one(self, found: LookUp, outcome: Outcome, own: Issue | None = None) -> Flow:
        """Close all but the issue with the lowest number, and answer with that one."""
        kept, *copies = found.issues
        facts: dict[str, Any] = {"number": kept.number}
        if copies:
            facts["duplicates"] = [copy.number for copy in copies]
        if found.failed is not None:
            facts["list_unread"] = True
        if own not in (None, kept):
            outcome = BOOK.pick("ticketing/on-file", found.reply, already_applied=True)
        for copy in copies:
            failed = yield from self._close(copy)
            if failed is not None and failed.reason is Reason.TRANSIENT:
                outcome = BOOK.pick("ticketing/copy-still-open", found.reply)
            if failed is not None:
                facts["left_open"] = [*facts.get("left_open", []), copy.number]
        where = f"Its number is {kept.number}: {kept.link}" if kept.link else f"Its number is {kept.number}."
        return replace(
            outcome,
            content=f"{outcome.content} {where}",
            effect=Effect.APPLIED,
            evidence={**outcome.evidence, **facts},
        )

    def _close(self, issue: Issue) -> Generator[Call, Reply, Outcome | None]:
        """Close a duplicate, in two attempts; return what stood in the way, or None."""
        why = "duplicate"
        reply = Reply()
        for _ in range(2):
            change = {"state": "closed", "state_reason": why}
            reply = yield Call("PATCH", f"{self.path}/{issue.number}", json=change, write=True)
            if reply.status == httpx.codes.OK and "closed" in reply.found.strings["state"]:
                return None
            if reply.status == httpx.codes.UNPROCESSABLE_ENTITY:
                why = "not_planned"  # servers older than the other word
        return BOOK.classify(reply)

    def _issue(self, row: Mapping[str, Any]) -> Issue:
        number, link = row["number"], row.get("html_url")
        page = self.page.fullmatch(link) if isinstance(link, str) else None
        return Issue(number, link if page is not None and page[1] == str(number) else None)


def _flaw(title: str, body: str) -> str | None:
    """Return the row that speaks against sending this at all."""
    if not title.strip():
        return "ticketing/no-title"
    if len(title) > LONGEST_TITLE:
        return "ticketing/title-too-long"
    return "ticketing/text-too-long" if len(body) > LONGEST_TEXT else None


def _rows(reply: Reply) -> list[dict[str, Any]] | None:
    """Return the issues of a page; None if the reply is no list of issues."""
    rows = reply.body if reply.status == httpx.codes.OK else None
    if not isinstance(rows, list):
        return None
    good = all(isinstance(row, dict) and type(row.get("number")) is int for row in rows)
    return rows if good else None


def _holds(row: Mapping[str, Any], mark: str) -> bool:
    """Whether a row is an open issue with the marker; pull requests are in the list as well."""
    body = row.get("body")
    ours = isinstance(body, str) and body.startswith(mark)
    return ours and row.get("state") == "open" and not row.get("pull_request")


def _unread(reply: Reply) -> Outcome:
    outcome = BOOK.classify(reply)
    # A page that is no list cannot speak of success, whatever it looks like.
    done = reply.response is not None and reply.response.is_success
    unread = done and (outcome.reason is Reason.COMPLETED or outcome.rule.startswith("infra/"))
    return BOOK.pick("ticketing/unreadable-list", reply) if unread else outcome


def _next_page(reply: Reply) -> dict[str, str] | None:
    """Return the parameters of the page that the ``Link`` header calls the next one."""
    links = {} if reply.response is None else reply.response.links
    query = links.get("next", {}).get("url", "").partition("?")[2].partition("#")[0]
    return dict(parse_qsl(query)) or None


def _sorted(issues: Mapping[int, Issue]) -> tuple[Issue, ...]:
    return tuple(issues[number] for number in sorted(issues))


def _one_by_one(tool: BaseTool, key: Callable[[Mapping[str, Any]], str]) -> BaseTool:
    """Return the tool with its calls in lanes: one key, one call at a time."""
    assert isinstance(tool, StructuredTool)
    func, coroutine = tool.func, tool.coroutine
    changes: dict[str, Any] = {}
    if func is not None:

        @wraps(func)
        def call(**arguments: Any) -> Any:
            try:
                with LANES.turn(key(arguments)):
                    return func(**arguments)
            except TimeoutError:
                return _busy(key(arguments))

        changes["func"] = call
    if coroutine is not None:

        @wraps(coroutine)
        async def acall(**arguments: Any) -> Any:
            try:
                async with LANES.aturn(key(arguments)):
                    return await coroutine(**arguments)
            except TimeoutError:
                return _busy(key(arguments))

        changes["coroutine"] = acall
    return tool.model_copy(update=changes)


def _busy(key: str) -> tuple[str, dict[str, Any]]:
    return replace(BOOK.pick("ticketing/busy", Reply()), key=key).as_tool_result()
