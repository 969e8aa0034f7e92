"""GitHub's answers, translated.

GitHub has no error code outside 422 and GraphQL: a 403 is a rate limit, a missing permission, a rule of
an organisation or a bug of the client, and only headers and the message tell. The messages' wording is
that of GitHub's documentation and of what its own clients match on.

Sources: https://docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api,
https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api,
https://github.com/octokit/octokit.rb/blob/main/lib/octokit/error.rb
"""

import re
from typing import Any, Final

from domains.infrastructure import INFRASTRUCTURE
from domains.mapping import Rule, RuleBook, When, present
from orchestration.reasons import Effect, Reason

_TROUBLE: Final = "https://docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api"
_LIMITS: Final = "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api"
_PRACTICE: Final = "https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api"
_ISSUES: Final = "https://docs.github.com/rest/issues/issues"
_GRAPHQL: Final = "https://docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api"
_MUTATION: Final = "https://docs.github.com/graphql/reference/mutations"
_OCTOKIT: Final = "https://github.com/octokit/octokit.rb/blob/main/lib/octokit/error.rb"

LEAST_WAIT_S: Final = 60
"""GitHub asks for at least a minute where no header says how long."""

_MESSAGE: Final = "message|errors.message|errors"
"""What GitHub says in prose: ``errors`` holds objects, or bare strings."""

_GITHUBS: Final = {"documentation_url": present}
"""What tells GitHub's own refusal from that of a gateway before it, whose rows come later."""

_TYPE: Final = "errors.type|errors.extensions.code|errors.code"
"""GraphQL's class field."""


def a_number(value: object) -> bool:
    """Match an issue's number: a true integer from 1 up."""
    return type(value) is int and value > 0


def json_or_unnamed(value: object) -> bool:
    """Match a content type of JSON, or none at all: a page is no issue, whatever it holds."""
    return isinstance(value, str) and (not value or "json" in value.lower())


def an_object(value: object) -> bool:
    """Match a body that is one object: a list with an issue in it is a search, not the issue that was made."""
    return isinstance(value, dict)


def holds_data(value: Any) -> bool:
    """Match GraphQL data of which something was delivered."""
    if isinstance(value, dict):
        return any(map(holds_data, value.values()))
    if isinstance(value, list):
        return any(map(holds_data, value))
    return value is not None


_FILED: Final = (
    Rule(
        id="ticketing/filed",
        when=When(
            status=201,
            header={"content-type": json_or_unnamed},
            body={
                "": an_object,
                "number": a_number,
                "state": "open",
                "html_url|url": re.compile(r"/issues/[0-9]+\Z"),
                "error|errors": None,
            },
        ),
        reason=Reason.COMPLETED,
        say="The ticket is open.",
        why="201 with an open issue's own number and address is the issue itself.",
        source=f"{_ISSUES}#create-an-issue",
    ),
    Rule(
        id="ticketing/filed-by-mutation",
        when=When(
            status=200,
            header={"content-type": json_or_unnamed},
            body={
                "": an_object,
                "data.createIssue.issue.number": a_number,
                "data.createIssue.issue.url": re.compile(r"/issues/[0-9]+\Z"),
                "errors": None,
            },
        ),
        reason=Reason.COMPLETED,
        say="The ticket is open.",
        why="The mutation's payload is the issue that it made, and no error stands beside it.",
        source=f"{_MUTATION}#createissue",
    ),
)

_LIMITED: Final = (
    Rule(
        id="ticketing/plan-used-up",
        when=When(
            status=(403, 429),
            phrases=("daily", "monthly", "quota", "spending limit", "budget"),
            body={
                **_GITHUBS,
                "message": re.compile(
                    r"(?is)\A(?!.*\b(?:per|each|every) (?:second|minute|hour)\b)"
                    r".*(?:\b(?:daily|monthly)\b.{0,40}\b(?:limit|quota|cap|allowance)\b"
                    r"|\bquota\b|\bspending limit\b|\bbudget\b)"
                ),
            },
        ),
        reason=Reason.POLICY_BLOCK,
        say="What our plan for the ticket service allows is used up.",
        why="A quota, a budget or a daily cap comes back in hours or for money, whatever wait stands beside it.",
        source="https://docs.github.com/billing/concepts/budgets-and-alerts",
    ),
    Rule(
        id="ticketing/hour-used-up",
        when=When(status=(403, 429), header={"x-ratelimit-remaining": "0"}, body=_GITHUBS),
        reason=Reason.TRANSIENT,
        say="The ticket service takes no more requests from us for now. Waiting would help.",
        why="The primary limit comes as a 403 too; none left is what tells it from a missing permission.",
        source=f"{_LIMITS}#exceeding-the-rate-limit",
        retry_after_s=LEAST_WAIT_S,
    ),
    Rule(
        id="ticketing/asked-to-wait",
        when=When(status=(403, 429), header={"retry-after": present}, body=_GITHUBS),
        reason=Reason.TRANSIENT,
        say="The ticket service gets too many requests from us at the moment. Waiting would help.",
        why="A time to wait is the vendor's own advice to come back, whatever the status.",
        source=f"{_LIMITS}#exceeding-the-rate-limit",
        retry_after_s=LEAST_WAIT_S,
    ),
    Rule(
        id="ticketing/limited-by",
        when=When(status=(403, 429), header={"gh-limited-by": present}),
        reason=Reason.TRANSIENT,
        say="The ticket service gets too many requests from us at the moment. Waiting would help.",
        why="Some secondary limits show in this header alone.",
        source="https://github.com/hub4j/github-api/issues/2009",
        retry_after_s=LEAST_WAIT_S,
    ),
    Rule(
        id="ticketing/secondary-limit",
        when=When(
            status=(403, 429),
            body=_GITHUBS,
            phrases=(
                "secondary rate limit",
                "api rate limit",
                "rate limit exceeded",
                "abuse detection",
                "secondary-rate-limit",
                "abuse-rate-limit",
                "submitted too quickly",
                "blocked from content creation",
                "login attempts exceeded",
            ),
        ),
        reason=Reason.TRANSIENT,
        say="The ticket service gets too many requests from us at the moment. Waiting would help.",
        why="A limit that only the message names; GitHub says to wait a minute if no header says more.",
        source=f"{_LIMITS}#about-secondary-rate-limits",
        retry_after_s=LEAST_WAIT_S,
    ),
    Rule(
        id="ticketing/throttled",
        when=When(status=429, body=_GITHUBS),
        reason=Reason.TRANSIENT,
        say="The ticket service gets too many requests from us at the moment. Waiting would help.",
        why="429 is a limit even without a header or a word.",
        source=f"{_LIMITS}#exceeding-the-rate-limit",
        retry_after_s=LEAST_WAIT_S,
    ),
)

_REFUSED_FIELDS: Final = (
    Rule(
        id="ticketing/spam",
        when=When(
            status=422,
            body={
                _MESSAGE: re.compile(
                    r"(?i)flagged|(?:looks|marked|classified) (?:like|as) spam|spammy|\bblocked\b"
                )
            },
        ),
        reason=Reason.POLICY_BLOCK,
        say="The ticket service does not accept this ticket.",
        why="A filter against abuse, or a block of the account, refused; no wording of ours should get around it.",
        source=f"{_ISSUES}#create-an-issue",
    ),
    Rule(
        id="ticketing/too-quick",
        when=When(status=422, body={_MESSAGE: re.compile(r"(?i)submitted too quickly|rate.?limit")}),
        reason=Reason.TRANSIENT,
        say="The ticket service takes tickets from us more slowly at the moment. Waiting would help.",
        why="The limit on creating content can come as a validation error.",
        source=f"{_PRACTICE}#pause-between-mutative-requests",
        retry_after_s=LEAST_WAIT_S,
    ),
    Rule(
        id="ticketing/exists",
        when=When(status=(409, 422), body={"errors.code": "already_exists"}),
        reason=Reason.FATAL,
        say="Something of the same name is there already, so it cannot be made a second time.",
        why="It exists and stays; whether it is ours only a marker proves, and the flow looks for that.",
        source=f"{_TROUBLE}#validation-failed",
    ),
    Rule(
        id="ticketing/too-long",
        when=When(status=422, body={_MESSAGE: re.compile(r"(?i)too (?:long|large|big)|maximum is")}),
        reason=Reason.TRANSIENT,
        say="The ticket is too long for the ticket service. A shorter title or text would help.",
        why="The model words both and can shorten them.",
        source=f"{_TROUBLE}#validation-failed",
    ),
    Rule(
        id="ticketing/field-missing",
        when=When(status=422, body={"errors.code": {"missing_field", "missing"}}),
        reason=Reason.TRANSIENT,
        say="A detail that the ticket needs is missing, or names something that does not exist. "
        "Asking the customer for it would help.",
        why="The model can add or correct the field.",
        source=f"{_TROUBLE}#validation-failed",
    ),
    Rule(
        id="ticketing/field-invalid",
        when=When(status=422, body={"message": present}),
        reason=Reason.TRANSIENT,
        say="The ticket service does not accept one of the ticket's details. A different title or text would help.",
        why="Codes invalid, unprocessable and custom, and every newer one, speak of a value that the model controls.",
        source=f"{_TROUBLE}#validation-failed",
    ),
    Rule(
        id="ticketing/too-large",
        when=When(status=413),
        reason=Reason.TRANSIENT,
        say="The ticket is too long for the ticket service. A shorter text would help.",
        why="The model words the text and can shorten it.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-413-content-too-large",
    ),
)

_OWN_FAULTS: Final = (
    Rule(
        id="ticketing/user-agent",
        when=When(
            status=403,
            phrases=("user-agent header", "user-agent-required", "invalid user agent", "missing user agent"),
        ),
        reason=Reason.FATAL,
        say="The ticket service cannot be used the way it is set up. Somebody has to look at it.",
        why="A request without a User-Agent is a bug of the client, though it comes as a 403.",
        source=f"{_TROUBLE}#user-agent-required",
    ),
    Rule(
        id="ticketing/malformed",
        when=When(
            status=400,
            body={
                "message": re.compile(
                    r"(?i)parsing json|json (?:object|array|hash)|(?:api|supported) version"
                )
            },
        ),
        reason=Reason.FATAL,
        say="The ticket service cannot be used the way it is set up. Somebody has to look at it.",
        why="The tool writes the JSON and names the API version, not the model.",
        source=f"{_TROUBLE}#problems-parsing-json",
    ),
    Rule(
        id="ticketing/media-type",
        when=When(status=(405, 406, 415), body={"message": present}),
        reason=Reason.FATAL,
        say="The ticket service cannot be used the way it is set up. Somebody has to look at it.",
        why="Method and media types are the tool's own.",
        source="https://docs.github.com/rest/using-the-rest-api/getting-started-with-the-rest-api#media-types",
    ),
    Rule(
        id="ticketing/credentials",
        when=When(status=401, body={"message": present}),
        reason=Reason.FATAL,
        say="The ticket service does not recognise our account. Somebody has to look at the setup.",
        why="No argument makes an absent, expired or revoked token valid.",
        source="https://docs.github.com/rest/authentication/authenticating-to-the-rest-api",
    ),
    Rule(
        id="ticketing/credentials-forbidden",
        when=When(
            status=403,
            body={
                "message": re.compile(
                    r"(?i)bad credentials|requires authentication|must authenticate"
                    r"|(?:token|credentials?)\b.{0,40}\b(?:expired|revoked)"
                )
            },
        ),
        reason=Reason.FATAL,
        say="The ticket service does not recognise our account. Somebody has to look at the setup.",
        why="A dead credential stays one under a 403; policy is about credentials that are valid.",
        source="https://docs.github.com/authentication/keeping-your-account-and-data-secure/"
        "token-expiration-and-revocation",
    ),
)

_FORBIDDEN: Final = (
    Rule(
        id="ticketing/single-sign-on",
        when=When(status=403, header={"x-github-sso": present}),
        reason=Reason.POLICY_BLOCK,
        say="The organisation that owns the ticket desk does not let our account in.",
        why="The organisation enforces single sign-on, and the token is not authorised for it.",
        source="https://docs.github.com/rest/authentication/authenticating-to-the-rest-api"
        "#authorizing-your-personal-access-token-for-saml-sso",
    ),
    Rule(
        id="ticketing/organisation-rule",
        when=When(
            status=403,
            body={
                "message": re.compile(
                    r"(?i)saml|single sign.on|ip allow list|ip address|oauth app|access restrictions"
                    r"|forbids access via|two.factor|\b2fa\b|enterprise"
                )
            },
        ),
        reason=Reason.POLICY_BLOCK,
        say="The organisation that owns the ticket desk does not let our account in.",
        why="Sign-on, address lists, app restrictions and token policies are the organisation's rules.",
        source="https://docs.github.com/organizations/managing-oauth-access-to-your-organizations-data/"
        "about-oauth-app-access-restrictions",
    ),
    Rule(
        id="ticketing/read-only",
        when=When(status=403, body={"message": re.compile(r"(?i)archived|read.only|\blocked\b|disabled")}),
        reason=Reason.POLICY_BLOCK,
        say="The ticket desk is closed for new entries.",
        why="Its owner archived or locked it: a decision, not a fault.",
        source="https://docs.github.com/repositories/archiving-a-github-repository/archiving-repositories",
    ),
    Rule(
        id="ticketing/legal",
        when=When(
            status=403,
            body={"block.reason|message": re.compile(r"(?i)\btos\b|dmca|terms|trade control|sanction|legal")},
        ),
        reason=Reason.POLICY_BLOCK,
        say="The ticket desk is not available.",
        why="Terms of service or law stand against it.",
        source="https://docs.github.com/site-policy/other-site-policies/github-and-trade-controls",
    ),
    Rule(
        id="ticketing/account-limits",
        when=When(
            status=403,
            body={
                "message": re.compile(
                    r"(?i)suspended|blocked|restricted|must be verified|billing|upgrade"
                    r"|perform that action at this time"
                )
            },
        ),
        reason=Reason.POLICY_BLOCK,
        say="The ticket service does not take tickets from our account at present.",
        why="Suspension, blocks, interaction limits, unverified mail and unpaid plans are rules about the account.",
        source=_OCTOKIT,
    ),
    Rule(
        id="ticketing/not-permitted",
        when=When(status=403, body=_GITHUBS),
        reason=Reason.POLICY_BLOCK,
        say="Our account is not allowed to open tickets there.",
        why="A valid credential without the permission; every other 403 of GitHub's own is one as well.",
        source=f"{_TROUBLE}#resource-not-accessible",
    ),
    Rule(
        id="ticketing/unavailable-for-legal-reasons",
        when=When(status=451, body={"message": present}),
        reason=Reason.POLICY_BLOCK,
        say="The ticket desk is not available.",
        why="Law stands against it.",
        source="https://docs.github.com/rest/repos/repos",
    ),
)

_PLACE: Final = (
    Rule(
        id="ticketing/desk-not-found",
        when=When(status=404, body={"message": present}),
        reason=Reason.FATAL,
        say="The ticket desk cannot be found. Somebody has to look at the setup.",
        why="The repository is configuration; a private one hides from a token without access as a 404.",
        source=f"{_TROUBLE}#404-not-found-for-an-existing-resource",
    ),
    Rule(
        id="ticketing/no-tickets-here",
        when=When(status=410, body={"message": present}),
        reason=Reason.FATAL,
        say="The ticket desk does not take tickets.",
        why="Issues are switched off for the repository, or the issue was deleted; neither comes back.",
        source=f"{_ISSUES}#create-an-issue",
    ),
    Rule(
        id="ticketing/moved",
        when=When(status=(301, 308), body={"message": present}),
        reason=Reason.FATAL,
        say="The ticket desk has moved. Somebody has to look at the setup.",
        why="The repository was renamed or transferred, and its name is configuration.",
        source=f"{_PRACTICE}#follow-redirects",
    ),
    Rule(
        id="ticketing/moved-for-now",
        when=When(status=(302, 307), body={"message": present}),
        reason=Reason.TRANSIENT,
        say="The ticket desk is somewhere else for the moment. Waiting would help.",
        why="GitHub means these as temporary: the address that was asked is still the right one.",
        source=f"{_PRACTICE}#follow-redirects",
    ),
    Rule(
        id="ticketing/conflict",
        when=When(status=409, body={"message": present}),
        reason=Reason.TRANSIENT,
        say="The ticket service was busy with the same thing. Waiting a little would help.",
        why="A conflict is about the moment, as long as no code says that something exists.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-409-conflict",
    ),
)

_GRAPHQL_ERRORS: Final = (
    Rule(
        id="ticketing/graphql-partial",
        when=When(status=200, body={"errors": present, "data": holds_data}),
        reason=Reason.TRANSIENT,
        say="The ticket service did only a part of what was asked.",
        why="Data beside errors is a partial answer, and no stop may hide that.",
        source="https://spec.graphql.org/October2021/#sec-Response",
    ),
    Rule(
        id="ticketing/graphql-limited",
        when=When(status=200, body={_TYPE: {"RATE_LIMITED", "RATE_LIMIT", "THROTTLED"}}),
        reason=Reason.TRANSIENT,
        say="The ticket service takes no more requests from us for now. Waiting would help.",
        why="GraphQL sends its limits as a 200 with this type.",
        source=_GRAPHQL,
        retry_after_s=LEAST_WAIT_S,
    ),
    Rule(
        id="ticketing/limited-in-prose",
        when=When(
            status=200,
            body={"message|errors.message": re.compile(r"(?i)rate limit|abuse detection|too quickly")},
        ),
        reason=Reason.TRANSIENT,
        say="The ticket service gets too many requests from us at the moment. Waiting would help.",
        why="GraphQL's secondary limit can be a 200 that only the message names.",
        source=_GRAPHQL,
        retry_after_s=LEAST_WAIT_S,
    ),
    Rule(
        id="ticketing/graphql-credentials",
        when=When(status=200, body={_TYPE: {"UNAUTHENTICATED", "UNAUTHORIZED", "BAD_CREDENTIALS"}}),
        reason=Reason.FATAL,
        say="The ticket service does not recognise our account. Somebody has to look at the setup.",
        why="No argument makes a credential valid.",
        source="https://docs.github.com/graphql/guides/forming-calls-with-graphql",
    ),
    Rule(
        id="ticketing/graphql-forbidden",
        when=When(
            status=200, body={_TYPE: {"FORBIDDEN", "INSUFFICIENT_SCOPES", "SAML_FAILURE", "IP_ALLOW_LIST"}}
        ),
        reason=Reason.POLICY_BLOCK,
        say="Our account is not allowed to open tickets there.",
        why="A valid credential without the permission or the scope.",
        source="https://docs.github.com/graphql/guides/forming-calls-with-graphql",
    ),
    Rule(
        id="ticketing/graphql-not-permitted",
        when=When(
            status=200,
            body={
                "errors.message": re.compile(
                    r"(?i)not accessible by|required scopes|saml|archived|(?:is|was) blocked"
                )
            },
        ),
        reason=Reason.POLICY_BLOCK,
        say="Our account is not allowed to open tickets there.",
        why="The same refusals as above, from fields that set no type.",
        source=f"{_TROUBLE}#resource-not-accessible",
    ),
    Rule(
        id="ticketing/graphql-not-found",
        when=When(status=200, body={_TYPE: "NOT_FOUND"}),
        reason=Reason.FATAL,
        say="The ticket desk cannot be found. Somebody has to look at the setup.",
        why="The repository is configuration.",
        source="https://docs.github.com/graphql/guides/forming-calls-with-graphql",
    ),
    Rule(
        id="ticketing/graphql-query",
        when=When(
            status=200,
            body={
                _TYPE: {
                    "MAX_NODE_LIMIT_EXCEEDED",
                    "MISSING_PAGINATION_BOUNDARIES",
                    "EXCESSIVE_PAGINATION",
                    "INVALID_CURSOR_ARGUMENTS",
                    "undefinedField",
                    "undefinedType",
                    "argumentNotAccepted",
                    "argumentLiteralsIncompatible",
                    "missingRequiredArguments",
                    "missingRequiredInputObjectAttribute",
                    "selectionMismatch",
                    "variableMismatch",
                    "variableNotDefined",
                    "variableNotUsed",
                }
            },
        ),
        reason=Reason.FATAL,
        say="The ticket service cannot be used the way it is set up. Somebody has to look at it.",
        why="The tool writes the query; no argument of the model makes a wrong one right.",
        source=_GRAPHQL,
    ),
    Rule(
        id="ticketing/graphql-syntax",
        when=When(
            status=200,
            body={
                "errors.message": re.compile(r"^Parse error|doesn't exist on type|doesn't accept argument")
            },
        ),
        reason=Reason.FATAL,
        say="The ticket service cannot be used the way it is set up. Somebody has to look at it.",
        why="The same, from servers that name no type.",
        source="https://docs.github.com/graphql/guides/forming-calls-with-graphql",
    ),
    Rule(
        id="ticketing/graphql-error",
        when=When(
            status=200,
            body={_TYPE: {"UNPROCESSABLE", "SERVICE_UNAVAILABLE", "INTERNAL", "RESOURCE_LIMITS_EXCEEDED"}},
        ),
        reason=Reason.TRANSIENT,
        say="The ticket service could not do what was asked at the moment.",
        why="A value, or the moment: the model can change the one and wait for the other.",
        source="https://docs.github.com/graphql/guides/forming-calls-with-graphql",
    ),
)

_TROUBLES: Final = (
    Rule(
        id="ticketing/maintenance",
        when=When(status=503, phrases=("maintenance",)),
        reason=Reason.TRANSIENT,
        say="The ticket service is being maintained. Waiting would help.",
        why="Maintenance ends.",
        source="https://docs.github.com/enterprise-server@latest/admin/administering-your-instance/"
        "configuring-maintenance-mode/enabling-and-scheduling-maintenance-mode",
    ),
    Rule(
        id="ticketing/page",
        when=When(status=(500, 502, 503, 504), phrases=("unicorn!", "github</title>", "githubber")),
        reason=Reason.TRANSIENT,
        say="The ticket service has a problem at the moment. Waiting a little would help.",
        why="The page that GitHub shows in place of JSON while it is overloaded.",
        source=f"{_TROUBLE}#timeouts",
    ),
    Rule(
        id="ticketing/server-error",
        when=When(
            status=(500, 502, 503, 504),
            body={
                "message": re.compile(
                    r"(?i)^(?:server error|service unavailable|something went wrong)|in time"
                )
            },
        ),
        reason=Reason.TRANSIENT,
        say="The ticket service has a problem at the moment. Waiting a little would help.",
        why="A server's fault or its ten-second limit says nothing against the request.",
        source=f"{_TROUBLE}#timeouts",
    ),
)

_PICKED: Final = (
    Rule(
        id="ticketing/on-file",
        reason=Reason.COMPLETED,
        say="The ticket is open.",
        why="An open issue holds the marker of this very request, which nothing but this tool writes there.",
        source=f"{_ISSUES}#list-repository-issues",
    ),
    Rule(
        id="ticketing/copy-still-open",
        reason=Reason.TRANSIENT,
        say="A second copy of the ticket could not be closed yet. Waiting a little would help. "
        "The ticket itself is open.",
        why="Two open issues of one marker break the promise, and the next call closes the younger one.",
        source=f"{_ISSUES}#update-an-issue",
        effect=Effect.APPLIED,
    ),
    Rule(
        id="ticketing/unconfirmed",
        reason=Reason.TRANSIENT,
        say="The ticket service's answer got lost. Waiting a little would help.",
        why="The request may have arrived, whatever the client raised, and a later look-up settles it.",
        source=f"{_TROUBLE}#timeouts",
        effect=Effect.UNKNOWN,
    ),
    Rule(
        id="ticketing/unreadable-list",
        reason=Reason.TRANSIENT,
        say="The list of open tickets could not be read. Waiting a little would help.",
        why="Without the list it is not known whether the ticket exists, so none is opened.",
        source=f"{_ISSUES}#list-repository-issues",
        effect=Effect.NONE,
    ),
    Rule(
        id="ticketing/endless-list",
        reason=Reason.FATAL,
        say="The list of open tickets is too long to be checked. Somebody has to look at it.",
        why="A list without an end is a broken server or a desk that no call of the model clears.",
        source="https://docs.github.com/rest/using-the-rest-api/using-pagination-in-the-rest-api",
        effect=Effect.NONE,
    ),
    Rule(
        id="ticketing/no-title",
        reason=Reason.TRANSIENT,
        say="A ticket needs a title: a few words on what it is about.",
        why="The model can give one.",
        source=f"{_ISSUES}#create-an-issue",
        effect=Effect.NONE,
    ),
    Rule(
        id="ticketing/title-too-long",
        reason=Reason.TRANSIENT,
        say="The title is too long. One of at most 256 characters, with the rest in the text, would help.",
        why="GitHub's own limit, checked before anything is sent.",
        source=f"{_ISSUES}#create-an-issue",
        effect=Effect.NONE,
    ),
    Rule(
        id="ticketing/text-too-long",
        reason=Reason.TRANSIENT,
        say="The text is too long. One of at most 65,000 characters would help.",
        why="GitHub's own limit less the room for the marker, checked before anything is sent.",
        source=f"{_ISSUES}#create-an-issue",
        effect=Effect.NONE,
    ),
    Rule(
        id="ticketing/busy",
        reason=Reason.TRANSIENT,
        say="Another request for the same ticket is still at work. Waiting a little would help.",
        why="Calls of one marker run one after another, and none waits without an end.",
        source=_PRACTICE,
        effect=Effect.NONE,
    ),
)

BOOK: Final = RuleBook(
    domain="ticketing",
    rules=(
        *_FILED,
        *_LIMITED,
        *_REFUSED_FIELDS,
        *_OWN_FAULTS,
        *_FORBIDDEN,
        *_PLACE,
        *_GRAPHQL_ERRORS,
        *_TROUBLES,
        *INFRASTRUCTURE,
    ),
    picked=_PICKED,
    codes=("errors.code", "errors.type", "errors.extensions.code", "block.reason", "code"),
    request_ids=("x-github-request-id",),
    unchanged="No ticket was opened.",
    unconfirmed="Whether a ticket was opened is not confirmed.",
)
"""GitHub's dialect, and what stands between us and GitHub."""
