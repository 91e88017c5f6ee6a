"""A source over queues in memory."""

import json

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tianzhou.model import MessageQueue
from tianzhou.spark.data_source import TianzhouSource
from tianzhou.spark.rows.schema import row_schema

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))
ALL = ReadAllAvailable()


class Fixture:
    def __init__(self, queues):
        self.queues = queues

    def source(self, **options):
        ways = {"subscribePattern", "assign"} & options.keys()
        values = {"namesrvAddr": "a:1", "pollTimeoutMs": "1000", **({} if ways else {"subscribe": "orders"}), **options}
        source = TianzhouSource(CaseInsensitiveDict(values))
        source.connect = lambda: lambda options: self.queues
        return source

    def batch(self, **options):
        reader = self.source(**options).reader(row_schema())
        return set(read(reader, reader.partitions()))

    def stream(self, **options):
        return self.source(**options).streamReader(row_schema())

    def begun(self, **options):
        """Return a stream and its start offset."""
        reader = self.stream(**options)
        return reader, reader.initialOffset()


def through_json(value):
    return json.loads(json.dumps(value))


def read(reader, partitions):
    """Return queue and offset of the rows."""
    return [
        (row["queueId"], row["queueOffset"])
        for partition in partitions
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def run(reader, start, end):
    return read(reader, reader.partitions(through_json(start), through_json(end)))


def rest(reader, start):
    """Return the rows of a micro-batch up to the latest offset."""
    return run(reader, start, reader.latestOffset(start, ALL))
