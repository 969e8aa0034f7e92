"""GitHub's answers, row by row."""

import inspect
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from domains.mapping import Reply
from domains.ticketing import tool
from domains.ticketing.rules import BOOK, LEAST_WAIT_S
from mocks.github import GitHubMock
from orchestration.reasons import Effect, Reason

DOC = "https://docs.github.com/rest/issues/issues#create-an-issue"
ISSUE = {
    "id": 1,
    "number": 12,
    "state": "open",
    "title": "Mug",
    "url": "https://api.github.com/repos/acme/support/issues/12",
    "html_url": "https://github.com/acme/support/issues/12",
}
JSON = {"content-type": "application/json; charset=utf-8"}
HTML = {"content-type": "text/html"}


def reply(status: int, body: Any = "", headers: Mapping[str, str] | None = None) -> Reply:
    """Return a reply as it comes off the wire: a dict as JSON, a text as it is."""
    text = body if isinstance(body, str) else json.dumps(body)
    kind = HTML if isinstance(body, str) else JSON
    return Reply(httpx.Response(status, headers={**kind, **(headers or {})}, content=text.encode()))


def said(message: str, **more: Any) -> dict[str, Any]:
    """Return one of GitHub's refusals."""
    return {"message": message, "documentation_url": DOC, **more}


def invalid(code: str | None = None, message: str | None = None, field: str = "title") -> dict[str, Any]:
    """Return a 422 with one error."""
    row = {"resource": "Issue", "field": field, "code": code, "message": message}
    return said("Validation Failed", errors=[{name: value for name, value in row.items() if value}])


def graphql(kind: str | None = None, message: str = "x", data: Any = None) -> dict[str, Any]:
    """Return a 200 of GraphQL with one error."""
    row = {"type": kind, "message": message, "path": ["createIssue"]}
    return {"data": data, "errors": [{name: value for name, value in row.items() if value}]}


COMPLETED = [
    ("filed", reply(201, ISSUE)),
    ("filed", reply(201, {**ISSUE, "html_url": None})),
    ("filed", Reply(httpx.Response(201, content=json.dumps(ISSUE).encode()))),
    (
        "filed-by-mutation",
        reply(200, {"data": {"createIssue": {"issue": {"number": 12, "url": ISSUE["html_url"]}}}}),
    ),
]
TRANSIENT = [
    ("hour-used-up", reply(403, said("API rate limit exceeded"), {"X-RateLimit-Remaining": "0 "})),
    ("hour-used-up", reply(429, said("API rate limit exceeded"), {"x-ratelimit-remaining": "0"})),
    ("hour-used-up", reply(403, said("Must have admin rights"), {"X-RATELIMIT-REMAINING": "0"})),
    ("asked-to-wait", reply(403, said("Forbidden"), {"Retry-After": "30"})),
    ("asked-to-wait", reply(429, said("Slow down"), {"RETRY-AFTER": "30"})),
    ("limited-by", reply(403, said("Forbidden"), {"gh-limited-by": "search-elapsed-time-shared-grouped"})),
    ("secondary-limit", reply(403, said("You have exceeded a secondary rate limit."))),
    ("secondary-limit", reply(403, said("You have triggered an abuse detection mechanism."))),
    ("secondary-limit", reply(403, said("API rate limit exceeded for user ID 1."))),
    ("asked-to-wait", reply(403, said("The quota is 60 requests per minute"), {"Retry-After": "30"})),
    ("secondary-limit", reply(403, said("Maximum number of login attempts exceeded."))),
    ("throttled", reply(429, said("Too many"))),
    ("too-quick", reply(422, invalid("custom", "was submitted too quickly"))),
    ("too-long", reply(422, invalid("custom", "body is too long (maximum is 65536 characters)", "body"))),
    ("too-long", reply(422, said("Validation Failed", errors=["Title is too long"]))),
    ("field-missing", reply(422, invalid("missing_field"))),
    ("field-missing", reply(422, invalid("missing", field="milestone"))),
    ("field-invalid", reply(422, invalid("invalid"))),
    ("field-invalid", reply(422, invalid("unprocessable"))),
    ("field-invalid", reply(422, invalid("a code of tomorrow"))),
    ("field-invalid", reply(422, said("Validation Failed", errors=["Labels is not a list"]))),
    ("field-invalid", reply(422, said('Invalid request.\n\n"title" wasn\'t supplied.'))),
    ("field-invalid", reply(422, said("Validation failed, or the endpoint has been spammed."))),
    ("too-large", reply(413, "<html>413</html>")),
    ("moved-for-now", reply(307, said("Temporary Redirect", url="https://api.github.com/x"))),
    ("conflict", reply(409, said("Conflict"))),
    ("graphql-partial", reply(200, graphql("FORBIDDEN", data={"repository": {"id": "R_1"}}))),
    ("graphql-partial", reply(200, graphql("NOT_FOUND", data={"nodes": [None, {"id": "I_1"}]}))),
    ("graphql-limited", reply(200, graphql("RATE_LIMITED"))),
    (
        "graphql-limited",
        reply(200, {"data": None, "errors": [{"extensions": {"code": "THROTTLED"}}]}),
    ),
    ("limited-in-prose", reply(200, {"message": "You have exceeded a secondary rate limit."})),
    ("graphql-error", reply(200, graphql("UNPROCESSABLE"))),
    ("graphql-error", reply(200, graphql("SERVICE_UNAVAILABLE"))),
    ("maintenance", reply(503, "<html>GitHub Enterprise is down for maintenance</html>")),
    ("page", reply(502, "<!-- Hello future GitHubber! --><title>Unicorn! &middot; GitHub</title>")),
    ("server-error", reply(502, {"message": "Server Error"})),
    ("server-error", reply(504, {"message": "We couldn't respond to your request in time. Sorry."})),
]
FATAL = [
    ("exists", reply(422, invalid("already_exists", field="name"))),
    ("exists", reply(409, invalid("already_exists"))),
    ("user-agent", reply(403, "Please make sure your request has a User-Agent header.")),
    ("malformed", reply(400, said("Problems parsing JSON"))),
    ("malformed", reply(400, said("Body should be a JSON object"))),
    ("malformed", reply(400, said("Invalid API version: 1999-01-01 is not a supported version"))),
    ("media-type", reply(406, said("Must accept 'application/json'"))),
    ("media-type", reply(415, said("Unsupported 'Accept' header"))),
    ("credentials", reply(401, said("Bad credentials"))),
    ("credentials", reply(401, said("Must specify two-factor authentication OTP code."))),
    ("credentials-forbidden", reply(403, said("Your token has expired"))),
    ("credentials-forbidden", reply(403, said("Must authenticate to access this API."))),
    ("desk-not-found", reply(404, said("Not Found"))),
    ("no-tickets-here", reply(410, said("Issues are disabled for this repo"))),
    ("no-tickets-here", reply(410, said("This issue was deleted"))),
    ("moved", reply(301, said("Moved Permanently", url="https://api.github.com/repositories/1/issues"))),
    ("moved", reply(308, said("Permanent Redirect"))),
    ("graphql-credentials", reply(200, graphql("UNAUTHENTICATED"))),
    ("graphql-not-found", reply(200, graphql("NOT_FOUND", data={"repository": None}))),
    ("graphql-query", reply(200, graphql("MAX_NODE_LIMIT_EXCEEDED"))),
    ("graphql-query", reply(200, {"errors": [{"extensions": {"code": "undefinedField"}, "message": "x"}]})),
    ("graphql-syntax", reply(200, graphql(message='Parse error on "}" (RCURLY) at [1, 2]'))),
]
POLICY_BLOCK = [
    ("plan-used-up", reply(403, said("You have exceeded your monthly quota."), {"Retry-After": "40000"})),
    ("plan-used-up", reply(429, said("The daily limit of 1,000 requests is reached"))),
    ("plan-used-up", reply(429, said("Your spending limit is reached."))),
    ("spam", reply(422, invalid("custom", "body was flagged as spam", "body"))),
    ("spam", reply(422, invalid("custom", "This looks like spam"))),
    ("spam", reply(422, invalid("unprocessable", "User is blocked", "author"))),
    ("single-sign-on", reply(403, said("Forbidden"), {"x-github-sso": "required; url=https://github.com"})),
    ("organisation-rule", reply(403, said("Resource protected by organization SAML enforcement."))),
    (
        "organisation-rule",
        reply(403, said("the `acme` organization has an IP allow list enabled, and yours is not on it")),
    ),
    (
        "organisation-rule",
        reply(403, said("the `acme` organization has enabled OAuth App access restrictions")),
    ),
    (
        "organisation-rule",
        reply(403, said("`acme` forbids access via a fine-grained personal access token of this lifetime")),
    ),
    ("organisation-rule", reply(403, said("Two-factor authentication is required"))),
    ("read-only", reply(403, said("Repository was archived so is read-only."))),
    ("read-only", reply(403, said("Unable to create comment because issue is locked."))),
    ("legal", reply(403, said("Repository access blocked", block={"reason": "tos"}))),
    ("legal", reply(403, said("Unavailable due to trade controls"))),
    ("account-limits", reply(403, said("Sorry. Your account was suspended."))),
    ("account-limits", reply(403, said("This installation has been suspended"))),
    ("account-limits", reply(403, said("Repository access blocked"))),
    ("account-limits", reply(403, said("At least one email address must be verified to do that."))),
    ("account-limits", reply(403, said("Interactions on this repository have been restricted"))),
    ("not-permitted", reply(403, said("Resource not accessible by integration"))),
    ("not-permitted", reply(403, said("Resource not accessible by personal access token"))),
    ("not-permitted", reply(403, said("Must have admin rights to Repository."))),
    ("not-permitted", reply(403, said("A sentence of tomorrow"))),
    ("unavailable-for-legal-reasons", reply(451, said("Repository access blocked"))),
    ("graphql-forbidden", reply(200, graphql("FORBIDDEN", data={"createIssue": None}))),
    ("graphql-forbidden", reply(200, graphql("INSUFFICIENT_SCOPES"))),
    ("graphql-not-permitted", reply(200, graphql(message="Resource not accessible by integration"))),
]
EXAMPLES = [
    pytest.param(f"ticketing/{rule}", reason, answer, id=f"{rule}-{at}")
    for reason, rows in (
        (Reason.COMPLETED, COMPLETED),
        (Reason.TRANSIENT, TRANSIENT),
        (Reason.FATAL, FATAL),
        (Reason.POLICY_BLOCK, POLICY_BLOCK),
    )
    for at, (rule, answer) in enumerate(rows)
]


class TestRows:
    """The table itself."""

    @pytest.mark.parametrize(("rule", "reason", "answer"), EXAMPLES)
    def test_example(self, rule: str, reason: Reason, answer: Reply) -> None:
        """The reply is decided by this row, with this reason."""
        outcome = BOOK.classify(answer)

        assert (rule, reason) == (outcome.rule, outcome.reason)

    def test_no_row_is_dead(self) -> None:
        """Every row of GitHub's dialect decides at least one example."""
        own = {rule.id for rule in BOOK.rules if rule.id.startswith("ticketing/")}

        assert own == {str(example.values[0]) for example in EXAMPLES}

    @pytest.mark.parametrize("rule", [rule.id for rule in BOOK.picked])
    def test_every_picked_row_is_picked(self, rule: str) -> None:
        """A row without a condition is named by the flow."""
        assert f'"{rule}"' in inspect.getsource(tool)

    def test_only_what_exists_is_completed(self) -> None:
        """Three rows speak of success: the issue, the mutation's payload, the marker on file."""
        completed = [rule.id for rule in (*BOOK.rules, *BOOK.picked) if rule.reason is Reason.COMPLETED]

        assert ["ticketing/filed", "ticketing/filed-by-mutation", "ticketing/on-file"] == completed


class TestProof:
    """What is no proof of success."""

    @pytest.mark.parametrize(
        "answer",
        [
            reply(200, ISSUE),
            reply(202, ISSUE),
            reply(204),
            reply(201),
            reply(201, "<html>Sign in</html>"),
            reply(201, {}),
            reply(201, []),
            Reply(httpx.Response(201, json=[ISSUE])),
            Reply(httpx.Response(200, json=[{"data": {"createIssue": {"issue": ISSUE}}}])),
            reply(201, {"issue": ISSUE}),
            reply(201, {**ISSUE, "number": "12"}),
            reply(201, {**ISSUE, "number": True}),
            reply(201, {**ISSUE, "number": 0}),
            reply(201, {**ISSUE, "state": "closed"}),
            reply(201, {**ISSUE, "state": None}),
            reply(201, {**ISSUE, "errors": [{"message": "x"}]}),
            reply(201, {**ISSUE, "error": {"message": "x"}}),
            reply(201, {**ISSUE, "url": None, "html_url": "https://github.com/acme/support/milestone/12"}),
            reply(201, json.dumps(ISSUE)),
            reply(201, json.dumps(ISSUE)[:-20], JSON),
            reply(500, ISSUE),
            reply(422, ISSUE),
            reply(200, {"data": {"createIssue": {"issue": {"number": 12, "url": None}}}}),
            reply(200, {"data": {"createIssue": None}}),
            reply(200, {"ok": True}),
            reply(200, graphql("UNPROCESSABLE", data={"createIssue": {"issue": ISSUE}})),
        ],
    )
    def test_not_completed(self, answer: Reply) -> None:
        """A body that looks like a result is none without status, type and fields."""
        assert Reason.COMPLETED is not BOOK.classify(answer).reason

    @pytest.mark.parametrize("answer", [reply(201, {}), reply(200, ISSUE), reply(502), reply(500)])
    def test_unproven_is_unknown(self, answer: Reply) -> None:
        """What may have been done is not denied."""
        outcome = BOOK.classify(answer)

        assert (Reason.TRANSIENT, Effect.UNKNOWN) == (outcome.reason, outcome.effect)
        assert "Whether a ticket was opened is not confirmed." in outcome.content

    @pytest.mark.parametrize(
        "answer", [answer for _, answer in (*FATAL, *POLICY_BLOCK) if answer.status != httpx.codes.OK]
    )
    def test_a_refusal_has_changed_nothing(self, answer: Reply) -> None:
        """4xx and redirects prove that no ticket was opened."""
        outcome = BOOK.classify(answer)

        assert Effect.NONE is outcome.effect
        assert outcome.content.endswith("No ticket was opened.")


class TestLimits:
    """A 403 that is a rate limit, and one that is not."""

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (reply(403, said("Forbidden"), {"Retry-After": "7"}), Reason.TRANSIENT),
            (reply(403, said("Forbidden"), {"X-RateLimit-Remaining": "0 "}), Reason.TRANSIENT),
            (reply(403, said("You have exceeded a secondary rate limit")), Reason.TRANSIENT),
            (reply(403, "<html>You have exceeded a secondary rate limit</html>"), Reason.TRANSIENT),
            (reply(403, said("Forbidden"), {"x-ratelimit-remaining": "1"}), Reason.POLICY_BLOCK),
            (reply(403, said("Forbidden")), Reason.POLICY_BLOCK),
            (reply(403, "<html>Forbidden</html>"), Reason.POLICY_BLOCK),
            (reply(429), Reason.TRANSIENT),
            (reply(429, "<html>You have exceeded a secondary rate limit</html>"), Reason.TRANSIENT),
            (reply(403, {"message": "API rate limit exceeded for user ID 1."}), Reason.TRANSIENT),
            (
                reply(429, {"message": "API rate limit exceeded"}, {"x-ratelimit-remaining-day": "0"}),
                Reason.POLICY_BLOCK,
            ),
            (reply(404, said("Not Found")), Reason.FATAL),
            (reply(404, "<html>Not Found</html>"), Reason.FATAL),
        ],
    )
    def test_told_apart(self, answer: Reply, reason: Reason) -> None:
        """Headers and words decide, in any case and with or without JSON."""
        assert reason is BOOK.classify(answer).reason

    @pytest.mark.parametrize(
        ("answer", "wait"),
        [
            (reply(403, said("You have exceeded a secondary rate limit")), LEAST_WAIT_S),
            (reply(429, said("x")), LEAST_WAIT_S),
            (reply(403, said("x"), {"retry-after": "7"}), 7),
            (reply(403, said("x"), {"retry-after": "soon"}), LEAST_WAIT_S),
            (reply(403, said("x"), {"x-ratelimit-remaining": "0"}), LEAST_WAIT_S),
            (reply(403, said("x"), {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}), 0),
            (reply(200, graphql("RATE_LIMITED")), LEAST_WAIT_S),
        ],
    )
    def test_wait(self, answer: Reply, wait: int) -> None:
        """Without a readable header the wait is GitHub's minute."""
        assert wait == BOOK.classify(answer).retry_after_s

    def test_a_limit_of_zero_on_a_success(self) -> None:
        """The last request of the hour may have opened the ticket."""
        answer = reply(201, ISSUE, {"x-ratelimit-remaining": "0"})

        assert Reason.COMPLETED is BOOK.classify(answer).reason


class TestEvidence:
    """What is kept for logs."""

    @pytest.mark.parametrize(
        ("answer", "code"),
        [
            (reply(422, invalid("missing_field")), "missing_field"),
            (reply(200, graphql("RATE_LIMITED")), "RATE_LIMITED"),
            (reply(403, said("Repository access blocked", block={"reason": "tos"})), "tos"),
            (reply(404, said("Not Found")), None),
        ],
    )
    def test_code(self, answer: Reply, code: str | None) -> None:
        """GitHub's own code, where it has one."""
        assert code == BOOK.classify(answer).vendor_code

    def test_request_id(self) -> None:
        """The id that GitHub's support asks for."""
        outcome = BOOK.classify(reply(500, {"message": "Server Error"}, {"X-GitHub-Request-Id": "A1:B2"}))

        assert {"status": 500, "request_id": "A1:B2"} == outcome.evidence


class TestFake:
    """What GitHub's fake says is in the book."""

    @pytest.mark.parametrize(
        ("made", "method", "path", "sent", "rule"),
        [
            ({}, "POST", "/repos/acme/support/issues", {"title": "Mug"}, "filed"),
            ({}, "POST", "/repos/acme/support/issues", {"title": ""}, "field-missing"),
            ({}, "POST", "/repos/acme/support/issues", {"title": "x" * 257}, "too-long"),
            ({}, "POST", "/repos/acme/support/issues", {"title": "x", "body": 1}, "field-invalid"),
            ({}, "POST", "/repos/acme/support/issues", {}, "field-invalid"),
            ({}, "POST", "/repos/acme/support/issues", [], "malformed"),
            ({}, "POST", "/repos/acme/other/issues", {"title": "Mug"}, "desk-not-found"),
            ({}, "GET", "/repos/acme/support/issues/9", None, "desk-not-found"),
            ({"limit": 0}, "GET", "/repos/acme/support/issues", None, "hour-used-up"),
            ({"without_issues": ["a/b"]}, "GET", "/repos/a/b/issues", None, "no-tickets-here"),
            ({"archived": ["a/b"]}, "POST", "/repos/a/b/issues", {"title": "Mug"}, "read-only"),
        ],
    )
    def test_in_the_book(self, made: Mapping[str, Any], method: str, path: str, sent: Any, rule: str) -> None:
        """No refusal of the fake falls through to the rows of gateways."""
        with GitHubMock(**made).client() as client:
            answer = client.request(method, path, json=sent)

        assert f"ticketing/{rule}" == BOOK.classify(Reply(answer)).rule

    def test_wrong_token(self) -> None:
        """A token that GitHub does not know."""
        mock = GitHubMock()
        with mock.client(headers={"authorization": "Bearer wrong"}) as client:
            answer = client.get("/repos/acme/support/issues")

        assert "ticketing/credentials" == BOOK.classify(Reply(answer)).rule
