"""Warm-up of a session before its first query: starts Spark's Python processes, which import their modules.

Spark starts one process to find data sources, one to make them, one to plan a read and one for tasks. It starts each at
its first use, one after another.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tianzhou.spark.pickling import Pickled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

READERS, COLUMNS = "tianzhou.spark.source.readers", "tianzhou.spark.rows.columns"


class Nothing(Pickled, DataSourceReader):
    """A reader of no rows, with all modules that a reader of topics needs."""

    def partitions(self) -> list[InputPartition]:
        """Return one task."""
        import_module(READERS)
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return no rows."""
        import_module(READERS)
        import_module(COLUMNS)
        yield from ()


class WarmUp(Pickled, DataSource):
    """A data source for `format("tianzhou_warm_up")`: a table without rows."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tianzhou_warm_up"

    def schema(self) -> str:
        """Return one column. No row has it."""
        return "body BINARY"

    def reader(self, schema: StructType) -> Nothing:
        """Return the reader for `spark.read`."""
        return Nothing()


def begin(spark: SparkSession) -> threading.Thread:
    """Start Spark's Python processes in the background. Return the thread that does it.

    Args:
        spark: the session.
    """
    thread = threading.Thread(target=_warm_up, args=(spark,), name="tianzhou-spark-warm-up", daemon=True)
    thread.start()
    return thread


def _warm_up(spark: SparkSession) -> None:
    try:
        spark.dataSource.register(WarmUp)
        spark.read.format(WarmUp.name()).load().collect()
    except Exception as error:  # noqa: BLE001 - the session may end meanwhile; the first query reports other errors
        logger.debug("the first query will be slower: %s", error)
