"""A broker's part in its group: the master that slaves copy from, or a slave (broker.md §17)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Final, Self

from tianzhou.broker.replication.metadata_sync import MetadataSync
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.state import Tables
from tianzhou.clock import Clock
from tianzhou.errors import ConfigError, LimitExceeded
from tianzhou.model import TopicConfig, names
from tianzhou.remoting.client import RemotingClient
from tianzhou.replication.ha_client import WORK, HaClient
from tianzhou.replication.ha_server import HaServer
from tianzhou.store.store import MessageStore
from tianzhou.supervision import Supervisor
from tianzhou.wire.bodies.replication import HaClient as HaClientStatus
from tianzhou.wire.bodies.replication import HaConnection, HaStatus

DEFAULT_HA_PORT: Final = 10_912
"""`haListenPort` when it is not configured; the port above the main one is meant then (broker.md §3.1)."""

LOOK_EVERY_S: Final = 3.0
"""Seconds after which a slave without a master asks the name servers again."""

_log = logging.getLogger(__name__)


class Replication:
    """Serves slaves at the HA port, or follows the master that name servers name; an async context manager.

    Args:
        store: the message store.
        settings: of the broker.
        clock: where time comes from.
        port: the broker's.

    Attributes:
        master: address of a slave's master; empty while it is unknown, and at a master.
        is_slave: which of the two it is.
    """

    def __init__(self, store: MessageStore, settings: BrokerSettings, clock: Clock, port: int) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._broker_port = port
        self._stack = AsyncExitStack()
        self._server: HaServer | None = None
        self._follower = HaClient(store, clock, lambda: self._ha_master)
        self._ha_master = self.master = ""
        self.is_slave = store.settings.broker_role == "SLAVE"

    async def __aenter__(self) -> Self:
        if not self.is_slave:
            above, port = self._broker_port + 1, self._store.settings.ha_listen_port
            if port not in {DEFAULT_HA_PORT, above}:
                self._server = await self._listen(port)
                return self
            try:
                self._server = await self._listen(above)
            except ConfigError:
                # Nobody has chosen it, and slaves learn from name servers which one it is.
                self._server = await self._listen(0)
                _log.warning("port %d is taken; slaves are served at %d (haListenPort)", above, self._server.port)
        return self

    async def _listen(self, port: int) -> HaServer:
        server = HaServer(self._store, self._clock, self._settings.bind_address, port)
        return await self._stack.enter_async_context(server)

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def ha_address(self) -> str:
        """Where slaves connect, `host:port`."""
        port = self._broker_port + 1 if self._server is None else self._server.port
        return f"{self._settings.broker_ip2 or self._settings.broker_ip1}:{port}"

    def follow(
        self, supervisor: Supervisor, tables: Tables, client: RemotingClient, register: Callable[[], None]
    ) -> None:
        """Begin to copy log and tables of the master.

        Args:
            supervisor: owns the tasks.
            tables: made equal to the master's.
            client: reaches the master.
            register: registers at the name servers, whose answers name the master.
        """

        async def look() -> None:
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                if not self.near_master:
                    register()

        def know(topic: str, queue_id: int) -> None:
            # The master may be gone before it has been asked for its topics; what was acknowledged has to be served.
            config = tables.topics.get(topic)
            if config is None:
                # As many as it may have: clients know its route, and ask for queues that had no message yet.
                few = topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))
                config = TopicConfig(topic, 1 if few else self._settings.default_topic_queue_nums)
            count = max(config.read_queue_nums, queue_id + 1)
            with suppress(LimitExceeded):
                tables.topics.put(replace(config, read_queue_nums=count, write_queue_nums=count), self._clock.now_ms())

        self._store.copy.on_new_queue = know
        supervisor.own("looking for the master", look)
        supervisor.own(WORK, lambda: self._follower.run(supervisor))
        supervisor.own("tables of the master", MetadataSync(tables, client, self._clock, lambda: self.master).run)

    def master_named(self, address: str, ha_address: str) -> None:
        """Take note of the master that a name server names in the answer to a registration.

        Args:
            address: the master's.
            ha_address: where it serves slaves.
        """
        if self.is_slave and (address, ha_address) != (self.master, self._ha_master):
            _log.info("the master is %s, its HA port %s", address, ha_address)
            self.master, self._ha_master = address, ha_address
            self._follower.master_changed()

    @property
    def near_master(self) -> bool:
        """Whether this is a slave whose master is there, so that groups should read from that one."""
        return self._follower.following is not None

    def status(self) -> HaStatus:
        """How far copies are (907)."""
        store, end = self._store, self._store.end_offset
        if self.is_slave:
            following = self._follower.following
            client = HaClientStatus(
                master_addr=self._ha_master or None,
                max_offset=end,
                last_read_timestamp=0 if following is None else self._ms_ago(following.heard_s),
                last_write_timestamp=0 if following is None else self._ms_ago(following.reported_s),
            )
            return HaStatus(master=False, ha_client_runtime_info=client)
        slaves = () if self._server is None else self._server.slaves.connected
        connections = [
            HaConnection(
                addr=slave.address,
                diff=end - slave.acked,
                in_sync=end - slave.acked < store.settings.ha_max_gap_not_in_sync,
                slave_ack_offset=slave.acked,
                transfer_from_where=slave.sent,
                transferred_byte_in_second=slave.rate(self._clock.monotonic()),
            )
            for slave in slaves
            if slave.acked >= 0
        ]
        return HaStatus(
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(connection.in_sync for connection in connections),
            ha_connection_info=connections,
        )

    def _ms_ago(self, monotonic_s: float) -> int:
        return self._clock.now_ms() - int((self._clock.monotonic() - monotonic_s) * 1000)
