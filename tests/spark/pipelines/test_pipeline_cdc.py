"""`tianzhou pipeline cdc` and `merge` with a real database: its rows in a topic, and as a table again."""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from quick_start import JAVA, OPTIONS, environment

from tianzhou.pipelines.merged_table import merged

SCHEMA = "id INT, name STRING, total DECIMAL(10,2), at STRING"
START_LIMIT_S = 240
"""Limit of Spark's start in seconds on a busy machine; a command is killed only after it has sent messages."""
PAUSE_S = 0.02
"""Seconds between changes during the start, which they would slow down."""
_numbers = itertools.count()


@pytest.fixture
def table(database) -> str:
    name = f"shop.orders{next(_numbers)}"
    database.do(f"CREATE TABLE {name} (id INT PRIMARY KEY, name VARCHAR(40), total DECIMAL(10,2), at DATETIME)")
    return name


@pytest.fixture
def capture(database, table, topic, pipeline, monkeypatch, tmp_path):
    """Run `pipeline cdc` on the table; return the number of changes it sent."""
    monkeypatch.setenv("MYSQL_PWD", "secret")

    def run(*more: str) -> int:
        where = f"repl@127.0.0.1:{database.port}"
        return pipeline("cdc", where, "--table", table, "--to", topic, "--checkpoint", str(tmp_path / "cdc"), *more)[
            "changes"
        ]

    return run


@pytest.fixture
def table_of_topic(spark, table, topic, pipeline, tmp_path):
    """Run `pipeline merge`; return the rows of the table built from the topic."""

    def run() -> list[tuple]:
        to = str(tmp_path / "merged")
        pipeline("merge", topic, "--to", to, "--table", table, "--schema", SCHEMA)
        return sorted(tuple(row) for row in merged(spark, to).collect())

    return run


def rows_of(database, table) -> list[tuple]:
    return sorted(
        (id_, name, total, None if at is None else str(at))
        for id_, name, total, at in database.do(f"SELECT id, name, total, at FROM {table}")
    )


def test_the_table_made_of_the_topic_equals_the_databases(database, table, topic, server, capture, table_of_topic):
    database.do(f"INSERT INTO {table} VALUES (1, 'Zürich', 1.50, '2026-11-21 08:00:00'), (2, 'b', 2, NULL)")
    assert capture() == 3  # the truncation at the beginning of a snapshot, and the existing rows
    assert table_of_topic() == rows_of(database, table)
    database.do(
        f"UPDATE {table} SET total = 9.99 WHERE id = 1",
        f"INSERT INTO {table} VALUES (3, NULL, NULL, NULL), (4, 'd', 4, NULL)",
        f"DELETE FROM {table} WHERE id = 2",
        f"UPDATE {table} SET id = 30 WHERE id = 3",  # the key itself changes
    )
    assert capture() == 6
    assert table_of_topic() == rows_of(database, table)
    assert capture() == 0

    changes = [(m, json.loads(m.body)) for m in server.messages(topic)]
    assert len(changes) == 9
    ops = {m.properties["op"] for m, _ in changes}
    assert ops == {"truncate", "snapshot", "insert", "update", "delete"}
    assert [m.properties["position"] for m, _ in changes] == [change["position"] for _, change in changes]
    assert len({m.properties["position"] for m, _ in changes}) == 9
    assert {m.keys for m, _ in changes} == {f"{table}:{n}" for n in ("", 1, 2, 3, 4, 30)}


def test_order_is_kept_by_key_over_all_queues(database, table, server, capture, topic, table_of_topic):
    rng = random.Random(3)
    for number in range(40):
        database.do(f"INSERT INTO {table} VALUES ({number}, 'new', 0, NULL)")
    capture("--no-snapshot")
    statements = []
    for step in range(120):
        key = rng.randrange(40)
        statements.append(f"UPDATE {table} SET total = {step} WHERE id = {key}")
    database.do(*statements, "FLUSH BINARY LOGS", f"UPDATE {table} SET name = 'last'")
    assert capture() > 120
    by_key = defaultdict(list)
    for message in server.messages(topic):  # by queue and offset
        by_key[message.keys].append((message.queue_id, message.properties["position"]))
    assert len({queues[0][0] for queues in by_key.values()}) == 2
    for places in by_key.values():
        assert len({queue for queue, _ in places}) == 1
        assert [position for _, position in places] == sorted(position for _, position in places)
    assert capture() == 0


@pytest.mark.parametrize("delivery", [pytest.param("at-least-once", marks=pytest.mark.slow), "exactly-once"])
def test_a_batch_that_was_sent_and_not_noted_changes_nothing(
    database, table, topic, server, capture, table_of_topic, tmp_path, delivery
):
    """A crash exactly between the last acknowledgement and the checkpoint."""
    capture = functools.partial(capture, "--delivery", delivery)
    database.do(f"INSERT INTO {table} VALUES (1, 'a', 1, NULL)")
    capture()
    database.do(
        f"UPDATE {table} SET name = 'b'", f"DELETE FROM {table}", f"INSERT INTO {table} VALUES (1, 'c', 3, NULL)"
    )
    capture()
    before = len(server.messages(topic))
    newest = max(finished(tmp_path), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    database.do(f"UPDATE {table} SET total = 4")
    capture()
    found = server.messages(topic)
    # Repeated or not, as the page says.
    assert (len(found) > before + 1) == (delivery == "at-least-once")
    positions = [m.properties["position"] for m in found]
    assert len(set(positions)) == before + 1  # and identifiable as repeated
    assert table_of_topic() == rows_of(database, table)


def killed(database, server, table, topic, tmp_path, waits: Iterable[int], rng: random.Random) -> int:
    """Change rows while the command is killed once for each wait; return the number of statements.

    A wait is the number of batches that a run may finish before the one in which it is killed; the first is the
    snapshot.
    """
    args = [
        sys.executable, "-m", "tianzhou", "pipeline", "cdc", f"repl@127.0.0.1:{database.port}", "--table", table,
        "--to", topic, "--checkpoint", str(tmp_path / "cdc"), "-n", server.address,
        "--conf", f"{OPTIONS}={JAVA[OPTIONS]}",
    ]  # fmt: skip
    environ = {**environment(tmp_path), "MYSQL_PWD": "secret"}
    statements = 0

    def change() -> None:
        nonlocal statements
        statements += 1
        key = rng.randrange(20)
        database.do(
            rng.choice(
                [
                    f"REPLACE INTO {table} VALUES ({key}, 'n{rng.random()}', {rng.randrange(99)}, NOW())",
                    f"UPDATE {table} SET total = total + 1 WHERE id = {key}",
                    f"DELETE FROM {table} WHERE id = {key}",
                    f"UPDATE IGNORE {table} SET id = {rng.randrange(20)} WHERE id = {key}",
                ]
            )
        )

    def sent() -> int:
        return sum(server.maxima(topic).values())

    for wait in waits:
        process = subprocess.Popen(
            [*args, "--follow"], env=environ, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        before, batches = sent(), len(finished(tmp_path)) + wait
        deadline = time.monotonic() + START_LIMIT_S
        try:
            while True:
                if len(finished(tmp_path)) < batches:
                    before = sent()
                elif sent() > before:
                    break
                assert process.poll() is None, process.stderr.read().decode()
                assert time.monotonic() < deadline, "nothing was sent"
                change()
                time.sleep(PAUSE_S)
            for _ in range(rng.randrange(0, 60)):
                change()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        change()
    return statements


def finished(folder: Path) -> list[Path]:
    """Return the checkpoint files of a query's finished batches."""
    return list((folder / "cdc" / "commits").glob("[0-9]*"))


@pytest.mark.slow
def test_killed_while_rows_change(database, table, topic, server, capture, table_of_topic, tmp_path):
    killed(database, server, table, topic, tmp_path, [1], random.Random(1))
    capture()
    assert table_of_topic() == rows_of(database, table)


@pytest.mark.slow
def test_killed_ten_times_while_rows_change(database, table, topic, server, capture, table_of_topic, tmp_path):
    waits = [0, 0, 1, 0, 1, 2, 0, 3, 1, 0]
    statements = killed(database, server, table, topic, tmp_path, waits, random.Random(2))
    batches = len(finished(tmp_path))
    last = capture()
    rows = rows_of(database, table)
    assert table_of_topic() == rows
    assert batches >= sum(waits)
    messages = server.messages(topic)
    positions = {message.properties["position"] for message in messages}
    assert len(positions) == len({(message.properties["position"], message.keys) for message in messages})
    print(
        f"{statements} statements, {len(waits)} kills, {batches} batches finished by those that were killed, {last} "
        f"changes in the run after them; {len(messages)} messages of {len(positions)} changes, {len(rows)} rows equal"
    )


def test_a_binlog_that_is_gone_is_reported(database, table, topic, cli, capture, tmp_path):
    capture()
    database.do(f"INSERT INTO {table} VALUES (1, 'a', 1, NULL)", "FLUSH BINARY LOGS")
    newest = database.newest_file()
    # The server does not delete a file as long as it has a reader for it.
    for _ in range(100):
        database.do(f"PURGE BINARY LOGS TO '{newest}'")
        if len(database.do("SHOW BINARY LOGS")) == 1:
            break
        time.sleep(0.2)
    else:
        pytest.fail(f"{database.name} kept the file")
    where = f"repl@127.0.0.1:{database.port}"
    code, _, err = cli("pipeline", "cdc", where, "--table", table, "--to", topic, "--checkpoint", str(tmp_path / "cdc"))
    assert code == 1
    assert "is deleted on 127.0.0.1" in err
    assert "Start over with another checkpoint" in err


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("binlog_row_metadata = 'MINIMAL'", "binlog_row_metadata is MINIMAL; set binlog_row_metadata=FULL"),
        ("binlog_format = 'STATEMENT'", "binlog_format is STATEMENT; set binlog_format=ROW"),
    ],
)
def test_a_server_that_does_not_write_what_is_needed(database, table, topic, cli, monkeypatch, tmp_path, setting, text):
    monkeypatch.setenv("MYSQL_PWD", "secret")
    name = setting.split()[0]
    ((_, before),) = database.do(f"SHOW GLOBAL VARIABLES LIKE '{name}'")
    database.do(f"SET GLOBAL {setting}")
    try:
        where = f"repl@127.0.0.1:{database.port}"
        code, _, err = cli(
            "pipeline", "cdc", where, "--table", table, "--to", topic, "--checkpoint", str(tmp_path / "c")
        )
    finally:
        database.do(f"SET GLOBAL {name} = '{before}'")
    assert (code, text in err) == (2, True), err


@pytest.mark.parametrize(
    ("user", "password", "name", "text", "code"),
    [
        ("repl", "wrong", "{table}", "Access denied", 1),
        ("repl", "secret", "shop.nothing", "table shop.nothing does not exist, cannot be read by repl, or has no", 2),
        ("repl", "secret", "nothing", "'nothing' is no table; expected schema.table", 2),
        ("", "secret", "{table}", "expected USER@HOST", 2),
    ],
)
def test_mistakes_are_explained(database, table, topic, cli, monkeypatch, tmp_path, user, password, name, text, code):
    monkeypatch.setenv("MYSQL_PWD", password)
    where = f"{user}@127.0.0.1:{database.port}"
    found, _, err = cli(
        "pipeline",
        "cdc",
        where,
        "--table",
        name.format(table=table),
        "--to",
        topic,
        "--checkpoint",
        str(tmp_path / "c"),
    )
    assert (found, text in err) == (code, True), err
    assert "Traceback" not in err


def test_a_schema_that_is_none(topic, cli, tmp_path):
    code, _, err = cli(
        "pipeline", "merge", topic, "--to", str(tmp_path / "m"), "--table", "a.b", "--schema", "id NUMBER"
    )
    assert (code, "expected columns and types" in err) == (2, True), err
