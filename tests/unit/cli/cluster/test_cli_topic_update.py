"""`topic update` and `topic create --only-new`: old beside new numbers, steps in their order, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tianzhou import Message, MessageQueue
from tianzhou.testing import Cluster

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(virtual=False) as one:
        yield one


@pytest.fixture
def ask(cluster: Cluster, run: Run) -> Run:
    """Run a command at the cluster."""
    return lambda *args: run(*args, "-n", cluster.namesrv_addr)


def filled(cluster: Cluster, topic: str, group: str) -> None:
    """Create a topic of four queues with a message in each, and a group that has read none."""
    with cluster.admin() as admin, cluster.producer("shop") as producer:
        cluster.create_topic(topic, 4)
        admin.groups.create(group)
        for queue_id in range(4):
            producer.send(Message(topic, b"x"), MessageQueue(topic, "broker-a", queue_id))
        admin.groups.reset(group, topic, to_earliest=True)


def described(ask: Run, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask("topic", "describe", topic, "-o", "json")[1])["brokers"]["broker-a"]
    return found


def test_fewer_queues_are_written_first_and_read_once_they_are_consumed(ask: Run, cluster: Cluster) -> None:
    filled(cluster, "orders", "billing")
    code, shown, note = ask("topic", "update", "orders", "--queues", 2, "--dry-run")
    assert (code, note) == (0, "nothing was changed; leave out --dry-run to do it\n")
    assert [line.rstrip() for line in shown.splitlines()] == [
        "broker    read now  read then  write now  write then",
        "broker-a         4          2          4           2",
        "1. 2 write queues on broker-a",
        "2. 2 read queues on broker-a, once every group has consumed the queues that go",
        "",
        "queue that goes  messages  unread",
        "broker-a:2              1  1 message of group billing",
        "broker-a:3              1  1 message of group billing",
    ]
    assert described(ask, "orders")["write_queue_nums"] == 4
    code, shown, error = ask("topic", "update", "orders", "--queues", 2, "--wait", 0, "-o", "json")
    assert code == 1
    assert "still reads the queues that go, because they have unread messages: 2 messages of group billing" in error
    value = json.loads(shown)
    assert (value["done"], [step["use"] for step in value["steps"]]) == (False, ["read"])
    assert [one["unread"] for one in value["dropped"]] == [{"billing": 1}] * 2
    found = described(ask, "orders")
    assert (found["read_queue_nums"], found["write_queue_nums"]) == (4, 2)
    with cluster.admin() as admin:
        admin.groups.reset("billing", "orders", to_latest=True)
    code, shown, _ = ask("topic", "update", "orders", "--queues", 2)
    assert (code, shown.splitlines()[-1]) == (0, "topic orders is changed")
    found = described(ask, "orders")
    assert (found["read_queue_nums"], found["write_queue_nums"]) == (2, 2)


def test_unread_messages_are_dropped_after_a_question_only(ask: Run, cluster: Cluster) -> None:
    filled(cluster, "invoices", "ledger")
    code, _, error = ask("topic", "update", "invoices", "--queues", 3, "--drop-unread")
    assert code == 2
    assert "let queues of topic invoices go with unread messages (1 message of group ledger)?" in error
    assert described(ask, "invoices")["write_queue_nums"] == 4
    assert ask("topic", "update", "invoices", "--queues", 3, "--drop-unread", "--yes")[0] == 0
    assert described(ask, "invoices")["read_queue_nums"] == 3


def test_what_is_not_given_stays(ask: Run, cluster: Cluster) -> None:
    cluster.create_topic("bills", 3)
    assert ask("topic", "update", "bills", "--perm", "r", "--message-type", "fifo")[0] == 0
    assert described(ask, "bills") == {
        "read_queue_nums": 3, "write_queue_nums": 3, "perm": 4, "order": False,
        "attributes": {"message.type": "FIFO"},
    }  # fmt: skip
    assert ask("topic", "update", "bills", "--write", 5, "--read", 5, "-b", "broker-a")[0] == 0
    found = described(ask, "bills")
    assert (found["read_queue_nums"], found["write_queue_nums"], found["perm"]) == (5, 5, 4)


def test_a_change_that_is_none_or_two_is_refused(ask: Run) -> None:
    code, _, error = ask("topic", "update", "bills")
    assert (code, "nothing to change of topic bills; give --queues, --read, --write" in error) == (2, True)
    code, _, error = ask("topic", "update", "bills", "--queues", 2, "--read", 3)
    assert (code, "--queues sets both numbers" in error) == (2, True)
    code, _, error = ask("topic", "update", "nothing-like-it", "--queues", 2)
    assert (code, "topic nothing-like-it does not exist" in error) == (1, True)


def test_creation_refuses_a_name_that_exists_on_demand(ask: Run, cluster: Cluster) -> None:
    assert ask("topic", "create", "unique", "--queues", 2, "--only-new")[0] == 0
    code, _, error = ask("topic", "create", "unique", "--queues", 8, "--only-new")
    assert (code, "topic unique exists already" in error) == (1, True)
    assert described(ask, "unique")["read_queue_nums"] == 2
