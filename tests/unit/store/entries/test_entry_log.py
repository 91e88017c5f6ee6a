"""Entries of a DLedger store: entries of puts, copies at a follower, and effects of a role change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from group_of_one import all_entries, commit, entries_of, group_store, lead
from small_store import SEGMENT, fill, number_of, numbers, opened, read_queue

from tianzhou.errors import StoreError
from tianzhou.records.codec import decode_record
from tianzhou.records.entry import END, HEADER_SIZE, UNIT_SIZE, EntryHeader, decode_header
from tianzhou.records.layout import PREPARED, TRANSACTION_BITS
from tianzhou.records.opening import OPENING_TOPIC
from tianzhou.store import NewRecord, PutStatus, RecordBatch
from tianzhou.store.entries import framed_log


def test_a_put_is_an_entry(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 3)
        result = store.append(NewRecord("T", 0, b"body", b"KEYS\x01k\x02"))
        entries = entries_of(store)
        entry = entries.entry(1)
        header = decode_header(entry)
        assert header == EntryHeader(1, 3, result.physical_offset - HEADER_SIZE, len(entry) - 48, len(entry))
        record = decode_record(entry, HEADER_SIZE, check_crc=True)
        assert (record.body, record.physical_offset) == (b"body", header.pos + HEADER_SIZE)
        assert (result.end_offset, entries.end_position) == (header.end, header.end)
        assert (entries.term_at(1), entries.position_of(1), entries.end_of(1)) == (3, header.pos, header.end)
        assert entries.index_before(result.end_offset) == 1
        assert entries.index_before(result.end_offset - 1) == 0


def test_the_record_that_opens_a_term_is_in_no_queue(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 5)
        record = decode_record(entries_of(store).entry(0), HEADER_SIZE, check_crc=True)
        assert (record.topic, record.sys_flag & TRANSACTION_BITS) == (OPENING_TOPIC, PREPARED)
        assert store.topics() == []


def test_consumers_see_committed_messages_only(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 9)
        assert numbers(store) == []
        commit(store, 4)
        assert sorted(numbers(store)) == [0, 1, 2, 3]
        commit(store)
        assert sorted(numbers(store)) == list(range(9))


def test_a_batch_is_one_entry_a_message_each_where_it_would_be_alone(tmp_path: Path) -> None:
    """Other members place entry by entry, so only the part that does not fit goes to the next segment."""
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        entries = entries_of(store)
        for _ in range(4):
            members = [(0, b"%d" % n * 700, b"") for n in range(10)]
            assert store.append(RecordBatch(NewRecord("T", 0, b"", b""), members)).status is PutStatus.PUT_OK
        commit(store)
        position = 0
        for index in range(entries.end_index + 1):
            header = decode_header(entries.entry(index))
            assert header.pos == entries.place(position, header.size)
            position = header.end
        assert position > SEGMENT
        assert [record.queue_offset for record in read_queue(store)] == list(range(40))


def test_a_batch_that_fits_no_segment_leaves_nothing(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        members = [(0, bytes(4000), b"")] * 5
        result = store.append(RecordBatch(NewRecord("T", 0, b"", b""), members))
        assert result.status is PutStatus.MESSAGE_ILLEGAL
        assert "mappedFileSizeCommitLog" in result.remark
        assert entries_of(store).end_index == 0


def test_segments_end_as_dledger_ends_them(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 150)
        entries = entries_of(store)
        ends = [entries.end_of(index) for index in range(entries.end_index + 1)]
    data = tmp_path / "dledger-n0" / "data"
    first = (data / f"{0:020d}").read_bytes()
    last = max(end for end in ends if end <= SEGMENT)
    assert END.unpack_from(first, last) == (-1, SEGMENT - last)
    assert not any(first[last + END.size :])


def test_units_are_written_in_order(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 50)
        headers = [decode_header(entry) for entry in all_entries(store)]
    (file,) = (tmp_path / "dledger-n0" / "index").iterdir()
    with file.open("rb") as index:
        assert index.read(51 * UNIT_SIZE) == b"".join(header.unit() for header in headers)


def test_a_follower_copies_entries_and_serves_what_is_committed(tmp_path: Path) -> None:
    with opened(group_store(tmp_path / "leader")) as leader, opened(group_store(tmp_path / "follower")) as follower:
        lead(leader, 1)
        fill(leader, 0, 100)
        there, here = entries_of(leader), entries_of(follower)
        while here.end_index < there.end_index:
            data, count = there.stretch(here.end_index + 1, 5000)
            before = here.end_index
            assert here.append_raw(data) == before + count
        assert all_entries(follower) == all_entries(leader)
        assert (here.end_term, here.end_position) == (1, there.end_position)
        assert numbers(follower) == []
        commit(follower, 60)
        assert sorted(numbers(follower)) == list(range(60))
        assert follower.append(NewRecord("T", 0, b"x", b"")).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_stretch_is_at_least_one_entry_and_goes_over_ends_of_segments(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 150)
        entries = entries_of(store)
        whole = all_entries(store)
        assert entries.stretch(3, 1) == (whole[3], 1)
        assert entries.stretch(0, 1 << 30) == (b"".join(whole), len(whole))
        sizes = [len(entry) for entry in whole]
        for first in range(len(whole)):
            for count in range(1, len(whole) - first + 1):
                for spare in (0, 1):
                    most = sum(sizes[first : first + count]) + spare
                    expected = b"".join(whole[first : first + count]), count
                    assert entries.stretch(first, most) == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (EntryHeader(9, 1, 200, 100, 148), "entry 9 came, the next one here is 1"),
        (EntryHeader(1, 0, 0, 100, 148), "is of term 0"),
        (EntryHeader(1, 1, 7, 100, 148), "mappedFileSizeCommitLog"),
        (EntryHeader(1, 1, 200, 100, 149), "cannot have a body"),
        (EntryHeader(1, 1, 200, 100, 148, magic=2), "magic number 2"),
    ],
)
def test_what_does_not_belong_here_is_refused(tmp_path: Path, change: EntryHeader, words: str) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        entries = entries_of(store)
        entries.follow()
        with pytest.raises(StoreError, match=words):
            entries.append_raw(change.encode() + bytes(100))
        with pytest.raises(StoreError, match="too few"):
            entries.append_raw(change.encode()[:20])
        assert entries.end_index == 0


def test_a_leader_that_follows_forgets_what_is_not_committed(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 30)
        commit(store, 12)
        entries = entries_of(store)
        entries.follow("there is another leader")
        refused = store.append(NewRecord("T", 0, b"x", b""))
        assert (refused.status, refused.remark) == (PutStatus.SERVICE_NOT_AVAILABLE, "there is another leader")
        entries.cut_from(13)
        assert entries.end_index == 12
        lead(store, 2)
        fill(store, 100, 103)
        commit(store)
        assert sorted(numbers(store)) == [*range(12), 100, 101, 102]
        for queue_id in range(3):
            assert [record.queue_offset for record in read_queue(store, "T", queue_id)] == list(range(5))


def test_entries_of_an_older_term_that_stay_keep_their_queue_offsets(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 30)
        commit(store, 12)
        entries = entries_of(store)
        entries.follow()
        entries.lead(2)
        entries.append_opening(2, 5)
        assert not entries.serve()
        assert store.append(NewRecord("T", 0, b"x", b"")).status is PutStatus.SERVICE_NOT_AVAILABLE
        commit(store)
        assert entries.serve()
        store.flags.opened()
        fill(store, 30, 33)
        commit(store)
        assert [number_of(record) for record in read_queue(store)] == list(range(0, 33, 3))


def test_committed_entries_are_not_cut(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 9)
        commit(store, 5)
        entries_of(store).follow()
        with pytest.raises(StoreError, match="up to 5 are committed"):
            entries_of(store).cut_from(5)


def test_a_cut_goes_over_segments(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 150)
        entries = entries_of(store)
        before = all_entries(store)
        entries.follow()
        entries.cut_from(1)
        assert (entries.end_index, len(list((tmp_path / "dledger-n0" / "data").iterdir()))) == (0, 1)
        entries.append_raw(b"".join(before[1:]))
        assert all_entries(store) == before


def test_a_member_whose_log_is_behind_begins_anew(tmp_path: Path) -> None:
    with opened(group_store(tmp_path / "leader")) as leader, opened(group_store(tmp_path / "other")) as other:
        lead(leader, 1)
        fill(leader, 0, 150)
        lead(other, 1)
        fill(other, 500, 506)
        commit(other)
        there, here = entries_of(leader), entries_of(other)
        here.follow()
        here.clear()
        assert (here.begin_index, here.end_index, here.end_term, numbers(other)) == (-1, -1, -1, [])
        first = next(index for index in range(150) if there.position_of(index) == SEGMENT)
        here.append_raw(there.stretch(first, 1 << 30)[0])
        commit(other)
        assert (here.begin_index, here.end_index) == (first, there.end_index)
        assert sorted(numbers(other)) == list(range(first - 1, 150))
    with opened(group_store(tmp_path / "other")) as other:
        assert (entries_of(other).begin_index, entries_of(other).loss.lost) == (first, "")
        assert sorted(numbers(other)) == list(range(first - 1, 150))


def test_puts_are_refused_while_too_many_entries_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed_log, "MOST_UNCOMMITTED", 10)
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 40)
        assert entries_of(store).end_index == 10
        refused = store.append(NewRecord("T", 0, b"x", b""))
        assert refused.status is PutStatus.OS_PAGE_CACHE_BUSY
        assert "quorum" in refused.remark
        commit(store)
        assert store.append(NewRecord("T", 0, b"x", b"")).status is PutStatus.PUT_OK


async def test_an_acknowledgement_waits_for_the_group(tmp_path: Path) -> None:
    async with group_store(tmp_path) as store:
        entries = entries_of(store)
        entries.lead(1)
        entries.append_opening(1, 5)
        commit(store)
        await entries.served()
        store.flags.opened()
        result = store.append(NewRecord("T", 0, b"body", b""))
        waiting = asyncio.ensure_future(store.settle(result))
        assert await store.settle(result, 10) is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert not waiting.done()
        commit(store)
        assert await waiting is PutStatus.PUT_OK
        late = store.append(NewRecord("T", 0, b"late", b""))
        waiting = asyncio.ensure_future(store.settle(late))
        await asyncio.sleep(0)
        entries.follow()
        assert await waiting is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH


async def test_who_stops_leading_while_queues_are_filled_is_told(tmp_path: Path) -> None:
    async with group_store(tmp_path) as store:
        entries = entries_of(store)
        entries.lead(1)
        entries.append_opening(1, 5)
        serving = asyncio.ensure_future(entries.served())
        await asyncio.sleep(0)
        entries.follow()
        with pytest.raises(StoreError):
            await serving


async def test_what_is_written_behind_a_cut_is_flushed(tmp_path: Path) -> None:
    async with group_store(tmp_path, flush_disk_type="SYNC_FLUSH") as store:
        entries = entries_of(store)
        entries.lead(1)
        entries.append_opening(1, 5)
        commit(store)
        await entries.served()
        store.flags.opened()
        fill(store, 0, 30)
        await store.flushed.reach(entries.end_position)
        entries.follow()
        entries.cut_from(5)
        assert store.flushed.value == entries.end_position
        entries.lead(2)
        entries.append_opening(2, 5)
        await store.flushed.reach(entries.end_position)


def test_records_can_be_read_from_a_place_on(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        results = [store.append(NewRecord("T", 0, b"%d " % number * 50, b"")) for number in range(150)]
        found = [decode_record(record).body for record in store.lookups.records_from(results[3].physical_offset)]
        assert found == [b"%d " % number * 50 for number in range(3, 150)]


def test_where_entries_can_stand(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        entries, most = entries_of(store), SEGMENT - 8
        assert [entries.place(0, most), entries.place(0, most + 1), entries.place(100, most)] == [0, -1, SEGMENT]
        assert [entries.may_begin(at, most) for at in (0, 2 * SEGMENT, SEGMENT + 8)] == [True, True, False]
        assert not entries.may_begin(0, most + 1)


def test_a_log_begins_behind_the_plain_files_of_its_leader(tmp_path: Path) -> None:
    with opened(group_store(tmp_path / "leader")) as leader, opened(group_store(tmp_path / "follower")) as follower:
        lead(leader, 1)
        source = entries_of(leader).entry(0)
        header = decode_header(source)
        moved = EntryHeader(0, 1, 3 * SEGMENT, header.body_size, header.size).encode() + source[HEADER_SIZE:]
        entries = entries_of(follower)
        assert entries.append_raw(moved) == 0
        assert (entries.begin_index, entries.position_of(0)) == (0, 3 * SEGMENT)
