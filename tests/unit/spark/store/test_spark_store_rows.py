"""A store's files read while somebody writes, deletes or damages them."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StringType, StructField, StructType

from tianzhou.errors import StoreUnreadable
from tianzhou.model import MessageQueue
from tianzhou.spark.option_values import STREAM
from tianzhou.spark.rows.schema import arrow_schema, columns_of, row_schema
from tianzhou.spark.source.offsets import DataLoss, Span
from tianzhou.spark.store import store_source
from tianzhou.spark.store.store_files import StoreFiles, root_of
from tianzhou.spark.store.store_options import parse_store
from tianzhou.spark.store.store_rows import Wanted, read_all
from tianzhou.spark.store.store_source import StoreStreamReader
from tianzhou.store import MessageStore, NewRecord, StoreSettings
from tianzhou.store.files.checkpoint import Checkpoint
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.compression import COMPRESSED, LZ4, ZLIB, ZSTD, compress
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import encode_properties

TOPIC = "orders"
pytestmark = pytest.mark.usefixtures("way")


class Store:
    """A store that a test adds to."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.root = root
        self.settings = StoreSettings(
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=64 << 10,
            mapped_file_size_consume_queue=20 * 100,
            max_hash_slot_num=100,
            max_index_num=400,
            **settings,
        )
        self.store = MessageStore(self.settings)
        self.store.open()

    def add(self, count: int = 1, queue: int = 0, topic: str = TOPIC, body: bytes | None = None, **more) -> None:
        for number in range(count):
            tag, key, sys_flag = more.get("tag", ""), more.get("key", ""), more.get("sys_flag", 0)
            properties = {
                "TAGS": tag,
                "KEYS": key,
                "UNIQ_KEY": f"{queue:04X}{number:08X}",
                **more.get("properties", {}),
            }
            record = NewRecord(
                topic,
                queue,
                body if body is not None else b"body %d" % number,
                encode_properties({name: value for name, value in properties.items() if value}),
                flag=0,
                sys_flag=sys_flag,
                born_timestamp=1_700_000_000_000,
                born_host=b"\x7f\0\0\1",
                born_port=1,
                reconsume_times=0,
                tags_code=tags_code(tag),
                keys=key,
                uniq_key=properties["UNIQ_KEY"],
            )
            self.store.append(record)
        self.store._dispatcher.drain()

    def close(self) -> None:
        self.store.close_now()


@pytest.fixture
def made(tmp_path):
    stores = []

    def make(**settings) -> Store:
        stores.append(Store(tmp_path / f"store-{len(stores)}", **settings))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


def copied(store: Store, tmp_path: Path, *without: str) -> Path:
    """A copy of the folder, without its lock and some folders."""
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy, ignore=shutil.ignore_patterns("lock"))
    for folder in without:
        shutil.rmtree(copy / folder)
    return copy


def cut(path: Path, position: int) -> None:
    """Put zeros in the place of a file's bytes from a position on."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes(size - position))


def schema_of(columns: str) -> StructType:
    kinds = {"LONG": LongType(), "STRING": StringType()}
    return StructType([StructField(name, kinds[kind]) for name, kind in map(str.split, columns.split(", "))])


def rows_of(files: StoreFiles, topic: str = TOPIC, columns: str | None = None, span=None, **wanted) -> list[dict]:
    schema = row_schema() if columns is None else schema_of(columns)
    bounds = files.bounds(files.queues([topic]))
    spans = [Span(queue, *(span or limits)) for queue, limits in bounds.items() if limits.maximum > limits.minimum]
    batches = read_all(files, spans, Wanted(arrow_schema(schema), columns_of(schema), **wanted))
    return [row for batch in batches for row in batch.to_pylist()]


def offsets_of(rows) -> list[int]:
    return [row["queueOffset"] for row in rows]


def flip(folder: Path, position: int, value: bytes = b"\xff") -> None:
    """Change bytes of the commit log."""
    paths = sorted(folder.joinpath("commitlog").iterdir())
    path = max((path for path in paths if int(path.name) <= position), key=lambda path: path.name)
    with path.open("r+b") as file:
        file.seek(position - int(path.name))
        file.write(value)


def test_a_running_broker_is_followed(made):
    store = made()
    store.add(150)
    files = StoreFiles(store.root)
    assert offsets_of(rows_of(files, columns="queueOffset LONG")) == list(range(150))
    store.add(250)
    files.look()
    assert offsets_of(rows_of(files, columns="queueOffset LONG")) == list(range(400))
    [row, *_] = rows_of(files)
    assert (row["topic"], row["queueId"], row["brokerName"], row["body"]) == (TOPIC, 0, None, b"body 0")
    assert isinstance(row["storeTimestamp"], datetime)


def test_any_subset_of_columns_in_any_order(made):
    store = made()
    store.add(3, tag="A")
    files = StoreFiles(store.root, broker_name="broker-a")
    assert rows_of(files, columns="body STRING, tags STRING, queueOffset LONG, brokerName STRING")[1] == {
        "body": "body 1",
        "tags": "A",
        "queueOffset": 1,
        "brokerName": "broker-a",
    }


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
def test_compressed_bodies_are_unpacked(made, kind):
    store = made()
    body = b"again and again " * 500
    store.add(5, body=compress(body, kind), sys_flag=COMPRESSED | kind)
    assert {row["body"] for row in rows_of(StoreFiles(store.root), verify_crc=True)} == {body}


def test_tags_select(made):
    store = made()
    for tag in ("A", "B", "C", ""):
        store.add(10, tag=tag)
    files = StoreFiles(store.root)
    assert {row["tags"] for row in rows_of(files, tags="A || C")} == {"A", "C"}
    assert len(rows_of(files, tags="A || C")) == 20
    assert rows_of(files, tags="other") == []


def test_a_key_is_found_by_the_index_and_behind_it(made):
    store = made()
    store.add(120, key="k1 k2")
    store.add(1, key="wanted k1")
    store.add(120, key="k3", queue=1)
    store.add(1, key="wanted", queue=1)
    files = StoreFiles(store.root)
    rows = rows_of(files, key="wanted")
    assert sorted((row["queueId"], row["queueOffset"]) for row in rows) == [(0, 120), (1, 120)]
    hits, indexed = files.lookup(TOPIC, "wanted")
    found = {}
    for queue in files.queues([TOPIC]):
        slots = {slot for low, high in files.find(queue, hits, indexed) for slot in range(low, high)}
        assert 120 in slots
        found[queue.queue_id] = len(slots)
    store.close()
    files = StoreFiles(store.root)
    hits, indexed = files.lookup(TOPIC, "wanted")
    assert [files.find(queue, hits, indexed) for queue in files.queues([TOPIC])] == [[(120, 121)], [(120, 121)]]


def test_a_damaged_body_is_named_or_skipped(made, caplog):
    store = made()
    store.add(50)
    files = StoreFiles(store.root)
    place = rows_of(files)[17]["physicalOffset"]
    flip(store.root, place + 90)
    assert len(rows_of(files)) == 50  # nobody asked
    with pytest.raises(DataLoss, match=rf"orders@store:0 from offset 17 .*file 0{{20}}, position {place}: the CRC of"):
        rows_of(files, verify_crc=True)
    rows = rows_of(files, verify_crc=True, fail_on_data_loss=False)
    assert offsets_of(rows) == [n for n in range(50) if n != 17]
    assert "1 messages of orders@store:0 were skipped" in caplog.text


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (0, b"\xff", "size .* does not fit"),
        (4, b"\0\0\0\0", "magic number 0x00000000 is none of a record"),
        (20, b"\0\0\0\0\0\0\0\x05", "the record there is offset 5 of orders/0"),
        (28, b"\0\0\0\0\0\0\0\x05", "the record says that it is at 5"),
        (84, b"\x7f\xff\xff\xff", "body length 2147483647 does not fit"),
    ],
)
def test_a_damaged_record_is_named_or_skipped(made, at, value, text):
    store = made()
    store.add(50)
    files = StoreFiles(store.root)
    place = rows_of(files)[17]["physicalOffset"]
    flip(store.root, place + at, value)
    with pytest.raises(DataLoss, match=f"1 message of orders@store:0 from offset 17 to 17 is lost: .*{text}"):
        rows_of(files, columns="queueOffset LONG")
    rows = rows_of(files, fail_on_data_loss=False)
    assert offsets_of(rows) == [n for n in range(50) if n != 17]


def test_what_is_unproved_at_the_end_is_not_there_yet(made):
    store = made()
    store.add(50)
    files = StoreFiles(store.root)
    for row in rows_of(files)[45:]:
        flip(store.root, row["physicalOffset"] + 4, b"\0\0\0\0")
    [limits] = files.bounds(files.queues([TOPIC])).values()
    assert limits == (0, 45)
    assert offsets_of(rows_of(files)) == list(range(45))


def test_a_body_that_cannot_be_unpacked_is_named_or_skipped(made):
    store = made()
    store.add(9)
    store.add(1, body=b"no zlib at all", sys_flag=COMPRESSED)
    store.add(9)
    files = StoreFiles(store.root)
    with pytest.raises(DataLoss, match=r"from offset 9 to 9 is lost: commit-log file .* ZLIB body of 14 bytes"):
        rows_of(files)
    assert offsets_of(rows_of(files, fail_on_data_loss=False)) == [n for n in range(19) if n != 9]
    assert len(rows_of(files, columns="queueOffset LONG")) == 19


def test_log_files_deleted_under_the_reader(made):
    store = made()
    store.add(2500)
    files = StoreFiles(store.root)
    paths = sorted(store.root.joinpath("commitlog").iterdir())
    assert len(paths) > 3
    bounds = files.bounds(files.queues([TOPIC]))
    [queue] = bounds
    for path in paths[:2]:
        path.unlink()
    fresh = StoreFiles(store.root)
    [limits] = fresh.bounds(fresh.queues([TOPIC])).values()
    assert 0 < limits.minimum < limits.maximum == 2500
    assert offsets_of(rows_of(fresh)) == list(range(limits.minimum, 2500))
    text = (
        rf"{limits.minimum} messages of orders@store:0 from offset 0 to {limits.minimum - 1} are lost: the commit log"
    )
    with pytest.raises(DataLoss, match=text):
        rows_of(fresh, span=(0, 2500))
    rows = rows_of(fresh, span=(0, 2500), fail_on_data_loss=False)
    assert offsets_of(rows) == list(range(limits.minimum, 2500))
    # What is mapped already stays readable.
    assert bounds[queue].minimum == 0


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_log_files_deleted_while_a_reader_is_at_them(made, gone):
    """The reader learns it from the first file it opens, when it has counted files already."""
    store = made()
    store.add(300, body=b"long" * 500)  # several log files to one of the queue
    files = StoreFiles(store.root)
    wanted = rows_of(StoreFiles(store.root), columns="queueOffset LONG, physicalOffset LONG, msgId STRING")
    [queue] = files.bounds(files.queues([TOPIC]))
    paths = sorted(store.root.joinpath("commitlog").iterdir())
    assert len(paths) > gone + 1
    for path in paths[:gone]:
        path.unlink()
    schema = schema_of("queueOffset LONG, physicalOffset LONG, msgId STRING")
    lenient = Wanted(arrow_schema(schema), columns_of(schema), fail_on_data_loss=False)
    rows = [row for batch in read_all(files, [Span(queue, 0, 300)], lenient) for row in batch.to_pylist()]
    assert rows == [row for row in wanted if row["physicalOffset"] >= int(paths[gone].name)]


def test_queue_files_deleted_under_the_reader(made):
    store = made()
    store.add(350)
    files = StoreFiles(store.root)
    [queue] = files.queues([TOPIC])
    min(store.root.joinpath("consumequeue", TOPIC, "0").iterdir()).unlink()
    fresh = StoreFiles(store.root)
    schema = schema_of("queueOffset LONG")
    wanted = Wanted(arrow_schema(schema), columns_of(schema))
    with pytest.raises(DataLoss, match="100 messages of orders@store:0 from offset 0 to 99 are lost"):
        list(read_all(fresh, [Span(queue, 0, 350)], wanted))
    assert fresh.bounds([queue])[queue] == (100, 350)


def test_a_copy_of_a_crashed_store_has_what_no_queue_had_yet(made, tmp_path):
    store = made()
    store.add(230)
    copy = copied(store, tmp_path, "consumequeue")
    assert (copy / "abort").exists()
    files = StoreFiles(copy)
    rows = rows_of(files)
    assert [row["body"] for row in rows] == [b"body %d" % n for n in range(230)]
    [limits] = files.bounds(files.queues([TOPIC])).values()
    assert limits == (0, 230)


def crashed(store: Store, tmp_path: Path, synced: dict[int, int], checkpoint: int | None = None) -> StoreFiles:
    """A copy as after a power failure: how many units of some queues had reached the disk."""
    copy = copied(store, tmp_path)
    for queue, count in synced.items():
        for path in copy.joinpath("consumequeue", TOPIC, str(queue)).iterdir():
            cut(path, min(max(count * 20 - int(path.name), 0), path.stat().st_size))
    noted = Checkpoint(copy / "checkpoint")
    noted.physic_msg_timestamp = noted.logics_msg_timestamp = 0 if checkpoint is None else checkpoint + 3000
    noted.write()
    return StoreFiles(copy)


def stamped(store: Store, times: dict[int, int]) -> None:
    """Set the store times of records, by their places in the log."""
    for position, time_ms in times.items():
        flip(store.root, position + 56, time_ms.to_bytes(8, "big"))


@pytest.mark.parametrize("noted", [False, True])
def test_a_queue_that_lost_units_others_kept_has_them_again(made, tmp_path, monkeypatch, noted):
    store = made()
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


def test_a_queue_that_lost_more_than_the_checkpoint_says_is_seen_by_what_follows(made, tmp_path):
    store = made()
    for number in range(100):
        store.add(1, queue=number % 2, body=b"%d" % number)
    rows = sorted(rows_of(StoreFiles(store.root)), key=lambda row: row["physicalOffset"])
    stamped(store, {row["physicalOffset"]: 1_700_000_000_000 + number for number, row in enumerate(rows)})
    files = crashed(store, tmp_path, {0: 10, 1: 50}, 1_700_000_000_080)
    assert sorted(int(row["body"]) for row in rows_of(files)) == list(range(100))
    shutil.rmtree(tmp_path / "copy" / "consumequeue" / TOPIC / "0")
    assert sorted(int(row["body"]) for row in rows_of(StoreFiles(tmp_path / "copy"))) == list(range(100))


@pytest.mark.parametrize("kept", [0, 7, 20])
def test_a_queue_of_inner_batches_that_lost_units_has_them_again_and_once(made, tmp_path, kept):
    store = made()
    store.store.queue_kinds.batch_topics.add("batches")
    for _ in range(20):
        body = encode_batch((0, b"x", b"") for _ in range(3))
        store.store.append(NewRecord("batches", 0, body, b"INNER_NUM\x013\x02", sys_flag=0xC0))
    store.store._dispatcher.drain()
    copy = copied(store, tmp_path)
    Checkpoint(copy / "checkpoint").write()
    [path] = copy.joinpath("batchconsumequeue", "batches", "0").iterdir()
    cut(path, kept * 46)
    files = StoreFiles(copy)
    assert offsets_of(rows_of(files, "batches")) == list(range(60))
    assert len(files.more.get(("batches", 0), (0, b""))[1]) == (20 - kept) * 46


@pytest.mark.parametrize("tags", ["*", "A"])
@pytest.mark.parametrize("kept", [20, 10])
def test_records_damaged_behind_the_units_are_told(made, tmp_path, tags, kept):
    store = made()
    store.add(40, tag="A")
    place = rows_of(StoreFiles(store.root))[20]["physicalOffset"]
    flip(store.root, place + 4, b"\0\0\0\0")
    files = crashed(store, tmp_path, {0: kept})
    text = "1 message of orders@store:0 from offset 20 to 20 is lost: neither its queue nor the log"
    with pytest.raises(DataLoss, match=text):
        rows_of(files, tags=tags)
    assert offsets_of(rows_of(files, tags=tags, fail_on_data_loss=False)) == [n for n in range(40) if n != 20]


def test_queues_without_any_file_begin_where_the_log_does(made, tmp_path):
    store = made()
    store.add(300, body=b"long" * 500)
    copy = crashed(store, tmp_path, {}).root
    shutil.rmtree(copy / "consumequeue")
    min(copy.joinpath("commitlog").iterdir()).unlink()
    files = StoreFiles(copy)
    [limits] = files.bounds(files.queues([TOPIC])).values()
    assert 0 < limits.minimum < limits.maximum == 300
    assert offsets_of(rows_of(files)) == list(range(limits.minimum, 300))


def test_a_key_is_found_where_the_index_has_nothing(made):
    """Of messages older than the first index file, and of an index with a file missing."""
    store = made()
    for number in range(900):
        store.add(1, key=f"k{number % 100}", body=b"%d" % number)
    store.close()
    paths = sorted(store.root.joinpath("index").iterdir())
    assert len(paths) > 3
    wanted = [number for number in range(900) if number % 100 == 7]
    for gone in (paths[0], paths[2]):
        gone.unlink()
        files = StoreFiles(store.root)
        hits, indexed = files.lookup(TOPIC, "k7")
        [queue] = files.queues([TOPIC])
        ranges = files.find(queue, hits, indexed)
        assert ranges == sorted(ranges)
        slots = [slot for low, high in ranges for slot in range(low, high)]
        assert len(slots) == len(set(slots)) < 900
        assert set(wanted) <= set(slots)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_crashed_store_is_followed_when_its_broker_is_back(made, tmp_path, stopped):
    store = made()
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


def stream_of(root: Path, **more) -> StoreStreamReader:
    options = {"storePath": str(root), "subscribe": TOPIC, "startingOffsets": "earliest", **more}
    return StoreStreamReader(parse_store(options, STREAM), schema_of("queueOffset LONG"))


def next_batch(stream: StoreStreamReader, start: dict) -> tuple[dict, list[int]]:
    """Where the next micro-batch ends, and the offsets of its rows."""
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    found = [table for task in stream.partitions(start, end) for table in stream.read(task)]
    return end, sorted(offsets_of(row for table in found for row in table.to_pylist()))


@pytest.mark.parametrize(("before", "after"), [("", "broker-a"), ("broker-a", ""), ("broker-a", "broker-b")])
def test_a_stream_whose_broker_is_named_later_goes_on(made, before, after):
    store = made()
    store.add(10)
    first = stream_of(store.root, brokerName=before)
    end, rows = next_batch(first, first.initialOffset())
    assert rows == list(range(10))
    assert next_batch(stream_of(store.root, brokerName=after), end) == (end, [])
    store.add(4)
    then = stream_of(store.root, brokerName=after)
    end, rows = next_batch(then, end)
    assert rows == list(range(10, 14))
    assert list(end["end"]) == [f"{TOPIC}@{after or 'store'}:0"]


def test_a_batch_written_down_under_the_old_name_is_run_again_whole(made):
    store = made()
    store.add(10)
    first = stream_of(store.root)
    begin = first.initialOffset()
    logged = first.latestOffset(begin, first.getDefaultReadLimit())
    again = stream_of(store.root, brokerName="broker-a")
    found = [table for task in again.partitions(begin, logged) for table in again.read(task)]
    assert sorted(offsets_of(row for table in found for row in table.to_pylist())) == list(range(10))


def test_positions_under_two_names_are_those_of_one_queue(made):
    store = made()
    store.add(14)
    both = {f"{TOPIC}@store:0": 10, f"{TOPIC}@broker-a:0": 14}
    assert next_batch(stream_of(store.root), {"from": both, "end": both})[1] == []


@pytest.fixture
def soon(monkeypatch):
    """What is missing counts as gone at once."""
    monkeypatch.setattr(store_source, "GONE_AFTER_S", 0.0)


@pytest.mark.usefixtures("soon")
def test_a_stream_whose_topic_is_deleted_fails_with_the_loss(made):
    store = made()
    store.add(10)
    store.add(3, queue=1)
    store.add(5, topic="other")
    stream = stream_of(store.root, subscribe=f"{TOPIC},other", maxOffsetsPerTrigger="12")
    end, _ = next_batch(stream, stream.initialOffset())
    store.close()
    shutil.rmtree(store.root / "consumequeue" / TOPIC)
    with pytest.raises(
        DataLoss, match=r"of orders@store:0 from offset \d+ .*no such queue any more, as when its topic is del"
    ):
        next_batch(stream, end)
    with pytest.raises(DataLoss, match=r"all messages of orders@store:0 from offset .* on are lost: the store has no"):
        next_batch(stream_of(store.root, subscribe=f"{TOPIC},other"), end)
    with pytest.raises(
        DataLoss, match="2 messages of orders@store:1 from offset 1 to 2 are lost: the store has no such"
    ):
        stream.partitions({}, {"from": {f"{TOPIC}@store:1": 1}, "end": {f"{TOPIC}@store:1": 3}})


@pytest.mark.usefixtures("soon")
def test_a_stream_may_go_on_without_its_topic(made, caplog):
    store = made()
    store.add(10)
    store.add(5, topic="other")
    both = {"subscribe": f"{TOPIC},other", "failOnDataLoss": "false"}
    stream = stream_of(store.root, **both)
    end, _ = next_batch(stream, stream.initialOffset())
    store.close()
    shutil.rmtree(store.root / "consumequeue" / TOPIC)
    end, rows = next_batch(stream, end)
    assert (rows, list(end["end"])) == ([], ["other@store:0"])
    assert caplog.text.count("skipped, for failOnDataLoss=false: orders@store:0 is lost at offset 10") == 1
    assert next_batch(stream, end) == (end, [])
    assert caplog.text.count("skipped") == 1


@pytest.mark.usefixtures("soon")
def test_a_topic_the_stream_does_not_want_any_more_may_go(made):
    store = made()
    store.add(10)
    store.add(5, topic="other")
    first = stream_of(store.root, subscribe=f"{TOPIC},other")
    end, _ = next_batch(first, first.initialOffset())
    store.close()
    shutil.rmtree(store.root / "consumequeue" / TOPIC)
    assert next_batch(stream_of(store.root, subscribe="other"), end) == (end, [])


def test_a_queue_that_is_made_anew_is_waited_for(made, monkeypatch):
    store = made()
    store.add(10)
    stream = stream_of(store.root)
    end, _ = next_batch(stream, stream.initialOffset())
    store.close()
    folder = store.root / "consumequeue" / TOPIC
    folder.rename(store.root / "aside")
    monkeypatch.setattr(store_source.time, "sleep", lambda _: (store.root / "aside").rename(folder))
    assert next_batch(stream, end) == (end, [])


def test_a_stream_on_a_crashed_store_goes_on_with_its_broker(made, tmp_path):
    store = made()
    store.add(230)
    copy = copied(store, tmp_path, f"consumequeue/{TOPIC}")
    stream = stream_of(copy)
    end, rows = next_batch(stream, stream.initialOffset())
    assert rows == list(range(230))
    again = Store(copy)
    try:
        assert next_batch(stream, end) == (end, [])
        again.add(70)
        end, rows = next_batch(stream, end)
        assert rows == list(range(230, 300))
        again.add(1)
        assert next_batch(stream, end)[1] == [300]
    finally:
        again.close()


def test_a_copy_cut_off_in_the_log_ends_there(made, tmp_path):
    store = made()
    store.add(230)
    place = rows_of(StoreFiles(store.root))[200]["physicalOffset"]
    copy = copied(store, tmp_path)
    for path in copy.joinpath("commitlog").iterdir():
        if int(path.name) + path.stat().st_size > place:
            cut(path, max(place - int(path.name) + 20, 0))
    assert offsets_of(rows_of(StoreFiles(copy))) == list(range(200))


def test_units_of_other_records_are_not_believed(made):
    """Queue files of one store beside the log of another."""
    store, other = made(), made()
    store.add(20)
    other.add(20, topic="payments")
    shutil.rmtree(store.root / "commitlog")
    shutil.copytree(other.root / "commitlog", store.root / "commitlog")
    files = StoreFiles(store.root)
    assert files.bounds(files.queues([TOPIC])) == {MessageQueue(TOPIC, "store", 0): (0, 0)}


def test_no_store_is_told(tmp_path):
    with pytest.raises(StoreUnreadable, match="no such folder"):
        root_of(tmp_path / "missing")
    with pytest.raises(StoreUnreadable, match="is no store, it has neither commitlog/ nor checkpoint"):
        root_of(tmp_path)
