"""What all tests share: the golden transcripts, and both runtimes."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.groq_server import GroqServer
    from tests.runtimes import Runtime

pytest.register_assert_rewrite("tests.runtimes")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer ``--update-golden``."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden transcripts")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, dict[str, Any]], None]:
    """Compare a transcript with its golden file, and show the difference line by line."""

    def check(name: str, came: dict[str, Any]) -> None:
        path = GOLDEN / f"{name}.json"
        text = json.dumps(came, ensure_ascii=False, indent=2) + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        wanted = _read(path)
        if wanted != text:
            lines = unified_diff(wanted.splitlines(), text.splitlines(), "expected", "came", lineterm="")
            pytest.fail(
                "\n".join([f"{path.name} differs (--update-golden rewrites it):", *lines]), pytrace=False
            )

    return check


def _read(path: Path) -> str:
    if not path.exists():
        pytest.fail(f"{path.name} is missing: --update-golden writes it", pytrace=False)
    text = path.read_text(encoding="utf-8")
    try:
        json.loads(text)
    except ValueError as error:
        pytest.fail(f"{path.name} is no JSON ({error}): --update-golden rewrites it", pytrace=False)
    return text


@pytest.fixture
def groq(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., "GroqServer"]]:
    """Start a Groq that gives these answers, or what one function says, and point the real client at it."""
    from tests.groq_server import in_turn, serving

    with ExitStack() as stack:

        def start(*turns: Any) -> "GroqServer":
            answer = turns[0] if len(turns) == 1 and callable(turns[0]) else in_turn(turns)
            server = stack.enter_context(serving(answer))
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            monkeypatch.setenv("GROQ_API_KEY", "not-a-key")
            monkeypatch.setenv("GROQ_API_BASE", server.base)
            return server

        yield start


@pytest.fixture(params=["graph", "agent"])
def runtime(request: pytest.FixtureRequest) -> "Runtime":
    """Each runtime, run by ``invoke``."""
    from orchestration.graph import build_graph
    from tests.runtimes import Runtime, agent_build

    return Runtime(request.param, build_graph if request.param == "graph" else agent_build())


@pytest.fixture(params=["invoke", "ainvoke", "stream", "astream"])
def anyhow(request: pytest.FixtureRequest, runtime: "Runtime") -> "Runtime":
    """Each runtime in each way."""
    return replace(runtime, way=request.param)


@pytest.fixture(params=["invoke", "ainvoke"])
def both(request: pytest.FixtureRequest, runtime: "Runtime") -> "Runtime":
    """Each runtime, sync and async."""
    return replace(runtime, way=request.param)
