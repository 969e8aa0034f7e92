"""One call of the model, sans I/O: what it is sent, and what becomes of a bad answer.

``asking`` yields what to send, is sent back the answer or the exception, and returns the message that goes
into the history. Both runtimes drive it, sync and async: a provider's limits, garbled calls and empty
answers end alike everywhere, and never lose what the run's tools have done.
"""

from collections.abc import Awaitable, Callable, Container, Generator, Mapping, Sequence
from logging import WARNING
from typing import Any, Final, TypeAlias

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from pydantic import ValidationError

from orchestration.guards import Guard
from orchestration.log import log
from orchestration.outcomes import NO_TEXT, Outcome, text_of
from orchestration.reasons import Effect, Reason
from orchestration.router import joined, results, turns
from orchestration.tools import UNREADABLE, answer_with, cleaned_content

ASK_AGAIN: Final = (
    "Your last answer was empty, or its tool call could not be read. Answer the user, or call a tool with "
    "arguments that are valid JSON."
)
NO_ANSWER: Final = "I could not find an answer. Please say it in other words."
NOT_FINISHED: Final = "I could not finish this within the allowed number of steps."
TOO_LONG: Final = "This conversation has become too long to go on with. Please start a new one."
CANNOT_GO_ON: Final = "I cannot go on at the moment."
INTERRUPTED: Final = "This step was interrupted: it is not confirmed whether it was carried out."

LONGEST_RESULT: Final = 16_000
"""Characters of a tool's result that the model is sent; the user gets the whole."""

SHORT_RESULT: Final = 1_000
"""The same, once the provider found the request too large."""

STEPS_TO_ANSWER: Final = 3
"""Supersteps left after which calls can still be carried out, and the run be ended in the step after.

A run ends in a step of its own, in which nothing runs: with two left, the last one would end in an error.
"""

STEPS_TO_ASK: Final = 2
"""The same, where a model may still be asked in the next step."""

Asking: TypeAlias = "Generator[list[AnyMessage], AIMessage | Exception, AIMessage]"


def asking(
    messages: Sequence[AnyMessage], *, guards: Sequence[Guard] = (), steps_left: int | None = None
) -> Asking:
    """Ask the model once, and once more if its answer cannot be used.

    Args:
        messages: The history, oldest first.
        guards: Clean what the model is sent.
        steps_left: Supersteps that the run may take after this one; None if nobody counts. Calls that
            could not be carried out and answered within them are not made.

    Returns:
        The model's answer, every call of it answerable; or a text that says why there is none.

    Raises:
        Exception: The provider refused, and this run has no result to tell the user instead.
    """
    limit, note = LONGEST_RESULT, ""
    failure: Exception | None = None
    unused: list[Any] = []
    for _ in range(2):
        came = yield [*sent(messages, guards, limit), *([HumanMessage(note)] if note else [])]
        if isinstance(came, AIMessage):
            answer = settle(came)
            if answer.tool_calls and steps_left is not None and steps_left < STEPS_TO_ANSWER:
                return not_finished(messages, [*unused, came.usage_metadata])
            if answer.tool_calls or text_of(answer.content) != NO_TEXT:
                return _beside(answer, unused)
            failure, note = None, ASK_AGAIN
            unused.append(came.usage_metadata)
        else:
            failure = came
            unused.append(None)  # nobody says what it has cost
            if too_large(came):
                limit = SHORT_RESULT
            elif garbled(came):
                note = ASK_AGAIN
            else:
                break
    if failure is None or garbled(failure):
        return _excuse(messages, NO_ANSWER, unused)
    if too_large(failure):
        return _excuse(messages, TOO_LONG, unused)
    if not results(turns(messages)):
        raise failure
    log(WARNING, "the model gave no answer (%s): the run ends with its results", type(failure).__name__)
    return _excuse(messages, f"{CANNOT_GO_ON}{_wait(failure)}", unused)


def drive(steps: Asking, call: Callable[[list[AnyMessage]], AIMessage]) -> AIMessage:
    """Drive ``asking`` over a sync model."""
    messages = next(steps)
    while True:
        came: AIMessage | Exception
        try:
            came = call(messages)
        except (GraphBubbleUp, AssertionError):
            raise  # an interrupt, or a test's own failure: neither is the provider's answer
        except Exception as error:  # asking raises it again, or knows better
            came = error
        try:
            messages = steps.send(came)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what an Asking returns


async def adrive(steps: Asking, call: Callable[[list[AnyMessage]], Awaitable[AIMessage]]) -> AIMessage:
    """Drive ``asking`` over an async model."""
    messages = next(steps)
    while True:
        came: AIMessage | Exception
        try:
            came = await call(messages)
        except (GraphBubbleUp, AssertionError):
            raise  # an interrupt, or a test's own failure: neither is the provider's answer
        except Exception as error:  # asking raises it again, or knows better
            came = error
        try:
            messages = steps.send(came)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what an Asking returns


def steps_left(config: Mapping[str, Any]) -> int | None:
    """Return how many supersteps a run may still take; None where the runtime does not say.

    ``RemainingSteps`` would say it in our own graph, but no middleware may ask for it: both read the
    scratchpad that it reads.
    """
    scratchpad = (config.get("configurable") or {}).get("__pregel_scratchpad")
    step, stop = getattr(scratchpad, "step", None), getattr(scratchpad, "stop", None)
    return stop - step if isinstance(step, int) and isinstance(stop, int) else None


def sent(messages: Sequence[AnyMessage], guards: Sequence[Guard], limit: int) -> list[AnyMessage]:
    """Return the history as the model is sent it: cleaned by the guards, long results cut with a note."""
    return [_sent(message, guards, limit) for message in messages]


def _sent(message: AnyMessage, guards: Sequence[Guard], limit: int) -> AnyMessage:
    content: Any = message.content
    if guards and content:
        content = cleaned_content(content, guards)
    if message.type == "tool":
        content = _cut(content, limit)
    return message if content is message.content else message.model_copy(update={"content": content})


def _cut(content: Any, limit: int) -> Any:
    """Return a tool's result as the model is sent it: a long text ends in a note."""
    if isinstance(content, list):
        return [
            {**part, "text": _cut(part["text"], limit)}
            if isinstance(part, dict) and isinstance(part.get("text"), str)
            else part
            for part in content
        ]
    if len(content) <= limit:
        return content
    return (
        f"{content[:limit]}\n[{len(content) - limit} characters are left out here; the user gets the whole.]"
    )


def garbled(error: Exception) -> bool:
    """Whether the provider could not read the model's own tool call (Groq: 400 ``tool_use_failed``).

    Source: https://console.groq.com/docs/tool-use
    """
    body = getattr(error, "body", None)
    found = body.get("error", body) if isinstance(body, dict) else None
    # ChatGroq puts arguments that are JSON, but no object, into an AIMessage, which refuses them.
    return isinstance(error, ValidationError) or (
        isinstance(found, dict) and found.get("code") == "tool_use_failed"
    )


def too_large(error: Exception) -> bool:
    """Whether the provider found the request too large."""
    return getattr(error, "status_code", None) == 413  # noqa: PLR2004 - HTTP's own number


def _wait(error: Exception) -> str:
    """Say how long the provider asks callers to wait, if it does. Nothing here waits for it."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    said = headers.get("retry-after") if isinstance(headers, Mapping) else None
    return f" The wait is about {said} seconds." if isinstance(said, str) and said.isdecimal() else ""


def settle(message: AIMessage) -> AIMessage:
    """Return what a model said as a turn in which every call can be answered exactly once.

    Calls that it garbled (``invalid_tool_calls``) become calls that ``prepare``'s wrapper answers
    without running anything; missing and repeated ids are replaced, since no provider accepts a
    history that holds them.
    """
    garbled_calls = [
        {
            "type": "tool_call",
            "name": call.get("name") or "",
            "id": call.get("id"),
            "args": {UNREADABLE: True},
        }
        for call in message.invalid_tool_calls
    ]
    calls: list[Any] = [*message.tool_calls, *garbled_calls]
    ids = [call["id"] for call in calls]
    if not garbled_calls and all(ids) and len(set(ids)) == len(ids):
        return message
    seen: set[str] = set()
    for at, call in enumerate(calls):
        name = call["id"] or f"call_{at + 1}"
        while name in seen:
            name = f"{name}_{at + 1}"
        seen.add(name)
        calls[at] = {**call, "id": name}
    # Providers that keep the calls in additional_kwargs send those again: they would differ.
    extra = {name: value for name, value in message.additional_kwargs.items() if name != "tool_calls"}
    return message.model_copy(
        update={"tool_calls": calls, "invalid_tool_calls": [], "additional_kwargs": extra}
    )


def without_calls(message: AIMessage, ids: Container[str | None]) -> AIMessage:
    """Return a message without some of its calls, wherever it keeps them."""
    content: Any = message.content
    if isinstance(content, list):
        content = [part for part in content if not (isinstance(part, dict) and part.get("id") in ids)]
    calls = [call for call in message.tool_calls if call["id"] not in ids]
    extra = {name: value for name, value in message.additional_kwargs.items() if name != "tool_calls"}
    return message.model_copy(update={"content": content, "tool_calls": calls, "additional_kwargs": extra})


def repaired(messages: Sequence[AnyMessage]) -> list[AnyMessage] | None:
    """Return the history with every call answered; None if it is whole.

    A run that was killed or cancelled between its calls and their answers leaves a history that no
    provider takes. What became of those calls is not known, and that is what their answer says. Every
    turn is looked at, since a run can be killed before it has saved the repair of the one before it.
    """
    found: dict[int, list[AnyMessage]] = {}
    answered: set[str] = set()
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage) and message.tool_calls:
            missing = [call for call in message.tool_calls if call["id"] not in answered]
            if missing:
                found[at] = [answer_with(_INTERRUPTED, call["name"], call["id"] or "") for call in missing]
            answered = set()  # some models give their calls the same ids in every turn
    if not found:
        return None
    whole: list[AnyMessage] = []
    pending: list[AnyMessage] = []
    for at, message in enumerate(messages):
        if message.type != "tool":
            whole += pending
            pending = []
        whole.append(message)
        pending += found.get(at, [])
    return whole + pending


_INTERRUPTED: Final = Outcome(INTERRUPTED, Reason.TRANSIENT, "tool/interrupted", Effect.UNKNOWN)


def not_finished(messages: Sequence[AnyMessage], unused: Sequence[Any] = ()) -> AIMessage:
    """Return the text of a run that has no step left: what it has done, and that it goes no further."""
    return _excuse(messages, NOT_FINISHED, unused)


def _excuse(messages: Sequence[AnyMessage], said: str, unused: Sequence[Any]) -> AIMessage:
    """Return a text in place of an answer: what the run has done, and that it goes no further."""
    texts = {**results(turns(messages)), said: False}
    form = "html" if any(texts.values()) else "text"
    return _beside(AIMessage(joined(texts), response_metadata={"excuse": True, "format": form}), unused)


def _beside(message: AIMessage, unused: Sequence[Any]) -> AIMessage:
    """Note beside a message what the answers have cost that were not used: the ledger counts them."""
    if not unused:
        return message
    counted = [
        usage and {name: usage[name] for name in ("input_tokens", "output_tokens")} for usage in unused
    ]
    return message.model_copy(
        update={"response_metadata": {**message.response_metadata, "unused_answers": counted}}
    )
