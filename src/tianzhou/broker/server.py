"""The broker as a whole: the module that assembles all parts (broker.md §3).

Start: lock and recover the store, load the tables, listen, register. Stop: unregister, cancel tasks, write the tables.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tianzhou.broker.addresses import FAST_PORT_BELOW, first_address, free_port_pair, host_bytes
from tianzhou.broker.duties import MasterDuties
from tianzhou.broker.handlers.access_config import AccessConfigHandler
from tianzhou.broker.handlers.access_users import AccessUsersHandler
from tianzhou.broker.handlers.client_relay import ClientRelayHandler
from tianzhou.broker.handlers.clients import ClientHandler
from tianzhou.broker.handlers.cold_reads import ColdReadHandler
from tianzhou.broker.handlers.config import ConfigHandler
from tianzhou.broker.handlers.consume_stats import ConsumeStatsHandler
from tianzhou.broker.handlers.groups import GroupHandler
from tianzhou.broker.handlers.handler import Handler
from tianzhou.broker.handlers.offset_resets import OffsetResetHandler
from tianzhou.broker.handlers.offsets import OffsetHandler
from tianzhou.broker.handlers.pull import PullHandler
from tianzhou.broker.handlers.queries import QueryHandler
from tianzhou.broker.handlers.queue_locks import QueueLockHandler
from tianzhou.broker.handlers.queue_units import QueueUnitHandler
from tianzhou.broker.handlers.recall import RecallHandler
from tianzhou.broker.handlers.replication import ReplicationHandler
from tianzhou.broker.handlers.request_reply import RequestReplyHandler
from tianzhou.broker.handlers.retention import RetentionHandler
from tianzhou.broker.handlers.runtime_info import RuntimeInfoHandler
from tianzhou.broker.handlers.send import SendHandler
from tianzhou.broker.handlers.send_back import SendBackHandler
from tianzhou.broker.handlers.staging import StagingHandler
from tianzhou.broker.handlers.topics import TopicHandler
from tianzhou.broker.handlers.transactions import TransactionHandler
from tianzhou.broker.housekeeping import PROTECT_MS, SWEEP_MS, Housekeeping
from tianzhou.broker.large_bodies import NonUrgentRequests
from tianzhou.broker.messages.acknowledgements import Acknowledgements
from tianzhou.broker.messages.message_filter import bitmap_of
from tianzhou.broker.metrics.exporter import BrokerMetrics
from tianzhou.broker.overload import waited_too_long
from tianzhou.broker.registration.members import GroupMembers
from tianzhou.broker.registration.name_servers import CurrentNameServers
from tianzhou.broker.registration.registrar import Registrar
from tianzhou.broker.repeated_work import repeat
from tianzhou.broker.replication.log_repairs import LogRepairs
from tianzhou.broker.replication.metadata_sync import WORK as MASTER_TABLES
from tianzhou.broker.replication.replication import Replication
from tianzhou.broker.router import NOT_ON_FAST_PORT, Router
from tianzhou.broker.send_limits.handler import SendLimitHandler
from tianzhou.broker.services import Services
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.staging.staging_publisher import StagingPublisher
from tianzhou.broker.state import Tables, make_tables
from tianzhou.broker.state_files import StateFiles, stored_queues
from tianzhou.broker.stats.channels import Channels
from tianzhou.broker.stats.stats import BrokerStats
from tianzhou.broker.tables.topics import follow_queue_types
from tianzhou.broker.transactions.transaction_checker import TransactionChecker
from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import TianzhouError
from tianzhou.log_levels import KEY as LOG_LEVELS
from tianzhou.logs import CHANGED_LEVELS
from tianzhou.remoting.client import RemotingClient, RpcHook
from tianzhou.remoting.gates.access_control import AccessControl, Credentials, access_control, kept_users
from tianzhou.remoting.gates.admin_gate import AdminGate, exposure_warning
from tianzhou.remoting.gates.peer_addresses import TrustedProxies
from tianzhou.remoting.server import RemotingServer
from tianzhou.remoting.tls import ServerTls, TlsSettings, client_context
from tianzhou.remoting.unread import UnreadReplies
from tianzhou.remoting.users.user_store import UserStore
from tianzhou.replication.allowed_addresses import AllowedAddresses
from tianzhou.replication.ha_client import WORK as COPYING
from tianzhou.replication.port_protection import PortProtection
from tianzhou.store.settings import StoreSettings
from tianzhou.store.store import MessageStore
from tianzhou.supervision import Supervisor, start_owned
from tianzhou.troubles import Troubles, summary

LEAST_LATENESS_S = 0.05
"""Requests that waited less than these seconds are served without a check of the wait limits."""
REOPEN_AGAIN_S = 3.0
"""Seconds between two attempts to reopen the store."""

_log = logging.getLogger(__name__)


class Broker:
    """A broker, used as `async with Broker(settings, store_settings) as broker`.

    Inside the block it serves. `await broker.ready()` returns once a name server knows it.

    Args:
        settings: see `BrokerSettings`.
        store_settings: see `StoreSettings`.
        clock: source of time.
        port_setting: name of the setting that sets the port, for the error when the port is in use.
        tls: see `TlsSettings`; by default the broker accepts both TLS and plain connections.
        rng: source of randomness.
        access: started access control of this process's name server; None creates one from the settings.
        own: credentials with which servers of one process sign requests when the settings name none.

    Attributes:
        hooks: inside the block, hooks that sign the broker's own requests.
        troubles: the tasks that are failing now.
        replication: inside the block, this broker's part in its group.
        left_undone: after the block, texts about failing tasks and unwritten files at the stop; empty without any.

    Raises:
        ConfigError: on entry, when an address cannot be used.
        StoreError: on entry, when the store is in use or cannot be opened.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        *,
        clock: Clock | None = None,
        port_setting: str = "listenPort",
        tls: TlsSettings | None = None,
        rng: random.Random | None = None,
        access: AccessControl | None = None,
        own: Credentials | None = None,
    ) -> None:
        self._access = access
        self._own = own
        self._tls = tls or TlsSettings()
        self._rng = rng or random.Random()
        self.settings = settings
        self.store_settings = store_settings
        self._clock = clock or SystemClock()
        self._port_setting = port_setting
        self._stack = AsyncExitStack()
        self.hooks: list[RpcHook] = []
        self.troubles = Troubles()
        self.left_undone: list[str] = []
        self._supervisor = Supervisor("broker", self._clock, self.troubles)
        self._port = 0
        self._reopening: asyncio.Task[None] | None = None
        self._started = False

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.gather(self._reopening, return_exceptions=True)
        # The master may be stopped before its slave; its log and tables are asked for again at the next start.
        present = [trouble for trouble in self.troubles.present() if trouble.name not in {COPYING, MASTER_TABLES}]
        if present:
            self.left_undone.append(summary(present))
        await self._stop()

    async def _stop(self) -> None:
        if not self._started:
            return
        self._started = False
        try:
            await self.replication.leave()
            # End the registration task first, or it might register the broker again after the unregistration.
            await self._supervisor.end()
            await self._parts.registrar.unregister()
        finally:
            await self._stack.aclose()
            self.left_undone += [*self._files.unwritten, *filter(None, [self._store.unclean])]
        _log.info("broker %s stopped", self.settings.broker_name)

    def _reopen(self) -> None:
        """Stop the broker and start it again on the same port, because the store has to be reopened."""
        if self._reopening is None:
            self._reopening = start_owned(self._stop_and_start(), "broker", name="broker restart")

    async def _stop_and_start(self) -> None:
        try:
            await self._stop()
        except Exception:  # noqa: BLE001 - whatever it is, nobody else starts this broker
            _log.exception("the broker did not stop cleanly before it is reopened")
        while True:
            self._stack = AsyncExitStack()
            self._supervisor = Supervisor("broker", self._clock, self.troubles)
            try:
                await self._start()
            except TianzhouError as error:
                await self._stack.aclose()
                _log.error("the broker cannot be reopened, it is tried again in %g s: %s", REOPEN_AGAIN_S, error)
                await asyncio.sleep(REOPEN_AGAIN_S)
            except BaseException:
                await self._stack.aclose()
                raise
            else:
                self._reopening = None
                return

    @property
    def port(self) -> int:
        """The main port."""
        return self._port

    @property
    def address(self) -> str:
        """Advertised address, `host:port`."""
        return f"{self.settings.broker_ip1}:{self._port}"

    @property
    def metrics_address(self) -> str:
        """Address of the metrics page, `host:port`; empty without one."""
        return "" if (page := self._parts.metrics.page) is None else page.address

    @property
    def metrics_url(self) -> str:
        """URL of the metrics page; empty without one."""
        return "" if (page := self._parts.metrics.page) is None else page.url

    @property
    def tables(self) -> Tables:
        """The broker's state, for callers in the same process."""
        return self._tables

    @property
    def store(self) -> MessageStore:
        """The message store."""
        return self._store

    async def ready(self) -> None:
        """Return once a name server has registered this broker and each other name server has answered or timed out."""
        await self._parts.registrar.ready()

    # start, in the order of broker.md §3.2; the exit stack undoes it in reverse

    async def _start(self) -> None:
        settings, clock = self.settings, self._clock
        if settings.log_levels:
            CHANGED_LEVELS.change(settings.log_levels)
        settings.broker_ip1 = settings.broker_ip1 or first_address()
        settings.broker_ip2 = settings.broker_ip2 or settings.broker_ip1
        self._port = settings.listen_port or self._port or free_port_pair(settings.bind_address)
        host = host_bytes(settings.broker_ip1)
        now = clock.now_ms()
        self._tables = make_tables(settings, self.store_settings, now)
        self._store = MessageStore(
            self.store_settings, clock, store_host=host, store_port=self._port, troubles=self.troubles
        )
        # Lock the store folder first: this broker must not read or write tables that another process uses.
        self._store.open()
        self._stack.push_async_callback(self._store.close)
        self._files = StateFiles(self._tables, self.store_settings.root / "config", clock, self._supervisor)
        self._files.load(stored_queues(self._store))
        self._stack.callback(self._files.close)
        self._stack.callback(self._write_metrics)
        await self._store.start()
        folder, cluster = self.store_settings.root / "config", settings.broker_cluster_name
        access = self._access or access_control(settings, folder, cluster, self._tables.bounds, clock, self._own)
        if access is not None and self._access is None:
            await access.start(self._supervisor.own)
            self._stack.push_async_callback(access.close)
        if access is not None:
            access.report_to(self._supervisor)
        users = await kept_users(self._stack, access, settings, folder, cluster, self._tables.bounds)
        self.hooks = access.hooks if access else []
        gate = access.gate if access else None
        self._server_tls = ServerTls(self._tls)
        speaks_tls = self._tls.enable or settings.use_tls
        context = client_context(self._tls) if self._tls.replicates(enabled=speaks_tls) else None
        allowed = AllowedAddresses(settings.replication_allowed_addresses)
        protection = PortProtection(allowed, self._server_tls, context, gate, self.hooks)
        part = self._store, settings, clock, self._port, self._reopen, protection
        replication: Replication
        if self.store_settings.enable_d_leger_commit_log:
            from tianzhou.broker.replication.group import GroupReplication

            replication = GroupReplication(*part, self._rng.random)
        else:
            replication = Replication(*part)
        replication.keep_tables(self._tables, self._files, access)
        self.replication = replication
        client = await self._stack.enter_async_context(
            RemotingClient(
                connect_timeout_ms=settings.connect_timeout_millis,
                clock=clock,
                hooks=self.hooks,
                tls=client_context(self._tls) if speaks_tls else None,
            )
        )
        services = Services(
            self._tables, self._store, BrokerStats(now, settings.broker_cluster_name), clock, self._supervisor,
            self.address, (host, self._port), replication, self._rng, gate,
        )  # fmt: skip
        self._parts = make_parts(
            services, client=client, written=self._files.settled, settings_changed=self._settings_changed,
            access=access, users=users,
        )  # fmt: skip
        parts, own, again = self._parts, self._supervisor.own, partial(repeat, self._supervisor)
        duties = MasterDuties(services, parts.transactions, parts.staging)
        self._stack.push_async_callback(duties.end)
        self._stack.push_async_callback(self._supervisor.end)
        register = parts.registrar.register_again
        await replication.begin(self._supervisor, self._tables, client, register, duties)
        parts.router.observed(parts.metrics.observe)
        await self._listen(parts.router)
        self._stack.push_async_callback(parts.metrics.close)
        await parts.metrics.start(self._server_tls)
        await self._stack.enter_async_context(replication)
        own("state files", self._files.run)
        own("acknowledgements", parts.acks.run)
        own("registration", parts.registrar.run)
        own("name servers", lambda: parts.names.run(parts.registrar.request))
        again(lambda: settings.flush_consumer_offset_interval, self._files.write_offsets)
        again(lambda: self.store_settings.flush_delay_offset_interval, self._files.write_delays)
        again(lambda: settings.transaction_metric_flush_interval, self._write_metrics)
        again(lambda: SWEEP_MS, self._write_filters)
        again(lambda: SWEEP_MS, self._parts.housekeeping.sweep)
        again(lambda: PROTECT_MS, self._parts.housekeeping.protect)
        note = exposure_warning("broker", settings.bind_address, settings.enable_remote_admin)
        if note and access is None:
            _log.warning("%s", note)
        _log.info("broker %s listens on port %d, advertised as %s", settings.broker_name, self._port, self.address)
        self._started = True

    async def _listen(self, router: Router) -> None:
        settings = self.settings
        ports = {self._port: router}
        if settings.listen_port > FAST_PORT_BELOW:
            ports[self._port - FAST_PORT_BELOW] = router.without(NOT_ON_FAST_PORT)
        unread = UnreadReplies()
        for port, served in ports.items():
            server = await self._stack.enter_async_context(
                RemotingServer(
                    settings.bind_address,
                    port,
                    served.serve,
                    idle_timeout_s=settings.server_channel_max_idle_time_seconds,
                    busy_poll_s=settings.linger_micros / 1e6,
                    clock=self._clock,
                    port_setting=self._port_setting,
                    late=router.serve_late,
                    late_after_s=LEAST_LATENESS_S,
                    on_connect=self._parts.channels.connected,
                    tls=self._server_tls,
                    bounds=self._tables.bounds,
                    unread=unread,
                    trusted_proxies=TrustedProxies.parse(settings.proxy_protocol_trusted),
                    fast_paths=served.fast_paths,
                )
            )
            self._parts.metrics.servers.append(server)

    def _settings_changed(self, keys: set[str]) -> None:
        self._tables.groups.auto_create = self.settings.auto_create_subscription_group
        self._tables.groups.create_system = self.settings.enable_create_sys_group
        self._parts.send.settings_changed()
        self.replication.setting_changed(keys)
        self._parts.housekeeping.follow_settings()
        self._store.settings_changed()
        if "dataReadAheadEnable" in keys:
            self._store.read_ahead(self.store_settings.data_read_ahead_enable)
        if LOG_LEVELS in keys:
            CHANGED_LEVELS.change(self.settings.log_levels)
        if "brokerPermission" in keys:
            self._tables.topics.touch(self._clock.now_ms())
        if "namesrvAddr" in keys:
            self._parts.registrar.request()

    def _write_metrics(self) -> None:
        self._files.write_metrics(self._clock.now_ms())

    def _write_filters(self) -> None:
        self._tables.filters.clean(self._clock.now_ms(), self.settings.filter_data_clean_time_span)
        self._files.write_filters()


@dataclass(frozen=True, slots=True)
class Parts:
    """The request router and the handlers that other code uses."""

    router: Router
    send: SendHandler
    pulls: PullHandler
    acks: Acknowledgements
    clients: ClientHandler
    names: CurrentNameServers
    registrar: Registrar
    housekeeping: Housekeeping
    channels: Channels
    transactions: TransactionChecker
    staging: StagingPublisher
    metrics: BrokerMetrics


def make_parts(
    services: Services,
    *,
    client: RemotingClient,
    written: Callable[[], Awaitable[None]],
    settings_changed: Callable[[set[str]], None],
    access: AccessControl | None = None,
    users: UserStore | None = None,
) -> Parts:
    """Make the request handlers.

    Args:
        services: the broker's services.
        client: client for requests to name servers and brokers.
        written: waits until changed tables are on the disk.
        settings_changed: called with the keys after settings were changed by request.
        access: access control; None allows all requests.
        users: the user store that requests manage; None when the broker has none.
    """
    tables, store, stats, clock = services.tables, services.store, services.stats, services.clock
    settings, root = tables.settings, store.settings.root
    names = CurrentNameServers(settings)
    registrar = Registrar(services, client, names)
    stats.is_system, stats.bounds = tables.topics.is_system, tables.bounds
    tables.topics.listeners.append(lambda _: registrar.request())
    follow_queue_types(tables.topics, store.queue_kinds)
    store.queue_kinds.filter_bitmap = partial(bitmap_of, settings, tables.filters)

    async def settled() -> None:
        await written()
        await registrar.settled()

    acks = Acknowledgements(store, stats, clock, tables.bounds)
    send = SendHandler(services, acks)
    clients = ClientHandler(services)
    pulls = PullHandler(services)
    housekeeping = Housekeeping(services, clients)
    housekeeping.follow_settings()
    channels = Channels(stats, clock, settings.server_channel_max_idle_time_seconds)
    transactions = TransactionChecker(services)
    staging = StagingPublisher(services, client)
    store.damage.repairs = LogRepairs(services.replication, GroupMembers(services, client, names), client)
    files = access.files if access is not None else None
    rules: list[Handler] = [] if files is None else [AccessConfigHandler(services, files)]
    rules += [] if users is None else [AccessUsersHandler(services, users)]
    config_file = Path(settings.broker_config_path or root / "config" / "broker.properties")
    router = Router(
        send,
        pulls,
        SendBackHandler(services),
        TransactionHandler(services, transactions),
        StagingHandler(services, staging),
        RequestReplyHandler(services),
        OffsetHandler(services),
        QueryHandler(services),
        clients,
        QueueLockHandler(services, client, names),
        TopicHandler(services, settled),
        GroupHandler(services, written),
        ConsumeStatsHandler(services),
        OffsetResetHandler(services),
        ClientRelayHandler(services),
        QueueUnitHandler(services),
        ColdReadHandler(services),
        RecallHandler(services),
        RuntimeInfoHandler(services),
        ReplicationHandler(services),
        RetentionHandler(services),
        SendLimitHandler(services, written),
        ConfigHandler(services, config_file, settings_changed),
        *rules,
        refuse=lambda code, waited_ms: waited_too_long(code, waited_ms, settings),
        # With access control, the peer's account decides, not its machine.
        gate=AdminGate("broker", lambda: access is not None or settings.enable_remote_admin),
        access=services.access,
        turns=services.turns,
        name_servers=lambda: " or ".join(names.addresses),
        around=services.replication.around(
            NonUrgentRequests(services.turns, settings, tables.refusals, clock.monotonic).around
        ),
    )
    metrics = BrokerMetrics(
        services,
        waiting_sends=lambda: len(acks),
        long_polls=lambda: pulls.waiting,
        registered=lambda: registrar.registered,
        name_servers=lambda: bool(names.addresses or names.looked_up),
    )
    pulls.runs.listener = metrics.note_pull
    further = housekeeping, channels, transactions, staging, metrics
    return Parts(router, send, pulls, acks, clients, names, registrar, *further)
