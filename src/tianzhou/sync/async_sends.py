"""Sends that return at once, for threads: `Producer.send_async` of the blocking producers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sized
from concurrent.futures import CancelledError, Future
from typing import Any

from tianzhou import client
from tianzhou.client.producer.selector import QueueSelector
from tianzhou.errors import TooManyRequests
from tianzhou.model import Message, MessageQueue, SendResult
from tianzhou.sync.background import Blocking

SendCallback = Callable[[SendResult | None, BaseException | None], object]
"""Called with the result, or with the error, of a send."""


class AsyncSends(Blocking):
    """A blocking producer that also sends without waiting."""

    _async: client.Producer

    def _prepare(self) -> None:
        self._in_flight = InFlight(*self._async.async_send_limits)

    def send_async(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: Any = None,
        timeout_ms: float | None = None,
        *,
        callback: SendCallback | None = None,
    ) -> Future[SendResult]:
        """Begin to send a message, and return a future of its result; any thread may call this.

        The calling thread waits while `back_pressure_for_async_send_num` messages are in flight, or bodies of
        `back_pressure_for_async_send_size` bytes, whether `enable_backpressure_for_async_mode` is set or not.

        Args:
            message: the message; it may not be changed before its result is there.
            queue: the queue it has to go to.
            selector: chooses the queue.
            selector_arg: handed to the selector.
            timeout_ms: limit of all attempts together, and of the wait before; by default `send_msg_timeout_ms`.
            callback: is called with the result and None, or with None and the error. It runs in the background
                thread, which sends for all blocking clients, so it may not block. Errors that it raises are logged.

        Returns:
            A future with the result or the error of `send`. Its `cancel` gives up the wait for the answer; the message
            may be stored all the same.

        Raises:
            TooManyRequests: too many messages were in flight for the whole time.
            ClientError: the producer belongs to another process, or the background thread has ended.
        """
        size = len(message.body) if isinstance(message, Message) and isinstance(message.body, Sized) else 0
        limit_ms = self._async.send_limit_ms if timeout_ms is None else timeout_ms
        self._in_flight.enter(size, limit_ms, can_wait=not self._background.is_own_thread())
        try:
            future = self._submit(self._async.send(message, queue, selector, selector_arg, timeout_ms))
        except BaseException:
            self._in_flight.leave(size)
            raise
        future.add_done_callback(lambda _: self._in_flight.leave(size))
        if callback is not None:
            future.add_done_callback(_calling(callback))
        return future


def _calling(callback: SendCallback) -> Callable[[Future[SendResult]], object]:
    def report(future: Future[SendResult]) -> None:
        if future.cancelled():
            callback(None, CancelledError())
        elif (error := future.exception()) is not None:
            callback(None, error)
        else:
            callback(future.result(), None)

    return report


class InFlight:
    """Limits of the messages that threads have in flight. A message above the limit of bytes passes alone.

    Args:
        max_messages: maximum number of messages.
        max_bytes: maximum number of bytes of their bodies.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages, self._max_bytes = max_messages, max_bytes
        self._messages = self._bytes = 0
        self._changed = threading.Condition()

    def enter(self, size: int, timeout_ms: float, *, can_wait: bool) -> None:
        """Count a message, after a wait for room.

        Args:
            size: bytes of its body.
            timeout_ms: limit of the wait.
            can_wait: False in the thread that completes the sends; a message then passes above the limits.

        Raises:
            TooManyRequests: there was no room in time.
        """
        with self._changed:
            if can_wait and not self._changed.wait_for(lambda: self._fits(size), timeout_ms / 1000):
                raise TooManyRequests(
                    f"{self._messages} messages of {self._bytes} bytes are in flight, and no room came within "
                    f"{timeout_ms:.0f} ms (back_pressure_for_async_send_num {self._max_messages}, "
                    f"back_pressure_for_async_send_size {self._max_bytes}); send more slowly or raise the limits"
                )
            self._messages += 1
            self._bytes += size

    def leave(self, size: int) -> None:
        """Count a message no more.

        Args:
            size: bytes of its body.
        """
        with self._changed:
            self._messages -= 1
            self._bytes -= size
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        if not self._messages:
            return True
        return self._messages < self._max_messages and self._bytes + size <= self._max_bytes
