"""Exporter of a server's metrics by its settings: the Prometheus page, or exports over OTLP or to the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tianzhou.errors import ConfigError
from tianzhou.limits import Bounds
from tianzhou.metrics.collecting import Collector
from tianzhou.metrics.export import Exports, LogExport, export_again_and_again
from tianzhou.metrics.http_server import Allowed, MetricsServer, PageTls
from tianzhou.metrics.readiness import Readiness
from tianzhou.metrics.settings import LOG, OTLP, PROM, MetricsSettings, pairs, static_labels
from tianzhou.supervision import Supervisor

AGGREGATION = {"aggregation": "delta"}
"""Label of all samples with `metricsInDelta`, as RocketMQ sets it."""
_log = logging.getLogger(__name__)


class Exporter:
    """Exports the metrics of a server; an async context manager.

    Args:
        settings: settings of the server.
        collector: collects the families; gets the labels of the settings as further common labels.
        host: address of the page unless the settings name one.
        ready: returns the readiness of the server.
        allowed: returns the HTTP status by a peer's permission to see the page.
        supervisor: owns the export task.
        monotonic: monotonic time, seconds.
        bounds: counts refused requests for the page.
        exposed: returns the warning about a page on an address; empty without a warning.
        tls: decides which connections to the page use TLS; None means plain only.

    Attributes:
        page: serves the page; None without one.
        collector: the argument.
    """

    def __init__(
        self,
        settings: MetricsSettings,
        collector: Collector,
        *,
        host: str,
        ready: Callable[[], Readiness],
        allowed: Allowed,
        supervisor: Supervisor,
        monotonic: Callable[[], float],
        bounds: Bounds,
        exposed: Callable[[str], str] = lambda host: "",
        tls: PageTls | None = None,
    ) -> None:
        self._exposed = exposed
        self._settings = settings
        self.collector = collector
        self._supervisor = supervisor
        self._task: asyncio.Task[None] | None = None
        self._target: Exports | None = None
        self.page: MetricsServer | None = None
        collector.common = {**collector.common, **static_labels(settings.metrics_label)}
        if settings.metrics_exporter == PROM:
            self.page = MetricsServer(
                settings.metrics_prom_exporter_host or host,
                settings.metrics_prom_exporter_port,
                collector.page,
                ready,
                allowed,
                monotonic,
                bounds,
                tls=tls,
            )

    async def start(self) -> None:
        """Serve the page, or start the exports.

        Raises:
            ConfigError: the address cannot be bound, or a package is missing.
        """
        settings = self._settings
        kind = settings.metrics_exporter
        if self.page is not None:
            await self.page.start()
            _log.info("metrics are at %s", self.page.url)
            if warning := self._exposed(self.page.host):
                _log.warning("%s", warning)
        elif kind == OTLP:
            delta = settings.metrics_in_delta
            common = {**self.collector.common, **(AGGREGATION if delta else {})}
            self._target = _otlp(settings, common)
            self._run(self._target, lambda: settings.metric_grpc_exporter_interval_in_mills / 1000)
        elif kind == LOG:
            self._target = LogExport(dict(self.collector.common))
            self._run(self._target, lambda: settings.metric_logging_exporter_interval_in_mills / 1000)

    def _run(self, target: Exports, interval_s: Callable[[], float]) -> None:
        self._task = self._supervisor.own(
            "export of metrics", lambda: export_again_and_again(self.collector, target, interval_s)
        )

    async def close(self) -> None:
        """Close the page, or stop the exports."""
        if self.page is not None:
            await self.page.close()
        if self._task is not None:
            await self._supervisor.stop(self._task)
        if self._target is not None:
            await asyncio.to_thread(self._target.close)


def _otlp(settings: MetricsSettings, common: dict[str, str]) -> Exports:
    try:
        from tianzhou.metrics.otlp import OtlpExport
    except ImportError as error:
        raise ConfigError(
            f"metricsExporterType=OTLP_GRPC needs packages that are not installed ({error.name}): "
            'pip install "tianzhou[otlp]"'
        ) from error
    return OtlpExport(
        settings.metrics_grpc_exporter_target,
        pairs(settings.metrics_grpc_exporter_header, "metricsGrpcExporterHeader"),
        settings.metric_grpc_exporter_time_out_in_mills / 1000,
        common,
        delta=settings.metrics_in_delta,
    )
