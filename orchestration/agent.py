"""The same routing in langchain's ``create_agent``: the one module that imports ``langchain``.

Raises:
    ImportError: langchain is missing or too old; the message says what to install.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final
from weakref import WeakValueDictionary

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from orchestration.asking import (
    STEPS_TO_ASK,
    Asking,
    adrive,
    asking,
    drive,
    not_finished,
    repaired,
    steps_left,
    without_calls,
)
from orchestration.events import Emitter, Sink
from orchestration.guards import Guard
from orchestration.relay import decided, policy_of, polish_request, polished, relay, unstreamed
from orchestration.router import DEFAULT_POLICY, Decision, Route, StopPolicy
from orchestration.tools import prepare, unknown_tool

FLOOR: Final = (1, 4, 2)
"""The oldest langchain on which a stop costs no second model call, whatever the order of hooks."""


def _check() -> None:
    """Say what to install, before an import fails in words that do not."""
    try:
        found = version("langchain")
    except PackageNotFoundError:
        found = "none"
    numbers = tuple(map(int, re.findall(r"\d+", found)[:3]))
    if numbers < FLOOR:
        floor = ".".join(map(str, FLOOR))
        raise ImportError(
            f"build_agent needs langchain {floor} or newer, found {found}: "
            f"pip install -U 'langchain>={floor}'"
        )


_check()

from langchain.agents import create_agent  # noqa: E402 - after the check
from langchain.agents.middleware import (  # noqa: E402
    AgentMiddleware,
    ModelRequest,
    ModelResponse,
    PIIMiddleware,
    hook_config,
)
from langchain.agents.middleware.types import ToolCallRequest  # noqa: E402


class StopOnOutcome(AgentMiddleware[Any, Any]):
    """Ends the run with the tools' own text where ``decide`` says so.

    ``before_model`` with a declared jump to the end is the one hook that stops an ordinary tool with
    exactly one model call on every version; a ``Command`` from ``wrap_tool_call`` does not.
    """

    def __init__(
        self,
        policy: StopPolicy = DEFAULT_POLICY,
        *,
        model: BaseChatModel | None = None,
        tools: Sequence[str] = (),
        guards: Sequence[Guard] = (),
        sinks: Sequence[Sink] = (),
    ) -> None:
        """Take the run's settings.

        Args:
            policy: The run's settings; ``config["configurable"]`` can change them for one run.
            model: Rewords a result in mode ``polish``; without it the text stands as it is.
            tools: Names of the tools there are, told to a model that called another.
            guards: Clean what the model is sent.
            sinks: Where the event of each decision goes.
        """
        super().__init__()
        self.policy, self.model, self.known, self.guards = policy, model, list(tools), tuple(guards)
        self.emit = Emitter(sinks)
        self._seen: WeakValueDictionary[int, ToolMessage] = WeakValueDictionary()

    def _decide(self, state: Any) -> tuple[Decision, StopPolicy]:
        config, messages = get_config(), state["messages"]
        policy = policy_of(config, self.policy)
        decision = decided(messages, policy, voice=self.model is not None)
        # Hooks may jump back to the model: the turn was decided before if the model has spoken since, or if
        # this very answer was looked at.
        newest = next((m for m in reversed(messages) if isinstance(m, (AIMessage, ToolMessage))), None)
        if isinstance(newest, ToolMessage) and self._seen.get(id(newest)) is not newest:
            self._seen[id(newest)] = newest
            self.emit(decision, policy, config)
        return decision, policy

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002 - langchain's
        """Relay the tools' text and end the run, or let the model have its turn."""
        decision, policy = self._decide(state)
        if decision.route is Route.AGENT:
            return _go_on(state)
        message = relay(decision)
        if decision.route is Route.POLISH and self.model is not None:
            with suppress(Exception):  # the voice is a luxury: without it the tools' own text stands
                message = polished(decision, unstreamed(self.model).invoke(polish_request(decision, policy)))
        return {"messages": [message], "jump_to": "end"}

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """Relay the tools' text and end the run, or let the model have its turn."""
        decision, policy = self._decide(state)
        if decision.route is Route.AGENT:
            return _go_on(state)
        message = relay(decision)
        if decision.route is Route.POLISH and self.model is not None:
            with suppress(Exception):  # the voice is a luxury: without it the tools' own text stands
                message = polished(
                    decision, await unstreamed(self.model).ainvoke(polish_request(decision, policy))
                )
        return {"messages": [message], "jump_to": "end"}

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Ask the model as ``asking`` says: once more after an answer that cannot be used."""
        came: list[ModelResponse[Any]] = []

        def call(messages: list[AnyMessage]) -> AIMessage:
            came.append(handler(request.override(messages=messages)))
            return _answer(came[-1])

        return _with(came, drive(self._asking(request), call))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Ask the model as ``asking`` says: once more after an answer that cannot be used."""
        came: list[ModelResponse[Any]] = []

        async def call(messages: list[AnyMessage]) -> AIMessage:
            came.append(await handler(request.override(messages=messages)))
            return _answer(came[-1])

        return _with(came, await adrive(self._asking(request), call))

    def _asking(self, request: ModelRequest[Any]) -> Asking:
        return asking(request.messages, guards=self.guards, steps_left=steps_left(get_config()))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Answer a call of a tool that does not exist; every other call is the tool's own."""
        return handler(request) if request.tool is not None else self._unknown(request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Answer a call of a tool that does not exist; every other call is the tool's own."""
        return await handler(request) if request.tool is not None else self._unknown(request)

    def _unknown(self, request: ToolCallRequest) -> ToolMessage:
        return unknown_tool(request.tool_call, self.known)


def _go_on(state: Any) -> dict[str, Any] | None:
    """Let the model have its turn if a step is left for it, and its history be whole by then."""
    left = steps_left(get_config())
    if left is not None and left < STEPS_TO_ASK:
        return {"messages": [not_finished(state["messages"])], "jump_to": "end"}
    whole = repaired(state["messages"])
    return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *whole]} if whole else None


def _answer(response: ModelResponse[Any]) -> AIMessage:
    return next(message for message in response.result if isinstance(message, AIMessage))


def _with(came: list[ModelResponse[Any]], answer: AIMessage) -> ModelResponse[Any]:
    """Return the last response with the answer in place of the model's own.

    A structured response (``response_format``) beside calls of tools is left out: create_agent would carry
    out the calls and end there, whatever came of them. The tools come first, and the router decides.
    """
    if not came or answer.response_metadata.get("excuse"):
        return ModelResponse(result=[answer])
    rest = [message for message in came[-1].result if not isinstance(message, AIMessage)]
    structured = {message.tool_call_id for message in rest if isinstance(message, ToolMessage)}
    if structured and any(call["id"] not in structured for call in answer.tool_calls):
        return ModelResponse(result=[without_calls(answer, structured)])
    said = came[-1].structured_response
    if said is not None:  # the ledger is to know that the run ends here
        answer = answer.model_copy(
            update={"response_metadata": {**answer.response_metadata, "structured": True}}
        )
    return ModelResponse(result=[answer, *rest], structured_response=said)


def build_agent(
    model: BaseChatModel,
    tools: Sequence[BaseTool | Callable[..., Any]],
    *,
    policy: StopPolicy = DEFAULT_POLICY,
    guards: Sequence[Guard] = (),
    checkpointer: Any = None,
    middleware: Sequence[AgentMiddleware[Any, Any]] = (),
    strict: bool = False,
    sinks: Sequence[Sink] = (),
    **settings: Any,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return a ``create_agent`` graph that makes the same decisions as ``build_graph``.

    Args:
        model: A chat model that can bind tools.
        tools: LangChain tools or functions; ``prepare`` is applied to them here.
        policy: The run's settings; ``config["configurable"]`` can change them for one run.
        guards: Rules of our own.
        checkpointer: What ``create_agent`` takes.
        middleware: More of it. PII middleware runs before the stop, everything else after.
        strict: Raise a tool's exceptions, for tests, in place of answering them.
        sinks: Where the event of each decision goes: ``orchestration.events``.
        **settings: Passed on to ``create_agent`` (``system_prompt``, ``context_schema``, ...).

    Raises:
        ValueError: A tool cannot be prepared, or a middleware cannot be placed safely.
        TypeError: A sink is no plain function.
    """
    if any(isinstance(each, StopOnOutcome) for each in middleware):
        msg = "leave StopOnOutcome out of middleware: build_agent puts it in its place"
        raise ValueError(msg)
    if guards and (own := [each.name for each in middleware if getattr(each, "tools", None)]):
        msg = f"{own[0]} brings tools that no guard would see: give its tools in tools, or leave it out"
        raise ValueError(msg)
    prepared = prepare(tools, guards=guards, policy=policy, strict=strict)
    names = [tool.name for tool in prepared]
    stop = StopOnOutcome(policy, model=model, tools=names, guards=guards, sinks=sinks)
    before = [each for each in middleware if isinstance(each, PIIMiddleware)]
    after = [each for each in middleware if not isinstance(each, PIIMiddleware)]
    return create_agent(
        model, prepared, middleware=[*before, stop, *after], checkpointer=checkpointer, **settings
    )
