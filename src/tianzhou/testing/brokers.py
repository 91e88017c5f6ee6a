"""The brokers of a test cluster: injected faults, and stops and restarts on the same store and port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tianzhou.broker.addresses import free_port_pair
from tianzhou.broker.router import Router
from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.clock import Clock
from tianzhou.errors import ClientError, ConfigError
from tianzhou.model import MessageExt, names
from tianzhou.remoting.tls import TlsSettings
from tianzhou.settings import apply, unknown_keys
from tianzhou.store.settings import StoreSettings
from tianzhou.testing import progress, snapshots
from tianzhou.testing.faults import Faults, FaultyRouter

HOST = "127.0.0.1"
SMALL_STORE: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 24,
    "mapped_file_size_consume_queue": 60_000,
    "max_hash_slot_num": 1_000,
    "max_index_num": 4_000,
    "clean_file_forcibly_enable": False,
}
"""Small store files for tests; RocketMQ's defaults are sparse gigabytes."""
RARELY_MS = 600_000
RARE_STORE: dict[str, Any] = {
    "flush_interval_consume_queue": RARELY_MS,
    "flush_delay_offset_interval": RARELY_MS,
    "clean_resource_interval": RARELY_MS,
}
RARE_BROKER: dict[str, Any] = {
    "flush_consumer_offset_interval": RARELY_MS,
    "transaction_metric_flush_interval": RARELY_MS,
}
"""Long flush intervals for virtual time, where hours pass in a moment: periodic writes would take most of that
moment.
"""
START_ATTEMPTS = 5


class _FaultyBroker(Broker):
    """A broker whose requests pass through the faults first."""

    faults: Faults
    gate: FaultyRouter | None = None

    async def _listen(self, router: Router) -> None:
        self.gate = FaultyRouter(router, self.faults)
        await super()._listen(self.gate)


class ClusterBroker:
    """One broker of a test cluster.

    Args:
        name: its name.
        folder: its folder.
        namesrv_addr: the name server at which it registers.
        clock: source of time; None for the system clock.
        settings: of the broker and its store, other than the defaults, by RocketMQ's keys.

    Attributes:
        name: its name.
        faults: injects faults into this broker.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        namesrv_addr: str,
        clock: Clock | None,
        settings: Mapping[str, object],
    ) -> None:
        self.name = name
        self.faults = Faults()
        self._folder = folder
        self._namesrv_addr = namesrv_addr
        self._clock = clock
        self._settings = checked(settings)
        self._port = 0
        self._broker: _FaultyBroker | None = None

    @property
    def is_running(self) -> bool:
        """Whether the broker runs."""
        return self._broker is not None

    @property
    def running(self) -> Broker:
        """The running broker, for access to its tables and store.

        Raises:
            ClientError: it is stopped.
        """
        if self._broker is None:
            raise ClientError(f"{self.name} is stopped; start it first")
        return self._broker

    @property
    def address(self) -> str:
        """Address of the broker, `host:port`; the same after each start."""
        return f"{HOST}:{self._port}"

    async def start(self) -> None:
        """Start the broker on its store, and return when clients can use it; no effect while it runs."""
        if self._broker is not None:
            return
        fixed = self._port
        for attempt in range(START_ATTEMPTS):
            broker = self._made(fixed or free_port_pair(HOST))
            try:
                await broker.__aenter__()
            except ConfigError:
                # Another process may take a free port first, but not a port that this broker has held.
                if fixed or attempt == START_ATTEMPTS - 1:
                    raise
                continue
            self._broker, self._port = broker, broker.port
            await broker.ready()
            return

    async def stop(self) -> None:
        """Stop the broker and keep its store. Connections close, and the name server drops its routes."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.__aexit__(None, None, None)

    async def kill(self) -> None:
        """Kill the broker as `kill -9` would: connections break, writes end; no effect while it is stopped.

        Data that it has not written to its files is lost, as are recently committed offsets. The next start recovers
        the store.
        """
        broker, self._broker = self._broker, None
        if broker is None:
            return
        store, image = self._folder / "store", self._folder / "store.killed"
        # In this turn of the loop, stop all replies and copy the files in their present state.
        if broker.gate is not None:
            broker.gate.kill()
        snapshots.take(store, image)
        await broker.__aexit__(None, None, None)
        snapshots.put_back(store, image)

    def _made(self, port: int) -> _FaultyBroker:
        root = self._folder / "store"
        settings = replace(
            BrokerSettings(),
            broker_name=self.name,
            broker_ip1=HOST,
            bind_address=HOST,
            listen_port=port,
            namesrv_addr=self._namesrv_addr,
            broker_config_path=str(self._folder / "broker.conf"),
            enable_property_filter=True,
            linger_micros=0,
            **RARE_BROKER if self._clock is not None else {},
        )
        store = replace(
            StoreSettings(),
            store_path_root_dir=str(root),
            store_path_commit_log=str(root / "commitlog"),
            **SMALL_STORE | (RARE_STORE if self._clock is not None else {}),
        )
        made = _FaultyBroker(
            apply(settings, self._settings), apply(store, self._settings), clock=self._clock, tls=tls_of(self._clock)
        )
        made.faults = self.faults
        return made

    async def messages(self, topic: str) -> list[MessageExt]:
        """Return all messages of its queues of a topic, in the order of their storage.

        Raises:
            ClientError: it is stopped.
        """
        if self._broker is None:
            raise ClientError(f"what {self.name} holds of {topic} cannot be read while it is stopped; start it first")
        await progress.dispatched(self._broker)
        return progress.messages(self._broker, topic)

    async def describe(self, now_ms: int) -> list[str]:
        """Return its topics, waiting messages and connected groups as lines of text."""
        broker = self._broker
        if broker is None:
            return [f"{self.name}: stopped"]
        await progress.dispatched(broker)
        tables = broker.tables
        lines = [f"{self.name} at {self.address}"]
        topics = [name for name in broker.store.topics() if name != names.SCHEDULE_TOPIC]
        for topic in sorted(topics):
            count = sum(broker.store.max_offset(topic, queue) for queue in broker.store.queues(topic))
            lines.append(f"  topic {topic}: {count} messages")
        for to, _, due_ms in progress.waiting(broker):
            lines.append(f"  for {to}: a message waits for {max(due_ms - now_ms, 0) / 1000:.1f} s more")
        if len(tables.transactions):
            lines.append(f"  transactions without a decision: {len(tables.transactions)}")
        for name, group in sorted(tables.clients.consumers.items()):
            lines.append(f"  group {name}: {len(group.client_ids())} connected, of {', '.join(group.subscriptions)}")
            for topic in group.subscriptions:
                lines += [f"    left to consume: {text}" for text in (await progress.left(broker, name, topic)).texts]
        return lines


def tls_of(clock: Clock | None) -> TlsSettings | None:
    """Return TLS settings that disable TLS in virtual time, where connections stay in the process; else None."""
    return None if clock is None else TlsSettings(server_mode="disabled")


def checked(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the settings as text, in the form of a configuration file.

    Raises:
        ConfigError: a key is none of RocketMQ's.
    """
    for key, near in unknown_keys(settings, BrokerSettings, StoreSettings).items():
        hint = f"; did you mean {near}?" if near else ", neither of the broker nor of its store"
        raise ConfigError(f"a test cluster's settings: {key} is no key of RocketMQ's{hint}")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}
