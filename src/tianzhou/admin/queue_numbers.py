"""Changes of a topic's queue numbers: the order of the steps, the queues that go, and their unread messages. Pure."""

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
    """The two uses of queues whose numbers a topic's configuration has."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class QueueStep:
    """One step of a change: it sets one of the two numbers on some brokers.

    Attributes:
        use: whether the step sets the number of read queues or of write queues.
        number: the number after the step.
        brokers: names of the brokers that get the number.
        cuts_reading: whether queues go with this step. Unread messages in them are out of reach after it.
    """

    use: QueueUse
    number: int
    brokers: tuple[str, ...]
    cuts_reading: bool = False


@dataclass(frozen=True, slots=True)
class DroppedQueue:
    """A queue that goes with a change.

    Attributes:
        broker_name: name of its broker.
        queue_id: number of the queue.
        messages: messages that it holds.
        next_offset: the offset that its next message will get.
        unread: unread messages by group, of groups that have any.
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
        dropped: queues that go, in the order of brokers and numbers.
    """

    topic: str
    numbers: Mapping[str, tuple[QueueNumbers, QueueNumbers]]
    dropped: Sequence[DroppedQueue] = ()

    @property
    def steps(self) -> tuple[QueueStep, ...]:
        """The steps, in their order; none when all brokers have the wanted numbers."""
        return queue_steps(self.numbers)

    def unread(self, brokers: Collection[str] | None = None) -> dict[str, int]:
        """Return the unread messages of the queues that go, by group.

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

    More queues are read before they are written, and queues are no longer written before they are no longer read. So a
    message that is stored meanwhile is always in a queue that consumers read.

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
    """Return present numbers and wanted numbers of each broker that the change is about.

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
    """Return the queues that are read now and will not be read after a change.

    Args:
        numbers: present numbers and wanted numbers by broker name.
        offsets: first and next offset of the topic's queues.
        lags: progress in the topic's queues by group, without groups that broadcast: their members store the offsets.
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
