"""Deferred replies: a handler returns a value and answers it in a later turn, at the cost of no task.

Consumers have a pull waiting for each of their queues. A task and a timeout each would take twice the memory, and two
turns of the loop more for each message that one of them waits for.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from tianzhou.wire.command import Command


class Answerer(Protocol):
    """The connection that a deferred reply goes back on."""

    def end(self, deferred: DeferredReply, command: Command, cost: int, reply: Reply | Exception) -> None:
        """Send the reply, or the response code of its error."""


class DeferredReply:
    """Reply that a handler returns and will `answer` in any later turn of the loop, never before.

    The request counts among those its connection is serving, and its body was copied out of the read buffer.
    """

    __slots__ = ("_request",)
    _request: tuple[Answerer, Command, int]

    def begin(self, connection: Answerer, command: Command, cost: int) -> None:
        """Called by the connection when it is ready for the answer."""
        self._request = connection, command, cost

    def answer(self, reply: Reply | Exception) -> None:
        """Send the reply, or an error's response code; does nothing the second time or when the peer is gone."""
        connection, command, cost = self._request
        connection.end(self, command, cost, reply)

    def cancel(self) -> None:
        """Called by the connection when it has ended: no answer is awaited any more."""


Reply: TypeAlias = Command | bytes | tuple[bytes, bytes] | DeferredReply | None
"""What answers a request: a command, a complete encoded frame, the two pieces of one, a deferred reply, or nothing."""
