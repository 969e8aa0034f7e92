"""What stands between any tool and its vendor: networks, proxies, gateways, bot walls, and HTTP itself.

Every domain's book ends with these rows; alone they are ``BARE``, the book for vendors that nobody
mapped. There is no completed row: what nobody mapped is never taken for success.

A row states ``effect`` only where the gateway's own mark, or the exception, proves that the request was
not carried out; elsewhere ``proven()`` in ``mapping.py`` decides by the status.
"""

import re
from functools import lru_cache
from typing import Final

import httpx

from domains.mapping import Rule, RuleBook, When, present
from orchestration.reasons import Effect, Reason

CODE: Final = (
    "error|error.code|error.type|error.status|error.errors.reason|error.details.reason"
    "|errors.code|errors.type|errors.extensions.code|code|type|__type|errorCode|errorType|reason"
)
"""Where vendors that nobody mapped put a code: Slack, Google, OpenAI, GraphQL, AWS, RFC 9457 and kin."""

LONGEST_CODE: Final = 120
"""Characters. A longer string is prose."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RATE_WORDS: Final = _words(
    "ratelimit ratelimited ratelimiting ratelimiterror ratelimitexceeded ratelimitreached "
    "ratelimitreachederror ratelimitexceedederror ratelimitederror userratelimitexceeded "
    "secondaryratelimit toomanyrequests toomanyrequestsexception throttled throttling throttlingerror "
    "throttlingexception throttledexception requestthrottled requestthrottledexception "
    "requestlimitexceeded requestlimitexceededexception slowdown bandwidthlimitexceeded "
    "priorrequestnotcomplete resourceexhausted concurrencylimitexceeded "
    "provisionedthroughputexceededexception toomanyconcurrentrequests apilimitexceeded maxcostexceeded "
    "serviceunavailable serviceunavailableerror serviceunavailableexception serverunavailable unavailable "
    "temporarilyunavailable overloaded overloadederror serveroverloaded serverbusy engineoverloaded "
    "modeloverloaded timeout requesttimeout gatewaytimeout deadlineexceeded aborted backenderror"
)
_SPENT_WORDS: Final = _words(
    "insufficientquota quotaexceeded quotaexceedederror userquotaexceeded dailylimitexceeded "
    "dailylimitreached dailylimitexceededunreg dailyquotaexceeded monthlylimitexceeded "
    "monthlyquotaexceeded usagelimitexceeded usagelimitreached quotalimitexceeded quotaexhausted "
    "outofquota outofcallvolumequota billinghardlimitreached billinglimitreached billingnotactive "
    "billingdisabled billingerror billingnotenabled insufficientcredits insufficientcredit "
    "notenoughcredits outofcredits creditsexhausted creditlimitreached creditlimitexceeded "
    "paymentrequired planlimit planlimitreached planlimitexceeded spendlimitexceeded spendlimitreached "
    "spendinglimitreached servicequotaexceededexception limitexceededexception subscriptionrequired "
    "subscriptionexpired subscriptioninactive trialexpired planrequired planupgraderequired "
    "paidplanrequired upgradeplan teamquotaexceeded"
)
_CREDENTIAL_WORDS: Final = _words(
    "invalidauth notauthed notauthenticated accountinactive tokenrevoked tokenexpired tokeninvalid "
    "invalidtoken expiredtoken badtoken missingtoken invalidaccesstoken accesstokenexpired invalidapikey "
    "invalidkey apikeyinvalid apikeyexpired apikeymissing apikeynotfound missingapikey apikeyrevoked "
    "noapikey invalidcredentials invalidcredential badcredentials missingcredentials credentialsmissing "
    "invalidauthentication authenticationerror authenticationfailed authenticationfailure authfailed "
    "authfailure autherror invalidauthorization unauthenticated unauthorizederror unauthorizedexception "
    "invalidclient unauthorizedclient invalidgrant invalidsession sessionexpired "
    "unrecognizedclientexception invalidclienttokenid invalidaccesskeyid signaturedoesnotmatch "
    "invalidsignature invalidsignatureexception signatureinvalid signaturemismatch incompletesignature "
    "incompletesignatureexception missingauthenticationtoken missingauthenticationtokenexception "
    "expiredtokenexception invalidtokenexception requestexpired requesttimetooskewed jwtexpired "
    "invalidjwt"
)
_FORBIDDEN_WORDS: Final = _words(
    "forbidden forbiddenerror forbiddenexception permissiondenied permissiondeniedexception "
    "permissionerror nopermission missingpermission missingpermissions insufficientpermission "
    "insufficientpermissions insufficientprivileges accessdenied accessdeniederror accessdeniedexception "
    "accessnotgranted missingscope insufficientscope accesstokenscopeinsufficient notallowed "
    "operationnotpermitted restrictedaction unauthorizedoperation authorizationerror authorizationfailed "
    "notauthorized notpermitted orgloginrequired ekmaccessdenied teamaccessnotgranted "
    "enterpriseisrestricted accountsuspended accountdisabled accountblocked accountlocked usersuspended "
    "userdisabled consumersuspended blocked ipblocked ipnotallowed iprestricted countryblocked "
    "regionnotsupported unsupportedcountryregionterritory contentpolicyviolation contentfilter "
    "contentfiltered apikeyserviceblocked apikeyhttpreferrerblocked apikeyipaddressblocked "
    "policyviolation wafblocked complianceblock legalreasons"
)
_SETUP_WORDS: Final = _words(
    "servicedisabled accessnotconfigured apinotenabled apidisabled unknownmethod unknownoperation "
    "unknownoperationexception invalidaction methodnotallowed methodnotsupported methodnotimplemented "
    "notimplemented unimplemented methoddeprecated deprecatedendpoint endpointdeprecated "
    "versionnotsupported unsupportedversion invalidapiversion invalidversion unsupportedapiversion "
    "unsupportedmediatype notacceptable invalidhost "
    "csrftokenmismatch csrftokeninvalid csrftokenmissing csrffailed invalidcsrftoken "
    "missingcsrftoken missinguseragent useragentrequired httpsrequired sslrequired insecureconnection"
)


@lru_cache(maxsize=1024)
def _word(code: str) -> str:
    """Return a code as one word: vendors write it as ``rate_limit``, ``RateLimit``, a URN or a URL."""
    last = re.split(r"[/#:]", code.partition(":http")[0].rstrip("/"))[-1]
    return "".join(filter(str.isalnum, last)).lower()


def _names(value: object, words: frozenset[str]) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_CODE and _word(value) in words


def says_busy(value: object) -> bool:
    """Match a code for a rate limit, or for a server that is busy."""
    return _names(value, _RATE_WORDS)


def says_spent(value: object) -> bool:
    """Match a code for a plan, a budget or a daily cap that is used up."""
    return _names(value, _SPENT_WORDS)


def says_unknown_caller(value: object) -> bool:
    """Match a code for a credential that is missing, wrong, expired or badly signed."""
    return _names(value, _CREDENTIAL_WORDS)


def says_forbidden(value: object) -> bool:
    """Match a code for a valid credential that may not do this."""
    return _names(value, _FORBIDDEN_WORDS)


def says_misused(value: object) -> bool:
    """Match a code for an interface that is used, or set up, in the wrong way."""
    return _names(value, _SETUP_WORDS)


def answered(value: object) -> bool:
    """Match GraphQL data of which at least one field is there."""
    return any(item is not None for item in value.values()) if isinstance(value, dict) else present(value)


def _said(error: BaseException) -> str:
    """Return an exception's text; a broken ``__str__`` has none."""
    try:
        return str(error)
    except Exception:  # foreign code, and classifying never raises
        return ""


_UNVERIFIED: Final = re.compile(
    r"(?i)certificate.?verify.?failed|hostname mismatch|certificate is not valid for"
)
_TLS_REFUSED: Final = re.compile(
    r"(?i)certificate|wrong.?version.?number|unsupported.?protocol|unknown.?protocol"
    r"|alert protocol version|\b(?:tls|ssl)\b.{0,20}version"
)
_PROXY_DENIED: Final = re.compile(r"(?i)\b(?:403|451)\b|not allowed by ruleset|\bforbidden\b|access denied")
_PROXY_REFUSED: Final = re.compile(
    r"(?i)\b(?:400|401|404|405|407|501)\b|authenticat|username.password|but got|not supported"
)
_NOT_A_RULE: Final = re.compile(
    r"(?is)\A(?!.*(?:not (?:have|permitted|allowed|authorized|accessible)|lacks|permission|scope|banned))"
)
"""The text names no permission: "this API key lacks a scope" is a rule, "invalid API key" a fault of ours."""
_PROXY_NAMES: Final = frozenset({"ProxyError", "ProxyConnectionError", "ClientHttpProxyError"})


def _of_proxy(error: BaseException) -> bool:
    return not _PROXY_NAMES.isdisjoint(base.__name__ for base in type(error).__mro__)


def unverified_peer(error: BaseException) -> bool:
    """Match what a client raises if it does not trust the server's certificate."""
    return _UNVERIFIED.search(_said(error)) is not None


def tls_refused(error: BaseException) -> bool:
    """Match what a client raises if the two sides cannot agree on TLS."""
    names = {base.__name__ for base in type(error).__mro__}
    return not names.isdisjoint({"TransportError", "SSLError", "TlsError"}) and bool(
        _TLS_REFUSED.search(_said(error))
    )


def denied_by_proxy(error: BaseException) -> bool:
    """Match a proxy whose rules do not let the request out."""
    return _of_proxy(error) and _PROXY_DENIED.search(_said(error)) is not None


def refused_by_proxy(error: BaseException) -> bool:
    """Match a proxy that does not accept our credential, or is none."""
    return _of_proxy(error) and _PROXY_REFUSED.search(_said(error)) is not None


def client_closed(error: BaseException) -> bool:
    """Match what httpx raises if its client was closed before the call."""
    return isinstance(error, RuntimeError) and "client has been closed" in _said(error)


_ADVISED: Final = (
    Rule(
        id="infra/advised-by-header",
        when=When(status=range(400, 600), header={"x-should-retry": "true"}),
        reason=Reason.TRANSIENT,
        say="The service could not do this now. Waiting a little may help.",
        why="The vendor's explicit advice to retry beats what its codes let us guess.",
        source="https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py",
    ),
    Rule(
        id="infra/advised-by-field",
        when=When(
            status=range(400, 600), body={"retryable|error.retryable|is_transient|error.is_transient": True}
        ),
        reason=Reason.TRANSIENT,
        say="The service could not do this now. Waiting a little may help.",
        why="A field that says the error is retryable is the vendor's explicit advice.",
        source="https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-1xxx-errors/",
    ),
    Rule(
        id="infra/partial",
        when=When(status=range(200, 300), body={"data": answered, "errors": present}),
        reason=Reason.TRANSIENT,
        say="The service answered only in part. Asking for less, or with other details, may help.",
        why="Data beside errors proves neither success nor failure; a stop would hide the missing part.",
        source="https://spec.graphql.org/October2021/#sec-Errors",
    ),
)

_NO_CAPACITY: Final = (
    Rule(
        id="infra/envoy-overloaded",
        when=When(status=503, header={"x-envoy-overloaded": present}),
        reason=Reason.TRANSIENT,
        say="The service is too busy at the moment. Waiting a little may help.",
        why="Envoy sets this header when it drops a request itself; no server has seen it.",
        source="https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/router_filter",
        effect=Effect.NONE,
    ),
    Rule(
        id="infra/envoy-overflow",
        when=When(status=503, phrases=("reset reason: overflow", "envoy overloaded")),
        reason=Reason.TRANSIENT,
        say="The service is too busy at the moment. Waiting a little may help.",
        why="The same mark, in the text: Envoy dropped the request itself.",
        source="https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/circuit_breaking",
        effect=Effect.NONE,
    ),
    Rule(
        id="infra/no-server",
        when=When(
            status=(502, 503),
            phrases=(
                "no healthy upstream",
                "no server is available to handle this request",
                "no available server",
                "failure to get a peer from the ring-balancer",
                "name resolution failed",
                "backend is unhealthy",
                "no healthy backend",
            ),
        ),
        reason=Reason.TRANSIENT,
        say="The service has no free server at the moment. Waiting a little may help.",
        why="It proves nothing of a write: a gateway says so, too, if none is left for its second attempt.",
        source="https://github.com/envoyproxy/envoy/blob/main/source/common/router/router.cc",
    ),
    Rule(
        id="infra/alb-no-target",
        when=When(status=503, header={"server": re.compile(r"^awselb/")}),
        reason=Reason.TRANSIENT,
        say="The service has no free server at the moment. Waiting a little may help.",
        why="The load balancer's own 503 means that no target was registered or in use.",
        source="https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-troubleshooting.html",
        effect=Effect.NONE,
    ),
    Rule(
        id="infra/linkerd-fail-fast",
        when=When(
            status=(503, 504),
            header={"l5d-proxy-error": re.compile(r"(?i)fail-?fast|load ?shed")},
        ),
        reason=Reason.TRANSIENT,
        say="The service is too busy at the moment. Waiting a little may help.",
        why="The mesh's proxy names itself and dropped the request before sending it on.",
        source="https://linkerd.io/2/common-errors/http-503-504",
        effect=Effect.NONE,
    ),
    Rule(
        id="infra/fastly-domain",
        when=When(status=(500, 503), phrases=("fastly error: unknown domain",)),
        reason=Reason.FATAL,
        say="The service's address is not set up at its network. Somebody has to look at the setup.",
        why="The edge network knows no such host: no call with this address gets further.",
        source="https://www.fastly.com/documentation/guides/concepts/errors/",
        effect=Effect.NONE,
    ),
)

_PLAN: Final = (
    Rule(
        id="infra/plan-code",
        when=When(status=range(200, 600), body={CODE: says_spent}),
        reason=Reason.POLICY_BLOCK,
        say="What our plan for this service allows is used up.",
        why="A spent plan or daily cap comes back in hours or for money, not in minutes.",
        source="https://platform.openai.com/docs/guides/error-codes/api-errors",
    ),
    Rule(
        id="infra/plan-header",
        when=When(status=(403, 429), header={"x-amzn-errortype": says_spent}),
        reason=Reason.POLICY_BLOCK,
        say="What our plan for this service allows is used up.",
        why="API Gateway names a usage plan's quota in this header; its throttle has another name.",
        source="https://docs.aws.amazon.com/apigateway/latest/developerguide/supported-gateway-response-types.html",
    ),
    Rule(
        id="infra/plan-day-header",
        when=When(status=429, header={"x-ratelimit-remaining-day": "0"}),
        reason=Reason.POLICY_BLOCK,
        say="What our plan for this service allows in a day is used up.",
        why="Kong counts each window in a header of its own; the day's is at zero.",
        source="https://developer.konghq.com/plugins/rate-limiting/",
    ),
    Rule(
        id="infra/rate-window",
        when=When(
            status=(403, 429),
            phrases=("per minute", "per second", "perminute", "persecond"),
            body=re.compile(
                r"(?i)\b(?:requests|queries|calls|tokens|quota|limit)\b[^.<]{0,60}per ?(?:second|minute)"
            ),
        ),
        reason=Reason.TRANSIENT,
        say="The service gets too many requests at the moment. Waiting a little may help.",
        why="A quota for each second or minute is a rate limit, whatever it is called.",
        source="https://cloud.google.com/docs/quotas/overview",
        retry_after_s=30,
    ),
    Rule(
        id="infra/plan-text",
        when=When(
            status=(403, 429),
            phrases=(
                "quota",
                "daily",
                "monthly",
                "day",
                "month",
                "credit",
                "limit exceeded",
                "usage",
                "spend",
                "1027",
            ),
            body=re.compile(
                r"(?i)\b(?:daily|monthly|weekly)\b[^.<]{0,40}(?:limit|quota|cap\b|allowance|maximum)"
                r"|\b(?:requests?|calls|tokens|limit|quota)[^.<]{0,25}(?:\bper|\ba|/) ?(?:day|week|month)\b"
                r"|\bquota\b[^.<]{0,30}(?:exceeded|exhausted|used up|reached|depleted|replenished)"
                r"|\b(?:exceeded|exhausted|reached|used up|over)\b[^.<]{0,30}\b(?:quota|credits?)\b"
                r"|\b(?:insufficient|out of|not enough|no more)\b[^.<]{0,25}\b(?:credits?|quota)\b"
                r"|\bcredits?\b[^.<]{0,25}(?:exhausted|used up|depleted|expired|exceeded)"
                r"|\b(?:spend(?:ing)?|usage) (?:limit|cap)"
                r"|\"limit exceeded\"|(?:error code: |cf-error-code\">|error_code\": ?)1027\b"
            ),
        ),
        reason=Reason.POLICY_BLOCK,
        say="What our plan for this service allows is used up.",
        why="The text speaks of a plan, of credits, or of a day or longer: waiting minutes does not help.",
        source="https://learn.microsoft.com/azure/api-management/quota-policy",
    ),
)

_WALLS: Final = (
    Rule(
        id="infra/cloudflare-challenge",
        when=When(status=(401, 403, 429, 503), header={"cf-mitigated": "challenge"}),
        reason=Reason.POLICY_BLOCK,
        say="The service does not let automated requests through.",
        why="A challenge is for browsers; no call of a tool passes it.",
        source="https://developers.cloudflare.com/cloudflare-challenges/challenge-types/challenge-pages/detect-response/",
        effect=Effect.NONE,
    ),
    Rule(
        id="infra/aws-waf-challenge",
        when=When(status=(202, 403, 405), header={"x-amzn-waf-action": {"captcha", "challenge"}}),
        reason=Reason.POLICY_BLOCK,
        say="The service does not let automated requests through.",
        why="The firewall answered in the place of the service; no call of a tool solves its puzzle.",
        source="https://docs.aws.amazon.com/waf/latest/developerguide/waf-captcha-and-challenge-actions.html",
        effect=Effect.NONE,
    ),
    Rule(
        id="infra/vercel-challenge",
        when=When(status=(403, 429), header={"x-vercel-mitigated": "challenge"}),
        reason=Reason.POLICY_BLOCK,
        say="The service does not let automated requests through.",
        why="The firewall answered in the place of the service.",
        source="https://vercel.com/docs/vercel-firewall",
        effect=Effect.NONE,
    ),
    Rule(
        id="infra/bot-wall",
        when=When(
            status=(401, 403, 405, 406, 503),
            phrases=(
                "captcha",
                "just a moment",
                "attention required! | cloudflare",
                "checking your browser",
                "you are human",
                "you are a human",
                "incapsula",
                "perimeterx",
                "datadome",
                "access to this page has been denied",
                "sucuri website firewall",
                "generated by wordfence",
                "mod_security",
                "modsecurity",
                "requested url was rejected",
                "web application firewall",
                "awswaf",
                "ddos-guard",
                "unusual traffic",
                "enable javascript and cookies",
                "web page blocked",
                "policy_denied",
            ),
        ),
        reason=Reason.POLICY_BLOCK,
        say="The service does not let automated requests through.",
        why="A page for browsers stands in the place of the service; no argument of a tool gets past it.",
        source="https://developers.cloudflare.com/rules/custom-errors/reference/error-page-types/",
    ),
    Rule(
        id="infra/firewall-page",
        when=When(
            status=200,
            phrases=("the requested url was rejected. please consult with", "incapsula incident id"),
        ),
        reason=Reason.POLICY_BLOCK,
        say="The service does not let this request through.",
        why="These two firewalls send their refusal with the status of success.",
        source="https://docs.nginx.com/nginx-app-protect-waf/v4/configuration-guide/configuration/",
    ),
)

_FORBIDDEN_FOR_NOW: Final = (
    Rule(
        id="infra/forbidden-wait",
        when=When(status=403, header={"retry-after": present}),
        reason=Reason.TRANSIENT,
        say="The service gets too many requests at the moment. Waiting a little may help.",
        why="A 403 that names a wait is a rate limit in disguise.",
        source="https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api",
        retry_after_s=30,
    ),
    Rule(
        id="infra/forbidden-none-left",
        when=When(status=403, header={"x-ratelimit-remaining": "0"}),
        reason=Reason.TRANSIENT,
        say="The service gets too many requests at the moment. Waiting a little may help.",
        why="A 403 with no request left in the window is a rate limit in disguise.",
        source="https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api",
        retry_after_s=30,
    ),
    Rule(
        id="infra/forbidden-window-empty",
        when=When(status=403, header={"ratelimit-remaining": "0"}),
        reason=Reason.TRANSIENT,
        say="The service gets too many requests at the moment. Waiting a little may help.",
        why="The same, under the name that the draft standard gives it.",
        source="https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-05",
        retry_after_s=30,
    ),
    Rule(
        id="infra/forbidden-rate",
        when=When(
            status=403,
            phrases=(
                "rate limit",
                "rate_limit",
                "rate-limit",
                "ratelimit",
                "too many requests",
                "too many attempts",
                "too many calls",
                "throttl",
                "slow down",
                "slowdown",
                "abuse detection",
                "request limit exceeded",
                "try again later",
                "try again in ",
                "error code: 1015",
                'cf-error-code">1015',
            ),
        ),
        reason=Reason.TRANSIENT,
        say="The service gets too many requests at the moment. Waiting a little may help.",
        why="Some vendors and networks send their rate limit as a 403.",
        source="https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-1xxx-errors/error-1015/",
        retry_after_s=30,
    ),
)

_CODES: Final = (
    Rule(
        id="infra/busy-code",
        when=When(status=range(200, 600), body={CODE: says_busy}),
        reason=Reason.TRANSIENT,
        say="The service is too busy at the moment. Waiting a little may help.",
        why="The code speaks of the moment, whatever status it came with.",
        source="https://docs.slack.dev/apis/web-api/rate-limits",
        retry_after_s=30,
    ),
    Rule(
        id="infra/setup-code",
        when=When(status=range(200, 600), body={CODE: says_misused}),
        reason=Reason.FATAL,
        say="The service cannot be used in this way. Somebody has to look at the setup.",
        why="Another method, version or setting is needed; the model has none of them in hand.",
        source="https://cloud.google.com/apis/design/errors",
    ),
    Rule(
        id="infra/credential-code",
        when=When(status=range(200, 600), body={CODE: says_unknown_caller}),
        reason=Reason.FATAL,
        say="The service does not accept our access. Somebody has to look at the setup.",
        why="The model holds no credential: nothing that it could call repairs one.",
        source="https://docs.aws.amazon.com/IAM/latest/APIReference/CommonErrors.html",
    ),
    Rule(
        id="infra/forbidden-code",
        when=When(status=range(200, 600), body={CODE: says_forbidden}),
        reason=Reason.POLICY_BLOCK,
        say="The service does not allow this.",
        why="The credential is known, and somebody's rule does not let it do this.",
        source="https://cloud.google.com/apis/design/errors",
    ),
    Rule(
        id="infra/unauthorized-code",
        when=When(
            status=(range(200, 300), 400), body={CODE: {"unauthorized", "Unauthorized", "UNAUTHORIZED"}}
        ),
        reason=Reason.FATAL,
        say="The service does not accept our access. Somebody has to look at the setup.",
        why="Where the status leaves it open, the word means the credential; on a 403 it means a rule.",
        source="https://www.apollographql.com/docs/apollo-server/data/errors",
    ),
    Rule(
        id="infra/credential-header",
        when=When(status=(400, 403), header={"x-amzn-errortype": says_unknown_caller}),
        reason=Reason.FATAL,
        say="The service does not accept our access. Somebody has to look at the setup.",
        why="AWS sends 403 for a bad signature and an expired token, too, and names them in this header.",
        source="https://docs.aws.amazon.com/apigateway/latest/developerguide/supported-gateway-response-types.html",
    ),
    Rule(
        id="infra/forbidden-bug",
        when=When(
            status=403,
            phrases=(
                "user-agent",
                "user agent",
                "csrf token",
                "csrf cookie",
                "csrf verification",
                "csrf validation",
                "csrf check",
                "csrf failed",
                "invalid csrf",
                "missing csrf",
                "invalidauthenticitytoken",
                "signaturedoesnotmatch",
                "signature does not match",
                "signature doesn't match",
                "signature mismatch",
                "signature is invalid",
                "signature expired",
                "signature has expired",
                "signature we calculated",
                "invalid signature",
                "missing signature",
                "missing authentication token",
                "security token",
                "invalid token",
                "missing token",
                "expired token",
                "expiredtoken",
                "token is invalid",
                "token expired",
                "token is expired",
                "token has expired",
                "access token",
                "api key",
                "api-key",
                "apikey",
                "access key",
                "invalidaccesskeyid",
                "subscription key",
                "invalid credential",
                "bad credential",
                "missing credential",
                "credentials were not provided",
                "authorization header",
                "not authenticated",
                "unauthenticated",
                "jwt",
                "requesttimetooskewed",
                "request has expired",
                "https required",
                "https is required",
                "ssl required",
                "ssl is required",
                "requires https",
                "must use https",
                "blocked host",
                "invalid host",
                "has not been used in project",
            ),
            body=_NOT_A_RULE,
        ),
        reason=Reason.FATAL,
        say="The service does not accept how it is called. Somebody has to look at the setup.",
        why="The refusal names the tool's own fault: a header, a token, a signature, an address.",
        source="https://docs.djangoproject.com/en/stable/ref/csrf/",
    ),
    Rule(
        id="infra/cloudflare-address",
        when=When(
            status=403,
            phrases=("error code: 10", 'cf-error-code">10', "error_code"),
            body=re.compile(r"(?:error code: |cf-error-code\">|error_code\": ?)10(?:00|02|03|04|13|14|34)\b"),
        ),
        reason=Reason.FATAL,
        say="The service's address is not set up at its network. Somebody has to look at the setup.",
        why="Cloudflare serves no such host or address: no call with it gets further.",
        source="https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-1xxx-errors/",
    ),
    Rule(
        id="infra/bad-request-bug",
        when=When(
            status=400,
            phrases=(
                "http request was sent to https",
                "http request to an https",
                "ssl certificate",
                "client certificate",
                "invalid hostname",
                "invalid host header",
                "header or cookie too large",
                "header fields too large",
                "size of the request headers",
                "api key not valid",
                "<code>expiredtoken",
                "<code>invalidtoken",
            ),
        ),
        reason=Reason.FATAL,
        say="The service does not accept how it is called. Somebody has to look at the setup.",
        why="nginx and others send 400 for a wrong port, certificate or host: nothing that the model wrote.",
        source="https://github.com/nginx/nginx/blob/master/src/http/ngx_http_special_response.c",
    ),
    Rule(
        id="infra/shared-host-limit",
        when=When(status=508, phrases=("resource limit",)),
        reason=Reason.TRANSIENT,
        say="The service is too busy at the moment. Waiting a little may help.",
        why="Shared hosts send 508 while a site uses more than its share; that passes.",
        source="https://docs.cloudlinux.com/cloudlinuxos/limits/",
    ),
)

_STATUSES: Final = (
    Rule(
        id="infra/too-many-requests",
        when=When(status=(420, 429)),
        reason=Reason.TRANSIENT,
        say="The service gets too many requests at the moment. Waiting a little may help.",
        why="A rate limit passes; it says nothing against the request.",
        source="https://www.rfc-editor.org/rfc/rfc6585#section-4",
        retry_after_s=30,
    ),
    Rule(
        id="infra/client-gone",
        when=When(status=(460, 499)),
        reason=Reason.TRANSIENT,
        say="The connection was given up before the service answered. Waiting a little may help.",
        why="The gateway logs that the client left; the request may have been passed on before.",
        source="https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-troubleshooting.html",
        effect=Effect.UNKNOWN,
    ),
    Rule(
        id="infra/other-moment",
        when=When(status=(408, 421, 423, 424, 425, 444, 449)),
        reason=Reason.TRANSIENT,
        say="The service did not take this up at the moment. Waiting a little may help.",
        why="These statuses speak of the moment or the connection, not of the request.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-408-request-timeout",
    ),
    Rule(
        id="infra/conflict",
        when=When(status=(409, 412)),
        reason=Reason.TRANSIENT,
        say="Something else got in the way of this change. Looking at how things stand now may help.",
        why="The state of the thing was in the way; another look at it can settle that.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-409-conflict",
    ),
    Rule(
        id="infra/too-long",
        when=When(status=(413, 414)),
        reason=Reason.TRANSIENT,
        say="This was too long for the service. Shorter details may help.",
        why="The model wrote what was too long, and can shorten it.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-413-content-too-large",
    ),
    Rule(
        id="infra/not-found",
        when=When(status=(404, 410)),
        reason=Reason.FATAL,
        say="The service does not have what was asked for.",
        why="No vendor's row knows it: the address is wrong, which is configuration, or the thing is gone.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-404-not-found",
    ),
    Rule(
        id="infra/unauthorized",
        when=When(status=(401, 407, 419, 440, 498, 511, 561)),
        reason=Reason.FATAL,
        say="The service does not accept our access. Somebody has to look at the setup.",
        why="A credential is missing, wrong or expired; the model holds none.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-401-unauthorized",
    ),
    Rule(
        id="infra/paid-plan",
        when=When(status=(402, 509)),
        reason=Reason.POLICY_BLOCK,
        say="The service wants to be paid first, or what our plan for it allows is used up.",
        why="Without a vendor's code, these speak of credits, a plan or a traffic cap.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-402-payment-required",
    ),
    Rule(
        id="infra/forbidden",
        when=When(status=(403, 430, 450, 999)),
        reason=Reason.POLICY_BLOCK,
        say="The service does not allow this.",
        why="Somebody's rule refused; no argument changes it.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-403-forbidden",
    ),
    Rule(
        id="infra/legal",
        when=When(status=451),
        reason=Reason.POLICY_BLOCK,
        say="The service may not offer this here, for legal reasons.",
        why="A law or an order stands in the way.",
        source="https://www.rfc-editor.org/rfc/rfc7725#section-3",
    ),
    Rule(
        id="infra/moved",
        when=When(status=(range(300, 304), range(305, 400))),
        reason=Reason.FATAL,
        say="The service is no longer at the address that is set up. Somebody has to look at the setup.",
        why="Tools do not follow redirects, and no argument changes an address or passes a login page.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-redirection-3xx",
    ),
    Rule(
        id="infra/misused",
        when=When(
            status=(
                405,
                406,
                411,
                415,
                417,
                418,
                426,
                428,
                431,
                463,
                464,
                501,
                505,
                506,
                508,
                510,
                range(494, 498),
            )
        ),
        reason=Reason.FATAL,
        say="The service cannot be used in this way. Somebody has to look at the setup.",
        why="Method, headers, protocol and certificates are the tool's and the server's, not the model's.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-405-method-not-allowed",
    ),
    Rule(
        id="infra/bad-request",
        when=When(status=range(400, 500)),
        reason=Reason.TRANSIENT,
        say="The service did not accept the details of this request. Other details may help.",
        why="The model controls the arguments; an unknown 4xx counts as 400.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-status-codes",
    ),
    Rule(
        id="infra/gateway",
        when=When(status=(502, 504, range(520, 531), 598, 599)),
        reason=Reason.TRANSIENT,
        say="The service could not be reached behind its gateway. Waiting a little may help.",
        why="The gateway got no usable answer in time; the server behind it may have worked.",
        source="https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-5xx-errors/",
    ),
    Rule(
        id="infra/server-error",
        when=When(status=range(500, 600)),
        reason=Reason.TRANSIENT,
        say="The service has a problem of its own at the moment. Waiting a little may help.",
        why="A server's fault says nothing against the request.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-server-error-5xx",
    ),
    Rule(
        id="infra/unreadable",
        when=When(status=(range(100, 300), 304)),
        reason=Reason.TRANSIENT,
        say="The service's answer does not show what came of this. Looking at how things stand may help.",
        why="No row of the vendor's knows this answer: it proves neither success nor failure.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-successful-2xx",
    ),
)

_TRANSPORT: Final = (
    Rule(
        id="infra/address",
        when=When(
            error=(
                "UnsupportedProtocol",
                "InvalidURL",
                "MissingSchema",
                "InvalidSchema",
                "InvalidProxyURL",
                "LocationValueError",
                "NonHttpUrlClientError",
            )
        ),
        reason=Reason.FATAL,
        say="The service's address is not set up in a usable way. Somebody has to look at the setup.",
        why="No request can be made of such an address, and it is configuration.",
        source="https://www.python-httpx.org/exceptions/",
        effect=Effect.NONE,
    ),
    Rule(
        id="infra/untrusted",
        when=When(error=("SSLCertVerificationError", "ClientConnectorCertificateError", unverified_peer)),
        reason=Reason.FATAL,
        say="The service could not prove who it is. Somebody has to look at the setup.",
        why="A certificate that is not trusted is configuration or interception; neither passes by waiting.",
        source="https://docs.python.org/3/library/ssl.html#ssl.SSLCertVerificationError",
        effect=Effect.NONE,
    ),
    Rule(
        id="infra/tls",
        when=When(error=(tls_refused,)),
        reason=Reason.FATAL,
        say="No safe connection to the service is possible. Somebody has to look at the setup.",
        why="The two sides differ in protocol or certificates until somebody changes one.",
        source="https://docs.python.org/3/library/ssl.html#ssl.SSLError",
    ),
    Rule(
        id="infra/proxy-denied",
        when=When(error=(denied_by_proxy,)),
        reason=Reason.POLICY_BLOCK,
        say="Our network does not allow requests to this service.",
        why="The proxy's rules refuse the host.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-connect",
    ),
    Rule(
        id="infra/proxy-refused",
        when=When(error=(refused_by_proxy,)),
        reason=Reason.FATAL,
        say="Our network does not pass requests on as it is set up. Somebody has to look at the setup.",
        why="The proxy wants another credential, or is none.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-407-proxy-authentication-re",
    ),
    Rule(
        id="infra/unsendable",
        when=When(error=("LocalProtocolError", "InvalidHeader", UnicodeEncodeError, client_closed)),
        reason=Reason.FATAL,
        say="This request could not be sent at all. Somebody has to look at the setup.",
        why="The client refused the request before sending it: a header, a key, or its own state is wrong.",
        source="https://www.python-httpx.org/exceptions/",
        effect=Effect.NONE,
    ),
    Rule(
        id="infra/no-credential",
        when=When(
            error=(
                "AuthenticationError",
                "NoCredentialsError",
                "PartialCredentialsError",
                "CredentialRetrievalError",
                "DefaultCredentialsError",
                "RefreshError",
                "NoRegionError",
            )
        ),
        reason=Reason.FATAL,
        say="The service does not accept our access. Somebody has to look at the setup.",
        why="SDKs raise these before sending, or for a refused credential; the model holds none.",
        source="https://docs.stripe.com/error-handling",
    ),
    Rule(
        id="infra/redirect-loop",
        when=When(error=("TooManyRedirects",)),
        reason=Reason.FATAL,
        say="The service is no longer at the address that is set up. Somebody has to look at the setup.",
        why="The addresses send a client round in circles until somebody changes one.",
        source="https://www.python-httpx.org/exceptions/",
    ),
    Rule(
        id="infra/undecodable",
        when=When(
            error=(
                "DecodingError",
                "ContentDecodingError",
                "DecodeError",
                "JSONDecodeError",
                "ContentTypeError",
                "SerializationError",
                "APIResponseValidationError",
                "ValidationError",
                "ParamValidationError",
                UnicodeDecodeError,
                RecursionError,
            )
        ),
        reason=Reason.TRANSIENT,
        say="The service's answer does not show what came of this. Looking at how things stand may help.",
        why="An answer came and cannot be read, or details did not fit: neither proves success or failure.",
        source="https://www.python-httpx.org/exceptions/",
    ),
    Rule(
        id="infra/unreachable",
        when=When(
            error=(
                httpx.ProxyError,
                "ConnectError",
                "ConnectTimeout",
                "PoolTimeout",
                "NewConnectionError",
                "ConnectTimeoutError",
                "EmptyPoolError",
                "ClientConnectorError",
                "ConnectionTimeoutError",
                "EndpointConnectionError",
                "ConnectionFailed",
                "gaierror",
                ConnectionRefusedError,
            )
        ),
        reason=Reason.TRANSIENT,
        say="The service could not be reached. Waiting a little may help.",
        why="No connection came about, so nothing was sent; networks and names come back.",
        source="https://www.python-httpx.org/exceptions/",
        effect=Effect.NONE,
    ),
    Rule(
        id="infra/timeout",
        when=When(
            error=(
                httpx.TimeoutException,
                TimeoutError,
                "Timeout",
                "ReadTimeoutError",
                "ConnectionTimeout",
                "APITimeoutError",
                "DeadlineExceeded",
            )
        ),
        reason=Reason.TRANSIENT,
        say="The service did not answer in time. Waiting a little may help.",
        why="The request may have arrived, and the next one may be answered.",
        source="https://www.python-httpx.org/advanced/timeouts/",
    ),
    Rule(
        id="infra/local-setup",
        when=When(
            error=(FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, ImportError)
        ),
        reason=Reason.FATAL,
        say="This step is not set up on our side. Somebody has to look at the setup.",
        why="A file, a right or a package is missing on our machine; calling again does not bring it.",
        source="https://docs.python.org/3/library/exceptions.html#os-exceptions",
    ),
    Rule(
        id="infra/connection-lost",
        when=When(
            error=(
                httpx.HTTPError,
                OSError,
                EOFError,
                "TransportError",
                "APIConnectionError",
                "ClientConnectionError",
                "ClientPayloadError",
                "HTTPClientError",
                "HTTPException",
                "MaxRetryError",
                "ProtocolError",
                "ReadError",
                "WriteError",
                "RpcError",
                "ClosedResourceError",
                "BrokenResourceError",
                "EndOfStream",
                "IncompleteRead",
            )
        ),
        reason=Reason.TRANSIENT,
        say="The connection to the service broke before an answer came. Waiting a little may help.",
        why="The request may have arrived before the connection broke, and connections come back.",
        source="https://www.python-httpx.org/exceptions/",
    ),
    Rule(
        id="infra/bug",
        when=When(
            error=(
                httpx.StreamError,
                httpx.CookieConflict,
                TypeError,
                ValueError,
                LookupError,
                AttributeError,
                NameError,
                AssertionError,
                ArithmeticError,
                RuntimeError,
            )
        ),
        reason=Reason.FATAL,
        say="This step failed for a reason of its own. Somebody has to look at it.",
        why="A bug of the tool stays however often it is called.",
        source="https://docs.python.org/3/library/exceptions.html",
    ),
)

INFRASTRUCTURE: Final[tuple[Rule, ...]] = (
    *_ADVISED,
    *_NO_CAPACITY,
    *_PLAN,
    *_WALLS,
    *_FORBIDDEN_FOR_NOW,
    *_CODES,
    *_STATUSES,
    *_TRANSPORT,
    Rule(
        id="infra/unknown",
        reason=Reason.TRANSIENT,
        say="The service gave an answer that says nothing to us. Looking at how things stand may help.",
        why="In doubt the model decides: a stop that hides a partial failure is worse than one more call.",
        source="https://www.rfc-editor.org/rfc/rfc9110#name-status-codes",
    ),
)
"""The rows, most telling first: advice, marks and codes, then statuses, then exceptions; the last row
matches everything.
"""

BARE: Final = RuleBook(
    domain="infrastructure",
    rules=INFRASTRUCTURE,
    codes=("error.code", "error.type", "error.status", "errors.extensions.code", "code", "__type", "error"),
    unchanged="Nothing was changed.",
    unconfirmed="Whether anything was changed is not confirmed.",
)
"""The book for vendors that nobody mapped."""
