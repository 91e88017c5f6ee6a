"""Name server and broker in one process, on one data folder: for laptops, tests and the main job."""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import ConfigError
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.store.settings import StoreSettings

log = logging.getLogger(__name__)

LAYOUT = 1
SEGMENT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class EmbeddedSettings:
    """Where an embedded server lives and listens.

    Attributes:
        data: folder for everything it keeps; RocketMQ's store layout is in `data/store`.
        host: address to listen on.
        advertise: address clients are told to connect to; empty derives it from `host`.
        namesrv_port: name server port; 0 takes any free one.
        broker_port: broker port, its fast port is two below; 0 takes a free pair.
        broker_name: the broker's name.
        cluster: the cluster's name.
        flush: ASYNC_FLUSH or SYNC_FLUSH.
    """

    data: Path
    host: str = "127.0.0.1"
    advertise: str = ""
    namesrv_port: int = 9876
    broker_port: int = 10911
    broker_name: str = "broker-a"
    cluster: str = "DefaultCluster"
    flush: str = "ASYNC_FLUSH"


class EmbeddedServer:
    """A running name server and broker; `async with EmbeddedServer(settings) as server`.

    It never deletes unexpired data by itself, keeps 64 MiB segments, and is ready, when entered, in the sense
    that a client can use it: the broker is registered and its topics have routes.

    Raises:
        ConfigError: an address nobody can reach, a port taken, a data folder of a newer version.
        StoreError: the store in the data folder is in use or cannot be opened.
    """

    def __init__(self, settings: EmbeddedSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self.advertised = advertised_address(settings.host, settings.advertise)
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()

    @property
    def namesrv_address(self) -> str:
        """What clients give as name server: `host:port`."""
        return f"{self.advertised}:{self.namesrv.port}"

    @property
    def broker_address(self) -> str:
        """What the broker tells clients to connect to: `host:port`."""
        return f"{self.advertised}:{self.broker.port}"

    async def __aenter__(self) -> Self:
        data = self.settings.data
        _claim_folder(data)
        try:
            self.namesrv = await self._stack.enter_async_context(
                NameServer(self._namesrv_settings(), clock=self._clock)
            )
            # The name server is reached through the address it listens on: an advertised address may be one
            # that only the world outside (a container's host, a NAT) can use.
            host = "127.0.0.1" if self.settings.host in ("0.0.0.0", "::") else self.settings.host
            broker_settings, store_settings = self._broker_settings(f"{host}:{self.namesrv.port}")
            self.broker = await self._stack.enter_async_context(
                Broker(broker_settings, store_settings, clock=self._clock)
            )
            await self.broker.ready()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def _namesrv_settings(self) -> NamesrvSettings:
        home = self.settings.data / "namesrv"
        return replace(
            NamesrvSettings(),
            bind_address=self.settings.host,
            listen_port=self.settings.namesrv_port,
            kv_config_path=str(home / "kvConfig.json"),
            config_store_path=str(home / "namesrv.properties"),
        )

    def _broker_settings(self, namesrv: str) -> tuple[BrokerSettings, StoreSettings]:
        one = self.settings
        root = one.data / "store"
        broker = replace(
            BrokerSettings(),
            broker_name=one.broker_name,
            broker_cluster_name=one.cluster,
            broker_ip1=self.advertised,
            bind_address=one.host,
            listen_port=one.broker_port or free_port_pair(one.host),
            namesrv_addr=namesrv,
            broker_config_path=str(one.data / "broker.conf"),
        )
        store = replace(
            StoreSettings(),
            store_path_root_dir=str(root),
            store_path_commit_log=str(root / "commitlog"),
            mapped_file_size_commit_log=SEGMENT_BYTES,
            flush_disk_type=one.flush,
            clean_file_forcibly_enable=False,
        )
        return broker, store


def advertised_address(host: str, advertise: str) -> str:
    """The address clients will be told to connect to, refused when nobody could.

    Args:
        host: the address listened on; `0.0.0.0` is every one.
        advertise: what the operator asked for; empty derives it.

    Raises:
        ConfigError: no client can reach the address; the text says what to give instead.
    """
    listens_everywhere = host in ("0.0.0.0", "::", "")
    if not advertise:
        return first_address() if listens_everywhere else host
    try:
        resolved = {info[4][0] for info in socket.getaddrinfo(advertise, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise ConfigError(
            f"--advertise {advertise}: the name does not resolve ({error.strerror}); "
            "give an address that clients can connect to"
        ) from error
    for text in resolved:
        address = ipaddress.ip_address(str(text).split("%")[0])
        if address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
            raise ConfigError(
                f"--advertise {advertise}: nobody can connect to it; give this machine's address as clients see it, "
                f"for example {first_address()}"
            )
        if not listens_everywhere and ipaddress.ip_address(host).is_loopback and not address.is_loopback:
            raise ConfigError(
                f"--advertise {advertise} with --host {host}: the server would listen on loopback only, so clients "
                "that are told the advertised address could not reach it; add --host 0.0.0.0"
            )
    return advertise


def first_address() -> str:
    """This machine's first address that is not loopback, or 127.0.0.1 when it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it only asks the kernel for the route's source address.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def free_port_pair(host: str) -> int:
    """A free port whose second-below neighbour, the fast port, is free as well."""
    for _ in range(64):
        with socket.socket() as main, socket.socket() as fast:
            main.bind((host, 0))
            port = int(main.getsockname()[1])
            try:
                fast.bind((host, port - 2))
            except OSError:
                continue
            return port
    raise ConfigError(f"no pair of free ports found on {host}")


def _claim_folder(data: Path) -> None:
    try:
        data.mkdir(parents=True, exist_ok=True)
        mark = data / "tianzhou.json"
        if mark.exists():
            layout = json.loads(mark.read_text()).get("layout")
            if not isinstance(layout, int) or layout > LAYOUT:
                raise ConfigError(
                    f"{data} was written by a newer Tianzhou (layout {layout}, this version knows {LAYOUT}); "
                    "upgrade, or give another folder with --data"
                )
        else:
            mark.write_text(json.dumps({"layout": LAYOUT}) + "\n")
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"--data {data}: cannot be used as a data folder: {error}") from error
