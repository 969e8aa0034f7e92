"""How long a vendor asks callers to wait, in whole seconds, from headers of every form.

Forms of ``Retry-After``: https://www.rfc-editor.org/rfc/rfc9110#name-retry-after
GitHub's reset time: https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import ceil, isfinite
from typing import Final

LONGEST_S: Final = 24 * 60 * 60
"""A wait is capped at a day: past that, no run waits, and a clock is likely wrong."""

# ASCII digits only: int() and float() also read other scripts' digits, "1_0" and "inf".
_SECONDS: Final = re.compile(r"\+?[0-9]+(?:\.[0-9]*)?", re.ASCII)
_DATE: Final = re.compile(r"[A-Z][a-z]{2,8},? [^,]*", re.ASCII)


def retry_after(
    headers: Mapping[str, str], now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> int | None:
    """Return the wait that the headers ask for.

    Args:
        headers: A reply's headers; look-up by lower-case name must work.
        now: The current time, aware; called only if a header holds a point in time.

    Returns:
        Whole seconds, rounded up, from 0 to ``LONGEST_S``; None if no header says, or none can be
        read. Of a list the longest is taken: too early is worse than too late.
    """
    if value := headers.get("retry-after", ""):
        waits = [wait for part in _parts(value) if (wait := _wait(part, now)) is not None]
        if waits:
            return max(waits)
    if headers.get("x-ratelimit-remaining", "").strip() == "0":
        reset = headers.get("x-ratelimit-reset", "").strip()
        if _SECONDS.fullmatch(reset):
            return _whole(float(reset) - now().timestamp())
    return None


def _parts(value: str) -> list[str]:
    """Split a list, but not at the comma behind a date's weekday."""
    return [part.strip() for part in re.split(r"(?<!Mon|Tue|Wed|Thu|Fri|Sat|Sun|day),", value)]


def _wait(value: str, now: Callable[[], datetime]) -> int | None:
    if _SECONDS.fullmatch(value):
        return _whole(float(value))
    if not _DATE.match(value):
        return None
    try:
        when = parsedate_to_datetime(value)
        # asctime's form names no zone; HTTP dates are UTC.
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return _whole(when.timestamp() - now().timestamp())
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def _whole(seconds: float) -> int:
    return ceil(min(max(seconds, 0.0), LONGEST_S)) if isfinite(seconds) else LONGEST_S
