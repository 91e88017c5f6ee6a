"""Export over OTLP to a collector in this process, and to the log."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tianzhou.errors import ConfigError, RemotingError
from tianzhou.metrics import exporter
from tianzhou.metrics.collecting import Collector
from tianzhou.metrics.export import LogExport, export_again_and_again
from tianzhou.metrics.families import Family, Histogram, Kind, Steps, counter, gauge
from tianzhou.metrics.settings import MetricsSettings

grpc = pytest.importorskip("grpc")
otlp = pytest.importorskip("tianzhou.metrics.otlp")
service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
stubs = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc")


class Receiver(stubs.MetricsServiceServicer):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.headers: dict[str, str] = {}

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        self.requests.append(request)
        self.headers = dict(context.invocation_metadata())
        return service.ExportMetricsServiceResponse()

    def metrics(self) -> dict[str, Any]:
        (of_resource,) = self.requests[-1].resource_metrics
        return {one.name: one for one in of_resource.scope_metrics[0].metrics}


@pytest.fixture
def receiver() -> Iterator[tuple[Receiver, str]]:
    server, servicer = grpc.server(ThreadPoolExecutor(1)), Receiver()
    stubs.add_MetricsServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer, f"http://127.0.0.1:{port}"
    server.stop(None).wait(10)


def families(sent: int) -> list[Family]:
    histogram = Histogram((1.0, 5.0))
    histogram.note(3.0, sent)
    times = Family("rocketmq_rpc_latency", Kind.HISTOGRAM, "ms", ("request_code",))
    times.add(histogram, "send_message")
    return [
        counter("rocketmq_messages_in_total", "in", sent, topic="T"),
        gauge("rocketmq_topic_number", "topics", 3),
        times,
    ]


def test_a_collector_gets_all_kinds(receiver: tuple[Receiver, str]) -> None:
    servicer, target = receiver
    export = otlp.OtlpExport(target, {"X-Token": "abc"}, 5.0, {"cluster": "c"})
    export.export(families(7), 1_000)
    found = servicer.metrics()
    (point,) = found["rocketmq_messages_in_total"].sum.data_points
    assert {one.key: one.value.string_value for one in point.attributes} == {"cluster": "c", "topic": "T"}
    assert (point.as_int or point.as_double, point.time_unix_nano) == (7, 1_000)
    assert found["rocketmq_messages_in_total"].sum.is_monotonic
    assert found["rocketmq_messages_in_total"].sum.aggregation_temporality == 2  # cumulative
    (point,) = found["rocketmq_rpc_latency"].histogram.data_points
    assert (list(point.bucket_counts), list(point.explicit_bounds), point.count) == ([0, 7, 0], [1, 5], 7)
    assert found["rocketmq_topic_number"].gauge.data_points[0].as_int == 3
    assert servicer.headers["x-token"] == "abc"
    export.close()


def test_in_delta_only_what_came_is_sent(receiver: tuple[Receiver, str]) -> None:
    servicer, target = receiver
    export = otlp.OtlpExport(target, {}, 5.0, {}, delta=True)
    for sent, expected in ((5, 5), (8, 3), (8, 0), (2, 2)):  # the last is a counter that began anew
        export.export(families(sent), 1_000)
        found = servicer.metrics()
        (point,) = found["rocketmq_messages_in_total"].sum.data_points
        assert point.as_int == expected
        (point,) = found["rocketmq_rpc_latency"].histogram.data_points
        assert point.count == expected
        assert found["rocketmq_topic_number"].gauge.data_points[0].as_int == 3
    export.close()


def test_a_collector_that_is_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    export = otlp.OtlpExport("http://127.0.0.1:1", {}, 0.3, {})
    with pytest.raises(RemotingError, match="metricsGrpcExporterTarget"):
        export.export(families(1), 1_000)
    export.close()


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tianzhou.metrics.otlp", None)
    settings = MetricsSettings(metrics_exporter_type="OTLP_GRPC", metrics_grpc_exporter_target="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r'pip install "tianzhou\[otlp\]"'):
        exporter._otlp(settings, {})


async def test_the_log_gets_every_sample(caplog: pytest.LogCaptureFixture) -> None:
    def steps() -> Steps:
        yield counter("x_total", "x", 4, topic="T")

    async def none() -> Any:
        return
        yield

    collector = Collector((steps,), (none,), {"cluster": "c"}, lambda: 0.0)
    with caplog.at_level(logging.INFO, "tianzhou.metrics"):
        work = asyncio.ensure_future(export_again_and_again(collector, LogExport({"cluster": "c"}), lambda: 0.01))
        while not caplog.messages:
            await asyncio.sleep(0.01)
        work.cancel()
    assert 'x_total{cluster="c",topic="T"} 4' in caplog.messages
