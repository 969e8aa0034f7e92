"""Calls that are about one thing run one after another, threads and tasks alike.

Each key has a lane. A sync call and an async one stand in the same line: a place in it is a
``concurrent.futures.Future``, which a thread waits on and a task awaits. A lane exists only while
somebody is in it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from threading import Lock
from typing import TypeAlias

_Place: TypeAlias = Future[None]


class Lanes:
    """One line of waiting calls a key, first come, first served.

    Args:
        patience_s: Seconds that a call waits for its turn. Without an end, a sync call made on an event
            loop's own thread would wait for ever for a task of that loop.
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._lock = Lock()
        self._lanes: dict[str, deque[_Place]] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    @contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Hold the lane of ``key``; the thread waits for it.

        Raises:
            TimeoutError: The lane did not come free in time.
        """
        place = self._join(key)
        if place is not None:
            try:
                place.result(self.patience_s)
            except BaseException:
                self._give_up(key, place)
                raise
        try:
            yield
        finally:
            self._leave(key)

    @asynccontextmanager
    async def aturn(self, key: str) -> AsyncIterator[None]:
        """Hold the lane of ``key``; the task waits for it, and can be cancelled while it does.

        Raises:
            TimeoutError: The lane did not come free in time.
        """
        place = self._join(key)
        if place is not None:
            try:
                async with asyncio.timeout(self.patience_s):
                    await asyncio.wrap_future(place)
            except BaseException:
                self._give_up(key, place)
                raise
        try:
            yield
        finally:
            self._leave(key)

    def _join(self, key: str) -> _Place | None:
        """Return a place in the line; None if the lane was free and now is ours."""
        with self._lock:
            lane = self._lanes.get(key)
            if lane is None:
                self._lanes[key] = deque()
                return None
            place: _Place = Future()
            lane.append(place)
            return place

    def _leave(self, key: str) -> None:
        """Let the next one in that still waits; the last one takes the lane away."""
        with self._lock:
            lane = self._lanes[key]
            while lane:
                place = lane.popleft()
                # A place that was given up is skipped; from here on this one cannot be given up.
                if place.set_running_or_notify_cancel():
                    break
            else:
                del self._lanes[key]
                return
        place.set_result(None)

    def _give_up(self, key: str, place: _Place) -> None:
        """Go away from the line; if our turn has just come, pass it on."""
        if not place.cancel():
            self._leave(key)
