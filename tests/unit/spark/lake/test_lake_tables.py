"""Lake tables without Spark: files, commits that happen once, compaction, and what does not fit."""

from __future__ import annotations

import contextlib
import errno
import json
import threading

import pytest

pytest.importorskip("pyspark")

import lake_tables
import pyarrow as pa
from lake_tables import options_of, prepared, read, table_of

from spark_probe import decide_batch, decide_by
from tianzhou.errors import ConfigError
from tianzhou.spark.lake import directory, files
from tianzhou.spark.lake.files import remove_files, write_files
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
    return lake_tables.written(table, batch_of(first, count, schema))


def rows_of(table, schema=SCHEMA):
    return sorted(row["queueOffset"] for row in read(table.files(), schema))


def test_a_batch_is_committed_once(options):
    table = prepared(options, SCHEMA)
    assert table.committed("query") is None
    assert table.commit(written(table, 0), Batch("query", 0), False)
    assert table.commit(written(table, 10), Batch("query", 1), False)
    again = written(table, 10)
    assert not table_of(options).commit(again, Batch("query", 1), False)
    assert not table_of(options).commit(written(table, 0), Batch("query", 0), False)
    assert table.committed("query") == 1
    assert rows_of(table) == list(range(20))
    assert table.known([file.path for file in again]) == set()
    # Another query's batches are its own.
    assert table.commit(written(table, 20), Batch("other", 0), False)
    assert rows_of(table) == list(range(30))


def test_what_is_not_committed_is_not_seen(options):
    table = prepared(options, SCHEMA)
    files = written(table, 0)
    table.commit(written(table, 100), Batch("query", 0), False)
    assert rows_of(table) == list(range(100, 110))
    remove_files(table.location, [file.path for file in files])
    remove_files(table.location, [file.path for file in files])


def test_every_column_comes_back(options):
    table = prepared(options, SCHEMA)
    table.commit(written(table, 5, 1), Batch(None, 0), False)
    assert table.schema().names == SCHEMA.names
    [row] = read(table.files(), SCHEMA)
    assert row["body"] == b"5"
    assert dict(row["properties"]) == {"k": "5"}
    assert row["storeTimestamp"].timestamp() == 0.005


def test_small_files_are_merged_and_batches_stay_committed(options):
    table = prepared(options, SCHEMA)
    for number in range(6):
        assert table.commit(written(table, number * 10), Batch("query", number), False)
    before = len(table.files())
    assert table.compact(1 << 20) == 6
    assert len(table.files()) < before
    assert rows_of(table) == list(range(60))
    assert table.compact(1 << 20) == 0
    assert not table_of(options).commit(written(table, 50), Batch("query", 5), False)
    assert table.commit(written(table, 60), Batch("query", 6), False)
    assert rows_of(table) == list(range(70))


def test_rows_replace_what_is_there(options):
    table = prepared(options, SCHEMA)
    table.commit(written(table, 0), Batch("query", 0), False)
    assert table.commit(written(table, 50), Batch("query", 1), True)
    assert rows_of(table) == list(range(50, 60))
    assert table.commit([], Batch("query", 2), True)


def test_columns_that_do_not_fit_are_named(options):
    table = prepared(options, SCHEMA)
    table.commit(written(table, 0), Batch("query", 0), False)
    with pytest.raises(
        ConfigError, match=r"column queueOffset is string in the rows and int64 in .* table .*; cast it"
    ):
        table.prepare(pa.schema([("queueOffset", pa.string())]))
    wider = SCHEMA.append(pa.field("extra", pa.int64()))
    with pytest.raises(ConfigError, match=r"has no column extra; it has queueOffset, body, .* or set mergeSchema=true"):
        table.prepare(wider)
    merged = table_of(options, mergeSchema="true")
    merged.prepare(wider)
    merged.commit(written(merged, 10, 10, wider), Batch("query", 1), False)
    assert merged.schema().names == wider.names
    assert rows_of(merged, wider) == list(range(20))
    # Rows may lack what may be null.
    table.prepare(pa.schema([("queueOffset", pa.int64())]))


def test_files_are_cut_at_the_wanted_size(options, monkeypatch):
    table = prepared(options, SCHEMA)
    batches = [batch_of(n * 1000, 1000) for n in range(4)]
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 1)
    new = write_files(batches, SCHEMA, table.location, f"{table.prefix}-0-00000", "none", 1 << 10)
    assert len(new) == 4
    assert [file.rows for file in new] == [1000] * 4
    assert json.loads(new[1].stats)["minValues"]["queueOffset"] == 1000
    assert write_files([], SCHEMA, table.location, "x", "zstd", 1 << 20) == []


def test_an_error_under_way_leaves_no_file(options, tmp_path):
    table = prepared(options, SCHEMA)

    def broken():
        yield batch_of(0)
        raise RuntimeError("the source is broken")

    before = set(tmp_path.rglob("*.parquet"))
    with pytest.raises(RuntimeError):
        write_files(broken(), SCHEMA, table.location, f"{table.prefix}-0-00000", "zstd", 1 << 20)
    assert set(tmp_path.rglob("*.parquet")) == before


def test_a_missing_table_is_reported(options):
    with pytest.raises(LakeError, match=r"there is no .* table|has no files"):
        table_of(options).files()


def test_a_directory_is_finished_by_whoever_comes_next(tmp_path):
    """The driver dies when the manifest is there and only some files are."""
    options = options_of("parquet", tmp_path)
    table = prepared(options, SCHEMA)
    files = written(table, 0) + written(table, 10)
    decide_batch(table, "query", 0, {file.path: file.path.rpartition("/")[2] for file in files})
    staged = tmp_path / "table" / files[0].path
    staged.rename(tmp_path / "table" / staged.name)
    again = written(table, 0)
    fresh = table_of(options)
    assert fresh.known([file.path for file in files]) == {file.path for file in files}
    fresh.prepare(SCHEMA)
    assert rows_of(fresh) == list(range(20))
    assert not fresh.commit(again, Batch("query", 0), False)
    assert rows_of(fresh) == list(range(20))


@pytest.mark.parametrize("finisher", ["prepare", "compact"])
def test_a_batch_decided_while_somebody_finishes_the_one_before_stays(tmp_path, monkeypatch, finisher):
    """Another query prepares, or somebody compacts, and finds a batch whose driver is said to be dead."""
    options = options_of("parquet", tmp_path)
    table = prepared(options, SCHEMA)
    first = written(table, 0)
    decide_batch(table, "query", 0, {file.path: file.path.rpartition("/")[2] for file in first})
    second = written(table, 10)
    finishing, go_on = threading.Event(), threading.Event()
    sync = directory.sync

    def slowly(path):
        if threading.current_thread() is slow and path == tmp_path / "table":
            finishing.set()  # all moved, and not yet noted as done
            assert go_on.wait(20)
        sync(path)

    monkeypatch.setattr(directory, "sync", slowly)
    other = table_of(options)
    act = {"prepare": lambda: other.prepare(SCHEMA), "compact": lambda: other.compact(1 << 20)}[finisher]
    slow = threading.Thread(target=act)
    slow.start()
    assert finishing.wait(20)
    owner = threading.Thread(target=lambda: table_of(options).commit(second, Batch("query", 1), False))
    owner.start()
    owner.join(0.3)  # it waits for the other; that it would be done by now is what goes wrong without a lock
    go_on.set()
    for thread in (slow, owner):
        thread.join(20)
        assert not thread.is_alive()
    assert table.committed("query") == 1
    assert not table.commit(written(table, 10), Batch("query", 1), False)
    assert rows_of(table) == list(range(20))


def test_of_two_that_commit_the_same_batch_one_does(tmp_path, monkeypatch):
    options = options_of("parquet", tmp_path)
    table = prepared(options, SCHEMA)
    both = threading.Barrier(2)
    answers = []

    def slowly(self, *arguments):
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # both are past the look at what is committed, unless one waits for the other
        decide(self, *arguments)

    decide = decide_by(monkeypatch, slowly)
    runs = [
        threading.Thread(target=lambda: answers.append(table.commit(written(table, 0), Batch("query", 0), False)))
        for _ in range(2)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join(20)
    assert sorted(answers) == [False, True]
    assert rows_of(table) == list(range(10))


def test_a_file_system_without_locks_is_reported(tmp_path, monkeypatch, caplog):
    def refuse(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(directory.fcntl, "flock", refuse)
    table = prepared(options_of("parquet", tmp_path), SCHEMA)
    assert table.commit(written(table, 0), Batch("query", 0), False)
    assert "has no flock (No locks available); let one query at a time write there" in caplog.text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "the option path is missing"),
        ({"tableFormat": "orc", "path": "x"}, "tableFormat=orc: expected delta, iceberg or parquet"),
        ({"path": "x", "table": "a.b"}, "table=a.b: goes with tableFormat=iceberg only"),
        ({"path": "x", "compression": "lzo"}, "compression=lzo: expected zstd, snappy, gzip or none"),
        ({"path": "x", "targetFileBytes": "1"}, "targetFileBytes=1: expected a whole number from 65536"),
        ({"path": "x", "txnAppId": "a"}, "txnAppId=a: is of no use without txnVersion"),
        ({"path": "x", "txnVersion": "1"}, "txnVersion=1: is of no use without txnAppId"),
        ({"path": "x", "compactEverything": "1"}, r"no option compactEverything=1 \(did you mean compactEvery\?\)"),
        ({"tableFormat": "parquet", "path": "s3://b/x"}, "Parquet directories need renames that are atomic"),
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
