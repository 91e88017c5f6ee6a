"""Our own server for the contract suites, in the event loop of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from client_suite import DELAY_LEVELS

from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.clock import Clock
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.tls import TlsSettings
from tianzhou.store import MessageStore
from tianzhou.store.settings import StoreSettings
from waiting import until_async


class OwnServer:
    """A name server and a broker on loopback ports, and a slave on request; an async context manager.

    With a slave the broker is a SYNC_MASTER.

    Args:
        folder: folder of all files.
        clock: source of time of the servers.
        namesrv_port: port of the name server; 0 takes a free port.
        tls: TLS settings of all servers.
        slave: whether a slave follows the broker.
        store_options: fields of the store's settings.
        broker_options: fields of the broker's settings.

    Attributes:
        address: address of the name server, `host:port`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock | None = None,
        namesrv_port: int = 0,
        tls: TlsSettings | None = None,
        slave: bool = False,
        store_options: Mapping[str, Any] | None = None,
        **broker_options: object,
    ) -> None:
        self.address = ""
        self._folder, self._clock, self._tls = folder, clock, tls
        self._namesrv_port, self._with_slave, self._broker_options = namesrv_port, slave, broker_options
        self._store_options: dict[str, Any] = dict(store_options or {})
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            namesrv_settings = replace(
                NamesrvSettings(),
                bind_address="127.0.0.1",
                listen_port=self._namesrv_port,
                kv_config_path=str(self._folder / "kv.json"),
                config_store_path=str(self._folder / "namesrv.properties"),
            )
            namesrv = await stack.enter_async_context(NameServer(namesrv_settings, clock=self._clock, tls=self._tls))
            self.address = f"127.0.0.1:{namesrv.port}"
            self._master = await self._start(stack, "SYNC_MASTER" if self._with_slave else "ASYNC_MASTER", 0)
            self._slave = await self._start(stack, "SLAVE", 1) if self._with_slave else None
            if self._slave is not None:
                replication = self._slave.replication
                await until_async(lambda: replication.agrees_with_master, "the slave follows")
                status = self._master.replication.status
                await until_async(lambda: status().in_sync_slave_nums == 1, "the slave takes part in acknowledgements")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack, role: str, broker_id: int) -> Broker:
        broker_settings = replace(
            BrokerSettings(),
            broker_name="broker-a",
            broker_id=broker_id,
            broker_ip1="127.0.0.1",
            bind_address="127.0.0.1",
            listen_port=0,
            namesrv_addr=self.address,
            broker_config_path=str(self._folder / f"broker-{broker_id}.properties"),
            **{"enable_property_filter": True, "slave_read_enable": role == "SLAVE"} | self._broker_options,
        )
        store_settings = replace(
            StoreSettings(),
            store_path_root_dir=str(self._folder / ("store" if broker_id == 0 else "slave")),
            mapped_file_size_commit_log=1 << 24,
            mapped_file_size_consume_queue=20_000,
            max_hash_slot_num=1_000,
            max_index_num=4_000,
            message_delay_level=DELAY_LEVELS,
            **{"broker_role": role} | self._store_options,
        )
        broker = await stack.enter_async_context(
            Broker(broker_settings, store_settings, clock=self._clock, tls=self._tls)
        )
        await broker.ready()
        return broker

    async def check_slave(self) -> None:
        """Wait until the slave has every message of the master at the same position; do nothing without a slave.

        Raises:
            AssertionError: the stores of master and slave stay different.
        """
        if self._slave is not None:
            master, slave = self._master.store, self._slave.store
            await until_async(lambda: slave.end_offset == master.end_offset, "all is copied")
            await until_async(lambda: slave.copy.whole == master.end_offset, "all is dispatched")
            await until_async(lambda: queue_ends(slave) == queue_ends(master), "every queue is as long")


@asynccontextmanager
async def own_server(folder: Path, **options: Any) -> AsyncIterator[str]:
    """Run an `OwnServer` and yield its address; check the slave at the end.

    Args:
        folder: folder of all files.
        options: keyword arguments of `OwnServer`.
    """
    async with OwnServer(folder, **options) as server:
        yield server.address
        await server.check_slave()


def queue_ends(store: MessageStore) -> dict[tuple[str, int], int]:
    """Return the next offset of every queue that holds messages."""
    found = {
        (topic, queue): store.max_offset(topic, queue) for topic in store.topics() for queue in store.queues(topic)
    }
    return {place: end for place, end in found.items() if end}
