"""Progress of consumer groups: lag by queue, and the changes of a reset. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tianzhou.errors import OffsetOutsideQueue
from tianzhou.model import MessageQueue


@dataclass(slots=True, frozen=True)
class QueueLag:
    """A group's lag in one queue.

    Attributes:
        queue: the queue.
        broker_offset: the next offset that the queue will assign.
        consumer_offset: the next offset that the group will consume.
        pull_offset: the next offset that the group will pull; 0 from brokers of RocketMQ 4.
        last_timestamp: store time of the last consumed message, in ms since the epoch; 0 for none.
        client_id: the member that reads the queue; None when no member reads it, or when the member is unknown.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_timestamp: int = 0
    client_id: str | None = None
    pull_offset: int = 0

    @property
    def inflight(self) -> int:
        """Messages that are pulled and not yet consumed."""
        return max(0, self.pull_offset - self.consumer_offset)

    @property
    def lag(self) -> int:
        """Messages that are stored and not yet consumed."""
        return max(0, self.broker_offset - self.consumer_offset)


@dataclass(slots=True)
class GroupLag:
    """A group's lag in all queues.

    Attributes:
        group: name of the group.
        queues: one entry per queue, sorted.
        consume_tps: messages consumed per second.
    """

    group: str
    queues: list[QueueLag] = field(default_factory=list)
    consume_tps: float = 0.0

    @property
    def total(self) -> int:
        """Messages of all queues that are stored and not yet consumed."""
        return sum(entry.lag for entry in self.queues)


@dataclass(slots=True, frozen=True)
class OffsetChange:
    """The change of one queue's offset by a reset or a dry run.

    Attributes:
        queue: the queue.
        before: the group's offset before; None when it had none.
        after: the group's offset after.
    """

    queue: MessageQueue
    before: int | None
    after: int

    @property
    def skipped(self) -> int:
        """Number of messages that the group will not consume; 0 when the group had no offset."""
        return 0 if self.before is None else max(0, self.after - self.before)

    @property
    def repeated(self) -> int:
        """Number of messages that the group consumes again; 0 when the group had no offset."""
        return 0 if self.before is None else max(0, self.before - self.after)


def check_offset(offset: int, held: Iterable[tuple[MessageQueue, int, int]]) -> None:
    """Raise an error when a queue does not hold an offset.

    Args:
        offset: the next offset that a group will consume.
        held: queues with their first offset and the offset behind their last message.

    Raises:
        OffsetOutsideQueue: the offset is outside the range of a queue; the text has the ranges.
    """
    missing = [
        f"queue {queue.queue_id} of topic {queue.topic} at {queue.broker_name} holds {low} to {high}"
        for queue, low, high in held
        if not low <= offset <= high
    ]
    if missing:
        raise OffsetOutsideQueue(
            f"offset {offset} is out of range: {'; '.join(missing)}. Nothing was changed; give an offset of the range, "
            "or name the queues that hold it"
        )
