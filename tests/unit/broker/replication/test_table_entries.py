"""Bodies of change entries, and which keys a snapshot of several entries leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.broker.replication.table_entries import (
    GROUP,
    TOPIC,
    TableChange,
    TableSnapshot,
    decode_change,
    encode_change,
    following_snapshot,
)
from tianzhou.errors import ProtocolError

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
offsets = st.dictionaries(names, st.dictionaries(st.integers(0, 99), st.integers(0, 1 << 62), min_size=1), max_size=3)
marks = st.none() | st.builds(TableSnapshot, names, st.booleans(), st.booleans(), st.booleans())


@given(
    st.builds(
        TableChange,
        st.dictionaries(names, st.dictionaries(names, st.integers() | names, min_size=1), max_size=3),
        st.dictionaries(names, st.lists(names, min_size=1), max_size=3),
        st.lists(names, max_size=3),
        offsets,
        offsets,
        marks,
    )
)
def test_a_change_is_read_as_it_was_written(change: TableChange) -> None:
    assert decode_change(encode_change(change)) == change


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"7", b'{"sets":7}', b'{"larger":{"a@b":{"x":1}}}', b'{"snapshot":{"id":"1"}}', b"\xff"]
)
def test_another_body_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_change(body)


def topics(*keys: str, mark: TableSnapshot | None = None) -> TableChange:
    return TableChange({TOPIC: dict.fromkeys(keys, 1)} if keys else {}, snapshot=mark)


def test_changes_between_the_entries_of_a_snapshot_count() -> None:
    first, last = TableSnapshot("1", True, False, True), TableSnapshot("1", False, True, True)
    present = following_snapshot(None, topics("a", "b", mark=first), 5)
    present = following_snapshot(present, TableChange({GROUP: {"g": 1}}, {TOPIC: ["b"]}, larger={"a@g": {0: 1}}), 6)
    present = following_snapshot(present, topics("c"), 7)
    present = following_snapshot(present, topics("d", mark=last), 8)
    assert present is not None
    assert present.index == 5
    assert present.keys[TOPIC] == {"a", "c", "d"}
    assert present.keys[GROUP] == {"g"}
    assert present.offsets == {"a@g"}


def test_the_rest_of_a_snapshot_whose_begin_has_expired_opens_none() -> None:
    assert following_snapshot(None, topics("a", mark=TableSnapshot("1", False, True, True)), 5) is None


def test_another_leader_begins_anew() -> None:
    present = following_snapshot(None, topics("a", mark=TableSnapshot("1", True, False, True)), 5)
    present = following_snapshot(present, topics("b", mark=TableSnapshot("2", True, False, True)), 9)
    assert present is not None
    assert present.keys[TOPIC] == {"b"}
    assert present.index == 9
