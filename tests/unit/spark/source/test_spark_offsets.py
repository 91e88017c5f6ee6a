"""Offsets of a stream: their text, the effect of new and shorter queues, and limits of a batch."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import ConfigError, OffsetOutOfRange
from tianzhou.model import MessageQueue
from tianzhou.spark.source import offsets
from tianzhou.spark.source.offsets import DataLoss, MessageLoss, QueueBounds, SlaveBounds, Span

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))

names = st.from_regex(r"[%|a-zA-Z0-9_-]{1,20}", fullmatch=True)
queues = st.builds(MessageQueue, names, names, st.integers(0, 1000))
positions = st.dictionaries(queues, st.integers(0, 2**62), max_size=8)


@st.composite
def backlogs(draw):
    start = draw(st.dictionaries(queues, st.integers(0, 10**6), min_size=1, max_size=12))
    return start, {queue: at + draw(st.integers(0, 10**6)) for queue, at in start.items()}


@given(queues)
def test_a_queue_is_read_back_from_its_name(queue):
    assert offsets.parse_queue(str(queue)) == queue


@pytest.mark.parametrize("text", ["", "orders", "orders@a", "orders:1", "@a:1", "orders@:1", "orders@a:-1"])
def test_other_names_are_refused(text):
    with pytest.raises(ConfigError, match="expected topic@broker:queueId"):
        offsets.parse_queue(text)


@given(positions, positions)
def test_an_offset_survives_sparks_json(start, end):
    value = offsets.to_json(start, end)
    assert offsets.from_json(json.loads(json.dumps(value))) == (start, end)


@given(positions)
def test_equal_positions_give_equal_text(start):
    other = dict(reversed(start.items()))
    assert json.dumps(offsets.to_json(start, start)) == json.dumps(offsets.to_json(other, other))


@pytest.mark.parametrize("value", [{}, {"end": {}}, {"end": {"orders@a:0": 1}, "from": 3}, {"0": 5}])
def test_a_foreign_offset_is_refused(value):
    with pytest.raises(ConfigError, match="was not written by this source"):
        offsets.from_json(value)


# --- the start of a batch


def test_a_new_queue_enters_at_its_first_offset():
    assert offsets.begin({A: 5}, {A: QueueBounds(0, 9), B: QueueBounds(3, 8)}) == ({A: 5, B: 3}, [])


def test_deleted_messages_are_a_loss_with_its_exact_range():
    start, losses = offsets.begin({A: 5}, {A: QueueBounds(7, 9)})
    assert start == {A: 7}
    assert [(loss.start, loss.end) for loss in losses] == [(5, 7)]
    assert str(losses[0]) == ("2 messages of orders@broker-a:0 from offset 5 to 6 are lost: the queue now begins at 7")


def test_a_queue_shorter_than_what_was_read_is_a_loss_and_never_rewinds():
    start, losses = offsets.begin({A: 50}, {A: QueueBounds(0, 10)})
    assert start == {A: 10}
    assert (losses[0].start, losses[0].end) == (10, 50)


def test_a_queue_of_which_a_late_slave_answers_keeps_its_position():
    """The slave may end before the read position, and begin after it: its master has these messages, and returns."""
    late = {A: SlaveBounds(20, 40), B: SlaveBounds(20, 40)}
    start, losses = offsets.begin({A: 50, B: 5}, late)
    assert (start, losses) == ({A: 50, B: 5}, [])
    assert offsets.available(start, late) == {A: 50, B: 5}
    assert offsets.available({A: 30}, late) == {A: 40}
    again = offsets.Span(A, 30, 50)
    assert offsets.clip(again, late[A]) == (again, [])


def test_a_queue_whose_broker_is_away_keeps_its_position():
    start, losses = offsets.begin({A: 5, B: 6}, {A: QueueBounds(0, 9)})
    assert (start, losses) == ({A: 5, B: 6}, [])
    assert offsets.available(start, {A: QueueBounds(0, 9)}) == {A: 9, B: 6}


def test_a_loss_whose_end_nobody_knows_and_one_of_nothing():
    assert str(MessageLoss(A, 7, None, "it is deleted")) == (
        "all messages of orders@broker-a:0 from offset 7 on are lost: it is deleted"
    )
    assert str(MessageLoss(A, 7, 7, "it is deleted")) == (
        "orders@broker-a:0 is lost at offset 7, with no message known to be unread: it is deleted"
    )


def test_a_data_loss_error_names_the_ranges_and_the_option_and_survives_pickling():
    error = DataLoss(
        [MessageLoss(A, 5, 6, "the queue now begins at 6"), MessageLoss(B, 1, 4, "the queue now begins at 4")]
    )
    text = str(pickle.loads(pickle.dumps(error)))
    assert "1 message of orders@broker-a:0 from offset 5 to 5 is lost" in text
    assert "3 messages of orders@broker-a:1 from offset 1 to 3 are lost" in text
    assert "failOnDataLoss=false" in text
    assert isinstance(error, OffsetOutOfRange)


# --- the end of a batch


@given(backlogs(), st.integers(1, 10**6))
def test_a_limit_is_met_exactly_and_within_each_queue(backlog, most):
    start, end = backlog
    limited = offsets.limit(start, end, most)
    assert limited.keys() == end.keys()
    assert all(start[queue] <= limited[queue] <= end[queue] for queue in start)
    total = sum(end.values()) - sum(start.values())
    assert sum(limited.values()) - sum(start.values()) == min(most, total)


@given(backlogs(), st.integers(1, 10**6))
def test_no_queue_starves_while_the_limit_reaches_for_one_each(backlog, most):
    start, end = backlog
    waiting = [queue for queue in start if end[queue] > start[queue]]
    limited = offsets.limit(start, end, most)
    if most >= len(waiting):
        assert all(limited[queue] > start[queue] for queue in waiting)


def test_queues_take_turns_when_the_limit_is_less_than_their_number():
    start = dict.fromkeys((A, B, C), 0)
    end = {A: 1000, B: 2, C: 2}
    served = []
    for _ in range(3):
        limited = offsets.limit(start, end, 1)
        served += [queue for queue in start if limited[queue] > start[queue]]
        start = limited
    assert sorted(served) == [A, B, C]


def test_shares_follow_the_backlog():
    start = {A: 0, B: 100}
    limited = offsets.limit(start, {A: 3000, B: 1100}, 400)
    assert 298 <= limited[A] <= 301
    assert limited[A] + limited[B] == 500


@given(backlogs(), st.integers(1000, 5000))
def test_limited_batches_reach_the_end(backlog, most):
    start, end = backlog
    most = max(most, (sum(end.values()) - sum(start.values())) // 20)
    batches = 0
    while start != end:
        start = offsets.limit(start, end, most)
        batches += 1
        assert batches <= 21


# --- ranges


def test_ranges_leave_out_queues_without_messages():
    assert offsets.spans({A: 1, B: 5}, {A: 4, B: 5}) == [Span(A, 1, 4)]


def test_a_start_behind_the_end_is_an_error():
    with pytest.raises(OffsetOutOfRange, match=r"orders@broker-a:0: the batch would start at 9, behind its end 4"):
        offsets.spans({A: 9}, {A: 4})


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 5000)), max_size=6),
    st.integers(0, 40),
    st.integers(0, 1000),
)
def test_a_split_covers_every_range_once_and_in_order(shapes, at_least, at_most_each):
    ranges = [Span(MessageQueue("t", "b", number), start, start + size) for number, (start, size) in enumerate(shapes)]
    pieces = offsets.split(ranges, at_least, at_most_each)
    assert pieces == offsets.split(ranges, at_least, at_most_each)
    assert all(piece.count > 0 for piece in pieces)
    for whole in ranges:
        mine = [piece for piece in pieces if piece.queue == whole.queue]
        edges = [whole.start, *(piece.end for piece in mine)] if whole.count else [whole.start]
        assert edges[-1] == whole.end
        assert [piece.start for piece in mine] == edges[: len(mine)]
    total = sum(whole.count for whole in ranges)
    assert len(pieces) >= min(at_least, total)
    if at_most_each:
        assert all(piece.count <= at_most_each for piece in pieces)


@pytest.mark.parametrize(
    ("start", "end", "bounds", "left", "lost"),
    [
        (2, 8, QueueBounds(0, 10), (2, 8), []),
        (2, 8, QueueBounds(4, 10), (4, 8), [(2, 4)]),
        (2, 8, QueueBounds(0, 6), (2, 6), [(6, 8)]),
        (2, 8, QueueBounds(9, 12), (8, 8), [(2, 8)]),
        (2, 8, QueueBounds(4, 6), (4, 6), [(2, 4), (6, 8)]),
        (2, 8, QueueBounds(0, 0), (2, 2), [(2, 8)]),
    ],
)
def test_a_range_is_clipped_to_what_is_there(start, end, bounds, left, lost):
    span, losses = offsets.clip(Span(A, start, end), bounds)
    assert (span.start, span.end) == left
    assert [(loss.start, loss.end) for loss in losses] == lost


@given(st.lists(st.integers(1, 5000), max_size=20), st.integers(0, 3000))
def test_packing_keeps_every_range_in_order_and_groups_only_small_ones(sizes, enough):
    pieces = [Span(MessageQueue("t", "b", number), 0, size) for number, size in enumerate(sizes)]
    groups = offsets.pack(pieces, enough)
    assert [piece for group in groups for piece in group] == pieces
    assert all(group for group in groups)
    for group in groups:
        if len(group) > 1:
            assert sum(piece.count for piece in group) <= 2 * enough
    if not enough:
        assert len(groups) == len(pieces)


@given(st.lists(st.integers(1, 5000), max_size=20), st.integers(0, 3000), st.integers(1, 4000))
def test_no_task_has_more_than_it_may(sizes, enough, most):
    whole = [Span(MessageQueue("t", "b", number), 0, size) for number, size in enumerate(sizes)]
    groups = offsets.pack(offsets.split(whole, 0, most), enough, most)
    assert all(0 < sum(piece.count for piece in group) <= most for group in groups)
    assert sum(piece.count for group in groups for piece in group) == sum(sizes)


def test_small_queues_share_a_task_up_to_its_bound():
    queues = [Span(MessageQueue("t", "b", number), 0, 30) for number in range(10)]
    assert [len(group) for group in offsets.pack(offsets.split(queues, 0, 100), 2000, 100)] == [3, 3, 3, 1]
