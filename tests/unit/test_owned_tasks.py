"""Tasks in the background: users never see "Task exception was never retrieved" of a task that our code started."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tianzhou.client.cluster.tasks import Tasks
from tianzhou.client.consumer.pull.prefetch import Prefetcher
from tianzhou.client.consumer.push.workers import Slot, Workers
from tianzhou.errors import ConfigError, ConnectionLost
from tianzhou.model import MessageQueue, PullResult
from tianzhou.namesrv import files
from tianzhou.namesrv.kv import KvConfig
from tianzhou.supervision import run_owned_threadsafe, shared_result, start_awaited, start_owned
from tianzhou.sync.background import Background

LOST = "never retrieved"


@contextmanager
def nothing_lost(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Fail when asyncio reports an exception that no code has retrieved."""
    reports: list[str] = []
    loop.set_exception_handler(lambda _, context: reports.append(context["message"]))
    gc.collect()
    reports.clear()  # garbage of other tests
    yield
    gc.collect()
    assert [text for text in reports if LOST in text] == []


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner() as runner, nothing_lost(runner.get_loop()):
        runner.run(main())


async def fails(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("error", "logged"), [(ConnectionLost("gone"), False), (KeyError("defect"), True)])
def test_a_task_that_no_caller_awaits_logs_its_defect_alone(
    error: Exception, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        start_owned(fails(error), "client c1")
        await turns()

    run(main)
    assert ("a task of client c1 failed" in caplog.text) == logged


def test_callers_of_a_shared_task_get_its_error_and_one_that_is_cancelled_loses_nothing() -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def work() -> None:
            await go.wait()
            raise ConnectionLost("gone")

        task = start_awaited(work())
        callers = [asyncio.create_task(asyncio.wait_for(asyncio.shield(task), 9)) for _ in range(2)]
        dropped = shared_result(task)
        await turns()
        callers[0].cancel()
        go.set()
        with pytest.raises(ConnectionLost):
            await callers[1]
        assert dropped.done()
        # The only caller is cancelled before the task fails.
        go.clear()
        task = start_awaited(work())
        caller = asyncio.ensure_future(asyncio.shield(task))
        await turns()
        caller.cancel()
        await turns()
        go.set()
        await turns()
        assert task.done()

    run(main)


def test_a_task_that_is_cancelled_before_its_first_step_closes_its_work() -> None:
    async def main() -> None:
        tasks = [start_awaited(fails(KeyError())), start_owned(fails(KeyError()), "client c1")]
        for task in tasks:
            task.cancel()
        await turns()
        assert all(task.cancelled() for task in tasks)

    run(main)  # Python would warn of a coroutine that was never awaited


def interrupted_worker() -> None:
    """Raise an interrupt in a worker, in a user's loop that does not run afterwards."""

    async def main() -> None:
        async def work(_slot: Slot) -> None:
            await asyncio.sleep(0)
            raise KeyboardInterrupt  # Ctrl-C while a handler runs

        Workers(work, Tasks("consumer").spawn).resize(1)
        await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    with nothing_lost(loop):
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(main())
        loop.close()


def test_an_interrupt_in_a_worker_leaves_the_users_loop_and_is_not_reported_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        interrupted_worker()
    assert "failed" not in caplog.text


def test_a_consumer_that_ends_while_a_pull_ahead_fails_reports_nothing() -> None:
    queue = MessageQueue("orders", "b", 0)

    async def main() -> None:
        async def pull(_queue: MessageQueue, _offset: int) -> PullResult:
            raise KeyError("a defect of the pull")

        async def first(_queue: MessageQueue) -> int:
            return 0

        instance: Any = SimpleNamespace(clock=SimpleNamespace(monotonic=asyncio.get_running_loop().time))
        for end in ("close", "give up", "drop"):
            ahead = Prefetcher(instance, "G", pull, first)
            ahead.assign([queue])
            assert await ahead.next(0) == []
            await turns()
            if end == "close":
                await ahead.close()
            elif end == "give up":
                ahead.give_up([queue])
            del ahead

    run(main)


def test_a_change_whose_caller_has_gone_may_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("no space")

    monkeypatch.setattr(files, "replace_text", refuse)

    async def main() -> None:
        kv = KvConfig(tmp_path / "kv.json")
        kv.put("n", "k", "1")
        await kv.close()
        await turns()

    run(main)


@pytest.mark.parametrize("start", [run_owned_threadsafe, None], ids=["function", "background"])
def test_a_blocking_call_that_is_interrupted_while_its_work_fails_reports_nothing(start: Any) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionLost("the client was closed") from None
        finally:
            asyncio.get_running_loop().call_later(0.01, ended.set)

    def interrupt(background: Background) -> None:
        future = background.submit(work()) if start is None else start(work(), background.loop)
        assert begun.wait(9)
        future.cancel()
        assert ended.wait(9)

    background = Background()
    try:
        with nothing_lost(background.loop):
            interrupt(background)
            background.run(turns())  # the loop has dropped the task
    finally:
        background.stop()
