"""After `pipeline cdc` and `merge` the table equals the database, or the command ends with an error and its reason."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tianzhou.pipelines.merged_table import merged

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "pipelines" / "cdc.md"
_numbers = itertools.count()
COLUMNS = {
    "tiny": ("TINYINT UNSIGNED", ["0", "255"]),
    "big": ("BIGINT UNSIGNED", ["18446744073709551615", "1"]),
    "bits": ("BIT(64)", ["18446744073709551615", "5"]),
    "price": ("DECIMAL(38,10)", ["-0.0000000001", "1234567890123456789012345678.5"]),
    "huge": ("DECIMAL(65,30)", ["-12345678901234567890123456789012345.123456789012345678901234567890", "0"]),
    "f": ("FLOAT", ["0.1", "16777217"]),
    "d": ("DOUBLE", ["0.1", "-1e-300"]),
    "y": ("YEAR", ["0", "2155"]),
    "day": ("DATE", ["'0001-01-01'", "'9999-12-31'"]),
    "at": ("TIMESTAMP(6) NULL", ["'2026-03-29 09:59:59.000001'", "'1970-01-01 08:00:01'"]),
    "wall": ("DATETIME(3)", ["'2026-03-29 02:30:00.120'", "'1000-01-01 00:00:00'"]),
    "took": ("TIME(6)", ["'-00:00:00.5'", "'838:59:59'"]),
    "name": ("VARCHAR(40) CHARACTER SET utf8mb4", ["'a\\001\\002 ,%漢字'", "' '"]),
    "raw": ("VARBINARY(40)", ["x'ff41ff'", "'/0H/'"]),
    "padded": ("BINARY(6)", ["x'410000'", "x''"]),
    "tags": ("SET('b','a','c')", ["'a,b'", "''"]),
    "kind": ("ENUM('b','a')", ["'a'", "'b'"]),
    "hidden": ("INT INVISIBLE", ["1", "2"]),
    "back`tick": ("INT", ["3", "4"]),
}
COLUMNS_OF_MARIADB = {
    "uuid": ("UUID", ["'b5f1c7f0-8d6c-11ee-b9d1-0242ac120002'", "'018bf5f0-0000-7000-8000-000000000000'"]),
    "ip": ("INET6", ["'::ffff:1.2.3.4'", "'2001:db8::'"]),
}
COLUMNS_OF_MYSQL = {
    "document": ("JSON", ["'{\"a\": [1.0, 1e15, null]}'", "JSON_ARRAY(CAST('-00:00:00.5' AS TIME(6)), x'00ff')"]),
    "vector": ("VECTOR(2)", ["STRING_TO_VECTOR('[1, 2.5]')", "STRING_TO_VECTOR('[-0, 3e38]')"]),
}


class Copy:
    """A table of the database, the topic of its changes, and the table of the lake."""

    def __init__(self, database, cli, topic: str, folder: Path, definition: str, name: str = "") -> None:
        self._cli, self._topic, self._folder, self._database = cli, topic, folder, database
        self.name = name or f"shop.truth{next(_numbers)}"
        database.do(f"CREATE TABLE {self.name} ({definition})")
        self.where = f"repl@127.0.0.1:{database.port}"
        self.schema = ""
        self.checkpoint = "cdc"
        self.lake = str(folder / "lake")

    def cdc(self, *more: str) -> tuple[int, str, str]:
        checkpoint = str(self._folder / self.checkpoint)
        return self._cli(
            "pipeline", "cdc", self.where, "--table", self.name, "--to", self._topic, "--checkpoint", checkpoint, *more
        )

    def merge(self, schema: str | None = None, *more: str) -> tuple[int, str, str]:
        options = ("--to", self.lake, "--table", self.name, "--schema", schema or self.schema)
        return self._cli("pipeline", "merge", self._topic, *options, *more)

    def verify(self) -> tuple[int, dict]:
        code, out, err = self._cli(
            "pipeline", "verify", self.name, "--database", self.where, "--in", self.lake, "-o", "json"
        )
        assert out, err
        return code, json.loads(out)

    def follow(self, *more: str) -> int:
        """Read the changes and merge them; return their number."""
        code, out, err = self.cdc("-o", "json")
        assert code == 0, err
        found = json.loads(out)
        self.schema = found[f"schema of {self.name}"]
        code, _, err = self.merge(None, *more)
        assert code == 0, err
        return found["changes"]

    def is_equal(self) -> bool:
        code, found = self.verify()
        assert (code == 0) == found["equal"]
        return found["equal"]


@pytest.fixture
def typed(spark, monkeypatch, capsys):
    """Run `tianzhou ARGS…` in this process, with this session; return exit code, stdout, stderr."""
    from tianzhou.cli import main

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["tianzhou", *args])
        with pytest.raises(SystemExit) as ended:
            main.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def copied(database, typed, topic, server, monkeypatch, tmp_path):
    """Create a table that is captured and merged."""
    monkeypatch.setenv("MYSQL_PWD", "secret")
    monkeypatch.setenv("NAMESRV_ADDR", server.address)
    database.reconnect()

    def make(definition: str = "id INT PRIMARY KEY, v VARCHAR(40)") -> Copy:
        return Copy(database, typed, topic, tmp_path, definition)

    return make


def test_every_type_is_equal_in_the_lake(database, spark, copied):
    """Rows of the snapshot and of the binlog, in one table; then a row that is not in the binlog."""
    # The MERGE of a Delta table does not support backticks in a name.
    wanted = {name: parts for name, parts in COLUMNS.items() if "`" not in name}
    wanted |= COLUMNS_OF_MARIADB if database.name == "MariaDB" else COLUMNS_OF_MYSQL
    names = [f"`{name.replace('`', '``')}`" for name in wanted]
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in zip(names, wanted.values(), strict=True))
    copy = copied(f"id INT PRIMARY KEY, {columns}")
    listed = f"INSERT INTO {copy.name} (id, {', '.join(names)}) VALUES"
    rows = [", ".join(values[turn] for _, values in wanted.values()) for turn in (0, 1)]
    database.do(f"{listed} (1, {rows[0]}), (2, {rows[1]}), (3{', NULL' * len(names)})")
    assert copy.follow() == 4
    database.do(
        f"{listed} (4, {rows[0]}), (5, {rows[1]}), (6{', NULL' * len(names)})", f"DELETE FROM {copy.name} WHERE id = 2"
    )
    assert copy.follow() == 4
    assert copy.is_equal()
    found = {row["id"]: row.asDict() for row in merged(spark, copy.lake).collect()}
    assert found[1] == {**found[4], "id": 1}
    assert (bytes(found[1]["padded"]), bytes(found[1]["raw"])) == (b"A\0\0\0\0\0", b"\xffA\xff")

    database.do(
        "SET sql_log_bin = 0", f"UPDATE {copy.name} SET f = 2, hidden = 9 WHERE id = 4",
        f"DELETE FROM {copy.name} WHERE id = 5", f"INSERT INTO {copy.name} (id) VALUES (7)", "SET sql_log_bin = 1",
    )  # fmt: skip
    code, found = copy.verify()
    assert code == 1
    assert [(one["key"], one["kind"], one["columns"]) for one in found["keys"]] == [
        ('{"id":4}', "different", ["f", "hidden"]),
        ('{"id":5}', "only in table", []),
        ('{"id":7}', "only in database", []),
    ]
    assert (found["rows_in_database"], found["rows_in_table"], found["different_keys"]) == (5, 5, 3)
    assert found["different_ranges"]


KEYS = {
    "BINARY(4)": ["x'41000000'", "x'00000000'", "x'00000001'", "x'01020304'"],
    "VARBINARY(9)": ["x'ff41ff'", "'/0H/'", "x'0102'", "x''", "x'41'", "x'4100'"],
    "VARCHAR(40) COLLATE utf8mb4_bin": ["'\\001\\002'", "'a,b'", "'a'", "'a b'", "'%2C'", "','"],
    "UUID": ["'b5f1c7f0-8d6c-11ee-b9d1-0242ac120002'", "'018bf5f0-0000-7000-8000-000000000000'"],
}


@pytest.mark.slow
@pytest.mark.parametrize("definition", KEYS)
def test_any_key_can_be_a_key(database, copied, definition):
    if definition == "UUID" and database.name != "MariaDB":
        pytest.skip(f"{database.name} has no such type")
    keys = KEYS[definition]
    copy = copied(f"id {definition} PRIMARY KEY, v INT")
    values = ", ".join(f"({key}, {number})" for number, key in enumerate(keys))
    database.do(f"INSERT INTO {copy.name} VALUES {values}")
    assert copy.follow() == len(keys) + 1
    database.do(
        f"UPDATE {copy.name} SET v = v + 10", f"DELETE FROM {copy.name} WHERE id = {keys[0]}",
        f"DELETE FROM {copy.name} WHERE id = {keys[1]}", f"INSERT INTO {copy.name} VALUES ({keys[1]}, 99)",
    )  # fmt: skip
    assert copy.follow() == len(keys) + 3
    assert copy.is_equal()


@pytest.mark.slow
def test_a_table_that_is_emptied(database, copied):
    copy = copied()
    name = copy.name
    database.do(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    copy.follow()
    database.do(f"TRUNCATE TABLE {name}", f"INSERT INTO {name} VALUES (2, 'again')")
    assert copy.follow() == 2
    assert copy.is_equal()
    database.do(f"TRUNCATE TABLE {name}")
    assert copy.follow() == 1
    assert copy.is_equal()


@pytest.mark.parametrize(
    ("settings", "statement", "reason"),
    [
        pytest.param(
            "SET SESSION binlog_format = 'STATEMENT'",
            "INSERT INTO {} VALUES (9, 'x')",
            "is logged as a statement",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "SET @a = 1", "ALTER TABLE {} ADD COLUMN w INT DEFAULT 7", "the table was changed", marks=pytest.mark.slow
        ),
    ],
)
def test_what_cannot_be_followed_ends_the_command_and_starting_over_helps(
    database, copied, settings, statement, reason
):
    copy = copied()
    database.do(f"INSERT INTO {copy.name} VALUES (1, 'a'), (2, 'b')")
    copy.follow()
    database.do(f"DELETE FROM {copy.name} WHERE id = 1", settings, statement.format(copy.name))
    database.reconnect()
    database.do(f"UPDATE {copy.name} SET v = 'later'")
    for _ in range(2):  # the position does not move
        code, _, err = copy.cdc()
        assert code == 1
        assert f"{copy.name}: the binlog cannot be followed at bin." in err
        assert reason in err
        assert "start over with another checkpoint" in err
        assert not [word for word in ("Traceback", "Py4J") if word in err]
    copy.checkpoint = "again"
    if "ALTER" in statement:
        code, _, err = copy.cdc()
        assert code == 0, err
        code, _, err = copy.merge()
        assert code == 1
        assert f"{copy.name}: the change at" in err
        assert "has the columns w, which the schema lacks" in err
        return
    copy.follow()
    assert copy.is_equal()


def steps() -> list[tuple[str, str]]:
    """Return the commands of the page, each with its printed output."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def test_the_page_is_typed_as_printed(database, copied, typed, server, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    server.create("orders-cdc")
    database.do(
        "DROP TABLE IF EXISTS shop.orders", "CREATE TABLE shop.orders (id INT PRIMARY KEY, name VARCHAR(40), total INT)"
    )
    database.do("INSERT INTO shop.orders VALUES (1, 'Ada', 7), (2, 'Bob', 20), (3, 'Cy', 1)")
    between = [
        "UPDATE shop.orders SET name = 'Bo', total = 21 WHERE id = 2", "DELETE FROM shop.orders WHERE id = 3",
        "INSERT INTO shop.orders VALUES (4, 'Di', 4)",
    ]  # fmt: skip
    for command, shown in steps():
        words = shlex.split(command.replace("repl@127.0.0.1", f"repl@127.0.0.1:{database.port}"))
        # The session of all tests has another working directory.
        folders = ("--checkpoint", "--in") if words[2] != "merge" else ("--to",)
        words = [
            str(tmp_path / word) if before in folders else word
            for before, word in zip(["", *words], words, strict=False)
        ]
        code, out, err = typed(*words[1:])
        assert code == 0, f"{command}: {err}"
        assert out.replace(f"{tmp_path}/", "") == shown
        if between and words[2] == "cdc":
            database.do(*between)
            between = []
