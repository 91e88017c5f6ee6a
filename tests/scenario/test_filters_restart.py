"""SQL92 subscriptions over the restart of a whole broker with queue extensions, over loopback."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.model import ConsumerData, HeartbeatData, SubscriptionData
from tianzhou.records.codec import decode_records
from tianzhou.remoting.client import RemotingClient
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header


def make_broker(folder: Path, **changed: Any) -> Broker:
    settings = BrokerSettings(
        broker_ip1="127.0.0.1",
        bind_address="127.0.0.1",
        listen_port=0,
        broker_name="broker-a",
        namesrv_addr="",
        enable_property_filter=True,
        enable_calc_filter_bit_map=True,
    )
    store = StoreSettings(
        store_path_root_dir=str(folder),
        mapped_file_size_commit_log=1 << 20,
        max_hash_slot_num=100,
        max_index_num=400,
        enable_consume_queue_ext=True,
        mapped_file_size_consume_queue_ext=1 << 16,
    )
    return Broker(replace(settings, **changed), store)


async def ask(client: RemotingClient, address: str, code: int, body: bytes = b"", **header: Any) -> Command:
    return await client.invoke(address, Command(code, fields=write_header(code, **header), body=body))


async def send(client: RemotingClient, address: str, number: int) -> None:
    reply = await ask(
        client, address, 310, b"%d" % number, producer_group="P", topic="T", default_topic="TBW102",
        default_topic_queue_nums=1, queue_id=0, sys_flag=0, born_timestamp=1, flag=0,
        properties=f"UNIQ_KEY\x01U{number}\x02n\x01{number}\x02",
    )  # fmt: skip
    assert reply.code == 0


async def announce(client: RemotingClient, address: str, expression: str, version: int) -> None:
    wish = SubscriptionData("T", expression, expression_type="SQL92", sub_version=version)
    said = HeartbeatData("c1", [], [ConsumerData("G", subscription_data_set=[wish])])
    assert (await ask(client, address, 34, HEARTBEAT.dumps(said))).code == 0


async def pull(client: RemotingClient, address: str, version: int) -> list[int]:
    reply = await ask(
        client, address, 11, consumer_group="G", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=0,
        commit_offset=0, suspend_timeout_millis=0, sub_version=version,
    )  # fmt: skip
    assert reply.code in (0, 20), reply.remark
    return [int(record.body) for record in decode_records(reply.body)]


def test_what_groups_want_survives_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with RemotingClient() as client:
            async with make_broker(tmp_path) as broker:
                await send(client, broker.address, 0)
                await announce(client, broker.address, "n > 2", 7)
                await asyncio.sleep(0.01)  # bits are trusted from the next millisecond on
                for number in range(1, 6):
                    await send(client, broker.address, number)
                assert await pull(client, broker.address, 7) == [3, 4, 5]
            table = json.loads((tmp_path / "config" / "consumerFilter.json").read_text())
            kept = table["filterDataByTopic"]["T"]["groupFilterData"]["G"]
            assert (kept["expression"], kept["clientVersion"], kept["bloomFilterData"]["bitNum"]) == ("n > 2", 7, 112)
            async with make_broker(tmp_path) as broker:
                entry = broker.tables.filters.find("T", "G")
                assert entry is not None
                assert entry.dead
                # Its members are away, but what is stored is judged for them.
                await send(client, broker.address, 1)
                await send(client, broker.address, 9)
                await announce(client, broker.address, "n > 2", 7)
                assert not entry.dead
                assert await pull(client, broker.address, 7) == [3, 4, 5, 9]
                await announce(client, broker.address, "n < 2", 8)
                assert await pull(client, broker.address, 8) == [0, 1, 1]
            async with make_broker(tmp_path, expect_consumer_num_use_filter=64) as broker:
                # Bits of another size mean nothing any more, so all is judged by what it says.
                assert broker.tables.filters.find("T", "G") is None
                await announce(client, broker.address, "n < 2", 9)
                await send(client, broker.address, 1)
                assert await pull(client, broker.address, 9) == [0, 1, 1, 1]

    asyncio.run(asyncio.wait_for(main(), 30))
