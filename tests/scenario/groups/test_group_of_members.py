"""Three members of a DLedger group in one process, with clients that still use a member that does not lead."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path

import pytest
from small_broker import ask, pull, run, send, small_broker

from server_ports import server_ports
from tianzhou.broker.replication.group import GroupReplication
from tianzhou.broker.server import Broker
from tianzhou.model.names import UNDELIVERABLE_TOPIC
from tianzhou.records.codec import decode_record
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.fields import read_reply
from tianzhou.wire.ids import offset_msg_id
from tianzhou.wire.pulled import decode_messages
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)
HEARTBEAT_MS = 1_000
"""A member whose process gets no processor for some hundred ms is still the leader."""


@asynccontextmanager
async def members(folder: Path, **more: object) -> AsyncIterator[tuple[Broker, list[Broker]]]:
    """Yield the leader, and the others; `more` are further settings of their stores."""
    peers = ";".join(f"n{n}-127.0.0.1:{port}" for n, port in enumerate(server_ports() for _ in range(3)))
    async with AsyncExitStack() as stack:
        all_ = []
        for n in range(3):
            store = {
                "enable_d_leger_commit_log": True, "d_leger_group": "broker-a", "d_leger_peers": peers,
                "d_leger_self_id": f"n{n}", "d_leger_heart_beat_time_interval_ms": HEARTBEAT_MS,
                "d_leger_min_vote_interval_ms": 50, "d_leger_max_vote_interval_ms": 200,
                "store_path_root_dir": str(folder / f"n{n}" / "store"), **more,
            }  # fmt: skip
            all_.append(await stack.enter_async_context(small_broker(folder / f"n{n}", store)))
        await until_async(lambda: any(not one.replication.is_slave for one in all_), "a leader")
        leader = next(one for one in all_ if not one.replication.is_slave)
        yield leader, [one for one in all_ if one is not leader]


async def test_an_offset_that_is_committed_at_a_follower_reaches_the_leader(tmp_path: Path) -> None:
    """Members of a consumer group commit at their last known master, which may not lead any more."""
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


async def test_a_member_that_has_heard_from_no_leader_since_its_start_answers_no_offsets_and_no_pulls(
    tmp_path: Path,
) -> None:
    """Its folder may be that of another group, whose offsets would make consumers skip messages."""
    place = {"consumer_group": "G", "topic": "T", "queue_id": 0}
    async with members(tmp_path) as (leader, others), RemotingClient() as client:
        assert (await send(client, leader.address)).code == ResponseCode.SUCCESS
        assert (await pull(client, leader.address)).code == ResponseCode.SUCCESS
        await ask(client, leader.address, RequestCode.UPDATE_CONSUMER_OFFSET, **place, commit_offset=1)
        follower = others[0]
        await until_async(lambda: follower.tables.offsets.committed("G", "T", 0) == 1, "taken over")
        reply = await ask(client, follower.address, RequestCode.QUERY_CONSUMER_OFFSET, **place)
        assert (reply.code, reply.fields["offset"]) == (ResponseCode.SUCCESS, "1")
        settings = follower.store.settings
    name = settings.d_leger_self_id
    store = {field.name: getattr(settings, field.name) for field in fields(settings)}
    async with small_broker(tmp_path / name, store) as alone, RemotingClient() as client:
        assert alone.tables.offsets.committed("G", "T", 0) == 1
        reply = await ask(client, alone.address, RequestCode.QUERY_CONSUMER_OFFSET, **place)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "has not heard from a leader since its start" in (reply.remark or "")
        assert (await pull(client, alone.address)).code == ResponseCode.SYSTEM_BUSY


async def test_a_follower_does_not_send_a_group_back_that_is_ahead_of_it(tmp_path: Path) -> None:
    """A follower learns the commit position later, and just after its start it knows none."""
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


def log_of(folder: Path) -> Path:
    """Return the one segment of a member's log."""
    (segment,) = (folder / "store" / f"dledger-{folder.name}" / "data").iterdir()
    return segment


def break_message(folder: Path, number: int) -> None:
    segment = log_of(folder)
    data = bytearray(segment.read_bytes())
    data[data.index(b"body of %02d" % number)] ^= 1
    segment.write_bytes(data)


async def bodies(client: RemotingClient, address: str) -> list[bytes]:
    found: list[bytes] = []
    for offset in range(20):
        reply = await pull(client, address, queue_offset=offset, max_msg_nums=1)
        if reply.code == ResponseCode.SUCCESS:
            found += [message.body for message in decode_messages(reply.body, "b")]
    return found


@pytest.mark.parametrize("preferred", ["n0", "n1"])
async def test_broken_messages_of_any_member_are_fetched_from_the_others(tmp_path: Path, preferred: str) -> None:
    """Whether the member with the broken ones leads or follows, and without a name server."""
    expected = [b"body of %02d" % number for number in range(20)]
    async with members(tmp_path) as (leader, others), RemotingClient() as client:
        for body in expected:
            assert (await send(client, leader.address, body)).code == ResponseCode.SUCCESS
        for one in others:
            await until_async(lambda one=one: one.store.max_offset("T", 0) == 20, "copied")  # type: ignore[misc]
    for number in (3, 11):
        break_message(tmp_path / "n0", number)
    async with members(tmp_path, preferred_leader_id=preferred) as (leader, others), RemotingClient() as client:
        await until_async(lambda: leader.tables.topics.get("T") is not None)
        broken = next(one for one in [leader, *others] if one.store.settings.d_leger_self_id == "n0")
        await until_async(lambda: broken.store.max_offset("T", 0) == 20)
        await until_async(lambda: broken.replication.holders, "others are known")
        assert await bodies(client, broken.address) == expected
        assert (broken.store.damage.put_right, broken.store.damage.stretches) == (2, 0)


async def test_a_leader_gives_no_broken_message_to_a_member_that_begins_anew(tmp_path: Path) -> None:
    async with members(tmp_path) as (leader, others), RemotingClient() as client:
        for number in range(20):
            assert (await send(client, leader.address, b"body of %02d" % number)).code == ResponseCode.SUCCESS
        for one in others:
            await until_async(lambda one=one: one.store.max_offset("T", 0) == 20, "copied")  # type: ignore[misc]
        leads = leader.store.settings.d_leger_self_id
    break_message(tmp_path / leads, 5)
    anew = next(name for name in ("n0", "n1", "n2") if name != leads)
    shutil.rmtree(tmp_path / anew / "store")
    async with members(tmp_path, preferred_leader_id=leads) as (leader, others):
        copy = next(one for one in [leader, *others] if one.store.settings.d_leger_self_id == anew)
        await until_async(lambda: copy.store.max_offset("T", 0) == 20, "copied")
    log = log_of(tmp_path / anew).read_bytes()
    assert all(b"body of %02d" % number in log for number in range(20))


async def test_a_member_whose_last_entries_are_broken_neither_leads_nor_loses_any(tmp_path: Path) -> None:
    async with members(tmp_path) as (leader, others), RemotingClient() as client:
        for number in range(20):
            assert (await send(client, leader.address, b"body of %02d" % number)).code == ResponseCode.SUCCESS
        for one in others:
            await until_async(lambda one=one: one.store.max_offset("T", 0) == 20, "copied")  # type: ignore[misc]
        name = leader.store.settings.d_leger_self_id
    for number in (18, 19):
        break_message(tmp_path / name, number)
    async with members(tmp_path, preferred_leader_id=name) as (leader, others), RemotingClient() as client:
        everybody = [leader, *others]
        broken = next(one for one in everybody if one.store.settings.d_leger_self_id == name)
        for one in everybody:
            await until_async(lambda one=one: one.store.max_offset("T", 0) == 20, "all")  # type: ignore[misc]
        await until_async(lambda: broken.replication.holders, "others are known")
        for one in everybody:
            await until_async(lambda one=one: one.tables.topics.get("T") is not None)  # type: ignore[misc]
            assert await bodies(client, one.address) == [b"body of %02d" % number for number in range(20)]


async def test_a_leader_that_was_late_for_a_moment_takes_messages_again(tmp_path: Path) -> None:
    """After a pause of its process it detects that it waited too long, and then reads the requests that came
    meanwhile.
    """
    async with members(tmp_path) as (leader, _), RemotingClient() as client:
        assert (await send(client, leader.address)).code == ResponseCode.SUCCESS
        assert isinstance(leader.replication, GroupReplication)
        node = leader.replication.node
        serving = node.standing
        node._stand(replace(serving, serving=False))
        node._stand(serving)
        assert not leader.store.writable
        await until_async(lambda: leader.store.writable, "it takes messages")
        assert (await send(client, leader.address)).code == ResponseCode.SUCCESS


async def test_messages_that_a_leader_has_set_aside_are_known_to_the_next_one(tmp_path: Path) -> None:
    async with members(tmp_path) as (leader, others), RemotingClient() as client:
        delayed = "DELAY\x011\x02UNIQ_KEY\x01{}\x02"
        for key, size in (("large", 5_000), ("small", 10)):
            properties = delayed.format(key)
            assert (await send(client, leader.address, b"x" * size, properties=properties)).code == ResponseCode.SUCCESS
        leader.store_settings.max_message_size = 1_000
        await until_async(lambda: leader.store.max_offset("T", 0) == 1, "the small one is delivered")
        assert len(leader.tables.undeliverable) == 1
        await until_async(
            lambda: all(one.store.max_offset(UNDELIVERABLE_TOPIC, 0) == 1 for one in others), "all members have it"
        )
        assert [len(one.tables.undeliverable) for one in others] == [0, 0], "only a master counts"
        await leader.replication.leave()
        await until_async(lambda: any(not one.replication.is_slave for one in others), "another leader")
        following = next(one for one in others if not one.replication.is_slave)
        assert len(following.tables.undeliverable) == 1
        reply = await ask(
            client, following.address, RequestCode.PULL_MESSAGE, consumer_group="TOOLS_CONSUMER",
            topic=UNDELIVERABLE_TOPIC, queue_id=0, queue_offset=0, max_msg_nums=1, sys_flag=4, commit_offset=0,
            suspend_timeout_millis=0, subscription="*", sub_version=0,
        )  # fmt: skip
        record = decode_record(reply.body)
        msg_id = offset_msg_id(record.store_host, record.store_port, record.physical_offset)
        assert (await ask(client, following.address, 323, msg_id=msg_id)).code == ResponseCode.SUCCESS
        await until_async(lambda: following.store.max_offset("T", 0) == 2, "it is delivered")
        assert len(following.tables.undeliverable) == 0
