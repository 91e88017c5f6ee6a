"""The messages of Apache's stores, put again: the files come out the same, byte for byte.

Times, addresses and property bytes are taken from the golden records; what the store adds (offsets, CRC, blanks,
queue units, index slots, chains and headers, checkpoint) is what is compared. Left out: the names of index files
(the moment they were made) and `proved.json`, which Apache does not have.
"""

from __future__ import annotations

import json
import tarfile
from itertools import groupby
from pathlib import Path

import pytest

from tianzhou.records.codec import Record, decode_record
from tianzhou.settings import bind
from tianzhou.store import MessageStore, NewRecord, PutStatus, StoreSettings
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import get_property

GOLDEN = Path(__file__).parent.parent / "golden" / "store"
CASES = ("basic-clean-5", "basic-clean-4", "delay", "transaction", "retry-dlq", "order", "longtopic", "propcrc", "pop")


class RecordedClock:
    """Says what the next golden record says."""

    def __init__(self) -> None:
        self.now = 0

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", CASES)
def test_the_same_messages_make_the_same_files(name: str, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path)
    golden = tmp_path / "store"
    manifest = json.loads((GOLDEN / f"{name}.json").read_bytes())
    settings = bind(StoreSettings, manifest["brokerConf"])
    settings.store_path_root_dir = str(tmp_path / "ours")
    ours = tmp_path / "ours"
    records = [decode_record(view, check_crc=True) for _, view in StoreScan(golden).records()]
    assert records

    clock = RecordedClock()
    store = MessageStore(settings, clock, store_host=records[0].store_host, store_port=records[0].store_port)
    store.open()
    for _, group in groupby(records, key=batch_of):
        put(store, clock, list(group))
    assert store.end_offset == records[-1].physical_offset + records[-1].size
    store.close_now()

    assert files_below(ours / "commitlog") == files_below(golden / "commitlog")
    assert files_below(ours / "consumequeue") == files_below(golden / "consumequeue")
    assert list(files_below(ours / "index").values()) == list(files_below(golden / "index").values())
    assert (ours / "checkpoint").read_bytes() == (golden / "checkpoint").read_bytes()
    assert (ours / "lock").read_bytes() == (golden / "lock").read_bytes()
    assert not (ours / "abort").exists()


def batch_of(record: Record) -> object:
    """What members of a batch have in common; single messages differ in it."""
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
        result = store.append_batch(common, [(r.flag, r.body, r.properties) for r in records])
        assert list(result.physical_offsets) == [record.physical_offset for record in records]
    assert result.status is PutStatus.PUT_OK
    assert result.store_timestamp == first.store_timestamp


def as_new(record: Record) -> NewRecord:
    return NewRecord(
        topic=record.topic,
        queue_id=record.queue_id,
        body=record.body,
        properties=record.properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        born_port=record.born_port,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        tags_code=tags_code(get_property(record.properties, "TAGS")),
        keys=get_property(record.properties, "KEYS") or "",
        uniq_key=get_property(record.properties, "UNIQ_KEY") or "",
    )
