"""README's "Add a tool", step by step, in a copy of the project."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from tests.tree import ROOT, copied, python

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

SECTION = re.compile(r"(?ms)^## Add a tool\n(.*?)^## ")
BLOCK = re.compile(r"(?ms)^```(\w+)\n(.*?)^```")
FAILS = "one test fails"


def blocks() -> list[tuple[str, str]]:
    """Return the section's fenced blocks, in order: language and text."""
    found = SECTION.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    return BLOCK.findall(found[1])


def test_add_a_tool(tmp_path: Path) -> None:
    """A stranger who types what README says has a tool that holds the whole contract."""
    tree = copied(tmp_path)
    taken = [line for language, text in blocks() for line in take(tree, language, text)]

    assert ["new", "run", "pytest", "rules", "explain", "check", "pytest"] == taken
    assert _same(ROOT / "orchestration", tree / "orchestration")
    lint = python(tree, "ruff", "check", "domains/weather", "mocks/weatherly.py", "tests/test_weather.py")
    assert 0 == lint.returncode, lint.stdout


def take(tree: Path, language: str, text: str) -> list[str]:
    """Do what a block says; return the verbs of its commands."""
    if language == "python":
        first, _, code = text.partition("\n")
        file = tree / first.removeprefix("# ")
        file.write_text(edited(file.read_text(encoding="utf-8"), code), encoding="utf-8", newline="\n")
        return []
    assert "console" == language
    return [typed(tree, line) for line in text.splitlines()]


def typed(tree: Path, line: str) -> str:
    """Run a line as a shell would; return its verb."""
    line, _, comment = line.partition("  # ")
    said, _, command = line.rpartition(" | ")
    words = shlex.split(command)
    assert ["uv", "run"] == words[:2], line
    given = shlex.split(said)[1] if said else ""
    done = python(
        tree, *words[2:], *(["-p", "no:cacheprovider"] if words[2] == "pytest" else []), given=given
    )
    assert int(FAILS in comment) == done.returncode, f"{line}\n{done.stdout}{done.stderr}"
    if FAILS in comment:
        assert "1 failed" in done.stdout
        assert "next step: replace" in done.stdout
    if words[3] == "explain":
        assert "policy_block, stops: weather/not-in-plan" in done.stdout
    return words[2] if words[2] == "pytest" else words[3]


def edited(source: str, code: str) -> str:
    """Put each row, and each assignment, in the place of the one of the same id or name."""
    for new in ast.parse(code).body:
        old = next(node for node in ast.walk(ast.parse(source)) if _name(node) == _name(new) is not None)
        start, end = (_offset(source, *at) for at in _span(old))
        lines = (ast.get_source_segment(code, new) or "").splitlines(keepends=True)
        source = source[:start] + (" " * _column(old)).join(lines) + source[end:]
    return source


def _name(node: ast.AST) -> str | None:
    """Return what a row or an assignment is known by."""
    if isinstance(node, ast.Expr):
        node = node.value
    if isinstance(node, ast.Call):
        ids = [word.value for word in node.keywords if word.arg == "id"]
        return str(ids[0].value) if ids and isinstance(ids[0], ast.Constant) else None
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return None


def _span(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _column(node: ast.AST) -> int:
    return _span(node)[0][1]


def _offset(source: str, line: int, column: int) -> int:
    return sum(map(len, source.splitlines(keepends=True)[: line - 1])) + column


def _same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same Python files."""
    mine, theirs = ({path.name: path.read_bytes() for path in each.glob("*.py")} for each in (one, other))
    return mine == theirs
