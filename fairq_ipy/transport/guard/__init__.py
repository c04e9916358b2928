"""The guard: calls of the endpoint by clients that were never told of the queue.

`guard` switches; `watch` decides and counts; `patches` and `imports` get at the libraries, also those that are
imported later. One module per family of libraries says where a call is met and how its answer is made: `httpx_family`,
`requests_adapters`, `urllib3_pools`, `aiohttp_sessions`; `routing` is what the last three share. `bare` sees what
cannot be held up: the standard library's HTTP, websockets, sockets.
"""

from fairq_ipy.transport.guard.guard import Guard
from fairq_ipy.transport.guard.sightings import Bypassed, Fate, Seen, Sighting

__all__ = ["Bypassed", "Fate", "Guard", "Seen", "Sighting"]
