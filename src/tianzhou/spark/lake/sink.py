"""`format("tianzhou_lake")`: rows into Delta and Iceberg tables, exactly once, and back.

Tasks write files that nobody sees. The driver commits those of the tasks that succeeded, under the query's id and
the batch's number, in the table's own transaction log; a batch that is there already is not committed again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    Filter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tianzhou.errors import ConfigError
from tianzhou.spark.lake.formats import open_table, read_part
from tianzhou.spark.lake.options import LakeOptions, parse_lake
from tianzhou.spark.lake.tables import Batch
from tianzhou.spark.pickling import Pickled
from tianzhou.spark.rows.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from tianzhou.spark.lake.files import NewFile

logger = logging.getLogger(__name__)


Messages = list[WriterCommitMessage | None]
"""What the tasks report; None for one that failed."""


@dataclass
class WrittenFiles(WriterCommitMessage):
    """What a task reports: its files, and whose batch they are of."""

    files: list[NewFile] = field(default_factory=list)
    query: str | None = None


class _FileWriter(Pickled):
    """Writes the files of tasks, which it is pickled into without the table, and commits or removes them.

    Args:
        options: the table.
        schema: the rows' schema.
        overwrite: whether the rows replace what is there.
    """

    def __init__(self, options: LakeOptions, schema: StructType, overwrite: bool) -> None:
        options.refuse_as_of("a write")
        self._options = options
        self._target = open_table(options).prepare(arrow_schema(schema))
        self._overwrite = overwrite

    def write(self, iterator: Iterator[Any]) -> WrittenFiles:
        """Write a task's rows, which come as Arrow batches, to files."""
        context = TaskContext.get()
        query = batch = None
        partition = 0
        if context is not None:
            query = context.getLocalProperty("sql.streaming.queryId")
            batch = context.getLocalProperty("streaming.sql.batchId")
            partition = context.partitionId()
        return WrittenFiles(self._target.write(iterator, f"part-{batch or 0}-{partition:05d}"), query)

    def _commit(self, messages: Messages, batch: Batch) -> bool:
        files = [file for message in messages if isinstance(message, WrittenFiles) for file in message.files]
        if not files and not self._overwrite:
            return False
        if open_table(self._options).commit(files, batch, self._overwrite):
            return True
        logger.info("batch %d of %s is in %s already", batch.number, batch.writer, self._options.name)
        self._drop(messages)
        return False

    def _drop(self, messages: Messages) -> None:
        """Remove files of tasks whose batch is not to be, but none the table speaks of.

        A commit may have happened although its answer was lost. What killed tasks leave is not seen.
        """
        paths = [file.path for message in messages if isinstance(message, WrittenFiles) for file in message.files]
        known = open_table(self._options).known(paths)
        self._target.remove(path for path in paths if path not in known)


class LakeWriter(_FileWriter, DataSourceArrowWriter):
    """`df.write.format("tianzhou_lake")`: all rows become visible at once.

    With `txnAppId` and `txnVersion` they are written at most once.
    """

    def commit(self, messages: Messages) -> None:
        """Make the rows of all tasks visible."""
        self._commit(messages, Batch(self._options.app_id, self._options.version or 0))

    def abort(self, messages: Messages) -> None:
        """Remove what the tasks wrote."""
        self._drop(messages)


class LakeStreamWriter(_FileWriter, DataSourceStreamArrowWriter):
    """`df.writeStream.format("tianzhou_lake")`: each micro-batch becomes visible at once, and once.

    In output mode complete each batch replaces what is there.

    Raises:
        ConfigError: the options name the batch, which the query does.
    """

    def __init__(self, options: LakeOptions, schema: StructType, overwrite: bool) -> None:
        if options.app_id is not None:
            raise ConfigError(
                f"txnAppId={options.app_id}: a stream's batches are known by the query's own id; leave txnAppId and "
                "txnVersion to writes in batches"
            )
        super().__init__(options, schema, overwrite)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make the rows of all tasks visible, unless an earlier run of the query has done so."""
        query = next(
            (message.query for message in messages if isinstance(message, WrittenFiles) and message.query), None
        )
        if query is None:
            return  # a batch without rows has no tasks
        done, every = self._commit(messages, Batch(query, batchId)), self._options.compact_every
        if done and every and (batchId + 1) % every == 0:
            try:
                open_table(self._options).compact(self._options.target_bytes)
            except Exception as error:  # noqa: BLE001 - the batch is committed, and the next compaction takes its files
                logger.warning("small files are not merged after batch %d: %s", batchId, error)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Remove what the tasks wrote."""
        self._drop(messages)


class FilePartition(InputPartition):
    """A file of a table, for one task."""


class LakeReader(Pickled, DataSourceReader):
    """`spark.read.format("tianzhou_lake")`: the table as it is when the query begins.

    Args:
        options: the table.
        schema: the wanted columns.
    """

    def __init__(self, options: LakeOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._conditions: list[Filter] = []

    def partitions(self) -> list[InputPartition]:
        """Return a task per file."""
        return [FilePartition(part) for part in open_table(self._options).scan(self._conditions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a file; columns it lacks are null."""
        if not isinstance(partition, FilePartition):  # Spark's stand-in for "no partitions"
            return
        yield from read_part(self._options, partition.value, self._schema)


class PruningReader(LakeReader):
    """A reader that passes over files of partitions the query's conditions do not ask for: `filterPushdown=true`.

    Off by default: Spark 4.3 keeps the files of a frame's last query with conditions and reads the
    same for its next query without, and for another branch of one query. It also refuses a class with `pushFilters`
    while `spark.sql.python.filterPushdown.enabled` is false, so this is one of its own.

    Args:
        options: the table.
        schema: the wanted columns.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the conditions; all of them are left for Spark to evaluate as well."""
        self._conditions = filters
        return filters


class TianzhouLake(Pickled, DataSource):
    """The data source Spark makes for `format("tianzhou_lake")`.

    All methods raise `ConfigError` when an option, the schema or the mode is wrong.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tianzhou_lake"

    def _parsed(self) -> LakeOptions:
        return parse_lake(self.options)

    def schema(self) -> StructType:
        """The table's schema.

        Raises:
            ConfigError: an option is wrong.
            LakeError: there is no such table.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(open_table(self._parsed()).schema())

    def reader(self, schema: StructType) -> LakeReader:
        """For `spark.read`."""
        options = self._parsed()
        return (PruningReader if options.filter_pushdown else LakeReader)(options, schema)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802 - Spark's name
        """For `spark.readStream`, which lake tables are not read by."""
        raise ConfigError(
            f"{self._parsed().name}: tianzhou_lake reads tables in batches only; take spark.read for what is there "
            'now, or follow the topic whose messages are in the table with spark.readStream.format("tianzhou")'
        )

    def writer(self, schema: StructType, overwrite: bool) -> LakeWriter:
        """For `df.write`."""
        return LakeWriter(self._parsed(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LakeStreamWriter:  # noqa: N802 - Spark's name
        """For `df.writeStream`."""
        return LakeStreamWriter(self._parsed(), schema, overwrite)
