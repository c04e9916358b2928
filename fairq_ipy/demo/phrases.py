"""What the demo endpoint has to say: short, general truths about code, so that a canned answer still reads like one.

``{it}`` is filled with what the question is about.
"""

from __future__ import annotations

from typing import Final

__all__ = ["OPENINGS", "POINTS", "REVIEW", "REVIEW_VERDICTS", "SKETCHES", "STEPS", "WHY"]

REVIEW_VERDICTS: Final = (
    "Good to merge after two small changes.",
    "The idea is sound; the edges need a little work.",
    "Reads well. I would not merge it before the first point is settled.",
    "Nothing blocks this, but it can be simpler.",
)

REVIEW: Final = (
    "**Edge case.** An empty input falls through to the last branch; say what should happen and test it.",
    "**Errors.** The `except` is wider than what can go wrong here. Catch the one error you expect.",
    "**Naming.** `{it}` tells how it works; a name that tells what it is for would save the comment above it.",
    "**Resource.** The file is not closed when parsing fails. A `with` block does it on each path.",
    "**Default.** `x or default` also replaces a 0 that the caller meant. Compare with `None`.",
    "**Test.** The happy path is covered; add the case in which the second call fails.",
    "**Time.** The timeout is in seconds here and in milliseconds at the caller. Put the unit in the name.",
    "**State.** The module-level cache is shared by all threads. Pass it in, or guard it.",
    "**Loop.** The query runs once for each row. One query before the loop does the same work.",
    "**Logging.** The message holds the whole payload. Log its size and its id instead.",
)

WHY: Final = (
    "`{it}` decides and acts in the same place, which makes it hard to test and easy to break.",
    "`{it}` has grown three jobs: it reads, it checks and it reports. Each is simple on its own.",
    "`{it}` is called from five places that each know a little about its inside.",
    "Two flags steer `{it}`, and only three of their four combinations make sense.",
)

STEPS: Final = (
    "**Split reading from deciding.** One function returns rows, the other takes them; neither knows the other.",
    "**Replace the flags** by two functions with plain names. The callers already know which one they want.",
    "**Return early.** Three levels of `if` become a list of guards, and the main path stands at the margin.",
    "**Give the tuple a name.** A small frozen dataclass says what the fourth element is.",
    "**Move the clock out.** Pass `now` as an argument, and the test no longer has to sleep.",
    "**Narrow the type.** It accepts `Any` and works for two types; say so, and let the checker find the rest.",
    "**Delete the cache.** It is filled on each call and read once. Measure before you put one back.",
    "**Keep the old name** as a thin wrapper for one release, with a warning that names the new one.",
    "**Collect, then report.** Gather all problems in a list and raise once, so that a user mends them in one go.",
)

SKETCHES: Final = (
    """\
def {name}(rows: Iterable[Row], *, now: float) -> Iterator[Change]:
    for row in rows:
        if row.expires > now:
            yield Change(row.id, row.expires - now)""",
    """\
def {name}(source: Source) -> Report:
    rows = read(source)
    problems = [p for row in rows if (p := check(row))]
    return Report(rows, problems)""",
    """\
@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...]


def {name}(plan: Plan) -> None:
    for step in plan.steps:
        step.run()""",
)

OPENINGS: Final = (
    "In short: start with the smallest change that can be undone, and measure before the next one.",
    "In short: it depends on who waits for the result, so ask that first.",
    "In short: the simple way is enough here, as long as its limit is written down.",
)

POINTS: Final = (
    "**Look at the data first.** Ten real examples settle most of the discussion.",
    "**Make the common case short.** The rare one may take a line more, and a comment.",
    "**Name the limit.** Say how many, how large and how long, and what happens beyond that.",
    "**Write the failing test.** It states the question better than a paragraph.",
    "**Keep one owner.** State that two places change is state that nobody understands.",
    "**Prefer boring.** A loop that everybody can read beats a trick that needs a note.",
    "**Ask what happens at zero.** Empty inputs and first runs are where surprises live.",
    "**Leave a way back.** A switch, a backup or a second name costs little today.",
)
