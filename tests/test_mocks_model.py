"""The two model mocks: the scripted model, and the scripted Groq below the real client."""

from __future__ import annotations

import asyncio
import copy
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import groq
import httpx
import pytest
import respx
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.tools import tool

from mocks.groq import (
    APPROXIMATE_USAGE,
    MODEL,
    GroqMock,
    approximate_tokens,
    rate_limited,
    request_too_large,
    server_error,
    tool_use_failed,
    unauthorized,
)
from mocks.model import OutOfScript, ScriptedModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.language_models import LanguageModelInput
    from langchain_core.runnables import Runnable

    Model = Runnable[LanguageModelInput, AIMessage]
    Ask = Callable[[Model, list[BaseMessage]], AIMessage]

QUESTION: list[BaseMessage] = [HumanMessage("Where is my order?")]
USAGE = UsageMetadata(input_tokens=3, output_tokens=5, total_tokens=8)
CALLS = AIMessage(
    "Let me look.\n One  moment ",
    tool_calls=[
        {"name": "search", "args": {"query": "Ünïcode", "n": 2}, "id": "call_1"},
        {"name": "ticket", "args": {}, "id": "call_2"},
    ],
    usage_metadata=USAGE,
)


@tool
def search(query: str, n: int = 1) -> str:
    """Search the orders."""
    return f"{n} for {query}"


def invoke(model: Model, messages: list[BaseMessage]) -> AIMessage:
    """Ask at once."""
    return model.invoke(messages)


def ainvoke(model: Model, messages: list[BaseMessage]) -> AIMessage:
    """Ask at once, asynchronously."""
    return asyncio.run(model.ainvoke(messages))


def stream(model: Model, messages: list[BaseMessage]) -> AIMessage:
    """Ask for pieces and join them."""
    return _joined(list(model.stream(messages)))


def astream(model: Model, messages: list[BaseMessage]) -> AIMessage:
    """Ask for pieces asynchronously and join them."""

    async def pieces() -> list[AIMessage]:
        return [piece async for piece in model.astream(messages)]

    return _joined(asyncio.run(pieces()))


def _joined(pieces: list[AIMessage]) -> AIMessage:
    first, *rest = pieces
    assert isinstance(first, AIMessageChunk)
    whole = first + rest
    assert isinstance(whole, AIMessageChunk)
    return whole


every_way = pytest.mark.parametrize("ask", [invoke, ainvoke, stream, astream])


class TestScriptedModel:
    """Turn n answers call n."""

    @every_way
    def test_a_turn_arrives_whole(self, ask: Ask) -> None:
        """Text, tool calls, their ids and the usage are the turn's, in pieces or at once."""
        answer = ask(ScriptedModel([CALLS]), QUESTION)

        assert CALLS.content == answer.content
        assert CALLS.tool_calls == answer.tool_calls
        assert USAGE == answer.usage_metadata

    @every_way
    def test_an_id_is_kept(self, ask: Ask) -> None:
        """A turn that has an id keeps it."""
        assert "ai-1" == ask(ScriptedModel([AIMessage("Yes.", id="ai-1")]), QUESTION).id

    def test_a_turn_is_never_handed_out_twice(self) -> None:
        """One turn listed twice is two messages, so that a stamped id stays with one of them."""
        model = ScriptedModel([CALLS, CALLS])

        first, second = model.invoke(QUESTION), model.invoke(QUESTION)
        first.tool_calls[0]["args"]["query"] = "changed"

        assert first.id != second.id
        assert CALLS.id is None
        assert "Ünïcode" == second.tool_calls[0]["args"]["query"]

    def test_text_is_streamed_in_words(self) -> None:
        """A consumer that prints pieces sees more than one, and a tool call in parts."""
        pieces = list(ScriptedModel([CALLS]).stream(QUESTION))

        assert ["Let", " me", " look.", "\n One", "  moment "] == [
            piece.content for piece in pieces if piece.content
        ]
        assert 4 == sum(bool(getattr(piece, "tool_call_chunks", [])) for piece in pieces)

    @every_way
    def test_an_exception_is_raised(self, ask: Ask) -> None:
        """A turn can be a failure of the model."""
        with pytest.raises(TimeoutError):
            ask(ScriptedModel([TimeoutError()]), QUESTION)

    @every_way
    def test_a_call_too_many_fails(self, ask: Ask) -> None:
        """The failure says how long the script is, what was asked, and what to do."""
        model = ScriptedModel([CALLS])
        model.invoke(QUESTION)
        told = [*QUESTION, CALLS, ToolMessage("Sent.", tool_call_id="call_1", name="search")]

        with pytest.raises(OutOfScript) as failure:
            ask(model, told)

        assert (
            "The script has 1 turn, and this is model call 2. It was asked with (newest last): "
            "HumanMessage('Where is my order?'), AIMessage(search, ticket), ToolMessage(search). "
            "Either the run should have stopped before this call, or the script lacks a turn: "
            "add one to `turns`, or set `narration` if a call too many may be answered."
        ) == str(failure.value)
        assert 2 == model.calls

    def test_a_swallowed_failure_is_raised_by_check(self) -> None:
        """Somebody's catch-all cannot hide that the script was too short."""
        model = ScriptedModel([])
        model.check()
        with pytest.raises(OutOfScript):
            model.with_fallbacks([ScriptedModel([])]).invoke(QUESTION)

        with pytest.raises(OutOfScript, match="0 turns"):
            model.check()

    @pytest.mark.parametrize("narration", ["Bye.", AIMessage("Bye.")])
    def test_narration_follows_the_script(self, narration: AIMessage | str) -> None:
        """With a narration the model is never out of script."""
        model = ScriptedModel([AIMessage("Hello.")], narration=narration)

        assert ["Hello.", "Bye.", "Bye."] == [model.invoke(QUESTION).content for _ in range(3)]
        assert 3 == model.calls
        model.check()

    def test_requests_and_tools_are_recorded(self) -> None:
        """Each call keeps what it was sent, and which tools it could call."""
        model = ScriptedModel([AIMessage("1"), AIMessage("2")])

        model.bind_tools([search]).invoke(QUESTION)
        model.invoke([SystemMessage("Be brief."), *QUESTION])

        assert [QUESTION, [SystemMessage("Be brief."), *QUESTION]] == model.requests
        assert [("search",), ()] == model.tools_bound
        assert ["query"] == model.schemas_bound[0][0]["function"]["parameters"]["required"]

    def test_copies_share_the_script(self) -> None:
        """A copy of the model is another handle on one script and one record."""
        model = ScriptedModel([AIMessage("1"), AIMessage("2"), AIMessage("3")])

        answers = [
            handle.invoke(QUESTION).content for handle in (model, model.model_copy(), copy.deepcopy(model))
        ]

        assert ["1", "2", "3"] == answers
        assert 3 == model.calls == len(model.requests)
        assert 0 == model.left

    def test_turns_are_not_serialised(self) -> None:
        """A long script costs nothing when a framework dumps the model, which agents do a call."""
        assert "secret turn" not in json.dumps(
            ScriptedModel([AIMessage("secret turn")]).model_dump(), default=str
        )

    def test_threads_get_one_turn_each(self) -> None:
        """No turn is answered twice, however many threads ask."""
        model = ScriptedModel([AIMessage(str(number)) for number in range(200)])

        with ThreadPoolExecutor(16) as pool:
            answers = pool.map(lambda _: str(model.invoke(QUESTION).content), range(200))
            assert {str(number) for number in range(200)} == set(answers)


class TestGroqMock:
    """The real client, offline."""

    @every_way
    def test_a_turn_survives_the_wire(self, ask: Ask) -> None:
        """What the real client parses is the turn: text, tool calls, ids."""
        mock = GroqMock([CALLS])

        answer = ask(mock.model(), QUESTION)

        assert CALLS.content == answer.content
        assert CALLS.tool_calls == answer.tool_calls
        assert MODEL == answer.response_metadata["model_name"]
        assert "tool_calls" == answer.response_metadata["finish_reason"]

    @every_way
    def test_plain_text_stops(self, ask: Ask) -> None:
        """A turn without calls finishes with `stop`, or as it says itself."""
        cut = AIMessage("Long", response_metadata={"finish_reason": "length"})
        model = GroqMock([AIMessage("Yes."), cut]).model()

        reasons = [ask(model, QUESTION).response_metadata["finish_reason"] for _ in range(2)]

        assert ["stop", "length"] == reasons

    def test_a_streamed_request_says_so(self) -> None:
        """Streaming is another request on the wire, and its answer comes in pieces."""
        mock = GroqMock([CALLS, CALLS])

        mock.model().invoke(QUESTION)
        pieces = list(mock.model().stream(QUESTION))

        assert [False, True] == [body["stream"] for body in mock.requests]
        assert ["Let", " me", " look.", "\n One", "  moment "] == [
            piece.content for piece in pieces if piece.content
        ]

    @every_way
    def test_usage_is_counted_from_the_request(self, ask: Ask) -> None:
        """A token is four bytes of the request's messages and tools; the turn's usage is ignored.

        The label is beside the counts.
        """
        mock = GroqMock([CALLS])

        answer = ask(mock.model().bind_tools([search]), QUESTION)

        (body,) = mock.requests
        prompt = sum(approximate_tokens(_compact(body[key])) for key in ("messages", "tools"))
        assert answer.usage_metadata is not None
        assert prompt == answer.usage_metadata["input_tokens"]
        assert APPROXIMATE_USAGE == answer.response_metadata["system_fingerprint"]

    def test_usage_of_the_answer(self) -> None:
        """The completion is the answer's text, likewise counted, and the total is the sum."""
        answer = GroqMock([AIMessage("ä" * 5)]).model().invoke(QUESTION)

        assert answer.usage_metadata is not None
        assert 3 == answer.usage_metadata["output_tokens"]
        assert (
            answer.usage_metadata["input_tokens"] + answer.usage_metadata["output_tokens"]
            == answer.usage_metadata["total_tokens"]
        )

    @pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
    def test_the_rule_of_counting(self, text: str, tokens: int) -> None:
        """Four bytes are a token, rounded up."""
        assert tokens == approximate_tokens(text)

    @every_way
    def test_an_artifact_never_reaches_the_request(self, ask: Ask) -> None:
        """The artifact of a ToolMessage stays here; Groq sees role, content and tool_call_id."""
        mock = GroqMock([AIMessage("Done.")])
        answered = ToolMessage(
            "Paid.",
            tool_call_id="call_1",
            name="search",
            status="error",
            artifact={"schema": 1, "reason": "for-the-router-only"},
        )

        ask(mock.model().bind_tools([search]), [*QUESTION, CALLS, answered])

        (body,) = mock.requests
        assert {"role": "tool", "content": "Paid.", "tool_call_id": "call_1"} == body["messages"][2]
        assert "for-the-router-only" not in json.dumps(body)
        assert ["search"] == [made["function"]["name"] for made in body["tools"]]

    @pytest.mark.parametrize(
        ("turn", "raised", "status"),
        [
            (tool_use_failed(), groq.BadRequestError, 400),
            (unauthorized(), groq.AuthenticationError, 401),
            (request_too_large(), groq.APIStatusError, 413),
            (rate_limited(), groq.RateLimitError, 429),
            (server_error(), groq.InternalServerError, 500),
            (server_error(503), groq.InternalServerError, 503),
        ],
    )
    @every_way
    def test_wire_errors(
        self, ask: Ask, turn: httpx.Response, raised: type[groq.APIStatusError], status: int
    ) -> None:
        """An error on the wire is the SDK's own exception, with Groq's body."""
        with pytest.raises(raised) as failure:
            ask(GroqMock([turn]).model(), QUESTION)

        assert status == failure.value.status_code
        assert turn.json() == failure.value.body

    def test_what_the_errors_carry(self) -> None:
        """The two fields callers act on: the text the model wrote, and the seconds to wait."""
        assert "<function=x>" == tool_use_failed("<function=x>").json()["error"]["failed_generation"]
        assert "9" == rate_limited(retry_after_s=9).headers["retry-after"]

    @pytest.mark.parametrize(
        ("turn", "raised"),
        [
            (httpx.ReadTimeout("slow"), groq.APITimeoutError),
            (httpx.ConnectError("down"), groq.APIConnectionError),
        ],
    )
    @every_way
    def test_a_lost_connection(
        self, ask: Ask, turn: Exception, raised: type[groq.APIConnectionError]
    ) -> None:
        """An exception turn is raised below the SDK, as a network would."""
        with pytest.raises(raised) as failure:
            ask(GroqMock([turn]).model(), QUESTION)

        assert turn is failure.value.__cause__

    def test_a_retry_takes_a_turn(self) -> None:
        """The SDK's retries are real requests: two calls, and the second turn is the answer."""
        mock = GroqMock([rate_limited(retry_after_s=0), AIMessage("Yes.")])

        assert "Yes." == mock.model(max_retries=1).invoke(QUESTION).content
        assert 2 == mock.calls

    @pytest.mark.parametrize("retries", [0, 2])
    @every_way
    def test_a_call_too_many_is_not_a_bad_network(self, ask: Ask, retries: int) -> None:
        """The SDK lets `OutOfScript` through as it is, and never retries it."""
        mock = GroqMock([])

        with pytest.raises(OutOfScript, match=r"0 turns.*call 1.*user\('Where is my order\?'\)"):
            ask(mock.model(max_retries=retries), QUESTION)

        assert 1 == mock.calls
        with pytest.raises(OutOfScript):
            mock.check()

    @every_way
    def test_a_path_that_is_not_mocked_is_loud(self, ask: Ask) -> None:
        """A hole in the mock is a failed assertion, not a connection error."""
        mock = GroqMock([AIMessage("Yes.")])

        with pytest.raises(respx.models.AllMockedAssertionError, match="not mocked"):
            ask(mock.model(base_url="https://groq.invalid/elsewhere"), QUESTION)

        assert 0 == mock.calls
        with pytest.raises(respx.models.AllMockedAssertionError):
            mock.check()

    def test_narration_follows_the_script(self) -> None:
        """With a narration the mock answers for ever."""
        mock = GroqMock([AIMessage("Hello.")], narration="Bye.")

        assert ["Hello.", "Bye.", "Bye."] == [mock.model().invoke(QUESTION).content for _ in range(3)]

    @pytest.mark.parametrize(("given", "seen"), [("call_9", "call_9"), ("", ""), (None, "call_mock_1_0")])
    def test_ids_of_tool_calls(self, given: str | None, seen: str) -> None:
        """An empty id goes out as it is, a missing one is filled in."""
        turn = AIMessage("", tool_calls=[{"name": "search", "args": {}, "id": given}])

        assert [seen] == [call["id"] for call in GroqMock([turn]).model().invoke("?").tool_calls]

    def test_broken_arguments_reach_the_client(self) -> None:
        """Arguments that are no JSON go out as written; the client calls them invalid."""
        broken = {"name": "search", "args": '{"query": ', "id": "call_1", "error": None}
        turn = AIMessage("", invalid_tool_calls=[broken])

        answer = GroqMock([turn]).model().invoke(QUESTION)

        assert [] == answer.tool_calls
        assert ['{"query": '] == [call["args"] for call in answer.invalid_tool_calls]

    def test_the_shape_on_the_wire(self) -> None:
        """The raw answer has Groq's fields, and two runs of a script are equal to the byte."""

        def answer() -> dict[str, Any]:
            with GroqMock([AIMessage("Yes.", id="chatcmpl-1")]).http_client() as client:
                sent = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
                url = "https://api.groq.com/openai/v1/chat/completions"
                raw: dict[str, Any] = client.post(url, json=sent).json()
                return raw

        assert answer() == answer()
        assert "chatcmpl-1" == answer()["id"]
        assert "m" == answer()["model"]
        assert {"id": "req_mock_1"} == answer()["x_groq"]
        assert [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Yes."},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ] == answer()["choices"]


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
