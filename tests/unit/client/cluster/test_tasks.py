"""Tasks of a client: permanent tasks are restarted, and no worker is lost."""

from __future__ import annotations

import asyncio

import pytest

from tianzhou.client.cluster.tasks import Tasks
from tianzhou.client.consumer.push.workers import Slot, Workers
from tianzhou.testing.clock import run

pytestmark = pytest.mark.runner.with_args(run)


async def test_work_that_lasts_is_begun_again_until_the_owner_ends(caplog: pytest.LogCaptureFixture) -> None:
    begun = 0

    async def heartbeats() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise KeyError("a defect")
        await asyncio.sleep(3600)

    tasks = Tasks("client c1")
    task = tasks.keep("heartbeats", heartbeats)
    await asyncio.sleep(10)
    assert begun == 3
    assert not task.done()
    await tasks.end()
    assert task.done()
    assert "client c1: heartbeats failed (1 in all); it is begun again in 0.1 s" in caplog.text


async def test_a_worker_that_fails_is_followed_by_another_in_its_place(caplog: pytest.LogCaptureFixture) -> None:
    served: list[Slot] = []

    async def work(slot: Slot) -> None:
        served.append(slot)
        if len(served) == 1:
            slot.since_s, slot.idle = 1.0, True
            raise KeyError("a defect")
        assert (slot.since_s, slot.idle) == (None, False)
        await asyncio.sleep(3600)

    tasks = Tasks("consumer")
    workers = Workers(work, tasks.spawn)
    workers.resize(1)
    await asyncio.sleep(10)
    assert served == [workers.slots[0], workers.slots[0]]
    await tasks.end()
    assert "another takes its place" in caplog.text
