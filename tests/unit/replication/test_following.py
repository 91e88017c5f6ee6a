"""A slave's handling of received bytes, and the format of the HA port (broker.md §17.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import ProtocolError
from tianzhou.replication.agreement import OVERLAP, Agreement, Parting
from tianzhou.replication.following import Following, ReceivedPart
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.ha import LARGEST_STRETCH, ReportReader, StretchReader, encode_head, encode_report


def following(begin: int, end: int) -> Following:
    return Following(begin, end, Agreement(StoreSettings()).first(begin, end), StoreSettings(), 0.0)


def test_an_empty_slave_takes_what_comes_wherever_it_begins() -> None:
    one = following(-1, 0)
    assert one.first == 0
    assert one.received(4096, 100, 1.0) == ReceivedPart(4096, 0)
    assert one.report(1.0, appended=True) == 4196
    assert one.received(4196, 50, 1.0) == ReceivedPart(4196, 0)


def test_what_a_slave_has_is_compared_before_anything_is_appended() -> None:
    one = following(0, 1_000_000)
    assert one.first == 1_000_000 - OVERLAP
    assert one.received(one.first, OVERLAP // 2, 1.0) == ReceivedPart(one.first, OVERLAP // 2)
    assert one.report(9.0, appended=True) is None  # the logs have not been compared yet
    rest = one.received(one.first + OVERLAP // 2, OVERLAP, 1.0)
    assert rest == ReceivedPart(one.first + OVERLAP // 2, OVERLAP // 2)
    assert one.compared(rest, OVERLAP // 2) is None
    assert one.report(9.0, appended=True) == 1_000_000 + OVERLAP // 2
    assert one.compared(rest, 3) == Parting(one.first, rest.offset + 3)


def test_a_small_log_is_compared_from_its_second_byte_on() -> None:
    # A report of 0 would request the beginning of the last segment.
    assert following(0, 500).first == 1


def test_a_gap_is_refused() -> None:
    one = following(0, 500)
    with pytest.raises(ProtocolError, match="the next byte is that at 1"):
        one.received(100, 10, 1.0)


def test_two_heartbeats_inside_the_slaves_log_say_that_the_master_lacks_its_end() -> None:
    # Apache's master sends an empty packet after an idle time before it continues.
    one = following(0, 500)
    assert one.received(1, 0, 1.0) == ReceivedPart(1, 0)
    assert one.received(1, 99, 1.0) == ReceivedPart(1, 99)
    assert one.received(100, 0, 6.0) == ReceivedPart(100, 0)
    assert one.received(100, 0, 11.0) == Parting(1, 100)


def test_a_master_that_ends_or_begins_elsewhere_says_so_in_a_heartbeat() -> None:
    one = following(0, 1_000_000)
    assert one.received(5000, 0, 1.0) == Parting(one.first, 5000)
    assert following(0, 500).received(9000, 0, 1.0) == Parting(1, 9000, master_begins=True)


def test_reports_come_with_what_was_appended_and_in_between() -> None:
    one = following(-1, 0)
    assert one.report(1.0, appended=False) is None
    assert one.report(5.0, appended=False) == 0
    assert one.report(6.0, appended=False) is None
    assert one.next_report_s == 10.0


def test_silence_is_noticed() -> None:
    one = following(-1, 0)
    one.received(0, 10, 5.0)
    assert not one.is_silent(25.0)
    assert one.is_silent(25.1)


@given(st.lists(st.integers(0, 1 << 62), max_size=20), st.data())
def test_the_newest_report_is_read_however_the_bytes_come(offsets: list[int], data: st.DataObject) -> None:
    whole = b"".join(map(encode_report, offsets))
    reader, found = ReportReader(), []
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        found.append(reader.feed(whole[:cut]))
        whole = whole[cut:]
    assert [offset for offset in found if offset is not None][-1:] == offsets[-1:]


@given(st.lists(st.binary(max_size=50), max_size=10), st.data())
def test_stretches_are_read_however_the_bytes_come(bodies: list[bytes], data: st.DataObject) -> None:
    offset, whole = 0, b""
    for body in bodies:
        whole += encode_head(offset, len(body)) + body
        offset += len(body)
    reader, found, heartbeats = StretchReader(), bytearray(), 0
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        for stretch in reader.feed(whole[:cut]):
            assert stretch.offset == len(found)
            found += stretch.body
            heartbeats += not stretch.body
        whole = whole[cut:]
    assert found == b"".join(bodies)
    assert heartbeats == sum(not body for body in bodies)


@pytest.mark.parametrize(("offset", "size"), [(-1, 0), (0, -1), (0, LARGEST_STRETCH + 1)])
def test_heads_that_no_master_sends_are_refused(offset: int, size: int) -> None:
    with pytest.raises(ProtocolError, match="no HA port"):
        list(StretchReader().feed(encode_head(offset, size)))
