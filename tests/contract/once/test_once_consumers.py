"""Consumers of each kind with `@once` book a message once, also when it is redelivered after a failure or to another
group.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from client_suite import FIRST, fresh, make_topic, send_numbers
from own_server import own_server

from shared_loop import SharedLoop
from tianzhou import Producer, PushConsumer
from tianzhou.client import DatabaseIds, once
from waiting import until_async

MESSAGES = 20


@pytest.fixture(scope="module")
def namesrv(shared_loop: SharedLoop, tmp_path_factory: pytest.TempPathFactory) -> str:
    return shared_loop.open(own_server(tmp_path_factory.mktemp("server")))


class Ledger:
    """An SQLite file with the bodies that were booked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.failures = [ValueError("no"), ValueError("no")]
        with closing(self.connect()) as database:
            database.execute("CREATE TABLE ledger (body BLOB)")

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)

    def book(self, messages: list[Any], connection: Any) -> None:
        """The work of a handler, which fails twice after it has written."""
        connection.executemany("INSERT INTO ledger VALUES (?)", [(bytes(one.body),) for one in messages])
        if self.failures:
            raise self.failures.pop()

    def booked(self) -> list[bytes]:
        with closing(self.connect()) as database:
            return [body for (body,) in database.execute("SELECT body FROM ledger")]


def single(ledger: Ledger, ids: DatabaseIds) -> Callable[..., Any]:
    @once(ids)
    def book(message: Any, connection: Any, context: Any) -> None:
        context.delay_level = 1
        ledger.book([message], connection)

    return book


def in_lists(ledger: Ledger, ids: DatabaseIds) -> Callable[..., Any]:
    @once(ids)
    def book(messages: list[Any], context: Any, connection: Any) -> None:
        context.delay_level = 1
        ledger.book(messages, connection)

    return book


def values(ledger: Ledger, ids: DatabaseIds) -> Callable[..., Any]:
    @once(ids)
    def book(value: int, *, connection: Any, message: Any) -> None:
        assert int(message.body) == value
        ledger.book([message], connection)

    return book


def noting(acknowledged: set[bytes]) -> Callable[..., Any]:
    """Return a hook that notes the bodies of calls that ended well."""

    def note_after(call: Any) -> None:
        if call.success:
            acknowledged.update(bytes(one.body) for one in call.messages)

    return lambda _: note_after


@pytest.mark.parametrize(
    ("handler", "options", "body"),
    [
        (single, {}, None),
        (in_lists, {"consume_message_batch_max_size": 4}, None),
        (single, {"orderly": True, "suspend_current_queue_time_ms": 50}, None),
        (in_lists, {"orderly": True, "suspend_current_queue_time_ms": 50, "consume_message_batch_max_size": 4}, None),
        (values, {"orderly": True, "suspend_current_queue_time_ms": 50}, int),
    ],
    ids=["concurrent", "in lists", "orderly", "orderly in lists", "values"],
)
async def test_what_comes_again_is_booked_once(
    handler: Callable[..., Any], options: dict[str, Any], body: Any, namesrv: str, tmp_path: Path
) -> None:
    topic = await make_topic(namesrv, 2)
    ledger = Ledger(tmp_path / "ledger.db")
    async with Producer(fresh("P"), namesrv) as producer:
        await send_numbers(producer, topic, MESSAGES)
    for _ in range(2):  # the second group gets all again, like a group with lost offsets
        acknowledged: set[bytes] = set()
        consumer = PushConsumer(
            fresh("G"), namesrv, consume_from_where=FIRST, consume_hooks=[noting(acknowledged)], **options
        )
        consumer.on(topic, **({} if body is None else {"body": body}))(handler(ledger, DatabaseIds(ledger.connect)))
        async with consumer:
            await until_async(lambda acknowledged=acknowledged: len(acknowledged) == MESSAGES, "all are consumed")
    assert sorted(ledger.booked(), key=int) == [b"%d" % n for n in range(MESSAGES)]
    assert ledger.failures == []
