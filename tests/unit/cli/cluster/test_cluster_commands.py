"""`broker list|show` and `cluster list`, beside `broker`, which starts one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.cli.cluster.brokers import named, row
from tianzhou.cli.cluster.clusters import by_cluster
from tianzhou.cli.cluster.clusters import row as cluster_row
from tianzhou.errors import ClientError
from tianzhou.testing import Cluster

Run = Callable[..., tuple[int, str, str]]
MASTER = BrokerStatus("east", "broker-a", 0, "10.0.0.1:10911", {"putTps": "5.5 4 3", "getTransferredTps": "1 1 1"})
SLAVE = BrokerStatus("east", "broker-a", 1, "10.0.0.2:10911", error="connection refused")
OTHER = BrokerStatus("west", "broker-b", 0, "10.0.0.3:10911")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One broker with a topic and a group."""
    with Cluster(virtual=False) as one, one.admin() as admin:
        one.create_topic("orders", 2)
        admin.groups.create("billing")
        yield one


@pytest.fixture
def ask(cluster: Cluster, run: Run) -> Run:
    """Run a command at the cluster."""
    return lambda *args: run(*args, "-n", cluster.namesrv_addr)


def test_brokers_are_listed_for_people_and_programs(ask: Run) -> None:
    code, out, err = ask("broker", "list")
    assert (code, err) == (0, "")
    head, line = out.splitlines()
    assert head.split()[:4] == ["broker", "id", "cluster", "address"]
    assert line.split()[0] == "broker-a"
    [found] = json.loads(ask("broker", "list", "-o", "json")[1])
    assert (found["broker"], found["id"], found["state"], found["role"]) == ("broker-a", 0, "ok", "master")


def test_the_name_server_is_that_of_the_environment(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv_addr)
    assert json.loads(run("broker", "list", "-o", "json")[1])[0]["broker"] == "broker-a"
    monkeypatch.setenv("TIANZHOU_NAMESRV", "127.0.0.1:1")
    code, _, err = run("cluster", "list")
    assert code == 1
    assert "127.0.0.1:1" in err


def test_a_broker_is_shown_by_name_and_by_address(ask: Run) -> None:
    found = json.loads(ask("broker", "show", "broker-a", "-o", "json")[1])
    [process] = found["processes"]
    assert (found["broker"], "orders" in found["topics"], "billing" in found["groups"]) == ("broker-a", True, True)
    assert "bootTimestamp" in process["runtime"]
    code, out, err = ask("broker", "show", process["address"])
    assert (code, err) == (0, "")
    assert f"address          {process['address']}\n" in out
    assert f"topics           {len(found['topics'])}\n" in out


def test_clusters_are_listed(ask: Run) -> None:
    code, out, err = ask("cluster", "list")
    assert (code, err) == (0, "")
    assert out.startswith("name server 127.0.0.1:")
    [found] = json.loads(ask("cluster", "list", "-o", "json")[1])["clusters"]
    assert (found["brokers"], found["masters"], found["slaves"], found["silent"]) == (["broker-a"], 1, 0, 0)


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("broker show brokr-a", 1, "the name server knows no broker brokr-a; did you mean broker-a?"),
        ("broker show zzz", 1, "the name server knows no broker zzz; see: tianzhou broker list"),
        ("broker list --cluster nowhere", 1, "knows no cluster nowhere"),
        ("broker lst", 2, "Did you mean 'list'?"),
        ("broker list --watch -1", 2, "-1"),
    ],
)
def test_what_cannot_be_done_is_said(ask: Run, line: str, code: int, words: str) -> None:
    ended, out, err = ask(*line.split())
    assert (ended, out) == (code, "")
    assert words in err


@pytest.mark.parametrize(("option", "value"), [("-n", "127.0.0.1:9876"), ("-c", "broker.conf"), ("-o", "json")])
def test_options_of_a_broker_that_starts_are_not_taken_for_one_that_runs(run: Run, option: str, value: str) -> None:
    code, out, err = run("broker", option, value, "list")
    assert (code, out) == (2, "")
    flag = "--output" if option == "-o" else option
    assert f"{flag} stands before list" in err
    assert f"tianzhou broker list {flag} …" in err


def test_a_broker_is_still_started_by_its_options_alone(run: Run) -> None:
    code, out, err = run("broker", "-n", "127.0.0.1:9876", "-m")
    assert (code, err) == (0, "")
    assert "namesrvAddr=127.0.0.1\\:9876\n" in out or "namesrvAddr=127.0.0.1:9876\n" in out


def test_who_does_not_answer_is_silent_and_masters_come_first() -> None:
    assert named("broker-a", [SLAVE, MASTER, OTHER]) == [MASTER, SLAVE]
    assert named("10.0.0.2:10911", [SLAVE, MASTER, OTHER]) == [SLAVE]
    with pytest.raises(ClientError, match="did you mean broker-b"):
        named("brokerb", [MASTER, OTHER])
    assert row(SLAVE)[:4] == ("broker-a", 1, "east", "10.0.0.2:10911")
    assert row(SLAVE)[6] == "silent"


def test_a_cluster_is_the_sum_of_its_brokers() -> None:
    found = by_cluster([OTHER, MASTER, SLAVE])
    assert list(found) == ["east", "west"]
    assert cluster_row("east", found["east"]) == ("east", 1, 1, 1, 1, 5.5, 1.0)
