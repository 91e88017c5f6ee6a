"""Readers for `format("tianzhou")`, of batches and of streams."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tianzhou.errors import TianzhouError
from tianzhou.spark.pickling import Pickled
from tianzhou.spark.rows.schema import SLOWEST, SLOWEST_BEFORE, arrow_schema, columns_of, without_slowest
from tianzhou.spark.source import offsets
from tianzhou.spark.source.marks import Reached, reached_of
from tianzhou.spark.source.offsets import Span
from tianzhou.spark.source.positions import check_found
from tianzhou.spark.source.pushdown import Needed, needed
from tianzhou.spark.source.queue_watch import Connect, Watch
from tianzhou.spark.source.read_options import ReadOptions
from tianzhou.spark.source.span_reader import LossPolicy, locate, read_span
from tianzhou.spark.source.stream_plan import StreamPlan

logger = logging.getLogger(__name__)


TASK_MESSAGES: Final = 2000
"""Ranges with fewer messages share a task, unless `minPartitions` requires more tasks."""
NOT_KNOWN: Final = Reached()
"""The time that all queues have reached, for reads that do not know it."""


class SpanPartition(InputPartition):
    """Ranges of queues that one task reads.

    Attributes:
        spans: the ranges.
        reached: the store time that all queues of the stream have reached.
    """

    def __init__(self, spans: list[Span], reached: Reached = NOT_KNOWN) -> None:
        super().__init__(", ".join(str(span.queue) for span in spans))
        self.spans = spans
        self.reached = reached


class _SpanReader(Pickled):
    """A reader that divides ranges among tasks and reads them there. It is pickled into the tasks.

    Args:
        options: options of the read.
        schema: the wanted columns.
        connect: returns the process's `BlockingQueueReader`.
    """

    def __init__(self, options: ReadOptions, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._whole = arrow_schema(schema)
        schema, self._places = without_slowest(schema)
        self._columns = columns_of(schema)
        self._schema = arrow_schema(schema)
        self._connect = connect

    def _partitions_of(self, spans: list[Span], reached: Reached = NOT_KNOWN) -> list[InputPartition]:
        at_most = self._options.max_records_per_partition
        pieces = offsets.split(spans, self._options.min_partitions, at_most)
        enough = 0 if self._options.min_partitions else TASK_MESSAGES
        return [SpanPartition(group, reached) for group in offsets.pack(pieces, enough, at_most)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a range; see `span_reader.read_span`."""
        if not isinstance(partition, SpanPartition):  # Spark's stand-in for "no partitions"
            return
        from tianzhou.spark.rows.columns import to_batches
        from tianzhou.spark.rows.compiled_columns import CompiledColumns

        reader = self._connect(self._options)
        rules = self._options.row_rules
        compiled = CompiledColumns(self._schema, self._columns, self._options.wanted_tags, rules)
        decode = partial(to_batches, compiled=compiled, rules=rules)
        for span in partition.spans:
            batches = read_span(reader, span, self._options, self._schema, self._columns, decode)
            if not self._places:
                yield from batches
            else:
                yield from (self._with_slowest(batch, partition.reached) for batch in batches)

    def _with_slowest(self, batch: pa.RecordBatch, reached: Reached) -> pa.RecordBatch:
        from tianzhou.spark.rows.arrays import same_time

        times = {SLOWEST: reached.after_ms, SLOWEST_BEFORE: reached.before_ms}
        columns = list(batch.columns)
        for place, name in sorted(self._places.items()):
            columns.insert(place, same_time(times[name], batch.num_rows))
        return pa.RecordBatch.from_arrays(columns, schema=self._whole)


class BatchReader(_SpanReader, DataSourceReader):
    """A reader of each queue between two fixed positions."""

    def partitions(self) -> list[InputPartition]:
        """Return one range per queue, or more if `minPartitions` and `maxRecordsPerPartition` require it.

        Raises:
            DataLoss: messages of the read are lost, and `failOnDataLoss` is on.
            ConfigError: the options contain positions that do not exist.
            OffsetOutOfRange: a queue's start is after its end.
        """
        bounds = Watch(self._options, self._connect).begin()
        reader = self._connect(self._options)
        start = locate(self._options.starting, bounds, reader)
        check_found(self._options.starting_strategy, start, bounds)
        end = locate(self._options.ending, bounds, reader)
        if self._options.ending.by_time and self._options.starting.offsets is None:
            end = {queue: max(position, start[queue]) for queue, position in end.items()}
        spans, losses = [], []
        for span in self._needed(offsets.spans(start, end)):
            left, lost = offsets.clip(span, bounds[span.queue])
            spans.append(left)
            losses += lost
        LossPolicy(self._options.fail_on_data_loss)(losses)
        return self._partitions_of(spans)

    def _needed(self, spans: list[Span]) -> list[Span]:
        """Return the ranges, reduced by the query's conditions."""
        return spans


class NarrowingReader(BatchReader):
    """A batch reader for `filterPushdown=true`: it reads only the messages that the query's conditions need.

    Spark rejects a class with `pushFilters` while `spark.sql.python.filterPushdown.enabled` is false, so this is a
    separate class.
    """

    _wanted = Needed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Derive the needed messages from the conditions, and return all conditions for Spark to evaluate."""
        self._wanted = needed(filters)
        tags = self._wanted.tags
        if tags is not None and self._options.sql is None:
            tags &= self._options.wanted_tags or tags
            if tags:
                self._options = replace(self._options, tags=" || ".join(sorted(tags)))
            else:
                self._wanted = replace(self._wanted, topics=frozenset())
        return filters

    def _needed(self, spans: list[Span]) -> list[Span]:
        left = [span for whole in spans if (span := self._wanted.narrow(whole)) is not None]
        return self._within_times(left)

    def _within_times(self, spans: list[Span]) -> list[Span]:
        wanted, reader = self._wanted, self._connect(self._options)
        queues = [span.queue for span in spans]
        if wanted.since_ms is not None:
            since = reader.offsets_by_time(queues, max(wanted.since_ms, 0))
            spans = [Span(span.queue, max(span.start, since[span.queue]), span.end) for span in spans]
        if wanted.until_ms is not None:
            until = reader.offsets_by_time(queues, max(wanted.until_ms + 1, 0))
            # Read one more: some brokers return the last message's offset where they should return the queue's end.
            spans = [Span(span.queue, span.start, min(span.end, until[span.queue] + 1)) for span in spans]
        return [span for span in spans if span.start < span.end]


class StreamReader(_SpanReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader. Each micro-batch continues at the end of the last one. `StreamPlan` determines start and end.

    Args:
        options: the options of a stream.
        schema: the wanted columns.
        connect: returns the process's `BlockingQueueReader`.
    """

    def __init__(self, options: ReadOptions, schema: StructType, connect: Connect) -> None:
        super().__init__(options, schema, connect)
        self._plan = StreamPlan(options, connect)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint. Spark calls this twice.

        Raises:
            ClientError: a topic does not exist.
            ConfigError: the options contain queues or positions that do not exist.
        """
        return self._plan.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return `maxOffsetsPerTrigger`, or `minOffsetsPerTrigger`. Spark has no limit with both."""
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the query, see `StreamPlan.end_at_what_is_there`.

        Raises:
            RemotingError: the servers do not answer.
        """
        self._plan.end_at_what_is_there()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch; `start` itself if there are no messages, or too few yet.

        Messages wait for more messages only if Spark does not ask for all available ones.

        Raises:
            DataLoss: messages after `start` are lost, and `failOnDataLoss` is on.
        """
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._plan.latest(start, most, may_wait=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the ends of the queues at the last search, for progress reports."""
        return self._plan.seen()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a micro-batch. They begin at the `from` of `end`; `start` is ignored.

        Raises:
            DataLoss: the batch is run again, and some of its messages have been lost since.
            OffsetOutOfRange: a queue's start is after its end.
        """
        return [] if start == end else self._partitions_of(self._plan.spans(end), reached_of(end))

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the group's offsets if `consumerGroup` is given. The query itself continues from its checkpoint."""
        if not self._options.publish_progress:
            return
        _, position = offsets.from_json(end)
        try:
            self._connect(self._options).publish(position)
        except TianzhouError as error:
            logger.warning("progress of group %s is not published: %s", self._options.consumer_group, error)
