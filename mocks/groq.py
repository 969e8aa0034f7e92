"""Groq's chat completions on the wire, so that the real `ChatGroq` client runs without a network.

The mock sits below the client, on its transport: what is recorded is the JSON body the client
built, and what it answers is parsed by the client's own code.

A call too many raises `OutOfScript` to the caller, as the scripted model does; a path that is not
mocked raises respx's `AllMockedAssertionError`. The Groq SDK turns whatever a transport raises into
`APIConnectionError`, which would make a wrong script look like a bad network. So the transport does
not raise: it answers with a response whose `raise_for_status` does, and there the SDK expects
`httpx.HTTPStatusError` only and lets the rest through. `GroqMock.check()` raises it once more, for
runs in which something on the way catches every exception.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import httpx
import respx
from langchain_core.messages import AIMessage
from langchain_groq import ChatGroq

from mocks.model import Script

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "APPROXIMATE_USAGE",
    "MODEL",
    "GroqMock",
    "approximate_tokens",
    "rate_limited",
    "request_too_large",
    "server_error",
    "tool_use_failed",
    "unauthorized",
]

MODEL: Final = "openai/gpt-oss-120b"
"""A tool-calling model Groq names as the replacement of the older ones it retires."""

APPROXIMATE_USAGE: Final = "fp_mock_usage_is_approximate"
"""The `system_fingerprint` of every answer of the mock.

Token counts on the mocked wire are approximate. No tokenizer is loaded (that would need the
network): a token is four bytes of UTF-8, rounded up (`approximate_tokens`). The prompt is the
`messages` and the `tools` of the request as the client sent them, in compact JSON; the completion
is the content and the tool calls of the answer, likewise. Good for comparing two runs, not for a
bill. The label is here since the fingerprint is what `ChatGroq` carries into `response_metadata`,
beside the counts.
"""

_URL: Final = "https://api.groq.com"
_PATH: Final = "/openai/v1/chat/completions"
_BYTES_PER_TOKEN: Final = 4
_OVERLOADED: Final = 503
# Fixed, so that two runs of one script are equal to the byte.
_CREATED: Final = 1_750_000_000
# Only seen by somebody who talks to the mock without the SDK; no vendor uses this number.
_REFUSED: Final = 599

Turn = AIMessage | httpx.Response | Exception
Json = dict[str, Any]


class GroqMock:
    """A scripted Groq: call number n is answered by turn number n.

    A turn is an `AIMessage` (sent in Groq's shape; its own `usage_metadata` is ignored, the mock
    counts), an `httpx.Response` (sent as it is: see the factories of this module) or an exception
    (raised by the transport: `httpx.ReadTimeout` is what a lost connection looks like).
    `narration` answers every call after the last turn; without it such a call is `OutOfScript`.
    """

    def __init__(self, turns: Sequence[Turn] = (), *, narration: AIMessage | str | None = None) -> None:
        """Take the script; nothing is sent or opened before a client is made."""
        self._script: Script[Turn, Json] = Script(
            turns,
            AIMessage(content=narration) if isinstance(narration, str) else narration,
            lambda body: [_described(message) for message in body.get("messages", ())],
        )
        self.router = respx.Router(assert_all_called=False)
        self.router.post(path=_PATH).mock(side_effect=self._complete)

    @property
    def calls(self) -> int:
        """How many completions were asked for, a refused one included."""
        return len(self._script.requests)

    @property
    def left(self) -> int:
        """How many turns nobody has asked for."""
        return self._script.left

    @property
    def requests(self) -> list[Json]:
        """The JSON bodies the client sent, one a call."""
        return self._script.requests

    def check(self) -> None:
        """Raise the first failure of the mock itself, in case somebody has caught it."""
        self._script.check()

    def http_client(self) -> httpx.Client:
        """Return a client that can reach this mock and nothing else."""
        return httpx.Client(transport=httpx.MockTransport(self._send))

    def http_async_client(self) -> httpx.AsyncClient:
        """Return an async client that can reach this mock and nothing else."""
        return httpx.AsyncClient(transport=httpx.MockTransport(self._send))

    def model(self, **kwargs: Any) -> ChatGroq:
        """Return the real client on this mock; keywords are fields of `ChatGroq` and win.

        It does not retry unless it is told to: a retry would take a turn of the script.
        """
        defaults: Json = {
            "model": MODEL,
            "api_key": "gsk_mock",
            # Given, so that GROQ_API_BASE of somebody's shell does not move the path.
            "base_url": _URL,
            "max_retries": 0,
            "http_client": self.http_client(),
            "http_async_client": self.http_async_client(),
        }
        return ChatGroq(**{**defaults, **kwargs})

    def _send(self, request: httpx.Request) -> httpx.Response:
        try:
            return self.router.handler(request)
        except AssertionError as refused:
            # A call out of script, or respx's own failure for a path that is not mocked.
            return _Refusal(self._script.refuse(refused))

    def _complete(self, request: httpx.Request) -> httpx.Response:
        body: Json = json.loads(request.content)
        call, turn = self._script.next(body)
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, httpx.Response):
            # A fresh copy: one turn can stand twice in a script, a response is read once.
            return httpx.Response(turn.status_code, headers=turn.headers, content=turn.content)
        message, finish_reason = _message(turn, call)
        usage = _usage(body, message)
        head: Json = {
            "id": turn.id or f"chatcmpl-mock-{call}",
            "created": _CREATED,
            "model": body.get("model", MODEL),
            "system_fingerprint": APPROXIMATE_USAGE,
        }
        request_id = f"req_mock_{call}"
        if body.get("stream"):
            events = _events(head, request_id, message, finish_reason, usage)
            return httpx.Response(
                200,
                headers={"content-type": "text/event-stream", "x-request-id": request_id},
                content="".join(events).encode(),
            )
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish_reason,
        }
        answer = {
            **head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": usage,
            "usage_breakdown": None,
            "x_groq": {"id": request_id},
            "service_tier": "on_demand",
        }
        return httpx.Response(200, headers={"x-request-id": request_id}, json=answer)


def approximate_tokens(text: str) -> int:
    """Count four bytes of UTF-8 as a token, rounded up."""
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)


def tool_use_failed(failed_generation: str = "<function=search>{query: books}") -> httpx.Response:
    """Return the 400 for a call the model wrote as text; the text is not meant for anybody."""
    message = (
        "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details."
    )
    return _error(
        400,
        message,
        "invalid_request_error",
        code="tool_use_failed",
        failed_generation=failed_generation,
    )


def request_too_large(*, limit: int = 8_000, requested: int = 12_000) -> httpx.Response:
    """Return the 413 for one request above the tokens a minute: waiting does not help."""
    message = (
        f"Request too large for model `{MODEL}` in organization `org_mock` service tier "
        f"`on_demand` on tokens per minute (TPM): Limit {limit}, Requested {requested}, "
        "please reduce your message size and try again."
    )
    return _error(413, message, "tokens", code="rate_limit_exceeded")


def rate_limited(*, retry_after_s: int = 7, limit: int = 8_000) -> httpx.Response:
    """Return the 429 for a spent minute, with the seconds to wait in `retry-after`."""
    message = (
        f"Rate limit reached for model `{MODEL}` in organization `org_mock` service tier "
        f"`on_demand` on tokens per minute (TPM): Limit {limit}, Used {limit}, Requested 500. "
        f"Please try again in {retry_after_s}s."
    )
    return _error(
        429,
        message,
        "tokens",
        code="rate_limit_exceeded",
        headers={"retry-after": str(retry_after_s)},
    )


def server_error(status: int = 500) -> httpx.Response:
    """Return Groq's own failure: 500, 502 or 503."""
    if status == _OVERLOADED:
        return _error(status, f"{MODEL} is currently over capacity.", "internal_server_error")
    return _error(status, "Internal Server Error", "internal_server_error")


def unauthorized() -> httpx.Response:
    """Return the 401 for a wrong key."""
    return _error(401, "Invalid API Key", "invalid_request_error", code="invalid_api_key")


class _Refusal(httpx.Response):
    """A response nobody can accept: the SDK asks for its status and gets the reason instead."""

    def __init__(self, reason: AssertionError) -> None:
        super().__init__(_REFUSED, text=str(reason))
        self._reason = reason

    def raise_for_status(self) -> httpx.Response:
        raise self._reason from None


def _error(
    status: int,
    message: str,
    kind: str,
    *,
    headers: dict[str, str] | None = None,
    **fields: str,
) -> httpx.Response:
    error = {"message": message, "type": kind, **fields}
    return httpx.Response(status, headers=headers, json={"error": error})


def _message(turn: AIMessage, call: int) -> tuple[Json, str]:
    """Put a turn into Groq's shape: the message and its `finish_reason`."""
    message: Json = {"role": "assistant"}
    if text := _text(turn):
        message["content"] = text
    if reasoning := turn.additional_kwargs.get("reasoning_content"):
        message["reasoning"] = reasoning
    written = [
        *((made["id"], made["name"], _dumps(made["args"])) for made in turn.tool_calls),
        # Broken arguments go out as the model wrote them; the client finds out.
        *((bad["id"], bad["name"], bad["args"]) for bad in turn.invalid_tool_calls),
    ]
    if written:
        message["tool_calls"] = [
            {
                # An empty id is a case to test, a missing one an unfinished script.
                "id": f"call_mock_{call}_{index}" if call_id is None else call_id,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for index, (call_id, name, arguments) in enumerate(written)
        ]
        return message, "tool_calls"
    message.setdefault("content", "")
    return message, str(turn.response_metadata.get("finish_reason", "stop"))


def _text(turn: AIMessage) -> str:
    # Not turn.text: a method on langchain-core 0.3, a property from 1.0 on.
    if isinstance(turn.content, str):
        return turn.content
    return "".join(block if isinstance(block, str) else str(block.get("text", "")) for block in turn.content)


def _usage(body: Json, message: Json) -> dict[str, int]:
    prompt = approximate_tokens(_dumps(body.get("messages", [])))
    if "tools" in body:
        prompt += approximate_tokens(_dumps(body["tools"]))
    completion = approximate_tokens(message.get("content", ""))
    if "tool_calls" in message:
        completion += approximate_tokens(_dumps(message["tool_calls"]))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _events(
    head: Json, request_id: str, message: Json, finish_reason: str, usage: dict[str, int]
) -> Iterator[str]:
    """Yield the answer as server-sent events: words, whole tool calls, then the counts."""

    def event(delta: Json, reason: str | None = None, x_groq: Json | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        chunk = {**head, "object": "chat.completion.chunk", "choices": [choice]}
        return f"data: {_dumps(chunk if x_groq is None else {**chunk, 'x_groq': x_groq})}\n\n"

    yield event({"role": "assistant", "content": ""}, x_groq={"id": request_id})
    if "reasoning" in message:
        yield event({"reasoning": message["reasoning"]})
    for word in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", message.get("content", "")):
        yield event({"content": word})
    for index, call in enumerate(message.get("tool_calls", ())):
        yield event({"tool_calls": [{**call, "index": index}]})
    yield event({}, finish_reason, {"id": request_id, "usage": usage})
    yield "data: [DONE]\n\n"


def _described(message: Json) -> str:
    called = [call["function"]["name"] for call in message.get("tool_calls") or ()]
    if message["role"] == "user" and isinstance(message["content"], str):
        called = [repr(message["content"][:40])]
    if message["role"] == "tool":
        called = [message.get("tool_call_id", "")]
    return f"{message['role']}({', '.join(called)})"


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
