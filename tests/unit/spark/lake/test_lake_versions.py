"""Former versions of lake tables are read, and catalogs that were there before are used under their own names."""

from __future__ import annotations

import datetime as dt

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from lake_tables import options_of, prepared, table_of

from tianzhou.errors import ConfigError
from tianzhou.spark.lake.formats import compact, open_table
from tianzhou.spark.lake.options import parse_lake
from tianzhou.spark.lake.tables import Batch, LakeError

SCHEMA = pa.schema([("id", pa.int64())])
MORE = pa.schema([("id", pa.int64()), ("item", pa.string())])


def commit(options, number, schema=SCHEMA):
    """Append one row, in a commit of its own."""
    table = prepared(options, schema, mergeSchema="true")
    row = pa.RecordBatch.from_pylist([{"id": number, "item": "tea"}], schema)
    table.commit(table.written(row), Batch(None, 0), False)


def ids(options, **asked):
    return sorted(row["id"] for row in table_of(options, **asked).read(SCHEMA))


def snapshots(options):
    """Return an Iceberg table's snapshots, the oldest first."""
    from pyiceberg.catalog import load_catalog

    where = {"uri": options["catalogUri"], "warehouse": options["warehouse"], "type": "sql"}
    return load_catalog(options.get("catalogName", "tianzhou"), **where).load_table(options["table"]).snapshots()


def test_a_version_of_a_delta_table(tmp_path):
    options = options_of("delta", tmp_path)
    commit(options, 1)
    commit(options, 2, MORE)
    assert ids(options) == [1, 2]
    assert ids(options, versionAsOf="1") == [1]
    assert table_of(options, versionAsOf="1").schema().names == ["id"]
    assert table_of(options).schema().names == ["id", "item"]
    long_ago, later = "2020-01-01", (dt.datetime.now(dt.UTC) + dt.timedelta(days=1)).isoformat()
    assert ids(options, timestampAsOf=later) == [1, 2]
    assert ids(options, timestampAsOf=long_ago) == []  # the first version, which had no rows
    with pytest.raises(LakeError, match=r"versionAsOf=77: delta table .* has no such version, the newest is 3"):
        table_of(options, versionAsOf="77").scan()


def test_a_snapshot_of_an_iceberg_table(tmp_path):
    options = options_of("iceberg", tmp_path)
    commit(options, 1)
    commit(options, 2, MORE)
    first, last = snapshots(options)
    assert ids(options, versionAsOf=str(first.snapshot_id)) == [1]
    assert table_of(options, versionAsOf=str(first.snapshot_id)).schema().names == ["id"]
    assert ids(options, versionAsOf=str(last.snapshot_id)) == [1, 2]
    time = dt.datetime.fromtimestamp(first.timestamp_ms / 1000, dt.UTC)
    if first.timestamp_ms < last.timestamp_ms:
        assert ids(options, timestampAsOf=time.isoformat()) == [1]
    with pytest.raises(LakeError, match=f"timestampAsOf=2020-01-01.*no such snapshot.*{first.snapshot_id} of 20"):
        table_of(options, timestampAsOf="2020-01-01T00:00:00").scan()
    with pytest.raises(LakeError, match=r"versionAsOf=7: iceberg table lake\.orders has no such snapshot"):
        table_of(options, versionAsOf="7").schema()


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"versionAsOf": "1", "timestampAsOf": "2026-01-31"}, "versionAsOf=1 and timestampAsOf=2026-01-31 are both"),
        ({"versionAsOf": "new"}, "versionAsOf=new: expected a version of a Delta table, or the id of a snapshot"),
        ({"timestampAsOf": "noon"}, "timestampAsOf=noon: expected a time like 2026-01-31T08:00:00Z"),
    ],
)
def test_what_cannot_be_asked_for(more, text):
    with pytest.raises(ConfigError, match=text):
        parse_lake({"path": "lake/orders", **more})


def test_only_reads_have_a_version():
    with pytest.raises(ConfigError, match=r"versionAsOf=3: merging small files changes the table as it is now"):
        compact("lake/orders", versionAsOf="3")
    with pytest.raises(ConfigError, match=r"timestampAsOf=2026.*: a write changes the table as it is now"):
        parse_lake({"path": "x", "timestampAsOf": "2026-01-31"}).refuse_as_of("a write")


def test_a_catalog_of_others_is_used_under_its_name(tmp_path):
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog import load_catalog

    where = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    theirs = load_catalog("production", type="sql", **where)
    theirs.create_namespace("lake")
    theirs.create_table("lake.orders", SCHEMA)
    options = {**options_of("iceberg", tmp_path), "catalogName": "production"}
    commit(options, 1)
    assert theirs.load_table("lake.orders").scan().to_arrow().to_pylist() == [{"id": 1}]
    # Under another name the same database is another catalog.
    with pytest.raises(LakeError, match=r"there is no iceberg table lake\.orders"):
        table_of({**options, "catalogName": "other"}).scan()


@pytest.mark.parametrize(
    ("given", "name", "catalog"),
    [
        ({"catalogName": "production"}, "production", {}),
        ({"catalogUri": "http://127.0.0.1:1"}, "tianzhou", {"uri": "http://127.0.0.1:1"}),
        (
            {"catalog.uri": "sqlite:///c.db", "catalog.warehouse": "file:///w"},
            "tianzhou",
            {"uri": "sqlite:///c.db", "warehouse": "file:///w", "type": "sql"},
        ),
        (
            {
                "catalogName": "p",
                "catalogType": "rest",
                "catalogUri": "http://c",
                "warehouse": "w",
                "catalog.token": "t",
            },
            "p",
            {"type": "rest", "uri": "http://c", "warehouse": "w", "token": "t"},
        ),
    ],
)
def test_what_a_catalog_is_made_with(given, name, catalog):
    options = parse_lake({"tableFormat": "iceberg", "table": "lake.orders", **given})
    assert (options.catalog_name, dict(options.catalog)) == (name, catalog)


def test_a_catalog_that_is_configured_nowhere(monkeypatch, tmp_path):
    pytest.importorskip("pyiceberg")
    options = {"tableFormat": "iceberg", "table": "lake.orders", "catalogName": "nowhere", "catalog.token": "hush"}
    with pytest.raises(ConfigError, match="no Iceberg catalog nowhere with token=…: ") as raised:
        open_table(parse_lake(options)).scan()
    assert "hush" not in str(raised.value)


def test_a_table_of_sparks_catalog_is_told_the_way():
    made = {"owner": "root", "provider": "tianzhou_lake", "location": "file:/lake/orders", "path": "file:/lake/orders"}
    with pytest.raises(ConfigError, match=r"CREATE TEMPORARY VIEW orders USING tianzhou_lake OPTIONS \(path 'file:"):
        parse_lake(made)
