"""The closed vocabulary: why a tool call ended, and what it is proven to have done."""

from enum import StrEnum


class Reason(StrEnum):
    """Why a tool call ended. Four members; README and CONTRIBUTING say why not five."""

    COMPLETED = "completed"
    """The reply proves that what was asked is done."""

    TRANSIENT = "transient"
    """The same intent can still pass, or nothing can be said for sure: the model decides."""

    FATAL = "fatal"
    """No call that the model could make now succeeds."""

    POLICY_BLOCK = "policy_block"
    """Somebody's rule refused: risk, permission, law, a plan, or one of our own guards."""


class Effect(StrEnum):
    """What is proven about the thing a call is about (its ``key``) when the call ends."""

    NONE = "none"
    """Nothing was changed, or the call only read."""

    APPLIED = "applied"
    """The change is in place."""

    UNKNOWN = "unknown"
    """The change may be in place: the reply proves neither."""
