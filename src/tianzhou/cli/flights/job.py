"""The main job: start a server, send flights, read them with Spark, prove the result.

The server is a separate process, like a user's. The producer is a thread with its own event loop, so that Spark reads
while it sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tianzhou.bench.local_server import end_with_parent
from tianzhou.cli.flights.pipeline import LATE_TOPIC, FlightPipeline
from tianzhou.cli.flights.queries import KilledQueries
from tianzhou.cli.flights.report import Check, prove
from tianzhou.cli.flights.rows import TOTAL_ROWS, SourceFigures, read_rows, to_message
from tianzhou.cli.reachability import is_free
from tianzhou.cli.topics import with_admin
from tianzhou.errors import ConfigError, TianzhouError

if TYPE_CHECKING:
    from tianzhou.admin import Admin

TOPIC = "flights"
QUEUES = 4
START_LIMIT_S = 30.0
STOP_LIMIT_S = 15.0
# Sends in flight share one write per turn of the loop. More of them only use more memory.
SENDS_IN_FLIGHT = 512
MARK = "flights.json"
# Range of the progress at which the queries are killed, and the maximum delay after it.
KILL_FROM, KILL_TO = 0.2, 0.6
KILL_PAUSE_S = 1.0


@dataclass(frozen=True)
class JobResult:
    """The result of the job.

    Attributes:
        checks: the proof.
        delays: the aggregate table.
        rows: number of rows sent.
        produce_s: seconds from the first send to the last acknowledgement.
        read_s: seconds from the start of the queries until everything was in Parquet.
        total_s: seconds for all of it.
        killed_at: number of rows that each query had read when the queries were killed; empty if they were not.
    """

    checks: list[Check]
    delays: list[dict[str, Any]]
    rows: int
    produce_s: float
    read_s: float
    total_s: float
    killed_at: list[int]

    @property
    def proved(self) -> bool:
        """Whether every line of the proof holds."""
        return all(check.holds for check in self.checks)


class ServerProcess:
    """`tianzhou serve` as a child process; a context manager.

    Args:
        data: the data folder.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self.namesrv = ""
        self.broker = ""
        self.start_s = 0.0

    def __enter__(self) -> Self:
        namesrv_port, broker_port = default_or_free_ports()
        began = time.monotonic()
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "tianzhou", "serve", "--data", str(self._data), "-o", "json",
                "--namesrv-port", str(namesrv_port), "--broker-port", str(broker_port),
            ],
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C at the terminal must reach the job only, which then stops the server cleanly.
            start_new_session=True,
            preexec_fn=end_with_parent if sys.platform == "linux" else None,
        )  # fmt: skip
        try:
            ready = self._ready()
        except BaseException:
            self.__exit__()
            raise
        self.namesrv, self.broker = ready["namesrv"], ready["broker"]
        self.start_s = time.monotonic() - began
        return self

    def _ready(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        watchdog = threading.Timer(START_LIMIT_S, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            code = self._process.wait()
            raise ConfigError(f"the server did not start (exit code {code}); its reason is printed above")
        ready: dict[str, Any] = json.loads(line)
        return ready

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait until the process ends. Return its exit code."""
        return self._process.wait()

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def default_or_free_ports(host: str = "127.0.0.1") -> tuple[int, int]:
    """Return RocketMQ's ports of name server and broker. A port that is in use is replaced with 0 (any free one)."""
    return (9876 if is_free(host, 9876) else 0), (10911 if is_free(host, 10911) and is_free(host, 10909) else 0)


def prepare_folder(out: Path) -> None:
    """Make `out` an empty folder for the job.

    Raises:
        ConfigError: the folder contains files that this job has not written.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is no folder; give an empty or a new one")
    if out.exists() and any(out.iterdir()):
        if not (out / MARK).exists():
            raise ConfigError(f"--out {out}: the folder is not empty and not from an earlier run; give another one")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).write_text("{}\n")


class FlightProducer(threading.Thread):
    """A thread that sends the flights.

    Attributes:
        source: figures of the rows read so far.
        acknowledged: number of acknowledged sends.
        error: the error that ended the thread early, or None.
    """

    def __init__(self, namesrv: str, limit: int | None) -> None:
        super().__init__(name="flight-producer", daemon=True)
        self._namesrv = namesrv
        self._limit = limit
        self.source = SourceFigures()
        self.acknowledged = 0
        self.seconds = 0.0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Send all flights. `start` calls it."""
        from tianzhou.remoting.loop import run

        began = time.monotonic()
        try:
            run(self._produce())
        except BaseException as error:  # noqa: BLE001  whatever it is, the job's main thread reports it
            self.error = error
        self.seconds = time.monotonic() - began

    async def _produce(self) -> None:
        from tianzhou.client import Producer

        async with Producer("flights-producer", self._namesrv) as producer:
            rows = self._numbered_rows()

            async def lane() -> None:
                for number, row in rows:
                    await producer.send(to_message(TOPIC, number, row))
                    self.acknowledged += 1

            async with asyncio.TaskGroup() as group:
                for _ in range(SENDS_IN_FLIGHT):
                    group.create_task(lane())

    def _numbered_rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, row in enumerate(read_rows(self._limit)):
            self.source.add(row)
            yield number, row


def run_job(
    out: Path,
    limit: int | None,
    server: ServerProcess,
    console: Console,
    session_made: Callable[[], None],
    *,
    kill: bool = False,
) -> JobResult:
    """Send the flights, read them by streams, and count them.

    Args:
        out: the prepared folder of the job.
        limit: maximum rows, None for all.
        server: the running server.
        console: the console for progress.
        session_made: called when Spark's session exists, which installs signal handlers of its own.
        kill: whether to run the queries in a process that is killed in the middle and started again.

    Raises:
        TianzhouError: the producer or the server failed.
    """
    began = time.monotonic()
    with_admin(server.namesrv, False, _create_topics)
    total = min(limit or TOTAL_ROWS, TOTAL_ROWS)
    with _progress(console) as progress:
        sent, read = (
            progress.add_task("acknowledged", total=total),
            progress.add_task("in Parquet", total=total),
        )
        producer = FlightProducer(server.namesrv, limit)
        producer.start()
        pipeline, end = _pipeline(server.namesrv, out, total, kill=kill)
        session_made()
        try:
            reading = time.monotonic()
            pipeline.start()

            def show() -> None:
                progress.update(sent, completed=producer.acknowledged)
                progress.update(read, completed=pipeline.rows_read())

            _watch(producer, pipeline, server, show, total)
            pipeline.finish()
            read_s = time.monotonic() - reading
            progress.update(sent, completed=producer.acknowledged)
            progress.update(read, completed=total)
            sink, delays = pipeline.figures(), pipeline.delays()
        finally:
            pipeline.stop()
            end()
    stored = with_admin(server.namesrv, False, lambda admin: admin.topics.describe(TOPIC)).message_count
    checks = prove(producer.source, producer.acknowledged, stored, sink)
    killed_at = pipeline.killed_at if isinstance(pipeline, KilledQueries) else []
    total_s = time.monotonic() - began
    return JobResult(checks, delays, producer.source.rows, producer.seconds, read_s, total_s, killed_at)


async def _create_topics(admin: Admin) -> None:
    for topic in (TOPIC, LATE_TOPIC):
        await admin.topics.create(topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)


def _pipeline(
    namesrv: str, out: Path, total: int, *, kill: bool
) -> tuple[FlightPipeline | KilledQueries, Callable[[], None]]:
    """Return the queries, and a function that ends their session."""
    if kill:
        rng = random.Random()
        kill_at = int(total * rng.uniform(KILL_FROM, KILL_TO))
        return KilledQueries(namesrv, TOPIC, out, total, kill_at, rng.uniform(0, KILL_PAUSE_S)), lambda: None
    from tianzhou.spark import session

    spark = session("tianzhou-flights", profile="local")
    return FlightPipeline(spark, namesrv, TOPIC, out), spark.stop


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:>12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def _watch(
    producer: FlightProducer,
    pipeline: FlightPipeline | KilledQueries,
    server: ServerProcess,
    show: Callable[[], None],
    total: int,
) -> None:
    while producer.is_alive() or pipeline.rows_read() < total:
        if producer.error is not None:
            raise producer.error
        if not server.alive:
            raise TianzhouError("the server ended while the job was running; its reason is printed above")
        pipeline.check()
        show()
        producer.join(0.25) if producer.is_alive() else threading.Event().wait(0.25)
        if not producer.is_alive() and producer.error is None and producer.source.rows < total:
            # The source is shorter than expected, so no more rows will arrive.
            break
    if producer.error is not None:
        raise producer.error


def keep_serving(server: ServerProcess) -> None:
    """Wait for Ctrl-C or for the end of the server."""
    with contextlib.suppress(KeyboardInterrupt):
        server.wait()


def is_interactive() -> bool:
    """Whether a user is at the terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("CI")
