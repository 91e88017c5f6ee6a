"""A running name server: port, tables, liveness scan."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import RemotingError
from tianzhou.limits import Bounds
from tianzhou.logs import CHANGED_LEVELS
from tianzhou.namesrv.handlers import NamesrvHandlers
from tianzhou.namesrv.kv import KvConfig
from tianzhou.namesrv.metrics import NameServerMetrics
from tianzhou.namesrv.other_environment import OtherEnvironment
from tianzhou.namesrv.routes import MinBrokerChange, NamesrvRouteTable, Registration
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.client import RemotingClient, RpcHook
from tianzhou.remoting.gates.access_control import AccessControl, Credentials, access_control, prepared_users
from tianzhou.remoting.gates.admin_gate import exposure_warning
from tianzhou.remoting.gates.peer_addresses import TrustedProxies
from tianzhou.remoting.loop_stall import StallAwareTimer
from tianzhou.remoting.server import RemotingServer
from tianzhou.remoting.tls import ServerTls, TlsSettings, client_context
from tianzhou.supervision import Supervisor, start_owned
from tianzhou.troubles import summary
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header

FIRST_SCAN_S = 0.005
NOTIFY_TIMEOUT_MS = 300
_log = logging.getLogger(__name__)


class NameServer:
    """A name server, which stores routes of topics for brokers and clients without other name servers (wire.md §8).

    Use it as an async context manager. It serves requests inside the block.

    Args:
        settings: see `NamesrvSettings`.
        clock: source of time for liveness and idle connections.
        port_setting: name of the setting with the port, for the error when the port is in use.
        tls: see `TlsSettings`; by default both TLS and plain connections are served.
        on_register: called with every accepted registration.
        rng: source of randomness.
        access: access control that a broker of this process starts and shares; None creates its own from the settings.
        own: credentials that sign requests of servers started together, when the settings name none.

    Attributes:
        left_undone: after the block, the tasks that were failing at its end; empty without failures.

    Raises:
        ConfigError: on entry, the address cannot be bound or the KV configuration cannot be read.
    """

    def __init__(
        self,
        settings: NamesrvSettings | None = None,
        *,
        clock: Clock | None = None,
        port_setting: str = "listenPort",
        tls: TlsSettings | None = None,
        on_register: Callable[[Registration], None] | None = None,
        rng: random.Random | None = None,
        access: AccessControl | None = None,
        own: Credentials | None = None,
    ) -> None:
        tls = tls or TlsSettings()
        settings = settings or NamesrvSettings()
        self._clock = clock or SystemClock()
        bounds = Bounds(settings)
        self._kv = KvConfig(settings.kv_config_file, bounds)
        self._own_access = None
        if access is None:
            folder = settings.config_file.parent
            access = self._own_access = access_control(settings, folder, "", bounds, self._clock, own)
        self._access = access
        self._prepared = prepared_users(access, settings, settings.config_file.parent, "", bounds)
        self._client = RemotingClient(
            clock=self._clock,
            hooks=self.hooks,
            tls=client_context(tls) if tls.enable else None,
        )
        self._elsewhere = OtherEnvironment(self._client, self._clock, rng or random.Random())
        self._handlers = NamesrvHandlers(
            settings,
            NamesrvRouteTable(
                support_acting_master=settings.support_acting_master,
                delete_topics_on_register=settings.delete_topic_with_broker_registration,
                bounds=bounds,
            ),
            self._kv,
            self._clock,
            self._notify,
            on_register,
            self._elsewhere,
            bounds,
            self._access,
            self._prepared,
        )
        self._server = RemotingServer(
            settings.bind_address,
            settings.listen_port,
            self._handlers.serve,
            idle_timeout_s=settings.server_channel_max_idle_time_seconds,
            clock=self._clock,
            port_setting=port_setting,
            tls=(server_tls := ServerTls(tls)),
            bounds=bounds,
            trusted_proxies=TrustedProxies.parse(settings.proxy_protocol_trusted),
        )
        self.left_undone: list[str] = []
        self._scan_timer: StallAwareTimer | None = None
        self._notices: dict[asyncio.Task[None], None] = {}
        self._supervisor = Supervisor("name server", self._clock)
        if access is not None:
            access.report_to(self._supervisor)
        self._metrics = NameServerMetrics(
            settings,
            self._handlers.routes,
            lambda: [(self._server.port, self._server.group)],
            self._access.gate if self._access else None,
            self._supervisor,
            self._clock,
            bounds,
            server_tls,
        )

    @property
    def port(self) -> int:
        """The port of the name server."""
        return self._server.port

    @property
    def metrics_address(self) -> str:
        """Address of the metrics page, `host:port`; empty without a page."""
        return "" if (page := self._metrics.page) is None else page.address

    @property
    def metrics_url(self) -> str:
        """URL of the metrics page; empty without a page."""
        return "" if (page := self._metrics.page) is None else page.url

    @property
    def settings(self) -> NamesrvSettings:
        """The settings in force, including changes by requests."""
        return self._handlers.settings

    @property
    def hooks(self) -> Sequence[RpcHook]:
        """Hooks that sign this server's own requests; empty without access control."""
        return self._access.hooks if self._access else ()

    @property
    def routes(self) -> NamesrvRouteTable:
        """The route table."""
        return self._handlers.routes

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._supervisor.troubles:
            self.left_undone.append(summary(self._supervisor.troubles.present()))
        await self.close()

    async def start(self) -> None:
        """Read the KV configuration, start to listen, and start the liveness scan of brokers."""
        if self.settings.log_levels:
            CHANGED_LEVELS.change(self.settings.log_levels)
        self._kv.load()
        if self._own_access is not None:
            await self._own_access.start(self._supervisor.own)
        if self._prepared is not None:
            await self._prepared.start()
        await self._server.start()
        await self._metrics.start()
        self._scan_timer = StallAwareTimer(asyncio.get_running_loop(), FIRST_SCAN_S, self._scan)
        note = exposure_warning("name server", self._server.host, self.settings.enable_remote_admin)
        if note and self._access is None:
            _log.warning("%s", note)
        _log.info("name server listens on %s:%d", self._server.host, self.port)

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        await self._metrics.close()
        await self._elsewhere.close()
        await self._supervisor.end()
        await self._server.close()
        if self._own_access is not None:
            await self._own_access.close()
        if self._prepared is not None:
            await self._prepared.close()
        await self._kv.close()
        for task in list(self._notices):
            task.cancel()
        if self._notices:
            await asyncio.wait(self._notices)
        await self._client.close()

    def scan(self) -> None:
        """Unregister silent brokers now. The server also does this every `scanNotActiveBrokerInterval` ms."""
        self._handlers.registrations.expire()

    def _scan(self) -> None:
        interval_s = max(self.settings.scan_not_active_broker_interval, 10) / 1000
        self._scan_timer = StallAwareTimer(asyncio.get_running_loop(), interval_s, self._scan)
        with self._supervisor.trial("looking for silent brokers"):
            self.scan()

    def _notify(self, change: MinBrokerChange) -> None:
        for address in change.recipients:
            task = start_owned(self._notify_one(address, change), "name server")
            self._notices[task] = None
            task.add_done_callback(lambda done: self._notices.pop(done, None))

    async def _notify_one(self, address: str, change: MinBrokerChange) -> None:
        code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        fields = write_header(
            code,
            min_broker_id=change.min_broker_id,
            broker_name=change.broker_name,
            min_broker_addr=change.min_broker_address,
            offline_broker_addr=change.offline_address,
            ha_broker_addr=change.ha_address,
        )
        try:
            async with asyncio.timeout(NOTIFY_TIMEOUT_MS / 1000):
                await self._client.invoke_oneway(address, Command(code, fields=fields))
        except (RemotingError, OSError, ValueError) as error:
            _log.warning(
                "broker %s was not notified of the new smallest id of %s: %s", address, change.broker_name, error
            )
