"""OpenTelemetry metrics of the families, sent to a collector over gRPC: `metricsExporterType=OTLP_GRPC`."""

from __future__ import annotations

import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from tianzhou.errors import RemotingError
from tianzhou.metrics.families import Family, Histogram, Kind

try:
    _VERSION = version("tianzhou")
except PackageNotFoundError:  # run from its sources
    _VERSION = ""
_Key = tuple[str, tuple[str, ...]]


class OtlpExport:
    """Exporter of families to an OpenTelemetry collector.

    Args:
        target: the collector, such as `http://127.0.0.1:4317`; https uses TLS.
        headers: headers of each request.
        timeout_s: maximum seconds of an export.
        common: labels of all samples.
        delta: whether counters and histograms are sent as the difference since the last export, instead of since the
            start.
        exporter: sends the metrics; None for OpenTelemetry's own.
    """

    def __init__(
        self,
        target: str,
        headers: dict[str, str],
        timeout_s: float,
        common: dict[str, str],
        *,
        delta: bool = False,
        exporter: sdk.MetricExporter | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._common = common
        self._delta = delta
        self._exporter = exporter or OTLPMetricExporter(
            endpoint=target,
            insecure=not target.lower().startswith("https:"),
            headers={name.lower(): value for name, value in headers.items()},
            timeout=timeout_s,
        )
        self._resource = Resource({"service.name": "tianzhou", "service.version": _VERSION})
        self._began_ns = time.time_ns()
        self._before: dict[_Key, float | Histogram] = {}

    def export(self, families: list[Family], now_ns: int) -> None:
        """Send the families.

        Args:
            families: families to send.
            now_ns: present time, nanoseconds since the epoch.

        Raises:
            RemotingError: the collector did not accept them.
        """
        after: dict[_Key, float | Histogram] = {}
        metrics = [self._metric(one, now_ns, after) for one in families if one.samples]
        scope = sdk.ScopeMetrics(InstrumentationScope("tianzhou", _VERSION), metrics, "")
        data = sdk.MetricsData([sdk.ResourceMetrics(self._resource, [scope], "")])
        if self._exporter.export(data, self._timeout_s * 1000) is not sdk.MetricExportResult.SUCCESS:
            raise RemotingError("the collector of metricsGrpcExporterTarget did not take the metrics")
        if self._delta:
            # Only after a success: the next export includes the values that a collector did not accept.
            self._before, self._began_ns = after, now_ns

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown(self._timeout_s * 1000)

    def _metric(self, family: Family, now_ns: int, after: dict[_Key, float | Histogram]) -> sdk.Metric:
        points: list[Any] = []
        for values, value in family.samples:
            labels = {**self._common, **dict(zip(family.labels, values, strict=True))}
            began = self._began_ns
            if family.kind is not Kind.GAUGE and self._delta:
                after[family.name, values] = value
                value = since(value, self._before.get((family.name, values)))
            if isinstance(value, Histogram):
                points.append(
                    sdk.HistogramDataPoint(
                        attributes=labels, count=value.count, sum=value.total, bucket_counts=value.counts,
                        explicit_bounds=value.bounds, min=0.0, max=0.0, start_time_unix_nano=began,
                        time_unix_nano=now_ns,
                    )
                )  # fmt: skip
            else:
                points.append(sdk.NumberDataPoint(labels, began, now_ns, value))
        temporality = sdk.AggregationTemporality.DELTA if self._delta else sdk.AggregationTemporality.CUMULATIVE
        made: sdk.DataT
        if family.kind is Kind.GAUGE:
            made = sdk.Gauge(points)
        elif family.kind is Kind.COUNTER:
            made = sdk.Sum(points, temporality, is_monotonic=True)
        else:
            made = sdk.Histogram(points, temporality)
        return sdk.Metric(family.name, family.help, "", made)


def since(value: float | Histogram, before: float | Histogram | None) -> float | Histogram:
    """Return the growth of a counter or histogram since an earlier value; the whole value if it was reset since."""
    if before is None:
        return value
    if isinstance(value, Histogram) and isinstance(before, Histogram):
        if value.count < before.count:
            return value
        left = Histogram(value.bounds)
        left.counts = [max(now - then, 0) for now, then in zip(value.counts, before.counts, strict=True)]
        left.total = value.total - before.total
        return left
    if isinstance(value, Histogram) or isinstance(before, Histogram):
        return value
    return value - before if value >= before else value
