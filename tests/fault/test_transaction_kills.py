"""kill -9 of a broker in the middle of transactions, with a ledger outside it.

A committed message arrives exactly once, a rolled back one never, and every acknowledged transaction ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest
from killed_broker import KilledBroker
from processes import Tianzhou

from tianzhou import Message, MessageQueue, PullConsumer, SendStatus
from tianzhou.client import TransactionProducer
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageExt, TransactionState
from waiting import WITHIN_S

TOPIC = "Ledger"
QUEUES = 2
WRITERS = 4
CHECK_EVERY_MS = 250
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


def decision(body: bytes) -> TransactionState:
    """Return the decision about a message; all producers have the same."""
    return COMMIT if int(body.rpartition(b".")[2]) % 3 else ROLLBACK


class Attack(KilledBroker):
    """One broker that is killed, and its transaction producers."""

    def __init__(self, folder: Path, flush: str, seed: int) -> None:
        checks = {"transactionTimeOut": 200, "transactionCheckInterval": CHECK_EVERY_MS, "transactionCheckMax": 1_000}
        super().__init__(folder, seed, flushDiskType=flush, flushConsumerOffsetInterval=300, **checks)
        self.sent: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.checked = 0

    async def run(self, kills: int) -> list[bytes]:
        async with self.killed(kills, QUEUES, TOPIC):
            with self.start() as broker:
                found = await self.finish()
                assert broker.interrupt(signal.SIGTERM)[0] == 0
                broker.assert_no_traceback()
        return found

    def producer(self) -> TransactionProducer:
        return TransactionProducer(
            "P", self.namesrv, check=self.check, retry_times_when_send_failed=0, send_msg_timeout_ms=2_000
        )

    async def check(self, message: MessageExt) -> TransactionState:
        self.checked += 1
        return UNKNOWN if self.rng.random() < 0.2 else decision(bytes(message.body))

    async def under_load(self, broker: Tianzhou) -> None:
        async with self.producer() as producer:
            writers = (self.write(producer, f"{self.round}.{n}") for n in range(WRITERS))
            await self.kill(broker, self.rng.randint(60, 1_500), lambda: len(self.acknowledged), writers)

    async def write(self, producer: TransactionProducer, name: str) -> None:
        async def execute(message: Message, _: object) -> TransactionState:
            return UNKNOWN if self.rng.random() < 0.3 else decision(message.body)

        with contextlib.suppress(TianzhouError):
            for n in range(1_000_000):
                body = f"{name}.{n}".encode()
                self.sent.add(body)
                result = await producer.send_in_transaction(Message(TOPIC, body, keys=[f"k{n}"]), execute)
                if result.result.status is SendStatus.SEND_OK:
                    self.acknowledged.add(body)

    async def finish(self) -> list[bytes]:
        """Answer checks until no transaction is pending, and read all messages."""
        wanted = {body for body in self.acknowledged if decision(body) is COMMIT}
        async with self.producer() as producer:
            async with asyncio.timeout(2 * WITHIN_S):
                await producer.send_in_transaction(Message(TOPIC, b"last.0"), lambda *_: ROLLBACK)
                while not wanted <= set(await self.read()):
                    await asyncio.sleep(0.3)
            # Wait for more rounds of checks, in which duplicates or rolled-back messages would arrive.
            await asyncio.sleep(5 * CHECK_EVERY_MS / 1000)
            return await self.read()

    async def read(self) -> list[bytes]:
        found: list[bytes] = []
        async with PullConsumer("auditor", self.namesrv) as consumer:
            for queue_id in range(QUEUES):
                queue = MessageQueue(TOPIC, "broker-a", queue_id)
                offset, end = 0, await consumer.max_offset(queue)
                while offset < end:
                    result = await consumer.pull(queue, offset)
                    found += [bytes(message.body) for message in result.messages]
                    offset = result.next_offset
        return found


def attack(folder: Path, flush: str, kills: int, seed: int) -> None:
    attacker = Attack(folder, flush, seed)
    found = asyncio.run(attacker.run(kills))
    committed = sum(decision(body) is COMMIT for body in attacker.acknowledged)
    print(f"{kills} kills, {flush}: {len(attacker.acknowledged)} acknowledged, {committed} of them to be committed, "
          f"{len(found)} found, {attacker.checked} checks")  # fmt: skip
    twice = [body for body, count in Counter(found).items() if count > 1]
    assert twice == []
    assert all(decision(body) is COMMIT for body in found), "rolled back and there"
    assert {body for body in attacker.acknowledged if decision(body) is COMMIT} <= set(found)
    assert set(found) <= attacker.sent
    assert len(attacker.acknowledged) > kills * 10


@pytest.mark.parametrize(("flush", "kills"), [("ASYNC_FLUSH", 3), ("SYNC_FLUSH", 2)])
def test_each_transaction_ends_once_whatever_kill_9_does(tmp_path: Path, flush: str, kills: int) -> None:
    attack(tmp_path, flush, kills, int(os.environ.get("TIANZHOU_SEED", "1")))


@pytest.mark.slow
@pytest.mark.parametrize(("flush", "kills"), [("ASYNC_FLUSH", 40), ("SYNC_FLUSH", 30)])
def test_each_transaction_ends_once_after_many_kills(tmp_path: Path, flush: str, kills: int) -> None:
    attack(tmp_path, flush, kills, random.SystemRandom().randrange(1 << 30))
