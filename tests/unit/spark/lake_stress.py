"""Workers that change a lake table at the same time, in threads or processes, and a model of its rows.

A worker owns the identifiers that it appends. It deletes and updates only its own. The model is the
rows of all workers, each once, whatever the order of their commits.
"""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
from lake_tables import Table, iceberg_table

from tianzhou.spark.lake.formats import compact
from tianzhou.spark.lake.tables import Batch

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("part", pa.int32())])
TARGET_BYTES = 1 << 20


def batch_of(values):
    rows = [{"id": key, "value": value, "part": key % 2} for key, value in values.items()]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def append(options, worker, number, values):
    """Append rows under a batch number, and repeat the batch: only the first commit may have an effect."""
    table = Table(options)
    table.prepare(SCHEMA)
    assert table.commit(table.written(batch_of(values)), Batch(f"worker {worker}", number), False)
    again = Table(options)
    again.prepare(SCHEMA)
    assert not again.commit(again.written(batch_of(values)), Batch(f"worker {worker}", number), False)


def change(options, keys, value):
    """Delete rows, or set their value, with the library alone, as other programs do."""
    listed = ", ".join(map(str, keys))
    for _ in range(200):
        try:
            if options["tableFormat"] == "iceberg":
                from pyiceberg.expressions import In

                table = iceberg_table(options)
                if value is None:
                    table.delete(In("id", keys))
                else:
                    kept = table.scan(row_filter=In("id", keys)).to_arrow().to_pylist()
                    rows = pa.Table.from_pylist([{**row, "value": value} for row in kept], table.schema().as_arrow())
                    table.overwrite(rows, overwrite_filter=In("id", keys))
                return
            import deltalake

            table = deltalake.DeltaTable(options["path"])
            if value is None:
                table.delete(f"id IN ({listed})")
                return
            rows = pa.table({"id": keys, "value": [value] * len(keys)})
            merger = table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
            merger.when_matched_update({"value": "s.value"}).execute()
            return
        except Exception as error:
            if type(error).__name__ not in {"CommitFailedError", "CommitFailedException", "ValidationException"}:
                raise
    raise AssertionError("a change lost 200 races")


def work(options, worker, rounds, seed):
    """Append, change and compact; return the rows that the worker left in the table."""
    chance, mine = random.Random(f"{seed} {worker}"), dict[int, int]()
    for number in range(rounds):
        fresh = {worker * 1_000_000 + number * 100 + n: 0 for n in range(chance.randint(1, 20))}
        append(options, worker, number, fresh)
        mine.update(fresh)
        what = chance.random()
        if what < 0.25:
            gone = chance.sample(sorted(mine), min(3, len(mine)))
            change(options, gone, None)
            for key in gone:
                del mine[key]
        elif what < 0.5:
            keys = chance.sample(sorted(mine), min(3, len(mine)))
            change(options, keys, number + 1)
            mine.update(dict.fromkeys(keys, number + 1))
        elif what < 0.85:
            compact(**options)
    return mine


def check(options, left):
    """Compare the table, as our reader and the library have it, with the rows that the workers left."""
    wanted = Counter(item for mine in left for item in mine.items())
    table = Table(options)
    assert Counter((row["id"], row["value"]) for row in table.read(SCHEMA)) == wanted
    if options["tableFormat"] == "delta":
        import deltalake

        others = deltalake.DeltaTable(options["path"]).to_pyarrow_table()
    else:
        others = iceberg_table(options).scan().to_arrow()
    assert Counter((row["id"], row["value"]) for row in others.to_pylist()) == wanted
