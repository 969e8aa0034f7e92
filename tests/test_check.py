"""The kit: our domains hold, and for every check there is something that it finds."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import elastic_transport
import elasticsearch
import httpx
import pytest
import stripe
from elastic_transport._node import NodeApiResponse
from langchain_core.tools import BaseTool, StructuredTool, tool
from typer.testing import CliRunner, Result

from domains import DOMAINS
from domains import cases as subjects
from domains import check as kit
from domains.cli import app
from domains.infrastructure import BARE
from domains.mapping import Reply, Rule, RuleBook, When
from domains.search.rules import BOOK as SEARCH
from domains.shadows import dead_rows
from mocks.elasticsearch import ElasticsearchMock
from mocks.stripe import StripeMock
from mocks.vendor import Fault, Vendor
from orchestration import Effect, Outcome, Reason

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

C, T, F, P = Reason
ROOT: Final = Path(__file__).parents[1]
URL: Final = "https://vendor.example/docs"


@pytest.mark.parametrize("name", DOMAINS)
def test_our_domains_hold(name: str) -> None:
    """Every check runs on every domain, and finds nothing."""
    (case,) = subjects.cases(name)

    report = kit.check(case)

    assert ((), {}) == (report.findings, report.not_run)
    assert [check.name for check in kit.CHECKS] == list(report.held)


# Strangers.

OK: Final = Outcome("It is there.", C, "any/done", Effect.APPLIED, key="k1")
ENDS: Final = {
    "yes": OK,
    "later": Outcome("Not yet. Waiting would help.", T, "any/busy", key="k1"),
    "never": Outcome("It cannot be done.", F, "any/gone", key="k1"),
    "refused": Outcome("It is not permitted.", P, "any/refused", key="k1"),
}
DECLARED: Final = {
    "sample": {"what": "yes"},
    "forced": {reason.value: {"what": what} for what, reason in zip(ENDS, Reason, strict=True)},
}


@tool(response_format="content_and_artifact")
def keep(what: str) -> tuple[str, Any]:
    """Keep something."""
    return ENDS[what].as_tool_result()


def stranger(answer: Callable[[str], Any] | Any = None, **more: Any) -> BaseTool:
    """Return a stranger's tool that answers so; other keywords are the tool's own."""

    def keep(what: str) -> Any:
        """Keep something."""
        if callable(answer):
            return answer(what)
        return ENDS[what].as_tool_result() if answer is None else answer

    more = {"response_format": "content_and_artifact", "metadata": DECLARED, **more}
    return StructuredTool.from_function(keep, **more)


def test_a_plain_tool_is_checked_statically() -> None:
    """A tool that says nothing of itself: what cannot be checked is named, with what to declare."""
    report = kit.check(subjects.of_tool(keep))

    assert () == report.findings
    assert {"no-return-direct", "two-audiences", "can-be-prepared"} == set(report.held)
    assert "metadata['sample'] (or --args)" in report.not_run["words"]
    assert "metadata['bench']" in report.not_run["effect-is-true"]
    assert {check.name for check in kit.CHECKS} == {*report.held, *report.not_run}


def test_a_sample_runs_more() -> None:
    """With one ordinary call, all runs that need no more are made."""
    report = kit.check(subjects.of_tool(keep, {"what": "yes"}))

    assert () == report.findings
    assert {"plain-json", "words", "runtimes-agree", "checkpoints", "sync-and-async"} <= set(report.held)
    assert {"book", "forced", "secrets", "bench"} == {
        check.needs for check in kit.CHECKS if check.name in report.not_run
    }


def test_a_stranger_who_declares_all_reasons() -> None:
    """All four outcomes of a plain tool are forced, on both runtimes."""
    report = kit.check(subjects.of_tool(stranger()))

    assert () == report.findings
    assert "every-outcome" in report.held


# Each check, and something that it finds.


def row(name: str, reason: Reason = T, when: When | None = None, **fields: Any) -> Rule:
    """Return a row, past the checks of its own type."""
    made = Rule(id=name, reason=reason, when=when or When(), say="A sentence.", why="So it is.", source=URL)
    for field, value in fields.items():
        object.__setattr__(made, field, value)
    return made


LAST: Final = row("any/unknown")


def table(*rows: Rule, shared: bool = True) -> subjects.Case:
    """Return a case that is a table alone, past the checks of its own type."""
    book = copy(RuleBook(domain="any", rules=(LAST,)))
    object.__setattr__(book, "rules", (*rows, *(BARE.rules[:-1] if shared else ()), LAST))
    return subjects.Case(name="any", tool=keep, book=book)


def of(answer: Any = None, **more: Any) -> subjects.Case:
    """Return a case of a stranger's tool."""
    return subjects.of_tool(stranger(answer, **more))


def said(**changes: Any) -> tuple[str, Any]:
    """Return a good answer with some changes in its artifact."""
    content, artifact = OK.as_tool_result()
    return content, {**artifact, **changes}


def spoken(text: str) -> tuple[str, Any]:
    """Return a good answer with this text."""
    return text, OK.as_tool_result()[1]


class Shop(Vendor):
    """A vendor that books whatever it is sent, and forgets that it did."""

    def __init__(self) -> None:
        super().__init__()
        self.booked = 0
        self.route("POST", "/book", self._book)

    def _book(self, ask: object) -> Any:
        self.booked += 1
        return self.reply(200, {"done": True})

    def done(self) -> int:
        """Count what was booked."""
        return self.booked


class Silent(Shop):
    """The same, by somebody who wrote no oracle."""

    def done(self) -> int:
        """Count nothing."""
        return 0


def shop(
    *, denies: bool = False, raises: bool = False, key: object = "k1", kind: type[Shop] = Shop
) -> subjects.Case:
    """Return a tool that sends its one request without a look, with a bench."""

    def bench(faults: Sequence[Fault]) -> tuple[BaseTool, Vendor]:
        fake = kind()
        fake.script(*faults)
        client = fake.client()

        def book(what: str) -> Any:
            """Book something."""
            keyed = {"key": what if key == "what" else key}
            try:
                reply = Reply(response=client.post("/book"), write=True)
            except httpx.HTTPError as error:
                if raises:
                    raise
                reply = Reply(error=error, write=True)
            if reply.body == {"done": True}:
                return Outcome("Booked.", C, "shop/done", Effect.APPLIED, **keyed).as_tool_result()  # type: ignore[arg-type]
            effect = Effect.NONE if denies else Effect.UNKNOWN
            return Outcome("Not confirmed.", T, "shop/lost", effect, **keyed).as_tool_result()  # type: ignore[arg-type]

        return StructuredTool.from_function(book, response_format="content_and_artifact"), fake

    made, _ = bench(())
    made.metadata = {"sample": {"what": "room-12"}, "bench": bench}
    return subjects.of_tool(made)


def raising(what: str) -> Any:
    """Raise what an SDK raises."""
    raise ConnectionError(what)


async def awaited(what: str) -> Any:
    """Answer otherwise than the sync twin."""
    return ENDS["later"].as_tool_result()


def leaking(what: str) -> Any:
    """Log a key."""
    logging.getLogger("shop").warning("sent with %s", "key-5ecret")
    return OK.as_tool_result()


def fickle() -> Callable[[str], Any]:
    """Answer otherwise from the second call on."""
    came: list[str] = []

    def answer(what: str) -> Any:
        came.append(what)
        return ENDS["yes" if len(came) == 1 else "later"].as_tool_result()

    return answer


def unmatched() -> subjects.Case:
    """Return a tool that asks its fake for what that does not know, and sees a bad network."""
    fake = Vendor()

    def ask(what: str) -> Any:
        try:
            fake.client().get(f"/{what}")
        except AssertionError:
            return ENDS["later"].as_tool_result()

    made = stranger(ask)
    run = subjects.Run("the sample", lambda: subjects.Rig(made, {"what": "yes"}, fake))
    return subjects.Case(name="any", tool=made, sample=run)


SECRETIVE: Final = {**DECLARED, "secrets": ["key-5ecret"]}
NONE_OF_ITS: Final = {**DECLARED, "free_text": ["note"]}
NOT_ALL: Final = {"forced": {"completed": {"what": "yes"}}}
CODED: Final = (
    row("any/a", when=When(status=400, body={"code": ("one", "two")})),
    row("any/b", when=When(status=(400, 401), body={"code": "one"})),
    row("any/dead", when=When(status=400, body={"code": {"one", "two"}})),
)
UNFIT: Final = row("any/x", when=When(status=402))


def object_of(**fields: Any) -> Any:
    """Return a row with that field changed."""
    return row("any/x", when=When(status=402), **fields)


def own_step(last_step: bool) -> Any:
    """Keep something."""


CASES: Final[tuple[tuple[str, Callable[[], subjects.Case], str, str], ...]] = (
    ("ids-unique", lambda: table(UNFIT, UNFIT), "any/x stands 2 times", "Rename one"),
    ("one-fallback", lambda: table(row("any/all")), "any/all matches everything", "put it last"),
    ("no-dead-row", lambda: table(*CODED), "no reply reaches row any/dead", "Put any/dead before any/a"),
    ("argued", lambda: table(object_of(why=" ")), "any/x has no `why`", "Write `why`"),
    ("argued", lambda: table(object_of(source="http://x")), "names the source 'http://x'", "by https"),
    ("sentences", lambda: table(object_of(say="That was fatal.")), "control word 'fatal'", "everyday words"),
    ("sentences", lambda: table(object_of(say="See https://x.example.")), "https://x.example", "Leave links"),
    ("sentences", lambda: table(object_of(say="<b>No.</b>")), "the markup '<b>'", "plain text"),
    ("sentences", lambda: table(object_of(say="It is card_declined.")), "code 'card_declined'", "evidence"),
    ("sentences", lambda: table(object_of(say="Please try again.")), "order 'try again'", "the model's"),
    ("every-exception", lambda: table(shared=False), "the exception ConnectError", "rows of INFRASTRUCTURE"),
    (
        "proof-of-success",
        lambda: table(row("any/sent", C, When(status=200))),
        "any/sent takes a 200 with the body b'' for success",
        "the field of the body",
    ),
    (
        "no-return-direct",
        lambda: of(return_direct=True, response_format="content"),
        "return_direct",
        "Remove",
    ),
    ("two-audiences", lambda: of("done", response_format="content"), "a text alone", "content_and_artifact"),
    (
        "can-be-prepared",
        lambda: subjects.of_tool(StructuredTool.from_function(own_step)),
        "has an argument 'last_step' of its own",
        "Rename it",
    ),
    ("can-be-prepared", lambda: of(metadata=NONE_OF_ITS), "declares 'note'", "Name one of what"),
    ("answers", lambda: of(raising), "raises ConnectionError", "Reply.from_exception"),
    ("answers", unmatched, "no route for GET https://vendor.example/yes", "Add the route"),
    (
        "plain-json",
        lambda: of(said(evidence={"at": (1, 2)})),
        "artifact.evidence.at is a tuple",
        "plain JSON",
    ),
    ("plain-json", lambda: of(said(retry_after_s=2**70)), "more than 64 bits", "plain JSON"),
    ("plain-json", lambda: of(said(evidence={"n": float("nan")})), "no finite number", "plain JSON"),
    ("plain-json", lambda: of(said(reason=C)), "artifact.reason is a Reason", "plain JSON"),
    ("plain-json", lambda: of(said(rule="a\x00")), "NUL", "plain JSON"),
    (
        "plain-json",
        lambda: of(said(evidence={1: 2})),
        "the key 1 of artifact.evidence is a int",
        "plain JSON",
    ),
    ("version-1", lambda: of(("Done.", None)), "the artifact is None", "as_tool_result()"),
    ("version-1", lambda: of(("Done.", {"stop": True})), "lacks reason", "Return both"),
    ("version-1", lambda: of(said(stop=1)), "stop is 1", "one of the pairs"),
    ("version-1", lambda: of(said(reason="fatal", stop=False)), "'fatal' and stop is False", "fatal/true"),
    ("version-1", lambda: of(said(schema="1")), "schema is '1'", "Write 1"),
    ("version-1", lambda: of(said(key=7)), "key is 7", "str or null"),
    ("version-1", lambda: of(said(effect="done")), "effect is 'done'", "none, applied, unknown"),
    ("version-1", lambda: of(said(effect="unknown")), "an unknown effect", "transient until"),
    ("no-own-keys", lambda: of(said(already_paid=True)), "'already_paid' is a one-off boolean", "evidence"),
    ("no-own-keys", lambda: of(said(number=7)), "'number' is a key of its own", "evidence"),
    ("words", lambda: of(spoken("It was completed.")), "control word 'completed'", "everyday words"),
    ("words", lambda: of(spoken('{"stop": true}')), "the flag '\"stop\":'", "everyday words"),
    ("words", lambda: of(spoken("ReadTimeout('x')")), "the exception 'ReadTimeout'", "evidence"),
    ("words", lambda: of(spoken("See https://a.example/?key=1")), "the address", "keys travel there"),
    ("words", lambda: of(spoken("<p>Done.</p>")), "the markup '<p>'", 'format="html"'),
    ("words", lambda: of(("It says lost_card.", said(vendor_code="lost_card")[1])), "lost_card", "everyday"),
    ("words", lambda: of(spoken("")), "there is no text", "what was done"),
    ("every-outcome", lambda: of(metadata=NOT_ALL), "nothing makes it end as transient", "Add transient"),
    ("every-outcome", lambda: of(OK.as_tool_result()), "must end as fatal ends as completed", "Correct"),
    (
        "no-secrets",
        lambda: of(spoken("With key-5ecret."), metadata=SECRETIVE),
        "in the content",
        "whitelisted",
    ),
    ("no-secrets", lambda: of(leaking, metadata=SECRETIVE), "in the log or the output", "whitelisted"),
    (
        "no-secrets",
        lambda: of(said(evidence={"url": "?k=key-5ecret"}), metadata=SECRETIVE),
        "in the artifact",
        "whitelisted",
    ),
    ("sync-and-async", lambda: of(coroutine=awaited), "awaited, it answers otherwise", "sans I/O"),
    ("runtimes-agree", lambda: of(fickle()), "completed on graph: agent > tools > agent", "the same outcome"),
    ("checkpoints", lambda: of(("Done.", {"stop": object()})), "saving it raises TypeError", "plain JSON"),
    ("one-key", lambda: shop(key=None), "have 1 keys (None)", "one hash"),
    ("one-key", lambda: shop(key="what"), "the key holds 'room-12'", "Hash it"),
    ("once", shop, "the same call again, at once, does the work twice", "Look for the work"),
    ("once", lambda: shop(kind=Silent), "the fake counts nothing", "Write Silent.done()"),
    ("effect-is-true", lambda: shop(denies=True), "the effect is none, and the work was done", "unknown"),
    ("effect-is-true", lambda: shop(raises=True), "raises ReadTimeout: ReadTimeout at request 1", "Outcome"),
    ("effect-is-true", shop, "does the work twice: answer at request 1 (after)", "before you send"),
)
"""Check, what it is to find something in, and what it is to say."""


@pytest.mark.parametrize(("name", "case", "wrong", "change"), CASES)
def test_every_check_finds_something(
    name: str, case: Callable[[], subjects.Case], wrong: str, change: str
) -> None:
    """A finding names what is wrong, and what to change."""
    (check,) = [each for each in kit.CHECKS if each.name == name]

    findings = kit.check(case(), [check]).findings

    matching = [each for each in findings if wrong in each.wrong]
    assert matching, [str(each) for each in findings]
    found = matching[0]
    assert change in found.change
    assert (name, f"{found.subject}, {name}: {found.wrong}. {found.change}.") == (found.check, str(found))


def test_no_check_is_left_out() -> None:
    """Whoever adds a check shows what it finds."""
    assert {check.name for check in kit.CHECKS} == {name for name, *_ in CASES}


@pytest.mark.parametrize("broken", [of(return_direct=True), of(raising), of(("", object()))])
def test_a_broken_tool_breaks_no_check(broken: subjects.Case) -> None:
    """Whatever is wrong, every check reports, or says what it waits for."""
    report = kit.check(broken)

    assert report.findings
    assert report.row() == json.loads(json.dumps(report.row()))


# Rows that nothing reaches.


def when(**parts: Any) -> Rule:
    """Return a row about that."""
    return row(f"any/r{len(parts)}", when=When(**parts))


@pytest.mark.parametrize(
    ("earlier", "later", "dead"),
    [
        (When(status=range(400, 500)), When(status=402), True),
        (When(status=402), When(status=range(400, 500)), False),
        (When(status=402), When(), False),
        (When(error=httpx.TimeoutException), When(error=httpx.ReadTimeout), True),
        (When(error=httpx.ReadTimeout), When(error=httpx.TimeoutException), False),
        (When(error=("TimeoutException",)), When(error=httpx.ReadTimeout), True),
        (When(header={"X-A": "1"}), When(header={"x-a": "1"}, status=400), True),
        (When(header={"x-a": "1"}), When(status=400), False),
        (When(body={"a": str.islower}), When(body={"a": "low"}), True),
        (When(body={"a": "low"}), When(body={"a": str.islower}), False),
        (When(body={"a": None}), When(body={"a": None, "b": 1}), True),
        (When(body={"a": True}), When(body={"a": 1}), False),
        (When(phrases=("limit",)), When(phrases=("over the limit", "rate limit")), True),
        (When(phrases=("over the limit",)), When(phrases=("limit",)), False),
    ],
)
def test_shadows(earlier: When, later: When, dead: bool) -> None:
    """A row is dead if one before it takes every reply that it would match; in doubt it is alive."""
    found = list(dead_rows([row("any/a", when=earlier), row("any/b", when=later)]))

    assert dead == bool(found)


def test_rows_share_a_row_between_them() -> None:
    """Two rows may take a third one's replies together."""
    rows = [
        row("any/a", when=When(status=400)),
        row("any/b", when=When(body={"code": "two"})),
        row("any/c", when=When(status=(400, 401), body={"code": ("two",)})),
        row("any/d", when=When(status=(400, 401), body={"code": ("one", "two")})),
    ]

    assert ["any/c"] == [dead.id for dead, _ in dead_rows(rows)]


# Tools that wrap a vendor's official SDK.


class Node(elastic_transport.BaseNode):
    """The real Elasticsearch client's way to a fake in place of a network."""

    client: httpx.Client

    def perform_request(  # type: ignore[override]
        self, method: str, target: str, body: bytes | None = None, headers: Any = None, **more: Any
    ) -> NodeApiResponse:
        """Send with httpx, and raise as the real nodes do."""
        try:
            reply = self.client.request(method, target, content=body, headers=dict(headers or {}))
        except httpx.TimeoutException as error:
            raise elastic_transport.ConnectionTimeout("no answer", errors=(error,)) from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise elastic_transport.ConnectionError("no answer", errors=(error,)) from error
        meta = elastic_transport.ApiResponseMeta(
            status=reply.status_code,
            http_version="1.1",
            headers=elastic_transport.HttpHeaders(dict(reply.headers)),
            duration=0.0,
            node=self.config,
        )
        return NodeApiResponse(meta, reply.content)

    def close(self) -> None:
        """Nothing to close."""


def with_elasticsearch(
    faults: Sequence[Fault] = (), client: httpx.Client | None = None
) -> tuple[BaseTool, Vendor]:
    """Return a tool on the official client, and the fake that it talks to."""
    fake = ElasticsearchMock(faults=faults)
    wire = client or fake.client()
    node = type("Wire", (Node,), {"client": wire})
    sdk = elasticsearch.Elasticsearch(
        fake.base_url, node_class=node, headers=fake.headers(), max_retries=0, retry_on_status=()
    )

    @tool(response_format="content_and_artifact")
    def find(words: str) -> tuple[str, Any]:
        """Find products."""
        try:
            found = sdk.search(index="products", query={"match": {"body": words}}, size=3)
        except (elasticsearch.ApiError, elasticsearch.TransportError) as error:
            return SEARCH.classify(Reply.from_exception(error, write=False)).as_tool_result()
        reply = Reply(response=httpx.Response(200, json=found.body), write=False)
        return SEARCH.classify(reply).as_tool_result()

    return find, fake


def answered(request: httpx.Request) -> httpx.Response:
    """Answer by the words that are looked for, as Elasticsearch does."""
    words = json.loads(request.content)["query"]["match"]["body"]
    kinds = {"busy": (429, "es_rejected_execution_exception"), "hidden": (403, "security_exception")}
    product = {"x-elastic-product": "Elasticsearch", "content-type": "application/json"}
    if words in kinds:
        status, kind = kinds[words]
        return httpx.Response(status, json={"error": {"type": kind, "reason": "key-5ecret"}}, headers=product)
    hits = [{"_id": "1", "_source": {"title": "Mug"}}] * (words == "mug")
    shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
    found = {"total": {"value": len(hits), "relation": "eq"}, "max_score": None, "hits": hits}
    body = {"took": 1, "timed_out": False, "_shards": shards, "hits": found}
    return httpx.Response(200, json=body, headers=product)


def test_a_tool_on_an_official_sdk_holds() -> None:
    """It declares its sample, its four outcomes, a table, planted secrets and a bench: every check runs."""
    client = httpx.Client(transport=httpx.MockTransport(answered), base_url="http://search.example")
    find, _ = with_elasticsearch(client=client)
    words = dict(zip(Reason, ("mug", "busy", "submarine", "hidden"), strict=True))
    find.metadata = {
        "sample": {"words": "mug"},
        "forced": {reason.value: {"words": word} for reason, word in words.items()},
        "secrets": ["key-5ecret"],
        "book": SEARCH,
        "bench": with_elasticsearch,
    }

    report = kit.check(subjects.of_tool(find))

    assert ((), {}) == (report.findings, report.not_run)


class Stripes(stripe.HTTPClient):
    """The real Stripe client's way to a fake in place of a network."""

    name = "fake"

    def __init__(self, client: httpx.Client) -> None:
        super().__init__()
        self.client = client

    def request(self, method: str, url: str, headers: Any, post_data: Any = None, **more: Any) -> Any:
        """Send with httpx, and raise as the real clients do."""
        try:
            reply = self.client.request(method, url, headers=dict(headers), content=post_data)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise stripe.APIConnectionError("no answer") from error  # type: ignore[no-untyped-call]
        return reply.text, reply.status_code, dict(reply.headers)

    def close(self) -> None:
        """Nothing to close."""


def with_stripe(faults: Sequence[Fault] = ()) -> tuple[BaseTool, Vendor]:
    """Return a careless tool on the official client: it looks for nothing, and takes silence for a no."""
    fake = StripeMock(faults=faults)
    sdk = stripe.StripeClient(fake.key, http_client=Stripes(fake.client()), max_network_retries=0)
    book = DOMAINS["checkout"].book

    @tool(response_format="content_and_artifact")
    def charge(cart: str) -> tuple[str, Any]:
        """Charge a cart."""
        try:
            made = sdk.v1.payment_intents.create({"amount": 500, "currency": "usd", "customer": "cus_demo"})
            paid = sdk.v1.payment_intents.confirm(made.id, {"payment_method": "pm_card_visa"})
        except stripe.StripeError as error:
            return book.classify(Reply.from_exception(error, write=False)).as_tool_result()
        reply = Reply(response=httpx.Response(200, json=json.loads(str(paid))), write=True)
        return book.classify(reply).as_tool_result()

    return charge, fake


def test_a_careless_tool_on_an_official_sdk_is_found_out() -> None:
    """It charges twice, and denies what it did when the answer gets lost."""
    charge, _ = with_stripe()
    charge.metadata = {"sample": {"cart": "cart_7"}, "bench": with_stripe}

    findings = kit.check(subjects.of_tool(charge)).findings

    assert {"one-key", "once", "effect-is-true"} == {each.check for each in findings}
    said = [each.wrong for each in findings]
    assert "the same call again, at once, does the work twice" in said
    assert any(
        wrong.startswith("the effect is none, and the work was done: answer at request 2") for wrong in said
    )


# What can be named.


@dataclass
class Command:
    """A command line, run within this process, in a folder with a stranger's module."""

    folder: Path

    def __call__(self, *arguments: str) -> Result:
        """Run ``domains check``."""
        return CliRunner().invoke(app, ["check", *arguments])


MODULE: Final = '''
from langchain_core.tools import tool

@tool(response_format="content_and_artifact")
def good(what: str):
    """Keep something."""
    return "It is there.", {"stop": True, "reason": "completed"}

@tool
def bad(what: str):
    """Keep something."""
    return '{"stop": true}'

def both():
    return [good, bad]

def needs(client):
    return good

broken = 7
'''


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Stand in a folder that holds a stranger's module."""
    (tmp_path / "strangers.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "strangers", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return Command(tmp_path)


def test_a_domain_by_name(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that holds is listed, and the exit code is 0. Without a name, all domains are checked."""
    monkeypatch.setattr(kit, "CHECKS", kit.CHECKS[:9])

    named, every = command("search"), command()

    assert (0, 0) == (named.exit_code, every.exit_code)
    assert "search: 9 of 9 checks hold, all hold" in named.stdout
    assert "ok  no-dead-row" in named.stdout
    assert list(DOMAINS) == [name for name in DOMAINS if f"{name}: 9 of 9" in every.stdout]


def test_a_stranger_by_module(command: Command) -> None:
    """Findings exit 1 and say what to change; what did not run says what to declare."""
    result = command("strangers:both", "--args", '{"what": "x"}')

    assert 1 == result.exit_code
    text = " ".join(result.stdout.split())
    assert "good: 11 of 23 checks hold, all hold, 12 not run" in text
    assert "NO two-audiences it answers with a text alone" in text
    assert 'Declare response_format="content_and_artifact"' in text
    assert "-- one-key, once, effect-is-true: not run. Declare metadata['bench']" in text


def test_json(command: Command) -> None:
    """Scripts read the same."""
    result = command("strangers:good", "--json")

    (row,) = json.loads(result.stdout)
    assert (0, "good", True, []) == (result.exit_code, row["subject"], row["ok"], row["findings"])
    assert {check.name for check in kit.CHECKS} == {*row["held"], *row["not_run"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serch"], "Did you mean 'search'?"),
        (["search", "--args", "{}"], "a domain has its own SAMPLE"),
        (["strangers:good", "--args", "{"], "--args is no JSON"),
        (["strangers:good", "--args", "[]"], "--args must be a JSON object"),
        (["strangers:god"], "Did you mean 'good'?"),
        (["strangers:broken"], "int is no tool"),
        (["strangers:needs"], "needs() raised TypeError"),
        (["nowhere:good"], "cannot import nowhere: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_checked(command: Command, arguments: list[str], said: str) -> None:
    """A call that cannot be carried out exits 2, and says why."""
    result = command(*arguments)

    assert 2 == result.exit_code
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"forced": {"broken": {}}}, "reasons are completed, transient, fatal, policy_block"),
        ({"sample": "yes"}, "arguments must be a mapping, not str"),
    ],
)
def test_declarations_of_another_form(metadata: dict[str, Any], said: str) -> None:
    """A wrong declaration is refused, not passed over."""
    with pytest.raises(subjects.Refused, match=said):
        subjects.of_tool(stranger(metadata=metadata))


# The plugin.

USE: Final = """
import sys

def test_nothing_heavy_is_loaded():
    heavy = {"langchain", "langchain_core", "langgraph", "httpx", "pydantic", "typer", "rich", "mocks"}
    assert not heavy & {name.split(".")[0] for name in sys.modules}

def test_good(contract):
    (report,) = contract("strangers:good", {"what": "x"}, partial=True)
    assert "words" in report.held

def test_bad(contract):
    contract("strangers:bad", {"what": "x"}, partial=True)

def test_nothing_passes_in_silence(contract):
    contract("strangers:good")

def test_unknown(contract):
    contract("nope")
"""


def test_the_plugin(tmp_path: Path) -> None:
    """``contract`` fails with findings, and with what could not be checked; loading it costs nothing."""
    (tmp_path / "strangers.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "test_strangers.py").write_text(USE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "domains.pytest_plugin", "-p", "no:cacheprovider"]
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(tmp_path)!r}]; import pytest; "
    code = f"{path}sys.exit(pytest.main({[*command[3:], str(tmp_path)]!r}))"

    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # others load frameworks of their own
        capture_output=True,
        text=True,
        check=False,
    )

    assert "3 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "bad, two-audiences: it answers with a text alone" in done.stdout
    assert "good, one-key, once, effect-is-true: not run. Declare metadata['bench']" in done.stdout
    assert "there is no domain 'nope'" in done.stdout
