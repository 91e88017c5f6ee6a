import json

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tianzhou.errors import ConfigError, OffsetOutOfRange
from tianzhou.model import MessageQueue
from tianzhou.spark.offsets import DataLoss
from tianzhou.spark.schema import row_schema
from tianzhou.spark.source import TianzhouSource

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))
ALL = ReadAllAvailable()


class Fixture:
    def __init__(self, queues):
        self.queues = queues

    def source(self, **given):
        values = {"namesrvAddr": "a:1", "subscribe": "orders", "pollTimeoutMs": "1000", **given}
        source = TianzhouSource(CaseInsensitiveDict(values))
        source.connect = lambda: lambda options: self.queues
        return source

    def batch(self, **given):
        reader = self.source(**given).reader(row_schema())
        return {
            (row["queueId"], row["queueOffset"])
            for partition in reader.partitions()
            for batch in reader.read(partition)
            for row in batch.to_pylist()
        }

    def stream(self, **given):
        return self.source(**given).streamReader(row_schema())


def through_json(value):
    return json.loads(json.dumps(value))


def run(reader, start, end):
    return [
        (row["queueId"], row["queueOffset"])
        for partition in reader.partitions(through_json(start), through_json(end))
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


@pytest.fixture
def spark(queues):
    queues.add(A, 10)
    queues.add(B, 5)
    return Fixture(queues)


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


def test_the_schema_follows_include_properties(spark):
    assert "properties" in spark.source().schema().fieldNames()
    assert "properties" not in spark.source(includeProperties="false").schema().fieldNames()


# --- stream


def test_a_stream_reads_on_from_where_it_was(spark):
    reader = spark.stream(startingOffsets="earliest")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    assert len(run(reader, start, first)) == 15
    spark.queues.add(A, 2)
    second = reader.latestOffset(through_json(first), ALL)
    assert run(reader, first, second) == [(0, 10), (0, 11)]


def test_start_itself_is_returned_when_nothing_is_new(spark):
    reader = spark.stream()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) is start
    assert reader.partitions(start, start) == []


def test_the_initial_offset_is_found_out_once(spark):
    reader = spark.stream()
    first = reader.initialOffset()
    spark.queues.add(A, 5)
    assert reader.initialOffset() == first


def test_a_first_batch_that_failed_loses_nothing_after_a_restart(spark):
    reader = spark.stream(startingOffsets="latest")
    start = reader.initialOffset()
    spark.queues.add(A, 3)
    end = reader.latestOffset(start, ALL)
    logged = through_json(end)  # Spark logs it; then the batch fails and the query is started again
    spark.queues.add(A, 4)
    again = spark.stream(startingOffsets="latest")
    assert run(again, again.initialOffset(), logged) == [(0, 10), (0, 11), (0, 12)]
    rest = again.latestOffset(logged, ALL)
    assert run(again, logged, rest) == [(0, n) for n in range(13, 17)]


def test_max_offsets_per_trigger_bounds_each_batch(spark):
    reader = spark.stream(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    at, seen = reader.initialOffset(), []
    for _ in range(10):
        end = reader.latestOffset(at, limit)
        if end == at:
            break
        rows = run(reader, at, end)
        assert len(rows) <= 4
        seen += rows
        at = end
    assert len(seen) == len(set(seen)) == 15


def test_without_it_there_is_no_bound_and_read_all_ignores_it(spark):
    assert spark.stream().getDefaultReadLimit() == ALL
    reader = spark.stream(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    start = reader.initialOffset()
    assert len(run(reader, start, reader.latestOffset(start, ALL))) == 15


def test_available_now_stops_at_what_was_there(spark):
    reader = spark.stream(startingOffsets="earliest", maxOffsetsPerTrigger="6")
    reader.prepareForTriggerAvailableNow()
    at, seen = reader.initialOffset(), []
    for _ in range(10):
        spark.queues.add(A, 3)
        spark.queues.add(C, 1)
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        if end == at:
            break
        seen += run(reader, at, end)
        at = end
    assert sorted(seen) == sorted([(0, n) for n in range(10)] + [(1, n) for n in range(5)])


def test_a_new_queue_enters_at_its_first_offset(spark):
    reader = spark.stream(startingOffsets="latest")
    start = reader.initialOffset()
    spark.queues.add(C, 6)
    spark.queues.expire(C, 2)
    spark.queues.now += 2
    end = reader.latestOffset(start, ALL)
    assert run(reader, start, end) == [(2, n) for n in range(2, 6)]
    assert end["from"]["orders@broker-a:2"] == 2


def test_lost_messages_fail_a_stream_with_their_range(spark):
    reader = spark.stream(startingOffsets="earliest")
    start = reader.initialOffset()
    spark.queues.expire(A, 4)
    spark.queues.now += 2
    with pytest.raises(DataLoss, match="4 messages of orders@broker-a:0 from offset 0 to 3 are lost"):
        reader.latestOffset(start, ALL)


def test_or_are_skipped_once(spark, caplog):
    reader = spark.stream(startingOffsets="earliest", failOnDataLoss="false")
    start = reader.initialOffset()
    spark.queues.expire(A, 12)
    spark.queues.expire(B, 5)
    spark.queues.now += 2
    end = reader.latestOffset(start, ALL)
    assert run(reader, start, end) == []
    assert caplog.text.count("are lost") == 2
    assert reader.latestOffset(through_json(end), ALL) == end
    assert caplog.text.count("are lost") == 2


def test_a_batch_run_again_whose_messages_are_gone(spark):
    first = spark.stream(startingOffsets="earliest")
    start = first.initialOffset()
    logged = through_json(first.latestOffset(start, ALL))
    spark.queues.expire(A, 4)
    again = spark.stream(startingOffsets="earliest")
    with pytest.raises(DataLoss, match="from offset 0 to 3 are lost"):
        again.partitions(again.initialOffset(), logged)
    lenient = spark.stream(startingOffsets="earliest", failOnDataLoss="false")
    assert len(run(lenient, lenient.initialOffset(), logged)) == 11


def test_a_queue_that_is_away_is_waited_for_not_forgotten(spark):
    reader = spark.stream(startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    kept = spark.queues.maximum.pop(B)
    spark.queues.add(A, 1)
    spark.queues.now += 2
    without = reader.latestOffset(end, ALL)
    assert run(reader, end, without) == [(0, 10)]
    spark.queues.maximum[B] = kept
    spark.queues.add(B, 1)
    spark.queues.now += 2
    assert run(reader, without, reader.latestOffset(without, ALL)) == [(1, 5)]


def test_a_broker_that_is_away_holds_up_its_own_queues_only(spark, lost, caplog):
    there = MessageQueue("orders", "broker-b", 0)
    spark.queues.add(there, 4)
    reader = spark.stream(startingOffsets="earliest")
    start = reader.initialOffset()
    spark.queues.away = {"broker-a"}
    for _ in range(3):
        end = reader.latestOffset(start, ALL)
        assert [offset for _, offset in run(reader, start, end)] == [0, 1, 2, 3]
        spark.queues.now += 2
    assert caplog.text.count("broker-a is away and waited for") == 1
    spark.queues.away = set()
    assert len(run(reader, end, reader.latestOffset(end, ALL))) == 15


def test_a_topic_whose_route_is_gone_for_now_is_waited_for(spark, caplog):
    reader = spark.stream(startingOffsets="earliest")
    start = reader.initialOffset()
    kept, spark.queues.maximum = spark.queues.maximum, {}
    spark.queues.now += 2
    assert reader.latestOffset(start, ALL) is start
    spark.queues.maximum = kept
    spark.queues.now += 2
    assert len(run(reader, start, reader.latestOffset(start, ALL))) == 15


def test_a_start_behind_its_end_is_an_error(spark):
    reader = spark.stream()
    value = {"from": {"orders@broker-a:0": 5}, "end": {"orders@broker-a:0": 2}}
    with pytest.raises(OffsetOutOfRange, match="start at 5, behind its end 2"):
        reader.partitions(reader.initialOffset(), value)


def test_a_foreign_checkpoint_is_refused(spark):
    with pytest.raises(ConfigError, match="was not written by this source"):
        spark.stream().latestOffset({"orders": {"0": 5}}, ALL)


def test_the_latest_offset_is_reported_once_it_is_known(spark):
    reader = spark.stream()
    assert reader.reportLatestOffset() is None
    start = reader.initialOffset()
    spark.queues.add(B, 2)
    reader.latestOffset(start, ReadMaxRows(1))
    assert reader.reportLatestOffset()["end"] == {"orders@broker-a:0": 10, "orders@broker-a:1": 7}


def test_progress_is_published_only_for_a_named_group(spark, lost, caplog):
    reader = spark.stream()
    reader.commit(reader.initialOffset())
    assert spark.queues.published == {}
    reader = spark.stream(consumerGroup="audit")
    reader.commit(reader.initialOffset())
    assert spark.queues.published == {A: 10, B: 5}
    spark.queues.failures = [lost]
    reader.commit(reader.initialOffset())
    assert "progress of group audit is not published" in caplog.text


def test_a_stream_waits_for_a_broker_to_come_back(spark, lost):
    reader = spark.stream(startingOffsets="earliest", pollTimeoutMs="30000")
    start = reader.initialOffset()
    spark.queues.failures = [lost] * 200
    assert len(run(reader, start, reader.latestOffset(start, ALL))) == 15
    assert 15 < spark.queues.now < 30


def test_a_query_that_cannot_begin_says_so_soon(spark, lost):
    spark.queues.failures = [lost] * 1000
    with pytest.raises(type(lost)):
        spark.stream(pollTimeoutMs="30000").initialOffset()
    assert spark.queues.now < 3
