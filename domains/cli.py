"""The command line. Frameworks are imported by the verbs that need them, so the others answer at once."""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from domains.found import DOMAINS, scenarios

if TYPE_CHECKING:
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
# A pipe has no width of its own; 80 columns would break every row.
out: Final = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120, emoji=False)

USAGE: Final = 2
"""Exit code of a call that cannot be carried out as it stands."""

FEW: Final = 2
"""Rows in a run that are shown one by one although the reply's status rules them out."""

LONGEST_WHEN: Final = 160
"""Characters of a row's condition that a table shows."""


@app.callback()
def _app() -> None:
    """Keep verbs verbs, even if there is but one."""


class OnRuntime(StrEnum):
    """Where to play."""

    GRAPH = "graph"
    AGENT = "agent"
    BOTH = "both"


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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array and nothing else.")] = False,
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="Ask Groq in place of the script; needs GROQ_API_KEY. The vendors stay fakes."
        ),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(help="The Groq model to ask with --live.", show_default="openai/gpt-oss-120b"),
    ] = None,
) -> None:
    """Play scenarios and compare what happens with what must happen. Exits 1 on a surprise."""
    chosen = _chosen(globs or [])
    if model and not live:
        _refuse("--model goes with --live.")
    asked = _groq(model) if live else None
    runtimes = ["graph", "agent"] if runtime is OnRuntime.BOTH else [runtime.value]
    play = _play_live if live else _play
    played = play(chosen, runtimes, asked, quiet=as_json)
    if as_json:
        typer.echo(json.dumps([one.row() for one in played], ensure_ascii=False, indent=2))
    else:
        _print_played(played, live=live)
    for one in played:
        for surprise in one.surprises:
            err.print(f"[red]{one.scenario} on {one.runtime}[/]: {escape(surprise)}", soft_wrap=True)
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


def _play(chosen: "Sequence[Scenario]", runtimes: list[str], asked: Any, *, quiet: bool) -> "list[Played]":
    from rich.progress import MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("playing"), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True, disable=quiet or not err.is_terminal) as progress:
        task = progress.add_task("loading the runtimes", total=len(chosen) * len(runtimes))
        from domains.runner import play

        played = []
        for scenario in chosen:
            for runtime in runtimes:
                progress.update(task, description=scenario.id)
                played.append(play(scenario, runtime, live=asked))  # type: ignore[arg-type]
                progress.advance(task)
    return played


def _play_live(
    chosen: "Sequence[Scenario]", runtimes: list[str], asked: Any, *, quiet: bool
) -> "list[Played]":
    from groq import GroqError

    try:
        return _play(chosen, runtimes, asked, quiet=quiet)
    except GroqError as error:  # its text may name an organisation
        status = getattr(error, "status_code", None)
        said = "could not be asked" if status is None else f"answered {status}"
        _refuse(f"Groq {said} ({type(error).__name__}).")


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


def _groq(model: str | None) -> Any:
    if not os.environ.get("GROQ_API_KEY", "").strip():
        _refuse("--live needs GROQ_API_KEY: set it to a key from your Groq console, or leave --live out.")
    from langchain_groq import ChatGroq

    from mocks.groq import MODEL

    return ChatGroq(model=model or MODEL, temperature=0)


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
