"""One value for how a tool call ended, and its way through a ``ToolMessage`` and back.

The two audiences part in ``Outcome.as_tool_result``: content goes to people and models, the artifact
to the router. The artifact is plain JSON, since nothing else survives every checkpointer.

Standard library only: this module is part of the copy set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import isfinite
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from orchestration.reasons import Effect, Reason

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
Format: TypeAlias = Literal["text", "html"]

SCHEMA: Final = 1
"""The artifact's version. A reader takes an absent one for this one, and no other."""

LARGEST_INT: Final = 2**63 - 1
"""The largest whole number that every checkpoint can hold."""

DEEPEST: Final = 16
"""Levels of nesting that evidence may have."""

NOT_CARRIED_OUT: Final = "This step could not be carried out."
"""What the user reads in place of a text that nothing vouches for."""

UNKNOWN_TOOL: Final = "tool/unknown"
"""The row that answers a call of a tool that does not exist: its name is the model's invention."""

NO_TEXT: Final = "The step ended without a text."
"""What stands in for an empty result: an empty string is never an answer."""


M = TypeVar("M")
D = TypeVar("D")
_REASONS: Final = {member.value: member for member in Reason}
_EFFECTS: Final = {member.value: member for member in Effect}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one tool call ended.

    Raises:
        ValueError: ``pending`` on anything but a completed outcome.
    """

    content: str
    """For people and models. Never a reason word, a flag or a vendor's own prose."""

    reason: Reason
    """What the router acts on."""

    rule: str = ""
    """The row that said so, as ``<domain>/<id>``, for people who ask why."""

    effect: Effect = Effect.NONE
    """What is proven about ``key``."""

    retry_after_s: int | None = None
    """Whole seconds the vendor asks callers to wait, rounded up; None if it did not say."""

    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Facts for logs and reports: ``status``, ``request_id``, tool facts. JSON values."""

    domain: str = field(default="", kw_only=True)
    """Whose table decided."""

    key: str | None = field(default=None, kw_only=True)
    """Opaque hash of what the call is about (a cart, a ticket's marker); None for reads."""

    vendor_code: str | None = field(default=None, kw_only=True)
    """The vendor's own word for it, for logs alone."""

    format: Format = field(default="text", kw_only=True)
    """How ``content`` is to be shown to a person."""

    pending: bool = field(default=False, kw_only=True)
    """Completed, but no answer yet: a poller at 40 %. The run goes on."""

    def __post_init__(self) -> None:
        if self.pending and self.reason is not Reason.COMPLETED:
            msg = f"only a completed outcome can be pending, this one is {self.reason.value}"
            raise ValueError(msg)

    @property
    def stop(self) -> bool:
        """Whether this outcome, taken alone, ends the run."""
        return self.reason is not Reason.TRANSIENT and not self.pending

    @property
    def failed(self) -> bool:
        """Whether ``ToolMessage.status`` is ``error``: a refusal by rule is an answer, not one."""
        return self.reason in {Reason.TRANSIENT, Reason.FATAL}

    def as_tool_result(self) -> tuple[str, dict[str, JSON]]:
        """Return ``(content, artifact)``, as a tool with ``content_and_artifact`` returns it."""
        return text_of(self.content), {
            "schema": SCHEMA,
            "stop": self.stop,
            "reason": self.reason.value,
            "domain": printable(self.domain),
            "rule": printable(self.rule),
            "key": None if self.key is None else printable(self.key),
            "effect": self.effect.value,
            "retry_after_s": self.retry_after_s,
            "vendor_code": None if self.vendor_code is None else printable(self.vendor_code),
            "format": self.format,
            "evidence": cast("dict[str, JSON]", plain(self.evidence)),
        }

    @classmethod
    def from_tool_result(cls, content: object, artifact: object, *, failed: bool = False) -> "Outcome | None":
        """Read ``(content, artifact)`` back; None if the artifact is unusable.

        Args:
            content: A ``ToolMessage.content``: a string, or a list of content blocks.
            artifact: Whatever stands in ``ToolMessage.artifact``, ours or a stranger's.
            failed: Whether ``ToolMessage.status`` is ``error``.

        Returns:
            The outcome, or None if nothing vouches for the text: no mapping, a version other than
            1, a ``stop`` that is no boolean, an unknown reason, a pair that contradicts itself, or
            a completed call on a failed message.
        """
        if not isinstance(artifact, dict):
            return None
        schema, stop = artifact.get("schema", SCHEMA), artifact.get("stop")
        if type(schema) is not int or schema != SCHEMA or not isinstance(stop, bool):
            return None
        # The older contract had no reason: {"stop": true} ended the run, whatever had happened.
        older = Reason.FATAL if stop else Reason.TRANSIENT
        reason = _member(_REASONS, artifact.get("reason", older), None)
        if reason is None or (reason is Reason.COMPLETED and failed):
            return None
        if reason is Reason.TRANSIENT if stop else reason in {Reason.FATAL, Reason.POLICY_BLOCK}:
            return None
        wait, evidence = artifact.get("retry_after_s"), artifact.get("evidence")
        return cls(
            content=text_of(content),
            reason=reason,
            rule=_string(artifact.get("rule")) or "",
            # A word we do not know proves nothing.
            effect=_member(_EFFECTS, artifact.get("effect", Effect.NONE), Effect.UNKNOWN),
            retry_after_s=wait if type(wait) is int and wait >= 0 else None,
            evidence=dict(evidence) if isinstance(evidence, dict) else {},
            domain=_string(artifact.get("domain")) or "",
            key=_string(artifact.get("key")),
            vendor_code=_string(artifact.get("vendor_code")),
            format="html" if artifact.get("format") == "html" else "text",
            pending=reason is Reason.COMPLETED and not stop,
        )


def text_of(content: object) -> str:
    """Return the text of a message's content: a string, or the text parts of a block list.

    Binary parts (images, audio, files) are left out: their base64 is no text. An empty result gets
    a sentence.
    """
    if isinstance(content, str):
        text = content
    elif isinstance(content, Sequence) and not isinstance(content, (bytes, bytearray)):
        text = "\n".join(part for part in map(_part, content) if part)
    else:
        text = ""
    text = printable(text)
    return text if text.strip() else NO_TEXT


def _part(block: object) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping) and block.get("type") == "text":
        return _string(block.get("text")) or ""
    return ""


def printable(text: str) -> str:
    """Remove what breaks saving or sending (NUL, lone surrogates); keep every other code point."""
    if text.isascii():
        return text.replace("\x00", "") if "\x00" in text else text
    return text.replace("\x00", "").encode("utf-8", "ignore").decode("utf-8")


def plain(value: object, depth: int = DEEPEST) -> JSON:  # noqa: PLR0911 - one line a type
    """Return ``value`` as plain JSON; what JSON, or a checkpoint, cannot hold is named or written out.

    An unserialisable object in an artifact crashes the save *after* the side effect, so this never
    raises: a lost detail is cheaper than a lost receipt.
    """
    value = value.value if isinstance(value, Enum) else value
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, int) and value is not True and value is not False:
        return value if -LARGEST_INT - 1 <= value <= LARGEST_INT else f"{value:.6e}"
    if value is None or isinstance(value, bool):
        return value
    if depth and isinstance(value, Mapping):
        return {_name(name): plain(item, depth - 1) for name, item in value.items()}
    if depth and isinstance(value, (list, tuple)):
        return [plain(item, depth - 1) for item in value]
    return f"<{type(value).__name__}>"


def _name(name: object) -> str:
    return printable(str(name)) if isinstance(name, (str, int, float)) else f"<{type(name).__name__}>"


def _member(members: Mapping[str, M], value: object, default: D) -> M | D:
    """Return the member that ``value`` names; a checkpoint may have made a string of it."""
    name = value.value if isinstance(value, Enum) else value
    return members.get(name, default) if isinstance(name, str) else default


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None
