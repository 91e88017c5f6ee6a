"""A whole run: topics and groups, the load processes, and their results."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tianzhou.admin import Admin
from tianzhou.bench.jobs import receiving_jobs, sending_jobs, topics_by_group
from tianzhou.bench.local_server import LocalServer
from tianzhou.bench.payloads import MARK_LENGTH, Keys
from tianzhou.bench.run_groups import RunGroups
from tianzhou.bench.sending import make_bodies
from tianzhou.bench.series import RunSeries
from tianzhou.bench.spec import BenchKind, BenchRole, LoadSpec
from tianzhou.bench.worker_pool import Worker, WorkerPool
from tianzhou.bench.worker_protocol import WorkerReport
from tianzhou.client import PullConsumer
from tianzhou.errors import ConfigError, TianzhouError
from tianzhou.supervision import start_owned

SHARED_LIMIT_S = 30.0
LOOK_EVERY_S = 0.05
START_IN_S = 0.1
QUIET_S = 10.0
"""Seconds without a message after which the run no longer waits for consumers."""
FILL_ATTEMPTS = 5
FILL_BATCH = 32
FILL_IN_FLIGHT = 16
FILL_BATCH_BYTES = 1024 * 1024

Progress = Callable[["Run", int], None]
"""Called with the run and the number of each second that has passed."""


class Run:
    """A measurement.

    Args:
        spec: the checked description of the run.
        tls: see `ClientInstance`.
        progress: called with this run and the number of each second that has passed.
        announce: called with notes for the user before the run begins.

    Attributes:
        notes: notes for the user about the figures.
        series: the seconds of each role that is measured.
        interrupted: whether the run was cancelled under load.
        server: the embedded server, if there is one.
    """

    def __init__(self, spec: LoadSpec, tls: bool | None, progress: Progress, announce: Callable[[str], None]) -> None:
        self.spec = spec
        self.notes: list[str] = []
        self.series = {
            role: RunSeries(spec.warm_up_s)
            for role, wanted in ((BenchRole.send, spec.sends), (BenchRole.receive, spec.receives))
            if wanted
        }
        self.interrupted = False
        self.server: LocalServer | None = None
        self._namesrv = ""
        self._tls = tls
        self._progress = progress
        self._announce = announce
        self._mark = os.urandom(MARK_LENGTH // 2).hex()
        self._topics = topics_by_group(spec, self._mark) if spec.receives else {}
        self._groups = RunGroups(self._topics)
        self._pool = WorkerPool(self._count)
        self._wanted = 0
        self._server_cpu_s: float | None = None
        self._started = False

    @property
    def measured(self) -> bool:
        """Whether there are figures to report."""
        return self._started and any(series.seen or series.errors for series in self.series.values())

    async def measure(self, namesrv: str, server: LocalServer | None = None) -> None:
        """Execute the run. If it is cancelled, the figures so far remain available.

        Args:
            namesrv: the name servers.
            server: the embedded server, whose processor time is measured.

        Raises:
            TianzhouError: the run cannot be executed.
        """
        self._namesrv, self.server = namesrv, server
        if self.spec.sends or self.spec.fill:
            make_bodies(self.spec.payload)
        async with Admin(self._namesrv, tls=self._tls) as admin:
            await self._prepare_topics(admin)
            try:
                await self._prepare_consumers(admin)
                async with self._pool:
                    try:
                        await self._load(admin)
                    except asyncio.CancelledError:
                        self.interrupted = True
                        raise
                    finally:
                        self._server_cpu_s = self._used_by_server()
            finally:
                await self._forget_groups(admin)
        if self.measured and not any(series.seen for series in self.series.values()):
            reasons = next(iter(series.errors for series in self.series.values() if series.errors))
            raise TianzhouError(f"no message was sent: {next(iter(reasons))}")

    # --- before ----------------------------------------------------------------------------------------------

    async def _prepare_topics(self, admin: Admin) -> None:
        for topic in self.spec.topics:
            if not await admin.topics.exists(topic):
                if self.spec.kind is BenchKind.consume and not self.spec.fill:
                    raise ConfigError(
                        f"topic {topic} does not exist, so there is nothing to consume; store some messages first with "
                        "tianzhou bench produce, or give --fill COUNT"
                    )
                queues = self.spec.queues
                await admin.topics.create(topic, read_queue_nums=queues, write_queue_nums=queues)
                self._announce(f"topic {topic} made, {queues} queues")

    async def _prepare_consumers(self, admin: Admin) -> None:
        spec = self.spec
        if not spec.receives:
            return
        if spec.fill:
            await self._fill()
        stored = {topic: await admin.topics.stats(topic) for topic in spec.topics}
        if spec.kind is BenchKind.consume:
            queues = [at for stats in stored.values() for at in stats.offset_table.values()]
            there = sum(at.max_offset - at.min_offset for at in queues)
            if not there:
                raise ConfigError(
                    f"topic {', '.join(spec.topics)} holds no message; store some first with tianzhou bench produce, "
                    "or give --fill COUNT"
                )
            self._wanted = there * spec.groups
            if spec.count is not None:
                self._wanted = min(self._wanted, spec.count)
        await self._groups.make(admin)
        if spec.timed:
            # New groups would begin at the first stored message, and the latencies would be those of a backlog.
            for group, topic in self._topics.items():
                async with PullConsumer(group, instance=admin.instance) as consumer:
                    ends = {queue: at.max_offset for queue, at in stored[topic].offset_table.items()}
                    await consumer.commit_offsets(ends)

    async def _fill(self) -> None:
        self._announce(f"storing {self.spec.fill} messages first")
        left, failed = self.spec.fill, Counter[str]()
        for _ in range(FILL_ATTEMPTS):
            failed = await self._store(left)
            left = failed.total()
            if not left:
                return
        raise TianzhouError(f"{left} of the messages to consume could not be stored: {next(iter(failed))}")

    async def _store(self, count: int) -> Counter[str]:
        """Send messages that are not measured. Return the number of failures by reason."""
        spec = self.spec
        most = max(1, min(FILL_BATCH, FILL_BATCH_BYTES // max(spec.payload.size, 1)))
        filling = replace(
            spec,
            kind=BenchKind.produce, rate=0, seconds=None, count=count, in_flight=FILL_IN_FLIGHT,
            batch=next(size for size in range(most, 0, -1) if count % size == 0),
            keys=Keys.none, warm_up_s=0, connections=max(spec.connections or 1, spec.processes),
        )  # fmt: skip
        failed = Counter[str]()

        def count_failures(worker: Worker, report: WorkerReport) -> None:
            for part in report.slices:
                failed.update(part.errors)

        async with WorkerPool(count_failures) as pool:
            await pool.start(sending_jobs(filling, self._namesrv, self._tls, ""))
            for worker in pool.workers:
                worker.begin(time.monotonic())
            for worker in pool.workers:
                await worker.finished()
            pool.check()
        return failed

    # --- under load ------------------------------------------------------------------------------------------

    async def _load(self, admin: Admin) -> None:
        spec, pool = self.spec, self._pool
        run = spec, self._namesrv, self._tls, self._mark
        jobs = (receiving_jobs(*run) if spec.receives else []) + (sending_jobs(*run) if spec.sends else [])
        await pool.start(jobs)
        receivers, senders = pool.of(BenchRole.receive), pool.of(BenchRole.send)
        if receivers:
            await self._until_shared(admin, receivers)
        epoch_s = time.monotonic() + START_IN_S
        self._server_cpu_s = self.server.cpu_s() if self.server is not None else None
        self._started = True
        for worker in [*senders, *([] if spec.backlog_bytes else receivers)]:
            worker.begin(epoch_s)
        progress = start_owned(self._show_progress(epoch_s), "bench")
        try:
            if spec.backlog_bytes:
                await self._backlog(epoch_s, senders, receivers)
            await self._until_sent(senders)
            if receivers:
                await self._until_consumed(epoch_s)
        finally:
            progress.cancel()
            with suppress(asyncio.CancelledError):
                await progress

    async def _until_shared(self, admin: Admin, receivers: list[Worker]) -> None:
        """Wait until each group has all queues of its topic, so that the run does not measure a rebalance."""
        queues = {topic: len((await admin.topics.stats(topic)).offset_table) for topic in self.spec.topics}
        wanted = {group: queues[topic] for group, topic in self._topics.items()}
        limit_s = time.monotonic() + SHARED_LIMIT_S
        while True:
            shared = {group: sum(worker.queues.get(group, 0) for worker in receivers) for group in wanted}
            if shared == wanted:
                return
            self._pool.check()
            if time.monotonic() > limit_s:
                self.notes.append(
                    f"consumers had {sum(shared.values())} of {sum(wanted.values())} queues when the load began: the "
                    f"group had not shared them within {SHARED_LIMIT_S:g} s"
                )
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _backlog(self, epoch_s: float, senders: list[Worker], receivers: list[Worker]) -> None:
        """Let a backlog grow, then run consumers and producers until it is consumed and the time is up."""
        spec = self.spec
        sent, received = self.series[BenchRole.send], self.series[BenchRole.receive]
        messages = spec.backlog_bytes / max(spec.payload.size, 1)
        while sent.seen * spec.groups < messages:
            await self._sending(senders)
        self._announce(f"a backlog of {sent.seen * spec.groups} messages; consumers start")
        for worker in receivers:
            worker.begin(epoch_s)
        left = max((1 - spec.drain_ratio) * messages, 1_000)
        while sent.seen * spec.groups - received.seen > left:
            await self._sending(senders)
        self._announce("the backlog is consumed")
        until_s = max(time.monotonic(), epoch_s + spec.warm_up_s) + (spec.seconds or 0)
        while time.monotonic() < until_s:
            await self._sending(senders)
        for worker in senders:
            worker.stop()

    async def _sending(self, senders: list[Worker]) -> None:
        """Check that producers still send, and wait until the next check."""
        self._pool.check()
        if all(worker.done for worker in senders):
            raise TianzhouError("all producers have ended before the backlog was consumed")
        await asyncio.sleep(LOOK_EVERY_S)

    async def _until_sent(self, senders: list[Worker]) -> None:
        while not all(worker.done for worker in senders):
            self._pool.check()
            await asyncio.sleep(LOOK_EVERY_S)
        self._pool.check()

    async def _until_consumed(self, epoch_s: float) -> None:
        spec, received = self.spec, self.series[BenchRole.receive]
        sent = self.series.get(BenchRole.send)
        wanted = self._wanted if sent is None else sent.seen * spec.groups
        until_s = None
        if spec.kind is BenchKind.consume and spec.seconds is not None:
            until_s = epoch_s + spec.warm_up_s + spec.seconds
        seen, since_s = -1, time.monotonic()
        while received.seen < wanted:
            now_s = time.monotonic()
            self._pool.check()
            if until_s is not None and now_s >= until_s:
                return
            if received.seen != seen:
                seen, since_s = received.seen, now_s
            elif now_s - since_s > QUIET_S:
                self.notes.append(
                    f"{wanted - received.seen} of {wanted} messages were not consumed: none came for {QUIET_S:g} s"
                )
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _show_progress(self, epoch_s: float) -> None:
        for number in itertools.count():
            # Wait a little longer than the second, until all processes have reported their counts of it.
            await asyncio.sleep(max(epoch_s + number + 1.3 - time.monotonic(), 0))
            self._progress(self, number)

    def _count(self, worker: Worker, report: WorkerReport) -> None:
        if report.slices:
            self.series[worker.job.role].add(report.slices)

    # --- after -----------------------------------------------------------------------------------------------

    async def _forget_groups(self, admin: Admin) -> None:
        if not self._groups.names:
            return
        self._note_left(await self._groups.forget(admin))
        if self.interrupted and self._groups.left_s:
            self.notes.append(
                f"the groups of this run, bench-{self._mark}-…, may come back, empty: a broker of Apache's creates "
                "them again when a pull that waited for messages runs out of time"
            )

    def _note_left(self, reason: str) -> None:
        if reason:
            self.notes.append(f"the groups of this run, bench-{self._mark}-…, could not all be deleted: {reason}")

    async def forget_groups_again(self) -> None:
        """Delete the groups once more if brokers may have created them again. Otherwise return immediately."""
        if (left_s := self._groups.left_s) > 0:
            self._announce(
                f"a broker of Apache's creates deleted groups again for pulls it still holds: they are deleted again "
                f"in {left_s:.0f} s; Ctrl-C leaves them, empty"
            )
            self._note_left(await self._groups.forget_again(self._namesrv, self._tls))

    def _used_by_server(self) -> float | None:
        """Return the embedded server's processor time under load in seconds; None if the system does not provide it."""
        before, now = self._server_cpu_s, self.server.cpu_s() if self.server is not None else None
        return None if before is None or now is None else now - before

    def processes(self) -> list[dict[str, Any]]:
        """Return the processor use of each load process, as a part of one processor."""
        return [
            {
                "role": worker.job.role.value,
                "cpu": round(worker.last.cpu_s / worker.last.wall_s, 3) if worker.last.wall_s else 0.0,
                "waited": round(worker.last.waited_s / worker.last.wall_s, 3) if worker.last.wall_s else 0.0,
            }
            for worker in self._pool.workers
        ]

    def figures(self) -> dict[str, dict[str, Any]]:
        """Return the figures of each role."""
        result = {}
        for role, series in self.series.items():
            workers = self._pool.of(role)
            figures = series.figures(max((worker.last.last_s for worker in workers), default=0.0))
            cpu_s = sum(worker.last.cpu_s for worker in workers)
            figures["client_cpu_us_per_message"] = round(cpu_s / series.seen * 1e6, 2) if series.seen else None
            result[role.value] = figures
        return result

    def server_cpu_us(self) -> float | None:
        """Return the embedded server's processor time per message sent or consumed, in microseconds."""
        seen = sum(series.seen for series in self.series.values())
        return round(self._server_cpu_s / seen * 1e6, 2) if self._server_cpu_s is not None and seen else None
