"""What YAML 1.2 makes of text, and what is refused before it means anything."""

from __future__ import annotations

import pytest

from fairq_ipy.errors import Finding, PolicyError
from fairq_ipy.policy import yaml12
from fairq_ipy.policy.report import Report
from fairq_ipy.policy.tree import Mark, entry, plain


def data_of(text: str) -> object:
    report = Report("team.yaml")
    tree = yaml12.read(text, report)
    report.close()
    return plain(tree)


def wrong_with(text: str) -> list[Finding]:
    with pytest.raises(PolicyError) as caught:
        data_of(text)
    return list(caught.value.findings)


def the_wrong(text: str) -> Finding:
    (finding,) = wrong_with(text)
    return finding


# ------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "y", "n", "On", "NO", "tRue"])
def test_words_that_yaml_1_1_took_for_booleans_are_text(word):
    assert data_of(f"a: {word}") == {"a": word}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("False", False), ("TRUE", True), ("null", None), ("~", None), ("", None), ("NULL", None),
        ("0", 0), ("7", 7), ("-5", -5), ("+3", 3), ("1.5", 1.5), ("-0.25", -0.25), ("4.0", 4.0),
        ("10_000_000", 10_000_000), ("1_000", 1000),
    ],
)  # fmt: skip
def test_plain_values_are_those_of_the_core_schema(text, value):
    read = data_of(f"a: {text}")["a"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "010", "0x1F", "0o17", "1e6", "1.5e3", "1:30", "190:20:30", "2024-01-01", "2024-01-01T00:00:00Z", ".5", "5.",
        ".nan", ".inf", "-.inf", "NaN", "1_0", "10_00", "_1", "1__000", "0_000", "=", "9" * 40, "9" * 5000,
        "0." + "1" * 40,
    ],
)  # fmt: skip
def test_forms_that_readers_disagree_about_stay_text(text):
    assert data_of(f"a: {text}") == {"a": text}


@pytest.mark.parametrize("quoted", ["'5'", '"5"', "|-\n  5", ">-\n  5"])
def test_quotes_make_text_of_a_number(quoted):
    assert data_of(f"a: {quoted}") == {"a": "5"}


@pytest.mark.parametrize("key", ["on", "no", "123", "null", "2024-01-01", "true", "1.0", "~", "010", "1_000"])
def test_a_key_is_text_as_it_was_written(key):
    assert data_of(f"{key}: 1") == {key: 1}


def test_a_quoted_and_a_plain_key_of_the_same_text_are_the_same_key():
    assert "twice" in the_wrong("123: a\n'123': b\n").message


# --------------------------------------------------------------------------------------------------------------- keys


def test_a_key_that_stands_twice_is_refused_with_both_lines():
    finding = the_wrong("a: 1\nb: 2\n\na: 3\n")
    assert (finding.line, finding.column, finding.path) == (4, 1, "a")
    assert "here and in line 1" in finding.message


def test_every_second_key_is_found_at_once():
    findings = wrong_with("a: {x: 1, x: 2}\nb: 1\nb: 2\nb: 3\n")
    assert [(finding.line, finding.path) for finding in findings] == [(1, "a.x"), (3, "b"), (4, "b")]


@pytest.mark.parametrize("key", ["? [a, b]\n: 1", "? {a: b}\n: 1", "{[a]: 1}", "*x : 1"])
def test_a_list_or_a_section_is_no_key(key):
    text = f"first: &x [a]\n{key}" if key.startswith("*") else key
    assert "cannot be a key" in the_wrong(text).message


def test_a_colon_without_a_key_is_refused_where_it_stands():
    finding = the_wrong("a:\n  ?\n  : 1\n")
    assert (finding.line, finding.path, finding.message) == (2, "a", "a colon without a key")


def test_an_alias_may_be_a_key():
    assert data_of("a: &x name\n*x : 1\n") == {"a": "name", "name": 1}


# -------------------------------------------------------------------------------------------------------------- merge


def test_a_merge_key_fills_in_what_the_section_does_not_say():
    text = "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\n"
    assert data_of(text) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}


def test_the_section_wins_over_a_merge_key_that_comes_later():
    assert data_of("a: &a {x: 1}\nb: {x: 2, <<: *a}\n")["b"] == {"x": 2}


def test_of_several_merged_sections_the_first_wins():
    assert data_of("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b, {z: 3}]}\n")["c"] == {"x": 1, "y": 2, "z": 3}


def test_a_merged_key_points_at_the_line_where_it_is_written():
    tree = yaml12.read("a: &a\n  x: 1\nb:\n  <<: *a\n", Report("team.yaml"))
    assert entry(tree, ("b", "x")).key == Mark(2, 3)


@pytest.mark.parametrize("source", ["1", "[{a: 1}, 2]", "[[{a: 1}]]", "", "text"])
def test_only_sections_can_be_merged(source):
    assert the_wrong(f"a:\n  <<: {source}\n").message == "only sections can be merged"


def test_a_second_merge_key_is_a_key_that_stands_twice():
    assert "twice" in the_wrong("a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a\n").message


def test_a_quoted_merge_key_is_an_ordinary_key():
    assert data_of("'<<': 1") == {"<<": 1}


# ------------------------------------------------------------------------------------------------------------ aliases


def test_an_alias_repeats_its_anchor_and_the_latest_one_counts():
    assert data_of("a: &x 1\nb: *x\nc: &x [2]\nd: *x\n") == {"a": 1, "b": 1, "c": [2], "d": [2]}


def test_an_alias_without_its_anchor_is_refused():
    finding = the_wrong("a: 1\nb: *nobody\n")
    assert (finding.line, finding.column) == (2, 4)
    assert "nobody" in finding.message


@pytest.mark.parametrize("text", ["a: &x [*x]", "&x a: &x {b: *x}", "&x {a: *x}"])
def test_an_alias_inside_of_what_it_repeats_is_refused(text):
    assert "inside of what it repeats" in the_wrong(text).message


BOMBS = {
    "laughs": "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 40)),
    "sections": "a0: &a0 {x: 1, y: 1}\n"
    + "".join(f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}\n" for n in range(1, 40)),
    "merges": "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40)),
    "keys": "a: &a [" + "x, " * 300 + "]\n" + "".join(f"k{n}: *a\n" for n in range(300)),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_an_alias_bomb_is_refused_before_it_is_written_out(bomb):
    finding = the_wrong(bomb)
    assert "more than" in finding.message
    assert finding.line > 1


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_an_alias_bomb_costs_no_more_than_reading_its_own_text(bomb):
    # What is counted is work, not time: events that were read before it was refused.
    report, seen = Report("team.yaml"), []
    builder = yaml12._Builder(report)

    def counted():
        for event in yaml12._events(bomb, report):
            seen.append(event)
            yield event

    with pytest.raises(PolicyError):
        builder.build(counted())
    assert len(seen) < 2_000


# -------------------------------------------------------------------------------------------------------------- depth


@pytest.mark.parametrize("text", ["[" * 60, "- " * 60, "{a: " * 60, "? " * 60, "[" * 100_000])
def test_deep_nesting_is_refused(text):
    assert "levels" in the_wrong(text).message


def test_nesting_through_aliases_counts():
    text = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 60))
    finding = the_wrong(text)
    assert "levels" in finding.message
    assert finding.line == yaml12.DEEPEST - 1


def test_nesting_up_to_the_bound_is_read():
    depth = yaml12.DEEPEST
    assert data_of("[" * depth + "]" * depth)


def test_a_text_that_is_too_long_is_refused_unread():
    finding = the_wrong("#" * (yaml12.LONGEST + 1))
    assert str(yaml12.LONGEST) in finding.hint


def test_more_values_than_a_policy_has_are_refused(monkeypatch):
    monkeypatch.setattr(yaml12, "MOST", 10)
    finding = the_wrong("- 1\n" * 11)
    assert "more than 10 values" in finding.message
    assert finding.line == 10


# ------------------------------------------------------------------------------------------- documents, tags, versions


def test_a_second_document_is_refused_where_it_begins():
    finding = the_wrong("a: 1\n---\nb: 2\n")
    assert (finding.line, finding.column) == (2, 1)
    assert "second document" in finding.message


@pytest.mark.parametrize("text", ["---\na: 1\n", "a: 1\n...\n", "%YAML 1.2\n---\na: 1\n", "--- {a: 1}\n"])
def test_the_marks_of_one_document_are_accepted(text):
    assert data_of(text) == {"a": 1}


def test_another_version_of_yaml_is_refused_because_it_reads_differently():
    finding = the_wrong("%YAML 1.1\n---\na: on\n")
    assert "YAML 1.1" in finding.message


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "\ufeff"])
def test_an_empty_file_is_refused(text):
    finding = the_wrong(text)
    assert (finding.line, finding.column, finding.message) == (1, 1, "the file is empty")


@pytest.mark.parametrize("value", ["!!str 1", "!x 1", "! 1", "!!python/object/apply:os.system [id]", "!<tag:x> {}"])
def test_a_tag_is_refused_and_nothing_is_made_of_it(value):
    finding = the_wrong(f"a: {value}\n")
    assert (finding.line, finding.column, finding.path) == (1, 4, "a")
    assert "tag" in finding.message


def test_a_finding_in_a_list_says_which_item():
    assert the_wrong("a:\n  - x\n  - b: [!x y]\n").path == "a[1].b[0]"


# ---------------------------------------------------------------------------------------------------------- characters


def test_a_byte_order_mark_and_windows_line_ends_are_accepted():
    assert data_of("\ufeffa: 1\r\nb:\r\n  c: x\r\n") == {"a": 1, "b": {"c": "x"}}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_as_editors_count_them(end):
    finding = the_wrong(end.join(["a: 1", "", "# c", "bb: &x 1", "cc: *y"]))
    assert (finding.line, finding.column) == (5, 5)


def test_columns_count_characters_of_any_size():
    finding = the_wrong("ä😀: *y\n")
    assert (finding.line, finding.column) == (1, 5)


@pytest.mark.parametrize(
    "sign", ["\0", "\x07", "\x1b", "\x7f", "\x85", "\u2028", "\u2029", "\ufeff", "\ud800", "\uffff"]
)
def test_an_invisible_character_is_refused_where_it_stands(sign):
    finding = the_wrong(f"a: 1\nbb: x{sign}y\n")
    assert (finding.line, finding.column) == (2, 6)
    assert f"U+{ord(sign):04X}" in finding.message


@pytest.mark.parametrize("escape", ["\\0", "\\e", "\\x7f", "\\N", "\\L", "\\uD83D", "\\u202e", "\\t"])
def test_a_control_character_is_refused_even_as_an_escape(escape):
    finding = the_wrong(f'a: "x{escape}"\n')
    assert (finding.line, finding.path) == (1, "a")
    assert "U+" in finding.message


@pytest.mark.parametrize("text", ["a: |\n  x\n", "a: 'x\n\n  y'\n", 'a: "x\\ny"\n', '"x\\ny": 1\n'])
def test_a_line_break_in_a_text_is_refused(text):
    assert "line break" in the_wrong(text).message


@pytest.mark.parametrize(
    ("text", "place"), [("\ta: 1\n", (1, 1)), ("a:\n\tb: 1\n", (2, 1)), ("a:\t1\n", (1, 3)), ("a: 1\t\n", (1, 5))]
)
def test_a_tab_is_refused_where_it_stands(text, place):
    finding = the_wrong(text)
    assert (finding.line, finding.column) == place
    assert "tabs" in finding.hint


# -------------------------------------------------------------------------------------------------------------- syntax


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("a: b: c\n", (1, 5), "indented"),
        ("a: [1, 2\n", (2, 1), "closed"),
        ("a: {x: 1\nb: 2\n", (2, 2), "closed"),
        ("a: 'x\n", (2, 1), "closed"),
        ("a:\n  b: 1\n c: 2\n", (3, 2), "column"),
        ("a: @x\n", (1, 4), "quotes"),
        ("a: %x\n", (1, 4), "quotes"),
        ("a\nb: 1\n", (2, 2), "indented"),
        ("a: 1\nb\n", (3, 1), "colon"),
        ("%YAML 2.0\n---\na: 1\n", (1, 1), "%"),
        ("%YAML x\n---\na: 1\n", (1, 7), "%"),
        ('a: "\\q"\n', (1, 6), ""),
        ('a: "\\UFFFFFFFF"\n', (1, 7), ""),
        ("%YAML " + "9" * 5000 + ".1\n---\na: 1\n", (1, 7), ""),
    ],
)
def test_a_syntax_error_has_its_place_and_a_hint(text, place, hint):
    finding = the_wrong(text)
    assert (finding.line, finding.column) == place
    assert finding.message.startswith("this is not YAML")
    assert hint in finding.hint


def test_a_syntax_error_says_where_that_began_which_was_never_closed():
    assert "began in line 2" in the_wrong("a: 1\nb: [1,\n 2\n").message


# --------------------------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("raw", "place", "words"),
    [
        (b"a: \xff\n", (1, 4), "0xFF"),
        (b"a: 1\r\nb: caf\xe9\n", (2, 7), "0xE9"),
        ("ä: ".encode() + b"\xc3", (1, 4), "0xC3"),
        ("a: 1".encode("utf-16"), (1, 1), "UTF-16"),
    ],
)
def test_bytes_that_are_not_utf_8_are_refused_where_they_stand(raw, place, words):
    with pytest.raises(PolicyError) as caught:
        yaml12.decoded(raw, Report("team.yaml"))
    (finding,) = caught.value.findings
    assert (finding.line, finding.column) == place
    assert words in finding.message
    assert "UTF-8" in finding.hint


def test_bytes_are_read_as_utf_8_whatever_the_machine_prefers():
    assert yaml12.decoded("ä: ☃".encode(), Report("team.yaml")) == "ä: ☃"
