"""Deferred replies: a handler returns one and answers it in a later turn, without a task.

Consumers have a pull waiting for each of their queues. A task and a timeout for each would take twice the memory, and
two more loop turns for each message that a pull waits for.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from tianzhou.wire.command import Command


class Answerer(Protocol):
    """The connection that sends a deferred reply."""

    def end(self, deferred: DeferredReply, command: Command, cost: int, reply: Reply | Exception) -> None:
        """Send the reply, or the response code of its error."""


class DeferredReply:
    """Reply that a handler returns now and will `answer` in a later loop turn, never before.

    The connection counts the request as in service. Its body was copied out of the read buffer.
    """

    __slots__ = ("_request",)
    _request: tuple[Answerer, Command, int]

    def begin(self, connection: Answerer, command: Command, cost: int) -> None:
        """Start the deferred reply; the connection calls it when it is ready for the answer."""
        self._request = connection, command, cost

    def answer(self, reply: Reply | Exception) -> None:
        """Send the reply, or an error's response code. The second call, and a call after the peer left, do nothing."""
        connection, command, cost = self._request
        connection.end(self, command, cost, reply)

    def cancel(self) -> None:
        """Cancel the reply; the connection calls it when it has ended."""


Reply: TypeAlias = Command | bytes | tuple[bytes, bytes] | DeferredReply | None
"""A handler's reply: a command, an encoded frame, the two pieces of a frame, a deferred reply, or None for no reply."""
