"""Our own server for the contract suites, in the event loop of whoever asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from client_suite import DELAY_LEVELS

from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.clock import Clock
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.tls import TlsSettings
from tianzhou.store.settings import StoreSettings
from waiting import until_async


@asynccontextmanager
async def own_server(
    folder: Path,
    *,
    clock: Clock | None = None,
    namesrv_port: int = 0,
    tls: TlsSettings | None = None,
    slave: bool = False,
    **broker_options: object,
) -> AsyncIterator[str]:
    """A name server and a broker on loopback ports, free ones by default; gives the name server's address.

    With a slave the broker is a SYNC_MASTER, and in the end both have every message in the same place.
    """
    namesrv_settings = replace(
        NamesrvSettings(),
        bind_address="127.0.0.1",
        listen_port=namesrv_port,
        kv_config_path=str(folder / "kv.json"),
        config_store_path=str(folder / "namesrv.properties"),
    )
    async with NameServer(namesrv_settings, clock=clock, tls=tls) as namesrv, AsyncExitStack() as stack:
        address = f"127.0.0.1:{namesrv.port}"

        async def start(role: str, broker_id: int) -> Broker:
            broker_settings = replace(
                BrokerSettings(),
                broker_name="broker-a",
                broker_id=broker_id,
                broker_ip1="127.0.0.1",
                bind_address="127.0.0.1",
                listen_port=0,
                namesrv_addr=address,
                broker_config_path=str(folder / f"broker-{broker_id}.properties"),
                **{"enable_property_filter": True} | broker_options,
            )
            store_settings = replace(
                StoreSettings(),
                store_path_root_dir=str(folder / ("store" if broker_id == 0 else "slave")),
                broker_role=role,
                mapped_file_size_commit_log=1 << 24,
                mapped_file_size_consume_queue=20_000,
                max_hash_slot_num=1_000,
                max_index_num=4_000,
                message_delay_level=DELAY_LEVELS,
            )
            broker = await stack.enter_async_context(Broker(broker_settings, store_settings, clock=clock, tls=tls))
            await broker.ready()
            return broker

        master = await start("SYNC_MASTER" if slave else "ASYNC_MASTER", 0)
        copy = await start("SLAVE", 1) if slave else None
        if copy is not None:
            follower = copy
            await until_async(lambda: follower.replication.agrees_with_master, "the slave follows")
            await until_async(lambda: master.replication.status().in_sync_slave_nums == 1, "it takes part")
        yield address
        if copy is not None:
            await until_async(lambda: follower.store.end_offset == master.store.end_offset, "all is copied")
            await until_async(lambda: follower.store.copy.whole == master.store.end_offset, "all is dispatched")
            await until_async(lambda: queue_ends(follower) == queue_ends(master), "every queue is as long")


def queue_ends(broker: Broker) -> dict[tuple[str, int], int]:
    """The next offset of every queue that holds something."""
    store = broker.store
    found = {
        (topic, queue): store.max_offset(topic, queue) for topic in store.topics() for queue in store.queues(topic)
    }
    return {place: end for place, end in found.items() if end}
