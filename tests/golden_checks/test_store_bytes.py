"""The messages of Apache's stores, put again: the files are equal, byte for byte.

Times, addresses and property bytes come from the golden records; the comparison covers the store's own data (offsets,
CRC, blanks, queue units, index slots, chains and headers, checkpoint). Left out: the names of index files (their
creation time) and `proved.json`, which Apache does not have.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from golden_stores import RecordedClock, as_new, check_same_files, settings_of, unpacked

from tianzhou.records.codec import Record, decode_record
from tianzhou.store import MessageStore, PutStatus, RecordBatch
from tianzhou.store.offline.scan import StoreScan

CASES = ("basic-clean-5", "basic-clean-4", "delay", "transaction", "retry-dlq", "order", "longtopic", "propcrc", "pop")


@pytest.mark.parametrize("name", CASES)
def test_the_same_messages_make_the_same_files(name: str, tmp_path: Path) -> None:
    golden, ours = unpacked(name, tmp_path), tmp_path / "ours"
    records = [decode_record(view, check_crc=True) for _, view in StoreScan(golden).records()]
    assert records

    clock = RecordedClock()
    store = MessageStore(
        settings_of(name, ours), clock, store_host=records[0].store_host, store_port=records[0].store_port
    )
    store.open()
    for _, group in groupby(records, key=batch_of):
        put(store, clock, list(group))
    assert store.end_offset == records[-1].physical_offset + records[-1].size
    store.close_now()

    check_same_files(ours, golden, ("commitlog", "consumequeue"))
    assert (ours / "lock").read_bytes() == (golden / "lock").read_bytes()
    assert not (ours / "abort").exists()


def batch_of(record: Record) -> object:
    """Return the common values of a batch's messages; single messages differ in them."""
    return record.topic, record.queue_id, record.store_timestamp, record.born_timestamp, record.born_port


def put(store: MessageStore, clock: RecordedClock, records: list[Record]) -> None:
    first = records[0]
    clock.now = first.store_timestamp
    if len(records) == 1:
        result = store.append(as_new(first))
        assert (result.physical_offset, result.queue_offset) == (first.physical_offset, first.queue_offset)
    else:
        common = as_new(first)
        common.properties = b""
        result = store.append(RecordBatch(common, [(r.flag, r.body, r.properties) for r in records]))
        assert list(result.physical_offsets) == [record.physical_offset for record in records]
    assert result.status is PutStatus.PUT_OK
    assert result.store_timestamp == first.store_timestamp
