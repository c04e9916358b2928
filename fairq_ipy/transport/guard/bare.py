"""What no queue can hold up, but can be seen: the standard library's HTTP, websockets, sockets.

A request of ``http.client`` says where it goes, so it is counted as a call. A socket only says whom it connects to: by
name, or by an address, which may belong to other hosts as well. A name's addresses are looked up once, on a thread of
their own, and only when somebody who is none of the known libraries connects to the endpoint's port.
"""
# ruff: noqa: ANN401 - the standard library's own objects

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from fairq_ipy.errors import BypassBlockedError
from fairq_ipy.transport.guard.sightings import Sighting, stands_on
from fairq_ipy.transport.guard.watch import Seam, Watch, plain
from fairq_ipy.transport.origin import PORTS

__all__ = ["seams"]

_HTTP: Final = frozenset({"http", "urllib", "urllib3"})

# What is met elsewhere, at a place where more is known of the call.
_MET: Final = frozenset({"aiohappyeyeballs", "aiohttp", "anyio", "http", "httpcore", "httpcore2", "urllib3"})

_SOCKETS: Final = frozenset({"asyncio", "selectors", "socket", "ssl"})


def seams(watch: Watch, module: ModuleType) -> Iterator[Seam]:
    """Yield the methods to replace in ``http.client`` or in ``socket``."""
    if module.__name__ == "socket":
        sockets = _Sockets(watch)
        yield module.socket, "connect", sockets.connect
        yield module.socket, "connect_ex", sockets.connect
    else:
        yield module.HTTPConnection, "putrequest", _putrequest(watch)


def _putrequest(watch: Watch) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what makes the method of connections that begins a request."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def putrequest(connection: Any, method: str, url: str, *args: Any, **settings: Any) -> Any:
            host = getattr(connection, "_tunnel_host", None) or connection.host
            if method == "POST" and (watch.reaches(host) or "://" in url):
                whole = _whole(connection, host, url)
                if watch.host.governs("POST", whole):
                    watch.out_of_reach("http.client", urlsplit(whole).hostname or host, _HTTP)
            return original(connection, method, url, *args, **settings)

        return putrequest

    return wrap


def _whole(connection: Any, host: str, url: str) -> str:
    """Return the URL that a request goes to."""
    if "://" in url:  # through a proxy
        return url
    scheme = "https" if connection.default_port == PORTS["https"] else "http"
    tunnelled = getattr(connection, "_tunnel_host", None)
    port = getattr(connection, "_tunnel_port", None) if tunnelled else connection.port
    name = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{scheme}://{name}:{port}{url}" if port else f"{scheme}://{name}{url}"


class _Sockets:
    """The wrappers for sockets, and the addresses of the endpoint as far as they are known."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._known: dict[str, frozenset[str]] = {}
        self._waiting: dict[str, list[tuple[str, Sighting]]] = {}

    def connect(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method that connects."""

        def connect(sock: Any, address: Any) -> Any:
            if self._watch.mode != "off" and isinstance(address, tuple) and len(address) > 1:
                try:
                    self._look(address)
                except BypassBlockedError:
                    sock.close()  # who connects closes it only after errors of the network
                    raise
            return original(sock, address)

        return connect

    def _look(self, address: tuple[Any, ...]) -> None:
        """Count a connection to the endpoint that none of the known libraries makes."""
        names = [origin.host for origin in self._watch.host.origins() if origin.port == address[1]]
        if not names or self._watch.is_ours() or stands_on(_MET):
            return
        host = plain(str(address[0]))
        if host in names:
            self._watch.out_of_reach("a socket", host, _SOCKETS)
        else:
            for name in names:
                if not _is_address(name):
                    self._ask(name, host)

    def _ask(self, name: str, host: str) -> None:
        """Count it if that is one of the endpoint's addresses, as soon as they are known."""
        addresses = self._known.get(name)
        if addresses is not None:
            if host in addresses:
                self._watch.out_of_reach("a socket", name, _SOCKETS, sure=False)
            return
        sighting = self._watch.sighting("a socket", name, _SOCKETS, "out of reach")
        waiting = self._waiting.get(name)
        if waiting is None:
            waiting = self._waiting[name] = []
            threading.Thread(target=self._resolve, args=(name,), name="fairq-resolve", daemon=True).start()
        waiting.append((host, sighting))

    def _resolve(self, name: str) -> None:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except OSError:  # it will not be reached by that name either
            found = []
        addresses = self._known[name] = frozenset(plain(str(each[4][0])) for each in found)
        waiting = self._waiting[name]
        while waiting:
            host, sighting = waiting.pop()
            if host in addresses:
                self._watch.count(sighting)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
