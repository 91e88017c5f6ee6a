"""kill -9 of a producer with an outbox at each of its steps, while the broker refuses, hangs and recovers.

Each round is its seed: `TIANZHOU_SEED=<seed> ./test tests/fault/test_outbox_kills.py -k one_round` repeats one. A round
has several producers, one after the other, with one outbox. All but the last are killed at a step. After the round the
topic has every acknowledged message, and in each queue the first copies are in the order of the sends.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from processes import Tianzhou
from redis_server import RedisServer

from tianzhou.testing import AsyncCluster
from tianzhou.testing.faults import Faults

ROUNDS = int(os.environ.get("TIANZHOU_ROUNDS", "200"))
STEPS = [
    "before open", "after open", "before attempt", "after attempt", "before append", "after append", "before peek",
    "before remove", "after remove", "before acknowledgement", "after acknowledgement",
]  # fmt: skip
KINDS = ["sqlite", "redis"]
MESSAGES = 25
ROUNDS_TOGETHER = 4
"""Rounds that run at the same time, each with its own topic and outbox: they mostly wait."""
LIFE_LIMIT_S = 240

PROGRAM = """
import asyncio, os, random, signal, sys
from tianzhou import Message, MessageQueue, Producer
from tianzhou.client import RedisOutbox, SqliteOutbox
from tianzhou.errors import TianzhouError

topic, place, life, step, occurrence, seed = sys.argv[1:]
rng, left = random.Random(int(seed)), int(occurrence)

def reach(name):
    global left
    if name == step:
        left -= 1
        if left == 0:
            os.write(1, f"died {name}\\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

class Dying:
    def __init__(self, store):
        self.store = store

    place = property(lambda self: self.store.place)
    count = property(lambda self: self.store.count)
    bytes = property(lambda self: self.store.bytes)
    lost = property(lambda self: self.store.lost)

    async def _call(self, name, *arguments):
        reach(f"before {name}")
        found = await getattr(self.store, name)(*arguments)
        reach(f"after {name}")
        return found

    async def open(self, producer):
        await self._call("open", producer)

    async def append(self, payloads):
        await self._call("append", payloads)

    async def peek(self, max_bytes):
        return await self._call("peek", max_bytes)

    async def remove(self, frames):
        await self._call("remove", frames)

    async def set_aside(self, record):
        await self.store.set_aside(record)

    async def close(self):
        await self.store.close()

def attempt(context):
    reach("before attempt")
    return lambda context: reach("after attempt")

async def send(producer, number):
    body = f"{life} {number}".encode()
    way = rng.randrange(4)
    try:
        if way == 0:
            await producer.send(Message(topic, body), MessageQueue(topic, "broker-a", 0))
        else:
            await producer.send(Message(topic, body, sharding_key=f"key {way}"))
    except TianzhouError as error:
        os.write(1, f"failed {life} {number} {error}\\n".encode())
        return
    reach("before acknowledgement")
    os.write(1, f"acknowledged {life} {number}\\n".encode())
    reach("after acknowledgement")

async def main():
    store = RedisOutbox(place, topic, lease_s=0.3) if "://" in place else SqliteOutbox(place)
    options = {"send_msg_timeout_ms": 300, "retry_times_when_send_failed": 0, "send_hooks": [attempt]}
    async with Producer("P", outbox=Dying(store), **options) as producer:
        sends = []
        for number in range(MESSAGES):
            sends.append(asyncio.create_task(send(producer, number)))
            if rng.random() < 0.5:
                await asyncio.sleep(rng.choice((0, 0.001, 0.02)))
        await asyncio.gather(*sends)
        while step == "none" and producer.outbox.pending:
            await asyncio.sleep(0.01)
        os.write(1, f"ended {producer.outbox.lost}\\n".encode())

asyncio.run(main())
""".replace("MESSAGES", str(MESSAGES))


def next_fault(faults: Faults, topic: str, rng: random.Random) -> AbstractContextManager[object]:
    """Return a fault of the sends to a topic, or none."""
    match rng.randrange(6):
        case 0:
            return faults.refuse(2, topic=topic)
        case 1:
            return faults.lose_requests(times=rng.randint(1, 3), topic=topic)
        case 2:
            return faults.lose_replies(times=rng.randint(1, 3), topic=topic)
        case 3:
            return faults.drop_connections(served=rng.random() < 0.5, times=1, topic=topic)
        case _:
            return nullcontext()


async def moods(faults: Faults, topic: str, rng: random.Random) -> None:
    """Let the broker refuse sends to a topic, hang and recover, until cancelled."""
    while True:
        with next_fault(faults, topic, rng):
            await asyncio.sleep(rng.uniform(0.01, 0.15))


async def live(cluster: AsyncCluster, folder: Path, *arguments: object) -> list[str]:
    """Run a producer until it ends or is killed, and return the lines that it has written."""
    with Tianzhou(folder, *arguments, program=PROGRAM, namesrv=cluster.namesrv_addr) as producer:
        async with asyncio.timeout(LIFE_LIMIT_S):
            while producer.process.poll() is None:
                await asyncio.sleep(0.01)
        code = producer.process.returncode
    assert code in {0, -signal.SIGKILL}, producer.err
    return producer.out.splitlines()


async def one_round(cluster: AsyncCluster, seed: int, kind: str, place: str, folder: Path) -> Counter[str]:
    rng, counts = random.Random(seed), Counter[str]()
    topic = f"Kills-{kind}-{seed}"
    folder.mkdir()
    await cluster.create_topic(topic, 2)
    acknowledged: set[bytes] = set()
    lives = rng.randint(2, 4)
    for life in range(lives):
        is_last = life == lives - 1
        step = "none" if is_last else STEPS[(seed + life) % len(STEPS)]
        occurrence = 1 if "open" in step else rng.choice((1, 2, 3, 10))
        # The broker's faults have their own random generator: the duration of a run must not change the actions of the
        # next one.
        dice = random.Random(rng.randrange(1 << 30))
        troubling = asyncio.create_task(moods(cluster.faults, topic, dice)) if not is_last else None
        try:
            lines = await live(cluster, folder, topic, place, life, step, occurrence, rng.randrange(1 << 30))
        finally:
            if troubling is not None:
                troubling.cancel()
                await asyncio.wait([troubling])
        for line in lines:
            word, _, rest = line.partition(" ")
            counts[word if word != "died" else line] += 1
            if word == "acknowledged":
                acknowledged.add(rest.encode())
            assert word != "ended" or rest == "0", f"seed {seed}: the outbox has lost {rest} messages"
    queues: dict[int, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
    for message in await cluster.messages(topic):
        queues[message.queue_id].append((message.queue_offset, tuple(map(int, message.body.split()))))
    found = {b"%d %d" % one for entries in queues.values() for _, one in entries}
    assert acknowledged <= found, f"seed {seed}, {kind}: lost {sorted(acknowledged - found)}"
    for entries in queues.values():
        first = list(dict.fromkeys(one for _, one in sorted(entries)))
        assert first == sorted(first), f"seed {seed}, {kind}: overtaken {first}"
    counts["rounds"] += 1
    counts["stored twice"] += sum(map(len, queues.values())) - len(found)
    return counts


async def rounds(seeds: range, kind: str, redis: RedisServer | None, folder: Path) -> Counter[str]:
    total: Counter[str] = Counter()
    room = asyncio.Semaphore(ROUNDS_TOGETHER)
    async with AsyncCluster() as cluster:

        async def play(seed: int) -> None:
            place = redis.url if redis is not None else str(folder / f"outbox-{seed}")
            async with room:
                total.update(await one_round(cluster, seed, kind, place, folder / str(seed)))

        try:
            async with asyncio.TaskGroup() as playing:
                for seed in seeds:
                    playing.create_task(play(seed))
        finally:
            print(f"{kind}, seeds {seeds.start} to {seeds.stop - 1}: {dict(sorted(total.items()))}")
    return total


@pytest.fixture
def redis(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer | None]:
    """A redis-server of the test, when its kind wants one."""
    if request.node.callspec.params["kind"] != "redis":
        yield None
        return
    (tmp_path / "redis").mkdir()
    with RedisServer(tmp_path / "redis") as server:
        yield server


def run(seeds: range, kind: str, redis: RedisServer | None, folder: Path) -> Counter[str]:
    return asyncio.run(rounds(seeds, kind, redis, folder))


@pytest.mark.parametrize("kind", KINDS)
def test_one_round(kind: str, redis: RedisServer | None, tmp_path: Path) -> None:
    seed = int(os.environ.get("TIANZHOU_SEED", "0"))
    run(range(seed, seed + 1), kind, redis, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_producer_loses_nothing_and_overtakes_nothing(
    kind: str, redis: RedisServer | None, tmp_path: Path
) -> None:
    total = run(range(1, 5), kind, redis, tmp_path)
    assert total["acknowledged"] > 0
    # The broker's faults decide whether a run reaches its step; the first run of seed 1 always does.
    assert total["died after open"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_rounds_of_kills_at_each_step(kind: str, redis: RedisServer | None, tmp_path: Path) -> None:
    total = run(range(1_000, 1_000 + ROUNDS), kind, redis, tmp_path)
    assert min(total[f"died {step}"] for step in STEPS) > 0
