"""However a question ends, its place says so; and what completes is asked of the session."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter

import fairq_ipy as fairq
from fairq_ipy.core.messages import Place
from fairq_ipy.notebook.ask import ask
from fairq_ipy.notebook.question import Conversations, Question
from fairq_ipy.transport import chat


class Record:
    """A surface that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def waiting(self, words: str) -> None:
        self.told.append(f"waiting: {words}")

    def text(self, piece: str) -> None:
        self.told.append(f"text: {piece}")

    def done(self, text: str, footer: str) -> None:
        self.told.append(f"done: {text}")

    def ended(self, words: str) -> None:
        self.told.append(f"ended: {words}")

    def failed(self, words: str) -> None:
        self.told.append(f"failed: {words}")


def asked(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> list[str]:
    """Ask while the transport does all that it can do and then fails."""

    def fail(*_: Any, on_text: Any, on_place: Any, **__: Any) -> None:
        on_place(Place(3, "slot"))
        on_place(None)
        on_text("Hel")
        raise error

    monkeypatch.setattr(chat, "ask", fail)
    record, talks = Record(), Conversations()
    with pytest.raises(type(error)):
        ask(None, talks, Question(text="x", chat="plans"), record)  # type: ignore[arg-type]  # nothing asks it
    assert talks.names() == []
    return record.told


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (KeyboardInterrupt(), "ended: stopped"),
        (fairq.QueueFullError("full"), "failed: no answer: queue full"),
        (fairq.EndpointError("down"), "failed: no answer: endpoint"),
        (ZeroDivisionError(), "failed: no answer"),
        (SystemExit(), "failed: no answer"),
    ],
)
def test_its_place_says_how_it_ended(monkeypatch: pytest.MonkeyPatch, error: BaseException, end: str) -> None:
    assert asked(monkeypatch, error) == [
        "waiting: waits for a free slot, 3 calls ahead",
        "waiting: sent; the answer has not begun yet",
        "text: Hel",
        end,
    ]


def test_tab_knows_tenants_levels_models_and_chats(shell: Any) -> None:
    def complete(text: str) -> list[str]:
        with provisionalcompleter():
            return [found.text for found in shell.ip.Completer.completions(text, len(text))]

    shell.run("%ask --chat plans --tenant newcomer hello")
    assert complete("%%ask --tenant ") == ["logs", "no", '"my team"', "notebook", "newcomer"]
    assert complete("%%ask --priority ")[:3] == ["interactive", "batch", "0"]
    assert complete("%%ask --model ") == ["mock-small"]
    assert complete("%%ask --chat ") == ["plans"]


def test_tab_is_silent_where_no_policy_can_be_used(shell: Any, policy: Any) -> None:
    policy.write_text("version: 0", encoding="utf-8")
    shell.run("%reload_ext fairq_ipy")
    with provisionalcompleter():
        assert "logs" not in [found.text for found in shell.ip.Completer.completions("%%ask --tenant ", 15)]
