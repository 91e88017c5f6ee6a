"""Code sent to tasks arrives complete, and an error on a node names the missing module, the node and the remedy."""

import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructType

import tianzhou
from spark_probe import writer_options
from tianzhou.pipelines.binlog_source import BinlogReader, BinlogSource, SnapshotReader
from tianzhou.spark.data_source import TianzhouSource
from tianzhou.spark.lake.sink import LakeReader, LakeStreamWriter, LakeWriter, PruningReader, TianzhouLake
from tianzhou.spark.pickling import Pickled
from tianzhou.spark.sink.sink import SinkWriter, StreamWriter
from tianzhou.spark.source.readers import BatchReader, NarrowingReader, StreamReader
from tianzhou.spark.store.store_source import StoreReader, StoreStreamReader, TianzhouStore

EVERYTHING = [
    *(BatchReader, NarrowingReader, StreamReader, SinkWriter, StreamWriter, TianzhouSource),
    *(StoreReader, StoreStreamReader, TianzhouStore),
    *(LakeReader, PruningReader, LakeWriter, LakeStreamWriter, TianzhouLake),
    *(BinlogReader, BinlogSource, SnapshotReader),
]
OPTIONS = {"namesrvAddr": "a:1", "topic": "orders"}
UNPACK = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()))"
ENVIRON = {**os.environ, "PYTHONPATH": str(Path(tianzhou.__file__).resolve().parents[1])}


@pytest.fixture
def writer():
    return SinkWriter(OPTIONS, StructType().add("body", StringType()), False)


def missing(*names: str) -> str:
    """Return a program that unpacks on a node where these modules cannot be imported."""
    return (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name in {names!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        f"sys.meta_path.insert(0, Missing())\n{UNPACK}"
    )


def unpacked(content: bytes, program: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRON, input=content, capture_output=True, timeout=60, check=False
    )
    return done.returncode, done.stderr.decode().strip().split("\n")[-1]


@pytest.mark.parametrize("kind", EVERYTHING, ids=lambda kind: kind.__name__)
def test_all_that_spark_pickles_travels_so(kind):
    assert kind.__reduce__ is Pickled.__reduce__


def test_what_arrives_is_what_was_sent(writer):
    again = pickle.loads(cloudpickle.dumps(writer))
    assert type(again) is SinkWriter
    assert writer_options(again) == writer_options(writer)


def test_classes_made_in_functions_arrive_too(writer):
    class Own(SinkWriter):
        def topic(self):
            return self._sender.options.topic

    made = Own(OPTIONS, StructType().add("body", StringType()), False)
    assert pickle.loads(cloudpickle.dumps(made)).topic() == "orders"


def test_a_node_without_the_package_names_itself_and_the_fix(writer):
    code, says = unpacked(cloudpickle.dumps(writer), missing("tianzhou"))
    assert code == 1
    assert says.startswith(f"ImportError: node {socket.gethostname()}, {sys.executable} (Python 3.")
    assert "has no package tianzhou, and tasks need it" in says
    assert f"pip install 'tianzhou[spark]=={tianzhou.__version__}'" in says
    assert "docs/howto/spark-cluster.md" in says


def test_a_node_that_lacks_what_the_package_needs_names_that(writer):
    code, says = unpacked(cloudpickle.dumps(writer), missing("msgspec"))
    assert code == 1
    assert "cannot import msgspec (No module named 'msgspec'), which tianzhou needs" in says
    assert f"node {socket.gethostname()}" in says


def test_a_node_with_another_version_is_distinguished(writer, monkeypatch):
    content, version = cloudpickle.dumps(writer), tianzhou.__version__
    monkeypatch.setattr(tianzhou, "__version__", "0.0.9")
    with pytest.raises(ImportError, match=rf"has tianzhou 0\.0\.9 and the driver {version}; tasks need the same"):
        pickle.loads(content)
