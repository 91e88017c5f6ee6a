"""Destinations of resets, properties of messages, lines of input."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.cli.groups import destination_of
from tianzhou.cli.produce import LONGEST_LINE, LineSplitter, property_of
from tianzhou.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("earliest", {"to_earliest": True}),
        ("latest", {"to_latest": True}),
        ("0", {"to_offset": 0}),
        ("1234", {"to_offset": 1234}),
        ("1970-01-01T00:00:01+00:00", {"to_time_ms": 1000}),
        ("2026-01-31T08:00:00Z", {"to_time_ms": 1_769_846_400_000}),
    ],
)
def test_where_a_reset_goes(text: str, arguments: dict[str, object]) -> None:
    assert destination_of(text) == arguments


def test_a_time_without_a_zone_is_local() -> None:
    local = dt.datetime(2026, 1, 31, 8).astimezone()
    assert destination_of("2026-01-31T08:00:00") == {"to_time_ms": int(local.timestamp() * 1000)}
    assert destination_of("2026-01-31") == {"to_time_ms": int(dt.datetime(2026, 1, 31).astimezone().timestamp() * 1000)}


@pytest.mark.parametrize("text", ["", "soon", "-3", "1.5", "²", "2026-13-01", "EARLIEST "])
def test_other_destinations_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected earliest, latest, an offset, or a time as"):
        destination_of(text)


def test_properties_are_name_and_value() -> None:
    assert property_of("colour=blue") == ("colour", "blue")
    assert property_of("formula=a=b") == ("formula", "a=b")
    for text in ("colour", "colour=", "=blue", ""):
        with pytest.raises(ConfigError, match="write name=value, neither of them empty"):
            property_of(text)


def split(pieces: list[bytes]) -> list[bytes]:
    splitter = LineSplitter("stdin")
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    return lines + splitter.rest()


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\n\n", b"", "é".encode()]), max_size=30))
def test_lines_do_not_depend_on_how_they_arrive(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    expected = [line.rstrip(b"\r") for line in whole.split(b"\n") if line.rstrip(b"\r")]
    assert split(pieces) == split([whole]) == split([bytes([byte]) for byte in whole]) == expected


def test_a_line_longer_than_a_message_is_refused_before_it_is_stored() -> None:
    splitter = LineSplitter("input")
    assert splitter.feed(b"ok\n" + b"x" * LONGEST_LINE) == [b"ok"]
    with pytest.raises(ConfigError, match=f"input: line 2 is longer than the {LONGEST_LINE} bytes"):
        splitter.feed(b"x")


def test_a_line_as_long_as_a_message_may_be_passes() -> None:
    assert split([b"x" * LONGEST_LINE, b"\r\n"]) == [b"x" * LONGEST_LINE]
