"""Reads at a master before its slave has the message: with zero loss consumers wait, else they read the message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from small_broker import ask, pair_broker, pull, run, send

from tianzhou.broker.server import Broker
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply
from tianzhou.wire.ha import encode_report
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)

HEAD = 12
ZERO_LOSS = {
    "durability": "zero-loss", "flush_disk_type": "SYNC_FLUSH", "in_sync_replicas": 2, "min_in_sync_replicas": 2,
    "enable_auto_in_sync_replicas": False,
}  # fmt: skip
HELD = {"sys_flag": 6, "suspend_timeout_millis": 15_000}


class SlowSlave:
    """A slave of the HA protocol that reports its log offset when the test calls `report`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._copied = 0

    async def take(self, end: int) -> None:
        """Read the log up to an offset without a report."""
        while self._copied < end:
            head = await self._reader.readexactly(HEAD)
            self._copied += len(await self._reader.readexactly(int.from_bytes(head[8:])))

    async def report(self) -> None:
        """Report the log offset that `take` has reached."""
        self._writer.write(encode_report(self._copied))
        await self._writer.drain()


@asynccontextmanager
async def master_of(folder: Path, **settings: Any) -> AsyncIterator[tuple[Broker, SlowSlave]]:
    async with pair_broker(folder, "", "SYNC_MASTER", 0, **settings) as master:
        host, port = master.replication.ha_address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            slave = SlowSlave(reader, writer)
            await slave.report()
            await until_async(lambda: master.replication.status().in_sync_slave_nums == 1, "the slave has reported")
            yield master, slave
        finally:
            writer.close()


async def max_offset(client: RemotingClient, master: Broker) -> int:
    reply = await ask(client, master.address, RequestCode.GET_MAX_OFFSET, topic="T", queue_id=0)
    return int(read_reply(RequestCode.GET_MAX_OFFSET, reply).offset)


async def send_uncopied(client: RemotingClient, master: Broker, slave: SlowSlave) -> asyncio.Task[Command]:
    """Send a message, and return when the master's disk and the slave have it and the slave has not reported it."""
    before = master.store.end_offset
    sent = asyncio.ensure_future(send(client, master.address))
    await until_async(lambda: master.store.end_offset > before, "the message is stored")
    await until_async(lambda: master.store.flushed.value == master.store.end_offset, "the disk has the message")
    await slave.take(master.store.end_offset)
    return sent


async def test_with_zero_loss_consumers_read_a_message_when_the_slave_has_it(tmp_path: Path) -> None:
    async with (
        master_of(tmp_path, **ZERO_LOSS) as (master, slave),
        RemotingClient() as client,
        RemotingClient() as reader,
    ):
        # The first pulls of a consumer are served by the handler, the later ones by runs.
        for number in range(5):
            sent = await send_uncopied(client, master, slave)
            held = asyncio.ensure_future(pull(reader, master.address, queue_offset=number, **HELD))
            at_once = await pull(reader, master.address, queue_offset=number)
            assert at_once.code == ResponseCode.PULL_NOT_FOUND
            assert read_reply(RequestCode.PULL_MESSAGE, at_once).max_offset == number
            assert await max_offset(client, master) == number
            assert not held.done()
            assert not sent.done()
            await slave.report()
            found = await held
            assert (await sent).code == found.code == ResponseCode.SUCCESS
            assert read_reply(RequestCode.PULL_MESSAGE, found).max_offset == number + 1
            assert await max_offset(client, master) == number + 1


async def test_a_message_that_nobody_waits_for_is_read_when_a_slave_has_it(tmp_path: Path) -> None:
    async with master_of(tmp_path, **ZERO_LOSS) as (master, slave), RemotingClient() as client:
        reply = await send(client, master.address, properties="WAIT\x01false\x02")
        assert reply.code == ResponseCode.SUCCESS
        await until_async(lambda: master.store.flushed.value == master.store.end_offset > 0, "flushed")
        assert await max_offset(client, master) == 0
        await slave.take(master.store.end_offset)
        await slave.report()
        assert (await pull(client, master.address, **HELD)).code == ResponseCode.SUCCESS


async def test_a_master_with_zero_loss_that_stops_before_the_copy_shows_the_message_after_its_start(
    tmp_path: Path,
) -> None:
    async with master_of(tmp_path, **ZERO_LOSS) as (master, slave), RemotingClient() as client:
        sent = await send_uncopied(client, master, slave)
        sent.cancel()
    async with master_of(tmp_path, **ZERO_LOSS) as (master, _), RemotingClient() as client:
        assert not master.store.unclean
        assert master.store.report.clean
        assert await max_offset(client, master) == 1


async def test_without_zero_loss_consumers_read_a_message_at_once(tmp_path: Path) -> None:
    async with master_of(tmp_path, flush_disk_type="SYNC_FLUSH") as (master, slave), RemotingClient() as client:
        sent = await send_uncopied(client, master, slave)
        assert (await pull(client, master.address, **HELD)).code == ResponseCode.SUCCESS
        assert not sent.done()
        await slave.report()
        assert (await sent).code == ResponseCode.SUCCESS
