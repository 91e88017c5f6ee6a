"""`.partitionBy()` of lake tables becomes the sink's option; tables of Spark's catalog are refused with a remedy."""

import pytest

from tianzhou.errors import ConfigError
from tianzhou.spark.sessions.lake_writers import teach


@pytest.fixture
def writer():
    """Return a writer with Spark's interface that records its calls; each call has its own class."""

    class Writer:
        def __init__(self):
            self.source, self.partitions, self.options, self.tables = None, [], {}, []

        def format(self, source):
            self.source = source
            return self

        def partitionBy(self, *columns):  # noqa: N802 - Spark's name
            self.partitions = list(columns[0] if columns and isinstance(columns[0], list) else columns)
            return self

        def option(self, name, value):
            self.options[name] = value
            return self

        def saveAsTable(self, name, format=None):  # noqa: A002, N802 - Spark's names
            self.tables.append(name)

    teach([Writer, Writer])
    return Writer()


@pytest.mark.parametrize("columns", [("day", "queueId"), (["day", "queueId"],)])
def test_columns_become_the_option_wherever_they_are_said(writer, columns):
    writer.format("Tianzhou_Lake").partitionBy(*columns)
    assert (writer.options, writer.partitions) == ({"partitionBy": "day,queueId"}, [])


def test_also_before_the_format(writer):
    writer.partitionBy("day").format("tianzhou_lake")
    assert (writer.options, writer.partitions, writer.source) == ({"partitionBy": "day"}, [], "tianzhou_lake")


def test_other_formats_get_what_they_got(writer):
    writer.partitionBy("day").format("parquet").saveAsTable("orders")
    assert (writer.options, writer.partitions, writer.tables) == ({}, ["day"], ["orders"])


def test_the_last_format_counts(writer):
    writer.format("tianzhou_lake").format("parquet").partitionBy("day").saveAsTable("orders")
    assert (writer.options, writer.partitions, writer.tables) == ({}, ["day"], ["orders"])


@pytest.mark.parametrize("options", [{}, {"format": "tianzhou_lake"}])
def test_no_table_of_sparks_catalog(writer, options):
    if not options:
        writer.format("tianzhou_lake")
    with pytest.raises(ConfigError, match=r"saveAsTable\('orders'\): .* write with save\(path\), .* TEMPORARY VIEW"):
        writer.saveAsTable("orders", **options)
    assert writer.tables == []
