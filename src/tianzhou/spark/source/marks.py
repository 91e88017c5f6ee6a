"""Marks: messages by which a stream recognises the queues it has read, and the time that all queues have reached. Pure.

A topic that is deleted and made again has offsets from 0 on, and may have more messages than the stream had read. So an
offset of the stream also contains, for each queue, one message that the stream has read: its queue offset and its store
time. When the message at this offset has another store time, the queue was made again.

A queue without a mark is not checked: the stream has read no message of it, its checkpoint was written before there
were marks, or retention has deleted the message.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tianzhou.model import MessageQueue
from tianzhou.model.timestamps import is_date
from tianzhou.spark.source.offsets import MessageLoss, Positions, QueueBounds, parse_queue

MARKS: Final = "marks"
"""Key of the marks in an offset."""
SLOWEST: Final = "slowest"
"""Key of the time that all queues have reached, at the beginning and the end of a batch, in an offset."""
AWAY_MS: Final = 86_400_000
"""Maximum time in ms by which a queue whose broker is away delays the time that all queues have reached."""


class ReadMark(NamedTuple):
    """A message that a stream has read.

    Attributes:
        offset: its queue offset.
        store_ms: when the broker stored it, ms since the epoch.
    """

    offset: int
    store_ms: int


Marks = dict[MessageQueue, ReadMark]
StoreTimes = Callable[[Positions], dict[MessageQueue, int]]
"""Looks up store times of messages at one offset of each queue, ms; queues without a message there are left out."""
OffsetsByTime = Callable[[list[MessageQueue], int], Positions]
"""Looks up the first offset of each queue stored at a time in ms or later."""


def marks_of(offset: Mapping[str, Any]) -> Marks:
    """Return the marks in an offset of the stream; none in an offset that was written before there were marks.

    Raises:
        ConfigError: a queue's name is malformed.
    """
    found = offset.get(MARKS)
    if not isinstance(found, Mapping):
        return {}
    return {parse_queue(name): ReadMark(int(mark[0]), int(mark[1])) for name, mark in found.items()}


def renamed(marks: Mapping[MessageQueue, ReadMark], broker_name: str) -> Marks:
    """Return the same marks under another name of the one broker whose queues they are of.

    Of several marks of a queue the one with the greatest offset stays.
    """
    result: Marks = {}
    for queue, mark in marks.items():
        same = MessageQueue(queue.topic, broker_name, queue.queue_id)
        result[same] = max(mark, result.get(same, mark))
    return result


class Reached(NamedTuple):
    """The store time that all queues of a stream have reached, ms since the epoch; None when it is unknown.

    Attributes:
        before_ms: at the beginning of a micro-batch.
        after_ms: at its end.
    """

    before_ms: int | None = None
    after_ms: int | None = None


def reached_of(offset: Mapping[str, Any]) -> Reached:
    """Return the time that all queues have reached at an offset of the stream."""
    found = offset.get(SLOWEST)
    return Reached(*found) if isinstance(found, list) and len(found) == len(Reached._fields) else Reached()


def with_marks(
    offset: dict[str, Any], marks: Mapping[MessageQueue, ReadMark], reached: Reached | None = None
) -> dict[str, Any]:
    """Return an offset of the stream with marks, and with the time that all queues have reached if it is known."""
    result = dict(offset)
    if marks:
        result[MARKS] = {str(queue): list(marks[queue]) for queue in sorted(marks)}
    if reached is not None and reached.after_ms is not None:
        result[SLOWEST] = list(reached)
    return result


def to_check(marks: Mapping[MessageQueue, ReadMark], bounds: Mapping[MessageQueue, QueueBounds]) -> Positions:
    """Return an offset of each queue. The message there shows whether the queue was made again.

    That is the marked message. Of a queue that ends before its mark it is the last message, which is older than the
    mark when the queue lost its end, and newer when the queue was made again.
    """
    return {
        queue: min(mark.offset, limits.maximum - 1)
        for queue, mark in marks.items()
        if (limits := bounds.get(queue)) is not None
        and not limits.of_slave
        and limits.minimum <= min(mark.offset, limits.maximum - 1)
    }


@dataclass(frozen=True, slots=True)
class MadeAgain(MessageLoss):
    """A queue that holds other messages than the stream has read; `start` is the next offset of the stream."""

    def __str__(self) -> str:
        return f"{self.queue} holds other messages than those that were read up to offset {self.start}: {self.reason}"


def made_again(
    positions: Mapping[MessageQueue, int],
    marks: Mapping[MessageQueue, ReadMark],
    places: Mapping[MessageQueue, int],
    found: Mapping[MessageQueue, int],
) -> list[MadeAgain]:
    """Return the queues that hold other messages than the stream has read.

    Args:
        positions: the next offset of the stream in each queue.
        marks: the marks at these positions.
        places: the offsets of `to_check`.
        found: store times of the messages there, ms since the epoch; queues without a message there are left out.
    """
    result = []
    for queue in sorted(found):
        mark, at, store_ms = marks[queue], places[queue], found[queue]
        if store_ms > mark.store_ms if at < mark.offset else store_ms != mark.store_ms:
            reason = (
                "its topic was deleted and made again, or its broker lost the end of the queue, because the message at "
                f"offset {at} was stored {_time(store_ms)}, and the message that was read at offset {mark.offset} was "
                f"stored {_time(mark.store_ms)}"
            )
            result.append(MadeAgain(queue, positions.get(queue, mark.offset + 1), None, reason))
    return result


def _time(at_ms: int) -> str:
    if not is_date(at_ms):
        return f"at {at_ms} ms"
    return f"at {dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec='milliseconds')}"


def to_mark(
    end: Mapping[MessageQueue, int], marks: Mapping[MessageQueue, ReadMark], bounds: Mapping[MessageQueue, QueueBounds]
) -> Positions:
    """Return the offset of the last message before `end` in each queue whose mark is another one or missing."""
    return {
        queue: at - 1
        for queue, at in end.items()
        if (limits := bounds.get(queue)) is not None
        and not limits.of_slave
        and limits.minimum < at <= limits.maximum
        and (queue not in marks or marks[queue].offset != at - 1)
    }


def check(
    marks: Marks, positions: Positions, bounds: Mapping[MessageQueue, QueueBounds], store_times: StoreTimes
) -> dict[MessageQueue, MadeAgain]:
    """Return the queues among `positions` that hold other messages than the stream has read up to there."""
    places = to_check({queue: mark for queue, mark in marks.items() if queue in positions}, bounds)
    found = store_times(places) if places else {}
    return {loss.queue: loss for loss in made_again(positions, marks, places, found)}


def newer(
    marks: Marks,
    queues: Iterable[MessageQueue],
    bounds: Mapping[MessageQueue, QueueBounds],
    offsets_by_time: OffsetsByTime,
) -> Positions:
    """Return the offset of the first message of each queue that was stored after its mark."""
    result: Positions = {}
    for queue in queues:
        found = offsets_by_time([queue], marks[queue].store_ms + 1)[queue]
        result[queue] = min(max(found, bounds[queue].minimum), bounds[queue].maximum)
    return result


def marked(
    marks: Marks, end: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, QueueBounds], store_times: StoreTimes
) -> Marks:
    """Return marks at the end of a batch; a queue that has no message there keeps its mark."""
    places = to_mark(end, marks, bounds)
    found = store_times(places) if places else {}
    return marks | {queue: ReadMark(places[queue], store_ms) for queue, store_ms in found.items()}


def slowest(
    marks: Mapping[MessageQueue, ReadMark],
    end: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, QueueBounds],
    before_ms: int | None,
) -> int | None:
    """Return the store time that all queues have reached at the end of a batch, ms since the epoch.

    Messages that are read later were stored at that time or later. A queue that is read to its end has reached the time
    of the newest message that was read from any queue, because its next message is newer. A queue that has more
    messages has reached the time of its mark. A queue whose broker is away has also reached the time of its mark, but
    it delays the result by `AWAY_MS` at most.

    Args:
        marks: the marks at the end of the batch.
        end: the end of the batch in each queue.
        bounds: first and next offset of each queue whose broker answers.
        before_ms: the time at the end of the previous batch, None if unknown. The result is not earlier.
    """
    times = {queue: mark.store_ms for queue, mark in marks.items() if is_date(mark.store_ms)}
    if not times:
        return before_ms
    newest = max(times.values())

    def reached(queue: MessageQueue, at: int) -> int | None:
        limits = bounds.get(queue)
        if limits is None or limits.of_slave:
            return max(times.get(queue, newest - AWAY_MS), newest - AWAY_MS)
        return newest if at >= limits.maximum else times.get(queue)

    found = [reached(queue, at) for queue, at in end.items()]
    if None in found:
        return before_ms
    least = min((one for one in found if one is not None), default=newest)
    return least if before_ms is None else max(least, before_ms)
