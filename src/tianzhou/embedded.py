"""A name server and a broker in one process, with one data folder: for laptops, tests and the `flights` job."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tianzhou.broker.addresses import FAST_PORT_BELOW, first_address, free_port_pair
from tianzhou.broker.changeable_settings import RULES as BROKER_RULES
from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.zero_loss import with_profile
from tianzhou.clock import Clock, SystemClock
from tianzhou.data_folder import FIRST_BROKER, claim
from tianzhou.errors import ConfigError, Faults, StoreLocked
from tianzhou.escaping import shown
from tianzhou.limits import Bounds
from tianzhou.metrics.settings import MetricsSettings
from tianzhou.namesrv.changeable_settings import RULES as NAME_SERVER_RULES
from tianzhou.namesrv.routes import Registration
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.gates.access_control import AccessControl, Credentials, access_control, credentials_by_chance
from tianzhou.remoting.tls import TlsSettings
from tianzhou.setting_files import SavedSettings, read_settings
from tianzhou.setting_rules import Rules, check
from tianzhou.setting_updates import with_saved
from tianzhou.settings import apply, dump
from tianzhou.store.settings import StoreSettings
from tianzhou.supervision import Supervisor

log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 10_911
"""RocketMQ's default port of a broker."""
SEGMENT_BYTES = 64 * 1024 * 1024
ENOUGH_FREE_BYTES = 5 * 1024**3
READ_AT_ONCE = 1024
"""Maximum number of messages of a pull, whose size RocketMQ limits to 256 KiB."""
DECIDED: Final[dict[tuple[str, ...], str]] = {
    ("listenPort", "haListenPort"): "give --namesrv-port and --broker-port",
    ("bindAddress",): "give --host",
    ("brokerIP1", "brokerIP2"): "give --advertise",
    (
        "storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths", "brokerConfigPath", "kvConfigPath",
        "configStorePath",
    ): "everything is in the folder of --data",
    ("brokerName", "brokerId"): "brokers are named broker-a, broker-b and so on; give --brokers N for several",
    ("dLegerGroup", "dLegerPeers", "dLegerSelfId"): "give --replicas N for a group",
    ("namesrvAddr", "fetchNamesrvAddrByAddressServer"): "its brokers register at its own name server",
}  # fmt: skip
"""Keys that an embedded server sets itself, with the option to use instead."""
ACCOUNTS: Final = "plain_acl.yml"
"""File in the data folder with the accounts of RocketMQ 4.x. The folder `acl` beside it may have further files."""
PAGE_HOST: Final = "127.0.0.1"
"""Address of the metrics pages, unless a setting names another address."""
_PAGE_PORT: Final = "metricsPromExporterPort"
EVERYWHERE = frozenset({"0.0.0.0", "::", ""})
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")


@dataclass(frozen=True)
class EmbeddedSettings:
    """Settings of an embedded server.

    Attributes:
        data: folder of all files; RocketMQ's store layout is in `data/store`.
        host: address to listen on.
        advertise: address that clients connect to; empty derives it from `host`.
        namesrv_port: port of the name server; 0 for any free port.
        broker_port: port of the broker, whose fast port is two below; 0 for any free pair of ports.
        broker_name: name of the broker.
        cluster: name of the cluster.
        flush: ASYNC_FLUSH or SYNC_FLUSH; empty uses the value in `values`.
        home: folder of the broker's own files; None for `data`.
        linger_micros: see `BrokerSettings`; only for a process without other work.
        values: settings of broker, store and name server by RocketMQ's keys. They override changes that were made while
            the server last ran, which override the defaults of this class.
    """

    data: Path
    host: str = "127.0.0.1"
    advertise: str = ""
    namesrv_port: int = 9876
    broker_port: int = DEFAULT_PORT
    broker_name: str = FIRST_BROKER
    cluster: str = "DefaultCluster"
    flush: str = ""
    home: Path | None = None
    linger_micros: int = 0
    values: Mapping[str, str] = field(default_factory=dict, repr=False)


class EmbeddedServer:
    """A running name server and broker; `async with EmbeddedServer(settings) as server`.

    It never deletes unexpired data by itself. It accepts messages while 5 GiB of the disk are free, even on a nearly
    full disk. Its log has segments of 64 MiB. When the block begins, clients can use the server: the broker is
    registered, and its topics have routes.

    Args:
        settings: see `EmbeddedSettings`.
        clock: source of time.
        tls: see `TlsSettings`; by default both TLS and plain connections are served.

    Raises:
        ConfigError: no client can reach the address, a port is in use, a value is invalid, or a newer version wrote the
            data folder.
        StoreError: the store in the data folder is in use or cannot be opened.
    """

    def __init__(
        self, settings: EmbeddedSettings, *, clock: Clock | None = None, tls: TlsSettings | None = None
    ) -> None:
        self.settings = settings
        check_values(settings.values)
        self.advertised = advertised_address(settings.host, settings.advertise)
        if settings.namesrv_port and settings.namesrv_port in (
            settings.broker_port,
            settings.broker_port - FAST_PORT_BELOW,
        ):
            raise ConfigError(
                f"--namesrv-port {settings.namesrv_port}: the broker takes it, which uses its port and the one "
                f"{FAST_PORT_BELOW} below; give another"
            )
        self._clock = clock or SystemClock()
        self._tls = tls or TlsSettings()
        self._stack = AsyncExitStack()

    @property
    def namesrv_address(self) -> str:
        """Address of the name server for clients: `host:port`."""
        return f"{self.advertised}:{self.namesrv.port}"

    @property
    def broker_address(self) -> str:
        """Advertised address of the broker: `host:port`."""
        return f"{self.advertised}:{self.broker.port}"

    @property
    def metrics_address(self) -> str:
        """Address of the broker's metrics page, `host:port`; empty without a page."""
        return self.broker.metrics_address

    @property
    def metrics_url(self) -> str:
        """URL of the broker's metrics page; empty without a page."""
        return self.broker.metrics_url

    @property
    def left_undone(self) -> list[str]:
        """After the block, the tasks that were failing at its end and the failed writes; empty without failures."""
        return [*self.broker.left_undone, *self.namesrv.left_undone]

    async def __aenter__(self) -> Self:
        one = self.settings
        claim(one.data)
        try:
            access = await self._access_control()
            self.namesrv = await self._stack.enter_async_context(
                make_name_server(one, clock=self._clock, tls=self._tls, access=access)
            )
            self.broker = await enter_broker(
                self._stack,
                one,
                inner_address(one.host, self.namesrv.port),
                advertised=self.advertised,
                clock=self._clock,
                tls=self._tls,
                access=access,
            )
            await self.broker.ready()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _access_control(self) -> AccessControl | None:
        """Return the access control that both servers share, so that both have the same accounts."""
        # The broker's port is chosen when the broker starts, after the name server.
        one = replace(self.settings, broker_port=self.settings.broker_port or DEFAULT_PORT)
        settings, store = _broker_settings(one, "", self.advertised)
        folder, clock = store.root / "config", self._clock
        access = access_control(
            settings, folder, settings.broker_cluster_name, Bounds(settings), clock, credentials_by_chance()
        )
        if access is not None:
            supervisor = Supervisor("access control", clock)
            self._stack.push_async_callback(access.close)
            self._stack.push_async_callback(supervisor.end)
            await access.start(supervisor.own)
        return access

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)


def make_name_server(
    one: EmbeddedSettings,
    *,
    clock: Clock | None = None,
    tls: TlsSettings | None = None,
    on_register: Callable[[Registration], None] | None = None,
    access: AccessControl | None = None,
    own: Credentials | None = None,
) -> NameServer:
    """Return the name server of a data folder, not started yet.

    Args:
        one: settings of its folder and ports.
        clock: source of time.
        tls: see `TlsSettings`.
        on_register: see `NameServer`.
        access: see `NameServer`.
        own: see `NameServer`.
    """
    home = one.data / "namesrv"
    settings = replace(
        NamesrvSettings(),
        bind_address=one.host,
        listen_port=one.namesrv_port,
        kv_config_path=str(home / "kvConfig.json"),
        config_store_path=str(home / "namesrv.properties"),
        acl_config_path=str(one.data / ACCOUNTS),
        metrics_prom_exporter_host=PAGE_HOST,
    )
    values = {**one.values, **page_port(one.values, -1)}
    (settings,) = configured(NAME_SERVER_RULES, values, (settings,), settings.config_file)
    return NameServer(
        settings, clock=clock, port_setting="--namesrv-port", tls=tls, on_register=on_register, access=access, own=own
    )


async def enter_broker(
    stack: AsyncExitStack,
    one: EmbeddedSettings,
    namesrv: str,
    *,
    advertised: str,
    clock: Clock | None = None,
    tls: TlsSettings | None = None,
    access: AccessControl | None = None,
    own: Credentials | None = None,
) -> Broker:
    """Start a broker of a data folder. The stack stops it.

    Args:
        stack: exit stack that the broker is entered on.
        one: settings of its folder and ports.
        namesrv: address of the name server.
        advertised: host for clients.
        clock: source of time.
        tls: see `TlsSettings`.
        access: see `Broker`.
        own: see `Broker`.

    Raises:
        ConfigError: a port is in use.
        StoreError: the store is in use or cannot be opened.
    """
    settings, store = _broker_settings(one, namesrv, advertised)
    tls = client_tls_settings(tls or TlsSettings())
    broker = Broker(settings, store, clock=clock, port_setting="--broker-port", tls=tls, access=access, own=own)
    try:
        return await stack.enter_async_context(broker)
    except StoreLocked as error:
        who = str(error).partition(";")[0]
        raise StoreLocked(f"--data {one.data}: {who}; stop that server, or give another folder") from error


def page_port(values: Mapping[str, str], place: int) -> dict[str, str]:
    """Return the setting of the metrics page's port for one of several processes that share settings.

    Args:
        values: settings of the start; a port in them is the first broker's.
        place: 0 for the first broker, 1 for the second, and so on; -1 for the name server.
    """
    text = values.get(_PAGE_PORT, "").strip() or str(MetricsSettings.metrics_prom_exporter_port)
    # An invalid number is rejected together with the other settings. 0 selects any free port for each process.
    return {_PAGE_PORT: str(int(text) + place)} if text.isascii() and text.isdigit() and int(text) else {}


def inner_address(host: str, port: int) -> str:
    """Return the address at which processes of this machine reach a listening host: `host:port`.

    An advertised address may be reachable only from other machines (a container's host, a NAT).
    """
    reached = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{bracketed(reached)}:{port}"


def _broker_settings(one: EmbeddedSettings, namesrv: str, advertised: str) -> tuple[BrokerSettings, StoreSettings]:
    home = one.home or one.data
    root = home / "store"
    broker = replace(
        BrokerSettings(),
        broker_name=one.broker_name,
        broker_cluster_name=one.cluster,
        broker_ip1=advertised,
        bind_address=one.host,
        listen_port=one.broker_port or free_port_pair(one.host),
        namesrv_addr=namesrv,
        broker_config_path=str(home / "broker.conf"),
        # RocketMQ's default is off, because operators decide. An embedded server has no operator to enable it.
        enable_property_filter=True,
        slave_read_enable=one.values.get("enableDLegerCommitLog") == "true",
        linger_micros=one.linger_micros,
        acl_config_path=str(one.data / ACCOUNTS),
        metrics_prom_exporter_host=PAGE_HOST,
    )
    store = replace(
        StoreSettings(),
        store_path_root_dir=str(root),
        store_path_commit_log=str(root / "commitlog"),
        mapped_file_size_commit_log=SEGMENT_BYTES,
        # Ordinary clients request at most 32 messages. A small limit would slow down clients that request more, such as
        # Spark.
        max_transfer_count_on_message_in_memory=READ_AT_ONCE,
        clean_file_forcibly_enable=False,
        disk_space_enough_free_bytes=ENOUGH_FREE_BYTES,
    )
    flush = {"flushDiskType": one.flush} if one.flush else {}
    return configured(
        BROKER_RULES, with_profile({**one.values, **flush}), (broker, store), Path(broker.broker_config_path)
    )


def check_values(values: Mapping[str, str]) -> None:
    """Reject keys that an embedded server sets itself.

    Raises:
        ConfigError: lists each rejected key and the option to use instead.
    """
    faults = Faults()
    for keys, instead in DECIDED.items():
        for key in keys:
            if key in values:
                faults.note(
                    f"{key}={shown(values[key])}: `tianzhou serve` decides that itself: {instead}; `tianzhou broker` "
                    "and `tianzhou namesrv` take the key"
                )
    faults.check()


def configured(rules: Rules, values: Mapping[str, str], settings: tuple[Any, ...], file: Path) -> tuple[Any, ...]:
    """Return settings with the changes saved while the server last ran, overridden by `values`.

    Args:
        rules: rules of the server's settings.
        values: settings of this start; keys of other servers are ignored.
        settings: the default settings.
        file: settings file with the changes by requests.

    Raises:
        ConfigError: one of the values is invalid.
    """
    try:
        written = read_settings(file)
    except ConfigError as error:
        log.warning("%s; what was changed while the server ran last does not count", error)
        written = SavedSettings()
    changed = written.changed or frozenset()
    if written.changed is None:
        # An earlier version wrote the file with every key. Values that differ from the defaults count as changed.
        defaults = dump(*(type(one)() for one in settings))
        changed = frozenset(
            key for key in rules.changeable if written.values.get(key, defaults.get(key)) != defaults.get(key)
        )
    settings, left_out = with_saved(rules, {k: v for k, v in written.values.items() if k in changed}, settings)
    for text in left_out:
        log.warning("%s: %s", file, text)
    faults = Faults()
    settings = tuple(apply(one, values, source="settings", faults=faults) for one in settings)
    check(rules, *settings, source="settings", faults=faults)
    faults.check()
    return settings


def client_tls_settings(tls: TlsSettings) -> TlsSettings:
    """Return TLS settings for the broker's connection to the name server of its process, which needs no verification.

    The name server may still require a client certificate. The broker then shows its own certificate, or the server's
    if it has none.
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
    """Return the address to advertise to clients, with IPv6 in brackets. Reject an address that no client can reach.

    Args:
        host: the listening address; `0.0.0.0` listens on all addresses.
        advertise: the address chosen by the operator; empty derives it.

    Raises:
        ConfigError: no client can reach the address; the text has the remedy.
    """
    if advertise:
        check_advertised(f"--advertise {advertise}", advertise, host)
        return bracketed(advertise)
    return bracketed(first_address() if host in EVERYWHERE else host)


def check_advertised(name: str, address: str, host: str) -> None:
    """Reject an address that no client can reach in any network.

    Args:
        name: flag or key with its value, for messages.
        address: the advertised address.
        host: the listening address.

    Raises:
        ConfigError: no client can reach the address; the text has the remedy.
    """
    advertised = _resolve(name, address)
    if any(map(_never_a_host, advertised)):
        raise ConfigError(
            f"{name}: nobody can connect to it; give this machine's address as clients see it, "
            f"for example {first_address()}"
        )
    if host in EVERYWHERE:
        return
    listens_on_loopback = all(found.is_loopback for found in _resolve(f"--host {host}", host))
    advertises_loopback = all(found.is_loopback for found in advertised)
    if listens_on_loopback and not advertises_loopback:
        raise ConfigError(
            f"{name}: the server would listen on loopback only ({host}), so clients that get this address "
            "could not reach it; listen on 0.0.0.0 as well"
        )
    if advertises_loopback and not listens_on_loopback:
        raise ConfigError(
            f"{name}: the server would listen on {host} only, so clients that get loopback could not reach it; "
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


def bracketed(host: str) -> str:
    """Return a host in the form before `:port`: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
