"""How an outcome travels where no ``ToolMessage`` carries an artifact.

MCP has a side channel: ``_meta`` of a tool's result, under ``KEY``. Where there is none (plain function
calling, a queue, HTTP), a tool answers with an envelope, and whoever runs the loop parts it before the model
sees it::

    {"content": "The card was declined.", "outcome": {"schema": 1, "stop": true, "reason": "fatal"}}

Standard library only: copy it.
"""

from collections.abc import Mapping
from typing import Any, Final

from orchestration.outcomes import Outcome, text_of

KEY: Final = "short-circuit/outcome"
"""Where ``_meta`` of an MCP result holds the artifact."""

DECLARED: Final = "short-circuit/declared"
"""Where ``_meta`` of an MCP tool holds what it declares of itself: ``free_text``, ``amount``."""


def envelope(content: object, artifact: object) -> dict[str, Any]:
    """Return what a tool answers with where nothing else carries the artifact."""
    return {"content": text_of(content), "outcome": artifact}


def as_message(call_id: str, given: object) -> dict[str, Any]:
    """Return an envelope as the message that ``orchestration.decide`` reads.

    The model is sent ``content`` alone. What is no envelope has no artifact: the run goes on, and the user
    never reads its text.
    """
    parts = given if isinstance(given, Mapping) else {"content": given if isinstance(given, str) else ""}
    content, artifact = text_of(parts.get("content")), parts.get("outcome")
    outcome = Outcome.from_tool_result(content, artifact)
    status = "error" if outcome is None or outcome.failed else "success"
    return {
        "type": "tool",
        "tool_call_id": call_id,
        "content": content,
        "artifact": artifact,
        "status": status,
    }
