"""Marks: a re-created topic is detected, and the watermark of all queues is ahead of none."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st
from source_fixture import ALL, A, B, rest, run, through_json

from tianzhou.model import MessageQueue
from tianzhou.spark.source.marks import (
    AWAY_MS,
    MARKS,
    SLOWEST,
    ReadMark,
    made_again,
    marks_of,
    reached_of,
    renamed,
    slowest,
    to_check,
)
from tianzhou.spark.source.offsets import DataLoss, QueueBounds, SlaveBounds

LATER_MS = 1_000_000


def made_new(spark: Any, count: int) -> None:
    """Delete the topic and create it again with more recent messages."""
    spark.queues.delete("orders")
    for queue in (A, B):
        spark.queues.add(queue, count, at_ms=LATER_MS)
    spark.queues.now += 2


# --- a topic that was deleted and created again


def test_a_topic_made_again_with_more_messages_is_an_error_by_queue_and_offset(spark: Any) -> None:
    reader, start = spark.begun(startingOffsets="earliest")
    end = through_json(reader.latestOffset(start, ALL))
    made_new(spark, 20)
    for again in (reader, spark.stream(startingOffsets="earliest")):
        with pytest.raises(DataLoss) as caught:
            again.latestOffset(end, ALL)
        text = str(caught.value)
        assert "orders@broker-a:0 holds other messages than those that were read up to offset 10" in text
        assert "orders@broker-a:1 holds other messages than those that were read up to offset 5" in text
        assert "the message at offset 9 was stored at 1970-01-01T00:16:40.009+00:00" in text
        assert "failOnDataLoss=false" in text


def test_or_is_read_from_its_first_message(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    reader = spark.stream(**options)
    end = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    made_new(spark, 20)
    again = spark.stream(**options)
    after = through_json(again.latestOffset(end, ALL))
    assert sorted(run(again, end, after)) == sorted((number, n) for number in (0, 1) for n in range(20))
    assert caplog.text.count("holds other messages") == 2
    spark.queues.add(A, 1, at_ms=LATER_MS)
    spark.queues.now += 2
    assert rest(again, after) == [(0, 20)]


def test_a_topic_made_again_with_fewer_messages_is_read_from_its_first_message(spark: Any) -> None:
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    reader = spark.stream(**options)
    end = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    made_new(spark, 3)
    assert sorted(rest(spark.stream(**options), end)) == sorted((number, n) for number in (0, 1) for n in range(3))


def test_a_queue_that_lost_its_end_goes_on_with_what_came_instead(spark: Any) -> None:
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    reader = spark.stream(**options)
    end = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    spark.queues.truncate(A, 7)
    spark.queues.add(A, 5, at_ms=LATER_MS)
    with pytest.raises(DataLoss, match=r"orders@broker-a:0 holds other .* its broker lost the end of the queue"):
        spark.stream(startingOffsets="earliest").latestOffset(end, ALL)
    assert rest(spark.stream(**options), end) == [(0, n) for n in range(7, 12)]


def test_a_batch_that_is_run_again_does_not_read_the_new_topic_for_the_old_one(spark: Any) -> None:
    first = spark.stream(startingOffsets="earliest")
    start = first.initialOffset()
    logged = through_json(first.latestOffset(start, ALL))
    made_new(spark, 20)
    with pytest.raises(DataLoss, match="orders@broker-a:0 holds other messages"):
        spark.stream(startingOffsets="earliest").partitions(start, logged)
    lenient = spark.stream(startingOffsets="earliest", failOnDataLoss="false")
    assert run(lenient, start, logged) == []
    assert len(rest(lenient, logged)) == 40


def test_the_end_of_a_topic_where_a_query_began_is_recognised_too(spark: Any) -> None:
    start = through_json(spark.stream(startingOffsets="latest").initialOffset())
    made_new(spark, 20)
    with pytest.raises(DataLoss, match="orders@broker-a:1 holds other messages"):
        spark.stream(startingOffsets="latest").latestOffset(start, ALL)


def test_checkpoints_without_marks_are_read_as_before(spark: Any) -> None:
    reader, start = spark.begun(startingOffsets="earliest")
    end = through_json(reader.latestOffset(start, ALL))
    old = {part: end[part] for part in ("end", "from")}
    spark.queues.add(A, 2)
    spark.queues.now += 2
    again = spark.stream(startingOffsets="earliest")
    assert rest(again, old) == [(0, 10), (0, 11)]
    assert run(again, start, old) == run(reader, start, end)


@pytest.mark.parametrize("change", ["expired", "compacted", "slave"])
def test_what_cannot_be_compared_is_no_loss(spark: Any, change: str) -> None:
    reader, start = spark.begun(startingOffsets="earliest")
    end = through_json(reader.latestOffset(start, ALL))
    spark.queues.add(A, 2)
    if change == "expired":
        spark.queues.expire(A, 10)
    elif change == "compacted":
        del spark.queues.records[A][9]
    else:
        places = to_check(marks_of(end), {A: SlaveBounds(0, 3), B: QueueBounds(0, 5)})
        assert places == {B: 4}
        return
    spark.queues.now += 2
    assert rest(spark.stream(startingOffsets="earliest"), end) == [(0, 10), (0, 11)]


def test_micro_batches_close_together_compare_nothing(spark: Any) -> None:
    reader = spark.stream(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    at = reader.initialOffset()
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        at = end
    assert len(spark.queues.times_asked) == 1  # the marks at the end of the first batch
    spark.queues.now += 2
    spark.queues.add(A, 1)
    reader.latestOffset(at, ALL)
    assert len(spark.queues.times_asked) == 3


def test_progress_with_marks_can_be_where_another_query_begins(spark: Any) -> None:
    reader, start = spark.begun(startingOffsets="earliest")
    end = reader.latestOffset(start, ALL)
    assert {MARKS, SLOWEST} < end.keys()
    spark.queues.add(A, 1)
    assert spark.batch(startingOffsets=json.dumps(end)) == {(0, 10)}


def test_marks_under_two_names_are_those_of_one_queue() -> None:
    other = MessageQueue("orders", "broker-b", 0)
    assert renamed({A: ReadMark(3, 5), other: ReadMark(7, 2)}, "store") == {
        MessageQueue("orders", "store", 0): ReadMark(7, 2)
    }


def test_an_older_last_message_is_no_new_topic() -> None:
    marks = {A: ReadMark(9, 500)}
    assert made_again({A: 10}, marks, {A: 4}, {A: 400}) == []
    assert [loss.queue for loss in made_again({A: 10}, marks, {A: 4}, {A: 501})] == [A]


# --- the watermark of all queues


def test_the_slowest_queue_says_how_far_all_have_come() -> None:
    bounds = {A: QueueBounds(0, 10), B: QueueBounds(0, 10)}
    marks = {A: ReadMark(3, 400), B: ReadMark(9, 9000)}
    assert slowest(marks, {A: 4, B: 10}, bounds, None) == 400
    assert slowest(marks, {A: 10, B: 10}, bounds, None) == 9000  # both are read to their ends
    assert slowest(marks, {A: 4, B: 10}, bounds, 700) == 700  # it never decreases
    assert slowest({B: marks[B]}, {A: 0, B: 10}, bounds, None) is None  # no message of A was read yet
    assert slowest({}, {A: 0, B: 0}, bounds, 3) == 3


def test_a_queue_whose_broker_is_away_holds_the_time_back_for_a_day() -> None:
    bounds = {B: QueueBounds(0, 10)}
    marks = {A: ReadMark(3, 400), B: ReadMark(9, 9000)}
    assert slowest(marks, {A: 4, B: 10}, bounds, None) == 400
    marks[B] = ReadMark(9, 500 + AWAY_MS)
    assert slowest(marks, {A: 4, B: 10}, bounds, None) == 500


def test_rows_of_a_stream_have_it_when_asked(spark: Any) -> None:
    from tianzhou.spark.rows.schema import row_schema, with_slowest

    source = spark.source(startingOffsets="earliest", includeSlowestTimestamp="true", maxOffsetsPerTrigger="8")
    schema = source.schema()
    assert schema == with_slowest(row_schema())
    reader = source.streamReader(schema)
    start = reader.initialOffset()
    end = through_json(reader.latestOffset(start, reader.getDefaultReadLimit()))
    rows = [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]
    assert len(rows) == 8
    found = {round(row["slowestTimestamp"].timestamp() * 1000) for row in rows}
    ends = end["end"]
    last = [1000 + ends[str(queue)] - 1 for queue in (A, B)]
    assert found == {min(last)} == {reached_of(end).after_ms}
    assert {row["slowestBefore"] for row in rows} == {None}


def test_a_batch_read_has_no_such_time(spark: Any) -> None:
    with pytest.raises(Exception, match="includeSlowestTimestamp=true: a batch read has no time"):
        spark.batch(includeSlowestTimestamp="true")


@given(st.data())
def test_no_message_that_is_read_later_is_older(data: st.DataObject) -> None:
    """Queues of any age, read in any shares, with brokers that stop and messages that arrive meanwhile."""
    queues = [MessageQueue("orders", "broker-a", number) for number in range(3)]
    stored = {queue: sorted(data.draw(st.lists(st.integers(0, 50), max_size=6))) for queue in queues}
    at = dict.fromkeys(queues, 0)
    marks: dict[MessageQueue, ReadMark] = {}
    time: int | None = None
    for _ in range(data.draw(st.integers(1, 8))):
        away = data.draw(st.sets(st.sampled_from(queues), max_size=2))
        bounds = {queue: QueueBounds(0, len(stored[queue])) for queue in queues if queue not in away}
        for queue in bounds:
            end = data.draw(st.integers(at[queue], len(stored[queue])))
            for offset in range(at[queue], end):
                assert time is None or stored[queue][offset] >= time
                marks[queue] = ReadMark(offset, stored[queue][offset])
            at[queue] = end
        before, time = time, slowest(marks, at, bounds, time)
        assert before is None or (time is not None and time >= before)
        now = max((times[-1] for times in stored.values() if times), default=0)
        for queue in queues:  # a broker's clock advances, also for an empty queue
            if queue in bounds:
                stored[queue] += sorted(data.draw(st.lists(st.integers(now, now + 20), max_size=3)))
