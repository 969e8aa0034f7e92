"""What both runtimes share around ``decide``: the run's policy, the relayed message, the polish call."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable

from orchestration.outcomes import text_of
from orchestration.router import Decision, StopPolicy

SYSTEM_PROMPT: Final = (
    "Tools answer in plain sentences. When an answer says that something is not confirmed, it may have "
    "happened: tell the user so, never that it failed or succeeded, and do not start it over in another "
    "way. When an answer names what would help, change that argument or ask the user for it. Set last_step "
    "to false on a call only if you will call another tool after it to finish what the user asked; leave it "
    "out otherwise. Never invent a result that no tool gave."
)
"""A paragraph for real models: put it into the system prompt of a run with these tools."""


def policy_of(config: Mapping[str, Any] | None, policy: StopPolicy) -> StopPolicy:
    """Return the run's policy: ``config["configurable"]`` may set any field by ``stop_<field>``.

    Raises:
        ValueError: A field is set to what it cannot be.
    """
    given = (config or {}).get("configurable") or {}
    fields = ("mode", "batch", "max_attempts", "max_turns", "polish_prompt")
    changes = {name: given[f"stop_{name}"] for name in fields if given.get(f"stop_{name}") is not None}
    return replace(policy, **changes) if changes else policy


def relay(decision: Decision, text: str | None = None) -> AIMessage:
    """Return the one message that carries a stop's text to the user.

    Its id depends on the turn alone, so that a replay replaces it; its ``response_metadata`` says
    which of the router's rules stopped the run.
    """
    html = any(vote.outcome is not None and vote.outcome.format == "html" for vote in decision.calls)
    return AIMessage(
        content=decision.text if text is None else text,
        id=f"final-{decision.message_id}",
        response_metadata={
            "stopped_by": decision.rule,
            "route": decision.route.value,
            "format": "html" if html else "text",
        },
    )


def unstreamed(model: BaseChatModel) -> Runnable[Any, BaseMessage]:
    """Return the model for the polish call: its words may be turned down, so no stream shows them."""
    return model.with_config(tags=["nostream"])


def polish_request(decision: Decision, policy: StopPolicy) -> list[BaseMessage]:
    """Return what the model is asked in mode ``polish``: the text alone, no history, no tools."""
    return [SystemMessage(policy.polish_prompt), HumanMessage(decision.text)]


def polished(decision: Decision, answer: BaseMessage) -> AIMessage:
    """Return the reworded text, or the tools' own if the rewording is empty, a call, or lost a number."""
    text = text_of(answer.content) if answer.content else ""
    kept = _numbers(decision.text) <= _numbers(text)
    whole = bool(text.strip()) and not getattr(answer, "tool_calls", None) and kept
    return relay(decision, text if whole else None)


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+(?:[.,:]\d+)*", text))
