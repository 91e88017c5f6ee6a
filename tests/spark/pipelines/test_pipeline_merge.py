"""The merged table without a database: changes are merged once under any kill, and old files are deleted."""

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from quick_start import QUERY_LIMIT_S, environment

from tianzhou.errors import ConfigError
from tianzhou.pipelines.binlog.typed_rows import ChangeRefused, naming_faults, typed_rows
from tianzhou.pipelines.merged_table import merge, merged
from tianzhou.pipelines.topics import Topics

PROGRAM = Path(__file__).parents[1] / "merge_program.py"
SCHEMA = "id INT, name STRING"


def change(key: int, position: int, name: str | None) -> str:
    row = None if name is None else json.dumps({"id": key, "name": name})
    op = "delete" if name is None else "update"
    return json.dumps({"op": op, "table": "shop.items", "key": str(key), "row": row, "position": f"{position:09d}"})


def rows(spark, to) -> dict[int, str]:
    found = merged(spark, str(to)).collect()
    assert len(found) == len({row["id"] for row in found})
    return {row["id"]: row["name"] for row in found}


@pytest.fixture
def table(spark, server, topic, tmp_path):
    """Return a function that sends changes, merges them, and returns the rows of the table."""

    def run(*changes: str, **options) -> dict[int, str]:
        to = str(tmp_path / "merged")
        server.send(topic, list(changes))
        query = merge(Topics(spark, server.address), topic, to, **{"table": "shop.items", "schema": SCHEMA, **options})
        query.awaitTermination(QUERY_LIMIT_S)
        return rows(spark, to)

    return run


def rounds(table):
    """Run three rounds of changes; yield after each, and compare the table with the expected rows."""
    wanted = {key: f"item {key}" for key in range(200)}
    first = [change(key, key, name) for key, name in wanted.items()]
    assert table(*first) == wanted
    yield
    wanted[7] = "tea"
    del wanted[8]
    assert table(change(7, 500, "tea"), change(7, 100, "older"), change(7, 500, "tea"), change(8, 501, None)) == wanted
    yield
    # A repeated older change does not restore a deleted row.
    assert table(change(8, 8, "item 8")) == wanted
    yield


def test_a_folder_without_a_table_is_named(spark, tmp_path):
    with pytest.raises(ConfigError, match="holds no merged table yet; make one with: tianzhou pipeline merge"):
        merged(spark, str(tmp_path))


def test_a_merge_leaves_the_callers_session_active(spark, table):
    table(change(1, 1, "a"))
    spark.conf.set("tianzhou.seen", "yes")
    assert SparkSession.active().conf.get("tianzhou.seen", "no") == "yes"


def raw_change(position: int, row: dict | None, *, op: str = "update", key: str | None = "1") -> str:
    text = None if row is None else json.dumps(row)
    return json.dumps({"op": op, "table": "shop.items", "key": key, "row": text, "position": f"{position:09d}"})


@pytest.mark.parametrize(
    ("schema", "row", "reason"),
    [
        ("id INT, name STRING", {"id": 1}, "lacks the columns name of the schema"),
        ("id INT", {"id": 1, "name": "a"}, "has the columns name, which the schema lacks"),
        ("id TINYINT", {"id": 200}, "has a value of id that is no TINYINT: 200"),
        ("id INT", {"id": 1.5}, "has a value of id that is no INT: 1.5"),
        ("id DECIMAL(5,1)", {"id": "1.25"}, r"has a value of id that is no DECIMAL\(5,1\): 1.25"),
        ("id DECIMAL(5,1)", {"id": "123456"}, r"has a value of id that is no DECIMAL\(5,1\): 123456"),
        ("id FLOAT", {"id": 0.123456789}, "has a value of id that is no FLOAT: 0.123456789"),
        ("id DATE", {"id": "0000-00-00"}, "has a value of id that is no DATE: 0000-00-00"),
        ("id DATE", {"id": "2026-11-21 08:00:00"}, "has a value of id that is no DATE"),
        ("id TIMESTAMP", {"id": "2026-11-21 08:00:00"}, "has a value of id that is no TIMESTAMP"),
        ("id TIMESTAMP_NTZ", {"id": "2026-11-21T08:00:00Z"}, "has a value of id that is no TIMESTAMP_NTZ"),
        ("id BINARY", {"id": "abc"}, "has a value of id that is no BINARY: abc"),
    ],
)
def test_a_schema_that_would_lose_something_is_refused(spark, schema, row, reason):
    messages = spark.createDataFrame([(raw_change(5, row).encode(),)], "body BINARY")
    expected = pytest.raises(ChangeRefused, match=f"^shop.items: the change at 000000005 of the row 1 {reason}")
    with expected, naming_faults():
        typed_rows(messages, "shop.items", spark.createDataFrame([], schema).schema).collect()


def test_a_schema_that_would_lose_something_ends_the_merge(server, topic, cli, tmp_path):
    server.send(topic, [raw_change(5, {"id": 200})])
    given = ("--to", str(tmp_path / "m"), "--table", "shop.items", "--schema", "id TINYINT")
    code, _, err = cli("pipeline", "merge", topic, *given)
    assert code == 1
    assert "shop.items: the change at 000000005 of the row 1 has a value of id that is no TINYINT: 200" in err


def test_a_message_that_is_no_change_ends_the_merge(server, topic, cli, tmp_path):
    server.send(topic, ["hello"])
    given = ("--to", str(tmp_path / "m"), "--table", "shop.items", "--schema", SCHEMA)
    code, _, err = cli("pipeline", "merge", topic, *given)
    assert (code, "a message is no change of a table: hello" in err) == (1, True), err


def test_a_truncation_deletes_older_rows_whenever_they_come(table):
    emptied = raw_change(20, None, op="truncate", key=None)
    first = [change(1, 1, "a"), change(2, 2, "b"), change(3, 30, "c")]
    assert table(*first) == {1: "a", 2: "b", 3: "c"}
    assert table(emptied, change(4, 19, "older"), change(5, 21, "d")) == {3: "c", 5: "d"}
    # Another queue is read later.
    assert table(change(1, 3, "late"), change(6, 5, "late"), change(2, 22, "again")) == {2: "again", 3: "c", 5: "d"}
    assert table(emptied) == {2: "again", 3: "c", 5: "d"}


@pytest.mark.slow
def test_a_delta_table_is_changed_by_its_own_merge(spark, server, topic, table, pipeline, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    to = tmp_path / "merged"
    with pytest.raises(ConfigError, match="holds no merged table yet"):
        merged(spark, str(to))
    run = rounds(table)
    next(run)
    query = json.loads((to / "_checkpoint" / "metadata").read_text())["id"]
    assert deltalake.DeltaTable(to).transaction_version(query) == 0
    next(run)
    assert deltalake.DeltaTable(to).transaction_version(query) == 1
    version = deltalake.DeltaTable(to).version()
    next(run)
    assert deltalake.DeltaTable(to).version() == version  # no row changed
    # Other readers see a table of the current rows.
    assert sorted(deltalake.DeltaTable(to).to_pyarrow_table().column("id").to_pylist()) == [
        key for key in range(200) if key != 8
    ]
    server.send(topic, [change(9, 900, None)])
    options = ("--to", str(to), "--table", "shop.items", "--schema", SCHEMA)
    assert pipeline("merge", topic, *options) == {"changes": 1, "rows_in_table": 198, "to": str(to)}
    with pytest.raises(ConfigError, match="column name is int32 in the rows and string in delta table"):
        table(schema="id INT, name INT")


@pytest.mark.slow
def test_small_and_old_files_and_old_deletions_go(table, tmp_path, monkeypatch):
    deltalake = pytest.importorskip("deltalake")
    from tianzhou.spark.lake import merging

    monkeypatch.setattr(merging, "MAINTENANCE_BATCHES", 1)
    to, kept = tmp_path / "merged", dt.timedelta(hours=1)
    for number in range(4):
        table(change(number, number, f"item {number}"), change(99, 100 + number, None), retention=kept)
    assert len(deltalake.DeltaTable(to).file_uris()) == 1
    assert len(list(to.glob("*.parquet"))) > 1  # a reader of an older version may still need them
    assert deltalake.DeltaTable(to / merging.DELETED_KEYS).to_pyarrow_table().num_rows == 1
    found = table(change(5, 200, "item 5"), retention=dt.timedelta(0))
    assert found == {**{n: f"item {n}" for n in range(4)}, 5: "item 5"}
    assert deltalake.DeltaTable(to / merging.DELETED_KEYS).to_pyarrow_table().num_rows == 0


@pytest.mark.slow
def test_killed_while_it_merges_into_a_delta_table(spark, server, topic, tmp_path):
    """Driver and JVM die before a commit, between the deleted keys and the rows, and after a commit."""
    pytest.importorskip("deltalake")
    wanted: dict[int, str] = {}
    position, environ = 0, environment(tmp_path)
    for place in ("before", "gone", "after", ""):
        changes = []
        for key in range(position % 7, 40, 3):
            position += 1
            name = None if key % 4 == 0 and wanted.get(key) else f"{place} {position}"
            changes.append(change(key, position, name))
            wanted.pop(key, None)
            if name is not None:
                wanted[key] = name
        server.send(topic, [*changes, *changes[:5]])
        (tmp_path / "plan").write_text(place)
        command = [sys.executable, str(PROGRAM), server.address, topic, str(tmp_path)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == (-9 if place else 0), done.stderr[-3000:]
        assert bool((tmp_path / "plan").read_text()) is False
    assert rows(spark, tmp_path / "merged") == wanted
