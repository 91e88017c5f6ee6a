"""Output for people and for programs: tables, fields, JSON, times, bodies."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.cli import output
from tianzhou.cli.output import Output
from tianzhou.escaping import escaped


def test_a_table_is_aligned_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows(("broker", "queue", "lag"), [("b", 0, 12), ("broker-long", 10, None)], Output.text)
    assert capsys.readouterr().out.splitlines() == [
        "broker       queue  lag",
        "b                0   12",
        "broker-long     10    -",
    ]


def test_a_table_without_rows_still_has_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows(("broker", "queue"), [], Output.text)
    assert capsys.readouterr().out == "broker  queue\n"


def test_a_table_as_json_is_one_document_with_the_columns_as_keys(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows(("broker offset", "member"), [(5, None)], Output.json)
    assert json.loads(capsys.readouterr().out) == [{"broker_offset": 5, "member": None}]


def test_fields_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_fields({"a": True, "longer": 1.5, "none": None}, Output.text)
    assert capsys.readouterr().out == "a       true\nlonger  1.50\nnone    -\n"


@pytest.mark.parametrize(("number", "text"), [(0, "0 messages"), (1, "1 message"), (2, "2 messages")])
def test_counts_agree_with_their_noun(number: int, text: str) -> None:
    assert output.counted(number, "message") == text


def test_times_are_to_the_second_or_millisecond_and_none_before_1970() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", output.local_time(1_700_000_000_123) or "")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.123", output.local_time_ms(1_700_000_000_123))
    assert output.local_time(0) is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"plain", "plain"),
        ("天舟 €".encode(), "天舟 €"),
        (b"two\nlines\tand a tab", "two\\nlines\tand a tab"),
        (b"\x1b[31mred", "\\x1b[31mred"),
        (b"\xff\xfe", "\\xff\\xfe"),
    ],
)
def test_bodies_stay_on_one_line_and_move_no_cursor(body: bytes, text: str) -> None:
    assert output.body_text(body) == text


@given(st.binary(max_size=60))
def test_no_body_breaks_the_line(body: bytes) -> None:
    text = output.body_text(body)
    assert len(text.splitlines()) <= 1
    assert "\x1b" not in text


def test_what_the_terminals_encoding_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    output.print_line("天 ok")
    assert written.getvalue() == b"\\u5929 ok\n"


HOSTILE = "a\x1b[2J\rb\nc\x9b31m\u202ed\u2028e"


@given(st.text(max_size=60))
def test_no_text_of_a_stranger_reaches_the_terminal_as_it_is(text: str) -> None:
    for show in (
        lambda: output.print_line(text),
        lambda: output.print_fields({"name": text}, Output.text),
        lambda: output.print_rows(("name",), [(text,)], Output.text),
        lambda: output.print_json({"name": text}),
    ):
        written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", newline="\n")
        with contextlib.redirect_stdout(written):
            show()
        written.seek(0)
        found = written.read()
        assert escaped(found, keep="\t\n") == found


def test_a_name_that_tries_to_clear_the_screen_is_shown_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_line(HOSTILE)
    output.print_rows(("name",), [(HOSTILE,)], Output.text)
    assert capsys.readouterr().out.split("\n") == [
        "a\\x1b[2J\\rb\\nc\\x9b31m\\u202ed\\u2028e",
        "name",
        "a\\x1b[2J\\rb\\nc\\x9b31m\\u202ed\\u2028e",
        "",
    ]


def test_json_keeps_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"name": HOSTILE})
    written = capsys.readouterr().out
    assert json.loads(written) == {"name": HOSTILE}
    assert "\u202e" not in written
    assert "\x9b" not in written


def test_texts_of_several_lines_keep_them(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_text("a=1\nb=\x1b2")
    assert capsys.readouterr().out == "a=1\nb=\\x1b2\n"


class Terminal(io.StringIO):
    """A stream that pretends to be a terminal."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


TABLE = (("broker", "state"), [("a", "ok"), ("b", "silent")], Output.text, [None, output.Tone.bad])


def test_a_terminal_shows_heads_and_bad_rows_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    output.print_rows(*TABLE)
    assert terminal.getvalue() == "\x1b[1mbroker  state\x1b[0m\na       ok\n\x1b[31mb       silent\x1b[0m\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_there_is_no_colour_where_none_is_wanted(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    output.print_rows(*TABLE)
    assert "\x1b" not in terminal.getvalue()
    assert not output.clear_screen()


def test_there_is_no_colour_in_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    output.print_rows(*TABLE)
    output.print_note("note", output.Tone.bad)
    assert "\x1b" not in "".join(capsys.readouterr())


def test_a_stranger_cannot_colour_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    output.print_rows(("name",), [("\x1b[31mred",)], Output.text)
    assert terminal.getvalue().count("\x1b") == 2  # both of the head


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("--watch", "--watch 2.0"),
        ("--watch 5 billing", "--watch 5 billing"),
        ("--watch 0.5", "--watch 0.5"),
        ("--watch billing", "--watch 2.0 billing"),
        ("--watch -o json", "--watch 2.0 -o json"),
        ("--watch=5 billing", "--watch=5 billing"),
        ("-- --watch", "-- --watch"),
        ("", ""),
    ],
)
def test_watching_needs_no_number(words: str, read: str) -> None:
    assert output.with_seconds(words.split()) == read.split()
