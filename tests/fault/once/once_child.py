"""A consumer process of `test_once_kills`: books amounts with `@once`, and kills itself by SIGKILL at a step."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from tianzhou.client import DatabaseIds, PushConsumer, once
from tianzhou.client.consumer.push.idempotence import Claim
from tianzhou.model import ConsumeFromWhere

STEPS = ("before the insert", "after the work", "after the commit", "before the acknowledgement")
LEDGER = "INSERT INTO ledger (message, amount) VALUES ('{message}', {amount})"
TOTAL = "UPDATE balance SET total = total + {amount}"


class Death:
    """Kills this process at a step.

    Args:
        step: one of `STEPS`; empty for a process that does not die.
        after: number of messages that pass the step before.
    """

    def __init__(self, step: str, after: int) -> None:
        self._step = step
        self._left = after
        self._lock = threading.Lock()

    def at(self, step: str, messages: int = 1) -> None:
        if step != self._step:
            return
        with self._lock:
            self._left -= messages
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Cache:
    """A cache that stores nothing: `@once` calls `finish` after the commit."""

    blocking = False

    def __init__(self, death: Death) -> None:
        self._death = death

    def claim(self, key: str, now_ms: int, claim_ms: int) -> Claim:
        return Claim.GRANTED

    def finish(self, key: str, now_ms: int, window_ms: int) -> None:
        self._death.at("after the commit")

    def release(self, key: str) -> None:
        pass


def connect_to(database: dict[str, Any]) -> Callable[[], Any]:
    """Return a function that connects to a database.

    Args:
        database: its `kind`, and a `path` or a `port`.
    """
    if database["kind"] == "sqlite":
        import sqlite3

        return lambda: sqlite3.connect(database["path"], timeout=60)
    if database["kind"] == "postgresql":
        import psycopg

        return lambda: psycopg.connect(f"postgresql://shop@127.0.0.1:{database['port']}/shop")
    import pymysql

    return lambda: pymysql.connect(host="127.0.0.1", port=database["port"], user="root", database="shop")


def url_of(database: dict[str, Any], *, is_async: bool) -> str:
    """Return a URL of SQLAlchemy for the same database."""
    drivers = {"sqlite": "aiosqlite", "postgresql": "psycopg_async", "mariadb": "aiomysql"} if is_async else {
        "sqlite": "pysqlite", "postgresql": "psycopg", "mariadb": "pymysql"
    }  # fmt: skip
    kind = database["kind"]
    place = {
        "sqlite": "/{path}?timeout=60",
        "postgresql": "shop@127.0.0.1:{port}/shop",
        "mariadb": "root@127.0.0.1:{port}/shop",
    }[kind].format(**database)
    return f"{kind}+{drivers[kind]}://{place}"


def statements_of(messages: list[Any]) -> list[str]:
    """Return the work of messages."""
    found = []
    for message in messages:
        amount = int(message.body)
        found += [LEDGER.format(message=message.keys, amount=amount), TOTAL.format(amount=amount)]
    return found


async def consume(spec: dict[str, Any]) -> None:
    death = Death(spec["step"], spec["after"])
    is_async = spec["way"] == "AsyncEngine"
    by_driver = spec["way"] == "driver"
    ids = DatabaseIds(connect_to(spec["database"]) if by_driver else url_of(spec["database"], is_async=is_async))

    def key(message: Any) -> str:
        death.at("before the insert")
        return str(message.keys)

    def before_the_acknowledgement(_call: Any) -> Any:
        return lambda call: death.at("before the acknowledgement", len(call.messages))

    decorate = once(ids, key=key, scope=spec["group"], cache=Cache(death))

    def book(given: Any, connection: Any) -> None:
        messages = given if isinstance(given, list) else [given]
        execute = connection.cursor().execute if by_driver else connection.exec_driver_sql
        for statement in statements_of(messages):
            execute(statement)
        death.at("after the work", len(messages))

    async def book_async(given: Any, connection: Any) -> None:
        messages = given if isinstance(given, list) else [given]
        for statement in statements_of(messages):
            await connection.exec_driver_sql(statement)
        death.at("after the work", len(messages))

    consumer = PushConsumer(
        spec["group"],
        spec["namesrv"],
        consume_message_batch_max_size=spec["batch"],
        consume_concurrency=3,
        orderly=spec["orderly"],
        persist_consumer_offset_interval_ms=spec["persist_ms"],
        consume_hooks=[before_the_acknowledgement],
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.on(spec["topic"])(decorate(book_async) if is_async else decorate(book))
    async with consumer:
        await asyncio.Event().wait()


def main() -> None:
    asyncio.run(consume(json.loads(sys.argv[1])))
