"""Settings of metrics under RocketMQ 5's keys, for brokers and name servers (broker.md §24, §26.10)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tianzhou.errors import ConfigError
from tianzhou.settings import secret

DISABLED: Final = "DISABLE"
PROM: Final = "PROM"
OTLP: Final = "OTLP_GRPC"
LOG: Final = "LOG"
TYPES: Final = (DISABLED, OTLP, PROM, LOG)
"""Types of exporters by RocketMQ's numbers: a file may contain the number, too."""
MOST_LABELS: Final = 32
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
RESERVED: Final = frozenset({"cluster", "node_type", "node_id", "aggregation", "le"})
CHOICES: Final = {"metricsExporterType": (*TYPES, *map(str, range(len(TYPES))))}
FIXED: Final = (
    "metricsExporterType", "metricsPromExporterHost", "metricsPromExporterPort", "metricsAllowedAddresses",
    "metricsGrpcExporterTarget", "metricsGrpcExporterHeader", "metricGrpcExporterTimeOutInMills",
    "metricGrpcExporterIntervalInMills", "metricLoggingExporterIntervalInMills", "metricsLabel", "metricsInDelta",
    "metricsOtelCardinalityLimit",
)  # fmt: skip
"""Keys that no request may change: all keys of metrics."""
RANGES: Final = {
    "metricsPromExporterPort": (0, 65_535),
    "metricGrpcExporterTimeOutInMills": (1, 600_000),
    "metricGrpcExporterIntervalInMills": (100, 86_400_000),
    "metricLoggingExporterIntervalInMills": (100, 86_400_000),
    "metricsOtelCardinalityLimit": (1, 1_000_000),
}


@dataclass
class MetricsSettings:
    """Keys of metrics. `metricsAllowedAddresses` (readers of the page without credentials) is a key of our own."""

    metrics_exporter_type: str = DISABLED
    metrics_otel_cardinality_limit: int = 50_000
    metrics_grpc_exporter_target: str = ""
    metrics_grpc_exporter_header: str = secret("")
    metric_grpc_exporter_time_out_in_mills: int = 3_000
    metric_grpc_exporter_interval_in_mills: int = 60_000
    metric_logging_exporter_interval_in_mills: int = 10_000
    metrics_prom_exporter_port: int = 5_557
    metrics_prom_exporter_host: str = ""
    metrics_label: str = ""
    metrics_in_delta: bool = False
    metrics_allowed_addresses: str = ""

    @property
    def metrics_exporter(self) -> str:
        """Type of the exporter: one of `TYPES`."""
        text = self.metrics_exporter_type.strip().upper()
        return TYPES[int(text)] if text.isdigit() and int(text) < len(TYPES) else text


def pairs(text: str, key: str) -> dict[str, str]:
    """Parse `name:value,name:value`, the form of `metricsLabel` and `metricsGrpcExporterHeader`.

    Args:
        text: value of the key.
        key: the key, for errors.

    Raises:
        ConfigError: a part has no colon, or there are too many.
    """
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, value = part.partition(":")
        if not colon or not name.strip():
            raise ConfigError(f"{key}: a part is not name:value; write them as in region:eu,rack:7")
        found[name.strip()] = value.strip()
    if len(found) > MOST_LABELS:
        raise ConfigError(f"{key}: {len(found)} pairs, at most {MOST_LABELS} are allowed")
    return found


def static_labels(text: str) -> dict[str, str]:
    """Return the labels of `metricsLabel`.

    Raises:
        ConfigError: a name is not a valid Prometheus label name, or is a label that every sample has.
    """
    labels = pairs(text, "metricsLabel")
    for name in labels:
        if not _NAME.fullmatch(name) or name.startswith("__") or name in RESERVED:
            raise ConfigError(
                f"metricsLabel: {name[:64]!r} cannot be a label; letters, digits and _ make one, and "
                f"{', '.join(sorted(RESERVED))} are taken"
            )
    return labels


def metrics_problems(values: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the faults of values with a syntax of their own: key, value and reason."""
    for key, read in (
        ("metricsLabel", static_labels),
        ("metricsGrpcExporterHeader", lambda text: pairs(text, "metricsGrpcExporterHeader")),
    ):
        try:
            read(values[key])
        except ConfigError as error:
            shown = "******" if key.endswith("Header") else values[key]
            yield key, shown, str(error).partition(": ")[2]
    kind = values["metricsExporterType"].strip().upper()
    if kind in (OTLP, str(TYPES.index(OTLP))) and not values["metricsGrpcExporterTarget"].strip():
        yield (
            "metricsExporterType", values["metricsExporterType"],
            "needs metricsGrpcExporterTarget: the address of a collector, as in http://127.0.0.1:4317",
        )  # fmt: skip
