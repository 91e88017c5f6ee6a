"""SQL over the newest messages of each topic in a query, and over the archive, as tables of a worker process."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import itertools
import json
import os
import re
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tianzhou.admin import Admin
from tianzhou.errors import ClientError
from tianzhou.model import MessageQueue

MOST_TOPICS: Final = 8
MOST_EACH: Final = 100_000
"""Maximum number of messages of each queue in a query."""
LONGEST_SQL: Final = 20_000
MOST_ROWS: Final = 10_000
ROWS_BYTES: Final = 8 << 20
TABLES_BYTES: Final = 64 << 20
MEMORY_BYTES: Final = 512 << 20
SECONDS: Final = 20.0
AT_ONCE: Final = 2
Tables = dict[str, list[tuple[MessageQueue, int, int, list[bytes]]]]
"""Records of tables by name, as `Messages.newest_records` returns them."""
_ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
MAX_COMPLAINT: Final = 300
"""Maximum number of characters of a worker's error output that a page shows."""
_TAIL_BYTES: Final = 4_096
_MEMORY_ERRORS: Final = ("MemoryError", "pyarrow.lib.ArrowMemoryError")
_MISSING: Final = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_ANSWER_BYTES: Final = 6 * ROWS_BYTES + (1 << 20)
"""Maximum size of the answer in bytes, including its JSON escapes."""
_WORDS: Final = re.compile(r'"((?:[^"]|"")*)"|([^\W\d]\w*)')
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """Result rows of a query.

    Attributes:
        columns: names of the columns.
        types: Arrow types of the columns.
        rows: the values, in types that JSON supports.
        cut: `rows` or `bytes` when the result was shortened because of that limit; empty otherwise.
        topics: number of read messages and of stored messages, by topic.
    """

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    cut: str = ""
    topics: dict[str, tuple[int, int]] = field(default_factory=dict)


def mentioned(sql: str, topics: Iterable[str]) -> list[str]:
    """Return the topics that a query may use: those whose name is a word in it, ignoring case.

    SQL ignores case in names. When names differ only in case, the topic with the written name is used.
    """
    words = {(quoted.replace('""', '"') or bare) for quoted, bare in _WORDS.findall(sql)}
    lowered = {word.lower() for word in words}
    found: dict[str, str] = {}
    for topic in sorted(topics):
        if topic.lower() in lowered and (topic.lower() not in found or topic in words):
            found[topic.lower()] = topic
    return sorted(found.values())


def to_csv(answer: SqlAnswer) -> str:
    """Return an answer as CSV. Texts that a spreadsheet would read as a formula get an apostrophe as prefix."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(answer.columns)
    for row in answer.rows:
        writer.writerow([_csv_cell(value) for value in row])
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return "'" + value
    return value


def to_json(answer: SqlAnswer) -> str:
    """Return an answer as JSON: a list of objects. Repeated column names get a number as suffix."""
    names: list[str] = []
    for name in answer.columns:
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        names.append(name if name not in names else next(one for one in numbered if one not in answer.columns + names))
    return json.dumps([dict(zip(names, row, strict=True)) for row in answer.rows], ensure_ascii=False)


class Queries:
    """Executor of queries, few at a time.

    Args:
        admin: reads the messages.
        archive: folder of the Parquet files of the table `archive`; None for none.
    """

    def __init__(self, admin: Admin, archive: Path | None) -> None:
        self._admin = admin
        self._archive = archive
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def run(
        self, sql: str, topics: Iterable[str], each: int, *, zone: str = "UTC", seconds: float = SECONDS
    ) -> SqlAnswer:
        """Execute a query. Cancelling the call ends its process.

        Args:
            sql: one SELECT.
            topics: names of all topics.
            each: number of newest messages of each queue in a topic's table.
            zone: name of the time zone of the times in tables and in the answer.
            seconds: timeout of the query in seconds, without reading the messages.

        Raises:
            ClientError: the query is invalid, or exceeds a limit of time or memory; the text has the cause.
        """
        if len(sql) > LONGEST_SQL:
            raise ClientError(f"the query has {len(sql)} characters; at most {LONGEST_SQL} are allowed")
        if not 1 <= each <= MOST_EACH:
            raise ClientError(f"{each} messages of each queue; give 1 to {MOST_EACH}")
        names = mentioned(sql, topics)
        if len(names) > MOST_TOPICS:
            raise ClientError(f"the query names {len(names)} topics; at most {MOST_TOPICS} are allowed")
        async with self._turn:
            tables: Tables = {}
            left = TABLES_BYTES
            for name in names:
                tables[name] = await self._admin.messages.newest_records(name, each, most_bytes=left)
                left -= sum(len(piece) for _, _, _, pieces in tables[name] for piece in pieces)
            found = await ask(sql, tables, zone=zone, seconds=seconds, archive=self._archive)
        counts = {
            name: (found["counts"][name], sum(end - begin for _, begin, end, _ in parts))
            for name, parts in tables.items()
        }
        return SqlAnswer(found["columns"], found["types"], found["rows"], found["cut"], counts)


async def ask(
    sql: str, tables: Tables, *, zone: str = "UTC", seconds: float = SECONDS, archive: Path | None = None
) -> dict[str, Any]:
    """Return the answer of a worker process (`tianzhou.console.sql_worker`).

    Args:
        sql: one SELECT.
        tables: records by the name of their table.
        zone: see `Queries.run`.
        seconds: timeout in seconds.
        archive: folder of Parquet files; None for none.

    Raises:
        ClientError: the worker refuses the query, took too long, or died.
    """
    question = {
        "sql": sql,
        "zone": zone,
        "rows": MOST_ROWS,
        "bytes": ROWS_BYTES,
        "memory": MEMORY_BYTES,
        "seconds": seconds,
        "archive": "" if archive is None else str(archive),
        "tables": [
            (name, [(*queue, begin, end, [len(piece) for piece in pieces]) for queue, begin, end, pieces in parts])
            for name, parts in tables.items()
        ],
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "tianzhou.console.sql_worker",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name in _ENVIRONMENT},
    )  # fmt: skip
    try:
        async with asyncio.timeout(seconds):
            lines = [json.dumps(question).encode() + b"\n"]
            lines += [piece for parts in tables.values() for _, _, _, pieces in parts for piece in pieces]
            _, answer, complaint = await asyncio.gather(_write(process, lines), _read(process), _read_tail(process))
            await process.wait()
    except TimeoutError:
        raise ClientError(f"the query took longer than {seconds:g} s and was stopped; select less") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await process.stdin.wait_closed()
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError:
        raise ClientError(why_ended(process.returncode or 0, complaint)) from None
    if error := found.get("error"):
        raise ClientError(error)
    return found


def why_ended(code: int, complaint: str) -> str:
    """Return why a worker process gave no answer, with the remedy.

    Args:
        code: its exit code; negative for a signal.
        complaint: the end of its error output.
    """
    last = complaint.strip().rpartition("\n")[2].strip()[:MAX_COMPLAINT]
    if code > 0 and last and not last.startswith(_MEMORY_ERRORS):
        if missing := _MISSING.match(last):
            return f"the query's process needs {missing[1]}: pip install 'tianzhou[console]'"
        return f"the query's process failed: {last}"
    if -code == getattr(signal, "SIGXCPU", None):  # Windows has no such limit
        return "the query took more processor time than it may have; select less"
    return "the query ended its process, most likely because it needed more memory than it may have; select less"


async def _write(process: asyncio.subprocess.Process, pieces: Iterable[bytes]) -> None:
    assert process.stdin is not None
    try:
        for piece in pieces:
            process.stdin.write(piece)
            await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the worker refuses the query without reading the tables, and its answer has the cause


async def _read_tail(process: asyncio.subprocess.Process) -> str:
    """Return the end of a process' error output."""
    assert process.stderr is not None
    found = b""
    while piece := await process.stderr.read(1 << 16):
        found = (found + piece)[-_TAIL_BYTES:]
    return found.decode(errors="replace")


async def _read(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    found = bytearray()
    while piece := await process.stdout.read(1 << 16):
        found += piece
        if len(found) > _ANSWER_BYTES:
            raise ClientError("the answer is larger than it may be; select less")
    return bytes(found)
