"""Pipelines with a state by store times: queues of different age, a backlog of days, a broker that is down, restarts,
kills.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fake_queues import FakeQueues
from pyspark.sql import functions as f

from tianzhou.cli import main
from tianzhou.model import MessageQueue
from tianzhou.pipelines.deduplicate import deduplicated
from tianzhou.pipelines.success_rate import success_rates
from tianzhou.spark.option_values import STREAM
from tianzhou.spark.source.marks import Reached, reached_of
from tianzhou.spark.source.read_options import parse_read
from tianzhou.spark.source.stream_plan import StreamPlan

A, B = (MessageQueue("orders", "broker-a", number) for number in range(2))
C = MessageQueue("orders", "broker-b", 0)
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
WITHIN_MS = 10 * MINUTE_MS
BEGIN_MS = 1_700_000_000_000
SCHEMA = """topic STRING, brokerName STRING, queueId INT, queueOffset BIGINT, msgId STRING, keys STRING, body STRING,
properties MAP<STRING, STRING>, storeTimestamp TIMESTAMP, slowestTimestamp TIMESTAMP, slowestBefore TIMESTAMP"""


@dataclass
class Stream:
    """The micro-batches of a stream over queues in memory, as rows.

    Attributes:
        most: maximum messages in a micro-batch.
        keys: the key of each message, by queue and offset.
        times: its store time in ms.
        reached: the watermark of all queues before and after the last batch.
    """

    most: int
    queues: FakeQueues = field(default_factory=FakeQueues)
    keys: dict[tuple[MessageQueue, int], str] = field(default_factory=dict)
    times: dict[tuple[MessageQueue, int], int] = field(default_factory=dict)
    reached: Reached = field(default_factory=Reached)

    def __post_init__(self) -> None:
        options = {"namesrvAddr": "a:1", "subscribe": "orders", "startingOffsets": "earliest"}
        options["includeSlowestTimestamp"] = "true"
        self._plan = StreamPlan(parse_read(options, STREAM), lambda _: self.queues)
        self._at: dict[str, Any] | None = None

    def add(self, queue: MessageQueue, at_ms: int, key: str) -> None:
        offset = self.queues.maximum.get(queue, 0)
        # Messages in memory have a store time that grows by a millisecond for each offset.
        self.queues.add(queue, 1, at_ms=BEGIN_MS + at_ms - offset)
        self.keys[queue, offset], self.times[queue, offset] = key, BEGIN_MS + at_ms

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        """Yield all available micro-batches."""
        if self._at is None:
            self._at = self._plan.initial()
        self.queues.now += 2
        while (end := self._plan.latest(self._at, self.most)) != self._at:
            self._at = json.loads(json.dumps(end))
            self.reached = reached_of(end)
            yield [self._row(span.queue, at) for span in self._plan.spans(end) for at in range(span.start, span.end)]

    def _row(self, queue: MessageQueue, offset: int) -> dict[str, Any]:
        key = self.keys[queue, offset]
        row = {
            "topic": queue.topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "queueOffset": offset,
            "keys": key,
            "storeTimestamp": _text(self.times[queue, offset]),
        }
        times = {"slowestTimestamp": self.reached.after_ms, "slowestBefore": self.reached.before_ms}
        return row | {name: _text(at_ms) for name, at_ms in times.items() if at_ms is not None}


def _text(at_ms: int) -> str:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")


@dataclass
class Query:
    """A query over batches in files, each a micro-batch of Spark.

    Attributes:
        made: builds the query on the rows.
        rows: the resulting rows, by batch.
        sent: queue and offset of the messages that passed, by batch.
        late: rows that were dropped because they were late.
        remembered: rows in the state at the end.
    """

    spark: Any
    folder: Path
    made: Callable[[Any], Any] = lambda rows: deduplicated(rows, "keys", "10 minutes")
    rows: dict[int, list[Any]] = field(default_factory=dict)
    sent: dict[int, list[tuple[MessageQueue, int]]] = field(default_factory=dict)
    late: int = 0
    remembered: int = 0
    files: int = 0

    def run(self, batches: Iterator[list[dict[str, Any]]]) -> None:
        """Resume from the checkpoint with more batches."""
        (self.folder / "in").mkdir(exist_ok=True)
        for batch in batches:
            file = self.folder / "in" / f"{self.files:05d}.json"
            file.write_text("".join(json.dumps(row) + "\n" for row in batch))
            os.utime(file, (1_700_000_000 + self.files,) * 2)  # Spark reads the oldest file first
            self.files += 1
        rows = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.folder / "in"))

        def keep(frame: Any, number: int) -> None:
            self.rows[number] = found = frame.collect()
            if "queueOffset" in frame.columns:
                self.sent[number] = [
                    (MessageQueue(row["topic"], row["brokerName"], row["queueId"]), row["queueOffset"]) for row in found
                ]

        query = (
            self.made(rows)
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        for progress in query.recentProgress:
            self.late += sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)
            self.remembered = sum(state.numRowsTotal for state in progress.stateOperators)

    def kill(self) -> None:
        """Change the checkpoint to the state of a kill between the last send and its note."""
        last = max(int(file.name) for file in (self.folder / "checkpoint" / "commits").glob("[0-9]*"))
        for name in (f"{last}", f".{last}.crc"):
            (self.folder / "checkpoint" / "commits" / name).unlink(missing_ok=True)


@pytest.fixture
def query(spark: Any, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


def prove(stream: Stream, query: Query) -> None:
    """Check that every key passed, and no two equal messages of ten minutes did."""
    sent = [place for batch in query.sent.values() for place in batch]
    assert len(sent) == len(set(sent))
    assert {stream.keys[place] for place in sent} == set(stream.keys.values())
    assert query.late == 0
    by_key: dict[str, list[int]] = {}
    for place in sent:
        by_key.setdefault(stream.keys[place], []).append(stream.times[place])
    for key, times in by_key.items():
        times.sort()
        assert all(later - one > WITHIN_MS for one, later in pairwise(times)), key


def test_two_queues_of_different_age_lose_nothing(query: Query) -> None:
    """One queue is five hours behind the other."""
    stream = Stream(40)
    for number in range(100):
        stream.add(A, number * MINUTE_MS, f"a{number}")
        stream.add(B, 5 * HOUR_MS + number * MINUTE_MS, f"b{number}")
    for number in range(0, 100, 5):
        for later_ms in (0, 1000):
            stream.add(B, 5 * HOUR_MS + (100 + number) * MINUTE_MS + later_ms, f"again{number}")
    query.run(stream.batches())
    prove(stream, query)
    assert sum(map(len, query.sent.values())) == 220


def test_a_backlog_of_days_with_restarts_and_kills(query: Query) -> None:
    """Three days of messages in queues of different age; each message of A is repeated in B within ten minutes."""
    stream = Stream(60)
    for number in range(72):
        stream.add(A, number * HOUR_MS, f"k{number}")
        stream.add(A, number * HOUR_MS + MINUTE_MS, f"k{number}")
        stream.add(B, number * HOUR_MS + 2 * MINUTE_MS, f"k{number}")
        if number >= 60:
            stream.add(C, number * HOUR_MS + 3 * MINUTE_MS, f"k{number}")
    batches = list(stream.batches())
    assert len(batches) >= 4
    query.run(iter(batches[:2]))
    query.kill()
    query.run(iter(batches[2:3]))
    query.run(iter(batches[3:]))
    query.kill()
    query.run(iter(()))
    prove(stream, query)
    assert sum(map(len, query.sent.values())) == 72
    # State older than the slowest queue's time by ten minutes is dropped.
    assert query.remembered <= 1


def test_a_broker_that_was_away_for_hours(query: Query) -> None:
    stream = Stream(50)
    for number in range(30):
        for queue in (A, C):
            stream.add(queue, number * 1000, f"{queue}{number}")
    batches = [*stream.batches()]
    stream.queues.away = {"broker-b"}
    for number in range(30, 60):
        stream.add(A, number * 10 * MINUTE_MS, f"{A}{number}")
        stream.add(C, number * 10 * MINUTE_MS + 1000, f"{A}{number}" if number % 2 else f"{C}{number}")
    batches += stream.batches()
    stream.queues.away = set()
    batches += stream.batches()
    query.run(iter(batches))
    prove(stream, query)
    # A broker that is down holds the watermark back, so its repetitions are found.
    assert sum(map(len, query.sent.values())) == 60 + 30 + 15


def test_rates_by_the_stores_time_count_both_queues(query: Query) -> None:
    """Windows of an older queue, and messages of a producer whose clock is years ahead."""
    query.made = lambda rows: success_rates(
        rows.withColumn("bornTimestamp", f.timestamp_seconds(f.lit(4_102_444_800))),
        status="$.status", good="ok", by=None, window="1 hour", late="0 seconds",
    )  # fmt: skip
    stream = Stream(30)
    for number in range(40):
        stream.add(A, number * 6 * MINUTE_MS, f"a{number}")
        stream.add(B, 5 * HOUR_MS + number * 6 * MINUTE_MS, f"b{number}")
    query.run(stream.batches())
    assert query.late == 0
    windows = {row["start"]: row["messages"] for batch in query.rows.values() for row in batch}
    newest = max(stream.times.values()) // HOUR_MS * HOUR_MS
    closed = Counter(at_ms // HOUR_MS * HOUR_MS for at_ms in stream.times.values() if at_ms < newest)
    assert {round(start.replace(tzinfo=dt.UTC).timestamp() * 1000): count for start, count in windows.items()} == closed


@pytest.fixture(scope="module")
def aged(module_server: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_server(tmp_path_factory.mktemp("aged"))


def test_the_command_loses_no_message_of_an_older_queue(
    spark: Any, aged: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    aged.create("aged")
    aged.send("aged", range(100), queue=0, keys=lambda n: f"old{n}")
    aged.broker_clock.ahead_ms += 60_000
    aged.send("aged", range(100), queue=1, keys=lambda n: f"new{n}")
    words = ["tianzhou", "pipeline", "deduplicate", "aged", "--to", "aged-once", "--by", "keys", "--most", "40"]
    words += ["--within", "10 seconds", "--checkpoint", str(tmp_path / "c"), "-n", aged.address, "-o", "json"]
    for read in (200, 0):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main.main()
        said = capsys.readouterr()
        assert not ended.value.code, said.err
        found = json.loads(said.out.splitlines()[-1])
        assert found == {"read": read, "left_out": 0, "late": 0, "sent": read, "to": "aged-once"}
    keys = Counter(message.keys for message in aged.messages("aged-once"))
    assert keys == Counter([f"old{n}" for n in range(100)] + [f"new{n}" for n in range(100)])
