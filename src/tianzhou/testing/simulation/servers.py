"""Name servers and brokers of a simulated cluster, on their machines."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Any, Final

from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.tls import TlsSettings
from tianzhou.store.settings import StoreSettings
from tianzhou.testing.simulation.machines import Machine

NAMESRV_PORT: Final = 9876
BROKER_PORT: Final = 10_911
MEMBER_PORT: Final = 40_911
SEGMENT_BYTES: Final = 32_768
NO_TLS: Final = TlsSettings(server_mode="disabled")
SMALL: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": SEGMENT_BYTES,
    "mapped_file_size_consume_queue": 1_000,
    "max_hash_slot_num": 100,
    "max_index_num": 200,
    "max_message_size": 4_096,
    "clean_file_forcibly_enable": False,
    "disk_max_used_space_ratio": 99,
    # The real disk of the simulating machine must not matter.
    "disk_space_enough_free_bytes": 1,
    "clean_resource_interval": 3_600_000,
    "ha_housekeeping_interval": 8_000,
    "ha_send_heartbeat_interval": 2_000,
    "slave_timeout": 1_500,
    "sync_flush_timeout": 2_000,
}
"""Settings of a store in which a few hundred messages fill several files, and of a master that soon misses its
slaves.
"""


class NameServerOn:
    """A name server on a machine.

    Args:
        machine: where it runs.
        rng: source of random numbers.
    """

    def __init__(self, machine: Machine, rng: Random) -> None:
        self.machine = machine
        self._rng = rng
        self.address = f"{machine.address}:{NAMESRV_PORT}"

    def start(self) -> None:
        """Start the name server if it does not run."""
        if self.machine.process is None:
            self.machine.start(self._run)

    async def _run(self) -> None:
        home = self.machine.folder
        settings = replace(
            NamesrvSettings(),
            bind_address=self.machine.address,
            listen_port=NAMESRV_PORT,
            kv_config_path=str(home / "kvConfig.json"),
            config_store_path=str(home / "namesrv.properties"),
        )
        async with NameServer(settings, clock=self.machine.clock, tls=NO_TLS, rng=self._rng):
            await asyncio.get_running_loop().create_future()


class BrokerOn:
    """A broker on a machine, which may be started many times.

    Args:
        machine: where it runs.
        rng: source of random numbers.
        namesrv_addr: its name servers.
        broker: settings of the broker other than those of every simulation.
        store: settings of its store other than those of every simulation.

    Attributes:
        broker: the broker of the present life; None while it does not run.
        lives: number of starts.
        failure: why it ended by itself; None when it did not.
        broker_settings: the argument `broker`.
        store_settings: the argument `store`.
        all: brokers of every life, for the release of their resources.
    """

    def __init__(
        self, machine: Machine, rng: Random, namesrv_addr: str, *, broker: dict[str, Any], store: dict[str, Any]
    ) -> None:
        self.machine = machine
        self.broker: Broker | None = None
        self.lives = 0
        self.all: list[Broker] = []
        self.failure: BaseException | None = None
        self._rng = rng
        self._namesrv_addr = namesrv_addr
        self.broker_settings = broker
        self.store_settings = store
        self._stop = asyncio.Event()
        self._over = asyncio.Event()
        self._over.set()

    @property
    def name(self) -> str:
        """Name of the machine."""
        return self.machine.name

    @property
    def is_master(self) -> bool:
        """Whether producers send messages to it."""
        if self.store_settings.get("enable_d_leger_commit_log"):
            return self.broker is not None and not self.broker.replication.is_slave
        return self.store_settings.get("broker_role") != "SLAVE"

    @property
    def leads(self) -> bool:
        """Whether it is the member of its group to which producers send messages."""
        return self.broker is not None and self.broker._started and self.is_master

    @property
    def stopping(self) -> bool:
        """Whether a stop is in progress."""
        return self._stop.is_set() and not self._over.is_set()

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"{self.machine.address}:{BROKER_PORT}"

    def start(self) -> None:
        """Start the broker if it does not run."""
        if self.machine.process is None:
            self.lives += 1
            self.failure = None
            self._stop, self._over = asyncio.Event(), asyncio.Event()
            self.machine.start(self._run)

    async def stop(self) -> None:
        """Stop the broker cleanly, and return when it has stopped or died."""
        self._stop.set()
        await self._over.wait()

    def died(self) -> None:
        """Record the death of the process."""
        self.broker = None
        self._over.set()

    async def _run(self) -> None:
        root = self.machine.folder / "store"
        broker_settings = replace(
            BrokerSettings(),
            **{
                "broker_ip1": self.machine.address,
                "bind_address": self.machine.address,
                "listen_port": BROKER_PORT,
                "namesrv_addr": self._namesrv_addr,
                "broker_config_path": str(self.machine.folder / "broker.conf"),
                "linger_micros": 0,
                "default_topic_queue_nums": 4,
                "register_name_server_period": 10_000,
                "slave_read_enable": StoreSettings(**self.store_settings).may_follow,
                **self.broker_settings,
            },
        )
        store_settings = replace(
            StoreSettings(),
            **{
                "store_path_root_dir": str(root),
                "store_path_commit_log": str(root / "commitlog"),
                **SMALL,
                **self.store_settings,
            },
        )
        broker = Broker(broker_settings, store_settings, clock=self.machine.clock, tls=NO_TLS, rng=self._rng)
        self.all.append(broker)
        try:
            # No `async with`, because the final close of the coroutine would stop the broker.
            await broker.__aenter__()
            self.broker = broker
            await self._stop.wait()
            self.broker = None
            await broker.__aexit__(None, None, None)
        except Exception as error:  # noqa: BLE001 - the cluster reports why it does not run
            self.failure = error
        self.machine.stopped()
        self.died()
