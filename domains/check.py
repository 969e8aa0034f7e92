"""The contract as a kit: what the router relies on, checked for our domains and for anybody's tool.

A check is a small function in the table ``CHECKS``. Each of its findings says what is wrong and what to
change; a check that cannot run says what to declare for it. Nothing passes in silence.

A tool of a stranger's declares in its ``metadata``:

- ``sample``: the arguments of one ordinary call. The kit makes that call several times: give the tool a fake
  or a sandbox to talk to;
- ``forced``: reason -> the arguments that make a call end so;
- ``secrets``: strings planted in its keys and replies, that nobody may read;
- ``book``: its ``RuleBook``, if it has one;
- ``bench``: a function that takes a sequence of ``mocks.vendor.Fault`` and returns the tool over a fresh
  ``mocks.vendor.Vendor`` with these faults scripted, and that vendor. Its ``done()`` is the oracle: how often
  the work was done.
"""

import asyncio
import json
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, partial
from importlib import import_module
from io import StringIO
from typing import Any, Final, NamedTuple

import httpx
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, messages_to_dict
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver

from domains import contract
from domains.contract import Flaw, OfArtifact, OfTable
from domains.found import DOMAINS, Domain, unknown
from domains.mapping import RuleBook
from domains.runner import RUNTIMES, Runtime, build, vendor, walk
from domains.scenario import Forced
from mocks.model import ScriptedModel
from mocks.vendor import PAIRS, Fault, Vendor
from orchestration.graph import build_graph
from orchestration.outcomes import text_of
from orchestration.reasons import Effect, Reason
from orchestration.router import DEFAULT_POLICY, decide, outcome_of
from orchestration.tools import prepare

SECRET: Final = "planted-5ecret-7f3a"  # noqa: S105 - planted, to see where it comes out
ASKED: Final = "Please do it."
NARRATION: Final = "Let me tell you about it."
NEVER: Final = 10**6
"""Requests that no test makes: late work that waits for ``settle``."""

ROUNDS: Final = 2
"""Further calls in which the work must be done once a single fault is over."""

TELLING: Final = 4
"""Characters of an argument that tell something if they stand in a key."""

SHOWN: Final = 3
"""Places that a finding names; the rest is counted."""


class Refused(ValueError):  # noqa: N818 - read as the answer to a command line
    """What was asked cannot be checked; the message says why."""


class Rig(NamedTuple):
    """A tool, ready to be called once."""

    tool: BaseTool
    args: Mapping[str, Any]
    fake: Vendor | None = None
    """What it talks to, if that is one of ours."""


@dataclass(frozen=True, slots=True)
class Run:
    """One call that must end in a known way."""

    label: str
    """For people: what is forced."""

    start: Callable[[], Rig]
    """Returns the tool over a fresh fake, if it can."""

    reason: Reason | None = None
    """How it must end; None if that is not known."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a call of the bare tool."""

    run: Run
    message: ToolMessage | None
    error: Exception | None
    said: str = ""
    """What it logged and printed meanwhile."""

    unmatched: tuple[str, ...] = ()
    """Requests that the fake has no route for."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One tool, and all that is known of it."""

    name: str
    """For people."""

    tool: BaseTool
    """The tool."""

    book: RuleBook | None = None
    """Its table."""

    sample: Run | None = None
    """One ordinary call."""

    forced: tuple[Run, ...] = ()
    """Calls, each with the reason that it must end with."""

    planted: tuple[Run, ...] = ()
    """Calls with secrets in keys, URLs and replies."""

    secrets: tuple[str, ...] = ()
    """Those secrets."""

    bench: Callable[[Sequence[Fault]], Rig] | None = None
    """Returns the sample over a fresh fake on which these faults are scripted."""

    @cached_property
    def ended(self) -> tuple[Ended, ...]:
        """Every call of the bare tool, once."""
        runs = self.forced or ((self.sample,) if self.sample else ())
        return tuple(map(_ended, runs))

    @property
    def answered(self) -> Iterator[tuple[str, ToolMessage]]:
        """The calls that came back, by what was forced."""
        return ((each.run.label, each.message) for each in self.ended if each.message is not None)

    @cached_property
    def can_be_prepared(self) -> bool:
        """Whether a runtime can be built with it at all."""
        try:
            prepare([self.tool])
        except ValueError:
            return False
        return True

    def missing(self, needs: str) -> str | None:
        """Return what must be declared for a check with this need to run; None if it can."""
        if needs == "runtime" and not self.ended:
            needs = "sample"
        have = {
            "": True,
            "book": self.book,
            "sample": self.sample or self.forced,
            "runtime": self.can_be_prepared,
            "forced": self.forced,
            "secrets": self.secrets,
            "bench": self.bench,
        }
        return None if have[needs] else LACKS[needs]


LACKS: Final = {
    "book": "metadata['book']: the tool's RuleBook, if a table of ours decides",
    "sample": "metadata['sample'] (or --args): the arguments of one ordinary call, over a fake or a sandbox",
    "runtime": "nothing more, but correct first what keeps it from being prepared",
    "forced": "metadata['forced']: {reason: arguments}, for each of the four reasons",
    "secrets": "metadata['secrets']: strings that you plant in the tool's keys and replies",
    "bench": "metadata['bench']: faults -> (tool, vendor), the tool over a fresh mocks.vendor.Vendor",
}
"""Need -> what a tool must declare for it."""


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


# What can be checked.


def cases(subject: Any, args: Mapping[str, Any] | None = None) -> list[Case]:
    """Return what there is to check.

    Args:
        subject: A domain's name, a ``module:tool``, a tool, a function that returns tools, or several.
        args: The arguments of an ordinary call, in place of those that the tool declares.

    Raises:
        Refused: There is no such thing, or it is no tool.
    """
    if isinstance(subject, str) and ":" not in subject:
        if subject not in DOMAINS:
            raise Refused(f"{unknown(subject, DOMAINS)} A tool of your own is named module:tool.")
        if args is not None:
            raise Refused("arguments go with a module:tool: a domain has its own SAMPLE.")
        return [_of_domain(DOMAINS[subject])]
    found = _imported(subject) if isinstance(subject, str) else subject
    if callable(found) and not isinstance(found, (BaseTool, type)):
        found = _made(found)
    several = found if isinstance(found, (list, tuple)) else [found]
    if not several or not all(isinstance(each, BaseTool) for each in several):
        kinds = ", ".join(dict.fromkeys(type(each).__name__ for each in several)) or "nothing"
        raise Refused(f"{kinds} is no tool: give a LangChain tool, or a function that returns tools.")
    return [of_tool(each, args) for each in several]


def _made(function: Callable[..., Any]) -> Any:
    try:
        return function()
    except Exception as error:
        name = getattr(function, "__name__", "it")
        raise Refused(
            f"{name}() raised {type(error).__name__}: {error}. Give a tool (put @tool on a function), or a "
            "function without arguments that returns tools."
        ) from error


def _imported(target: str) -> Any:
    module_name, _, name = target.partition(":")
    if "" not in sys.path:  # an installed command does not look where it is called
        sys.path.insert(0, "")
    try:
        module = import_module(module_name)
    except Exception as error:
        raise Refused(f"cannot import {module_name}: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        near = get_close_matches(name, dir(module), n=1)
        raise Refused(f"{module_name} has no {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
    return getattr(module, name)


def of_tool(tool: BaseTool, args: Mapping[str, Any] | None = None) -> Case:
    """Return what a tool of anybody's says of itself in its ``metadata``.

    Raises:
        Refused: What it says is of another form.
    """
    said = tool.metadata or {}
    sample = args if args is not None else said.get("sample")
    forced = said.get("forced") or {}
    if unheard := [str(name) for name in forced if str(name) not in set(Reason)]:
        raise Refused(
            f"{tool.name}: metadata['forced'] names {unheard[0]!r}; reasons are {', '.join(Reason)}"
        )
    for given in [*([] if sample is None else [sample]), *forced.values()]:
        if not isinstance(given, Mapping):
            raise Refused(f"{tool.name}: arguments must be a mapping, not {type(given).__name__}")
    runs = tuple(
        Run(Reason(name).value, partial(Rig, tool, given), Reason(name)) for name, given in forced.items()
    )
    one = None if sample is None else Run("the sample", partial(Rig, tool, sample))
    secrets = tuple(said.get("secrets") or ())
    bench = said.get("bench")
    return Case(
        name=tool.name,
        tool=tool,
        book=said.get("book"),
        sample=one,
        forced=runs,
        planted=(runs or ((one,) if one else ())) if secrets else (),
        secrets=secrets,
        bench=None if bench is None or sample is None else partial(_strangers, bench, sample),
    )


def _strangers(
    bench: Callable[[Sequence[Fault]], tuple[BaseTool, Vendor]],
    sample: Mapping[str, Any],
    faults: Sequence[Fault],
) -> Rig:
    tool, fake = bench(faults)
    return Rig(tool, sample, fake)


def _of_domain(domain: Domain) -> Case:
    forced = tuple(
        Run(reason.value, partial(_rig, domain, settings, answers), reason)
        for reason, (settings, answers) in domain.forced.items()
    )
    planted = [
        Run(f"{reason.value} with secrets", partial(_rig, domain, settings, answers, planting=True))
        for reason, (settings, answers) in domain.forced.items()
    ] + [
        Run(
            f"{fault.status if fault.kind == 'answer' else fault.kind} with secrets",
            partial(_rig, domain, {}, [fault], planting=True),
        )
        for fault in _LEAKY
    ]
    return Case(
        name=domain.name,
        tool=_rig(domain).tool,
        book=domain.book,
        sample=Run("the sample", partial(_rig, domain)),
        forced=forced,
        planted=tuple(planted),
        secrets=(SECRET,),
        bench=_Bench(domain),
    )


_LEAKY: Final = (
    Forced(kind="ConnectError", times=NEVER),
    Forced(kind="ReadTimeout", times=NEVER),
    Forced(kind="InvalidURL", times=NEVER),
    Forced(status=401, body={"error": f"Wrong key: {SECRET}"}, times=NEVER),
    Forced(status=403, body={"error": {"message": SECRET}, "message": SECRET}, times=NEVER),
    Forced(status=422, body={"errors": [{"field": SECRET, "message": SECRET}]}, times=NEVER),
    Forced(status=500, body=f"<html><title>{SECRET}</title></html>", times=NEVER),
)
"""What vendors, proxies and clients put keys and prose into."""


def _rig(
    domain: Domain,
    settings: Mapping[str, Any] | None = None,
    answers: Sequence[Forced] = (),
    *,
    planting: bool = False,
) -> Rig:
    """Return the domain's sample over a fresh fake."""
    key = {"key": SECRET} if planting else {}
    fake = vendor(domain.name, {**(settings or {}), **key}, answers)
    options: dict[str, Any] = {}
    if planting:
        options = {"transport": httpx.MockTransport(partial(_plant, fake)), "params": {_PARAM: SECRET}}
    tools = domain.tools(client=fake.client(**options), async_client=fake.async_client(**options))
    return Rig(_named(tools, domain.sample.tool), domain.sample.args, fake)


class _Bench:
    """A domain's tool, made once: each schedule swaps the fake behind its client."""

    def __init__(self, domain: Domain) -> None:
        self.domain, self.fake = domain, vendor(domain.name)
        client = self.fake.client(transport=httpx.MockTransport(self._answer))
        self.tool = _named(domain.tools(client=client), domain.sample.tool)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        return self.fake.transport.handler(request)  # type: ignore[return-value]  # it is a sync one

    def __call__(self, faults: Sequence[Fault]) -> Rig:
        """Return the sample over a fresh fake."""
        self.fake = vendor(self.domain.name)
        self.fake.script(*faults)
        return Rig(self.tool, self.domain.sample.args, self.fake)


def _named(tools: Sequence[BaseTool], name: str) -> BaseTool:
    return next(tool for tool in tools if tool.name == name)


_PARAM: Final = "api_key"


def _plant(fake: Vendor, request: httpx.Request) -> httpx.Response:
    """Answer as the fake does, with a secret wherever vendors write prose."""
    url = request.url.copy_remove_param(_PARAM)
    bare = httpx.Request(request.method, url, headers=request.headers, content=request.content)
    try:
        response: httpx.Response = fake.transport.handler(bare)  # type: ignore[assignment]  # it is a sync one
    except Exception as error:
        error.args = (f"{error}: {request.url}",)
        raise
    try:
        content = json.dumps(_with_prose(response.json())).encode()
    except ValueError:
        content = response.content
    headers = {**response.headers, "x-planted": SECRET}
    headers.pop("content-length", None)
    return httpx.Response(response.status_code, headers=headers, content=content, request=request)


_PROSE: Final = frozenset(
    {"message", "reason", "detail", "description", "doc_url", "documentation_url", "advice_code"}
)


def _with_prose(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_prose(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: f"{item} {SECRET}" if name in _PROSE and isinstance(item, str) else _with_prose(item)
        for name, item in value.items()
    } | {"planted": SECRET}


# Calls.


def _ended(run: Run, *, use_async: bool = False) -> Ended:
    rig = run.start()
    message, raised = None, None
    with _listening() as said:
        try:
            message = _call(rig, use_async=use_async)
        except Exception as error:
            raised = error
    unmatched = () if rig.fake is None else tuple(rig.fake.unmatched)
    return Ended(run, message, raised, said(), unmatched)


def _call(rig: Rig, *, use_async: bool = False) -> ToolMessage:
    call = {"type": "tool_call", "name": rig.tool.name, "args": dict(rig.args), "id": "call_1"}
    awaited = use_async or _only_async(rig.tool)
    came = asyncio.run(rig.tool.ainvoke(call)) if awaited else rig.tool.invoke(call)
    if not isinstance(came, ToolMessage):
        raise TypeError(f"it answers with a {type(came).__name__}, which directs the graph")
    return came


def _only_async(tool: BaseTool) -> bool:
    return getattr(tool, "func", tool) is None


@contextmanager
def _listening() -> Iterator[Callable[[], str]]:
    """Hear all that is logged and printed, but for httpx's own lines: it logs full URLs by design."""
    heard, printed = _Heard(), StringIO()
    root = logging.getLogger()
    level = root.level
    root.addHandler(heard)
    root.setLevel(logging.DEBUG)
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            yield lambda: "\n".join([*heard.lines, printed.getvalue()])
    finally:
        root.setLevel(level)
        root.removeHandler(heard)


class _Heard(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record as it would be printed."""
        if record.name.partition(".")[0] not in {"httpx", "httpcore", "asyncio"}:
            self.lines.append(self.format(record))


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
        ended = _ended(run)
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
    path, history = walk(agent, [HumanMessage(ASKED)], use_async=_only_async(rig.tool))
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
        if each.message is None or _only_async(case.tool):
            continue
        awaited = _ended(each.run, use_async=True)
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
    only_async = _only_async(rig.tool)
    came = asyncio.run(agent.ainvoke(start, config)) if only_async else agent.invoke(start, config)
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
    first, fake = outcome_of(_call(rig)), _fake(rig)
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
        again = outcome_of(_call(rig))
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
    _call(rig)
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
    first = outcome_of(_call(rig))
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
    outcome = outcome_of(_call(rig))
    if outcome is None:
        places.add("nothing that the router can use", "Return Outcome(...).as_tool_result()", where)
    elif outcome.effect is not Effect.NONE:
        places.add(
            f"a read says that its effect is {outcome.effect.value}", "Say writes=False in the book", where
        )


def _writing(rig: Rig, where: str, places: _Places, lands: int) -> None:
    fake = _fake(rig)
    outcome = outcome_of(_call(rig))
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
        outcome = outcome_of(_call(rig))
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
