"""Apache Kafka for `spark.py`: its broker as a process, and the environment of Spark's own source for it.

Jars come from Maven and PySpark from pip, once, into the cache of the tests' foreign programs (see
`tests/interop/toolchain.py`). Our own environment is not changed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sides import end_processes, free_ports, wait_port
from toolchain import DEPENDENCY_PLUGIN, cached, environment, fetch, tool

KAFKA = "4.1.0"
SPARK = "3.5.3"
BROKER_JARS = (f"org.apache.kafka:kafka_2.13:{KAFKA}", f"org.apache.kafka:kafka-tools:{KAFKA}")
SOURCE_JARS = (f"org.apache.spark:spark-sql-kafka-0-10_2.12:{SPARK}",)
IN_PYSPARK = ("org.apache.hadoop:*", "org.scala-lang:*", "org.slf4j:*", "org.apache.spark:spark-tags_2.12")
"""Dependencies of the source that PySpark already contains."""
CLUSTER_ID = "dGlhbnpob3UtY29tcGFyZQ"
JAVA_OPTIONS = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""Java options of Kafka's start script."""
TOOL_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_S = 180

_POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tianzhou.benchmarks</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""


def _pom(name: str, wanted: Sequence[str], without: Sequence[str]) -> str:
    def fields(coordinates: str) -> str:
        values = zip(("groupId", "artifactId", "version"), coordinates.split(":"), strict=False)
        return "".join(f"<{field}>{value}</{field}>" for field, value in values)

    exclusions = "".join(f"<exclusion>{fields(one)}</exclusion>" for one in without)
    dependencies = "".join(
        f"<dependency>{fields(one)}<exclusions>{exclusions}</exclusions></dependency>" for one in wanted
    )
    return _POM.format(name=name, dependencies=dependencies)


def jars(name: str, wanted: Sequence[str], without: Sequence[str] = ()) -> Path:
    """Return the folder with some artifacts and all their dependencies.

    Args:
        name: name of the folder in the cache.
        wanted: artifacts, each as `group:artifact:version`.
        without: artifacts to exclude with their dependencies, each as `group:artifact`.

    Raises:
        ToolchainMissingError: Maven is not installed, or does not reach a repository.
    """
    maven = tool("mvn")
    pom = _pom(name, wanted, without)

    def copy_into(target: Path) -> None:
        file = target / "pom.xml"
        file.write_text(pom)
        options = ["-q", "-B", "-f", str(file), "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        fetch([maven, *options, f"{DEPENDENCY_PLUGIN}:copy-dependencies"], cwd=target)

    return cached(f"jars-{name}", hashlib.sha256(pom.encode()).hexdigest()[:16], copy_into)


def source_jars() -> list[str]:
    """Return the jars of Spark's Kafka source."""
    return sorted(map(str, jars("spark-kafka", SOURCE_JARS, IN_PYSPARK).glob("*.jar")))


def spark_python() -> Path:
    """Return the interpreter of the environment with the PySpark version of that source."""

    def install_into(target: Path) -> None:
        fetch([sys.executable, "-m", "venv", str(target)], cwd=target)
        python = str(target / "bin" / "python")
        fetch([python, "-m", "pip", "install", "--quiet", f"pyspark=={SPARK}"], cwd=target)
        fetch([python, "-c", "import pyspark"], cwd=target)

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cached("pyspark", f"{SPARK}-py{version}", install_into) / "bin" / "python"


class KafkaBroker:
    """One broker that is its own controller, on a fresh folder, with Kafka's defaults.

    Args:
        home: folder of its files.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._port = free_ports(2)
        self.address = f"127.0.0.1:{self._port}"
        self._java = [tool("java"), "-cp", f"{jars('kafka', BROKER_JARS)}/*"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the process id."""
        if self._process is None:
            raise RuntimeError("not started")
        return self._process.pid

    def start(self) -> None:
        """Start the broker, and wait until it can create topics.

        Raises:
            CannotRunError: the broker does not start.
        """
        self.home.mkdir(parents=True)
        controller = f"127.0.0.1:{self._port + 1}"
        conf = self.home / "server.properties"
        conf.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@{controller}\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://{controller}\n"
            f"advertised.listeners=PLAINTEXT://{self.address}\ninter.broker.listener.name=PLAINTEXT\n"
            f"log.dirs={self.home / 'logs'}\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
        )
        self._run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(conf))
        command = [self._java[0], *JAVA_OPTIONS, *self._java[1:], "kafka.Kafka", str(conf)]
        with (self.home / "broker.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home, env=environment()
            )
        wait_port(self._port, self._process, START_S, self.home / "broker.log")

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic with arrival times as message times, like RocketMQ's store times."""
        self._run(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", self.address, "--create", "--topic", topic, "--partitions", str(partitions)),
            *("--replication-factor", "1", "--config", "message.timestamp.type=LogAppendTime"),
        )

    def steady(self, topic: str, rate: float, body: int) -> subprocess.Popen[bytes]:
        """Begin to send `rate` messages a second, each without batching delay."""
        command = [
            *(self._java[0], *TOOL_OPTIONS, *self._java[1:], "org.apache.kafka.tools.ProducerPerformance"),
            *("--topic", topic, "--num-records", "100000000", "--throughput", str(int(rate))),
            *("--record-size", str(body), "--producer-props", f"bootstrap.servers={self.address}", "linger.ms=0"),
        ]
        with (self.home / "producer.log").open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment())

    def _run(self, program: str, *arguments: str) -> None:
        command = [self._java[0], *TOOL_OPTIONS, *self._java[1:], program, *arguments]
        run = subprocess.run(
            command, cwd=self.home, env=environment(), capture_output=True, text=True, timeout=START_S, check=False
        )
        if run.returncode:
            raise RuntimeError(f"{program} {' '.join(arguments)}: {(run.stdout + run.stderr).strip()[-1000:]}")

    def stop(self) -> None:
        """End the broker and remove its files."""
        if self._process is not None:
            end_processes([self._process])
        shutil.rmtree(self.home, ignore_errors=True)
