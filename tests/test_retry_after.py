"""How long to wait: every form that vendors send."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.retry_after import LONGEST_S, retry_after

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
EPOCH = int(NOW.timestamp())


def wait(value: str) -> int | None:
    """Return the wait of one ``Retry-After`` at noon."""
    return retry_after({"retry-after": value}, lambda: NOW)


FORMS: dict[str, int | None] = {
    # Seconds.
    "0": 0,
    "7": 7,
    "007": 7,
    "+7": 7,
    " 7\t": 7,
    "86400": 86400,
    "86401": LONGEST_S,
    "9" * 30: LONGEST_S,
    "9" * 5000: LONGEST_S,
    # Fractions, rounded up.
    "0.0": 0,
    "0.001": 1,
    "1.5": 2,
    "1.": 1,
    "86399.5": LONGEST_S,
    # The three forms of HTTP dates.
    "Thu, 01 Jan 2026 12:00:30 GMT": 30,
    "Thursday, 01-Jan-26 12:00:30 GMT": 30,
    "Thu Jan  1 12:00:30 2026": 30,
    "Thu, 01 Jan 2026 14:00:30 +0200": 30,
    "Thu, 01 Jan 2026 12:00:30": 30,
    "Thu, 01 Jan 2026 12:00:30 -0000": 30,
    "Thu, 01 Jan 2026 11:59:00 GMT": 0,
    "Fri, 01 Jan 1999 00:00:00 GMT": 0,
    "Fri, 31 Dec 9999 23:59:59 GMT": LONGEST_S,
    # No form at all.
    "": None,
    " ": None,
    ",": None,
    "soon": None,
    "-1": None,
    "-0.5": None,
    "nan": None,
    "NaN": None,
    "inf": None,
    "Infinity": None,
    "-inf": None,
    "1e3": None,
    "0x10": None,
    "1_0": None,
    "1 0": None,
    ".5": None,
    "5s": None,
    "6m0s": None,
    "PT5S": None,
    "1.2.3": None,
    "++5": None,
    "٥": None,  # noqa: RUF001 - an Arabic-Indic five
    "５": None,  # noqa: RUF001 - a full-width five
    "²": None,
    "5\x00": None,
    "2026-01-01T12:00:30Z": None,
    "Thu, 32 Jan 2026 12:00:30 GMT": None,
    "Thu, 01 Jan 2026 25:00:30 GMT": None,
    "Thu, 01 Foo 2026 12:00:30 GMT": None,
    "Thu, 01 Jan 99999 12:00:30 GMT": None,
    "Thu,": None,
    "Thu, ": None,
    # Lists, as proxies make them of repeated headers: the longest counts.
    "5, 10": 10,
    "10,5": 10,
    "5, soon": 5,
    "soon, later": None,
    "5, Thu, 01 Jan 2026 12:00:30 GMT": 30,
    "Thu, 01 Jan 2026 12:00:30 GMT, 120": 120,
    "Thu, 01 Jan 2026 12:00:30 GMT, Thu, 01 Jan 2026 12:00:40 GMT": 40,
    "5, Thu Jan  1 12:00:30 2026": 30,
    "-5, 3": 3,
}


@pytest.mark.parametrize(("value", "seconds"), FORMS.items(), ids=lambda value: repr(value)[:40])
def test_forms(value: str, seconds: int | None) -> None:
    """Whole seconds, rounded up and capped at a day; None for what is no form of the header."""
    assert seconds == wait(value)


@pytest.mark.parametrize("hours", [-12, -5, 0, 2, 14])
def test_the_clocks_zone_does_not_matter(hours: int) -> None:
    """A date is UTC, wherever our own clock stands."""
    local = NOW.astimezone(timezone(timedelta(hours=hours)))

    assert 30 == retry_after({"retry-after": "Thu Jan  1 12:00:30 2026"}, lambda: local)


def test_part_of_a_second_is_rounded_up() -> None:
    """Too early is worse than too late, by the clock too."""
    late = NOW + timedelta(milliseconds=1)

    assert 30 == retry_after({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, lambda: late)


LIMITS: tuple[tuple[Mapping[str, str], int | None], ...] = (
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH + 90)}, 90),
    ({"x-ratelimit-remaining": " 0 ", "x-ratelimit-reset": f" {EPOCH + 90} "}, 90),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{EPOCH + 90}.5"}, 91),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH - 90)}, 0),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str((EPOCH + 90) * 1000)}, LONGEST_S),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9" * 400}, LONGEST_S),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "6m0s"}, None),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "nan"}, None),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "-5"}, None),
    ({"x-ratelimit-remaining": "0"}, None),
    ({"x-ratelimit-remaining": "1", "x-ratelimit-reset": str(EPOCH + 90)}, None),
    ({"x-ratelimit-remaining": "00", "x-ratelimit-reset": str(EPOCH + 90)}, None),
    ({"x-ratelimit-remaining": "", "x-ratelimit-reset": str(EPOCH + 90)}, None),
    ({"x-ratelimit-reset": str(EPOCH + 90)}, None),
    ({}, None),
    # Retry-After says it for this request, the reset for the window.
    ({"retry-after": "5", "x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH + 90)}, 5),
    ({"retry-after": "soon", "x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH + 90)}, 90),
)


@pytest.mark.parametrize(("headers", "seconds"), LIMITS)
def test_github_names_a_moment(headers: Mapping[str, str], seconds: int | None) -> None:
    """The moment of the reset counts if nothing is left, and only where no Retry-After can be read."""
    assert seconds == retry_after(headers, lambda: NOW)


@pytest.mark.parametrize("name", ["Retry-After", "retry-after", "RETRY-AFTER", "rEtRy-aFtEr"])
def test_any_case(name: str) -> None:
    """Header names have no case; repeated ones are a list."""
    assert 7 == retry_after(httpx.Headers({name: "7"}))
    assert 9 == retry_after(httpx.Headers([(name, "7"), (name.upper(), "9")]))


def test_the_clock_is_asked_only_for_a_moment() -> None:
    """Seconds need no clock, so tests of them need no fake one."""

    def never() -> datetime:
        raise AssertionError

    assert 7 == retry_after({"retry-after": "7"}, never)
    assert None is retry_after({"retry-after": "soon", "x-ratelimit-reset": "5"}, never)


def test_the_real_clock() -> None:
    """Without a clock of its own, the call reads the machine's."""
    assert 0 == retry_after({"retry-after": "Fri, 01 Jan 1999 00:00:00 GMT"})
    assert LONGEST_S == retry_after({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"})


SOME = st.text(max_size=40) | st.from_regex(r"[0-9A-Za-z,:. +\-]{0,40}") | st.sampled_from(list(FORMS))
LIKE_DATES = st.builds(
    "{}, {} {} {} {}:{}:{} {}".format,
    st.sampled_from(["Thu", "Thursday", "X"]),
    st.integers(-1, 99),
    st.sampled_from(["Jan", "Feb", "Dec", "13", ""]),
    st.integers(-10, 100_000),
    *(st.integers(-1, 99) for _ in range(3)),
    st.sampled_from(["GMT", "+9999", "-2400", "EST", "", "+99999999999"]),
)


@given(
    value=SOME | LIKE_DATES | st.lists(SOME | LIKE_DATES, max_size=3).map(",".join),
    left=st.sampled_from(["0", "1", ""]) | SOME,
    reset=SOME | st.integers().map(str),
)
@settings(max_examples=300, deadline=None)
def test_any_text(value: str, left: str, reset: str) -> None:
    """Nothing raises, and the answer is None or from nothing to a day."""
    headers = {"retry-after": value, "x-ratelimit-remaining": left, "x-ratelimit-reset": reset}
    seconds = retry_after(headers, lambda: NOW)

    assert seconds is None or (type(seconds) is int and 0 <= seconds <= LONGEST_S)
