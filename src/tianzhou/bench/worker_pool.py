"""The worker processes of a run, seen from the parent."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self

from tianzhou.bench.jobs import Job
from tianzhou.bench.spec import Role
from tianzhou.bench.worker_protocol import Start, WorkerReport, decode_report, encode
from tianzhou.errors import TianzhouError

LONGEST_LINE = 16 * 1024 * 1024
READY_LIMIT_S = 30.0
END_LIMIT_S = 1.8


class Worker:
    """One process with one job.

    Args:
        job: what it does.
        heard: called with everything it says.
    """

    def __init__(self, job: Job, heard: Callable[[Worker, WorkerReport], None]) -> None:
        self.job = job
        self.queues: dict[str, int] = {}
        self.last = WorkerReport()
        """What it has used and when it counted, as last said while it worked."""
        self.done = False
        self.failed = ""
        self._heard = heard
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._told_all = asyncio.Event()

    async def start(self) -> None:
        """Start the process and hand it the job."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tianzhou.bench.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
            # Ctrl-C is for the parent, which asks the workers for what they have counted.
            start_new_session=True,
        )  # fmt: skip
        self._listening = asyncio.create_task(self._listen(self._process))
        self._say(encode(self.job))

    async def ready(self) -> None:
        """Return when it is connected.

        Raises:
            TianzhouError: it is not, and never will be.
        """
        try:
            async with asyncio.timeout(READY_LIMIT_S):
                await self._ready.wait()
        except TimeoutError:
            raise TianzhouError(f"a load process has not connected within {READY_LIMIT_S:g} s") from None
        self.check()

    async def told_all(self) -> None:
        """Return when it has no more to say."""
        await self._told_all.wait()

    def check(self) -> None:
        """See that it still works.

        Raises:
            TianzhouError: it could not go on.
        """
        if self.failed:
            raise TianzhouError(self.failed)

    def begin(self, epoch_s: float) -> None:
        """Have it start at a time of the monotonic clock."""
        self._say(encode(Start(epoch_s)))

    def stop(self) -> None:
        """Ask it to end; what it has counted is still said."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def ended(self) -> None:
        """Return when the process is gone, which is killed when it takes too long."""
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

    def _say(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(line + b"\n")

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            told = decode_report(line)
            if told.queues:
                self.queues = told.queues
            if told.wall_s:
                last_s = told.last_s
                if told.done and self.last.wall_s:
                    # Waiting for the last answers and saying good-bye is no work.
                    told.cpu_s, told.waited_s, told.wall_s = self.last.cpu_s, self.last.waited_s, self.last.wall_s
                self.last = WorkerReport(last_s=last_s, cpu_s=told.cpu_s, waited_s=told.waited_s, wall_s=told.wall_s)
            self.done = self.done or told.done
            self.failed = self.failed or told.failed
            if told.ready or told.done:
                self._ready.set()
            self._heard(self, told)
            if told.done:
                self._told_all.set()
        if not self.done:
            self.done = True
            self.failed = self.failed or "a load process has died; its own words are above"
            self._ready.set()
            self._heard(self, WorkerReport(done=True))
        self._told_all.set()


class WorkerPool:
    """All workers of a run; an async context manager that leaves no process behind.

    Args:
        heard: called with everything they say.
    """

    def __init__(self, heard: Callable[[Worker, WorkerReport], None]) -> None:
        self._heard = heard
        self.workers: list[Worker] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    def of(self, role: Role) -> list[Worker]:
        """The workers of a role."""
        return [worker for worker in self.workers if worker.job.role is role]

    async def hire(self, jobs: Iterable[Job]) -> list[Worker]:
        """Start workers and wait until they are connected.

        Raises:
            TianzhouError: one cannot.
        """
        hired = [Worker(job, self._heard) for job in jobs]
        self.workers += hired
        for worker in hired:
            await worker.start()
        for worker in hired:
            await worker.ready()
        return hired

    def check(self) -> None:
        """See that all still work.

        Raises:
            TianzhouError: one could not go on.
        """
        for worker in self.workers:
            worker.check()

    async def end(self) -> None:
        """Ask all to end, and wait for them."""
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            await worker.ended()
