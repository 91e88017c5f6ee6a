"""Metrics `tianzhou_namesrv_*` and readiness of a name server. RocketMQ's name server has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tianzhou import __version__, _hot
from tianzhou.clock import Clock
from tianzhou.limits import Bounds
from tianzhou.metrics.collecting import Collector
from tianzhou.metrics.exporter import Exporter
from tianzhou.metrics.families import Family, Kind, Steps, gauge
from tianzhou.metrics.http_server import MetricsServer
from tianzhou.metrics.process import LoopLag, process_steps
from tianzhou.metrics.readiness import Readiness
from tianzhou.metrics.settings import DISABLED
from tianzhou.namesrv.routes import NamesrvRouteTable
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.remoting.gates.page_gate import PageGate
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.load import server_steps
from tianzhou.remoting.tls import ServerTls
from tianzhou.supervision import Supervisor


class NameServerMetrics:
    """Metrics of a name server. They are exported only when the settings ask for them.

    Args:
        settings: settings of the name server.
        routes: the route table.
        groups: connections of its port, by group.
        access: the access gate, which protects the page; None without access control.
        supervisor: supervisor of tasks, which reports failing tasks.
        clock: source of time.
        bounds: the limits in force.
        tls: TLS of the port, also used for the page.

    Attributes:
        exporter: the exporter; None before the start, and when nothing is exported.
    """

    def __init__(
        self,
        settings: NamesrvSettings,
        routes: NamesrvRouteTable,
        groups: Callable[[], Iterable[tuple[int, ConnectionGroup[Any]]]],
        access: AccessGate | None,
        supervisor: Supervisor,
        clock: Clock,
        bounds: Bounds,
        tls: ServerTls | None,
    ) -> None:
        self._settings = settings
        self._routes = routes
        self._groups = groups
        self._supervisor = supervisor
        self._clock = clock
        self._refusals = bounds.refusals
        self._loop_lag = LoopLag()
        self.exporter: Exporter | None = None
        if settings.metrics_exporter == DISABLED:
            return
        collector = Collector(
            (self._routes_of, self._brokers, self._limits, self._loop_lag.steps, process_steps),
            (),
            {"cluster": "", "node_type": "nameserver", "node_id": f"namesrv:{settings.listen_port}"},
            clock.monotonic,
        )
        gate = PageGate(settings.metrics_allowed_addresses, access, bounds.refusals)
        self.exporter = Exporter(
            settings,
            collector,
            host=settings.bind_address,
            ready=Readiness,
            allowed=gate.allowed,
            supervisor=supervisor,
            monotonic=clock.monotonic,
            bounds=bounds,
            exposed=lambda host: gate.warning("name server", host),
            tls=tls and tls.for_page,
        )

    @property
    def page(self) -> MetricsServer | None:
        """Server of the metrics page; None without a page."""
        return None if self.exporter is None else self.exporter.page

    async def start(self) -> None:
        """Start to export, if the settings enable metrics.

        Raises:
            ConfigError: the page's address cannot be bound, or a package is missing.
        """
        if self.exporter is not None:
            await self.exporter.start()
            self._loop_lag.start()

    async def close(self) -> None:
        """Stop to export."""
        self._loop_lag.close()
        if self.exporter is not None:
            await self.exporter.close()

    def _routes_of(self) -> Steps:
        yield gauge("tianzhou_namesrv_topics", "Topics that have routes.", self._routes.topic_count)
        yield gauge("tianzhou_namesrv_routes", "Topics, each as often as brokers have it.", self._routes.route_count)
        info = {"version": __version__, "hot": _hot.MODE, "broker_id": ""}
        yield gauge("tianzhou_build_info", "1; the labels say what runs.", 1, **info)

    def _brokers(self) -> Steps:
        live, now = self._routes.live(), self._clock.monotonic() * 1000
        yield gauge("tianzhou_namesrv_brokers", "Brokers that are registered.", len(live))
        silent = Family(
            "tianzhou_namesrv_broker_silent_seconds", Kind.GAUGE, "Seconds since a broker was heard of.",
            ("broker_cluster", "address"), self._settings.metrics_otel_cardinality_limit,
        )  # fmt: skip
        for number, one in enumerate(live, 1):
            silent.add(max(now - one.last_update_ms, 0) / 1000, one.cluster, one.address)
            if number % 200 == 0:
                yield None
        yield silent
        masters = Family(
            "tianzhou_namesrv_master", Kind.GAUGE, "1 for each broker name that has a master, 0 for one that has none.",
            ("broker_cluster", "broker_name"), self._settings.metrics_otel_cardinality_limit,
        )  # fmt: skip
        for cluster, name, has_master in self._routes.masters():
            masters.add(int(has_master), cluster, name)
        yield masters

    def _limits(self) -> Steps:
        yield from server_steps(self._groups(), self._refusals, self._supervisor.troubles)
