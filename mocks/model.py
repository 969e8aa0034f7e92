"""A chat model that reads its answers from a script.

Nothing in here guesses: call number *n* is answered by turn number *n*, and a call too many is a
failure that says so.
"""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from langchain_core.callbacks import (
        AsyncCallbackManagerForLLMRun,
        CallbackManagerForLLMRun,
    )
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool

__all__ = ["OutOfScript", "Script", "ScriptedModel"]

TurnT = TypeVar("TurnT")
RequestT = TypeVar("RequestT")

# How many of the newest messages an OutOfScript names: enough to see which tool sent the run back.
_SHOWN = 4


class OutOfScript(AssertionError):  # noqa: N818 - a failed expectation, said in the test's words
    """The model was asked more often than its script has turns."""


class Script(Generic[TurnT, RequestT]):
    """The turns, the place reached in them, and every request: shared by both model mocks."""

    def __init__(
        self,
        turns: Sequence[TurnT],
        narration: TurnT | None,
        describe: Callable[[RequestT], list[str]],
    ) -> None:
        """Copy the turns, so that a caller who changes the list later does not change the script.

        `describe` names the messages of a request, oldest first, for the text of a failure.
        """
        self._turns = tuple(turns)
        self._narration = narration
        self._describe = describe
        self._lock = threading.Lock()
        self.requests: list[RequestT] = []
        self.refused: AssertionError | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Stay one script: a copied model is another handle on it (and a lock cannot be copied)."""
        return self

    @property
    def left(self) -> int:
        """How many turns nobody has asked for."""
        return max(0, len(self._turns) - len(self.requests))

    def next(self, request: RequestT) -> tuple[int, TurnT]:
        """Record the request, and hand out the number of the call (from 1) and its turn."""
        # One lock around both, so that request n and turn n belong together in threads too.
        with self._lock:
            self.requests.append(request)
            call = len(self.requests)
        if call <= len(self._turns):
            return call, self._turns[call - 1]
        if self._narration is not None:
            return call, self._narration
        raise self.refuse(OutOfScript(self._complaint(call, request)))

    def refuse(self, failure: AssertionError) -> AssertionError:
        """Remember the first failure, for `check`, and return the one given."""
        self.refused = self.refused or failure
        return failure

    def check(self) -> None:
        """Raise what was refused earlier, in case somebody on the way has caught it."""
        if self.refused is not None:
            raise self.refused

    def _complaint(self, call: int, request: RequestT) -> str:
        turns = "1 turn" if len(self._turns) == 1 else f"{len(self._turns)} turns"
        asked = ", ".join(self._describe(request)[-_SHOWN:]) or "nothing"
        return (
            f"The script has {turns}, and this is model call {call}. "
            f"It was asked with (newest last): {asked}. "
            "Either the run should have stopped before this call, or the script lacks a turn: "
            "add one to `turns`, or set `narration` if a call too many may be answered."
        )


class _Request(NamedTuple):
    messages: list[BaseMessage]
    schemas: list[dict[str, Any]]


class ScriptedModel(BaseChatModel):
    """A chat model whose every call answers with the next turn of a script.

    A turn is an `AIMessage`, handed out as a fresh copy, or an exception, which is raised.
    `narration` answers every call after the last turn; without it such a call is `OutOfScript`.

    Models made by `bind_tools`, `bind` or a copy share one script and one record.
    """

    # Private: as fields the turns would be serialised on every call of an agent.
    _script: Script[AIMessage | Exception, _Request] = PrivateAttr()

    def __init__(
        self,
        turns: Sequence[AIMessage | Exception] = (),
        *,
        narration: AIMessage | str | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the script; every other keyword is a field of `BaseChatModel`."""
        super().__init__(**kwargs)
        self._script = Script(
            turns,
            AIMessage(content=narration) if isinstance(narration, str) else narration,
            lambda request: [_described(message) for message in request.messages],
        )

    @property
    def calls(self) -> int:
        """How often the model was asked, a refused call included."""
        return len(self._script.requests)

    @property
    def left(self) -> int:
        """How many turns nobody has asked for."""
        return self._script.left

    @property
    def requests(self) -> list[list[BaseMessage]]:
        """What the model was sent, one list of messages a call."""
        return [request.messages for request in self._script.requests]

    @property
    def tools_bound(self) -> list[tuple[str, ...]]:
        """The names of the tools the model could call, one tuple a call."""
        return [tuple(_name(schema) for schema in schemas) for schemas in self.schemas_bound]

    @property
    def schemas_bound(self) -> list[list[dict[str, Any]]]:
        """The same tools as the model saw them, in the OpenAI format."""
        return [request.schemas for request in self._script.requests]

    def check(self) -> None:
        """Raise the `OutOfScript` of an earlier call, in case somebody on the way has caught it."""
        self._script.check()

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools as a provider does; the calls made with them are recorded here."""
        return self.bind(
            tools=[convert_to_openai_tool(tool) for tool in tools],
            **({} if tool_choice is None else {"tool_choice": tool_choice}),
            **kwargs,
        )

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the base class's signature
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, kwargs))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> ChatResult:
        # The default would take a thread for each call; a script has nothing to wait for.
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, kwargs))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _chunks(self._answer(messages, kwargs)):
            yield ChatGenerationChunk(message=chunk)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in _chunks(self._answer(messages, kwargs)):
            yield ChatGenerationChunk(message=chunk)

    def _answer(self, messages: list[BaseMessage], kwargs: dict[str, Any]) -> AIMessage:
        _, turn = self._script.next(_Request([*messages], [*kwargs.get("tools", ())]))
        if isinstance(turn, Exception):
            raise turn
        # Never the same object twice: add_messages stamps an id on whatever it is given, and a
        # second message with a known id replaces the first.
        return turn.model_copy(deep=True)


def _chunks(turn: AIMessage) -> Iterator[AIMessageChunk]:
    """Cut a turn into the pieces a provider would stream.

    A call with broken arguments streams as it does from a provider: the parts are parsed as far as
    they go, so it may arrive as a valid call.
    """
    if isinstance(turn.content, str):
        for word in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", turn.content):
            yield AIMessageChunk(content=word, id=turn.id)
    else:
        yield AIMessageChunk(content=turn.content, id=turn.id)
    calls = [(call["name"], json.dumps(call["args"]), call["id"]) for call in turn.tool_calls]
    broken = [(call["name"], call["args"], call["id"]) for call in turn.invalid_tool_calls]
    for index, (name, args, call_id) in enumerate([*calls, *broken]):
        half = len(args or "") // 2
        for part in (
            tool_call_chunk(name=name, args=(args or "")[:half], id=call_id, index=index),
            tool_call_chunk(args=(args or "")[half:], index=index),
        ):
            yield AIMessageChunk(content="", tool_call_chunks=[part], id=turn.id)
    yield AIMessageChunk(
        content="",
        id=turn.id,
        additional_kwargs=turn.additional_kwargs,
        response_metadata=turn.response_metadata,
        usage_metadata=turn.usage_metadata,
    )


def _described(message: BaseMessage) -> str:
    names = [call["name"] for call in message.tool_calls] if isinstance(message, AIMessage) else []
    if message.name:
        names = [message.name, *names]
    elif isinstance(message, HumanMessage) and isinstance(message.content, str):
        names = [repr(message.content[:40])]
    return f"{type(message).__name__}({', '.join(names)})"


def _name(schema: dict[str, Any]) -> str:
    return str(schema.get("function", schema).get("name", ""))
