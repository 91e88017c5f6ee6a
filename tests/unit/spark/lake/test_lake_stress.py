"""Writers, compactions, deletes, merges and overwrites at the same time: every row exists once, like in a model."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

import pytest

pytest.importorskip("pyspark")

import lake_stress
import pyarrow as pa
from lake_tables import Table, prepared

from tianzhou.spark.lake.formats import compact
from tianzhou.spark.lake.tables import Batch, LakeError

WORKERS = 4


def run(pool: Executor, options, rounds, seed):
    """Let the workers change the table together, and compare it with their rows."""
    if "partitionBy" not in options:
        prepared(options, lake_stress.SCHEMA)
    futures = [pool.submit(lake_stress.work, options, worker, rounds, seed) for worker in range(WORKERS)]
    lake_stress.check(options, [future.result(600) for future in futures])


def test_threads_change_a_table_together(options):
    with ThreadPoolExecutor(WORKERS) as pool:
        run(pool, options, 4, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_threads_change_a_table_together_for_long(options, seed):
    prepared(options, lake_stress.SCHEMA, partitionBy="part")
    with ThreadPoolExecutor(WORKERS) as pool:
        run(pool, options, 15, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_processes_change_a_table_together(options, seed):
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        run(pool, options, 10, seed)


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_of_two_compactions_at_once_one_counts(options, rounds):
    table = prepared(options, lake_stress.SCHEMA)
    count = 0
    for _ in range(rounds):
        for _ in range(4):
            values = {count + n: 0 for n in range(100)}
            count += 100
            table.commit(table.written(lake_stress.batch_of(values)), Batch(None, 0), False)
        with ThreadPoolExecutor(3) as pool:
            merged = [future.result(60) for future in [pool.submit(compact, **options) for _ in range(3)]]
        assert sum(one > 0 for one in merged) >= 1
        assert sorted(row["id"] for row in Table(options).read(lake_stress.SCHEMA)) == list(range(count))


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_compaction_that_was_overtaken_by_a_compaction_is_dropped(options, rounds, monkeypatch, tmp_path):
    """A second compaction commits between the first one's files and its commit."""
    for number in range(rounds):
        table = prepared(options, lake_stress.SCHEMA)
        for first in (0, 10):
            values = {number * 20 + first + n: 0 for n in range(10)}
            table.commit(table.written(lake_stress.batch_of(values)), Batch(None, 0), False)
        target, others = type(table.target), [lambda: compact(**options)]
        write = target.write

        def meanwhile(self, batches, prefix, write=write, others=others):
            files = write(self, batches, prefix)
            for other in [others.pop()] if others else []:
                assert other() > 0
            return files

        with monkeypatch.context() as patched:
            patched.setattr(target, "write", meanwhile)
            before = len(list(tmp_path.rglob("*.parquet")))
            assert compact(**options) == 0
        assert len(list(tmp_path.rglob("*.parquet"))) == before + 1
        ids = [row["id"] for row in Table(options).read(lake_stress.SCHEMA)]
        assert sorted(ids) == list(range((number + 1) * 20))


def test_a_compaction_that_was_overtaken_by_an_append_counts(options, monkeypatch):
    table = prepared(options, lake_stress.SCHEMA)
    for first in (0, 10):
        table.commit(table.written(lake_stress.batch_of({first + n: 0 for n in range(10)})), Batch(None, 0), False)
    more = table.written(lake_stress.batch_of({99: 0}))
    target = type(table.target)
    write = target.write

    def meanwhile(self, batches, prefix):
        files = write(self, batches, prefix)
        assert Table(options).commit(more, Batch(None, 0), False)
        return files

    monkeypatch.setattr(target, "write", meanwhile)
    assert compact(**options) == 2
    assert sorted(row["id"] for row in Table(options).read(lake_stress.SCHEMA)) == [*range(20), 99]


@pytest.mark.parametrize("rounds", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_overwrites_leave_only_later_rows(options, rounds):
    """Overwrites during compactions and appends: rows of the last overwrite exist, and no older row."""
    prepared(options, lake_stress.SCHEMA)

    def overwrite() -> None:
        for number in range(rounds):
            table = prepared(options, lake_stress.SCHEMA)
            rows = lake_stress.batch_of({number * 10 + n: number for n in range(10)})
            assert table.commit(table.written(rows), Batch("overwrites", number), True)

    def compacted() -> None:
        for _ in range(rounds):
            compact(**options)

    def appended() -> None:
        for number in range(rounds):
            table = prepared(options, lake_stress.SCHEMA)
            rows = lake_stress.batch_of({1_000_000 + number: -1})
            assert table.commit(table.written(rows), Batch("appends", number), False)

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(one) for one in (overwrite, compacted, appended)]:
            future.result(600)
    rows = Table(options).read(lake_stress.SCHEMA)
    assert sorted(row["id"] for row in rows if row["value"] >= 0) == [(rounds - 1) * 10 + n for n in range(10)]
    later = [row["id"] for row in rows if row["value"] < 0]
    # An overwrite removes all appends before it, so the remaining appends are the last ones.
    assert sorted(later) == [1_000_000 + n for n in range(rounds - len(later), rounds)]


def test_of_two_drivers_with_the_same_batch_one_commits(options):
    table = prepared(options, lake_stress.SCHEMA)
    for number in range(5):
        files = [table.written(lake_stress.batch_of({number: copy})) for copy in range(4)]
        with ThreadPoolExecutor(4) as pool:
            done = [pool.submit(Table(options).commit, one, Batch("query", number), False) for one in files]
            assert sorted(future.result(60) for future in done) == [False, False, False, True]
    assert sorted(row["id"] for row in table.read(pa.schema([("id", pa.int64())]))) == list(range(5))


def test_writers_that_create_a_table_together_share_it(options):
    if options["tableFormat"] == "iceberg":
        with pytest.raises(LakeError):  # SQL catalogs of pyiceberg do not create their own tables together
            Table(options).scan()

    def write(number):
        table = prepared(options, lake_stress.SCHEMA, partitionBy="part")
        return table.commit(table.written(lake_stress.batch_of({number: 0})), Batch(f"writer {number}", 0), False)

    with ThreadPoolExecutor(WORKERS) as pool:
        assert all(future.result(60) for future in [pool.submit(write, number) for number in range(WORKERS)])
    assert sorted(row["id"] for row in Table(options).read(lake_stress.SCHEMA)) == list(range(WORKERS))


def test_writers_that_add_columns_together_share_them(options):
    prepared(options, lake_stress.SCHEMA)
    wide = lake_stress.SCHEMA.append(pa.field("more", pa.string()))

    def write(number):
        table = prepared(options, wide, mergeSchema="true")
        rows = pa.RecordBatch.from_pylist([{"id": number, "value": 0, "part": 0, "more": "x"}], wide)
        return table.commit(table.written(rows), Batch(f"writer {number}", 0), False)

    with ThreadPoolExecutor(WORKERS) as pool:
        assert all(future.result(60) for future in [pool.submit(write, number) for number in range(WORKERS)])
    assert Table(options).schema().names == wide.names
    assert [row["more"] for row in Table(options).read(wide)] == ["x"] * WORKERS
