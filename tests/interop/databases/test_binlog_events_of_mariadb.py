"""What a real MariaDB writes to its binlog beside plain rows: followed, or refused by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from mariadb_server import needs_mariadb

from tianzhou.errors import ConfigError
from tianzhou.pipelines.binlog.captured import ChangesLost
from tianzhou.pipelines.binlog.database import BinlogFailed

pytestmark = needs_mariadb


@contextlib.contextmanager
def setting(database, scope: str, name: str, value: str) -> Iterator[None]:
    ((before,),) = database.do(f"SELECT @@{scope}.{name}")
    database.do(f"SET {scope} {name} = {value}")
    try:
        yield
    finally:
        database.do(f"SET {scope} {name} = {before!r}")


def ops(seen) -> list[tuple]:
    return [(change.op, change.key and change.key["id"]) for change in seen.changes()]


def test_compressed_events_are_decoded(database, made):
    seen = made("v TEXT")
    with (
        setting(database, "GLOBAL", "log_bin_compress", "1"),
        setting(database, "GLOBAL", "log_bin_compress_min_len", "10"),
    ):
        database.reconnect()
        database.do(
            f"INSERT INTO {seen.name} VALUES (1, REPEAT('a', 999)), (2, 'b')",
            f"UPDATE {seen.name} SET v = REPEAT('c', 5000)",
            f"DELETE FROM {seen.name} WHERE id = 2 AND v LIKE 'ccc%'",
            f"TRUNCATE TABLE {seen.name} -- {'x' * 500}",
        )
    database.reconnect()
    assert ops(seen) == [
        ("insert", 1), ("insert", 2), ("update", 1), ("update", 2), ("delete", 2), ("truncate", None),
    ]  # fmt: skip
    assert seen.changes()[2].row == {"id": 1, "v": "c" * 5000}


@pytest.mark.parametrize(
    ("settings", "statement", "reason"),
    [
        ("binlog_format = 'STATEMENT'", "INSERT INTO {} VALUES (1, 2, 3)", "is logged as a statement"),
        ("binlog_row_image = 'MINIMAL'", "UPDATE {} SET v = 3", "rows lack columns; set binlog_row_image=FULL"),
        ("binlog_row_image = 'MINIMAL'", "DELETE FROM {}", "rows lack columns; set binlog_row_image=FULL"),
        ("binlog_row_image = 'NOBLOB'", "UPDATE {} SET v = 3", "rows lack columns; set binlog_row_image=FULL"),
        ("@a = 1", "ALTER TABLE {} ADD COLUMN w INT DEFAULT 7", "changes its columns.* ADD COLUMN w"),
        ("@a = 1", "ALTER TABLE {} CHANGE id number INT", "changes its columns.* CHANGE id number"),
        ("@a = 1", "ALTER TABLE {} DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", "DROP PRIMARY KEY"),
        ("@a = 1", "RENAME TABLE {} TO shop.gone", "renames the table"),
        ("@a = 1", "DROP TABLE {}", "drops the table"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(database, made, reading, settings, statement, reason):
    seen = made("v INT, t TEXT DEFAULT 'x'")
    database.do(f"INSERT INTO {seen.name} VALUES (7, 7, 'x')")
    seen.start = reading.files()[-1]
    before = seen.table
    database.do(f"SET SESSION {settings}" if "@" not in settings else f"SET {settings}", statement.format(seen.name))
    database.reconnect()
    with pytest.raises(ChangesLost, match=rf"{seen.name}: the binlog cannot be followed at bin\.\d+:\d+: .*{reason}"):
        seen.changes_of(before)
    if "RENAME" in statement:
        database.do("DROP TABLE shop.gone")


def test_rows_logged_before_the_columns_changed_are_refused(database, made):
    seen = made("v INT")
    database.do(f"INSERT INTO {seen.name} VALUES (1, 2)", f"ALTER TABLE {seen.name} ADD COLUMN w INT FIRST")
    with pytest.raises(ChangesLost, match="the columns were id, v and are w, id, v now: the table was changed"):
        seen.changes()


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {} ADD INDEX of_v (v), COMMENT = 'x'",
        "ALTER TABLE {} ENGINE = InnoDB",
        "ANALYZE TABLE {}",
        "OPTIMIZE TABLE {}",
        "CREATE INDEX of_v ON {} (v)",
        "CREATE OR REPLACE VIEW shop.seen AS SELECT * FROM {}",
        "GRANT SELECT ON {} TO repl@'127.0.0.1'",
        "CREATE OR REPLACE TEMPORARY TABLE shop.of_session AS SELECT * FROM {}",
        "FLUSH TABLES",
    ],
)
def test_statements_that_change_no_row_are_passed_over(database, made, statement):
    seen = made("v INT")
    database.do(f"INSERT INTO {seen.name} VALUES (1, 2)", statement.format(seen.name), f"UPDATE {seen.name} SET v = 3")
    assert ops(seen) == [("insert", 1), ("update", 1)]
    assert seen.changes()[-1].row == {"id": 1, "v": 3}


def test_transactions(database, made):
    seen = made("v INT")
    name = seen.name
    database.do(
        "BEGIN", f"INSERT INTO {name} VALUES (1, 1)", "SAVEPOINT a", f"INSERT INTO {name} VALUES (2, 2)",
        "ROLLBACK TO a", f"UPDATE {name} SET id = 3", "COMMIT",
        "BEGIN", f"DELETE FROM {name}", "ROLLBACK",
    )  # fmt: skip
    assert ops(seen) == [("insert", 1), ("delete", 1), ("insert", 3)]
    assert seen.rows() == [{"id": 3, "v": 1}]


def test_an_xa_transaction_is_refused(database, made):
    seen = made("v INT")
    database.do("XA START 'a'", f"INSERT INTO {seen.name} VALUES (1, 1)", "XA END 'a'", "XA PREPARE 'a'")
    database.do("XA ROLLBACK 'a'")
    with pytest.raises(ChangesLost, match="an XA transaction is prepared"):
        seen.changes()


def test_columns_that_are_hidden_or_computed(database, made):
    seen = made(
        "a INT INVISIBLE DEFAULT 5, twice INT AS (a * 2) STORED, thrice INT AS (a * 3) VIRTUAL, `a``b` VARCHAR(9)"
    )
    database.do(f"INSERT INTO {seen.name} (id, a, `a``b`) VALUES (1, 2, 'x'), (2, 3, NULL)")
    wanted = [
        {"id": 1, "a": 2, "twice": 4, "thrice": 6, "a`b": "x"},
        {"id": 2, "a": 3, "twice": 6, "thrice": 9, "a`b": None},
    ]
    assert seen.rows() == wanted
    assert [change.row for change in seen.changes()] == wanted


@pytest.mark.parametrize("name", ["back`tick", "with space", "Größe", "percent%s", "dash-"])
def test_names_of_tables(database, reading, made, name):
    quoted = "`" + name.replace("`", "``") + "`"
    seen = made("v INT")
    seen.where, seen.name = ("shop", name), f"shop.{quoted}"
    database.do(f"CREATE TABLE {seen.name} (id INT PRIMARY KEY, v INT)")
    seen.start = reading.files()[-1]
    database.do(
        f"INSERT INTO {seen.name} VALUES (1, 2)", f"TRUNCATE {seen.name}", f"INSERT INTO {seen.name} VALUES (3, 4)"
    )
    assert [row["id"] for row in seen.rows()] == [3]
    assert ops(seen) == [("insert", 1), ("truncate", None), ("insert", 3)]


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("v VARCHAR(9) CHARACTER SET swe7", "column v has the character set swe7, which is not decoded"),
        ("v ENUM('a') CHARACTER SET dec8", "column v has the character set dec8"),
        ("v BLOB COMPRESSED", "column v is COMPRESSED"),
    ],
)
def test_columns_that_cannot_be_captured(made, definition, reason):
    with pytest.raises(ConfigError, match=reason):
        _ = made(definition).table


def test_tables_that_cannot_be_captured(database, made):
    seen = made("v INT")
    database.do(f"ALTER TABLE {seen.name} ADD SYSTEM VERSIONING")
    with pytest.raises(ConfigError, match=f"table {seen.name} is a SYSTEM VERSIONED, whose rows are not captured"):
        _ = seen.table


def test_rows_that_a_foreign_key_deletes_are_known_by_the_key(database, made, reading):
    parent = made("v INT")
    child = made(
        f"p INT, CONSTRAINT of_{parent.where[1]} FOREIGN KEY (p) REFERENCES {parent.name} (id) ON DELETE CASCADE"
    )
    assert reading.cascades(child.table) == [f"of_{parent.where[1]}"]
    assert reading.cascades(parent.table) == []


def test_a_snapshot_waits_for_commits_before_its_position(made):
    seen = made("v INT")
    file, offset = seen.reading.files()[-1]
    with pytest.raises(BinlogFailed, match=rf"{seen.name}: the rows .* should reach {file}:{offset + 1}"):
        list(seen.reading.rows(seen.table, (file, offset + 1), wait_s=0.2))
