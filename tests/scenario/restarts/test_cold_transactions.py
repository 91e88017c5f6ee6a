"""Transactions whose half messages are not in memory: a broker serves all other requests while it reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from small_broker import ask, send, small_broker

from store_reads import read_now
from tianzhou.broker.server import Broker
from tianzhou.model import HeartbeatData
from tianzhou.remoting.client import RemotingClient
from tianzhou.testing.cold_disk import ColdDisk
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, read_reply
from tianzhou.wire.ids import parse_offset_msg_id
from waiting import until_async

COMMIT, ROLLBACK = 8, 12
HALVES = 30
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


class Half(NamedTuple):
    """A producer's identifiers of its half message."""

    number: int
    place: int
    offset: int


class World:
    """A broker with half messages on a disk that can evict files from memory."""

    def __init__(self, broker: Broker, client: RemotingClient, disk: ColdDisk, halves: list[Half]) -> None:
        self.broker = broker
        self.client = client
        self.disk = disk
        self.halves = halves

    async def ask(self, code: int, body: bytes = b"", **header: Any) -> Command:
        return await ask(self.client, self.broker.address, code, body, **header)

    async def end(self, half: Half, outcome: int, *, check: bool = False) -> Command:
        return await self.ask(
            RequestCode.END_TRANSACTION, producer_group="P", tran_state_table_offset=half.offset,
            commit_log_offset=half.place, commit_or_rollback=outcome, from_transaction_check=check,
            msg_id=f"U{half.number}", transaction_id=f"U{half.number}",
        )  # fmt: skip

    def forget(self, files: int) -> None:
        """Evict the first segments of the log, the queues and the index from memory."""
        store = self.broker.store_settings.root
        for path in sorted((store / "commitlog").iterdir())[:files]:
            assert self.disk.take(path)
        for path in (store / "index").iterdir():
            self.disk.take(path, 4096)

    async def others_are_served(self) -> None:
        """Check that a message is stored, in its order, while a read waits at the gate."""
        await until_async(lambda: self.disk.waiting > 0, every_s=0.001)
        assert (await send(self.client, self.broker.address, b"x" * 900, topic="Hot")).code == ResponseCode.SUCCESS

    def committed(self) -> list[bytes]:
        """Return the keys of the messages that can be consumed."""
        found = read_now(self.broker.store, "T", 0, 0, 32)
        return [bytes(part) for part in found.parts]


@asynccontextmanager
async def on_a_cold_disk(folder: Path, asked: list[Command] | None = None, **settings: Any) -> AsyncIterator[World]:
    """Yield a broker that has half messages in its first segments of 16 KiB."""
    store = {
        "store_path_root_dir": str(folder / "store"), "mapped_file_size_commit_log": 16 << 10,
        "max_hash_slot_num": 4000, "delete_when": "", "clean_file_forcibly_enable": False,
    }  # fmt: skip
    with ColdDisk().installed() as disk:
        async with small_broker(folder, store, **settings) as broker, RemotingClient(_noting(asked)) as client:
            halves = []
            for number in range(HALVES):
                properties = f"UNIQ_KEY\x01U{number}\x02TRAN_MSG\x01true\x02PGROUP\x01P\x02"
                reply = await send(client, broker.address, b"x" * 900, properties=properties, sys_flag=4)
                assert reply.code == ResponseCode.SUCCESS, reply.remark
                told = read_reply(RequestCode.SEND_MESSAGE_V2, reply)
                halves.append(Half(number, parse_offset_msg_id(told.msg_id)[2], told.queue_offset))
            assert halves[-1].place > 2 * (16 << 10)
            try:
                async with asyncio.timeout(60):
                    yield World(broker, client, disk, halves)
            finally:
                disk.open()


def _noting(asked: list[Command] | None) -> Any:
    def note(_: Any, command: Command) -> None:
        assert asked is not None
        command.body = bytes(command.body)
        asked.append(command)

    return note if asked is not None else None


async def test_a_decision_about_a_cold_message_holds_up_nobody_and_is_made_once(tmp_path: Path) -> None:
    async with on_a_cold_disk(tmp_path) as world:
        world.forget(2)
        world.disk.shut()
        cold = world.halves[0]
        deciding = [asyncio.ensure_future(world.end(cold, outcome)) for outcome in (COMMIT, ROLLBACK, COMMIT)]
        await world.others_are_served()
        # A decision about a half message in memory is made immediately, before those about others.
        assert (await world.end(world.halves[-1], COMMIT)).code == ResponseCode.SUCCESS
        assert not any(task.done() for task in deciding)
        world.disk.open()
        codes = [(await task).code for task in deciding]
        assert sorted(codes) in ([0, 0, 1], [0, 1, 1])
        rolled_back = codes[1] == 0
        assert len(world.committed()) == (1 if rolled_back else 2)
        assert sum(b"U0\x02" in message for message in world.committed()) == (not rolled_back)
        assert world.disk.fetches


async def test_a_disk_that_cannot_be_read_leaves_the_decision_open(tmp_path: Path) -> None:
    async with on_a_cold_disk(tmp_path) as world:
        world.forget(2)
        world.disk.broken = True
        refused = await world.end(world.halves[0], COMMIT)
        assert refused.code != ResponseCode.SUCCESS
        assert "cannot be read" in (refused.remark or "")
        world.disk.broken = False
        assert (await world.end(world.halves[0], COMMIT)).code == ResponseCode.SUCCESS
        assert len(world.committed()) == 1


async def test_checks_of_cold_messages_hold_up_nobody(tmp_path: Path) -> None:
    asked: list[Command] = []

    async with on_a_cold_disk(tmp_path, asked, transaction_time_out=1, transaction_check_interval=300) as world:
        world.forget(2)
        world.disk.shut()
        said = HeartbeatData("c1", ["P"], [])
        assert (await world.ask(RequestCode.HEART_BEAT, HEARTBEAT.dumps(said))).code == ResponseCode.SUCCESS
        await world.others_are_served()
        decided = asyncio.ensure_future(world.end(world.halves[0], ROLLBACK))
        world.disk.open()
        assert (await decided).code == ResponseCode.SUCCESS
        await until_async(lambda: len(asked) >= HALVES - 1)
        keys = [read_header(command).msg_id for command in asked]
        assert {f"U{half.number}" for half in world.halves[1:]} <= set(keys)
        assert world.disk.fetches
        for command in asked[-3:]:
            header = read_header(command)
            half = Half(int(header.msg_id[1:]), header.commit_log_offset, header.tran_state_table_offset)
            assert (await world.end(half, COMMIT, check=True)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("cold", [False, True])
async def test_a_message_put_aside_is_resumed_from_a_cold_disk(tmp_path: Path, *, cold: bool) -> None:
    async with on_a_cold_disk(
        tmp_path, transaction_time_out=1, transaction_check_interval=300, transaction_check_max=0
    ) as world:
        said = HeartbeatData("c1", ["P"], [])
        assert (await world.ask(RequestCode.HEART_BEAT, HEARTBEAT.dumps(said))).code == ResponseCode.SUCCESS
        store = world.broker.store
        await until_async(lambda: store.max_offset(GIVEN_UP, 0) == HALVES)
        place, _, _ = store.queue_unit(GIVEN_UP, 0, 0) or (-1, 0, 0)
        world.broker.settings.transaction_check_interval = 3_600_000
        if cold:
            for _ in range(20):
                await send(world.client, world.broker.address, b"x" * 900, topic="Hot")
            world.forget(place // (16 << 10) + 1)
            world.disk.shut()
        msg_id = f"7F000001{world.broker.port:08X}{place:016X}"
        resuming = [asyncio.ensure_future(world.ask(323, msg_id=msg_id, topic=GIVEN_UP)) for _ in range(2)]
        if cold:
            await world.others_are_served()
        world.disk.open()
        codes = sorted([(await task).code for task in resuming])
        assert codes == [ResponseCode.SUCCESS, ResponseCode.ILLEGAL_OPERATION]
        assert bool(world.disk.fetches) == cold
