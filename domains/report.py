"""One page about scenarios: what was said, what was decided and why, and what routing saves.

A single file without scripts that asks no network for anything, so that it can be mailed, archived and
opened from a disk. The same scenarios give the same bytes. Everything that comes from a vendor, a user or
a model is escaped by ``Markup.format``; only the constants of this module are markup.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from markupsafe import Markup

from domains.answers import Heard, Wrong
from domains.compare import Compared, Wiring, figures, of_plays
from domains.explain import UNMAPPED, table_rows
from domains.found import DOMAINS
from domains.runner import Played
from domains.scenario import Scenario
from orchestration.outcomes import text_of
from orchestration.router import Decision, Vote, decide

LONGEST: Final = 4_000
"""Characters of a body that are in the page at all: a reply of megabytes would make it unreadable."""

FOLDED: Final = 700
"""Characters from which a body is folded."""

TALLEST: Final = 24
"""Lines of a preview that are seen at once; it scrolls."""

_ICONS: Final[Mapping[str, str]] = {
    "completed": '<circle cx="12" cy="12" r="9"/><path d="m8 12.5 2.7 2.7L16 9.5"/>',
    "transient": '<path d="M20 12a8 8 0 1 1-2.6-5.9M20 3v4.5h-4.5"/>',
    "fatal": '<path d="M8.3 3h7.4L21 8.3v7.4L15.7 21H8.3L3 15.7V8.3z"/><path d="m9 9 6 6m0-6-6 6"/>',
    "policy_block": '<path d="M12 3 4.5 6v5.5c0 4.5 3 7.7 7.5 9.5 4.5-1.8 7.5-5 7.5-9.5V6z"/>'
    '<path d="M8.5 12h7"/>',
    "unusable": '<path d="m12 2.5 9.5 9.5-9.5 9.5L2.5 12z"/><path d="M12 8v5m0 3v.1"/>',
    "model": '<path d="M4 5h16v11H9l-5 4z"/>',
    "user": '<circle cx="12" cy="8" r="4"/><path d="M4.5 20.5c.6-4 3.6-6 7.5-6s6.900 2 7.5 6"/>',
    "agent": '<path d="M4 5h16v11H9l-5 4z"/>',
    "tools": '<path d="M14.5 4a5 5 0 0 0-5.200 7L3.5 16.800l3.7 3.7L13 14.7a5 5 0 0 0 7-5.200l-3.200 '
    '1.7-2.5-2.5z"/>',
    "arrow": '<path d="M3 12h17m-5-5 5 5-5 5"/>',
    "odd": '<path d="M12 3.5 21.5 20h-19z"/><path d="M12 10v4.500m0 2.500v.1"/>',
    "finalize": '<path d="M5 21V4h13l-2.5 4.5L18 13H5"/>',
    "polish": '<path d="m12 3 2.200 6.800L21 12l-6.800 2.200L12 21l-2.200-6.800L3 12l6.800-2.200z"/>',
}
"""A shape of its own for every reason and every node: colour is never alone."""

_WORDS: Final = {
    "attempts_exhausted": "attempts used up",
    "turns_exhausted": "turns used up",
    "model": "ended by the model",
}
_LOOKS: Final = {"attempts_exhausted": "transient", "turns_exhausted": "transient", "more_steps": "completed"}
_NODES: Final = {"agent": "model", "tools": "tools", "finalize": "tool's text", "polish": "polished text"}

_PAGE: Final = Markup("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
base-uri 'none'; form-action 'none'">
<meta name="color-scheme" content="light dark">
<title>Scenarios: what was said, what was decided</title>
<style>
{css}</style>
</head>
<body>
<svg class="hidden" aria-hidden="true" focusable="false">{symbols}<defs><pattern id="hatching" \
patternUnits="userSpaceOnUse" width="6" height="6" patternTransform="rotate(45)"><path class="hatch" \
d="M0 0v6"/></pattern></defs></svg>
<a class="skip" href="#scenarios">Skip to the scenarios</a>
<div class="page">
<nav aria-label="Contents">
<h2>This page</h2>
<ul><li><a href="#summary">Summary</a></li><li><a href="#wirings">Five wirings</a></li>\
<li><a href="#tables">Rows of the tables</a></li></ul>
{contents}
</nav>
<main>
{main}
</main>
</div>
</body>
</html>
""")

_PREVIEW: Final = Markup("""\
<!doctype html><html lang="en"><head><title>Preview</title><style>:root{{color-scheme:light dark}}\
body{{font:16px/1.5 Georgia,serif;margin:12px;overflow-wrap:anywhere}}</style></head>\
<body>{}</body></html>""")


def page(scenarios: Sequence[Scenario], played: Sequence[Played], compared: Sequence[Compared]) -> str:
    """Return the page.

    Args:
        scenarios: What was played.
        played: What came of it in mode ``hard``, in the same order.
        compared: What ``compare`` made of the same scenarios.
    """
    groups: defaultdict[str, list[tuple[Scenario, Played]]] = defaultdict(list)
    for pair in zip(scenarios, played, strict=True):
        groups[_home(pair[0].id)].append(pair)
    slugs = _slugs(scenarios)
    tables = {name: table_rows(name) for name in (*DOMAINS, UNMAPPED)}
    rows = {row["id"]: row for own in tables.values() for row in own}
    calls = {each.scenario: each for each in of_plays(compared, Wiring.PLAIN)}
    main = [
        _summary(played, compared, tables, slugs),
        _wirings(compared, slugs),
        _tables(tables, Counter(rule for each in played for rule in each.rules if rule)),
        Markup(
            '<section aria-labelledby="scenarios"><h2 id="scenarios" tabindex="-1">Scenarios</h2></section>'
        ),
    ]
    for name, pairs in groups.items():
        main.append(
            Markup('<section aria-labelledby="{id}"><h2 id="{id}">{name}</h2>\n{all}</section>').format(
                id=f"of-{_slug(name)}",
                name=name.capitalize(),
                all=_join((_scenario(one, came, calls[one.id], rows, slugs) for one, came in pairs), "\n"),
            )
        )
    css = Path(__file__).with_name("report.css").read_text("utf-8")
    html = str(
        _PAGE.format(
            css=Markup(css),  # noqa: S704 - our own file
            symbols=_join(map(_symbol, _ICONS)),
            contents=_join((_contents(name, pairs, slugs) for name, pairs in groups.items()), "\n"),
            main=_join(main, "\n"),
        )
    )
    return html.encode("utf-8", "replace").decode()  # half a surrogate pair can be written nowhere


def _home(scenario: str) -> str:
    home = scenario.partition("/")[0]
    return home if home in DOMAINS else "across domains"


def _join(parts: Iterable[Markup], between: str = "") -> Markup:
    return Markup(between).join(parts)  # noqa: S704 - what joins is a space or a line break


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _slugs(scenarios: Sequence[Scenario]) -> dict[str, str]:
    """Return an anchor for every scenario: no two alike, whatever their ids are written in."""
    found: dict[str, str] = {}
    for one in scenarios:
        slug = name = _slug(one.id) or "scenario"
        more = count(2)
        while name in found.values():
            name = f"{slug}-{next(more)}"
        found[one.id] = name
    return found


def _symbol(name: str) -> Markup:
    drawn = Markup(_ICONS[name])  # noqa: S704 - a constant of this module
    return Markup('<symbol id="i-{}" viewBox="0 0 24 24">{}</symbol>').format(name, drawn)


def _icon(name: str) -> Markup:
    return Markup('<svg class="icon" aria-hidden="true"><use href="#i-{}"/></svg>').format(name)


def _badge(name: str) -> Markup:
    look = _LOOKS.get(name, name)
    look = look if look in _ICONS else "unusable"
    return Markup('<span class="badge {}">{}{}</span>').format(look, _icon(look), _word(name))


def _word(name: str) -> str:
    return _WORDS.get(name, name.replace("_", " "))


def _contents(name: str, pairs: Iterable[tuple[Scenario, Played]], slugs: Mapping[str, str]) -> Markup:
    item = Markup(
        '<li><a class="{look}" href="#{id}">{icon}{name}<span class="hidden">, {end}</span>{odd}</a></li>'
    )
    odd = Markup('<span class="odd">{}<span class="hidden">, </span>not as written</span>').format(
        _icon("odd")
    )
    items = []
    for one, came in pairs:
        end = came.stopped_by or "model"
        look = _LOOKS.get(end, end)
        short = one.id.partition("/")[2] or one.id
        items.append(
            item.format(
                look=look,
                id=slugs[one.id],
                icon=_icon(look),
                name=short,
                end=_word(end),
                odd="" if came.ok else odd,
            )
        )
    return Markup("<h2>{}</h2>\n<ul>{}</ul>").format(name, _join(items))


# The summary.


def _summary(
    played: Sequence[Played],
    compared: Sequence[Compared],
    tables: Mapping[str, list[dict[str, Any]]],
    slugs: Mapping[str, str],
) -> Markup:
    plain, hard = (figures(of_plays(compared, wiring)) for wiring in (Wiring.PLAIN, Wiring.HARD))
    fired = {rule for each in played for rule in each.rules}
    known = [row["id"] for own in tables.values() for row in own]
    tiles = {
        "scenarios went as written": f"{sum(each.ok for each in played)} of {len(played)}",
        f"model calls, {plain['model_calls']:,} in the plain loop": _less(
            hard["model_calls"], plain["model_calls"]
        ),
        f"tokens, {_amount(_tokens(plain))} in the plain loop (approximate)": _less(
            _tokens(hard), _tokens(plain)
        ),
        "rows of the tables that fired": f"{sum(rule in fired for rule in known)} of {len(known)}",
    }
    return Markup("""\
<header>
<h1 id="summary">What was said, what was decided</h1>
<p class="lead">Every scenario was played against imitated vendors and a scripted model. A tool's outcome says
whether the run ends with the tool's own text or the model gets another turn; this page shows each of these
decisions, the row of the table behind it, and what it saved.</p>
</header>
<dl class="tiles">{tiles}</dl>
{odd}<div class="plots">{plots}</div>
""").format(
        tiles=_join(Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(*item) for item in tiles.items()),
        odd=_odd([each.scenario for each in played if not each.ok], slugs),
        plots=_join(_plots(compared), "\n"),
    )


def _odd(names: Sequence[str], slugs: Mapping[str, str]) -> Markup | str:
    """Name the scenarios that did not go as written, where they cannot be overlooked."""
    if not names:
        return ""
    link = Markup('<a href="#{}">{}</a>')
    return Markup('<p class="notice">{}<span><strong>Not as written:</strong> {}</span></p>\n').format(
        _icon("odd"), _join((link.format(slugs[name], name) for name in names), ", ")
    )


def _tokens(sums: Mapping[str, Any]) -> int | None:
    if None in {sums["input_tokens"], sums["output_tokens"]}:
        return None
    return int(sums["input_tokens"] + sums["output_tokens"])


def _amount(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _less(now: int | None, before: int | None) -> str | Markup:
    if now is None or not before:
        return _amount(now)
    change = f"{(now - before) / before:+.0%}".replace("-", "\N{MINUS SIGN}")
    return Markup("{} <small>{}</small>").format(f"{now:,}", change)


def _plots(compared: Sequence[Compared]) -> Iterator[Markup]:
    pairs = [
        (before, after)
        for plain, hard in zip(of_plays(compared, Wiring.PLAIN), of_plays(compared, Wiring.HARD), strict=True)
        for before, after in zip(plain.heard, hard.heard, strict=False)  # one that raised is shorter
    ]
    by_rule = _grouped((_word(after.ended_by), before, after) for before, after in pairs)
    by_tool = _grouped((_tool_names(after), before, after) for before, after in pairs)
    yield _bars("Model calls, by what ended the run", by_rule, 0)
    yield _bars("Tokens (approximate), by what ended the run", by_rule, 1)
    yield _bars("Model calls, by tool", by_tool, 0)
    yield _bars("Tokens (approximate), by tool", by_tool, 1)


def _tool_names(heard: Heard) -> str:
    names = sorted({called.call["name"] for called in heard.calls})
    return " + ".join(names) or "no tool"


_Sums = dict[str, tuple[list[int | None], list[int | None]]]


def _grouped(rows: Iterable[tuple[str, Heard, Heard]]) -> _Sums:
    """Add up model calls and tokens, without routing and with it."""
    groups: defaultdict[str, list[tuple[Heard, Heard]]] = defaultdict(list)
    for name, *pair in rows:
        groups[name].append((pair[0], pair[1]))
    sums: _Sums = {}
    for name, pairs in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        plain, hard = ([pair[at] for pair in pairs] for at in (0, 1))
        sums[name] = (
            [sum(each.model_calls for each in heard) for heard in (plain, hard)],
            [_all_tokens(heard) for heard in (plain, hard)],
        )
    return sums


def _all_tokens(heard: Iterable[Heard]) -> int | None:
    parts = [part for each in heard for part in (each.input_tokens, each.output_tokens)]
    return None if None in parts else sum(part for part in parts if part is not None)


ROW: Final = 60
"""Pixels of a plot's row: a line of text and two bars."""

LONGEST_LABEL: Final = 32
"""Characters of a plot's label, which cannot wrap; the table below it has the whole."""

WIDEST: Final = 45
"""Percent of a plot's width that its longest bar takes: its value stands behind it."""


def _bars(title: str, sums: _Sums, which: int) -> Markup:
    rows = {name: sums[name][which] for name in sums}
    largest = max((part or 0 for pair in rows.values() for part in pair), default=0) or 1
    drawn, table = [], []
    for at, (name, (before, after)) in enumerate(rows.items()):
        top = at * ROW
        drawn.append(
            Markup('<text x="0" y="{}">{}</text>').format(
                top + 14, shorten(name, LONGEST_LABEL, placeholder=" \N{HORIZONTAL ELLIPSIS}")
            )
        )
        for offset, (label, number, look) in enumerate(
            [("plain loop", before, "plain"), ("with routing", after, "ours")]
        ):
            y, width = top + 20 + 17 * offset, f"{WIDEST * (number or 0) / largest:.2f}%"
            bar = Markup('<rect class="bar-{}" x="0" y="{}" width="{}" height="14" rx="2"/>')
            drawn.append(bar.format(look, y, width))
            if look == "plain":  # a pattern too, for who sees no colours
                hatched = Markup('<rect fill="url(#hatching)" x="0" y="{}" width="{}" height="14"/>')
                drawn.append(hatched.format(y, width))
            text = Markup('<text class="value" x="{}" y="{}" dx="6">{} {}</text>')
            drawn.append(text.format(width, y + 11, _amount(number), label))
        table.append([name, _amount(before), _amount(after)])
    return Markup("""\
<figure>
<figcaption>{title}</figcaption>
<svg role="img" aria-label="{title}: {said}" height="{height}">{drawn}</svg>
<details><summary>As a table<span class="hidden">: {title}</span></summary>{table}</details>
</figure>""").format(
        title=title,
        said="; ".join(
            f"{name}: {before} in the plain loop, {after} with routing" for name, before, after in table
        ),
        height=ROW * len(rows),
        drawn=_join(drawn),
        table=_table(["", "plain loop", "with routing"], table),
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> Markup:
    """Return a table whose first column names the row and whose other columns are numbers."""
    first, *others = heads
    cell = Markup('<td class="n">{}</td>')
    return Markup("<table>{}<thead><tr>{}{}</tr></thead><tbody>{}</tbody></table>").format(
        Markup("<caption>{}</caption>").format(caption) if caption else "",
        Markup('<th scope="col">{}</th>').format(first or Markup('<span class="hidden">name</span>')),
        _join(Markup('<th class="n" scope="col">{}</th>').format(head) for head in others),
        _join(
            Markup('<tr><th scope="row">{}</th>{}</tr>').format(row[0], _join(map(cell.format, row[1:])))
            for row in rows
        ),
    )


# The wirings.


def _wirings(compared: Sequence[Compared], slugs: Mapping[str, str]) -> Markup:
    totals = [figures(of_plays(compared, wiring)) for wiring in Wiring]
    rows: list[list[object]] = [
        ["model calls", *(f"{each['model_calls']:,}" for each in totals)],
        ["tokens, approximate", *(_amount(_tokens(each)) for each in totals)],
        ["vendor calls", *(f"{each['vendor_calls']:,}" for each in totals)],
        ["wrong answers", *(_bad(each["wrong_answers"]) for each in totals)],
    ]
    sub = Markup('<span class="sub">{}</span>')
    rows += [[sub.format(kind.value), *(_bad(each["wrong"][kind]) for each in totals)] for kind in Wrong]
    bad = [
        Markup("<li>{}, {}: {}</li>").format(
            Markup('<a href="#{}">{}</a>').format(slugs[each.scenario], each.scenario),
            each.wiring.value,
            ", ".join(f"{kind.value}" for kind in each.wrong),
        )
        for each in compared
        if each.wrong
    ]
    return Markup("""\
<section aria-labelledby="wirings">
<h2 id="wirings">Five wirings of the same tools</h2>
<p>The plain loop asks the model after every turn of tools. <code>return_direct</code> is set on the tools
where it comes off best. <code>tools-&gt;END</code> is a graph whose tools lead to its end. The scripted model
never errs in its words, so a wrong answer is the wiring's. Checks find them; one answer can be wrong in two
ways. Success that was claimed in words other than the usual English ones is not found.</p>
<div class="scroll" role="region" aria-label="Figures by wiring" tabindex="0">{table}</div>
{bad}
</section>""").format(
        table=_table(["", *(wiring.value for wiring in Wiring)], rows),
        bad=Markup(
            "<details><summary>The {} plays with a wrong answer</summary><ul>{}</ul></details>"
        ).format(len(bad), _join(bad))
        if bad
        else "",
    )


def _bad(number: int) -> str:
    return Markup('<span class="bad">{}</span>').format(number) if number else "0"


# The tables.


def _tables(tables: Mapping[str, list[dict[str, Any]]], fired: Counter[str]) -> Markup:
    return Markup("""\
<section aria-labelledby="tables" class="never">
<h2 id="tables">Rows of the tables</h2>
<p>A row that never fired is not wrong: it waits for a reply that no scenario on this page holds.</p>
{}
</section>""").format(_join((_one_table(name, rows, fired) for name, rows in tables.items()), "\n"))


def _one_table(name: str, rows: Sequence[Mapping[str, Any]], fired: Counter[str]) -> Markup:
    never = [row for row in rows if not fired[row["id"]]]
    did = sorted((row for row in rows if fired[row["id"]]), key=lambda row: -fired[row["id"]])
    item = Markup(
        '<li>{badge} <code>{id}</code> <span class="small">when {when}</span><br>{why} {source}</li>'
    )
    return Markup("""\
<h3>{name}: {count} of {all} rows fired</h3>
<details><summary>The rows that fired, {name}</summary>{did}</details>
<details><summary>The {rest} rows that never fired, {name}</summary><ul>{never}</ul></details>""").format(
        name=name,
        count=len(did),
        all=len(rows),
        did=_table(
            ["row", "calls"],
            [[Markup("{} {}").format(_badge(row["reason"]), row["id"]), fired[row["id"]]] for row in did],
        ),
        rest=len(never),
        never=_join(
            item.format(
                badge=_badge(row["reason"]),
                id=row["id"],
                when=_short(row["when"]),
                why=row["why"],
                source=_link(row["source"], f"Source of {row['id']}"),
            )
            for row in never
        ),
    )


def _short(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[:most]} \N{HORIZONTAL ELLIPSIS}"


def _link(source: str, label: str) -> Markup:
    if not source.startswith("https://"):
        return Markup("<span>{}</span>").format(source)
    return Markup('<a href="{}" rel="noreferrer" aria-label="{}">source</a>').format(source, label)


# The scenarios.


def _scenario(
    scenario: Scenario,
    played: Played,
    plain: Compared,
    rows: Mapping[str, Mapping[str, Any]],
    slugs: Mapping[str, str],
) -> Markup:
    saved = sum(each.model_calls for each in plain.heard) - played.model_calls
    tokens = None if None in played.tokens.values() else sum(part or 0 for part in played.tokens.values())
    facts = [
        _count(played.model_calls, "model call"),
        _count(played.tool_calls, "tool call"),
        f"{_amount(tokens)} tokens, approximate",
        f"{_count(saved, 'model call')} fewer than the plain loop",
    ]
    surprises = Markup('<ul class="surprises">{}</ul>').format(
        _join(
            Markup("<li>Not as written: {}</li>").format(_short(each, LONGEST)) for each in played.surprises
        )
    )
    return Markup("""\
<article class="scenario" id="{slug}" aria-labelledby="{slug}-h">
<header>
<div class="titled"><h3 id="{slug}-h">{id}</h3><span class="ends">{odd}{end}</span></div>
<p>{about}</p>
{path}
<ul class="facts">{facts}</ul>
{surprises}
</header>
<div class="turn">
<div class="heads" aria-hidden="true"><div>Said</div><div>Decided</div></div>
{said}
</div>
</article>""").format(
        slug=slugs[scenario.id],
        id=scenario.id,
        odd=""
        if played.ok
        else Markup('<span class="badge odd">{}not as written</span>').format(_icon("odd")),
        end=_badge(played.stopped_by or "model"),
        about=scenario.about,
        path=_path(played.path, [turn.path for turn in scenario.turns]),
        facts=_join(Markup("<li>{}</li>").format(each) for each in facts),
        surprises=surprises if played.surprises else "",
        said=_join(_said(played.messages, rows), "\n"),
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _path(path: Sequence[str], turns: Sequence[Sequence[str]]) -> Markup:
    """Draw the nodes that ran; where the user spoke again, if that is where it should be."""
    speaks = {sum(map(len, turns[:at])) for at in range(len(turns))}
    node = Markup('<li>{arrow}<span class="node {name}">{icon}{label}</span></li>')
    drawn: list[Markup] = []

    def draw(name: str, label: str) -> None:
        drawn.append(
            node.format(arrow=_icon("arrow") if drawn else "", name=name, icon=_icon(name), label=label)
        )

    for at, name in enumerate(path):
        if at in speaks:
            draw("user", "user")
        draw(name if name in _NODES else "agent", _NODES.get(name, name))
    return Markup('<ol class="path" aria-label="The path taken">{}</ol>').format(_join(drawn))


def _row(said: Markup, decided: Markup | str = "", look: str = "") -> Markup:
    if not decided:
        return Markup('<div class="row alone"><div class="said">{}</div></div>').format(said)
    row = Markup('<div class="row {}"><div class="said">{}</div><div class="decided">{}</div></div>')
    return row.format(look, said, decided)


def _who(icon: str, name: str) -> Markup:
    return Markup('<div class="who">{}{}</div>').format(_icon(icon), name)


def _said(messages: Sequence[AnyMessage], rows: Mapping[str, Mapping[str, Any]]) -> Iterator[Markup]:
    at = 0
    while at < len(messages):
        message, at = messages[at], at + 1
        if message.type == "human":
            yield _row(Markup("{}{}").format(_who("user", "User"), _body(text_of(message.content))))
        elif isinstance(message, AIMessage) and message.tool_calls:
            answers = []
            while at < len(messages) and isinstance(answer := messages[at], ToolMessage):
                answers.append(answer)
                at += 1
            yield from _turn(message, answers, decide(messages[:at]), rows)
        elif isinstance(message, AIMessage):
            yield _final(message)


def _turn(
    message: AIMessage,
    answers: Sequence[ToolMessage],
    decision: Decision,
    rows: Mapping[str, Mapping[str, Any]],
) -> Iterator[Markup]:
    by_id = {answer.tool_call_id: answer for answer in answers}
    for at, (call, vote) in enumerate(zip(message.tool_calls, decision.calls, strict=True)):
        answer = by_id.get(call["id"] or "")
        reason = vote.outcome.reason.value if vote.outcome else "unusable"
        said = Markup(
            '{who}<pre class="mono">{call}</pre><div class="answer {look}">{tool}{body}</div>'
        ).format(
            who=_who("agent", "Model" if at == 0 else "Model, at the same time"),
            call=_cap(_call(call["name"], call["args"])),
            look=reason,
            tool=_who("tools", f"Tool {call['name']}"),
            body=_body("no answer" if answer is None else text_of(answer.content)),
        )
        card = _card(vote, answer, rows)
        if at == len(message.tool_calls) - 1:
            card += _goes(decision)
        yield _row(said, card)


def _call(name: str, args: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})"


def _card(vote: Vote, answer: ToolMessage | None, rows: Mapping[str, Mapping[str, Any]]) -> Markup:
    outcome = vote.outcome
    if outcome is None:
        return Markup('<div class="card">{}<p>Nothing vouches for this answer.</p></div>').format(
            _badge("unusable")
        )
    row = rows.get(outcome.rule, {})
    status = outcome.evidence.get("status") or outcome.evidence.get("exception") or "nothing was sent"
    facts: dict[str, object] = {
        "Row": Markup("<code>{}</code>").format(outcome.rule or "none"),
        "Why": Markup("{} {}").format(
            row.get("why", "Decided by the wrapper around every tool."),
            _link(row["source"], f"Source of {outcome.rule}") if row else "",
        ),
        "Reply": f"HTTP {status}" if isinstance(status, int) else _cap(str(status), 200),
        "Effect": outcome.effect.value,
    }
    if outcome.retry_after_s is not None:
        facts["Wait"] = f"{outcome.retry_after_s} s"
    if outcome.vendor_code:
        facts["Vendor's code"] = Markup("<code>{}</code>").format(_cap(outcome.vendor_code, 200))
    artifact = json.dumps(answer.artifact if answer else None, ensure_ascii=False, indent=2, default=repr)
    return Markup("""<div class="card">{badge}<dl>{facts}</dl>\
<details class="folded"><summary>Artifact of {rule}</summary><pre>{artifact}</pre></details></div>""").format(
        badge=_badge(outcome.reason.value),
        facts=_join(Markup("<dt>{}</dt><dd>{}</dd>").format(*item) for item in facts.items()),
        rule=outcome.rule or "the call",
        artifact=_cap(artifact),
    )


def _goes(decision: Decision) -> Markup:
    node = decision.route.value
    text = Markup('<p class="goes small">{}<span><strong>{}</strong>, {}: {}.</span></p>')
    end = "the run ends" if decision.would_stop else "back to the model"
    return text.format(_icon(node), end, _word(decision.rule), decision.because)


def _final(message: AIMessage) -> Markup:
    text = text_of(message.content)
    said = message.response_metadata
    if "stopped_by" not in said:
        decided = Markup("<p>{} No router was asked: a text without calls is the answer.</p>").format(
            _badge("model")
        )
        return _row(Markup("{}{}").format(_who("agent", "Model, to the user"), _body(text)), decided, "final")
    how = (
        "The tools' own text, word for word." if said.get("route") == "finalize" else "Reworded by the model."
    )
    decided = Markup("<p>{} {}</p>").format(_badge(said["stopped_by"]), how)
    preview = _preview(text) if said.get("format") == "html" else ""
    return _row(
        Markup("{}{}{}").format(_who("finalize", "Read by the user"), _body(text), preview), decided, "final"
    )


def _preview(fragment: str) -> Markup:
    """Show a fragment as a page shows it, where it can run nothing, load nothing and reach nothing."""
    inside = _PREVIEW.format(Markup(_cap(fragment)))  # noqa: S704 - sandboxed, and escaped as an attribute
    height = min(2 + 3.6 * max(1, fragment.count("</p>")), TALLEST)
    frame = Markup(
        '<iframe sandbox="" loading="lazy" title="Preview of the receipt" style="height: {:.1f}rem" '
        'srcdoc="{}"></iframe>'
    )
    return frame.format(height, str(inside))


def _body(text: str) -> Markup:
    """Return a text, folded if it is long, and cut if it is very long."""
    shown = Markup('<div class="text">{}</div>').format(_cap(text))
    if len(text) <= FOLDED:
        return shown
    return Markup('<details class="folded"><summary>{} characters: {}</summary>{}</details>').format(
        f"{len(text):,}", _short(" ".join(text[:200].split()), 80), shown
    )


def _cap(text: str, most: int = LONGEST) -> str:
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]}\n[{more:,} more characters are not shown]"
