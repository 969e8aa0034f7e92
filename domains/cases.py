"""What can be checked: a tool, and all that is known of it.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, partial
from importlib import import_module
from io import StringIO
from typing import Any, Final, NamedTuple

import httpx
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from domains.found import DOMAINS, Domain, unknown
from domains.mapping import RuleBook
from domains.runner import vendor
from domains.scenario import Forced
from mocks.vendor import Fault, Vendor
from orchestration.reasons import Reason
from orchestration.tools import prepare

SECRET: Final = "planted-5ecret-7f3a"  # noqa: S105 - planted, to see where it comes out
NEVER: Final = 10**6
"""Requests that no test makes: late work that waits for ``settle``."""


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
        return tuple(map(run_bare, runs))

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


def run_bare(run: Run, *, use_async: bool = False) -> Ended:
    """Call the bare tool once."""
    rig = run.start()
    message, raised = None, None
    with _listening() as said:
        try:
            message = call(rig, use_async=use_async)
        except Exception as error:
            raised = error
    unmatched = () if rig.fake is None else tuple(rig.fake.unmatched)
    return Ended(run, message, raised, said(), unmatched)


def call(rig: Rig, *, use_async: bool = False) -> ToolMessage:
    """Call a tool as a runtime does, and return its answer."""
    made = {"type": "tool_call", "name": rig.tool.name, "args": dict(rig.args), "id": "call_1"}
    awaited = use_async or only_async(rig.tool)
    came = asyncio.run(rig.tool.ainvoke(made)) if awaited else rig.tool.invoke(made)
    if not isinstance(came, ToolMessage):
        raise TypeError(f"it answers with a {type(came).__name__}, which directs the graph")
    return came


def only_async(tool: BaseTool) -> bool:
    """Whether a tool has no sync half."""
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
