"""The executor of sends: it stores the sends of one read of a connection by one compiled call (docs/adr/0022, 0033).

It has no twin in Python. In pure mode `SendRun` leaves every send to the handler, and no fast path calls it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from mmap import mmap
from typing import Any, TypeAlias

from tianzhou._hot.cursors import IndexCursor, LogCursor, Pending, QueueCursor, SendTarget
from tianzhou._hot.signing import HmacStart

Accounts: TypeAlias = Callable[[int, str, str], HmacStart | None]
"""The state of an HMAC with the secret of an account that may make a request: by code, access key and topic."""
EntryRoom: TypeAlias = tuple[mmap, int, int]
"""Where units of entries can be written: the file, the first one's place in it, and how many."""


class SendRun:
    """Stores the ordinary sends that stand one behind the other in what was read from a connection.

    Ordinary is a request 310 or 10 with a JSON header, to a topic that sends were admitted to, whose message is plain
    (`PropertyReader`) and of no transaction, and fits what is prepared of the log; and so is a batch (320) of plain
    messages, with the properties of `take_batches`. What is not ordinary is left to the handler of sends, and so is
    everything behind it.

    Args:
        special: names of properties that no ordinary message has.
        tail: pairs that are stored behind the properties of every message.
        tags_code: code of a tag.
        id_head: what the ids of all messages of this broker begin with.
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
        """Nothing to prepare."""

    def take_batches(self, properties: str, tail: bytes) -> None:
        """Treat batches with these properties in their headers as ordinary.

        Args:
            properties: of all messages of a batch, among them no unique key and nothing of a delay or a transaction.
            tail: pairs that are stored behind the properties of every message.
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
            buffer: what was read.
            start: where its first frame begins.
            end: where it ends.
            most_frame: maximum bytes of a frame; who splits frames says so of larger ones.
            most_body: maximum bytes of a body.
            log: where the log ends; moved.
            table: queues by topic and number.
            targets: topics that sends were admitted to.
            host: address of the sender, 4 bytes; of other senders nothing is ordinary.
            port: its port.
            stored: the store time of all of them, ms.
            pending: gets what is to be dispatched.
            dirty: gets the queues that were not dirty before, as far as units are written at once.
            index: whether there is an index, and the file of it that takes new entries, when what is stored may be
                dispatched at once; None when it has to wait its turn.
            settles: whether replies wait until messages are safe; one whose sender does not wait is not ordinary then.
            accounts: which accounts may send; of others, and without the right signature, nothing is ordinary. None
                takes sends of everybody.
            entries: in a log of entries, where their units go; whoever keeps those moves their end to the log's next
                index.

        Returns:
            Where the first frame begins that was left, the replies one behind the other, how many sends were stored,
            how many of the first of them were dispatched at once (the others are in `pending`), the queues that got one
            so and are waited for, and topic and queue of each reply when they wait.
        """
        return start, b"", 0, 0, [], []
