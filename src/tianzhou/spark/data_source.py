"""`format("tianzhou")`: topics as tables, read in batches or as streams, and written to.

Spark starts one Python process to find sources and another to make a source, before any process reads. Neither needs
more than this class, so the readers and writers are imported at their first use.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tianzhou.errors import ConfigError
from tianzhou.spark.option_values import BATCH, STREAM, with_credentials
from tianzhou.spark.pickling import Pickled
from tianzhou.spark.rows.schema import schema_of, with_slowest
from tianzhou.spark.source.read_options import parse_read

if TYPE_CHECKING:
    from tianzhou.spark.sink.sink import SinkWriter, StreamWriter
    from tianzhou.spark.source.queue_watch import Connect
    from tianzhou.spark.source.readers import BatchReader, StreamReader
    from tianzhou.spark.source.refused import RefusedStream


class TianzhouSource(Pickled, DataSource):
    """A data source for `format("tianzhou")`.

    All methods except `streamReader` raise `ConfigError` when an option, the schema or the mode is wrong.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tianzhou"

    def connect(self) -> Connect:
        """Return the function that opens the `BlockingQueueReader` of a process."""
        from tianzhou.spark import connections

        return connections.connect

    def _written(self) -> dict[str, str]:
        """Return the options as the user wrote them, with the credentials of the driver's environment."""
        return with_credentials(self.options, os.environ)

    def schema(self) -> StructType:
        """Return the row schema (see `schema`).

        Raises:
            ConfigError: an option is wrong, for any kind of read.
        """
        options = parse_read(self._written())
        schema = schema_of(options)
        return with_slowest(schema) if options.include_slowest_timestamp else schema

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader for `spark.read`."""
        from tianzhou.spark.source.readers import BatchReader, NarrowingReader

        options = parse_read(self._written(), BATCH)
        kind = NarrowingReader if options.filter_pushdown else BatchReader
        return kind(options, schema, self.connect())

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStream:  # noqa: N802 - Spark's name
        """Return the reader for `spark.readStream`. It raises no error, see `source.refused`."""
        from tianzhou.spark.source.readers import StreamReader
        from tianzhou.spark.source.refused import RefusedStream

        try:
            return StreamReader(parse_read(self._written(), STREAM), schema, self.connect())
        except ConfigError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> SinkWriter:
        """Return the writer for `df.write`."""
        from tianzhou.spark.sink.sink import SinkWriter

        return SinkWriter(self._written(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        """Return the writer for `df.writeStream`."""
        from tianzhou.spark.sink.sink import StreamWriter

        return StreamWriter(self._written(), schema, overwrite)
