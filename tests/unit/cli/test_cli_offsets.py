"""`offset show|reset|clone`, `dlq count|causes|list|show|resend|export`, and `--watch`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow import parquet

from tianzhou import Message, MessageQueue
from tianzhou.cli import output
from tianzhou.cli.output import Output, watched
from tianzhou.testing import Cluster
from tianzhou.testing.clock import VirtualClock
from tianzhou.testing.clock import run as run_virtually

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two queues of orders with three messages, a group at their beginning, and two dead letters of it."""
    with Cluster(virtual=False) as one, one.admin() as admin, one.producer("shop") as producer:
        one.create_topic("orders", 2)
        one.create_topic("elsewhere", 1)
        for n in range(3):
            producer.send(Message("orders", b"body %d" % n), MessageQueue("orders", "broker-a", n % 2))
        for group in ("billing", "billing-2"):
            admin.groups.create(group)
        admin.groups.reset("billing", "orders", to_earliest=True)
        one.create_topic("letters", 1)
        queue = MessageQueue("letters", "broker-a", 0)
        with one.pull_consumer("billing") as consumer:
            consumer.assign([queue])
            for n in range(2):
                producer.send(Message("letters", b"letter %d" % n, keys=f"k{n}", properties={"why": "Timeout"}), queue)
                [message] = consumer.poll(5_000)
                consumer.send_back(message, -1)  # -1: a dead letter at once
        yield one


@pytest.fixture
def ask(cluster: Cluster, run: Run) -> Run:
    """Run a command at the cluster."""
    return lambda *args: run(*args, "-n", cluster.namesrv_addr)


def offsets(ask: Run, group: str) -> list[tuple[int, int | None]]:
    rows = json.loads(ask("offset", "show", group, "-t", "orders", "-o", "json")[1])
    return [(row["queue"], row["offset"]) for row in rows]


def test_offsets_are_shown_moved_in_one_queue_and_copied(ask: Run) -> None:
    assert offsets(ask, "billing") == [(0, 0), (1, 0)]
    assert offsets(ask, "billing-2") == [(0, 0), (1, 0)]
    where = ("billing", "-t", "orders", "--queue", "broker-a:0", "--to", "latest")
    code, _, err = ask("offset", "reset", *where, "--dry-run")
    assert (code, err) == (0, "nothing was changed; leave out --dry-run to do it\n")
    assert offsets(ask, "billing") == [(0, 0), (1, 0)]
    assert ask("offset", "reset", *where)[0] == 0
    assert offsets(ask, "billing") == [(0, 2), (1, 0)]
    code, out, err = ask("offset", "clone", "billing", "billing-2", "-t", "orders", "--offline")
    assert (code, out, err) == (0, "group billing-2 continues in topic orders where group billing is\n", "")
    assert offsets(ask, "billing-2") == [(0, 2), (1, 0)]


def test_the_groups_that_get_letters_sent_to_a_topic_are_named_first(ask: Run) -> None:
    code, _, err = ask("dlq", "resend", "billing", "--to-topic", "orders", "--dry-run")
    assert code == 0
    # Another test of this file may have given a second group offsets of the topic.
    first, second = "1 group of topic orders", "2 groups of topic orders"
    assert err.startswith((f"{first} will get each letter: billing\n", f"{second} will get each letter: billing,"))


def test_a_setting_that_a_start_reads_is_written_for_the_next_one(ask: Run) -> None:
    code, out, err = ask("config", "set", "--at-next-start", "flushDiskType=SYNC_FLUSH")
    assert (code, out.startswith("flushDiskType=SYNC_FLUSH at 127.0.0.1:"), err) == (0, True, "")
    assert out.endswith(" from the next start on\n")
    assert "flushDiskType=ASYNC_FLUSH" in ask("config", "get", "flushDiskType")[1]


def test_dead_letters_are_counted_listed_and_sent_again(ask: Run, cluster: Cluster) -> None:
    for words in ((), ("billing",)):
        assert json.loads(ask("dlq", "count", *words, "-o", "json")[1]) == [{"group": "billing", "dead_letters": 2}]
    assert json.loads(ask("dlq", "count", "billing-2", "-o", "json")[1]) == [{"group": "billing-2", "dead_letters": 0}]
    letters = json.loads(ask("dlq", "list", "billing", "-o", "json")[1])
    assert [one["body"] for one in letters] == ["letter 1", "letter 0"]
    only = ("dlq", "resend", "billing", "--id", letters[1]["msg_id"], "--to-topic", "elsewhere")
    code, out, err = ask(*only, "--dry-run")
    assert (code, "letter 0" in out, "letter 1" in out) == (0, True, False)
    receivers = "no group has consumed topic elsewhere yet\n"
    assert err == f"{receivers}nothing was sent; 1 dead letter of group billing there\n"
    code, out, err = ask(*only, "--yes", "-o", "json")
    assert (code, json.loads(out)["sent"], err) == (0, 1, receivers)
    [again] = json.loads(ask("message", "query", "elsewhere", "-o", "json")[1])
    assert (again["body"], again["properties"]["origin_id"]) == ("letter 0", letters[1]["msg_id"])
    assert json.loads(ask("dlq", "count", "billing", "-o", "json")[1])[0]["dead_letters"] == 2


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("offset show billing -t ordres", 1, "did you mean orders?"),
        ("offset reset billing -t orders --to latest --queue 7", 1, "it has broker-a:0, broker-a:1"),
        ("offset reset billing -t orders --to somewhere", 2, "--to somewhere: expected earliest"),
        ("offset reset billing -t orders --to 99", 1, "queue 1 of topic orders at broker-a holds 0 to "),
        ("offset reset billing -t orders --to 99 --dry-run", 1, "offset 99 is out of range: queue 0 of topic orders"),
        ("config set --at-next-start fileReservedTime=-1", 1, "fileReservedTime=-1: must be at least 0"),
        ("config set --at-next-start --namesrv-server listenPort=1", 2, "edit the name servers' files yourself"),
        (
            "config set flushDiskType=SYNC_FLUSH",
            1,
            "run `tianzhou config set --at-next-start flushDiskType=SYNC_FLUSH`",
        ),
        ("offset show biling -t orders", 1, "did you mean billing?"),
        ("offset clone nobody billing-2 -t orders", 1, "see: tianzhou group list"),
        ("offset clone billing billing-2 -t ordres", 1, "did you mean orders?"),
        ("dlq count biling", 1, "did you mean billing?"),
        ("dlq list nobody", 1, "see: tianzhou group list"),
        ("dlq list billing --since soon", 2, "--since soon: expected"),
        ("dlq show billing nonsense", 1, "has no message with id nonsense"),
        ("dlq show billing-2 nonsense", 1, "group billing-2 has no dead letters"),
        ("dlq export biling", 1, "group biling is not known to any broker; did you mean billing?"),
        ("dlq export billing --format parquet", 2, "--format parquet: needs a file; add --to FILE"),
        ("dlq causes biling", 1, "did you mean billing?"),
        ("dlq resend billing --where x=1", 2, "--where x=1: expected comparisons of topic, brokerName, "),
        ("dlq resend billing --id nonsense", 1, "no dead letter nonsense there"),
        ("dlq resend billing --to-topic nowhere --yes", 1, "topic nowhere does not exist"),
        ("dlq resend billing", 2, "send 2 dead letters of group billing again? Nobody is there to confirm it"),
    ],
)
def test_what_cannot_be_done_is_said(ask: Run, line: str, code: int, words: str) -> None:
    ended, out, err = ask(*line.split())
    assert (ended, out) == (code, "")
    assert words in err


def test_dead_letters_are_counted_by_cause(ask: Run) -> None:
    code, out, err = ask("dlq", "causes", "billing", "--samples", "1", "--reason", "why", "-o", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    (cause,) = found["causes"]
    assert (cause["topic"], cause["tag"], cause["reason"], cause["letters"]) == ("letters", None, "Timeout", 2)
    assert [(one["keys"], one["body"]) for one in found["samples"]] == [("k1", "letter 1")]
    code, out, err = ask("dlq", "causes", "billing")
    assert (code, err) == (0, "")
    assert [line.split()[:3] for line in out.splitlines()] == [["topic", "tag", "reason"], ["letters", "-", "-"]]
    assert ask("dlq", "causes", "billing-2")[1:] == ("", "group billing-2 has no dead letter there\n")


def test_dead_letters_are_chosen_by_a_condition(ask: Run) -> None:
    resend = ("dlq", "resend", "billing", "--dry-run", "--reason", "why", "-o", "json", "--where")
    for where, bodies in (
        ("reason = 'Timeout' AND keys IN ('k1', 'k9')", ["letter 1"]),
        ("reason IS NOT NULL", ["letter 0", "letter 1"]),
        ("originTopic <> 'letters'", []),
    ):
        code, out, err = ask(*resend, where)
        assert code == 0, err
        assert [one["body"] for one in json.loads(out)] == bodies
    code, _, err = ask(*resend, "keys = 'k0'", "--id", "nonsense")
    assert (code, "no dead letter nonsense there" in err) == (1, True)


def test_a_dead_letter_is_shown_with_what_it_was(ask: Run) -> None:
    [_, letter] = json.loads(ask("dlq", "list", "billing", "-o", "json")[1])
    place = f"{letter['broker']}:{letter['queue_id']}@{letter['queue_offset']}"
    for name in (letter["msg_id"], place):
        shown = json.loads(ask("dlq", "show", "billing", name, "-o", "json")[1])
        assert (shown["body"], shown["group"], shown["origin_topic"]) == ("letter 0", "billing", "letters")
    code, out, err = ask("dlq", "show", "billing", place)
    assert (code, err) == (0, "")
    assert "origin topic  letters" in out
    assert out.endswith("letter 0\n")


def test_dead_letters_are_exported_as_lines_and_as_parquet(ask: Run, tmp_path: Path) -> None:
    lines, table = tmp_path / "letters.jsonl", tmp_path / "letters.parquet"
    code, out, err = ask("dlq", "export", "billing", "--to", lines)
    assert (code, out, err) == (0, "", "2 dead letters of group billing exported\n")
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(row["body"], row["origin_topic"], row["group"]) for row in rows] == [
        ("letter 0", "letters", "billing"),
        ("letter 1", "letters", "billing"),
    ]
    code, out, err = ask("dlq", "export", "billing", "--to", table, "-o", "json")
    assert (code, json.loads(out)) == (0, {"group": "billing", "exported": 2, "file": str(table)})
    columns = parquet.read_table(table).to_pydict()
    assert columns["body"] == [b"letter 0", b"letter 1"]
    assert columns["origin_id"] == [row["origin_id"] for row in rows]
    assert [int(at.timestamp() * 1000) for at in columns["store_timestamp"]] == [row["store_timestamp"] for row in rows]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letters.jsonl", "letters.parquet"]


@pytest.mark.parametrize("span", [("--until", "1d"), ("--since", "0s")])
def test_an_export_of_another_time_is_empty(ask: Run, tmp_path: Path, span: tuple[str, str]) -> None:
    to = tmp_path / "letters.jsonl"
    assert ask("dlq", "export", "billing", "--to", to, *span)[2] == "0 dead letters of group billing exported\n"
    assert to.read_text() == ""


def test_an_export_without_a_file_goes_to_stdout(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "tianzhou.cli.main", "dlq", "export", "billing", "-n", cluster.namesrv_addr]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert [json.loads(line)["body"] for line in done.stdout.splitlines()] == ["letter 0", "letter 1"]


def test_watching_looks_again_until_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks = VirtualClock(), []
    monkeypatch.setattr(output, "output_closed", lambda: len(looks) == 3)

    async def look() -> int:
        looks.append(clock.monotonic())
        return len(looks)

    async def main() -> None:
        began = clock.monotonic()
        assert await watched(look, 2.5, Output.json) == 3
        assert [at - began for at in looks] == pytest.approx([0, 2.5, 5])
        assert await watched(look, 0.0, Output.json) == 4

    run_virtually(main(), clock)
