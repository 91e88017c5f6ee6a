"""Output of commands for messages whose producer time is outside the range of dates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from odd_sends import ODD_TIMES_MS, send_born
from tianzhou import Message, MessageQueue
from tianzhou.cli.mqadmin.answers import moment
from tianzhou.cli.output import local_time, local_time_ms
from tianzhou.testing import Cluster

Run = Callable[..., tuple[int, str, str]]
TRACE_TOPIC = "traces"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Yield a cluster with odd times in messages of `orders`, in a dead letter of `billing`, and in a trace."""
    with Cluster(virtual=False) as one, one.admin() as admin:
        one.create_topic("orders", 1)
        for number, at_ms in enumerate(ODD_TIMES_MS):
            properties = f"KEYS\x01k{number}\x02UNIQ_KEY\x01ODD{number}\x02"
            asyncio.run(send_born(one.namesrv_addr, "orders", at_ms, b"%d" % number, properties=properties))
        admin.groups.create("billing")
        with one.pull_consumer("billing") as consumer:
            consumer.assign([MessageQueue("orders", "broker-a", 0)])
            found = consumer.poll(5_000)
            consumer.send_back(found[0], -1)  # delay level -1 makes it a dead letter immediately
        one.create_topic(TRACE_TOPIC, 1)
        when = str(ODD_TIMES_MS[0])
        traced = ["Pub", when, "DefaultRegion", "shop", "orders", "ODD1", "", "k1", "127.0.0.1:10911", "3", "5",
                  "0", "7F0000010000", "true"]  # fmt: skip
        with one.producer("shop") as producer:
            text = "\x01".join(traced) + "\x02"
            producer.send(Message(TRACE_TOPIC, text.encode(), keys="ODD1"))
        yield one


@pytest.fixture
def ask(cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command against the cluster."""
    monkeypatch.setattr("tianzhou.cli.consume.output_closed", lambda: False)  # the test's stdout is no file
    return lambda *args: run(*args, "-n", cluster.namesrv_addr)


@pytest.mark.parametrize("at_ms", ODD_TIMES_MS)
def test_what_is_no_date_is_shown_as_its_number(at_ms: int) -> None:
    assert local_time_ms(at_ms) == f"{at_ms} ms"
    assert local_time(at_ms) == (f"{at_ms} ms" if at_ms > 0 else None)
    assert moment(at_ms) == moment(at_ms, milliseconds=True) == str(at_ms)


@pytest.mark.parametrize("number", range(len(ODD_TIMES_MS)))
def test_one_message_is_shown(ask: Run, number: int) -> None:
    code, out, err = ask("message", "get", "orders", f"broker-a:0@{number}")
    assert (code, err) == (0, "")
    assert f"{ODD_TIMES_MS[number]} ms at 127.0.0.1" in out
    code, out, _ = ask("message", "get", "orders", f"broker-a:0@{number}", "-o", "json")
    assert (code, json.loads(out)["born_timestamp"]) == (0, ODD_TIMES_MS[number])


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize(
    "command",
    [
        ("message", "query", "orders", "-k", "k1"),
        ("message", "trace", "ODD1", "--trace-topic", TRACE_TOPIC),
        ("consume", "orders", "--from-beginning", "--max", "5"),
        ("consume", "orders", "-g", "fresh", "--from-beginning", "--max", "5"),
        ("dlq", "count", "billing"),
        ("dlq", "list", "billing"),
        ("dlq", "show", "billing", "broker-a:0@0"),
        ("topic", "describe", "orders"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_other_commands_end_well(ask: Run, command: tuple[str, ...], output: str) -> None:
    if command[:3] == ("consume", "orders", "-g"):
        command = (*command[:3], f"fresh-{output}", *command[4:])
    code, out, err = ask(*command, "-o", output)
    assert code in {0, 1} if command == ("doctor",) else code == 0, err
    assert "Traceback" not in err
    assert out
    if command[:2] == ("message", "trace"):
        assert str(ODD_TIMES_MS[0]) in out


def test_dead_letters_are_exported_with_the_number(ask: Run, tmp_path: Path) -> None:
    table = tmp_path / "letters.parquet"
    assert ask("dlq", "export", "billing", "--to", table)[0] == 0
    row: dict[str, Any] = parquet.read_table(table).to_pylist(maps_as_pydicts="strict")[0]
    assert row["store_timestamp"] is not None
    times = row["born_timestamp"], row["properties"].get("BORN_TIMESTAMP_MS")
    # A broker may give a dead letter the time of its original, or its own.
    assert times == (None, str(ODD_TIMES_MS[0])) or times[1] is None
