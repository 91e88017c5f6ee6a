"""Requests that are refused because the broker is too busy, and deletions on request (broker.md §6, store.md §12)."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_bench import Bench, OpenBench, Peer

from store_probe import StoreProbe
from tianzhou.broker.overload import too_many_waiting, waited_too_long
from tianzhou.broker.settings import BrokerSettings
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.store.files.segments import Segment
from tianzhou.testing.clock import VirtualClock, run
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command, decode, encode
from tianzhou.wire.fields import read_reply


@pytest.mark.parametrize(
    ("code", "waited", "key"),
    [
        (310, 200, None),
        (310, 201, "waitTimeMillsInSendQueue=200"),
        (10, 500, "waitTimeMillsInSendQueue=200"),
        (320, 500, "waitTimeMillsInSendQueue=200"),
        (36, 500, "waitTimeMillsInSendQueue=200"),
        (11, 4_999, None),
        (11, 5_001, "waitTimeMillsInPullQueue=5000"),
        (34, 5_001, None),
        (34, 31_001, "waitTimeMillsInHeartbeatQueue=31000"),
        (370, 500, "waitTimeMillsInSendQueue=200"),
        (17, 5_001, "waitTimeMillsInAdminBrokerQueue=5000"),
        (41, 5_001, "waitTimeMillsInAdminBrokerQueue=5000"),
        *((code, 60_000, None) for code in (12, 14, 15, 33, 35, 38, 46, 324, 325)),
    ],
)
def test_who_has_waited_too_long_is_refused_with_the_limit(code: int, waited: float, key: str | None) -> None:
    refusal = waited_too_long(code, waited, BrokerSettings())
    if key is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert refusal.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: ")
        assert key in refusal
    assert waited_too_long(code, waited, BrokerSettings(broker_fast_failure_enable=False)) is None


def test_what_a_turn_of_the_loop_comes_to_late_is_refused_and_the_rest_is_not() -> None:
    clock = VirtualClock()
    clock.advance(1)
    served: list[tuple[int, float]] = []

    async def main() -> None:
        def slow(_: Connection, command: Command) -> Command:
            clock.advance(0.15)
            served.append((command.opaque, 0.0))
            return command.reply(0)

        def late(_: Connection, command: Command, waited_s: float) -> Command:
            served.append((command.opaque, round(waited_s, 3)))
            return command.reply(2)

        group = ConnectionGroup(slow, idle_timeout_s=0, clock=clock)
        group.serve_late(late, 0.2)
        group.start()
        transports = [MemoryTransport(Connection(group), ("127.0.0.1", port)) for port in range(1, 5)]
        for number, transport in enumerate(transports):
            transport.feed(encode(Command(1, number)))
        assert served == [(0, 0.0)], "the others take their turns"
        for _ in range(6):
            await asyncio.sleep(0)
        assert served == [(0, 0.0), (1, 0.0), (2, 0.3), (3, 0.3)]
        assert decode(memoryview(bytes(transports[3].written))[4:]).code == 2
        transports[3].feed(encode(Command(1, 9)))
        assert served[-1] == (9, 0.0)
        await group.close(0.1)

    run(main(), clock)


async def test_acknowledgements_that_wait_for_a_slow_disk_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use a real loop, which serves requests while its disk thread waits. A virtual loop does the disk work itself."""
    released = threading.Event()
    original = Segment.sync

    def slow(self: Segment, start: int, end: int) -> None:
        assert released.wait(20)
        original(self, start, end)

    settings = {"send_thread_pool_queue_capacity": 8}
    async with Bench(tmp_path, VirtualClock(), settings, {"flush_disk_type": "SYNC_FLUSH"}) as bench:
        peer = bench.peer()
        monkeypatch.setattr(Segment, "sync", slow)
        waiting = [peer.post_send("T", body=b"x" * 100_000) for _ in range(8)]
        assert all(peer.peek(opaque) is None for opaque in waiting)
        refused = await peer.send("T")
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert refused.remark.startswith("[OVERLOAD]system busy")
        assert "8 messages wait for the disk" in refused.remark
        assert "sendThreadPoolQueueCapacity=8" in refused.remark
        released.set()
        codes = {(await peer.reply(opaque)).code for opaque in waiting}
        assert codes <= {ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT}
        assert (await peer.send("T")).code == ResponseCode.SUCCESS


def test_the_bound_is_named() -> None:
    assert too_many_waiting(9_999, BrokerSettings()) is None
    assert "sendThreadPoolQueueCapacity=10000" in (too_many_waiting(10_000, BrokerSettings()) or "")


async def test_a_disk_that_gives_no_room_refuses_sends_instead_of_stopping_everything(bench: Bench, peer: Peer) -> None:
    assert (await peer.send("T")).code == ResponseCode.SUCCESS
    log = StoreProbe(bench.store).log
    log.stalled = lambda: 1500.0
    codes = [await peer.send("T", body=b"x" * 60_000) for _ in range(3)]
    assert codes[-1].code == ResponseCode.SYSTEM_BUSY
    assert codes[-1].remark.startswith("[PC_SYNCHRONIZED]broker busy, start flow control for a while")
    assert "osPageCacheBusyTimeOutMills=1000" in codes[-1].remark
    assert (await peer.pull("T")).code == ResponseCode.SUCCESS
    log.stalled = lambda: 10.0
    assert (await peer.send("T", body=b"x" * 60_000)).code == ResponseCode.SUCCESS


async def settle(condition: Callable[[], bool]) -> None:
    # The files are removed by a thread, which the virtual clock does not wait for.
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.2)
        time.sleep(0.002)
    raise AssertionError("did not happen")


async def test_deletions_on_request(broker: OpenBench) -> None:
    async with broker(store={"delete_when": "", "flush_commit_log_least_pages": 0}) as bench:
        peer = bench.peer()
        for number in range(60):
            queue_id = 0 if number % 2 else 1
            sent = await peer.send("T", body=b"x" * 60_000, queue_id=queue_id)
            assert sent.code == ResponseCode.SUCCESS, sent.remark
        await peer.send("Gone")
        store = bench.store
        await settle(lambda: store.flushed.value > 3 << 20)
        folder = bench.store_settings.root
        old = bench.clock.now_ms() / 1000 - 100 * 3600
        for path in sorted((folder / "commitlog").iterdir())[:-1]:
            os.utime(path, (old, old))
        assert (await peer.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == ResponseCode.SUCCESS
        await settle(lambda: store.begin_offset > 0)
        await settle(lambda: store.min_offset("T", 0) > 0)
        moved = await peer.pull("T", 0)
        assert moved.code == ResponseCode.PULL_OFFSET_MOVED
        header = read_reply(RequestCode.PULL_MESSAGE, moved)
        assert header.next_begin_offset == header.min_offset == store.min_offset("T", 0)
        assert (await peer.pull("T", header.next_begin_offset)).code == ResponseCode.SUCCESS
        assert (await peer.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == ResponseCode.SUCCESS
        assert store.max_offset("T", 0) == 30
        bench.tables.topics.delete(["Gone"], bench.clock.now_ms())
        assert (await peer.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == ResponseCode.SUCCESS
        assert store.topics() == ["T"]
        await settle(lambda: not (folder / "deleted").exists())
        assert not (folder / "consumequeue" / "Gone").exists()


async def test_queues_taken_from_a_topic_and_given_back_keep_their_messages(bench: Bench, peer: Peer) -> None:

    async def resize(write: int, read: int) -> None:
        reply = await peer.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC, topic="S", default_topic="TBW102", read_queue_nums=read,
            write_queue_nums=write, perm=6, topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
        )  # fmt: skip
        assert reply.code == ResponseCode.SUCCESS

    await resize(4, 4)
    for queue_id in range(4):
        assert (await peer.send("S", f"a{queue_id}".encode(), queue_id=queue_id)).code == ResponseCode.SUCCESS
    await resize(2, 4)
    assert [record.body for record in bench.records("S", 3)] == [b"a3"]
    assert (await peer.pull("S", queue_id=3)).code == ResponseCode.SUCCESS
    await resize(2, 2)
    assert (await peer.pull("S", queue_id=3)).code == ResponseCode.INVALID_PARAMETER
    assert (await peer.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == ResponseCode.SUCCESS
    assert (await peer.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == ResponseCode.SUCCESS
    await resize(4, 4)
    assert (await peer.send("S", b"b3", queue_id=3)).code == ResponseCode.SUCCESS
    assert [record.body for record in bench.records("S", 3)] == [b"a3", b"b3"]


async def test_limits_changed_by_request_count_at_once(broker: OpenBench) -> None:
    async with broker(store={"delete_when": "", "flush_commit_log_least_pages": 0}) as bench:
        peer = bench.peer()

        async def update(text: str) -> Command:
            reply: Command = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, text.encode())
            return reply

        assert (await peer.send("T", body=b"x" * 200)).code == ResponseCode.SUCCESS
        assert (await update("maxMessageSize=100")).code == ResponseCode.SUCCESS
        refused = await peer.send("T", body=b"x" * 200)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert "maxMessageSize is 100" in refused.remark
        for _ in range(40):
            await peer.send("T", body=b"x" * 100, properties={"UNIQ_KEY": "u", "PAD": "p" * 30_000})
        store = bench.store
        await settle(lambda: store.flushed.value > 1 << 20)
        first = bench.store_settings.root / "commitlog" / ("0" * 20)
        ninety_minutes_ago = bench.clock.now_ms() / 1000 - 5400
        os.utime(first, (ninety_minutes_ago, ninety_minutes_ago))
        await asyncio.sleep(120)
        assert store.begin_offset == 0
        every_hour = ";".join(f"{hour:02d}" for hour in range(24))
        assert (await update(f"fileReservedTime=1\ndeleteWhen={every_hour}")).code == ResponseCode.SUCCESS
        await settle(lambda: store.begin_offset > 0)
        refused = await update("deleteWhen=25")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "deleteWhen=25" in (refused.remark or "")
