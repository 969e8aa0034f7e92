"""The report: true to what was played, safe against what was said, and readable for everybody."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from playwright.sync_api import Browser, Page, Request, sync_playwright
from typer.testing import CliRunner

from domains import DOMAINS
from domains.cli import app
from domains.compare import compare
from domains.explain import UNMAPPED, table_rows
from domains.found import scenarios
from domains.report import LONGEST, LONGEST_LABEL, page
from domains.runner import Played, play
from domains.scenario import Scenario

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

ALL: Final = scenarios()
SOME: Final = (
    "checkout/two-carts-one-waits",
    "checkout/blocked",
    "search/gateway-page",
    "search/second-turn",
    "ticketing/limit-stays",
)
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
VOID: Final = frozenset({"meta", "br", "link", "img", "input", "hr"})
HOSTILE: Final = (
    "</style></title><script>document.title='owned'</script><img src=x onerror=alert(1)>"
    "\"' onload=alert(2) <iframe src=https://example.com></iframe>{0}{css}%s"
)


def written(chosen: list[Scenario], played: list[Played] | None = None) -> str:
    """Return the page about scenarios."""
    return page(chosen, played or [play(each, "graph") for each in chosen], compare(chosen))


@pytest.fixture(scope="module")
def some() -> str:
    """A page about some scenarios."""
    return written([ALL[name] for name in SOME])


@pytest.fixture(scope="module")
def everything() -> str:
    """The page about all scenarios."""
    return written(list(ALL.values()))


def _hostile(message: AnyMessage) -> AnyMessage:
    """Return the message with words that try to leave their place."""
    update: dict[str, Any] = {"content": HOSTILE}
    if isinstance(message, AIMessage) and message.tool_calls:
        update |= {"tool_calls": [{**each, "args": {"note": HOSTILE}} for each in message.tool_calls]}
    if isinstance(message, ToolMessage):
        own = {
            "vendor_code": HOSTILE,
            "evidence": {"status": HOSTILE, "body": "x" * 5_000_000},
            "rule": HOSTILE,
        }
        update |= {"artifact": {**message.artifact, **own}}
    if message.response_metadata.get("stopped_by"):
        update |= {"content": HOSTILE + "y" * 5_000_000}
    return message.model_copy(update=update)


@pytest.fixture(scope="module")
def hostile() -> str:
    """A page about a vendor, a user and a model that mean harm."""
    chosen = ALL["checkout/paid"]
    played = play(chosen, "graph")
    messages = tuple(map(_hostile, played.messages))
    bad = replace(played, messages=messages, surprises=(HOSTILE,))
    return written([replace(chosen, about=HOSTILE)], [bad])


@pytest.fixture(scope="module")
def otherwise() -> str:
    """A page about a scenario that did not go as written, and one that did."""
    chosen = [ALL["checkout/blocked"], ALL["search/found"]]
    played = [play(each, "graph") for each in chosen]
    return written(chosen, [replace(played[0], surprises=("final: expected 'a', came 'b'",)), played[1]])


class Reading(HTMLParser):
    """Reads a page, and fails on a tag that is closed out of turn."""

    def __init__(self) -> None:
        """Start with nothing read."""
        super().__init__(convert_charrefs=True)
        self.opened: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        assert len(attrs) == len(dict(attrs)), (tag, attrs)
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that holds nothing, as SVG writes it."""
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last."""
        assert tag == self.opened.pop(), self.getpos()

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.text.append(data)


def read(html: str) -> Reading:
    """Read a page to its end."""
    reading = Reading()
    reading.feed(html)
    reading.close()
    assert [] == reading.opened
    return reading


@pytest.mark.parametrize("which", ["some", "hostile"])
def test_nothing_runs_and_nothing_is_loaded(which: str, request: pytest.FixtureRequest) -> None:
    """Tags are balanced; there is no script, no handler, nothing to fetch, and frames may do nothing."""
    reading = read(request.getfixturevalue(which))
    for tag, attrs in reading.found:
        assert tag not in {"script", "img", "link", "object", "embed", "form", "base"}
        assert not [name for name in attrs if name.startswith("on") or name in {"src", "action", "data"}]
        assert tag != "iframe" or "" == attrs["sandbox"]
        if "href" in attrs:
            assert re.match(r"#|https://", attrs["href"] or "")
            assert tag in {"a", "use"}


def test_ids_and_links(some: str) -> None:
    """Every id is there once, and every link within the page leads somewhere."""
    reading = read(some)
    ids = [attrs["id"] for _, attrs in reading.found if "id" in attrs]
    assert sorted(set(ids), key=str) == sorted(ids, key=str)
    inner = {
        (attrs.get("href") or "")[1:]
        for _, attrs in reading.found
        if (attrs.get("href") or "#").startswith("#")
    }
    assert inner - {""} <= set(ids)


def test_hostile_words_are_words(hostile: str) -> None:
    """What tries to leave its place is read as text, wherever it stands."""
    assert "document.title='owned'</script>" not in hostile
    assert sum(text.count(HOSTILE[:40]) for text in read(hostile).text) >= 5


def test_large_bodies_are_cut(hostile: str) -> None:
    """Five megabytes of a reply make a page of ordinary size that says what it leaves out."""
    assert len(hostile) < 300_000
    assert "x" * (LONGEST + 1) not in hostile
    assert "more characters are not shown]" in hostile


def test_what_is_told(some: str) -> None:
    """Reason, row, why, source, reply, effect, artifact, path and both costs are on the page."""
    told = " ".join("".join(read(some).text).split())
    row = next(row for row in table_rows("checkout") if row["id"] == "checkout/risk")
    assert row["why"] in told
    assert f'href="{row["source"]}"' in some
    for fact in (
        "5 of 5",
        "policy block",
        "HTTP 402",
        '"rule": "checkout/risk"',
        "attempts used up",
        "Effect",
        "<p>Payment received: <strong>19.99 USD</strong>",
    ):
        assert fact in told
    assert "1 model call fewer than the plain loop" in told


def test_rows_that_never_fired(some: str) -> None:
    """Every row of every table has fired in a scenario, or is named as one that has not."""
    told = "".join(read(some).text)
    fired = {rule for name in SOME for turn in ALL[name].turns for rule in turn.rules}
    rows = [row["id"] for name in (*DOMAINS, UNMAPPED) for row in table_rows(name)]
    assert f"{len(fired & {*rows})} of {len(rows)}" in told
    never = re.findall(r"<code>([^<]+)</code> <span class=\"small\">when", some)
    assert sorted({*rows} - fired) == sorted(never)


def test_a_surprise_is_told(hostile: str) -> None:
    """A scenario that did not go as written says so, at its head and in the sum."""
    told = "".join(read(hostile).text)
    assert "Not as written: " in told
    assert "0 of 1" in told


def test_the_same_bytes() -> None:
    """Playing again gives the same page: no clock, no random id."""
    chosen = [ALL["checkout/bank-busy"]]
    assert written(chosen) == written(chosen)


@pytest.mark.slow
def test_the_same_bytes_in_another_process() -> None:
    """The order in which Python hashes changes nothing."""
    command = [sys.executable, "-m", "domains", "report", *SOME, "-o", "-"]
    pages = []
    for seed in ("1", "2"):
        own = {**os.environ, "PYTHONHASHSEED": seed}
        pages.append(subprocess.run(command, capture_output=True, check=True, env=own).stdout)  # noqa: S603 - ours
    assert pages[0] == pages[1]


def test_written_to_a_file(tmp_path: Path) -> None:
    """The page goes to the file, and a word about it to stderr; a folder that is not there is a refusal."""
    to = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["report", "checkout/declined", "-o", str(to)])
    assert (0, "") == (result.exit_code, result.stdout)
    assert "opens without a network" in " ".join(result.stderr.split())
    assert to.read_text("utf-8").startswith("<!doctype html>")
    again = CliRunner().invoke(app, ["report", "checkout/declined", "-o", str(tmp_path / "no" / "r.html")])
    assert 2 == again.exit_code
    assert 2 == CliRunner().invoke(app, ["report", "no/such"]).exit_code


# In a browser. It comes from the system's packages: `apt-get install chromium`.


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, without a network."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        missing = "there is no chromium on PATH: the report is not looked at (apt-get install chromium)"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=list(FLAGS))
        yield opened
        opened.close()


class Watched:
    """A page in the browser, and what it did."""

    def __init__(self, page: Page) -> None:
        """Listen from the start."""
        self.page = page
        self.console: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.console.append(message.text))
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("requestfailed", self._refused)

    def _refused(self, request: Request) -> None:
        """Forget what the page's own policy or its sandbox refused: nothing was asked for then."""
        if request.failure in {"csp", "other"}:
            self.requests.remove(request.url)

    def width(self) -> int:
        """Return how wide the content is."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth")
        return width

    def unfold(self) -> None:
        """Open everything that is folded."""
        self.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")

    def faults(self) -> list[str]:
        """Return what axe finds."""
        found = Axe().run(self.page).response["violations"]
        return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


def opened(browser: Browser, html: str, tmp_path: Path, **options: Any) -> Watched:
    """Open a page from the disk."""
    path = tmp_path / "report.html"
    path.write_text(html, "utf-8")
    watched = Watched(browser.new_page(**options))
    watched.page.goto(path.as_uri())
    watched.page.wait_for_timeout(50)  # what is refused is told a moment later
    assert [path.as_uri()] == watched.requests
    return watched


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1280),
        ("dark", 360),
        pytest.param("light", 360, marks=pytest.mark.slow),
        pytest.param("dark", 1280, marks=pytest.mark.slow),
    ],
)
def test_in_a_browser(browser: Browser, some: str, tmp_path: Path, scheme: Any, width: int) -> None:
    """No message, no request, no fault, no scrolling sideways; folded and unfolded."""
    size: Any = {"width": width, "height": 900}
    watched = opened(browser, some, tmp_path, color_scheme=scheme, viewport=size)
    assert width == watched.width()
    watched.unfold()
    assert width == watched.width()
    watched.page.locator("iframe").last.scroll_into_view_if_needed()
    assert [] == watched.faults()
    assert ([], 1) == (watched.console, len(watched.requests))
    watched.page.close()


def test_all_scenarios_in_a_browser(browser: Browser, everything: str, tmp_path: Path) -> None:
    """The page about every scenario is as good as the small one, on the narrowest screen."""
    watched = opened(browser, everything, tmp_path, viewport={"width": 320, "height": 900})
    watched.unfold()
    assert 320 == watched.width()
    assert ([], []) == (watched.faults(), watched.console)
    watched.page.close()


def test_by_keyboard(browser: Browser, some: str, tmp_path: Path) -> None:
    """The first stop skips the contents, and every fold opens with a key."""
    page = opened(browser, some, tmp_path).page
    page.keyboard.press("Tab")
    assert "Skip to the scenarios" == page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    assert "scenarios" == page.evaluate("document.activeElement.id")
    for _ in range(3):  # the head of the first scenario, its first source, its first artifact
        page.keyboard.press("Tab")
        if "SUMMARY" == page.evaluate("document.activeElement.tagName"):
            break
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open")
    page.close()


def test_a_receipt_is_seen(browser: Browser, some: str, tmp_path: Path) -> None:
    """A receipt is shown as its customer sees it, too."""
    page = opened(browser, some, tmp_path).page
    page.locator("iframe").first.scroll_into_view_if_needed()
    frame = page.frame_locator("iframe").first
    assert "19.99 USD" == frame.locator("strong").first.inner_text()
    page.close()


def test_hostile_words_in_a_browser(browser: Browser, hostile: str, tmp_path: Path) -> None:
    """Nothing of it runs and nothing is asked for, in the preview neither."""
    watched = opened(browser, hostile, tmp_path)
    watched.unfold()
    watched.page.locator("iframe").first.scroll_into_view_if_needed()
    watched.page.wait_for_timeout(200)
    assert "Scenarios: what was said, what was decided" == watched.page.title()
    assert [] == [url for url in watched.requests[1:] if not url.startswith("about:")]
    watched.page.close()


def test_what_went_otherwise_is_found(otherwise: str) -> None:
    """A scenario that did not go as written is named on top, marked in the contents and at its head."""
    assert 1 == otherwise.count(
        '<strong>Not as written:</strong> <a href="#checkout-blocked">checkout/blocked</a>'
    )
    assert 1 == otherwise.count('<span class="badge odd">')
    assert 1 == otherwise.count('<span class="odd">')
    assert "1 of 2" in otherwise


def test_all_as_written_needs_no_notice(some: str) -> None:
    """Where all went as written, nothing says otherwise."""
    assert "not as written" not in some.lower()


def test_ids_in_any_script() -> None:
    """Two ids that look alike in an address, and one in no Latin letter, have places of their own."""
    found = ALL["search/found"]
    ids = ["search/a_b", "search/a-b", "search/\u652f\u4ed8", "\u652f", "search/half\ud83d"]
    html = written([replace(found, id=name, about="Half of one: \ud83d") for name in ids])
    places = re.findall(r'<article class="scenario" id="([^"]+)"', html)
    assert len(ids) == len(set(places))
    assert all(f'href="#{place}"' in html for place in places)
    html.encode()  # or nothing could be written


def test_a_label_that_is_too_long() -> None:
    """A plot's label is cut to what a phone shows; the table below the plot has the whole."""
    html = written([ALL["journey/find-buy-wrap"]])
    labels = re.findall(r'<text x="0" y="\d+">([^<]*)</text>', html)
    assert any(label.endswith("\N{HORIZONTAL ELLIPSIS}") for label in labels)
    assert all(len(label) <= LONGEST_LABEL for label in labels)
    assert '<th scope="row">checkout + create_ticket + search</th>' in html
