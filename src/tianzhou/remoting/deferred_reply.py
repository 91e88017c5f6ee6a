"""A reply that comes later and costs no task meanwhile.

Consumers have a pull waiting for each of their queues. A task and a timeout each take twice the memory, and two turns
of the loop more for a message that one of them waits for, than a value that someone answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tianzhou.remoting.connection import Connection, Reply
    from tianzhou.wire.command import Command


class Later:
    """What a handler returns that will `answer` when it can, in any later turn of the loop and never before.

    The request counts among those its connection has in hand, and its body was copied out of the read buffer.
    """

    __slots__ = ("_asked",)
    _asked: tuple[Connection, Command, int]

    def begin(self, connection: Connection, command: Command, cost: int) -> None:
        """Told by the connection: it has taken note, from now on an answer may come."""
        self._asked = connection, command, cost

    def answer(self, reply: Reply | Exception) -> None:
        """Send the reply, or what an error means; nothing happens the second time, or when the peer is gone."""
        connection, command, cost = self._asked
        connection.end(self, command, cost, reply)

    def cancel(self) -> None:
        """Told by the connection: it has ended, and nobody waits for the answer any more."""
