"""Replies that a processor defers: sent later, once, and dropped with the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from connection_bench import Bench, requests, run_bench, turns

from tianzhou.errors import BrokerError
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.deferred_reply import DeferredReply
from tianzhou.wire.codes import FLAG_ONEWAY, ResponseCode
from tianzhou.wire.command import Command, encode

pytestmark = pytest.mark.runner.with_args(run_bench)


class Promise(DeferredReply):
    """A deferred reply that the test completes; records whether it was dropped."""

    def __init__(self) -> None:
        self.cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


def promising(*promises: Promise) -> Callable[[Connection, Command], Reply]:
    return lambda _connection, command: promises[command.opaque]


async def test_deferred_replies_go_out_when_they_are_answered_and_once() -> None:
    promises = [Promise() for _ in range(5)]
    bench = Bench(promising(*promises))
    commands = requests(5)
    commands[4].flag = FLAG_ONEWAY
    bench.feed(*commands)
    await turns()
    assert bench.sent() == []
    frame = encode(commands[1].reply(7))
    promises[1].answer((frame[:9], frame[9:]))
    promises[0].answer(commands[0].reply(0, "here"))
    promises[0].answer(commands[0].reply(0, "again"))
    promises[2].answer(BrokerError(17, "no such topic"))
    promises[3].answer(ZeroDivisionError("nobody thought of that"))
    promises[4].answer(commands[4].reply(0))
    await turns()
    assert [(c.opaque, c.code, c.remark) for c in bench.sent()] == [
        (1, 7, None),
        (0, 0, "here"),
        (2, 17, "no such topic"),
        (3, ResponseCode.SYSTEM_ERROR, "ZeroDivisionError: nobody thought of that"),
    ]
    await bench.group.close()
    assert not any(promise.cancelled for promise in promises)


async def test_a_task_may_end_with_a_promise() -> None:
    promise = Promise()

    async def look(_command: Command) -> Reply:
        await asyncio.sleep(0)
        return promise

    bench = Bench(lambda _c, command: look(command))
    (command,) = requests(1)
    bench.feed(command)
    await turns()
    assert bench.sent() == []
    promise.answer(command.reply(5))
    await turns()
    assert [c.code for c in bench.sent()] == [5]


async def test_promises_end_with_their_connection() -> None:
    promises = [Promise() for _ in range(3)]
    bench = Bench(promising(*promises))
    commands = requests(3)
    bench.feed(*commands)
    promises[1].answer(commands[1].reply(0))
    bench.transport.lose()
    assert [promise.cancelled for promise in promises] == [1, 0, 1]
    promises[0].answer(commands[0].reply(0))
    await bench.group.close()
    assert [promise.cancelled for promise in promises] == [1, 0, 1]


async def test_requests_with_promised_replies_are_bounded() -> None:
    promises = [Promise() for _ in range(100)]
    bench = Bench(promising(*promises))
    bench.group.held_bytes = 300_000
    commands = requests(100, body=b"h" * 20_000)
    data = b"".join(map(encode, commands))
    taken = bench.transport.feed(data)
    assert taken < 600_000
    assert not bench.transport.reading
    for number in range(10):
        promises[number].answer(commands[number].reply(0))
    assert bench.transport.reading
