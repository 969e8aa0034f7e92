"""One event for every decision: why a run stopped, or why the model was asked once more.

An event holds names, ids and numbers, never content, arguments, evidence or keys. Where it goes is a
``sink``'s business: any callable that takes a ``DecisionEvent``.

**Replay.** A turn of calls is decided once in a run, and that emits one event, whatever happens around it:
interrupts, retries of a node, polish. Going back to an old checkpoint of a thread decides again, and in a
hand-built graph as in ``create_agent`` it can even carry out the calls again. What comes out the same is the
same decision: its event has the same ``id``, and is not emitted again. What comes out differently (another
outcome, another thing that it is about, another mode) is another decision, and another event. A graph
remembers the newest ``REMEMBERED`` of them; what a restart or a graph built anew repeats, a store with unique
ids drops.

``update_state`` as the node ``tools`` decides too: a hand-built graph at once, ``create_agent`` with the next
run.
"""

import json
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from hashlib import sha256
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from logging import WARNING
from threading import Lock
from typing import Any, Final, TypeAlias

from orchestration.log import log
from orchestration.outcomes import JSON, UNKNOWN_TOOL, plain
from orchestration.router import Decision, Route, StopPolicy, Vote

REMEMBERED: Final = 10_000
"""Ids of events that one graph remembers, so that a replay repeats none."""

UNFIT: Final = "?"
"""Stands for a name that is none: a model or a foreign tool may have put a sentence there."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,80}")
_ID: Final = re.compile(r"[A-Za-z0-9_.:/+=-]{1,128}")
_SECRET: Final = re.compile(
    r"\d{12}|(?<![A-Za-z0-9])(?:(?:sk|rk|pk)_(?:live|test)_|sk-|whsec_|gsk_|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|"
    r"AKIA|AIza|eyJ)[A-Za-z0-9_.-]{8}"
)
"""Numbers as long as a card's, and what vendors' keys begin with: such a word is no name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvent:
    """What one call of the turn said."""

    tool: str
    """The tool's name; ``UNFIT`` for one that the model made up."""

    call_id: str
    """The call's id, as the model gave it."""

    vote: str
    """Why it voted to stop or to go on: one of the router's rules."""

    reason: str | None
    """The outcome's reason; None if nothing vouches for the answer."""

    row: str | None
    """The row of a domain's table that named the reason."""

    vendor_code: str | None
    """The vendor's own word for it."""

    effect: str | None
    """What is proven about the thing the call is about; None as for ``reason``."""

    attempts: int
    """Turns in which this call's subject has now voted to go on; 0 if it no longer does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionEvent:
    """One decision, without a word of what was said."""

    id: str
    """Digest of the thread's id and of all the rest: the same decision has the same id anywhere."""

    message_id: str | None
    """Id of the AIMessage that made the calls."""

    rule: str
    """The router's rule."""

    route: str
    """Where the run was sent: ``agent``, ``finalize`` or ``polish``. A recursion limit may end it there."""

    mode: str
    """The run's mode."""

    batch: str
    """How parallel calls were counted."""

    would_stop: bool
    """Whether mode ``hard`` ends the run here. In mode ``never`` (the shadow mode) the run goes on: of one
    run's events, the first that would stop is where it would have ended."""

    saved_model_calls_estimated: int
    """1 where the tools' own text ended the run: the call that would have put it into words. Polish makes
    that call, so it saves none; further calls that a plain loop would have made are not counted."""

    calls: tuple[CallEvent, ...]
    """The calls of the turn, in order."""

    def as_dict(self) -> dict[str, JSON]:
        """Return the event as plain JSON."""
        return {**_fields(self), "calls": [_fields(call) for call in self.calls]}


def _fields(event: CallEvent | DecisionEvent) -> dict[str, Any]:
    return {each.name: getattr(event, each.name) for each in fields(event)}  # asdict would copy every value


Sink: TypeAlias = Callable[[DecisionEvent], object]
"""Takes an event somewhere. It is called in the run, and by ``build_agent`` in the event loop, so it must be
quick; what it raises is logged."""


def event_of(decision: Decision, policy: StopPolicy, *, thread: str = "") -> DecisionEvent:
    """Return the event of a decision.

    Args:
        decision: What ``decide`` returned.
        policy: The settings that it decided by.
        thread: The thread's id, if there is one. It goes into the event's id and nowhere else.
    """
    event = DecisionEvent(
        id="",
        message_id=_fit(_ID, decision.message_id or None),
        rule=decision.rule,
        route=decision.route.value,
        mode=policy.mode.value,
        batch=policy.batch.value,
        would_stop=decision.would_stop,
        saved_model_calls_estimated=int(decision.route is Route.FINALIZE),
        calls=tuple(map(_call, decision.calls)),
    )
    # Two words that are no names are two words all the same, and the key says what a call is about. The
    # arguments are not in it: who can guess them could try a guess on the digest.
    words = [decision.message_id, *(_words(vote) for vote in decision.calls)]
    whole = json.dumps([thread, event.as_dict(), words], sort_keys=True, default=repr)
    return replace(event, id=sha256(whole.encode()).hexdigest()[:32])


def _words(vote: Vote) -> list[str | None]:
    outcome = vote.outcome
    said = (outcome.rule, outcome.vendor_code, outcome.key) if outcome else ()
    return [vote.call_id, vote.tool, *said]


def _call(vote: Vote) -> CallEvent:
    outcome = vote.outcome
    unknown = outcome is not None and outcome.rule == UNKNOWN_TOOL
    return CallEvent(
        tool=UNFIT if unknown else _fit(_NAME, vote.tool) or UNFIT,
        call_id=_fit(_ID, vote.call_id) or "",
        vote=vote.rule,
        reason=outcome.reason.value if outcome else None,
        row=_fit(_NAME, outcome.rule) if outcome else None,
        vendor_code=_fit(_NAME, outcome.vendor_code) if outcome else None,
        effect=outcome.effect.value if outcome else None,
        attempts=vote.attempts,
    )


def _fit(shape: re.Pattern[str], name: Any) -> str | None:
    """Return a name that looks like one: models invent tools' names, foreign artifacts hold anything."""
    if name is None or name == "":
        return None
    if not isinstance(name, str) or not shape.fullmatch(name):
        return UNFIT
    return UNFIT if shape is _NAME and _SECRET.search(name) else name


class Emitter:
    """Gives each decision to every sink, once.

    Raises:
        TypeError: A sink cannot be called, or is a coroutine function, which nobody would await.
    """

    def __init__(self, sinks: Iterable[Sink], *, remembered: int = REMEMBERED) -> None:
        """Take the sinks, and how many ids to remember."""
        self._sinks = tuple(sinks)
        for sink in self._sinks:
            if (
                not callable(sink)
                or isinstance(sink, type)
                or any(map(_is_lazy, (sink, type(sink).__call__)))
            ):
                raise TypeError(f"a sink is a plain function of one event, not {sink!r}")
        self._remembered = remembered
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._lock = Lock()

    def __call__(self, decision: Decision, policy: StopPolicy, config: Mapping[str, Any]) -> None:
        """Emit a decision's event, unless there was nothing to decide or the thread has emitted it."""
        if not self._sinks or not decision.calls:
            return
        thread = (config.get("configurable") or {}).get("thread_id")
        event: DecisionEvent | None = None
        with _net("an event"):
            event = event_of(decision, policy, thread="" if thread is None else str(thread))
        if event is None:
            return
        # Under one id, edited arguments are another call; they are compared here and go nowhere.
        args = repr([vote.args for vote in decision.calls]).encode("utf-8", "replace")
        seen = sha256(event.id.encode() + args).digest()
        if thread is not None and self._emitted(seen):  # without a thread nothing can be replayed
            return
        try:
            for sink in self._sinks:
                with _net("a sink"):
                    _given(sink(event))
        except KeyboardInterrupt:
            self._seen.pop(seen, None)  # a run that goes on emits it: twice is better than never
            raise

    def _emitted(self, seen: bytes) -> bool:
        with self._lock:
            if seen in self._seen:
                self._seen.move_to_end(seen)
                return True
            self._seen[seen] = None
            if len(self._seen) > self._remembered:
                self._seen.popitem(last=False)
            return False


def _is_lazy(function: Any) -> bool:
    """Whether calling a function only makes something that nobody would run."""
    return iscoroutinefunction(function) or isgeneratorfunction(function) or isasyncgenfunction(function)


def _given(result: Any) -> None:
    """Refuse what a sink made to be awaited: a wrapper hides a coroutine function from ``_is_lazy``."""
    if isinstance(result, Coroutine):
        result.close()
    if isinstance(result, Awaitable):
        raise TypeError("a sink is a plain function: nobody awaits what it returns")


@contextmanager
def _net(what: str) -> Iterator[None]:
    """Log what is raised: a run is worth more than its record. Ctrl-C alone goes through."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exporter written in Rust panics with one of these
        # The name alone: an exporter's message may hold a URL with a key.
        log(WARNING, "%s raised %s: the run goes on", what, type(error).__name__)


@dataclass(frozen=True, slots=True)
class LogSink:
    """Writes one record an event. Its ``decision`` attribute is the event as plain JSON."""

    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("orchestration.decisions"))
    """Where to."""

    level: int = logging.INFO
    """How loud."""

    def __call__(self, event: DecisionEvent) -> None:
        """Write the record."""
        shadow = ", hard would stop" if event.would_stop and event.route == Route.AGENT else ""
        calls = ", ".join(f"{call.tool} ({call.row or call.vote})" for call in event.calls)
        line = f"{event.rule} -> {event.route}{shadow}: {calls}"
        self.logger.log(self.level, "%s", line, extra={"decision": event.as_dict()})


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, with the event under ``decision``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; of a record that cannot be written, a line that says so."""
        try:
            return json.dumps(self._line(record), allow_nan=False)
        except Exception as error:  # a line lost is a decision lost
            lost = f"a record that cannot be written ({type(error).__name__})"
            return json.dumps({**_head(record), "message": lost})

    def _line(self, record: logging.LogRecord) -> dict[str, Any]:
        line = {**_head(record), "message": record.getMessage()}
        if (decision := getattr(record, "decision", None)) is not None:
            line["decision"] = plain(decision)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:  # what a socket brought
            line["exception"] = record.exc_text
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return line


def _head(record: logging.LogRecord) -> dict[str, Any]:
    time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return {"time": time, "level": record.levelname, "logger": record.name}


class SpanSink:
    """Adds an event to OpenTelemetry's current span; where no span is recorded, nothing.

    Names are those of the GenAI conventions where there are any. They describe one call, so they are left
    out where a turn has several; ours (``short_circuit.*``) are always there, lists in call order.

    Source: https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/execute-tool.md

    Raises:
        ImportError: ``opentelemetry-api`` is missing; the message says what to install.
    """

    def __init__(self) -> None:
        """Find OpenTelemetry."""
        try:
            from opentelemetry.trace import get_current_span
        except ImportError as error:
            raise ImportError(
                "SpanSink needs opentelemetry-api: pip install 'short-circuit[otel]'"
            ) from error
        self._span = get_current_span

    def __call__(self, event: DecisionEvent) -> None:
        """Add the event."""
        self._span().add_event("short_circuit.decision", span_attributes(event))


def span_attributes(event: DecisionEvent) -> dict[str, str | bool | int | list[str] | list[int]]:
    """Return an event as OpenTelemetry takes it: flat, without None."""
    own = {name: value for name, value in event.as_dict().items() if name != "calls" and value is not None}
    each = [_fields(call) for call in event.calls]
    lists = {name: [_known(call[name]) for call in each] for name in (each[0] if each else ())}
    one = {"tool.name": each[0]["tool"], "tool.call.id": each[0]["call_id"]} if len(each) == 1 else {}
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        **{f"gen_ai.{name}": value for name, value in one.items()},
        **{f"short_circuit.{name}": value for name, value in own.items()},
        **{f"short_circuit.calls.{name}": values for name, values in lists.items()},
    }
    return attributes


def _known(value: str | int | None) -> str | int:
    return "" if value is None else value  # a list of attributes holds one type


@dataclass(frozen=True, slots=True)
class StreamSink:
    """Writes ``{"decision": {...}}`` to LangGraph's stream, for ``stream_mode="custom"``."""

    def __call__(self, event: DecisionEvent) -> None:
        """Write the event."""
        from langgraph.config import get_stream_writer

        get_stream_writer()({"decision": event.as_dict()})
