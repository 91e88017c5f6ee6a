"""Decisions over queue positions: where to begin, how far to go, how to share out, what is lost. Pure.

Positions are *next* offsets: `end` 7 means 6 is the last one in. A stream's offset, the value Spark keeps in
its checkpoint, is self-describing: `{"end": {queue: n}, "from": {queue: n}}`. Spark logs it before it runs
the batch, so the batch is planned from `from` of its own end offset and never from whatever "initial" means
when the query is restarted.
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
    """What a queue holds.

    Attributes:
        minimum: its first offset.
        maximum: the offset that its next message will get.
    """

    minimum: int
    maximum: int

    @property
    def of_slave(self) -> bool:
        """Whether a slave without its master answered, which may lack messages at both ends."""
        return False


class SlaveBounds(QueueBounds):
    """What a queue holds at a slave whose master is away."""

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
        """How many offsets that is."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class MessageLoss:
    """Messages of a read that are not there any more.

    Attributes:
        queue: where.
        start: first missing offset.
        end: the offset after the last missing one; None when unknown, `start` when none is known to be missing.
        reason: what the queue reports about itself.
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
    """Messages a query should read are gone, and `failOnDataLoss` is on.

    Args:
        losses: every lost range.
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
    """The queue that `str(queue)` wrote.

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
    """The offset to hand to Spark for a batch of `start` to `end`."""
    return {"end": _named(end), "from": _named(start)}


def from_json(value: Mapping[str, Any]) -> tuple[Positions, Positions]:
    """The start and end positions an offset describes.

    Raises:
        ConfigError: it was not written by this source.
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
    """The same positions under another name of the one broker whose queues they are of.

    A queue that is there under several names has been read as far as the furthest of them says.
    """
    result: Positions = {}
    for queue, at in positions.items():
        same = MessageQueue(queue.topic, broker_name, queue.queue_id)
        result[same] = max(at, result.get(same, at))
    return result


# --- a batch


def begin(
    position: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, QueueBounds]
) -> tuple[Positions, list[MessageLoss]]:
    """Where the next batch of a stream begins, and what it cannot read any more.

    A queue never seen enters at its first offset. A known queue whose messages were deleted goes on at its
    first offset; one that is shorter than what was read from it goes on at its end, for what it holds now was
    either read before or cannot be distinguished from it. A queue that is not there at present, because its broker is
    away, keeps its position, and so does one of which a slave without its master answers: it may be late.

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
    """As far as one can read now; queues that are away, or that begin later at a slave, stay where they are."""
    return {
        queue: max(position, bounds[queue].maximum) if _is_readable(position, bounds.get(queue)) else position
        for queue, position in start.items()
    }


def _is_readable(position: int, bounds: QueueBounds | None) -> bool:
    return bounds is not None and not (bounds.of_slave and position < bounds.minimum)


def ends(bounds: Mapping[MessageQueue, QueueBounds]) -> Positions:
    """Where the queues end."""
    return {queue: limits.maximum for queue, limits in bounds.items()}


def up_to(target: Mapping[MessageQueue, int], start: Mapping[MessageQueue, int], end: Positions) -> Positions:
    """The end of a batch that reads nothing behind `target`; a queue that is not in it is not read."""
    return {queue: min(at, max(start[queue], target.get(queue, 0))) for queue, at in end.items()}


def limit(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], most: int) -> Positions:
    """Shorten a batch to `most` messages, each queue in proportion to its backlog.

    Every queue with a backlog gets at least one message while `most` is enough for that; while it is not,
    they take turns, so that no queue waits for ever. The result holds exactly `most` messages unless there
    are fewer.

    Args:
        start: where the batch begins.
        end: as far as it could go.
        most: messages to allow, 1 or more.
    """
    backlog = {queue: end[queue] - start[queue] for queue in sorted(start) if end[queue] > start[queue]}
    total = sum(backlog.values())
    if total <= most:
        return dict(end)
    queues = list(backlog)
    if most < len(queues):
        # The sum of positions grows by `most` with each batch, so the turn goes round.
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
    """The non-empty ranges of a batch, in queue order.

    Raises:
        OffsetOutOfRange: a queue's start lies behind its end.
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
    """Cut ranges for more parallelism; the same ranges are always cut the same way.

    Args:
        ranges: one per queue.
        at_least: how many pieces are wanted in all, each queue cut in proportion to its length; 0 for no
            wish.
        at_most_each: the most messages in a piece; 0 for no bound.
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
    """Put small neighbours together: a task costs as much as reading some thousand messages.

    Args:
        pieces: ranges, in queue order.
        enough: messages from which on a group takes no further range.
        at_most_each: the most messages in a group of several ranges; 0 for no bound.
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
    """What of a range can still be read, and what cannot; a range at a slave without its master is waited for."""
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
