"""`tianzhou drain` at a running broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator
from threading import Thread
from typing import Any

import pytest

from tianzhou import Message, MessageQueue
from tianzhou.admin import Admin
from tianzhou.cli.drain import command
from tianzhou.errors import TianzhouError
from tianzhou.model import TransactionState
from tianzhou.testing import Cluster

Run = Callable[..., tuple[int, str, str]]
ORDERS = MessageQueue("orders", "broker-a", 0)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LOOK_EVERY_S", 0.5)
    # pytest's captured output has no descriptor to watch.
    monkeypatch.setattr(command, "output_closed", lambda: False)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(virtual=False) as one, one.admin() as admin:
        one.create_topic("orders", 1)
        admin.groups.create("billing")
        yield one


def looks(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_it_says_what_is_left_and_producers_leave(cluster: Cluster, run: Run) -> None:
    where = ("drain", "-b", "broker-a", "-n", cluster.namesrv_addr, "--notice", 0)
    with (
        cluster.producer("shop") as producer,
        cluster.transaction_producer("shop-tx", check=lambda message: TransactionState.UNKNOWN) as transactions,
        cluster.admin() as admin,
    ):
        for n in range(3):
            producer.send(Message("orders", b"%d" % n), ORDERS)
        producer.send(Message("orders", b"later", delay_level=18))
        transactions.send_in_transaction(Message("orders", b"half"), lambda message, arg: TransactionState.UNKNOWN)
        admin.groups.reset("billing", "orders", to_earliest=True)

        code, out, _ = run(*where, "--dry-run", "-o", "json")
        (seen,) = looks(out)
        assert (code, seen["drained"], seen["writable_at"]) == (1, False, [cluster.namesrv_addr])
        assert seen["groups"] == [{"group": "billing", "lag": 3, "members": 0, "ignored": False}]
        assert (seen["delayed"], seen["half"], seen["pop"]) == (1, 1, 0)

        code, out, err = run(*where)
        assert code == 1
        assert f"name server {cluster.namesrv_addr} has taken the permission to write from" in err
        assert "left: group billing has 3 messages to consume and no members here" in out
        assert "left: 1 delayed message waits" in out
        assert "left: 1 half message waits" in out
        assert out.endswith("safe to stop  no\n")
        with cluster.producer("late") as late, pytest.raises(TianzhouError):
            late.send(Message("orders", b"too late"))

    code, out, _ = run(*where, "--undo", "-o", "json")
    assert (code, looks(out)[0]["write"]) == (0, True)
    with cluster.producer("again") as again:
        again.send(Message("orders", b"welcome"))


@pytest.fixture
def virtual_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Yield a cluster in virtual time, in which the command runs too, because a broker's rate covers ten seconds."""
    with Cluster(virtual=True) as one, one.admin() as admin:
        one.create_topic("orders", 1)
        admin.groups.create("billing")

        def with_admin(namesrv: str, tls: bool | None, work: Callable[[Admin], Coroutine[Any, Any, bool]]) -> bool:
            async def main() -> bool:
                async with Admin(**one.client_options(namesrv_addr=namesrv)) as client:
                    return await work(client)

            return one.run(main())

        monkeypatch.setattr(command, "with_admin", with_admin)
        yield one


def test_a_broker_whose_messages_are_consumed_is_safe_to_stop(virtual_cluster: Cluster, run: Run) -> None:
    cluster = virtual_cluster
    with cluster.producer("shop") as producer, cluster.admin() as admin:
        for n in range(3):
            producer.send(Message("orders", b"%d" % n), ORDERS)
        producer.send(Message("orders", b"later", delay_level=1))
        admin.groups.create("gone")
        admin.groups.reset("gone", "orders", to_earliest=True)
        admin.groups.reset("billing", "orders", to_earliest=True)
    where = ("drain", "-b", "broker-a", "-n", cluster.namesrv_addr, "--notice", 0, "--wait", "--ignore", "gone")
    taken: list[bytes] = []
    consumer = cluster.push_consumer("billing")
    consumer.subscribe("orders", handler=lambda message: taken.append(message.body))
    with consumer:
        code, out, _ = run(*where, "--timeout", 60, "-o", "json")
    seen = looks(out)
    assert code == 0
    assert not seen[0]["drained"]
    assert sorted(taken) == [b"0", b"1", b"2", b"later"]
    last = seen[-1]
    assert (last["drained"], last["left"], last["delayed"], last["half"], last["pop"]) == (True, [], 0, 0, 0)
    assert last["groups"] == [{"group": "gone", "lag": 4, "members": 0, "ignored": True}]


def test_permission_that_has_come_back_is_taken_again(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "judge", _with_a_topic_made_in_the_first_look(cluster, command.judge))
    code, out, err = run(
        "drain", "-b", "broker-a", "-n", cluster.namesrv_addr, "--notice", 0, "--wait", "--timeout", 30, "-o", "json"
    )
    assert (code, err) == (0, "")
    seen = looks(out)
    assert [bool(each["writable_at"]) for each in seen][-1] is False
    assert any(each["writable_at"] for each in seen)


def _with_a_topic_made_in_the_first_look(cluster: Cluster, judge: Callable[..., Any]) -> Callable[..., Any]:
    def judged(seen: Any, *args: Any, **keywords: Any) -> Any:
        if not made:
            made.append(True)
            # The command uses this thread's loop.
            making = Thread(target=cluster.create_topic, args=("another", 1))
            making.start()
            making.join()
            keywords["notice_left_s"] = 1
        return judge(seen, *args, **keywords)

    made: list[bool] = []
    return judged


def test_a_broker_that_is_not_there_is_an_error_with_names(cluster: Cluster, run: Run) -> None:
    code, _, err = run("drain", "-b", "broker-x", "-n", cluster.namesrv_addr)
    assert code != 0
    assert "broker-x" in err
    assert "broker-a" in err


@pytest.mark.parametrize(
    ("more", "words"),
    [(("--undo", "--wait"), "--undo"), (("--timeout", "5"), "--wait"), (("--undo", "--dry-run"), "--undo")],
)
def test_options_that_do_not_go_together_are_refused(run: Run, more: tuple[str, ...], words: str) -> None:
    code, _, err = run("drain", "-b", "broker-a", "-n", "127.0.0.1:1", *more)
    assert code == 2
    assert words in err
