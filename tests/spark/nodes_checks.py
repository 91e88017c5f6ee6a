"""Checks that hold only where tasks run on other nodes; `test_spark_elsewhere.py` runs them in a process with
the wheel.
"""

from __future__ import annotations

import os

import tianzhou


def test_tasks_run_on_two_nodes_that_have_the_package_from_the_wheel(spark):
    def whereabouts(batches):
        import os
        from pathlib import Path

        import pyarrow as pa

        import tianzhou

        for _ in batches:
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            executor = int(daemon.rpartition(")")[2].split()[1])
            yield pa.RecordBatch.from_pydict({"executor": [executor], "package": [tianzhou.__file__]})

    frame = spark.range(8, numPartitions=8).mapInArrow(whereabouts, "executor LONG, package STRING")
    rows = frame.collect()
    assert len({row.executor for row in rows}) == 2
    assert {row.executor for row in rows}.isdisjoint({os.getpid(), os.getppid()})
    packages = {row.package for row in rows} | {tianzhou.__file__}
    assert all("site-packages" in package for package in packages), packages


def test_a_round_trip(spark, server, topic):
    """The shortest round trip: tasks on both nodes write rows exactly once, and read them again."""
    frame = spark.range(400, numPartitions=4).selectExpr("CAST(id AS STRING) AS body")
    options = {"namesrvAddr": server.address, "topic": topic, "delivery": "exactly-once", "batchKey": topic}
    frame.write.format("tianzhou").options(**options).mode("append").save()
    read = spark.read.format("tianzhou").options(namesrvAddr=server.address, subscribe=topic)
    rows = read.schema("body STRING").load().collect()
    assert sorted(int(row.body) for row in rows) == list(range(400))
