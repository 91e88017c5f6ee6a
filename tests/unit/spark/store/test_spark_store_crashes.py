"""Files of a crashed store: units that its queues lost are read from the log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from written_store import TOPIC, Store, copied, cut, flip, offsets_of, rows_of

from store_probe import StoreProbe
from tianzhou.spark.source.offsets import DataLoss
from tianzhou.spark.store.store_files import StoreFiles
from tianzhou.store import NewRecord
from tianzhou.store.files.checkpoint import Checkpoint
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.batch import encode_batch

pytestmark = pytest.mark.usefixtures("way")


def test_a_copy_of_a_crashed_store_has_what_no_queue_had_yet(store, tmp_path):
    store.add(230)
    copy = copied(store, tmp_path, "consumequeue")
    assert (copy / "abort").exists()
    files = StoreFiles(copy)
    rows = rows_of(files)
    assert [row["body"] for row in rows] == [b"body %d" % n for n in range(230)]
    [limits] = files.bounds(files.queues([TOPIC])).values()
    assert limits == (0, 230)


def crashed(store: Store, tmp_path: Path, synced: dict[int, int], checkpoint: int | None = None) -> StoreFiles:
    """Return a copy like after a power failure; `synced` has the number of units of some queues on the disk."""
    copy = copied(store, tmp_path)
    for queue, count in synced.items():
        for path in copy.joinpath("consumequeue", TOPIC, str(queue)).iterdir():
            cut(path, min(max(count * 20 - int(path.name), 0), path.stat().st_size))
    noted = Checkpoint(copy / "checkpoint")
    noted.physic_msg_timestamp = noted.logics_msg_timestamp = 0 if checkpoint is None else checkpoint + 3000
    noted.write()
    return StoreFiles(copy)


def stamped(store: Store, times: dict[int, int]) -> None:
    """Set the store times of records, by their positions in the log."""
    for position, time_ms in times.items():
        flip(store.root, position + 56, time_ms.to_bytes(8, "big"))


@pytest.mark.parametrize("noted", [False, True])
def test_a_queue_that_lost_units_others_kept_has_them_again(store, tmp_path, monkeypatch, noted):
    for number in range(100):
        store.add(1, queue=number % 2, body=b"%d" % number)
    rows = sorted(rows_of(StoreFiles(store.root)), key=lambda row: row["physicalOffset"])
    places = [row["physicalOffset"] for row in rows]
    stamped(store, {place: 1_700_000_000_000 + number for number, place in enumerate(places)})
    begun = []
    walk = StoreScan.walk
    monkeypatch.setattr(StoreScan, "walk", lambda self, begin: begun.append(begin) or walk(self, begin))
    files = crashed(store, tmp_path, {0: 30, 1: 45}, 1_700_000_000_050 if noted else None)
    assert [limits.maximum for limits in files.bounds(files.queues([TOPIC])).values()] == [50, 50]
    assert sorted(int(row["body"]) for row in rows_of(files)) == list(range(100))
    assert begun == [places[50] if noted else 0]


def test_a_queue_that_lost_more_than_the_checkpoint_says_is_seen_by_what_follows(store, tmp_path):
    for number in range(100):
        store.add(1, queue=number % 2, body=b"%d" % number)
    rows = sorted(rows_of(StoreFiles(store.root)), key=lambda row: row["physicalOffset"])
    stamped(store, {row["physicalOffset"]: 1_700_000_000_000 + number for number, row in enumerate(rows)})
    files = crashed(store, tmp_path, {0: 10, 1: 50}, 1_700_000_000_080)
    assert sorted(int(row["body"]) for row in rows_of(files)) == list(range(100))
    shutil.rmtree(tmp_path / "copy" / "consumequeue" / TOPIC / "0")
    assert sorted(int(row["body"]) for row in rows_of(StoreFiles(tmp_path / "copy"))) == list(range(100))


@pytest.mark.parametrize("kept", [0, 7, 20])
def test_a_queue_of_inner_batches_that_lost_units_has_them_again_and_once(store, tmp_path, kept):
    store.store.queue_kinds.batch_topics.add("batches")
    for _ in range(20):
        body = encode_batch((0, b"x", b"") for _ in range(3))
        store.store.append(NewRecord("batches", 0, body, b"INNER_NUM\x013\x02", sys_flag=0xC0))
    StoreProbe(store.store).dispatch_all()
    copy = copied(store, tmp_path)
    Checkpoint(copy / "checkpoint").write()
    [path] = copy.joinpath("batchconsumequeue", "batches", "0").iterdir()
    cut(path, kept * 46)
    files = StoreFiles(copy)
    assert offsets_of(rows_of(files, "batches")) == list(range(60))
    assert len(files.more.get(("batches", 0), (0, b""))[1]) == (20 - kept) * 46


@pytest.mark.parametrize("tags", ["*", "A"])
@pytest.mark.parametrize("kept", [20, 10])
def test_records_damaged_behind_the_units_are_reported(store, tmp_path, tags, kept):
    store.add(40, tag="A")
    place = rows_of(StoreFiles(store.root))[20]["physicalOffset"]
    flip(store.root, place + 4, b"\0\0\0\0")
    files = crashed(store, tmp_path, {0: kept})
    text = "1 message of orders@store:0 from offset 20 to 20 is lost: neither its queue nor the log"
    with pytest.raises(DataLoss, match=text):
        rows_of(files, tags=tags)
    assert offsets_of(rows_of(files, tags=tags, fail_on_data_loss=False)) == [n for n in range(40) if n != 20]


def test_queues_without_any_file_begin_where_the_log_does(store, tmp_path):
    store.add(300, body=b"long" * 500)
    copy = crashed(store, tmp_path, {}).root
    shutil.rmtree(copy / "consumequeue")
    min(copy.joinpath("commitlog").iterdir()).unlink()
    files = StoreFiles(copy)
    [limits] = files.bounds(files.queues([TOPIC])).values()
    assert 0 < limits.minimum < limits.maximum == 300
    assert offsets_of(rows_of(files)) == list(range(limits.minimum, 300))


@pytest.mark.parametrize("stopped", [False, True])
def test_a_crashed_store_is_followed_when_its_broker_is_back(store, tmp_path, stopped):
    store.add(230)
    copy = copied(store, tmp_path, f"consumequeue/{TOPIC}")
    files = StoreFiles(copy)
    assert len(rows_of(files)) == 230
    again = Store(copy)
    try:
        files.look()
        assert offsets_of(rows_of(files, columns="queueOffset LONG")) == list(range(230))
        again.add(70)
        again.add(5, queue=1)
        if stopped:
            again.close()
        files.look()
        assert files.more == {}
        assert [limits.maximum for limits in files.bounds(files.queues([TOPIC])).values()] == [300, 5]
        assert len(rows_of(files)) == 305
    finally:
        again.close()
