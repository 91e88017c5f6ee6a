"""Lake tables without Spark: files, commits that happen once, compaction, and options that are refused."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from lake_tables import prepared, table_of

from tianzhou.errors import ConfigError
from tianzhou.spark.lake import files
from tianzhou.spark.lake.options import parse_lake
from tianzhou.spark.lake.tables import Batch, LakeError

SCHEMA = pa.schema(
    [
        ("queueOffset", pa.int64()),
        ("body", pa.binary()),
        ("storeTimestamp", pa.timestamp("us", "UTC")),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


def batch_of(first, count=10, schema=SCHEMA):
    rows = [
        {"queueOffset": n, "body": b"%d" % n, "storeTimestamp": n * 1000, "properties": [("k", str(n))], "extra": n}
        for n in range(first, first + count)
    ]
    return pa.RecordBatch.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)


def written(table, first, count=10, schema=SCHEMA):
    return table.written(batch_of(first, count, schema))


def offsets(table):
    return sorted(row["queueOffset"] for row in table.read())


def test_a_batch_is_committed_once(options):
    table = prepared(options, SCHEMA)
    assert table.committed("query") is None
    assert table.commit(written(table, 0), Batch("query", 0), False)
    assert table.commit(written(table, 10), Batch("query", 1), False)
    again = written(table, 10)
    assert not table_of(options).commit(again, Batch("query", 1), False)
    assert not table_of(options).commit(written(table, 0), Batch("query", 0), False)
    assert table.committed("query") == 1
    assert offsets(table) == list(range(20))
    assert table.known([file.path for file in again]) == set()
    # Batches of another query are counted apart.
    assert table.commit(written(table, 20), Batch("other", 0), False)
    assert offsets(table) == list(range(30))


def test_files_without_a_commit_are_not_seen(options):
    table = prepared(options, SCHEMA)
    loose = written(table, 0)
    committed = written(table, 100)
    table.commit(committed, Batch("query", 0), False)
    assert offsets(table) == list(range(100, 110))
    assert table.known([file.path for file in [*loose, *committed]]) == {file.path for file in committed}
    table.target.remove(file.path for file in loose)
    table.target.remove(file.path for file in loose)
    assert offsets(table) == list(range(100, 110))


def test_every_column_comes_back(options):
    table = prepared(options, SCHEMA)
    table.commit(written(table, 5, 1), Batch(None, 0), False)
    assert table.schema().names == SCHEMA.names
    [row] = table.read(SCHEMA)
    assert row["body"] == b"5"
    assert dict(row["properties"]) == {"k": "5"}
    assert row["storeTimestamp"].timestamp() == 0.005


def test_small_files_are_merged_and_batches_stay_committed(options):
    table = prepared(options, SCHEMA)
    for number in range(6):
        assert table.commit(written(table, number * 10), Batch("query", number), False)
    before = len(table.scan())
    assert table.compact(1 << 20) == 6
    assert len(table.scan()) < before
    assert offsets(table) == list(range(60))
    assert table.compact(1 << 20) == 0
    assert not table_of(options).commit(written(table, 50), Batch("query", 5), False)
    assert table.commit(written(table, 60), Batch("query", 6), False)
    assert offsets(table) == list(range(70))


def test_rows_replace_those_of_the_table(options):
    table = prepared(options, SCHEMA)
    table.commit(written(table, 0), Batch("query", 0), False)
    assert table.commit(written(table, 50), Batch("query", 1), True)
    assert offsets(table) == list(range(50, 60))
    assert table.commit([], Batch("query", 2), True)
    assert offsets(table) == []


def test_files_are_cut_at_the_wanted_size(options, monkeypatch):
    table = prepared(options, SCHEMA, compression="none")
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 1)
    new = table.written(*[batch_of(n * 1000, 1000) for n in range(4)], target_bytes=1 << 10)
    assert [file.rows for file in new] == [1000] * 4
    if options["tableFormat"] == "delta":
        assert json.loads(new[1].entry.stats)["minValues"]["queueOffset"] == 1000
    assert table.written(target_bytes=1 << 10) == []


def test_an_error_under_way_leaves_no_file(options, tmp_path):
    table = prepared(options, SCHEMA)

    def broken():
        yield batch_of(0)
        raise RuntimeError("the source is broken")

    before = set(tmp_path.rglob("*.parquet"))
    with pytest.raises(RuntimeError):
        table.target.write(broken(), "part")
    assert set(tmp_path.rglob("*.parquet")) == before


def test_a_missing_table_is_reported(options):
    with pytest.raises(LakeError, match=r"there is no .* table"):
        table_of(options).scan()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "the option path is missing"),
        ({"tableFormat": "orc", "path": "x"}, "tableFormat=orc: expected delta or iceberg"),
        ({"tableFormat": "parquet", "path": "x"}, r'parquet: expected delta or iceberg; .*format\("parquet"\)'),
        ({"path": "x", "table": "a.b"}, "table=a.b: goes with tableFormat=iceberg only"),
        ({"path": "x", "compression": "lzo"}, "compression=lzo: expected zstd, snappy, gzip or none"),
        ({"path": "x", "targetFileBytes": "1"}, "targetFileBytes=1: expected a whole number from 65536"),
        ({"path": "x", "caseSensitive": "yes"}, "caseSensitive=yes: expected true or false"),
        ({"path": "x", "txnAppId": "a"}, "txnAppId=a: is of no use without txnVersion"),
        ({"path": "x", "txnVersion": "1"}, "txnVersion=1: is of no use without txnAppId"),
        ({"path": "x", "compactEverything": "1"}, r"no option compactEverything=1 \(did you mean compactEvery\?\)"),
        ({"tableFormat": "iceberg"}, "the option table is missing; expected namespace.name"),
        ({"tableFormat": "iceberg", "table": "x"}, "table=x: expected namespace.name of an Iceberg table"),
        ({"tableFormat": "iceberg", "table": "a.x"}, "the option catalogUri is missing"),
        (
            {"tableFormat": "iceberg", "table": "a.x", "catalogUri": "sqlite:///x"},
            "the option warehouse is missing; expected the folder or URI",
        ),
        ({"tableFormat": "iceberg", "table": "a.x", "path": "x"}, "path=x: an Iceberg table is named by its catalog"),
    ],
)
def test_mistakes_are_explained(options, text):
    with pytest.raises(ConfigError, match=text):
        parse_lake(options)


def test_options_of_catalogs_and_storage_are_passed_on():
    options = parse_lake({"path": "s3://b/x", "storage.AWS_REGION": "eu-1", "Catalog.s3.endpoint": "e"})
    assert (options.storage, options.catalog) == ({"AWS_REGION": "eu-1"}, {"s3.endpoint": "e"})
