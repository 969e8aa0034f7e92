"""Both runtimes, run in any way, and the tool and the messages that most of their tests need."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from orchestration import Effect, Outcome, Reason

NO_LANGCHAIN = "langchain is not installed here: there is no create_agent to test"
needs_langchain = pytest.mark.skipif(find_spec("langchain") is None, reason=NO_LANGCHAIN)

SECRET = "4242 4242"  # noqa: S105 - planted, to be looked for
CARD = re.compile(r"\d{4} \d{4}")

PAID = Outcome("Paid 1999 for cart 7.", Reason.COMPLETED, "pay/ok", Effect.APPLIED, key="k")
BUSY = Outcome("Busy, nothing was charged.", Reason.TRANSIENT, "pay/busy")
DECLINED = Outcome("The card was declined.", Reason.FATAL, "pay/declined")
BLOCKED = Outcome("This payment is not possible.", Reason.POLICY_BLOCK, "pay/risk")
REASONS = {outcome.reason.value: outcome for outcome in (PAID, BUSY, DECLINED, BLOCKED)}

Args = dict[str, Any]
Build = Callable[..., Any]


@dataclass
class Runtime:
    """One of the two ways to build a run, and one of the four to run it."""

    name: str
    build: Build
    way: str = "invoke"

    def __call__(self, app: Any, given: Any = "Pay.", **configurable: Any) -> list[AnyMessage]:
        """Run, and return the messages at the end."""
        return drive(self.way, app, given, configurable)


def drive(way: str, app: Any, given: Any, configurable: Args) -> list[AnyMessage]:
    """Run in one of the four ways, and return the messages at the end."""
    state = {"messages": [("user", given)]} if isinstance(given, str) else given
    config: Any = {"configurable": configurable}

    async def last() -> Any:
        return [each async for each in app.astream(state, config, stream_mode="values")][-1]

    if way == "invoke":
        ended = app.invoke(state, config)
    elif way == "ainvoke":
        ended = asyncio.run(app.ainvoke(state, config))
    elif way == "stream":
        *_, ended = app.stream(state, config, stream_mode="values")
    else:
        ended = asyncio.run(last())
    messages: list[AnyMessage] = ended["messages"]
    return messages


def agent_build() -> Build:
    """Return ``build_agent``, or skip where it cannot be."""
    if find_spec("langchain") is None:
        pytest.skip(NO_LANGCHAIN)
    from orchestration.agent import build_agent

    return build_agent


@dataclass
class Till:
    """A tool that answers from a list, and remembers what it was asked."""

    outcomes: Sequence[Outcome | Exception | tuple[Any, Any]]
    """The last one is given again and again; a pair is a content and an artifact of a stranger's."""

    name: str = "pay"
    asked: list[Args] = field(default_factory=list)

    @property
    def tool(self) -> BaseTool:
        """The tool."""

        def pay(cart: str = "a", amount: int = 5, note: str = "") -> tuple[str, Any]:
            """Pay for a cart."""
            self.asked.append({"cart": cart, "amount": amount, "note": note})
            outcome = self.outcomes[min(len(self.asked), len(self.outcomes)) - 1]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome.as_tool_result() if isinstance(outcome, Outcome) else outcome

        declared = {"amount": "amount", "free_text": ["note"]}
        return StructuredTool.from_function(
            pay, name=self.name, response_format="content_and_artifact", metadata=declared
        )


def call(name: str = "pay", call_id: str | None = "c0", **args: Any) -> Any:
    """Return a call."""
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def turn(*calls: Any, message_id: str | None = None, **fields: Any) -> AIMessage:
    """Return a turn with these calls."""
    return AIMessage("", tool_calls=list(calls), id=message_id, **fields)


def garbled(name: str = "pay", call_id: str | None = "g0", args: str | None = "{") -> Any:
    """Return a call whose arguments are no JSON."""
    return {"name": name, "args": args, "id": call_id, "error": None, "type": "invalid_tool_call"}


def assert_valid(messages: Sequence[AnyMessage]) -> None:
    """Assert that every call is answered once, directly after its turn and in call order (O3)."""
    due: list[str | None] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert due, f"nobody asked for {message!r}"
            assert due.pop(0) == message.tool_call_id
            continue
        assert [] == due, f"{due} are not answered before {message!r}"
        if isinstance(message, AIMessage):
            assert [] == message.invalid_tool_calls
            due = [each["id"] for each in message.tool_calls]
            assert len(due) == len(set(due))
            assert all(due)
    assert isinstance(messages[-1], AIMessage)
    assert messages[-1].content


def rule_of(message: AnyMessage) -> str | None:
    """Return the rule that stopped the run, None if the model had the last word."""
    rule: str | None = message.response_metadata.get("stopped_by")
    return rule


def endless(*calls: Any) -> list[AIMessage]:
    """Return 30 turns, each with these calls."""
    return [turn(*({**each, "id": f"{each['id']}-{at}"} for each in calls)) for at in range(30)]


def walk(way: str, app: Any, given: Any = "Pay.", **config: Any) -> tuple[list[str], list[AnyMessage]]:
    """Run, sync if ``way`` says ``invoke``, and return the nodes that ran and the messages at the end."""
    state = {"messages": [("user", given)]} if isinstance(given, str) else given
    modes = ["updates", "values"]

    async def every() -> list[Any]:
        return [each async for each in app.astream(state, config, stream_mode=modes)]

    seen = list(app.stream(state, config, stream_mode=modes)) if way == "invoke" else asyncio.run(every())
    path: list[str] = []
    for name, update in (item for mode, part in seen if mode == "updates" for item in part.items()):
        node = _node(name, update)
        # Parallel calls of create_agent are one update each: a turn of tools is one step.
        if node is not None and not (node == "tools" == "".join(path[-1:])):
            path.append(node)
    messages: list[AnyMessage] = [part for mode, part in seen if mode == "values"][-1]["messages"]
    return path, messages


def _node(name: str, update: Any) -> str | None:
    """Return a node's name in the vocabulary of both runtimes; None for one that is not in it."""
    if name == "StopOnOutcome.before_model":
        said = (update or {}).get("messages") or [None]
        return None if said[-1] is None else said[-1].response_metadata.get("route")
    return {"model": "agent"}.get(name, name if name in {"agent", "tools", "finalize", "polish"} else None)
