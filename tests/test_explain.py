"""Raw replies, as teams have them at hand, read and told row by row."""

import builtins
import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domains import DOMAINS
from domains.explain import UNMAPPED, Broken, Read, answer, book, read, summary, table_rows
from domains.infrastructure import BARE
from domains.mapping import Reply
from orchestration.reasons import Effect, Reason

CURL = """HTTP/1.1 402 Payment Required
Content-Type: application/json
Request-Id: req_1

{"error": {"type": "card_error",
 "decline_code": "insufficient_funds"}}
"""


def one(text: str) -> Reply:
    """Return the only reply of a text."""
    (found,) = read(text)
    assert isinstance(found, Read), found
    return found.reply


def line(**fields: Any) -> str:
    """Return one line of a log."""
    return json.dumps(fields)


def broken(text: str) -> list[tuple[int, str]]:
    """Return the number and the fault of every line that cannot be read."""
    return [(each.line, each.because) for each in read(text) if isinstance(each, Broken)]


# What curl -i prints.


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("before", ["", "\ufeff", "\n\n"], ids=["plain", "BOM", "blank"])
def test_curl(newline: str, before: str) -> None:
    """Status, headers and body are read, whatever ends the lines."""
    reply = one(before + CURL.replace("\n", newline))

    assert (402, "req_1", "insufficient_funds") == (
        reply.status,
        reply.headers["request-id"],
        reply.first("error.decline_code"),
    )


CHAINS = {
    "continue": "HTTP/1.1 100 Continue\r\n\r\n",
    "redirect": "HTTP/1.1 301 Moved Permanently\r\nLocation: /elsewhere\r\nRetry-After: 9\r\n\r\n",
    "proxy": "HTTP/1.0 200 Connection established\r\n\r\n",
    "early hints": "HTTP/2 103 \r\nlink: </a.css>\r\n\r\n",
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_last_response_counts(name: str) -> None:
    """A 100, a proxy's answer and redirects come before the one that is meant, and leave nothing behind."""
    reply = one(CHAINS[name] * 2 + CURL)

    assert (402, None, "req_1") == (
        reply.status,
        reply.headers.get("retry-after"),
        reply.headers["request-id"],
    )


@pytest.mark.parametrize(
    ("text", "status", "headers", "body"),
    [
        ("HTTP/2 403 \nretry-after: 60\n\nbody", 403, {"retry-after": "60"}, "body"),
        ("HTTP/3 204\n\n", 204, {}, ""),
        ("HTTP/1.1 204 No Content", 204, {}, ""),
        ("HTTP/1.1 429 x\nRetry-After: 7", 429, {"retry-after": "7"}, ""),
        ("HTTP/1.1 429 x\nRetry-After: 7\nRetry-After: 9\n\n", 429, {"retry-after": "7, 9"}, ""),
        ("HTTP/1.1 200 OK\nA:b:c\n\n\n\nafter two lines", 200, {"a": "b:c"}, "\n\nafter two lines"),
        ("HTTP/1.1 200 OK\nContent-Encoding: gzip\nContent-Length: 3\n\nlonger", 200, {}, "longer"),
        ("HTTP/1.1 200 OK\nX-Name: Zoë\n\n", 200, {"x-name": "Zoë"}, ""),
    ],
)
def test_curl_in_other_shapes(text: str, status: int, headers: dict[str, str], body: str) -> None:
    """No reason phrase, no body, no last newline, headers twice, a body that curl has unpacked."""
    reply = one(text)
    kept = {name: value for name, value in reply.headers.items() if name != "content-length"}

    assert (status, headers, body) == (reply.status, kept, reply.text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("HTTP/1.1 Payment Required\n\n", "the first line must be like 'HTTP/1.1 402 Payment Required'"),
        ("HTTP/", "the first line must be like"),
        ("HTTP/1.1 042 Odd\n\n", "status must be a number from 100 to 999"),
        ("HTTP/1.1 000 Odd\n\n", "the first line must be like"),
    ],
)
def test_curl_that_is_none(text: str, said: str) -> None:
    """A first line that names no status is told, with one that does."""
    assert [1] == [number for number, because in broken(text) if said in because]


# A log.


def test_log() -> None:
    """One object a line; blank lines count, and say nothing."""
    found = list(
        read(f"\ufeff\n{line(status=402)}\r\n\n  {line(status='429', body='x')}  \n{line(status=503)}")
    )

    assert [(2, 402), (4, 429), (5, 503)] == [
        (each.line, each.reply.status) for each in found if isinstance(each, Read)
    ]
    assert [] == list(read("")) == list(read("\n \n\ufeff"[:3]))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"a": 1}, '{"a": 1}'),
        ([1], "[1]"),
        ("<html>", "<html>"),
        (None, ""),
        ("", ""),
        (5, "5"),
        (False, "false"),
        ({"a": "\ud800"}, '{"a": "\\ud800"}'),
        ("\ud800", "?"),
    ],
)
def test_bodies(body: object, text: str) -> None:
    """A string is the body as sent, anything else its JSON."""
    assert text == one(line(status=500, body=body)).text


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ({"Retry-After": 7}, "7"),
        ({"retry-after": ["7", "9"]}, "7, 9"),
        ({"retry-after": None}, None),
        ({"RETRY-AFTER": "Zoë"}, "Zoë"),
        ({}, None),
        (None, None),
    ],
)
def test_headers(headers: object, kept: str | None) -> None:
    """Numbers, lists and null stand in logs as well; names have no case."""
    assert kept == one(line(status=429, headers=headers)).headers.get("retry-after")


@pytest.mark.parametrize(
    ("fields", "write"),
    [
        ({}, None),
        ({"write": True}, True),
        ({"write": False}, False),
        ({"write": "yes"}, None),
        ({"method": "GET"}, False),
        ({"method": "head"}, False),
        ({"method": "post"}, True),
        ({"method": "DELETE"}, True),
        ({"method": 5}, None),
        ({"write": False, "method": "POST"}, False),
    ],
)
def test_write_or_method(fields: dict[str, Any], write: bool | None) -> None:
    """Whether something could be changed is said by write, else by the method, else by the book."""
    assert write is one(line(status=500, **fields)).write
    assert write is one(line(exception="ReadTimeout", **fields)).write


@pytest.mark.parametrize(
    ("fields", "effect"),
    [({"write": True}, Effect.UNKNOWN), ({"write": False}, Effect.NONE), ({"method": "GET"}, Effect.NONE)],
)
def test_write_decides_on_the_effect(fields: dict[str, Any], effect: Effect) -> None:
    """The same silence proves nothing of a write, and is nothing to a read."""
    assert effect == BARE.classify(one(line(exception="ReadTimeout", **fields))).effect


@pytest.mark.parametrize(
    ("name", "kind", "rule"),
    [
        ("ReadTimeout", httpx.ReadTimeout, "infra/timeout"),
        ("httpx.ReadTimeout", httpx.ReadTimeout, "infra/timeout"),
        ("requests.exceptions.ConnectTimeout", httpx.ConnectTimeout, "infra/unreachable"),
        ("HTTPStatusError", httpx.HTTPStatusError, "infra/connection-lost"),
        ("InvalidURL", httpx.InvalidURL, "infra/address"),
        ("KeyError", KeyError, "infra/bug"),
        ("builtins.TypeError", TypeError, "infra/bug"),
        ("TimeoutError", TimeoutError, "infra/timeout"),
        ("ConnectionRefusedError", ConnectionRefusedError, "infra/unreachable"),
        ("FileNotFoundError", FileNotFoundError, "infra/local-setup"),
        ("UnicodeDecodeError", UnicodeDecodeError, "infra/undecodable"),
        ("SSLCertVerificationError", None, "infra/untrusted"),
        ("stripe.APIConnectionError", None, "infra/connection-lost"),
        ("ExceptionGroup", None, "infra/unknown"),
        ("KeyboardInterrupt", None, "infra/unknown"),
        ("asyncio.CancelledError", None, "infra/unknown"),
        ("Odd", None, "infra/unknown"),
        ("print", None, "infra/unknown"),
        ("httpx.Client", None, "infra/unknown"),
        ("a.b.", None, "infra/unknown"),
        ("no name at all", None, "infra/unknown"),
        (5, None, "infra/unknown"),
    ],
)
def test_exceptions(name: object, kind: type[Exception] | None, rule: str) -> None:
    """A name is httpx's class, a built-in, or one that is only named so; its text is the body."""
    error = one(line(exception=name, body="what it said")).error
    assert error is not None

    assert str(name).rpartition(".")[2] == type(error).__name__
    assert kind in {None, type(error)}
    assert ("what it said",) == error.args
    assert rule == BARE.classify(Reply(error=error)).rule


def test_every_exception_of_httpx_and_python_is_read() -> None:
    """No name raises, and none is a way to stop the command line."""
    for name in (*httpx.__all__, *vars(builtins)):
        assert isinstance(BARE.classify(one(line(exception=name))).reason, Reason)


def test_what_an_exception_says_can_decide() -> None:
    """One class stands for many faults: the text tells a bad certificate from a dead network."""
    said = {"certificate verify failed": "infra/untrusted", "Name or service not known": "infra/unreachable"}

    assert said == {text: BARE.classify(one(line(exception="ConnectError", body=text))).rule for text in said}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no json", "no JSON object (Expecting value at column 1)"),
        ('{"status": 402', "no JSON object (Expecting ',' delimiter at column 15)"),
        ("[402]", "a line must be a JSON object, not list"),
        ("402", "a line must be a JSON object, not int"),
        ("null", "a line must be a JSON object, not NoneType"),
        ("{}", "status is None"),
        ('{"status": null, "exception": ""}', "status is None"),
        (
            '{"status": 99}',
            "status must be a number from 100 to 999, or exception a class name; status is 99",
        ),
        ('{"status": 1000}', "status is 1000"),
        ('{"status": true}', "status is True"),
        ('{"status": 402.5}', "status is 402.5"),
        ('{"status": NaN}', "status is nan"),
        ('{"status": "40x"}', "status is '40x'"),
        ('{"status": "٤٠٢"}', "status is '٤٠٢'"),
        ('{"status": [402]}', "status is [402]"),
        ('{"status": 402, "headers": "x"}', "headers must be an object of names and values"),
        ('{"status": 402, "headers": ["x"]}', "headers must be an object of names and values"),
        ('{"exception": "a\\u0000b"}', "null"),
        ('{"status": ' + "9" * 5000 + "}", "digits"),
        ("[" * 100_000, "nested too deep to be read"),
        ('{"status": 200, "body": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deep to be read"),
    ],
    ids=lambda value: value[:40],
)
def test_broken_lines(text: str, said: str) -> None:
    """A broken line is named with its fault, and the lines around it are read."""
    found = list(read(f"{line(status=402)}\n{text}\n{line(status=503)}"))

    assert [1, 3] == [each.line for each in found if isinstance(each, Read)]
    assert [2] == [each.line for each in found if isinstance(each, Broken) and said in each.because]


@given(st.text(max_size=200) | st.from_regex(r"HTTP/[0-9.]{1,3} [0-9]{3} ?[^\x00]{0,60}"))
@settings(max_examples=100, deadline=None)
def test_any_text_is_read(text: str) -> None:
    """No text raises, and every reply in it can be told."""
    for each in read(text):
        if isinstance(each, Read):
            assert answer(BARE.classify(each.reply))["reason"] in set(Reason)


@given(
    st.dictionaries(
        st.sampled_from(["status", "headers", "body", "exception", "write", "method"]),
        st.none()
        | st.booleans()
        | st.integers(-1, 1100)
        | st.text(max_size=8)
        | st.lists(st.integers(), max_size=2)
        | st.dictionaries(st.text(max_size=5), st.none() | st.text(max_size=5) | st.integers(), max_size=3),
    )
)
@settings(max_examples=150, deadline=None)
def test_any_object_is_read(row: dict[str, Any]) -> None:
    """No values in a line raise."""
    (found,) = read(json.dumps(row))
    if isinstance(found, Read):
        assert answer(BARE.classify(found.reply))["reason"] in set(Reason)


# What is told.


def test_answer() -> None:
    """A reply's answer is plain data: what the router reads, and the vendor's code."""
    outcome = DOMAINS["checkout"].book.classify(one(CURL))

    assert {
        "reason": "fatal",
        "stop": True,
        "rule": "checkout/declined",
        "effect": "none",
        "retry_after_s": None,
        "vendor_code": "insufficient_funds",
    } == answer(outcome)


def test_summary() -> None:
    """Rows and unknown replies are counted, the most frequent first, with their first words."""
    page = " <p>\r\n what \x1b[31m is this? </p>" + "x" * 500
    texts = [
        *[line(status=429)] * 3,
        line(status=402),
        line(status=777, body={"error": {"code": "odd"}}),
        *[line(status=777, body=page)] * 2,
        line(exception="Odd"),
    ]
    counted = summary(BARE, [one(text) for text in texts])

    assert 8 == counted["replies"]
    assert [
        {"rule": "infra/unknown", "reason": "transient", "count": 4},
        {"rule": "infra/too-many-requests", "reason": "transient", "count": 3},
        {"rule": "infra/paid-plan", "reason": "policy_block", "count": 1},
    ] == counted["rows"]
    assert [("777", 2), ("777", 1), ("Odd", 1)] == [
        (each["status"], each["count"]) for each in counted["unmapped"]
    ]
    assert "<p> what [31m is this? </p>xxx" == counted["unmapped"][0]["reply"][:30]
    assert [60, 3, 0] == [len(each["reply"]) for each in counted["unmapped"]]


def test_summary_of_nothing() -> None:
    """No replies, no rows."""
    assert {"replies": 0, "rows": [], "unmapped": []} == summary(BARE, [])


@pytest.mark.parametrize("name", [*DOMAINS, UNMAPPED])
def test_table_rows(name: str) -> None:
    """A table's own rows are shown in order, those that a flow picks last, the shared ones once."""
    rows = table_rows(name)
    table = book(name)
    shared = {rule.id for rule in BARE.rules} if name != UNMAPPED else set()

    assert [rule.id for rule in (*table.rules, *table.picked) if rule.id not in shared] == [
        r["id"] for r in rows
    ]
    assert len(table.picked) == sum(row["when"] == "picked by the flow" for row in rows)
    assert {"id", "reason", "when", "say", "why", "source", "effect", "retry_after_s"} == {*rows[0]}
    assert rows == json.loads(json.dumps(rows))
    assert all(row["when"] for row in rows)


def test_an_unknown_table_names_the_nearest() -> None:
    """Whoever misspells a domain reads which one was meant, and which there are."""
    with pytest.raises(
        KeyError, match=r"no domain 'chekout'\. Did you mean 'checkout'\? There are: checkout, "
    ):
        book("chekout")
