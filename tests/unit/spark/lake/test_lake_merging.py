"""Changes merged into a Delta table, without Spark: once, with the last change of each row, for any repetition."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from spark_probe import apply_by, merge_by
from tianzhou.errors import ConfigError
from tianzhou.spark.lake import tables
from tianzhou.spark.lake.formats import compact
from tianzhou.spark.lake.merging import DELETED_KEYS, MergedDelta
from tianzhou.spark.lake.tables import Batch, LakeError

COLUMNS = pa.schema(
    [
        ("_key", pa.string()),
        ("_position", pa.string()),
        ("_deleted", pa.bool_()),
        ("id", pa.int32()),
        ("Full name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)


def changes(*some):
    """Return changes of (key, position, name); without a name, a deletion."""
    rows = [
        {
            "_key": f'{{"id":{key}}}',
            "_position": f"{position:06d}",
            "_deleted": name is None,
            "id": None if name is None else key,
            "Full name": name,
            "at": None if name is None else position * 1000,
            "tags": None if name is None else [name, None],
        }
        for key, position, name in some
    ]
    return pa.Table.from_pylist(rows, COLUMNS)


def rows(path):
    found = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    assert all(row["tags"] == [row["Full name"], None] for row in found)
    return sorted((row["id"], row["Full name"]) for row in found)


NOW = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "table")


def test_the_latest_change_of_each_row_counts(path):
    table = MergedDelta(path, COLUMNS)
    assert rows(path) == []
    assert table.merge(changes((1, 1, "tea"), (2, 2, "milk"), (3, 3, "bread"), (9, 4, None)), Batch("q", 0), NOW)
    assert rows(path) == [(1, "tea"), (2, "milk"), (3, "bread")]
    # A new name, an older change, a deletion, and a new row.
    assert table.merge(changes((1, 10, "coffee"), (2, 1, "older"), (3, 11, None), (4, 12, "jam")), Batch("q", 1), NOW)
    assert rows(path) == [(1, "coffee"), (2, "milk"), (4, "jam")]
    # Older changes do not restore a deleted row, later ones do; older deletions have no effect.
    again = MergedDelta(path, COLUMNS)
    assert again.merge(changes((3, 3, "bread"), (9, 2, "never"), (1, 5, None)), Batch("q", 2), NOW)
    assert rows(path) == [(1, "coffee"), (2, "milk"), (4, "jam")]
    assert again.merge(changes((3, 20, "rolls"), (4, 21, None)), Batch("q", 3), NOW)
    assert rows(path) == [(1, "coffee"), (2, "milk"), (3, "rolls")]


def test_a_batch_is_merged_once(path):
    table = MergedDelta(path, COLUMNS)
    assert table.merge(changes((1, 1, "tea")), Batch("q", 0), NOW)
    assert table.merge(changes((1, 2, "milk")), Batch("q", 1), NOW)
    version = deltalake.DeltaTable(path).version()
    assert not MergedDelta(path, COLUMNS).merge(changes((1, 3, "other")), Batch("q", 1), NOW)
    assert not table.merge(changes((2, 3, "other")), Batch("q", 0), NOW)
    assert deltalake.DeltaTable(path).version() == version
    assert deltalake.DeltaTable(path).transaction_version("q") == 1
    # Another query has its own batches, and its old changes have no effect.
    assert table.merge(changes((1, 1, "tea")), Batch("other", 0), NOW)
    assert table.merge(changes((1, 2, "milk"), (2, 3, "jam")), Batch("other", 1), NOW)
    assert rows(path) == [(1, "milk"), (2, "jam")]


@pytest.mark.parametrize("place", ["after the deleted keys", "before the commit", "after the commit"])
def test_a_batch_that_broke_off_is_merged_by_the_next_run(path, monkeypatch, place):
    table = MergedDelta(path, COLUMNS)
    table.merge(changes((1, 1, "tea"), (2, 2, "milk")), Batch("q", 0), NOW)
    batch = changes((1, 5, None), (2, 6, "cream"), (3, 7, "jam"))

    def broken(self, where, *rest):
        if place == "before the commit" and not where.endswith(DELETED_KEYS):
            raise OSError("injected")
        whole(self, where, *rest)
        if place == "after the deleted keys" or (place == "after the commit" and not where.endswith(DELETED_KEYS)):
            raise OSError("injected")

    with monkeypatch.context() as patched:
        whole = merge_by(patched, broken)
        with pytest.raises(OSError, match="injected"):
            table.merge(batch, Batch("q", 1), NOW)
    done = place == "after the commit"
    assert rows(path) == ([(2, "cream"), (3, "jam")] if done else [(1, "tea"), (2, "milk")])
    assert MergedDelta(path, COLUMNS).merge(batch, Batch("q", 1), NOW) is not done
    assert rows(path) == [(2, "cream"), (3, "jam")]
    assert table.merge(changes((1, 1, "tea")), Batch("q", 2), NOW)
    assert rows(path) == [(2, "cream"), (3, "jam")]


def test_any_order_and_any_repetition_make_the_same_table(path):
    """Any split into batches, with any repetition: each key ends in the state of its last change."""
    chance = random.Random(4)
    every = [(chance.randrange(8), position, chance.choice([None, f"v{position}"])) for position in range(60)]
    stream = [*every, *chance.sample(every, 40)]
    number = 0
    while stream:
        cut, stream = stream[:13], stream[13:]
        newest = {key: (key, position, name) for key, position, name in sorted(cut, key=lambda one: one[1])}
        MergedDelta(path, COLUMNS).merge(changes(*newest.values()), Batch("q", number), NOW)
        number += 1
    last = {key: name for key, _, name in every}
    assert rows(path) == sorted((key, name) for key, name in last.items() if name is not None)
    # Small files are merged, and the record of deleted keys is protected from both this and vacuum.
    assert compact(path) >= 0
    deltalake.DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert rows(path) == sorted((key, name) for key, name in last.items() if name is not None)
    gone = deltalake.DeltaTable(f"{path}/{DELETED_KEYS}").to_pyarrow_table().column("_key").to_pylist()
    assert {f'{{"id":{key}}}' for key, name in last.items() if name is None} <= set(gone)


def test_another_writers_commit_is_waited_out(path, monkeypatch):
    MergedDelta(path, COLUMNS).merge(changes((1, 1, "tea"), (2, 2, "milk")), Batch("q", 0), NOW)
    others = iter([changes((1, 9, "coffee"))])

    def meanwhile(merger):
        for other in others:
            MergedDelta(path, COLUMNS).merge(other, Batch(None, 0), NOW)
        return apply(merger)

    apply = apply_by(monkeypatch, meanwhile)
    MergedDelta(path, COLUMNS).merge(changes((1, 5, "older"), (2, 6, None)), Batch("q", 1), NOW)
    assert rows(path) == [(1, "coffee")]
    monkeypatch.setattr(tables, "ATTEMPTS", 1)
    others = iter([changes((1, 10, "black coffee"))])
    with pytest.raises(LakeError, match=r"table: batch 2 is not merged: "):
        MergedDelta(path, COLUMNS).merge(changes((1, 20, "late")), Batch("q", 2), NOW)


def test_tables_that_do_not_fit_are_named(path, tmp_path):
    MergedDelta(path, COLUMNS)
    other = COLUMNS.set(3, pa.field("id", pa.string()))
    with pytest.raises(ConfigError, match="column id is string in the rows and int32 in delta table"):
        MergedDelta(path, other)
    with pytest.raises(ConfigError, match="has no column total; it has _key, _position, id, Full name"):
        MergedDelta(path, COLUMNS.append(pa.field("total", pa.int32())))
    foreign = str(tmp_path / "foreign")
    deltalake.write_deltalake(foreign, pa.table({"id": [1]}))
    with pytest.raises(
        ConfigError, match="without _key and _position, so no merge has created it; merge into a folder"
    ):
        MergedDelta(foreign, COLUMNS)


def test_old_files_and_old_deletions_go_after_the_retention(path):
    table, day = MergedDelta(path, COLUMNS), dt.timedelta(days=1)
    for number in range(6):
        table.merge(
            changes((number, number, "tea"), (100 + number, number, None)), Batch("q", number), NOW + number * day
        )
    table.maintain(3 * day, NOW + 5 * day)
    assert rows(path) == [(number, "tea") for number in range(6)]
    marks = deltalake.DeltaTable(f"{path}/{DELETED_KEYS}").to_pyarrow_table().column("_key").to_pylist()
    assert sorted(marks) == [f'{{"id":{100 + number}}}' for number in range(2, 6)]
    for where in (path, f"{path}/{DELETED_KEYS}"):
        assert len(deltalake.DeltaTable(where).file_uris()) == 1
    # The replaced files are new, so they stay for readers of older versions.
    assert len(list(Path(path).glob("*.parquet"))) > 1
    table.maintain(0 * day, NOW + 9 * day)
    assert len(list(Path(path).glob("*.parquet"))) == 1
    assert rows(path) == [(number, "tea") for number in range(6)]
    # A repeated change of a row whose deletion is forgotten restores the row, until its deletion is repeated, too.
    table.merge(changes((100, 0, "late")), Batch("q", 6), NOW)
    assert len(rows(path)) == 7
    table.merge(changes((100, 1, None)), Batch("q", 7), NOW)
    assert len(rows(path)) == 6


def test_maintenance_that_loses_a_race_is_left_to_the_next_time(path, monkeypatch, caplog):
    table = MergedDelta(path, COLUMNS)
    table.merge(changes((1, 1, "tea"), (2, 1, None)), Batch("q", 0), NOW)
    monkeypatch.setattr(tables, "ATTEMPTS", 1)
    monkeypatch.setattr(
        deltalake.DeltaTable, "delete", lambda *_, **__: (_ for _ in ()).throw(CommitFailedError("other"))
    )
    table.maintain(dt.timedelta(0), NOW + dt.timedelta(days=1))
    assert "small files and old versions are not cleaned up this time" in caplog.text
    assert rows(path) == [(1, "tea")]
