"""Spark's logs of an archive as text: what is read of them, what is written, and which batch comes next."""

from __future__ import annotations

import json

import pytest

from tianzhou.errors import ConfigError
from tianzhou.pipelines.archive_log import (
    CONF,
    Logged,
    Logs,
    Step,
    UnknownForm,
    expired,
    file_line,
    is_compact,
    list_name,
    list_text,
    listed_of,
    lists_before,
    logged_of,
    logs_of,
    metadata_text,
    next_step,
    only_sparks,
    partition,
    query_of,
    uri_of,
)

OFFSET = {"end": {"orders@broker-a:0": 5}, "from": {"orders@broker-a:0": 2}}
HEAD = '{"batchWatermarkMs":0,"batchTimestampMs":1795863676423,"conf":{"spark.sql.shuffle.partitions":"1"}}'
LINE = (
    '{"path":"file:///tmp/arc/a%20b/topic=%2525RETRY%2525g1/day=2026-11-28/part-00000-169e3460.c000.snappy.parquet",'
    '"size":4879,"isDir":false,"modificationTime":1795863684263,"blockReplication":1,"blockSize":33554432,"action":"add"}'
)
"""As Spark 4.3.0 wrote them."""


def test_offsets_are_read_as_spark_writes_them():
    text = f'v1\n{HEAD}\n{{"end": {{"orders@broker-a:0": 5}}, "from": {{"orders@broker-a:0": 2}}}}'
    found = logged_of(text)
    assert found == Logged(OFFSET, {"spark.sql.shuffle.partitions": "1"})
    # Settings of the session that began it go on from batch to batch.
    assert found.text(1795863676423) == text
    assert json.loads(Logged(OFFSET).text(0).split("\n")[1])["conf"] == CONF


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v2\n" + HEAD + "\n" + json.dumps(OFFSET),
        "v1\n" + HEAD,
        "v1\n" + HEAD + "\n" + json.dumps(OFFSET) + "\n" + json.dumps(OFFSET),
        "v1\n" + HEAD + "\n-",
        "v1\n" + HEAD + "\n1795863676423",
        "v1\n" + HEAD + '\n{"orders":{"0":5}}',
        "v1\n" + HEAD.replace('"conf"', '"config"') + "\n" + json.dumps(OFFSET),
        "v1\n" + HEAD.replace('Ms":0', 'Ms":7') + "\n" + json.dumps(OFFSET),
        "v1\n" + HEAD.replace('{"spark.sql.shuffle.partitions":"1"}', "[]") + "\n" + json.dumps(OFFSET),
        "v1\n[]\n" + json.dumps(OFFSET),
        "v1\n{\n" + json.dumps(OFFSET),
    ],
)
def test_offsets_of_another_form_are_sparks(text):
    with pytest.raises(UnknownForm):
        logged_of(text)


def test_lists_of_files():
    path = "/tmp/arc/a b/topic=%25RETRY%25g1/day=2026-11-28/part-00000-169e3460.c000.snappy.parquet"
    assert file_line(path, 4879, 1795863684263) == LINE
    assert listed_of(list_text([LINE, LINE])) == [LINE, LINE]
    assert list_text([]) == "v1"
    assert listed_of("v1") == []
    for other in ("v2\n" + LINE, list_text([LINE.replace('"add"', '"delete"')]), list_text([LINE[:-1] + ',"x":1}'])):
        with pytest.raises(UnknownForm):
            listed_of(other)


def test_the_id_of_a_query():
    text = '{"id":"951d1181-c654-4084-afc8-bf1977690da0"}'
    assert query_of(text) == "951d1181-c654-4084-afc8-bf1977690da0"
    assert metadata_text(query_of(text)) == text
    for other in ("", "{}", '{"id":"../x"}', text.replace("}", ',"more":1}')):
        with pytest.raises(UnknownForm):
            query_of(other)


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/a b/c", "file:///a%20b/c"),
        ("/a%b#c?d", "file:///a%25b%23c%3Fd"),
        ("/Müller/归档", "file:///Müller/归档"),
        ("/no\u00a0break", "file:///no%C2%A0break"),
        ("/a=b,c;d:e@f+g&h$i!j~k'l(m)*", "file:///a=b,c;d:e@f+g&h$i!j~k'l(m)*"),
        ("/[x]{y}|^`\\", "file:///%5Bx%5D%7By%7D%7C%5E%60%5C"),
    ],
)
def test_paths_as_java_writes_them(path, uri):
    assert uri_of(path) == uri


@pytest.mark.parametrize(
    ("topic", "folder"),
    [("orders", "topic=orders/day=2026-11-28"), ("%RETRY%ns%g|1", "topic=%25RETRY%25ns%25g|1/day=2026-11-28")],
)
def test_folders_of_partitions(topic, folder):
    assert partition(topic, "2026-11-28") == folder


@pytest.mark.parametrize(
    ("path", "sparks"),
    [
        ("archive", False),
        ("/data/a:b", False),
        ("./a:b", False),
        ("hdfs://cluster/archive", True),
        ("s3a://bucket/archive", True),
        ("file:/archive", True),
        ("a:b", True),
        ("//host/archive", True),
        ("", True),
    ],
)
def test_places_where_only_spark_writes(path, sparks):
    assert only_sparks(path) is sparks


def logs(begun: int, done: int, listed: int) -> Logs:
    """Batches up to three numbers, each tenth list one of all."""
    return Logs(
        frozenset(range(begun + 1)),
        frozenset(range(done + 1)),
        {number: is_compact(number) for number in range(listed + 1)},
    )


@pytest.mark.parametrize(
    ("there", "step"),
    [
        (logs(-1, -1, -1), Step(0)),
        (logs(0, -1, -1), Step(0, begun=True)),
        (logs(0, -1, 0), Step(0, begun=True, listed=True)),
        (logs(0, 0, 0), Step(1)),
        (logs(9, 8, 8), Step(9, begun=True)),
        (logs(9, 8, 9), Step(9, begun=True, listed=True)),
        (logs(30, 30, 30), Step(31)),
        # Spark and this module take away what is old.
        (Logs(frozenset({41, 42}), frozenset({41, 42}), {39: True, 40: False, 41: False, 42: False}), Step(43)),
        (Logs(frozenset({41}), frozenset({41}), {29: True, 31: False, 39: True, 40: False, 41: False}), Step(42)),
    ],
)
def test_which_batch_comes_next(there, step):
    assert next_step(there, "archive", "archive/_checkpoint") == step


@pytest.mark.parametrize(
    "there",
    [
        logs(2, 0, 0),
        logs(0, 1, 0),
        logs(5, 5, 3),
        logs(5, 4, 3),
        logs(5, 5, -1),
        # Another compactInterval.
        Logs(frozenset({4}), frozenset({4}), {0: False, 1: False, 2: False, 3: False, 4: True}),
        Logs(frozenset({9}), frozenset({9}), dict.fromkeys(range(10), False)),
        # A list is missing that the next one of all needs.
        Logs(frozenset({12}), frozenset({12}), {9: True, 10: False, 12: False}),
        Logs(frozenset({2}), frozenset({2}), {1: False, 2: False}),
    ],
)
def test_what_does_not_fit_together_is_sparks(there):
    with pytest.raises(UnknownForm):
        next_step(there, "archive", "archive/_checkpoint")


@pytest.mark.parametrize(("begun", "last"), [(-1, "none"), (2, "2")])
def test_a_table_of_another_checkpoint_is_refused(begun, last):
    """Spark writes nothing under a number that the table has, and commits the batch: messages would be left out."""
    with pytest.raises(ConfigError, match=f"up to batch 3 of another checkpoint than c, whose last is {last}; give"):
        next_step(logs(begun, begun, 3), "archive", "c")


def test_names_of_logs():
    found = logs_of(["0", "1", ".1.crc", "x", "01"], ["0"], ["8", "9.compact", "9.compact.tmp", "_x", "10"])
    assert found == Logs(frozenset({0, 1}), frozenset({0}), {8: False, 9: True, 10: False})
    with pytest.raises(UnknownForm):
        logs_of([], [], ["9", "9.compact"])


@pytest.mark.parametrize(
    ("number", "name", "before"),
    [
        (9, "9.compact", ["0", "1", "2", "3", "4", "5", "6", "7", "8"]),
        (19, "19.compact", ["9.compact", "10", "11", "12", "13", "14", "15", "16", "17", "18"]),
    ],
)
def test_each_tenth_list_has_all_before_it(number, name, before):
    assert is_compact(number)
    assert list_name(number) == name
    assert lists_before(number) == before
    assert list_name(number + 1) == str(number + 1)


def test_what_may_be_taken_away():
    batches, lists = expired(logs(130, 130, 130), 130)
    assert batches == [str(number) for number in range(30)]
    # The list of all of batch 29 stands for those before it, and who reads now may be at it.
    assert lists == [list_name(number) for number in range(29)]
    assert expired(logs(100, 100, 100), 100) == ([], [])
