"""The queries in a separate process, which can be killed and started again (`flights --kill`).

The process reports the positions of its queries on its standard output, as lines of JSON. The end of its standard input
means that no more messages will arrive. Then it reads the remaining messages, counts the rows in the sinks, reports the
counts, and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tianzhou.cli.children import children_of
from tianzhou.cli.flights.pipeline import FlightPipeline, SinkFigures
from tianzhou.errors import TianzhouError

REPORT_EVERY_S = 0.2
END_LIMIT_S = 600.0


class KilledQueries:
    """A process that runs the queries. It is killed once, and a second process continues.

    The class has the methods of `FlightPipeline` that the job uses.

    Args:
        namesrv: name server to read through.
        topic: the topic.
        out: folder for tables and checkpoints.
        total: number of rows that will arrive.
        kill_at: number of rows that a query has read when the process is killed.
        pause_s: seconds between that and the kill, so that it may hit any state.

    Attributes:
        killed_at: positions of the queries when they were killed; empty before.
    """

    def __init__(self, namesrv: str, topic: str, out: Path, total: int, kill_at: int, pause_s: float) -> None:
        self._arguments = [namesrv, topic, str(out), str(max(1, total // 5))]
        self._kill_at = kill_at
        self._pause_s = pause_s
        self._positions: list[int] = []
        self._result: dict[str, Any] = {}
        self.killed_at: list[int] = []

    def start(self) -> None:
        """Start the queries."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tianzhou.cli.flights.queries", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C at the terminal must reach the job only, which then ends everything cleanly.
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, args=[self._process], daemon=True)
        self._listener.start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            report = json.loads(line)
            if "positions" in report:
                # A restarted query has no position yet.
                now = report["positions"]
                self._positions = [max(pair) for pair in zip(now, self._positions or now, strict=True)]
            else:
                self._result = report

    def rows_read(self) -> int:
        """Return the number of rows that the slowest query has read from the topic."""
        return min(self._positions, default=0)

    def check(self) -> None:
        """Kill the queries when the time has come, and start them again.

        Raises:
            TianzhouError: the process has ended by itself.
        """
        if self._process.poll() is not None:
            raise TianzhouError("the queries ended while the job was running; the reason is printed above")
        if not self.killed_at and max(self._positions, default=0) >= self._kill_at:
            time.sleep(self._pause_s)
            self._kill_and_go_on()

    def _kill_and_go_on(self) -> None:
        self.killed_at = list(self._positions) or [0]
        self._kill()
        self.start()

    def finish(self) -> None:
        """Wait until all messages of the topic are read and written.

        Raises:
            TianzhouError: the process ends without a result, or does not end.
        """
        if not self.killed_at:  # The queries have ended between two checks.
            self._kill_and_go_on()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise TianzhouError(f"the queries did not end within {END_LIMIT_S:g} s of the last row") from None
        self._listener.join(END_LIMIT_S)
        if not self._result:
            raise TianzhouError("the queries ended without a result; the reason is printed above")

    def figures(self) -> SinkFigures:
        """Return the counts of the sinks."""
        return SinkFigures(**self._result["figures"])

    def delays(self) -> list[dict[str, Any]]:
        """Return the aggregate table."""
        delays: list[dict[str, Any]] = self._result["delays"]
        return delays

    def stop(self) -> None:
        """Kill the process in any state."""
        if self._process.poll() is None:
            self._kill()

    def _kill(self) -> None:
        """Kill the driver, its JVM and its workers with SIGKILL."""
        for pid in [self._process.pid, *_below(self._process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join()


def _below(pid: int) -> list[int]:
    """Return all descendants of a process."""
    return [one for child in children_of(pid) for one in (child, *_below(child))]


def main(namesrv: str, topic: str, out: str, limit: str) -> None:
    """Run the queries until the standard input ends and all messages are read."""
    from tianzhou.spark import session

    ending = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ending.set()

    threading.Thread(target=listen, daemon=True).start()
    spark = session("tianzhou-flights", profile="local")
    pipeline = FlightPipeline(spark, namesrv, topic, Path(out), max_offsets_per_trigger=int(limit))
    pipeline.start()
    while not ending.wait(REPORT_EVERY_S):
        pipeline.check()
        _report({"positions": pipeline.positions()})
    pipeline.finish()
    _report({"figures": asdict(pipeline.figures()), "delays": pipeline.delays()})
    spark.stop()


def _report(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
