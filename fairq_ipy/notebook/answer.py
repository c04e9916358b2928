"""The answer as a cell's value: kept in ``Out`` and ``_``, and not shown a second time in its own cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from fairq_ipy.notebook.document import Printer
from fairq_ipy.notebook.wording import count, seconds
from fairq_ipy.transport.chat import Answer

__all__ = ["CellAnswer", "footer"]


class CellAnswer(Answer):
    """An answer that its own cell has shown while it came.

    IPython shows the value of a cell's last line. In the cell that asked, the answer stands there already, so it shows
    nothing there; in every other cell it shows as any answer does.
    """

    __slots__ = ("_show_here",)

    @classmethod
    def of(cls, answer: Answer, show_here: Callable[[], Callable[[], None] | None]) -> CellAnswer:
        """Return the same answer.

        Args:
            answer: what was shown.
            show_here: returns what to do instead of showing it, while the cell that asked still runs; ``None`` later.
        """
        made = cls(**{field.name: getattr(answer, field.name) for field in fields(Answer)})
        object.__setattr__(made, "_show_here", show_here)
        return made

    @property
    def _ipython_display_(self) -> Callable[[], None] | None:
        """What IPython calls instead of showing the value, if it is callable."""
        instead: Callable[[], Callable[[], None] | None] = self._show_here  # type: ignore[attr-defined]  # see `of`
        return instead()

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:  # noqa: ARG002, FBT001 - IPython's signature
        printer.text(self.text)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as a plain answer: the cell is not part of it."""
        return Answer, tuple(getattr(self, field.name) for field in fields(Answer))


def footer(answer: Answer) -> str:
    """Return what the answer took, in one line."""
    usage = answer.usage
    about = "" if usage.exact else "about "
    parts = [
        answer.model,
        f"{about}{count(usage.prompt_tokens)} + {count(usage.output_tokens)} tokens",
        f"waited {seconds(answer.wait_s)}",
        f"took {seconds(answer.service_s)}",
        f"call {answer.ticket}",
        "cut off at the longest answer allowed" if answer.finish_reason == "length" else "",
    ]
    return " · ".join(part for part in parts if part)
