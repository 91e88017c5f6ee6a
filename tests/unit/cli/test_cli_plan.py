"""`tianzhou plan brokers` and `plan consumers`: tables, documents, figures of a measured run and of running members."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tianzhou.cli.mqadmin.families.offsets import running_info_text
from tianzhou.client.consumer.push.processor_time import usable_cores
from tianzhou.model import Message
from tianzhou.testing import Cluster

Run = Callable[..., tuple[int, str, str]]


def test_the_table_has_brokers_disks_network_and_memory(run: Run) -> None:
    code, out, err = run("plan", "brokers", "--rate", 100_000, "--node-rate", 30_000, "--headroom", 50)
    assert code == 0
    lines = {line.split("  ")[0].strip(): line for line in out.splitlines()}
    assert "  7 " in lines["brokers that take messages"]
    assert "  21 " in lines["brokers in all"]
    assert "TiB" in lines["disk of a broker"]
    assert "MB/s" in lines["network from a broker"]
    assert "as measured" in lines["rate of a broker"]
    assert err == ""


def test_who_has_not_measured_hears_where_the_rate_is_from(run: Run) -> None:
    code, out, err = run("plan", "brokers", "--rate", 1000, "--mode", "SYNC_FLUSH")
    assert code == 0
    assert "docs/performance.md" in out
    assert "measure yours" in err


def test_programs_get_every_figure_as_a_number(run: Run) -> None:
    code, out, err = run("plan", "brokers", "--rate", 100_000, "--node-rate", 30_000, "--headroom", 50, "-o", "json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["sets"], found["nodes"], found["bound_by"]) == (7, 21, "rate")
    assert isinstance(found["disk_bytes"], int)
    assert found["warnings"] == []


def test_the_rate_of_a_run_is_taken_from_its_document(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"send": {"messages_per_second": 12_345.6}}))
    code, out, _ = run("plan", "brokers", "--rate", 20_000, "--headroom", 0, "--measured", file, "-o", "json")
    found = json.loads(out)
    assert (code, found["node_rate"], found["sets"]) == (0, 12_345.6, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "is no run of sending"), ('{"send": {"messages_per_second": 0}}', "nothing was sent"), (None, "No such")],
)
def test_a_file_that_is_no_run_is_refused(run: Run, tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    code, _, err = run("plan", "brokers", "--rate", 1, "--measured", file)
    assert code == 2
    assert words in err


def test_values_that_cannot_be_are_refused_with_their_option(run: Run) -> None:
    code, _, err = run("plan", "brokers", "--rate", 0)
    assert code == 2
    assert "rate=0" in err


def test_options_behind_plan_itself_are_those_of_brokers(run: Run) -> None:
    words = ("--rate", 100_000, "--node-rate", 30_000, "--headroom", 50, "-o", "json")
    assert run("plan", *words) == run("plan", "brokers", *words)


def test_the_plan_of_consumers_names_the_workers_and_their_number(run: Run) -> None:
    code, out, err = run("plan", "consumers", "--peak", 5000, "--cpu-ms", 2, "--io-ms", 18, "--cores", 8)
    assert code == 0
    lines = {line.split("  ")[0].strip(): line for line in out.splitlines()}
    assert "processes" in lines["workers"]
    assert "in_processes(handler, 80), consume_concurrency=80" in lines["workers"]
    assert "4,000/s" in lines["rate of a node"]
    assert "  3 " in lines["nodes"]  # 5000 / (4000 x 0.6) = 2.08
    assert "14 nodes" not in lines["with threads"]
    assert "17 nodes" in lines["with threads"]  # 5000 / (500 x 0.6) = 16.7
    assert "8 members on a node with 10 threads each" in err


def test_one_core_is_for_threads(run: Run) -> None:
    code, out, _ = run("plan", "consumers", "--peak", 200, "--cpu-ms", 2, "--io-ms", 18, "--cores", 1)
    assert code == 0
    assert "consume_concurrency=10; a plain function or an async def" in out


def test_programs_get_the_figures_of_consumers_as_numbers(run: Run) -> None:
    words = ("--peak", 5000, "--cpu-ms", 2, "--io-ms", 18, "--cores", 8, "--headroom", 0, "--queues", 1)
    code, out, err = run("plan", "consumers", *words, "-o", "json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["workers"], found["concurrency"], found["rate"], found["nodes"]) == ("processes", 80, 4000, 2)
    assert (found["queues"], found["idle_members"]) == (2, 1)
    assert found["ways"]["threads"]["nodes"] == 10
    assert any("would get none" in text for text in found["warnings"])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--peak", 0, "--cpu-ms", 2, "--cores", 1), "peak=0"),
        (("--peak", 5, "--cpu-ms", 2), "--cores"),
        (("--peak", 5, "--cores", 2), "--measured GROUP"),
        (("--peak", 5, "--cpu-ms", 2, "--measured", "billing"), "exclude each other"),
    ],
)
def test_a_plan_of_consumers_without_what_it_needs_is_refused(run: Run, words: tuple[object, ...], named: str) -> None:
    code, _, err = run("plan", "consumers", *words)
    assert code == 2
    assert named in err


def test_running_members_are_asked_for_the_times_of_their_handlers(run: Run) -> None:
    def handle(_message: object) -> None:
        began_s = time.thread_time()
        while time.thread_time() - began_s < 0.002:
            pass
        time.sleep(0.018)

    with Cluster() as cluster:
        cluster.create_topic("orders", queues=4)
        consumers = [cluster.push_consumer("billing", consume_concurrency=2) for _ in range(2)]
        for consumer in consumers:
            consumer.subscribe("orders", handler=handle)
            consumer.start()
        with cluster.producer() as producer:
            for number in range(40):
                producer.send(Message("orders", b"%d" % number))
        cluster.wait_until_consumed("billing", "orders")
        words = ("--measured", "billing", "-n", cluster.namesrv_addr)
        code, out, err = run("plan", "consumers", "--peak", 5000, *words, "-o", "json")
        found = json.loads(out)
        assert code == 0, err
        assert found["cpu_ms"] == pytest.approx(2, rel=0.15)
        assert found["io_ms"] >= 17
        assert (found["topic_queues"], found["node_cores"]) == (4, usable_cores())
        code, out, _ = run("plan", "consumers", "--peak", 100, *words, "--cores", 1)
        assert re.search(r"\d\d messages in 2 members, run in threads", out)
        with cluster.admin() as admin:
            status = running_info_text(admin.groups.running_info("billing", consumers[0].instance.client_id))
        assert re.search(r"handler:orders +: cpuMs=[\d.]+ wallMs=[\d.]+ messages=\d+ runsIn=threads", status)


def test_a_group_without_measured_members_says_what_to_give(run: Run) -> None:
    with Cluster() as cluster:
        words = ("--measured", "nobody", "-n", cluster.namesrv_addr)
        code, _, err = run("plan", "consumers", "--peak", 5000, *words)
        assert code == 2
        assert "no member is connected; start one, or give --cpu-ms and --io-ms" in err
