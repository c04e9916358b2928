"""The built-in endpoint: a real HTTP server on loopback with the habits of a shared free one.

It speaks OpenAI's protocol (chat completions with and without stream, completions, embeddings, models), answers the
same question in the same way and the same time, and refuses what is too much: a concurrency cap and a limit per minute,
both answered 429. It is what ``base_url: demo`` in a policy means, and what `fairq demo` plays its experiments on::

    with start(concurrency=2) as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="any")

The server has a daemon thread and a loop of its own: nothing of it runs on the loop of a notebook's kernel, and a cell
that blocks does not slow it. A forked child has the object but not the thread: there, `close` does nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from fairq_ipy.demo.books import Books, Stats
from fairq_ipy.errors import ConfigurationError

if TYPE_CHECKING:
    from tornado.httpserver import HTTPServer

__all__ = ["DemoServer", "start"]

_HOST: Final = "127.0.0.1"
_PORTS: Final = 65535
_CLOSING: Final = 5.0


def start(
    *,
    concurrency: int | None = 2,
    requests_per_minute: int | None = None,
    retry_after: float | None = None,
    speed: float = 1.0,
    seed: int = 0,
    port: int = 0,
) -> DemoServer:
    """Start a demo endpoint; it listens when this returns.

    Args:
        concurrency: requests that it serves at once; one more is answered 429. ``None`` for any number.
        requests_per_minute: requests that it takes in any 60 s; ``None`` for any number.
        retry_after: seconds that a 429 for concurrency names in its Retry-After header (one for the limit per minute
            then names the true ones); ``None`` sends no such header, as most small servers do.
        speed: how much faster than a small model (60 tokens a second, 0.2 to 0.4 s to the first).
        seed: another seed gives other answers.
        port: where it listens on 127.0.0.1; 0 takes a free one.

    Returns:
        The running server.

    Raises:
        ConfigurationError: when tornado is not installed, an argument makes no sense, or the port is taken.
    """
    _check(concurrency, requests_per_minute, retry_after, speed, port)
    try:
        from tornado.httpserver import HTTPServer

        from fairq_ipy.demo.handlers import application
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            "the demo endpoint needs tornado, which comes with Jupyter: pip install 'fairq-ipy[notebook]' "
            "(or pip install tornado)"
        ) from missing
    try:
        listener = socket.create_server((_HOST, port), backlog=128)
    except OSError as problem:
        raise ConfigurationError(f"the demo endpoint cannot listen on {_HOST}:{port}: {problem}") from problem
    listener.settimeout(0)  # as the event loop needs it
    books = Books(concurrency, requests_per_minute, time.monotonic)
    app = application(books, speed=speed, seed=seed, retry_after=retry_after)
    return DemoServer(books, HTTPServer(app), listener)


class DemoServer:
    """A running demo endpoint. Made by `start`; also a context manager that closes it.

    Args:
        books: its counters.
        http: its HTTP side.
        listener: the bound socket to serve on.
    """

    def __init__(self, books: Books, http: HTTPServer, listener: socket.socket) -> None:
        self._books = books
        self._http = http
        self._listener = listener
        self._port: int = listener.getsockname()[1]
        self._owner = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="fairq-demo", daemon=True)
        self._thread.start()
        self._ready.wait()
        # A daemon thread that is still in its loop when the interpreter goes would leave warnings behind.
        atexit.register(self.close)

    @property
    def base_url(self) -> str:
        """What an SDK takes as ``base_url``, as ``http://127.0.0.1:54321/v1``."""
        return f"http://{_HOST}:{self._port}/v1"

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port

    @property
    def alive(self) -> bool:
        """Whether it answers, and in this process."""
        return self._owner == os.getpid() and self._thread.is_alive()

    def stats(self) -> Stats:
        """Return what it saw so far.

        Raises:
            ConfigurationError: in a forked child, where the server is not.
        """
        if self._owner != os.getpid():
            raise ConfigurationError(
                f"this demo endpoint runs in process {self._owner}, not in this child of it: start another one here"
            )
        return self._books.stats()

    def close(self) -> None:
        """Stop at once: whoever is connected is cut off. Closing twice is closing once."""
        if not self.alive:
            return
        atexit.unregister(self.close)
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            loop.call_soon_threadsafe(stop.set)
        self._thread.join(_CLOSING)

    def __enter__(self) -> Self:
        """Return the running server."""
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Return where it is and whether it runs."""
        return f"<DemoServer {self.base_url} {'running' if self.alive else 'closed'}>"

    # -------------------------------------------------------------------------------------- on the server's thread

    def _main(self) -> None:
        # The selector loop also on Windows, where tornado needs it, and whatever policy the process has set.
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                self._loop = runner.get_loop()
                runner.run(self._serve())
        finally:
            self._ready.set()  # whoever waits for the start must not wait for a thread that is gone

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._http.add_socket(self._listener)
        self._ready.set()
        await self._stop.wait()
        self._http.stop()
        await self._http.close_all_connections()
        deadline = time.monotonic() + 1.0
        while self._books.stats().in_flight and time.monotonic() < deadline:  # noqa: ASYNC110 - once, at the very end
            await asyncio.sleep(0.005)  # handlers hear that their connection is gone, and end by themselves


def _check(
    concurrency: int | None, requests_per_minute: int | None, retry_after: float | None, speed: float, port: int
) -> None:
    """Refuse arguments that would make a server which never answers, or which answers with an error of its own."""
    if concurrency is not None and concurrency < 1:
        raise ConfigurationError(f"concurrency must be at least 1, not {concurrency!r}")
    if requests_per_minute is not None and requests_per_minute < 1:
        raise ConfigurationError(f"requests_per_minute must be at least 1, not {requests_per_minute!r}")
    if retry_after is not None and not 0 <= retry_after < float("inf"):
        raise ConfigurationError(f"retry_after must be a number of seconds, 0 or more, not {retry_after!r}")
    if not 0 < speed < float("inf"):
        raise ConfigurationError(f"speed must be a number above 0, not {speed!r}")
    if not 0 <= port <= _PORTS:
        raise ConfigurationError(f"port must be from 0 (a free one) to {_PORTS}, not {port!r}")
