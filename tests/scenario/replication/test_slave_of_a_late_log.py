"""The minimum offsets that a slave reports when it starts in the middle of its master's log."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from small_broker import ask, name_server, pull, run, send, small_broker

from tianzhou.broker.server import Broker
from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
from tianzhou.model import ConsumeFromWhere
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.offsets import CONSUME_STATS, TOPIC_STATS
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.fields import read_reply
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
MESSAGES = 400


def broker(folder: Path, namesrv: str, role: str, broker_id: int) -> Broker:
    store = {"broker_role": role, "store_path_root_dir": str(folder / role), "sync_from_last_file": True}
    # A slave that corrects offsets answers pulls below its queues' beginning like a master.
    store["offset_check_in_slave"] = True
    return small_broker(folder / role, store, namesrv_addr=namesrv, broker_id=broker_id)


async def prove_late(client: RemotingClient, slave: Broker) -> int:
    """Check the slave's replies about its late queue, and return the offset at which the queue begins."""
    queue = {"topic": "T", "queue_id": 0}
    begin = int(read_reply(31, await ask(client, slave.address, RequestCode.GET_MIN_OFFSET, **queue)).offset)
    assert 200 < begin < MESSAGES
    reply = await ask(client, slave.address, RequestCode.GET_MAX_OFFSET, **queue)
    assert int(read_reply(30, reply).offset) == MESSAGES
    for below in (0, begin - 1):
        moved = await pull(client, slave.address, queue_offset=below)
        head = read_reply(11, moved)
        assert moved.code == ResponseCode.PULL_OFFSET_MOVED
        assert (moved.remark, head.next_begin_offset) == ("OFFSET_TOO_SMALL", begin)
        assert (head.min_offset, head.max_offset) == (begin, MESSAGES)
    assert (await pull(client, slave.address, queue_offset=begin)).code == ResponseCode.SUCCESS
    empty = await pull(client, slave.address, queue_id=3, queue_offset=5)
    assert (empty.code, empty.remark) == (ResponseCode.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE")
    assert (await pull(client, slave.address, queue_id=3)).code == ResponseCode.PULL_NOT_FOUND
    for boundary in ("LOWER", "UPPER"):
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        found = await ask(client, slave.address, code, timestamp=1, boundary_type=boundary, **queue)
        assert int(read_reply(29, found).offset) == begin
    first = await ask(client, slave.address, RequestCode.GET_EARLIEST_MSG_STORETIME, **queue)
    assert int(read_reply(32, first).timestamp) > 0
    return begin


async def test_its_queues_begin_with_their_first_record(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        client = await stack.enter_async_context(RemotingClient())
        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master:
            await master.ready()
            for number in range(MESSAGES):
                reply = await send(client, master.address, b"%d " % number * 2_000, default_topic_queue_nums=4)
                assert reply.code == ResponseCode.SUCCESS
            async with broker(tmp_path, namesrv, "SLAVE", 1) as slave:
                await slave.ready()
                await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied")
                await until_async(lambda: "T" in slave.tables.topics, "the topic is known to the slave")
                await until_async(lambda: slave.store.max_offset("T", 0) == MESSAGES, "dispatched")
                assert slave.store.begin_offset > 0
        begins = []
        for group in ("g1", "g2"):
            async with broker(tmp_path, namesrv, "SLAVE", 1) as slave:
                await slave.ready()
                begins.append(await prove_late(client, slave))
                async with PullConsumer(group, namesrv, consume_from_where=FIRST) as consumer:
                    (queue,) = [queue for queue in await consumer.queues("T") if queue.queue_id == 0]
                    consumer.assign([queue])
                    messages = await consumer.poll(5_000)
                    assert messages[0].queue_offset == begins[0]
                stats = await ask(client, slave.address, RequestCode.GET_TOPIC_STATS_INFO, topic="T")
                row = TOPIC_STATS.loads(stats.body).offset_table[queue]
                assert (row.min_offset, row.max_offset) == (begins[0], MESSAGES)
                stored = partial(slave.tables.offsets.committed, group, "T", 0)
                await until_async(stored, "the slave has the commit")
                lag = await ask(client, slave.address, RequestCode.GET_CONSUME_STATS, consumer_group=group, topic="T")
                progress = CONSUME_STATS.loads(lag.body).offset_table[queue]
                assert begins[0] <= progress.consumer_offset <= progress.broker_offset == MESSAGES
        assert begins[0] == begins[1]
