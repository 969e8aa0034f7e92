"""``write_record`` over Salesforce's fake: written once, and over nobody else's change."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any

import httpx
import pytest

from domains.mapping import Call, Reply, arun, run
from domains.records import tool
from domains.records.rules import BOOK
from domains.records.scenarios import FORCED, SAMPLE
from domains.records.tool import LONGEST_VALUE, record_flow, tools
from domains.runner import vendor
from mocks.salesforce import NUMBER, SalesforceMock
from mocks.vendor import NEVER_SENT, PAIRS, Fault, answer
from orchestration.outcomes import Outcome
from orchestration.reasons import Effect, Reason

C, T, F, P = Reason.COMPLETED, Reason.TRANSIENT, Reason.FATAL, Reason.POLICY_BLOCK
NUMBERED = "ACME-7"
WANTED = {"Name": "Acme", "Phone": "+49 30 7"}
THERE = {NUMBERED: {"Name": "Acme", "Phone": "+49 30 1"}}
FLOW = record_flow("Account", NUMBER)

Driver = Callable[..., Outcome]


def in_thread(mock: SalesforceMock, fields: Mapping[str, Any] = WANTED, number: str = NUMBERED) -> Outcome:
    """Drive one call over a sync client."""
    with mock.client() as client:
        return run(FLOW(number, dict(fields)), client)


def in_task(mock: SalesforceMock, fields: Mapping[str, Any] = WANTED, number: str = NUMBERED) -> Outcome:
    """Drive one call over an async client."""

    async def go() -> Outcome:
        async with mock.async_client() as client:
            return await arun(FLOW(number, dict(fields)), client)

    return asyncio.run(go())


DRIVERS = pytest.mark.parametrize("drive", [in_thread, in_task])


def sent(mock: SalesforceMock) -> list[str]:
    """Return the methods of the requests, in order."""
    return [request.method for request in mock.requests]


def said(code: str, message: str = "the vendor's own words") -> list[dict[str, Any]]:
    """Return one of Salesforce's errors."""
    return [{"message": message, "errorCode": code, "fields": []}]


def by_hand(*replies: httpx.Response | Exception) -> tuple[list[Call], Outcome]:
    """Answer a flow's calls in order; return the calls and the outcome."""
    flow = FLOW(NUMBERED, dict(WANTED))
    calls = [next(flow)]
    for came in replies:
        write = calls[-1].write
        reply = Reply(error=came, write=write) if isinstance(came, Exception) else Reply(came, write=write)
        try:
            calls.append(flow.send(reply))
        except StopIteration as end:
            return calls, end.value
    raise AssertionError(f"the flow went on with {calls[-1]}")


ABSENT = httpx.Response(404, json=said("NOT_FOUND", "The requested resource does not exist"))
CREATED = {"id": "001000000000001AAA", "success": True, "errors": []}


def row(fields: Mapping[str, Any] = WANTED, **headers: str) -> httpx.Response:
    """Return a record as it is read."""
    body = {"Id": "001000000000001AAA", "LastModifiedDate": "2026-01-01T00:00:01.700+0000", **fields}
    return httpx.Response(200, json=body, headers={n.replace("_", "-"): v for n, v in headers.items()})


EXAMPLES: list[tuple[str, Reason, int, object]] = [
    ("created", C, 201, CREATED),
    ("stale", T, 412, ""),
    ("exists", T, 400, said("DUPLICATE_VALUE")),
    ("locked-row", T, 400, said("UNABLE_TO_LOCK_ROW")),
    ("conflict", T, 409, said("CONFLICT")),
    ("ambiguous", F, 300, ["/services/data/v62.0/sobjects/Account/1"]),
    ("too-many-at-once", T, 403, said("REQUEST_LIMIT_EXCEEDED", "ConcurrentPerOrgLongTxn Limit exceeded.")),
    ("quota", P, 403, said("REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded.")),
    ("quota", P, 400, said("STORAGE_LIMIT_EXCEEDED")),
    ("rate", T, 429, ""),
    ("not-permitted", P, 403, said("INSUFFICIENT_ACCESS_OR_READONLY")),
    ("not-permitted", P, 403, said("API_DISABLED_FOR_ORG")),
    ("locked", P, 400, said("ENTITY_IS_LOCKED")),
    ("looks-like-another", P, 400, said("DUPLICATES_DETECTED")),
    ("session", F, 401, said("INVALID_SESSION_ID")),
    ("deleted", F, 404, said("ENTITY_IS_DELETED")),
    ("setup", F, 404, said("NOT_FOUND")),
    ("setup", F, 405, said("METHOD_NOT_ALLOWED")),
    ("automation", F, 400, said("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY")),
    ("field-missing", T, 400, said("REQUIRED_FIELD_MISSING")),
    ("field-unknown", T, 400, said("INVALID_FIELD")),
    ("value", T, 400, said("FIELD_CUSTOM_VALIDATION_EXCEPTION")),
    ("value", T, 400, said("STRING_TOO_LONG")),
    ("unavailable", T, 503, said("SERVER_UNAVAILABLE")),
]


class TestTable:
    """Salesforce's answers, row by row."""

    @pytest.mark.parametrize(("name", "reason", "status", "body"), EXAMPLES)
    def test_example(self, name: str, reason: Reason, status: int, body: object) -> None:
        """The reply is decided by this row, with this reason; what is refused has changed nothing."""
        outcome = BOOK.classify(Reply(httpx.Response(status, json=body), write=True))

        assert (f"records/{name}", reason) == (outcome.rule, outcome.reason)
        if reason is C:
            assert Effect.APPLIED is outcome.effect
        elif status < 500:
            assert Effect.NONE is outcome.effect
            assert "Nothing was written." in outcome.content

    def test_every_row_has_an_example(self) -> None:
        """No row is dead."""
        own = [rule.id for rule in BOOK.rules if rule.id.startswith("records/")]

        assert own == list(dict.fromkeys(f"records/{name}" for name, *_ in EXAMPLES))

    @pytest.mark.parametrize("rule", [rule.id for rule in BOOK.picked])
    def test_every_picked_row_is_picked(self, rule: str) -> None:
        """A row without a condition is named by the flow."""
        assert f'"{rule}"' in inspect.getsource(tool)

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (200, CREATED),
            (204, ""),
            (201, {}),
            (201, [CREATED]),
            (201, {**CREATED, "success": False}),
            (201, {**CREATED, "success": "true"}),
            (201, {**CREATED, "id": "1"}),
            (201, {**CREATED, "errors": said("X")}),
            (500, CREATED),
        ],
    )
    def test_no_proof(self, status: int, body: object) -> None:
        """Without its status, its id and the absence of errors nothing was created, for all we know."""
        outcome = BOOK.classify(Reply(httpx.Response(status, json=body), write=True))

        assert (C is not outcome.reason, Effect.UNKNOWN) == (True, outcome.effect)


class TestWriting:
    """One call, nothing goes wrong."""

    @DRIVERS
    def test_created(self, drive: Driver) -> None:
        """A new record holds its number, and the answer is proof enough."""
        mock = SalesforceMock()

        outcome = drive(mock)

        assert ("records/created", Effect.APPLIED) == (outcome.rule, outcome.effect)
        assert "The record was written. Its number is ACME-7." == outcome.content
        assert {NUMBER: NUMBERED, **WANTED} == mock.fields(NUMBERED)
        assert ["GET", "POST"] == sent(mock)

    @DRIVERS
    def test_changed(self, drive: Driver) -> None:
        """A change is a 204 without a word, so it is proven by another look; other fields stay."""
        mock = SalesforceMock(records={NUMBERED: {**THERE[NUMBERED], "BillingCity": "Berlin"}})

        outcome = drive(mock)

        assert ("records/changed", Effect.APPLIED) == (outcome.rule, outcome.effect)
        assert "answer_lost" not in outcome.evidence
        assert {NUMBER: NUMBERED, **WANTED, "BillingCity": "Berlin"} == mock.fields(NUMBERED)
        assert ["GET", "PATCH", "GET"] == sent(mock)

    @DRIVERS
    def test_already_applied(self, drive: Driver) -> None:
        """The same write again sends nothing, and says so in its evidence alone."""
        mock = SalesforceMock()
        first, second = drive(mock), drive(mock)

        assert ("records/as-asked", C, Effect.APPLIED) == (second.rule, second.reason, second.effect)
        assert (None, True) == tuple(each.evidence.get("already_applied") for each in (first, second))
        assert first.key == second.key
        assert (1, ["GET", "POST", "GET"]) == (mock.done(), sent(mock))

    @pytest.mark.parametrize(
        ("held", "wanted", "same"),
        [
            ("Acme", " Acme ", True),
            (None, "", True),
            (None, None, True),
            (5, 5.0, True),
            (1, True, False),
            ("5", 5, False),
            ("Acme", "acme", False),
            ("Acme", None, False),
            ([], None, False),
        ],
    )
    def test_what_counts_as_the_same(self, held: object, wanted: Any, same: bool) -> None:
        """Values are compared as Salesforce keeps them: trimmed, and empty texts as null."""
        flow = FLOW(NUMBERED, {"name": wanted})
        next(flow)
        answered = Reply(row({"Name": held}))
        if same:
            with pytest.raises(StopIteration) as ended:
                flow.send(answered)
            assert "records/as-asked" == ended.value.value.rule
        else:
            assert "PATCH" == flow.send(answered).method

    @pytest.mark.parametrize(
        ("number", "fields", "rule"),
        [
            ("", WANTED, "records/no-number"),
            ("..", WANTED, "records/no-number"),
            ("a/b", WANTED, "records/no-number"),
            ("x" * 81, WANTED, "records/no-number"),
            (NUMBERED, {}, "records/no-fields"),
            (NUMBERED, {"Id": "1"}, "records/no-fields"),
            (NUMBERED, {NUMBER: "ACME-8"}, "records/no-fields"),
            (NUMBERED, {"Na me": "x"}, "records/no-fields"),
            (NUMBERED, {"Name": "x" * (LONGEST_VALUE + 1)}, "records/too-long"),
        ],
    )
    def test_not_sent(self, number: str, fields: dict[str, Any], rule: str) -> None:
        """What can be no record goes back to the model, unsent."""
        mock = SalesforceMock()

        outcome = in_thread(mock, fields, number)

        assert (rule, T, Effect.NONE, []) == (outcome.rule, outcome.reason, outcome.effect, sent(mock))
        assert outcome.content.endswith("Nothing was written.")

    @pytest.mark.parametrize(
        ("fields", "rule"),
        [
            ({"Phone": "7"}, "records/field-missing"),
            ({"Name": "x" * 256}, "records/value"),
            ({"Name": "x", "Phone": "seven"}, "records/value"),
            ({"Name": "x", "NumberOfEmployees": "many"}, "records/value"),
            ({"Name": "x", "Nickname": "x"}, "records/field-unknown"),
        ],
    )
    def test_validation(self, fields: dict[str, Any], rule: str) -> None:
        """What Salesforce refuses for its fields and values the model can correct."""
        outcome = in_thread(SalesforceMock(), fields)

        assert (rule, T, Effect.NONE) == (outcome.rule, outcome.reason, outcome.effect)


class TestOthers:
    """Somebody else writes, too."""

    @DRIVERS
    def test_stale(self, drive: Driver) -> None:
        """A record that was changed after we read it is not written over; the next call sees theirs."""
        mock = SalesforceMock(records=THERE, meddled=[NUMBERED])

        first = drive(mock)
        after_first = mock.fields(NUMBERED)
        second = drive(mock)

        assert ("records/stale", T, Effect.NONE) == (first.rule, first.reason, first.effect)
        assert after_first is not None
        assert "+1 555 0100" == after_first["Phone"]
        assert "records/changed" == second.rule

    def test_created_meanwhile(self) -> None:
        """A record of this number that holds what we want is ours, whoever was faster; another one is not."""
        taken = httpx.Response(400, json=said("DUPLICATE_VALUE"))

        _, same = by_hand(ABSENT, taken, row())
        _, other = by_hand(ABSENT, taken, row({"Name": "Somebody else's"}))

        assert ("records/as-asked", True) == (same.rule, same.evidence["already_applied"])
        assert ("records/exists", Effect.NONE) == (other.rule, other.effect)

    @pytest.mark.parametrize(
        ("headers", "named"),
        [
            ({}, {"if-unmodified-since": "Thu, 01 Jan 2026 00:00:01 GMT"}),
            (
                {"last_modified": "Thu, 01 Jan 2026 00:00:02 GMT"},
                {"if-unmodified-since": "Thu, 01 Jan 2026 00:00:02 GMT"},
            ),
            ({"etag": '"abc-gzip"'}, {"if-match": '"abc-gzip"'}),
        ],
    )
    def test_the_version_is_named(self, headers: dict[str, str], named: dict[str, str]) -> None:
        """A change carries the version that was read, by the strongest name there is."""
        calls, _ = by_hand(row(THERE[NUMBERED], **headers), httpx.Response(204), row())

        assert named == calls[1].headers

    def test_no_version_no_write(self) -> None:
        """A record whose version cannot be told is not written over."""
        calls, outcome = by_hand(row({"Name": "x", "LastModifiedDate": None}))

        assert (1, "records/unreadable", Effect.NONE) == (len(calls), outcome.rule, outcome.effect)

    @pytest.mark.parametrize(
        ("reply", "rule"),
        [
            (httpx.Response(200, json=[]), "records/unreadable"),
            (httpx.Response(200, text="<html>Sign in</html>"), "records/unreadable"),
            (httpx.Response(201, json=CREATED), "records/unreadable"),
            (httpx.Response(404, text="<html>404</html>"), "infra/not-found"),
            (
                httpx.Response(404, json=said("NOT_FOUND", "Provided external ID field does not exist")),
                "records/setup",
            ),
            (httpx.Response(300, json=["a", "b"]), "records/ambiguous"),
            (httpx.Response(401, json=said("INVALID_SESSION_ID")), "records/session"),
            (httpx.ReadTimeout("x"), "infra/timeout"),
        ],
    )
    def test_what_is_no_record_is_not_written_over(self, reply: Any, rule: str) -> None:
        """Without a look at the record, or the proof that there is none, nothing is sent."""
        calls, outcome = by_hand(reply)

        assert (1, rule, Effect.NONE) == (len(calls), outcome.rule, outcome.effect)
        assert outcome.content.endswith("Nothing was written.")


class TestLostAnswers:
    """The answer to the one write is lost, unreadable or strange."""

    LOST = (
        httpx.ReadTimeout("x"),
        httpx.StreamError("x"),
        httpx.Response(502, text="<html>"),
        httpx.Response(201, content=b'{"id": "00'),
        httpx.Response(204),
    )

    @pytest.mark.parametrize("before", [ABSENT, row(THERE[NUMBERED])], ids=["new", "there"])
    @pytest.mark.parametrize("reply", LOST, ids=repr)
    def test_looked_up(self, reply: Any, before: httpx.Response) -> None:
        """Another look is the proof; without it nobody knows, and the text says so."""
        _, proven = by_hand(before, reply, row())
        _, unproven = by_hand(before, reply, row(THERE[NUMBERED]))
        _, unseen = by_hand(before, reply, httpx.ReadTimeout("x"))

        assert ("records/changed", Effect.APPLIED) == (proven.rule, proven.effect)
        for outcome in (unproven, unseen):
            assert (T, Effect.UNKNOWN) == (outcome.reason, outcome.effect)
            assert "Whether anything was written is not confirmed." in outcome.content


ANSWERS: tuple[dict[str, Any], ...] = (
    {"status": 500, "body": said("UNKNOWN_EXCEPTION")},
    {"status": 502, "body": "<html>502</html>"},
    {"status": 503, "headers": {"retry-after": "5"}, "body": ""},
    {"status": 200, "body": "<html>Sign in</html>"},
    {"status": 204, "body": ""},
)
# A 503 that names a time to wait says that nothing was done; a vendor that did it all the same is no case.
FAULTS = [
    *({"kind": kind, "when": when} for kind, when in PAIRS if kind != "answer"),
    *(
        {"kind": "answer", "when": when, **one}
        for one in ANSWERS
        for when in ("before", "after", "late")
        if one["status"] != 503 or when == "before"
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("records", [{}, THERE], ids=["new", "there"])
def test_one_fault(records: dict[str, Any], fault: dict[str, Any]) -> None:
    """Each fault at each request: no write is denied, none is done twice, and the next call sees it done."""
    places = [(1, 1), (2, 1), (2, 99), *([(3, 1)] if records else [])]  # a change is looked at once more
    for nth, delay in places:
        mock = SalesforceMock(records=records, faults=[Fault(**fault, nth=nth, delay=delay)])

        outcome = in_thread(mock)
        mock.settle()

        assert not (mock.done() and outcome.effect is Effect.NONE)
        assert (outcome.reason is C) <= (outcome.effect is Effect.APPLIED)
        assert (outcome.reason is C) <= (mock.done() == 1)
        assert C is in_thread(mock).reason
        assert (1, {NUMBER: NUMBERED, **WANTED}) == (mock.done(), mock.fields(NUMBERED))


@pytest.mark.parametrize("records", [{}, THERE], ids=["new", "there"])
def test_a_late_write_spares_a_newer_one(records: dict[str, Any]) -> None:
    """A write that arrives after the customer has changed their mind changes nothing any more."""
    late = Fault(kind="ReadTimeout", when="late", delay=99, at="P* *")
    mock = SalesforceMock(records=records, faults=[late])
    newer = {"Name": "Acme", "Phone": "+49 30 8"}

    first, second = in_thread(mock), in_thread(mock, newer)
    mock.settle()

    assert (Effect.UNKNOWN, C) == (first.effect, second.reason)
    assert {NUMBER: NUMBERED, **newer} == mock.fields(NUMBERED)


@pytest.mark.parametrize("kind", list(NEVER_SENT))
def test_never_sent(kind: str) -> None:
    """A write that never left has changed nothing, and the outcome says so."""
    mock = SalesforceMock(faults=[Fault(kind=kind, at="POST *")])

    assert Effect.NONE is in_thread(mock).effect
    assert None is mock.fields(NUMBERED)


@pytest.mark.parametrize("records", [{}, THERE], ids=["new", "there"])
@pytest.mark.parametrize("order", sorted(set(permutations([0, 0, 0, 1, 1, 1]))), ids=str)
def test_two_agents_in_every_order(order: tuple[int, ...], records: dict[str, Any]) -> None:
    """Two processes that write the same at once write it once, and both end well or are told to look."""
    mock = SalesforceMock(records=records)
    client = mock.client()
    flows = [FLOW(NUMBERED, dict(WANTED)) for _ in range(2)]
    calls: list[Call | None] = [next(flow) for flow in flows]
    ended: list[Outcome] = []
    for who in (*order, 0, 0, 0, 1, 1, 1):
        call = calls[who]
        if call is None:
            continue
        request = client.build_request(call.method, call.path, json=call.json, headers=call.headers)
        try:
            calls[who] = flows[who].send(Reply(client.send(request), write=call.write))
        except StopIteration as end:
            calls[who] = None
            ended.append(end.value)

    assert [C, C] == [outcome.reason for outcome in ended]
    assert 1 == mock.done()


class TestTool:
    """The flow as a tool."""

    def test_what_the_model_sees(self) -> None:
        """A number, and fields with plain values."""
        (made,) = tools(client=SalesforceMock().client())

        assert ("write_record", ["record_id", "fields"]) == (made.name, list(made.args))
        kinds = [kind["type"] for kind in made.args["fields"]["additionalProperties"]["anyOf"]]
        assert ["string", "integer", "number", "boolean", "null"] == kinds

    @pytest.mark.parametrize("reason", list(Reason))
    @DRIVERS
    def test_every_reason_can_be_forced(self, reason: Reason, drive: Driver) -> None:
        """The sample call ends with each of the four reasons if the fake is told so."""
        mock = vendor("records", *FORCED[reason])
        assert isinstance(mock, SalesforceMock)

        outcome = drive(mock, SAMPLE.args["fields"], SAMPLE.args["record_id"])

        assert reason is outcome.reason
        assert outcome.key

    def test_the_real_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without clients a session is needed, and names must be names."""
        monkeypatch.delenv("SALESFORCE_TOKEN", raising=False)

        with pytest.raises(RuntimeError, match="SALESFORCE_TOKEN is not set"):
            tools()
        with pytest.raises(ValueError, match="sobject and number_field are names"):
            tools(sobject="../x")

    def test_prose_stays_with_the_vendor(self) -> None:
        """What Salesforce writes about a value is read by nobody."""
        mock = SalesforceMock(
            faults=[answer(400, said("INVALID_FIELD", "No such column S3CR3T"), at="POST *")]
        )

        outcome = in_thread(mock)

        assert "S3CR3T" not in f"{outcome}"
        assert "INVALID_FIELD" == outcome.vendor_code
