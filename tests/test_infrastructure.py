"""Networks, gateways and bot walls, whatever stands behind them."""

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.infrastructure import BARE, INFRASTRUCTURE
from domains.mapping import Reply, Rule, proven
from domains.reply import LARGEST_TEXT
from orchestration.outcomes import Outcome
from orchestration.reasons import Effect, Reason

C, T, F, P = Reason.COMPLETED, Reason.TRANSIENT, Reason.FATAL, Reason.POLICY_BLOCK
NONE, UNKNOWN = Effect.NONE, Effect.UNKNOWN
REQUEST = httpx.Request("POST", "https://vendor.example/v1/things?api_key=sk_secret")


def answer(status: int, body: object = "", /, write: bool | None = None, **headers: str) -> Reply:
    """Return a reply as a gateway would send it; header names are written with ``_`` for ``-``."""
    content = (
        body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body)
    )
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(response=httpx.Response(status, headers=named, content=content), write=write)


def raised(name: str, text: str = "", *bases: type[Exception]) -> Reply:
    """Return a reply in whose place an exception stands that we do not import."""
    return Reply(error=type(name, bases or (Exception,), {})(text))


def nginx(title: str) -> str:
    """Return a page as nginx writes it."""
    page = f"<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n"
    return f"<html>\r\n{page}<hr><center>nginx/1.25.3</center>\r\n</body>\r\n</html>\r\n"


def cloudflare(code: int, title: str) -> str:
    """Return a page as Cloudflare writes it."""
    inner = f'<span class="cf-error-code">{code}</span><h2>{title}</h2><p>Cloudflare Ray ID: 8a1b2c3d4e5f</p>'
    return f'<!DOCTYPE html>\n<html lang="en-US"><body><div id="cf-wrapper">{inner}</div></body></html>'


EXAMPLES: dict[str, Reply] = {
    "infra/advised-by-header": answer(401, x_should_retry="true"),
    "infra/advised-by-field": answer(403, {"error_code": 1005, "retryable": True}),
    "infra/partial": answer(200, {"data": {"a": 1}, "errors": [{"extensions": {"code": "FORBIDDEN"}}]}),
    "infra/envoy-overloaded": answer(503, x_envoy_overloaded="true"),
    "infra/envoy-overflow": answer(503, "upstream connect error. reset reason: overflow"),
    "infra/no-server": answer(503, "no healthy upstream"),
    "infra/alb-no-target": answer(503, server="awselb/2.0"),
    "infra/linkerd-fail-fast": answer(503, l5d_proxy_error="service in fail-fast"),
    "infra/fastly-domain": answer(500, "Fastly error: unknown domain: shop.example."),
    "infra/plan-code": answer(429, {"error": {"type": "insufficient_quota"}}),
    "infra/plan-header": answer(429, x_amzn_errortype="LimitExceededException"),
    "infra/plan-day-header": answer(
        429, {"message": "API rate limit exceeded"}, x_ratelimit_remaining_day="0"
    ),
    "infra/rate-window": answer(429, "Quota exceeded: 'Read requests per minute per user'"),
    "infra/plan-text": answer(
        403, {"message": "Out of call volume quota. Quota will be replenished in 01:23:45."}
    ),
    "infra/cloudflare-challenge": answer(403, "Just a moment...", cf_mitigated="challenge"),
    "infra/aws-waf-challenge": answer(405, x_amzn_waf_action="captcha"),
    "infra/vercel-challenge": answer(429, x_vercel_mitigated="challenge"),
    "infra/bot-wall": answer(403, {"url": "https://geo.captcha-delivery.com/captcha/"}),
    "infra/firewall-page": answer(
        200, "The requested URL was rejected. Please consult with your administrator."
    ),
    "infra/forbidden-wait": answer(403, Retry_After="60"),
    "infra/forbidden-none-left": answer(403, X_RateLimit_Remaining="0 "),
    "infra/forbidden-window-empty": answer(403, RateLimit_Remaining="0"),
    "infra/forbidden-rate": answer(403, {"message": "You have exceeded a secondary rate limit."}),
    "infra/busy-code": answer(200, {"ok": False, "error": "ratelimited"}),
    "infra/setup-code": answer(
        403, {"error": {"status": "PERMISSION_DENIED", "details": [{"reason": "SERVICE_DISABLED"}]}}
    ),
    "infra/credential-code": answer(200, {"ok": False, "error": "invalid_auth"}),
    "infra/forbidden-code": answer(200, {"data": None, "errors": [{"extensions": {"code": "FORBIDDEN"}}]}),
    "infra/unauthorized-code": answer(200, {"errors": [{"extensions": {"code": "UNAUTHORIZED"}}]}),
    "infra/credential-header": answer(403, x_amzn_errortype="ExpiredTokenException:http://internal.example/"),
    "infra/forbidden-bug": answer(
        403, "<h1>Forbidden (403)</h1><p>CSRF verification failed. Request aborted.</p>"
    ),
    "infra/cloudflare-address": answer(403, "error code: 1003"),
    "infra/bad-request-bug": answer(400, nginx("400 The plain HTTP request was sent to HTTPS port")),
    "infra/shared-host-limit": answer(508, "<h1>Resource Limit Is Reached</h1>"),
    "infra/too-many-requests": answer(429),
    "infra/client-gone": answer(499),
    "infra/other-moment": answer(408),
    "infra/conflict": answer(409),
    "infra/too-long": answer(413),
    "infra/not-found": answer(404),
    "infra/unauthorized": answer(401),
    "infra/paid-plan": answer(402),
    "infra/forbidden": answer(403, nginx("403 Forbidden")),
    "infra/legal": answer(451),
    "infra/moved": answer(302, location="https://sso.example/login"),
    "infra/misused": answer(405),
    "infra/bad-request": answer(400),
    "infra/gateway": answer(502, nginx("502 Bad Gateway")),
    "infra/server-error": answer(500),
    "infra/unreadable": answer(200, "<html>Please sign in</html>"),
    "infra/address": Reply(
        error=httpx.UnsupportedProtocol("Request URL has an unsupported protocol 'ftp://'.")
    ),
    "infra/untrusted": Reply(
        error=httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    ),
    "infra/tls": Reply(error=httpx.ConnectError("[SSL: WRONG_VERSION_NUMBER] wrong version number")),
    "infra/proxy-denied": Reply(error=httpx.ProxyError("403 Forbidden")),
    "infra/proxy-refused": Reply(error=httpx.ProxyError("407 Proxy Authentication Required")),
    "infra/unsendable": Reply(error=httpx.LocalProtocolError("Illegal header value")),
    "infra/no-credential": raised("NoCredentialsError"),
    "infra/redirect-loop": Reply(error=httpx.TooManyRedirects("Exceeded maximum allowed redirects.")),
    "infra/undecodable": Reply(error=httpx.DecodingError("Error -3 while decompressing data")),
    "infra/unreachable": Reply(error=httpx.ConnectError("[Errno -2] Name or service not known")),
    "infra/timeout": Reply(error=httpx.ReadTimeout("")),
    "infra/local-setup": Reply(error=FileNotFoundError("ca.pem")),
    "infra/connection-lost": Reply(error=httpx.RemoteProtocolError("Server disconnected")),
    "infra/bug": Reply(error=KeyError("id")),
    "infra/unknown": Reply(error=Exception("?")),
}
"""Row -> a reply that it decides."""


@pytest.mark.parametrize("rule", INFRASTRUCTURE, ids=lambda rule: rule.id)
def test_no_row_is_dead(rule: Rule) -> None:
    """Every row decides at least one real reply."""
    assert rule.id == BARE.classify(EXAMPLES[rule.id]).rule


def test_examples_name_no_row_that_is_gone() -> None:
    """The examples and the table hold the same rows, in the same order."""
    assert [rule.id for rule in INFRASTRUCTURE] == list(EXAMPLES)


def test_nothing_is_completed_here() -> None:
    """What nobody mapped is never taken for success."""
    assert [] == [rule.id for rule in INFRASTRUCTURE if rule.reason is C]


def test_only_the_last_row_matches_everything() -> None:
    """The fallback is the last row, and it is transient."""
    assert ["infra/unknown"] == [rule.id for rule in INFRASTRUCTURE if rule.when.everything]
    assert (T, "infra/unknown") == (INFRASTRUCTURE[-1].reason, INFRASTRUCTURE[-1].id)


def test_statuses_come_after_all_that_is_more_telling() -> None:
    """A row that asks for a status alone stands behind every row that asks for a mark, a header or a code."""
    asks = [
        (bool(r.when.status), bool(r.when.header or r.when.body or r.when.phrases)) for r in INFRASTRUCTURE
    ]
    assert max(i for i, (_, more) in enumerate(asks) if more) < asks.index((True, False))


def test_every_sentence_suits_a_tool_of_any_kind() -> None:
    """No sentence speaks of money, carts, tickets or searches, and none orders a call."""
    words = ("charge", "cart", "ticket", "issue", "search", "result", "retry", "call ", "try again")
    assert [] == [rule.id for rule in INFRASTRUCTURE if any(word in rule.say.lower() for word in words)]


def test_transient_sentences_say_what_would_help() -> None:
    """Whoever may go on is told what could change the result."""
    assert [] == [r.id for r in INFRASTRUCTURE[:-1] if r.reason is T and " may help." not in r.say]


HTTPX = [
    value
    for name in httpx.__all__
    if isinstance(value := getattr(httpx, name), type) and issubclass(value, Exception)
]
"""Every exception that httpx exports, also those of a version to come."""

HTTPX_REASONS: dict[type[Exception], tuple[Reason, Effect]] = {
    httpx.CloseError: (T, UNKNOWN),
    httpx.ConnectError: (T, NONE),
    httpx.ConnectTimeout: (T, NONE),
    httpx.CookieConflict: (F, UNKNOWN),
    httpx.DecodingError: (T, UNKNOWN),
    httpx.HTTPError: (T, UNKNOWN),
    httpx.HTTPStatusError: (T, UNKNOWN),
    httpx.InvalidURL: (F, NONE),
    httpx.LocalProtocolError: (F, NONE),
    httpx.NetworkError: (T, UNKNOWN),
    httpx.PoolTimeout: (T, NONE),
    httpx.ProtocolError: (T, UNKNOWN),
    httpx.ProxyError: (T, NONE),
    httpx.ReadError: (T, UNKNOWN),
    httpx.ReadTimeout: (T, UNKNOWN),
    httpx.RemoteProtocolError: (T, UNKNOWN),
    httpx.RequestError: (T, UNKNOWN),
    httpx.RequestNotRead: (F, UNKNOWN),
    httpx.ResponseNotRead: (F, UNKNOWN),
    httpx.StreamClosed: (F, UNKNOWN),
    httpx.StreamConsumed: (F, UNKNOWN),
    httpx.StreamError: (F, UNKNOWN),
    httpx.TimeoutException: (T, UNKNOWN),
    httpx.TooManyRedirects: (F, UNKNOWN),
    httpx.TransportError: (T, UNKNOWN),
    httpx.UnsupportedProtocol: (F, NONE),
    httpx.WriteError: (T, UNKNOWN),
    httpx.WriteTimeout: (T, UNKNOWN),
}
"""Class -> what it means, and what it proves about a write."""


def instance(cls: type[Exception]) -> Exception:
    """Make an exception of httpx, whatever its constructor takes."""
    if cls is httpx.HTTPStatusError:
        return httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(500))
    silent = (httpx.RequestNotRead, httpx.ResponseNotRead, httpx.StreamClosed, httpx.StreamConsumed)
    return cls() if cls in silent else cls("x")


@pytest.mark.parametrize("cls", HTTPX, ids=lambda cls: cls.__name__)
def test_every_httpx_exception_is_mapped(cls: type[Exception]) -> None:
    """A row above the fallback decides each, and a class that a new version brings fails here."""
    outcome = BARE.classify(Reply(error=instance(cls), write=True))

    assert HTTPX_REASONS[cls] == (outcome.reason, outcome.effect)
    assert outcome.rule != "infra/unknown"


def test_a_status_error_is_its_response() -> None:
    """``raise_for_status`` hides nothing: the response that it carries is classified."""
    error = httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(403))

    assert (P, "infra/forbidden") == (
        BARE.classify(Reply(error=error)).reason,
        BARE.classify(Reply(error=error)).rule,
    )
    assert "infra/forbidden" == [rule.id for rule, _ in BARE.explain(Reply(error=error))][-1]


CONNECTIONS: tuple[tuple[Exception, Reason, Effect], ...] = (
    (httpx.ConnectError("[Errno 111] Connection refused"), T, NONE),
    (httpx.ConnectError("[Errno -3] Temporary failure in name resolution"), T, NONE),
    (httpx.ConnectError("[SSL] certificate verify failed: self-signed certificate"), F, NONE),
    (httpx.ConnectError("Hostname mismatch, certificate is not valid for 'vendor.example'"), F, NONE),
    (httpx.ConnectError("[SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert protocol version"), F, NONE),
    (httpx.ReadError("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] certificate required"), F, UNKNOWN),
    (httpx.ConnectError("TLS: protocol version mismatch"), F, NONE),
    (httpx.ConnectError("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred"), T, NONE),
    (httpx.ConnectTimeout("TLS handshake timed out"), T, NONE),
    (httpx.ProxyError("403 Forbidden"), P, NONE),
    (httpx.ProxyError("Proxy Server could not connect: Connection not allowed by ruleset."), P, NONE),
    (httpx.ProxyError("407 Proxy Authentication Required"), F, NONE),
    (httpx.ProxyError("Invalid username/password"), F, NONE),
    (httpx.ProxyError("502 Bad Gateway"), T, NONE),
    (httpx.ProxyError("Proxy Server could not connect: Connection refused."), T, NONE),
    (RuntimeError("Cannot send a request, as the client has been closed."), F, NONE),
    (RuntimeError("Event loop is closed"), F, UNKNOWN),
    (UnicodeEncodeError("ascii", "\xe9", 0, 1, "ordinal not in range(128)"), F, NONE),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), T, UNKNOWN),
    (json.JSONDecodeError("Expecting value", "", 0), T, UNKNOWN),
    (RecursionError("maximum recursion depth exceeded"), T, UNKNOWN),
    (TypeError("bad argument"), F, UNKNOWN),
    (ValueError("bad value"), F, UNKNOWN),
    (AssertionError("no route"), F, UNKNOWN),
    (NotImplementedError(), F, UNKNOWN),
    (ConnectionRefusedError(111, "refused"), T, NONE),
    (socket.gaierror(-2, "Name or service not known"), T, NONE),
    (ssl.SSLCertVerificationError(1, "certificate verify failed"), F, NONE),
    (ssl.SSLError(1, "[SSL] internal error"), T, UNKNOWN),
    (ConnectionResetError(104, "reset"), T, UNKNOWN),
    (BrokenPipeError(32, "pipe"), T, UNKNOWN),
    (OSError(101, "Network is unreachable"), T, UNKNOWN),
    (PermissionError(13, "denied"), F, UNKNOWN),
    (TimeoutError(), T, UNKNOWN),
    (asyncio.IncompleteReadError(b"", 1), T, UNKNOWN),
)
"""Exception -> what it means, and what it proves about a write."""


@pytest.mark.parametrize(("error", "reason", "effect"), CONNECTIONS, ids=lambda value: repr(value)[:60])
def test_exceptions_prove_only_what_they_prove(error: Exception, reason: Reason, effect: Effect) -> None:
    """``none`` stands where nothing was sent; everything else on a write stays unknown."""
    outcome = BARE.classify(Reply(error=error, write=True))

    assert (reason, effect) == (outcome.reason, outcome.effect)
    assert outcome.rule != "infra/unknown"


FOREIGN: tuple[tuple[str, tuple[type[Exception], ...], Reason, Effect], ...] = (
    ("ConnectTimeout", (OSError,), T, NONE),  # requests: documented as safe to send again
    ("NewConnectionError", (), T, NONE),  # urllib3
    ("ConnectTimeoutError", (), T, NONE),  # urllib3, botocore
    ("ClientConnectorError", (OSError,), T, NONE),  # aiohttp
    ("EndpointConnectionError", (), T, NONE),  # botocore
    ("ClientConnectorCertificateError", (ValueError,), F, NONE),  # aiohttp
    ("InvalidURL", (ValueError,), F, NONE),  # requests, aiohttp
    ("MissingSchema", (ValueError,), F, NONE),  # requests
    ("ProxyError", (OSError,), T, UNKNOWN),  # requests: any socket error behind a proxy
    ("ConnectionError", (OSError,), T, UNKNOWN),  # requests
    ("ConnectionError", (), T, UNKNOWN),  # elastic_transport, below
    ("ConnectionTimeout", (), T, UNKNOWN),  # elastic_transport
    ("SerializationError", (), T, UNKNOWN),  # elastic_transport
    ("ReadTimeoutError", (), T, UNKNOWN),  # urllib3
    ("MaxRetryError", (), T, UNKNOWN),  # urllib3
    ("ServerDisconnectedError", (OSError,), T, UNKNOWN),  # aiohttp
    ("ClientPayloadError", (), T, UNKNOWN),  # aiohttp
    ("APIConnectionError", (), T, UNKNOWN),  # stripe, openai, groq
    ("APITimeoutError", (), T, UNKNOWN),  # openai, groq
    ("AuthenticationError", (), F, UNKNOWN),  # stripe without a key
    ("ClosedResourceError", (), T, UNKNOWN),  # anyio
    ("BrokenResourceError", (), T, UNKNOWN),  # anyio
    ("ContentTypeError", (), T, UNKNOWN),  # aiohttp
    ("ValidationError", (ValueError,), T, UNKNOWN),  # pydantic
    ("RpcError", (), T, UNKNOWN),  # grpc
)


@pytest.mark.parametrize(("name", "bases", "reason", "effect"), FOREIGN)
def test_other_clients_exceptions_are_known_by_name(
    name: str, bases: tuple[type[Exception], ...], reason: Reason, effect: Effect
) -> None:
    """No SDK is a dependency, and yet its exceptions are told apart."""
    outcome = BARE.classify(Reply(error=raised(name, "x", *bases).error, write=True))

    assert (reason, effect) == (outcome.reason, outcome.effect)


def test_an_exception_that_cannot_be_printed_is_classified() -> None:
    """Classifying never raises, not even on a broken ``__str__``."""

    class Broken(httpx.ProxyError):
        def __str__(self) -> str:
            raise ZeroDivisionError

    assert "infra/unreachable" == BARE.classify(Reply(error=Broken("x"))).rule


def test_cancellation_is_raised_again() -> None:
    """A cancelled task is no outcome."""
    with pytest.raises(asyncio.CancelledError):
        BARE.classify(Reply(error=asyncio.CancelledError()))


STATUSES: dict[Reason, tuple[int, ...]] = {
    T: (
        *(
            100,
            101,
            102,
            103,
            200,
            201,
            202,
            203,
            204,
            205,
            206,
            207,
            226,
            304,
            400,
            408,
            409,
            412,
            413,
            414,
            416,
        ),
        *(420, 421, 422, 423, 424, 425, 429, 444, 449, 460, 470, 499, 500, 502, 503, 504, 507),
        *(520, 521, 522, 523, 524, 525, 526, 527, 529, 530, 598, 599, 600, 777, 998),
    ),
    F: (
        *(
            300,
            301,
            302,
            303,
            305,
            307,
            308,
            401,
            404,
            405,
            406,
            407,
            410,
            411,
            415,
            417,
            418,
            419,
            426,
            428,
            431,
        ),
        *(440, 463, 464, 494, 495, 496, 497, 498, 501, 505, 506, 508, 510, 511, 561),
    ),
    P: (402, 403, 430, 450, 451, 509, 999),
}


@pytest.mark.parametrize(("status", "reason"), [(s, r) for r, statuses in STATUSES.items() for s in statuses])
def test_a_bare_status_decides(status: int, reason: Reason) -> None:
    """Without a word in header or body, the status is all there is."""
    assert reason == BARE.classify(answer(status)).reason


EFFECTS: tuple[tuple[Effect, Reply], ...] = (
    (NONE, answer(503, "upstream connect error or disconnect/reset before headers. reset reason: overflow")),
    (NONE, answer(503, x_envoy_overloaded="true")),
    (NONE, answer(503, "envoy overloaded")),
    (NONE, answer(503, nginx("503 Service Temporarily Unavailable"), server="awselb/2.0")),
    (NONE, answer(503, "Just a moment...", cf_mitigated="challenge")),
    (NONE, answer(503, retry_after="120")),
    *((NONE, answer(status)) for status in (302, 400, 403, 404, 409, 422, 429, 521, 523, 525, 526, 530)),
    *((UNKNOWN, answer(status)) for status in (200, 204, 460, 499, 500, 502, 503, 504, 520, 522, 524, 561)),
    (UNKNOWN, answer(200, {"ok": False, "error": "ratelimited"})),
    (UNKNOWN, answer(503, nginx("503 Service Temporarily Unavailable"))),
    (UNKNOWN, answer(502, nginx("502 Bad Gateway"), server="awselb/2.0")),
    (
        UNKNOWN,
        answer(
            503, "upstream connect error or disconnect/reset before headers. reset reason: connection failure"
        ),
    ),
    # Envoy and HAProxy say so, too, if the first attempt got through and the second finds no server.
    (UNKNOWN, answer(503, "no healthy upstream")),
    (UNKNOWN, answer(503, "<h1>503</h1>\nNo server is available to handle this request.\n")),
    (UNKNOWN, answer(503, {"message": "failure to get a peer from the ring-balancer"})),
    (UNKNOWN, answer(503, "no available server\n")),
    (UNKNOWN, answer(504, "upstream request timeout")),
    (UNKNOWN, answer(503, cloudflare(1102, "Worker exceeded resource limits"))),
    (UNKNOWN, answer(503, "<h1>Error 503 Backend fetch failed</h1><p>Guru Meditation:</p>")),
)


@pytest.mark.parametrize(
    ("effect", "reply"), EFFECTS, ids=[f"{e}-{r.status}-{i}" for i, (e, r) in enumerate(EFFECTS)]
)
def test_effects_on_a_write(effect: Effect, reply: Reply) -> None:
    """``none`` needs a proof: the status's own, or a gateway's mark that it did not pass the request on."""
    assert effect == BARE.classify(reply).effect


def test_a_read_has_no_effect() -> None:
    """Whatever happened to it, a read changed nothing."""
    replies = [
        answer(502, write=False),
        answer(200, write=False),
        Reply(error=httpx.ReadTimeout(""), write=False),
    ]

    assert {NONE} == {BARE.classify(reply).effect for reply in replies}


def test_a_client_that_left_early_proves_nothing() -> None:
    """The load balancer's 460 is a 4xx, and yet the request may have been passed on."""
    assert (NONE, UNKNOWN) == (proven(answer(460)), BARE.classify(answer(460)).effect)


REPLIES: tuple[tuple[Reason, Reply], ...] = (
    # 403: a rate limit, a fault of ours, or a rule.
    (T, answer(403, RETRY_AFTER="soon")),
    (T, answer(403, "<html>You are being rate limited</html>")),
    (T, answer(403, {"message": "Too Many Requests"})),
    (T, answer(403, {"error": {"code": 403, "errors": [{"reason": "rateLimitExceeded"}]}})),
    (T, answer(403, {"message": "Limit is 60 requests per minute"})),
    (P, answer(403, {"error": {"code": 403, "errors": [{"reason": "dailyLimitExceeded"}]}})),
    (P, answer(403, {"message": "Out of call volume quota."}, retry_after="5025")),
    (P, answer(403, {"message": "Resource not accessible by integration"}, x_ratelimit_remaining="4999")),
    (P, answer(403, {"message": "The API key does not have permission for this"})),
    (P, answer(403, {"message": "Forbidden"}, x_amzn_errortype="ForbiddenException")),
    (P, answer(403, {"Message": "User is not authorized to access this resource with an explicit deny"})),
    (P, answer(403, {"error": "Unauthorized"})),
    (P, answer(403, "RBAC: access denied")),
    (
        P,
        answer(
            403,
            "<H1>Access Denied</H1>You don't have permission to access this. Reference&#32;&#35;18&#46;1a",
        ),
    ),
    (P, answer(403, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")),
    (P, answer(403, cloudflare(1010, "banned your access based on your browser's signature"))),
    (P, answer(403, "error code: 1020")),
    (P, answer(403, "The request is blocked.", x_azure_ref="0abc")),
    (F, answer(403, {"message": "Missing Authentication Token"})),
    (F, answer(403, "<Error><Code>SignatureDoesNotMatch</Code></Error>")),
    (F, answer(403, {"detail": "Not authenticated"})),
    (F, answer(403, {"message": "Invalid API key"})),
    (F, answer(403, "Please make sure your request has a User-Agent header")),
    (F, answer(403, cloudflare(1000, "DNS points to prohibited IP"))),
    # 429: for now, or for the day.
    (T, answer(429, "local_rate_limited", x_envoy_ratelimited="true")),
    (T, answer(429, {"message": "Too Many Requests"}, x_amzn_errortype="TooManyRequestsException")),
    (T, answer(429, {"type": "https://api.example/problems/rate-limit-exceeded", "status": 429})),
    (
        T,
        answer(
            429, {"error": {"status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded: requests per minute"}}
        ),
    ),
    (T, answer(429, {"statusCode": 429, "message": "Rate limit is exceeded. Try again in 12 seconds."})),
    (T, answer(429, cloudflare(1015, "You are being rate limited"))),
    (P, answer(429, {"message": "Limit Exceeded"})),
    (P, answer(429, {"message": "You have reached your daily limit.", "errorType": "RATE_LIMIT"})),
    (P, answer(429, {"message": "You have exceeded the MONTHLY quota for Requests on your current plan."})),
    (P, answer(429, {"type": "urn:problem-type:example:quota-exceeded"})),
    (P, answer(429, cloudflare(1027, "This website has been temporarily rate limited"))),
    # Bot walls, whatever status they come with.
    (P, answer(503, "<title>Just a moment...</title>")),
    (P, answer(406, "This error was generated by Mod_Security.")),
    (P, answer(403, {"appId": "PX1", "blockScript": "/captcha/captcha.js"})),
    (P, answer(202, x_amzn_waf_action="challenge")),
    # Envelopes of vendors that nobody mapped.
    (T, answer(200, {"ok": "false"})),
    (T, answer(200, {"ok": True, "id": "T-9"})),
    (T, answer(200, {"data": None, "errors": [{"extensions": {"code": "THROTTLED"}}]})),
    (F, answer(200, {"data": {"a": None}, "errors": [{"extensions": {"code": "UNAUTHENTICATED"}}]})),
    (T, answer(400, {"__type": "com.amazonaws.dynamodb#ThrottlingException"})),
    (P, answer(400, {"__type": "AccessDeniedException"})),
    (F, answer(400, {"__type": "UnrecognizedClientException"})),
    (F, answer(400, {"error": {"status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}})),
    (P, answer(400, {"error": {"status": "PERMISSION_DENIED"}})),
    (T, answer(400, [{"errorCode": "REQUEST_LIMIT_EXCEEDED"}])),
    (T, answer(401, {"error": {"code": "invalid_api_key"}}, x_should_retry="true")),
    (F, answer(401, {"error": {"code": "invalid_api_key"}}, x_should_retry="false")),
    # Pages of gateways.
    (F, answer(404, "404 page not found\n")),
    (F, answer(400, nginx("400 No required SSL certificate was sent"))),
    (F, answer(401, "Jwt is expired")),
    (T, answer(409, cloudflare(1001, "DNS resolution error"))),
    (T, answer(530, cloudflare(1033, "Argo Tunnel error"))),
    (T, answer(503, "Unable to determine IP address", x_squid_error="ERR_DNS_FAIL 0")),
    (
        T,
        answer(
            200, '<html><head><meta http-equiv="refresh" content="0; url=http://login.wifi/"></head></html>'
        ),
    ),
    (T, answer(200, b'\xff\xfe{"id": "T-9", "sta')),
)


@pytest.mark.parametrize(
    ("reason", "reply"), REPLIES, ids=[f"{r.status}-{i}" for i, (_, r) in enumerate(REPLIES)]
)
def test_replies(reason: Reason, reply: Reply) -> None:
    """Gateways, walls and unmapped vendors are told apart by what they really send."""
    assert reason == BARE.classify(reply).reason


@pytest.mark.parametrize(
    ("wait", "reply"),
    [
        (30, answer(429)),
        (30, answer(429, retry_after="soon")),
        (7, answer(429, retry_after="7")),
        (60, answer(403, Retry_After="60")),
        (30, answer(403, x_ratelimit_remaining="0")),
        (None, answer(403)),
        (None, answer(500)),
    ],
)
def test_waits(wait: int | None, reply: Reply) -> None:
    """The vendor's own wait counts; a rate limit without one gets a default."""
    assert wait == BARE.classify(reply).retry_after_s


def secrets(outcome: Outcome) -> Iterator[str]:
    """Yield what of an outcome could hold the vendor's words."""
    yield outcome.content
    yield json.dumps(dict(outcome.evidence))


@given(
    status=st.integers(100, 999),
    headers=st.dictionaries(
        st.sampled_from(
            ["retry-after", "cf-mitigated", "x-amzn-errortype", "server", "content-type", "x-should-retry"]
        ),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
    ),
    body=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["error", "errors", "code", "data", "type", "ok", "retryable"]), inner
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass")),
    write=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_hostile_bytes(status: int, headers: dict[str, str], body: bytes, write: bool) -> None:
    """Any status, headers and bytes are classified, never as completed, and the two ways of asking agree."""
    reply = Reply(response=httpx.Response(status, headers=headers, content=body), write=write)
    outcome = BARE.classify(reply)

    assert outcome.reason is not C
    assert outcome.rule == next(rule.id for rule, mismatch in BARE.explain(reply) if mismatch is None)
    assert outcome.effect in {NONE, UNKNOWN}


def test_no_word_of_the_vendor_gets_out() -> None:
    """The sentence and the evidence are ours, whatever the page or the exception says."""
    error = httpx.ConnectError("https://vendor.example/v1/things?api_key=sk_secret", request=REQUEST)
    replies = [answer(status, "sk_secret " * 9, x_id="sk_secret") for status in (200, 302, 403, 429, 500)]
    outcomes = [BARE.classify(reply) for reply in (*replies, Reply(error=error))]

    assert [] == [text for outcome in outcomes for text in secrets(outcome) if "sk_secret" in text]


def test_a_long_page_is_read_at_its_top() -> None:
    """Pages say who they are at their top, and a page of megabytes costs no more than a short one."""
    assert T == BARE.classify(answer(503, "x" * LARGEST_TEXT + "captcha")).reason
    assert P == BARE.classify(answer(503, "captcha" + "x" * 5_000_000)).reason
