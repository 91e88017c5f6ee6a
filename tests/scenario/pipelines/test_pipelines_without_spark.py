"""`pipeline dlq` and `replay` of few messages, without Spark: what is sent, and where an interrupted one goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

import pytest

from tianzhou.cli import main as entry
from tianzhou.errors import ClientError
from tianzhou.model import Message
from tianzhou.pipelines import few_replayed
from tianzhou.sync import Admin, Producer
from tianzhou.testing import Cluster

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `tianzhou pipeline ARGS…`, in which Spark cannot be imported."""
    monkeypatch.setitem(sys.modules, "pyspark", None)

    def runner(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["tianzhou", "pipeline", *args, "-n", cluster.namesrv_addr])
        with pytest.raises(SystemExit) as ended:
            entry.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return runner


def send(cluster: Cluster, topic: str, count: int, **attributes: object) -> None:
    with Admin(cluster.namesrv_addr) as admin:
        admin.topics.create(topic, read_queue_nums=2, write_queue_nums=2)
    with Producer("tests", cluster.namesrv_addr) as producer:
        for number in range(count):
            producer.send(Message(topic, b"%d" % number, keys=f"k{number}", **attributes))  # type: ignore[arg-type]


def bodies(cluster: Cluster, topic: str) -> list[int]:
    with Admin(cluster.namesrv_addr) as admin:
        found = admin.messages.by_time(topic, 0, 1 << 62, limit=1000) if admin.topics.exists(topic) else []
    return sorted(int(message.body) for message in found)


def test_letters_are_counted_and_sent_again(cluster: Cluster, run: Run) -> None:
    send(cluster, "%DLQ%billing", 30, tags="paid", properties={"reason": "Timeout"})
    with Producer("tests", cluster.namesrv_addr) as producer:
        producer.send(Message("%DLQ%billing", b"99", properties={"exception": "ValueError"}))
    code, out, err = run("dlq", "billing", "--samples", "2", "-o", "json")
    assert code == 0, err
    found = json.loads(out)
    assert [(one["reason"], one["letters"]) for one in found["causes"]] == [("Timeout", 30), ("ValueError", 1)]
    assert [one["body"] for one in found["samples"]] == ["29", "28", "99"]
    where = ("dlq", "billing", "--where", "reason = 'Timeout' AND keys IN ('k3', 'k4')", "--to-topic", "once-more")
    code, _, err = run(*where)
    assert (code, bodies(cluster, "once-more")) == (0, []), err
    assert "2 messages would be sent again; --apply does it" in err
    code, _, err = run(*where, "--apply")
    assert (code, bodies(cluster, "once-more")) == (0, [3, 4]), err
    code, _, err = run("dlq", "billing", "--all", "--apply")
    assert code == 1
    assert "does not have the topic that it was first sent to" in err
    code, _, err = run("dlq", "billing", "--id", "ABC")
    assert code == 1
    assert "no dead letter has the id ABC" in err


def test_a_replay_goes_on_where_it_was(cluster: Cluster, run: Run, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    send(cluster, "orders", 40)
    folder = str(tmp_path / "replay-1")
    replay = ("replay", "orders", "--to", "again", "--rate", "100", "--checkpoint", folder)
    plain, steps = few_replayed.send_in_order, 0

    async def dying(producer, messages):
        nonlocal steps
        steps += 1
        if steps == 3:
            raise ClientError("the broker went away")
        await plain(producer, messages)

    with monkeypatch.context() as patched:
        patched.setattr(few_replayed, "send_in_order", dying)
        code, _, err = run(*replay)
    assert (code, len(bodies(cluster, "again"))) == (1, 20), err
    assert "the broker went away" in err
    code, out, err = run(*replay, "-o", "json")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["sent"] == 20
    assert bodies(cluster, "again") == list(range(40))
    # What is finished sends what has come since, and nothing without it.
    code, _, err = run(*replay)
    assert code == 0
    assert "nothing (more) to send" in err
    with Producer("tests", cluster.namesrv_addr) as producer:
        producer.send(Message("orders", b"40"))
    assert run(*replay)[0] == 0
    assert bodies(cluster, "again") == list(range(41))
    code, _, err = run(*replay, "--spark")
    assert code == 2
    assert "is that of a replay without Spark, which --spark needs" in err


def test_a_replay_into_its_own_topic_ends(cluster: Cluster, run: Run, tmp_path) -> None:
    send(cluster, "payments", 10, tags="paid")
    replay = ("replay", "payments", "--where", "keys = 'k7'", "--tags", "paid", "--checkpoint", str(tmp_path / "c"))
    for _ in range(2):
        code, _, err = run(*replay)
        assert (code, bodies(cluster, "payments")) == (0, sorted([*range(10), 7])), err
