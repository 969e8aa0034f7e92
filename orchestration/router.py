"""One decision for every tool: end the run with the tools' own text, or give the model a turn.

``decide`` is pure and reads from the tail: nothing is kept on an instance, and the cost does not grow
with the history. It knows no tool and no vendor. Messages are read by their ``type``, as objects or
as dicts, so a checkpoint that turned one into the other changes no decision.

Standard library only: this module is part of the copy set.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from typing import Any, Final

from orchestration.outcomes import NOT_CARRIED_OUT, Format, Outcome
from orchestration.reasons import Effect, Reason

POLISH_PROMPT: Final = (
    "Rewrite the result below for the customer in two short, friendly sentences. Keep every number, name, "
    "link and identifier exactly as it is. Add nothing and promise nothing."
)


class Route(StrEnum):
    """Where the run goes next: the node's name."""

    AGENT = "agent"
    """The model gets another turn."""

    FINALIZE = "finalize"
    """The run ends with the tools' own text."""

    POLISH = "polish"
    """The run ends with that text in another voice: one further model call, no tools."""


class StopMode(StrEnum):
    """What a stop does."""

    HARD = "hard"
    """Ends the run; the text stands verbatim."""

    POLISH = "polish"
    """As hard, but a turn of nothing but completed calls is reworded first."""

    NEVER = "never"
    """Goes back to the model: the plain loop, to compare with, or to watch before adopting."""


class BatchRule(StrEnum):
    """How the votes of one turn's parallel calls become one decision."""

    PRIORITY = "priority"
    """Stop if any call was blocked by policy, else if every call says stop."""

    ALL = "all"
    """Stop if every call says stop."""

    ANY = "any"
    """Stop if one call says stop."""


@dataclass(frozen=True, slots=True)
class StopPolicy:
    """The settings of one run.

    Raises:
        ValueError: An unknown mode or batch rule, or a budget below one.
    """

    mode: StopMode = StopMode.HARD
    """What a stop does."""

    batch: BatchRule = BatchRule.PRIORITY
    """How parallel calls are counted."""

    max_attempts: int = 3
    """Model turns, since the user last spoke, in which one (tool, key) may vote continue."""

    max_turns: int = 8
    """Turns with tool calls since the user last spoke."""

    polish_prompt: str = POLISH_PROMPT
    """What mode polish tells the model: a voice, a length, a language."""

    def __post_init__(self) -> None:
        for name, kinds in (("mode", StopMode), ("batch", BatchRule)):
            chosen = {kind.value: kind for kind in kinds}.get(getattr(self, name))
            if chosen is None:
                allowed = ", ".join(kind.value for kind in kinds)
                raise ValueError(f"{name} must be one of {allowed}, not {getattr(self, name)!r}")
            object.__setattr__(self, name, chosen)
        for name in ("max_attempts", "max_turns"):
            budget = getattr(self, name)
            if type(budget) is not int or budget < 1:
                raise ValueError(f"{name} must be a whole number from 1 up, not {budget!r}")


DEFAULT_POLICY: Final = StopPolicy()

STOP_RULES: Final = ("policy_block", "fatal", "completed", "attempts_exhausted", "turns_exhausted")
"""``Decision.rule`` of a stop: the first of these that voted stop."""

CONTINUE_RULES: Final = ("transient", "unusable", "more_steps", "no_call")
"""``Decision.rule`` of a continuation: the first of these that voted continue."""

BUDGET_RULES: Final = frozenset({"attempts_exhausted", "turns_exhausted"})
"""The stops that hold in every mode: without them a run has no end."""


@dataclass(frozen=True, slots=True)
class Vote:
    """What one call of the turn says."""

    call_id: str
    """The tool call's id, as the model gave it."""

    tool: str
    """The tool's name."""

    outcome: Outcome | None
    """What the answer's artifact says; None if it is missing or unusable."""

    rule: str
    """Why it votes so: one of ``STOP_RULES`` or ``CONTINUE_RULES``."""

    attempts: int = 0
    """Model turns, this one included, in which this (tool, key) voted continue; 0 if it now does not."""

    args: Any = field(default=None, repr=False, compare=False)
    """The call's arguments: they tell two calls apart, and stand in no record."""

    @property
    def stop(self) -> bool:
        """Whether the call votes to end the run."""
        return self.rule in STOP_RULES

    @property
    def text(self) -> str:
        """What the user reads of it: nothing that no artifact vouches for."""
        return NOT_CARRIED_OUT if self.outcome is None else self.outcome.content


@dataclass(frozen=True, slots=True)
class Decision:
    """Where the run goes, and why."""

    route: Route
    """The next node."""

    rule: str
    """One of ``STOP_RULES`` or ``CONTINUE_RULES``."""

    because: str
    """The same in a sentence, for people."""

    text: str = ""
    """What the user reads if the run ends here."""

    calls: tuple[Vote, ...] = ()
    """The votes of the turn, in call order."""

    message_id: str | None = field(default=None)
    """Id of the AIMessage that made the calls."""

    format: Format = "text"
    """How ``text`` is to be shown to a person."""

    @property
    def would_stop(self) -> bool:
        """Whether mode ``hard`` ends the run here, whatever this run's mode does."""
        return self.rule in STOP_RULES


def decide(messages: Sequence[Any], policy: StopPolicy = DEFAULT_POLICY) -> Decision:
    """Decide where a run goes after its newest turn of tool calls.

    Args:
        messages: The history, oldest first: LangChain messages, or their dict forms.
        policy: The run's settings.

    Returns:
        The decision. It is the same when the answers of the turn are permuted, and after any
        checkpoint round trip.
    """
    history = turns(messages)
    turn = next(history, None)
    if turn is None:
        return Decision(Route.AGENT, "no_call", "no tool call stands unanswered since the user spoke")
    outcomes = [outcome_of(answer) for _, answer in turn.answers]
    earlier = list(history)
    votes = _votes(turn, outcomes, earlier, policy)
    rule = _batch(votes, policy.batch)
    spent = 1 + len(earlier) >= policy.max_turns
    if spent and rule not in STOP_RULES:
        rule = "turns_exhausted"
    # A run that a budget ends was not finished: what its other turns have found stands in no other text.
    unfinished = rule in BUDGET_RULES or (spent and policy.mode is StopMode.NEVER)
    texts = _texts(votes, earlier, unfinished=unfinished) if rule in STOP_RULES else {}
    return Decision(
        route=_route(rule, votes, policy.mode, spent=spent),
        rule=rule,
        because=_because(rule, votes, policy),
        text=joined(texts),
        calls=votes,
        message_id=field_of(turn.message, "id"),
        format="html" if any(texts.values()) else "text",
    )


@dataclass(frozen=True, slots=True)
class Turn:
    """One AIMessage with tool calls, and what answered them."""

    message: Any
    """The AIMessage."""

    answers: tuple[tuple[Mapping[str, Any], Any], ...]
    """Every call with its ToolMessage, in call order; None where none answers."""


def turns(messages: Sequence[Any]) -> Iterator[Turn]:
    """Yield the turns of tool calls since the user last spoke, the newest first.

    Answers are matched by id; calls whose ids are repeated or empty are matched in order.
    """
    found: list[Any] = []
    for message in reversed(messages):
        kind = kind_of(message)
        if kind == "tool":
            found.append(message)
        elif kind == "human":
            return
        elif kind == "ai" and (calls := field_of(message, "tool_calls")):
            by_id: defaultdict[str, deque[Any]] = defaultdict(deque)
            for answer in reversed(found):
                by_id[field_of(answer, "tool_call_id") or ""].append(answer)
            found = []
            queues = [by_id[call.get("id") or ""] for call in calls]
            yield Turn(
                message,
                tuple(
                    (call, queue.popleft() if queue else None)
                    for call, queue in zip(calls, queues, strict=True)
                ),
            )


def kind_of(message: Any) -> str:
    """Return ``ai``, ``tool``, ``human`` or another of LangChain's types; chunks count as whole."""
    kind = str(field_of(message, "type") or "")
    return _CHUNKS.get(kind, kind)


_CHUNKS: Final = {"AIMessageChunk": "ai", "ToolMessageChunk": "tool", "HumanMessageChunk": "human"}


def field_of(message: Any, name: str) -> Any:
    """Return a field of a message, or of its dict form; None if it has none."""
    if not isinstance(message, dict):
        return getattr(message, name, None)
    # ``message_to_dict`` puts the fields under "data", ``model_dump`` at the top.
    data = message.get("data")
    return data.get(name) if name != "type" and isinstance(data, dict) else message.get(name)


def outcome_of(answer: Any) -> Outcome | None:
    """Return what a ToolMessage's artifact says; None if it is missing or unusable."""
    if answer is None:
        return None
    return Outcome.from_tool_result(
        field_of(answer, "content"),
        field_of(answer, "artifact"),
        failed=field_of(answer, "status") == "error",
    )


def more_steps(args: object) -> bool:
    """Whether the model said that another call follows this one to finish what the user asked.

    Models write booleans as words too.
    """
    said = args.get("last_step") if isinstance(args, dict) else None
    return said is False or (isinstance(said, str) and said.strip().lower() == "false")


def _votes(
    turn: Turn, outcomes: Sequence[Outcome | None], earlier: Sequence[Turn], policy: StopPolicy
) -> tuple[Vote, ...]:
    attempts = _attempts(earlier) if earlier else Counter()
    votes = []
    for (call, _), outcome in zip(turn.answers, outcomes, strict=True):
        count = 1 + attempts[call["name"], None if outcome is None else outcome.key]
        rule = _vote(outcome, count, call.get("args"), policy)
        attempts_used = count if _again(outcome) else 0
        votes.append(Vote(call.get("id") or "", call["name"], outcome, rule, attempts_used, call.get("args")))
    return tuple(votes)


def _again(outcome: Outcome | None) -> bool:
    return outcome is None or not outcome.stop


def _attempts(earlier: Iterable[Turn]) -> Counter[tuple[str, str | None]]:
    """Count the turns in which a (tool, key) voted continue; parallel calls of one count once."""
    counted: Counter[tuple[str, str | None]] = Counter()
    for turn in earlier:
        read = [(call["name"], outcome_of(answer)) for call, answer in turn.answers]
        counted.update(
            {(name, outcome.key if outcome else None) for name, outcome in read if _again(outcome)}
        )
    return counted


def _vote(outcome: Outcome | None, attempts: int, args: object, policy: StopPolicy) -> str:
    if outcome is None or not outcome.stop:
        if attempts >= policy.max_attempts:
            rule = "attempts_exhausted"
        elif outcome is None:
            return "unusable"
        else:
            return "transient" if outcome.reason is Reason.TRANSIENT else "more_steps"
    else:
        rule = outcome.reason.value
    return "more_steps" if rule != Reason.POLICY_BLOCK and more_steps(args) else rule


def _batch(votes: tuple[Vote, ...], batch: BatchRule) -> str:
    stops = {vote.rule for vote in votes if vote.stop}
    continues = {vote.rule for vote in votes if not vote.stop}
    if stops and (
        not continues
        or batch is BatchRule.ANY
        or (batch is BatchRule.PRIORITY and Reason.POLICY_BLOCK in stops)
    ):
        return next(rule for rule in STOP_RULES if rule in stops)
    return next(rule for rule in CONTINUE_RULES if rule in continues)


def _route(rule: str, votes: tuple[Vote, ...], mode: StopMode, *, spent: bool) -> Route:
    if rule not in STOP_RULES or (mode is StopMode.NEVER and rule not in BUDGET_RULES and not spent):
        return Route.AGENT
    done = all(vote.outcome is not None and vote.outcome.reason is Reason.COMPLETED for vote in votes)
    if mode is StopMode.POLISH and rule == Reason.COMPLETED and done:
        return Route.POLISH
    return Route.FINALIZE


def _because(rule: str, votes: Iterable[Vote], policy: StopPolicy) -> str:
    calls = ", ".join(
        f"{vote.tool} ({vote.outcome.rule if vote.outcome else 'no artifact'})"
        for vote in votes
        if vote.rule == rule
    )
    return _SENTENCES[rule].format(calls=calls, policy=policy)


_SENTENCES: Final = {
    "policy_block": "a rule refused {calls}",
    "fatal": "no further call of the model can help {calls}",
    "completed": "{calls} did what was asked",
    "attempts_exhausted": "{calls} used up its {policy.max_attempts} attempts",
    "turns_exhausted": "the run used up its {policy.max_turns} turns of tool calls",
    "transient": "{calls} can still pass",
    "unusable": "nothing vouches for {calls}",
    "more_steps": "the model has more to do after {calls}",
}


def _texts(votes: Iterable[Vote], earlier: Sequence[Turn], *, unfinished: bool) -> dict[str, bool]:
    """Return the texts of a stop, and whether each is HTML: no call of the turn is hidden.

    What an earlier turn of the run has changed, or may have, comes first: a run that moved money ends with
    the receipt, or with "not confirmed", whatever was asked for next.
    """
    asked = {vote.outcome.key for vote in votes if vote.outcome is not None and vote.outcome.key}
    texts = results(earlier, besides=asked, reads=unfinished) if earlier else {}
    for vote in votes:
        html = vote.outcome is not None and vote.outcome.format == "html"
        texts[vote.text] = html or texts.get(vote.text, False)
    return texts


def results(
    newest_first: Iterable[Turn], besides: Collection[str] = (), *, reads: bool = True
) -> dict[str, bool]:
    """Return the texts that the user must read of a run's turns, oldest first, and whether each is HTML.

    Those are what was done or refused, and what is not confirmed; of one thing (``key``) the newest.

    Args:
        newest_first: The turns, as ``turns`` yields them.
        besides: Keys of things that a later text speaks of.
        reads: Whether what changed nothing counts as well.
    """
    newest: dict[object, Outcome] = {}
    for turn in reversed(list(newest_first)):
        for at, (_, answer) in enumerate(turn.answers):
            outcome = outcome_of(answer)
            if outcome is not None and (outcome.stop or outcome.effect is Effect.UNKNOWN):
                subject = outcome.key or (id(turn), at)
                newest.pop(subject, None)
                newest[subject] = outcome
    return {
        outcome.content: outcome.format == "html"
        for key, outcome in newest.items()
        if key not in besides and (reads or outcome.effect is not Effect.NONE)
    }


def joined(texts: Mapping[str, bool]) -> str:
    """Join texts in order, with a blank line between; each says whether it is HTML.

    If one is, the others are escaped into paragraphs.
    """
    if any(texts.values()):
        return "\n\n".join(text if html else f"<p>{escape(text)}</p>" for text, html in texts.items())
    return "\n\n".join(texts)
