"""Pulls that go on where those before them ended, answered without making commands of them: the pure twin.

docs/adr/0022-runs.md says what a run of pulls is.
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
"""The state of an HMAC with the secret of an account that may make a pull: by access key, topic and group."""


def pull_key(header: Any) -> bytes:
    """What pulls of one consumer and queue have in common: all that decides about the answer but its offsets.

    Args:
        header: of a pull.
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
    """A pull at the front of `buffer[start:end]`.

    Args:
        buffer: what was read.
        start: where its first frame begins.
        end: where it ends.
        most_frame: maximum bytes of a frame.

    Returns:
        Where the frame ends, what the pull has in common with others (`pull_key`), its opaque, and the offsets that it
        reads from and commits. None when there is no whole frame, or none of a pull (code 11, by JSON, without a body)
        as clients spell them: in ASCII without escapes, for themselves, with a reply.
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
    """Where the frame of a pull ends, its header decoded, and as it is."""
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
    """Part of a queue whose units and records were found in memory by one of several reads that follow each other.

    Args:
        log: the commit log.
        queue: the queue.
        segment: the file that has the units.
        begin: first queue offset.
        end: the one behind the last.
        until: monotonic time up to which it is taken to be in memory, seconds.
        looked_at: units that a read may look at.
        limits: of a read.
        prove: what units from a queue offset on have to prove, by that offset and themselves, where they or their
            records may have been changed on the disk; None has such reads made elsewhere.
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
        """Records of the queue from an offset on, as any read has them.

        Args:
            offset: the first queue offset.
            most: how many messages are wanted.
            tag_codes: only records with one of these; None for all.
            now: monotonic time, seconds.

        Returns:
            The records one behind the other, how many they are, the offset to go on at, the queue's smallest offset and
            its next one, and whether the last of them has left the memory (store.md §14.1). None where anything has
            to be looked at beside them.
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
    """The pulls of one consumer from one queue: what was decided about them, and what the last of them found.

    Attributes:
        name: the consumer group.
        topic_name: of the queue.
        queue_id: the queue.
        most: how many messages a pull wants.
        tag_codes: which of them; None for all.
        commits: whether the pulls commit offsets.
        group: the group's configuration.
        topic: the topic's configuration.
        subscription: what the group subscribes, as its heartbeats have said it; None when the pulls bring their own.
        ready: what is in memory of the queue; None when that has to be looked at.
        notes: by topic, the subscriptions that the group's pulls brought.
        note: the one in it of pulls like these; None where it is not noted.
        reached: by queue, the offset that the group's pulls have reached; None where it is not noted.
        counts: messages, bytes and calls that the group got from the topic; raised with every pull.
        queue_counts: the same of the queue.
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
        """Have the next pull looked at again."""
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
        """Take down what a look has found, for the pulls that go on from there; see the attributes."""
        self.ready, self.notes, self.note, self.reached = ready, notes, note, reached
        self.counts, self.queue_counts = counts, queue_counts


class PullRun:
    """Answers the pulls at the front of what was read from a connection that go on where those before them ended.

    Args:
        groups: configurations by group.
        topics: configurations by topic.
        consumers: by group, what its members' heartbeats have said.
        resets: offsets that were set for groups and wait for a pull; while there are any, nothing is answered.
        broadcasting: message model of groups each of whose members has offsets of its own.
        commit: notes an offset that a pull commits; false when it does not.

    Attributes:
        cursors: by what their pulls have in common (`pull_key`).
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
        """Whether what was decided about a cursor's pulls would be decided again."""
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
            buffer: what was read.
            start: where its first frame begins.
            end: where it ends.
            most_frame: maximum bytes of a frame.
            most_bytes: no more pulls are answered once they have brought so much.
            now: monotonic time, seconds.
            reads_slaves: whether consumers are sent to other brokers (broker.md §9.5).
            replies: gets the replies, in one part or several.
            accounts: which accounts may pull; None answers everybody.

        Returns:
            Where the first frame begins that was left, how many pulls were answered and how many bytes they brought,
            and, when the first that was left is a pull, what `scan_pull` says of it; None, too, when its account is not
            known to be allowed, or has not signed it.
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
