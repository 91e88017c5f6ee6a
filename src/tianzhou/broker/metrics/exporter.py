"""Assembly of a broker's metrics exporter: families, targets and access."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from tianzhou.broker.metrics.lag import ConsumerLag
from tianzhou.broker.metrics.readiness import Facts, judge
from tianzhou.broker.metrics.request_times import RequestTimes
from tianzhou.broker.metrics.state import BrokerState
from tianzhou.broker.metrics.traffic import Traffic
from tianzhou.broker.services import Services
from tianzhou.metrics.collecting import Collector
from tianzhou.metrics.exporter import Exporter
from tianzhou.metrics.families import Family, Steps, gauge
from tianzhou.metrics.http_server import MetricsServer
from tianzhou.metrics.process import LoopLag, process_steps
from tianzhou.metrics.readiness import Readiness
from tianzhou.metrics.settings import DISABLED
from tianzhou.remoting.connection import Processor
from tianzhou.remoting.gates.page_gate import PageGate
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.server import RemotingServer
from tianzhou.remoting.tls import ServerTls


class BrokerMetrics:
    """Metrics of a broker; without effect when the settings disable them.

    Args:
        services: the broker's services.
        waiting_sends: number of sends that wait for the disk or for copies.
        long_polls: number of pulls that wait for messages.
        registered: whether a name server has registered the broker.
        name_servers: whether the broker has name servers.

    Attributes:
        servers: servers of its ports; empty until they are open.
        exporter: the exporter; None until the start, and when metrics are disabled.
    """

    def __init__(
        self,
        services: Services,
        *,
        waiting_sends: Callable[[], int],
        long_polls: Callable[[], int],
        registered: Callable[[], bool],
        name_servers: Callable[[], bool],
    ) -> None:
        self._services = services
        self._registered, self._name_servers = registered, name_servers
        self.servers: list[RemotingServer] = []
        self.exporter: Exporter | None = None
        self._loop_lag = LoopLag()
        self._times = RequestTimes(services.clock.monotonic)
        settings = services.tables.settings
        most = settings.metrics_otel_cardinality_limit
        self._traffic = Traffic(services.stats, services.tables.topics, most)
        self._state = BrokerState(services, self._groups, waiting_sends, long_polls, most)
        self._lag = ConsumerLag(services.tables, services.store, services.clock, most)

    @property
    def enabled(self) -> bool:
        """Whether the settings enable metrics."""
        return self._services.tables.settings.metrics_exporter != DISABLED

    def observe(self, table: dict[int, Processor]) -> None:
        """Time requests, if metrics are enabled.

        Args:
            table: handlers by request code; changed in place.
        """
        if self.enabled:
            self._times.observe(table)
            self._services.stats.put_latency.listener = self._times.note_send

    def note_pull(self, ms: float) -> None:
        """Add a sample of the duration of a pull that was served without its handler."""
        if self.enabled:
            self._times.note_pull(ms)

    async def start(self, tls: ServerTls | None) -> None:
        """Start the exporter.

        Args:
            tls: TLS of the broker's ports, for the page.

        Raises:
            ConfigError: the page's address cannot be bound, or a package is missing.
        """
        if not self.enabled:
            return
        services, settings = self._services, self._services.tables.settings
        self._loop_lag.start()
        state, traffic = self._state, self._traffic
        collector = Collector(
            (
                traffic.incoming, traffic.outgoing, traffic.endings, self._requests, state.clients, state.tables,
                state.storage, state.copies, state.limits, self._loop_lag.steps, process_steps,
            ),
            (self._lag.families, self._reserve),
            {"cluster": settings.broker_cluster_name, "node_type": "broker", "node_id": settings.broker_name},
            services.clock.monotonic,
        )  # fmt: skip
        gate = PageGate(settings.metrics_allowed_addresses, services.access, services.tables.refusals)
        self.exporter = Exporter(
            settings,
            collector,
            host=settings.broker_ip1,
            ready=self.ready,
            allowed=gate.allowed,
            supervisor=services.supervisor,
            monotonic=services.clock.monotonic,
            bounds=services.tables.bounds,
            exposed=lambda host: gate.warning("broker", host),
            tls=tls and tls.for_page,
        )
        await self.exporter.start()

    async def close(self) -> None:
        """Close the exporter."""
        self._loop_lag.close()
        if self.exporter is not None:
            await self.exporter.close()

    @property
    def page(self) -> MetricsServer | None:
        """The server of the page; None without one."""
        return None if self.exporter is None else self.exporter.page

    def ready(self) -> Readiness:
        """Return whether clients should use the broker."""
        services = self._services
        return judge(
            Facts(
                serving=bool(self.servers),
                registered=self._registered(),
                name_servers=self._name_servers(),
                refusal=services.store.flags.refusal,
                permission=services.tables.settings.broker_permission,
                master=not services.replication.is_slave,
                failing=tuple(one.name for one in services.supervisor.troubles.present()),
            )
        )

    def _groups(self) -> Iterable[tuple[int, ConnectionGroup[Any]]]:
        return [(server.port, server.group) for server in self.servers]

    def _requests(self) -> Steps:
        stats = self._services.stats
        return self._times.steps(self._traffic.sends, stats.found + stats.missed)

    async def _reserve(self) -> AsyncIterator[Family]:
        store, clock = self._services.store, self._services.clock
        oldest = await store.find(store.lookups.record_time_steps(max(store.begin_offset, 0)))
        yield gauge(
            "rocketmq_storage_message_reserve_time", "Milliseconds since the oldest message was stored.",
            max(clock.now_ms() - oldest, 0) if oldest > 0 else 0, storage_type="local", storage_medium="disk",
        )  # fmt: skip
