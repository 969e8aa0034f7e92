"""``domains new``: what it writes, and what it refuses to write."""

import builtins
import keyword
import os
import re
import stat
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from domains import DOMAINS
from domains.cli import USAGE, app
from domains.new import LONGEST_NAME, LONGEST_PATH, Refused, new
from tests.tree import ROOT, copied, python

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

FILES = [
    "domains/{name}/__init__.py",
    "domains/{name}/rules.py",
    "domains/{name}/tool.py",
    "domains/{name}/scenarios.py",
    "mocks/{vendor}.py",
    "tests/test_{name}.py",
]
LONG = "n" * LONGEST_NAME
NAMES = [
    ("weather", "weatherly", None),
    ("a", "b", "/v"),
    ("zebra_crossings2", "z", "/v1.0/my-zebras/all"),
    (LONG, "v" * LONGEST_NAME, "/v" * (LONGEST_PATH // 2)),
]
"""Names from both ends of the alphabet, as short and as long as they may be."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder that looks like a project's, with nothing in it."""
    for folder in ("domains", "mocks", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def files(project: Path) -> dict[str, str]:
    """Return what a folder holds, by path."""
    found = sorted(path for path in project.rglob("*") if path.is_file())
    return {path.relative_to(project).as_posix(): path.read_text(encoding="utf-8") for path in found}


def written(name: str, vendor: str) -> list[str]:
    """Return the paths that are to be written."""
    return [each.format(name=name, vendor=vendor) for each in FILES]


def test_what_is_written_is_clean(tmp_path: Path) -> None:
    """Lint, format and strict types pass for whatever names, and it plays as written."""
    tree = copied(tmp_path, types=True)
    made = [file for name, vendor, path in NAMES for file in new(name, vendor=vendor, path=path, root=tree)]
    names = [file.as_posix() for file in made]

    assert names == [each for name, vendor, _ in NAMES for each in written(name, vendor)]
    for command in (
        ["ruff", "check", *names],
        ["ruff", "format", "--check", *names],
        ["mypy", *names],
        ["domains", "run", *(name for name, *_ in NAMES)],
    ):
        done = python(tree, *command)
        assert 0 == done.returncode, done.stdout + done.stderr


def test_its_tests_name_the_next_step(tmp_path: Path) -> None:
    """All pass but the one that says what to replace; the domain is found by every verb."""
    tree = copied(tmp_path)
    new("weather", vendor="weatherly", root=tree)

    done = python(tree, "pytest", "-q", "-p", "no:cacheprovider", "tests/test_weather.py")

    assert re.search(r"^1 failed, \d+ passed", done.stdout, re.MULTILINE), done.stdout
    assert (
        "next step: replace the template's example vendor codes (example_busy and the like) in "
        "domains/weather/rules.py, domains/weather/scenarios.py, mocks/weatherly.py by those that the vendor "
        "documents, and each row's source by the page that says so; then delete this test"
    ) in done.stdout
    assert "weather: tool weather, 8 scenarios" in python(tree, "domains", "list").stdout


def test_command_line(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what it wrote, and what comes next."""
    monkeypatch.chdir(project)
    said = CliRunner().invoke(app, ["new", "weather", "--vendor", "weatherly", "--path", "/v2/places"])

    assert 0 == said.exit_code
    lines = said.output.splitlines()
    assert [f"wrote {file}" for file in written("weather", "weatherly")] == lines[: len(FILES)]
    assert "Next: domains run weather; pytest tests/test_weather.py says what to replace." == lines[-1]
    assert '"/v2/places"' in files(project)["domains/weather/tool.py"]


def test_the_vendor_may_be_left_out(project: Path) -> None:
    """Then it is called as the domain is."""
    new("weather", root=project)

    assert "class WeatherMock(Vendor)" in files(project)["mocks/weather.py"]
    assert '"/v1/weather"' in files(project)["domains/weather/tool.py"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "Weather",
        "WEATHER",
        "1st",
        "_weather",
        "weather_",
        "we__ather",
        "we-ather",
        "we ather",
        "we.ather",
        "../weather",
        "/weather",
        "weather\n",
        "wetter\u00e9",
        "\uff57eather",
        "x" * (LONGEST_NAME + 1),
        "$name",
        "class",
        "match",
        "type",
        "con",
        "nul",
        "com1",
        "lpt9",
        "json",
        "string",
        "list",
        "print",
        "httpx",
        "client",
        "reply",
        "tools",
        "pytest",
        "domains",
        "mocks",
        "tests",
        "orchestration",
    ],
)
def test_bad_names(project: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A name that cannot be one, as a domain's or as a vendor's: exit 2, a sentence, nothing written."""
    monkeypatch.chdir(project)
    before = files(project)
    for arguments in ([name], ["weather", "--vendor", name]):
        said = CliRunner().invoke(app, ["new", "--", *arguments] if name[:1] == "-" else ["new", *arguments])

        assert USAGE == said.exit_code, arguments
        assert said.output.startswith("domains: ")
        assert "Traceback" not in said.output
    assert before == files(project)


@pytest.mark.parametrize("name", [*keyword.kwlist, *keyword.softkwlist])
def test_no_word_of_pythons_own(project: Path, name: str) -> None:
    """Keywords, the soft ones too, are refused by whatever rule comes first."""
    with pytest.raises(Refused):
        new(name, root=project)


def test_no_name_of_pythons_own(project: Path) -> None:
    """Neither is a module of the standard library, nor a builtin."""
    taken = {*sys.stdlib_module_names, *dir(builtins)}
    good = [name for name in taken if re.fullmatch(r"[a-z][a-z0-9]*", name) and len(name) <= LONGEST_NAME]
    for name in good:
        with pytest.raises(Refused):
            new(name, root=project)
    assert len(good) > 200


@pytest.mark.parametrize(
    ("name", "says"),
    [
        *((name, f"domains/{name} is there already, and stays as it is.") for name in DOMAINS),
        ("mapping", "domains/mapping.py is a module of the project's own."),
        ("infrastructure", "domains/infrastructure.py is a module of the project's own."),
        ("templates", "domains/templates is there already, and stays as it is."),
        ("router", "tests/test_router.py is there already, and stays as it is."),
        ("create_ticket", "another domain's tool is named create_ticket"),
        ("journey", "scenarios across domains are called journey/..."),
    ],
)
def test_names_that_are_taken(name: str, says: str) -> None:
    """What the project has already stays as it is, and the sentence says what it is."""
    before = (ROOT / "domains").stat().st_mtime_ns

    with pytest.raises(Refused, match=re.escape(says)):
        new(name, vendor="nobodys", root=ROOT)

    assert before == (ROOT / "domains").stat().st_mtime_ns
    assert not (ROOT / "mocks" / "nobodys.py").exists()


@pytest.mark.parametrize("there", written("weather", "weatherly"))
def test_nothing_is_overwritten(project: Path, there: str) -> None:
    """A file that is there already: nothing of it changes, and nothing is written beside it."""
    (project / there).parent.mkdir(exist_ok=True)
    (project / there).write_text("mine", encoding="utf-8")
    before = files(project)

    with pytest.raises(Refused, match="is there already, and stays as it is"):
        new("weather", vendor="weatherly", root=project)

    assert before == files(project)


def test_a_dangling_link_is_a_file_too(project: Path) -> None:
    """What would be written through a link to somewhere else is not."""
    try:
        (project / "mocks" / "weatherly.py").symlink_to(project / "elsewhere.py")
    except OSError:
        pytest.skip("no links here")

    with pytest.raises(Refused, match=r"mocks/weatherly\.py is there already"):
        new("weather", vendor="weatherly", root=project)

    assert not (project / "elsewhere.py").exists()


@pytest.mark.parametrize(
    "path", ["", "v1/x", "/", "/v1/", "/v1//x", "/v1/{x}", '/v1/"x', "/v1/x y", "/" + "x" * 60]
)
def test_bad_paths(project: Path, path: str) -> None:
    """A path that would break the templates, or a URL."""
    with pytest.raises(Refused, match="is no path"):
        new("weather", path=path, root=project)

    assert ["pyproject.toml"] == list(files(project))


@pytest.mark.parametrize("lacks", ["pyproject.toml", "domains", "mocks", "tests"])
def test_elsewhere(project: Path, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    """A folder that is no project's is told so, by what it lacks."""
    (project / lacks).unlink() if lacks == "pyproject.toml" else (project / lacks).rmdir()
    monkeypatch.chdir(project)

    said = CliRunner().invoke(app, ["new", "weather"])

    assert USAGE == said.exit_code
    assert f"this folder is no project to add a domain to: it lacks {lacks}." in said.output


def test_a_write_that_fails_leaves_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half way through, a full disk: what was written is taken back, whatever was there stays."""
    opened = Path.open
    before = files(project)

    def full(self: Path, *args: object, **more: object) -> object:
        if self.name == "rules.py":  # the last one
            raise OSError(28, "No space left on device", str(self))
        return opened(self, *args, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    monkeypatch.chdir(project)
    said = CliRunner().invoke(app, ["new", "weather"])

    assert (USAGE, before) == (said.exit_code, files(project))
    assert "No space left on device." in said.output
    assert not (project / "domains" / "weather").exists()


@pytest.mark.skipif(
    os.name == "nt" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write"
)
def test_a_folder_that_may_not_be_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without the right to write is named."""
    (project / "domains").chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.chdir(project)
    said = CliRunner().invoke(app, ["new", "weather"])
    (project / "domains").chmod(stat.S_IRWXU)

    assert USAGE == said.exit_code
    assert ["pyproject.toml"] == list(files(project))


def test_the_templates_are_in_the_wheel() -> None:
    """They lie in a package that the wheel takes whole, and none is Python that a tool would read as ours."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    templates = ROOT / "domains" / "templates"

    assert "domains" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert ["init", "mock", "rules", "scenarios", "test", "tool"] == sorted(
        p.stem for p in templates.iterdir()
    )
    assert {".txt"} == {path.suffix for path in templates.iterdir()}
