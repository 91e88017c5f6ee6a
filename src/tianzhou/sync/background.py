"""One event loop per process, in a thread, for callers that cannot await."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar, cast

from tianzhou.chained_coroutines import ChainedCoroutine
from tianzhou.errors import ClientError
from tianzhou.remoting.loop import loop_factory
from tianzhou.supervision import run_owned_threadsafe

T = TypeVar("T")

STOP_WITHIN_S = 5.0

_log = logging.getLogger(__name__)


class Background:
    """An event loop in a daemon thread of this process.

    Args:
        loop: the event loop; by default a new one of the fastest kind.
        name: the name of the thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, name: str = "tianzhou-loop") -> None:
        self.pid = os.getpid()
        self.loop = loop or loop_factory()()
        self._lock = threading.Lock()
        self._pending: set[Future[Any]] = set()
        self._stopping = False
        self._ended_by = ""
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the loop has ended, so that each call fails."""
        return bool(self._ended_by)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        cause = "its event loop was stopped by a callback"
        try:
            while not self._run_once():
                pass
            if self._stopping:
                cause = "it was stopped, as it is when the process ends"
        except BaseException as error:  # noqa: BLE001 - every error must reach the waiting calls
            cause = f"its event loop failed: {type(error).__name__}: {error}"
            _log.exception("the event loop of the blocking clients failed; each of their calls fails from now on")
        finally:
            self._end(cause)

    def _run_once(self) -> bool:
        """Run the loop until it is stopped, or until a task raises an exception that asyncio re-raises from the loop.

        Returns:
            Whether the loop was stopped; False when a task raised such an exception.
        """
        try:
            self.loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            # One task or callback raised the exception. In a main thread it ends the program. In this thread it would
            # end the calls of all clients of the process, so the loop continues.
            _log.exception(
                "a task of the blocking clients' event loop raised %s; the loop continues", type(error).__name__
            )
            return False
        return True

    def _end(self, cause: str) -> None:
        """Fail each pending call, and mark the loop as ended, so that later calls fail."""
        with self._lock:
            self._ended_by = cause
            pending = list(self._pending)
        for future in pending:
            with contextlib.suppress(InvalidStateError):  # cancelled or completed at the same moment
                future.set_exception(self._error())

    def _error(self) -> ClientError:
        return ClientError(
            f"the background thread of tianzhou.sync has ended, because {self._ended_by}; whether this call was "
            "carried out is unknown. Clients made before do not work any more: make new ones"
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work on the loop and wait for its result.

        An interrupted wait, as by Ctrl-C, cancels the work.

        Raises:
            ClientError: the caller is the loop's own thread, which would wait for itself (use the async classes there);
                or the loop has ended, or ends before the work is done.
        """
        if self.is_own_thread():
            work.close()
            raise ClientError("a blocking call inside an event loop would wait for itself; use tianzhou.client there")
        with self._lock:
            if self._ended_by:
                work.close()
                raise self._error()
            future = run_owned_threadsafe(ChainedCoroutine(_kept(work), work), self.loop)
            self._pending.add(future)
        try:
            result, error = future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            self._pending.discard(future)
        if error is not None:
            raise error
        return cast("T", result)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin the work on the loop, and return a future of its result. Any thread may call this.

        Raises:
            ClientError: the loop has ended.
        """
        with self._lock:
            if self._ended_by:
                work.close()
                raise self._error()
            future = run_owned_threadsafe(work, self.loop)
            self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def is_own_thread(self) -> bool:
        """Whether the caller runs in the loop's thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """End loop and thread."""
        if self.pid == os.getpid() and self._thread.is_alive():
            self._stopping = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(STOP_WITHIN_S)


async def _kept(work: Coroutine[Any, Any, T]) -> tuple[T | None, BaseException | None]:
    """Await the work. Return an exception that would end the loop, so that the calling thread raises it."""
    try:
        return await work, None
    except (SystemExit, KeyboardInterrupt) as error:
        return None, error


_lock = threading.Lock()
_current: Background | None = None


def background() -> Background:
    """Return the background of this process.

    A forked child gets its own background, because threads do not survive a fork. A new background replaces an ended
    one.
    """
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid() or _current.ended:
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
        self._prepare()

    def _prepare(self) -> None:
        """Make what a subclass needs besides; constructors of generated subclasses call `Blocking.__init__` alone."""

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        self._check_process(work)
        return self._background.run(work)

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        self._check_process(work)
        return self._background.submit(work)

    def _check_process(self, work: Coroutine[Any, Any, Any]) -> None:
        if self._background.pid != os.getpid():
            work.close()
            raise ClientError(
                f"this {type(self).__name__} was made in process {self._background.pid} and does not work in its fork "
                f"{os.getpid()}; make one after the fork"
            )

    def _call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a plain function in the loop's thread, where the objects it touches live."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self._run(call())
