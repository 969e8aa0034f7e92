"""The forced-outcome harness: every tool, every reason, both runtimes. Copy this one first.

It proves of a tool what the router relies on: which nodes run, how often the model is asked, and that the
user reads the tool's own text. The golden transcripts lie in ``golden/forced``.
"""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from domains import DOMAINS
from domains.runner import RUNTIMES, Runtime, build, vendor
from mocks.model import ScriptedModel
from orchestration.reasons import Reason
from orchestration.router import DEFAULT_POLICY

NARRATION = "Let me tell you about it."


def run(domain: str, reason: Reason, runtime: Runtime) -> tuple[ScriptedModel, list[AnyMessage]]:
    """Make the domain's sample call end with the reason, and return the model and the history."""
    settings, forced = DOMAINS[domain].forced[reason]
    fake = vendor(domain, settings, forced)
    ask = DOMAINS[domain].sample
    call = AIMessage("", tool_calls=[{"name": ask.tool, "args": dict(ask.args), "id": "call_1"}])
    model = ScriptedModel(turns=[call], narration=NARRATION)
    agent = build(runtime, model, DOMAINS[domain].tools(client=fake.client()), DEFAULT_POLICY)
    history: list[AnyMessage] = agent.invoke({"messages": [("user", "Please do it.")]})["messages"]
    assert [] == fake.unmatched
    return model, history


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("domain", DOMAINS)
def test_forced(domain: str, reason: Reason, runtime: Runtime) -> None:
    """A stop asks the model once and ends in the tool's text; a transient outcome asks it again."""
    model, history = run(domain, reason, runtime)
    tool, last = history[2], history[3]
    assert isinstance(tool, ToolMessage)
    assert reason.value == tool.artifact["reason"]
    assert (reason is not Reason.TRANSIENT) == tool.artifact["stop"]
    assert ("error" if reason in {Reason.TRANSIENT, Reason.FATAL} else "success") == tool.status
    if reason is Reason.TRANSIENT:
        assert (2, NARRATION) == (model.calls, last.content)
    else:
        assert (1, tool.content) == (model.calls, last.content)
        assert reason.value == last.response_metadata["stopped_by"]
        assert f"final-{history[1].id}" == last.id
    assert 4 == len(history)


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("domain", DOMAINS)
def test_transcript(domain: str, reason: Reason, golden: Callable[[str, dict[str, Any]], None]) -> None:
    """The transcript is the golden one, on every runtime."""
    for runtime in RUNTIMES:
        golden(f"forced/{domain}-{reason}", {"messages": _transcript(run(domain, reason, runtime)[1])})


def _transcript(history: list[AnyMessage]) -> list[dict[str, Any]]:
    """Return a history as plain data, without ids."""
    return [_plain(message) for message in history]


def _plain(message: AnyMessage) -> dict[str, Any]:
    row: dict[str, Any] = {"type": message.type, "content": message.content}
    if isinstance(message, AIMessage) and message.tool_calls:
        row["calls"] = [{"tool": call["name"], "args": call["args"]} for call in message.tool_calls]
    if isinstance(message, ToolMessage):
        evidence = {k: v for k, v in message.artifact["evidence"].items() if k != "request_id"}
        row |= {"status": message.status, "artifact": message.artifact | {"evidence": evidence}}
    if stopped_by := message.response_metadata.get("stopped_by"):
        row["stopped_by"] = stopped_by
    return row


def test_no_tool_is_return_direct() -> None:
    """A static flag cannot say what an outcome says: no tool of ours carries one."""
    for domain in DOMAINS.values():
        fake = vendor(domain.name)
        assert [False] == [tool.return_direct for tool in domain.tools(client=fake.client())]
