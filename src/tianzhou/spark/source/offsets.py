"""Calculations with queue positions: the start and end of a batch, its division among tasks, and lost messages. Pure.

Positions are *next* offsets: with `end` 7 the last message is at offset 6. A stream's offset, which Spark stores in its
checkpoint, is self-describing: `{"end": {queue: n}, "from": {queue: n}}`. Spark logs it before it runs the batch, so a
batch is planned from the `from` of its own end offset. It does not depend on what "initial" means when the query is
restarted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tianzhou.errors import ConfigError, OffsetOutOfRange
from tianzhou.model import MessageQueue

LATEST = -1
EARLIEST = -2

Positions = dict[MessageQueue, int]


class QueueBounds(NamedTuple):
    """The offsets of a queue's messages.

    Attributes:
        minimum: offset of the first message.
        maximum: offset that the next message will get.
    """

    minimum: int
    maximum: int

    @property
    def of_slave(self) -> bool:
        """Whether the offsets are those of a slave without its master, which may lack messages at both ends."""
        return False


class SlaveBounds(QueueBounds):
    """The offsets of a queue's messages at a slave whose master is away."""

    __slots__ = ()

    @property
    def of_slave(self) -> bool:
        """See `QueueBounds`."""
        return True


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets `start` to `end`, `end` excluded, of one queue."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def count(self) -> int:
        """Number of offsets."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class MessageLoss:
    """Messages of a read that no longer exist.

    Attributes:
        queue: the queue.
        start: offset of the first missing message.
        end: the offset after the last missing message; None if unknown, `start` if no message is known to be missing.
        reason: the state of the queue, for messages.
    """

    queue: MessageQueue
    start: int
    end: int | None
    reason: str

    def __str__(self) -> str:
        if self.end is None:
            return f"all messages of {self.queue} from offset {self.start} on are lost: {self.reason}"
        count = self.end - self.start
        if not count:
            return f"{self.queue} is lost at offset {self.start}, with no message known to be unread: {self.reason}"
        return (
            f"{count} message{'s' if count != 1 else ''} of {self.queue} from offset {self.start} to "
            f"{self.end - 1} {'are' if count != 1 else 'is'} lost: {self.reason}"
        )


class DataLoss(OffsetOutOfRange):
    """Messages of a query no longer exist, and `failOnDataLoss` is on.

    Args:
        losses: all lost ranges.
    """

    def __init__(self, losses: Iterable[MessageLoss]) -> None:
        self.losses = list(losses)
        super().__init__(
            f"{'; '.join(map(str, self.losses))}. Set failOnDataLoss=false to go on with what is left, "
            "or start again from another position with a new checkpoint"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return DataLoss, (self.losses,)


# --- names and JSON


def parse_queue(text: str) -> MessageQueue:
    """Parse the text of `str(queue)`.

    Raises:
        ConfigError: the text is not `topic@broker:id`.
    """
    topic, at, rest = text.partition("@")
    broker, colon, number = rest.rpartition(":")
    if not (at and colon and topic and broker and number.isdecimal()):
        raise ConfigError(f"{text!r} names no queue; expected topic@broker:queueId")
    return MessageQueue(topic, broker, int(number))


def _named(positions: Mapping[MessageQueue, int]) -> dict[str, int]:
    return {str(queue): positions[queue] for queue in sorted(positions)}


def to_json(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> dict[str, dict[str, int]]:
    """Return Spark's offset for a batch from `start` to `end`."""
    return {"end": _named(end), "from": _named(start)}


def from_json(value: Mapping[str, Any]) -> tuple[Positions, Positions]:
    """Return the start and end positions of Spark's offset.

    Raises:
        ConfigError: the offset was not written by this source.
    """
    try:
        start, end = (
            {parse_queue(name): int(position) for name, position in value[part].items()} for part in ("from", "end")
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            f"offset {json.dumps(value)} was not written by this source; "
            'expected {"end": {queue: n}, "from": {queue: n}}. Use a checkpoint of its own for each source'
        ) from None
    return start, end


def renamed(positions: Mapping[MessageQueue, int], broker_name: str) -> Positions:
    """Return the same positions, with all queues under one broker name. They must be queues of one broker.

    If a queue occurs under several names, its greatest position counts.
    """
    result: Positions = {}
    for queue, at in positions.items():
        same = MessageQueue(queue.topic, broker_name, queue.queue_id)
        result[same] = max(at, result.get(same, at))
    return result


# --- batches


def begin(
    position: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, QueueBounds]
) -> tuple[Positions, list[MessageLoss]]:
    """Return the start of a stream's next batch, and the messages that it can no longer read.

    A new queue begins at its first offset. A known queue whose messages were deleted continues at its first offset. A
    queue that ends before the read position continues at its end, because its messages were either read before or
    cannot be distinguished from read ones. A queue whose broker is away keeps its position. So does a queue of which
    only a slave answers, because the slave may lag behind.

    Returns:
        The positions, and every range that is skipped.
    """
    start = dict(position)
    losses = []
    for queue, limits in bounds.items():
        minimum, maximum = limits
        at = start.setdefault(queue, minimum)
        if limits.of_slave:
            continue
        if at < minimum:
            losses.append(MessageLoss(queue, at, minimum, f"the queue now begins at {minimum}"))
            start[queue] = minimum
        elif at > maximum:
            losses.append(MessageLoss(queue, maximum, at, f"the queue now ends at {maximum}"))
            start[queue] = maximum
    return start, losses


def available(start: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, QueueBounds]) -> Positions:
    """Return the position up to which each queue can be read now.

    Queues that are away, or that begin later at a slave, stay at their position.
    """
    return {
        queue: max(position, bounds[queue].maximum) if _is_readable(position, bounds.get(queue)) else position
        for queue, position in start.items()
    }


def _is_readable(position: int, bounds: QueueBounds | None) -> bool:
    return bounds is not None and not (bounds.of_slave and position < bounds.minimum)


def ends(bounds: Mapping[MessageQueue, QueueBounds]) -> Positions:
    """Return the end of each queue."""
    return {queue: limits.maximum for queue, limits in bounds.items()}


def up_to(target: Mapping[MessageQueue, int], start: Mapping[MessageQueue, int], end: Positions) -> Positions:
    """Return the end of a batch that reads nothing after `target`. Queues that `target` lacks are not read."""
    return {queue: min(at, max(start[queue], target.get(queue, 0))) for queue, at in end.items()}


def limit(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], most: int) -> Positions:
    """Shorten a batch to `most` messages, each queue in proportion to its backlog.

    If `most` is at least the number of queues with a backlog, each of them gets at least one message. Otherwise they
    take turns, so that no queue waits for ever. The result has exactly `most` messages unless there are fewer.

    Args:
        start: the start of the batch.
        end: the end of the batch without a limit.
        most: maximum messages, 1 or more.
    """
    backlog = {queue: end[queue] - start[queue] for queue in sorted(start) if end[queue] > start[queue]}
    total = sum(backlog.values())
    if total <= most:
        return dict(end)
    queues = list(backlog)
    if most < len(queues):
        # The sum of positions grows by `most` with each batch, so each queue gets its turn.
        turn = sum(start.values()) % len(queues)
        chosen = {queues[(turn + step) % len(queues)] for step in range(most)}
        return {queue: start[queue] + (queue in chosen) for queue in start}
    spare = most - len(queues)
    rest = total - len(queues)
    share = {queue: 1 + (size - 1) * spare // rest for queue, size in backlog.items()}
    left = most - sum(share.values())
    remainder = {queue: (size - 1) * spare % rest for queue, size in backlog.items()}
    for queue in sorted(queues, key=remainder.__getitem__, reverse=True)[:left]:
        share[queue] += 1
    return {queue: start[queue] + share.get(queue, 0) for queue in start}


def spans(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[Span]:
    """Return the non-empty ranges of a batch, in queue order.

    Raises:
        OffsetOutOfRange: a queue's start is after its end.
    """
    result = []
    for queue in sorted(end):
        first, last = start.get(queue, end[queue]), end[queue]
        if first > last:
            raise OffsetOutOfRange(
                f"{queue}: the batch would start at {first}, behind its end {last}; "
                "the checkpoint belongs to another topic or queue"
            )
        if first < last:
            result.append(Span(queue, first, last))
    return result


def split(ranges: Iterable[Span], at_least: int = 0, at_most_each: int = 0) -> list[Span]:
    """Split ranges for more parallelism. The same ranges are always split in the same way.

    Args:
        ranges: one per queue.
        at_least: minimum number of pieces in total, with each queue split in proportion to its length; 0 for none.
        at_most_each: maximum messages in a piece; 0 for no limit.
    """
    whole = [span for span in ranges if span.count]
    total = sum(span.count for span in whole)
    result = []
    for span in whole:
        pieces = 1
        if at_least > len(whole):
            pieces = max(1, -(-at_least * span.count // total))
        if at_most_each:
            pieces = max(pieces, -(-span.count // at_most_each))
        pieces = min(pieces, span.count)
        cuts = [span.start + span.count * step // pieces for step in range(pieces + 1)]
        result += [Span(span.queue, low, high) for low, high in itertools.pairwise(cuts)]
    return result


def pack(pieces: Iterable[Span], enough: int, at_most_each: int = 0) -> list[list[Span]]:
    """Group small neighbouring ranges, because a task costs as much as reading some thousand messages.

    Args:
        pieces: ranges, in queue order.
        enough: number of messages from which a group is full.
        at_most_each: maximum messages in a group of several ranges; 0 for no limit.
    """
    groups: list[list[Span]] = []
    size = 0
    most = min(at_most_each, 2 * enough) if at_most_each else 2 * enough
    for piece in pieces:
        if not groups or size >= enough or size + piece.count > most:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += piece.count
    return groups


def clip(span: Span, bounds: QueueBounds) -> tuple[Span, list[MessageLoss]]:
    """Return the part of a range that can still be read, and the lost parts.

    A range at a slave without its master is returned whole, because the task waits for the master.
    """
    if bounds.of_slave:
        return span, []
    losses = []
    start, end = span.start, span.end
    if start < bounds.minimum:
        lost = min(end, bounds.minimum)
        losses.append(MessageLoss(span.queue, start, lost, f"the queue now begins at {bounds.minimum}"))
        start = lost
    if end > bounds.maximum:
        lost = max(start, bounds.maximum)
        if lost < end:
            losses.append(MessageLoss(span.queue, lost, end, f"the queue now ends at {bounds.maximum}"))
        end = lost
    return Span(span.queue, start, end), losses
