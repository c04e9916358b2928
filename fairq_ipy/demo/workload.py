"""The work of the experiment: who wants what, when, how long it takes to serve, and how fast it can be done at all.

Five developers share one endpoint. Each runs two batches of seven refactorings, and asks for six reviews in between and
waits for them. The work is a function of the seed: both runs of the experiment do exactly the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from fairq_ipy.demo.answers import plan

__all__ = ["DEVELOPERS", "Job", "Kind", "bound", "workload"]

Kind: TypeAlias = Literal["interactive", "batch"]

DEVELOPERS: Final = ("ada", "ben", "chi", "dora", "eli")

_REVIEWS: Final = 6
_BATCHES: Final = ((0.0, 0.2), (0.35, 0.6))
"""When the two batches of a developer start, as shares of the time that all the work takes at least. The first two
developers start at once."""
_BATCH: Final = 7
_AT_ONCE: Final = 2
_REVIEWS_WITHIN: Final = (0.03, 0.8)

_VERBS: Final = ("parse", "load", "merge", "render", "retry", "collect", "sort", "check", "send", "split")
_NOUNS: Final = ("rows", "config", "orders", "report", "tokens", "events", "users", "paths", "prices", "logs")


class Job(NamedTuple):
    """One request that somebody wants.

    Attributes:
        number: its own number, 1 for the one that is wanted first.
        developer: who wants it.
        kind: ``interactive`` (a review, somebody waits) or ``batch`` (a refactoring, a script waits).
        wanted: seconds after the start of the run.
        prompt: the question; it ends in the mark that the answer must repeat.
        service: seconds that the endpoint takes for it.
        answer: the text that is the right answer to it.
    """

    number: int
    developer: str
    kind: Kind
    wanted: float
    prompt: str
    service: float
    answer: str

    @property
    def mark(self) -> str:
        """What its answer must repeat."""
        return f"[#{self.number}]"


def workload(seed: int, *, speed: float, slots: int) -> list[Job]:
    """Return the 100 jobs, in the order in which they are wanted.

    Args:
        seed: another seed gives other work of the same kind.
        speed: of the endpoint that will serve it; faster ones are asked at a faster rate.
        slots: requests that the endpoint serves at once.
    """
    chance = random.Random(seed)
    wanted: list[tuple[float, str, Kind]] = []
    for at, developer in enumerate(DEVELOPERS):
        for number, (earliest, latest) in enumerate(_BATCHES):
            start = 0.0 if number == 0 and at < _AT_ONCE else chance.uniform(earliest, latest)
            wanted += [(start, developer, "batch")] * _BATCH
        wanted += [(chance.uniform(*_REVIEWS_WITHIN), developer, "interactive") for _ in range(_REVIEWS)]
    wanted.sort()
    prompts = [_prompt(kind, number, chance) for number, (_, _, kind) in enumerate(wanted, 1)]
    plans = [plan([prompt], seed=seed) for prompt in prompts]
    least = sum(planned.total_s for planned in plans) / speed / slots
    return [
        Job(number, developer, kind, share * least, prompt, answer.total_s / speed, answer.text)
        for number, ((share, developer, kind), prompt, answer) in enumerate(zip(wanted, prompts, plans, strict=True), 1)
    ]


def bound(jobs: Sequence[Job], slots: int) -> float:
    """Return the least time, in seconds, in which any order could have all `jobs` done.

    What is wanted at a time t or later cannot start before t, and `slots` of it are served at once. So for each t the
    end comes no sooner than t plus all the service wanted from t on, shared by the slots; nor sooner than any job's own
    time plus its own service. The bound is the largest of these. No queue can beat it, and since a service is not
    interrupted, none can always reach it: one slot may stand idle while the last service of the other one ends.
    """
    latest, rest = 0.0, 0.0
    for job in sorted(jobs, key=lambda job: job.wanted, reverse=True):
        rest += job.service
        latest = max(latest, job.wanted + rest / slots, job.wanted + job.service)
    return latest


def _prompt(kind: Kind, number: int, chance: random.Random) -> str:
    name = f"{chance.choice(_VERBS)}_{chance.choice(_NOUNS)}"
    file = f"{chance.choice(_NOUNS)}.py"
    if kind == "interactive":
        return f"Please review `{name}` in {file} before I merge it. [#{number}]"
    return f"Refactor `{name}` in {file} into smaller steps, and say in which order. [#{number}]"
