"""One store, two servers, and kill -9 between them: who opens it goes on with all that was acknowledged.

The golden stores that Apache's brokers left when they were killed are continued by ours and then opened by Apache's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache import ApacheBroker, ApacheNamesrv
from frames import create_topic
from servers import Ports, serve
from toolchain import ToolchainMissingError

from tianzhou import Message, MessageQueue, Producer, PullConsumer, SendStatus
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageExt
from tianzhou.settings import bind
from tianzhou.store import MessageStore, NewRecord, PutStatus, StoreSettings
from tianzhou.testing.ledger import Ledger

GOLDEN = Path(__file__).parent.parent / "golden" / "store"
TOPIC = "afterkill"
QUEUES = 4
LOAD_SECONDS = 2.0
WITHIN_SECONDS = 30


async def read_queue(namesrv: str, topic: str, queue_id: int, offset: int = 0) -> list[MessageExt]:
    """All messages of a queue; a broker that starts may need a moment until its queues are complete."""
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


async def write(producer: Producer, ledger: Ledger, name: str, until: float) -> None:
    rng = random.Random(name)
    loop = asyncio.get_running_loop()
    number = 0
    while loop.time() < until:
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


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("tianzhou", "apache"),
        ("apache", "tianzhou"),
        ("tianzhou", "apache-4.9.7"),
        ("apache-4.9.7", "tianzhou"),
    ],
)
def test_a_killed_store_is_taken_over(writer: str, reader: str, server_kind: str, tmp_path: Path) -> None:
    if server_kind == "apache":
        pytest.skip("this is about two different servers")
    data_dir, ports = tmp_path / "data", Ports.free()
    ledger = Ledger()

    async def load(namesrv: str, name: str, seconds: float, stack: contextlib.ExitStack | None) -> None:
        async with Producer("P", namesrv, retry_times_when_send_failed=0) as producer:
            until = asyncio.get_running_loop().time() + seconds + (WITHIN_SECONDS if stack else 0)
            tasks = [asyncio.create_task(write(producer, ledger, f"{name}{n}", until)) for n in range(4)]
            if stack is not None:
                await asyncio.sleep(seconds)
                # Leaving `serve` kills the server, in the middle of the load.
                await asyncio.to_thread(stack.close)
            await asyncio.gather(*tasks)

    try:
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(serve(writer, data_dir, ports, clean=False))
            create_topic(server.namesrv, server.broker, TOPIC, QUEUES)
            asyncio.run(load(server.namesrv, "before", LOAD_SECONDS, stack))
        assert (data_dir / "store" / "abort").exists()
        assert ledger.counts["acknowledged"] > 200
        with serve(reader, data_dir, ports, clean=False) as server:
            asyncio.run(audit(server.namesrv, ledger))
            asyncio.run(load(server.namesrv, "after", 0.5, None))
            asyncio.run(audit(server.namesrv, ledger))
            assert any(body.startswith(f"{TOPIC}/0/after".encode()) for body in ledger.found[TOPIC, 0])
    except ToolchainMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def namesrv() -> Iterator[ApacheNamesrv]:
    try:
        with ApacheNamesrv() as running:
            yield running
    except ToolchainMissingError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ["basic-killed-5", "basic-killed-4", "basic-killed-pool"])
def test_a_golden_killed_store_is_continued_and_given_back(name: str, namesrv: ApacheNamesrv, tmp_path: Path) -> None:
    manifest: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_bytes())
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path)
    settings = bind(StoreSettings, manifest["brokerConf"])
    settings.store_path_root_dir = str(tmp_path / "store")
    store = MessageStore(settings)
    assert not store.open().clean
    expected: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for message in manifest["messages"]:
        place = (message["topic"], message["queueId"])
        row = (message["queueOffset"], message["commitLogOffset"], message["storeSize"])
        expected.setdefault(place, []).append(row)
    for queue in manifest["queues"]:
        place = (queue["topic"], queue["queueId"])
        assert store.max_offset(*place) == queue["maxOffset"]
        for number in range(120):
            body = f"ours {place} {number} ".encode() * (number % 9 + 1)
            unique = f"OURS{queue['topic']}{queue['queueId']}N{number}"
            properties = f"KEYS\x01ours{number}\x02UNIQ_KEY\x01{unique}\x02".encode()
            result = store.append(NewRecord(*place, body, properties, keys=f"ours{number}", uniq_key=unique))
            assert result.status is PutStatus.PUT_OK
            assert result.queue_offset == queue["maxOffset"] + number
            expected.setdefault(place, []).append(
                (result.queue_offset, result.physical_offset, result.end_offset - result.physical_offset)
            )
    store.close_now()
    own = {"listenPort", "namesrvAddr", "storePathRootDir", "brokerIP1", "brokerIP2", "haListenPort"}
    conf = {key: value for key, value in manifest["brokerConf"].items() if key not in own}
    conf["transientStorePoolEnable"] = "false"

    async def check() -> None:
        for place, rows in expected.items():
            messages = await read_queue(namesrv.address, *place)
            served = [(m.queue_offset, m.commitlog_offset, m.store_size) for m in messages]
            assert served == sorted(rows), place
            assert [m.body for m in messages if m.body.startswith(b"ours")] == [
                f"ours {place} {number} ".encode() * (number % 9 + 1) for number in range(120)
            ]

    broker = ApacheBroker(namesrv.address, store_dir=tmp_path / "store", conf=conf, home=tmp_path / "home")
    try:
        broker.start()
        asyncio.run(check())
    finally:
        broker.kill()
