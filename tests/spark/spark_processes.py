"""Spark's own processes on loopback, started like by a cluster's owner, and Pythons with and without the wheel.

The processes do not see the checkout: they run a separate Python, in which the wheel is installed or not, and their
environment has no PYTHONPATH. Third-party packages are those of the tests' own environment.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from tianzhou.spark.sessions import java_runtime

ROOT = Path(__file__).resolve().parents[2]
_SPARK = find_spec("pyspark")
SPARK_HOME = Path(_SPARK.origin).parent if _SPARK and _SPARK.origin else Path()
WITHIN_S = 600
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
MEMORY = {"spark.driver.memory": "600m", "spark.executor.memory": "512m", "spark.executor.cores": "1"}
CONF = {
    **MEMORY,
    "spark.cores.max": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
    # Both nodes are present before the first task.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
"""Driver settings in addition to the profile: two small executors, one on each worker."""


def make_wheel(folder: Path, *, compiled: bool) -> Path:
    """Build the wheel of the checkout: for this machine, or pure for every machine."""
    constraints = ["--build-constraints", str(ROOT / "locks" / "build.txt")]
    command = [sys.executable, "-m", "uv", "build", "-q", "--wheel", *constraints, "--out-dir", str(folder), str(ROOT)]
    environ = {name: value for name, value in os.environ.items() if name != "TIANZHOU_PURE"}
    if not compiled:
        environ["TIANZHOU_PURE"] = "1"
    # The build backend is in uv's cache since the environment was created; without a cache uv downloads it.
    if subprocess.run([*command, "--offline"], env=environ, capture_output=True, timeout=600, check=False).returncode:
        subprocess.run(command, env=environ, check=True, timeout=600)
    (wheel,) = folder.glob("tianzhou-*.whl")
    return wheel


def make_python(folder: Path, wheel: Path | None) -> Path:
    """Return a separate Python with all packages that Spark and the wheel need, and the wheel if given."""
    uv = [sys.executable, "-m", "uv"]
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([*uv, "venv", "-q", "--python", str(base), str(folder)], check=True, timeout=120)
    python = folder / "bin" / "python"
    if wheel is not None:
        install = [*uv, "pip", "install", "-q", "--offline", "--no-deps", "--python", str(python), str(wheel)]
        subprocess.run(install, check=True, timeout=120)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    found = subprocess.run(
        [python, "-c", "import tianzhou; print(tianzhou.__file__)"],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.stdout.startswith(str(site)) if wheel else found.returncode, found.stdout
    return python


def pack(python: Path, archive: Path) -> Path:
    """Return the environment of a Python as an archive for `spark.archives`; nodes need the same base Python."""
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(python.parents[1], arcname=".")
    return archive


def environment(python: Path | str | None = None) -> dict[str, str]:
    """Return the environment of a node's processes, without variables of the checkout or the tests."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "XDG_CACHE_HOME")
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    environ |= {
        "JAVA_HOME": str(java_runtime.home()),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
    }
    return environ if python is None else {**environ, "PYSPARK_PYTHON": str(python)}


class Daemon:
    """A process of Spark with a known process id, whose log has its address."""

    def __init__(self, command: list[str], log: Path, environ: dict[str, str]) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ, cwd=log.parent
            )

    def says(self, pattern: str) -> str:
        """Wait until the log matches the pattern, and return its first group."""
        deadline = time.monotonic() + WITHIN_S
        while not (found := re.search(pattern, self.text())):
            assert self.process.poll() is None, f"{self.log.name} ended: {self.text()[-3000:]}"
            assert time.monotonic() < deadline, f"{self.log.name}: no {pattern} within {WITHIN_S} s"
            time.sleep(0.05)
        return found[1]

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)


@contextmanager
def started(command: list[str], log: Path, environ: dict[str, str]) -> Iterator[Daemon]:
    daemon = Daemon(command, log, environ)
    try:
        yield daemon
    finally:
        daemon.stop()


@contextmanager
def standalone(folder: Path, workers: int = 2, **more: str) -> Iterator[str]:
    """Run a standalone cluster of workers with a core each, with more variables in their environment; yield its
    `spark://` address.
    """
    kind = [str(SPARK_HOME / "bin" / "spark-class"), "org.apache.spark.deploy"]
    here = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    environ = {**environment(), "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK, **more}
    with ExitStack() as stack:
        master = stack.enter_context(started([kind[0], f"{kind[1]}.master.Master", *here], folder / "master", environ))
        address = master.says(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        running = []
        for number in range(workers):
            place = ["--work-dir", str(folder / f"work-{number}"), "--cores", "1", "--memory", "1g"]
            command = [kind[0], f"{kind[1]}.worker.Worker", *here, *place, address]
            running.append(stack.enter_context(started(command, folder / f"worker-{number}", environ)))
        for worker in running:
            worker.says(r"(Successfully registered) with master")
        yield address


@contextmanager
def connect_server(folder: Path, master: str, python: Path) -> Iterator[str]:
    """Run a Spark Connect server that works on a master; yield its `sc://` address."""
    conf = {
        **CONF,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = [
        *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", master),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(part for key, value in conf.items() for part in ("--conf", f"{key}={value}")),
        "spark-internal",
    ]
    with started(command, folder / "connect", environment(python)) as server:
        port = server.says(r"Spark Connect server started at:? \S*?:(\d+)")
        yield f"sc://127.0.0.1:{port}"
