"""A real HTTP server on loopback that does what a test tells it, and writes down what it saw.

::

    with ScriptedEndpoint() as mock:
        mock.reply(error(429, retry_after=1), chat("hi"))   # these first, in this order
        mock.always(echo())                                 # then this; it is also what happens without any script
        mock.hold()                                         # keep every request open ...
        ...                                                 # (start some callers against mock.base_url)
        mock.wait_for(in_flight=2)                          # ... until the test has seen them
        mock.release()
        assert mock.max_in_flight == 2

The server has its own thread and its own loop, so it goes on while the test's loop is blocked. A request is in flight
from its last byte to the last byte of its answer or to the moment its client leaves. Before a request is counted, every
hang-up that happened before it is: a client that closes one stream and at once opens another is never counted twice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeAlias

from fairq_ipy.testing.delivery import deliver
from fairq_ipy.testing.gates import Gate
from fairq_ipy.testing.record import Counts, Outcome, Recorded
from fairq_ipy.testing.replies import Message, Reply, echo, error
from fairq_ipy.testing.wire import Connection, Incoming

__all__ = ["ScriptedEndpoint"]

Script: TypeAlias = Reply | Callable[[Recorded], Reply]

_HOST = "127.0.0.1"


class ScriptedEndpoint:
    """The scripted endpoint; see the module's text for how it is used.

    Args:
        cap: requests it takes at once; one more is answered 429 at once, and counted as refused. ``None`` takes all.
        over_cap: what those get.
        prefix: path that `base_url` ends in. Requests to any path are answered.
    """

    def __init__(self, *, cap: int | None = None, over_cap: Reply | None = None, prefix: str = "/v1") -> None:
        self._cap = cap
        self._over_cap = error(429, "Too many concurrent requests") if over_cap is None else over_cap
        self._prefix = prefix
        self._changed = threading.Condition()
        self._script: deque[Script] = deque()
        self._fallback: Script = echo()
        self._holding = False
        self._held: dict[int, Gate] = {}
        self._requests: list[Recorded] = []
        self._counts = Counts()
        self._errors: list[Exception] = []
        self._connections: set[Connection] = set()
        self._serving: dict[Connection, Recorded] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._port = 0

    # ------------------------------------------------------------------------------------------------------ life

    def start(self) -> Self:
        """Listen on a free port of loopback; returns when it does."""
        ready = threading.Event()
        self._thread = threading.Thread(target=self._main, args=(ready,), name="scripted-endpoint", daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def close(self) -> None:
        """Stop: whoever is still connected is cut off. Closing twice is closing once."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or not thread.is_alive():
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        """Close; raise what went wrong in the test's own script, if nothing else is being raised."""
        self.close()
        if kind is None and self._errors:
            raise self._errors[0]

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port

    @property
    def base_url(self) -> str:
        """What an SDK takes as ``base_url``, as ``http://127.0.0.1:54321/v1``."""
        return f"http://{_HOST}:{self._port}{self._prefix}"

    # ---------------------------------------------------------------------------------------------------- script

    def reply(self, *replies: Script, times: int = 1) -> None:
        """Answer the next requests with these, one each, in this order, the whole list `times` times."""
        with self._changed:
            for _ in range(times):
                self._script.extend(replies)

    def always(self, reply: Script) -> None:
        """Answer each request for which no `reply` is left with this one."""
        with self._changed:
            self._fallback = reply

    def hold(self) -> None:
        """From now on keep every new request open, before the first byte of its answer, until `release`."""
        with self._changed:
            self._holding = True

    def release(self, count: int | None = None) -> None:
        """Let held requests go on.

        Args:
            count: how many, the oldest first, while new ones are still held; ``None`` ends the holding for all.
        """
        with self._changed:
            if count is None:
                self._holding = False
            numbers = list(self._held)[:count]
            gates = [self._held.pop(number) for number in numbers]
            self._book(held=len(self._held))
        for gate in gates:
            gate.open()

    # ------------------------------------------------------------------------------------------------------ books

    @property
    def requests(self) -> list[Recorded]:
        """Every request so far, in order of arrival."""
        with self._changed:
            return list(self._requests)

    @property
    def counts(self) -> Counts:
        """All numbers at one moment."""
        with self._changed:
            return self._counts

    @property
    def arrivals(self) -> int:
        """Requests that came, refused ones included."""
        return self.counts.arrivals

    @property
    def in_flight(self) -> int:
        """Requests under way."""
        return self.counts.in_flight

    @property
    def max_in_flight(self) -> int:
        """The most there were at once."""
        return self.counts.max_in_flight

    @property
    def disconnects(self) -> int:
        """Requests whose client left before the end."""
        return self.counts.disconnects

    def wait_for(
        self,
        arrivals: int | None = None,
        *,
        in_flight: int | None = None,
        held: int | None = None,
        answered: int | None = None,
        refused: int | None = None,
        disconnects: int | None = None,
        timeout: float = 10.0,
    ) -> Counts:
        """Wait until all that is named is so, and return the books of that moment.

        ``in_flight`` and ``held`` must be exactly so; the others, which only grow, at least so.

        Args:
            arrivals: requests that came.
            in_flight: requests under way.
            held: requests that wait for `release`.
            answered: requests whose whole answer was sent.
            refused: requests beyond the cap.
            disconnects: clients that left early.
            timeout: seconds after which the test has failed.

        Raises:
            AssertionError: with all the numbers, when it does not come to that in time.
        """
        exact = {"in_flight": in_flight, "held": held}
        least = {"arrivals": arrivals, "answered": answered, "refused": refused, "disconnects": disconnects}

        def reached() -> bool:
            now = self._counts
            same = all(getattr(now, name) == value for name, value in exact.items() if value is not None)
            return same and all(getattr(now, name) >= value for name, value in least.items() if value is not None)

        with self._changed:
            if self._changed.wait_for(reached, timeout):
                return self._counts
            wanted = {name: value for name, value in (exact | least).items() if value is not None}
            msg = f"waited {timeout:g} s for {wanted}, but the endpoint has {self._counts}"
            raise AssertionError(msg)

    async def reached(self, arrivals: int | None = None, *, timeout: float = 10.0, **wanted: int) -> Counts:
        """Do the same as `wait_for` without blocking the caller's loop."""
        return await asyncio.to_thread(self.wait_for, arrivals, timeout=timeout, **wanted)

    # ------------------------------------------------------------------------------------ on the endpoint's thread

    def _main(self, ready: threading.Event) -> None:
        with asyncio.Runner() as runner:
            loop = self._loop = runner.get_loop()
            server = runner.run(self._listen())
            ready.set()
            loop.run_forever()
            server.close()
            for connection in list(self._connections):
                connection.drop()

    async def _listen(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._connect, _HOST, 0, backlog=1024)
        self._port = server.sockets[0].getsockname()[1]
        return server

    def _connect(self) -> Connection:
        return Connection(self._serve, self._left, self._connections)

    async def _serve(self, connection: Connection, incoming: Incoming) -> bool:
        arrived = time.monotonic()
        for _ in range(3):  # a hang-up that the kernel already knows takes the loop up to two turns to be told
            await asyncio.sleep(0)
        request, script, gate = self._arrive(connection, incoming, arrived)
        if gate is not None:
            await gate.passed()
        reply, message = self._answer(script, request)
        whole = await deliver(connection, request, reply, message, lambda: self._end(connection, "answered"))
        if connection in self._serving:
            self._end(connection, "answered" if whole else "cut")
        if reply.reset:
            connection.reset()
        return whole and message.framing in {"length", "chunked"} and request.headers.get("connection") != "close"

    def _arrive(
        self, connection: Connection, incoming: Incoming, arrived: float
    ) -> tuple[Recorded, Script, Gate | None]:
        """Write the request down, choose who answers it, and say whether it is held."""
        method, path, pairs, body = incoming
        with self._changed:
            counts = self._counts
            number, running = counts.arrivals + 1, counts.in_flight + 1
            request = Recorded(number, method, path, dict(pairs), pairs, body, arrived, running)
            self._requests.append(request)
            self._serving[connection] = request
            if self._cap is not None and running > self._cap:
                request.outcome = "refused"
                self._book(arrivals=number, refused=counts.refused + 1)
                return request, self._over_cap, None
            gate = None
            if self._holding:
                gate = self._held[number] = Gate()
            most = max(counts.max_in_flight, running)
            self._book(arrivals=number, in_flight=running, max_in_flight=most, held=len(self._held))
            return request, self._script.popleft() if self._script else self._fallback, gate

    def _answer(self, script: Script, request: Recorded) -> tuple[Reply, Message]:
        try:
            reply = script if isinstance(script, Reply) else script(request)
            return reply, reply.make(request)
        except Exception as failure:  # noqa: BLE001 - the test's own script failed: it is raised when the test ends
            self._errors.append(failure)
            reply = error(500, f"the script of this endpoint failed: {failure!r}")
            return reply, reply.make(request)

    def _end(self, connection: Connection, outcome: Outcome) -> None:
        """Close the books of the request that `connection` serves."""
        with self._changed:
            request = self._serving.pop(connection)
            request.ended = time.monotonic()
            if request.outcome == "refused":
                return
            request.outcome = outcome
            self._held.pop(request.number, None)
            counts = self._counts
            field = "disconnects" if outcome == "disconnected" else outcome
            self._book(in_flight=counts.in_flight - 1, held=len(self._held), **{field: getattr(counts, field) + 1})

    def _left(self, connection: Connection) -> None:
        if connection in self._serving:
            self._end(connection, "disconnected")

    def _book(self, **numbers: int) -> None:
        """Change numbers, and wake whoever waits for them. The lock is held by the caller."""
        self._counts = replace(self._counts, **numbers)
        self._changed.notify_all()
