"""A broker with small files on loopback, a name server, and requests to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.tls import TlsSettings
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test, with a limit of half a minute."""
    asyncio.run(asyncio.wait_for(main, 30))


def small_broker(
    folder: Path,
    store: dict[str, Any] | None = None,
    name: str = "broker-a",
    tls: TlsSettings | None = None,
    **settings: Any,
) -> Broker:
    """Return a broker on any free port with its store in `folder/name`; it has a name server only with
    `namesrv_addr`.
    """
    values: dict[str, Any] = {
        "broker_name": name, "broker_ip1": "127.0.0.1", "bind_address": "127.0.0.1", "listen_port": 0,
        "namesrv_addr": "", "broker_config_path": str(folder / "broker.conf"),
    }  # fmt: skip
    small = {
        "mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000, "max_hash_slot_num": 100,
        "max_index_num": 400, "store_path_root_dir": str(folder / name),
    }  # fmt: skip
    store_settings = StoreSettings(**small | (store or {}))
    values["slave_read_enable"] = store_settings.may_follow  # as `tianzhou broker` starts it
    return Broker(BrokerSettings(**values | settings), store_settings, tls=tls)


def pair_broker(folder: Path, namesrv: str, role: str, broker_id: int, **more: object) -> Broker:
    """Return the master or a slave of a pair, with its store in `folder/role` and more settings of that store."""
    store = {"broker_role": role, "store_path_root_dir": str(folder / role), "max_index_num": 4000, **more}
    return small_broker(folder / role, store, namesrv_addr=namesrv, broker_id=broker_id)


@dataclass
class PairSite:
    """A name server and a client, for a pair whose brokers start and stop.

    Attributes:
        folder: parent of the brokers' folders.
        namesrv: address of the name server.
        client: sends requests to the brokers.
        stack: ends all started brokers.
    """

    folder: Path
    namesrv: str
    client: RemotingClient
    stack: AsyncExitStack

    @asynccontextmanager
    async def running(self, role: str, broker_id: int = 0, **more: object) -> AsyncIterator[Broker]:
        """Run a broker of the pair, see `pair_broker`; yield it once it is registered."""
        async with pair_broker(self.folder, self.namesrv, role, broker_id, **more) as broker:
            await broker.ready()
            yield broker

    async def start(self, role: str, broker_id: int = 0, **more: object) -> Broker:
        """Start a broker that runs until the site ends."""
        return await self.stack.enter_async_context(self.running(role, broker_id, **more))

    async def slave(self, **more: object) -> Broker:
        """Start the slave, which runs until the site ends."""
        return await self.start("SLAVE", 1, **more)


@asynccontextmanager
async def pair_site(folder: Path) -> AsyncIterator[PairSite]:
    """Run a name server and a client."""
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(folder))
        client = await stack.enter_async_context(RemotingClient())
        yield PairSite(folder, f"127.0.0.1:{names.port}", client, stack)


async def bodies_of_orders(namesrv: str, count: int) -> set[bytes]:
    """Return the bodies that a consumer reads of the topic `orders`, until it has `count` different ones."""
    found: set[bytes] = set()
    async with PullConsumer("g", namesrv) as consumer:
        queues = await consumer.queues("orders")
        consumer.assign(queues)
        for queue in queues:
            await consumer.seek(queue, 0)
        while len(found) < count:
            found |= {message.body for message in await consumer.poll(timeout_ms=1000)}
    return found


def name_server(folder: Path, tls: TlsSettings | None = None, **more: Any) -> NameServer:
    settings = replace(
        NamesrvSettings(), bind_address="127.0.0.1", listen_port=0, kv_config_path=str(folder / "kv.json"),
        config_store_path=str(folder / "namesrv.properties"), **more,
    )  # fmt: skip
    return NameServer(settings, tls=tls)


async def ask(client: RemotingClient, address: str, code: int, body: bytes = b"", **header: Any) -> Command:
    return await client.invoke(address, Command(code, fields=write_header(code, **header), body=body), 20_000)


async def send(
    client: RemotingClient, address: str, body: bytes = b"x", *, properties: str = "", **header: Any
) -> Command:
    """Send a message to queue 0 of topic T, unless the header overrides it."""
    fields = {
        "producer_group": "P", "topic": "T", "default_topic": "TBW102", "default_topic_queue_nums": 1, "queue_id": 0,
        "sys_flag": 0, "born_timestamp": 1, "flag": 0, "properties": properties,
    }  # fmt: skip
    return await ask(client, address, RequestCode.SEND_MESSAGE_V2, body, **fields | header)


async def pull(client: RemotingClient, address: str, **header: Any) -> Command:
    """Pull queue 0 of topic T from its beginning with a subscription to everything, unless the header overrides it."""
    fields = {
        "consumer_group": "G", "topic": "T", "queue_id": 0, "queue_offset": 0, "max_msg_nums": 32, "sys_flag": 4,
        "commit_offset": 0, "suspend_timeout_millis": 0, "subscription": "*", "sub_version": 0,
    }  # fmt: skip
    return await ask(client, address, RequestCode.PULL_MESSAGE, **fields | header)
