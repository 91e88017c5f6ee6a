"""A range of a queue to Arrow batches: the pulls to send, their results, and lost messages.

This module works on a `BlockingQueueReader`. The implementation for brokers is in `connections`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tianzhou.errors import BrokerError, ClientError, ConfigError, OffsetOutOfRange, RemotingError
from tianzhou.model import MessageQueue, PullStatus
from tianzhou.records.codec import properties_of, store_time
from tianzhou.records.layout import AT, POSITION
from tianzhou.spark.source.offsets import EARLIEST, DataLoss, MessageLoss, Positions, QueueBounds, Span
from tianzhou.spark.source.positions import each, resolve
from tianzhou.spark.source.read_options import ReadOptions, Where
from tianzhou.spark.source.selection import TopicSelection
from tianzhou.store.queues.multi_dispatch import is_light, offset_in
from tianzhou.wire.codes import ResponseCode

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

BATCH_ROWS: Final = 4096
BATCH_BYTES: Final = 4 << 20
"""Maximum size of a batch of rows, beside `BATCH_ROWS`. Larger batches are no faster and use memory in every task."""
ASK: Final = 4096
"""Maximum messages of a pull while the broker's own limit is not known. Brokers may return fewer."""
MOST_AT_ONCE: Final = 16
LIMITED_BY_BYTES: Final = 56 << 10
"""A reply of this size was probably cut at the broker's limit of bytes (64 or 256 KiB, wire.md §6.2)."""
PAUSE_MS: Final = 100

_LATER: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY})
"""Response codes of a broker that is starting, stopping or overloaded."""


class Ask(NamedTuple):
    """A pull: its offset and its maximum number of messages."""

    offset: int
    most: int


class Pulled(NamedTuple):
    """The result of a pull. The body is a series of records, back to back (wire.md §5)."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes | memoryview


class BlockingQueueReader(Protocol):
    """The interface to brokers that the source needs. It is blocking and for one thread."""

    def topics(self, selection: TopicSelection) -> list[str]:
        """Return the selected topics, sorted. Brokers are queried only for a pattern."""

    def serving(self) -> set[str]:
        """Return the names of the brokers that are registered and have a master."""

    def check_sql(self, queues: Iterable[MessageQueue], sql: str) -> None:
        """Check that the brokers of the queues can evaluate an expression.

        Raises:
            BrokerError: a broker cannot. The error contains the reason.
        """

    def queues(self, topics: Sequence[str]) -> list[MessageQueue]:
        """Return the readable queues of the topics, sorted.

        Raises:
            ClientError: one of the topics does not exist.
        """

    def bounds(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueBounds]:
        """Return first and next offset of each queue."""

    def maxima(self, queues: Iterable[MessageQueue]) -> Positions:
        """Return the next offset of each queue."""

    def offsets_by_time(self, queues: Iterable[MessageQueue], timestamp_ms: int) -> Positions:
        """Return the first offset of each queue stored at a time or later.

        It is the queue's end if all messages are older.
        """

    def store_times(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return store times of the messages at one offset of each queue, ms since the epoch.

        A queue is left out if it has no message at that offset, or if its broker does not answer.

        Args:
            places: the offset in each queue.
        """

    def pull(self, queue: MessageQueue, asks: Sequence[Ask], tags: str, sql: str | None = None) -> list[Pulled]:
        """Send several pulls at once, and return their results in the same order. None waits for new messages.

        Args:
            queue: the queue.
            asks: offset and maximum messages of each pull.
            tags: a tag expression.
            sql: an SQL92 expression, used instead of the tags.

        Raises:
            BrokerError: the broker rejects a pull.
            RemotingError: the broker does not answer.
        """

    def ahead(self, queue: MessageQueue, asks: Sequence[Ask], tags: str, sql: str | None = None) -> None:
        """Send pulls whose results the next `pull` with the same arguments returns.

        The broker answers while the caller works. The replies use no more memory than their size.
        """

    def publish(self, positions: Mapping[MessageQueue, int]) -> None:
        """Commit positions as the group's offsets, for monitoring."""

    def wait(self, milliseconds: int) -> None:
        """Sleep. Connections are served meanwhile."""

    def monotonic(self) -> float:
        """Return the seconds of a monotonic clock."""


def locate(where: Where, bounds: Mapping[MessageQueue, QueueBounds], reader: BlockingQueueReader) -> Positions:
    """Return the position in each queue of a point given by options.

    Raises:
        ConfigError: the offsets lack a queue, contain an unknown queue, or are after a queue's end.
    """
    if where.timestamp_ms is not None:
        return _at_times(dict.fromkeys(bounds, where.timestamp_ms), bounds, reader)
    if where.timestamps_ms is not None:
        return _at_times(each(where.timestamps_ms, bounds, where.option), bounds, reader)
    if where.offsets is None:
        index = 0 if where.mark == EARLIEST else 1
        return {queue: limits[index] for queue, limits in bounds.items()}
    positions = resolve(where.offsets, bounds, where.option)
    for queue, position in positions.items():
        if position > bounds[queue].maximum:
            raise ConfigError(
                f"{where.option}: offset {position} of {queue} lies behind its end; expected at most "
                f"{bounds[queue].maximum}"
            )
    return positions


def _at_times(
    times: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, QueueBounds], reader: BlockingQueueReader
) -> Positions:
    found: Positions = {}
    for time in sorted(set(times.values())):
        found |= reader.offsets_by_time([queue for queue, wanted in times.items() if wanted == time], time)
    return {queue: min(max(found[queue], limits.minimum), limits.maximum) for queue, limits in bounds.items()}


class LossPolicy:
    """A policy for lost messages: raise an error, or log a warning.

    Args:
        fail: `failOnDataLoss`.
    """

    def __init__(self, fail: bool) -> None:
        self._fail = fail

    def __call__(self, losses: Sequence[MessageLoss]) -> None:
        """Raise an error or log a warning for each loss.

        Raises:
            DataLoss: there are losses, and `failOnDataLoss` is on.
        """
        if not losses:
            return
        if self._fail:
            raise DataLoss(losses)
        for loss in losses:
            logger.warning("skipped, for failOnDataLoss=false: %s", loss)


class PullStep(NamedTuple):
    """A decision after a pull: continue at `at`, skip `loss`, or wait and pull again."""

    at: int
    loss: MessageLoss | None = None
    wait: bool = False


def judge(span: Span, at: int, pulled: Pulled) -> PullStep:
    """Decide what to do after a pull at `at` (wire.md §6.2). Pure.

    Offsets may have gaps where a filter or compaction removed messages. Messages are lost if the queue reports that it
    begins after them or ends before them.
    """
    queue = span.queue
    following = min(pulled.next_offset, span.end)
    if pulled.status is PullStatus.FOUND:
        first = _first_offset(queue, pulled.body) if pulled.body else following
        loss = _begins_later(queue, at, min(first, pulled.min_offset, span.end))
        return PullStep(following, loss, wait=following <= at)
    if pulled.next_offset > at:
        if pulled.status is PullStatus.NO_MATCHED_MSG:
            return PullStep(following, _begins_later(queue, at, min(pulled.min_offset, following)))
        return PullStep(following, _begins_later(queue, at, following))
    return PullStep(at, wait=True)


def _first_offset(queue: MessageQueue, body: bytes | memoryview) -> int:
    if is_light(queue.topic):
        # The record's header contains its offset in the main topic.
        return offset_in(queue.topic, properties_of(memoryview(body))) or 0
    found: int = POSITION.unpack_from(body, AT["queue_offset"])[0]
    return found


def time_at(queue: MessageQueue, offset: int, pulled: Pulled) -> int | None:
    """Return the store time in ms of the message at an offset, from a pull there; None without this message.

    A record of an inner batch begins before the offset.
    """
    if pulled.status is not PullStatus.FOUND or not pulled.body or _first_offset(queue, pulled.body) > offset:
        return None
    return store_time(memoryview(pulled.body))


def _begins_later(queue: MessageQueue, at: int, begin: int) -> MessageLoss | None:
    return MessageLoss(queue, at, begin, f"the queue now begins at {begin}") if begin > at else None


class SpanReader:
    """A reader of one range of one queue.

    Pulls of an unfiltered range are sent ahead. A reply of n messages shows how many the broker returns at once, so the
    next pulls begin at n, 2n, … after it and do not wait for each other.

    Args:
        reader: the interface to the broker.
        span: the range.
        options: the filter, the timeout for messages that should exist, and the policy for lost messages.
    """

    def __init__(self, reader: BlockingQueueReader, span: Span, options: ReadOptions) -> None:
        self._reader = reader
        self._span = span
        self._tags, self._sql = options.tags, options.sql
        self._ahead = not options.filtered
        self._timeout_s = options.poll_timeout_ms / 1000
        self._on_loss = LossPolicy(options.fail_on_data_loss)
        self._at = span.start
        self._size = 0  # messages that the broker returns at once; 0 while unknown
        self._waiting_since: float | None = None

    def chunks(self) -> Iterator[list[bytes | memoryview]]:
        """Return the range's records as bytes from the replies, about `BATCH_ROWS` records or `BATCH_BYTES` at a time.

        The records may include some before or after the range.

        Raises:
            DataLoss: messages of the range are lost, and `failOnDataLoss` is on.
            RemotingError: the broker did not answer in time.
        """
        parts: list[bytes | memoryview] = []
        size, begun = 0, self._at
        while self._at < self._span.end:
            for body in self._round():
                parts.append(body)
                size += len(body)
            if size >= BATCH_BYTES or self._at - begun >= BATCH_ROWS:
                if parts:
                    if self._ahead and self._at < self._span.end:
                        # The broker answers while Spark processes the rows.
                        self._reader.ahead(self._span.queue, self._asks(), self._tags, self._sql)
                    yield parts
                parts, size, begun = [], 0, self._at
        if parts:
            yield parts

    def _asks(self) -> list[Ask]:
        left = self._span.end - self._at
        if not self._size or not self._ahead:
            return [Ask(self._at, min(left, ASK))]
        wanted = min(-(-BATCH_ROWS // self._size), -(-left // self._size), MOST_AT_ONCE)
        asks = [Ask(self._at + step * self._size, self._size) for step in range(wanted)]
        # No later pull depends on the size of the last reply, so let the last pull find out whether the broker returns
        # more.
        last = asks[-1].offset
        asks[-1] = Ask(last, min(self._span.end - last, ASK))
        return asks

    def _round(self) -> Iterator[bytes | memoryview]:
        asks = self._asks()
        try:
            answers = self._reader.pull(self._span.queue, asks, self._tags, self._sql)
        except (RemotingError, ClientError) as error:
            self._wait(error)
            return
        except BrokerError as error:
            self._wait(self._refused(error))
            return
        for ask, pulled in zip(asks, answers, strict=True):
            if ask.offset != self._at:
                return  # The previous reply was shorter or longer than expected, so this one overlaps or leaves a gap.
            step = judge(self._span, self._at, pulled)
            if step.wait:
                self._wait(self._not_there(pulled))
                return
            self._waiting_since = None
            if step.loss is not None:
                self._on_loss([step.loss])
            if pulled.body:
                yield pulled.body
                self._learn(step.at - self._at, ask.most, len(pulled.body))
            self._at = step.at

    def _learn(self, got: int, most: int, size: int) -> None:
        """Update the number of messages that the broker returns at once.

        A reply with the requested number of messages does not show it.
        """
        if got != most:
            # A broker that stops at a number of bytes returns a varying number of messages, so expect a quarter fewer.
            self._size = max(1, got * 3 // 4 if size >= LIMITED_BY_BYTES else got)

    def _not_there(self, pulled: Pulled) -> DataLoss:
        reason = f"the queue ends at {pulled.max_offset}"
        return DataLoss([MessageLoss(self._span.queue, self._at, self._span.end, reason)])

    def _refused(self, error: BrokerError) -> BrokerError | DataLoss:
        """Return the error for a rejection that may be temporary.

        Raises:
            BrokerError: the rejection is permanent.
        """
        if error.code in _LATER:
            return error
        illegal = f"queueId[{self._span.queue.queue_id}] is illegal"
        if error.code == ResponseCode.TOPIC_NOT_EXIST or illegal in error.remark:
            return DataLoss([MessageLoss(self._span.queue, self._at, self._span.end, str(error))])
        raise error

    def _wait(self, error: RemotingError | ClientError | BrokerError | OffsetOutOfRange) -> None:
        """Pause before the next attempt. Raise the error if the timeout has passed."""
        now = self._reader.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < self._timeout_s:
            self._reader.wait(PAUSE_MS)
            return
        if isinstance(error, DataLoss):
            self._on_loss(error.losses)
            self._at = self._span.end
            return
        raise error


def read_span(
    reader: BlockingQueueReader,
    span: Span,
    options: ReadOptions,
    schema: pa.Schema,
    columns: tuple[str, ...],
    decode: Callable[..., Iterable[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range as Arrow batches.

    Args:
        reader: the interface to the broker.
        span: the range.
        options: the tags and timeouts.
        schema: schema of the batches.
        columns: the column of the row schema behind each field.
        decode: function that converts records to batches: `columns.to_batches`.

    Raises:
        DataLoss: messages of the range are lost, and `failOnDataLoss` is on.
        RemotingError: the broker did not answer in time.
        CorruptRecord: the broker's reply contains bytes that are not records.
    """
    tags = options.wanted_tags
    for chunk in SpanReader(reader, span, options).chunks():
        batches = decode(chunk, span.queue, schema, columns, start=span.start, end=span.end, tags=tags)
        chunk.clear()  # free the memory for the next chunk
        for batch in batches:
            if batch.num_rows:
                yield batch
