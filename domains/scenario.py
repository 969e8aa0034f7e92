"""What a scenario is: what the user says, what the vendor answers, what must happen.

Plain data. The command line plays scenarios, the tests play the same ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Ask:
    """One tool call, as the scripted model writes it."""

    tool: str
    """The tool's name."""

    args: Mapping[str, Any]
    """The arguments, ``last_step`` among them if the model sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """What a vendor's fake answers in place of its normal work. The fields are ``mocks.vendor.Fault``'s."""

    kind: str = "answer"
    """``answer``, ``truncated``, or the name of an httpx exception."""

    at: str = "*"
    """Glob on ``METHOD /path``."""

    when: str = "before"
    """Whether the fault comes ``before`` or ``after`` the vendor did the work, or it does it ``late``."""

    times: int = 1
    """How many matching requests it applies to."""

    status: int = 500
    """The HTTP status of an ``answer``."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of an ``answer``."""

    body: Any = ""
    """The body of an ``answer``: JSON, or text as sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One thing that the user says, what the model does about it, and what must come of it."""

    user: str
    """What the user says."""

    script: tuple[tuple[Ask, ...] | str, ...]
    """The model's answers, in order: parallel calls, or a text."""

    narration: str
    """What the model says if it is asked again after the script: the call that a stop saves."""

    path: tuple[str, ...]
    """The nodes that must run: ``agent``, ``tools``, ``finalize``, ``polish``."""

    reasons: tuple[str, ...] = ()
    """The reason of every tool call, in call order."""

    rules: tuple[str, ...] = ()
    """The table row of every tool call, in call order."""

    stopped_by: str | None = None
    """The router's rule that ended the turn; None if the model ended it."""

    final: str
    """The text that the user must read, to the letter."""

    @property
    def model_calls(self) -> int:
        """How often the model must be asked."""
        return self.path.count("agent") + self.path.count("polish")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A conversation with an expected course."""

    id: str
    """``<domain>/<name>``."""

    about: str
    """One line for people."""

    turns: tuple[Turn, ...]
    """What is said, in order, on one thread."""

    forced: Mapping[str, tuple[Forced, ...]] = field(default_factory=dict)
    """Domain -> what its vendor answers instead, in order."""

    vendors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Domain -> settings of its vendor's fake (declines by card, documents, ...)."""
