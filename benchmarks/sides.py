"""A name server and a broker, Apache's or ours, as processes on a fresh store, and the load tool against them."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from accounts import make_users
from accounts import settings as access_settings

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests" / "interop"))

SIDES = {
    "apache": "Apache 5.3.3",
    "before": "Tianzhou before",
    "tianzhou": "Tianzhou",
    "pure": "Tianzhou, pure",
    "floor": "C, only the bytes",
}
BEFORE = "TIANZHOU_BEFORE"
"""Environment variable with the path of the checkout for the side `before`."""
HEAP = "4g"
BROKER_CORE, LOAD_CORE = 0, 1
JAVA_OPENS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


class CannotRunError(Exception):
    """A measurement is not possible; the text has the reason."""


def on_core(core: int | None) -> list[str]:
    """Return the command prefix that pins a command to one core; empty for `None`."""
    return [] if core is None else ["taskset", "-c", str(core)]


class Server:
    """A name server and a broker on a new store.

    Args:
        kind: one of `SIDES`.
        work: scratch folder.
        flush: `async` or `sync`.
        access: kind of access control, see `accounts.settings`.
        pin: whether to pin the broker to `BROKER_CORE` and the name server to the load tool's core.
        fill: called with the folder of the store before the broker starts.
        patience_s: limit of the start in seconds.

    Attributes:
        port: port of the broker.
        namesrv_port: port of the name server.
        pid: process id of the broker.
        start_s: seconds from the broker's start to its open port.
        idle_anon_mb: anonymous resident memory of the broker two seconds later.

    Raises:
        CannotRunError: a process ended, or its port did not open.
    """

    ports = 5
    heap = HEAP

    def __init__(
        self,
        kind: str,
        work: Path,
        flush: str = "async",
        *,
        access: str = "",
        pin: bool = False,
        fill: Callable[[Path], object] | None = None,
        patience_s: float = 60,
    ) -> None:
        self.work = work / kind
        first = free_ports(self.ports)
        # A broker also listens on the two ports around its own.
        self.namesrv_port = namesrv_port = first
        self.port = first + 3
        shutil.rmtree(self.work, ignore_errors=True)
        self.store = self.work / "store"
        self.store.mkdir(parents=True)
        if fill is not None:
            fill(self.store)
        (self.work / "namesrv.conf").write_text(f"listenPort={namesrv_port}\n")
        self._flush = flush
        self._write_conf("broker.conf", self.port, self.store, {"brokerId": 0, **access_settings(access, self.work)})
        namesrv, broker, extra = self._commands(kind)
        self._log = (self.work / "out.log").open("w")
        self._env = {**os.environ, **extra}
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start(on_core(LOAD_CORE if pin else None) + namesrv, namesrv_port, 60)
            self._broker = on_core(BROKER_CORE if pin else None) + broker
            self._start_brokers(patience_s)
            if access == "users":
                make_users(self.port)
        except BaseException:
            self.stop()
            raise
        time.sleep(2)  # both settle: registration, heap, page population
        self.idle_anon_mb = anon_mb(self.pid)

    def _write_conf(self, name: str, port: int, store: Path, more: Mapping[str, object]) -> Path:
        """Write the configuration of a broker and return the path.

        Args:
            name: name of the file.
            port: listening port.
            store: folder of the store.
            more: further entries.
        """
        conf = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": port,
            "namesrvAddr": f"127.0.0.1:{self.namesrv_port}",
            "storePathRootDir": store,
            "storePathCommitLog": f"{store}/commitlog",
            "flushDiskType": f"{self._flush.upper()}_FLUSH",
            "autoCreateTopicEnable": "true",
            **more,
        }
        path = self.work / name
        path.write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
        return path

    def _commands(self, kind: str) -> tuple[list[str], list[str], dict[str, str]]:
        namesrv_conf, broker_conf = str(self.work / "namesrv.conf"), str(self.work / "broker.conf")
        if kind == "floor":
            namesrv = [sys.executable, "-m", "tianzhou", "namesrv", "-c", namesrv_conf]
            return namesrv, [str(build("floor", self.work)), str(self.port), str(self.store)], {}
        if kind != "apache":
            program = [sys.executable, "-m", "tianzhou"]
            extra = {"TIANZHOU_PURE": "1" if kind == "pure" else "0"}
            if kind == "before":
                extra["PYTHONPATH"] = str(Path(os.environ[BEFORE]) / "src")
            return [*program, "namesrv", "-c", namesrv_conf], [*program, "broker", "-c", broker_conf], extra
        toolchain = importlib.import_module("toolchain")  # of the tests
        try:
            java = [*JAVA_OPENS, f"-Duser.home={self.work}", "-cp", toolchain.server_classpath()]
        except toolchain.ToolchainMissingError as error:
            raise CannotRunError(f"Apache's broker: {error}") from error
        small, large = ["-Xms256m", "-Xmx256m"], [f"-Xms{self.heap}", f"-Xmx{self.heap}"]
        return (
            ["java", *small, *java, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", namesrv_conf],
            ["java", *large, *java, "org.apache.rocketmq.broker.BrokerStartup", "-c", broker_conf],
            {"ROCKETMQ_HOME": str(self.work)},
        )

    def _start(self, command: list[str], port: int, patience_s: float) -> int:
        process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=self._env, cwd=self.work)
        self._processes.insert(0, process)
        wait_port(port, process, patience_s, self.work / "out.log")
        return process.pid

    def _start_broker(self, patience_s: float) -> None:
        began = time.monotonic()
        self.pid = self._start(self._broker, self.port, patience_s)
        self.start_s = time.monotonic() - began

    def _start_brokers(self, patience_s: float) -> None:
        self._start_broker(patience_s)

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the process ids whose CPU time counts as the server's."""
        return (self.pid,)

    def restart(self, number: int) -> float:
        """End the broker by a signal and start it again; return the seconds from its start to its open port."""
        broker = self._processes.pop(0)
        broker.send_signal(number)
        broker.wait(120)
        self._start_broker(120)
        return self.start_s

    def check_alive(self) -> None:
        """Raise an error if one of the processes has ended.

        Raises:
            CannotRunError: a process has ended; the text has the last lines of its output.
        """
        for process in self._processes:
            if process.poll() is not None:
                raise CannotRunError(f"the server ended with {process.returncode}: {tail_of(self.work / 'out.log')}")

    def settle(self) -> None:
        """Wait until the last puts are dispatched and can be pulled."""
        time.sleep(1)

    def record_bytes(self) -> int:
        """Return the length of the first record in the commit log; all messages of a run have this length."""
        first = min((self.store / "commitlog").iterdir())
        with first.open("rb") as file:
            return int.from_bytes(file.read(4), "big")

    def sync_s(self) -> float:
        """Sync the commit log to the disk from this process; return the duration in seconds."""
        began = time.monotonic()
        for path in sorted((self.store / "commitlog").iterdir()):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
        return time.monotonic() - began

    def stop(self) -> None:
        """End both processes and remove the store."""
        end_processes(self._processes)
        self._log.close()
        shutil.rmtree(self.store, ignore_errors=True)


def free_ports(count: int) -> int:
    """Return the first port of a free range of `count` ports, below the system's ephemeral ports."""
    for _ in range(200):
        first = random.randrange(20_000, 32_000)
        if all(is_free(port) for port in range(first, first + count)):
            return first
    raise CannotRunError(f"no {count} free ports in a row found")


def is_free(port: int) -> bool:
    """Whether a port of the loopback address is free."""
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def tail_of(log: Path) -> str:
    """Return the last lines of a log as one line."""
    return " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])[-400:]


def anon_mb(pid: int) -> float:
    """Return the anonymous resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0.0


def end_processes(processes: list[subprocess.Popen[bytes]], patience_s: float = 30) -> None:
    """Terminate each process, and kill those that do not end in time."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_port(port: int, process: subprocess.Popen[bytes], patience_s: float, log: Path) -> None:
    """Return once the port accepts connections.

    Raises:
        CannotRunError: the process ended, or the port did not open in time.
    """
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise CannotRunError(f"the server on port {port} ended with {process.returncode}: {tail_of(log)}")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise CannotRunError(f"port {port} was not open after {patience_s:.0f} s; see {log}")


def build(name: str, work: Path) -> Path:
    """Compile a program of this folder: the load tools `loadgen` and `rivals`, or `floor`.

    Raises:
        CannotRunError: gcc is missing, or the compilation failed.
    """
    program = work / name
    if shutil.which("gcc") is None:
        raise CannotRunError("gcc is not installed: apt-get install gcc")
    run = subprocess.run(
        ["gcc", "-O2", "-Wall", "-o", str(program), str(HERE / f"{name}.c")],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise CannotRunError(f"{name}.c does not compile: {run.stderr[:600]}")
    return program


def load(
    program: Path, options: str, port: int, seconds: int, *, pids: Collection[int] = (), pin: bool = False
) -> dict[str, Any]:
    """Run a load tool once.

    Args:
        program: path from `build`.
        options: options of the line.
        port: port of the server.
        seconds: duration of the measurement; 0 leaves it to the options.
        pids: processes whose CPU time counts.
        pin: whether to pin the tool to `LOAD_CORE`.

    Returns:
        The figures that the tool printed.

    Raises:
        CannotRunError: the tool printed no figures.
    """
    timed = ["-t", str(seconds)] if seconds else []
    command = [*on_core(LOAD_CORE if pin else None), str(program), "-p", str(port), *options.split()]
    command += ["-P", ",".join(map(str, pids))] if pids else []
    try:
        run = subprocess.run(
            [*command, *timed], capture_output=True, text=True, timeout=(seconds or 570) + 30, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CannotRunError(f"`{options}` did not end in {error.timeout:.0f} s") from error
    printed = run.stdout.strip().splitlines()
    if not printed:
        raise CannotRunError(f"`{options}`: {run.stderr.strip()[:300] or f'ended with {run.returncode}'}")
    figures: dict[str, Any] = json.loads(printed[-1])
    figures["said"] = run.stderr.strip()[:300]
    return figures
