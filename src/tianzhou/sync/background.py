"""One event loop per process, in a thread, for everybody who cannot await."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tianzhou.errors import ClientError
from tianzhou.remoting.loop import loop_factory

T = TypeVar("T")

STOP_WITHIN_S = 5.0


class Background:
    """An event loop in a daemon thread of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = loop_factory()()
        self._thread = threading.Thread(target=self._serve, name="tianzhou-loop", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the loop do the work, and wait for its result.

        An interrupted wait, as by Ctrl-C, cancels the work.

        Raises:
            ClientError: called from the loop's own thread, which would wait for itself; use the async classes there.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise ClientError("a blocking call inside an event loop would wait for itself; use tianzhou.client there")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End loop and thread."""
        if self.pid == os.getpid() and self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(STOP_WITHIN_S)


_lock = threading.Lock()
_current: Background | None = None


def background() -> Background:
    """The background of this process; a forked child gets its own, because threads do not survive a fork."""
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = Background()
            atexit.register(_current.stop)
        return _current


def replace(instead: Background | None) -> Background | None:
    """Have objects that are made from now on live in another background, as tests with a time of their own want.

    Args:
        instead: that background; None makes a new one when it is needed.

    Returns:
        The one in use so far, to be put back.
    """
    global _current
    with _lock:
        before, _current = _current, instead
        return before


def _renew_lock() -> None:
    # The parent may have held the lock in the moment of the fork; nobody would release it in the child.
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class Blocking:
    """Base of the blocking classes: runs their work in the background of the process they were made in.

    Args:
        asynchronous: the async object that does it.
    """

    def __init__(self, asynchronous: Any) -> None:
        self._background = background()
        self._async = asynchronous

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._background.pid != os.getpid():
            work.close()
            raise ClientError(
                f"this {type(self).__name__} was made in process {self._background.pid} and does not work in its fork "
                f"{os.getpid()}; make one after the fork"
            )
        return self._background.run(work)

    def _call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a plain function in the loop's thread, where the objects it touches live."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self._run(call())
