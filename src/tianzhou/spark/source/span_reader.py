"""From a range of a queue to Arrow batches: what to ask, what the answers mean, what is lost.

Everything here works on a `BlockingQueueReader`; the one that talks to brokers is in `connections`.
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
"""A batch is full with either; larger ones are no faster and cost memory in every task."""
ASK: Final = 4096
"""Messages in a pull while the broker's own limit is not known; brokers give as many as they like."""
MOST_AT_ONCE: Final = 16
LIMITED_BY_BYTES: Final = 56 << 10
"""A reply this long was likely cut at the broker's limit of bytes (64 or 256 KiB, wire.md §6.2), not of messages."""
PAUSE_MS: Final = 100

_LATER: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY})
"""Answers of a broker that is starting, stopping or overloaded."""


class Ask(NamedTuple):
    """One pull: where from, and how many messages at most."""

    offset: int
    most: int


class Pulled(NamedTuple):
    """What a pull brought; records as bytes or a view of some, one behind the other (wire.md §5)."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes | memoryview


class BlockingQueueReader(Protocol):
    """What the source needs of a broker; blocking, for one thread."""

    def topics(self, selection: TopicSelection) -> list[str]:
        """The topics that are selected, sorted; looks them up only for a pattern."""

    def serving(self) -> set[str]:
        """Names of the brokers that are registered and have a master."""

    def check_sql(self, queues: Iterable[MessageQueue], sql: str) -> None:
        """See that the brokers of the queues can evaluate an expression.

        Raises:
            BrokerError: one cannot; says why.
        """

    def queues(self, topics: Sequence[str]) -> list[MessageQueue]:
        """The readable queues of the topics, sorted.

        Raises:
            ClientError: one of the topics does not exist.
        """

    def bounds(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueBounds]:
        """First and next offset of each queue."""

    def maxima(self, queues: Iterable[MessageQueue]) -> Positions:
        """Next offset of each queue."""

    def offsets_by_time(self, queues: Iterable[MessageQueue], timestamp_ms: int) -> Positions:
        """The first offset of each queue stored at a time or later; its end when all are older."""

    def store_times(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Store times of the messages at one offset of each queue, ms since the epoch.

        A queue is left out when it has no message there, or when its broker does not answer.

        Args:
            places: the offset in each queue.
        """

    def pull(self, queue: MessageQueue, asks: Sequence[Ask], tags: str, sql: str | None = None) -> list[Pulled]:
        """Several pulls at once, answered in the same order, none waiting for new messages.

        Args:
            queue: the queue.
            asks: where from, and how many each.
            tags: a tag expression.
            sql: an SQL92 expression instead.

        Raises:
            BrokerError: the broker refuses.
            RemotingError: the broker does not answer.
        """

    def ahead(self, queue: MessageQueue, asks: Sequence[Ask], tags: str, sql: str | None = None) -> None:
        """Send pulls whose answers the next `pull` with the same arguments collects.

        They are answered while the caller does something else; at most the answers' length is taken from memory.
        """

    def publish(self, positions: Mapping[MessageQueue, int]) -> None:
        """Store positions as the group's offsets, for people to see."""

    def wait(self, milliseconds: int) -> None:
        """Let time pass."""

    def monotonic(self) -> float:
        """Seconds of a clock that only goes forward."""


def locate(where: Where, bounds: Mapping[MessageQueue, QueueBounds], reader: BlockingQueueReader) -> Positions:
    """Where a point named by options lies in each queue.

    Raises:
        ConfigError: offsets leave out a queue, name an unknown one or lie behind its end.
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
    """What happens when messages are gone: an error that names them, or a warning that does.

    Args:
        fail: `failOnDataLoss`.
    """

    def __init__(self, fail: bool) -> None:
        self._fail = fail

    def __call__(self, losses: Sequence[MessageLoss]) -> None:
        """Deal with losses.

        Raises:
            DataLoss: there are some, and they are not to be skipped.
        """
        if not losses:
            return
        if self._fail:
            raise DataLoss(losses)
        for loss in losses:
            logger.warning("skipped, for failOnDataLoss=false: %s", loss)


class PullStep(NamedTuple):
    """What a pull's answer means for a range: go on at `at`; `loss` was skipped; or wait and ask again."""

    at: int
    loss: MessageLoss | None = None
    wait: bool = False


def judge(span: Span, at: int, pulled: Pulled) -> PullStep:
    """What an answer to a pull at `at` means (wire.md §6.2). Pure.

    Offsets may jump where a filter or compaction left messages out. They are lost where the queue reports that it
    begins behind them, or that it has been cut off before them.
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
        # The record says where it is in its main topic.
        return offset_in(queue.topic, properties_of(memoryview(body))) or 0
    found: int = POSITION.unpack_from(body, AT["queue_offset"])[0]
    return found


def time_at(queue: MessageQueue, offset: int, pulled: Pulled) -> int | None:
    """Return the store time of the message at an offset from the answer to a pull there, ms; None without this message.

    A record of an inner batch begins before the offset.
    """
    if pulled.status is not PullStatus.FOUND or not pulled.body or _first_offset(queue, pulled.body) > offset:
        return None
    return store_time(memoryview(pulled.body))


def _begins_later(queue: MessageQueue, at: int, begin: int) -> MessageLoss | None:
    return MessageLoss(queue, at, begin, f"the queue now begins at {begin}") if begin > at else None


class SpanReader:
    """Reads one range of one queue.

    Pulls of an unfiltered range are sent ahead: a reply of n messages tells how many the broker gives at once,
    so the next pulls begin n, 2n, … further on and do not wait for each other.

    Args:
        reader: where to read.
        span: what to read.
        options: the filter, the wait for messages that should be there, and what a loss means.
    """

    def __init__(self, reader: BlockingQueueReader, span: Span, options: ReadOptions) -> None:
        self._reader = reader
        self._span = span
        self._tags, self._sql = options.tags, options.sql
        self._ahead = not options.filtered
        self._timeout_s = options.poll_timeout_ms / 1000
        self._on_loss = LossPolicy(options.fail_on_data_loss)
        self._at = span.start
        self._size = 0  # messages the broker gives at once, 0 while unknown
        self._waiting_since: float | None = None

    def chunks(self) -> Iterator[list[bytes | memoryview]]:
        """The range's records as bytes, as they came, about `BATCH_ROWS` records or `BATCH_BYTES` at a time.

        Records before or behind the range may be among them.

        Raises:
            DataLoss: messages of the range are gone, and that is not to be skipped.
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
                        # The broker answers while Spark takes the rows.
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
        # Nothing depends on the length of the last one, so it finds out whether the broker would give more.
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
                return  # the one before came out shorter or longer, so this one overlaps or leaves a gap
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
        """Update how many messages the broker gives at once, which a full reply does not tell."""
        if got != most:
            # A broker that stops at a number of bytes gives another number of messages each time: leave it some room.
            self._size = max(1, got * 3 // 4 if size >= LIMITED_BY_BYTES else got)

    def _not_there(self, pulled: Pulled) -> DataLoss:
        reason = f"the queue ends at {pulled.max_offset}"
        return DataLoss([MessageLoss(self._span.queue, self._at, self._span.end, reason)])

    def _refused(self, error: BrokerError) -> BrokerError | DataLoss:
        """What a refusal means that may be over soon.

        Raises:
            BrokerError: it will not be.
        """
        if error.code in _LATER:
            return error
        illegal = f"queueId[{self._span.queue.queue_id}] is illegal"
        if error.code == ResponseCode.TOPIC_NOT_EXIST or illegal in error.remark:
            return DataLoss([MessageLoss(self._span.queue, self._at, self._span.end, str(error))])
        raise error

    def _wait(self, error: RemotingError | ClientError | BrokerError | OffsetOutOfRange) -> None:
        """Pause before asking again, or give up: the messages are not there, or the broker is not."""
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
        reader: where to read.
        span: what to read.
        options: tags and waits.
        schema: schema of the batches.
        columns: the column of the row schema behind each field.
        decode: function that converts records to batches: `columns.to_batches`.

    Raises:
        DataLoss: messages of the range are gone, and that is not to be skipped.
        RemotingError: the broker did not answer in time.
        CorruptRecord: what it sent are no records.
    """
    tags = options.wanted_tags
    for chunk in SpanReader(reader, span, options).chunks():
        batches = decode(chunk, span.queue, schema, columns, start=span.start, end=span.end, tags=tags)
        chunk.clear()  # what comes next takes its place in memory
        for batch in batches:
            if batch.num_rows:
                yield batch
