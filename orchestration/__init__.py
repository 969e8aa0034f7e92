"""Four reasons for how a tool call ended, and one router that acts on them."""

from orchestration.outcomes import Outcome
from orchestration.reasons import Effect, Reason
from orchestration.router import BatchRule, Decision, Route, StopMode, StopPolicy, decide

__all__ = [
    "BatchRule",
    "Decision",
    "Effect",
    "Outcome",
    "Reason",
    "Route",
    "StopMode",
    "StopPolicy",
    "decide",
]
