"""The command line, as people and scripts see it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from langchain_core.messages import AIMessage
from typer.testing import CliRunner, Result

from domains import DOMAINS
from domains.__main__ import main
from domains.cli import app
from domains.explain import UNMAPPED
from domains.found import scenarios
from domains.scenario import Scenario
from mocks.groq import MODEL, unauthorized
from tests.groq_server import GroqServer

ROOT: Final = Path(__file__).parents[1]
ALL: Final = scenarios()
KEYS: Final = "scenario runtime mode ok path model_calls tool_calls reasons rules stopped_by final tokens"
DECLINED: Final = {
    "status": 402,
    "body": {"error": {"type": "card_error", "decline_code": "insufficient_funds"}},
}
CURL: Final = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n\r\n"


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set aside what a developer's shell brings along."""
    for name in ("GROQ_API_KEY", "GROQ_API_BASE", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def invoke(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run a command line within this process."""
    return CliRunner().invoke(app, arguments, input=stdin)


def seen(result: Result) -> tuple[int, str, str]:
    """Return exit code, output and errors, each text on one line, without a table's rules."""
    out, err = (" ".join(text.replace("─", "").split()) for text in (result.stdout, result.stderr))
    return result.exit_code, out, err


def process(*arguments: str, code: str = "", **options: Any) -> "subprocess.CompletedProcess[bytes]":
    """Run a command line, or code, in a process of its own."""
    start = ["-c", code] if code else ["-m", "domains"]
    return subprocess.run(  # noqa: S603 - our own command line
        [sys.executable, *start, *arguments], cwd=ROOT, capture_output=True, check=False, **options
    )


def lines(*rows: object) -> str:
    """Return a log."""
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


# Help, and names that are not there.


def test_alone_it_prints_help() -> None:
    """Without a verb, people see what there is."""
    result = invoke()

    assert 2 == result.exit_code
    assert all(verb in result.output for verb in ("list", "run", "explain", "rules"))


@pytest.mark.parametrize("verb", ["list", "run", "explain", "rules"])
def test_help(verb: str) -> None:
    """Every verb says in its help what it is for."""
    result = invoke(verb, "--help")

    assert 0 == result.exit_code
    assert "Usage:" in result.stdout


def test_the_default_model_is_the_fakes() -> None:
    """The help names the model that is asked, without importing what knows it."""
    assert MODEL in invoke("run", "--help").stdout


@pytest.mark.parametrize("verb", ["explain", "rules"])
@pytest.mark.parametrize(
    ("name", "near"), [("chekout", "checkout"), ("serch", "search"), ("infrastrukture", "infrastructure")]
)
def test_an_unknown_domain_names_the_nearest(verb: str, name: str, near: str) -> None:
    """A slip of the finger is told with the name that was meant, and all there are."""
    known = ", ".join([*DOMAINS, UNMAPPED])

    assert (
        2,
        "",
        f"domains: there is no domain '{name}'. Did you mean '{near}'? There are: {known}.",
    ) == seen(invoke(verb, name, stdin=""))


@pytest.mark.parametrize(
    ("glob", "near"),
    [("chekout", "checkout"), ("search/fuond", "search/found"), ("journeys/*", "journey/"), ("zzzz", "")],
)
def test_an_unknown_scenario_names_the_nearest(glob: str, near: str) -> None:
    """A glob that fits nothing exits 2 before anything is played."""
    code, out, err = seen(invoke("run", "search/found", glob))

    assert (2, "") == (code, out)
    assert f"no scenario matches '{glob}'." in err
    assert near in err
    assert "`domains list` shows all of them." in err


# List.


def test_list() -> None:
    """Every domain and every scenario is there, with its line for people."""
    result = invoke("list")
    text = " ".join(result.stdout.split())

    assert 0 == result.exit_code
    assert all(f"{name}: tool " in text for name in DOMAINS)
    for scenario in ALL.values():
        assert scenario.id in text
        # The line may be folded between any two words, with nothing beside it.
        assert " ".join(scenario.about.split()) in text
    assert "across domains: " in text


# Run.


def test_run() -> None:
    """A table for people: what was played, the way it took, how it ended, what it cost."""
    result = invoke("run", "search/found", "checkout/declined")
    code, out, err = seen(result)

    assert (0, "") == (code, err)
    assert "ok search/found completed search/found 1 " in out
    assert "graph: agent > tools > finalize" in out
    assert "approx." in out
    assert out.endswith("2 played, 2 as written.")


@pytest.mark.parametrize(
    ("globs", "names"),
    [
        (["search"], [name for name in ALL if name.startswith("search/")]),
        (["search/f*"], ["search/found"]),
        (["*/found", "search/found"], ["search/found"]),
        (["search/found", "checkout/paid"], ["search/found", "checkout/paid"]),
        (["journey"], [name for name in ALL if name.startswith("journey/")]),
    ],
    ids=str,
)
def test_globs(globs: list[str], names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A domain's name stands for its own, globs add up, and nothing is played twice."""
    played = _note(monkeypatch)
    invoke("run", *globs)

    assert names == played


def test_no_glob_is_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a glob, everything is played."""
    played = _note(monkeypatch)
    invoke("run")

    assert list(ALL) == played


def _note(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what would be played, in place of playing it."""
    noted: list[str] = []

    def play(chosen: Sequence[Scenario], *args: object, **kwargs: object) -> list[Any]:
        noted.extend(scenario.id for scenario in chosen)
        return []

    monkeypatch.setattr("domains.cli._play", play)
    return noted


def test_run_json() -> None:
    """One array, one row a run with exactly the agreed keys, the same for both runtimes."""
    result = invoke("run", "search/found", "checkout/two-carts-one-declined", "--runtime", "both", "--json")
    rows = json.loads(result.stdout)

    assert (0, "") == (result.exit_code, result.stderr)
    assert [KEYS] * 4 == [" ".join(row) for row in rows]
    assert ["graph", "agent"] * 2 == [row["runtime"] for row in rows]
    for graph, agent in zip(rows[::2], rows[1::2], strict=True):
        assert graph | {"runtime": ""} == agent | {"runtime": ""}
    assert {
        "scenario": "search/found",
        "runtime": "graph",
        "mode": "hard",
        "ok": True,
        "path": ["agent", "tools", "finalize"],
        "model_calls": 1,
        "tool_calls": 1,
        "reasons": ["completed"],
        "rules": ["search/found"],
        "stopped_by": "completed",
        "final": ALL["search/found"].turns[0].final,
    } == {name: value for name, value in rows[0].items() if name != "tokens"}
    assert ["input", "output"] == list(rows[0]["tokens"])
    assert all(type(count) is int and count > 0 for count in rows[0]["tokens"].values())


def test_both_runtimes_are_one_line_where_they_agree() -> None:
    """People read a row once if both runtimes gave it."""
    out = invoke("run", "search/found", "--runtime", "both").stdout

    assert 1 == len(re.findall(r"^ ok ", out, re.MULTILINE))
    assert "both: agent > tools > finalize" in out
    assert "2 played, 2 as written." in out


def test_a_surprise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes otherwise exits 1 and says what was expected and what came."""
    right = ALL["search/found"]
    wrong = replace(
        right, turns=(replace(right.turns[0], final="Nothing [red]at all[/].", stopped_by="fatal"),)
    )
    monkeypatch.setattr("domains.cli.scenarios", lambda: {**ALL, "search/found": wrong})
    code, out, err = seen(invoke("run", "search/found", "search/dead-end"))

    assert 1 == code
    assert "NO search/found" in out
    assert "ok search/dead-end" in out
    assert out.endswith("2 played, 1 as written, 1 not.")
    assert "search/found on graph: stopped_by: expected 'fatal', came 'completed'" in err
    assert "final: expected 'Nothing [red]at all[/].', came 'Found 7 results" in err


def test_a_surprise_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --json the array stays whole, and the surprise is told beside it."""
    right = ALL["search/found"]
    wrong = replace(right, turns=(replace(right.turns[0], reasons=("fatal",)),))
    monkeypatch.setattr("domains.cli.scenarios", lambda: {"search/found": wrong})
    result = invoke("run", "--json")

    assert (1, [False]) == (result.exit_code, [row["ok"] for row in json.loads(result.stdout)])
    assert "reasons: expected fatal, came completed" in result.stderr


# Live.


@pytest.mark.parametrize("verb", ["run", "compare"])
@pytest.mark.parametrize("key", [None, "", "  "])
def test_live_needs_a_key(verb: str, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key, the name of the variable is told, and nothing is played."""
    if key is not None:
        monkeypatch.setenv("GROQ_API_KEY", key)
    said = "domains: --live needs GROQ_API_KEY: set it to a key from your Groq console, or leave --live out."

    assert (2, "", said) == seen(invoke(verb, "search/found", "--live"))


@pytest.mark.parametrize("verb", ["run", "compare"])
def test_a_model_needs_live(verb: str) -> None:
    """A model's name has no meaning for the script."""
    assert (2, "", "domains: --model goes with --live.") == seen(invoke(verb, "--model", "x"))


def asks(query: str) -> AIMessage:
    """Return the model's call of the search."""
    return AIMessage("", tool_calls=[{"name": "search", "args": {"query": query}, "id": "call_1"}])


LIVE: Final = {
    "search/found": ([asks("mug")], 1, "completed"),
    "search/no-index": ([asks("mug")], 1, "fatal"),
    "search/not-permitted": ([asks("mug")], 1, "policy_block"),
    "search/reworded": ([asks("mug )("), asks("mug")], 2, "completed"),
    "search/rate-limited": ([asks("mug")], 2, None),
}
"""Scenario -> what the model says, how often it is asked, and what ends the run."""


@pytest.mark.parametrize("name", LIVE)
@pytest.mark.parametrize("runtime", ["graph", "agent"])
def test_live(name: str, runtime: str, groq: Callable[..., GroqServer]) -> None:
    """A stop asks a real model no more; a transient outcome gives it another turn."""
    turns, calls, stopped_by = LIVE[name]
    server = groq(*turns)
    result = invoke("run", name, "--live", "--json", "--runtime", runtime)
    (row,) = json.loads(result.stdout)

    assert (0, "") == (result.exit_code, result.stderr)
    assert (True, calls, stopped_by) == (row["ok"], row["model_calls"], row["stopped_by"])
    assert calls == len(server.requests)
    assert {"/openai/v1/chat/completions"} == {*server.paths}
    assert {"Bearer not-a-key"} == {*server.keys}
    assert ("All is told." == row["final"]) == (stopped_by is None)


def test_live_asks_the_model_that_is_named(groq: Callable[..., GroqServer]) -> None:
    """--model goes out with the request; without it, the one in the help does."""
    server = groq(asks("mug"), asks("mug"))
    invoke("run", "search/found", "--live", "--model", "some/model")
    result = invoke("run", "search/found", "--live")

    assert ["some/model", MODEL] == [request["model"] for request in server.requests]
    assert "approx" not in result.stdout


def test_live_without_a_call_is_a_surprise(groq: Callable[..., GroqServer]) -> None:
    """A model that calls no tool shows nothing, and that is told."""
    groq()
    code, _, err = seen(invoke("run", "search/found", "--live"))

    assert (1, "search/found on graph: the model called no tool") == (code, err)


def test_live_with_a_wrong_key(groq: Callable[..., GroqServer]) -> None:
    """What Groq refuses is one line, without a traceback."""
    groq(unauthorized())

    assert (2, "", "domains: Groq answered 401 (AuthenticationError).") == seen(
        invoke("run", "search/found", "--live", "--json")
    )


def test_live_keeps_what_was_played(groq: Callable[..., GroqServer]) -> None:
    """A refusal in the middle costs the rest, not what there is."""
    groq(asks("mug"), unauthorized())
    code, out, err = seen(invoke("run", "search/found", "search/no-index", "--live"))

    assert 2 == code
    assert out.endswith("1 played, 1 as written.")
    assert "domains: Groq answered 401 (AuthenticationError). What was played before that is shown." == err


def test_live_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Groq that cannot be reached is one line as well."""
    monkeypatch.setenv("GROQ_API_KEY", "not-a-key")
    monkeypatch.setenv("GROQ_API_BASE", "http://127.0.0.1:9")

    assert (2, "", "domains: Groq could not be asked (APIConnectionError).") == seen(
        invoke("run", "search/found", "--live")
    )


# Explain.


def test_explain() -> None:
    """People read what fired, what did not and why, the sentence, and the argument for it."""
    result = invoke("explain", "checkout", stdin=lines(DECLINED))
    code, out, err = seen(result)

    assert (0, "") == (code, err)
    assert out.startswith(
        "line 1: 402 -> fatal, stops: checkout/declined no checkout/paid status is 402, not 200"
    )
    assert " rows for other statuses" in out
    assert "yes checkout/declined reads " in out
    assert "Nothing was charged." in out
    assert "source https://docs.stripe.com/" in out
    assert out.endswith("effect none wait not said code insufficient_funds")
    assert 40 > len(result.stdout.splitlines())


def test_explain_an_exception() -> None:
    """An exception has no status: the rows for responses are one line."""
    _, out, _ = seen(invoke("explain", UNMAPPED, stdin=lines({"exception": "httpx.ReadTimeout"})))

    assert out.startswith("line 1: ReadTimeout -> transient, the model decides: infra/timeout no ")
    assert re.search(r"no infra/\S+ to infra/unreadable: \d+ rows for responses ", out)
    assert "no infra/tls exception is ReadTimeout, not tls_refused" in out


def test_explain_shows_no_terminal_codes() -> None:
    """A page cannot clear the screen, colour it, draw emoji or break the lines."""
    page = "\x1b[2J\x9b1m\x07:fire: [red]x[/]\r\n\r\ny"
    out = invoke("explain", UNMAPPED, stdin=lines({"status": 502, "body": page})).stdout

    assert "text is [2J1m:fire: [red]x[/] y, not one of " in out
    assert not re.search(r"[\x1b\x9b\x07]", out)


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("before", ["", "HTTP/1.1 100 Continue\n\n", "HTTP/1.1 302 Found\nLocation: /x\n\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_explain_reads_curl(newline: str, before: str, encoding: str, tmp_path: Path) -> None:
    """What curl -i printed is read, from stdin or a file, however the shell has saved it."""
    raw = (before + CURL.replace("\r\n", "\n")).replace("\n", newline).encode(encoding)
    file = tmp_path / "reply.txt"
    file.write_bytes(raw)
    answers = [
        json.loads(invoke("explain", "checkout", *where, "--json", stdin=stdin).stdout)
        for where, stdin in (((), raw), (("-",), raw), ((str(file),), None))
    ]

    assert [("infra/too-many-requests", 7)] * 3 == [
        (answer["rule"], answer["retry_after_s"]) for answer in answers
    ]


def test_explain_json() -> None:
    """One object a reply with exactly the agreed keys, in the order of the lines."""
    text = lines(DECLINED, {"exception": "ConnectError", "method": "POST"}, {"status": 500, "write": False})
    result = invoke("explain", "checkout", "--json", stdin=text)
    answers = [json.loads(row) for row in result.stdout.splitlines()]

    assert 0 == result.exit_code
    assert [["reason", "stop", "rule", "effect", "retry_after_s", "vendor_code"]] * 3 == [*map(list, answers)]
    assert [
        ("fatal", True, "checkout/declined", "none", None, "insufficient_funds"),
        ("transient", False, "infra/unreachable", "none", None, None),
        ("transient", False, "infra/server-error", "none", None, None),
    ] == [tuple(answer.values()) for answer in answers]


@pytest.mark.parametrize("flags", [(), ("--json",), ("--summary",), ("--summary", "--json")], ids=str)
def test_broken_lines_are_named(flags: tuple[str, ...]) -> None:
    """A broken line exits 2 and is named, and all the others are answered."""
    text = lines(DECLINED, "no json", {"status": "x"}, DECLINED)
    code, out, err = seen(invoke("explain", "checkout", *flags, stdin=text))

    assert 2 == code
    assert ("2" if "--summary" in flags else "checkout/declined") in out
    assert (
        "line 2: no JSON object (Expecting value at column 1) "
        "line 3: status must be a number from 100 to 999, or exception a class name; status is 'x'"
    ) == err


@pytest.mark.parametrize("stdin", ["", "\n \n", "\ufeff"])
def test_nothing_to_explain(stdin: str) -> None:
    """Empty input is no success: a pipe may have brought nothing."""
    said = "domains: there is no reply to explain: give a JSON object a line, or one `curl -i` response."

    assert (2, "", said) == seen(invoke("explain", "checkout", stdin=stdin))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, or a folder, is one line."""
    missing = tmp_path / "missing.jsonl"
    for path in (missing, tmp_path):
        code, out, err = seen(invoke("explain", "checkout", str(path)))
        assert (2, "") == (code, out)
        assert err.startswith(f"domains: cannot read {path}: ")
    assert "No such file or directory." in seen(invoke("explain", "checkout", str(missing)))[2]


SUMMED: Final = lines(
    *[DECLINED] * 3, {"status": 429}, *[{"status": 777, "body": "[b]odd[/b]"}] * 2, {"exception": "Odd"}
)


def test_summary() -> None:
    """Counts by row, the most frequent first, then what no row knew."""
    code, out, _ = seen(invoke("explain", "checkout", "--summary", stdin=SUMMED))

    assert 0 == code
    assert out.startswith("Replies: 7 row reason count ")
    assert (
        "checkout/declined fatal 3 infra/unknown transient 3 infra/too-many-requests transient 1 "
        "No row knew these; map them next: status reply count"
    ) in out
    assert out.endswith("777 [b]odd[/b] 2 Odd nothing 1")


def test_summary_json() -> None:
    """One object: the number of replies, rows, and what no row knew."""
    result = invoke("explain", "checkout", "--summary", "--json", stdin=SUMMED)

    assert {
        "replies": 7,
        "rows": [
            {"rule": "checkout/declined", "reason": "fatal", "count": 3},
            {"rule": "infra/unknown", "reason": "transient", "count": 3},
            {"rule": "infra/too-many-requests", "reason": "transient", "count": 1},
        ],
        "unmapped": [
            {"status": "777", "reply": "[b]odd[/b]", "count": 2},
            {"status": "Odd", "reply": "", "count": 1},
        ],
    } == json.loads(result.stdout)


def test_summary_with_all_known() -> None:
    """No list of what to map next if there is nothing to map."""
    out = seen(invoke("explain", "checkout", "--summary", stdin=lines(DECLINED)))[1]

    assert out.endswith("checkout/declined fatal 1 Nothing fell to the fallback.")


def test_a_days_log_is_quick(tmp_path: Path) -> None:
    """Two thousand replies take a second or so; the bound only catches what is no longer linear."""
    file = tmp_path / "day.jsonl"
    file.write_text(lines(*[DECLINED | {"headers": {"x-n": str(n)}} for n in range(2000)]))
    start = time.perf_counter()
    result = invoke("explain", "checkout", str(file), "--json")

    assert 2000 == len(result.stdout.splitlines())
    assert 10 > time.perf_counter() - start


# Rules.


def test_rules() -> None:
    """All tables, each with its rows, their reasons and what people read."""
    code, out, _ = seen(invoke("rules"))

    assert 0 == code
    for name in (*DOMAINS, UNMAPPED):
        assert (
            f"{name}: {len(json.loads(invoke('rules', name, '--json').stdout)[name])} rows, the first" in out
        )
    assert " checkout/declined " in out
    assert " , ..." not in out


def test_rules_of_one() -> None:
    """A domain's own rows only; those that it shares stand in the shared table."""
    out = invoke("rules", "search").stdout

    assert "search/found" in out
    assert "checkout/" not in out
    assert "infra/" not in out


@pytest.mark.parametrize("columns", ["60", "80", "120", "200"])
def test_rules_at_any_width(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row's name is folded or cut, so that it can be copied."""
    monkeypatch.setattr("domains.cli.out.width", int(columns), raising=False)
    out = invoke("rules", "search").stdout

    assert [] == [
        row["id"]
        for row in json.loads(invoke("rules", "search", "--json").stdout)["search"]
        if row["id"] not in out
    ]


def test_rules_json() -> None:
    """One object, table -> rows, with all that a reviewer needs."""
    found = json.loads(invoke("rules", "--json").stdout)

    assert [*DOMAINS, UNMAPPED] == list(found)
    for rows in found.values():
        assert {"id reason when say why source effect retry_after_s"} == {" ".join(row) for row in rows}
    assert {"completed", "transient", "fatal", "policy_block"} == {r["reason"] for r in found["checkout"]}


@pytest.mark.parametrize("name", [*DOMAINS, UNMAPPED])
def test_rules_markdown(name: str) -> None:
    """A table that every renderer takes: five cells a row, whatever pipes and stars the rows hold."""
    rows = json.loads(invoke("rules", name, "--json").stdout)[name]
    title, blank, head, line, *body = invoke("rules", name, "--md").stdout.rstrip("\n").split("\n")

    assert (f"### {name}", "") == (title, blank)
    assert "| row | reason | when | what people read | why |" == head
    assert "|---|---|---|---|---|" == line
    assert [row["id"] for row in rows] == [cells(row)[0].strip("`") for row in body]
    for row, written in zip(rows, map(cells, body), strict=True):
        assert 5 == len(written)
        assert [row["reason"], row["say"]] == [written[1], unescaped(written[3])]
        assert f"{row['why']} ([source]({row['source']}))" == unescaped(written[4])
        assert row["when"].startswith(unescaped(written[2]).removesuffix(" ..."))


def cells(row: str) -> list[str]:
    """Return a row's cells, split as GitHub does: at pipes that no backslash escapes."""
    return [cell.strip() for cell in re.findall(r"\|((?:[^|\\]|\\.)*)(?=\|)", row)]


def unescaped(cell: str) -> str:
    """Return a cell as it reads once rendered."""
    return re.sub(r"\\([^\w\s])", r"\1", cell)


# In a process of its own.

LIGHT: Final = """
import sys
from domains.__main__ import main

for line in ("list", "rules", "rules --md", "explain checkout --json", "--help", "run nothing-of-the-kind"):
    sys.argv = ["domains", *line.split()]
    try:
        main()
    except SystemExit:
        pass
heavy = {"langgraph", "langchain", "langchain_core", "langchain_groq", "groq", "respx", "mocks"}
print("HEAVY", sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_frameworks_stay_out() -> None:
    """The verbs that play nothing load no framework, so they answer at once."""
    done = process(code=LIGHT, input=lines(DECLINED).encode())

    assert "HEAVY []" == done.stdout.decode().splitlines()[-1]
    assert "checkout/declined" in done.stdout.decode()


def test_run_json_is_all_there_is() -> None:
    """A real process prints one array and nothing else, and nothing beside it."""
    done = process("run", "checkout/paid", "--json")

    assert (0, b"") == (done.returncode, done.stderr)
    assert ["checkout/paid"] == [row["scenario"] for row in json.loads(done.stdout)]


def test_a_legacy_code_page(tmp_path: Path) -> None:
    """Windows pipes in a code page that lacks half of what we print: the output is UTF-8 all the same."""
    file = tmp_path / "reply.jsonl"
    file.write_text(
        lines({"status": 402, "body": {"error": {"decline_code": "Ω→€"}}}, "broken → line"), "utf-8"
    )
    done = process(
        "explain", "checkout", str(file), env={**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    )

    assert (2, "line 2: no JSON object (Expecting value at column 1)") == (
        done.returncode,
        done.stderr.decode().strip(),
    )
    assert "Ω→€" in done.stdout.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe breaks in another way there")
@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["text", "json"])
def test_a_broken_pipe(flags: tuple[str, ...], tmp_path: Path) -> None:
    """``| head -1`` is no error: no traceback, and the process ends."""
    file = tmp_path / "day.jsonl"
    file.write_text(lines(*[DECLINED] * 3000))
    with subprocess.Popen(  # noqa: S603 - our own command line
        [sys.executable, "-m", "domains", "explain", "checkout", str(file), *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline()
        running.stdout.close()
        assert (b"", 1) == (running.stderr.read(), running.wait(30))


INTERRUPTED: Final = """
import sys, domains.cli
from domains.__main__ import main

print("ready", flush=True)
sys.argv = ["domains", *sys.argv[1:]]
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process is not interrupted by a signal there")
@pytest.mark.parametrize("arguments", [("run",), ("explain", "checkout")], ids=lambda given: given[0])
def test_ctrl_c(arguments: tuple[str, ...]) -> None:
    """Ctrl-C ends a run, or a wait for input, with 130 and without a traceback."""
    with subprocess.Popen(  # noqa: S603 - our own command line
        [sys.executable, "-c", INTERRUPTED, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert b"ready\n" == running.stdout.readline()
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)

    assert (130, b"", b"") == (running.returncode, out, err)


@pytest.mark.parametrize(
    ("cause", "ends"), [(KeyboardInterrupt(), SystemExit), (None, RuntimeError), (ValueError(), RuntimeError)]
)
def test_ctrl_c_while_a_class_is_made(
    cause: BaseException | None, ends: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 hides a Ctrl-C behind an error of its own: that is one too, and no other error is."""

    def loading() -> None:
        raise RuntimeError("Error calling __set_name__") from cause

    monkeypatch.setattr("domains.cli.app", loading)
    with pytest.raises(ends) as ended:
        main()
    assert (130 if ends is SystemExit else None) == getattr(ended.value, "code", None)
