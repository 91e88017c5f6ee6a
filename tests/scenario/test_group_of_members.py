"""Three members of a DLedger group in one process: what clients see that still talk to a member that does not lead."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from small_broker import ask, pull, run, send, small_broker

from tianzhou.broker.server import Broker
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.fields import read_reply
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@asynccontextmanager
async def members(folder: Path) -> AsyncIterator[tuple[Broker, list[Broker]]]:
    """The leader, and the others."""
    peers = ";".join(f"n{n}-127.0.0.1:{port}" for n, port in enumerate(free_ports(3)))
    async with AsyncExitStack() as stack:
        all_ = []
        for n in range(3):
            store = {
                "enable_d_leger_commit_log": True, "d_leger_group": "broker-a", "d_leger_peers": peers,
                "d_leger_self_id": f"n{n}", "d_leger_heart_beat_time_interval_ms": 200,
                "d_leger_min_vote_interval_ms": 50, "d_leger_max_vote_interval_ms": 200,
                "store_path_root_dir": str(folder / f"n{n}" / "store"),
            }  # fmt: skip
            all_.append(await stack.enter_async_context(small_broker(folder / f"n{n}", store)))
        await until_async(lambda: any(not one.replication.is_slave for one in all_), "a leader")
        leader = next(one for one in all_ if not one.replication.is_slave)
        yield leader, [one for one in all_ if one is not leader]


async def test_an_offset_that_is_committed_at_a_follower_reaches_the_leader(tmp_path: Path) -> None:
    """Members of a group commit where they were told that the master is, which may not lead any more."""
    async with members(tmp_path) as (leader, others), RemotingClient() as client:
        for _ in range(3):
            assert (await send(client, leader.address)).code == ResponseCode.SUCCESS
        assert (await pull(client, leader.address)).code == ResponseCode.SUCCESS
        place = {"consumer_group": "G", "topic": "T", "queue_id": 0}
        await ask(client, leader.address, RequestCode.UPDATE_CONSUMER_OFFSET, **place, commit_offset=1)
        await until_async(lambda: others[0].tables.offsets.committed("G", "T", 0) == 1, "taken over")
        await until_async(lambda: others[0].tables.groups.get("G") is not None, "taken over")
        await ask(client, others[0].address, RequestCode.UPDATE_CONSUMER_OFFSET, **place, commit_offset=3)
        await until_async(lambda: leader.tables.offsets.committed("G", "T", 0) == 3, "handed over")
        await until_async(lambda: others[1].tables.offsets.committed("G", "T", 0) == 3, "taken over")


async def test_a_follower_does_not_send_a_group_back_that_is_ahead_of_it(tmp_path: Path) -> None:
    """A follower learns later what is committed; one that has just started knows of nothing at first."""
    async with members(tmp_path) as (leader, others), RemotingClient() as client:
        assert (await send(client, leader.address)).code == ResponseCode.SUCCESS
        await until_async(lambda: others[0].store.max_offset("T", 0) == 1, "copied")
        await until_async(lambda: others[0].tables.topics.get("T") is not None, "topics")
        for offset in (1, 7):
            reply = await pull(client, others[0].address, queue_offset=offset)
            assert (reply.code, read_reply(RequestCode.PULL_MESSAGE, reply).next_begin_offset) == (
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                offset,
            )
        reply = await pull(client, leader.address, queue_offset=7)
        assert reply.code == ResponseCode.PULL_OFFSET_MOVED
