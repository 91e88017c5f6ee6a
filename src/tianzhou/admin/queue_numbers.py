"""Changes of a topic's queue numbers: the order of the steps, the dropped queues, and their unread messages. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tianzhou.admin.progress import QueueLag
from tianzhou.model import MessageQueue
from tianzhou.wire.bodies.offsets import TopicOffset


class QueueNumbers(NamedTuple):
    """Queue numbers of a topic on one broker.

    Attributes:
        read: number of queues that consumers read.
        write: number of queues that producers write.
    """

    read: int
    write: int


class QueueUse(StrEnum):
    """The two uses of queues; a topic's configuration has a number of queues for each."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class QueueStep:
    """One step of a change, which sets one of the two numbers on some brokers.

    Attributes:
        use: whether the step sets the number of read queues or of write queues.
        number: the number after the step.
        brokers: names of the brokers that get the number.
        cuts_reading: whether the step drops queues. Consumers cannot read unread messages in dropped queues.
    """

    use: QueueUse
    number: int
    brokers: tuple[str, ...]
    cuts_reading: bool = False


@dataclass(frozen=True, slots=True)
class DroppedQueue:
    """A queue that a change drops.

    Attributes:
        broker_name: name of its broker.
        queue_id: number of the queue.
        messages: number of stored messages.
        next_offset: the next offset that the queue will assign.
        unread: number of unread messages by group, for groups that have any.
    """

    broker_name: str
    queue_id: int
    messages: int
    next_offset: int
    unread: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """A change of a topic's queue numbers.

    Attributes:
        topic: name of the topic.
        numbers: present numbers and wanted numbers by broker name.
        dropped: queues that the change drops, in the order of brokers and queue numbers.
    """

    topic: str
    numbers: Mapping[str, tuple[QueueNumbers, QueueNumbers]]
    dropped: Sequence[DroppedQueue] = ()

    @property
    def steps(self) -> tuple[QueueStep, ...]:
        """The steps in order; empty when all brokers have the wanted numbers."""
        return queue_steps(self.numbers)

    def unread(self, brokers: Collection[str] | None = None) -> dict[str, int]:
        """Return the number of unread messages in the dropped queues, by group.

        Args:
            brokers: names of the brokers whose queues count; None for all.
        """
        found: dict[str, int] = {}
        for queue in self.dropped:
            if brokers is None or queue.broker_name in brokers:
                for group, count in queue.unread.items():
                    found[group] = found.get(group, 0) + count
        return dict(sorted(found.items()))


def queue_steps(numbers: Mapping[str, tuple[QueueNumbers, QueueNumbers]]) -> tuple[QueueStep, ...]:
    """Return the steps of a change, in their order.

    Read queues are added before write queues, and write queues are removed before read queues. So a message that is
    stored meanwhile is always in a queue that consumers read.

    Args:
        numbers: present numbers and wanted numbers by broker name.
    """
    grown: dict[int, list[str]] = {}
    written: dict[int, list[str]] = {}
    cut: dict[int, list[str]] = {}
    for broker, (old, new) in sorted(numbers.items()):
        if new.write != old.write:
            written.setdefault(new.write, []).append(broker)
        if new.read != old.read:
            (grown if new.read > old.read else cut).setdefault(new.read, []).append(broker)
    return (
        *(QueueStep(QueueUse.READ, number, tuple(brokers)) for number, brokers in grown.items()),
        *(QueueStep(QueueUse.WRITE, number, tuple(brokers)) for number, brokers in written.items()),
        *(QueueStep(QueueUse.READ, number, tuple(brokers), cuts_reading=True) for number, brokers in cut.items()),
    )


def wanted_numbers(
    present: Mapping[str, QueueNumbers], read: int | None, write: int | None, brokers: Collection[str] | None = None
) -> dict[str, tuple[QueueNumbers, QueueNumbers]]:
    """Return the present and wanted numbers of each broker that is changed.

    Args:
        present: present numbers by broker name.
        read: wanted number of read queues; None leaves each broker's number.
        write: wanted number of write queues; None leaves each broker's number.
        brokers: names of the brokers to change; None for all.
    """
    return {
        broker: (old, QueueNumbers(old.read if read is None else read, old.write if write is None else write))
        for broker, old in sorted(present.items())
        if brokers is None or broker in brokers
    }


def dropped_queues(
    numbers: Mapping[str, tuple[QueueNumbers, QueueNumbers]],
    offsets: Mapping[MessageQueue, TopicOffset],
    lags: Mapping[str, Iterable[QueueLag]],
) -> list[DroppedQueue]:
    """Return the queues that a change drops: consumers read them now and will not read them after it.

    Args:
        numbers: present numbers and wanted numbers by broker name.
        offsets: first and next offset of the topic's queues.
        lags: progress in the topic's queues by group, without broadcasting groups, whose members store the offsets.
    """
    unread: dict[MessageQueue, dict[str, int]] = {}
    for group, queues in sorted(lags.items()):
        for one in queues:
            # The messages between the group's offset and the first offset have expired, so no change loses them.
            first = offsets[one.queue].min_offset if one.queue in offsets else 0
            if (count := one.broker_offset - max(one.consumer_offset, first)) > 0:
                unread.setdefault(one.queue, {})[group] = count
    return [
        DroppedQueue(
            queue.broker_name, queue.queue_id, max(at.max_offset - at.min_offset, 0), at.max_offset,
            unread.get(queue, {}),
        )
        for queue, at in sorted(offsets.items())
        if queue.broker_name in numbers
        and numbers[queue.broker_name][1].read <= queue.queue_id < numbers[queue.broker_name][0].read
    ]  # fmt: skip
