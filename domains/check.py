"""The contract as a kit: what the router relies on, checked for our domains and for anybody's tool.

A check is a small function in the table ``CHECKS``. Each of its findings says what is wrong and what to
change; a check that cannot run says what to declare for it. Nothing passes in silence.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, messages_to_dict
from langgraph.checkpoint.memory import InMemorySaver

from domains import contract
from domains.cases import NEVER, Case, Rig, Run, call, only_async, run_bare
from domains.contract import Flaw, OfArtifact, OfTable
from domains.runner import RUNTIMES, Runtime, build, walk
from mocks.model import ScriptedModel
from mocks.vendor import PAIRS, Fault, Vendor
from orchestration.graph import build_graph
from orchestration.outcomes import text_of
from orchestration.reasons import Effect, Reason
from orchestration.router import DEFAULT_POLICY, decide, outcome_of
from orchestration.tools import prepare

ASKED: Final = "Please do it."
NARRATION: Final = "Let me tell you about it."
ROUNDS: Final = 2
"""Further calls in which the work must be done once a single fault is over."""

TELLING: Final = 4
"""Characters of an argument that tell something if they stand in a key."""

SHOWN: Final = 3
"""Places that a finding names; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong with a tool or a table, and what to change."""

    check: str
    subject: str
    wrong: str
    change: str

    def __str__(self) -> str:
        return f"{self.subject}, {self.check}: {self.wrong}. {self.change}."


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold."""

    name: str
    """Lower case, with hyphens."""

    proves: str
    """What holds if nothing is found."""

    look: Callable[[Case], Iterable[Flaw]]
    """Yields what is wrong."""

    needs: str = ""
    """What must be known of the tool: a key of ``LACKS``; empty for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of all checks of one tool."""

    subject: str
    held: tuple[str, ...]
    """Checks that ran and found nothing."""

    findings: tuple[Finding, ...] = ()
    """What is wrong."""

    not_run: Mapping[str, str] = field(default_factory=dict)
    """Check -> what to declare, so that it can run."""

    @property
    def waiting(self) -> dict[str, list[str]]:
        """What to declare -> the checks that wait for it."""
        waiting = defaultdict(list)
        for name, lacks in self.not_run.items():
            waiting[lacks].append(name)
        return dict(waiting)

    def row(self) -> dict[str, Any]:
        """Return what ``domains check --json`` prints of it."""
        return {
            "subject": self.subject,
            "ok": not self.findings,
            "held": list(self.held),
            "findings": [{name: getattr(each, name) for name in Finding.__slots__} for each in self.findings],
            "not_run": dict(self.not_run),
        }


def check(case: Case, checks: "Sequence[Check] | None" = None) -> Report:
    """Run every check, or these, on one tool."""
    held: list[str] = []
    findings: list[Finding] = []
    not_run: dict[str, str] = {}
    for each in CHECKS if checks is None else checks:
        lacks = case.missing(each.needs)
        if lacks is not None:
            not_run[each.name] = lacks
            continue
        found = [
            Finding(check=each.name, subject=case.name, wrong=wrong, change=change)
            for wrong, change in dict.fromkeys(each.look(case))
        ]
        findings += found
        if not found:
            held.append(each.name)
    return Report(subject=case.name, held=tuple(held), findings=tuple(findings), not_run=not_run)


# The tool.


def no_return_direct(case: Case) -> Iterator[Flaw]:
    """Find the static flag."""
    if case.tool.return_direct:
        yield (
            "return_direct is set: it ends the run after a failure as well",
            "Remove it: `stop` in the artifact says, for each call, whether the run ends",
        )


def two_audiences(case: Case) -> Iterator[Flaw]:
    """Find a tool that has no place for an artifact."""
    if case.tool.response_format != "content_and_artifact":
        yield (
            "it answers with a text alone, so the router learns nothing",
            'Declare response_format="content_and_artifact" and return Outcome(...).as_tool_result()',
        )


def can_be_prepared(case: Case) -> Iterator[Flaw]:
    """Find what ``prepare`` refuses, and declarations that name no argument."""
    try:
        prepare([case.tool])
    except ValueError as error:
        if "return_direct" not in str(error):  # a check of its own
            wrong, _, change = str(error).partition(": ")
            yield wrong, change[:1].upper() + change[1:]
    said = case.tool.metadata or {}
    names = [*(said.get("free_text") or ()), *([said["amount"]] if said.get("amount") else [])]
    for name in names:
        if name not in case.tool.args:
            yield (
                f"it declares {name!r}, which is none of its arguments",
                f"Name one of {', '.join(case.tool.args) or 'them'} in metadata['free_text'] or ['amount']",
            )


def answers(case: Case) -> Iterator[Flaw]:
    """Find calls that raise, and requests that nobody answers."""
    for each in case.ended:
        if each.error is not None:
            yield (
                f"{each.run.label}: it raises {type(each.error).__name__}",
                "Answer with an Outcome: BOOK.classify(Reply.from_exception(error)) reads every SDK's",
            )
        for where in each.unmatched:
            yield f"{each.run.label}: the fake has no route for {where}", "Add the route, or correct the path"


def every_outcome(case: Case) -> Iterator[Flaw]:
    """Find reasons that nothing forces, and calls that end otherwise than they must."""
    declared = {run.reason for run in case.forced}
    for reason in Reason:
        if reason not in declared:
            yield (
                f"nothing makes it end as {reason.value}",
                f"Add {reason.value} to FORCED (metadata['forced'])",
            )
    for each in case.ended:
        if each.message is None or each.run.reason is None:
            continue
        outcome = outcome_of(each.message)
        came = "nothing that the router can use" if outcome is None else outcome.reason.value
        if came != each.run.reason.value:
            row = f" (row {outcome.rule})" if outcome is not None and outcome.rule else ""
            yield (
                f"what must end as {each.run.reason.value} ends as {came}{row}",
                "Correct the table's row, or what is forced",
            )
        if outcome is not None and case.book is not None and outcome.rule == case.book.fallback.id:
            yield (
                f"{each.run.label}: only the fallback knows what the vendor answers",
                f"Write a row for it: it is answered as {outcome.reason.value} by luck",
            )


def words(case: Case) -> Iterator[Flaw]:
    """Find what neither people nor models are to read."""
    for label, message in case.answered:
        text = text_of(message.content) if message.content else ""
        for wrong, change in contract.words(text, message.artifact):
            yield f"{label}: {wrong}", change


def no_secrets(case: Case) -> Iterator[Flaw]:
    """Find planted secrets where somebody reads them."""
    for run in case.planted:
        ended = run_bare(run)
        said = {"the log or the output": ended.said}
        if ended.message is not None:
            said["the content"] = str(ended.message.content)
            said["the artifact"] = repr(ended.message.artifact)
        for where, text in said.items():
            if any(secret in text for secret in case.secrets):
                yield (
                    f"{run.label}: a planted secret stands in {where}",
                    "Keep whitelisted fields of a reply alone: no prose, no URL, no exception's text",
                )


# The runtimes.


class Course(NamedTuple):
    """What one run on one runtime came to."""

    path: tuple[str, ...]
    model_calls: int
    final: str
    reason: str | None
    text: str


def _model(rig: Rig) -> ScriptedModel:
    """Return a model that makes the call, and has something to say if it is asked again."""
    call = AIMessage("", tool_calls=[{"name": rig.tool.name, "args": dict(rig.args), "id": "call_1"}])
    return ScriptedModel(turns=[call], narration=NARRATION)


def _course(run: Run, runtime: Runtime) -> Course:
    rig = run.start()
    model = _model(rig)
    agent = build(runtime, model, [rig.tool], DEFAULT_POLICY)
    path, history = walk(agent, [HumanMessage(ASKED)], use_async=only_async(rig.tool))
    answer = next(message for message in history if isinstance(message, ToolMessage))
    outcome = outcome_of(answer)
    reason = None if outcome is None else outcome.reason.value
    return Course(tuple(path), model.calls, text_of(history[-1].content), reason, text_of(answer.content))


def runtimes_agree(case: Case) -> Iterator[Flaw]:
    """Find runs that end otherwise than the artifact says, or otherwise on the other runtime."""
    for each in case.ended:
        if each.message is None:
            continue
        outcome = outcome_of(each.message)
        stop = outcome is not None and outcome.stop
        courses = {runtime: _course(each.run, runtime) for runtime in RUNTIMES}
        path = ("agent", "tools", "finalize" if stop else "agent")
        for runtime, course in courses.items():
            wanted = (path, 1 if stop else 2, course.text if stop else NARRATION)
            if course[:3] != wanted:
                yield (
                    f"{each.run.label} on {runtime}: {' > '.join(course.path)}, then {course.final!r:.40}",
                    f"Its artifact asks for {' > '.join(path)}: return the same outcome for the same call",
                )
        if len(set(courses.values())) > 1:
            yield (
                f"{each.run.label}: the runtimes disagree",
                "Let nothing in the tool depend on what calls it: state, threads, event loops",
            )


def sync_and_async(case: Case) -> Iterator[Flaw]:
    """Find tools that answer otherwise when awaited."""
    for each in case.ended:
        if each.message is None or only_async(case.tool):
            continue
        awaited = run_bare(each.run, use_async=True)
        if awaited.message is None:
            raised = type(awaited.error).__name__
            yield f"{each.run.label}: awaited, it raises {raised}", "Write the flow once, sans I/O"
        elif _said(each.message) != _said(awaited.message):
            yield f"{each.run.label}: awaited, it answers otherwise", "Write the flow once, sans I/O"


def _said(message: ToolMessage) -> tuple[str, Any]:
    reason = message.artifact.get("reason") if isinstance(message.artifact, dict) else None
    return text_of(message.content), reason


def survives_checkpoints(case: Case) -> Iterator[Flaw]:
    """Find answers that a checkpoint changes, or that cannot be saved at all."""
    change = "Put plain JSON values alone into the artifact, and text alone into the content"
    for each in case.ended:
        if each.message is None:
            continue
        try:
            before, after = _saved(each.run)
        except Exception as error:
            yield f"{each.run.label}: saving it raises {type(error).__name__}, after the work", change
            continue
        as_json = json.loads(json.dumps(messages_to_dict(after), default=str))
        decisions = [decide(history) for history in (before, after, as_json)]
        same = before[-1].artifact == after[-1].artifact
        if not same or len({(each.route, each.rule, each.text) for each in decisions}) > 1:
            yield f"{each.run.label}: what comes back from a checkpoint is something else", change


def _saved(run: Run) -> tuple[list[Any], list[Any]]:
    """Return a history up to the tool's answer, as it was and as a checkpoint gives it back."""
    rig = run.start()
    agent = build_graph(_model(rig), [rig.tool], checkpointer=InMemorySaver(), strict=True)
    config: Any = {"configurable": {"thread_id": "check"}}
    start: Any = {"messages": [HumanMessage(ASKED)]}
    came = asyncio.run(agent.ainvoke(start, config)) if only_async(rig.tool) else agent.invoke(start, config)
    return came["messages"][:3], agent.get_state(config).values["messages"][:3]


# The work.


@dataclass(slots=True)
class _Places:
    """Flaws by what is wrong; each with the places where it was seen."""

    seen: dict[Flaw, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, wrong: str, change: str, where: str) -> None:
        """Note a flaw."""
        self.seen[wrong, change].append(where)

    def flaws(self) -> Iterator[Flaw]:
        """Yield each flaw once, with the first places."""
        for (wrong, change), where in self.seen.items():
            more = f" and {len(where) - SHOWN} more" if len(where) > SHOWN else ""
            yield f"{wrong}: {', '.join(where[:SHOWN])}{more}", change


def once(case: Case) -> Iterator[Flaw]:
    """Find work that is done twice, or that nobody counts."""
    rig = _bench(case, ())
    first, fake = outcome_of(call(rig)), _fake(rig)
    if first is None or first.reason is not Reason.COMPLETED:
        ends = "unusable" if first is None else first.reason.value
        yield f"the sample ends as {ends} on a sound wire", "Declare a call that does what is asked"
        return
    if fake.done() == 0:
        if first.effect is Effect.APPLIED:
            yield (
                "the call says that it changed something, and the fake counts nothing",
                f"Write {type(fake).__name__}.done(): how many things were changed for good",
            )
        return
    for pause in (0, 25):
        fake.advance(hours=pause)
        again = outcome_of(call(rig))
        when = "a day later" if pause else "at once"
        if fake.done() > 1:
            yield (
                f"the same call again, {when}, does the work twice",
                "Look for the work before you send it, and send an idempotency key if the vendor takes one",
            )
            return
        if again is None or again.reason is not Reason.COMPLETED:
            yield (
                f"the same call again, {when}, ends as {'unusable' if again is None else again.reason.value}",
                "Answer with what was done the first time (evidence: already_applied)",
            )


def one_key(case: Case) -> Iterator[Flaw]:
    """Find writes that cannot be tied together, and keys that tell what they are about."""
    rig = _bench(case, ())
    call(rig)
    outcomes = [outcome_of(message) for _, message in case.answered]
    keys = dict.fromkeys(outcome.key for outcome in outcomes if outcome is not None)
    if _fake(rig).done() and (None in keys or len(keys) > 1):
        yield (
            f"calls about one thing have {len(keys)} keys ({', '.join(map(str, keys))})",
            "Set key to one hash of what the call is about: budgets, spend and an unknown effect hang on it",
        )
    for value in rig.args.values():
        if any(isinstance(value, str) and len(value) >= TELLING and value in (key or "") for key in keys):
            yield f"the key holds {value!r}", "Hash it: the key is no place for what the call is about"


def effect_is_true(case: Case) -> Iterator[Flaw]:
    """Find answers that deny what the vendor did: every fault, at every request, then the call again."""
    rig = _bench(case, ())
    first = outcome_of(call(rig))
    writes = _fake(rig).done() > 0 or (first is not None and first.effect is not Effect.NONE)
    places = _Places()
    # Up to a single fault all goes as on a sound wire: there are no other requests to disturb.
    for fault, lands in _schedule(len(_fake(rig).requests)):
        when = f"late, after call {lands}" if lands else fault.when
        where = f"{fault.kind} at request {fault.nth} ({when})"
        under = _bench(case, (fault,))
        try:
            (_writing if writes else _reading)(under, where, places, lands)
        except Exception as error:
            places.add(
                f"it raises {type(error).__name__}", "Answer with an Outcome, whatever the wire does", where
            )
    yield from places.flaws()


def _bench(case: Case, faults: Sequence[Fault]) -> Rig:
    assert case.bench is not None  # the check needs one
    return case.bench(faults)


def _fake(rig: Rig) -> Vendor:
    assert rig.fake is not None  # a bench has one
    return rig.fake


def _schedule(requests: int) -> Iterator[tuple[Fault, int]]:
    """Yield every single fault, and after which call its late work lands; 0 is during the next request."""
    for nth in range(1, requests + 1):
        for kind, when in PAIRS:
            yield Fault(kind=kind, when=when, nth=nth), 0
            if when == "late":
                for lands in (1, 2):
                    yield Fault(kind=kind, when=when, nth=nth, delay=NEVER), lands


def _reading(rig: Rig, where: str, places: _Places, lands: int) -> None:
    del lands  # nothing of a read can land
    outcome = outcome_of(call(rig))
    if outcome is None:
        places.add("nothing that the router can use", "Return Outcome(...).as_tool_result()", where)
    elif outcome.effect is not Effect.NONE:
        places.add(
            f"a read says that its effect is {outcome.effect.value}", "Say writes=False in the book", where
        )


def _writing(rig: Rig, where: str, places: _Places, lands: int) -> None:
    fake = _fake(rig)
    outcome = outcome_of(call(rig))
    if outcome is None:
        places.add("nothing that the router can use", "Return Outcome(...).as_tool_result()", where)
        return
    if outcome.reason is Reason.COMPLETED and outcome.stop and not fake.done():
        places.add("success before the work is done", "Ask for the field of the body that proves it", where)
    if lands == 1:
        fake.settle()
    if fake.done() and outcome.effect is Effect.NONE:
        places.add(
            "the effect is none, and the work was done",
            "Leave the effect to the status: after a lost answer it is unknown, unless a look says more",
            where,
        )
    for nth in range(2, 2 + ROUNDS):
        if outcome is not None and outcome.reason is Reason.COMPLETED and nth > lands + 1:
            break
        outcome = outcome_of(call(rig))
        if nth == lands:
            fake.settle()
    fake.settle()
    if fake.done() > 1:
        places.add("the call again does the work twice", "Look for the work before you send it again", where)
    elif outcome is None or outcome.reason is not Reason.COMPLETED or not fake.done():
        places.add(
            f"the fault is over, and {ROUNDS} calls later the work is not done",
            "Let a lost answer be transient, and find the work that an earlier call has begun",
            where,
        )


def _table(name: str, proves: str, look: OfTable) -> Check:
    return Check(name, proves, lambda case: [] if case.book is None else look(case.book), "book")


def _artifact(name: str, proves: str, look: OfArtifact) -> Check:
    def every(case: Case) -> Iterator[Flaw]:
        for label, message in case.answered:
            for wrong, change in look(message.artifact):
                yield f"{label}: {wrong}", change

    return Check(name, proves, every, "sample")


CHECKS: Final[tuple[Check, ...]] = (
    _table("ids-unique", "every row has a name of its own", contract.ids_unique),
    _table("one-fallback", "the last row alone matches everything", contract.one_fallback),
    _table("no-dead-row", "no row stands behind one that takes its replies", contract.no_dead_row),
    _table("argued", "every row has its argument and its source", contract.argued),
    _table("sentences", "no row says control words, codes, markup or orders", contract.sentences),
    _table("every-exception", "every exception of httpx is an outcome", contract.every_exception),
    _table("proof-of-success", "an empty or strange 2xx is no success", contract.proof_of_success),
    Check("no-return-direct", "no static flag ends the run", no_return_direct),
    Check("two-audiences", "content and artifact part", two_audiences),
    Check("can-be-prepared", "any runtime can run it", can_be_prepared),
    Check("answers", "no call raises", answers, "sample"),
    _artifact("plain-json", "the artifact is plain JSON", contract.plain_json),
    _artifact("version-1", "the artifact is one of version 1", contract.version_one),
    _artifact("no-own-keys", "no key or boolean that only one tool has", contract.no_own_keys),
    Check("words", "people read no control words, flags, codes or markup", words, "sample"),
    Check("every-outcome", "all four reasons can be forced", every_outcome, "forced"),
    Check("no-secrets", "no planted secret comes out", no_secrets, "secrets"),
    Check("sync-and-async", "awaited, it answers the same", sync_and_async, "sample"),
    Check("runtimes-agree", "both runtimes do what the artifact says", runtimes_agree, "runtime"),
    Check("checkpoints", "a checkpoint changes nothing", survives_checkpoints, "runtime"),
    Check("one-key", "all calls about one thing have one key", one_key, "bench"),
    Check("once", "the same call does its work once", once, "bench"),
    Check("effect-is-true", "under no fault is denied what was done", effect_is_true, "bench"),
)
"""Every check, the cheapest first."""
