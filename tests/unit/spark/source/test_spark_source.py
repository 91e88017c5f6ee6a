"""The source in batches without Spark: its rows, its split into tasks, conditions pushed down."""

import json
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
)
from source_fixture import A, B, read

from tianzhou.errors import ConfigError, OffsetOutOfRange
from tianzhou.model import MessageQueue
from tianzhou.spark.rows.schema import COLUMNS, row_schema
from tianzhou.spark.source.offsets import DataLoss

# --- batch


def test_a_batch_reads_everything_by_default(spark):
    assert spark.batch() == {(0, n) for n in range(10)} | {(1, n) for n in range(5)}


def test_a_batch_between_given_offsets(spark):
    start = '{"orders": {"broker-a": {"0": 3, "1": -2}}}'
    end = '{"orders": {"broker-a": {"0": 6, "1": -1}}}'
    assert spark.batch(startingOffsets=start, endingOffsets=end) == (
        {(0, n) for n in range(3, 6)} | {(1, n) for n in range(5)}
    )


def test_a_batch_between_given_times(spark):
    got = spark.batch(startingTimestamp="1002", endingTimestamp="1004")
    assert got == {(number, n) for number in (0, 1) for n in (2, 3)}


def test_a_batch_that_ends_before_it_starts(spark):
    assert spark.batch(startingTimestamp="1004", endingTimestamp="1002") == set()
    start, end = (json.dumps({"orders": {"broker-a": {"0": at, "1": 0}}}) for at in (6, 3))
    with pytest.raises(OffsetOutOfRange, match="orders@broker-a:0: the batch would start at 6, behind its end 3"):
        spark.batch(startingOffsets=start, endingOffsets=end)


def test_an_unknown_topic_is_named(spark):
    with pytest.raises(Exception, match="topic nothing does not exist"):
        spark.batch(subscribe="orders,nothing")


def test_lost_messages_of_a_batch(spark):
    spark.queues.expire(A, 4)
    start = '{"orders": {"broker-a": {"0": 1, "1": 0}}}'
    with pytest.raises(DataLoss, match="from offset 1 to 3 are lost"):
        spark.batch(startingOffsets=start)
    assert (0, 4) in spark.batch(startingOffsets=start, failOnDataLoss="false")


def test_partitions_follow_the_wishes(spark):
    assert len(spark.source(minPartitions="6").reader(row_schema()).partitions()) >= 6
    assert len(spark.batch(minPartitions="6")) == 15
    spark.queues.add(A, 20_000)
    spark.queues.add(B, 20_000)
    assert len(spark.source().reader(row_schema()).partitions()) == 2
    assert len(spark.source(maxRecordsPerPartition="5003").reader(row_schema()).partitions()) == 8


def test_small_ranges_share_a_task(spark):
    partitions = spark.source().reader(row_schema()).partitions()
    assert [[span.queue for span in partition.spans] for partition in partitions] == [[A, B]]


def test_sparks_stand_in_for_no_partitions_has_no_rows(spark):
    assert list(spark.source().reader(row_schema()).read(InputPartition(None))) == []


def test_a_pattern_reads_every_topic_it_matches(spark):
    spark.queues.add(MessageQueue("orders-eu", "broker-b", 7), 2)
    spark.queues.add(MessageQueue("bills", "broker-b", 8), 2)
    assert spark.batch(subscribePattern="orders.*") == spark.batch() | {(7, 0), (7, 1)}
    with pytest.raises(ConfigError, match=r"subscribePattern=x\.\*: no topic has such a name; there are bills, orders"):
        spark.batch(subscribePattern="x.*")


def test_queues_can_be_assigned(spark):
    assert spark.batch(assign='{"orders": [1]}') == {(1, n) for n in range(5)}
    with pytest.raises(ConfigError, match="assign: there is no queue 5 of orders; there are orders@broker-a:0, "):
        spark.batch(assign='{"orders": [5]}')


def test_positions_of_assigned_queues(spark):
    start = '{"orders": {"broker-a": {"1": 3}}}'
    assert spark.batch(assign='{"orders": [1]}', startingOffsets=start) == {(1, 3), (1, 4)}
    with pytest.raises(ConfigError, match=r"there is no queue orders@broker-a:1; give one for each.*: orders@"):
        spark.batch(assign='{"orders": [0]}', startingOffsets='{"orders": {"broker-a": {"0": 0, "1": 3}}}')


def test_times_queue_by_queue(spark):
    start = '{"orders": {"broker-a": {"0": 1008, "1": "1970-01-01T00:00:01.003Z"}}}'
    assert spark.batch(startingTimestamp=start) == {(0, 8), (0, 9), (1, 3), (1, 4)}
    end = '{"orders": {"broker-a": {"0": 1001, "1": 1000}}}'
    assert spark.batch(endingTimestamp=end) == {(0, 0)}


def test_sql_is_left_to_the_broker(spark):
    assert spark.batch(sql="n > 7") == {(0, 8), (0, 9)}


def test_a_broker_that_cannot_evaluate_sql_ends_the_query_with_what_to_set(spark):
    spark.queues.sql_off = True
    with pytest.raises(ConfigError, match=r"sql=n > 7: .* does not filter by SQL92 \(set enablePropertyFilter=true"):
        spark.batch(sql="n > 7")


# --- conditions pushed down


def narrowed(spark, *filters, **options):
    reader = spark.source(filterPushdown="true", **options).reader(row_schema())
    assert list(reader.pushFilters(list(filters))) == list(filters)  # Spark evaluates all of them again
    partitions = reader.partitions()
    return read(reader, partitions), [span for partition in partitions for span in partition.spans]


def test_only_a_reader_that_is_asked_to_takes_conditions(spark):
    assert type(spark.source().reader(row_schema())).pushFilters is DataSourceReader.pushFilters


def test_pushed_queues_and_offsets_are_all_that_is_read(spark):
    rows, _ = narrowed(spark, EqualTo(("queueId",), 1), GreaterThan(("queueOffset",), 2))
    assert rows == [(1, 3), (1, 4)]
    assert [ask.offset for asks in spark.queues.rounds for ask in asks] == [3]


def test_pushed_tags_are_left_to_the_broker(spark):
    spark.queues.add(A, 10, tag=lambda offset: "AB"[offset % 2])
    assert narrowed(spark, EqualTo(("tags",), "A"))[0] == [(0, n) for n in range(10, 20, 2)]
    assert narrowed(spark, In(("tags",), ["A", "B"]), tags="B || C")[0] == [(0, n) for n in range(11, 20, 2)]
    assert narrowed(spark, EqualTo(("tags",), "A"), tags="B")[1] == []
    assert narrowed(spark, EqualTo(("tags",), "A"), EqualTo(("tags",), "B"))[1] == []
    assert len(narrowed(spark, EqualTo(("tags",), "A"), sql="n > 15")[0]) == 4


def test_pushed_times_are_looked_up(spark):
    spark.queues.add(A, 10, at_ms=100_000)
    spark.queues.add(A, 10, at_ms=200_000)
    at = datetime.fromtimestamp(100, UTC)
    rows, _ = narrowed(spark, GreaterThanOrEqual(("storeTimestamp",), at))
    assert rows == [(0, n) for n in range(10, 30)]
    rows, _ = narrowed(spark, LessThan(("storeTimestamp",), at))
    assert set(rows) >= {(0, n) for n in range(10)} | {(1, n) for n in range(5)}
    assert (0, 25) not in rows


def test_lost_messages_that_are_not_needed_are_no_loss(spark):
    spark.queues.expire(A, 4)
    start = '{"orders": {"broker-a": {"0": 1, "1": 0}}}'
    assert narrowed(spark, GreaterThan(("queueOffset",), 7), startingOffsets=start)[0] == [(0, 8), (0, 9)]


LEAN = ["topic", "brokerName", "queueId", "queueOffset", "tags", "keys", "body", "bornTimestamp", "storeTimestamp"]


def test_a_query_that_asks_for_nothing_gets_the_lean_row(spark):
    assert spark.source().schema().fieldNames() == LEAN
    assert spark.source(includeProperties="false", includeMetadata="false").schema().fieldNames() == LEAN


def test_what_costs_comes_by_options(spark):
    assert set(spark.source(includeProperties="true").schema().fieldNames()) == {*LEAN, "properties"}
    metadata = {"msgId", "bornHost", "storeHost", "reconsumeTimes", "sysFlag", "physicalOffset"}
    assert set(spark.source(includeMetadata="true").schema().fieldNames()) == {*LEAN, *metadata}
    whole = spark.source(includeProperties="true", includeMetadata="true").schema()
    assert whole.fieldNames() == list(COLUMNS)


def test_an_option_that_is_misspelled_is_named_with_the_nearest(spark):
    with pytest.raises(ConfigError, match=r"no option includemetadatas=true \(did you mean includeMetadata\?\)"):
        spark.source(includemetadatas="true").schema()
