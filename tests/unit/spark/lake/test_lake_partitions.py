"""Partitioned lake tables without Spark: rows by folders, as exact as the rest, also read by others' readers."""

from __future__ import annotations

import datetime as dt

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.dataset
from lake_tables import SCHEMA, iceberg_table, options_of, prepared, read, row, rows, table_of, written

from spark_probe import decide_batch
from tianzhou.errors import ConfigError
from tianzhou.spark.lake import files as lake_files
from tianzhou.spark.lake.options import Part, parse_lake
from tianzhou.spark.lake.partitions import Division
from tianzhou.spark.lake.tables import Batch, LakeError


def everything(table):
    """All rows of a table, in their order."""
    schema = table.schema()
    wanted = pa.schema([schema.field(name) for name in SCHEMA.names if name in schema.names])
    return sorted(read(table.files(), wanted), key=lambda one: one["id"])


BY = [("item",), ("queue", "done"), ("day",)]


@pytest.mark.parametrize("by", BY, ids=", ".join)
def test_rows_come_back_as_they_were_whatever_they_are_divided_by(options, by):
    table = prepared(options, partitionBy=",".join(by))
    files = written(table, rows(0, 60))
    assert len(files) == len({tuple(row(n)[column] for column in by) for n in range(60)})
    assert table.commit(files, Batch("query", 0), False)
    assert everything(table) == [row(n) for n in range(60)]
    # Whoever comes later need not say how the table is partitioned.
    later = prepared(options)
    assert later.commit(written(later, rows(60, 60)), Batch("query", 1), False)
    assert not later.commit(written(later, rows(60, 60)), Batch("query", 1), False)
    assert later.committed("query") == 1
    assert everything(later) == [row(n) for n in range(120)]
    # Small files are merged within their partitions.
    assert later.compact(1 << 20) > 0
    assert later.compact(1 << 20) == 0
    assert len(later.files()) == len({tuple(row(n)[column] for column in by) for n in range(120)})
    assert everything(later) == [row(n) for n in range(120)]
    assert later.committed("query") == 1
    assert later.commit(written(later, rows(0, 5)), Batch("query", 2), True)
    assert everything(later) == [row(n) for n in range(5)]


def test_iceberg_divides_by_times(tmp_path):
    for transform in ("year", "month", "day", "hour"):
        options = {**options_of("iceberg", tmp_path), "table": f"lake.{transform}"}
        table = prepared(options, partitionBy=f"{transform}(at), queue")
        cut = {"year": 4, "month": 7, "day": 10, "hour": 13}[transform]
        parts = {(row(n)["at"].isoformat()[:cut], row(n)["queue"]) for n in range(50)}
        files = written(table, rows(0, 50))
        assert len(files) == len(parts)
        table.commit(files, Batch("query", 0), False)
        assert everything(table) == [row(n) for n in range(50)]
        found = iceberg_table(options)
        assert [str(field.transform) for field in found.spec().fields] == [transform, "identity"]
        # Iceberg's own reader passes over the files of other partitions, and finds what it looks for.
        day = found.scan(row_filter="at >= '1970-01-01T00:00:00+00:00' and at < '1970-01-01T01:00:00+00:00'")
        assert sorted(day.to_arrow().column("id").to_pylist()) == [3, 4]
        if transform == "hour":
            assert len(list(day.plan_files())) == 2


def test_others_read_what_is_written(options):
    table = prepared(options, partitionBy="item")
    table.commit(written(table, rows(0, 20)), Batch("query", 0), False)
    if options["tableFormat"] == "delta":
        import deltalake

        found = deltalake.DeltaTable(options["path"]).to_pyarrow_table()
    elif options["tableFormat"] == "iceberg":
        found = iceberg_table(options).scan().to_arrow()
    else:
        hive = pyarrow.dataset.partitioning(pa.schema([("item", pa.string())]), flavor="hive")
        found = pyarrow.dataset.dataset(options["path"], partitioning=hive, exclude_invalid_files=True).to_table()
    by_id = {one["id"]: one["item"] for one in found.to_pylist()}
    assert by_id == {n: row(n)["item"] for n in range(20)}


def test_a_directory_that_others_have_partitioned(tmp_path):
    for queue in (0, 1):
        for day in ("2026-01-30", "__HIVE_DEFAULT_PARTITION__"):
            folder = tmp_path / "table" / f"queue={queue}" / f"day={day}"
            folder.mkdir(parents=True)
            pa.parquet.write_table(pa.table({"id": [queue]}), folder / "part-0.parquet")
    options = options_of("parquet", tmp_path)
    table = table_of(options)
    files, schema = table.files(), table.schema()
    assert [(field.name, field.type) for field in schema] == [
        ("id", pa.int64()), ("queue", pa.int64()), ("day", pa.date32()),
    ]  # fmt: skip
    values = sorted(str(sorted(file.values.items())) for file in files)
    assert values[0] == str([("day", None), ("queue", 0)])
    more = pa.schema([("id", pa.int64()), ("queue", pa.int64()), ("day", pa.date32())])
    table.prepare(more)
    batch = pa.RecordBatch.from_pylist([{"id": 5, "queue": 1, "day": dt.date(2026, 1, 30)}], more)
    table.commit(written(table, batch), Batch("query", 0), False)
    assert len(list((tmp_path / "table/queue=1/day=2026-01-30").glob("*.parquet"))) == 2


def test_a_partitioned_directory_is_finished_by_whoever_comes_next(tmp_path):
    """The driver dies when the manifest is there and only some files are, in folders that are not there yet."""
    options = {**options_of("parquet", tmp_path), "partitionBy": "queue"}
    table = prepared(options)
    files = written(table, rows(0, 20))
    decide_batch(table, "query", 0, {file.path: file.path.removeprefix("_staging/") for file in files})
    fresh = table_of(options)
    assert fresh.known([file.path for file in files]) == {file.path for file in files}
    fresh.prepare(SCHEMA)
    assert everything(fresh) == [row(n) for n in range(20)]
    assert not fresh.commit(written(fresh, rows(0, 20)), Batch("query", 0), False)


def test_many_partitions_do_not_keep_as_many_files_open(options, monkeypatch):
    monkeypatch.setattr(lake_files, "MOST_OPEN", 2)
    monkeypatch.setattr(lake_files, "ROW_GROUP_BYTES", 1)
    table = prepared(options, partitionBy="queue")
    batches = [rows(first, 10) for first in range(0, 50, 10)]
    files = written(table, *batches)
    assert sum(file.rows for file in files) == 50
    table.commit(files, Batch("query", 0), False)
    assert everything(table) == [row(n) for n in range(50)]


def test_a_table_keeps_its_partitions(options):
    table_of(options, partitionBy="queue").prepare(SCHEMA)
    again = table_of(options, partitionBy="day")
    with pytest.raises(ConfigError, match=r"partitionBy=day: .* table .* is partitioned by queue; leave "):
        again.prepare(SCHEMA)
    with pytest.raises(ConfigError, match="is partitioned by queue, and the rows have no column queue; they have id"):
        table_of(options).prepare(pa.schema([("id", pa.int64())]))


def test_a_table_without_partitions_gets_none(options):
    table = prepared(options)
    table.commit(written(table, rows(0, 5)), Batch("query", 0), False)
    with pytest.raises(ConfigError, match=r"partitionBy=day: .* is not partitioned; leave partitionBy out"):
        table_of(options, partitionBy="day").prepare(SCHEMA)


@pytest.mark.parametrize(
    ("by", "text"),
    [
        ("dya", "is partitioned by dya, and the rows have no column dya; they have id, item"),
        ("at", r"is partitioned by at, and column at is timestamp\[us, tz=UTC\]; that goes with texts, whole numbers"),
    ],
)
def test_columns_that_cannot_be_are_named(options, by, text):
    with pytest.raises(ConfigError, match=text):
        table_of(options, partitionBy=by).prepare(SCHEMA)


def test_times_of_columns_that_have_none_are_named(tmp_path):
    options = options_of("iceberg", tmp_path)
    with pytest.raises(ConfigError, match=r"by hour\(day\), and column day is date32.*; that goes with timestamps$"):
        table_of(options, partitionBy="hour(day)").prepare(SCHEMA)
    table = table_of(options)
    with iceberg_table(options).update_spec() as update:
        update.add_field("id", "bucket[4]", "b")
    with pytest.raises(LakeError, match=r"is partitioned by bucket\[4\]\(id\), which tianzhou_lake does not write"):
        table.prepare(SCHEMA)


def test_a_column_has_to_be_left(tmp_path):
    options = {**options_of("parquet", tmp_path), "partitionBy": "id,item"}
    with pytest.raises(ConfigError, match="partitioned by all of its columns; leave at least one"):
        table_of(options).prepare(pa.schema([("id", pa.int64()), ("item", pa.string())]))


def test_texts_that_no_folder_can_say_end_the_task(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("item", pa.string())])
    table = prepared(options_of("parquet", tmp_path), schema, partitionBy="item")
    for item, text in (
        ("", "an empty text, which a partition cannot tell from null"),
        ("ü" * 130, "the text 'ü{40}…' of 130 letters makes a folder's name of 265 bytes, and 255 are the most"),
        ("a/" * 70, "of 140 letters makes a folder's name of 285 bytes, .* write a Delta or Iceberg table"),
    ):
        batch = pa.RecordBatch.from_pylist([{"id": 1, "item": item}], schema)
        with pytest.raises(LakeError, match=f"column item: .*{text}"):
            written(table, batch)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_long_texts_divide_tables_that_keep_them_in_their_log(options):
    if options["tableFormat"] == "parquet":
        return  # test_texts_that_no_folder_can_say_end_the_task
    schema = pa.schema([("id", pa.int64()), ("item", pa.string())])
    table = prepared(options, schema, partitionBy="item")
    items = ["ü" * 130, "ü" * 129 + "x", "a/" * 2000, "short"]
    batch = pa.RecordBatch.from_pylist([{"id": n, "item": item} for n, item in enumerate(items)], schema)
    table.commit(written(table, batch), Batch("q", 0), overwrite=False)
    found = read(table_of(options).files([]), schema)
    assert {one["id"]: one["item"] for one in found} == dict(enumerate(items))


def test_rows_of_a_partition_keep_their_order():
    division = Division((Part("queue"),), in_files=True)
    table = pa.Table.from_batches([rows(0, 30), rows(30, 30)])
    found = {values: part.column("id").to_pylist() for values, part in division.split(table)}
    for values, ids in found.items():
        queue = None if values[0] is None else int(values[0])
        assert ids == [n for n in range(60) if row(n)["queue"] == queue]
    assert sum(map(len, found.values())) == 60


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"partitionBy": "day(at)"}, r"partitionBy=day\(at\): day\(at\) goes with tableFormat=iceberg only; make"),
        ({"partitionBy": "a,,b"}, "partitionBy=a,,b: expected columns with commas between them"),
        ({"partitionBy": "a, a"}, "partitionBy=a, a: names a column twice"),
        ({"partitionBy": "week(at)"}, r"partitionBy=week\(at\): expected columns with commas between them; Iceberg"),
    ],
)
def test_mistakes_are_explained(options, text):
    with pytest.raises(ConfigError, match=text):
        parse_lake({"path": "x", **options})
