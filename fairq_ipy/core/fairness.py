"""Who is next: levels first, then start-time fair queueing on estimated, streamed and corrected cost (E-VTC).

The rules, after Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024), which counts the service a
client got, and Goyal et al., "Start-time Fair Queuing" (SIGCOMM 1996), whose virtual time tells where the system is:

* A *lane* is one tenant at one level. It has a counter ``c`` (weighted cost it was charged) and a FIFO of tickets.
* A *level* has a virtual time ``V``: the greatest counter that was ever admitted from. It never falls.
* **Pick**: the eligible lane with the least ``(c, last)``; ``last`` is the number of its latest admission, so that
  equal costs and weights give round robin.
* **Charge** at admission: ``V = max(V, c)``, then ``c += cost / weight`` with an estimate of the output. Tags are made
  at admission, never at arrival, since a tag that was handed out cannot be corrected.
* **Stream**: what a running call produces beyond its estimate is charged as it comes. Otherwise an idle tenant could
  take every slot with answers that turn out long.
* **Correct** at the end: ``c += (actual - charged) / weight``. A refund never takes ``c`` below ``V`` as it was when
  the lane's present head arrived or the lane was last lifted: the past cannot be saved up.
* **Lift**: when a lane becomes backlogged (its queue was empty) or eligible again (resumed, window turned, limit
  raised), ``c = max(c, V)``. A lane whose queue is empty has no claim on the slots that others use meanwhile, also when
  it has a call in flight: without that a tenant with one long call builds up a credit and bursts.

Bound: two lanes of a level that are both backlogged over an interval differ in weighted service by at most
``Cmax/w_i + Cmax/w_j`` plus the estimate error in flight (Goyal et al., theorem 1, with corrected tags).

What never lives here: limits, budgets, pauses. They decide *eligibility*; a lane that is not eligible is simply not in
its level's heap, so that a paused tenant costs nothing per admission. Heap entries are ``(c, last, uid, lane)``; one is
stale, and dropped when it comes up, if the lane is not listed or its key has changed. Every operation is O(log lanes).
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from fairq_ipy.core.lifecycle import Entry

if TYPE_CHECKING:
    from fairq_ipy.core.roster import Tenant

_SLACK: Final = 64
"""Stale heap entries and dead queue entries that are not worth a compaction."""

SMOOTHING: Final = 0.2
"""Weight of the newest answer in the moving average of output tokens."""

COLD_START: Final = 256.0
"""Output tokens expected before anything was seen."""


class Lane:
    """The tickets of one tenant at one level, and what they were charged."""

    __slots__ = ("c", "dead", "floor", "last", "level", "listed", "live", "parked", "queue", "tenant", "uid", "weight")

    def __init__(self, tenant: Tenant, level: Level, weight: float, uid: int) -> None:
        self.tenant = tenant
        self.level = level
        self.weight = weight
        self.uid = uid
        self.c = 0.0
        self.last = 0
        self.floor = 0.0
        self.queue: deque[Entry] = deque()
        self.live = 0
        self.dead = 0
        self.listed = False
        self.parked = False

    def head(self) -> Entry:
        """Return the first waiting ticket; there must be one."""
        queue = self.queue
        while queue[0].state != "waiting":
            queue.popleft()
            self.dead -= 1
        return queue[0]

    def lift(self) -> None:
        """Forget what the lane did not use while it had no claim."""
        v = self.level.v
        self.c = max(self.c, v)
        self.floor = v

    def take_out(self, entry: Entry) -> None:
        """Count out a waiting ticket that has just ended; it is dropped from the queue when it comes up."""
        self.live -= 1
        if self.queue and self.queue[-1] is entry:
            self.queue.pop()
            return
        self.dead += 1
        if self.dead > _SLACK and self.dead > self.live:
            self.queue = deque(waiting for waiting in self.queue if waiting.state == "waiting")
            self.dead = 0

    def put_back(self, entry: Entry) -> None:
        """Take a ticket back at the place that its order of arrival gives it."""
        queue = self.queue
        earlier = []
        while queue and queue[0].seq < entry.seq:
            earlier.append(queue.popleft())
        queue.appendleft(entry)
        queue.extendleft(reversed(earlier))
        self.live += 1
        # It may be older than all that the starvation guard has looked at.
        self.level.guard_at = float("-inf")

    def charge(self, cost: float, entry: Entry) -> None:
        """Charge `cost` for an admission or for what a stream produced beyond it."""
        self.c += cost / entry.share
        entry.charged += cost

    def refund(self, cost: float, entry: Entry) -> None:
        """Give `cost` back, but never the past."""
        entry.charged -= cost
        c = self.c - cost / entry.share
        if self.live:
            c = max(c, min(self.c, max(self.floor, self.head().v_arrived)))
        self.c = c


class Level:
    """One priority class: its virtual time and its eligible lanes."""

    __slots__ = ("guard_at", "heap", "in_flight", "lanes", "last_admitted", "listed", "number", "reserve", "v")

    def __init__(self, number: int) -> None:
        self.number = number
        self.reserve = 0
        self.v = 0.0
        self.heap: list[tuple[float, int, int, Lane]] = []
        self.lanes: list[Lane] = []
        self.listed = 0
        self.in_flight = 0
        self.last_admitted = float("-inf")
        self.guard_at = float("-inf")

    def enter(self, lane: Lane) -> None:
        """Put an eligible lane into the heap, or re-key it when it is there."""
        if not lane.listed:
            lane.listed = True
            self.listed += 1
        heap = self.heap
        heappush(heap, (lane.c, lane.last, lane.uid, lane))
        if len(heap) > _SLACK + 2 * self.listed:
            # Over what stands in the heap, not over all lanes: who is idle costs nothing.
            valid = {}
            for line in heap:
                c, last, _, each = line
                if each.listed and each.c == c and each.last == last:
                    valid[each] = line
            heap[:] = valid.values()
            heapify(heap)

    def leave(self, lane: Lane) -> None:
        """Take a listed lane out; its heap entries become stale."""
        lane.listed = False
        self.listed -= 1

    def first(self, but: Tenant | None) -> Lane | None:
        """Return the eligible lane with the least ``(c, last)``, leaving out the tenant `but`."""
        heap = self.heap
        aside = None
        found = None
        while heap:
            top = heap[0]
            lane = top[3]
            if not lane.listed or lane.c != top[0] or lane.last != top[1]:
                heappop(heap)
            elif lane.tenant is but:
                aside = heappop(heap)
                # The same key may stand there twice; one copy is enough to put back.
            else:
                found = lane
                break
        if aside is not None:
            heappush(heap, aside)
        return found

    def starving_since(self) -> float:
        """Return when the oldest eligible ticket arrived; there must be one. O(lanes), and rarely called."""
        return min(lane.head().arrived for lane in self.lanes if lane.listed)


class Estimates:
    """How many output tokens a call is going to produce: moving averages per tenant and model, else over all."""

    __slots__ = ("_by_key", "_overall")

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], float] = {}
        self._overall = COLD_START

    def expect(self, tenant: str, model: str, max_tokens: int | None) -> float:
        """Return the expected output tokens, never above the request's own limit."""
        known = self._by_key.get((tenant, model), self._overall)
        return known if max_tokens is None or known < max_tokens else float(max_tokens)

    def learn(self, tenant: str, model: str, output_tokens: int) -> None:
        """Take in a finished answer."""
        key = tenant, model
        known = self._by_key.get(key)
        # An answer is the best guess for the next one of its kind, so the first one counts in full.
        self._by_key[key] = output_tokens if known is None else known + SMOOTHING * (output_tokens - known)
        self._overall += SMOOTHING * (output_tokens - self._overall)
