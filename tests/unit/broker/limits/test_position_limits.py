"""Consumer offsets and queue locks above their limits."""

from __future__ import annotations

from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from broker_probe import BrokerProbe
from tianzhou.model import MessageQueue
from tianzhou.wire.bodies.clients import LOCK_REQUEST, LOCKED_QUEUES, LockRequest
from tianzhou.wire.codes import RequestCode, ResponseCode

REFUSED = ResponseCode.INVALID_PARAMETER


@pytest.mark.over_limit("maxConsumerOffsets")
@pytest.mark.parametrize("door", ["15", "pull", "314", "222"])
async def test_offsets_come_to_an_end_at_every_door(bench: Bench, peer: Peer, door: str) -> None:
    await peer.create_topic("T", 4)
    await peer.create_group("G")
    await peer.create_group("H")

    def commit(queue_id: int, group: str = "G") -> Any:
        return peer.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumer_group=group, topic="T", queue_id=queue_id, commit_offset=7
        )

    assert [(await commit(n)).code for n in range(2)] == [0, 0]
    # Several are requested, but there is space for one: all or none.
    bench.settings.max_consumer_offsets = 2 if door in ("15", "pull") else 3
    if door == "15":
        reply = await commit(2)
    elif door == "pull":
        reply = await peer.pull("T", queue_id=2, sys_flag=5, commit_offset=7)
    elif door == "314":
        reply = await peer.ask(RequestCode.CLONE_GROUP_OFFSET, src_group="G", dest_group="H", topic="T", offline=True)
    else:
        reply = await peer.ask(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, group="H", topic="T", timestamp=-1, is_force=True
        )
    assert reply.code == REFUSED
    assert "raise maxConsumerOffsets" in reply.remark
    assert not bench.tables.offsets.reset_waits("H", "T", 0)
    assert not bench.tables.offsets.queues("H", "T")
    assert (await commit(1)).code == 0
    await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    await peer.create_topic("T", 4)
    assert (await commit(2)).code == 0


@pytest.mark.over_limit("maxBroadcastOffsets")
async def test_offsets_of_broadcast_consumers_come_to_an_end(broker: OpenBench) -> None:
    async with broker(max_broadcast_offsets=2) as bench:
        peer = bench.peer()
        await peer.create_topic("T")

        def pull(client: str) -> Any:
            fields = {"request_source": 1, "proxy_froward_client_id": client}
            return peer.pull("T", 1, consumer_group="G", sys_flag=4, **fields)

        codes = [(await pull(f"c{n}")).code for n in range(3)]
        assert codes[2] == REFUSED
        assert REFUSED not in codes[:2]
        assert (await pull("c1")).code != REFUSED
        assert await peer.refused() == {"maxBroadcastOffsets": "1"}
        bench.clock.advance(1_000)
        bench.parts.housekeeping.commit_broadcasts()
        assert (await pull("c2")).code != REFUSED


async def test_a_full_table_of_offsets_does_not_stop_the_brokers_own_work(bench: Bench) -> None:
    peer, tables = bench.peer(), bench.tables
    await peer.create_topic("T")
    bench.settings.max_consumer_offsets = 0
    await peer.pull("T", 1, sys_flag=4, request_source=1, proxy_froward_client_id="c")
    bench.parts.housekeeping.sweep()
    assert await peer.refused() == {"maxConsumerOffsets": "1"}
    tables.offsets.commit("own", "T", 0, 5, 1, bounded=False)
    assert tables.offsets.committed("own", "T", 0) == 5


def lock(peer: Peer, group: str, *numbers: int, client: str = "c") -> Any:
    queues = [MessageQueue("T", "broker-a", number) for number in numbers]
    return peer.ask(RequestCode.LOCK_BATCH_MQ, LOCK_REQUEST.dumps(LockRequest(client, group, queues)))


@pytest.mark.over_limit("maxLocksPerGroup")
@pytest.mark.over_limit("maxLocks")
@pytest.mark.parametrize(("key", "name"), [("max_locks_per_group", "maxLocksPerGroup"), ("max_locks", "maxLocks")])
async def test_locks_of_who_never_registered_come_to_an_end_and_go_with_time(
    broker: OpenBench, key: str, name: str
) -> None:
    async with broker(**{key: 2}) as bench:
        peer = bench.peer()
        assert (await lock(peer, "G", 0, 1)).code == 0
        reply = await lock(peer, "G", 2, 1)
        assert (reply.code, f"raise {name}" in reply.remark) == (REFUSED, True)
        assert [one.queue_id for one in LOCKED_QUEUES.loads((await lock(peer, "G", 0, 1)).body)] == [0, 1]
        bench.clock.advance(61)
        assert [one.queue_id for one in LOCKED_QUEUES.loads((await lock(peer, "G", 2, 3)).body)] == [2, 3]
        assert (await peer.ask(RequestCode.UNLOCK_BATCH_MQ, LOCK_REQUEST.dumps(
            LockRequest("c", "G", [MessageQueue("T", "broker-a", 3)])
        ))).code == 0  # fmt: skip
        assert (await lock(peer, "G", 4)).code == 0
        assert await peer.refused() == {name: "1"}
        bench.clock.advance(61)
        bench.parts.housekeeping.sweep()
        assert not BrokerProbe(tables=bench.tables).locked_groups


async def test_groups_that_lock_nothing_leave_nothing(bench: Bench, peer: Peer) -> None:
    for n in range(5):
        assert (await lock(peer, f"G{n}")).code == 0
    assert not BrokerProbe(tables=bench.tables).locked_groups
