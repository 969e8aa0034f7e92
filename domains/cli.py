"""The command line. Frameworks are imported by the verbs that need them, so the others answer at once."""

import json
import os
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from enum import StrEnum
from fnmatch import fnmatchcase
from inspect import cleandoc
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeAlias, TypeVar

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from domains.found import DOMAINS, scenarios
from orchestration.router import StopMode, StopPolicy

if TYPE_CHECKING:
    from domains.check import Report
    from domains.compare import Compared
    from domains.explain import Read
    from domains.mapping import RuleBook
    from domains.runner import Played
    from domains.scenario import Scenario

app: Final = typer.Typer(
    name="domains",
    help="Play, explain and extend the domains: what a vendor answers, and what the agent does about it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
# A vendor's ":x:" is no emoji of ours.
err: Final = Console(stderr=True, emoji=False)
out: Final = Console(emoji=False)

PIPE: Final = 120
"""Columns of what is piped."""

USAGE: Final = 2
"""Exit code of a call that cannot be carried out as it stands."""

FEW: Final = 2
"""Rows in a run that are shown one by one although the reply's status rules them out."""

LONGEST_WHEN: Final = 160
"""Characters of a row's condition that a table shows."""


@app.callback()
def _app() -> None:
    """Give a pipe a width: it has none of its own, and 80 columns would break every row."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        out.width = PIPE


class OnRuntime(StrEnum):
    """Where to play."""

    GRAPH = "graph"
    AGENT = "agent"
    BOTH = "both"


class OneRuntime(StrEnum):
    """Where to talk."""

    GRAPH = "graph"
    AGENT = "agent"


Live: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--live", help="Ask Groq in place of the script; needs GROQ_API_KEY. The vendors stay fakes."
    ),
]
Model: TypeAlias = Annotated[
    str | None,
    typer.Option(help="The Groq model to ask with --live.", show_default="openai/gpt-oss-120b"),
]


@app.command("list")
def list_() -> None:
    """List the domains and their scenarios."""
    for name, domain in DOMAINS.items():
        own = domain.scenarios
        out.print(f"[bold]{name}[/]: tool {domain.sample.tool}, {len(own)} scenarios")
        _print_scenarios(own)
    rest = [scenario for scenario in scenarios().values() if scenario.id.split("/")[0] not in DOMAINS]
    out.print(f"[bold]across domains[/]: {len(rest)} scenarios")
    _print_scenarios(rest)


def _print_scenarios(found: "Sequence[Scenario]") -> None:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(ratio=1)
    for scenario in found:
        table.add_row(scenario.id, escape(scenario.about))
    out.print(table)


@app.command()
def run(
    globs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GLOB",
            help="Ids or globs ('checkout/*'); a domain's name stands for its own. None: all of them.",
        ),
    ] = None,
    runtime: Annotated[OnRuntime, typer.Option(help="Which runtime plays them.")] = OnRuntime.GRAPH,
    mode: Annotated[
        StopMode,
        typer.Option(help="What a stop does: end the run, have good news reworded, or ask the model."),
    ] = StopMode.HARD,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array and nothing else.")] = False,
    live: Live = False,
    model: Model = None,
) -> None:
    """Play scenarios and compare what happens with what must happen. Exits 1 on a surprise.

    They are written for mode hard. In never, each stop must go back to the model, whose words then end
    the turn. In polish, good news must cost a call more and keep every number.
    """
    chosen = _chosen(globs or [])
    asked = _groq(model, live=live)
    runtimes = ["graph", "agent"] if runtime is OnRuntime.BOTH else [runtime.value]
    played: list[Played] = []
    refused = _until_refused(_play(chosen, runtimes, asked, quiet=as_json, mode=mode), played)
    if as_json and (played or not refused):
        typer.echo(json.dumps([one.row() for one in played], ensure_ascii=False, indent=2))
    elif played:
        _print_played(played, live=live)
    for one in played:
        for surprise in one.surprises:
            err.print(f"[red]{one.scenario} on {one.runtime}[/]: {escape(surprise)}", soft_wrap=True)
    if refused:
        _refuse(refused)
    raise typer.Exit(0 if all(one.ok for one in played) else 1)


@app.command()
def explain(
    domain: Annotated[str, typer.Argument(help="Whose table; 'infrastructure' for a vendor nobody mapped.")],
    file: Annotated[
        str,
        typer.Argument(
            help="A log of replies, a JSON object a line, or one `curl -i` response; - reads stdin."
        ),
    ] = "-",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a reply.")] = False,
    summary: Annotated[
        bool, typer.Option("--summary", help="Count by row, and list what no row knew.")
    ] = False,
) -> None:
    """Say what a table makes of raw replies, row by row. Exits 2 if a line cannot be read."""
    from domains import explain as tables

    book = _book(domain)
    found = list(tables.read(_text(file)))
    if not found:
        _refuse("there is no reply to explain: give a JSON object a line, or one `curl -i` response.")
    good = [each for each in found if isinstance(each, tables.Read)]
    if summary:
        counted = tables.summary(book, [each.reply for each in good])
        typer.echo(json.dumps(counted, ensure_ascii=False)) if as_json else _print_summary(counted)
    elif as_json:
        for each in good:
            typer.echo(json.dumps(tables.answer(book.classify(each.reply)), ensure_ascii=False))
    else:
        for each in good:
            _print_explained(book, each)
    broken = [each for each in found if isinstance(each, tables.Broken)]
    for line in broken:
        err.print(f"[red]line {line.line}[/]: {escape(line.because)}", soft_wrap=True)
    raise typer.Exit(USAGE if broken else 0)


@app.command()
def rules(
    domain: Annotated[str | None, typer.Argument(help="Whose table. All of them if none is given.")] = None,
    as_md: Annotated[bool, typer.Option("--md", help="Print Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: table -> rows.")] = False,
) -> None:
    """Show the tables: which replies, which reason, what people read, and the argument for it."""
    from domains import explain as tables

    if domain is not None:
        _book(domain)
    names = [domain] if domain else [*DOMAINS, tables.UNMAPPED]
    found = {name: tables.table_rows(name) for name in names}
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, indent=2))
        return
    for name, rows in found.items():
        if as_md:
            typer.echo(_markdown(name, rows))
        else:
            _print_rules(name, rows)


@app.command()
def compare(
    globs: Annotated[
        list[str] | None,
        typer.Argument(metavar="GLOB", help="Which scenarios, as for `run`. None: all of them."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    live: Live = False,
    model: Model = None,
) -> None:
    """Play scenarios in five wirings, from the plain loop to the router, side by side.

    With --live, a real model is asked in all of them: some 12 calls a scenario. Exits 1 if a scenario does
    not go as written in mode hard, 2 if Groq did not answer; what was compared until then is printed.
    """
    chosen = _chosen(globs or [])
    asked = _groq(model, live=live)
    compared: list[Compared] = []
    refused = _until_refused(_compared(chosen, asked, quiet=as_json), compared)
    name = asked.model_name if live else None
    if as_json and (compared or not refused):
        from domains.compare import as_dict

        typer.echo(json.dumps(as_dict(compared, model=name), ensure_ascii=False, indent=2))
    elif compared:
        _print_compared(compared, model=name)
    if refused:
        _refuse(refused)
    raise typer.Exit(_surprises(compared))


@app.command()
def report(
    globs: Annotated[
        list[str] | None,
        typer.Argument(metavar="GLOB", help="Which scenarios, as for `run`. None: all of them."),
    ] = None,
    to: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="Where to write; - is stdout.")
    ] = "report.html",
) -> None:
    """Write one HTML page: what was said, what was decided and why, and what routing saves.

    Exits 1 if a scenario does not go as written.
    """
    chosen = _chosen(globs or [])
    compared = list(_compared(chosen, None, quiet=False))
    played = list(_play(chosen, ["graph"], None, quiet=False))
    from domains.report import page

    html = page(chosen, played, compared)
    try:
        typer.echo(html, nl=False) if to == "-" else Path(to).write_text(html, "utf-8", newline="\n")
    except OSError as error:
        _refuse(f"cannot write {to}: {error.strerror}.")
    if to != "-":
        err.print(
            f"Wrote {escape(to)}: {len(html.encode()) // 1024} KiB, opens without a network.", soft_wrap=True
        )
    for one in played:
        for surprise in one.surprises:
            err.print(f"[red]{one.scenario}[/]: {escape(surprise)}", soft_wrap=True)
    raise typer.Exit(0 if all(one.ok for one in played) else 1)


@app.command()
def check(
    subjects: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME|MODULE:TOOL",
            help="Domains, or tools of your own (or functions that return tools). None: all domains.",
        ),
    ] = None,
    args: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Arguments of one ordinary call of a MODULE:TOOL, in place of its metadata['sample']. It is "
            "called several times: point it at a fake or a sandbox.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array and nothing else.")] = False,
) -> None:
    """Hold tools against the contract, and say what to change. Exits 1 if there is something.

    What cannot be checked is named, with what a tool must declare for it.
    """
    sample = None if args is None else _arguments(args)
    from domains.cases import Refused, cases
    from domains.check import check as check_

    try:
        found = [case for each in subjects or DOMAINS for case in cases(each, sample)]
    except Refused as error:
        _refuse(str(error))
    reports = [check_(case) for case in found]
    if as_json:
        typer.echo(json.dumps([each.row() for each in reports], ensure_ascii=False, indent=2))
    else:
        for each in reports:
            _print_checked(each)
    raise typer.Exit(1 if any(each.findings for each in reports) else 0)


def _arguments(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError as error:
        _refuse(f"--args is no JSON ({error}).")
    if not isinstance(read, dict):
        _refuse("--args must be a JSON object: name -> value.")
    return read


def _print_checked(report: "Report") -> None:
    from domains.check import CHECKS

    wrong = len(report.findings)
    said = (
        "[red]1 finding[/]" if wrong == 1 else f"[red]{wrong} findings[/]" if wrong else "[green]all hold[/]"
    )
    rest = f", [yellow]{len(report.not_run)} not run[/]" if report.not_run else ""
    out.print(
        f"[bold]{escape(report.subject)}[/]: {len(report.held)} of {len(CHECKS)} checks hold, {said}{rest}"
    )
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold", ratio=1)
    for each in CHECKS:
        if each.name in report.held:
            table.add_row("[green]ok[/]", each.name, each.proves)
        for finding in report.findings:
            if finding.check == each.name:
                text = f"{escape(finding.wrong)}.\n[bold]{escape(finding.change)}.[/]"
                table.add_row("[red]NO[/]", each.name, text)
    out.print(table)
    for lacks, names in report.waiting.items():
        text = f" [yellow]--[/] [cyan]{', '.join(names)}[/]: not run. Declare {escape(lacks)}."
        out.print(text, soft_wrap=True)


@app.command()
def chat(
    thread: Annotated[str, typer.Option(help="Which conversation; the same id goes on with it.")] = "default",
    live: Live = False,
    runtime: Annotated[OneRuntime, typer.Option(help="Which runtime runs it.")] = OneRuntime.GRAPH,
    store: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="The SQLite file that keeps it.",
            show_default="domains/chat.sqlite in $XDG_STATE_HOME, or %LOCALAPPDATA%",
        ),
    ] = None,
) -> None:
    """Talk in the terminal, and go on after a restart. Exits 1 if a turn had no answer.

    Ctrl-C stops a turn and keeps the conversation, Ctrl-D ends it. The vendors are fakes, and remember.
    """
    if not thread.strip():
        _refuse("--thread needs an id.")
    model = _groq(None, live=live)
    from domains.chat import INSTALL, KNOWN, Chat, Clerk, can_keep, default_store

    keeps = can_keep()
    if store is not None and not keeps:
        _refuse(f"--store needs an extra: {INSTALL}")
    path = (store or default_store()) if keeps else None
    where = f"kept in {path}" if path else f"not kept: {INSTALL} makes it survive a restart"
    err.print(f"thread {thread}, {where}", style="dim", markup=False, highlight=False, soft_wrap=True)
    if model is None:
        err.print(f"a script answers: {KNOWN}", style="dim", markup=False, highlight=False, soft_wrap=True)
    talk = Chat(thread=thread, runtime=runtime.value, store=path, model=model or Clerk(), out=out, err=err)
    try:
        answered = talk.run()
    except (sqlite3.Error, OSError) as error:
        _refuse(f"cannot use {path}: {error}.")
    raise typer.Exit(0 if answered else 1)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The domain's name, and its tool's: a lower-case word.")],
    vendor: Annotated[
        str | None, typer.Option(help="The vendor's name.", show_default="the domain's name")
    ] = None,
    path: Annotated[
        str | None, typer.Option(help="What the tool asks at the vendor.", show_default="/v1/NAME")
    ] = None,
) -> None:
    """Write a new domain: its folder, the vendor's fake and a test file. Overwrites nothing.

    It runs at once; one of its tests fails, and names the next step.
    """
    from domains.new import Refused
    from domains.new import new as new_

    try:
        written = new_(name, vendor=vendor, path=path, root=Path.cwd())
    except Refused as refused:
        _refuse(str(refused))
    except OSError as error:
        _refuse(f"cannot write {error.filename}: {error.strerror}.")
    for file in written:
        out.print(f"[green]wrote[/] {file.as_posix()}", highlight=False)
    out.print(f"Next: domains run {name}; pytest tests/test_{name}.py says what to replace.", soft_wrap=True)


def _book(name: str) -> "RuleBook":
    from domains import explain as tables

    try:
        return tables.book(name)
    except KeyError as error:
        _refuse(str(error.args[0]))


def _text(file: str) -> str:
    if file == "-" and sys.stdin.isatty():
        err.print("Reading replies from the terminal; Ctrl-D ends it (Windows: Ctrl-Z, Enter).")
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        _refuse(f"cannot read {file}: {error.strerror}.")
    # PowerShell's > writes UTF-16.
    return raw.decode("utf-16" if raw[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig", "replace")


def _print_explained(book: "RuleBook", each: "Read") -> None:
    outcome = book.classify(each.reply)
    came = each.reply.status or type(each.reply.error).__name__
    end = "stops" if outcome.stop else "the model decides"
    out.print(
        f"[bold]line {each.line}: {came}[/] -> {_coloured(outcome.reason.value)}, {end}: {outcome.rule}",
        soft_wrap=True,
    )
    for admitted, group in groupby(
        book.explain(each.reply), lambda row: row[0].when.admits(each.reply.status)
    ):
        rows = list(group)
        if not admitted and len(rows) > FEW:
            which = "responses" if each.reply.status is None else "other statuses"
            out.print(f"  [dim]no  {rows[0][0].id} to {rows[-1][0].id}: {len(rows)} rows for {which}[/]")
            continue
        for rule, mismatch in rows:
            mark = "[green]yes[/]" if mismatch is None else "[dim]no [/]"
            said = f"  [dim]{escape(mismatch)}[/]" if mismatch else ""
            out.print(f"  {mark} {rule.id}{said}", soft_wrap=True)
    rule = book[outcome.rule]
    wait = "not said" if outcome.retry_after_s is None else f"{outcome.retry_after_s} s"
    for name, value in {
        "reads": outcome.content,
        "why": rule.why,
        "source": rule.source,
        "effect": outcome.effect.value,
        "wait": wait,
        "code": outcome.vendor_code or "none",
    }.items():
        out.print(f"  [bold]{name:<7}[/]{escape(value)}", soft_wrap=True)
    out.print()


def _print_summary(counted: dict[str, Any]) -> None:
    table = Table("row", "reason", box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("count", justify="right")
    for row in counted["rows"]:
        table.add_row(row["rule"], _coloured(row["reason"]), str(row["count"]))
    out.print(f"[bold]Replies: {counted['replies']}[/]", table)
    if not counted["unmapped"]:
        out.print("Nothing fell to the fallback.")
        return
    table = Table("status", "reply", box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("count", justify="right")
    for row in counted["unmapped"]:
        table.add_row(row["status"], escape(row["reply"]) or "[dim]nothing[/]", str(row["count"]))
    out.print("[bold]No row knew these; map them next:[/]", table)


def _print_rules(name: str, rows: list[dict[str, Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1, 1, 0))
    table.add_column("row and reason", no_wrap=True)
    for column in ("when", "what people read", "why"):
        table.add_column(column, overflow="fold", ratio=1)
    for row in rows:
        table.add_row(
            f"[cyan]{row['id']}[/]\n{_coloured(row['reason'])}",
            *(escape(text) for text in (_short(row["when"]), row["say"], row["why"])),
        )
    out.print(f"[bold]{name}[/]: {len(rows)} rows, the first that matches decides", table)


def _short(when: str) -> str:
    """Shorten a list of codes: the whole of it is in the table's source and in --json."""
    return shorten(when, LONGEST_WHEN, placeholder=" ...")


def _markdown(name: str, rows: list[dict[str, Any]]) -> str:
    def cell(text: str) -> str:
        return re.sub(r"[\\|<*`\[\]]", r"\\\g<0>", text.replace("\n", " "))

    lines = [f"### {name}", "", "| row | reason | when | what people read | why |", "|---|---|---|---|---|"]
    for row in rows:
        why = f"{cell(row['why'])} ([source]({row['source']}))"
        lines.append(
            f"| `{row['id']}` | {row['reason']} | {cell(_short(row['when']))} | {cell(row['say'])} | {why} |"
        )
    return "\n".join([*lines, ""])


def _play(
    chosen: "Sequence[Scenario]",
    runtimes: list[str],
    asked: Any,
    *,
    quiet: bool,
    mode: StopMode = StopMode.HARD,
) -> "Iterator[Played]":
    from rich.progress import MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("playing"), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True, disable=quiet or not err.is_terminal) as progress:
        task = progress.add_task("loading the runtimes", total=len(chosen) * len(runtimes))
        from domains.runner import play

        policy = StopPolicy(mode=mode)
        for scenario in chosen:
            for runtime in runtimes:
                progress.update(task, description=scenario.id)
                yield play(scenario, runtime, policy=policy, live=asked)  # type: ignore[arg-type]
                progress.advance(task)


T = TypeVar("T")


def _until_refused(found: Iterator[T], kept: list[T]) -> str | None:
    """Keep what is found; return how a real model refused to go on, if it did."""
    try:
        kept.extend(found)  # what came before an error stays
    except Exception as error:
        from groq import GroqError

        if not isinstance(error, GroqError):
            raise
        status = getattr(error, "status_code", None)
        said = "could not be asked" if status is None else f"answered {status}"
        rest = " What was played before that is shown." if kept else ""
        return f"Groq {said} ({type(error).__name__}).{rest}"  # its own text may name an organisation
    return None


def _chosen(globs: Sequence[str]) -> "list[Scenario]":
    known = scenarios()
    picked: dict[str, Scenario] = {}
    for glob in globs or ["*"]:
        pattern = f"{glob}/*" if any(name.startswith(f"{glob}/") for name in known) else glob
        found = {name: each for name, each in known.items() if fnmatchcase(name, pattern)}
        if not found:
            names = [*known, *DOMAINS]
            near = get_close_matches(glob, names, n=3, cutoff=0.4)
            hint = f" Did you mean {', '.join(near)}?" if near else ""
            _refuse(f"no scenario matches {glob!r}.{hint} `domains list` shows all of them.")
        picked |= found
    return list(picked.values())


def _groq(model: str | None, *, live: bool) -> Any:
    if model and not live:
        _refuse("--model goes with --live.")
    if not live:
        return None
    if not os.environ.get("GROQ_API_KEY", "").strip():
        _refuse("--live needs GROQ_API_KEY: set it to a key from your Groq console, or leave --live out.")
    from domains.runner import groq

    return groq(model)


def _refuse(message: str) -> NoReturn:
    err.print(f"[red]domains:[/] {escape(message)}", soft_wrap=True)
    raise typer.Exit(USAGE)


def _coloured(reason: str | None) -> str:
    return f"[{_COLOURS.get(reason or '', 'white')}]{reason or 'unusable'}[/]"


_COLOURS: Final = {"completed": "green", "transient": "yellow", "fatal": "red", "policy_block": "magenta"}


def _print_played(played: "Sequence[Played]", *, live: bool) -> None:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1, 1, 0))
    table.add_column("")
    table.add_column("scenario, runtime and path", min_width=min(40, out.width - 55))
    table.add_column("reason and rule of each call", overflow="fold")
    table.add_column("model\ncalls", justify="right", min_width=5)
    table.add_column(
        "tokens\nin+out" if live else "tokens\napprox.", justify="right", no_wrap=True, min_width=8
    )
    for one, runtimes in _merged(played):
        tokens = "unknown" if None in one.tokens.values() else f"{one.tokens['input']}+{one.tokens['output']}"
        table.add_row(
            "[green]ok[/]" if one.ok else "[red]NO[/]",
            f"[cyan]{one.scenario}[/]\n[dim]{runtimes}:[/] {' > '.join(one.path)}",
            "\n".join(f"{_coloured(r)} {rule or ''}" for r, rule in zip(one.reasons, one.rules, strict=True)),
            str(one.model_calls),
            tokens,
        )
    out.print(table)
    wrong = sum(not one.ok for one in played)
    said = f", [red]{wrong} not[/]" if wrong else ""
    out.print(f"{len(played)} played, {len(played) - wrong} as written{said}.")


def _merged(played: "Sequence[Played]") -> "Iterator[tuple[Played, str]]":
    """Yield one line for both runtimes where they gave the same row, as they must."""
    by_id: dict[str, list[Played]] = {}
    for one in played:
        by_id.setdefault(one.scenario, []).append(one)
    for same in by_id.values():
        if len({json.dumps(one.row() | {"runtime": None}) for one in same}) == 1:
            yield same[0], "both" if len(same) > 1 else same[0].runtime
        else:
            yield from ((one, one.runtime) for one in same)


def _compared(chosen: "Sequence[Scenario]", asked: Any, *, quiet: bool) -> "Iterator[Compared]":
    from rich.progress import Progress, TextColumn

    text = TextColumn("comparing {task.description}")
    with Progress(text, console=err, transient=True, disable=quiet or not err.is_terminal) as progress:
        task = progress.add_task("(loading the runtimes)", total=None)
        from domains.compare import compare, compare_live

        def on_play(name: str) -> None:
            progress.update(task, description=name)

        if asked is None:
            yield from compare(chosen, on_play=on_play)
        else:
            yield from compare_live(chosen, asked, on_play=on_play)


def _surprises(compared: "Sequence[Compared]") -> int:
    """Say what did not go as written, and return the exit code."""
    for one in compared:
        for surprise in one.surprises:
            err.print(f"[red]{one.scenario} in {one.wiring}[/]: {escape(surprise)}", soft_wrap=True)
    return int(any(one.surprises for one in compared))


def _print_compared(compared: "Sequence[Compared]", *, model: str | None) -> None:
    from domains.answers import Wrong
    from domains.compare import Wiring, avoided, figures, of_plays

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("")
    for wiring in Wiring:
        table.add_column(wiring.value, justify="right")
    totals = [figures(of_plays(compared, wiring)) for wiring in Wiring]
    for name in ("model_calls", "input_tokens", "output_tokens", "vendor_calls"):
        label = name.replace("_", " ") + (", approx." if "tokens" in name and not model else "")
        table.add_row(label, *("unknown" if each[name] is None else f"{each[name]:,}" for each in totals))
    table.add_section()
    table.add_row("[bold]wrong answers[/]", *(_bad(each["wrong_answers"]) for each in totals))
    for kind in Wrong:
        table.add_row(f"  {kind.value}", *(_bad(each["wrong"][kind.value]) for each in totals))
    out.print(table)

    rows = [compared[at : at + len(Wiring)] for at in range(0, len(compared), len(Wiring))]
    differing = [row for row in rows if len({json.dumps(_cost(each)) for each in row}) > 1]
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("model calls, and what was wrong", no_wrap=True)
    for wiring in Wiring:
        table.add_column(wiring.value, justify="right")
    for row in differing:
        table.add_row(f"[cyan]{row[0].scenario}[/]", *(_cell(each) for each in row))
    out.print(table)
    same = len(rows) - len(differing)
    out.print(
        f"Scenarios: {len(rows)}, {same} of them alike in all wirings. One answer can be wrong in two ways."
    )
    without = avoided(compared, Wiring.HARD)
    tokens = sum(without[name] or 0 for name in ("input_tokens", "output_tokens"))
    known = "unknown" if None in without.values() else f"{tokens:,}"
    how = f"measured with {model}" if model else "counted with the script, tokens approximate"
    out.print(
        f"What hard avoided of the plain loop ({how}): {without['model_calls']:,} of the model calls, "
        f"{known} of the tokens.",
        soft_wrap=True,
    )


def _bad(number: int) -> str:
    return f"[red]{number}[/]" if number else "[dim]0[/]"


def _cost(one: "Compared") -> tuple[int, list[str]]:
    return sum(each.model_calls for each in one.heard), sorted(one.wrong)


def _cell(one: "Compared") -> str:
    calls, wrong = _cost(one)
    return "\n".join([str(calls), *(f"[red]{kind}[/]" for kind in wrong)])


for _verb in app.registered_commands:
    # typer keeps the line breaks of a docstring, which fit no terminal.
    _paragraphs = cleandoc(_verb.callback.__doc__ or "").split("\n\n")
    _verb.help = "\n\n".join(" ".join(each.split()) for each in _paragraphs)
