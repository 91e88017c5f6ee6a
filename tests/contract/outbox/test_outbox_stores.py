"""The contract of outbox stores: an SQLite file, a stream in a real Redis, and the store in memory of the tests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from memory_outbox import MemoryOutbox
from redis_server import run_in_real_time

from seeds import seeds
from tianzhou import Message, Producer, SendStatus
from tianzhou.client import OutboxStore, RedisOutbox, SqliteOutbox
from tianzhou.client.producer.outbox.outbox_store import Frame, bytes_of
from tianzhou.errors import ConfigError, OutboxFull

GROUP = "P"
KINDS = ["memory", "sqlite", "redis"]


@dataclass
class Kind:
    """A kind of store.

    Attributes:
        make: returns a further store on the same data.
        refused: returns the records that were set aside.
    """

    make: Callable[[], OutboxStore]
    refused: Callable[[], list[bytes]]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    if request.param == "redis":
        server = request.getfixturevalue("redis_server")
        name = request.node.name

        def set_aside() -> list[bytes]:
            with server.client() as client:
                entries = client.xrange(f"tianzhou:outbox:{{{name}}}:refused")
            return [fields[b"message"] for _, fields in entries]

        return Kind(lambda: RedisOutbox(server.url, name, lease_s=0.5), set_aside)
    if request.param == "sqlite":
        folder = tmp_path / "outbox"
        return Kind(lambda: SqliteOutbox(folder), lambda: (folder / "refused.jsonl").read_bytes().splitlines())
    shared: dict[str, list[Frame]] = {}
    made: list[MemoryOutbox] = []

    def make() -> MemoryOutbox:
        made.append(MemoryOutbox(shared))
        return made[-1]

    return Kind(make, lambda: [record for store in made for record in store.aside])


pytestmark = pytest.mark.runner.with_args(run_in_real_time)


def numbered(first: int, count: int, size: int = 20) -> list[bytes]:
    return [b"%08d" % number + b"x" * size for number in range(first, first + count)]


def numbers(frames: list[Frame]) -> list[int]:
    return [int(frame.payload[:8]) for frame in frames]


async def test_payloads_come_out_in_order_until_they_are_removed(kind: Kind) -> None:
    store = kind.make()
    await store.open(GROUP)
    assert (store.count, store.bytes, await store.peek(1_000)) == (0, 0, [])
    await store.append(numbered(0, 3))
    await store.append(numbered(3, 4))
    assert (store.count, store.bytes) == (7, 7 * (8 + 28))
    assert numbers(await store.peek(1_000_000)) == list(range(7))
    assert numbers(await store.peek(1)) == [0]
    assert numbers(await store.peek(2 * 36)) == [0, 1]
    frames = await store.peek(1_000_000)
    assert [frame.number for frame in frames] == sorted({frame.number for frame in frames})
    await store.remove(frames[:2])
    assert numbers(await store.peek(1_000_000)) == [2, 3, 4, 5, 6]
    await store.append(numbered(7, 1))
    await store.remove((await store.peek(1_000_000))[:5])
    assert numbers(await store.peek(1_000_000)) == [7]
    await store.remove(await store.peek(1))
    assert (store.count, store.bytes, await store.peek(1_000), store.lost) == (0, 0, [], 0)
    await store.close()


async def test_payloads_wait_for_the_next_start(kind: Kind) -> None:
    for start in range(3):
        store = kind.make()
        await store.open(GROUP)
        assert (store.count, store.bytes) == (3 * start, 3 * start * 36)
        assert numbers(await store.peek(1_000_000)) == [*range(2 * start, 5 * start)]
        await store.append(numbered(5 * start, 5))
        await store.remove((await store.peek(1_000_000))[:2])
        await store.close()
    await store.open(GROUP)  # the same store once more
    assert store.count == 9
    assert store.lost == 0
    await store.close()


def test_a_store_serves_one_event_loop_after_another(kind: Kind) -> None:
    store = kind.make()

    async def use(number: int) -> None:
        await store.open(GROUP)
        assert store.count == number
        await store.append(numbered(number, 1))
        await asyncio.sleep(0.2)  # a lease in Redis is renewed meanwhile
        await store.close()

    for number in range(3):
        run_in_real_time(use(number))


async def test_two_producers_cannot_share_a_store(kind: Kind) -> None:
    store = kind.make()
    await store.open(GROUP)
    with pytest.raises(ConfigError, match=r"in use by another producer.*; give each"):
        await kind.make().open(GROUP)
    await store.append(numbered(0, 1))
    await store.close()
    another = kind.make()
    await another.open(GROUP)
    assert numbers(await another.peek(1)) == [0]
    await another.close()


async def test_payloads_are_any_bytes(kind: Kind) -> None:
    store = kind.make()
    await store.open(GROUP)
    payloads = [b"\0", bytes(range(256)), b"\r\n", "é😀".encode(), random.Random(1).randbytes(2_000_000), b"last"]
    await store.append(payloads)
    found: list[bytes] = []
    while frames := await store.peek(100):
        found += [frame.payload for frame in frames]
        await store.remove(frames)
    assert found == payloads
    await store.close()


async def test_records_that_are_set_aside_are_left_for_an_operator(kind: Kind) -> None:
    store = kind.make()
    await store.open(GROUP)
    await store.append(numbered(0, 2))
    await store.set_aside(b'{"error": "illegal"}')
    await store.set_aside(b'{"error": "too large"}')
    assert kind.refused() == [b'{"error": "illegal"}', b'{"error": "too large"}']
    assert store.count == 2
    await store.close()


@pytest.mark.parametrize("seed", seeds(3, 60))
async def test_a_store_does_what_a_list_does(kind: Kind, seed: int) -> None:
    rng = random.Random(seed)
    store = kind.make()
    await store.open(GROUP)
    expected: list[bytes] = []
    written = 0
    for _ in range(60):
        match rng.choice(("append", "append", "remove", "peek", "reopen")):
            case "append":
                payloads = numbered(written, rng.randint(1, 30), rng.choice((0, 20, 3_000)))
                await store.append(payloads)
                expected += payloads
                written += len(payloads)
            case "remove":
                frames = await store.peek(rng.randint(1, 20_000))
                gone = frames[: rng.randint(0, len(frames))]
                await store.remove(gone)
                del expected[: len(gone)]
            case "peek":
                frames = await store.peek(rng.randint(1, 100_000))
                assert [frame.payload for frame in frames] == expected[: len(frames)]
                assert bool(frames) == bool(expected)
            case _:
                await store.close()
                store = kind.make()
                await store.open(GROUP)
        assert (store.count, store.bytes) == (len(expected), bytes_of(expected))
    await store.close()


async def test_a_producer_sends_what_it_has_stored(kind: Kind, cluster, broker) -> None:
    options: Any = {"retry_times_when_send_failed": 0, "send_msg_timeout_ms": 2_000, "outbox_max_bytes": 2_000}
    broker.answers[310] = broker.answers[320] = lambda command: command.reply(2, "busy")
    async with Producer(GROUP, cluster.address, outbox=kind.make(), **options) as producer:
        for number in range(3):
            assert (await producer.send(Message("T", b"%d" % number))).status is SendStatus.KEPT_IN_OUTBOX
        with pytest.raises(OutboxFull, match=r"holds 3 messages of \d+ bytes, the limit is 2000 \(outbox_max_bytes\)"):
            await producer.send(Message("T", b"x" * 2_000))
        assert producer.outbox is not None
        assert producer.outbox.pending == 3
    broker.answers.clear()
    broker.answers[320] = broker._on_310
    async with Producer(GROUP, cluster.address, outbox=kind.make(), **options) as producer:
        assert producer.outbox is not None
        while producer.outbox.pending:
            await asyncio.sleep(0.01)
        assert (producer.outbox.sent, producer.outbox.lost) == (3, 0)
        assert (await producer.send(Message("T", b"direct"))).status is SendStatus.SEND_OK


@pytest.mark.parametrize("outbox", ["http://host/0", 17, object()])
def test_an_option_that_is_no_outbox_is_refused(outbox: Any) -> None:
    with pytest.raises(ConfigError, match=r"^outbox=.*an outbox is a folder"):
        Producer(GROUP, "127.0.0.1:9", outbox=outbox)
