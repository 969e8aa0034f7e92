"""What both runtimes share around ``decide``: the run's policy, the relayed message, the polish call."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.runnables import Runnable

from orchestration.asking import LONGEST_RESULT
from orchestration.outcomes import NO_TEXT, text_of
from orchestration.router import STOP_RULES, Decision, Route, StopPolicy, decide

PLAIN_PROMPT: Final = (
    "Tools answer in plain sentences. When an answer says that something is not confirmed, it may have "
    "happened: tell the user so, never that it failed or succeeded, and do not start it over in another "
    "way. When an answer names what would help, change that argument or ask the user for it. Never invent a "
    "result that no tool gave."
)
"""The same for a loop without the router, whose tools do not take ``last_step``."""

SYSTEM_PROMPT: Final = (
    f"{PLAIN_PROMPT} Set last_step to false on a call only if you will call another tool after it to finish "
    "what the user asked; leave it out otherwise."
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


def decided(messages: Sequence[Any], policy: StopPolicy, *, voice: bool = True) -> Decision:
    """Return the decision as a runtime carries it out.

    Args:
        messages: The history, oldest first.
        policy: The run's settings.
        voice: Whether there is a model to reword a text. Without one, and where the text is longer than what
            a model is sent (cut short it could only be reworded in part), it stands as it is.
    """
    decision = decide(messages, policy)
    if decision.route is Route.POLISH and not (voice and len(decision.text) <= LONGEST_RESULT):
        return replace(decision, route=Route.FINALIZE)
    return decision


def stopped(messages: Sequence[Any], policy: StopPolicy, route: Route) -> Decision:
    """Return the decision that has ended a run, for the node that carries it out.

    A resumed run may have other settings than those that decided. What is no stop by them was one by a
    budget: nothing else in a decision depends on settings that can turn a stop into another turn.
    """
    decision = decide(messages, policy)
    if decision.rule not in STOP_RULES:
        decision = decide(messages, replace(policy, max_attempts=1, max_turns=1))
    return replace(decision, route=route)


def relay(decision: Decision, text: str | None = None, usage: UsageMetadata | None = None) -> AIMessage:
    """Return the one message that carries a stop's text to the user.

    Its id depends on the turn alone, so that a replay replaces it; its ``response_metadata`` says
    which of the router's rules stopped the run, and ``usage`` what a polish has cost.
    """
    return AIMessage(
        content=decision.text if text is None else text,
        id=f"final-{decision.message_id}",
        response_metadata={
            "stopped_by": decision.rule,
            "route": decision.route.value,
            # A model's words are no HTML, whatever it was shown: nobody may render them unescaped.
            "format": decision.format if text is None else "text",
        },
        usage_metadata=usage,
    )


def unstreamed(model: BaseChatModel) -> Runnable[Any, BaseMessage]:
    """Return the model for the polish call: its words may be turned down, so no stream shows them."""
    return model.with_config(tags=["nostream"])


def polish_request(decision: Decision, policy: StopPolicy) -> list[BaseMessage]:
    """Return what the model is asked in mode ``polish``: the text alone, no history, no tools."""
    return [SystemMessage(policy.polish_prompt), HumanMessage(_words(decision))]


def polished(decision: Decision, answer: BaseMessage) -> AIMessage:
    """Return the reworded text, or the tools' own if the rewording is empty, a call, or lost a number."""
    text = text_of(answer.content)
    kept = numbers(_words(decision)) <= numbers(text)
    whole = text != NO_TEXT and not getattr(answer, "tool_calls", None) and kept
    return relay(decision, text if whole else None, getattr(answer, "usage_metadata", None))


def _words(decision: Decision) -> str:
    """Return a stop's text without markup, whose entities would count as numbers."""
    if decision.format == "text":
        return decision.text
    lines = re.sub(r"(?:\s*</?p>)+\s*", "\n", decision.text)
    return unescape(re.sub(r"<[^>]*>", "", lines)).strip()


def numbers(text: str) -> set[str]:
    """Return the numbers of a text, as they are written: other words may lose none."""
    return set(re.findall(r"\d+(?:[.,:]\d+)*", text))
