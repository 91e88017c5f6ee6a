"""A real Prometheus scrapes our servers: each query of the dashboard has data, and each alarm fires."""

from __future__ import annotations

import asyncio
import importlib.machinery
import importlib.util
import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from broker_probe import BrokerProbe
from server_ports import server_ports
from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.client import Producer, PushConsumer, TransactionProducer
from tianzhou.model import ConsumeFromWhere, Message, TransactionState
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.store.settings import StoreSettings
from waiting import until_async

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        not (shutil.which("prometheus") and shutil.which("promtool")),
        reason="no Prometheus here: apt-get install prometheus",
    ),
]
ROOT = Path(__file__).resolve().parents[3]
ALARMS = ROOT / "monitoring" / "alarms.yml"
PAGE = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0, "metrics_prom_exporter_host": "127.0.0.1"}
WINDOW = "30s"
PATIENCE_S = 90.0


def dashboard_script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("dashboard_script", str(ROOT / "scripts" / "dashboard"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def broker(folder: Path, namesrv: str, role: str, broker_id: int) -> Broker:
    settings = BrokerSettings(
        broker_name="broker-a", broker_ip1="127.0.0.1", bind_address="127.0.0.1", listen_port=0, namesrv_addr=namesrv,
        broker_id=broker_id, broker_config_path=str(folder / role / "broker.conf"), **PAGE,  # type: ignore[arg-type]
    )  # fmt: skip
    store = StoreSettings(
        store_path_root_dir=str(folder / role), broker_role=role, mapped_file_size_commit_log=1 << 20,
        max_hash_slot_num=100, max_index_num=4_000,
    )  # fmt: skip
    return Broker(settings, store)


@asynccontextmanager
async def prometheus(folder: Path, targets: list[str]) -> AsyncIterator[str]:
    """Run a Prometheus that scrapes twice a second, and yield its address."""
    port = server_ports()
    shutil.copy(ALARMS, folder / "alarms.yml")
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
        "rule_files": ["alarms.yml"],
        "scrape_configs": [{"job_name": "tianzhou", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


async def ask(where: str, path: str, **query: str) -> Any:
    """Return the data of Prometheus's response; None while Prometheus does not respond."""
    url = f"{where}/api/v1/{path}?{urllib.parse.urlencode(query)}"

    def fetch() -> Any:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    return await asyncio.to_thread(fetch)


async def traffic(namesrv: str, master: Broker) -> None:
    """Send normal, delayed and transactional messages, and count a dead letter, a refusal and a failed task."""
    async with Producer("shop", namesrv) as producer:
        for number in range(20):
            await producer.send(Message("orders", b"x" * 100 * number or b"x"))
        await producer.send(Message("orders", b"later", delay_level=10))
    ends = iter([TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN])

    async def check(message: object) -> TransactionState:
        return TransactionState.UNKNOWN

    async with TransactionProducer("bank", namesrv, check=check) as producer:
        for end in ends:
            await producer.send_in_transaction(Message("orders", b"t"), lambda message, arg, end=end: end, None)
    stats = BrokerProbe.of(master).stats
    stats.sent_back("orders", "billing", "%DLQ%billing", 0, 100, dead=True)
    master.tables.refusals.counts["maxTopics"] += 1
    master.troubles.failed("a task", OSError("the disk is away"), 0, 0.0)
    master.troubles.over("a task")


async def test_each_query_of_the_dashboard_has_data_and_alarms_fire(tmp_path: Path) -> None:
    names = NameServer(
        NamesrvSettings(
            bind_address="127.0.0.1", listen_port=0, kv_config_path=str(tmp_path / "kv.json"),
            config_store_path=str(tmp_path / "namesrv.properties"), **PAGE,  # type: ignore[arg-type]
        )
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S * 2), names:
        namesrv = f"127.0.0.1:{names.port}"
        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master:
            await master.ready()
            async with broker(tmp_path, namesrv, "SLAVE", 1) as slave:
                await slave.ready()
                pages = [names.metrics_address, master.metrics_address, slave.metrics_address]
                consumer = PushConsumer(
                    "billing", namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
                )
                seen: list[Any] = []
                consumer.subscribe("orders", handler=lambda message: seen.append(message))
                async with prometheus(tmp_path, pages) as where, consumer:
                    await until_async(
                        lambda: all_up(where, len(pages)), "Prometheus scrapes all pages", within_s=PATIENCE_S
                    )
                    await traffic(namesrv, master)
                    await until_async(lambda: len(seen) >= 20, "orders are consumed", within_s=PATIENCE_S)
                    # Repeat the traffic, because a scrape must see a new counter before the counter grows.
                    await asyncio.sleep(2)
                    await traffic(namesrv, master)
                    queries = dashboard_script().queries()
                    missing = list(queries)

                    async def all_answered() -> bool:
                        missing[:] = [query for query in missing if not await has_data(where, query)]
                        return not missing

                    try:
                        await until_async(all_answered, "all queries have data", within_s=PATIENCE_S, every_s=1)
                    except AssertionError:
                        pytest.fail(f"no data for {missing}")
                    for alarm in ("TianzhouDeadLetters", "TianzhouRefusesPeers"):
                        await until_async(
                            lambda alarm=alarm: fires(where, alarm), f"{alarm} fires", within_s=PATIENCE_S, every_s=1
                        )
                    rules = (await ask(where, "rules"))["groups"][0]["rules"]
                    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []


async def all_up(where: str, count: int) -> bool:
    found = await ask(where, "query", query='sum(up{job="tianzhou"})')
    return bool(found and found["result"] and float(found["result"][0]["value"][1]) == count)


async def has_data(where: str, query: str) -> bool:
    for name, value in (("$cluster", ".*"), ("$node", ".*"), ("$__rate_interval", WINDOW)):
        query = query.replace(name, value)
    found = await ask(where, "query", query=query)
    assert found is not None, query
    return bool(found["result"])


async def fires(where: str, alarm: str) -> bool:
    found = await ask(where, "alerts")
    return any(
        one["labels"]["alertname"] == alarm and one["state"] == "firing" for one in (found or {}).get("alerts", ())
    )


LABELS = 'job="tianzhou", instance="b:5557", cluster="c", node_id="broker-a"'
PAIR = f'{{{LABELS}, consumer_group="g", topic="t", is_system="false", is_retry="false"}}'


def slow(name: str, bounds: tuple[str, str]) -> dict[str, str]:
    """Return a histogram whose values are all above the first bound."""
    return {
        f'{name}_bucket{{{LABELS}, le="{bounds[0]}"}}': "0+0x60",
        f'{name}_bucket{{{LABELS}, le="{bounds[1]}"}}': "0+600x60",
        f'{name}_bucket{{{LABELS}, le="+Inf"}}': "0+600x60",
    }


WITH = f"{{{LABELS}}}"
FIRES: dict[str, dict[str, str]] = {
    "TianzhouDown": {f"up{WITH}": "0x60"},
    "TianzhouRefusesMessages": {f"tianzhou_store_writable{WITH}": "0x60", f"tianzhou_broker_is_master{WITH}": "1x60"},
    "TianzhouDiskFillsUp": {f"tianzhou_disk_used_ratio{WITH}": "0.9x60"},
    "TianzhouConsumerLate": {f"rocketmq_consumer_lag_latency{PAIR}": "400000x60"},
    "TianzhouConsumerStandsStill": {
        f"rocketmq_consumer_lag_messages{PAIR}": "7x60", f"rocketmq_messages_out_total{PAIR}": "5x60",
    },
    "TianzhouDeadLetters": {f"rocketmq_send_to_dlq_messages_total{PAIR}": "0+1x60"},
    "TianzhouPutFailures": {f"tianzhou_put_failures_total{WITH}": "0+10x60"},
    "TianzhouLoopLags": slow("tianzhou_loop_lag_seconds", ("0.1", "0.25")),
    "TianzhouFlushIsSlow": slow("tianzhou_flush_seconds", ("0.5", "1")),
    "TianzhouReplicationLags": {f"tianzhou_replication_lag_bytes{WITH}": "100000000x60"},
    "TianzhouSlaveGone": {f"tianzhou_in_sync_slaves{WITH}": "2x10 1x50"},
    "TianzhouMasterSilent": {f"tianzhou_master_silent_seconds{WITH}": "-1x60"},
    "TianzhouNoMaster": {f'tianzhou_namesrv_master{{{LABELS}, broker_cluster="c", broker_name="b"}}': "0x60"},
    "TianzhouHalfMessagesPileUp": {f"tianzhou_half_messages{WITH}": "20000x60"},
    "TianzhouMessagesUndeliverable": {
        f'tianzhou_undeliverable_messages{{{LABELS}, ledger="delay", topic="t"}}': "1x60",
    },
    "TianzhouRefusesPeers": {f'tianzhou_refused_total{{{LABELS}, limit="maxTopics"}}': "0+1x60"},
    "TianzhouAccessRefused": {f'tianzhou_refused_total{{{LABELS}, limit="access"}}': "0+600x60"},
    "TianzhouTaskFails": {f'tianzhou_task_failing{{{LABELS}, task="registration"}}': "3x60"},
    "TianzhouLogIsDamaged": {f"tianzhou_damaged_stretches{WITH}": "1x60"},
    "TianzhouPeersHoldMemory": {f'tianzhou_held_bytes{{{LABELS}, what="replies"}}': "200000000x60"},
    "TianzhouDrained": {f"rocketmq_broker_permission{WITH}": "4x100"},
    "TianzhouMetricsAreIncomplete": {f'tianzhou_metrics_left_out{{{LABELS}, family="x"}}': "5x60"},
    "TianzhouDoctorFindsErrors": {'tianzhou_doctor_findings{instance="m", severity="error", name="disk-full"}': "1x60"},
    "TianzhouDoctorIsAway": {'tianzhou_doctor_looked_timestamp_seconds{instance="m"}': "60x60"},
}  # fmt: skip
"""Series that make each alarm fire, in the format of promtool's tests, with one value per minute."""


def test_each_alarm_fires_and_none_when_all_is_well(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    rules = {rule["alert"]: rule for rule in yaml.safe_load(ALARMS.read_text())["groups"][0]["rules"]}
    assert set(rules) == set(FIRES), "give what makes it fire"
    well = {
        f"up{WITH}": "1x120", f"tianzhou_store_writable{WITH}": "1x120",
        f"tianzhou_broker_is_master{WITH}": "1x120", f"tianzhou_disk_used_ratio{WITH}": "0.5x120",
        f"rocketmq_consumer_lag_messages{PAIR}": "7x120", f"rocketmq_messages_out_total{PAIR}": "0+60x120",
        f"rocketmq_consumer_lag_latency{PAIR}": "50x120", f"tianzhou_in_sync_slaves{WITH}": "1x120",
        f"tianzhou_put_failures_total{WITH}": "3x120", f"rocketmq_broker_permission{WITH}": "6x120",
        f"tianzhou_master_silent_seconds{WITH}": "2x120", f"tianzhou_metrics_failed_sources{WITH}": "0x120",
        'tianzhou_doctor_findings{instance="m", severity="warning", name="group-behind"}': "3x120",
        'tianzhou_doctor_looked_timestamp_seconds{instance="m"}': "0+60x120",
        'tianzhou_doctor_could_look{instance="m"}': "1x120",
    }  # fmt: skip
    tests = [case(alarm, series, "55m" if alarm != "TianzhouDrained" else "90m") for alarm, series in FIRES.items()]
    quiet = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in well.items()],
        "promql_expr_test": [{"expr": 'ALERTS{alertstate="firing"}', "eval_time": "100m", "exp_samples": []}],
    }
    file = tmp_path / "alarms_test.yml"
    file.write_text(json.dumps({"rule_files": [str(ALARMS)], "evaluation_interval": "1m", "tests": [*tests, quiet]}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def case(alarm: str, series: dict[str, str], at: str) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alarm}", alertstate="firing"}}) > bool 0',
                "eval_time": at,
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
        ],
    }
