"""What must be installed, and what is said where it is not."""

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from domains.runner import RUNTIMES

ROOT = Path(__file__).parents[1]
LANGCHAIN = find_spec("langchain") is not None
FLOOR = "1.4.2"


def agent_with(monkeypatch: pytest.MonkeyPatch, found: str | None) -> ModuleType:
    """Import ``orchestration.agent`` anew, as if that version of langchain were installed."""

    def version(name: str) -> str:
        assert "langchain" == name
        if found is None:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr("importlib.metadata.version", version)
    monkeypatch.delitem(sys.modules, "orchestration.agent", raising=False)
    # The package keeps its modules as attributes too: both are put back as they were.
    monkeypatch.delattr("orchestration.agent", raising=False)
    return import_module("orchestration.agent")


@pytest.mark.parametrize("found", ["0.3.27", "1.0.0", "1.3.9", "1.4", "1.4.1", "1.4.1.post1", "1.4rc1", None])
def test_too_old(monkeypatch: pytest.MonkeyPatch, found: str | None) -> None:
    """Without langchain, or with one below the floor, the import says what to install."""
    with pytest.raises(ImportError) as caught:
        agent_with(monkeypatch, found)

    assert (
        f"build_agent needs langchain {FLOOR} or newer, found {found or 'none'}: "
        f"pip install -U 'langchain>={FLOOR}'"
    ) == str(caught.value)


@pytest.mark.skipif(
    not LANGCHAIN, reason="langchain is not installed here: nothing to import after the check"
)
@pytest.mark.parametrize(
    "found", ["1.4.2", "1.4.2.post1", "1.4.3rc1", "1.4.10", "1.5", "1.10.0", "2", "2.0.0a1"]
)
def test_new_enough(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    """From the floor on, the module imports."""
    assert callable(agent_with(monkeypatch, found).build_agent)


@pytest.mark.skipif(LANGCHAIN, reason="langchain is installed here")
def test_really_absent() -> None:
    """Where langchain is really not there, the same is said."""
    with pytest.raises(ImportError, match=re.escape(f"pip install -U 'langchain>={FLOOR}'")):
        import_module("orchestration.agent")


def test_runtimes() -> None:
    """The runtimes that can be built here are those whose framework is here."""
    assert (("graph", "agent") if LANGCHAIN else ("graph",)) == RUNTIMES


def test_declared_floor() -> None:
    """The floor in the code is the one in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"langchain>={FLOOR}" in project["dependencies"]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["list"], ["rules", "--help"]], ids=" ".join
)
def test_command_line(arguments: list[str]) -> None:
    """The command line answers on this typer and rich: old ones break with a newer click."""
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "domains", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.strip()
