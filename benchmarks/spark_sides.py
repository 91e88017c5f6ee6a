"""The sides that `spark.py` compares: a broker with the messages, a steady producer and a warm Spark session each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import spark_feed
from sides import HERE, CannotRunError
from spark_kafka import KafkaBroker, source_jars, spark_python
from toolchain import environment

TOPIC, STEADY = "Orders", "Steady"
RATE = 200
TIANZHOU = [sys.executable, "-m", "tianzhou"]
READY_S = 120
ANSWER_S = 300
STOP_S = 30
QUEUES = 4
BODY = 1024
LATENCY_S = {"secs": 15, "settle": 6}
"""Seconds of a latency measurement in a round, and seconds of the stream before it."""
Figures = dict[str, float]


# --- processes


class Process:
    """A program of ours or of Kafka in a process group of its own, which ends with it.

    Args:
        command: the program.
        log: file for its output.
        env: its environment.
        talks: whether commands and answers go over stdin and stdout.
    """

    def __init__(self, command: list[str], log: Path, env: Mapping[str, str], *, talks: bool = False) -> None:
        self.log = log
        with log.open("ab") as file:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                env=dict(env),
                start_new_session=True,
            )
        self.pid = self._popen.pid
        self._read = b""

    def tell(self, command: Mapping[str, Any]) -> None:
        """Send a line."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps(command).encode() + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            raise CannotRunError(self._ended()) from None

    def answer(self, limit_s: float) -> dict[str, Any]:
        """Wait for a line.

        Raises:
            CannotRunError: no line came; the text has the last output of the process.
        """
        assert self._popen.stdout is not None
        end = time.monotonic() + limit_s
        while b"\n" not in self._read:
            if not select.select([self._popen.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                raise CannotRunError(f"no answer within {limit_s:.0f} s; {self._said()}")
            got = os.read(self._popen.stdout.fileno(), 65_536)
            if not got:
                raise CannotRunError(self._ended())
            self._read += got
        line, _, self._read = self._read.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _ended(self) -> str:
        return f"ended with {self._popen.wait(STOP_S)}; {self._said()}"

    def _said(self) -> str:
        return f"the last it said: {self.log.read_text(errors='replace').strip()[-600:] or 'nothing'}"

    def stop(self) -> None:
        """End the process by SIGTERM, or by the end of its stdin where it takes commands; end the rest of its group by
        SIGKILL.
        """
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()
        elif self._popen.poll() is None:
            self._popen.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()


class Side:
    """A broker with the messages in it, and a warm session; each failed step raises CannotRunError.

    Args:
        name: `tianzhou` or `kafka`.
        work: its scratch folder.
        rows: messages in the topic.
    """

    def __init__(self, name: str, work: Path, rows: int) -> None:
        self.name = name
        self.work = work
        self.rows = rows
        self._session: Process | None = None
        self._ends: list[Callable[[], None]] = []
        work.mkdir(parents=True)

    def open_session(self, python: str, env: Mapping[str, str], given: Mapping[str, Any]) -> None:
        """Start the session; `given` has the arguments of `spark_session` beside the common ones."""
        scratch = self.work / "spark"
        scratch.mkdir()
        whole = {"side": self.name, "topic": TOPIC, "rows": self.rows, "scratch": str(scratch), **given}
        command = [python, str(HERE / "spark_session.py"), json.dumps(whole)]
        self._session = Process(command, self.work / "session.log", env, talks=True)
        self._ends.append(self._session.stop)
        self.version = self._session.answer(READY_S)["spark"]

    def ask(self, measure: str, **given: Any) -> Figures:
        """Run a command in the session and return its figures.

        Raises:
            CannotRunError: the command failed; the text has the reason.
        """
        assert self._session is not None
        self._session.tell({"measure": measure, **given})
        answer = self._session.answer(ANSWER_S)
        if "error" in answer:
            raise CannotRunError(answer["error"])
        return answer

    def line(self, measure: str, given: Mapping[str, Any]) -> Figures:
        """Measure a line once and return its figures."""
        if measure != "latency":
            return self.ask(measure, **given)
        producer = self.steady()
        try:
            return self.ask("latency", steady=STEADY, **LATENCY_S, **given)
        finally:
            producer()

    def warm(self, lines: list[tuple[str, Mapping[str, Any]]]) -> None:
        """Run every line, a measure with its arguments, once without noting it; count the sources first."""
        for source in sorted({given["source"] for _, given in lines if "source" in given}):
            rows = self.ask("count", source=source)["rows"]
            if rows != self.rows:
                raise CannotRunError(f"{source}: {rows:.0f} rows are there, not {self.rows}")
        latency = [line for line in lines if line[0] == "latency"]
        for measure, given in [*(line for line in lines if line[0] != "latency"), *latency[:1]]:
            self.line(measure, given)

    def start(self) -> None:
        """Start the broker, send the messages, and start the session."""
        raise NotImplementedError

    def steady(self) -> Callable[[], None]:
        """Begin to send steadily; return the function that ends it."""
        raise NotImplementedError

    def stop(self) -> None:
        """End all processes and remove the files."""
        while self._ends:
            self._ends.pop()()
        shutil.rmtree(self.work, ignore_errors=True)


class Tianzhou(Side):
    """Our broker, `tianzhou serve`, and our sources."""

    def start(self) -> None:
        """See `Side`."""
        data = self.work / "data"
        spark_feed.fill(data, TOPIC, self.rows, QUEUES, BODY)
        ports = ["--namesrv-port", "0", "--broker-port", "0"]
        command = [*TIANZHOU, "serve", "--data", str(data), "-o", "json", *ports]
        broker = Process(command, self.work / "broker.log", os.environ)
        self._ends.append(broker.stop)
        self._address = str(broker.answer(READY_S)["namesrv"])
        asyncio.run(self._topics())
        given = {"address": self._address, "store": str(data), "broker": broker.pid}
        self.open_session(sys.executable, os.environ, given)

    async def _topics(self) -> None:
        from tianzhou.admin import Admin

        async with Admin(self._address) as admin:
            for topic in (TOPIC, STEADY):
                await admin.topics.create(topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)

    def steady(self) -> Callable[[], None]:
        """See `Side`."""
        load = ["--rate", str(RATE), "--size", str(BODY), "--seconds", str(ANSWER_S), "-n", self._address]
        command = [*TIANZHOU, "bench", "produce", STEADY, *load]
        return Process(command, self.work / "producer.log", os.environ).stop


class Kafka(Side):
    """Apache Kafka's broker, and Spark's own source for it."""

    def start(self) -> None:
        """See `Side`."""
        python, jars = spark_python(), source_jars()
        broker = KafkaBroker(self.work / "broker")
        self._broker = broker
        self._ends.append(broker.stop)
        broker.start()
        for topic in (TOPIC, STEADY):
            broker.create(topic, QUEUES)
        from tianzhou.spark.sessions.sessions import settings

        given = {"address": broker.address, "jars": jars, "broker": broker.pid, "settings": settings("local")}
        self.open_session(str(python), {**environment(), "SPARK_LOCAL_IP": "127.0.0.1"}, given)
        path = self.work / "messages.parquet"
        spark_feed.as_parquet(path, self.rows, QUEUES, BODY)
        self.ask("fill", path=str(path))
        path.unlink()

    def steady(self) -> Callable[[], None]:
        """See `Side`."""
        producer = self._broker.steady(STEADY, RATE, BODY)

        def stop() -> None:
            producer.kill()
            producer.wait()

        return stop
