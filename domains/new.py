"""Write a new domain from templates: one folder, the vendor's fake, and a test file.

Everything is checked before anything is written; if writing fails all the same, what was written is taken
back. Nothing is registered: a domain is found by its folder.
"""

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Final

from domains.found import DOMAINS, scenarios

TEMPLATES: Final = Path(__file__).parent / "templates"

LONGEST_NAME: Final = 24
LONGEST_PATH: Final = 48
"""Characters: lines of the templates stay within what the formatter allows."""

NEEDED: Final = ("pyproject.toml", "domains", "mocks", "tests")
"""What a project holds that a domain can be added to."""

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._-]+)+")
_DEVICES: Final = re.compile(r"con|prn|aux|nul|com[0-9]|lpt[0-9]")
"""Names that Windows keeps for devices: a checkout there would fail."""


class Refused(ValueError):  # noqa: N818 - read as the answer to a command line
    """What was asked cannot be written; the message says why."""


def new(name: str, *, vendor: str | None = None, path: str | None = None, root: Path) -> list[Path]:
    """Write the files of a new domain and return their paths below ``root``.

    Args:
        name: The domain's, and its tool's.
        vendor: The vendor's; by default the domain's.
        path: What the tool asks at the vendor.
        root: The project's folder.

    Raises:
        Refused: A name cannot be used, something is there already, or the folder is no project's.
        OSError: Writing failed; nothing is left behind.
    """
    vendor = name if vendor is None else vendor
    path = f"/v1/{name}" if path is None else path
    if refusal := next(_refusals(name, vendor, path, root), None):
        raise Refused(refusal)
    files = _rendered(name, vendor, path)
    _write(root, files)
    return [Path(file) for file in files]


def _refusals(name: str, vendor: str, path: str, root: Path) -> Iterator[str]:
    if lacks := [each for each in NEEDED if not (root / each).exists()]:
        yield f"this folder is no project to add a domain to: it lacks {', '.join(lacks)}."
    yield from _bad_name(name, "a domain")
    yield from _bad_name(vendor, "a vendor")
    if not _PATH.fullmatch(path) or len(path) > LONGEST_PATH:
        yield f"{path!r} is no path: one reads like /v1/{name}, of at most {LONGEST_PATH} characters."
    if (root / "domains" / f"{name}.py").exists():
        yield f"domains/{name}.py is a module of the project's own. Choose another name."
    for there in (f"domains/{name}", f"mocks/{vendor}.py", f"tests/test_{name}.py"):
        if (root / there).exists() or (root / there).is_symlink():
            other = "Choose another --vendor." if there.startswith("mocks") else "Choose another name."
            yield f"{there} is there already, and stays as it is. {other}"
    if name in {domain.sample.tool for domain in DOMAINS.values()}:
        yield f"another domain's tool is named {name}: no model could tell them apart. Choose another name."
    if name in {each.split("/")[0] for each in scenarios()}:
        yield f"scenarios across domains are called {name}/... Choose another name."


def _bad_name(name: str, what: str) -> Iterator[str]:
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        yield (
            f"{name!r} cannot be the name of {what}: it is lower-case letters, digits, single underscores, "
            f"begins with a letter, and has {LONGEST_NAME} characters at most."
        )
    elif keyword.iskeyword(name) or keyword.issoftkeyword(name):
        yield f"{name!r} is a word of Python's own and cannot be the name of {what}."
    elif _DEVICES.fullmatch(name):
        yield f"{name!r} is a device on Windows and cannot be the name of {what}."
    elif name in sys.stdlib_module_names or hasattr(builtins, name):
        yield f"{name!r} is a name of Python's own: as the name of {what} it would be mistaken for that."
    elif name in {*NEEDED, "orchestration"} or name in _taken():
        yield f"{name!r} means something else in the project's code. Choose another name for {what}."


def _taken() -> set[str]:
    """Return the names that the templates' own code uses: a tool of that name would hide them."""
    found = set()
    for text in _rendered("name_of_ours", "vendor_of_ours", "/v1").values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.alias):
                found.add(node.name.partition(".")[0])
            elif isinstance(node, ast.FunctionDef):
                found.add(node.name)
    return found - {"name_of_ours"}


def _rendered(name: str, vendor: str, path: str) -> dict[str, str]:
    """Return the text of every file by its path, the package's ``__init__`` first."""
    words = {
        "name": name,
        "row": name.replace("_", "-"),
        "vendor": vendor,
        "vendor_class": "".join(part.capitalize() for part in vendor.split("_")),
        "host": vendor.replace("_", "-"),
        "key_name": f"{vendor.upper()}_API_KEY",
        "path": path,
        "pattern": path.replace(".", r"\."),
    }
    targets = {
        f"domains/{name}/__init__.py": "init",
        f"domains/{name}/rules.py": "rules",
        f"domains/{name}/tool.py": "tool",
        f"domains/{name}/scenarios.py": "scenarios",
        f"mocks/{vendor}.py": "mock",
        f"tests/test_{name}.py": "test",
    }
    return {target: _sorted(_template(part).substitute(words)) for target, part in targets.items()}


def _template(part: str) -> Template:
    return Template((TEMPLATES / f"{part}.txt").read_text(encoding="utf-8"))


def _sorted(text: str) -> str:
    """Put each block of imports in order: where a domain's name falls in it, the name decides."""
    lines = text.splitlines()
    start = 0
    while start < len(lines):
        end = start
        while end < len(lines) and lines[end].startswith("from "):
            end += 1
        lines[start:end] = sorted(lines[start:end], key=lambda line: line.split()[1])
        start = end + 1
    return "\n".join([*lines, ""])


def _write(root: Path, files: Mapping[str, str]) -> None:
    """Write all files or none, and never over one. The table comes last: with it the domain is found."""
    made: list[Path] = []
    try:
        for name in sorted(files, key=lambda name: name.endswith("/rules.py")):
            file = root / name
            if not file.parent.exists():
                file.parent.mkdir()
                made.append(file.parent)
            with file.open("x", encoding="utf-8", newline="\n") as stream:
                made.append(file)
                stream.write(files[name])
    except BaseException:
        for each in reversed(made):
            each.rmdir() if each.is_dir() else each.unlink()
        raise
