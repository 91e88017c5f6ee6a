"""Partitioned lake tables without Spark: rows are read back equal, also by the readers of the libraries."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from lake_tables import SCHEMA, iceberg_table, options_of, prepared, row, rows, table_of

from tianzhou.errors import ConfigError
from tianzhou.spark.lake import files as lake_files
from tianzhou.spark.lake.options import parse_lake
from tianzhou.spark.lake.tables import Batch, LakeError


def everything(table):
    """Return all rows of a table, in order."""
    return sorted(table.read(SCHEMA), key=lambda one: one["id"])


BY = [("item",), ("queue", "done"), ("day",)]


@pytest.mark.parametrize("by", BY, ids=", ".join)
def test_rows_come_back_as_they_were_whatever_they_are_divided_by(options, by):
    table = prepared(options, partitionBy=",".join(by))
    files = table.written(rows(0, 60))
    assert len(files) == len({tuple(row(n)[column] for column in by) for n in range(60)})
    assert table.commit(files, Batch("query", 0), False)
    assert everything(table) == [row(n) for n in range(60)]
    # Later writers need not specify the partitioning of the table.
    later = prepared(options)
    assert later.commit(later.written(rows(60, 60)), Batch("query", 1), False)
    assert not later.commit(later.written(rows(60, 60)), Batch("query", 1), False)
    assert later.committed("query") == 1
    assert everything(later) == [row(n) for n in range(120)]
    # Small files are merged within their partitions.
    assert later.compact(1 << 20) > 0
    assert later.compact(1 << 20) == 0
    assert len(later.scan()) == len({tuple(row(n)[column] for column in by) for n in range(120)})
    assert everything(later) == [row(n) for n in range(120)]
    assert later.committed("query") == 1
    assert later.commit(later.written(rows(0, 5)), Batch("query", 2), True)
    assert everything(later) == [row(n) for n in range(5)]


def test_iceberg_divides_by_times(tmp_path):
    for transform in ("year", "month", "day", "hour"):
        options = {**options_of("iceberg", tmp_path), "table": f"lake.{transform}"}
        table = prepared(options, partitionBy=f"{transform}(at), queue")
        cut = {"year": 4, "month": 7, "day": 10, "hour": 13}[transform]
        parts = {(row(n)["at"].isoformat()[:cut], row(n)["queue"]) for n in range(50)}
        files = table.written(rows(0, 50))
        assert len(files) == len(parts)
        table.commit(files, Batch("query", 0), False)
        assert everything(table) == [row(n) for n in range(50)]
        found = iceberg_table(options)
        assert [str(field.transform) for field in found.spec().fields] == [transform, "identity"]
        # Iceberg's own reader skips the files of other partitions, and finds the rows.
        day = found.scan(row_filter="at >= '1970-01-01T00:00:00+00:00' and at < '1970-01-01T01:00:00+00:00'")
        assert sorted(day.to_arrow().column("id").to_pylist()) == [3, 4]
        if transform == "hour":
            assert len(list(day.plan_files())) == 2


def test_others_read_what_is_written(options):
    table = prepared(options, partitionBy="item")
    table.commit(table.written(rows(0, 20)), Batch("query", 0), False)
    if options["tableFormat"] == "delta":
        import deltalake

        found = deltalake.DeltaTable(options["path"]).to_pyarrow_table()
    else:
        found = iceberg_table(options).scan().to_arrow()
    by_id = {one["id"]: one["item"] for one in found.to_pylist()}
    assert by_id == {n: row(n)["item"] for n in range(20)}


def test_many_partitions_do_not_keep_as_many_files_open(options, monkeypatch):
    monkeypatch.setattr(lake_files, "MAX_OPEN_FILES", 2)
    monkeypatch.setattr(lake_files, "ROW_GROUP_BYTES", 1)
    table = prepared(options, partitionBy="queue")
    batches = [rows(first, 10) for first in range(0, 50, 10)]
    files = table.written(*batches)
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
    table.commit(table.written(rows(0, 5)), Batch("query", 0), False)
    with pytest.raises(ConfigError, match=r"partitionBy=day: .* is not partitioned; leave partitionBy out"):
        table_of(options, partitionBy="day").prepare(SCHEMA)


@pytest.mark.parametrize(
    ("by", "text"),
    [
        ("dya", "is partitioned by dya, and the rows have no column dya; they have id, item"),
        ("at", r"is partitioned by at, and column at is timestamp\[us, tz=UTC\]; expected texts, whole numbers"),
    ],
)
def test_columns_that_cannot_be_are_named(options, by, text):
    with pytest.raises(ConfigError, match=text):
        table_of(options, partitionBy=by).prepare(SCHEMA)


def test_times_of_columns_that_have_none_are_named(tmp_path):
    options = options_of("iceberg", tmp_path)
    with pytest.raises(ConfigError, match=r"by hour\(day\), and column day is date32.*; expected timestamps$"):
        table_of(options, partitionBy="hour(day)").prepare(SCHEMA)
    table = table_of(options)
    with iceberg_table(options).update_spec() as update:
        update.add_field("id", "bucket[4]", "b")
    with pytest.raises(LakeError, match=r"is partitioned by bucket\[4\]\(id\), which tianzhou_lake does not write"):
        table.prepare(SCHEMA)


def test_a_column_has_to_be_left(tmp_path):
    options = {**options_of("delta", tmp_path), "partitionBy": "id,item"}
    with pytest.raises(ConfigError, match="partitioned by all of its columns; leave at least one"):
        table_of(options).prepare(pa.schema([("id", pa.int64()), ("item", pa.string())]))


def test_an_empty_text_is_no_partition_of_a_delta_table(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("item", pa.string())])
    table = prepared(options_of("delta", tmp_path), schema, partitionBy="item")
    batch = pa.RecordBatch.from_pylist([{"id": 1, "item": ""}], schema)
    with pytest.raises(LakeError, match=r"column item: a row has an empty text, which .* cannot distinguish from null"):
        table.written(batch)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_texts_of_any_length_divide_a_table(options):
    schema = pa.schema([("id", pa.int64()), ("item", pa.string())])
    table = prepared(options, schema, partitionBy="item")
    items = ["ü" * 130, "ü" * 129 + "x", "a/" * 2000, "short", "__HIVE_DEFAULT_PARTITION__", "%2F"]
    items += ["a\nb'\"\u0001", " "]
    batch = pa.RecordBatch.from_pylist([{"id": n, "item": item} for n, item in enumerate(items)], schema)
    for number in range(2):
        table.commit(table.written(batch), Batch("q", number), overwrite=False)
    assert table.compact(1 << 20) == 2 * len(items)
    found = table.read(schema)
    assert sorted((one["id"], one["item"]) for one in found) == sorted([*enumerate(items)] * 2)


def test_rows_of_a_partition_keep_their_order(options, monkeypatch):
    monkeypatch.setattr(lake_files, "ROW_GROUP_BYTES", 1)
    table = prepared(options, partitionBy="queue")
    table.commit(table.written(rows(0, 30), rows(30, 30)), Batch("q", 0), overwrite=False)
    for part in table.scan():
        ids = [one["id"] for one in table.read(SCHEMA, [part])]
        assert ids == sorted(ids)
        assert len({row(n)["queue"] for n in ids}) == 1


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
