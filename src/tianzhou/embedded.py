"""Name server and broker in one process, on one data folder: for laptops, tests and the main job."""

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
"""A broker's port, as RocketMQ has it."""
SEGMENT_BYTES = 64 * 1024 * 1024
ENOUGH_FREE_BYTES = 5 * 1024**3
READ_AT_ONCE = 1024
"""Most messages of a pull, which stays under RocketMQ's 256 KiB."""
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
"""Keys that an embedded server sets itself, and what to do instead."""
ACCOUNTS: Final = "plain_acl.yml"
"""Where the accounts of RocketMQ 4.x are, in the data folder; further files in the folder `acl` beside it."""
PAGE_HOST: Final = "127.0.0.1"
"""Where pages of metrics are shown, unless a setting names another address."""
_PAGE_PORT: Final = "metricsPromExporterPort"
EVERYWHERE = frozenset({"0.0.0.0", "::", ""})
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")


@dataclass(frozen=True)
class EmbeddedSettings:
    """Settings of an embedded server.

    Attributes:
        data: folder of all its files; RocketMQ's store layout is in `data/store`.
        host: address to listen on.
        advertise: address for clients to connect to; empty derives it from `host`.
        namesrv_port: name server port; 0 takes any free one.
        broker_port: broker port, its fast port is two below; 0 takes a free pair.
        broker_name: the broker's name.
        cluster: the cluster's name.
        flush: ASYNC_FLUSH or SYNC_FLUSH; empty leaves it to `values`.
        home: folder of the broker's own files; None for `data`.
        linger_micros: see `BrokerSettings`; only for a process that does nothing else.
        values: settings of broker, store and name server under RocketMQ's keys; they go before what was changed
            while the server ran last, which goes before the defaults here.
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

    It never deletes unexpired data by itself, takes messages as long as 5 GiB are free however full the disk is,
    keeps 64 MiB segments, and is ready, when entered, in the sense that a client can use it: the broker is registered
    and its topics have routes.

    Args:
        settings: see `EmbeddedSettings`.
        clock: source of time.
        tls: see `TlsSettings`; by default both TLS and plain connections are served.

    Raises:
        ConfigError: an address nobody can reach, a port taken, a value that cannot be, a data folder of a newer
            version.
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
        """Name server address for clients: `host:port`."""
        return f"{self.advertised}:{self.namesrv.port}"

    @property
    def broker_address(self) -> str:
        """Advertised broker address: `host:port`."""
        return f"{self.advertised}:{self.broker.port}"

    @property
    def metrics_address(self) -> str:
        """Where the broker's page of metrics is, `host:port`; empty without one."""
        return self.broker.metrics_address

    @property
    def metrics_url(self) -> str:
        """The same as a URL."""
        return self.broker.metrics_url

    @property
    def left_undone(self) -> list[str]:
        """After the block, what was in trouble when it ended, or could not be written; empty when all is well."""
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
        """Access control of both servers: who is known to one is known to the other."""
        # A port is looked for when the broker starts, behind the name server's.
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
    """The name server of a data folder, not yet entered.

    Args:
        one: where it lives and listens.
        clock: source of time.
        tls: see `TlsSettings`.
        on_register: see `NameServer`.
        access: see `NameServer`.
        own: likewise.
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
    """Start the broker of a name in a data folder; the stack ends it.

    Args:
        stack: what it is entered on.
        one: where it lives and listens.
        namesrv: address of the name server.
        advertised: host for clients.
        clock: source of time.
        tls: see `TlsSettings`.
        access: see `Broker`.
        own: likewise.

    Raises:
        ConfigError: a port is taken.
        StoreError: its store is in use or cannot be opened.
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
    """The setting of the port of one process's page of metrics, where several share the settings.

    Args:
        values: of the start; where they name a port, it is the first broker's.
        place: 0 for the first broker, 1 for the second; -1 for the name server.
    """
    text = values.get(_PAGE_PORT, "").strip() or str(MetricsSettings.metrics_prom_exporter_port)
    # What is no number is refused with the other settings; 0 takes any free one for each.
    return {_PAGE_PORT: str(int(text) + place)} if text.isascii() and text.isdigit() and int(text) else {}


def inner_address(host: str, port: int) -> str:
    """Address at which processes of this machine reach a listening host: `host:port`.

    An advertised address may be one that only the world outside (a container's host, a NAT) can use.
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
        # Off by default as in RocketMQ, where operators decide; here nobody else is there to turn it on.
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
        # Ordinary clients ask for 32 at most; those who ask for more, as Spark does, are not held up by so few.
        max_transfer_count_on_message_in_memory=READ_AT_ONCE,
        clean_file_forcibly_enable=False,
        disk_space_enough_free_bytes=ENOUGH_FREE_BYTES,
    )
    flush = {"flushDiskType": one.flush} if one.flush else {}
    return configured(
        BROKER_RULES, with_profile({**one.values, **flush}), (broker, store), Path(broker.broker_config_path)
    )


def check_values(values: Mapping[str, str]) -> None:
    """Refuse keys that an embedded server sets itself.

    Raises:
        ConfigError: names each key and its replacement.
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
    """Settings with the changes saved while the server ran last, overridden by `values`.

    Args:
        rules: what they may be.
        values: of this start; keys of other servers are left alone.
        settings: the defaults.
        file: has the changes made by request.

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
        # A file of an earlier version, with every key in it: what differs from the defaults was changed.
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
    """TLS settings of the broker towards the name server, which is this process and need not be verified.

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
    """Address to advertise to clients, refused when no client could reach it; IPv6 in brackets.

    Args:
        host: the address listened on; `0.0.0.0` is every one.
        advertise: what the operator chose; empty derives it.

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
        address: the advertised address.
        host: the address listened on.

    Raises:
        ConfigError: it cannot be reached; the text says what to give instead.
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
    """Host as written before `:port`: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
