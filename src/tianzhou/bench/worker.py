"""A process that carries one share of the load. `worker_pool` starts it.

The first line of its input is its job, the second the start. The end of its input means stop, also after the parent was
killed. It writes its counts to its output four times a second.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from contextlib import suppress
from pathlib import Path

from tianzhou.bench.receiving import Receiving
from tianzhou.bench.sending import BenchSending
from tianzhou.bench.series import Gathering
from tianzhou.bench.spec import BenchRole
from tianzhou.bench.worker_protocol import WorkerReport, decode_job, decode_start, encode
from tianzhou.errors import TianzhouError
from tianzhou.logs import log_to_stderr
from tianzhou.remoting.loop import run
from tianzhou.supervision import start_awaited

REPORT_EVERY_S = 0.25
LOOK_EVERY_S = 0.05
LONGEST_LINE = 16 * 1024 * 1024
_SCHEDSTAT = Path("/proc/self/schedstat")


class _Reports(asyncio.Protocol):
    """The standard output to the parent. Writes never block the load."""

    def __init__(self) -> None:
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.WriteTransport | None = None

    async def open(self) -> None:
        """Take over standard output."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_write_pipe(lambda: self, sys.stdout)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that all reports are written, or that the parent has closed the pipe."""
        if not self._gone.done():
            self._gone.set_result(None)

    def send(self, report: WorkerReport) -> None:
        """Send a report."""
        if self._transport is not None:
            self._transport.write(encode(report) + b"\n")

    async def close(self) -> None:
        """Write all reports, and close."""
        if self._transport is not None:
            self._transport.close()
            await self._gone


class _Usage:
    """The processor time that the process has used since the start of the run."""

    def __init__(self) -> None:
        self._wall_s, self._cpu_s, self._waited_s = time.monotonic(), time.process_time(), _waited_s()

    def report(self, gathering: Gathering, *, done: bool = False) -> WorkerReport:
        """Return the counts since the last report, and the processor time since the start."""
        return WorkerReport(
            slices=gathering.take(),
            last_s=max(gathering.last_s - gathering.start_s, 0.0),
            cpu_s=time.process_time() - self._cpu_s,
            waited_s=_waited_s() - self._waited_s,
            wall_s=time.monotonic() - self._wall_s,
            done=done,
        )


def _waited_s() -> float:
    """Return the seconds for which this thread was ready but had no processor; 0 if the system does not provide it."""
    try:
        return int(_SCHEDSTAT.read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    reports = _Reports()
    await reports.open()
    line = await lines.readline()
    if not line:
        return
    job = decode_job(line)
    try:
        await _carry_out(BenchSending(job) if job.role is BenchRole.send else Receiving(job), reports, lines)
    except TianzhouError as error:
        reports.send(WorkerReport(failed=str(error), done=True))
    except Exception as error:  # noqa: BLE001 - the parent says it, whatever it is
        reports.send(WorkerReport(failed=f"{type(error).__name__}: {error}", done=True))
    finally:
        await reports.close()


async def _carry_out(work: BenchSending | Receiving, reports: _Reports, lines: asyncio.StreamReader) -> None:
    last: WorkerReport | None = None
    try:
        await work.connect()
        reports.send(WorkerReport(ready=True))
        line = await _start_line(work, reports, lines)
        if line:
            last = await _measure(work, reports, lines, decode_start(line).epoch_s)
    finally:
        await work.close()
    if last is not None:
        reports.send(last)


async def _start_line(work: BenchSending | Receiving, reports: _Reports, lines: asyncio.StreamReader) -> bytes:
    """Return the parent's `Start`, empty if the worker must end. Report changes of the assigned queues meanwhile."""
    reading = start_awaited(lines.readline())
    reported: dict[str, int] = {}
    while not reading.done():
        now = work.queues()
        if now != reported:
            reported = now
            reports.send(WorkerReport(queues=now))
        await asyncio.wait([reading], timeout=LOOK_EVERY_S)
    return reading.result()


async def _measure(
    work: BenchSending | Receiving, reports: _Reports, lines: asyncio.StreamReader, epoch_s: float
) -> WorkerReport:
    gathering = Gathering(epoch_s)
    # Exclude the present objects from later collections, which would add noise to the latencies.
    gc.collect()
    gc.freeze()
    usage = _Usage()
    work.start(gathering)
    working = start_awaited(work.finished())
    stop = start_awaited(lines.readline())
    try:
        while not (working.done() or stop.done()):
            await asyncio.wait([working, stop], timeout=REPORT_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            reports.send(usage.report(gathering))
        if working.done():
            working.result()
    finally:
        for task in (working, stop):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        # Wait for requests in flight. They count.
        await work.close()
    return usage.report(gathering, done=True)


def main() -> None:
    """Do one job."""
    log_to_stderr(logging.WARNING)
    logging.getLogger("tianzhou").setLevel(logging.ERROR)
    run(_serve())


if __name__ == "__main__":
    main()
