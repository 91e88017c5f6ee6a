"""`tianzhou doctor`: its output, its exit codes, and its time limits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tianzhou.testing import Cluster

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as one:
        one.create_topic("orders", 2)
        one.send("orders", "x")
        yield one


def test_a_cluster_that_is_well_ends_with_0(cluster: Cluster, run: Run) -> None:
    code, out, err = run("doctor", "-n", cluster.namesrv_addr)
    assert (code, err) == (0, "")
    assert out.endswith("cluster: 1 note (1 name server, 1 broker, 2 addresses, 1 topic looked at)\n")


def test_a_finding_has_a_headline_its_evidence_and_a_fix(cluster: Cluster, run: Run) -> None:
    code, out, _ = run("doctor", "group", "nobody", "-n", cluster.namesrv_addr)
    assert code == 1
    headline, fix, empty, summary = out.splitlines()
    assert headline.startswith("ERROR group-unknown: No broker knows group nobody")
    assert (fix, empty) == ("  fix: Look for it with: tianzhou group list", "")
    assert summary == "group nobody: 1 error (1 name server, 1 broker, 1 group looked at)"
    code, out, _ = run("doctor", "send", "orders", "--size", 99_000_000, "-n", cluster.namesrv_addr)
    assert (code, "  maxMessageSize: 4194304" in out) == (1, True)


def test_findings_are_in_chinese_when_asked(cluster: Cluster, run: Run) -> None:
    code, out, _ = run("doctor", "group", "nobody", "-n", cluster.namesrv_addr, "--lang", "zh")
    headline, fix, _, summary = out.splitlines()
    assert (code, headline.partition(": ")[0]) == (1, "ERROR group-unknown")
    assert "没有任何 Broker 认识消费组 nobody" in headline
    assert fix.startswith("  处理：用以下命令查找")  # noqa: RUF001 - Chinese
    assert summary == "消费组 nobody：1 个错误（检查了：NameServer 1、Broker 1、消费组 1）"  # noqa: RUF001 - Chinese
    assert fix.endswith("tianzhou group list")
    _, out, _ = run("doctor", "group", "nobody", "-n", cluster.namesrv_addr, "--lang", "zh", "-o", "json")
    assert json.loads(out)["findings"][0]["message"] in headline


def test_programs_get_json(cluster: Cluster, run: Run) -> None:
    code, out, _ = run("doctor", "topic", "orders", "-n", cluster.namesrv_addr, "-o", "json")
    found = json.loads(out)
    assert (code, found["healthy"], found["findings"], found["unanswered"]) == (0, True, [], [])
    assert found["looked_at"] == {"name servers": 1, "brokers": 1, "topics": 1}


def test_without_a_name_server_it_says_so_soon_and_ends_with_2(run: Run) -> None:
    began = time.monotonic()
    code, out, err = run("doctor", "group", "billing", "-n", "127.0.0.1:1", "--timeout", "0.5")
    assert code == 2
    assert "ERROR name-server-does-not-answer" in out
    assert "group-unknown" not in out
    assert out.endswith("group billing: could not look, as no name server answers\n")
    assert err.startswith("not known, brokers of 127.0.0.1:1: ")
    assert time.monotonic() - began < 10
    _, out, err = run("doctor", "group", "billing", "-n", "127.0.0.1:1", "--timeout", "0.5", "--lang", "zh")
    assert out.endswith("消费组 billing：无法检查，因为没有 NameServer 应答\n")  # noqa: RUF001 - Chinese
    assert err.startswith("未能得知 127.0.0.1:1 的")


def test_options_before_the_subject_are_not_lost_in_silence(run: Run) -> None:
    code, _, err = run("doctor", "-n", "127.0.0.1:1", "group", "billing")
    assert (code, "put it behind: tianzhou doctor group" in err) == (2, True)


def test_a_machine_is_looked_at_without_a_cluster(run: Run, tmp_path: object) -> None:
    code, out, _ = run("doctor", "host", tmp_path, "-o", "json")
    assert code in (0, 1)
    assert json.loads(out)["looked_at"] == {"hosts": 1}


def test_findings_as_figures(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    code, out, err = run("doctor", "metrics", "-n", cluster.namesrv_addr)
    assert (code, err) == (0, "")
    samples = dict(line.rsplit(" ", 1) for line in out.splitlines() if not line.startswith("#"))
    assert abs(float(samples.pop("tianzhou_doctor_looked_timestamp_seconds")) - time.time()) < 600
    assert samples == {
        'tianzhou_doctor_findings{severity="note",name="address-only-local"}': "1",
        "tianzhou_doctor_could_look": "1",
        "tianzhou_doctor_unanswered": "0",
    }
    file = tmp_path / "tianzhou.prom"
    file.write_text("old")
    code, out, _ = run("doctor", "metrics", "--file", file, "-n", cluster.namesrv_addr)
    assert (code, out) == (0, "")
    assert "tianzhou_doctor_could_look 1" in file.read_text()
    assert list(tmp_path.iterdir()) == [file]
    code, out, _ = run("doctor", "metrics", "-n", cluster.namesrv_addr, "-o", "json")
    assert (code, json.loads(out)["healthy"]) == (0, True)


def test_figures_of_a_cluster_that_is_away(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("doctor", "metrics", "-n", "127.0.0.1:1", "--timeout", "0.5")
    assert (code, "tianzhou_doctor_could_look 0" in out) == (2, True)
    assert 'severity="error",name="name-server-does-not-answer"' in out
    code, _, err = run("doctor", "metrics", "-n", "127.0.0.1:1", "--timeout", "0.5", "--file", tmp_path / "no" / "x")
    assert (code, "cannot be written" in err) == (2, True)
