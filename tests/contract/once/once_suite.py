"""Checks of `@once` for every kind of connection: DB-API, `Engine` and `AsyncEngine`, of three databases."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import pytest
from once_kinds import QUEUE, WINDOW_S, Kind, execute, insert, message
from sqlalchemy import text

from tianzhou.client import ConsumeContext, MemoryIds, once
from tianzhou.client.consumer.once.id_rows import PURGE_EVERY
from tianzhou.client.consumer.once.id_table import PURGE_ROWS
from tianzhou.errors import ClientError, ConfigError
from tianzhou.model import ConsumeResult

CHECKS: list[Callable[[Kind], None]] = []


def check(function: Callable[..., None]) -> Callable[..., None]:
    CHECKS.append(function)
    return function


def work_of_one(one: Any, do: Any, _context: Any) -> None:
    insert(one, do)


def work_of_list(messages: Any, do: Any, _context: Any) -> None:
    for one in messages:
        insert(one, do)


@check
def a_message_that_comes_again_is_not_processed_again(kind: Kind) -> None:
    handler = kind.handler(work_of_one)
    for key in ("A", "A", "B", "A", "B"):
        assert kind.call(handler, message(key)) is None
    assert kind.done() == ["A", "B"]
    assert kind.count_ids() == 2
    # Another process finds the table and its rows.
    kind.call(kind.handler(work_of_one), message("A"))
    assert kind.done() == ["A", "B"]


@check
def a_handler_that_raises_rolls_back_work_and_id(kind: Kind) -> None:
    answers = iter([ValueError("no"), ConsumeResult.RECONSUME_LATER, ConsumeResult.SUCCESS])

    def work(one: Any, do: Any, _context: Any) -> Any:
        insert(one, do)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    handler = kind.handler(work)
    with pytest.raises(ValueError, match="no"):
        kind.call(handler, message("A"))
    assert (kind.done(), kind.count_ids()) == ([], 0)
    assert kind.call(handler, message("A")) is ConsumeResult.RECONSUME_LATER
    assert (kind.done(), kind.count_ids()) == ([], 0)
    assert kind.call(handler, message("A")) is ConsumeResult.SUCCESS
    assert kind.call(handler, message("A")) is None
    assert (kind.done(), kind.count_ids()) == (["A"], 1)


@check
def a_failed_statement_of_the_work_rolls_both_back(kind: Kind) -> None:
    broken = [True]

    def work(one: Any, do: Any, _context: Any) -> None:
        insert(one, do)
        if broken.pop():
            do("INSERT INTO no_such_table VALUES (1)")

    handler = kind.handler(work)
    with pytest.raises(Exception, match="no_such_table"):
        kind.call(handler, message("A"))
    assert (kind.done(), kind.count_ids()) == ([], 0)
    broken.append(False)
    kind.call(handler, message("A"))
    assert kind.done() == ["A"]


@check
def of_a_list_only_new_messages_are_processed(kind: Kind) -> None:
    seen: list[list[str]] = []

    def work(messages: Any, do: Any, context: Any) -> None:
        seen.append([one.msg_id for one in messages])
        work_of_list(messages, do, None)
        if "fail" in seen[-1]:
            raise ValueError("no")
        if "C" in seen[-1]:
            do("DELETE FROM work WHERE message = 'D'")
            context.ack_index = 0

    handler = kind.handler(work)
    kind.call(handler, [message(key) for key in "ABAB"])
    assert kind.call(handler, [message("B"), message("A")]) is None
    assert seen == [["A", "B"]]
    context = ConsumeContext(QUEUE)
    kind.call(handler, [message(key) for key in "ACBD"], context)
    assert seen.pop() == ["C", "D"]
    assert context.ack_index == 2  # D is repeated, and only D
    kind.call(handler, [message("C"), message("D")])
    assert seen.pop() == ["D"]
    with pytest.raises(ValueError, match="no"):
        kind.call(handler, [message("E"), message("fail")])
    assert kind.done() == ["A", "B", "C", "D"]
    kind.call(handler, [message("E")])
    assert kind.done() == ["A", "B", "C", "D", "E"]
    assert kind.count_ids() == 5


@check
def of_deliveries_at_the_same_time_one_is_processed(kind: Kind) -> None:
    ids = [kind.store() for _ in range(3)]  # as three processes, one of which creates the table
    handlers = [kind.handler(work_of_one, store) for store in ids for _ in range(2)]
    for number in range(5):
        one = message(f"M{number}")
        # After a driver's error (a deadlock, a lock timeout) the message is repeated.
        while any(isinstance(outcome, Exception) for outcome in kind.call_at_once(handlers, one)):
            pass
    assert kind.done() == [f"M{number}" for number in range(5)]
    assert kind.count_ids() == 5


@check
def a_delivery_that_waits_for_one_that_fails_is_processed(kind: Kind) -> None:
    runs = itertools.count()

    def work(one: Any, do: Any, _context: Any) -> None:
        insert(one, do)
        if next(runs) == 0:
            raise ValueError("no")

    ids = kind.store()
    kind.call(kind.handler(work_of_one, ids), message("first"))
    handlers = [kind.handler(work, ids) for _ in range(4)]
    outcomes = kind.call_at_once(handlers, message("A"))
    assert sum(isinstance(outcome, ValueError) for outcome in outcomes) == 1
    while any(isinstance(outcome, Exception) for outcome in outcomes):
        outcomes = kind.call_at_once(handlers, message("A"))
    assert kind.done() == ["A", "first"]


@check
def lists_with_the_same_messages_in_other_orders_do_not_deadlock(kind: Kind) -> None:
    ids = kind.store()
    handlers = [kind.handler(work_of_list, ids) for _ in range(4)]
    one, other = [message(key) for key in "ABCDEF"], [message(key) for key in "FEDCBA"]
    kind.call(handlers[0], [message("first")])
    turned = iter([one, other, one, other])
    each = [_bound(kind, handler, next(turned)) for handler in handlers]
    outcomes = kind.call_at_once(each, None)
    assert kind.may_fail or outcomes == [None] * 4
    assert any(outcome is None for outcome in outcomes)
    assert kind.done() == [*"ABCDEF", "first"]


def _bound(kind: Kind, handler: Any, messages: Any) -> Callable[..., Any]:
    if kind.is_async:

        async def call_async(_: Any, context: Any) -> Any:
            return await handler(messages, context)

        return call_async
    return lambda _, context: handler(messages, context)


@check
def keys_may_be_any_text(kind: Kind) -> None:
    keys = ["a", "A", "a ", " a", "é", "e\u0301", "\U0001f600", "x" * 255, "x" * 256, "x" * 257, "x" * 5_000,
            "new\nline", "nul\0", "nul\0\0", "50%s", ":name", "'quoted'", '"', "\\", "\ud800", "sha256:x"]  # fmt: skip
    works = itertools.count()

    def work(_one: Any, do: Any, _context: Any) -> None:
        do("INSERT INTO work (message) VALUES (:message)", message=str(next(works)))

    handler = kind.handler(work)
    for key in [*keys, *keys]:
        kind.call(handler, message(key))
    assert kind.count_ids() == len(kind.done()) == len(keys)


@check
def rows_expire_in_small_steps(kind: Kind) -> None:
    handler = kind.handler(lambda *_: None)
    step = PURGE_EVERY // 2
    batches = itertools.count()

    def consume() -> None:
        batch = next(batches)
        kind.call(handler, [message(f"{batch}.{n}") for n in range(step)])

    for _ in range(6):
        consume()
    assert kind.count_ids() == 6 * step
    kind.clock.advance(WINDOW_S - 1)
    consume()
    consume()
    assert kind.count_ids() == 8 * step  # none has expired
    kind.clock.advance(2)
    consume()
    assert kind.count_ids() == 9 * step  # an expired row counts until it is deleted
    consume()
    assert kind.count_ids() == 10 * step - PURGE_ROWS
    consume()
    consume()
    assert kind.count_ids() == 6 * step
    seen: list[str] = []

    def again(one: Any, _do: Any, _context: Any) -> None:
        seen.append(one.msg_id)

    kind.call(kind.handler(again), message("0.0"))
    kind.call(kind.handler(again), message("7.0"))
    assert seen == ["0.0"]


@check
def a_handler_cannot_end_the_transaction(kind: Kind) -> None:
    for end in (methodcaller("commit"), methodcaller("rollback")):
        for swallow in (False, True):
            handler = _ending(kind, end, swallow=swallow)
            if swallow and not kind.is_async and kind.make is None:
                continue  # a DB-API connection refuses the call, without any effect
            with pytest.raises(ClientError, match=r"called commit|called rollback"):
                kind.call(handler, message("A"))
            assert (kind.done(), kind.count_ids()) == ([], 0)


def _ending(kind: Kind, end: Callable[[Any], Any], *, swallow: bool) -> Callable[..., Any]:
    decorate = once(kind.store(), key=lambda one: one.msg_id, clock=kind.clock)
    if kind.is_async:

        @decorate
        async def handle_async(one: Any, connection: Any, context: Any) -> None:
            await connection.execute(text("INSERT INTO work (message) VALUES ('x')"))
            try:
                await end(connection)
            except ClientError:
                if not swallow:
                    raise

        return handle_async

    @decorate
    def handle(one: Any, connection: Any, context: Any) -> None:
        execute(connection, "INSERT INTO work (message) VALUES ('x')", {})
        try:
            end(connection)
        except ClientError:
            if not swallow:
                raise

    return handle


@check
def a_commit_in_sql_is_reported(kind: Kind) -> None:
    if kind.make is not None:
        return  # SQLAlchemy does not notice it

    def work(one: Any, do: Any, _context: Any) -> None:
        insert(one, do)
        do("COMMIT")

    with pytest.raises(ClientError, match="called COMMIT or ROLLBACK in SQL"):
        kind.call(kind.handler(work), message("A"))


@check
def connections_that_commit_each_statement_are_refused(kind: Kind) -> None:
    handler = kind.handler(work_of_one, kind.store(autocommit=True))
    with pytest.raises(ConfigError, match="stays after a roll-back"):
        kind.call(handler, message("A"))
    assert (kind.done(), kind.count_ids()) == ([], 0)


@check
def a_missing_table_is_an_error_that_has_its_sql(kind: Kind) -> None:
    handler = kind.handler(work_of_one, kind.store(create=False))
    with pytest.raises(ConfigError, match=f"CREATE TABLE IF NOT EXISTS {kind.table} "):
        kind.call(handler, message("A"))
    kind.call(kind.handler(work_of_one), message("B"))
    kind.call(handler, message("A"))
    assert kind.done() == ["A", "B"]


@check
def a_cache_answers_without_the_database(kind: Kind) -> None:
    cache = MemoryIds()
    handler = kind.handler(work_of_one, cache=cache)
    kind.call(handler, message("A"))
    kind.query(f"DROP TABLE {kind.table}")
    assert kind.call(handler, message("A")) is None
    with pytest.raises(Exception, match=kind.table):
        kind.call(handler, message("B"))
    assert kind.done() == ["A"]


@check
def a_cache_learns_what_the_database_knows(kind: Kind) -> None:
    kind.call(kind.handler(work_of_one), message("A"))
    handler = kind.handler(work_of_one, cache=MemoryIds())
    kind.call(handler, message("A"))  # the cache was empty
    kind.query(f"DROP TABLE {kind.table}")
    assert kind.call(handler, message("A")) is None


@check
def a_cache_that_fails_costs_a_log_line_and_no_message(kind: Kind) -> None:
    class Away:
        blocking = True
        calls = 0

        def claim(self, *_: object) -> Any:
            self.calls += 1
            raise ConnectionError("no route")

        finish = release = claim

    cache = Away()
    handler = kind.handler(work_of_one, cache=cache)
    with LogLines("tianzhou.client.consumer.once.first_cache") as lines:
        for key in "ABABCDE":
            kind.call(handler, message(key))
        assert kind.done() == [*"ABCDE"]
        assert [line for line in lines if "no route" in line] == lines
        assert (len(lines), cache.calls) == (1, 1)
        kind.clock.advance(31)
        kind.call(handler, message("F"))
    assert (len(lines), cache.calls) == (1, 2)
    assert kind.done() == [*"ABCDEF"]


class LogLines(logging.Handler):
    """Collects the messages of a logger."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._logger = logging.getLogger(name)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> list[str]:
        self._logger.addHandler(self)
        return self.lines

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
