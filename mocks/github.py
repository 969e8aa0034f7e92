"""GitHub's issues as they look on the wire.

Where the facts come from:

- issues: https://docs.github.com/rest/issues/issues
- comments: https://docs.github.com/rest/issues/comments
- pages and the `Link` header: https://docs.github.com/rest/using-the-rest-api
- limits: https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
- errors: https://docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api

GitHub has no idempotency keys: each `POST` that arrives makes an issue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from mocks.vendor import START, Ask, Fault, Vendor, Wire, Work, answer

_DOC: Final = "https://docs.github.com/rest/issues/issues"
_HOUR: Final = 3600
_TITLE: Final = 256
_BODY: Final = 65_536
_REASONS: Final = ("completed", "not_planned", "duplicate", "reopened", None)


class _RefusedError(Exception):
    """A reply that ends the work of an endpoint."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(body["message"])
        self.status = status
        self.body = body


def _refused(status: int, message: str, **more: list[dict[str, str]]) -> _RefusedError:
    # GitHub repeats the HTTP status in the body, as text.
    end = {"documentation_url": _DOC, "status": str(status)}
    return _RefusedError(status, {"message": message, **more, **end})


def secondary_limit(
    *, at: str = "*", retry_after: int | None = 60, nth: int | None = None, times: int = 1
) -> Fault:
    """Make the secondary rate limit: a 403 that is no question of permission (seconds)."""
    body = {"message": "You have exceeded a secondary rate limit.", "documentation_url": _DOC}
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    return answer(403, body, at=at, headers=headers, nth=nth, times=times)


def forbidden(*, at: str = "*", nth: int | None = None, times: int = 1) -> Fault:
    """Make the 403 of a valid token that lacks the permission."""
    body = {
        "message": "Resource not accessible by personal access token",
        "documentation_url": _DOC,
        "status": "403",
    }
    return answer(403, body, at=at, nth=nth, times=times)


@dataclass(slots=True, kw_only=True)
class Issue:
    """One issue as the vendor keeps it; a pull request is an issue too."""

    number: int
    """Counts from 1 within its repository."""

    repository: str
    """`owner/name`."""

    title: str
    """Title, at most 256 characters."""

    body: str | None = None
    """Markdown, at most 65,536 characters."""

    labels: tuple[str, ...] = ()
    """Names of labels."""

    state: str = "open"
    """`open` or `closed`."""

    state_reason: str | None = None
    """Why it has this state."""

    created: int = START
    """Seconds since 1970."""

    updated: int = START
    """Seconds since 1970."""

    closed: int | None = None
    """Seconds since 1970."""

    comments: list[dict[str, Any]] = field(default_factory=list)
    """Its comments as GitHub sends them."""

    pull: bool = False
    """Whether it is a pull request; the list of issues holds those as well."""


class GitHubMock(Vendor):
    """Issues of a few repositories.

    Args:
        faults: what goes wrong, see `Fault`.
        repositories: those the token can see and write to.
        without_issues: repositories whose issues are switched off (410).
        archived: repositories that are read-only (403).
        limit: requests an hour; the one after the last gets 403, the primary limit.
        base_url, key: see `Vendor`.
    """

    url: ClassVar[str] = "https://api.github.com"
    json_type: ClassVar[str] = "application/json; charset=utf-8"

    def __init__(
        self,
        *,
        faults: Iterable[Fault] = (),
        repositories: Iterable[str] = ("acme/support",),
        without_issues: Iterable[str] = (),
        archived: Iterable[str] = (),
        limit: int = 5_000,
        base_url: str | None = None,
        key: str = "github_pat_mock",
    ) -> None:
        """Start without any issue."""
        super().__init__(faults=faults, base_url=base_url, key=key)
        self.without_issues, self.archived = frozenset(without_issues), frozenset(archived)
        named = dict.fromkeys([*repositories, *self.without_issues, *self.archived])
        self._issues: dict[str, list[Issue]] = {name: [] for name in named}
        self.limit, self._used, self._reset = limit, 0, START + _HOUR
        for repo in (r"/repos/(?P<owner>[^/]+)/(?P<name>[^/]+)", r"/repositories/(?P<id>\d+)"):
            self.route("POST", f"{repo}/issues", self._create)
            self.route("GET", f"{repo}/issues", self._list)
            self.route("GET", rf"{repo}/issues/(?P<number>\d+)", self._read)
            self.route("PATCH", rf"{repo}/issues/(?P<number>\d+)", self._update)
            self.route("POST", rf"{repo}/issues/(?P<number>\d+)/comments", self._comment)
            self.route("GET", rf"{repo}/issues/(?P<number>\d+)/comments", self._comments)

    # Oracles and levers for tests.

    def open_issues(self, repository: str = "acme/support") -> list[Issue]:
        """Return the open issues, oldest first, pull requests left out."""
        return [issue for issue in self.issues(repository) if issue.state == "open" and not issue.pull]

    def done(self) -> int:
        """Return how many issues are open, in all repositories."""
        with self._lock:
            return sum(len(self.open_issues(name)) for name in self._issues)

    def issues(self, repository: str = "acme/support") -> list[Issue]:
        """Return every issue and pull request of a repository, oldest first."""
        with self._lock:
            return list(self._issues[repository])

    def add(
        self,
        title: str,
        body: str | None = None,
        *,
        repository: str = "acme/support",
        labels: Iterable[str] = (),
        pull: bool = False,
    ) -> Issue:
        """Make an issue (or pull request) as somebody else would."""
        with self._lock:
            issue = Issue(
                number=len(self._issues[repository]) + 1,
                repository=repository,
                title=title,
                body=body,
                labels=tuple(labels),
                created=self.now,
                updated=self.now,
                pull=pull,
            )
            self._issues[repository].append(issue)
            return issue

    # What stands around every endpoint.

    def perform(self, ask: Ask, work: Work) -> Wire:
        """Check the token and the limit, then do the work."""
        try:
            if ask.headers.get("authorization") not in (f"Bearer {self.key}", f"token {self.key}"):
                raise _refused(401, "Bad credentials")
            self._spend()
            return work(ask)
        except _RefusedError as refused:
            return self.reply(refused.status, refused.body)

    def own_headers(self, ask: Ask) -> dict[str, str]:
        """Return the headers GitHub puts on its replies."""
        return {
            "content-type": self.json_type,
            "x-github-api-version-selected": "2022-11-28",
            "x-github-media-type": "github.v3; format=json",
            "x-github-request-id": f"{ask.position:04X}:MOCK:0:0:0",
            "x-ratelimit-limit": str(self.limit),
            "x-ratelimit-remaining": str(self.limit - self._used),
            "x-ratelimit-reset": str(self._reset),
            "x-ratelimit-resource": "core",
            "x-ratelimit-used": str(self._used),
        }

    def _spend(self) -> None:
        if self.now >= self._reset:
            self._used, self._reset = 0, self.now + _HOUR
        if self._used >= self.limit:
            raise _refused(403, "API rate limit exceeded for user ID 1.")
        self._used += 1

    # Endpoints.

    def _create(self, ask: Ask) -> Wire:
        repository = self._repository(ask, write=True)
        fields = _fields(ask)
        if "title" not in fields:
            # The one rule the schema check reports in prose instead of an `errors` list.
            raise _refused(422, 'Invalid request.\n\n"title" wasn\'t supplied.')
        _check(fields)
        issue = self.add(
            fields["title"],
            fields.get("body"),
            repository=repository,
            labels=_labels(fields),
        )
        return self.reply(201, self._json(issue), location=self._url(issue))

    def _list(self, ask: Ask) -> Wire:
        repository = self._repository(ask)
        state = ask.params.get("state", "open")
        rows = [issue for issue in self._issues[repository] if state in ("all", issue.state)]
        wanted = [name for name in ask.params.get("labels", "").split(",") if name]
        rows = [issue for issue in rows if set(wanted) <= set(issue.labels)]
        updated = ask.params.get("sort") == "updated"
        rows.sort(
            key=lambda issue: (issue.updated if updated else issue.created, issue.number),
            reverse=ask.params.get("direction", "desc") == "desc",
        )
        # Values out of range are corrected without a word, as GitHub does.
        size = min(max(_number(ask.params.get("per_page"), 30), 1), 100)
        page = max(_number(ask.params.get("page"), 1), 1)
        last = max(-(-len(rows) // size), 1)
        body = [self._json(issue) for issue in rows[(page - 1) * size : page * size]]
        link = self._link(ask, repository, page, last)
        return self.reply(200, body, **({"link": link} if link else {}))

    def _read(self, ask: Ask) -> Wire:
        return self.reply(200, self._json(self._issue(ask)))

    def _update(self, ask: Ask) -> Wire:
        issue, fields = self._issue(ask, write=True), _fields(ask)
        _check(fields)
        state = fields.get("state", issue.state)
        if state not in ("open", "closed"):
            raise _invalid(name="state", code="invalid", value=state)
        if fields.get("state_reason") not in _REASONS:
            raise _invalid(name="state_reason", code="invalid", value=fields["state_reason"])
        if state != issue.state:
            issue.closed = self.now if state == "closed" else None
            issue.state_reason = "completed" if state == "closed" else "reopened"
            issue.state = state
        issue.state_reason = fields.get("state_reason", issue.state_reason)
        issue.title = fields.get("title", issue.title)
        issue.body = fields.get("body", issue.body)
        issue.labels = _labels(fields) if "labels" in fields else issue.labels
        issue.updated = self.now
        return self.reply(200, self._json(issue))

    def _comment(self, ask: Ask) -> Wire:
        issue, fields = self._issue(ask, write=True), _fields(ask)
        if "body" not in fields:
            raise _refused(422, 'Invalid request.\n\n"body" wasn\'t supplied.')
        if not fields["body"]:
            raise _invalid(name="body", code="missing_field", resource="IssueComment")
        made = int(self.count("comment-").removeprefix("comment-"))
        page = f"{_page(issue)}#issuecomment-{made}"
        comment = {
            "id": made,
            "author_association": "MEMBER",
            "body": fields["body"],
            "created_at": _time(self.now),
            "html_url": page,
            "issue_url": self._url(issue),
            "updated_at": _time(self.now),
            "url": f"{self.base_url}/repos/{issue.repository}/issues/comments/{made}",
            "user": _USER,
        }
        issue.comments.append(comment)
        issue.updated = self.now
        return self.reply(201, comment, location=str(comment["url"]))

    def _comments(self, ask: Ask) -> Wire:
        return self.reply(200, self._issue(ask).comments)

    # Parts.

    def _repository(self, ask: Ask, *, write: bool = False) -> str:
        names = list(self._issues)
        if "id" in ask.parts:
            index = int(ask.parts["id"]) - 1
            name = names[index] if 0 <= index < len(names) else ""
        else:
            asked = f"{ask.parts['owner']}/{ask.parts['name']}".lower()
            name = next((known for known in names if known.lower() == asked), "")
        if not name:
            raise _refused(404, "Not Found")
        if name in self.without_issues:
            raise _refused(410, "Issues has been disabled in this repository.")
        if write and name in self.archived:
            raise _refused(403, "Repository was archived so is read-only.")
        return name

    def _issue(self, ask: Ask, *, write: bool = False) -> Issue:
        repository = self._repository(ask, write=write)
        number = int(ask.parts["number"])
        for issue in self._issues[repository]:
            if issue.number == number:
                return issue
        raise _refused(404, "Not Found")

    def _link(self, ask: Ask, repository: str, page: int, last: int) -> str:
        # GitHub's links name the repository by its id: a client must follow, not rebuild, them.
        where = f"{self.base_url}/repositories/{list(self._issues).index(repository) + 1}/issues"
        pages = {"prev": page - 1, "next": page + 1, "last": last, "first": 1}
        if page >= last:
            del pages["next"], pages["last"]
        if page == 1:
            del pages["prev"], pages["first"]
        return ", ".join(
            f'<{where}?{urlencode({**ask.params, "page": number})}>; rel="{rel}"'
            for rel, number in pages.items()
        )

    def _url(self, issue: Issue) -> str:
        return f"{self.base_url}/repos/{issue.repository}/issues/{issue.number}"

    def _json(self, issue: Issue) -> dict[str, Any]:
        url = self._url(issue)
        body: dict[str, Any] = {
            "id": 1_000 + issue.number,
            "node_id": f"I_{issue.number}",
            "number": issue.number,
            "active_lock_reason": None,
            "assignee": None,
            "assignees": [],
            "author_association": "MEMBER",
            "body": issue.body,
            "closed_at": None if issue.closed is None else _time(issue.closed),
            "comments": len(issue.comments),
            "comments_url": f"{url}/comments",
            "created_at": _time(issue.created),
            "html_url": _page(issue),
            "labels": [{"name": name, "color": "ededed"} for name in issue.labels],
            "locked": False,
            "milestone": None,
            "repository_url": f"{self.base_url}/repos/{issue.repository}",
            "state": issue.state,
            "state_reason": issue.state_reason,
            "title": issue.title,
            "updated_at": _time(issue.updated),
            "url": url,
            "user": _USER,
        }
        return {**body, "pull_request": {"url": url}} if issue.pull else body


_USER: Final = {"login": "support-bot", "id": 1, "type": "User", "site_admin": False}


def _page(issue: Issue) -> str:
    kind = "pull" if issue.pull else "issues"
    return f"https://github.com/{issue.repository}/{kind}/{issue.number}"


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default


def _fields(ask: Ask) -> dict[str, Any]:
    try:
        fields = ask.json()
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise _refused(400, "Problems parsing JSON")
    return fields


def _invalid(*, name: str, code: str, resource: str = "Issue", **more: str) -> _RefusedError:
    row = {"resource": resource, "field": name, "code": code, **more}
    return _refused(422, "Validation Failed", errors=[row])


def _check(fields: Mapping[str, Any]) -> None:
    """Refuse values GitHub refuses; absent fields are fine here."""
    for name in ("title", "body"):
        value = fields.get(name)
        if value is not None and not isinstance(value, str):
            raise _refused(422, f"Invalid request.\n\n{value!r} is not a string.")
    if "title" in fields and not (fields["title"] or "").strip():
        raise _invalid(name="title", code="missing_field")
    for name, most in (("title", _TITLE), ("body", _BODY)):
        if len(fields.get(name) or "") > most:
            message = f"{name} is too long (maximum is {most} characters)"
            raise _invalid(name=name, code="custom", message=message)
    labels = fields.get("labels", [])
    if not isinstance(labels, list):
        raise _refused(422, "Invalid request.\n\nFor 'properties/labels', not an array.")


def _labels(fields: Mapping[str, Any]) -> tuple[str, ...]:
    given = fields.get("labels") or []
    return tuple(label["name"] if isinstance(label, dict) else str(label) for label in given)
