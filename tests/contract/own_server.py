"""Our own server for the contract suites, in the event loop of whoever asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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


@asynccontextmanager
async def own_server(
    folder: Path,
    *,
    clock: Clock | None = None,
    namesrv_port: int = 0,
    tls: TlsSettings | None = None,
    **broker_options: object,
) -> AsyncIterator[str]:
    """A name server and a broker on loopback ports, free ones by default; gives the name server's address."""
    namesrv_settings = replace(
        NamesrvSettings(),
        bind_address="127.0.0.1",
        listen_port=namesrv_port,
        kv_config_path=str(folder / "kv.json"),
        config_store_path=str(folder / "namesrv.properties"),
    )
    async with NameServer(namesrv_settings, clock=clock, tls=tls) as namesrv:
        address = f"127.0.0.1:{namesrv.port}"
        broker_settings = replace(
            BrokerSettings(),
            broker_name="broker-a",
            broker_ip1="127.0.0.1",
            bind_address="127.0.0.1",
            listen_port=0,
            namesrv_addr=address,
            **{"enable_property_filter": True} | broker_options,
        )
        store_settings = replace(
            StoreSettings(),
            store_path_root_dir=str(folder / "store"),
            mapped_file_size_commit_log=1 << 24,
            mapped_file_size_consume_queue=20_000,
            max_hash_slot_num=1_000,
            max_index_num=4_000,
            message_delay_level=DELAY_LEVELS,
        )
        async with Broker(broker_settings, store_settings, clock=clock, tls=tls) as broker:
            await broker.ready()
            yield address
