"""One event loop for all async tests of a module, and resources that these tests share on it.

By default `tests/conftest.py` runs each async test by `asyncio.run`, on a loop of its own. A server that several tests
share must live on the loop of the tests. A module that wants this opens the server in a module-scoped fixture::

    @pytest.fixture(scope="module")
    def namesrv(shared_loop: SharedLoop, tmp_path_factory) -> str:
        return shared_loop.open(own_server(tmp_path_factory.mktemp("server")))

    async def test_something(namesrv: str) -> None: ...

`shared_loop` is a fixture of `tests/conftest.py`. Each async test of a module that requests it, directly or through
another fixture, runs on that loop. The loop runs only while a test or `open` runs. Its time is virtual (`SocketLoop`):
waiting takes no real time, and a busy machine makes no time limit pass. Tests therefore take the time from
`tianzhou.clock.SystemClock` or from the loop. A module whose tests wait for other processes needs real time; it
overrides the fixture::

    @pytest.fixture(scope="module")
    def shared_loop() -> Iterator[SharedLoop]:
        with SharedLoop(asyncio.SelectorEventLoop) as loop:
            yield loop

Tests of one module share all state of the server, so each test uses its own topics and groups. A test that stops or
damages a server opens its own server inside the test.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from socket_loop import SocketLoop

T = TypeVar("T")

TEST_LIMIT_S = 240.0
"""Real seconds after which a test is cancelled; virtual time limits end a test that only waits."""


class SharedLoop:
    """A context manager with an event loop that several tests use one after the other.

    Args:
        loop_factory: function that creates the loop.
    """

    def __init__(self, loop_factory: Callable[[], asyncio.AbstractEventLoop] = SocketLoop) -> None:
        self._runner = asyncio.Runner(loop_factory=loop_factory)
        self._holders: list[tuple[asyncio.Event, asyncio.Task[None]]] = []

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while self._holders:
                self._runner.run(_let_end(*self._holders.pop()))
        finally:
            self._runner.__exit__(kind, error, trace)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result.

        Raises:
            AssertionError: the coroutine did not end within `TEST_LIMIT_S` of real time.
        """
        return self._runner.run(_limited(main))

    def open(self, resource: AbstractAsyncContextManager[T]) -> T:
        """Enter an async context manager and return its value. The manager exits when the loop closes.

        One task enters and exits the manager, as time limits and task groups inside it require.
        """

        async def hold(opened: asyncio.Future[T], end: asyncio.Event) -> None:
            try:
                async with resource as value:
                    opened.set_result(value)
                    await end.wait()
            except BaseException as error:
                if opened.done():
                    raise
                opened.set_exception(error)

        async def begin() -> T:
            end = asyncio.Event()
            opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            self._holders.append((end, asyncio.create_task(hold(opened, end))))
            return await opened

        return self.run(begin())


async def _let_end(end: asyncio.Event, holder: asyncio.Task[None]) -> None:
    end.set()
    await holder


async def _limited(main: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    is_late = False

    def cancel() -> None:
        nonlocal is_late
        is_late = True
        loop.call_soon_threadsafe(task.cancel)

    timer = threading.Timer(TEST_LIMIT_S, cancel)
    timer.daemon = True
    timer.start()
    try:
        return await main
    except asyncio.CancelledError:
        if is_late:
            raise AssertionError(f"the test did not end within {TEST_LIMIT_S:g} s of real time") from None
        raise
    finally:
        timer.cancel()
