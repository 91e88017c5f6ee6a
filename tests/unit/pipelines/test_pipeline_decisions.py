"""Decisions of pipelines without a server: rates, binlog changes, archive positions against retention."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from tianzhou.cli.pipelines.command import plain, setting_of
from tianzhou.cli.pipelines.databases import database_of
from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue
from tianzhou.pipelines.binlog_changes import changes, position_of, snapshot, truncation
from tianzhou.pipelines.binlog_source import Database
from tianzhou.pipelines.queries import TRIES, run
from tianzhou.pipelines.replay import a_second_each
from tianzhou.pipelines.retention import HOUR_MS, ArchiveStanding, standing
from tianzhou.spark.option_values import RawOptions


@dataclass
class Clock:
    at: float = 0.0

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@pytest.mark.parametrize("sizes", [[100], [1] * 50, [30, 0, 70]])
def test_a_batch_that_becomes_visible_at_once_lasts_a_second(sizes):
    clock = Clock()
    batches = [pa.RecordBatch.from_pydict({"n": list(range(size))}) for size in sizes]
    taken = [(clock.at, some.num_rows) for some in a_second_each(batches, clock.now, clock.sleep)]
    assert taken == [(0.0, size) for size in sizes]
    assert clock.at == 1.0


def test_a_batch_that_took_longer_or_is_empty_is_not_held():
    clock = Clock()

    def slow():
        for _ in range(3):
            clock.at += 10
            yield pa.RecordBatch.from_pydict({"n": list(range(20))})

    assert sum(some.num_rows for some in a_second_each(slow(), clock.now, clock.sleep)) == 60
    assert clock.at == 30
    assert list(a_second_each([], clock.now, clock.sleep)) == []
    assert clock.at == 30


# --- changes of a database


def made(kind, rows, keys=("id",)):
    return list(changes(kind, "shop.orders", keys, rows, file="bin.000012", offset=345, at=7))


def test_changes_of_an_event_are_in_order_and_have_positions_of_their_own():
    found = made("insert", [{"values": {"id": n, "v": "x"}} for n in (1, 2)])
    assert [(c.op, c.key, c.row) for c in found] == [
        ("insert", {"id": 1}, {"id": 1, "v": "x"}),
        ("insert", {"id": 2}, {"id": 2, "v": "x"}),
    ]
    assert [c.position for c in found] == ["0000000012:000000000345:0000000001", "0000000012:000000000345:0000000002"]
    assert made("delete", [{"values": {"id": 1}}])[0].row is None


def test_an_update_of_the_key_is_a_delete_and_an_insert():
    rows = [
        {"before_values": {"id": 1, "v": "a"}, "after_values": {"id": 1, "v": "b"}},
        {"before_values": {"id": 1, "v": "b"}, "after_values": {"id": 9, "v": "b"}},
    ]
    found = made("update", rows)
    assert [(c.op, c.key) for c in found] == [("update", {"id": 1}), ("delete", {"id": 1}), ("insert", {"id": 9})]
    assert len({c.position for c in found}) == 3


def test_positions_sort_as_the_binlog_does():
    places = [("b.000009", 10**9, 3), ("b.000010", 4, 0), ("b.000010", 4, 1), ("b.000010", 99, 0), ("b.1000000", 4, 0)]
    texts = [position_of(*place) for place in places]
    assert texts == sorted(texts)


def test_a_row_has_its_position_in_every_snapshot_that_is_taken_again():
    def taken(*keys: int) -> dict[int, str]:
        made = (snapshot("t.t", {"id": key}, {"id": key, "v": "x"}, file="b.000002", offset=99) for key in keys)
        return {change.key["id"]: change.position for change in made}

    first, again = taken(1, 2, 3), taken(0, 2, 3)  # one row came and one went between the two snapshots
    assert [again[key] for key in (2, 3)] == [first[key] for key in (2, 3)]
    assert len({*first.values(), *again.values()}) == 4
    for position in first.values():
        assert position_of("b.000002", 98, 1) < position < position_of("b.000002", 100, 1)


def test_a_key_is_text_that_a_message_can_have():
    key = {"a": "x\x01\x02 y,%", "b": 7}
    (change,) = changes("insert", "t.t", ("a", "b"), [{"values": key}], file="b.1", offset=4, at=0)
    assert change.key_text() == "t.t:x%01%02%20y%2C%25,7"


def test_a_truncation_is_before_the_rows_of_its_snapshot():
    emptied = truncation("t.t", file="b.000002", offset=99)
    there = snapshot("t.t", {"id": 1}, {"id": 1}, file="b.000002", offset=99)
    assert json.loads(emptied.body())["key"] is None
    assert emptied.key_text() == "t.t:"
    assert position_of("b.000002", 98, 9) < emptied.position < there.position


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"user": "u", "tables": "a.b"}, "the option host is missing"),
        ({"host": "h", "user": "u", "tables": "orders"}, "'orders' is no table; expected schema.table"),
        ({"host": "h", "user": "u", "tables": "a.b", "port": "x"}, "port=x: expected a port"),
    ],
)
def test_options_of_the_binlog_source(options, text):
    with pytest.raises(ConfigError, match=text):
        RawOptions(options, Database).parse(Database)


# --- an archive's position


class Admin:
    """Two queues of ten messages, one stored each second; brokers delete them after one hour."""

    def __init__(self, kept: str = "1") -> None:
        queues = {MessageQueue("t", "b", n): SimpleNamespace(min_offset=2, max_offset=10) for n in (0, 1)}

        async def stats(_topic):
            return SimpleNamespace(offset_table=queues)

        async def by_offset(queue, offset):
            return SimpleNamespace(store_timestamp=1000 * offset + queue.queue_id)

        async def masters():
            return {"b": "addr"}

        async def broker_config(_address):
            return {"fileReservedTime": kept}

        self.topics = SimpleNamespace(stats=stats)
        self.messages = SimpleNamespace(by_offset=by_offset)
        self.cluster = SimpleNamespace(masters=masters, broker_config=broker_config)


def stands(positions, kept="1") -> ArchiveStanding:
    at = {MessageQueue("t", "b", n): position for n, position in positions.items()}
    return asyncio.run(standing(Admin(kept), ["t"], at))


def test_what_is_left_until_loss():
    assert stands({0: 10, 1: 10}) == ArchiveStanding(0, None, HOUR_MS)
    assert stands({0: 10, 1: 10}).left_ms(5000) == HOUR_MS
    # An unread queue counts from its oldest message.
    assert stands({0: 7}) == ArchiveStanding(3 + 8, 2001, HOUR_MS)
    assert stands({0: 7}).left_ms(5000) == HOUR_MS - 2999
    assert stands({}, kept="").left_ms(0) is None


# --- the commands' own decisions


def test_a_database_is_read_from_one_argument():
    assert database_of("repl@db") == ("repl", "db", 3306)
    assert database_of("a@b@db:33") == ("a@b", "db", 33)
    for text in ("db", "@db", "repl@", "repl@db:x"):
        with pytest.raises(ConfigError, match="expected USER@HOST"):
            database_of(text)


def test_settings_of_spark():
    assert setting_of("spark.driver.memory=4g") == ("spark.driver.memory", "4g")
    for text in ("spark.x", "driver.memory=4g"):
        with pytest.raises(ConfigError, match=r"write spark\.something=value"):
            setting_of(text)


def test_our_own_error_is_found_inside_sparks():
    text = 'Job aborted\n  File "x.py"\ntianzhou.errors.ConfigError: tags=: expected\n\tat org.apache.spark.Foo\n'
    error = plain(RuntimeError(text))
    assert isinstance(error, ConfigError)
    assert str(error) == "tags=: expected"
    assert str(plain(RuntimeError("\n [X] first line\nJVM stacktrace:\n  at y"))) == "[X] first line"


# --- restarted queries


class Failing:
    """A query that fails with a text, or ends."""

    isActive = False  # noqa: N815 - Spark's names
    lastProgress = None  # noqa: N815

    def __init__(self, text):
        self.text = text

    def awaitTermination(self, _):  # noqa: N802
        if self.text is not None:
            raise StreamingQueryException(self.text)
        return True


SLOW = "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"


def test_a_query_that_spark_had_no_patience_with_is_begun_again(caplog):
    queries = [Failing(SLOW), Failing(SLOW), Failing(None)]
    run(lambda: queries.pop(0))
    assert queries == []
    assert caplog.text.count("the machine is busy") == 2


def test_but_not_for_ever_and_not_for_other_reasons():
    begun = []

    def start(text):
        begun.append(text)
        return Failing(text)

    with pytest.raises(StreamingQueryException, match="failed to connect back"):
        run(lambda: start(SLOW))
    assert len(begun) == TRIES
    with pytest.raises(StreamingQueryException, match="no such topic"):
        run(lambda: start("no such topic"))
    assert len(begun) == TRIES + 1
