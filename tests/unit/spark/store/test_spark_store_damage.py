"""A store's files, read while they are damaged or deleted."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("pyspark")

from written_store import TOPIC, copied, cut, flip, offsets_of, rows_of, schema_of

from tianzhou._hot.records import UNIT
from tianzhou.model import MessageQueue
from tianzhou.spark.rows.rules import NULL, SKIP, RowRules
from tianzhou.spark.rows.schema import arrow_schema, columns_of
from tianzhou.spark.source.offsets import DataLoss, Span
from tianzhou.spark.store.store_files import StoreFiles
from tianzhou.spark.store.store_rows import Wanted, read_all
from tianzhou.wire.compression import COMPRESSED

pytestmark = pytest.mark.usefixtures("way")


def test_a_damaged_body_is_named_or_skipped(store, caplog):
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
def test_a_damaged_record_is_named_or_skipped(store, at, value, text):
    store.add(50)
    files = StoreFiles(store.root)
    place = rows_of(files)[17]["physicalOffset"]
    flip(store.root, place + at, value)
    with pytest.raises(DataLoss, match=f"1 message of orders@store:0 from offset 17 to 17 is lost: .*{text}"):
        rows_of(files, columns="queueOffset LONG")
    rows = rows_of(files, fail_on_data_loss=False)
    assert offsets_of(rows) == [n for n in range(50) if n != 17]


@pytest.mark.parametrize("physical", [-1, -(1 << 63), 1 << 40, (1 << 63) - 20])
@pytest.mark.parametrize("size", [None, 0, -1, (1 << 31) - 2])
def test_a_unit_that_leads_outside_of_the_log_is_named_or_skipped(store, physical, size):
    store.add(50)
    files = StoreFiles(store.root)
    path = min((store.root / "consumequeue" / TOPIC / "0").iterdir())
    units = bytearray(path.read_bytes())
    UNIT.pack_into(units, 17 * UNIT.size, physical, UNIT.unpack_from(units)[1] if size is None else size, 0)
    path.write_bytes(units)
    with pytest.raises(DataLoss, match=r"1 message of orders@store:0 from offset 17 to 17 is lost"):
        rows_of(files, columns="queueOffset LONG")
    rows = rows_of(files, columns="queueOffset LONG", fail_on_data_loss=False)
    assert offsets_of(rows) == [n for n in range(50) if n != 17]


def test_what_is_unproved_at_the_end_is_not_there_yet(store):
    store.add(50)
    files = StoreFiles(store.root)
    for row in rows_of(files)[45:]:
        flip(store.root, row["physicalOffset"] + 4, b"\0\0\0\0")
    [limits] = files.bounds(files.queues([TOPIC])).values()
    assert limits == (0, 45)
    assert offsets_of(rows_of(files)) == list(range(45))


def test_a_body_that_cannot_be_unpacked_is_named_or_skipped(store):
    store.add(9)
    store.add(1, body=b"no zlib at all", sys_flag=COMPRESSED)
    store.add(9)
    files = StoreFiles(store.root)
    with pytest.raises(DataLoss, match=r"from offset 9 to 9 is lost: commit-log file .* ZLIB body of 14 bytes"):
        rows_of(files)
    assert offsets_of(rows_of(files, fail_on_data_loss=False)) == [n for n in range(19) if n != 9]
    assert len(rows_of(files, columns="queueOffset LONG")) == 19


def test_log_files_deleted_under_the_reader(store):
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
    # Mapped files stay readable.
    assert bounds[queue].minimum == 0


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_log_files_deleted_while_a_reader_is_at_them(store, gone):
    """The reader notices it at the first file it opens, after it has listed the files."""
    store.add(300, body=b"long" * 500)  # several log files for one queue file
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


def test_queue_files_deleted_under_the_reader(store):
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


def test_a_copy_cut_off_in_the_log_ends_there(store, tmp_path):
    store.add(230)
    place = rows_of(StoreFiles(store.root))[200]["physicalOffset"]
    copy = copied(store, tmp_path)
    for path in copy.joinpath("commitlog").iterdir():
        if int(path.name) + path.stat().st_size > place:
            cut(path, max(place - int(path.name) + 20, 0))
    assert offsets_of(rows_of(StoreFiles(copy))) == list(range(200))


def test_units_of_other_records_are_not_believed(new_store):
    """Queue files of one store with the log of another."""
    store, other = new_store(), new_store()
    store.add(20)
    other.add(20, topic="payments")
    shutil.rmtree(store.root / "commitlog")
    shutil.copytree(other.root / "commitlog", store.root / "commitlog")
    files = StoreFiles(store.root)
    assert files.bounds(files.queues([TOPIC])) == {MessageQueue(TOPIC, "store", 0): (0, 0)}


def test_a_body_that_is_not_packed_is_null_or_left_out_when_asked(store, caplog):
    store.add(5)
    store.add(1, body=b"was never packed", sys_flag=COMPRESSED)
    store.add(5)
    files = StoreFiles(store.root)
    columns = "queueOffset LONG, body STRING"
    with pytest.raises(DataLoss, match=f"1 message of {TOPIC}@store:0 from offset 5 to 5 is lost: "):
        rows_of(files, columns=columns)
    rows = rows_of(files, columns=columns, rules=RowRules(corrupt_bodies=NULL))
    assert [row["body"] is None for row in rows] == [n == 5 for n in range(11)]
    rows = rows_of(files, columns=columns, rules=RowRules(corrupt_bodies=SKIP))
    assert offsets_of(rows) == [n for n in range(11) if n != 5]
    assert f"{TOPIC}@" in caplog.text
