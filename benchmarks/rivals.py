#!/usr/bin/env python3
"""Tianzhou beside Redis Streams, NATS JetStream and RabbitMQ: one durable put acknowledged, and fetching batches.

    .venv/bin/python benchmarks/rivals.py --short
    .venv/bin/python benchmarks/rivals.py --markdown docs/performance.md --json rivals.json

Each system runs alone, in turn, on an empty folder of the same disk, under a compiled load tool of one thread
(`loadgen.c` for Tianzhou, `rivals.c` for the others): 1 KiB bodies spread over 8 queues, streams or subjects, once with
the setting in which an acknowledgement does not wait for the disk, and once with the one in which it does; the table
names each setting as the system calls it. The table names each system that lacks the operation or setting, or is not
installed (`apt-get install redis-server nats-server rabbitmq-server`); nothing is estimated.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from machine import describe, disk_limit, in_words, touch_memory
from rounds import in_turn, parser_of, set_duration, some_of
from sides import CannotRunError, Server, anon_mb, build, end_processes, free_ports, load, wait_port
from tables import machine_list, markdown_table, put_section, shown, write_json

LINES = {"put64x1": "PUT 64 x 1", "put8x32": "PUT 8 x 32", "fetch8x1": "fetch of 32, 8 x 1"}
PUTS = {"put64x1": "-c 64 -w 1", "put8x32": "-c 8 -w 32"}
FETCHED = 200_000
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class System(ABC):
    """One system in one setting, started on an empty folder.

    Args:
        waits: whether acknowledgements wait for the disk.
    """

    title = ""
    tool = "rivals"

    def __init__(self, waits: bool) -> None:
        self.waits = waits
        self.pid = 0
        self.port = 0

    @property
    @abstractmethod
    def setting(self) -> str:
        """Return the setting's name in the system's own manual."""

    @abstractmethod
    def start(self, work: Path) -> None:
        """Start the system and return when it accepts connections.

        Raises:
            CannotRunError: the system is not installed, lacks the setting, or did not start.
        """

    @abstractmethod
    def stop(self) -> None:
        """End the system's processes."""

    @abstractmethod
    def options(self, line: str) -> tuple[str, str]:
        """Return the load tool's options for a line, and those of a run that ends before it.

        Raises:
            CannotRunError: the system lacks the operation.
        """


class Tianzhou(System):
    """Our broker."""

    title, tool = "Tianzhou", "loadgen"
    _server: Server | None = None

    @property
    def setting(self) -> str:
        return f"flushDiskType={'SYNC' if self.waits else 'ASYNC'}_FLUSH"

    def start(self, work: Path) -> None:
        self._server = Server("tianzhou", work, "sync" if self.waits else "async")
        self.pid, self.port = self._server.pid, self._server.port

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()

    def options(self, line: str) -> tuple[str, str]:
        if line in PUTS:
            return PUTS[line], ""
        return "-m pull -n 32 -c 8 -w 1 -T PullTest", f"-m batch -n 32 -c 8 -w 4 -T PullTest -M {FETCHED}"


class Foreign(System):
    """A foreign system: an executable with its own configuration."""

    executable = ""
    package = ""
    protocol = ""

    def __init__(self, waits: bool) -> None:
        super().__init__(waits)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, work: Path) -> None:
        if shutil.which(self.executable) is None:
            raise CannotRunError(f"not installed: apt-get install {self.package}")
        folder = work / self.protocol
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._log = folder / "out.log"
        self.port = free_ports(3)
        self.run(folder)

    @abstractmethod
    def run(self, folder: Path) -> None:
        """Start the system with its files in the folder."""

    def spawn(self, command: list[str], port: int, env: dict[str, str] | None = None, patience_s: float = 60) -> int:
        """Start a process, wait for its port, and return its process id."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **(env or {})},
                cwd=self._log.parent,
            )  # fmt: skip
        self._processes.insert(0, process)
        wait_port(port, process, patience_s, self._log)
        return process.pid

    def stop(self) -> None:
        end_processes(self._processes)
        self._processes.clear()

    def options(self, line: str) -> tuple[str, str]:
        if line in PUTS:
            return f"-x {self.protocol} {PUTS[line]}", ""
        return f"-x {self.protocol} -m fetch -n 32 -c 8 -w 1", f"-x {self.protocol} -c 8 -w 32 -M {FETCHED}"


class Redis(Foreign):
    """Redis Streams: XADD and XRANGE."""

    title, executable, package, protocol = "Redis Streams", "redis-server", "redis-server", "resp"

    @property
    def setting(self) -> str:
        return f"appendonly yes, appendfsync {'always' if self.waits else 'everysec'}"

    def run(self, folder: Path) -> None:
        how = ["--save", "", "--appendonly", "yes", "--appendfsync", "always" if self.waits else "everysec"]
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--daemonize", "no"]
        self.pid = self.spawn(["redis-server", *place, *how], self.port)


class Nats(Foreign):
    """NATS JetStream: a stream on file storage, and pull consumers."""

    title, executable, package, protocol = "NATS JetStream", "nats-server", "nats-server", "nats"

    @property
    def setting(self) -> str:
        return f"storage file, sync_interval {'always' if self.waits else '2m (default)'}"

    def run(self, folder: Path) -> None:
        said = subprocess.run(["nats-server", "--version"], capture_output=True, text=True, check=False).stdout
        version = [int(part) for part in re.findall(r"\d+", said)[:2]]
        if self.waits and version < [2, 10]:
            raise CannotRunError(f"{said.strip()} has no setting sync_interval; 2.10 or later is needed")
        sync = "sync_interval: always" if self.waits else ""
        config = folder / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\nmax_pending: 256MB\n'
            f'jetstream {{ store_dir: "{folder}/store", max_file_store: 50GB, {sync} }}\n'
        )
        self.pid = self.spawn(["nats-server", "-c", str(config)], self.port)

    def options(self, line: str) -> tuple[str, str]:
        options, before = super().options(line)
        # A consumer reads each message only once, so the measurement begins with its first batch.
        return (options if line in PUTS else f"{options} -W 0"), before


class RabbitMq(Foreign):
    """RabbitMQ: persistent messages into durable queues under publisher confirms."""

    title, executable, package, protocol = "RabbitMQ", str(RABBITMQ), "rabbitmq-server", "amqp"

    @property
    def _queue(self) -> str:
        return "quorum" if self.waits else "classic"

    @property
    def setting(self) -> str:
        return f"durable {self._queue} queues, delivery_mode 2, publisher confirms"

    def run(self, folder: Path) -> None:
        (folder / "enabled_plugins").write_text("[].\n")
        pid_file = folder / "pid"
        names = self.port + 1
        env = {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.port + 2),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_PID_FILE": str(pid_file),
        }
        self.spawn(["epmd", "-port", str(names), "-address", "127.0.0.1"], names)
        self.spawn([str(RABBITMQ)], self.port, env, 120)
        self.pid = int(pid_file.read_text())

    def stop(self) -> None:
        # The wrapper script would call another tool to end the server, but the server itself handles the signal.
        if self.pid:
            try:
                os.kill(self.pid, signal.SIGTERM)
                end = time.monotonic() + 30
                while Path(f"/proc/{self.pid}").exists() and time.monotonic() < end:
                    time.sleep(0.1)
            except ProcessLookupError:
                pass
        super().stop()

    def options(self, line: str) -> tuple[str, str]:
        if line not in PUTS:
            raise CannotRunError("has no request for a batch: messages are pushed and then gone")
        options, before = super().options(line)
        return f"{options} -Q {self._queue}", before


SYSTEMS: dict[str, type[System]] = {"tianzhou": Tianzhou, "redis": Redis, "nats": Nats, "rabbitmq": RabbitMq}


class Run:
    """All measurements of one run.

    Args:
        arguments: parsed options of the command line.
        work: scratch folder.
    """

    def __init__(self, arguments: argparse.Namespace, work: Path) -> None:
        self.arguments = arguments
        self.work = work
        self.machine: dict[str, str] = {}
        self.figures: dict[str, dict[str, list[dict[str, float]]]] = {}
        self.cannot: dict[str, dict[str, str]] = {}
        self.rounds_done = 0

    def measure(self) -> None:
        """All rounds of all systems in both settings."""
        self.machine = describe(self.work)
        self.machine["fresh memory"] = touch_memory(self.work)
        self.machine["disk"] = in_words(disk_limit(self.work, 3 if self.arguments.short else 10))
        programs = {name: build(name, self.work) for name in ("loadgen", "rivals")}
        names = self.arguments.systems
        for number in range(self.arguments.rounds):
            for name in in_turn(names, number):
                for waits in (False, True):
                    self._system(SYSTEMS[name](waits), programs)
                    self.write_json()
                print(f"round {number + 1} of {self.arguments.rounds}: {name} done", file=sys.stderr, flush=True)
            self.rounds_done = number + 1

    def _system(self, system: System, programs: dict[str, Path]) -> None:
        key = f"{system.title}|{system.setting}"
        reasons = self.cannot.setdefault(key, {})
        kept = self.figures.setdefault(key, {})
        try:
            system.start(self.work)
            warm, _ = system.options("put64x1")
            load(programs[system.tool], f"{warm} -W 0", system.port, self.arguments.warm)
        except (CannotRunError, OSError) as error:
            reasons["all"] = str(error)
            system.stop()
            return
        try:
            for line in LINES:
                try:
                    kept.setdefault(line, []).append(self._line(system, line, programs[system.tool]))
                except (CannotRunError, OSError) as error:
                    reasons[line] = str(error)
            reasons["memory"] = f"{anon_mb(system.pid):,.0f} MB of anonymous memory in the end"
        finally:
            system.stop()

    def _line(self, system: System, line: str, program: Path) -> dict[str, float]:
        options, before = system.options(line)
        if before:
            load(program, before, system.port, 0)
            time.sleep(1)
        result: dict[str, Any] = load(program, options, system.port, self.arguments.secs, pids=[system.pid])
        if result["bad"]:
            raise CannotRunError(f"{result['bad']} replies were no success: {result['said']}")
        if not result["msgs"]:
            raise CannotRunError(f"no messages came: {result['said']}")
        return {
            "msgs_per_s": result["msgs"],
            "p50_us": result["p50_us"],
            "p99_us": result["p99_us"],
            "cpu_us": result["cpu_us"],
        }

    def write_json(self) -> None:
        """Write every figure of every round to the file of `--json`, if given."""
        write_json(self.arguments.json, {"machine": self.machine, "rounds": self.figures, "cannot": self.cannot})

    def markdown(self) -> str:
        """One row per line, system and setting."""
        arguments = self.arguments
        head = ["line", "system", "setting", "messages/s", "p50", "p99", "CPU µs per message", "Tianzhou's rate to it"]
        rows = [
            [title, *self._cells(SYSTEMS[name](waits), line)]
            for line, title in LINES.items()
            for waits in (False, True)
            for name in arguments.systems
        ]
        how = (
            f"{self.rounds_done} of {arguments.rounds} rounds, medians; {arguments.secs} s a line after "
            f"{arguments.warm} s of warming each server. An acknowledgement waits for the disk in the second "
            "setting of each system; what a confirm of a RabbitMQ classic queue waits for is up to its version.\n"
        )
        return "\n".join(("### Beside other systems\n", how, machine_list(self.machine), markdown_table(head, rows)))

    def _cells(self, system: System, line: str) -> list[str]:
        found = self._median(system, line)
        if not found:
            reasons = self.cannot.get(f"{system.title}|{system.setting}", {})
            reason = reasons.get(line) or reasons.get("all") or "the run ended before it"
            return [system.title, system.setting, f"not run: {reason}", "", "", "", ""]
        ours = {} if isinstance(system, Tianzhou) else self._median(Tianzhou(system.waits), line)
        return [
            system.title,
            system.setting,
            shown("msgs_per_s", found["msgs_per_s"]),
            shown("p50_us", found["p50_us"]),
            shown("p99_us", found["p99_us"]),
            f"{found['cpu_us']:.1f}",
            f"{ours['msgs_per_s'] / found['msgs_per_s']:.2f}x" if ours else "",
        ]

    def _median(self, system: System, line: str) -> dict[str, float]:
        rounds = self.figures.get(f"{system.title}|{system.setting}", {}).get(line, [])
        return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]} if rounds else {}


def main() -> int:
    """Parse arguments, run, print."""
    parser = parser_of(__doc__)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="comma list of " + ", ".join(SYSTEMS))
    arguments = parser.parse_args()
    set_duration(arguments, rounds=3, secs=(3, 5), warm=(3, 5))
    arguments.systems = some_of(parser, "--systems", arguments.systems, SYSTEMS)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="rivals-", ignore_cleanup_errors=True) as scratch:
        run = Run(arguments, Path(scratch))
        try:
            run.measure()
        except KeyboardInterrupt:
            interrupted = True
        except CannotRunError as error:
            sys.exit(f"cannot run: {error}")
        run.write_json()
    put_section(arguments.markdown, "rivals", run.markdown())
    return 130 if interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
