"""Handlers and databases that `@once` supports, and the errors for others."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from tianzhou.client import ConsumeContext, DatabaseIds, MemoryIds, RedisIds, idempotent, once
from tianzhou.client.consumer.once.id_table import MAX_ID_CHARACTERS, Dialect, IdTable, row_id
from tianzhou.client.consumer.push.handlers import HandlerOptions, Handlers
from tianzhou.errors import ClientError, ConfigError
from tianzhou.model import MessageExt, MessageQueue

PAGE = Path(__file__).resolve().parents[4] / "docs" / "howto" / "once.md"
QUEUE = MessageQueue("T", "b", 0)


def message(key: str = "U", body: bytes = b"5", keys: str = "") -> MessageExt:
    properties = {"UNIQ_KEY": key} | ({"KEYS": keys} if keys else {})
    return MessageExt("T", body, 0, properties, "b", 0, 0, 0, 0, 0, "h", 0, "h", 0, 0, 0, 0, f"O{key}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def ids(path: Path) -> DatabaseIds:
    return DatabaseIds(lambda: sqlite3.connect(path))


def consume(handler: Any, *messages: MessageExt, body: Any = None, batch: int = 1) -> Any:
    """Call a handler like a consumer."""

    async def main() -> Any:
        handlers = Handlers("G", orderly=False, batch_size=batch, threads=2)
        handlers.add("T", handler, HandlerOptions(body=body))
        try:
            return await handlers.call("T", list(messages), ConsumeContext(QUEUE))
        finally:
            handlers.close()

    return asyncio.run(main())


def test_the_connection_is_put_where_the_handler_names_it(ids: DatabaseIds) -> None:
    seen: list[Any] = []

    def plain(one: Any, connection: Any) -> None:
        seen.append((one.msg_id, connection.total_changes))

    def in_front(connection: Any, one: Any) -> None:
        seen.append((one.msg_id, connection.total_changes))

    def with_context(one: Any, connection: Any, context: Any) -> None:
        seen.append((one.msg_id, context.queue, connection.total_changes))

    def at_the_end(one: Any, context: Any, connection: Any) -> None:
        seen.append((one.msg_id, context.queue, connection.total_changes))

    def by_name(one: Any, *, connection: Any) -> None:
        seen.append((one.msg_id, connection.total_changes))

    for number, handler in enumerate([plain, in_front, with_context, at_the_end, by_name]):
        decorated = once(ids)(handler)
        assert decorated.__name__ == handler.__name__
        consume(decorated, message(str(number)))
        consume(decorated, message(str(number)))
    assert seen == [("0", 1), ("1", 1), ("2", QUEUE, 1), ("3", QUEUE, 1), ("4", 1)]


def test_the_connection_of_a_driver_is_all_there_but_what_ends_the_transaction(ids: DatabaseIds) -> None:
    found: list[Any] = []

    @once(ids)
    def handle(one: Any, connection: Any) -> None:
        connection.row_factory = sqlite3.Row
        found.append(connection.execute("SELECT 7 AS seven").fetchone()["seven"])
        for wrong in (
            lambda: connection.commit(),
            lambda: connection.rollback(),
            lambda: connection.close(),
            lambda: connection.executescript("SELECT 1"),
            lambda: connection.__enter__(),
            lambda: setattr(connection, "isolation_level", None),
        ):
            with pytest.raises(ClientError, match="separate its work from the id"):
                wrong()
        assert connection.in_transaction

    consume(handle, message())
    assert found == [7]


def test_values_reach_the_handler_with_what_it_names(ids: DatabaseIds) -> None:
    seen: list[Any] = []

    @once(ids)
    def value(number: int, connection: Any) -> None:
        seen.append(number)

    @once(ids, scope="2")
    def value_and_message(number: int, connection: Any, message: Any, context: Any) -> None:
        seen.append((number, message.msg_id, context.queue))

    @once(ids, scope="3")
    def values(numbers: list[int], connection: Any, messages: Any) -> None:
        seen.append((numbers, [one.msg_id for one in messages]))

    for _ in range(2):
        consume(value, message("A"), body=int)
        consume(value_and_message, message("A"), body=int)
    consume(values, message("A"), message("B", b"6"), body=int, batch=3)
    consume(values, message("B", b"6"), message("A"), message("C", b"7"), body=int, batch=3)
    assert seen == [5, (5, "A", QUEUE), ([5, 6], ["A", "B"]), ([7], ["C"])]


def test_async_handlers_take_an_async_engine(path: Path) -> None:
    async def main() -> list[str]:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        seen: list[str] = []

        @once(DatabaseIds(engine))
        async def handle(one: Any, connection: Any, context: Any) -> None:
            seen.append(f"{one.msg_id} {(await connection.execute(text('SELECT 1'))).scalar_one()}")

        handlers = Handlers("G", orderly=False, batch_size=1, threads=1)
        handlers.add("T", handle)
        for key in "AAB":
            await handlers.call("T", [message(key)], ConsumeContext(QUEUE))
        handlers.close()
        await engine.dispose()
        return seen

    assert asyncio.run(main()) == ["A 1", "B 1"]


def test_handlers_that_cannot_take_part_are_refused(ids: DatabaseIds, path: Path) -> None:
    async def is_async(one: Any, connection: Any) -> None: ...

    def is_plain(one: Any, connection: Any) -> None: ...

    def without(one: Any) -> None: ...

    with pytest.raises(ConfigError, match="is_async is async and would block"):
        once(ids)(is_async)
    with pytest.raises(ConfigError, match="is_plain is a plain function and DatabaseIds has an AsyncEngine"):
        once(DatabaseIds(create_async_engine(f"sqlite+aiosqlite:///{path}")))(is_plain)
    with pytest.raises(ConfigError, match=r"no parameter named connection.*def without\(message, connection\)"):
        once(ids)(without)
    with pytest.raises(ConfigError, match="window_s is 0"):
        once(ids, window_s=0)
    with pytest.raises(ConfigError, match="it has to be DatabaseIds"):
        once(MemoryIds())  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [lambda one: one.keys, lambda one: one.properties.get("order")])
def test_a_message_without_a_key_is_refused(key: Any, ids: DatabaseIds) -> None:
    """All of them would count as one message, and only the first would be consumed."""
    seen: list[str] = []

    @once(ids, key=key)
    def in_database(one: Any, connection: Any) -> None:
        seen.append(one.msg_id)

    in_memory = idempotent(MemoryIds(), key=key)(lambda one: seen.append(one.msg_id))
    for handler in (in_database, in_memory):
        with pytest.raises(ClientError, match="message A of topic T: key= returned"):
            consume(handler, message("A"))
    assert seen == []


def test_databases_that_cannot_take_part_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong, why in [
        (7, "give an engine or a URL"),
        ("shop.db", "URL cannot be used"),
        ("nodb://x", "URL cannot be used"),
        ("mssql+pyodbc://x", r"pip install tianzhou\[database\]|database is mssql"),
    ]:
        with pytest.raises(ConfigError, match=why):
            DatabaseIds(wrong)  # type: ignore[arg-type]
    for table in ("", "a b", "x;", "1a", "a.b.c", "é", "x" * 64):
        with pytest.raises(ConfigError, match="table is"):
            DatabaseIds(lambda: sqlite3.connect(path), table=table)

    @once(DatabaseIds(lambda: object()))
    def handle(one: Any, connection: Any) -> None: ...

    with pytest.raises(ConfigError, match="has to return a connection of sqlite3, psycopg, pymysql"):
        handle(message())
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.delitem(sys.modules, "tianzhou.client.consumer.once.engines", raising=False)
    with pytest.raises(ConfigError, match=r"pip install tianzhou\[database\]"):
        DatabaseIds("sqlite:///shop.db")


def test_programs_without_sqlalchemy_do_not_import_it(path: Path) -> None:
    program = f"""
import sqlite3, sys
from tianzhou.client import DatabaseIds, once
ids = DatabaseIds(lambda: sqlite3.connect({str(path)!r}))
once(ids)(lambda message, connection: None)
assert not {{"sqlalchemy", "psycopg", "pymysql"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_url_makes_an_engine(path: Path) -> None:
    @once(DatabaseIds(f"sqlite:///{path}"))
    def handle(one: Any, connection: Any) -> None:
        assert connection.engine.dialect.name == "sqlite"

    handle(message())
    with pytest.raises(ConfigError, match="write `async def`"):
        once(DatabaseIds(f"sqlite+aiosqlite:///{path}"))(handle)


def test_a_session_of_the_orm_takes_part(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE work (message TEXT)"))
    fails = [True]

    @once(DatabaseIds(engine))
    def handle(one: Any, connection: Any) -> None:
        with Session(bind=connection) as session:
            session.execute(text("INSERT INTO work VALUES (:id)"), {"id": one.msg_id})
            session.commit()
        with connection.begin_nested() as part:
            connection.execute(text("INSERT INTO work VALUES ('part')"))
            part.rollback()
        if fails.pop():
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        handle(message("A"))
    fails.append(False)
    handle(message("A"))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT message FROM work")).all() == [("A",)]
    engine.dispose()


def test_a_column_that_ignores_case_is_no_reason_to_lose_a_message(path: Path, ids: DatabaseIds) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE processed_messages (id TEXT COLLATE NOCASE PRIMARY KEY, until_ms INTEGER)")
    seen: list[str] = []

    @once(ids, key=lambda one: one.msg_id)
    def handle(one: Any, connection: Any) -> None:
        seen.append(one.msg_id)

    handle(message("a"))
    with pytest.raises(ConfigError, match="compares ':A' and ':a' as equal"):
        handle(message("A"))
    assert seen == ["a"]


def test_ids_are_readable_as_long_as_every_database_stores_them_exactly() -> None:
    assert row_id("billing", "order-7 #1") == "billing:order-7 #1"
    assert row_id("", "x" * (MAX_ID_CHARACTERS - 1)) == ":" + "x" * (MAX_ID_CHARACTERS - 1)
    hashed = [
        row_id("", "x" * MAX_ID_CHARACTERS),
        row_id("", "é"),
        row_id("", "\0"),
        row_id("", "a\n"),
        row_id("sha256", "x"),
    ]
    assert all(id_.startswith("sha256:") and len(id_) == 71 for id_ in hashed)
    assert len(set(hashed)) == len(hashed)


@pytest.mark.parametrize("dialect", Dialect)
def test_the_page_has_the_sql_of_the_table(dialect: Dialect) -> None:
    printed = " ".join(PAGE.read_text(encoding="utf-8").split())
    for statement in IdTable(dialect, "processed_messages").create:
        assert statement.replace(" IF NOT EXISTS", "") + ";" in printed


def test_a_table_in_a_schema_has_its_index_there(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(tmp_path / "main.db")
        connection.execute(f"ATTACH '{tmp_path}/shop.db' AS shop")
        return connection

    @once(DatabaseIds(connect, table="shop.ids"))
    def handle(one: Any, connection: Any) -> None: ...

    handle(message())
    with sqlite3.connect(tmp_path / "shop.db") as database:
        found = database.execute("SELECT name FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()
    assert found == [("ids",), ("ids_until_ms",)]


def test_a_redis_that_does_not_answer_is_not_waited_for_without_end() -> None:
    redis = pytest.importorskip("redis")
    seen: list[dict[str, Any]] = []

    class Client:
        @staticmethod
        def from_url(url: str, **options: Any) -> None:
            seen.append(options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis, "Redis", Client)
        RedisIds("redis://localhost:6379/0")
    assert seen == [{"socket_timeout": 5.0, "socket_connect_timeout": 5.0}]
