"""`tianzhou limit`: limits of senders that are set, refuse, are listed and deleted, also out of a measured run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tianzhou import Message
from tianzhou.cli.cluster.limits import rate_within
from tianzhou.errors import BrokerError, ConfigError
from tianzhou.testing import Cluster

Run = Callable[..., tuple[int, str, str]]


def test_limits_of_a_cluster(run: Run, tmp_path: Path) -> None:
    with Cluster(virtual=False, brokers=2) as cluster:
        servers = "-n", cluster.namesrv_addr
        assert run("limit", "list", *servers)[::2] == (0, "no sender is limited\n")
        code, out, _ = run("limit", "set", "--topic", "orders", "--rate", 0.01, "--burst", 2, *servers)
        assert (code, out) == (0, "topic orders: 0.01 messages/s (burst 2) at broker-a, broker-b, each\n")
        cluster.create_topic("orders", 1)
        with cluster.producer("shop", retry_times_when_send_failed=0) as producer:
            refused: list[BrokerError] = []
            for _ in range(6):
                try:
                    producer.send(Message("orders", b"x"))
                except BrokerError as error:
                    refused.append(error)
        assert len(refused) == 2
        assert {error.code for error in refused} == {2}
        assert "topic orders is limited to 0.01 messages/s (burst 2), next token in" in str(refused[0])
        listed = json.loads(run("limit", "list", "-o", "json", *servers)[1])
        assert [(one["broker"], one["scope"], one["name"], one["rate"], one["burst"]) for one in listed] == [
            ("broker-a", "topic", "orders", 0.01, 2), ("broker-b", "topic", "orders", 0.01, 2),
        ]  # fmt: skip
        assert sum(one["refused"] for one in listed) == 2
        assert {one["last_refused"] for one in listed if one["refused"]} == {"orders"}
        code, out, _ = run("limit", "list", *servers)
        assert (code, out.count("orders"), out.splitlines()[0].split()[:3]) == (0, 4, ["broker", "limits", "name"])
        code, out, _ = run("doctor", "broker", *servers)
        assert "refuses messages because their senders are limited: topic orders (0.01 messages/s" in out

        code, out, _ = run(
            "limit", "set", "--client", "0:0:0:0:0:0:0:1", "--bytes", 1e6, "-b", "broker-a", "-o", "json", *servers
        )
        assert json.loads(out) == {
            "scope": "client", "name": "::1", "rate": None, "burst": None, "bytes": 1e6, "bytes_burst": 1e6,
            "brokers": ["broker-a"],
        }  # fmt: skip
        code, out, _ = run("limit", "delete", "--client", "::1", *servers)
        assert (code, out) == (0, "client ::1: no limit any more at broker-a\n")
        code, _, err = run("limit", "delete", "--client", "::1", *servers)
        assert (code, "no broker has a limit of client ::1" in err) == (1, True)

        file = tmp_path / "run.json"
        file.write_text(json.dumps({"send": {"messages_per_second": 10_001}, "embedded_mode": None}))
        code, out, _ = run("limit", "set", "--measured", file, "--headroom", 40, "--topic", "*", *servers)
        assert out == "topic *: 3000 messages/s (burst 3000) at broker-a, broker-b, each\n"
        file.write_text(json.dumps({"send": {"messages_per_second": 10_001}, "embedded_mode": "compiled"}))
        assert "6000 messages/s" in run("limit", "set", "--measured", file, "--topic", "*", *servers)[1]
        found = json.loads(run("limit", "delete", "--topic", "*", "-o", "json", *servers)[1])
        assert found == {"scope": "topic", "name": "*", "brokers": ["broker-a", "broker-b"]}


def test_what_a_run_of_bench_prints_is_a_limit(run: Run, tmp_path: Path) -> None:
    with Cluster(virtual=False) as cluster:
        servers = "-n", cluster.namesrv_addr
        code, out, _ = run("bench", "produce", "--count", 200, "--warm-up", 0, "-o", "json", *servers)
        assert code == 0
        (tmp_path / "run.json").write_text(out)
        code, out, _ = run("limit", "set", "--measured", tmp_path / "run.json", "--topic", "*", "-o", "json", *servers)
        measured = json.loads((tmp_path / "run.json").read_text())["send"]["messages_per_second"]
        assert (code, json.loads(out)["rate"]) == (0, pytest.approx(0.6 * measured, abs=1))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["set", "--rate", "5"], "one of --topic, --group and --client"),
        (["set", "--topic", "a", "--group", "b", "--rate", "5"], "one of --topic, --group and --client"),
        (["set", "--topic", "a"], "has no rate"),
        (["set", "--topic", "a", "--rate", "5", "--headroom", "40"], "with --measured only"),
        (["set", "--topic", "a", "--rate", "5", "--measured", "x"], "exclude each other"),
        (["set", "--topic", "a", "--measured", "absent.json"], "absent.json"),
        (["delete"], "one of --topic, --group and --client"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(run: Run, words: list[str], says: str) -> None:
    code, _, err = run("limit", *words, "-n", "127.0.0.1:1")
    assert code != 0
    assert says in err


def test_a_headroom_is_a_part() -> None:
    assert rate_within(1_000, 40, 1) == 600
    assert rate_within(1, 50, 2) == 0.25
    with pytest.raises(ConfigError, match="from 0 to below 100"):
        rate_within(1_000, 100, 1)
