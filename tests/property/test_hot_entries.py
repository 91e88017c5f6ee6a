"""Both twins of the functions for entries of a DLedger log agree, for any entries and puts."""

from __future__ import annotations

import mmap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hot_stores import compiled_store
from property_examples import costly
from store_probe import StoreProbe
from tianzhou._hot import entries, sources
from tianzhou.errors import ProtocolError
from tianzhou.records.codec import Record, encode_record
from tianzhou.records.entry import END, HEADER_SIZE, UNIT_SIZE, EntryHeader, decode_header
from tianzhou.store import MessageStore, NewRecord, RecordBatch, StoreSettings
from tianzhou.store.entries import framed_log
from tianzhou.testing.clock import VirtualClock
from tianzhou.wire.batch import encode_batch

compiled = pytest.importorskip("tianzhou._hot._compiled", reason="the compiled twin was not built here")
pytestmark = pytest.mark.skipif(
    sources.digest() != compiled.SOURCE, reason="the compiled twin was built from other sources"
)

USUAL = b"UNIQ_KEY\x01AC11\x02WAIT\x01true\x02TAGS\x01TagA"


@st.composite
def logs(draw: st.DrawFn, base: int = 0) -> bytes:
    """Draw entries like in a segment; some are of a later term, out of order, no record, or damaged."""
    data, term, index = b"", draw(st.integers(0, 2)), draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 6))):
        term += draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
        place = base + len(data)
        hosts = draw(st.sampled_from([bytes(4), bytes(4), bytes(4), bytes(16)]))
        body = draw(st.sampled_from([b"", b"", b"no record"])) or encode_record(
            Record(
                draw(st.sampled_from(["T", "T", "Topic", "ü"])),
                0,
                0,
                place + HEADER_SIZE + draw(st.sampled_from([0, 0, 0, 0, 0, 1])),
                0,
                0,
                0,
                hosts,
                0,
                draw(st.integers(0, 1 << 60)),
                bytes(4),
                0,
                0,
                0,
                draw(st.binary(max_size=20)),
                draw(st.sampled_from([b"", b"TAGS\x01A\x02", b"a\0"])),
            )
        )
        place += draw(st.sampled_from([0, 0, 0, 0, 0, 8]))
        header = EntryHeader(index, max(term, -1), place, len(body), HEADER_SIZE + len(body), 1, 0, 7, 9)
        data += header.encode() + body
        index += draw(st.sampled_from([1, 1, 1, 1, 1, 0, 2]))
    ending = draw(st.sampled_from([b"", bytes(8), bytes(7), END.pack(-1, 8), bytes(200)]))
    found = bytearray(data + ending)
    if found and draw(st.booleans()):
        found[draw(st.integers(0, len(found) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(found)


@given(logs(), st.integers(-1, 900), st.integers(0, 9))
def test_a_run_of_entries_is_found_alike(log: bytes, at: int, most: int) -> None:
    for place in {0, max(at, 0)}:
        count, size, last = entries.entry_run(log, place, most)
        assert compiled.entry_run(log, place, most) == (count, size, last)
        headers = []
        behind = place
        for _ in range(count):
            headers.append(decode_header(log, behind))
            behind += headers[-1].size
        assert behind == place + size
        assert [header.index for header in headers] == [headers[0].index + number for number in range(count)]
        assert not headers or decode_header(log, last) == headers[-1]


@given(logs(), st.booleans(), st.integers(-5, 900), st.integers(0, 9), st.integers(-1, 3), st.integers(-1, 3))
def test_records_of_entries_are_walked_over_alike(
    log: bytes, check_crc: bool, stop: int, most: int, index: int, term: int
) -> None:
    for position, its_stop in ((0, 10_000), (0, stop), (max(stop, 0), 10_000)):
        arguments = (memoryview(log), position, 0, its_stop, most, check_crc, index, term)
        assert compiled.next_entries(*arguments) == entries.next_entries(*arguments)


@given(logs(), st.integers(0, 3000), st.integers(0, 9), st.integers(0, 6))
def test_entries_are_copied_alike(log: bytes, stop: int, most: int, unit: int) -> None:
    found = []
    for twin in (entries, compiled):
        target, units = mmap.mmap(-1, 4096), mmap.mmap(-1, UNIT_SIZE * 8)
        result = twin.copy_run(log, 0, target, 100, stop, units, unit * UNIT_SIZE, most)
        found.append((result, bytes(target), bytes(units)))
        assert bytes(target)[100 : 100 + result[1]] == log[: result[1]]
        assert not any(bytes(target)[100 + result[1] :])
    assert found[0] == found[1]


PUTS = st.lists(
    st.tuples(
        st.lists(
            st.tuples(
                st.sampled_from([0, 7]),
                st.binary(max_size=60),
                st.just(USUAL)
                | st.sampled_from(
                    [b"", USUAL + b"\x02KEYS\x01a b\x02", b"none", b"a\x01\x00\x02", b"x\x01" + b"y" * 9000]
                ),
            ),
            max_size=5,
        ),
        st.sampled_from([b"", b"C\x01c\x02", b"TAGS\x01t\x02"]),
        st.sampled_from([0, 0, 0, 4, 12, 0x80]),
        st.sampled_from([4, 4, 4, 16]),
        st.booleans(),
    ),
    max_size=6,
)


def stored(root: Path, twin: Any, puts: list[Any], committed: int | None) -> Any:
    """Return the replies and contents of a leader's store after batches and single messages.

    Args:
        root: its folder.
        twin: module of the hot functions.
        puts: entries of a batch, their common values, system flags, length of the host, whether they come singly.
        committed: number of these entries that are committed when another member begins to lead; None for all.
    """
    given_settings = StoreSettings(
        store_path_root_dir=str(root), mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=2000,
        max_hash_slot_num=50, max_index_num=200, enable_d_leger_commit_log=True, d_leger_group="g",
        d_leger_peers="n0-h:1", d_leger_self_id="n0",
    )  # fmt: skip
    store = MessageStore(given_settings, VirtualClock())
    store.open()
    log: Any = store.entries
    before = framed_log.put_one, framed_log.put_entries
    answers: list[Any] = []
    taken = 0

    def counted(*arguments: Any) -> Any:
        nonlocal taken
        result = twin.put_entries(*arguments)
        taken += result is not None
        return result

    framed_log.put_one, framed_log.put_entries = twin.put_entry, counted
    try:
        log.lead(1)
        log.append_opening(1, 0)
        log.committed(log.end_index)
        assert log.serve()
        store.flags.opened()
        store.append(NewRecord("T", 0, b"first", b""))
        for messages, shared, sys_flag, host, single in puts:
            record = NewRecord("T", 0, b"", shared, 5, sys_flag, 6, bytes(range(host)), 7, 8)
            if single:
                for _, body, properties in messages:
                    one = NewRecord("T", 0, body, properties, 5, sys_flag, 6, bytes(range(host)), 7, 8)
                    answers.append(store.append(one))
                continue
            batch = encode_batch(messages)
            try:
                answers.append(store.append(RecordBatch(record, batch)))
            except ProtocolError as error:
                answers.append(str(error))
        end = log.end_index
        log.committed(end if committed is None else min(committed, end))
        log.follow()
        return (
            answers,
            end,
            [log.entry(index) for index in range(end + 1)],
            [log.term_at(index) for index in range(end + 1)],
            [(queue.next_offset, queue.max_offset, queue.max_physical) for queue in StoreProbe(store).queues("T")],
            [bytes(segment.view) for queue in StoreProbe(store).queues("T") for segment in queue.files],
            StoreProbe(store).index_bytes(),
        ), taken
    finally:
        framed_log.put_one, framed_log.put_entries = before
        store.close_now()


@costly(0.4)
@given(PUTS, st.none() | st.integers(0, 20))
@example([([(0, b"x" * 60, USUAL)] * 40, b"C\x01c\x02", 0, 4, False)] * 3, 50)
@example([([(0, b"x" * 600, USUAL)] * 40, b"C\x01c\x02", 0, 4, False)] * 6, None)
def test_messages_are_put_into_entries_alike(puts: list[Any], committed: int | None) -> None:
    found = []
    for twin in (entries, compiled):
        with TemporaryDirectory() as root:
            found.append(stored(Path(root), twin, puts, committed)[0])
    assert found[0] == found[1]


@compiled_store
def test_ordinary_batches_are_put_as_they_came(tmp_path: Path) -> None:
    puts = [([(0, b"body", USUAL)] * 5, b"C\x01c\x02", 0, 4, False)] * 20
    (answers, end, *_), taken = stored(tmp_path, compiled, puts, None)
    assert taken >= 18
    assert end == 1 + 100
    assert [len(answer.physical_offsets) for answer in answers] == [5] * 20
