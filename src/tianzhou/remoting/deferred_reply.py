"""Deferred replies: a handler returns a value and answers it in a later turn, at the cost of no task.

Consumers have a pull waiting for each of their queues. A task and a timeout each would take twice the memory, and two
turns of the loop more for each message that one of them waits for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tianzhou.remoting.connection import Connection, Reply
    from tianzhou.wire.command import Command


class DeferredReply:
    """Reply that a handler returns and will `answer` in any later turn of the loop, never before.

    The request counts among those its connection is serving, and its body was copied out of the read buffer.
    """

    __slots__ = ("_request",)
    _request: tuple[Connection, Command, int]

    def begin(self, connection: Connection, command: Command, cost: int) -> None:
        """Called by the connection when it is ready for the answer."""
        self._request = connection, command, cost

    def answer(self, reply: Reply | Exception) -> None:
        """Send the reply, or an error's response code; does nothing the second time or when the peer is gone."""
        connection, command, cost = self._request
        connection.end(self, command, cost, reply)

    def cancel(self) -> None:
        """Called by the connection when it has ended: no answer is awaited any more."""
