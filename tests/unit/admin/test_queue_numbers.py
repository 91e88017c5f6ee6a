"""Changes of queue numbers: the order of the steps, and the queues that go with their unread messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.admin import DroppedQueue, QueueLag, QueueNumbers, QueuePlan, QueueStep, QueueUse
from tianzhou.admin.queue_numbers import dropped_queues, queue_steps, wanted_numbers
from tianzhou.model import MessageQueue
from tianzhou.wire.bodies.offsets import TopicOffset

READ, WRITE = QueueUse.READ, QueueUse.WRITE
A = ("a",)


def steps(old: tuple[int, int], new: tuple[int, int]) -> list[QueueStep]:
    return list(queue_steps({"a": (QueueNumbers(*old), QueueNumbers(*new))}))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((4, 4), (4, 4), []),
        ((4, 4), (8, 8), [QueueStep(READ, 8, A), QueueStep(WRITE, 8, A)]),
        ((8, 8), (4, 4), [QueueStep(WRITE, 4, A), QueueStep(READ, 4, A, cuts_reading=True)]),
        ((8, 4), (4, 4), [QueueStep(READ, 4, A, cuts_reading=True)]),  # a change that was interrupted
        ((8, 4), (4, 6), [QueueStep(WRITE, 6, A), QueueStep(READ, 4, A, cuts_reading=True)]),
        ((4, 8), (8, 2), [QueueStep(READ, 8, A), QueueStep(WRITE, 2, A)]),
    ],
)
def test_reading_grows_first_and_shrinks_last(
    old: tuple[int, int], new: tuple[int, int], expected: list[QueueStep]
) -> None:
    assert steps(old, new) == expected


def test_a_step_names_the_brokers_that_need_it() -> None:
    numbers = wanted_numbers({"b": QueueNumbers(8, 8), "a": QueueNumbers(2, 2), "c": QueueNumbers(4, 4)}, 4, 4)
    assert queue_steps(numbers) == (
        QueueStep(READ, 4, ("a",)),
        QueueStep(WRITE, 4, ("a", "b")),
        QueueStep(READ, 4, ("b",), cuts_reading=True),
    )
    assert QueuePlan("T", numbers).steps == queue_steps(numbers)


def test_a_number_that_is_not_given_stays_on_each_broker() -> None:
    present = {"a": QueueNumbers(2, 3), "b": QueueNumbers(5, 6)}
    assert wanted_numbers(present, None, 4) == {"a": ((2, 3), (2, 4)), "b": ((5, 6), (5, 4))}
    assert wanted_numbers(present, 1, None, ["b"]) == {"b": ((5, 6), (1, 6))}


counts = st.integers(1, 6)


@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=3), counts, counts)
def test_no_step_has_more_queues_without_a_reader_than_the_beginning_or_the_end(
    present: list[tuple[int, int]], read: int, write: int
) -> None:
    numbers = wanted_numbers({str(at): QueueNumbers(*one) for at, one in enumerate(present)}, read, write)
    now = {broker: old for broker, (old, _) in numbers.items()}
    for step in queue_steps(numbers):
        for broker in step.brokers:
            now[broker] = now[broker]._replace(**{step.use.value: step.number})
            old, new = numbers[broker]
            unseen = max(now[broker].write - now[broker].read, 0)
            assert unseen <= max(old.write - old.read, new.write - new.read, 0)
            assert step.cuts_reading == (step.use is READ and new.read < old.read)
    assert now == {broker: new for broker, (_, new) in numbers.items()}


def queue(broker: str, queue_id: int) -> MessageQueue:
    return MessageQueue("T", broker, queue_id)


def test_the_queues_that_go_have_their_unread_messages_by_group() -> None:
    numbers = wanted_numbers({"a": QueueNumbers(4, 4), "b": QueueNumbers(2, 2)}, 2, 2)
    offsets = {queue("a", at): TopicOffset(10, 30) for at in range(4)} | {queue("b", 1): TopicOffset(0, 9)}
    lags = {
        # Offset 0 is below the first offset: 10 messages have expired, so 20 can still be read.
        "slow": [QueueLag(queue("a", 1), 30, 0), QueueLag(queue("a", 2), 30, 0), QueueLag(queue("a", 3), 30, 25)],
        "fast": [QueueLag(queue("a", 2), 30, 29), QueueLag(queue("a", 3), 30, 30)],
    }
    dropped = dropped_queues(numbers, offsets, lags)
    assert dropped == [
        DroppedQueue("a", 2, 20, 30, {"fast": 1, "slow": 20}),
        DroppedQueue("a", 3, 20, 30, {"slow": 5}),
    ]
    plan = QueuePlan("T", numbers, dropped)
    assert plan.unread() == {"fast": 1, "slow": 25}
    assert plan.unread(["b"]) == {}
