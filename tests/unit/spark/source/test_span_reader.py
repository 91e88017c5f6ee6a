"""A task reads its range once and in order, whatever the broker replies."""

import pytest

pytest.importorskip("pyspark")

from tianzhou.errors import BrokerError, ConfigError, ConnectionLost
from tianzhou.model import MessageQueue, PullStatus
from tianzhou.spark.option_values import BATCH
from tianzhou.spark.rows.columns import to_batches
from tianzhou.spark.rows.schema import COLUMNS, arrow_schema, row_schema
from tianzhou.spark.source.offsets import DataLoss, QueueBounds, Span
from tianzhou.spark.source.read_options import parse_read
from tianzhou.spark.source.span_reader import MOST_AT_ONCE, Pulled, PullStep, judge, locate, read_span

A = MessageQueue("orders", "broker-a", 0)
B = MessageQueue("orders", "broker-a", 1)
SPAN = Span(A, 10, 50)
ALL = arrow_schema(row_schema(True, True))


def options(**given):
    return parse_read({"namesrvAddr": "a:1", "subscribe": "orders", "pollTimeoutMs": "1000", **given}, BATCH)


def read(queues, span, **given):
    batches = list(read_span(queues, span, options(**given), ALL, COLUMNS, to_batches))
    return [row for batch in batches for row in batch.to_pylist()]


def offsets_of(rows):
    return [row["queueOffset"] for row in rows]


# --- meaning of replies


@pytest.mark.parametrize(
    ("status", "following", "minimum", "step", "lost"),
    [
        (PullStatus.NO_MATCHED_MSG, 30, 0, 30, None),
        (PullStatus.NO_MATCHED_MSG, 90, 0, 50, None),
        (PullStatus.NO_MATCHED_MSG, 30, 25, 30, (10, 25)),
        (PullStatus.NO_NEW_MSG, 30, 0, 30, (10, 30)),
        (PullStatus.OFFSET_ILLEGAL, 20, 20, 20, (10, 20)),
        (PullStatus.OFFSET_ILLEGAL, 80, 80, 50, (10, 50)),
    ],
)
def test_answers_that_move_on(status, following, minimum, step, lost):
    found = judge(SPAN, 10, Pulled(status, following, minimum, 100, b""))
    assert (found.at, found.wait) == (step, False)
    assert (found.loss and (found.loss.start, found.loss.end)) == lost


@pytest.mark.parametrize(
    ("status", "following"),
    [(PullStatus.NO_NEW_MSG, 10), (PullStatus.OFFSET_ILLEGAL, 5), (PullStatus.NO_MATCHED_MSG, 10)],
)
def test_answers_that_have_to_be_requested_again(status, following):
    assert judge(SPAN, 10, Pulled(status, following, 0, 10, b"")) == PullStep(10, wait=True)


# --- ranges


@pytest.mark.parametrize("count", [1, 31, 32, 33, 500, 5000])
def test_a_range_is_read_exactly_once_and_in_order(queues, count):
    queues.add(A, count + 7)
    assert offsets_of(read(queues, Span(A, 3, count + 3))) == list(range(3, count + 3))


def test_pulls_are_sent_ahead_once_the_brokers_limit_is_known(queues):
    queues.add(A, 4000)
    read(queues, Span(A, 0, 4000))
    assert [len(asks) for asks in queues.rounds[:3]] == [1, MOST_AT_ONCE, MOST_AT_ONCE]
    assert len(queues.rounds) < 12


def test_the_next_pulls_are_under_way_while_rows_are_taken(queues):
    queues.add(A, 12_000)
    chunks = read_span(queues, Span(A, 0, 12_000), options(), ALL, COLUMNS, to_batches)
    next(chunks)
    taken = len(queues.rounds)
    [(queue, asks)] = queues.sent_ahead
    assert queue == A
    next(chunks)
    assert queues.rounds[taken] == asks  # the next pull was already sent
    queues.add(A, 12_000, tag="A")
    queues.sent_ahead.clear()
    assert read(queues, Span(A, 0, 24_000), tags="A")
    assert queues.sent_ahead == []  # the next offset after a filter is not known in advance


def test_a_broker_that_gives_more_is_found_out(make_queues):
    queues = make_queues(limit_count=1000)
    queues.add(A, 9000)
    assert len(read(queues, Span(A, 0, 9000))) == 9000
    assert len(queues.rounds) <= 4


def test_little_is_pulled_twice_when_the_limit_is_one_of_bytes(queues):
    queues.limit_count = 10_000
    sizes = [200 + (offset * 7919) % 400 for offset in range(10_000)]
    queues.add(A, 10_000, body=lambda offset: b"x" * sizes[offset])
    assert offsets_of(read(queues, Span(A, 0, 10_000))) == list(range(10_000))
    assert queues.replied_bytes < 1.5 * sum(size + 120 for size in sizes)


def test_batches_are_bounded_in_rows_and_bytes(queues):
    queues.add(A, 10_000)
    batches = list(read_span(queues, Span(A, 0, 10_000), options(), ALL, COLUMNS, to_batches))
    assert all(batch.num_rows < 5000 for batch in batches)
    assert len(batches) <= 4


def test_tags_select_and_reading_ends_at_the_ranges_end(queues):
    queues.add(A, 3000, tag=lambda offset: "AB"[offset % 2])
    rows = read(queues, Span(A, 100, 2900), tags="A || C")
    assert offsets_of(rows) == list(range(100, 2900, 2))
    assert {row["tags"] for row in rows} == {"A"}


def test_a_filter_that_matches_nothing_ends(queues):
    queues.add(A, 3000, tag="A")
    assert read(queues, Span(A, 0, 3000), tags="B") == []


def test_sql_selects_and_reading_ends_at_the_ranges_end(queues):
    queues.add(A, 3000)
    assert offsets_of(read(queues, Span(A, 100, 2900), sql="n BETWEEN 50 AND 120")) == list(range(100, 121))


def test_holes_left_by_compaction_are_no_loss(queues):
    queues.add(A, 200)
    for offset in range(50, 120):
        del queues.records[A][offset]
    assert offsets_of(read(queues, Span(A, 0, 200))) == [*range(50), *range(120, 200)]


# --- loss and errors


def test_messages_that_went_meanwhile_fail_the_read_with_their_range(queues):
    queues.add(A, 100)
    queues.expire(A, 40)
    with pytest.raises(DataLoss, match="30 messages of orders@broker-a:0 from offset 10 to 39 are lost"):
        read(queues, Span(A, 10, 100))


def test_or_are_skipped_with_a_warning(queues, caplog):
    queues.add(A, 100)
    queues.expire(A, 40)
    assert offsets_of(read(queues, Span(A, 10, 100), failOnDataLoss="false")) == list(range(40, 100))
    assert "from offset 10 to 39 are lost" in caplog.text


def test_a_range_that_went_altogether(queues, caplog):
    queues.add(A, 100)
    queues.expire(A, 200)
    assert read(queues, Span(A, 10, 100), failOnDataLoss="false") == []
    assert "from offset 10 to 99 are lost" in caplog.text


def test_a_queue_cut_off_before_the_end_is_waited_for_then_lost(queues):
    queues.add(A, 100)
    queues.truncate(A, 60)
    with pytest.raises(DataLoss, match=r"from offset 60 to 99 are lost: the queue ends at 60"):
        read(queues, Span(A, 10, 100))
    assert 1.0 <= queues.now < 1.5


def test_a_replica_that_lags_is_waited_for(queues):
    queues.add(A, 100)
    queues.truncate(A, 60)
    queues.on_wait = lambda: queues.maximum.update({A: min(100, queues.maximum[A] + 10)})
    assert offsets_of(read(queues, Span(A, 10, 100))) == list(range(10, 100))


def test_a_topic_deleted_while_it_is_read(queues, caplog):
    queues.add(A, 100)
    queues.delete("orders")
    with pytest.raises(DataLoss, match=r"from offset 10 to 99 are lost: code 17.*not exist, apply first please!"):
        read(queues, Span(A, 10, 100))
    assert 1.0 <= queues.now < 1.5
    assert read(queues, Span(A, 10, 100), failOnDataLoss="false") == []
    assert "from offset 10 to 99 are lost" in caplog.text


def test_a_broker_that_starts_or_stops_is_waited_for(queues):
    queues.add(A, 100)
    queues.failures = [BrokerError(14, "the broker stops"), BrokerError(2, "too many requests")]
    assert len(read(queues, Span(A, 0, 100))) == 100


def test_a_refusal_ends_the_read_at_once(queues):
    queues.add(A, 100)
    queues.failures = [BrokerError(26, "subscription group [x] does not exist")]
    with pytest.raises(BrokerError, match="does not exist"):
        read(queues, Span(A, 0, 100))
    assert queues.now == 0


def test_a_broken_connection_is_tried_again(queues, lost):
    queues.add(A, 100)
    queues.failures = [lost, lost]
    assert len(read(queues, Span(A, 0, 100))) == 100


def test_a_broker_that_stays_away_fails_the_read_in_the_end(queues, lost):
    queues.add(A, 100)
    queues.failures = [lost] * 1000
    with pytest.raises(ConnectionLost):
        read(queues, Span(A, 0, 100))
    assert 1.0 <= queues.now < 1.5


# --- positions


def test_positions_by_time_stay_within_the_queue(queues):
    queues.add(A, 10, at_ms=1000)
    queues.expire(A, 4)
    bounds = queues.bounds([A])
    assert locate(options(startingTimestamp="1006").starting, bounds, queues) == {A: 6}
    assert locate(options(startingTimestamp="1").starting, bounds, queues) == {A: 4}
    assert locate(options(startingTimestamp="9999").starting, bounds, queues) == {A: 10}


def test_a_given_offset_behind_the_end_is_an_error(queues):
    bounds = {A: QueueBounds(0, 10)}
    given = options(startingOffsets='{"orders": {"broker-a": {"0": 11}}}').starting
    with pytest.raises(ConfigError, match="startingOffsets: offset 11 of orders@broker-a:0 lies behind its end"):
        locate(given, bounds, queues)
