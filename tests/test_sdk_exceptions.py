"""What the vendors' own clients raise is read as the reply that it holds.

The real SDKs talk to a server on this machine that answers as the vendor does. The same answer, read by
httpx, must come to the same outcome. Were a package missing, this module would fail to import.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import ceil
from typing import Any, Final, TypeAlias

import elasticsearch
import github
import groq
import httpx
import pytest
import requests
import stripe

from domains import DOMAINS
from domains.infrastructure import BARE
from domains.mapping import Call, Flow, Reply, RuleBook, run
from orchestration.outcomes import Outcome
from orchestration.reasons import Effect, Reason

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

PATIENCE_S: Final = 10.0
"""How long a client waits for an answer: no slow machine is to look like a silent vendor."""

SHORT_S: Final = 0.2
"""How long it waits where no answer ever comes."""

KEY: Final = "not-a-key"


@dataclass(frozen=True)
class Wire:
    """One answer, as it goes over the wire."""

    status: int
    body: Any = ""
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def raw(self) -> bytes:
        """The body's bytes."""
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


class Vendor(ThreadingHTTPServer):
    """A server that gives every request the same answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = Wire(200)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Answers as its server says."""

    server: Vendor

    def do_POST(self) -> None:
        """Read the request whole, then answer."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        answer = self.server.answer
        self.send_response_only(answer.status)
        kind = "application/json" if not isinstance(answer.body, str) else "text/html"
        for name, value in (
            ("content-type", kind),
            *answer.headers,
            ("content-length", str(len(answer.raw))),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.raw)

    do_GET = do_PUT = do_POST  # noqa: N815 - the names that the server looks for

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def vendor() -> Iterator[Vendor]:
    """Start one server for all tests of this module."""
    with Vendor() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


# One call with each SDK; nothing is retried, so that one answer is one exception.
Sdk: TypeAlias = Callable[[str, float], object]


def with_stripe(url: str, patience: float) -> object:
    """Confirm a payment."""
    wire = stripe.RequestsClient(timeout=patience)
    client = stripe.StripeClient(KEY, base_addresses={"api": url}, max_network_retries=0, http_client=wire)
    try:
        return client.v1.payment_intents.confirm("pi_1", {"payment_method": "pm_1"})
    finally:
        wire.close()  # type: ignore[no-untyped-call]  # stripe has left it out


def with_elasticsearch(url: str, patience: float) -> object:
    """Search an index."""
    with elasticsearch.Elasticsearch(url, max_retries=0, request_timeout=patience) as client:
        return client.search(index="products", query={"match_all": {}})


def with_github(url: str, patience: float) -> object:
    """Open an issue."""
    with github.Github(
        auth=github.Auth.Token(KEY),
        base_url=url,
        retry=None,
        timeout=ceil(patience),
        seconds_between_requests=None,
        seconds_between_writes=None,
        lazy=True,
    ) as client:
        return client.get_repo("acme/shop").create_issue("Title")


def with_groq(url: str, patience: float) -> object:
    """Ask a model."""
    with groq.Groq(api_key=KEY, base_url=url, max_retries=0, timeout=patience) as client:
        return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])


def with_requests(url: str, patience: float) -> object:
    """Post with no SDK at all."""
    with requests.Session() as session:
        session.trust_env = False
        response = session.post(url, data={"a": "1"}, timeout=patience)
        response.raise_for_status()
        return response


def with_httpx(url: str, patience: float) -> object:
    """Post with httpx, and raise for the status."""
    with httpx.Client(trust_env=False, timeout=patience) as client:
        return client.post(url, data={"a": "1"}).raise_for_status()


BOOKS: Final[dict[Sdk, RuleBook]] = {
    with_stripe: DOMAINS["checkout"].book,
    with_elasticsearch: DOMAINS["search"].book,
    with_github: DOMAINS["ticketing"].book,
    with_groq: BARE,
    with_requests: BARE,
    with_httpx: BARE,
}
"""SDK -> the table that reads what it raises."""
every_sdk = pytest.mark.parametrize("sdk", BOOKS, ids=lambda sdk: sdk.__name__.removeprefix("with_"))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a proxy of the machine's out of the way."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def raised(sdk: Sdk, url: str, patience: float = PATIENCE_S) -> Exception:
    """Return what an SDK raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is the question
        sdk(url, patience)
    return caught.value


def direct(book: RuleBook, url: str, patience: float = PATIENCE_S) -> Outcome:
    """Return what the same answer comes to, read by httpx."""

    def flow() -> Flow:
        return book.classify((yield Call("POST", "/", write=True)))

    with httpx.Client(base_url=url, trust_env=False, timeout=patience) as client:
        return run(flow(), client)


def facts(outcome: Outcome) -> dict[str, object]:
    """Return all of an outcome that must not depend on who read the answer."""
    return {
        "reason": outcome.reason,
        "rule": outcome.rule,
        "effect": outcome.effect,
        "vendor_code": outcome.vendor_code,
        "wait": outcome.retry_after_s,
        "content": outcome.content,
        "evidence": outcome.evidence,
    }


def _stripe(status: int, *headers: tuple[str, str], **error: object) -> Wire:
    body = {"error": {"message": "vendor prose", "type": "invalid_request_error", **error}}
    return Wire(status, body, (("request-id", "req_1"), *headers))


def _elastic(status: int, kind: str, *headers: tuple[str, str]) -> Wire:
    cause = {"type": kind, "reason": "vendor prose"}
    body = {"error": {"root_cause": [cause], **cause}, "status": status}
    return Wire(status, body, (("x-elastic-product", "Elasticsearch"), *headers))


def _github(status: int, message: str, *headers: tuple[str, str], **fields: object) -> Wire:
    body = {"message": message, "documentation_url": "https://docs.github.com/rest", **fields}
    return Wire(status, body, (("x-github-request-id", "A1:B2"), *headers))


PAGE: Final = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<center>nginx</center>\r\n</html>"
ANYBODY: Final = (
    Wire(502, PAGE),
    Wire(503, {"error": {}}, (("retry-after", "5"),)),
    Wire(500),
    Wire(429),
    Wire(403, "no"),
)
SPENT: Final = (("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "4102444800"))

ANSWERS: Final[dict[Sdk, tuple[tuple[Reason, Wire], ...]]] = {
    with_stripe: (
        (
            Reason.FATAL,
            _stripe(402, type="card_error", code="card_declined", decline_code="insufficient_funds"),
        ),
        (
            Reason.POLICY_BLOCK,
            _stripe(402, type="card_error", code="card_declined", decline_code="fraudulent"),
        ),
        (Reason.TRANSIENT, _stripe(402, type="card_error", code="incorrect_cvc")),
        (Reason.TRANSIENT, _stripe(429, ("retry-after", "2"), code="rate_limit")),
        (Reason.TRANSIENT, _stripe(409, ("stripe-should-retry", "true"), type="idempotency_error")),
        (Reason.TRANSIENT, _stripe(400, code="parameter_missing", param="amount")),
        (Reason.FATAL, _stripe(401)),
        (Reason.POLICY_BLOCK, _stripe(403)),
        (Reason.FATAL, _stripe(404, code="resource_missing", param="customer")),
        (Reason.TRANSIENT, _stripe(500, type="api_error")),
    ),
    with_elasticsearch: (
        (Reason.FATAL, _elastic(404, "index_not_found_exception")),
        (Reason.TRANSIENT, _elastic(429, "es_rejected_execution_exception", ("retry-after", "3"))),
        (Reason.TRANSIENT, _elastic(400, "parsing_exception")),
        (Reason.POLICY_BLOCK, _elastic(403, "security_exception")),
        (Reason.FATAL, _elastic(401, "security_exception")),
        (Reason.TRANSIENT, _elastic(503, "cluster_block_exception")),
        (Reason.FATAL, Wire(400, {"error": "no handler found for uri [/x]"})),
    ),
    with_github: (
        (Reason.TRANSIENT, _github(403, "You have exceeded a secondary rate limit.", ("retry-after", "60"))),
        (Reason.TRANSIENT, _github(403, "You have exceeded a secondary rate limit.")),
        (Reason.TRANSIENT, _github(403, "API rate limit exceeded for user ID 1.", *SPENT)),
        (Reason.TRANSIENT, _github(429, "Too many requests")),
        (Reason.POLICY_BLOCK, _github(403, "Resource not accessible by integration")),
        (Reason.FATAL, _github(401, "Bad credentials")),
        (Reason.FATAL, _github(404, "Not Found")),
        (Reason.FATAL, _github(410, "Issues are disabled for this repo")),
        (
            Reason.TRANSIENT,
            _github(
                422,
                "Validation Failed",
                errors=[{"resource": "Issue", "field": "title", "code": "missing_field"}],
            ),
        ),
    ),
    with_groq: (
        (Reason.TRANSIENT, Wire(429, {"error": {"code": "rate_limit_exceeded"}}, (("retry-after", "7"),))),
        (Reason.FATAL, Wire(401, {"error": {"code": "invalid_api_key"}})),
        (Reason.TRANSIENT, Wire(400, {"error": {"code": "tool_use_failed"}})),
        (Reason.TRANSIENT, Wire(401, {"error": {}}, (("x-should-retry", "true"),))),
    ),
    with_requests: (
        (Reason.POLICY_BLOCK, Wire(402, {"error": "billing_not_active"})),
        (Reason.POLICY_BLOCK, Wire(451)),
        (Reason.TRANSIENT, Wire(429, "", (("retry-after", "7"), ("x-name", "Zo\xeb")))),
    ),
    with_httpx: ((Reason.POLICY_BLOCK, Wire(402, {"error": "billing_not_active"})),),
}
CASES: Final = [
    pytest.param(sdk, reason, wire, id=f"{sdk.__name__.removeprefix('with_')}-{wire.status}-{reason}")
    for sdk, answers in ANSWERS.items()
    for reason, wire in answers
]


@pytest.mark.parametrize(("sdk", "reason", "wire"), CASES)
def test_an_exception_is_the_reply_it_holds(sdk: Sdk, reason: Reason, wire: Wire, vendor: Vendor) -> None:
    """An SDK's exception and the raw answer come to one outcome, from the reason to the evidence."""
    vendor.answer = wire
    book = BOOKS[sdk]
    outcome = book.classify(Reply.from_exception(raised(sdk, vendor.url), write=True))

    assert reason == outcome.reason
    assert facts(direct(book, vendor.url)) == facts(outcome)


@every_sdk
@pytest.mark.parametrize("wire", ANYBODY, ids=lambda wire: str(wire.status))
def test_a_gateways_answer_too(sdk: Sdk, wire: Wire, vendor: Vendor) -> None:
    """What stands in front of a vendor answers with pages, or with nothing; the SDKs keep both."""
    vendor.answer = wire
    book = BOOKS[sdk]
    outcome = book.classify(Reply.from_exception(raised(sdk, vendor.url), write=True))

    assert facts(direct(book, vendor.url)) == facts(outcome)


@every_sdk
def test_a_flow_need_not_unwrap_it(sdk: Sdk, vendor: Vendor) -> None:
    """``classify`` takes the exception itself, or one of ours that was raised from it."""
    vendor.answer = Wire(429, {"error": {}}, (("retry-after", "7"),))
    book, error = BOOKS[sdk], raised(sdk, vendor.url)
    ours = RuntimeError("ours")
    ours.__cause__ = error

    assert {7} == {book.classify(Reply(error=each)).retry_after_s for each in (error, ours)}


@pytest.fixture
def refusing() -> str:
    """Return an address where nobody listens."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """Return an address where somebody listens and never answers."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def rude() -> Iterator[str]:
    """Return an address where somebody takes the request and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            while True:
                try:
                    peer = listening.accept()[0]
                except OSError:
                    return
                with peer:
                    peer.recv(65536)

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@every_sdk
@pytest.mark.parametrize("network", ["refusing", "silent", "rude"])
def test_without_an_answer(sdk: Sdk, network: str, request: pytest.FixtureRequest) -> None:
    """No answer is transient in every SDK's words, and never proves more than the plain exception does."""
    url: str = request.getfixturevalue(network)
    patience = SHORT_S if network == "silent" else PATIENCE_S
    book = BOOKS[sdk]
    outcome = book.classify(Reply.from_exception(raised(sdk, url, patience), write=True))
    plain = direct(book, url, patience)

    assert (Reason.TRANSIENT, Reason.TRANSIENT) == (plain.reason, outcome.reason)
    assert outcome.effect in {plain.effect, Effect.UNKNOWN}
    assert outcome.rule not in {book.fallback.id, "infra/bug"}
    assert None is outcome.vendor_code


@pytest.mark.parametrize("sdk", [with_groq, with_httpx], ids=["groq", "httpx"])
def test_sdks_on_httpx_lose_nothing(sdk: Sdk, refusing: str) -> None:
    """Where the cause is httpx's own exception, that one counts: nothing was sent."""
    outcome = BARE.classify(Reply.from_exception(raised(sdk, refusing), write=True))

    assert ("infra/unreachable", Effect.NONE) == (outcome.rule, outcome.effect)
    assert {"exception": "ConnectError"} == outcome.evidence


def test_an_sdk_without_a_key_is_configuration() -> None:
    """Stripe raises before it sends anything; no call of the model's finds the key."""
    with pytest.raises(stripe.AuthenticationError) as caught:
        stripe.StripeClient(None)  # type: ignore[arg-type]  # as os.environ.get() gives it

    assert Reason.FATAL == DOMAINS["checkout"].book.classify(Reply.from_exception(caught.value)).reason


@pytest.mark.parametrize("sdk", [with_stripe, with_github], ids=["stripe", "github"])
def test_half_an_answer_is_no_success(sdk: Sdk, vendor: Vendor) -> None:
    """A 200 whose JSON is cut short raises in an SDK; it proves neither success nor failure."""
    vendor.answer = Wire(200, '{"id": 1, "status": "succeeded", ')
    outcome = BOOKS[sdk].classify(Reply.from_exception(raised(sdk, vendor.url), write=True))

    assert (Reason.TRANSIENT, Effect.UNKNOWN) == (outcome.reason, outcome.effect)


def test_what_stripe_drops_is_not_guessed(vendor: Vendor) -> None:
    """Stripe's client loses the headers of a page: its wait is not known then, and nothing is proven."""
    vendor.answer = Wire(503, PAGE, (("retry-after", "5"),))
    book = BOOKS[with_stripe]
    outcome = book.classify(Reply.from_exception(raised(with_stripe, vendor.url), write=True))
    plain = direct(book, vendor.url)

    assert (plain.reason, plain.rule) == (outcome.reason, outcome.rule)
    assert (5, Effect.NONE) == (plain.retry_after_s, plain.effect)
    assert (None, Effect.UNKNOWN) == (outcome.retry_after_s, outcome.effect)
