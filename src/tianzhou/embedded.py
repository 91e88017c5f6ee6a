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

from tianzhou.broker.server import FAST_PORT_BELOW, Broker, first_address
from tianzhou.broker.settings import BrokerSettings
from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import ConfigError, StoreLocked
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.tls import TlsSettings
from tianzhou.store.settings import StoreSettings

log = logging.getLogger(__name__)

LAYOUT = 1
MARK = "tianzhou.json"
OUR_ENTRIES = frozenset({"store", "namesrv", "broker.conf", "broker.conf.bak", "lost+found"})
SEGMENT_BYTES = 64 * 1024 * 1024
ENOUGH_FREE_BYTES = 5 * 1024**3
READ_AT_ONCE = 1024
"""Most messages of a pull, which stays under RocketMQ's 256 KiB."""
EVERYWHERE = frozenset({"0.0.0.0", "::", ""})
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")


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

    It never deletes unexpired data by itself, takes messages as long as 5 GiB are free however full the disk is,
    keeps 64 MiB segments, and is ready, when entered, in the sense that a client can use it: the broker is registered
    and its topics have routes.

    Args:
        settings: where it lives and listens.
        clock: source of time.
        tls: see `TlsSettings`; by default TLS is spoken with who begins to.

    Raises:
        ConfigError: an address nobody can reach, a port taken, a data folder of a newer version.
        StoreError: the store in the data folder is in use or cannot be opened.
    """

    def __init__(
        self, settings: EmbeddedSettings, *, clock: Clock | None = None, tls: TlsSettings | None = None
    ) -> None:
        self.settings = settings
        self.advertised = advertised_address(settings.host, settings.advertise)
        if settings.namesrv_port and settings.namesrv_port in _ports_of_broker(settings.broker_port):
            raise ConfigError(
                f"--namesrv-port {settings.namesrv_port}: the broker takes it, which uses its port and the one "
                f"{FAST_PORT_BELOW} below; give another"
            )
        self._clock = clock or SystemClock()
        self._tls = tls or TlsSettings()
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
                NameServer(self._namesrv_settings(), clock=self._clock, port_setting="--namesrv-port", tls=self._tls)
            )
            # The name server is reached through the address it listens on: an advertised address may be one
            # that only the world outside (a container's host, a NAT) can use.
            host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(self.settings.host, self.settings.host)
            broker_settings, store_settings = self._broker_settings(f"{bracketed(host)}:{self.namesrv.port}")
            try:
                self.broker = await self._stack.enter_async_context(
                    Broker(
                        broker_settings,
                        store_settings,
                        clock=self._clock,
                        port_setting="--broker-port",
                        tls=_towards_itself(self._tls),
                    )
                )
            except StoreLocked as error:
                who = str(error).partition(";")[0]
                raise StoreLocked(f"--data {data}: {who}; stop that server, or give another folder") from error
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
            # Off by default as in RocketMQ, where operators decide; here nobody else is there to turn it on.
            enable_property_filter=True,
        )
        store = replace(
            StoreSettings(),
            store_path_root_dir=str(root),
            store_path_commit_log=str(root / "commitlog"),
            mapped_file_size_commit_log=SEGMENT_BYTES,
            flush_disk_type=one.flush,
            # Ordinary clients ask for 32 at most; those who ask for more, as Spark does, are not held up by so few.
            max_transfer_count_on_message_in_memory=READ_AT_ONCE,
            clean_file_forcibly_enable=False,
            disk_space_enough_free_bytes=ENOUGH_FREE_BYTES,
        )
        return broker, store


def _towards_itself(tls: TlsSettings) -> TlsSettings:
    """What its broker speaks to the name server: that is this process, so nobody has to be verified.

    The name server may ask for a certificate all the same; the broker then shows the server's, unless it has its own.
    """
    shown = tls.client_identity if tls.client_cert_path else tls.server_identity
    return replace(
        tls,
        enable=tls.enable or tls.server_mode.lower() == "enforcing",
        client_auth_server=False,
        client_cert_path=shown[0],
        client_key_path=shown[1],
        client_key_password=shown[2],
    )


def advertised_address(host: str, advertise: str) -> str:
    """The address clients will be told to connect to, refused when nobody could; IPv6 in brackets.

    Args:
        host: the address listened on; `0.0.0.0` is every one.
        advertise: what the operator asked for; empty derives it.

    Raises:
        ConfigError: no client can reach the address; the text says what to give instead.
    """
    if advertise:
        check_advertised(f"--advertise {advertise}", advertise, host)
        return bracketed(advertise)
    return bracketed(first_address() if host in EVERYWHERE else host)


def check_advertised(name: str, address: str, host: str) -> None:
    """Refuse an address that no client could reach, whatever the network.

    Args:
        name: flag or key with its value, for messages.
        address: the address to be told to clients.
        host: the address listened on.

    Raises:
        ConfigError: it cannot be reached; the text says what to give instead.
    """
    for found in _resolve(name, address):
        if _never_a_host(found):
            raise ConfigError(
                f"{name}: nobody can connect to it; give this machine's address as clients see it, "
                f"for example {first_address()}"
            )
    if host in EVERYWHERE:
        return
    listens_on_loopback = all(found.is_loopback for found in _resolve(f"--host {host}", host))
    told_loopback = all(found.is_loopback for found in _resolve(name, address))
    if listens_on_loopback and not told_loopback:
        raise ConfigError(
            f"{name}: the server would listen on loopback only ({host}), so clients that are told this address "
            "could not reach it; listen on 0.0.0.0 as well"
        )
    if told_loopback and not listens_on_loopback:
        raise ConfigError(
            f"{name}: the server would listen on {host} only, so clients that are told loopback could not reach it; "
            f"give {host}, or listen on 0.0.0.0"
        )


def _never_a_host(address: Address) -> bool:
    if address.is_unspecified or address.is_multicast:
        return True
    return address.version == 4 and (address.is_reserved or address in _THIS_NETWORK)


def _resolve(name: str, address: str) -> list[Address]:
    try:
        found = {info[4][0] for info in socket.getaddrinfo(address.strip("[]"), None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no name"
        raise ConfigError(
            f"{name}: does not resolve ({reason}); "
            "give an address or a name that clients can connect to, without a port"
        ) from error
    return [ipaddress.ip_address(str(text).partition("%")[0]) for text in sorted(map(str, found))]


def _ports_of_broker(port: int) -> tuple[int, int]:
    return port, port - FAST_PORT_BELOW


def bracketed(host: str) -> str:
    """The host as it stands before `:port`: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def free_port_pair(host: str) -> int:
    """A free port whose second-below neighbour, the fast port, is free as well.

    Raises:
        ConfigError: there is none, or nothing can listen on the host.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM)[0]
        for _ in range(64):
            with socket.socket(family) as main, socket.socket(family) as fast:
                main.bind(address)
                port = int(main.getsockname()[1])
                try:
                    fast.bind((address[0], port - FAST_PORT_BELOW, *address[2:]))
                except OSError:
                    continue
                return port
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}: {error.strerror}; give an address of this machine") from error
    raise ConfigError(f"no pair of free ports found on {host}; give a port")


def _claim_folder(data: Path) -> None:
    """Make the folder ours, or see that it is; refuse one that belongs to something else.

    Raises:
        ConfigError: it cannot be used; the text says why and what to do.
    """
    mark = data / MARK
    try:
        data.mkdir(parents=True, exist_ok=True)
        if mark.exists():
            _check_layout(data, mark.read_bytes())
            return
        strangers = sorted(
            entry.name for entry in data.iterdir() if entry.name not in OUR_ENTRIES and not entry.name.startswith(".")
        )
        if "commitlog" in strangers and (data.parent / MARK).exists():
            raise ConfigError(f"--data {data}: is the store of the data folder {data.parent}; give that one")
        if "commitlog" in strangers:
            raise ConfigError(
                f"--data {data}: is itself a store of RocketMQ; move it to {data}/store, or run `tianzhou broker` with "
                f"storePathRootDir={data}"
            )
        # A folder with a store in it was handed over by RocketMQ, and may have its logs beside it.
        if strangers and not (data / "store").is_dir():
            raise ConfigError(
                f"--data {data}: holds things that are not the server's ({', '.join(strangers[:3])}); "
                "give an empty or a new folder"
            )
        mark.write_text(json.dumps({"layout": LAYOUT}) + "\n")
    except FileExistsError:
        raise ConfigError(f"--data {data}: is no folder; give an empty or a new one") from None
    except OSError as error:
        raise ConfigError(
            f"--data {data}: cannot be used ({error.strerror}); give a folder this user can write to"
        ) from error


def _check_layout(data: Path, text: bytes) -> None:
    try:
        layout = json.loads(text)["layout"]
        known = int(layout)
    except (ValueError, TypeError, KeyError):
        raise ConfigError(
            f'--data {data}: its {MARK} is damaged; write {{"layout": {LAYOUT}}} into it if this version wrote the '
            "folder, or give another folder"
        ) from None
    if known > LAYOUT:
        raise ConfigError(
            f"--data {data}: was written by a newer Tianzhou (layout {known}, this version knows {LAYOUT}); "
            "upgrade, or give another folder"
        )
