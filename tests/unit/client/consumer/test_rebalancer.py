"""The rebalance loop: when it ends, releases queues and takes queues."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tianzhou.client.cluster import rpc
from tianzhou.client.consumer.allocation import AllocateStrategy, Averagely
from tianzhou.client.consumer.options import ConsumerOptions
from tianzhou.client.consumer.rebalancer import INTERVAL_S, MIN_INTERVAL_S, TAKE_OVER_DELAY_S, Rebalancer
from tianzhou.model import MessageQueue
from tianzhou.testing.virtual_loop import run_virtual

pytestmark = pytest.mark.runner.with_args(run_virtual)

TURNS = range(5)
"""Number of loop iterations between the two messages."""


def sharing() -> Rebalancer:
    """Return a rebalancer without topics."""
    nobody: Any = None
    return Rebalancer(
        nobody, "G", ConsumerOptions(),
        topics=lambda: (), owned=lambda: (), take=nobody, give_up=nobody,
    )  # fmt: skip


@pytest.mark.parametrize("turns", TURNS)
async def test_the_end_counts_when_a_change_of_the_group_comes_with_it(turns: int) -> None:
    shares = sharing()
    task = asyncio.get_running_loop().create_task(shares.run())
    await asyncio.sleep(0.3)  # after its first round
    shares.wake()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()


class Group:
    """Members of a group, the topics' queues and the actions of one member, `b`; times are the loop's."""

    def __init__(self, *members: str, topics: tuple[str, ...] = ("A", "B")) -> None:
        self.members = list(members)
        self.remoting = self
        self.api_timeout_ms = 3_000
        self.client_id = "b"
        self.topics = topics
        self.owned: set[MessageQueue] = set()
        self.taken: dict[MessageQueue, float] = {}
        self.given_up: dict[MessageQueue, float] = {}

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    async def queues_to_read(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, "broker", i) for i in range(2)]

    async def any_broker_of(self, topic: str) -> str:
        return "broker"

    async def take(self, queue: MessageQueue) -> bool:
        self.owned.add(queue)
        self.taken[queue] = self.now()
        return True

    async def give_up(self, queues: list[MessageQueue]) -> None:
        self.owned.difference_update(queues)
        self.given_up |= dict.fromkeys(queues, self.now())

    def sharing(self, strategy: AllocateStrategy) -> Rebalancer:
        instance: Any = self
        return Rebalancer(
            instance, "G", ConsumerOptions(allocate_message_queue_strategy=strategy),
            topics=lambda: self.topics, owned=lambda: set(self.owned), take=self.take, give_up=self.give_up,
        )  # fmt: skip


class Wanted:
    """A strategy that returns the allocation of the test."""

    name = "TEST"

    def __init__(self, *queues: MessageQueue) -> None:
        self.queues = list(queues)

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        return [queue for queue in self.queues if queue in queues]


A0, A1, B0 = MessageQueue("A", "broker", 0), MessageQueue("A", "broker", 1), MessageQueue("B", "broker", 0)


@pytest.fixture(autouse=True)
def brokers_know_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    async def consumer_ids(group: Group, *_: object) -> list[str]:
        return group.members

    monkeypatch.setattr(rpc, "consumer_ids", consumer_ids)


@contextlib.asynccontextmanager
async def running(shares: Rebalancer) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(shares.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_what_others_wait_for_is_left_before_we_wait_for_theirs() -> None:
    group = Group("a", "b")
    group.owned = {B0}
    began_s = group.now()
    async with running(group.sharing(Wanted(A0))):
        await asyncio.sleep(1)
    assert group.given_up[B0] == pytest.approx(began_s, abs=0.01)
    assert group.taken[A0] == pytest.approx(began_s + TAKE_OVER_DELAY_S, abs=0.01)


async def test_waiting_for_a_queue_does_not_keep_others_waiting() -> None:
    """A change during the grace time of a queue's former owner takes effect immediately, without a wait."""
    group = Group("a", "b")
    group.owned = {A1}
    wanted = Wanted(A0, A1)
    began_s = group.now()
    shares = group.sharing(wanted)
    async with running(shares):
        await asyncio.sleep(0.1)
        wanted.queues.remove(A1)
        shares.wake()
        await asyncio.sleep(0.9)
    assert group.given_up[A1] == pytest.approx(began_s + MIN_INTERVAL_S, abs=0.01)
    assert group.taken[A0] == pytest.approx(began_s + TAKE_OVER_DELAY_S, abs=0.01)


async def test_what_has_become_anothers_meanwhile_is_not_taken() -> None:
    group = Group("a", "b")
    wanted = Wanted(A0)
    async with running(group.sharing(wanted)):
        await asyncio.sleep(0.1)
        wanted.queues.clear()
        await asyncio.sleep(5)
        assert group.taken == {}
        # The former owner gets the whole grace time once more.
        wanted.queues.append(A0)
        await asyncio.sleep(INTERVAL_S)
    assert list(group.taken) == [A0]


async def test_members_that_come_and_go_all_the_time_keep_nobody_from_its_queues() -> None:
    group = Group("a", "b")
    began_s = group.now()
    shares = group.sharing(Wanted(A0))
    async with running(shares):
        for _ in range(20):
            shares.wake()
            await asyncio.sleep(0.1)
    assert group.taken[A0] <= began_s + TAKE_OVER_DELAY_S + MIN_INTERVAL_S + 0.01


async def test_who_is_alone_waits_for_nobody() -> None:
    group = Group("b")
    began_s = group.now()
    async with running(group.sharing(Averagely())):
        await asyncio.sleep(0.1)
    assert dict.fromkeys(group.taken, pytest.approx(began_s, abs=0.01)) == group.taken
    assert len(group.taken) == 4
