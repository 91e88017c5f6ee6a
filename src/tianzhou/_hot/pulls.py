"""Consecutive pulls, answered without making commands of them: the pure twin.

docs/adr/0022-runs.md defines a run of pulls.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import UNSET

from tianzhou._hot import frames
from tianzhou._hot.records import UNIT, GatherLimits, Proof, gather
from tianzhou._hot.signing import HmacStart, is_hmac

_PULL: Final = frames._number(b'11,"')
_FRAME_HEAD: Final = 8
_NUMBERS: Final = struct.Struct(">iiiqq")
_UNIT_SIZE: Final = UNIT.size
_NONE: Final = b"\1"
_RARE: Final = (
    "ns", "nsd_text", "oway_text", "lo_text", "req_t", "security_token", "request_source", "proxy_froward_client_id"
)  # fmt: skip
_NOT_SET: Final = (None, UNSET)
PullAccounts: TypeAlias = Callable[[str, str, str], HmacStart | None]
"""Returns the HMAC state with the secret of an account that may make a pull, by access key, topic and group."""


def pull_key(header: Any) -> bytes:
    """Return the key of consecutive pulls: all header fields that decide the answer, except the offsets.

    Args:
        header: header of a pull.
    """
    numbers = _NUMBERS.pack(
        header.queue_id, header.max_msg_nums, header.sys_flag, header.sub_version, header.suspend_timeout_millis
    )
    texts = header.consumer_group, header.topic, header.expression_type, header.subscription
    parts = [_NONE if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
    return b"\0".join((*parts, numbers))


def scan_pull(
    buffer: bytes | bytearray | memoryview, start: int, end: int, most_frame: int
) -> tuple[int, bytes, int, int, int] | None:
    """Return the pull at the front of `buffer[start:end]`.

    Args:
        buffer: bytes of a read.
        start: start of the first frame.
        end: end of the bytes.
        most_frame: maximum bytes of a frame.

    Returns:
        The end of the frame, the pull's key (`pull_key`), its opaque, and the offsets that it reads from and commits.
        None without a whole frame, or when the frame is not an ordinary pull: code 11, a JSON header in ASCII without
        escapes, no body, not one-way, read for the sender itself.
    """
    found = _scan(buffer, start, end, most_frame)
    if found is None:
        return None
    stop, request, _ = found
    header = request.header
    return stop, pull_key(header), request.opaque, header.queue_offset, header.commit_offset


def _scan(
    buffer: bytes | bytearray | memoryview, start: int, end: int, most_frame: int
) -> tuple[int, Any, bytes] | None:
    """Return the end of a pull's frame, its decoded header, and the header's bytes; None if it is no ordinary pull."""
    if end - start < frames._PEEK_SIZE:
        return None
    length, word, first, second = frames._peek(buffer, start)
    stop = start + 4 + length
    if first != frames._START or second != _PULL or word + 4 != length or stop > end or length + 4 > most_frame:
        return None
    head = bytes(memoryview(buffer)[start + _FRAME_HEAD : stop])
    if b"\\" in head or not head.isascii():
        return None
    try:
        request = frames.BY_CODE[_PULL](head)
    except (ValueError, RecursionError):
        return None
    header = request.header
    if request.flag or request.remark is not None or any(getattr(header, name) not in _NOT_SET for name in _RARE):
        return None
    return stop, request, head


class ReadyStretch:
    """A stretch of a queue whose units and records one of several consecutive reads has found in memory.

    Args:
        log: the commit log.
        queue: the queue.
        segment: the file with the units.
        begin: first queue offset.
        end: queue offset after the last unit.
        until: monotonic time until which the stretch counts as in memory, seconds.
        looked_at: maximum units that a read checks.
        limits: limits of a read.
        prove: returns the proof for units from a queue offset on that may have been changed on the disk, as may their
            records; None leaves such reads to the ordinary path.
    """

    __slots__ = ("_log", "_prove", "begin", "end", "limits", "looked_at", "queue", "segment", "until")

    def __init__(
        self,
        log: Any,
        queue: Any,
        segment: Any,
        begin: int,
        end: int,
        until: float,
        looked_at: int,
        limits: GatherLimits,
        prove: Callable[[int, memoryview], Proof | None] | None = None,
    ) -> None:
        self._log, self.queue, self.segment, self._prove = log, queue, segment, prove
        self.begin, self.end, self.until, self.looked_at, self.limits = begin, end, until, looked_at, limits

    def read(
        self, offset: int, most: int, tag_codes: frozenset[int] | None, now: float
    ) -> tuple[bytes, int, int, int, int, bool] | None:
        """Return records of the queue from an offset on, as an ordinary read returns them.

        Args:
            offset: first queue offset.
            most: maximum number of messages.
            tag_codes: only records with one of these tags codes; None for all.
            now: monotonic time, seconds.

        Returns:
            The contiguous records, their number, the offset of the next read, the queue's smallest offset, its next
            offset, and whether the last record has left the memory (store.md §14.1). None when the read needs the
            ordinary path.
        """
        log, queue = self._log, self.queue
        if now >= self.until or log.damaged:
            return None
        low, high, view = queue.min_offset, queue.max_offset, self.segment.open_view
        if view is None or not max(low, self.begin) <= offset < high:
            return None
        if min(offset + (most if tag_codes is None else self.looked_at), high) > self.end:
            return None
        at, files, limits = offset * _UNIT_SIZE - self.segment.start, log.files, self.limits
        units = view[at : at + min(high - offset, self.looked_at) * _UNIT_SIZE]
        proof = None
        if offset < queue.trusted_from or not log.checked.undisturbed:
            if self._prove is None:
                return None
            proof = self._prove(offset, units)
        records, count, scanned, last, _ = gather(
            units, files.segments, files.size, log.end, tag_codes, None, limits, proof
        )
        return (records, count, offset + scanned, low, high, log.end - last > limits.memory_bound) if count else None


class PullCursor:
    """The pulls of one consumer from one queue: the decisions about them, and the findings of the last pull.

    Attributes:
        name: the consumer group.
        topic_name: topic of the queue.
        queue_id: the queue.
        most: maximum messages of a pull.
        tag_codes: tags codes of the wanted messages; None for all.
        commits: whether the pulls commit offsets.
        group: the group's configuration.
        topic: the topic's configuration.
        subscription: the group's subscription from its heartbeats; None when the pulls carry their own.
        ready: the stretch of the queue in memory; None when the next pull must check it.
        notes: by topic, the subscriptions that the group's pulls carried.
        note: the subscription of these pulls in `notes`; None where it is not noted.
        reached: by queue, the offset that the group's pulls have reached; None where it is not noted.
        counts: messages, bytes and calls that the group got from the topic; raised with every pull.
        queue_counts: the same for the queue.
    """

    __slots__ = (
        "commits", "counts", "group", "most", "name", "note", "notes", "queue_counts", "queue_id", "reached", "ready",
        "subscription", "tag_codes", "topic", "topic_name",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        topic_name: str,
        queue_id: int,
        most: int,
        tag_codes: frozenset[int] | None,
        commits: bool,
        group: Any,
        topic: Any,
        subscription: Any,
    ) -> None:
        self.name, self.topic_name, self.queue_id, self.most = name, topic_name, queue_id, most
        self.tag_codes, self.commits = tag_codes, commits
        self.group, self.topic, self.subscription = group, topic, subscription
        self.forget()

    def forget(self) -> None:
        """Drop the findings, so that the next pull takes the ordinary path."""
        self.ready: ReadyStretch | None = None
        self.notes: dict[str, Any] | None = None
        self.note: Any = None
        self.reached: dict[int, int] | None = None
        self.counts: list[int] = []
        self.queue_counts: list[int] = []

    def found(
        self,
        ready: ReadyStretch | None,
        notes: dict[str, Any] | None,
        note: Any,
        reached: dict[int, int] | None,
        counts: list[int],
        queue_counts: list[int],
    ) -> None:
        """Store the findings of a pull for the consecutive pulls; see the attributes."""
        self.ready, self.notes, self.note, self.reached = ready, notes, note, reached
        self.counts, self.queue_counts = counts, queue_counts


class PullRun:
    """Answers the consecutive pulls at the front of a connection's read.

    Args:
        groups: configurations by group.
        topics: configurations by topic.
        consumers: by group, the members' data from their heartbeats.
        resets: offset resets of groups that a pull has to apply; while there are any, no pull is answered here.
        broadcasting: message model of groups whose members have offsets of their own.
        commit: notes the offset that a pull commits; returns False when it does not.

    Attributes:
        cursors: pull cursors by `pull_key`.
    """

    def __init__(
        self,
        groups: Mapping[str, Any],
        topics: Mapping[str, Any],
        consumers: Mapping[str, Any],
        resets: Mapping[str, Any],
        broadcasting: Any,
        commit: Callable[[PullCursor, int], bool],
    ) -> None:
        self._groups, self._topics, self._consumers, self._resets = groups, topics, consumers, resets
        self._broadcasting, self._commit = broadcasting, commit
        self.cursors: dict[bytes, PullCursor] = {}

    def holds(self, cursor: PullCursor) -> bool:
        """Whether the decisions about a cursor's pulls are still valid."""
        name = cursor.name
        if self._groups.get(name) is not cursor.group or self._topics.get(cursor.topic_name) is not cursor.topic:
            return False
        online = self._consumers.get(name)
        if online is not None and online.message_model is self._broadcasting:
            return False
        if cursor.subscription is None:
            return True
        return online is not None and online.subscriptions.get(cursor.topic_name) is cursor.subscription

    def answer(
        self,
        buffer: bytes | bytearray | memoryview,
        start: int,
        end: int,
        most_frame: int,
        most_bytes: int,
        now: float,
        reads_slaves: bool,
        replies: list[bytes],
        accounts: PullAccounts | None = None,
    ) -> tuple[int, int, int, tuple[int, bytes, int, int, int] | None]:
        """Answer pulls at the front of `buffer[start:end]`.

        Args:
            buffer: bytes of a read.
            start: start of the first frame.
            end: end of the bytes.
            most_frame: maximum bytes of a frame.
            most_bytes: bytes of records after which no further pull is answered.
            now: monotonic time, seconds.
            reads_slaves: whether consumers are sent to other brokers (broker.md §9.5).
            replies: receives the replies, in one part or several.
            accounts: returns the HMAC state of an account that may pull; None answers every peer.

        Returns:
            The start of the first frame left, the number of answered pulls, and their bytes of records. The fourth
            value is `scan_pull`'s result when the first frame left is a pull. It is None when the pull is not signed by
            an account that is known to be allowed.
        """
        served = size = 0
        found = None
        while size < most_bytes and (scanned := _scan(buffer, start, end, most_frame)) is not None:
            after, request, head = scanned
            header, key, opaque = request.header, pull_key(request.header), request.opaque
            offset, commit = header.queue_offset, header.commit_offset
            cursor = self.cursors.get(key)
            if cursor is not None and accounts is not None and not _is_allowed(accounts, cursor, header, head):
                break
            found = after, key, opaque, offset, commit
            ready = None if cursor is None or self._resets else cursor.ready
            if cursor is None or ready is None or not self.holds(cursor):
                break
            if cursor.notes is not None and cursor.notes.get(cursor.topic_name) is not cursor.note:
                break
            got = ready.read(offset, cursor.most, cursor.tag_codes, now)
            if got is None or (cursor.commits and not self._commit(cursor, commit)):
                break
            records, count, following, low, high, behind = got
            if cursor.reached is not None:
                cursor.reached[cursor.queue_id] = following
            for counts in (cursor.counts, cursor.queue_counts):
                counts[0] += count
                counts[1] += len(records)
                counts[2] += 1
            group, suggested = cursor.group, 0
            if reads_slaves:
                suggested = group.which_broker_when_consume_slowly if behind else group.broker_id
            replies += frames.pull_reply(
                opaque, 0, "FOUND", following, low, high, suggested, group.group_sys_flag, cursor.topic.topic_sys_flag,
                records,
            )  # fmt: skip
            served += 1
            size += len(records)
            start, found = after, None
        return start, served, size, found


def _is_allowed(accounts: PullAccounts, cursor: PullCursor, header: Any, head: bytes) -> bool:
    """Whether a pull is signed by an account that may make it."""
    account, signed = header.access_key, frames.signed_content(head)
    start = accounts(account, cursor.topic_name, cursor.name) if account and signed else None
    return start is not None and is_hmac(start, signed, b"", header.signature or "")
