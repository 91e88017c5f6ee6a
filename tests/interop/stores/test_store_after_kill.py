"""One store, two servers, and kill -9 between them: the next server continues with all acknowledged messages."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from frames import create_topic
from servers import Ports, serve
from toolchain import ToolchainMissingError

from tianzhou import Message, MessageQueue, Producer, PullConsumer, SendStatus
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageExt
from tianzhou.testing.ledger import Ledger
from waiting import until_async

pytestmark = pytest.mark.at_once

TOPIC = "afterkill"
QUEUES = 4
BEFORE, AFTER = 2000, 200
"""Messages acknowledged before the kill, and by the next server."""
WITHIN_S = 120


async def read_queue(namesrv: str, topic: str, queue_id: int, offset: int = 0) -> list[MessageExt]:
    """Return all messages of a queue; a starting broker may need a moment until its queues are complete."""
    found: list[MessageExt] = []
    async with PullConsumer("auditor", namesrv) as consumer:
        queue = MessageQueue(topic, "broker-a", queue_id)
        offset = max(offset, await consumer.min_offset(queue))
        end = await consumer.max_offset(queue)
        while offset < end:
            result = await consumer.pull(queue, offset)
            assert result.messages, (topic, queue_id, offset, result)
            found += result.messages
            offset = result.next_offset
    return found


async def audit(namesrv: str, ledger: Ledger) -> None:
    ledger.found = {}
    for queue_id in range(QUEUES):
        for message in await read_queue(namesrv, TOPIC, queue_id):
            ledger.take((TOPIC, queue_id), message.queue_offset, message.body)
    assert ledger.problems() == []


async def write(producer: Producer, ledger: Ledger, name: str, over: asyncio.Event) -> None:
    """Send messages until `over` is set or the server is down."""
    rng = random.Random(name)
    number = 0
    while not over.is_set():
        place = (TOPIC, rng.randrange(QUEUES))
        bodies = [ledger.send(place, name, number + n) for n in range(rng.choice((1, 1, 1, 4)))]
        number += len(bodies)
        queue = MessageQueue(TOPIC, "broker-a", place[1])
        messages = [Message(TOPIC, body, keys=[f"{name}-{number}"]) for body in bodies]
        try:
            if len(messages) == 1:
                result = await producer.send(messages[0], queue=queue)
            else:
                result = await producer.send_batch(messages, queue=queue)
        except TianzhouError:
            return
        if result.status is SendStatus.SEND_OK:
            ledger.acknowledge(place, result.queue_offset, bodies)


async def load(namesrv: str, ledger: Ledger, name: str, count: int, kill: Callable[[], object] | None = None) -> None:
    """Send messages until so many more are acknowledged.

    Args:
        namesrv: address of the name server.
        ledger: records each message that is sent and acknowledged.
        name: the beginning of the bodies.
        count: number of messages to be acknowledged.
        kill: kills the server in the middle of the load, after that number of acknowledgements.
    """
    wanted, over = ledger.counts["acknowledged"] + count, asyncio.Event()
    async with Producer("P", namesrv, retry_times_when_send_failed=0) as producer:
        tasks = [asyncio.create_task(write(producer, ledger, f"{name}{n}", over)) for n in range(4)]
        await until_async(
            lambda: ledger.counts["acknowledged"] >= wanted, "messages are acknowledged", within_s=WITHIN_S
        )
        if kill is None:
            over.set()
        else:
            await asyncio.to_thread(kill)
        await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("tianzhou", "apache"),
        pytest.param("apache", "tianzhou", marks=pytest.mark.slow),
        pytest.param("tianzhou", "apache-4.9.7", marks=pytest.mark.slow),
        ("apache-4.9.7", "tianzhou"),
    ],
)
def test_a_killed_store_is_taken_over(writer: str, reader: str, server_kind: str, tmp_path: Path) -> None:
    if server_kind == "apache":
        pytest.skip("this is about two different servers")
    data_dir, ports = tmp_path / "data", Ports.free()
    ledger = Ledger()

    try:
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(serve(writer, data_dir, ports, clean=False))
            create_topic(server.namesrv, server.broker, TOPIC, QUEUES)
            # Leaving `serve` kills the server.
            asyncio.run(load(server.namesrv, ledger, "before", BEFORE, stack.close))
        assert (data_dir / "store" / "abort").exists()
        with serve(reader, data_dir, ports, clean=False) as server:
            asyncio.run(audit(server.namesrv, ledger))
            asyncio.run(load(server.namesrv, ledger, "after", AFTER))
            asyncio.run(audit(server.namesrv, ledger))
            assert any(body.startswith(f"{TOPIC}/0/after".encode()) for body in ledger.found[TOPIC, 0])
    except ToolchainMissingError as error:
        pytest.skip(str(error))
