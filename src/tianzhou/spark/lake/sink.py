"""`format("tianzhou_lake")`: rows into Delta and Iceberg tables, exactly once, and back.

Tasks write files that readers do not see. The driver commits the files of the successful tasks to the table's own
transaction log, under the query's id and the batch's number. A batch that the log contains is not committed again.
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
"""Messages of the tasks to the driver. A failed task has None."""


@dataclass
class WrittenFiles(WriterCommitMessage):
    """A task's message: its files, and the query of its batch."""

    files: list[NewFile] = field(default_factory=list)
    query: str | None = None


class _FileWriter(Pickled):
    """A writer of the files of tasks. It is pickled into them without the table, and commits or removes their files.

    Args:
        options: options of the table.
        schema: schema of the rows.
        overwrite: whether the rows replace the rows of the table.
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
        """Remove the files of tasks of an aborted batch, but no files that the table contains.

        A commit may have succeeded although its reply was lost. Files of killed tasks are not found.
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

    In output mode complete each batch replaces the rows of the table.

    Raises:
        ConfigError: the options name the batch. The query's id names the batches of a stream.
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
    """A file of a table, read by one task."""


class LakeReader(Pickled, DataSourceReader):
    """A reader for `spark.read.format("tianzhou_lake")`: it reads the table as it is when the query begins.

    Args:
        options: options of the table.
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
        """Return the rows of a file. Columns that the file lacks are null."""
        if not isinstance(partition, FilePartition):  # Spark's stand-in for "no partitions"
            return
        yield from read_part(self._options, partition.value, self._schema)


class PruningReader(LakeReader):
    """A reader for `filterPushdown=true`: it skips files whose partition does not match the query's conditions.

    The option is off by default. Spark 4.3 retains the file list of a frame's last query with conditions, and reads the
    same files for the frame's next query without conditions and for another branch of the same query. Spark also
    rejects a class with `pushFilters` while `spark.sql.python.filterPushdown.enabled` is false, so this is a separate
    class.

    Args:
        options: options of the table.
        schema: the wanted columns.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Store the conditions for `partitions`, and return all of them for Spark to evaluate."""
        self._conditions = filters
        return filters


class TianzhouLake(Pickled, DataSource):
    """A data source for `format("tianzhou_lake")`.

    All methods raise `ConfigError` when an option, the schema or the mode is wrong.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tianzhou_lake"

    def _parsed(self) -> LakeOptions:
        return parse_lake(self.options)

    def schema(self) -> StructType:
        """Return the table's schema.

        Raises:
            ConfigError: an option is wrong.
            LakeError: there is no such table.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(open_table(self._parsed()).schema())

    def reader(self, schema: StructType) -> LakeReader:
        """Return the reader for `spark.read`."""
        options = self._parsed()
        return (PruningReader if options.filter_pushdown else LakeReader)(options, schema)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802 - Spark's name
        """Reject `spark.readStream`: lake tables are read in batches only."""
        raise ConfigError(
            f"{self._parsed().name}: tianzhou_lake reads tables in batches only; take spark.read for what is there "
            'now, or follow the topic whose messages are in the table with spark.readStream.format("tianzhou")'
        )

    def writer(self, schema: StructType, overwrite: bool) -> LakeWriter:
        """Return the writer for `df.write`."""
        return LakeWriter(self._parsed(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LakeStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer for `df.writeStream`."""
        return LakeStreamWriter(self._parsed(), schema, overwrite)
