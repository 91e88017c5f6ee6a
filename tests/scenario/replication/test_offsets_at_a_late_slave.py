"""Consumers' offsets at a slave that was down and starts while its master is dead: they never decrease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from small_broker import PairSite, ask, pair_site, pull, run, send

from tianzhou.broker.server import Broker
from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)

OLD, NEW = 20, 30
"""Messages that the slave has, and messages that only the master has."""


@asynccontextmanager
async def late_slave(folder: Path, **settings: object) -> AsyncIterator[tuple[PairSite, Broker]]:
    """Yield a slave with `OLD` messages, whose master has `NEW` more and is down.

    Args:
        folder: of the test.
        settings: of the slave's store.
    """
    async with pair_site(folder) as site:
        async with site.running("ASYNC_MASTER") as master:
            async with site.running("SLAVE", 1) as slave:
                for _ in range(OLD):
                    assert (await send(site.client, master.address)).code == ResponseCode.SUCCESS
                await until_async(lambda: slave.store.max_offset("T", 0) == OLD, "copied")
                await until_async(lambda: "T" in slave.tables.topics, "the topic is known to the slave")
            for _ in range(NEW):
                assert (await send(site.client, master.address)).code == ResponseCode.SUCCESS
        yield site, await site.slave(**settings)


async def test_a_pull_beyond_the_end_of_a_late_slave_keeps_its_offset(tmp_path: Path) -> None:
    async with late_slave(tmp_path) as (site, slave):
        client = site.client
        consumed = OLD + NEW - 5
        for queue_id, at in ((0, consumed), (3, 7)):
            place = {"queue_id": queue_id, "queue_offset": at}
            for more in ({}, {"sys_flag": 6, "suspend_timeout_millis": 100}):
                reply = await pull(client, slave.address, **place, **more)
                assert reply.code == ResponseCode.PULL_NOT_FOUND
                assert read_reply(11, reply).next_begin_offset == at
        held = asyncio.ensure_future(
            pull(client, slave.address, queue_offset=consumed, sys_flag=6, suspend_timeout_millis=15_000)
        )
        async with site.running("ASYNC_MASTER"):
            reply = await held
            # The first reply after the master's messages have arrived: from the requested offset on.
            head = read_reply(11, reply)
            assert head.next_begin_offset >= consumed
            if reply.code == ResponseCode.SUCCESS:
                assert head.next_begin_offset > consumed
            await until_async(lambda: slave.store.max_offset("T", 0) == OLD + NEW, "copied")
            # A slave close to its master redirects consumers to it, with their own offset.
            reply = await pull(client, slave.address, queue_offset=OLD + NEW + 100)
            assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert read_reply(11, reply).next_begin_offset == OLD + NEW + 100
            assert read_reply(11, reply).suggest_which_broker_id == 0


async def test_a_consumer_of_a_late_slave_goes_on_where_it_was_when_the_master_returns(tmp_path: Path) -> None:
    async with late_slave(tmp_path) as (site, slave):
        consumer = await site.stack.enter_async_context(PullConsumer("g", site.namesrv))
        (queue,) = [queue for queue in await consumer.queues("T") if queue.queue_id == 0]
        slave.tables.offsets.commit("g", "T", 0, OLD + NEW - 5, 1)
        consumer.assign([queue])
        assert await consumer.poll(timeout_ms=1_500) == []
        async with site.running("ASYNC_MASTER"):
            found: list[int] = []
            while len(found) < 5:
                found += [message.queue_offset for message in await consumer.poll(timeout_ms=1_000)]
            assert found == list(range(OLD + NEW - 5, OLD + NEW))


async def test_offset_check_in_slave_has_a_slave_correct_offsets(tmp_path: Path) -> None:
    async with late_slave(tmp_path, offset_check_in_slave=True) as (site, slave):
        client = site.client
        reply = await pull(client, slave.address, queue_offset=OLD + NEW)
        assert (reply.code, reply.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY")
        assert read_reply(11, reply).next_begin_offset == OLD
        change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"offsetCheckInSlave=false\n")
        assert (await client.invoke(slave.address, change, 5_000)).code == ResponseCode.SUCCESS
        reply = await pull(client, slave.address, queue_offset=OLD + NEW)
        assert reply.code == ResponseCode.PULL_NOT_FOUND
        assert read_reply(11, reply).next_begin_offset == OLD + NEW


async def test_a_slave_resets_no_offsets_by_its_own_bounds(tmp_path: Path) -> None:
    async with late_slave(tmp_path) as (site, slave):
        client = site.client
        slave.tables.offsets.commit("G", "T", 0, OLD + NEW, 1)
        assert (await pull(client, slave.address, queue_offset=OLD + NEW)).code == ResponseCode.PULL_NOT_FOUND
        reply = await ask(
            client, slave.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="T", group="G", timestamp=-1,
            is_force=True, queue_id=-1, offset=-1,
        )  # fmt: skip
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "slave" in str(reply.remark)
        assert slave.tables.offsets.committed("G", "T", 0) == OLD + NEW
