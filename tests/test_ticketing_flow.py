"""``create_ticket`` over GitHub's fake: one open issue for one matter, whatever the wire does."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, product
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.mapping import Call, Flow, Reply, arun, run
from domains.runner import RUNTIMES, Runtime, play, vendor
from domains.scenario import Scenario
from domains.ticketing.lanes import Lanes
from domains.ticketing.scenarios import FORCED, SAMPLE, SCENARIOS
from domains.ticketing.tool import LANES, LONGEST_TEXT, LONGEST_TITLE, MOST_PAGES, marker, ticket_flow, tools
from mocks.github import GitHubMock, forbidden, secondary_limit
from mocks.vendor import NEVER_SENT, PAIRS, Fault, answer
from orchestration.outcomes import Outcome
from orchestration.reasons import Effect, Reason

REPOSITORY = "acme/support"
TICKET = {"title": "Mug arrived broken", "body": "The handle came off.", "reference": "order-7"}
MARK = f"<!-- ticket {marker(REPOSITORY, '', reference='order-7')} -->"
LINK = "https://github.com/acme/support/issues"

Driver = Callable[[GitHubMock, Mapping[str, str]], Outcome]


def in_thread(mock: GitHubMock, arguments: Mapping[str, str] = TICKET) -> Outcome:
    """Drive one call over a sync client."""
    with mock.client() as client:
        return run(ticket_flow(REPOSITORY)(**arguments), client)


def in_task(mock: GitHubMock, arguments: Mapping[str, str] = TICKET) -> Outcome:
    """Drive one call over an async client."""

    async def go() -> Outcome:
        async with mock.async_client() as client:
            return await arun(ticket_flow(REPOSITORY)(**arguments), client)

    return asyncio.run(go())


DRIVERS = pytest.mark.parametrize("drive", [in_thread, in_task])


def numbers(mock: GitHubMock) -> list[int]:
    """Return the numbers of the open issues."""
    return [issue.number for issue in mock.open_issues()]


def sent(mock: GitHubMock) -> list[str]:
    """Return the methods of the requests, in order."""
    return [request.method for request in mock.requests]


def rows(*bodies: str | None, start: int = 1, **more: Any) -> httpx.Response:
    """Return a page of open issues, as GitHub lists them."""
    issues = [
        {"number": number, "state": "open", "body": body, "html_url": f"{LINK}/{number}", **more}
        for number, body in enumerate(bodies, start=start)
    ]
    return httpx.Response(200, json=issues)


def filed(number: int) -> httpx.Response:
    """Return the answer to an issue that was created."""
    return httpx.Response(201, json={"number": number, "state": "open", "html_url": f"{LINK}/{number}"})


def by_hand(*replies: httpx.Response | Exception, **arguments: str) -> tuple[list[Call], Outcome]:
    """Answer a flow's calls in order; return the calls and the outcome."""
    flow = ticket_flow(REPOSITORY)(**{**TICKET, **arguments})
    calls = [next(flow)]
    for answered in replies:
        write = calls[-1].write
        if isinstance(answered, Exception):
            reply = Reply(error=answered, write=write)
        else:
            reply = Reply(answered, write=write)
        try:
            calls.append(flow.send(reply))
        except StopIteration as end:
            return calls, end.value
    raise AssertionError(f"the flow went on with {calls[-1]}")


class TestOpening:
    """One call, nothing goes wrong."""

    @DRIVERS
    def test_opened(self, drive: Driver) -> None:
        """The customer reads the number and the link, and the key is the marker's hash."""
        mock = GitHubMock()

        outcome = drive(mock, TICKET)

        assert Reason.COMPLETED is outcome.reason
        assert f"The ticket is open. Its number is 1: {LINK}/1" == outcome.content
        assert Effect.APPLIED is outcome.effect
        assert marker(REPOSITORY, "", reference="order-7") == outcome.key
        assert ["GET", "POST", "GET"] == sent(mock)

    def test_text_is_sent_as_it_is(self) -> None:
        """What the customer wrote is not touched; the marker stands before it, out of sight."""
        mock = GitHubMock()
        text = 'Ünïcode <b>&amp;</b> "quotes" 👩‍👩‍👧 \u202eRTL\r\n| a | b |'

        in_thread(mock, {"title": "<script> & Co.", "body": text, "reference": "order-7"})

        (issue,) = mock.open_issues()
        assert "<script> & Co." == issue.title
        assert f"{MARK}\n\n{text}" == issue.body

    def test_bytes_that_cannot_be_sent_are_left_out(self) -> None:
        """NUL and lone surrogates break JSON and databases, so they are the one thing removed."""
        mock = GitHubMock()

        in_thread(mock, {"title": "Mug\x00 \ud83dbroken", "body": "a\x00b"})

        (issue,) = mock.open_issues()
        assert "Mug broken" == issue.title
        assert str(issue.body).endswith("\n\nab")

    def test_without_a_text(self) -> None:
        """A ticket without a text holds the marker alone."""
        mock = GitHubMock()

        in_thread(mock, {"title": "Mug", "reference": "order-7"})

        assert MARK == mock.open_issues()[0].body

    @pytest.mark.parametrize(
        ("arguments", "rule"),
        [
            ({"title": ""}, "ticketing/no-title"),
            ({"title": " \n\t\u3000"}, "ticketing/no-title"),
            ({"title": "\x00"}, "ticketing/no-title"),
            ({"title": "x" * (LONGEST_TITLE + 1)}, "ticketing/title-too-long"),
            ({"title": "x", "body": "x" * (LONGEST_TEXT + 1)}, "ticketing/text-too-long"),
        ],
    )
    def test_flaws_are_not_sent(self, arguments: dict[str, str], rule: str) -> None:
        """What GitHub would refuse for its form goes back to the model, unsent."""
        mock = GitHubMock()

        outcome = in_thread(mock, arguments)

        assert (rule, Reason.TRANSIENT, Effect.NONE) == (outcome.rule, outcome.reason, outcome.effect)
        assert outcome.content.endswith("No ticket was opened.")
        assert outcome.key
        assert [] == sent(mock)

    def test_the_longest_ticket_fits(self) -> None:
        """Title and text of the greatest length pass GitHub's own limits, marker included."""
        mock = GitHubMock()

        outcome = in_thread(mock, {"title": "x" * LONGEST_TITLE, "body": "x" * LONGEST_TEXT})

        assert Reason.COMPLETED is outcome.reason


class TestSameMatter:
    """What makes two calls one ticket, and what does not."""

    @pytest.mark.parametrize(
        ("one", "other", "same"),
        [
            ({"title": "Mug broken"}, {"title": "  MUG   broken "}, True),
            ({"title": "Straße"}, {"title": "STRASSE"}, True),
            ({"title": "Caf\u00e9"}, {"title": "Cafe\u0301"}, True),
            ({"title": "Mug", "body": "a"}, {"title": "Mug", "body": "b"}, True),
            ({"title": "Mug", "reference": "7"}, {"title": "Cup", "reference": " 7"}, True),
            ({"title": "Mug", "reference": "a7"}, {"title": "Mug", "reference": "A7"}, True),
            ({"title": "Mug", "reference": " "}, {"title": "Mug"}, True),
            ({"title": "Mug"}, {"title": "Cup"}, False),
            ({"title": "Mug", "reference": "7"}, {"title": "Mug", "reference": "8"}, False),
            ({"title": "Mug", "reference": "7"}, {"title": "Mug"}, False),
            ({"title": "7"}, {"title": "Mug", "reference": "7"}, False),
        ],
    )
    def test_identity(self, one: dict[str, str], other: dict[str, str], same: bool) -> None:
        """The reference is the matter; without one the title is, whatever its case and spacing."""
        mock = GitHubMock()

        first, second = in_thread(mock, one), in_thread(mock, other)

        assert same == (first.key == second.key)
        assert (1 if same else 2) == len(mock.open_issues())
        assert same == second.evidence.get("already_applied", False)

    def test_another_repository_is_another_matter(self) -> None:
        """The repository is part of the marker; its case is not, as on GitHub."""
        assert marker("acme/support", "Mug") != marker("acme/shop", "Mug")
        assert marker("acme/support", "Mug") == marker("Acme/Support", "Mug")

    def test_on_file(self) -> None:
        """The second call reads the same sentence, and says in its evidence that it opened nothing."""
        mock = GitHubMock()

        first, second = in_thread(mock), in_thread(mock)

        assert first.content == second.content
        assert ("ticketing/on-file", Effect.APPLIED) == (second.rule, second.effect)
        assert {"already_applied": True, "number": 1} == {
            name: second.evidence[name] for name in ("already_applied", "number")
        }
        assert ["GET", "POST", "GET", "GET"] == sent(mock)

    def test_closed_ones_do_not_count(self) -> None:
        """A matter that comes back after its ticket was closed gets a new one."""
        mock = GitHubMock()
        in_thread(mock)
        mock.open_issues()[0].state = "closed"

        assert "2" in in_thread(mock).content
        assert [2] == numbers(mock)

    def test_pull_requests_do_not_count(self) -> None:
        """GitHub lists pull requests as issues; a marker in one is no ticket."""
        mock = GitHubMock()
        mock.add("Fix", MARK, pull=True)

        in_thread(mock)

        assert [2] == numbers(mock)

    @pytest.mark.parametrize("planted", [MARK, f"\n{MARK}", f"Hello\n{MARK}\n", f"{MARK}\n\n{MARK}"])
    def test_a_planted_marker_is_text(self, planted: str) -> None:
        """A customer who writes another ticket's marker cannot pass for that ticket."""
        mock = GitHubMock()
        in_thread(mock, {"title": "Innocent", "body": planted})

        outcome = in_thread(mock)

        assert "ticketing/filed" == outcome.rule
        assert [1, 2] == numbers(mock)

    def test_all_pages_are_read(self) -> None:
        """A ticket behind 250 younger issues is found."""
        mock = GitHubMock()
        in_thread(mock)
        for number in range(250):
            mock.add(f"Other {number}", "Something else.")
        mock.requests.clear()

        outcome = in_thread(mock)

        assert f"The ticket is open. Its number is 1: {LINK}/1" == outcome.content
        assert ["GET"] * 3 == sent(mock)


class TestList:
    """How the list of open issues is read."""

    def test_newest_first(self) -> None:
        """The list, not the search: that one lags."""
        calls, _ = by_hand(rows(), filed(1), rows(MARK))

        assert ("GET", "/repos/acme/support/issues") == (calls[0].method, calls[0].path)
        assert {"state": "open", "sort": "created", "direction": "desc", "per_page": "100"} == calls[0].params

    @pytest.mark.parametrize(
        "link",
        [
            '<https://api.github.com/repositories/1/issues?after=Y3==&per_page=100>; rel="next"',
            '<https://evil.example/issues?after=Y3==&per_page=100#x>; rel="next"',
            '<https://x.example/?page=9>; rel="last", <?after=Y3%3D%3D&per_page=100>; rel="next"',
        ],
    )
    def test_the_cursor_is_followed_and_nothing_else(self, link: str) -> None:
        """Long lists need GitHub's cursor; host and repository stay ours, so no token goes astray."""
        page = httpx.Response(200, json=[], headers={"link": link})

        calls, _ = by_hand(page, rows(MARK))

        assert "/repos/acme/support/issues" == calls[1].path
        assert {"after": "Y3==", "per_page": "100"} == calls[1].params

    @pytest.mark.parametrize("link", ["", "nonsense", '<>; rel="next"', '<https://x.example>; rel="next"'])
    def test_no_next_page(self, link: str) -> None:
        """A link without a query is no next page."""
        calls, _ = by_hand(httpx.Response(200, json=[], headers={"link": link}), filed(1), rows(MARK))

        assert ["GET", "POST", "GET"] == [call.method for call in calls]

    def test_a_list_without_an_end(self) -> None:
        """A list that never ends is given up, and nothing is opened."""
        page = httpx.Response(200, json=[], headers={"link": '<https://x.example/?page=2>; rel="next"'})

        calls, outcome = by_hand(*[page] * MOST_PAGES)

        assert MOST_PAGES == len(calls)
        assert ("ticketing/endless-list", Reason.FATAL) == (outcome.rule, outcome.reason)
        assert Effect.NONE is outcome.effect

    @pytest.mark.parametrize(
        "reply",
        [
            httpx.Response(200, json={}),
            httpx.Response(200, json=["x"]),
            httpx.Response(200, json=[{"title": "no number"}]),
            httpx.Response(200, text="<html>Sign in</html>"),
            httpx.Response(200, content=b'[{"number": 1, "sta'),
            httpx.Response(204),
            filed(1),
        ],
    )
    def test_what_is_no_list_proves_nothing(self, reply: httpx.Response) -> None:
        """Without a list it is not known whether the ticket exists, so none is opened."""
        calls, outcome = by_hand(reply)

        assert 1 == len(calls)
        assert ("ticketing/unreadable-list", Reason.TRANSIENT) == (outcome.rule, outcome.reason)
        assert "No ticket was opened." in outcome.content

    @pytest.mark.parametrize(
        ("reply", "reason"),
        [
            (httpx.Response(404, json={"message": "Not Found"}), Reason.FATAL),
            (httpx.Response(401, json={"message": "Bad credentials"}), Reason.FATAL),
            (httpx.Response(410, json={"message": "Issues are disabled for this repo"}), Reason.FATAL),
            (httpx.Response(451, json={"message": "Repository access blocked"}), Reason.POLICY_BLOCK),
            (httpx.Response(429), Reason.TRANSIENT),
            (httpx.Response(502, text="<html>"), Reason.TRANSIENT),
            (httpx.ReadTimeout("x"), Reason.TRANSIENT),
        ],
    )
    def test_a_failed_look_up_opens_nothing(self, reply: Any, reason: Reason) -> None:
        """The book says why; the text says that nothing was opened, and nothing was."""
        calls, outcome = by_hand(reply)

        assert 1 == len(calls)
        assert (reason, Effect.NONE) == (outcome.reason, outcome.effect)
        assert outcome.content.endswith("No ticket was opened.")

    def test_what_an_earlier_page_shows_stands(self) -> None:
        """A ticket that was found is on file, though a later page is lost."""
        first = rows(MARK)
        first.headers["link"] = '<https://x.example/?page=2>; rel="next"'

        calls, outcome = by_hand(first, httpx.ReadTimeout("x"))

        assert 2 == len(calls)
        assert ("ticketing/on-file", True) == (outcome.rule, outcome.evidence["list_unread"])


class TestLostAnswers:
    """The answer to the one write is lost, unreadable or strange."""

    LOST = (
        httpx.ReadTimeout("x"),
        httpx.RemoteProtocolError("x"),
        httpx.StreamError("x"),
        httpx.TooManyRedirects("x"),
        httpx.Response(502, text="<html>"),
        httpx.Response(503),
        httpx.Response(201),
        httpx.Response(201, content=b'{"number": 1, "ht'),
        httpx.Response(200, json={"number": 1, "state": "open", "html_url": f"{LINK}/1"}),
        httpx.Response(202, json={}),
    )

    @pytest.mark.parametrize("reply", LOST)
    def test_found_again(self, reply: Any) -> None:
        """The list is the proof."""
        calls, outcome = by_hand(rows(), reply, rows("Other", MARK))

        assert 3 == len(calls)
        assert ("ticketing/on-file", Effect.APPLIED) == (outcome.rule, outcome.effect)
        assert f"The ticket is open. Its number is 2: {LINK}/2" == outcome.content

    @pytest.mark.parametrize("after", [rows("Other"), httpx.ReadTimeout("x"), httpx.Response(500)])
    @pytest.mark.parametrize("reply", LOST)
    def test_not_found(self, reply: Any, after: Any) -> None:
        """Nobody knows, and the text says so; no second ticket is sent."""
        calls, outcome = by_hand(rows(), reply, after)

        assert 3 == len(calls)
        assert (Reason.TRANSIENT, Effect.UNKNOWN) == (outcome.reason, outcome.effect)
        assert "Whether a ticket was opened is not confirmed." in outcome.content

    @pytest.mark.parametrize("raised", [httpx.ConnectError, httpx.PoolTimeout, httpx.ProxyError])
    def test_never_sent(self, raised: type[httpx.TransportError]) -> None:
        """What never left needs no second look."""
        calls, outcome = by_hand(rows(), raised("x"))

        assert 2 == len(calls)
        assert Effect.NONE is outcome.effect
        assert "No ticket was opened." in outcome.content

    @pytest.mark.parametrize(
        "reply",
        [
            httpx.Response(409, json={"message": "Conflict"}),
            httpx.Response(
                422, json={"message": "Validation Failed", "errors": [{"code": "already_exists"}]}
            ),
        ],
    )
    def test_exists(self, reply: httpx.Response) -> None:
        """That something exists is success only if the marker proves that it is this very ticket."""
        _, proved = by_hand(rows(), reply, rows(MARK))
        _, other = by_hand(rows(), reply, rows("Somebody else's"))

        assert (Reason.COMPLETED, True) == (proved.reason, proved.evidence["already_applied"])
        assert Reason.COMPLETED is not other.reason
        assert Effect.NONE is other.effect


class TestCopies:
    """Several open issues of one marker: the lowest number stays."""

    def test_ours_goes(self) -> None:
        """Another process was faster: ours is closed as a duplicate, theirs is the answer."""
        closed = httpx.Response(200, json={"state": "closed"})

        calls, outcome = by_hand(rows(), filed(2), rows(MARK, MARK), closed)

        assert ("PATCH", "/repos/acme/support/issues/2") == (calls[3].method, calls[3].path)
        assert {"state": "closed", "state_reason": "duplicate"} == calls[3].json
        assert ("ticketing/on-file", [2]) == (outcome.rule, outcome.evidence["duplicates"])
        assert f"The ticket is open. Its number is 1: {LINK}/1" == outcome.content

    def test_a_list_that_lags(self) -> None:
        """The list may not show our own issue yet; the answer to its creation is proof enough."""
        _, alone = by_hand(rows(), filed(5), rows())
        calls, beaten = by_hand(rows(), filed(5), rows(MARK), httpx.Response(200, json={"state": "closed"}))

        assert ("ticketing/filed", 5) == (alone.rule, alone.evidence["number"])
        assert "/repos/acme/support/issues/5" == calls[3].path
        assert 1 == beaten.evidence["number"]

    def test_a_second_look_that_fails(self) -> None:
        """What is proven stays proven."""
        _, outcome = by_hand(rows(), filed(5), httpx.ReadTimeout("x"))

        assert ("ticketing/filed", True) == (outcome.rule, outcome.evidence["list_unread"])

    @DRIVERS
    def test_left_behind(self, drive: Driver) -> None:
        """What another process left open is closed by the next call."""
        mock = GitHubMock()
        for _ in range(3):
            mock.add("Mug", MARK)

        outcome = drive(mock, TICKET)

        assert [1] == numbers(mock)
        assert [2, 3] == outcome.evidence["duplicates"]
        assert {"duplicate"} == {issue.state_reason for issue in mock.issues() if issue.state == "closed"}

    def test_an_older_server(self) -> None:
        """A server that does not know the word gets the older one."""
        refused = httpx.Response(422, json={"message": "Validation Failed"})
        closed = httpx.Response(200, json={"state": "closed"})

        calls, outcome = by_hand(rows(MARK, MARK), refused, closed)

        assert ["duplicate", "not_planned"] == [call.json["state_reason"] for call in calls[1:]]
        assert "left_open" not in outcome.evidence

    def test_not_closed_yet(self) -> None:
        """A copy that could not be closed in two attempts sends the run back; the next call closes it."""
        mock = GitHubMock(faults=[answer(500, {"message": "Server Error"}, at="PATCH *", times=2)])
        mock.add("Mug", MARK)
        mock.add("Mug", MARK)

        first, second = in_thread(mock), in_thread(mock)

        assert ("ticketing/copy-still-open", Reason.TRANSIENT) == (first.rule, first.reason)
        assert (Effect.APPLIED, [2]) == (first.effect, first.evidence["left_open"])
        assert Reason.COMPLETED is second.reason
        assert [1] == numbers(mock)

    def test_may_not_close(self) -> None:
        """Without the permission to close no further call helps: the open ticket is the answer."""
        mock = GitHubMock(faults=[forbidden(at="PATCH *", times=2)])
        mock.add("Mug", MARK)
        mock.add("Mug", MARK)

        outcome = in_thread(mock)

        assert (Reason.COMPLETED, [2]) == (outcome.reason, outcome.evidence["left_open"])


class TestLinks:
    """A link is shown only if it leads where people read issues."""

    @pytest.mark.parametrize(
        "url",
        [
            "http://github.com/acme/support/issues/1",
            "https://github.com.evil.example/acme/support/issues/1",
            "https://user@github.com/acme/support/issues/1",
            "https://github.com/acme/support/issues/2",
            "https://github.com/acme/support/issues/1?x=<script>",
            "https://github.com/acme/support/issues/1\n",
            "https://github.com/acme/support/pull/1",
            "javascript:alert(1)//issues/1",
            "",
            None,
            7,
        ],
    )
    def test_left_out(self, url: object) -> None:
        """Any other address is left out; the number is enough."""
        _, outcome = by_hand(rows(MARK, html_url=url))

        assert "The ticket is open. Its number is 1." == outcome.content

    @pytest.mark.parametrize(
        ("base_url", "page"),
        [
            ("https://api.github.com", "https://github.com/acme/support/issues/1"),
            ("https://api.octo.ghe.com", "https://octo.ghe.com/acme/support/issues/1"),
            ("https://git.acme.example/api/v3", "https://git.acme.example/acme/support/issues/1"),
        ],
    )
    def test_enterprise(self, base_url: str, page: str) -> None:
        """The host follows from the client's base URL."""
        body = {"number": 1, "state": "open", "html_url": page, "body": MARK}
        transport = httpx.MockTransport(lambda _: httpx.Response(200, json=[body]))
        (tool,) = tools(client=httpx.Client(base_url=base_url, transport=transport))

        assert f"The ticket is open. Its number is 1: {page}" == tool.invoke(TICKET)


class TestTool:
    """The flow as a tool."""

    def test_what_the_model_sees(self) -> None:
        """Name, arguments and the one that is free text."""
        (tool,) = tools(client=GitHubMock().client())

        assert "create_ticket" == tool.name
        assert ["title", "body", "reference"] == list(tool.args)
        assert {"free_text": ["body"], "amount": None} == tool.metadata

    @pytest.mark.parametrize("repository", ["support", "a/b/c", "../x", "acme/", "acme/sup port", "acme/x?y"])
    def test_a_repository_has_a_form(self, repository: str) -> None:
        """A name that would change the path is refused at build."""
        with pytest.raises(ValueError, match="owner/name"):
            tools(client=GitHubMock().client(), repository=repository)

    def test_without_a_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without clients the token is needed, and its absence is named."""
        monkeypatch.delenv("GITHUB_TOKEN", raising=False)

        with pytest.raises(RuntimeError, match="GITHUB_TOKEN"):
            tools()

    def test_with_a_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without clients the tool talks to GitHub itself, sync and async."""
        monkeypatch.setenv("GITHUB_TOKEN", "t")

        (tool,) = tools()

        assert tool.func is not None  # type: ignore[attr-defined]
        assert tool.coroutine is not None  # type: ignore[attr-defined]

    @pytest.mark.parametrize("reason", list(Reason))
    @DRIVERS
    def test_every_reason_can_be_forced(self, reason: Reason, drive: Driver) -> None:
        """The sample call ends with each of the four reasons if the fake is told so."""
        made, forced = FORCED[reason]
        mock = vendor("ticketing", made, forced)
        assert isinstance(mock, GitHubMock)

        outcome = drive(mock, SAMPLE.args)

        assert reason is outcome.reason
        assert outcome.key


class TestScenarios:
    """The domain's conversations."""

    @pytest.mark.parametrize("runtime", RUNTIMES)
    @pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
    def test_goes_as_written(self, scenario: Scenario, runtime: Runtime) -> None:
        """Every scenario takes its expected course on both runtimes."""
        assert () == play(scenario, runtime).surprises


ANSWERS = (
    {"status": 500, "body": {"message": "Server Error"}},
    {"status": 502, "body": "<html>502</html>"},
    {"status": 503, "headers": {"retry-after": "5"}, "body": ""},
    {"status": 429, "body": {"message": "slow down"}},
    {"status": 403, "body": {"message": "You have exceeded a secondary rate limit."}},
    {"status": 200, "body": "<html>Sign in</html>"},
    {"status": 201, "body": {}},
)
EVERYTHING: tuple[dict[str, Any], ...] = (
    *({"kind": kind, "when": when} for kind, when in PAIRS if kind != "answer"),
    *({"kind": "answer", "when": when, **one} for one in ANSWERS for when in ("before", "after", "late")),
)
# A 4xx is taken at its word: it says that nothing was done, so a vendor that did it all the same is no case.
HONEST = tuple(
    fault for fault in EVERYTHING if fault.get("status") not in {429, 403, 503} or fault["when"] == "before"
)


def claims_nothing(outcome: Outcome) -> bool:
    """Whether the outcome says that no ticket was opened."""
    return outcome.effect is Effect.NONE


class TestFaults:
    """Each fault at each request of a call."""

    @pytest.mark.parametrize("nth", [1, 2, 3])
    @pytest.mark.parametrize("fault", HONEST, ids=str)
    def test_one_fault(self, fault: dict[str, Any], nth: int) -> None:
        """Both drivers end alike, no ticket is denied that was opened, and one more call leaves one open."""
        outcomes = []
        for drive in (in_thread, in_task):
            mock = GitHubMock(faults=[Fault(**fault, nth=nth)])

            outcome = drive(mock, TICKET)

            mock.settle()
            assert not (mock.issues() and claims_nothing(outcome))
            assert len(mock.open_issues()) <= 1
            assert (outcome.reason is Reason.COMPLETED) <= (outcome.effect is Effect.APPLIED)
            assert Reason.COMPLETED is drive(mock, TICKET).reason
            assert [1] == numbers(mock)
            outcomes.append(outcome)
        assert outcomes[0] == outcomes[1]

    @pytest.mark.parametrize("kind", list(NEVER_SENT))
    def test_never_sent(self, kind: str) -> None:
        """A write that never left has opened nothing, and the outcome says so."""
        mock = GitHubMock(faults=[Fault(kind=kind, at="POST *")])

        assert claims_nothing(in_thread(mock))
        assert [] == mock.issues()

    @pytest.mark.parametrize("nth", [1, 2])
    @pytest.mark.parametrize("fault", HONEST, ids=str)
    def test_one_fault_while_closing(self, fault: dict[str, Any], nth: int) -> None:
        """A copy is closed by this call or by the next one, and the older issue always stays."""
        mock = GitHubMock(faults=[Fault(**fault, nth=nth)])
        mock.add("Mug", MARK)
        mock.add("Mug", MARK)

        in_thread(mock)
        mock.settle()
        outcome = in_thread(mock)

        assert Reason.COMPLETED is outcome.reason
        assert [1] == numbers(mock)

    def test_secondary_limit_on_the_second_look(self) -> None:
        """The proof of the first answer outweighs a limit on the check behind it."""
        mock = GitHubMock(faults=[secondary_limit(at="GET *", nth=3)])

        assert "ticketing/filed" == in_thread(mock).rule


def play_schedule(faults: list[Fault], calls: int = 4) -> None:
    """Call until it is no longer transient, then once more on a healthy wire, and check the promise."""
    mock = GitHubMock(faults=faults)
    unknown = False
    for _ in range(calls):
        before = len(mock.requests)
        outcome = in_thread(mock)
        own = any(request.method == "POST" and request.worked for request in mock.requests[before:])
        assert not (own and claims_nothing(outcome))
        unknown = outcome.reason is not Reason.COMPLETED and (unknown or not claims_nothing(outcome))
        if outcome.stop:
            break
    if not any(fault.when == "late" for fault in faults):
        assert len(mock.open_issues()) <= 1
    mock.settle()
    # What the run says at its end (stickiness included) denies no ticket that its own requests opened.
    assert not (mock.issues() and outcome.reason is not Reason.COMPLETED and not unknown)
    mock._faults.clear()
    last = in_thread(mock)
    assert Reason.COMPLETED is last.reason
    assert [last.evidence["number"]] == numbers(mock)


FAULTS = st.builds(
    lambda fault, nth, delay: Fault(**fault, nth=nth, delay=delay),
    st.sampled_from(HONEST),
    st.integers(1, 14),
    st.integers(1, 6),
)


class TestSchedules:
    """Many faults, and a caller who calls again."""

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.lists(FAULTS, min_size=1, max_size=6))
    def test_some(self, faults: list[Fault]) -> None:
        """At most one open issue, and no ticket denied."""
        play_schedule(faults)

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(20))
    def test_many(self, seed: int) -> None:
        """The same over 10,000 schedules."""
        draw = random.Random(seed)  # noqa: S311 - a schedule, not a secret
        for _ in range(500):
            play_schedule(
                [
                    Fault(**draw.choice(HONEST), nth=draw.randint(1, 14), delay=draw.randint(1, 6))
                    for _ in range(draw.randint(1, 6))
                ]
            )


class Agent:
    """A process of its own: its flow is driven one request at a time."""

    def __init__(self, mock: GitHubMock) -> None:
        self.client = mock.client()
        self.outcome: Outcome | None = None
        self.flow: Flow = ticket_flow(REPOSITORY)(**TICKET)
        self.call = next(self.flow)

    def step(self) -> None:
        """Send one request; once the call has ended, do nothing."""
        if self.outcome is not None:
            return
        call = self.call
        request = self.client.build_request(call.method, call.path, params=call.params, json=call.json)
        try:
            reply = Reply(self.client.send(request), write=call.write)
        except Exception as error:
            reply = Reply.from_exception(error, write=call.write)
        try:
            self.call = self.flow.send(reply)
        except StopIteration as end:
            self.outcome = end.value


def interleave(mock: GitHubMock, order: Iterator[int], count: int) -> list[Outcome]:
    """Let some agents send requests in the given order, then to their ends one by one."""
    agents = [Agent(mock) for _ in range(count)]
    for who in order:
        agents[who].step()
    for agent in agents:
        while agent.outcome is None:
            agent.step()
    return [agent.outcome for agent in agents if agent.outcome is not None]


class TestProcesses:
    """Agents that share nothing but GitHub."""

    @pytest.mark.parametrize("firsts", list(combinations(range(8), 4)), ids=str)
    def test_two_agents_in_every_order(self, firsts: tuple[int, ...]) -> None:
        """Whatever the order of their requests, one issue stays open and both name it."""
        mock = GitHubMock()

        outcomes = interleave(mock, (0 if at in firsts else 1 for at in range(8)), 2)

        assert [1] == numbers(mock)
        assert {(Reason.COMPLETED, 1)} == {(o.reason, o.evidence["number"]) for o in outcomes}
        assert 1 == len({outcome.content for outcome in outcomes})

    @pytest.mark.parametrize("seed", range(40))
    def test_three_agents(self, seed: int) -> None:
        """The same with three, in random orders."""
        draw = random.Random(seed)  # noqa: S311 - an order, not a secret
        mock = GitHubMock()

        outcomes = interleave(mock, (draw.randrange(3) for _ in range(12)), 3)

        assert [1] == numbers(mock)
        assert {1} == {outcome.evidence["number"] for outcome in outcomes}

    def one_agents_run(self, seed: int) -> None:
        """Two agents, faults, random orders: what is left open is told, and closed by the next call."""
        draw = random.Random(seed)  # noqa: S311 - a schedule, not a secret
        faults = [
            Fault(**draw.choice(HONEST), nth=draw.randint(1, 10), delay=draw.randint(1, 4))
            for _ in range(draw.randint(1, 3))
        ]
        mock = GitHubMock(faults=faults)

        outcomes = interleave(mock, (draw.randrange(2) for _ in range(10)), 2)

        told = any({"list_unread", "left_open"} & set(outcome.evidence) for outcome in outcomes)
        unsure = any(outcome.effect is Effect.UNKNOWN for outcome in outcomes)
        if not (told or unsure or any(fault.when == "late" for fault in faults)):
            assert len(mock.open_issues()) <= 1
        mock.settle()
        mock._faults.clear()
        assert Reason.COMPLETED is in_thread(mock).reason
        assert 1 == len(mock.open_issues())

    @pytest.mark.parametrize("seed", range(60))
    def test_two_agents_and_faults(self, seed: int) -> None:
        """What is left open is told, and closed by the next call."""
        self.one_agents_run(seed)

    @pytest.mark.slow
    def test_two_agents_and_many_faults(self) -> None:
        """The same over 5,000 schedules."""
        for seed in range(1_000, 6_000):
            self.one_agents_run(seed)


class TestParallel:
    """Identical calls at once, in one process."""

    CALLS = 12

    def check(self, mock: GitHubMock, answers: list[str]) -> None:
        """One request to create, one issue, one sentence, and no lane left."""
        assert 1 == sent(mock).count("POST")
        assert [1] == numbers(mock)
        assert [f"The ticket is open. Its number is 1: {LINK}/1"] * self.CALLS == answers
        assert 0 == len(LANES)

    def test_threads(self) -> None:
        """Threads stand in line."""
        mock = GitHubMock()
        (tool,) = tools(client=mock.client(event_hooks={"request": [lambda _: time.sleep(0.002)]}))

        with ThreadPoolExecutor(self.CALLS) as pool:
            answers = list(pool.map(lambda _: tool.invoke(TICKET), range(self.CALLS)))

        self.check(mock, answers)

    def test_tasks(self) -> None:
        """Tasks stand in line, though each request gives way to the others."""
        mock = GitHubMock()

        async def go() -> list[str]:
            async with slow_client(mock) as client:
                (tool,) = tools(async_client=client)
                return list(await asyncio.gather(*(tool.ainvoke(TICKET) for _ in range(self.CALLS))))

        self.check(mock, asyncio.run(go()))

    def test_threads_and_tasks(self) -> None:
        """Both stand in the same line."""
        mock = GitHubMock()

        async def go() -> list[str]:
            async with slow_client(mock) as client:
                (tool,) = tools(client=mock.client(), async_client=client)
                half = self.CALLS // 2
                threads = [asyncio.to_thread(tool.invoke, TICKET) for _ in range(half)]
                tasks = [tool.ainvoke(TICKET) for _ in range(half)]
                return list(await asyncio.gather(*threads, *tasks))

        self.check(mock, asyncio.run(go()))

    def test_different_matters_do_not_wait(self) -> None:
        """Calls about different matters run side by side."""
        mock = GitHubMock()

        async def go() -> None:
            async with slow_client(mock) as client:
                (tool,) = tools(async_client=client)
                await asyncio.gather(*(tool.ainvoke({"title": f"Mug {n}"}) for n in range(3)))

        asyncio.run(go())

        assert ["GET"] * 3 == sent(mock)[:3]
        assert 3 == len(mock.open_issues())

    def test_cancelled(self) -> None:
        """A cancelled task leaves the line and lets the others through; the cancellation is not swallowed."""
        mock = GitHubMock()

        async def go() -> list[Any]:
            async with slow_client(mock) as client:
                (tool,) = tools(async_client=client)
                tasks = [asyncio.create_task(tool.ainvoke(TICKET)) for _ in range(4)]
                await asyncio.sleep(0.001)
                tasks[0].cancel()
                tasks[2].cancel()
                return list(await asyncio.gather(*tasks, return_exceptions=True))

        ended = asyncio.run(go())

        assert [True, False, True, False] == [isinstance(each, asyncio.CancelledError) for each in ended]
        assert 1 == len(mock.open_issues())
        assert 0 == len(LANES)

    def test_patience_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A call does not wait for ever: it goes back to the model, and has sent nothing."""
        monkeypatch.setattr(LANES, "patience_s", 0.01)
        mock = GitHubMock()
        (tool,) = tools(client=mock.client(), async_client=mock.async_client())
        call = {"name": "create_ticket", "args": TICKET, "id": "1", "type": "tool_call"}

        with LANES.turn(marker(REPOSITORY, **TICKET)):
            answers = [tool.invoke(call), asyncio.run(tool.ainvoke(call))]

        assert ["ticketing/busy"] * 2 == [answer.artifact["rule"] for answer in answers]
        assert {marker(REPOSITORY, **TICKET)} == {answer.artifact["key"] for answer in answers}
        assert [] == sent(mock)
        assert 0 == len(LANES)


def slow_client(mock: GitHubMock) -> httpx.AsyncClient:
    """Return a client whose every request gives way to other tasks."""

    async def give_way(_: httpx.Request) -> None:
        await asyncio.sleep(0.002)

    return mock.async_client(event_hooks={"request": [give_way]})


class TestLanes:
    """The line itself."""

    def test_first_come_first_served(self) -> None:
        """Those who wait are let in in the order of their coming."""
        lanes, order = Lanes(5.0), []

        async def wait(name: int) -> None:
            async with lanes.aturn("k"):
                order.append(name)
                await asyncio.sleep(0)

        async def go() -> None:
            await asyncio.gather(*(wait(name) for name in range(5)))

        asyncio.run(go())

        assert [0, 1, 2, 3, 4] == order
        assert 0 == len(lanes)

    def test_let_in_and_cancelled_at_once(self) -> None:
        """A task that is cancelled just as its turn comes passes the turn on."""
        lanes, ran = Lanes(5.0), []

        async def wait(name: str) -> None:
            async with lanes.aturn("k"):
                ran.append(name)

        async def go() -> None:
            async with lanes.aturn("k"):
                first, second = asyncio.create_task(wait("first")), asyncio.create_task(wait("second"))
                await asyncio.sleep(0)
            first.cancel()  # let in a moment ago, not yet awake
            await asyncio.gather(first, second, return_exceptions=True)

        asyncio.run(go())

        assert ["second"] == ran
        assert 0 == len(lanes)

    def test_an_exception_frees_the_lane(self) -> None:
        """Whatever ends a turn, the next one gets in."""
        lanes = Lanes(0.01)
        for _ in range(2):
            with pytest.raises(KeyError), lanes.turn("k"):
                raise KeyError

        assert 0 == len(lanes)

    @pytest.mark.parametrize(("threads", "tasks"), list(product([0, 4], [1, 4])))
    def test_never_two_at_once(self, threads: int, tasks: int) -> None:
        """No two turns of one key overlap, whoever holds them."""
        lanes, inside, most = Lanes(5.0), 0, 0

        def enter() -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)

        def leave() -> None:
            nonlocal inside
            inside -= 1

        def thread() -> None:
            for _ in range(10):
                with lanes.turn("k"):
                    enter()
                    time.sleep(0.0002)
                    leave()

        async def task() -> None:
            for _ in range(10):
                async with lanes.aturn("k"):
                    enter()
                    await asyncio.sleep(0.0002)
                    leave()

        async def go() -> None:
            jobs = [asyncio.to_thread(thread) for _ in range(threads)]
            await asyncio.gather(*jobs, *(task() for _ in range(tasks)))

        asyncio.run(go())

        assert 1 == most
        assert 0 == len(lanes)
