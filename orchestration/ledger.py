"""What a thread has cost: model calls and tokens, by run, by the rule that ended it, and by tool.

Everything is read from the messages. What a provider did not report is unknown (None), and so is every sum
that it is part of: it is never 0. What a stop avoided never happened, so it can only be estimated, and its
names say so; ``domains compare`` counts it.

An answer that could not be used and was asked for again is counted beside the one that came of it. Not to be
seen in messages, and so not in here: model calls of tools and of middleware, the retries of a provider's own
client, and what a summary has removed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast

from orchestration.outcomes import JSON, text_of
from orchestration.router import Route, field_of, kind_of

CHARACTERS_A_TOKEN: Final = 4
"""A rule of thumb for English; other languages have fewer, so what is estimated is low rather than high."""

LONGEST_SENT: Final = 16_000
"""Characters of a tool's result that the model is sent: ``asking.LONGEST_RESULT``."""

MODEL: Final = "model"
"""``ended_by`` of a run that the model ended with a text of its own."""

EXCUSE: Final = "excuse"
"""``ended_by`` of a run that ended with our words, since the model had none."""

STRUCTURED: Final = "structured"
"""``ended_by`` of a run that ended with a structured response (``response_format`` of ``build_agent``)."""

OPEN: Final = "open"
"""``ended_by`` of a run that waits, was interrupted or was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What something has cost."""

    model_calls: int = 0
    """Answers of the model. A relayed text is none; a polished one was one more call."""

    tool_calls: int = 0
    """Calls that the model asked for."""

    input_tokens: int | None = 0
    """Tokens sent; None if a call did not say."""

    output_tokens: int | None = 0
    """Tokens received; None if a call did not say."""

    calls_without_usage: int = 0
    """Model calls that said nothing of at least one of the two."""

    avoided_model_calls_estimated: int = 0
    """Calls that would have put a tool's text into words: one a stop, the least that it avoided."""

    avoided_input_tokens_estimated: int | None = 0
    """What those calls would have been sent, at least; None if the call before did not say. What they would
    have answered is not guessed."""

    def __add__(self, other: "Cost") -> "Cost":
        """Return both together; what is unknown in one is unknown in the sum."""
        avoided = (self.avoided_input_tokens_estimated, other.avoided_input_tokens_estimated)
        return Cost(
            model_calls=self.model_calls + other.model_calls,
            tool_calls=self.tool_calls + other.tool_calls,
            input_tokens=_sum((self.input_tokens, other.input_tokens)),
            output_tokens=_sum((self.output_tokens, other.output_tokens)),
            calls_without_usage=self.calls_without_usage + other.calls_without_usage,
            avoided_model_calls_estimated=self.avoided_model_calls_estimated
            + other.avoided_model_calls_estimated,
            avoided_input_tokens_estimated=_sum(avoided),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of one thing the user said."""

    ended_by: str
    """The router's rule that stopped it; ``model``, ``excuse``, ``structured`` or ``open`` if none did."""

    cost: Cost
    """The whole run."""

    tools: Mapping[str, Cost] = field(default_factory=dict)
    """By tool: the model calls that asked for it, and what stopping after it avoided. A model call that asked
    for two tools is in both, so these do not add up to the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What a thread has cost."""

    runs: tuple[Run, ...] = ()
    """Oldest first. A run begins where the user speaks."""

    @property
    def total(self) -> Cost:
        """All runs together."""
        return sum((run.cost for run in self.runs), Cost())

    @property
    def by_rule(self) -> dict[str, Cost]:
        """The runs together that ended alike."""
        return _grouped((run.ended_by, run.cost) for run in self.runs)

    @property
    def by_tool(self) -> dict[str, Cost]:
        """The tools of all runs."""
        return _grouped(item for run in self.runs for item in run.tools.items())

    def as_dict(self) -> dict[str, JSON]:
        """Return everything as plain JSON."""
        whole = {
            "total": asdict(self.total),
            "by_rule": {name: asdict(cost) for name, cost in self.by_rule.items()},
            "by_tool": {name: asdict(cost) for name, cost in self.by_tool.items()},
            "runs": [asdict(run) for run in self.runs],
        }
        return cast("dict[str, JSON]", whole)


def ledger(messages: Sequence[Any]) -> Ledger:
    """Return what a thread has cost.

    Args:
        messages: The thread's history, oldest first: LangChain messages, or their dict forms.

    Raises:
        TypeError: An item is no message, or one in a provider's own form.
    """
    for message in messages:
        if not kind_of(message):
            raise TypeError(
                f"the ledger reads LangChain messages or their dict forms, no {type(message).__name__} like "
                "this one: langchain_core.messages.convert_to_messages makes messages of it"
            )
    return Ledger(runs=tuple(_run(run) for run in _parted(messages) if any(map(_is_answer, run))))


def _parted(messages: Sequence[Any]) -> list[list[Any]]:
    """Part a history where the user speaks. What stands before is a run too: its question was cut off."""
    runs: list[list[Any]] = [[]]
    for message in messages:
        if kind_of(message) == "human":
            runs.append([])
        runs[-1].append(message)
    return runs


def _is_answer(message: Any) -> bool:
    return kind_of(message) == "ai"


def _run(messages: Sequence[Any]) -> Run:
    whole, by_tool = Cost(), list[tuple[str, Cost]]()
    calling: Any = None
    texts: list[str] = []
    for message in messages:
        if kind_of(message) == "tool":
            texts.append(text_of(field_of(message, "content")))
        elif _is_answer(message) and "stopped_by" in _said(message):
            cost = _stopped(message, calling, texts)
            whole += cost
            by_tool += [(tool, cost) for tool in _asked_for(calling)]
        elif _is_answer(message):
            calling, texts, cost = message, [], _asked(message)
            calls = _asked_for(calling)
            whole += cost + Cost(tool_calls=calls.total())
            by_tool += [(tool, cost + Cost(tool_calls=count)) for tool, count in calls.items()]
    return Run(ended_by=_ended_by(messages), cost=whole, tools=_grouped(by_tool))


def _ended_by(messages: Sequence[Any]) -> str:
    last = next(message for message in reversed(messages) if kind_of(message) in {"ai", "tool"})
    answer = next(message for message in reversed(messages) if _is_answer(message))
    said = _said(answer)
    if kind_of(last) == "tool" or _asked_for(last):
        return STRUCTURED if said.get("structured") else OPEN
    return EXCUSE if said.get("excuse") else str(said.get("stopped_by", MODEL))


def _stopped(relayed: Any, calling: Any, texts: Iterable[str]) -> Cost:
    """Return what a stop has cost (a polish is a call), or what it avoided."""
    if _said(relayed).get("route") == Route.POLISH:
        return _model_call(relayed)
    # The model would have been sent once more what it was sent, what it said to that, and the results.
    sent, answered = _tokens(calling, "input_tokens"), _tokens(calling, "output_tokens")
    if answered is not None:  # what it thought is never sent again
        details = (field_of(calling, "usage_metadata") or {}).get("output_token_details") or {}
        answered -= min(answered, details.get("reasoning") or 0)
    results = sum(min(len(text), LONGEST_SENT) for text in texts) // CHARACTERS_A_TOKEN
    return Cost(
        avoided_model_calls_estimated=1, avoided_input_tokens_estimated=_sum((sent, answered, results))
    )


def _asked(message: Any) -> Cost:
    """Return what a message has cost, with the answers before it that were not used."""
    said = _said(message)
    unused = sum(
        (_model_call({"usage_metadata": usage}) for usage in said.get("unused_answers") or ()), Cost()
    )
    return unused if said.get("excuse") else _model_call(message) + unused  # an excuse's words are ours


def _model_call(message: Any) -> Cost:
    sent, answered = _tokens(message, "input_tokens"), _tokens(message, "output_tokens")
    unknown = sent is None or answered is None
    return Cost(model_calls=1, input_tokens=sent, output_tokens=answered, calls_without_usage=int(unknown))


def _tokens(message: Any, name: str) -> int | None:
    usage = field_of(message, "usage_metadata")
    count = usage.get(name) if isinstance(usage, Mapping) else None
    return count if type(count) is int and count >= 0 else None


def _said(message: Any) -> Mapping[str, Any]:
    return field_of(message, "response_metadata") or {}


def _asked_for(message: Any) -> Counter[str]:
    return Counter(call["name"] for call in field_of(message, "tool_calls") or ())


def _sum(parts: Iterable[int | None]) -> int | None:
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _grouped(costs: Iterable[tuple[str, Cost]]) -> dict[str, Cost]:
    grouped: dict[str, Cost] = {}
    for name, cost in costs:
        grouped[name] = grouped.get(name, Cost()) + cost
    return grouped
