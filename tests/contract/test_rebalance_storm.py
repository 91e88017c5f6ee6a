"""Fifty members join and leave one group within seconds; servers and clients share a loop in virtual time."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict

import pytest
from own_server import own_server

from shared_loop import SharedLoop
from tianzhou import ConsumeFromWhere, Message, Producer, PushConsumer
from tianzhou.admin import Admin
from tianzhou.model import MessageQueue
from tianzhou.testing.clock import VirtualClock
from tianzhou.testing.virtual_loop import VirtualLoop

MEMBERS = 50
QUEUES = 60
PER_QUEUE = 40


class Watch:
    """Checks every handler call and every assignment for violations."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.seen: dict[int, list[int]] = defaultdict(list)
        self.at_work: Counter[int] = Counter()
        self.problems: list[str] = []

    async def consume(self, message, pause_s: float) -> None:
        queue = message.queue_id
        if self.at_work[queue]:
            self.problems.append(f"two at work on queue {queue}")
        self.at_work[queue] += 1
        await asyncio.sleep(pause_s)
        self.at_work[queue] -= 1
        self.seen[queue].append(int(message.body))

    @property
    def total(self) -> int:
        return sum(map(len, self.seen.values()))


async def storm(clock: VirtualClock, folder, *, orderly: bool) -> Watch:
    rng = random.Random(5)
    watch = Watch(clock)
    async with own_server(folder, clock=clock) as namesrv, Admin(namesrv, clock=clock) as admin:
        await admin.topics.create("storm", read_queue_nums=QUEUES, write_queue_nums=QUEUES)

        def member() -> PushConsumer:
            consumer = PushConsumer(
                "G",
                namesrv,
                orderly=orderly,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                clock=clock,
            )

            @consumer.on("storm")
            async def consume(message) -> None:
                await watch.consume(message, rng.random() * 0.4)

            return consumer

        async def until(condition, what: str, within_s: float = 60) -> float:
            began = clock.monotonic()
            real = time.monotonic()
            while not condition():
                assert clock.monotonic() - began < within_s, f"not within {within_s} virtual seconds: {what}"
                assert time.monotonic() - real < 120, what
                await asyncio.sleep(0.25)
            return clock.monotonic() - began

        def owners(members: list[PushConsumer]) -> dict[MessageQueue, int]:
            return Counter(queue for one in members for queue in one.assignment if queue.topic == "storm")

        def shared_out(members: list[PushConsumer]) -> bool:
            sizes = [sum(queue.topic == "storm" for queue in one.assignment) for one in members]
            count = owners(members)
            return len(count) == QUEUES and set(count.values()) == {1} and max(sizes) - min(sizes) <= 1

        async with Producer("P", namesrv, clock=clock) as producer:
            queues = await producer.queues("storm")

            async def feed(first: int) -> None:
                for number in range(first, first + PER_QUEUE // 2):
                    await asyncio.gather(*(producer.send(Message("storm", b"%d" % number), q) for q in queues))

            await feed(0)
            members = [member() for _ in range(MEMBERS)]

            async def start_late(one: PushConsumer) -> None:
                await asyncio.sleep(rng.random() * 3)
                await one.start()

            await asyncio.gather(*(start_late(one) for one in members))
            await until(lambda: shared_out(members), "fifty members have a share each", 60)
            leaving, staying = members[::3], [one for i, one in enumerate(members) if i % 3]
            feeding = asyncio.create_task(feed(PER_QUEUE // 2))

            async def stop_late(one: PushConsumer) -> None:
                await asyncio.sleep(rng.random() * 3)
                await one.stop()

            await asyncio.gather(*(stop_late(one) for one in leaving))
            took_s = await until(lambda: shared_out(staying), "those that stay have all queues", 60)
            assert took_s <= 5
            newcomers = [member() for _ in range(len(leaving))]
            await asyncio.gather(*(start_late(one) for one in newcomers))
            await until(lambda: shared_out(staying + newcomers), "newcomers have a share, too", 60)
            await feeding
            await until(
                lambda: all(len(set(watch.seen[queue])) == PER_QUEUE for queue in range(QUEUES)), "all is consumed", 300
            )
            await asyncio.gather(*(one.stop() for one in staying + newcomers))
    return watch


def run_storm(folder, *, orderly: bool) -> Watch:
    clock = VirtualClock()
    with SharedLoop(lambda: VirtualLoop(clock)) as loop:
        return loop.run(storm(clock, folder, orderly=orderly))


def test_orderly_members_never_overlap_nor_overtake(tmp_path):
    watch = run_storm(tmp_path, orderly=True)
    assert watch.problems == []
    assert {q: seen for q, seen in watch.seen.items() if seen != list(range(PER_QUEUE))} == {}


@pytest.mark.slow
def test_members_without_an_order_lose_nothing(tmp_path):
    watch = run_storm(tmp_path, orderly=False)
    numbers = list(range(PER_QUEUE))
    assert {q: seen for q, seen in watch.seen.items() if sorted(set(seen)) != numbers} == {}
