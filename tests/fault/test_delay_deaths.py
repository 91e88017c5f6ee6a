"""Brokers that die with pending delayed messages: each arrives at least once, and none arrives early.

In this process the broker dies before each put, by kill -9 and by a power failure; as a process it is killed under
load, again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path
from typing import Any

import pytest
from dying_broker import copy_as_slave, copy_store, in_bench
from killed_broker import KilledBroker
from processes import Tianzhou

from tianzhou import Message, MessageQueue, Producer, PullConsumer, SendStatus
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageExt
from tianzhou.testing.disk import ForgetfulDisk
from tianzhou.wire.properties import decode_properties
from waiting import WITHIN_S

LEVELS = "1s 2s 3s 5s"
DELAYS_MS = (1_000, 2_000, 3_000, 5_000)
SHORT_LEVELS = "1s 2s"
SHORT_DELAYS_MS = (1_000, 2_000)
"""Delays for a broker in its own process, which cannot use virtual time."""
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TOPIC = "Later"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def store_options(flush: str) -> dict[str, Any]:
    return {"message_delay_level": LEVELS, "flush_disk_type": flush}


def images(
    tmp_path: Path, disk: ForgetfulDisk | None, flush: str, *, of_slave: bool = False
) -> list[tuple[Path, dict[str, Any], int, set[str]]]:
    """Return the state after a death before each put: folder, delayOffset.json, the time, and the
    acknowledged messages.
    """
    found: list[tuple[Path, dict[str, Any], int, set[str]]] = []

    async def body(bench: Any) -> None:
        acknowledged: set[str] = set()
        real = bench.store.append

        def append(record: Any, **how: Any) -> Any:
            target = tmp_path / f"image-{len(found)}"
            if of_slave:
                copy_as_slave(bench.store, target)
            elif disk is None:
                copy_store(tmp_path / "store", target)
            else:
                disk.image(target)
            found.append((target, bench.tables.delays.to_file(), bench.clock.now_ms(), set(acknowledged)))
            return real(record, **how)

        bench.store.append = append
        delivering = bench.deliver_delayed()
        peer = bench.peer()
        for n in range(12):
            level = str(1 + n % 4)
            reply = await peer.send(TOPIC, level.encode(), properties={"UNIQ_KEY": f"U{n}", "DELAY": level})
            assert reply.code == 0
            acknowledged.add(f"U{n}")
            await asyncio.sleep(0.3)
        await asyncio.sleep(6)
        delivering.cancel()

    in_bench(tmp_path / "store", None, body, **store_options(flush))
    assert len(found) == 24
    return found


async def live_on(bench: Any, offsets: dict[str, Any], acknowledged: set[str]) -> None:
    bench.tables.delays.load(offsets)
    delivering = bench.deliver_delayed()
    await asyncio.sleep(20)
    delivering.cancel()
    stored = {
        decode_properties(record.properties)["UNIQ_KEY"]: record.store_timestamp
        for level in range(4)
        for record in bench.records(SCHEDULE, level)
    }
    seen = set()
    for record in bench.records(TOPIC):
        properties = decode_properties(record.properties)
        seen.add(properties["UNIQ_KEY"])
        due = stored[properties["UNIQ_KEY"]] + DELAYS_MS[int(properties["DELAY"]) - 1]
        assert record.store_timestamp >= due, "early"
    assert acknowledged <= seen, "lost"


@pytest.mark.parametrize("way", ["killed", "power lost"])
def test_dead_before_every_put(tmp_path: Path, way: str) -> None:
    if way == "killed":
        flush, found = "ASYNC_FLUSH", images(tmp_path, None, "ASYNC_FLUSH")
    else:
        flush = "SYNC_FLUSH"
        (tmp_path / "store").mkdir()
        disk = ForgetfulDisk(tmp_path / "store", random.Random(1))
        with disk.watching():
            found = images(tmp_path, disk, flush)
    for folder, offsets, now_ms, acknowledged in found:

        async def body(bench: Any, offsets: dict[str, Any] = offsets, known: set[str] = acknowledged) -> None:
            await live_on(bench, offsets, known)

        in_bench(folder, now_ms, body, **store_options(flush))


def test_a_slave_becomes_the_master_before_every_put(tmp_path: Path) -> None:
    """Its table of delivery positions is some puts old, so later deliveries repeat, and no message is lost."""
    found = images(tmp_path, None, "ASYNC_FLUSH", of_slave=True)
    for number, (folder, _, now_ms, acknowledged) in enumerate(found):
        offsets = found[max(number - 4, 0)][1]

        async def body(bench: Any, offsets: dict[str, Any] = offsets, known: set[str] = acknowledged) -> None:
            await live_on(bench, offsets, known)

        in_bench(folder, now_ms, body, **store_options("ASYNC_FLUSH"))


class Attack(KilledBroker):
    """One broker with delayed messages that is killed while it stores and delivers them."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed, messageDelayLevel=SHORT_LEVELS, flushDelayOffsetInterval=300)
        self.sent: dict[str, int] = {}
        self.acknowledged: set[str] = set()
        self.delivered = 0

    async def run(self, kills: int) -> list[MessageExt]:
        async with self.killed(kills, 1, TOPIC):
            with self.start():
                async with asyncio.timeout(WITHIN_S):
                    while not self.acknowledged <= {message.body.decode() for message in await self.read()}:
                        await asyncio.sleep(0.1)
                return await self.read()

    async def under_load(self, broker: Tianzhou) -> None:
        async with Producer("P", self.namesrv, retry_times_when_send_failed=0, send_msg_timeout_ms=2_000) as producer:
            writers = [self.write(producer, f"{self.round}.{n}") for n in range(4)]
            await self.kill(broker, self.rng.randint(20, 400), lambda: self.delivered, [*writers, self.watch()])

    async def write(self, producer: Producer, name: str) -> None:
        with contextlib.suppress(TianzhouError):
            for n in range(1_000_000):
                level = self.rng.randint(1, len(SHORT_DELAYS_MS))
                body = f"{name}.{n}"
                self.sent[body] = level
                result = await producer.send(Message(TOPIC, body.encode(), delay_level=level))
                if result.status is SendStatus.SEND_OK:
                    self.acknowledged.add(body)
                await asyncio.sleep(0.002)

    async def watch(self) -> None:
        """Count deliveries until the broker is down. The test kills the broker while it delivers."""
        with contextlib.suppress(TianzhouError):
            async with PullConsumer("watcher", self.namesrv) as consumer:
                while True:
                    self.delivered = max(self.delivered, await consumer.max_offset(QUEUE))
                    await asyncio.sleep(0.01)

    async def read(self) -> list[MessageExt]:
        found: list[MessageExt] = []
        async with PullConsumer("auditor", self.namesrv) as consumer:
            end = await consumer.max_offset(QUEUE)
            while len(found) < end:
                found += (await consumer.pull(QUEUE, len(found))).messages
        return found


def attack(folder: Path, kills: int, seed: int) -> None:
    attacker = Attack(folder, seed)
    found = asyncio.run(attacker.run(kills))
    seen = [message.body.decode() for message in found]
    early = [
        m for m in found if m.store_timestamp - m.born_timestamp < SHORT_DELAYS_MS[attacker.sent[m.body.decode()] - 1]
    ]
    print(
        f"{kills} kills: {len(attacker.acknowledged)} acknowledged, {len(seen)} delivered, {len(set(seen))} different"
    )
    assert early == []
    assert attacker.acknowledged <= set(seen)
    assert set(seen) <= attacker.sent.keys()
    assert len(attacker.acknowledged) > kills * 20


def test_pending_messages_outlive_kill_9(tmp_path: Path) -> None:
    attack(tmp_path, 4, int(os.environ.get("TIANZHOU_SEED", "1")))


@pytest.mark.slow
def test_pending_messages_outlive_many_kills(tmp_path: Path) -> None:
    attack(tmp_path, 40, random.SystemRandom().randrange(1 << 30))
