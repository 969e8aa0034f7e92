"""What README shows is printed by these, and checked by cog in CI."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import cog  # type: ignore[import-not-found]  # cogapp puts it there while it runs


def shell(command: str, *, lines: int | None = None) -> None:
    """Show a ``domains`` command and what it prints.

    Args:
        command: As a person would type it.
        lines: How many lines of the output to show; the rest is counted.
    """
    printed = _printed(shlex.split(command)[1:])
    shown = [re.sub(r"\s+$", "", line) for line in printed.strip("\n").splitlines()]
    if lines is not None and len(shown) > lines:
        shown = [*shown[:lines], f"... {len(shown) - lines} more lines"]
    cog.outl("\n".join(["```console", f"$ {command}", *shown, "```"]))


def _printed(arguments: list[str]) -> str:
    return subprocess.run(  # noqa: S603 - our own command line
        [sys.executable, "-m", "domains", *arguments],
        capture_output=True,
        check=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "96", "TERM": "dumb", "NO_COLOR": "1"},
    ).stdout


def rules(domain: str, *ids: str) -> None:
    """Show rows of a domain's table."""
    from domains.explain import table_rows

    rows = {row["id"]: row for row in table_rows(domain)}
    cog.outl("| row | reason | what people read | why |\n|---|---|---|---|")
    for name in ids:
        row = rows[name]
        cog.outl(f"| `{name}` | {row['reason']} | {row['say']} | {row['why']} ([source]({row['source']})) |")


def help_of(verb: str) -> None:
    """Show a verb's help text."""
    shell(f"domains {verb} --help")


def verbs() -> None:
    """Show the table of verbs."""
    from domains.cli import app

    cog.outl("| verb | what it does |\n|---|---|")
    for command in app.registered_commands:
        name = command.name or command.callback.__name__  # type: ignore[union-attr]
        cog.outl(f"| `domains {name}` | {(command.callback.__doc__ or '').strip().splitlines()[0]} |")


def compared() -> None:
    """Show what ``domains compare`` counts over all scenarios."""
    found = json.loads(_printed(["compare", "--json"]))["wirings"]
    rows: dict[str, Callable[[Any], Any]] = {
        "model calls": lambda one: one["model_calls"],
        "tokens, approximate": lambda one: f"{one['input_tokens'] + one['output_tokens']:,}",
        "calls to vendors": lambda one: one["vendor_calls"],
        "wrong answers": lambda one: one["wrong_answers"],
    }
    cog.outl(f"| | {' | '.join(f'`{name}`' for name in found)} |")
    cog.outl(f"|---|{'---:|' * len(found)}")
    for name, cell in rows.items():
        cog.outl(f"| {name} | {' | '.join(str(cell(one)) for one in found.values())} |")
