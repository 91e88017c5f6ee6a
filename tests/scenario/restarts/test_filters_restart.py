"""SQL92 subscriptions over the restart of a whole broker with queue extensions, over loopback."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from small_broker import ask, pull, run, send, small_broker

from tianzhou.broker.server import Broker
from tianzhou.model import ConsumerData, HeartbeatData, SubscriptionData
from tianzhou.records.codec import decode_records
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.heartbeat import HEARTBEAT


def broker_in(folder: Path, **settings: Any) -> Broker:
    store = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 1 << 16}
    return small_broker(folder, store, enable_property_filter=True, enable_calc_filter_bit_map=True, **settings)


async def send_numbered(client: RemotingClient, address: str, number: int) -> None:
    properties = f"UNIQ_KEY\x01U{number}\x02n\x01{number}\x02"
    assert (await send(client, address, b"%d" % number, properties=properties)).code == 0


async def announce(client: RemotingClient, address: str, expression: str, version: int) -> None:
    wish = SubscriptionData("T", expression, expression_type="SQL92", sub_version=version)
    said = HeartbeatData("c1", [], [ConsumerData("G", subscription_data_set=[wish])])
    assert (await ask(client, address, 34, HEARTBEAT.dumps(said))).code == 0


async def numbers(client: RemotingClient, address: str, version: int) -> list[int]:
    reply = await pull(client, address, sys_flag=0, subscription=None, sub_version=version)
    assert reply.code in (0, 20), reply.remark
    return [int(record.body) for record in decode_records(reply.body)]


@pytest.mark.runner.with_args(run)
async def test_what_groups_want_survives_a_restart(tmp_path: Path) -> None:
    async with RemotingClient() as client:
        async with broker_in(tmp_path) as broker:
            await send_numbered(client, broker.address, 0)
            await announce(client, broker.address, "n > 2", 7)
            await asyncio.sleep(0.01)  # bits are valid from the next millisecond on
            for number in range(1, 6):
                await send_numbered(client, broker.address, number)
            assert await numbers(client, broker.address, 7) == [3, 4, 5]
        table = json.loads((tmp_path / "broker-a" / "config" / "consumerFilter.json").read_text())
        kept = table["filterDataByTopic"]["T"]["groupFilterData"]["G"]
        assert (kept["expression"], kept["clientVersion"], kept["bloomFilterData"]["bitNum"]) == ("n > 2", 7, 112)
        async with broker_in(tmp_path) as broker:
            entry = broker.tables.filters.find("T", "G")
            assert entry is not None
            assert entry.dead
            # Its members are offline, but stored messages still get their bits.
            await send_numbered(client, broker.address, 1)
            await send_numbered(client, broker.address, 9)
            await announce(client, broker.address, "n > 2", 7)
            assert not entry.dead
            assert await numbers(client, broker.address, 7) == [3, 4, 5, 9]
            await announce(client, broker.address, "n < 2", 8)
            assert await numbers(client, broker.address, 8) == [0, 1, 1]
        async with broker_in(tmp_path, expect_consumer_num_use_filter=64) as broker:
            # Bits of another size are invalid, so each message is filtered by its own properties.
            assert broker.tables.filters.find("T", "G") is None
            await announce(client, broker.address, "n < 2", 9)
            await send_numbered(client, broker.address, 1)
            assert await numbers(client, broker.address, 9) == [0, 1, 1, 1]
