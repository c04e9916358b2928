"""What magics show, as text and as HTML."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from fairq_ipy.notebook.document import Block, Chip, Document, Lines, Number, Paragraph, Pre, Table, shorten
from fairq_ipy.notebook.html import Html, page, tag

NASTY = "<img src=x onerror=alert(1)></script><b>&amp;\"'"


class Elements(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(name)
        self.attributes += attributes

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(
    "block",
    [
        Paragraph(NASTY),
        Paragraph("x", chip=Chip(NASTY)),
        Lines((NASTY,)),
        Pre(NASTY),
        Table((NASTY,), (("x",),)),
        Table(("name",), ((NASTY,),)),
        Table(("name",), ((Chip(NASTY),),)),
        Table(("name",), ((Number(NASTY),),)),
    ],
)
def test_texts_from_outside_are_shown_as_text(block: Block) -> None:
    seen = Elements(Document(block)._repr_html_())
    assert NASTY in seen.text
    assert {"img", "script", "b"}.isdisjoint(seen.tags)


def test_a_class_cannot_leave_its_attribute() -> None:
    seen = Elements(tag("p", "x", cls='"><script>'))
    assert seen.tags == ["p"]
    assert seen.attributes == [("class", '"><script>')]


def test_only_what_was_made_here_is_markup() -> None:
    assert tag("p", Html("<b>x</b>"), "<b>") == "<p><b>x</b>&lt;b&gt;</p>"
    assert tag("br") == "<br>"


def test_a_page_needs_nothing_from_outside() -> None:
    text = page(tag("p", "x"))
    assert "http" not in text
    assert "<script" not in text
    assert "\n" not in text


def test_colours_follow_the_front_end() -> None:
    assert "var(--jp-ui-font-color1,inherit)" in page()


def test_columns_line_up_with_numbers_to_the_right() -> None:
    table = Table(("tenant", "tokens"), (("a", Number("5")), ("研究", Number("1,200"))))
    assert table.as_text().splitlines() == ["tenant  tokens", "a            5", "研究     1,200"]


def test_a_state_is_a_word_and_not_only_a_colour() -> None:
    chip = Chip("paused", "warn")
    document = Document(Table(("state",), ((chip,),)), Paragraph("since noon", chip=chip))
    assert str(document) == "state\npaused\npaused: since noon"
    assert Elements(document._repr_html_()).text.endswith("statepausedpaused: since noon")


def test_a_document_shows_itself_and_equals_its_like() -> None:
    document = Document(Paragraph("one"), Lines(("two", "three")))
    assert repr(document) == str(document) == "one\ntwo\nthree"
    assert document == Document(Paragraph("one"), Lines(("two", "three")))
    assert document != Document(Paragraph("one"))
    assert document != "one\ntwo\nthree"


def test_long_and_strange_names_become_one_short_line() -> None:
    assert shorten("a\nb\x1b[31mc\u202ed") == "a b[31mcd"
    assert shorten("x" * 100, 10) == "x" * 9 + "…"
