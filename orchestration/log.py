"""Our own log records, which cost no run: a filter or a handler of the user's may raise on them."""

import logging
import sys
from typing import Final

_LOG: Final = logging.getLogger("orchestration")


def log(level: int, message: str, *args: object) -> None:
    """Write a record; if that fails, a line on stderr says so."""
    try:
        _LOG.log(level, message, *args, stacklevel=2)
    except Exception as error:  # what follows is worth more than its record
        sys.stderr.write(f"orchestration: a log record was lost, logging raised {type(error).__name__}\n")
