"""kill -9 of a broker under load, again and again, with a ledger outside it (users.md fault 1).

No acknowledged message is lost, no unsent one appears, every queue is in order and has no gap. With ASYNC_FLUSH the
page cache outlives the process, so the same holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path

import pytest
from killed_broker import KilledBroker
from processes import Tianzhou

from tianzhou import Message, MessageQueue, Producer, PullConsumer, SendStatus
from tianzhou.errors import TianzhouError
from tianzhou.testing.ledger import Ledger

TOPICS = ("Ledger", "Books")
QUEUES = 3
CONNECTIONS = 2
WRITERS = 6


class Attack(KilledBroker):
    """One broker that is killed, and its producers."""

    def __init__(self, folder: Path, flush: str, seed: int) -> None:
        small = {
            "mappedFileSizeCommitLog": 262_144, "mappedFileSizeConsumeQueue": 4_000, "maxHashSlotNum": 500,
            "maxIndexNum": 3_000, "flushIntervalConsumeQueue": 50, "flushConsumeQueueThoroughInterval": 200,
        }  # fmt: skip
        super().__init__(folder, seed, flushDiskType=flush, **small)
        self.ledger = Ledger()

    async def run(self, kills: int) -> None:
        async with self.killed(kills, QUEUES, *TOPICS):
            with self.start() as broker:
                await self.read()
                before = self.ledger.found
                self.ledger.found = {}
                await self.read()
                assert before == self.ledger.found, "a queue changed what it had served"
                assert broker.interrupt(signal.SIGTERM)[0] == 0
                broker.assert_no_traceback()

    async def under_load(self, broker: Tianzhou) -> None:
        async with contextlib.AsyncExitStack() as stack:
            producers = [
                await stack.enter_async_context(
                    Producer(f"P{n}", self.namesrv, retry_times_when_send_failed=0, send_msg_timeout_ms=2_000)
                )
                for n in range(CONNECTIONS)
            ]
            reading = asyncio.create_task(self.read())
            writers = [self.write(producers[n % CONNECTIONS], n) for n in range(WRITERS)]
            written = lambda: self.ledger.counts["acknowledged"]  # noqa: E731
            await self.kill(broker, self.rng.randint(30, 1_500), written, writers)
            with contextlib.suppress(TianzhouError):
                await reading

    async def write(self, producer: Producer, number: int) -> None:
        """Send one message after the other until the broker is dead."""
        rng = random.Random(self.rng.random())
        name = f"{self.round}.{number}"
        count = 0
        while True:
            place = (rng.choice(TOPICS), rng.randrange(QUEUES))
            queue = MessageQueue(place[0], "broker-a", place[1])
            bodies = []
            for _ in range(rng.randint(2, 6) if rng.random() < 0.2 else 1):
                bodies.append(self.ledger.send(place, name, count))
                count += 1
            messages = [Message(place[0], body, keys=[f"k{count}"]) for body in bodies]
            try:
                if len(messages) == 1:
                    result = await producer.send(messages[0], queue=queue)
                else:
                    result = await producer.send_batch(messages, queue=queue)
            except TianzhouError:
                return
            if result.status is SendStatus.SEND_OK:
                self.ledger.acknowledge(place, result.queue_offset, bodies)

    async def read(self) -> None:
        """Read every queue from where the last reader stopped to its end."""
        async with PullConsumer("auditor", self.namesrv) as consumer:
            for topic in TOPICS:
                for queue_id in range(QUEUES):
                    place = (topic, queue_id)
                    queue = MessageQueue(topic, "broker-a", queue_id)
                    end = await consumer.max_offset(queue)
                    while (offset := self.ledger.next_offset(place)) < end:
                        result = await consumer.pull(queue, offset)
                        assert result.messages, (place, offset, result)
                        for message in result.messages:
                            self.ledger.take(place, message.queue_offset, message.body)


def attack(folder: Path, flush: str, kills: int, seed: int) -> Attack:
    attacker = Attack(folder, flush, seed)
    asyncio.run(attacker.run(kills))
    problems = attacker.ledger.problems()
    print(f"{kills} kills, {flush}: {attacker.ledger.counts}, longest start {max(attacker.restart_seconds):.2f} s")
    assert problems == []
    assert attacker.ledger.counts["acknowledged"] > kills * 20
    return attacker


@pytest.mark.parametrize(("flush", "kills"), [("SYNC_FLUSH", 5), ("ASYNC_FLUSH", 3)])
def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path, flush: str, kills: int) -> None:
    attacker = attack(tmp_path, flush, kills, int(os.environ.get("TIANZHOU_SEED", "1")))
    said = "".join(file.read_text() for file in sorted(tmp_path.glob("*.err")))
    assert "not stopped cleanly" in said
    assert attacker.ledger.counts["found"] >= attacker.ledger.counts["acknowledged"]


@pytest.mark.slow
@pytest.mark.parametrize(("flush", "kills"), [("SYNC_FLUSH", 150), ("ASYNC_FLUSH", 60)])
def test_nothing_acknowledged_is_lost_by_many_kills(tmp_path: Path, flush: str, kills: int) -> None:
    attack(tmp_path, flush, kills, random.SystemRandom().randrange(1 << 30))
