"""The claim of the project: two domains more, and nothing under ``orchestration`` knows of them.

``export`` and ``records`` came after the router, from ``domains new`` and README alone. With and without them
the drawn graph is the same, and so is what ``orchestration`` imports.
"""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from domains import DOMAINS
from domains.runner import RUNTIMES, vendor
from tests.tree import ROOT, copied, python

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

LATER = {"export": "power_bi", "records": "salesforce"}
"""The two domains, with their vendors."""

SEE = """
import json
import grimp
from domains import DOMAINS
from domains.runner import RUNTIMES, build, vendor
from mocks.model import ScriptedModel
from orchestration.router import DEFAULT_POLICY

tools = [tool for name in DOMAINS for tool in DOMAINS[name].tools(client=vendor(name).client())]
drawn = {}
for runtime in RUNTIMES:
    graph = build(runtime, ScriptedModel(turns=[], narration="."), tools, DEFAULT_POLICY).get_graph()
    for name, node in graph.nodes.items():
        graph.nodes[name] = node._replace(metadata=None)  # create_agent lists there which tools it was given
    drawn[runtime] = [graph.to_json(), graph.draw_mermaid()]
packages = ("orchestration", "domains", "mocks")
imports = grimp.build_graph(*packages, include_external_packages=True, cache_dir=None)
ours = sorted(module for module in imports.modules if module.partition(".")[0] == "orchestration")
print(json.dumps({
    "domains": list(DOMAINS),
    "tools": [tool.name for tool in tools],
    "drawn": drawn,
    "imports": {module: sorted(imports.find_modules_directly_imported_by(module)) for module in ours},
}, default=str))
"""


@cache
def seen(*, without: tuple[str, ...]) -> dict[str, Any]:
    """Return what a copy of the project without some domains draws and imports."""
    left_out = [f"domains/{name}" for name in without] + [f"mocks/{LATER[name]}.py" for name in without]
    with TemporaryDirectory() as folder:
        tree = copied(Path(folder), without=left_out)
        (tree / "see.py").write_text(SEE, encoding="utf-8")
        done = python(tree, "see")
    assert 0 == done.returncode, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_two_make_a_difference_to_the_tools() -> None:
    """What is compared below is really with them, and really without them."""
    with_them, without_them = seen(without=()), seen(without=tuple(LATER))

    assert {*LATER} == {*with_them["domains"]} - {*without_them["domains"]}
    assert {"export_document", "write_record"} == {*with_them["tools"]} - {*without_them["tools"]}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_drawn_graph(runtime: str) -> None:
    """The graph of either runtime is drawn the same, edge by edge."""
    with_them, without_them = seen(without=()), seen(without=tuple(LATER))

    assert without_them["drawn"][runtime] == with_them["drawn"][runtime]
    assert "tools" in with_them["drawn"][runtime][1]


def test_import_graph() -> None:
    """Every module of ``orchestration`` imports the same, and none of our domains or fakes."""
    with_them, without_them = seen(without=()), seen(without=tuple(LATER))

    assert without_them["imports"] == with_them["imports"]
    assert len(with_them["imports"]) > 10
    reached = {name.partition(".")[0] for names in with_them["imports"].values() for name in names}
    assert {"domains", "mocks", "httpx"}.isdisjoint(reached)


def names() -> set[str]:
    """Return the names of every domain, vendor and tool, as code would write them."""
    found = set()
    for name, domain in DOMAINS.items():
        fake = domain.vendor.partition(":")[0].rpartition(".")[2]
        tools = domain.tools(client=vendor(name).client())
        found |= {name, fake, fake.replace("_", ""), *(tool.name for tool in tools)}
    return found


def spoken(tree: ast.Module) -> Iterator[str]:
    """Yield every identifier and every string of a module's code, but for its docstrings."""
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value
        for field in ("id", "attr", "arg", "name", "module"):
            word = getattr(node, field, None)
            if isinstance(word, str) and (field, word) != ("attr", "search"):  # a pattern's method
                yield word


@pytest.mark.parametrize("module", sorted((ROOT / "orchestration").glob("*.py")), ids=lambda path: path.stem)
def test_no_name_of_ours(module: Path) -> None:
    """No module of ``orchestration`` names a domain, a vendor or a tool."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    words = {word for text in spoken(tree) for word in re.findall(r"[a-z]+(?:_[a-z]+)*", text.lower())}

    assert set() == words & names()
