"""The executor of sends: stores the sends of one read of a connection in one compiled call (docs/adr/0022, 0033).

It has no pure twin. In pure mode `SendRun` leaves every send to the handler, and no fast path calls it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from mmap import mmap
from typing import Any, TypeAlias

from tianzhou._hot.cursors import IndexCursor, LogCursor, Pending, QueueCursor, SendTarget
from tianzhou._hot.signing import HmacStart

Accounts: TypeAlias = Callable[[int, str, str], HmacStart | None]
"""Returns the HMAC state with the secret of an account that may make a request, by code, access key and topic."""
EntryRoom: TypeAlias = tuple[mmap, int, int]
"""Room for units of entries: the file, the position of the first unit in it, and the number of units."""


class SendRun:
    """Stores the consecutive ordinary sends at the front of a connection's read.

    An ordinary send is a request 310 or 10 with a JSON header, to a topic in `targets`. Its message is plain
    (`PropertyReader`), belongs to no transaction, and fits the prepared part of the log. A batch (320) of plain
    messages with the properties of `take_batches` is ordinary, too. The run stops at the first other request. That
    request and all requests after it are left to the handler of sends.

    Args:
        special: names of properties that no ordinary message has.
        tail: property pairs that are stored after the properties of every message.
        tags_code: returns the code of a tag.
        id_head: common prefix of all message ids of this broker.
        region: the broker's region, for replies.
        trace_on: whether the broker wants traces.
    """

    def __init__(
        self,
        special: frozenset[str],
        tail: bytes,
        tags_code: Callable[[str | None], int],
        id_head: str,
        region: str,
        trace_on: bool,
    ) -> None:
        """Ignore the arguments; the pure class stores no sends."""

    def take_batches(self, properties: str, tail: bytes) -> None:
        """Treat batches with these properties in their headers as ordinary.

        Args:
            properties: properties of the whole batch, without a unique key, a delay or a transaction.
            tail: property pairs that are stored after the properties of every message.
        """

    def store(
        self,
        buffer: bytes | bytearray | memoryview,
        start: int,
        end: int,
        most_frame: int,
        most_body: int,
        log: LogCursor,
        table: Mapping[str, Mapping[int, Any]],
        targets: Mapping[str, SendTarget],
        host: bytes,
        port: int,
        stored: int,
        pending: deque[Pending],
        dirty: list[Any],
        index: tuple[bool, IndexCursor | None] | None,
        settles: bool,
        accounts: Accounts | None = None,
        entries: EntryRoom | None = None,
    ) -> tuple[int, bytes, int, int, list[QueueCursor], list[tuple[SendTarget, int]]]:
        """Store the sends at the front of `buffer[start:end]`.

        Args:
            buffer: bytes of a read.
            start: start of the first frame.
            end: end of the bytes.
            most_frame: maximum bytes of a frame; the frame splitter reports larger ones.
            most_body: maximum bytes of a body.
            log: end of the log; advanced.
            table: queues by topic and number.
            targets: topics that accept sends without a further check.
            host: address of the sender, 4 bytes; no send of another sender is ordinary.
            port: port of the sender.
            stored: store time of all messages, ms.
            pending: receives the items to dispatch.
            dirty: receives the queues that were not dirty before, as far as their units are written at once.
            index: whether there is an index, and its file for new entries, if records may be dispatched at once; None
                when dispatch has to wait.
            settles: whether replies wait until messages are safe. Then a send whose sender does not wait is not
                ordinary.
            accounts: returns the HMAC state of an account that may send. A send of another account, or without a
                correct signature, is not ordinary. None accepts sends of every peer.
            entries: in a log of entries, the room for their units; the owner of the units advances its end to the log's
                next index.

        Returns:
            The start of the first frame left, the contiguous replies, the number of stored sends, the number of sends
            (from the first) that were dispatched at once (the others are in `pending`), the queues with such sends that
            have waiting pulls, and topic and queue of each reply if replies wait.
        """
        return start, b"", 0, 0, [], []
