"""The sends of one read of a connection, stored by one call: the pure twin (docs/adr/0022-runs.md)."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from mmap import mmap
from typing import Any, Final, TypeAlias

from tianzhou._hot import frames
from tianzhou._hot.cursors import IndexCursor, LogCursor, Pending, QueueCursor, SendTarget
from tianzhou._hot.headers import FLAG_ONEWAY
from tianzhou._hot.properties import PropertyReader
from tianzhou._hot.records import put_record
from tianzhou._hot.signing import HmacStart, is_hmac
from tianzhou.records.layout import HOST_BITS, INNER_BATCH_BITS, TRANSACTION_BITS

Accounts: TypeAlias = Callable[[int, str, str], HmacStart | None]
"""The state of an HMAC with the secret of an account that may make a request: by code, access key and topic."""
EntryRoom: TypeAlias = tuple[mmap, int, int]
"""Where units of entries can be written: the file, the first one's place in it, and how many."""
MOST_PROPERTIES: Final = 32767
"""Bytes of a property string (wire.md §4.3)."""
_IPV4: Final = 4
_FRAME_HEAD: Final = 8
_SHORTEST, _START, _LONGEST_HEADER = frames._PEEK_SIZE, frames._START, frames._JSON_WORD_MAX
_SENDS: Final = {code: frames.BY_CODE[code] for code in (frames._number(b"310,"), frames._number(b'10,"'))}
_NOT_ORDINARY: Final = INNER_BATCH_BITS | TRANSACTION_BITS
_FURTHER: Final = "INNER_MULTI_DISPATCH"
"""Property that names further topics, which an account has to be allowed as well."""


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
        self._record = PropertyReader(special, tail, tags_code).record
        self._reply = id_head, region, trace_on

    def take_batches(self, properties: str, tail: bytes) -> None:
        """Take batches with these properties in their headers for ordinary; this twin leaves batches to the handler.

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
                dispatched at once; None when it has to wait its turn. This twin leaves dispatch to the dispatcher.
            settles: whether replies wait until messages are safe; one whose sender does not wait is not ordinary then.
            accounts: which accounts may send; of others, and without the right signature, nothing is ordinary. None
                takes sends of everybody.
            entries: in a log of entries, where their units go; whoever keeps those moves their end to the log's next
                index. This twin leaves such sends to the handler.

        Returns:
            Where the first frame begins that was left, the replies one behind the other, how many sends were stored,
            how many of the first of them were dispatched at once (the others are in `pending`), the queues that got one
            so and are waited for, and topic and queue of each reply when they wait.
        """
        view, replies, awaited, count = memoryview(buffer), [], [], 0
        memory, position, base, room = log._map, log.position, log.base, log._check
        read, (id_head, region, trace_on), host_bits = self._record, self._reply, log._sys_bits
        peek, find, decoders, reply = frames._peek, targets.get, _SENDS.get, frames.stored_reply
        if len(host) != _IPV4 or memory is None or log.appends_crc or entries is not None:
            return start, b"", 0, 0, [], []
        while end - start >= _SHORTEST:
            length, word, first, second = peek(buffer, start)
            decode, stop, body = decoders(second), start + 4 + length, start + _FRAME_HEAD + word
            if first != _START or decode is None or not body < stop <= end or stop - body > most_body:
                break
            if word > _LONGEST_HEADER or length + 4 > most_frame:
                break
            try:
                request = decode(view[start + _FRAME_HEAD : body])
            except (ValueError, RecursionError):
                break
            header, flag = request.header, request.flag
            topic, queue_id, sys_flag, target = header.topic, header.queue_id, header.sys_flag, find(header.topic)
            if target is None or flag & ~FLAG_ONEWAY or sys_flag & _NOT_ORDINARY or not 0 <= queue_id < target.limit:
                break
            plain = read(header, bytes(view[body:stop]), host, port, target.flags)
            queue = table.get(topic, {}).get(queue_id)
            if plain is None or queue is None or not queue.plain or queue.delayed or (settles and not plain[1]):
                break
            head = view[start + _FRAME_HEAD : body]
            if accounts is not None and not _is_signed(accounts, request, head, view[body:stop]):
                break
            record = plain[0]
            properties, field = record.properties, queue.topic_field
            size = log._overhead + len(field) + stop - body + len(properties)
            if len(properties) > MOST_PROPERTIES or position + size > room or 0 in properties:
                break
            place, offset = base + position, queue.next_offset
            flags = record.sys_flag & ~HOST_BITS | host_bits
            try:
                put_record(
                    memory,
                    position,
                    size,
                    place,
                    queue.magic,
                    field,
                    offset,
                    flags,
                    stored,
                    log.store_host_field,
                    record,
                )
            except struct.error:
                break
            log.position = position = position + size
            queue.next_offset = offset + 1
            pending.append((queue, offset, place, size, record.tags_code, stored, 0, record.uniq_key, record.keys))
            target.counts[queue_id] += 1
            target.sizes[queue_id] += size
            if not flag:
                replies.append(
                    reply(request.opaque, id_head, place, queue_id, offset, record.uniq_key, region, trace_on)
                )
                if settles:
                    awaited.append((target, queue_id))
            start = stop
            count += 1
        return start, b"".join(replies), count, 0, [], awaited


def _is_signed(accounts: Accounts, request: Any, head: memoryview, body: memoryview) -> bool:
    """Whether a send is signed by an account that may send to its topic."""
    header, signed = request.header, frames.signed_content(bytes(head))
    account = header.access_key
    start = accounts(request.code, account, header.topic) if signed and account else None
    if start is None or _FURTHER in (header.properties or ""):
        return False
    return is_hmac(start, signed, body, header.signature or "")
