"""`format("tianzhou_lake")`: rows into tables and back, exactly once under any failure."""

import json

import pyarrow.parquet
import pytest
from pyspark.sql import functions as sql
from quick_start import QUERY_LIMIT_S

FORMATS = ["delta", "iceberg"]
ROUNDS = {
    "delta": ("task", "before", "after"),
    "iceberg": ("before", "after"),
}
"""The step at which each run of a query fails: in a task, before its commit, after its commit."""

DELTA_IN_EACH_RUN = pytest.mark.parametrize(
    "lake", ["delta", pytest.param("iceberg", marks=pytest.mark.slow)], indirect=True
)
"""Iceberg has the same checks without Spark in each run (`tests/unit/spark/lake`), and these in the slow suite."""


@pytest.fixture(params=FORMATS)
def lake(request, tmp_path):
    """Options of a table of each format."""
    if request.param == "iceberg":
        pytest.importorskip("pyiceberg")
        return {
            "tableFormat": "iceberg",
            "table": "lake.orders",
            "catalogUri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"file://{tmp_path}/warehouse",
        }
    if request.param == "delta":
        pytest.importorskip("deltalake")
    return {"tableFormat": request.param, "path": str(tmp_path / "table")}


def read(spark, lake, **more):
    return spark.read.format("tianzhou_lake").options(**lake, **more).load()


def write(frame, lake, mode="append", **more):
    frame.write.format("tianzhou_lake").options(**lake, **more).mode(mode).save()


def failing(plan):
    """Return a data source that fails once at the step named in a file; its classes are local, so that workers get them
    by value.
    """
    from tianzhou.spark.lake.sink import LakeStreamWriter, TianzhouLake

    def due(place):
        from pathlib import Path

        file = Path(plan)
        if file.exists() and file.read_text() == place:
            file.unlink()
            raise RuntimeError(f"injected: {place}")

    class Writer(LakeStreamWriter):
        def write(self, iterator):
            message = super().write(iterator)
            due("task")
            return message

        def commit(self, messages, batchId):  # noqa: N803
            due("before")
            super().commit(messages, batchId)
            due("after")

    class Failing(TianzhouLake):
        @classmethod
        def name(cls):
            return "failing_lake"

        def streamWriter(self, schema, overwrite):  # noqa: N802
            return Writer(self._parsed(), schema, overwrite)

    return Failing


@DELTA_IN_EACH_RUN
def test_rows_come_back_as_they_were(spark, server, source, topic, lake):
    server.send(topic, range(500), tags="A", keys=lambda n: [f"k{n}"])
    live = source(spark.read, includeProperties=True, includeMetadata=True).load()
    write(live, lake)
    found = read(spark, lake)
    assert sorted(found.columns) == sorted(live.columns)
    assert sorted(map(str, found.select(live.columns).collect())) == sorted(map(str, live.collect()))
    assert read(spark, lake).schema["queueOffset"].dataType.simpleString() == "bigint"
    assert spark.read.format("tianzhou_lake").options(**lake).schema("keys STRING").load().distinct().count() == 500


def test_a_batch_that_is_written_again_changes_nothing(spark, lake):
    for _ in range(2):
        write(spark.range(10), lake, txnAppId="nightly", txnVersion=1)
    write(spark.range(10, 20), lake, txnAppId="nightly", txnVersion=2)
    assert sorted(row[0] for row in read(spark, lake).collect()) == list(range(20))
    write(spark.range(5), lake, mode="overwrite")
    assert sorted(row[0] for row in read(spark, lake).collect()) == list(range(5))


@DELTA_IN_EACH_RUN
def test_exactly_once_whatever_fails(spark, server, source, topic, lake, tasks_are_run_again, tmp_path):
    plan = tmp_path / "plan"
    spark.dataSource.register(failing(str(plan)))
    failures, sent = 0, 0
    rounds = ROUNDS[lake["tableFormat"]]
    for place in [*rounds, None]:
        server.send(topic, range(sent, sent + 150))
        sent += 150
        if place is not None:
            plan.write_text(place)
        stream = source(spark.readStream, startingOffsets="earliest", maxOffsetsPerTrigger=100).load()
        query = (
            stream.select("queueId", "queueOffset", sql.col("body").cast("string").alias("n"))
            .writeStream.format("failing_lake")
            .options(**lake)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if place is None or (place == "task" and tasks_are_run_again):
            assert query.awaitTermination(QUERY_LIMIT_S)
        else:
            with pytest.raises(Exception, match=f"injected: {place}"):
                query.awaitTermination(QUERY_LIMIT_S)
        failures += place is not None and not plan.exists()
        assert not query.isActive
    assert failures == len(rounds)
    found = sorted(int(row["n"]) for row in read(spark, lake).collect())
    assert found == list(range(sent))


@DELTA_IN_EACH_RUN
def test_small_files_are_merged_under_way(spark, server, source, topic, lake, tmp_path):
    from tianzhou.spark.lake.formats import open_table
    from tianzhou.spark.lake.options import parse_lake

    server.send(topic, range(400))
    query = (
        source(spark.readStream, startingOffsets="earliest", maxOffsetsPerTrigger=100)
        .load()
        .writeStream.format("tianzhou_lake")
        .options(**lake, compactEvery=4)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(QUERY_LIMIT_S)
    assert len(open_table(parse_lake(lake)).scan()) == 1
    assert read(spark, lake).count() == 400


@DELTA_IN_EACH_RUN
def test_rows_are_divided_among_partitions(spark, lake):
    rows = spark.range(100).selectExpr("id", "CAST(id % 3 AS INT) AS queueId", "timestamp_seconds(id * 3600) AS at")
    by = "day(at), queueId" if lake["tableFormat"] == "iceberg" else "queueId"
    write(rows, lake, partitionBy=by)
    found = read(spark, lake)
    assert found.schema["queueId"].dataType.simpleString() == "int"
    assert sorted(map(tuple, found.select(rows.columns).collect())) == sorted(map(tuple, rows.collect()))


@DELTA_IN_EACH_RUN
def test_files_of_other_partitions_are_not_opened(spark, lake, tmp_path):
    queue = "CAST(IF(id % 4 = 3, NULL, id % 4) AS INT)"
    rows = spark.range(40).selectExpr("id", f"{queue} AS queueId", f"DATE'2026-01-30' + {queue} AS day")
    write(rows.coalesce(1), lake, partitionBy="queueId, day")
    schema = read(spark, lake).schema
    ids = {path: pyarrow.parquet.read_table(path).column("id")[0].as_py() for path in tmp_path.rglob("*.parquet")}
    files = [path for path, first in ids.items() if first % 4 in (0, 2)]
    assert len(files) == 2
    for path in files:
        path.write_bytes(b"unreadable")
    conditions = {
        "QueueId IN (1, 77) AND id < 20": [1, 5, 9, 13, 17],
        "queueId > 0 AND queueId < 2": list(range(1, 40, 4)),
        "day = DATE'2026-01-31'": list(range(1, 40, 4)),
        "day IS NULL AND id >= 30": [31, 35, 39],
    }
    # Each query loads again: Spark would read the files of another one's conditions.
    reader = spark.read.format("tianzhou_lake").options(**lake, filterPushdown=True).schema(schema)
    for condition, wanted in conditions.items():
        assert sorted(row["id"] for row in reader.load().where(condition).collect()) == wanted, condition
    with pytest.raises(Exception, match="Parquet"):
        reader.load().where("queueId = 1 OR id = 1").collect()


def test_conditions_that_are_not_taken(spark, tmp_path):
    pytest.importorskip("deltalake")
    lake = {"path": str(tmp_path / "table")}
    write(spark.range(40).selectExpr("id", "id % 4 AS queueId"), lake, partitionBy="queueId")
    whole, enabled = read(spark, lake), "spark.sql.python.filterPushdown.enabled"
    one, two = whole.where("queueId = 1"), whole.where("queueId = 2 AND id > 20")
    assert (one.count(), whole.count(), one.union(two).count()) == (10, 40, 15)
    spark.conf.set(enabled, "false")
    try:
        assert read(spark, lake).where("queueId = 1").count() == 10
        with pytest.raises(Exception, match=enabled):
            read(spark, lake, filterPushdown=True).where("queueId = 1").count()
    finally:
        spark.conf.set(enabled, "true")


def test_json_and_avro_bodies(spark, server, source, topic):
    import io

    fastavro = pytest.importorskip("fastavro")
    from tianzhou.spark.lake import avro_type, avro_value, json_value

    schema = {
        "type": "record",
        "name": "O",
        "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"id": 1, "item": "tea"})
    server.send(topic, [b'{"id": 2, "item": "milk"}', "no json"], tags="json", queue=0)
    server.send(topic, [out.getvalue(), b"no avro"], tags="avro", queue=1)
    frame = source(spark.read).load()
    texts = frame.where("tags = 'json'").select(json_value("id LONG, item STRING").alias("v")).orderBy("v.id")
    assert [tuple(row["v"]) for row in texts.where("v.id IS NOT NULL").collect()] == [(2, "milk")]
    binary = frame.where("tags = 'avro'").orderBy("queueOffset").select(avro_value(json.dumps(schema)).alias("v"))
    assert [row["v"] and tuple(row["v"]) for row in binary.collect()] == [(1, "tea"), None]
    assert avro_type(schema).simpleString() == "struct<id:bigint,item:string>"
    with pytest.raises(Exception, match="a body of 7 bytes is no value of the Avro schema"):
        frame.where("tags = 'avro'").select(avro_value(schema, mode="FAILFAST")).collect()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "the option path is missing"),
        ({"tableFormat": "orc", "path": "x"}, "tableFormat=orc: expected delta or iceberg"),
        ({"path": "x", "compresion": "zstd"}, r"no option compresion=zstd \(did you mean compression\?\)"),
    ],
)
def test_mistakes_are_explained(spark, options, text):
    with pytest.raises(Exception, match=text):
        write(spark.range(1), options)


def test_a_table_that_is_not_there(spark, tmp_path):
    pytest.importorskip("deltalake")
    with pytest.raises(Exception, match="there is no delta table"):
        read(spark, {"path": str(tmp_path / "nothing")}).collect()


def test_a_stream_takes_no_batch_of_its_own(spark, tmp_path):
    pytest.importorskip("deltalake")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(Exception, match="txnAppId=a: a stream's batches are known by the query's own id"):
        stream.writeStream.format("tianzhou_lake").options(path=str(tmp_path / "t"), txnAppId="a", txnVersion=1).option(
            "checkpointLocation", str(tmp_path / "c")
        ).trigger(availableNow=True).start().awaitTermination(QUERY_LIMIT_S)


@DELTA_IN_EACH_RUN
def test_partitions_as_spark_has_them(spark, lake, tmp_path):
    rows = spark.range(20).selectExpr("id", "CAST(id % 3 AS INT) AS queueId")
    rows.write.format("tianzhou_lake").options(**lake).partitionBy("queueId").mode("append").save()
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 6).load()
    stream = stream.selectExpr("value AS id", "CAST(value % 3 AS INT) AS queueId")
    stream.writeStream.partitionBy("queueId").format("tianzhou_lake").options(**lake).option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    ).trigger(once=True).start().awaitTermination(QUERY_LIMIT_S)
    assert read(spark, lake).count() >= 20
    from tianzhou.spark.lake.formats import open_table, read_part
    from tianzhou.spark.lake.options import parse_lake

    parsed, schema = parse_lake(lake), pyarrow.schema([("queueId", pyarrow.int32())])
    queues = [
        {row["queueId"] for batch in read_part(parsed, part, schema) for row in batch.to_pylist()}
        for part in open_table(parsed).scan()
    ]
    assert all(len(one) == 1 for one in queues)
    assert set.union(*queues) == {0, 1, 2}


def test_a_former_version_is_read(spark, tmp_path):
    pytest.importorskip("deltalake")
    lake = {"path": str(tmp_path / "table")}
    for first in (0, 10):
        write(spark.range(first, first + 10), lake)
    assert [read(spark, lake, versionAsOf=1).count(), read(spark, lake).count()] == [10, 20]
    with pytest.raises(Exception, match="versionAsOf=1: a write changes the table as it is now; leave it out"):
        write(spark.range(1), lake, versionAsOf=1)


def test_what_there_is_no_way_for_says_which_way_there_is(spark, tmp_path):
    pytest.importorskip("deltalake")
    lake = {"path": str(tmp_path / "table")}
    write(spark.range(3), lake)
    stream = spark.readStream.format("tianzhou_lake").load(lake["path"])
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(Exception, match=r"reads tables in batches only; take spark\.read for what is there"):
        query.awaitTermination(QUERY_LIMIT_S)
    writer = spark.range(3).write.format("tianzhou_lake").options(**lake)
    with pytest.raises(Exception, match=r"saveAsTable\('orders'\): Spark gives Python sources none of the options"):
        writer.mode("append").saveAsTable("orders")
    spark.sql(f"CREATE TEMPORARY VIEW lake_orders USING tianzhou_lake OPTIONS (path '{lake['path']}')")
    assert spark.sql("SELECT count(*) FROM lake_orders").first()[0] == 3


def test_rows_are_those_of_sparks_own_parquet(spark, lake, tmp_path):
    """All types of Spark's Parquet writer that both formats have, with nulls at every depth, beside that writer."""
    first = spark.sql(
        """SELECT id, CAST(id AS BYTE) AS b, CAST(id AS SHORT) AS s, id % 2 = 0 AS t, CAST(id AS FLOAT) AS f,
        id / 3 AS d, CAST(id AS DECIMAL(20, 4)) AS dec, IF(id = 1, NULL, 'text') AS `odd name`,
        CAST('x' AS BINARY) AS bin, DATE'2026-01-31' AS day, TIMESTAMP'2026-01-31 08:00:00.123456' AS at,
        TIMESTAMP_NTZ'1900-01-31 08:00:00' AS local,
        ARRAY(id, NULL) AS list, MAP('k', ARRAY('v', NULL), 'n', NULL) AS map,
        NAMED_STRUCT('a', id, 'b', NAMED_STRUCT('c', IF(id = 2, NULL, ARRAY(MAP(1, 2L))))) AS struct FROM range(4)"""
    )
    write(first, lake)
    later = spark.range(4, 6).withColumn("literal", sql.lit("v2"))
    write(later.withColumnRenamed("id", "ID"), lake, mergeSchema=True)
    write(spark.range(6, 7), lake)
    write(spark.range(7, 8).withColumn("literal", sql.lit(None).cast("string")), lake)
    for name, frame in (("1", first), ("2", later), ("3", spark.range(6, 8))):
        frame.write.parquet(str(tmp_path / "parquet" / f"n={name}"))
    wanted = spark.read.option("mergeSchema", True).parquet(str(tmp_path / "parquet")).drop("n")
    found = read(spark, lake)
    assert sorted(map(str, found.select(wanted.columns).collect())) == sorted(map(str, wanted.collect()))
    assert found.columns == [*first.columns, "literal"]
    assert found.where("literal IS NULL").count() == 6
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(Exception, match="has no column ID"):
            write(spark.range(1).withColumnRenamed("id", "ID"), lake)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_types_that_no_format_has_are_named(spark, lake):
    with pytest.raises(Exception, match="gap"):
        write(spark.sql("SELECT 1 AS id, INTERVAL '1' DAY AS gap"), lake)
