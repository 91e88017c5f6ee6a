"""Batches over several brokers: one of them decides, all publish, and any driver or broker may die in between."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest

from broker_probe import BrokerProbe
from client_probe import ClientProbe
from tianzhou.client.staging import CannotStage, Staging, StagingTask
from tianzhou.errors import BrokerError, ConnectFailed, TianzhouError
from tianzhou.model import Message
from tianzhou.store.log.flush import LogFlusher
from tianzhou.testing import AsyncCluster, run_virtual
from tianzhou.wire.bodies.staging import AttemptList, BatchDecision, StagedAttempt

pytestmark = pytest.mark.runner.with_args(run_virtual)

TOPIC = "rows"
WRITER = "query"
_names = itertools.count()


@pytest.fixture(autouse=True)
def flush_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flush in the loop: a thread needs real time, and in virtual time requests would time out before the
    disk replies.
    """

    async def flush(flusher: LogFlusher) -> None:
        flusher.flush_now()

    monkeypatch.setattr(LogFlusher, "flush", flush)


@asynccontextmanager
async def in_cluster(brokers: int = 2, **settings: object) -> AsyncIterator[AsyncCluster]:
    async with AsyncCluster(brokers=brokers, virtual=True, settings=settings) as cluster:
        await cluster.create_topic(TOPIC, queues=2)
        yield cluster


class Driver:
    """The actions of Spark's driver and tasks, with a death wherever a test wants one."""

    def __init__(self, cluster: AsyncCluster, writer: str = WRITER) -> None:
        self.staging = Staging(timeout_ms=10_000, **cluster.client_options())
        self.writer = writer
        self.coordinator = ""

    async def __aenter__(self) -> Self:
        await self.staging.start()
        self.coordinator = await self.staging.coordinator(self.writer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.staging.stop()

    async def stage(self, batch: int, rows: list[str]) -> StagedAttempt:
        name = f"attempt-{next(_names)}"
        task = StagingTask(self.staging, self.writer, batch, self.coordinator, name)
        try:
            await task.add([(Message(TOPIC, row.encode()), None) for row in rows])
            return await task.finish()
        finally:
            await task.close()

    def wanted(self, batch: int, *attempts: StagedAttempt) -> BatchDecision:
        return BatchDecision(self.writer, batch, self.coordinator, list(attempts))

    async def commit(self, batch: int, *attempts: StagedAttempt) -> BatchDecision:
        decision = await self.staging.decide(self.wanted(batch, *attempts))
        if decision.batch == batch:
            await self.staging.publish(decision)
        return decision

    async def write(self, batch: int, rows: list[str]) -> None:
        state = await self.staging.state(self.coordinator, self.writer)
        attempts = []
        if state.decided < batch:
            attempts = [await self.stage(batch, rows[0::2]), await self.stage(batch, rows[1::2])]
        await self.commit(batch, *attempts)


async def seen(cluster: AsyncCluster) -> Counter[str]:
    found: Counter[str] = Counter()
    for broker in cluster.brokers.values():
        found.update(bytes(message.body).decode() for message in await broker.messages(TOPIC))
    return found


def rows_of(batch: int, count: int = 8) -> list[str]:
    return [f"{batch}.{n}" for n in range(count)]


def other_than(cluster: AsyncCluster, name: str) -> Any:
    return next(broker for broker in cluster.brokers.values() if broker.name != name)


async def test_a_batch_over_two_brokers_is_seen_at_once_on_both() -> None:
    async with in_cluster() as cluster, Driver(cluster) as driver:
        attempt = await driver.stage(0, rows_of(0))
        assert set(attempt.units) == {"broker-a", "broker-b"}
        assert await seen(cluster) == Counter()
        await driver.commit(0, attempt)
        assert await seen(cluster) == Counter(rows_of(0))
        for broker in cluster.brokers.values():
            assert len(await broker.messages(TOPIC)) == 4


async def test_a_driver_that_dies_after_the_decision_leaves_it_to_the_next() -> None:
    async with in_cluster() as cluster:
        async with Driver(cluster) as driver:
            first = await driver.stage(0, rows_of(0))
            await driver.staging.decide(driver.wanted(0, first))
        async with Driver(cluster) as driver:
            second = await driver.stage(0, rows_of(0))
            assert (await driver.commit(0, second)).names() == [first.name]
            assert await seen(cluster) == Counter(rows_of(0))
            await driver.write(1, rows_of(1))
            assert await seen(cluster) == Counter(rows_of(0) + rows_of(1))


async def test_the_next_batch_waits_until_all_have_published_the_one_before() -> None:
    async with in_cluster() as cluster, Driver(cluster) as driver:
        await driver.staging.decide(driver.wanted(0, await driver.stage(0, rows_of(0))))
        # No request publishes it, and the job continues with the next number.
        await driver.write(1, rows_of(1))
        assert await seen(cluster) == Counter(rows_of(0) + rows_of(1))
        attempt = await driver.stage(2, rows_of(2))
        await driver.staging.decide(driver.wanted(2, attempt))
        another = await driver.stage(3, rows_of(3))
        other = other_than(cluster, driver.coordinator)
        await other.stop()
        with pytest.raises(BrokerError, match=r"batch 2 .* is decided, but broker broker-. has not published"):
            await driver.staging.decide(driver.wanted(3, another))
        await other.start()
        await driver.commit(3, another)
        assert await seen(cluster) == Counter(rows_of(0) + rows_of(1) + rows_of(2) + rows_of(3))


async def test_a_writer_whose_batches_are_everywhere_needs_no_retired_broker() -> None:
    async with in_cluster() as cluster:
        async with Driver(cluster) as driver:
            await driver.write(0, rows_of(0))
            coordinator, other = cluster.brokers[driver.coordinator], other_than(cluster, driver.coordinator)
        await coordinator.kill()
        await coordinator.start()
        await other.stop()
        async with Driver(cluster) as driver:
            await driver.write(1, rows_of(1))
        assert await seen_at(coordinator) >= Counter(rows_of(1))


async def test_what_is_decided_is_spread_before_it_is_forgotten() -> None:
    async with in_cluster(stagedWriterReservedDays=0) as cluster:
        async with Driver(cluster) as driver:
            decision = await driver.staging.decide(driver.wanted(0, await driver.stage(0, rows_of(0))))
            assert len(decision.brokers) == 2
            coordinator = cluster.brokers[driver.coordinator].running.tables.staging
        async with asyncio.timeout(7200):
            while coordinator.get(WRITER) is not None:
                await asyncio.sleep(1)
        assert await seen(cluster) == Counter(rows_of(0))


async def test_what_nobody_decides_is_checked() -> None:
    async with in_cluster(stagedMessageTimeOut=60_000) as cluster, Driver(cluster) as driver:
        decided = driver.wanted(0, await driver.stage(0, rows_of(0)))
        await driver.staging.decide(decided)
        async with Driver(cluster, "another") as lost:
            left = await lost.stage(0, ["never"])
            await asyncio.sleep(120)
            assert await seen(cluster) == Counter(rows_of(0)), "decided, so it is published without a driver"
            with pytest.raises(BrokerError, match=r"given up|has not, or no longer"):
                await lost.commit(0, left)
            await lost.write(0, ["again"])
        assert await seen(cluster) == Counter([*rows_of(0), "again"])


async def test_staged_messages_wait_while_their_coordinator_is_away() -> None:
    async with in_cluster(stagedMessageTimeOut=60_000) as cluster, Driver(cluster) as driver:
        coordinator = cluster.brokers[driver.coordinator]
        decided = driver.wanted(0, await driver.stage(0, rows_of(0)))
        await driver.staging.decide(decided)
        await coordinator.kill()
        await asyncio.sleep(200)
        assert sum((await seen_at(other_than(cluster, driver.coordinator))).values()) == 0
        with pytest.raises(ConnectFailed, match=r"is not registered|cannot connect"):
            await driver.commit(0)
        async with Driver(cluster) as again:
            assert again.coordinator == driver.coordinator, "who decides is known while it is away"
        await coordinator.start()
        await asyncio.sleep(200)
        assert await seen(cluster) == Counter(rows_of(0))


async def seen_at(broker: Any) -> Counter[str]:
    return Counter(bytes(message.body).decode() for message in await broker.messages(TOPIC))


async def test_a_batch_that_is_given_up_is_gone_everywhere() -> None:
    async with in_cluster() as cluster, Driver(cluster) as driver:
        bad = await driver.stage(0, rows_of(0))
        given = AttemptList(WRITER, 0, driver.coordinator, [bad.name])
        assert await driver.staging.give_up(given, sorted(bad.units)) is None
        for broker in cluster.brokers.values():
            writer = broker.running.tables.staging.get(WRITER)
            assert writer is None or not writer.attempts
        with pytest.raises(BrokerError, match="given up"):
            await driver.commit(0, bad)
        await driver.write(0, rows_of(0))
        assert await seen(cluster) == Counter(rows_of(0))


async def test_without_a_broker_that_stages_nothing_is_sent() -> None:
    async with in_cluster() as cluster:
        for broker in cluster.brokers.values():
            table = BrokerProbe.of(broker.running).handlers
            for code in [code for code in table if 31_000 < code < 32_000]:
                del table[code]
        with pytest.raises(CannotStage, match="cannot write exactly once: it does not know staged messages"):
            async with Driver(cluster):
                raise AssertionError("not refused")
        assert "rmq_sys_STAGED_TOPIC" not in broker.running.tables.topics


@pytest.mark.parametrize("seed", range(6))
async def test_every_row_once_whatever_dies(seed: int) -> None:
    await deaths(seed, batches=12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
async def test_every_row_once_whatever_dies_for_long(seed: int) -> None:
    await deaths(seed, batches=40)


async def deaths(seed: int, batches: int) -> None:
    """Drivers die between any two requests, brokers by kill -9 at any moment; at the end each row exists once."""
    rng = random.Random(seed)
    killed = Counter[str]()

    async def kill(cluster: AsyncCluster) -> None:
        while True:
            await asyncio.sleep(rng.uniform(0, 3))
            broker = rng.choice(list(cluster.brokers.values()))
            killed["broker"] += 1
            await broker.kill()
            await asyncio.sleep(rng.uniform(0, 2))
            await broker.start()

    async def drive(cluster: AsyncCluster, done: list[int]) -> None:
        async with Driver(cluster) as driver:
            ask = ClientProbe(driver.staging).ask

            async def slowly(*args: Any, **more: Any) -> Any:
                # Time for a death: before the request, and after its reply.
                await asyncio.sleep(rng.uniform(0, 0.2))
                try:
                    return await ask(*args, **more)
                finally:
                    await asyncio.sleep(rng.uniform(0, 0.2))

            ClientProbe(driver.staging).ask_by(slowly)
            while done[0] < batches:
                await driver.write(done[0], rows_of(done[0]))
                done[0] += 1

    async with in_cluster(brokers=3) as cluster:
        done = [0]
        killer = asyncio.ensure_future(kill(cluster))
        while done[0] < batches:
            try:
                async with asyncio.timeout(rng.uniform(0.05, 10)):
                    await drive(cluster, done)
            except TimeoutError:
                killed["driver"] += 1
            except TianzhouError:
                killed["query"] += 1
                await asyncio.sleep(0.5)
        killer.cancel()
        await asyncio.gather(killer, return_exceptions=True)
        await cluster.up()
        found = await seen(cluster)
        wanted = Counter(row for batch in range(batches) for row in rows_of(batch))
        assert found == wanted, found - wanted + (wanted - found)
    print(f"seed {seed}: {batches} batches, deaths {dict(killed)}")
