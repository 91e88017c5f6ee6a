"""The files that a query's conditions leave, without Spark: never too few, and no more than needed."""

from __future__ import annotations

import datetime as dt

import pytest

pytest.importorskip("pyspark")

from lake_tables import BEGIN, FIRST, ITEMS, SCHEMA, iceberg_table, options_of, path_of, prepared, row, rows
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tianzhou.spark.lake.tables import Batch

COUNT = 60
ROWS = [row(number) for number in range(COUNT)]


def table_of(options, by):
    table = prepared(options, partitionBy=by)
    table.commit(table.written(rows(0, COUNT)), Batch("q", 0), False)
    return table


def left(table, *conditions):
    """Return the files that conditions leave."""
    return table.scan(conditions)


def less(value, other):
    return value is not None and value < other


CONDITIONS = [
    ("queue", EqualTo(("queue",), 3), lambda v: v == 3),
    ("queue", EqualTo(("QUEUE",), 3), lambda v: v == 3),
    ("queue", In(("queue",), (1, 3, None)), lambda v: v in (1, 3)),
    ("queue", LessThan(("queue",), 2), lambda v: less(v, 2)),
    ("queue", LessThanOrEqual(("queue",), 2), lambda v: less(v, 3)),
    ("queue", GreaterThan(("queue",), 2), lambda v: v is not None and v > 2),
    ("queue", GreaterThanOrEqual(("queue",), 2), lambda v: v is not None and v >= 2),
    ("queue", IsNull(("queue",)), lambda v: v is None),
    ("queue", IsNotNull(("queue",)), lambda v: v is not None),
    ("queue", Not(IsNull(("queue",))), lambda v: v is not None),
    ("queue", EqualTo(("queue",), 99), lambda v: False),
    ("queue", EqualNullSafe(("queue",), 3), lambda v: v == 3),
    ("item", EqualTo(("item",), ITEMS[1]), lambda v: v == ITEMS[1]),
    ("item", EqualTo(("item",), "NULL"), lambda v: v == "NULL"),
    ("item", GreaterThan(("item",), "a"), lambda v: v is not None and v > "a"),
    ("item", In(("item",), ("tea", "milk")), lambda v: v == "tea"),
    ("item", IsNull(("item",)), lambda v: v is None),
    ("item", StringStartsWith(("item",), "a="), lambda v: v == ITEMS[1]),
    ("day", EqualTo(("day",), FIRST), lambda v: v == FIRST),
    ("day", LessThan(("day",), dt.date(1970, 1, 1)), lambda v: v == FIRST),
    ("day", In(("day",), (FIRST, dt.date(1970, 1, 2))), lambda v: v in (FIRST, dt.date(1970, 1, 2))),
    ("done", EqualTo(("done",), True), lambda v: v),
    ("done", Not(EqualTo(("done",), True)), lambda v: not v),
]
"""A partition column of a table, a condition, and its result for a value."""


@pytest.mark.parametrize("by", ["queue", "item", "day", "done"])
def test_files_of_other_partitions_are_left_out(options, by):
    table = table_of(options, by)
    everything = set(table.paths())
    for column, condition, selects in CONDITIONS:
        if column != by:
            continue
        files = left(table, condition)
        assert {path_of(file) for file in files} <= everything
        wanted = [one for one in ROWS if selects(one[by])]
        assert len(files) == len({one[by] for one in wanted}), condition
        assert sorted(one["id"] for one in table.read(SCHEMA, files)) == [one["id"] for one in wanted], condition


def test_conditions_hold_together(options):
    table = table_of(options, "queue,day")
    both = [GreaterThan(("queue",), 1), EqualTo(("day",), FIRST), GreaterThan(("id",), 10), EqualTo(("item",), "tea")]
    assert len(left(table, *both)) == len(
        {one["queue"] for one in ROWS if one["day"] == FIRST and (one["queue"] or 0) > 1}
    )
    # Later files in the same partitions, without a stated partitioning, are pruned as well.
    assert left(table, IsNull(("queue",)), IsNull(("day",))) == []


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("id",), 1),
        EqualTo(("unknown",), 1),
        EqualTo(("queue", "inside"), 1),
        EqualTo(("queue",), "1"),
        EqualTo(("queue",), True),
        EqualTo(("queue",), 1.0),
        In(("queue",), (1, "2")),
        LessThan(("queue",), dt.date(1970, 1, 1)),
        Not(LessThan(("queue",), "1")),
        IsNull(("id",)),
    ],
)
def test_other_conditions_leave_no_file_out(options, condition):
    table = table_of(options, "queue")
    whole, some = table.read(SCHEMA), table.read(SCHEMA, left(table, condition))
    # A comparison with a value of another type only excludes null.
    assert {one["queue"] for one in whole if one not in some} <= {None}


def test_a_table_without_partitions_is_read_whole(options):
    table = prepared(options)
    for number in range(3):
        table.commit(table.written(rows(number * 20, 20)), Batch("q", number), False)
    assert len(left(table, EqualTo(("queue",), 3), IsNull(("id",)))) == 3


def test_iceberg_leaves_out_by_times_and_by_former_partitions(tmp_path):
    options = options_of("iceberg", tmp_path)
    for transform in ("year", "month", "day", "hour"):
        table = table_of({**options, "table": f"lake.{transform}"}, f"{transform}(at)")
        parts = table.scan()
        every = len(parts)
        # Each file is read once: hundreds of conditions leave the same sixty files.
        times = {path_of(part): {one["at"] for one in table.read(SCHEMA, [part])} for part in parts}
        for number in range(0, COUNT, 7):
            at = row(number)["at"]
            hits = {
                EqualTo: [at],
                GreaterThan: [one["at"] for one in ROWS if one["at"] > at],
                LessThanOrEqual: [one["at"] for one in ROWS if one["at"] <= at],
            }
            for kind, wanted in hits.items():
                assert set(wanted) <= set().union(*(times[path_of(file)] for file in left(table, kind(("at",), at))))
        one_hour = GreaterThanOrEqual(("at",), BEGIN), LessThan(("at",), BEGIN + dt.timedelta(minutes=30))
        assert len(left(table, *one_hour)) < every
        if transform == "hour":
            assert len(left(table, *one_hour)) == 1
    # A time without a zone is another type, so it prunes nothing.
    assert len(left(table, EqualTo(("at",), BEGIN.replace(tzinfo=None)))) == every
    # Partitions that the table got later, and files from before.
    with iceberg_table({**options, "table": "lake.hour"}).update_spec() as update:
        update.add_identity("queue")
    more = prepared({**options, "table": "lake.hour"})
    more.commit(more.written(rows(0, 14)), Batch("q", 1), False)
    files = left(more, EqualTo(("queue",), 3))
    found = [one["id"] for one in more.read(SCHEMA, files)]
    assert sorted(number for number in found if row(number)["queue"] == 3) == sorted(
        [3, 10, *(number for number in range(COUNT) if row(number)["queue"] == 3)]
    )
    assert len(files) < len(more.scan())


def test_conditions_without_an_exact_counterpart_leave_no_file_out(options):
    class Other(Filter):
        attribute = ("queue",)
        value = 7

    table = table_of(options, "queue,item")
    whole = len(table.scan())
    for doubtful in (Other(), Not(Other()), StringEndsWith(("item",), "b"), StringContains(("item",), "b")):
        assert len(left(table, doubtful)) == whole
    # Like in SQL, null is neither equal nor different, and NOT (x IN (…, NULL)) may keep more files than it must.
    known = {one["id"] for one in ROWS if one["queue"] is not None}
    for unequal in (Not(EqualTo(("queue",), 2)), Not(In(("queue",), (2, None)))):
        found = {one["id"] for one in table.read(SCHEMA, left(table, unequal))}
        assert found >= {one["id"] for one in ROWS if one["id"] in known and one["queue"] != 2}
        assert not found & {one["id"] for one in ROWS if one["queue"] == 2}
