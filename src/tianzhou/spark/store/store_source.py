"""A data source for `format("tianzhou_store")`: the topics of a store folder as tables, read without a broker."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tianzhou.errors import ConfigError, StoreUnreadable
from tianzhou.model import MessageQueue
from tianzhou.spark.option_values import BATCH, STREAM
from tianzhou.spark.pickling import Pickled
from tianzhou.spark.rows.rules import RowRules
from tianzhou.spark.rows.schema import arrow_schema, columns_of, schema_of
from tianzhou.spark.source import marks as m
from tianzhou.spark.source import offsets
from tianzhou.spark.source.offsets import MessageLoss, Positions, QueueBounds, Span
from tianzhou.spark.source.positions import check_found
from tianzhou.spark.source.refused import RefusedStream
from tianzhou.spark.store.store_options import StoreOptions, StorePoint, parse_store

if TYPE_CHECKING:
    import pyarrow as pa

    from tianzhou.spark.store.store_files import StoreFiles

TASK_MESSAGES: Final = 100_000
"""Ranges with fewer messages share a task, and longer ones are split, unless options require otherwise."""

GONE_AFTER_S: Final = 2.0
"""Seconds for which a queue must be missing before it counts as lost. A repair of the store replaces queue folders."""
LOOK_EVERY_S: Final = 0.1

More = Mapping[tuple[str, int], tuple[int, bytes]]


class StorePartition(InputPartition):
    """Ranges of queues that one task reads, and the units that the files of these queues lack."""

    def __init__(self, spans: list[Span], more: More) -> None:
        super().__init__(", ".join(str(span.queue) for span in spans))
        self.spans = spans
        self.more = more


def _open(options: StoreOptions, more: More | None = None) -> StoreFiles:
    from tianzhou.spark.store.store_files import StoreFiles, root_of

    return StoreFiles(
        root_of(Path(options.path)), [Path(path) for path in options.commit_logs], options.broker_name, more
    )


def _queues(store: StoreFiles, options: StoreOptions, *, all_there: bool = True) -> list[MessageQueue]:
    """Return the queues to read.

    Raises:
        ConfigError: a topic or queue of the options does not exist, and `all_there` is set.
    """
    topics: tuple[str, ...] = options.topics
    if options.pattern is not None:
        topics = tuple(sorted(topic for topic in store.user_topics() if options.wants_topic(topic)))
    found = store.queues(topics)
    if all_there:
        missing = sorted(set(topics) - {queue.topic for queue in found})
        if missing:
            present = ", ".join(sorted(store.user_topics())) or "none"
            raise ConfigError(f"subscribe: {options.path} has no topic {', '.join(missing)}; there are {present}")
        for topic, numbers in (options.assigned or {}).items():
            unknown = set(numbers) - {queue.queue_id for queue in found if queue.topic == topic}
            if unknown:
                raise ConfigError(f"assign: {topic} has no queue {', '.join(map(str, sorted(unknown)))} in this store")
    return [queue for queue in found if options.wants(queue)]


def _locate(store: StoreFiles, point: StorePoint, bounds: Mapping[MessageQueue, QueueBounds]) -> Positions:
    if point.timestamp_ms is None:
        return point.resolve(bounds)
    found = store.offsets_by_time(bounds, point.timestamp_ms)
    return {queue: min(max(found[queue], limits.minimum), limits.maximum) for queue, limits in bounds.items()}


class _StoreSpanReader(Pickled):
    """A reader that divides ranges among tasks and reads them there. It is pickled into the tasks.

    Args:
        options: options of the read.
        schema: the wanted columns.
    """

    def __init__(self, options: StoreOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns_of(schema)
        self._schema = arrow_schema(schema)

    def _partitions_of(self, spans: list[Span], more: More) -> list[InputPartition]:
        options = self._options
        at_most = options.max_records_per_partition
        at_least = options.min_partitions or (os.cpu_count() or 1 if not at_most else 0)
        total = sum(span.count for span in spans)
        if not options.min_partitions:
            at_least = min(at_least, -(-total // TASK_MESSAGES))
        pieces = offsets.split(spans, at_least, at_most)
        enough = 0 if options.min_partitions else TASK_MESSAGES
        return [
            StorePartition(group, {place: more[place] for place in _places(group) if place in more})
            for group in offsets.pack(pieces, enough, at_most)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of some ranges; see `store_rows.RowReader.read`."""
        if not isinstance(partition, StorePartition):  # Spark's stand-in for "no partitions"
            return
        from tianzhou.spark.store.store_rows import Wanted, read_all

        options = self._options
        wanted = Wanted(
            self._schema,
            self._columns,
            options.tags,
            options.key,
            options.verify_crc,
            options.fail_on_data_loss,
            RowRules(options.max_born_ahead_ms, options.corrupt_bodies),
        )
        try:
            store = _open(options, partition.more)
        except StoreUnreadable as error:
            raise StoreUnreadable(
                f"node {socket.gethostname()}: {error}; the driver sees this store, and tasks run on any node, so each "
                "needs it under the same path (docs/howto/spark-cluster.md)"
            ) from error
        yield from read_all(store, partition.spans, wanted)


def _places(spans: list[Span]) -> set[tuple[str, int]]:
    return {(span.queue.topic, span.queue.queue_id) for span in spans}


_GONE: Final = "the store has no such queue any more, as when its topic is deleted"


def _clipped(
    spans: list[Span],
    bounds: Mapping[MessageQueue, QueueBounds],
    fail: bool,
    others: Mapping[MessageQueue, MessageLoss] = MappingProxyType({}),
) -> list[Span]:
    from tianzhou.spark.source.span_reader import LossPolicy

    left: list[Span] = []
    losses: list[MessageLoss] = []
    for span in spans:
        if span.queue in others:
            losses.append(others[span.queue])
            continue
        if span.queue not in bounds:
            losses.append(MessageLoss(span.queue, span.start, span.end, _GONE))
            continue
        rest, lost = offsets.clip(span, bounds[span.queue])
        left.append(rest)
        losses += lost
    LossPolicy(fail)(losses)
    return left


class StoreReader(_StoreSpanReader, DataSourceReader):
    """A reader of each queue between two fixed positions."""

    def partitions(self) -> list[InputPartition]:
        """Return ranges of about equal work.

        Raises:
            StoreUnreadable: there is no such store.
            ConfigError: the options contain topics, queues or offsets that the store does not have.
            DataLoss: messages of the read are lost, and `failOnDataLoss` is on.
        """
        options = self._options
        store = _open(options)
        bounds = store.bounds(_queues(store, options))
        start = _locate(store, options.starting, bounds)
        check_found(options.starting_strategy, start, bounds)
        end = _locate(store, options.ending, bounds)
        if options.ending.timestamp_ms is not None and options.starting.offsets is None:
            end = {queue: max(position, start[queue]) for queue, position in end.items()}
        spans = _clipped(offsets.spans(start, end), bounds, options.fail_on_data_loss)
        if options.key is not None:
            spans = _with_key(store, spans, options.key)
        return self._partitions_of(spans, store.more)


def _with_key(store: StoreFiles, spans: list[Span], key: str) -> list[Span]:
    """Return the parts of ranges in which messages with a key may be."""
    hits = {topic: store.lookup(topic, key) for topic in {span.queue.topic for span in spans}}
    result = []
    for span in spans:
        found, indexed = hits[span.queue.topic]
        for low, high in store.find(span.queue, found, indexed):
            begin, end = store.offsets_of(span.queue, low, high)
            if max(begin, span.start) < min(end, span.end):
                result.append(Span(span.queue, max(begin, span.start), min(end, span.end)))
    return result


class StoreStreamReader(_StoreSpanReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that follows a store on this machine while a broker writes to it.

    Offsets have the form of `readers.StreamReader`. A store has one broker, so positions that were written under
    another `brokerName` are positions of the same queues.

    Args:
        options: the options of a stream.
        schema: the wanted columns.
    """

    def __init__(self, options: StoreOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._store: StoreFiles | None = None
        self._initial: dict[str, Any] | None = None
        self._target: Positions | None = None
        self._last: dict[MessageQueue, QueueBounds] = {}
        self._ends: Positions = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the mapped files, which must stay in the driver."""
        return {**self.__dict__, "_store": None}

    def _bounds(self, *, first: bool = False) -> dict[MessageQueue, QueueBounds]:
        if self._store is None:
            self._store = _open(self._options)
        else:
            self._store.look()
        self._last = self._store.bounds(_queues(self._store, self._options, all_there=first))
        self._ends |= offsets.ends(self._last)
        return self._last

    def _positions(self, offset: Mapping[str, Any]) -> tuple[Positions, Positions]:
        """Return the start and end of a batch, under the present name of the broker."""
        start, end = offsets.from_json(offset)
        return offsets.renamed(start, self._name), offsets.renamed(end, self._name)

    @property
    def _name(self) -> str:
        from tianzhou.spark.store.store_files import UNNAMED

        return self._options.broker_name or UNNAMED

    def _gone(self, position: Positions) -> list[MessageLoss]:
        """Return the losses of queues that the stream has read and that the store no longer has."""
        begun = time.monotonic()
        while True:
            gone = [queue for queue in sorted(position) if queue not in self._last and self._options.wants(queue)]
            if not gone or time.monotonic() - begun >= GONE_AFTER_S:
                break
            time.sleep(LOOK_EVERY_S)
            self._bounds()
        ends = {queue: max(position[queue], self._ends.get(queue, 0)) for queue in gone}
        return [MessageLoss(q, position[q], ends[q] if q in self._ends else None, _GONE) for q in gone]

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint. It is determined once, because Spark calls this twice.

        Raises:
            StoreUnreadable: there is no such store.
            ConfigError: the options contain topics, queues or offsets that the store does not have.
        """
        if self._initial is None:
            bounds = self._bounds(first=True)
            assert self._store is not None
            start = _locate(self._store, self._options.starting, bounds)
            check_found(self._options.starting_strategy, start, bounds)
            marks = m.marked({}, start, bounds, self._store.store_times)
            self._initial = m.with_marks(offsets.to_json(start, start), marks)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return `maxOffsetsPerTrigger`."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Store the present ends of the queues. Later messages are not read."""
        self._target = offsets.ends(self._bounds())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch; `start` itself if there are no messages.

        Raises:
            DataLoss: messages after `start` are lost, and `failOnDataLoss` is on.
        """
        from tianzhou.spark.source.span_reader import LossPolicy

        _, position = self._positions(start)
        self._bounds()
        gone = self._gone(position)
        bounds = self._last
        assert self._store is not None
        begin, losses = offsets.begin(position, bounds)
        marks = m.renamed(m.marks_of(start), self._name)
        others = m.check(marks, position, bounds, self._store.store_times)
        losses = [*(loss for loss in losses if loss.queue not in others), *others.values(), *gone]
        LossPolicy(self._options.fail_on_data_loss)(losses)
        begin |= m.newer(marks, others, bounds, self._store.offsets_by_time)
        for loss in gone:
            del begin[loss.queue]
        end = offsets.available(begin, bounds)
        if self._target is not None:
            end = offsets.up_to(self._target, begin, end)
        if isinstance(limit, ReadMaxRows):
            end = offsets.limit(begin, end, limit.max_rows)
        if end == begin and not losses:
            return start
        kept = {queue: mark for queue, mark in marks.items() if queue in begin and queue not in others}
        return m.with_marks(offsets.to_json(begin, end), m.marked(kept, end, bounds, self._store.store_times))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the ends of the queues at the last listing, for progress reports."""
        ends = offsets.ends(self._last)
        return offsets.to_json(ends, ends) if ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a micro-batch. They begin at the `from` of `end`; `start` is ignored.

        Raises:
            DataLoss: the batch is run again, and some of its messages have been lost since.
        """
        if start == end:
            return []
        spans = offsets.spans(*self._positions(end))
        bounds = self._bounds()
        assert self._store is not None
        starts = {span.queue: span.start for span in spans}
        others = m.check(m.renamed(m.marks_of(end), self._name), starts, bounds, self._store.store_times)
        spans = _clipped(spans, bounds, self._options.fail_on_data_loss, others)
        return self._partitions_of(spans, self._store.more)


class TianzhouStore(Pickled, DataSource):
    """A data source for `format("tianzhou_store")`.

    All methods except `streamReader` raise `ConfigError` when an option, the schema or the mode is wrong.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tianzhou_store"

    def schema(self) -> StructType:
        """Return the row schema (see `schema`).

        Raises:
            ConfigError: an option is wrong, for any kind of read.
        """
        return schema_of(parse_store(self.options))

    def reader(self, schema: StructType) -> StoreReader:
        """Return the reader for `spark.read`."""
        return StoreReader(parse_store(self.options, BATCH), schema)

    def streamReader(self, schema: StructType) -> StoreStreamReader | RefusedStream:  # noqa: N802 - Spark's name
        """Return the reader for `spark.readStream`. It raises no error, see `source.refused`."""
        try:
            return StoreStreamReader(parse_store(self.options, STREAM), schema)
        except ConfigError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Reject the write: a store is written by a broker or by `tianzhou store import`.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            'a store is only read here; write to its broker with format("tianzhou"), or use `tianzhou store import`'
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        """Reject the write, see `writer`."""
        return self.writer(schema, overwrite)
