"""The worker processes of a run, as the parent controls them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self

from tianzhou.bench.jobs import Job
from tianzhou.bench.spec import BenchRole
from tianzhou.bench.worker_protocol import Start, WorkerReport, decode_report, encode
from tianzhou.errors import TianzhouError
from tianzhou.supervision import start_owned

LONGEST_LINE = 16 * 1024 * 1024
READY_LIMIT_S = 30.0
END_LIMIT_S = 1.8

OnReport = Callable[["Worker", WorkerReport], None]


class Worker:
    """A process with one job.

    Args:
        job: the work.
        on_report: called with each of its reports.

    Attributes:
        queues: number of queues of each of its groups.
        last: the last report of its processor time and of the time of its last message, while it worked.
        done: whether it has ended.
        failed: the reason of its failure; empty without one.
    """

    def __init__(self, job: Job, on_report: OnReport) -> None:
        self.job = job
        self.queues: dict[str, int] = {}
        self.last = WorkerReport()
        self.done = False
        self.failed = ""
        self._on_report = on_report
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._finished = asyncio.Event()

    async def start(self) -> None:
        """Start the process and send it the job."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tianzhou.bench.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
            # Ctrl-C must reach only the parent, which collects the counts of the workers.
            start_new_session=True,
        )  # fmt: skip
        self._listening = start_owned(self._listen(self._process), "bench")
        self._write(encode(self.job))

    async def ready(self) -> None:
        """Wait until the worker is connected.

        Raises:
            TianzhouError: it failed, or did not connect in time.
        """
        try:
            async with asyncio.timeout(READY_LIMIT_S):
                await self._ready.wait()
        except TimeoutError:
            raise TianzhouError(f"a load process has not connected within {READY_LIMIT_S:g} s") from None
        self.check()

    async def finished(self) -> None:
        """Wait for the last report."""
        await self._finished.wait()

    def check(self) -> None:
        """Check that the worker has not failed.

        Raises:
            TianzhouError: it has failed.
        """
        if self.failed:
            raise TianzhouError(self.failed)

    def begin(self, epoch_s: float) -> None:
        """Start the load at a time of the monotonic clock."""
        self._write(encode(Start(epoch_s)))

    def stop(self) -> None:
        """Stop the load. The worker still reports its last counts."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def ended(self) -> None:
        """Wait until the process ends. Kill it after a timeout."""
        process = self._process
        if process is None:
            return
        try:
            async with asyncio.timeout(END_LIMIT_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._listening is not None:
            await self._listening

    def _write(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(line + b"\n")

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            report = decode_report(line)
            if report.queues:
                self.queues = report.queues
            if report.wall_s:
                if report.done and self.last.wall_s:
                    # The wait for the last acknowledgements and the disconnection are not load.
                    self.last.last_s = report.last_s
                else:
                    self.last = report
            self.done = self.done or report.done
            self.failed = self.failed or report.failed
            if report.ready or report.done:
                self._ready.set()
            self._on_report(self, report)
            if report.done:
                self._finished.set()
        if not self.done:
            self.done = True
            self.failed = self.failed or "a load process has died; its own words are above"
            self._ready.set()
            self._on_report(self, WorkerReport(done=True))
        self._finished.set()


class WorkerPool:
    """All workers of a run; an async context manager that ends all processes.

    Args:
        on_report: called with each of their reports.
    """

    def __init__(self, on_report: OnReport) -> None:
        self._on_report = on_report
        self.workers: list[Worker] = []

    async def __aenter__(self) -> Self:
        return self

    def of(self, role: BenchRole) -> list[Worker]:
        """Return the workers of a role."""
        return [worker for worker in self.workers if worker.job.role is role]

    async def start(self, jobs: Iterable[Job]) -> None:
        """Start workers and wait until they are connected.

        Raises:
            TianzhouError: a worker cannot connect.
        """
        started = [Worker(job, self._on_report) for job in jobs]
        self.workers += started
        for worker in started:
            await worker.start()
        for worker in started:
            await worker.ready()

    def check(self) -> None:
        """Check that no worker has failed.

        Raises:
            TianzhouError: a worker has failed.
        """
        for worker in self.workers:
            worker.check()

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            await worker.ended()
