"""SQL over messages: bounded replies, and no query reaches anything outside or ends without a readable error."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="the console's packages are not installed")

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from tianzhou.console import sql
from tianzhou.console.display.zones import Zone
from tianzhou.console.sql_worker import QueryRefused, answer, check, close_doors, connect, table_of
from tianzhou.errors import ClientError
from tianzhou.model import MessageQueue
from tianzhou.records.codec import Record, encode_record
from tianzhou.wire.properties import encode_properties

PATIENT_S = 300
"""Limit in seconds where time is not tested: a worker first imports DuckDB and Arrow, which is slow on a busy
machine.
"""
ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"


def reply(query: str, archive: str = "", rows: int = 100, size: int = 100_000) -> dict[str, Any]:
    """Return a worker's reply, computed without its process."""
    check(query)
    connection = connect(64 << 20, archive)
    close_doors(connection)
    return answer(connection, query, rows, size)


def test_a_select_is_answered() -> None:
    found = reply(
        "SELECT 1 AS a, map {'k': 'v'} AS m, 'x'::blob AS b, 0.5::decimal(4,1) AS d, 'nan'::float AS f, NULL AS n"
    )
    assert found["columns"] == ["a", "m", "b", "d", "f", "n"]
    assert found["rows"] == [[1, {"k": "v"}, "78", "0.5", "nan", None]]
    assert json.dumps(found)


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 1) TO '{file}'", "ATTACH '{file}'", "INSTALL httpfs", "LOAD httpfs", "PRAGMA database_list",
        "SET threads = 8", "RESET lock_configuration", "CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)",
        "DROP VIEW archive", "EXPORT DATABASE '{file}'", "IMPORT DATABASE '{file}'", "CALL pragma_version()", "VACUUM",
        "CHECKPOINT", "USE x",
        "SELECT 1; SELECT 2", "", ";", "EXPLAIN ANALYZE SELECT 1", "PREPARE p AS SELECT 1", "CREATE SECRET s (TYPE s3)",
        "BEGIN TRANSACTION", "DETACH memory", "this is no SQL", "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
    ],
)  # fmt: skip
def test_only_one_select_is_allowed(query: str, tmp_path: Path) -> None:
    with pytest.raises(QueryRefused, match=r"\w"):
        check(query.format(file=tmp_path / "written"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/etc/passwd')", "FROM '/etc/passwd'",
        "SELECT * FROM read_blob('/etc/passwd')", "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT * FROM read_parquet('http://127.0.0.1:1/x')", "SELECT getenv('HOME')", "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{file}''')", "SELECT * FROM read_json('{file}')",
        "SELECT * FROM sqlite_scan('{file}', 't')", "SELECT * FROM read_csv('{folder}/../secret.csv')",
        "SELECT set_config('threads', '8')", "SELECT * FROM nothing_like_it", "SELECT * FROM which_python",
    ],
)  # fmt: skip
def test_a_select_reaches_nothing_outside(query: str, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    pq.write_table(pa.table({"topic": ["a"]}), archive / "1.parquet")
    (tmp_path / "secret.csv").write_text("secret\n1\n")
    which_python = pa.table({"a": [1]})  # a variable of the process is no table
    assert which_python.num_rows
    with pytest.raises(duckdb.Error, match=r"\w"):
        reply(query.format(file=tmp_path / "written", folder=archive), str(archive))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "secret.csv"]


def test_the_archive_is_a_table(tmp_path: Path) -> None:
    for number in range(2):
        folder = tmp_path / f"it's/date=2026-01-0{number + 1}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"topic": ["a"], "queueOffset": [number]}), folder / "1.parquet")
    assert reply("SELECT count(*), max(queueOffset) FROM archive", str(tmp_path / "it's"))["rows"] == [[2, 1]]


def test_answers_are_bounded() -> None:
    assert reply("FROM range(1000)", rows=10) | {"types": []} == {
        "columns": ["range"], "types": [], "rows": [[number] for number in range(10)], "cut": "rows",
    }  # fmt: skip
    found = reply("SELECT repeat('x', 1000) FROM range(1000)", rows=1_000, size=10_000)
    assert (len(found["rows"]), found["cut"]) == (9, "bytes")
    assert reply("SELECT repeat('x', 10000000)", size=10_000)["cut"] == "bytes"
    with pytest.raises(duckdb.Error, match=r"(?i)memory"):
        reply("SELECT list(range) FROM range(100000000)")


@pytest.mark.parametrize(
    ("query", "topics"),
    [
        ("SELECT * FROM orders JOIN Payments USING (keys)", ["orders", "payments"]),
        ('SELECT * FROM "order-events"', ["order-events"]),
        ("SELECT * FROM order-events", ["order"]),
        ('FROM "%DLQ%billing"', ["%DLQ%billing"]),
        ('FROM "Case" JOIN orders', ["Case", "orders"]),
        ("FROM CASE", ["Case"]),
        ("SELECT 1", []),
    ],
)
def test_topics_that_a_query_names(query: str, topics: list[str]) -> None:
    there = ["orders", "payments", "order-events", "order", "%DLQ%billing", "Case", "case"]
    assert sql.mentioned(query, there) == topics


def test_exports() -> None:
    found = sql.SqlAnswer(["a", "b"], [], [["=cmd()", {"k": "舟"}], [-1, "-1.5"], [None, 'x"y']])
    assert sql.to_csv(found).splitlines() == ["a,b", '\'=cmd(),"{""k"": ""舟""}"', "-1,-1.5", ',"x""y"']
    twice = sql.SqlAnswer(["a", "a", "a_1", "a"], [], [[1, 2, 3, 4]])
    assert json.loads(sql.to_json(twice)) == [{"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}]
    assert json.loads(sql.to_json(found))[0] == {"a": "=cmd()", "b": {"k": "舟"}}


def record(offset: int, body: bytes, sys_flag: int = 0) -> bytes:
    properties = encode_properties({"TAGS": "t", "KEYS": f"k{offset}", "UNIQ_KEY": f"U{offset}", "colour": "red"})
    host = b"\x7f\0\0\1"
    return encode_record(
        Record("T", 3, offset, offset * 500, 0, sys_flag, 1_000, host, 1, 2_000, host, 2, 0, 0, body, properties)
    )


def test_messages_are_a_table_of_a_worker() -> None:
    pieces = [record(0, b"before"), record(1, b'{"amount": 5}') + record(2, b"\xff")]
    tables: sql.Tables = {
        "t": [(MessageQueue("T", "b", 3), 1, 3, pieces), (MessageQueue("T", "b", 4), 0, 0, [])],
        "u": [],
    }
    query = "SELECT queueId, queueOffset, body, properties['colour'], storeTimestamp, keys FROM t ORDER BY queueOffset"
    found = asyncio.run(sql.ask(query, tables, seconds=PATIENT_S))
    assert found["counts"] == {"t": 2, "u": 0}
    assert found["rows"] == [
        [3, 1, '{"amount": 5}', "red", "1970-01-01T00:00:02", "k1"],
        [3, 2, "\ufffd", "red", "1970-01-01T00:00:02", "k2"],
    ]


def test_times_of_a_table_are_clock_times_of_the_visitors_zone() -> None:
    piece = record(0, b"x")
    parts = [("T", "b", 3, 0, 1, [len(piece)])]
    connection = connect(64 << 20, "")
    connection.register("t", table_of(io.BytesIO(piece), parts, 1 << 20, "Asia/Kolkata"))
    close_doors(connection)
    query = (
        "SELECT storeTimestamp, TIMESTAMPTZ '1970-01-01 00:00:02+00' FROM t WHERE storeTimestamp > '1970-01-01 05:30'"
    )
    found = answer(connection, query, 10, 10_000, Zone("Asia/Kolkata").info)
    assert found["rows"] == [["1970-01-01T05:30:02", "1970-01-01T05:30:02+05:30"]]


# The records exceed a pipe's buffer: a worker that refuses the query does not read them.
LARGE: sql.Tables = {"t": [(MessageQueue("T", "b", 0), 0, 9, [bytes(1 << 20)])]}


@pytest.mark.parametrize(
    ("query", "tables", "words"),
    [
        (ENDLESS, {}, "longer than 3 s"),
        ("COPY (SELECT 1) TO '/tmp/x'", LARGE, "COPY is not allowed; only SELECT is"),
        ("SELECT 1", LARGE, "malformed"),
    ],
)
def test_a_worker_says_why_not(query: str, tables: sql.Tables, words: str) -> None:
    with pytest.raises(ClientError, match=words):
        asyncio.run(sql.ask(query, tables, seconds=3 if query == ENDLESS else PATIENT_S))


@pytest.mark.parametrize(
    ("code", "complaint", "words"),
    [
        (1, "Traceback:\n  File x\nModuleNotFoundError: No module named 'numpy'\n", r"needs numpy: pip install"),
        (1, "Traceback:\nOSError: libarrow.so: cannot open\n", "process failed: OSError: libarrow.so: cannot open$"),
        (1, "x" * 1_000, "process failed: x{300}$"),
        (1, "Traceback:\nMemoryError\n", "more memory than it may have"),
        (1, "", "more memory than it may have"),
        (-9, "", "more memory than it may have"),
        (-6, "terminate called after throwing an instance of 'std::bad_alloc'\n", "more memory than it may have"),
        (-24, "", "more processor time than it may have"),
    ],
)  # fmt: skip
def test_a_worker_that_ends_without_an_answer(code: int, complaint: str, words: str) -> None:
    assert re.search(words, sql.why_ended(code, complaint))


def test_a_workers_own_error_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "duckdb.py").write_text("raise ImportError('this DuckDB is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ClientError, match="the query's process failed: ImportError: this DuckDB is broken"):
        asyncio.run(sql.ask("SELECT 1", LARGE, seconds=PATIENT_S))


def test_bodies_that_unpack_to_more_than_there_is_room_for_end_in_words() -> None:
    bomb = record(0, zlib.compress(bytes(60 << 20), 9), sys_flag=1)
    tables: sql.Tables = {"t": [(MessageQueue("T", "b", 0), 0, 1, [bomb] * 20)]}
    with pytest.raises(ClientError, match="unpack to more than a query may take"):
        asyncio.run(sql.ask("SELECT count(*) FROM t", tables, seconds=PATIENT_S))


def test_a_cancelled_query_ends_its_process() -> None:
    async def cancel() -> float:
        task = asyncio.ensure_future(sql.ask(ENDLESS, {}))
        await asyncio.sleep(1)
        begun = time.monotonic()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return time.monotonic() - begun

    assert asyncio.run(cancel()) < 5


def test_questions_that_are_too_large_are_refused_before_anything_is_read() -> None:
    queries = sql.Queries(None, None)  # type: ignore[arg-type]
    many = [f"t{number}" for number in range(9)]
    for query, each, words in (
        ("x" * 20_001, 1, "20001 characters"),
        ("SELECT 1", 0, "0 messages"),
        ("FROM " + ", ".join(many), 1, "9 topics"),
    ):
        with pytest.raises(ClientError, match=words):
            asyncio.run(queries.run(query, many, each))


@pytest.mark.parametrize("born_ms", [253_402_300_800_000, 2**62, -(2**63)])
def test_times_that_are_no_dates_are_null_and_properties_have_their_numbers(born_ms: int) -> None:
    host = b"\x7f\0\0\1"
    odd = encode_record(Record("T", 3, 1, 500, 0, 0, born_ms, host, 1, 2_000, host, 2, 0, 0, b"x", b"colour\x01red"))
    tables: sql.Tables = {"t": [(MessageQueue("T", "b", 3), 0, 2, [record(0, b"before") + odd])]}
    query = (
        "SELECT queueOffset, bornTimestamp, storeTimestamp, properties['BORN_TIMESTAMP_MS'], properties['colour']"
        " FROM t ORDER BY bornTimestamp NULLS LAST"
    )
    assert asyncio.run(sql.ask(query, tables, seconds=PATIENT_S))["rows"] == [
        [0, "1970-01-01T00:00:01", "1970-01-01T00:00:02", None, "red"],
        [1, None, "1970-01-01T00:00:02", str(born_ms), "red"],
    ]


def test_a_date_that_no_json_can_hold_is_shown_as_a_number() -> None:
    found = reply("SELECT make_timestamp(253402300800000000) AS late, TIMESTAMP '2026-01-02' AS fine")
    assert found["rows"] == [["253402300800000000 us", "2026-01-02T00:00:00"]]
