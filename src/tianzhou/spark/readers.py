"""What reads for `format("tianzhou")`, in batches and as streams."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tianzhou.errors import TianzhouError
from tianzhou.spark import columns, offsets
from tianzhou.spark.offsets import Positions, Span
from tianzhou.spark.options import ReadOptions
from tianzhou.spark.reading import LossPolicy, locate, read_span
from tianzhou.spark.schema import arrow_schema, columns_of
from tianzhou.spark.watching import Connect, Watch

logger = logging.getLogger(__name__)


TASK_MESSAGES: Final = 2000
"""Ranges of fewer messages share a task, unless `minPartitions` asks for more tasks."""


class SpanPartition(InputPartition):
    """Ranges of queues: what one task reads."""

    def __init__(self, spans: list[Span]) -> None:
        super().__init__(", ".join(str(span.queue) for span in spans))
        self.spans = spans


class _Rows:
    """What batch reader and stream reader have in common; pickled into every task, so it holds no state."""

    def __init__(self, options: ReadOptions, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._columns = columns_of(schema)
        self._schema = arrow_schema(schema)
        self._connect = connect

    def partitions_of(self, spans: list[Span]) -> list[InputPartition]:
        pieces = offsets.split(spans, self._options.min_partitions, self._options.max_records_per_partition)
        enough = 0 if self._options.min_partitions else TASK_MESSAGES
        return [SpanPartition(group) for group in offsets.pack(pieces, enough)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SpanPartition):  # Spark's stand-in for "no partitions"
            return
        reader = self._connect(self._options)
        for span in partition.spans:
            yield from read_span(reader, span, self._options, self._schema, self._columns, columns.to_batch)


class BatchReader(DataSourceReader):
    """Reads each queue between two fixed positions.

    Args:
        options: the options of a batch read.
        schema: the wanted columns.
        connect: gives the process's `QueueReader`.
    """

    def __init__(self, options: ReadOptions, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._rows = _Rows(options, schema, connect)
        self._connect = connect

    def partitions(self) -> list[InputPartition]:
        """One range per queue, or more when asked for.

        Raises:
            DataLoss: offsets that were asked for are gone, and that is not to be skipped.
            ConfigError: the options name positions that do not exist.
            OffsetOutOfRange: a queue would start behind its end.
        """
        bounds = Watch(self._options, self._connect).begin()
        reader = self._connect(self._options)
        start = locate(self._options.starting, bounds, reader)
        end = locate(self._options.ending, bounds, reader)
        if self._options.ending.timestamp_ms is not None and self._options.starting.offsets is None:
            end = {queue: max(position, start[queue]) for queue, position in end.items()}
        spans, losses = [], []
        for span in offsets.spans(start, end):
            left, lost = offsets.clip(span, bounds[span.queue])
            spans.append(left)
            losses += lost
        LossPolicy(self._options.fail_on_data_loss)(losses)
        return self._rows.partitions_of(spans)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range; see `reading.read_span`."""
        return self._rows.read(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on from where the last micro-batch ended.

    Every offset carries where its batch begins (see `offsets`), so a batch that is run again after a restart
    reads the same messages, the very first one included.

    Args:
        options: the options of a stream.
        schema: the wanted columns.
        connect: gives the process's `QueueReader`.
    """

    def __init__(self, options: ReadOptions, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._rows = _Rows(options, schema, connect)
        self._connect = connect
        self._on_loss = LossPolicy(options.fail_on_data_loss)
        self._initial: dict[str, Any] | None = None
        self._target: Positions | None = None
        self._watch = Watch(options, connect)
        self._planned: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins; asked for twice, so it is found out once.

        Raises:
            ConfigError: `startingOffsets` names positions that do not exist.
        """
        if self._initial is None:
            start = locate(self._options.starting, self._watch.begin(), self._connect(self._options))
            self._initial = offsets.to_json(start, start)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """`maxOffsetsPerTrigger`."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the queues end now; nothing behind that is read."""
        self._target = {queue: limits.maximum for queue, limits in self._watch.begin().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next micro-batch ends; `start` itself when there is nothing to read.

        Raises:
            DataLoss: messages behind `start` are gone, and that is not to be skipped.
        """
        _, position = offsets.from_json(start)
        bounds = self._watch.now()
        begin, losses = offsets.begin(position, bounds)
        self._on_loss(losses)
        end = offsets.available(begin, bounds)
        if self._target is not None:
            target = self._target
            end = {queue: min(at, max(begin[queue], target.get(queue, 0))) for queue, at in end.items()}
        if isinstance(limit, ReadMaxRows):
            end = offsets.limit(begin, end, limit.max_rows)
        if end == begin and not losses:
            return start
        self._planned = offsets.to_json(begin, end)
        return self._planned

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Where the queues ended when last looked at, for progress reports."""
        ends = {queue: limits.maximum for queue, limits in self._watch.last.items()}
        return offsets.to_json(ends, ends) if ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a micro-batch: from what `end` says about its beginning, whatever `start` is.

        Raises:
            DataLoss: the batch is run again, and some of its messages are gone by now.
            OffsetOutOfRange: a queue would start behind its end.
        """
        if start == end:
            return []
        spans = offsets.spans(*offsets.from_json(end))
        if end != self._planned:  # planned by an earlier run of the query: look whether all is still there
            spans = self._clip(spans)
        return self._rows.partitions_of(spans)

    def _clip(self, spans: list[Span]) -> list[Span]:
        bounds = self._watch.now()
        left, losses = [], []
        for span in spans:
            if span.queue not in bounds:  # its broker is away: the task waits for it
                left.append(span)
                continue
            rest, lost = offsets.clip(span, bounds[span.queue])
            left.append(rest)
            losses += lost
        self._on_loss(losses)
        return left

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range; see `reading.read_span`."""
        return self._rows.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Publish the group's progress when a group was given; the checkpoint is what counts."""
        if not self._options.publish_progress:
            return
        _, position = offsets.from_json(end)
        try:
            self._connect(self._options).publish(position)
        except TianzhouError as error:
            logger.warning("progress of group %s is not published: %s", self._options.consumer_group, error)
