"""A store with undecided transactions moves between our broker and Apache's 5.3.3, stopped or killed.

The new broker checks the transactions that the old one left open. After a clean stop each transaction ends exactly
once. After kill -9 the new broker may check decisions of the last seconds again, so a committed message may arrive
twice; it is never lost, and a rolled back one never arrives.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from apache import ApacheBroker, ApacheNamesrv
from frames import create_topic
from own import OwnBroker
from servers import Ports
from toolchain import ToolchainMissingError

from tianzhou import Message, MessageQueue, PullConsumer
from tianzhou.client import TransactionProducer
from tianzhou.model import MessageExt, TransactionState
from waiting import until_async

pytestmark = pytest.mark.at_once

# Let marks be written soon: Apache checks decided messages again until they are marked.
CONF = {
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 3_000,
    "transactionOpBatchInterval": 300,
    "mappedFileSizeCommitLog": 1 << 20,
}
TOPIC, GROUP = "handed_over", "handed_over_p"
COUNT = 24
PATIENCE_S = 120.0
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


def index(message: MessageExt | Message) -> int:
    return int(message.body)


def at_once(message: Message, _: object) -> TransactionState:
    return (COMMIT, ROLLBACK, UNKNOWN, UNKNOWN)[index(message) % 4]


def when_asked(message: MessageExt) -> TransactionState:
    return (COMMIT, ROLLBACK)[index(message) % 2]


async def produce(namesrv: str) -> None:
    """Send messages, and answer UNKNOWN until the broker has checked every undecided one."""
    asked: set[int] = set()

    def check(message: MessageExt) -> TransactionState:
        asked.add(index(message))
        return UNKNOWN

    async with TransactionProducer(GROUP, namesrv, check=check) as producer:
        for i in range(COUNT):
            await producer.send_in_transaction(Message(TOPIC, str(i).encode()), at_once)
        undecided = {i for i in range(COUNT) if i % 4 >= 2}
        # Apache's broker also checks some decided messages that it has not marked yet.
        await until_async(lambda: asked >= undecided, "every undecided message was asked about", within_s=PATIENCE_S)


async def read(namesrv: str) -> list[int]:
    """Return the numbers of the whole topic."""
    found = []
    async with PullConsumer("handed_over_c", namesrv) as consumer:
        for queue_id in range(2):
            queue = MessageQueue(TOPIC, "broker-a", queue_id)
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset)
                found += [index(message) for message in result.messages]
                offset = result.next_offset
    return found


async def end_all(namesrv: str, wanted: set[int]) -> list[int]:
    """Answer the new broker's checks until all committed messages have arrived, and a little longer."""
    async with TransactionProducer(GROUP, namesrv, check=when_asked) as producer:
        await producer.send_in_transaction(Message(TOPIC, str(COUNT).encode()), at_once)
        async with asyncio.timeout(PATIENCE_S):
            while not wanted <= set(await read(namesrv)):
                await asyncio.sleep(0.5)
        await asyncio.sleep(7)
        return await read(namesrv)


@pytest.mark.parametrize(
    ("owners", "end"),
    [
        ("ours apache", "stopped"),
        ("apache ours", "killed"),
        ("ours ours", "killed"),
        pytest.param("ours apache", "killed", marks=pytest.mark.slow),
        pytest.param("apache ours", "stopped", marks=pytest.mark.slow),
        pytest.param("ours ours", "stopped", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_undecided_transactions_change_owners(owners: str, end: str, tmp_path: Path) -> None:
    port, store = Ports.free().broker, tmp_path / "store"
    wanted = {i for i in range(COUNT + 1) if i % 2 == 0}
    try:
        with ApacheNamesrv() as namesrv:
            for number, owner in enumerate(owners.split()):
                home = tmp_path / f"home{number}"
                broker = (
                    OwnBroker(namesrv.address, store, home, CONF, port)
                    if owner == "ours"
                    else ApacheBroker(namesrv.address, port, store, CONF, home)
                )
                try:
                    broker.start()
                    if number == 0:
                        create_topic(namesrv.address, broker.address, TOPIC, 2)
                        asyncio.run(produce(namesrv.address))
                    else:
                        found = Counter(asyncio.run(end_all(namesrv.address, wanted)))
                    if end == "stopped" and number == 0:
                        broker.stop()
                finally:
                    broker.kill()
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    assert set(found) == wanted
    if end == "stopped" or owners == "ours ours":
        assert found == Counter(wanted)
