"""``export_document`` over Power BI's fake: a job that takes its time, and what comes of it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage, AnyMessage

from domains.export import tool as export
from domains.export.rules import BOOK
from domains.export.scenarios import AGAIN, FORCED, SALES, SAMPLE, UNDER_WAY
from domains.export.tool import LONGEST_PAUSE_S, LOOKS, PAUSE_S, export_flow, tools
from domains.mapping import Progress, Reply, run
from domains.runner import RUNTIMES, Runtime, build, vendor
from mocks.model import ScriptedModel
from mocks.power_bi import STAFF, WORKSPACE, PowerBiMock
from mocks.vendor import PAIRS, Fault, answer
from orchestration.outcomes import Outcome
from orchestration.reasons import Effect, Reason
from orchestration.router import DEFAULT_POLICY

C, T, F, P = Reason.COMPLETED, Reason.TRANSIENT, Reason.FATAL, Reason.POLICY_BLOCK
JOB = {"id": "export-1", "reportName": "Sales", "percentComplete": 40}
DONE = {**JOB, "status": "Succeeded", "resourceLocation": "https://x.example/file", "percentComplete": 100}

Answer = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Answer:
    """Call the tool over a fake on one of the two ways."""

    def call(fake: PowerBiMock, **args: str) -> tuple[str, dict[str, Any]]:
        asked = {"name": SAMPLE.tool, "args": {**SAMPLE.args, **args}, "id": "call_1", "type": "tool_call"}
        if request.param == "sync":
            message = tools(client=fake.client())[0].invoke(asked)
        else:
            message = asyncio.run(tools(async_client=fake.async_client())[0].ainvoke(asked))
        assert [] == fake.unmatched
        return message.content, message.artifact

    return call


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Wait for no time, and note for how long it would have been."""
    slept: list[float] = []
    monkeypatch.setattr("domains.mapping.time.sleep", slept.append)
    return slept


def refused(code: str) -> dict[str, Any]:
    """Return one of Power BI's errors."""
    return {"error": {"code": code, "message": "the vendor's own words"}}


EXAMPLES: list[tuple[str, Reason, int, object]] = [
    ("ready", C, 200, DONE),
    ("running", T, 202, {**JOB, "status": "Running"}),
    ("running", T, 200, {**JOB, "status": "NotStarted"}),
    ("failed", T, 200, {**JOB, "status": "Failed"}),
    ("token", F, 403, refused("TokenExpired")),
    ("not-permitted", P, 401, refused("PowerBINotAuthorizedException")),
    ("not-permitted", P, 403, refused("PowerBINotAuthorizedException")),
    ("application", P, 403, {"Message": "API is not accessible for application"}),
    ("credentials", F, 401, {}),
    ("unknown-document", T, 404, refused("PowerBIEntityNotFound")),
    ("details", T, 400, refused("InvalidRequest")),
    ("rate", T, 429, {}),
]


class TestTable:
    """Power BI's answers, row by row."""

    @pytest.mark.parametrize(("row", "reason", "status", "body"), EXAMPLES)
    def test_example(self, row: str, reason: Reason, status: int, body: object) -> None:
        """The reply is decided by this row, with this reason; that a file is there the flow says."""
        outcome = BOOK.classify(Reply(httpx.Response(status, json=body)))

        assert (f"export/{row}", reason) == (outcome.rule, outcome.reason)
        assert Effect.NONE is outcome.effect

    def test_every_row_has_an_example(self) -> None:
        """No row is dead."""
        own = [rule.id for rule in BOOK.rules if rule.id.startswith("export/")]

        assert own == list(dict.fromkeys(f"export/{row}" for row, *_ in EXAMPLES))

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (202, DONE),
            (200, [DONE]),
            (200, {}),
            (200, {**DONE, "resourceLocation": None}),
            (200, {**DONE, "error": {"code": "x"}}),
            (200, {**DONE, "status": "Undefined"}),
            (200, {**DONE, "status": ["Succeeded", "Failed"]}),
        ],
    )
    def test_no_proof(self, status: int, body: object) -> None:
        """Without its status, its state and its file, a job has not succeeded."""
        reason = BOOK.classify(Reply(httpx.Response(status, json=body))).reason

        assert reason is not C or body == {**DONE, "status": ["Succeeded", "Failed"]}


class TestOneCall:
    """Start, look, done."""

    def test_ready(self, ask: Answer) -> None:
        """The customer reads what there is and until when; the job is for whoever fetches the file."""
        fake = PowerBiMock()
        content, artifact = ask(fake)

        assert (
            'The export "Sales 2025" is ready, as PDF. The file is kept until 2026-01-02 00:00 UTC.'
            == content
        )
        assert ("completed", True, "applied") == (artifact["reason"], artifact["stop"], artifact["effect"])
        assert {"job": "export-1", "extension": ".pdf"}.items() <= artifact["evidence"].items()
        assert ["POST", "GET", "GET", "GET"] == [seen.method for seen in fake.requests]

    def test_it_fails(self, ask: Answer) -> None:
        """A job that failed proves nothing against the next one."""
        _, artifact = ask(PowerBiMock(failing=[SALES]))

        assert ("transient", "export/failed") == (artifact["reason"], artifact["rule"])

    @pytest.mark.parametrize(
        ("args", "rule"),
        [
            ({"document_id": ""}, "export/no-document"),
            ({"document_id": ".."}, "export/no-document"),
            ({"document_id": "a/b?c"}, "export/no-document"),
            ({"format": "word"}, "export/unknown-format"),
            ({"job": "../../x"}, "export/expired"),
        ],
    )
    def test_not_sent(self, ask: Answer, args: dict[str, str], rule: str) -> None:
        """What can be no document, no format and no job costs no request."""
        fake = PowerBiMock()
        _, artifact = ask(fake, **args)

        assert (rule, []) == (artifact["rule"], fake.requests)

    def test_another_document_is_another_key(self, ask: Answer) -> None:
        """Two exports have budgets of their own; one export has one, whatever the case of its format."""
        keys = [
            ask(PowerBiMock(), **args)[1]["key"]
            for args in ({"format": "PDF"}, {"format": "pdf"}, {"document_id": STAFF}, {"format": "csv"})
        ]

        assert keys[0] == keys[1]
        assert 3 == len({*keys})

    @pytest.mark.parametrize("name", ["", "<b>x</b>\n\x00y", "n" * 999, None, 7])
    def test_odd_names(self, ask: Answer, name: object) -> None:
        """A document's name is data on one line, however long it is."""
        fake = PowerBiMock(faults=[answer(200, {**DONE, "reportName": name}, at="GET *")])
        content, artifact = ask(fake)

        assert "completed" == artifact["reason"]
        assert len(content) < 200
        assert "\n" not in content

    @pytest.mark.parametrize("until", [None, "", "soon", "2026-01-02T00:00:00+02:00", 7])
    def test_odd_times(self, ask: Answer, until: object) -> None:
        """A time that cannot be read for sure is left out."""
        fake = PowerBiMock(faults=[answer(200, {**DONE, "expirationTime": until}, at="GET *")])

        assert ask(fake)[0].endswith("is ready, as PDF.")


class TestLongJobs:
    """A job that outlasts one call."""

    def test_pending(self, ask: Answer) -> None:
        """It is completed and no answer yet: the run goes on, and the text names the job and no figure."""
        content, artifact = ask(PowerBiMock(steps=10))

        assert ("completed", False, "export/under-way") == (
            artifact["reason"],
            artifact["stop"],
            artifact["rule"],
        )
        assert "export-1" in content
        assert "50" not in content
        assert (50, "export-1") == (artifact["evidence"]["progress"], artifact["evidence"]["job"])

    def test_the_next_call_goes_on(self, ask: Answer) -> None:
        """The same job is watched, none is started."""
        fake = PowerBiMock(steps=8)
        ask(fake)
        content, _ = ask(fake, job="export-1")

        assert content.startswith('The export "Sales 2025" is ready')
        assert 1 == len(fake.jobs)

    def test_expired(self, ask: Answer) -> None:
        """A day later the job is gone: nothing brings it back, and the run ends."""
        fake = PowerBiMock(steps=10)
        ask(fake)
        fake.advance(hours=25)
        content, artifact = ask(fake, job="export-1")

        assert ("fatal", True, "export/expired") == (artifact["reason"], artifact["stop"], artifact["rule"])
        assert content.startswith("This export is no longer there")

    def test_an_invented_job(self, ask: Answer) -> None:
        """A job that nobody started is answered like one that is gone."""
        assert "export/expired" == ask(PowerBiMock(), job="export-9")[1]["rule"]

    def test_lost_looks_are_not_a_lost_job(self, naps: list[float]) -> None:
        """If no look was answered the text names the job, so that the next call can go on."""
        fake = PowerBiMock(faults=[Fault(kind="ReadTimeout", at="GET *", times=LOOKS)])
        (tool,) = tools(client=fake.client())
        message = tool.invoke({"name": tool.name, "args": dict(SAMPLE.args), "id": "1", "type": "tool_call"})

        assert "transient" == message.artifact["reason"]
        assert "export-1" in message.content
        assert [PAUSE_S] * 3 == naps

    @pytest.mark.parametrize(
        ("named", "slept"),
        [("0", []), ("3", [3.0] * 3), ("9000", [LONGEST_PAUSE_S] * 3), ("", [PAUSE_S] * 3)],
    )
    def test_pauses(self, naps: list[float], named: str, slept: list[float]) -> None:
        """The vendor says how long to wait between two looks, within reason."""
        fake = PowerBiMock()
        headers = {"retry-after": named} if named else {}
        client = fake.client(transport=httpx.MockTransport(_renamed(fake, headers)))
        tools(client=client)[0].invoke(dict(SAMPLE.args))

        assert slept == naps

    def test_a_task_waits_without_blocking(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Awaited, the pause is one of the event loop's, and a cancellation ends it."""
        monkeypatch.setattr(export, "PAUSE_S", 60.0)
        fake = PowerBiMock()
        client = fake.async_client(transport=httpx.MockTransport(_renamed(fake, {})))

        async def go() -> None:
            task = asyncio.create_task(tools(async_client=client)[0].ainvoke(dict(SAMPLE.args)))
            await asyncio.sleep(0.05)
            task.cancel()
            await task

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(go())


def _renamed(fake: PowerBiMock, headers: Mapping[str, str]) -> Callable[[httpx.Request], httpx.Response]:
    """Answer as the fake does, with other headers."""

    def serve(request: httpx.Request) -> httpx.Response:
        made = fake.transport.handler(request)
        assert isinstance(made, httpx.Response)
        return httpx.Response(made.status_code, headers=headers, content=made.content)

    return serve


class TestProgress:
    """How far a job is goes to the screen and nowhere else."""

    def test_of_the_flow(self) -> None:
        """Each look carries what was known before it."""
        told: list[Progress] = []
        run(export_flow(WORKSPACE)(SALES), PowerBiMock(steps=4).client(), told.append)

        assert [0, 25, 50, 75] == [each.percent for each in told]
        assert {(SALES, "The export as PDF is being made.")} == {(each.about, each.says) for each in told}

    @pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])
    @pytest.mark.parametrize("runtime", RUNTIMES)
    def test_on_the_stream(self, runtime: Runtime, use_async: bool) -> None:
        """It comes in the custom stream while the tool runs; no message of any kind holds a figure of it."""
        fake = PowerBiMock(steps=8)
        clients = {"async_client": fake.async_client()} if use_async else {"client": fake.client()}
        turns = [
            AIMessage("", tool_calls=[{"name": a.tool, "args": dict(a.args), "id": f"c{n}"}])
            for n, a in enumerate((SAMPLE, AGAIN))
        ]
        model = ScriptedModel(turns=turns, narration="Done.")
        agent = build(runtime, model, tools(**clients), DEFAULT_POLICY)
        start: Any = {"messages": [("user", "Export the sales report.")]}
        modes: Any = ["custom", "values"]

        async def collect() -> list[Any]:
            return [each async for each in agent.astream(start, stream_mode=modes)]

        seen: Any = asyncio.run(collect()) if use_async else list(agent.stream(start, stream_mode=modes))
        told = [payload["progress"] for mode, payload in seen if mode == "custom"]
        last: list[AnyMessage] = [payload for mode, payload in seen if mode == "values"][-1]["messages"]

        assert [0, 12, 25, 37, 50, None, 75, 87] == [each["percent"] for each in told]
        assert {"tool", "about", "says", "percent"} == {name for each in told for name in each}
        assert UNDER_WAY == last[2].content
        assert "completed" == last[-1].response_metadata["stopped_by"]

    def test_without_a_graph(self) -> None:
        """Run by hand there is no stream, and nothing fails."""
        assert tools(client=PowerBiMock().client())[0].invoke(dict(SAMPLE.args))


FAULTS = [
    *({"kind": kind, "when": when} for kind, when in PAIRS if kind != "answer"),
    {"kind": "answer", "status": 500},
    {"kind": "answer", "status": 502, "body": "<html>502</html>"},
    {"kind": "answer", "status": 200, "body": "<html>Sign in</html>"},
    {"kind": "answer", "status": 202, "body": {}},
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_one_fault(naps: list[float], fault: dict[str, Any]) -> None:
    """Whatever happens once on the wire: no success without a file, and the next call gets it."""
    flow = export_flow(WORKSPACE)
    for nth in (1, 2, 3, 4):
        fake = PowerBiMock(faults=[Fault(**fault, nth=nth)])
        with fake.client() as client:
            outcome = run(flow(**SAMPLE.args), client)

            assert (
                (fake.done() == 1) == (outcome.rule == "export/ready") == (outcome.effect is Effect.APPLIED)
            )
            assert C is run(flow(**SAMPLE.args), client).reason
            assert 1 == fake.done()


@pytest.mark.parametrize("reason", list(Reason))
def test_forced(ask: Answer, reason: Reason) -> None:
    """The sample call ends with each of the four reasons."""
    made = vendor("export", *FORCED[reason])
    assert isinstance(made, PowerBiMock)

    assert reason.value == ask(made)[1]["reason"]


def test_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without clients a token is needed, and a workspace must be one."""
    monkeypatch.delenv("POWER_BI_TOKEN", raising=False)

    with pytest.raises(RuntimeError, match="POWER_BI_TOKEN is not set"):
        tools()
    with pytest.raises(ValueError, match="workspace must be an id"):
        tools(workspace="../x")


def test_pending_is_never_a_stop() -> None:
    """The row for a job under way says completed; what makes it no answer is the flow's mark."""
    outcome: Outcome = BOOK.pick("export/under-way", Reply())

    assert C is outcome.reason
    assert "pending" in BOOK["export/under-way"].why
