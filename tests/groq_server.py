"""Groq's wire on this machine, over a real socket: where the real client is pointed with a real key."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from langchain_core.messages import AIMessage

from domains.found import scenarios
from domains.scenario import Turn
from mocks.groq import GroqMock

Answer = Callable[[dict[str, Any]], AIMessage | httpx.Response]


class GroqServer(ThreadingHTTPServer):
    """Answers each request as ``answer`` says of its body."""

    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []

    @property
    def base(self) -> str:
        """What GROQ_API_BASE has to be."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: GroqServer

    def do_POST(self) -> None:
        """Send the answer in Groq's shape, as the mock makes it."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.paths.append(self.path)
        self.server.keys.append(self.headers["authorization"])
        self.server.requests.append(json.loads(body))
        mock = GroqMock([self.server.answer(self.server.requests[-1])])
        answer = mock.http_client().post(f"https://api.groq.com{self.path}", content=body)
        self.send_response_only(answer.status_code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(answer: Answer) -> Iterator[GroqServer]:
    """Serve until the block ends."""
    server = GroqServer(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def in_turn(turns: Sequence[AIMessage | httpx.Response]) -> Answer:
    """Return a model that gives these answers, and has nothing to say after them."""
    left = iter(turns)
    return lambda _: next(left, AIMessage("All is told."))


def sensible(name: str) -> Answer:
    """Return a model that does what a scenario's script says, as far as it is asked, and tells all of it."""
    by_user: dict[str, Turn] = {turn.user: turn for turn in scenarios()[name].turns}

    def answer(body: dict[str, Any]) -> AIMessage:
        said = body["messages"]
        spoke = max(at for at, each in enumerate(said) if each["role"] == "user")
        turn = by_user.get(said[spoke]["content"])
        if turn is None or "tools" not in body:  # a polish
            return AIMessage(said[spoke]["content"])
        step = sum(each["role"] == "assistant" for each in said[spoke:])
        if step < len(turn.script) and not isinstance(calls := turn.script[step], str):
            named = "last_step" in json.dumps(body["tools"])
            made = [
                {
                    "name": ask.tool,
                    "args": {key: value for key, value in ask.args.items() if named or key != "last_step"},
                    "id": f"call_{len(said)}_{at}",
                }
                for at, ask in enumerate(calls)
            ]
            return AIMessage("", tool_calls=made)
        return AIMessage(" ".join(each["content"] for each in said[spoke:] if each["role"] == "tool"))

    return answer
