"""A copy of the project, to change and to run things in."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("domains", "mocks", "orchestration", "tests", "pyproject.toml", "README.md")
ENVIRONMENT = {
    **os.environ,
    "COLUMNS": "110",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "PYTHONDONTWRITEBYTECODE": "",  # each step is a process of its own, and compiling takes most of it
}


def copied(to: Path, *, without: Iterable[str] = (), types: bool = False) -> Path:
    """Copy the project's own files, with their times, so that compiled modules and caches stay good.

    Args:
        to: An empty folder.
        without: Paths to leave out.
        types: Whether to take mypy's cache along, if there is one.
    """
    left_out = {ROOT / each for each in without}
    cache = ROOT / ".mypy_cache"
    for part in (*PARTS, *([cache.name] if types and cache.exists() else [])):
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, to / part, ignore=lambda folder, names: _among(left_out, folder, names))
        else:
            shutil.copy2(source, to / part)
    return to


def _among(left_out: set[Path], folder: str, names: list[str]) -> set[str]:
    return {name for name in names if Path(folder, name) in left_out}


def python(tree: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run ``python -m ...`` in a tree, as its modules stand there."""
    return subprocess.run(  # noqa: S603 - our own commands
        [sys.executable, "-m", *arguments],
        cwd=tree,
        input=given,
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=ENVIRONMENT | {"PYTHONPATH": str(tree)},
    )
