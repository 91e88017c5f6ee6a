"""A source over queues of memory."""

import json

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tianzhou.model import MessageQueue
from tianzhou.spark.data_source import TianzhouSource
from tianzhou.spark.rows.schema import row_schema

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))
ALL = ReadAllAvailable()


class Fixture:
    def __init__(self, queues):
        self.queues = queues

    def source(self, **given):
        ways = {"subscribePattern", "assign"} & given.keys()
        values = {"namesrvAddr": "a:1", "pollTimeoutMs": "1000", **({} if ways else {"subscribe": "orders"}), **given}
        source = TianzhouSource(CaseInsensitiveDict(values))
        source.connect = lambda: lambda options: self.queues
        return source

    def batch(self, **given):
        reader = self.source(**given).reader(row_schema())
        return {
            (row["queueId"], row["queueOffset"])
            for partition in reader.partitions()
            for batch in reader.read(partition)
            for row in batch.to_pylist()
        }

    def stream(self, **given):
        return self.source(**given).streamReader(row_schema())


def through_json(value):
    return json.loads(json.dumps(value))


def run(reader, start, end):
    return [
        (row["queueId"], row["queueOffset"])
        for partition in reader.partitions(through_json(start), through_json(end))
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
