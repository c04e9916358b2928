"""What the demo endpoint allows, and what it saw: a concurrency cap, a limit per minute, and a log of every request."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

__all__ = ["Books", "Entry", "Refusal", "Stats"]

_WINDOW: Final = 60.0


class Refusal(NamedTuple):
    """Why a request is answered 429.

    Attributes:
        message: the sentence that the client gets.
        wait: seconds until another try makes sense; ``None`` when that cannot be known.
    """

    message: str
    wait: float | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One request of the log. Times are ``time.monotonic()``.

    Attributes:
        number: 1 for the first.
        path: as ``/v1/chat/completions``.
        mark: the question's own mark, as ``[#17]``; ``None`` when it has none.
        arrived: when it was whole.
        started: when its service began; ``None`` when it was refused.
        ended: when its answer was complete, or its client left.
        outcome: how it ended.
    """

    number: int
    path: str
    mark: str | None
    arrived: float
    started: float | None = None
    ended: float | None = None
    outcome: Literal["open", "served", "refused", "disconnected"] = "open"


@dataclass(frozen=True, slots=True)
class Stats:
    """What the endpoint saw so far.

    Attributes:
        arrivals: requests that were well formed and asked for work.
        refused_429: those that were answered 429.
        served: those that were answered in full.
        disconnects: those whose client left before the end.
        in_flight: those under way.
        max_in_flight: the most there were at once.
        log: the latest of them, in order of arrival.
    """

    arrivals: int = 0
    refused_429: int = 0
    served: int = 0
    disconnects: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    log: tuple[Entry, ...] = ()


class Books:
    """The endpoint's counters. Written on its thread, read from any.

    Args:
        concurrency: requests under way at once; ``None`` for any number.
        requests_per_minute: requests taken in any 60 s; ``None`` for any number.
        clock: seconds, monotonic.
        log_size: entries that are kept.
    """

    def __init__(
        self,
        concurrency: int | None,
        requests_per_minute: int | None,
        clock: Callable[[], float],
        log_size: int = 5000,
    ) -> None:
        self.concurrency = concurrency
        self.requests_per_minute = requests_per_minute
        self._clock = clock
        self._log_size = log_size
        self._lock = threading.Lock()
        self._stats = Stats()
        self._log: dict[int, Entry] = {}
        self._taken: deque[float] = deque()

    def stats(self) -> Stats:
        """Return the numbers of one moment."""
        with self._lock:
            return replace(self._stats, log=tuple(self._log.values()))

    def remaining(self) -> int | None:
        """Return how many more requests the limit per minute allows now; ``None`` without such a limit."""
        with self._lock:
            if self.requests_per_minute is None:
                return None
            self._turn(self._clock())
            return max(0, self.requests_per_minute - len(self._taken))

    def arrive(self, path: str, mark: str | None, arrived: float) -> Entry | Refusal:
        """Take a request, or say why not."""
        with self._lock:
            now = self._clock()
            number = self._stats.arrivals + 1
            entry = Entry(number, path, mark, arrived)
            refusal = self._refusal(now)
            if refusal is not None:
                self._keep(replace(entry, ended=now, outcome="refused"))
                self._stats = replace(self._stats, arrivals=number, refused_429=self._stats.refused_429 + 1)
                return refusal
            entry = replace(entry, started=now)
            self._keep(entry)
            self._taken.append(now)
            running = self._stats.in_flight + 1
            most = max(running, self._stats.max_in_flight)
            self._stats = replace(self._stats, arrivals=number, in_flight=running, max_in_flight=most)
            return entry

    def end(self, entry: Entry, outcome: Literal["served", "disconnected"]) -> None:
        """Write down that a request is over; it frees its slot."""
        with self._lock:
            if entry.number in self._log:
                self._log[entry.number] = replace(entry, ended=self._clock(), outcome=outcome)
            served = self._stats.served + (outcome == "served")
            left = self._stats.disconnects + (outcome == "disconnected")
            self._stats = replace(self._stats, in_flight=self._stats.in_flight - 1, served=served, disconnects=left)

    def _refusal(self, now: float) -> Refusal | None:
        if self.concurrency is not None and self._stats.in_flight >= self.concurrency:
            return Refusal(f"Too many concurrent requests: this server takes {self.concurrency} at a time.", None)
        if self.requests_per_minute is not None:
            self._turn(now)
            if len(self._taken) >= self.requests_per_minute:
                wait = self._taken[0] + _WINDOW - now if self._taken else _WINDOW
                return Refusal(f"Rate limit reached: {self.requests_per_minute} requests per minute.", wait)
        return None

    def _turn(self, now: float) -> None:
        while self._taken and self._taken[0] <= now - _WINDOW:
            self._taken.popleft()

    def _keep(self, entry: Entry) -> None:
        self._log[entry.number] = entry
        if len(self._log) > self._log_size:
            del self._log[next(iter(self._log))]
