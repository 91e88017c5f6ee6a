"""Binlog events of a real MariaDB and a real MySQL beyond plain rows: processed, or refused by name."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator

import pytest
from sql_servers import ONLY_MARIADB, ONLY_MYSQL

from tianzhou.errors import ConfigError
from tianzhou.pipelines.binlog.captured import ChangesLost
from tianzhou.pipelines.binlog.database import BinlogFailed, Server
from tianzhou.pipelines.binlog_source import BinlogReader, Database, changes_between
from waiting import until


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


@ONLY_MARIADB
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
    seen = made("v INT, t TEXT DEFAULT ('x')")
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
        "CREATE TEMPORARY TABLE IF NOT EXISTS shop.of_session AS SELECT * FROM {}",
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
    ],
)
def test_columns_that_cannot_be_captured(made, definition, reason):
    with pytest.raises(ConfigError, match=reason):
        _ = made(definition).table


@ONLY_MARIADB
def test_compressed_columns_cannot_be_captured(database, made):
    with pytest.raises(ConfigError, match="column v is COMPRESSED"):
        _ = made("v BLOB COMPRESSED").table


@ONLY_MARIADB
def test_tables_that_cannot_be_captured(database, made):
    seen = made("v INT")
    database.do(f"ALTER TABLE {seen.name} ADD SYSTEM VERSIONING")
    with pytest.raises(ConfigError, match=f"table {seen.name} is a SYSTEM VERSIONED, whose rows are not captured"):
        _ = seen.table


@ONLY_MARIADB
def test_rows_that_a_foreign_key_deletes_are_known_by_the_key(database, made, reading):
    parent = made("v INT")
    child = made(
        f"p INT, CONSTRAINT of_{parent.where[1]} FOREIGN KEY (p) REFERENCES {parent.name} (id) ON DELETE CASCADE"
    )
    assert reading.cascades(child.table) == [f"of_{parent.where[1]}"]
    assert reading.cascades(parent.table) == []


@ONLY_MARIADB
def test_a_snapshot_waits_for_commits_before_its_position(database, made):
    seen = made("v INT")
    file, offset = seen.reading.files()[-1]
    with pytest.raises(BinlogFailed, match=rf"{seen.name}: the rows .* should reach {file}:{offset + 1}"):
        list(seen.reading.rows(seen.table, (file, offset + 1), wait_s=0.2))


@ONLY_MYSQL
@pytest.mark.parametrize("columns", ["v TEXT", "v TEXT, w JSON"])
def test_compressed_transactions_are_decoded(database, made, columns):
    seen = made(columns)
    other = made("v INT")
    with setting(database, "SESSION", "binlog_transaction_compression", "1"):
        database.do(
            f"INSERT INTO {seen.name} (id, v) VALUES (1, REPEAT('a', 99999)), (2, 'b')",
            "BEGIN", f"UPDATE {seen.name} SET v = REPEAT('c', 5000)", f"INSERT INTO {other.name} VALUES (1, 1)",
            f"DELETE FROM {seen.name} WHERE id = 2", f"UPDATE {seen.name} SET id = 3", "COMMIT",
            f"TRUNCATE TABLE {seen.name}",
        )  # fmt: skip
    changes = seen.changes()
    assert [(change.op, change.key and change.key["id"]) for change in changes] == [
        ("insert", 1), ("insert", 2), ("update", 1), ("update", 2), ("delete", 2), ("delete", 1), ("insert", 3),
        ("truncate", None),
    ]  # fmt: skip
    assert changes[2].row["v"] == "c" * 5000
    assert [change.position for change in changes] == sorted({change.position for change in changes})
    assert seen.rows() == []


@ONLY_MYSQL
def test_updates_that_log_parts_of_documents_are_refused(database, made):
    seen = made("v JSON")
    database.do(f"INSERT INTO {seen.name} VALUES (1, JSON_OBJECT('a', 1, 'b', REPEAT('x', 999)))")
    seen.start = seen.reading.files()[-1]
    with setting(database, "SESSION", "binlog_row_value_options", "PARTIAL_JSON"):
        database.do(f"UPDATE {seen.name} SET v = JSON_SET(v, '$.a', 2)")
    with pytest.raises(ChangesLost, match=rf"{seen.name}: .* at bin\.\d+:\d+: .* set binlog_row_value_options=''"):
        seen.changes()


@ONLY_MYSQL
def test_a_server_that_logs_parts_of_documents_is_refused(database, reading):
    with (
        setting(database, "GLOBAL", "binlog_row_value_options", "PARTIAL_JSON"),
        pytest.raises(ConfigError, match="binlog_row_value_options is PARTIAL_JSON; set it to ''"),
    ):
        reading.check()
    reading.check()


@ONLY_MYSQL
def test_indexes_of_expressions_add_no_column(database, made):
    """MySQL stores them as hidden columns, which are in no row event."""
    seen = made("v INT, j JSON, INDEX by_v ((v + 1)), INDEX by_j ((CAST(j->'$' AS UNSIGNED ARRAY))), w INT")
    database.do(f"INSERT INTO {seen.name} VALUES (1, 2, '[1, 2]', 3)", f"UPDATE {seen.name} SET v = 5, j = '[7]'")
    assert [change.row for change in seen.changes()][-1:] == seen.rows() == [{"id": 1, "v": 5, "j": "[7]", "w": 3}]


@ONLY_MYSQL
def test_a_key_that_the_server_has_made(database, made):
    with setting(database, "SESSION", "sql_generate_invisible_primary_key", "1"):
        seen = made("v INT", key="")
    database.do(f"INSERT INTO {seen.name} (v) VALUES (5), (6)", f"DELETE FROM {seen.name} WHERE v = 5")
    assert [(change.op, change.key) for change in seen.changes()] == [
        ("insert", {"my_row_id": 1}), ("insert", {"my_row_id": 2}), ("delete", {"my_row_id": 1}),
    ]  # fmt: skip
    assert seen.rows() == [{"my_row_id": 2, "v": 6}]


@ONLY_MYSQL
def test_rows_that_a_foreign_key_changes_are_logged_since_mysql_9_6(database, made, reading):
    parent = made("v INT")
    child = made(f"p INT, FOREIGN KEY (p) REFERENCES {parent.name} (id) ON DELETE CASCADE ON UPDATE CASCADE")
    if not database.do("SHOW VARIABLES LIKE 'innodb_native_foreign_keys'"):
        assert len(reading.cascades(child.table)) == 1
        return
    assert reading.cascades(child.table) == []
    database.do(
        f"INSERT INTO {parent.name} VALUES (1, 1), (2, 2)", f"INSERT INTO {child.name} VALUES (10, 1), (20, 2)",
        f"DELETE FROM {parent.name} WHERE id = 1", f"UPDATE {parent.name} SET id = 3",
    )  # fmt: skip
    changes = child.changes()
    assert [(change.op, change.key["id"]) for change in changes] == [
        ("insert", 10), ("insert", 20), ("delete", 10), ("update", 20),
    ]  # fmt: skip
    assert child.rows() == [changes[-1].row] == [{"id": 20, "p": 3}]


@ONLY_MYSQL
def test_a_snapshot_waits_for_transactions_that_have_changed_the_table(database, made):
    seen = made("v INT")
    database.do("BEGIN", f"INSERT INTO {seen.name} VALUES (1, 1)")
    with pytest.raises(BinlogFailed, match=rf"{seen.name}: the snapshot waits for transactions .* for 1 s; end it"):
        list(seen.reading.rows(seen.table, seen.start, wait_s=1))
    database.do("COMMIT")
    assert seen.rows() == [{"id": 1, "v": 1}]


@ONLY_MYSQL
def test_a_user_who_may_not_lock_tables(database, made):
    """MySQL's own message names no privilege."""
    seen = made("v INT")
    database.do(
        "CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'secret'",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO reader@'127.0.0.1'",
    )
    with pytest.raises(
        BinlogFailed, match=rf"{seen.name}: the snapshot needs the privilege LOCK TABLES: .* GRANT LOCK"
    ):
        list(Server("127.0.0.1", database.port, "reader", "secret").rows(seen.table, seen.start))


def test_tables_of_partitions(database, made):
    """MySQL logs the partition of each row event."""
    seen = made("v INT) PARTITION BY HASH (id) PARTITIONS 3 -- ")
    database.do(
        f"INSERT INTO {seen.name} VALUES (1, 1), (2, 2), (3, 3)", f"UPDATE {seen.name} SET id = 7 WHERE id = 3",
        f"DELETE FROM {seen.name} WHERE id = 1",
    )  # fmt: skip
    assert ops(seen) == [("insert", 1), ("insert", 2), ("insert", 3), ("delete", 3), ("insert", 7), ("delete", 1)]
    assert sorted(row["id"] for row in seen.rows()) == [2, 7]


def test_a_binlog_that_was_reset_is_another_one(database, made):
    """The files of the new binlog have the old names, and soon the old sizes."""
    seen = made("v INT")
    captured = Database("127.0.0.1", database.port, "repl", "secret", (seen.where,), snapshot=False)
    reader = BinlogReader(captured)
    start = reader.initialOffset()
    database.do(f"INSERT INTO {seen.name} VALUES (1, 1)")
    read = reader.latestOffset(start, None)
    assert [change.op for change in changes_between(captured, read["from"], read["end"])] == ["insert"]
    file, offset, begun = read["end"]
    with pytest.raises(ChangesLost, match=f"{seen.name}: the checkpoint has the place .* an earlier version wrote it"):
        reader.latestOffset({"from": None, "end": [file, offset]}, None)
    # A position has the second in which its file was begun, so a reset within that second is not noticed
    # (docs/adr/0026).
    until(lambda: int(time.time()) > begun, "the second is over")
    database.do(database.reset_statement)
    if seen.reading.files()[-1][0] != file:
        with pytest.raises(ChangesLost, match=rf"{seen.name}: .* {file}:{offset} .* it is another binlog"):
            reader.latestOffset(read, None)
        read["end"] = [seen.reading.files()[-1][0], offset, begun]
    number = itertools.count(2)
    while (now := seen.reading.files()[-1])[1] <= offset:
        if now[1] < offset:
            with pytest.raises(ChangesLost, match=f"the file has {now[1]} bytes: it is another binlog"):
                reader.latestOffset(read, None)
        database.do(f"INSERT INTO {seen.name} VALUES ({next(number)}, {'1' * 9})")
    later = reader.latestOffset(read, None)
    with pytest.raises(ChangesLost, match=rf"{seen.name}: .*: the file was begun at .*: it is another binlog"):
        list(changes_between(captured, later["from"], later["end"]))
    database.do("FLUSH BINARY LOGS")
    read["end"][1] = seen.reading.files()[-2][1]
    with pytest.raises(ChangesLost, match="it is another binlog"):
        reader.latestOffset(read, None)
