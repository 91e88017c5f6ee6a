"""The merged table without a database: changes are merged once, whatever is killed, and old files go."""

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

import pytest
from quick_start import QUERY_LIMIT_S, environment

from tianzhou.errors import ConfigError
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
    """Send changes and merge them: the rows of the table."""

    def run(*changes: str, **options) -> dict[int, str]:
        to = str(tmp_path / "merged")
        server.send(topic, list(changes))
        query = merge(Topics(spark, server.address), topic, to, **{"table": "shop.items", "schema": SCHEMA, **options})
        query.awaitTermination(QUERY_LIMIT_S)
        return rows(spark, to)

    return run


def rounds(table):
    """Three runs of changes; what the table is in the end, and a look at it after each."""
    wanted = {key: f"item {key}" for key in range(200)}
    first = [change(key, key, name) for key, name in wanted.items()]
    assert table(*first) == wanted
    yield
    wanted[7] = "tea"
    del wanted[8]
    assert table(change(7, 500, "tea"), change(7, 100, "older"), change(7, 500, "tea"), change(8, 501, None)) == wanted
    yield
    # A repeated older change does not bring a deleted row back.
    assert table(change(8, 8, "item 8")) == wanted
    yield


def test_a_folder_without_a_table_is_named(spark, tmp_path):
    with pytest.raises(ConfigError, match="holds no merged table yet; make one with: tianzhou pipeline merge"):
        merged(spark, str(tmp_path))


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
    assert deltalake.DeltaTable(to).version() == version  # nothing had changed
    # To others it is a table of the rows that are.
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
