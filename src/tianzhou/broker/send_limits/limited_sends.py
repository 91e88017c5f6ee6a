"""Check of sends against the limits of senders, before their handler (docs/adr/0031)."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from tianzhou.access.signatures import ACCESS_KEY
from tianzhou.broker.send_limits.limiter import ADVICE, SendLimiter
from tianzhou.broker.services import Services
from tianzhou.remoting.connection import Connection
from tianzhou.wire.batch import count_entries
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command, encode

_FRAME_HEAD: Final = Struct(">ii")
"""Lengths of a frame with a JSON header and without a body: of the rest of the frame, and of the header."""
_OPAQUE: Final = 987_654_321
_WAIT: Final = "@ms@"
"""Marks of the places of opaque and milliseconds in an encoded answer."""


class LimitedSends:
    """Check that refuses sends above the limits of this broker.

    Args:
        services: the broker's services.
    """

    def __init__(self, services: Services) -> None:
        tables = services.tables
        self._table = tables.send_limits
        self._limiter = SendLimiter(tables.send_limits, tables.topics.is_system, tables.bounds)
        self._clock = services.clock
        self._has_accounts = services.access is not None
        # Cache the encoded refusal: most differ only by opaque and milliseconds, and so cost less than a send.
        self._frame_head = ""
        self._frame_marks: dict[str, str] = {}
        self._before = self._between = self._behind = b""
        self.covers = self._limiter.covers
        """Whether a limit may count sends to a topic."""

    @property
    def is_empty(self) -> bool:
        """Whether there are no limits."""
        return not len(self._table)

    def follow(self) -> None:
        """Apply the present limits from now on."""
        self._limiter.follow(self._clock.monotonic())

    def refused(self, connection: Connection, command: Command, header: Any, marks: dict[str, str]) -> bytes | None:
        """Take the tokens of a send, or return the answer that refuses it.

        Args:
            connection: connection of the sender.
            command: the request.
            header: its header.
            marks: fields of every answer to a send.
        """
        body = command.body
        count = count_entries(body) if header.batch else 1
        refusal = self._limiter.refusal(
            header.topic,
            header.producer_group,
            connection.verified_ip,
            self._account(connection, command) if self._has_accounts else "",
            count,
            len(body),
            self._clock.monotonic(),
        )
        if refusal is None:
            return None
        self._table.note_refusal(refusal.buckets.key, count, refusal.name, self._clock.now_ms())
        head = refusal.buckets.refusal_head(refusal.name)
        if head is not self._frame_head or marks is not self._frame_marks:
            self._frame_head, self._frame_marks = head, marks
            self._before, self._between, self._behind = _frame_parts(head, marks)
        text = b"%b%d%b%d%b" % (self._before, command.opaque, self._between, refusal.wait_ms, self._behind)
        return b"".join((_FRAME_HEAD.pack(4 + len(text), len(text)), text))

    @staticmethod
    def _account(connection: Connection, command: Command) -> str:
        """Return the account that the gate has accepted: the signature's, else the certificate's."""
        header = command.header
        signed = command.fields.get(ACCESS_KEY) if header is None else header.access_key
        return signed or connection.account


def _frame_parts(head: str, marks: dict[str, str]) -> tuple[bytes, bytes, bytes]:
    """Return the JSON header of a refusal in three parts: before the opaque, up to the milliseconds, and after them.

    Args:
        head: the remark up to the milliseconds.
        marks: fields of every answer to a send.
    """
    refused = Command(0, _OPAQUE).reply(ResponseCode.SYSTEM_BUSY, f"{head}{_WAIT}{ADVICE}", marks)
    before, _, rest = encode(refused)[8:].partition(b"%d" % _OPAQUE)
    between, _, behind = rest.rpartition(_WAIT.encode())
    return before, between, behind
