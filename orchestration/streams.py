"""What a user reads of a stream, in whatever mode and runtime, and a stream without what nobody should read.

``user_text`` gives the answer of a run exactly once: the relayed text of a stop, or the model's last text.
In mode ``messages`` the model's text comes in pieces, as its provider sends them; words that it says before
a call come along there, since no piece can know that a call follows.

Messages are read by their attributes, or as the dicts that a server made of them: no framework is imported.
"""

from copy import copy
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from orchestration.outcomes import NO_TEXT, printable, text_of
from orchestration.router import field_of, kind_of

MODES: Final = frozenset({"values", "updates", "messages", "custom", "tasks", "checkpoints", "debug"})
"""LangGraph's names."""

SPEAKERS: Final = frozenset({"agent", "model"})
"""The nodes whose model speaks to the user; what a hook or a tool asks a model is no answer."""

_TOOLS: Final = "tools"
_NEITHER_STATE_NOR_UPDATE: Final = (
    {"payload", "step", "timestamp"},  # debug
    {"config", "metadata", "values"},  # checkpoints
    {"id", "name", "triggers"},  # tasks: one starts
    {"id", "name", "interrupts"},  # tasks: one ended
)
"""Keys of payloads that hold messages which another chunk brings."""


def user_text(chunk: Any, seen: dict[str, str] | None = None) -> str | None:
    """Return the text for the user that is new in a chunk; None if there is none.

    Args:
        chunk: What ``stream``, ``astream`` or ``astream_events`` (v2) yields: in one mode or in several,
            with subgraphs or as typed parts.
        seen: A dict that the caller keeps between chunks, empty at first. With it a text is returned once,
            however often it is shown: by several modes, or by a state that a hook changed after it.
    """
    mode, payload, nested = _parted(chunk)
    message = None
    if mode == "messages":
        message = _spoken(*payload)
    elif mode in {"values", "updates"} and isinstance(payload, dict) and not nested:
        # Of subgraphs nothing: what they said stands in their parent's own state.
        message = _last(payload) if mode == "values" else _last_updated(payload)
    text = _text(message)
    if text is None or seen is None:
        return text
    name = str(field_of(message, "id"))
    if name in seen and not mode == seen[name] == "messages":  # where further pieces come under one id
        return None
    seen[name] = mode
    return text


def without_artifacts(chunk: Any) -> Any:
    """Return a chunk of any form without the artifacts of its messages: a browser is no router.

    Nothing that is given is changed.
    """
    if getattr(chunk, "artifact", None) is not None and hasattr(chunk, "model_copy"):
        return chunk.model_copy(update={"artifact": None})
    if isinstance(chunk, dict):
        bare = {name: without_artifacts(part) for name, part in chunk.items()}
        return bare | {"artifact": None} if "artifact" in bare and "tool_call_id" in bare else bare
    if isinstance(chunk, (list, tuple)):
        parts = map(without_artifacts, chunk)
        return chunk._make(parts) if hasattr(chunk, "_make") else type(chunk)(parts)
    if is_dataclass(chunk) and not isinstance(chunk, type):  # a Command
        held = {each.name: getattr(chunk, each.name) for each in fields(chunk) if each.init}
        return replace(chunk, **{name: without_artifacts(part) for name, part in held.items()})
    if type(chunk).__name__ == "Send":
        sent: Any = copy(chunk)
        sent.arg = without_artifacts(sent.arg)
        return sent
    return chunk


def _parted(chunk: Any) -> tuple[str, Any, bool]:  # noqa: PLR0911 - one line a form
    """Return a chunk's mode, its payload, and whether it comes from a subgraph."""
    if isinstance(chunk, dict):
        if "event" in chunk and "data" in chunk:
            root = chunk["event"] == "on_chain_stream" and not chunk.get("parent_ids")
            return _parted(chunk["data"].get("chunk")) if root else ("", None, False)
        if {"type", "ns", "data"} <= chunk.keys():
            return chunk["type"], chunk["data"], bool(chunk["ns"])
        if any(keys <= chunk.keys() for keys in _NEITHER_STATE_NOR_UPDATE):
            return "", None, False
        return "values" if isinstance(chunk.get("messages"), list) else "updates", chunk, False
    if not isinstance(chunk, (tuple, list)) or len(chunk) not in {2, 3}:
        return "custom", chunk, False
    first, *rest = chunk
    if isinstance(first, str) and first in MODES:
        return first, rest[0], False
    if isinstance(first, (tuple, list)):
        mode, payload, _ = _parted(rest[0] if len(rest) == 1 else rest)
        return mode, payload, bool(first)
    return ("messages", chunk, False) if isinstance(rest[0], dict) else ("custom", chunk, False)


def _spoken(message: Any, metadata: Any) -> Any:
    """Return a message of mode ``messages``; None if it was not said to the user."""
    node = metadata.get("langgraph_node")
    path = str(metadata.get("langgraph_checkpoint_ns", "")).split("|")
    by_a_tool = node == _TOOLS or any(part.partition(":")[0] == _TOOLS for part in path)
    of_a_model = "ls_model_type" in metadata  # in place of a node that returned the message
    return None if by_a_tool or (of_a_model and node not in SPEAKERS) else message


def _last(state: dict[str, Any]) -> Any:
    messages = state.get("messages")
    return messages[-1] if isinstance(messages, list) and messages else None


def _last_updated(updates: dict[str, Any]) -> Any:
    """Return the message that a node put at the history's end. Before it may stand a repaired history."""
    for node, update in updates.items():
        parts = update if isinstance(update, list) else [update]
        found = [_last(part) for part in parts if isinstance(part, dict)]
        if node != _TOOLS and found and found[-1] is not None:
            return found[-1]
    return None


def _text(message: Any) -> str | None:
    if message is None or kind_of(message) != "ai":
        return None
    if any(field_of(message, name) for name in ("tool_calls", "tool_call_chunks", "invalid_tool_calls")):
        return None
    content = field_of(message, "content")
    if field_of(message, "type") == "AIMessageChunk":  # a piece: its spaces count, and it may be empty
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        return printable("".join(text for text in texts if isinstance(text, str))) or None
    text = text_of(content)
    return None if text == NO_TEXT else text
