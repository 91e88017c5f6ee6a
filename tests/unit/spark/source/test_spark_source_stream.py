"""The source as a stream without Spark: where it resumes, and its errors about lost messages."""

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows, ReadMinRows
from source_fixture import ALL, A, B, C, rest, run, through_json

from tianzhou.errors import ConfigError, ConnectFailed, CorruptRecord, OffsetOutOfRange
from tianzhou.model import MessageQueue
from tianzhou.spark.source.offsets import DataLoss
from tianzhou.wire.properties import encode_properties


def test_a_stream_reads_on_from_where_it_was(spark):
    reader, start = spark.begun(startingOffsets="earliest")
    first = reader.latestOffset(start, ALL)
    assert len(run(reader, start, first)) == 15
    spark.queues.add(A, 2)
    second = reader.latestOffset(through_json(first), ALL)
    assert run(reader, first, second) == [(0, 10), (0, 11)]


def test_start_itself_is_returned_when_nothing_is_new(spark):
    reader, start = spark.begun()
    assert reader.latestOffset(start, ALL) is start
    assert reader.partitions(start, start) == []


def test_the_initial_offset_is_found_out_once(spark):
    reader = spark.stream()
    first = reader.initialOffset()
    spark.queues.add(A, 5)
    assert reader.initialOffset() == first


def test_a_first_batch_that_failed_loses_nothing_after_a_restart(spark):
    reader, start = spark.begun(startingOffsets="latest")
    spark.queues.add(A, 3)
    end = reader.latestOffset(start, ALL)
    logged = through_json(end)  # Spark logs the offset; then the batch fails and the query restarts
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
    reader, start = spark.begun(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert len(rest(reader, start)) == 15


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
    reader, start = spark.begun(startingOffsets="latest")
    spark.queues.add(C, 6)
    spark.queues.expire(C, 2)
    spark.queues.now += 2
    end = reader.latestOffset(start, ALL)
    assert run(reader, start, end) == [(2, n) for n in range(2, 6)]
    assert end["from"]["orders@broker-a:2"] == 2


def test_lost_messages_fail_a_stream_with_their_range(spark):
    reader, start = spark.begun(startingOffsets="earliest")
    spark.queues.expire(A, 4)
    spark.queues.now += 2
    with pytest.raises(DataLoss, match="4 messages of orders@broker-a:0 from offset 0 to 3 are lost"):
        reader.latestOffset(start, ALL)


def test_or_are_skipped_once(spark, caplog):
    reader, start = spark.begun(startingOffsets="earliest", failOnDataLoss="false")
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
    reader, start = spark.begun(startingOffsets="earliest")
    end = reader.latestOffset(start, ALL)
    before = spark.queues.maximum.pop(B)
    spark.queues.add(A, 1)
    spark.queues.now += 2
    without = reader.latestOffset(end, ALL)
    assert run(reader, end, without) == [(0, 10)]
    spark.queues.maximum[B] = before
    spark.queues.add(B, 1)
    spark.queues.now += 2
    assert rest(reader, without) == [(1, 5)]


def test_a_broker_that_is_away_holds_up_its_own_queues_only(spark, lost, caplog):
    there = MessageQueue("orders", "broker-b", 0)
    spark.queues.add(there, 4)
    reader, start = spark.begun(startingOffsets="earliest")
    spark.queues.away = {"broker-a"}
    for _ in range(3):
        end = reader.latestOffset(start, ALL)
        assert [offset for _, offset in run(reader, start, end)] == [0, 1, 2, 3]
        spark.queues.now += 2
    assert caplog.text.count("broker-a is away and waited for") == 1
    spark.queues.away = set()
    assert len(rest(reader, end)) == 15


def test_a_topic_whose_route_is_gone_for_now_is_waited_for(spark, caplog):
    reader, start = spark.begun(startingOffsets="earliest")
    before, spark.queues.maximum = spark.queues.maximum, {}
    spark.queues.unregistered = {"broker-a"}
    spark.queues.now += 2
    assert reader.latestOffset(start, ALL) is start
    spark.queues.maximum, spark.queues.unregistered = before, set()
    spark.queues.now += 2
    assert len(rest(reader, start)) == 15


def test_a_route_that_comes_back_soon_is_no_deletion(spark):
    reader, start = spark.begun(startingOffsets="earliest")
    before, spark.queues.maximum = spark.queues.maximum, {}
    spark.queues.now += 2

    def come_back():
        spark.queues.maximum = before

    spark.queues.on_wait = come_back
    assert len(rest(reader, start)) == 15


def test_a_deleted_topic_fails_the_stream_with_what_was_unread(spark):
    reader = spark.stream(subscribe="orders,bills", startingOffsets="latest")
    with pytest.raises(Exception, match="topic bills does not exist"):
        reader.initialOffset()
    spark.queues.add(MessageQueue("bills", "broker-b", 0), 3)
    start = reader.initialOffset()
    spark.queues.add(A, 4)
    reader.latestOffset(start, ALL)
    spark.queues.delete("orders")
    spark.queues.now += 2
    with pytest.raises(DataLoss) as caught:
        reader.latestOffset(start, ALL)
    text = str(caught.value)
    assert "4 messages of orders@broker-a:0 from offset 10 to 13 are lost: topic orders is deleted from broker" in text
    assert "orders@broker-a:1 is lost at offset 5, with no message known to be unread: topic orders is deleted" in text


def test_a_deletion_between_two_looks_around_is_seen_as_well(spark):
    reader = spark.stream(startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    spark.queues.delete("orders")
    with pytest.raises(DataLoss, match=r"orders@broker-a:0 is lost at offset 10.*topic orders is deleted"):
        reader.latestOffset(end, ALL)


def test_or_is_reported_once_and_left(spark, caplog):
    other = MessageQueue("bills", "broker-b", 0)
    spark.queues.add(other, 3)
    options = {"subscribe": "orders,bills", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    reader = spark.stream(**options)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    spark.queues.delete("orders")
    spark.queues.add(other, 1)
    spark.queues.now += 2
    after = reader.latestOffset(through_json(end), ALL)
    assert run(reader, end, after) == [(0, 3)]
    assert caplog.text.count("topic orders is deleted") == 2
    for _ in range(3):
        spark.queues.now += 2
        assert reader.latestOffset(through_json(after), ALL) == after
    assert caplog.text.count("topic orders is deleted") == 2
    assert caplog.text.count("orders is away") <= 1
    spark.queues.add(A, 2)  # created again: it is read from its beginning
    spark.queues.now += 2
    assert rest(reader, after) == [(0, 0), (0, 1)]


def test_a_deleted_topic_found_at_a_restart(spark):
    reader = spark.stream(startingOffsets="earliest")
    logged = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    spark.queues.delete("orders")
    spark.queues.add(MessageQueue("bills", "broker-a", 0), 3)
    again = spark.stream(subscribe="orders,bills")
    with pytest.raises(DataLoss, match="all messages of orders@broker-a:0 from offset 10 on are lost: topic orders is"):
        again.latestOffset(logged, ALL)
    with pytest.raises(DataLoss, match="10 messages of orders@broker-a:0 from offset 0 to 9 are lost: topic orders is"):
        again.partitions({}, logged)
    lenient = spark.stream(subscribe="orders,bills", failOnDataLoss="false")
    assert run(lenient, {}, logged) == []
    assert rest(lenient, logged) == [(0, 0), (0, 1), (0, 2)]


def test_a_queue_taken_away_with_unread_messages(spark):
    reader, start = spark.begun(startingOffsets="latest")
    spark.queues.add(B, 2)
    spark.queues.unreadable = {B}
    spark.queues.now += 2
    with pytest.raises(DataLoss, match="2 messages of orders@broker-a:1 from offset 5 to 6 are lost: topic orders"):
        reader.latestOffset(start, ALL)


def test_a_queue_taken_away_after_it_was_read_is_no_loss(spark):
    reader, start = spark.begun(startingOffsets="latest")
    spark.queues.unreadable = {B}
    spark.queues.now += 2
    assert reader.latestOffset(start, ALL) is start
    waited = spark.queues.now
    assert reader.latestOffset(start, ALL) is start
    assert spark.queues.now - waited < 0.5  # the source does not wait for it again
    spark.queues.unreadable = set()
    spark.queues.add(B, 1)
    spark.queues.now += 2
    assert rest(reader, start) == [(1, 5)]


def test_topics_that_come_and_match_are_read_from_their_start(spark, caplog):
    reader, start = spark.begun(subscribePattern="bills.*", startingOffsets="latest")
    assert "subscribePattern=bills.*: no topic has such a name" in caplog.text
    assert reader.latestOffset(start, ALL) is start
    spark.queues.add(MessageQueue("bills-eu", "broker-b", 0), 3)
    spark.queues.now += 2
    assert rest(reader, start) == [(0, 0), (0, 1), (0, 2)]


def test_new_brokers_enter_at_their_first_offset(spark):
    reader, start = spark.begun(assign='{"orders": [0]}', startingOffsets="latest")
    spark.queues.add(MessageQueue("orders", "broker-b", 0), 3)
    spark.queues.add(MessageQueue("orders", "broker-b", 1), 3)
    spark.queues.now += 2
    assert rest(reader, start) == [(0, 0), (0, 1), (0, 2)]


def test_a_topic_no_longer_subscribed_keeps_its_position(spark):
    spark.queues.add(MessageQueue("bills", "broker-b", 0), 3)
    first = spark.stream(subscribe="orders,bills", startingOffsets="earliest")
    end = through_json(first.latestOffset(first.initialOffset(), ALL))
    spark.queues.add(A, 1)
    without = spark.stream(subscribe="bills")
    assert without.latestOffset(end, ALL) == end
    again = spark.stream(subscribe="orders,bills")
    assert rest(again, end) == [(0, 10)]


def test_a_micro_batch_waits_until_it_is_worth_it(spark):
    reader = spark.stream(minOffsetsPerTrigger="4", maxTriggerDelay="5s", startingOffsets="latest")
    assert reader.getDefaultReadLimit() == ReadMinRows(4)
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    assert reader.latestOffset(start, limit) is start
    spark.queues.add(A, 3)
    assert reader.latestOffset(start, limit) is start
    assert reader.reportLatestOffset()["end"]["orders@broker-a:0"] == 13  # the lag is reported meanwhile
    spark.queues.add(B, 1)
    end = reader.latestOffset(start, limit)
    assert len(run(reader, start, end)) == 4
    spark.queues.add(A, 1)
    assert reader.latestOffset(end, limit) is end
    spark.queues.now += 6
    assert run(reader, end, reader.latestOffset(end, limit)) == [(0, 13)]


def test_least_and_most_messages_of_a_trigger(spark):
    reader = spark.stream(minOffsetsPerTrigger="3", maxOffsetsPerTrigger="6", startingOffsets="earliest")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(6)
    at, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(at, limit)) is not at:
        sizes.append(len(run(reader, at, end)))
        at = end
    assert sizes == [6, 6, 3]


def test_nothing_waits_when_all_there_is_is_wanted(spark):
    reader, start = spark.begun(minOffsetsPerTrigger="100", startingOffsets="earliest")
    assert len(rest(reader, start)) == 15  # trigger(once=True)
    reader = spark.stream(minOffsetsPerTrigger="100", startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    assert len(run(reader, start, reader.latestOffset(start, reader.getDefaultReadLimit()))) == 15


def test_available_now_needs_its_topics_when_it_begins(spark):
    reader = spark.stream(subscribe="orders,nothing")
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(Exception, match="topic nothing does not exist"):
        reader.initialOffset()
    spark.queues.away.update({"broker-a", "broker-b"})
    reader = spark.stream()
    with pytest.raises(ConnectFailed):
        reader.prepareForTriggerAvailableNow()


def test_available_now_names_what_is_lost_with_a_deleted_topic(spark, caplog):
    other = MessageQueue("bills", "broker-b", 0)
    spark.queues.add(other, 3)
    options = {"subscribe": "orders,bills", "startingOffsets": "earliest"}
    reader = spark.stream(**options)
    logged = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    spark.queues.delete("orders")
    spark.queues.add(other, 2)
    again = spark.stream(**options)
    again.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss) as caught:
        again.latestOffset(logged, again.getDefaultReadLimit())
    for queue, offset in ((A, 10), (B, 5)):
        lost = f"all messages of {queue} from offset {offset} on are lost: topic orders is deleted from broker-a"
        assert lost in str(caught.value)
    lenient = spark.stream(**options, failOnDataLoss="false")
    lenient.prepareForTriggerAvailableNow()
    assert rest(lenient, logged) == [(0, 3), (0, 4)]
    assert "all messages of orders@broker-a:0 from offset 10 on are lost" in caplog.text


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
    reader, start = spark.begun(startingOffsets="earliest", pollTimeoutMs="30000")
    spark.queues.failures = [lost] * 200
    assert len(rest(reader, start)) == 15
    assert 15 < spark.queues.now < 30


def test_a_query_that_cannot_begin_says_so_soon(spark, lost):
    spark.queues.failures = [lost] * 1000
    with pytest.raises(type(lost)):
        spark.stream(pollTimeoutMs="30000").initialOffset()
    assert spark.queues.now < 3


def test_a_light_queue_has_offsets_of_its_own(spark):
    light = MessageQueue("%LMQ%a", "broker-a", 0)
    spark.queues.add(light, 40)
    for offset, record in spark.queues.records[light].items():
        # As brokers send them: the main topic's queue, and the further queues of the record.
        record.topic, record.queue_id, record.queue_offset = "orders", 1, 1000 - 3 * offset
        more = {"INNER_MULTI_DISPATCH": "%LMQ%b,%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": f"7,{offset}"}
        record.properties += encode_properties(more)
    wanted = {"subscribe": "%LMQ%a", "startingOffsets": '{"%LMQ%a": {"broker-a": {"0": 3}}}'}
    assert spark.batch(**wanted) == {(0, offset) for offset in range(3, 40)}
    reader, start = spark.begun(subscribe="%LMQ%a", startingOffsets="earliest")
    assert rest(reader, start) == [(0, offset) for offset in range(40)]
    spark.queues.expire(light, 10)
    spark.queues.now += 2
    with pytest.raises(DataLoss, match=r"10 messages of %LMQ%a@broker-a:0 from offset 0 to 9 are lost"):
        reader.latestOffset(start, ALL)
    spark.queues.records[light][20].properties = b""
    with pytest.raises(CorruptRecord, match=r"from %LMQ%a@broker-a:0, .* does not say its offset there"):
        spark.batch(subscribe="%LMQ%a", failOnDataLoss="false")


def test_a_stream_whose_options_are_refused_says_so_when_it_is_asked(spark):
    refused = spark.stream(endingOffsets="latest")
    for ask in (
        refused.initialOffset,
        refused.getDefaultReadLimit,
        refused.prepareForTriggerAvailableNow,
        lambda: refused.latestOffset({}, ALL),
        lambda: refused.partitions({}, {}),
    ):
        with pytest.raises(ConfigError, match="endingOffsets=latest: a stream has no end"):
            ask()
    refused.stop()


def test_a_time_that_a_queue_has_nothing_behind_is_its_end_or_an_error(spark):
    later = {"startingTimestamp": "4000000000000"}
    _, start = spark.begun(**later)
    assert start["end"][str(A)] == 10
    for strict in (spark.stream(**later, startingOffsetsByTimestampStrategy="error").initialOffset,
                   lambda: spark.batch(**later, startingOffsetsByTimestampStrategy="error")):  # fmt: skip
        with pytest.raises(ConfigError, match="nothing is stored at that time or later in orders@broker-a:0, orders@"):
            strict()
    spark.begun(startingTimestamp="0", startingOffsetsByTimestampStrategy="error", assign='{"orders": [0]}')
