"""What a first query of a session waits for, begun beforehand: Spark's Python processes, and what they import.

Spark starts one process to find data sources, one to make them, one to plan a read and one for tasks, each when it is
first needed, one behind the other.
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
    """Reads nothing, with all that a reader of topics needs."""

    def partitions(self) -> list[InputPartition]:
        """One task."""
        import_module(READERS)
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """No rows."""
        import_module(READERS)
        import_module(COLUMNS)
        yield from ()


class WarmUp(Pickled, DataSource):
    """`format("tianzhou_warm_up")`: a table without rows."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tianzhou_warm_up"

    def schema(self) -> str:
        """One column, which no row has."""
        return "body BINARY"

    def reader(self, schema: StructType) -> Nothing:
        """For `spark.read`."""
        return Nothing()


def begin(spark: SparkSession) -> threading.Thread:
    """Have Spark's Python processes started in the background.

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
    except Exception as error:  # noqa: BLE001 - a session that ends meanwhile, and whatever the first query will tell
        logger.debug("the first query will be slower: %s", error)
