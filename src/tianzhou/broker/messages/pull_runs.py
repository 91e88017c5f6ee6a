"""Pulls served without being decoded, while there is nothing to decide about them (docs/adr/0022-runs.md).

What decides about a pull is the same in all pulls of a consumer and queue but the offsets. The handler of pulls, which
has served one, says what it decided; as long as that holds and the messages are there, or none is there yet, those that
follow cost a look-up instead of being decoded, checked and answered one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Final

from tianzhou._hot import pull_key, pull_reply, scan_pull
from tianzhou.broker.messages.pull_request import PullRequest, reading_of, suggested_broker
from tianzhou.broker.services import Services
from tianzhou.errors import LimitExceeded
from tianzhou.model import MessageModel
from tianzhou.remoting.connection import FLUSH_BYTES, Connection, Runs
from tianzhou.remoting.session import MAX_FRAME
from tianzhou.store.results import GetResult
from tianzhou.wire.codes import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, ResponseCode

_SUCCESS: Final = int(ResponseCode.SUCCESS)
MOST_SEQUENCES: Final = 10_000
"""Consumers' queues of which is known what was decided; the next one has all be forgotten."""
LONGEST_KEY: Final = 1024
"""Bytes of what is remembered a sequence by; longer ones, as of long expressions, are the handler's."""
SAMPLE_EVERY_S: Final = 0.01
"""Runs are timed no more often than this."""


class Sequence:
    """The pulls of one consumer from one queue.

    Args:
        request: one that was served; what it found holds as long as its group, topic and subscription are the present
            ones.
    """

    __slots__ = (
        "brings_subscription", "command", "commits", "expression", "group", "header", "name", "queue_id", "reading",
        "selection", "topic", "waits",
    )  # fmt: skip

    def __init__(self, request: PullRequest) -> None:
        self.header = header = request.header
        self.name, self.queue_id, self.expression = header.consumer_group, header.queue_id, header.subscription or "*"
        self.commits, self.waits = bool(header.sys_flag & COMMIT_OFFSET), bool(header.sys_flag & SUSPEND)
        self.group, self.topic, self.selection = request.group, request.topic, request.selection
        self.reading = reading_of(header, request.selection)
        self.brings_subscription = bool(header.sys_flag & SUBSCRIPTION)
        self.command: Any = copy(request.command)
        self.command.body = b""  # of some it is in the read buffer

    def request(self, opaque: int, offset: int, commit_offset: int) -> PullRequest:
        """One more of these pulls."""
        command, header = self.command.__copy__(), self.header.__copy__()
        command.opaque, command.header = opaque, header
        header.queue_offset, header.commit_offset = offset, commit_offset
        reading = reading_of(header, self.selection)
        return PullRequest(command, header, self.group, self.topic, self.selection, reading)


class PullRuns:
    """Serves the ordinary pulls at the front of a read.

    Args:
        services: of the broker.
        hold: has a pull wait for messages, given what was found at the end of its queue; false when it may not.

    Attributes:
        listener: called now and then with the milliseconds that a pull took.
    """

    def __init__(self, services: Services, hold: Callable[[Connection, PullRequest, GetResult], bool]) -> None:
        self._tables, self._store, self._stats = services.tables, services.store, services.stats
        self._clock, self._signed = services.clock, services.access is not None
        self._sequences: dict[bytes, Sequence] = {}
        self._unknown: bytes | None = None
        self._hold = hold
        self._sample_due = 0.0
        self.listener: Callable[[float], None] = lambda _: None

    def beside(self, sends: Runs) -> Runs:
        """Serves pulls at the front of a read, and has `sends` serve one that begins with anything else."""

        def serve(connection: Connection, buffer: bytearray, start: int, end: int) -> tuple[int, list[bytes]]:
            runs = self.serve if buffer[start + 16 : start + 19] == b"11," else sends
            return runs(connection, buffer, start, end)

        return serve

    def serve(self, connection: Connection, buffer: bytearray, start: int, end: int) -> tuple[int, list[bytes]]:
        """Serve the pulls at the front of what was read from a connection, up to one that is not ordinary.

        Ordinary is a pull of which is known what decides about it, from a queue that has messages for it in memory, or
        none yet.

        Args:
            connection: of the consumer.
            buffer: what was read.
            start: where its first frame begins.
            end: where it ends.

        Returns:
            Where the first frame begins that was left, and the replies to those before it.
        """
        replies: list[bytes] = []
        tables, stats = self._tables, self._stats
        if self._signed or self._is_unusual():
            return start, replies
        offsets, began, size = tables.offsets, self._clock.monotonic(), 0
        while size < FLUSH_BYTES and (found := scan_pull(buffer, start, end, MAX_FRAME)) is not None:
            after, key, opaque, offset, commit = found
            sequence = self._sequences.get(key)
            if sequence is None or not self._holds(sequence):
                self._unknown = key
                break
            name, reading = sequence.name, sequence.reading
            topic, queue_id = reading.topic, sequence.queue_id
            if offsets.reset_waits(name, topic, queue_id):
                break
            reading.offset = offset
            got = self._store.read_ready(reading)
            if got is None or not (got.count or sequence.waits):
                break
            now_ms = self._clock.now_ms()
            try:
                if sequence.commits:
                    offsets.commit(name, topic, queue_id, commit, now_ms)
            except LimitExceeded:
                break
            if sequence.brings_subscription:
                tables.clients.note_pull(name, topic, sequence.expression, "TAG", now_ms)
            if not got.count:
                if not self._hold(connection, sequence.request(opaque, offset, commit), got):
                    break
                start = after
                continue
            offsets.pulled(name, topic, queue_id, got.next_offset)
            records = got.records
            stats.found += 1
            stats.got(topic, name).add(queue_id, got.count, len(records))
            group = sequence.group
            suggested = suggested_broker(tables.settings, group, got)
            replies += pull_reply(
                opaque, _SUCCESS, "FOUND", got.next_offset, got.min_offset, got.max_offset, suggested,
                group.group_sys_flag, sequence.topic.topic_sys_flag, records,
            )  # fmt: skip
            size += len(records)
            start = after
        if replies and began >= self._sample_due:
            self._sample_due = (now := self._clock.monotonic()) + SAMPLE_EVERY_S
            self.listener((now - began) * 2000 / len(replies))
        return start, replies

    def learn(self, request: PullRequest) -> None:
        """Have pulls like one that was served at once, or waits, served by runs, if one of its kind ended the last."""
        unknown, self._unknown = self._unknown, None
        header, selection = request.header, request.selection
        if unknown is None or len(unknown) > LONGEST_KEY or unknown != pull_key(header):
            return
        if selection.accept is not None or selection.accept_unit is not None:
            return
        if len(self._sequences) >= MOST_SEQUENCES:
            self._sequences.clear()
        self._sequences[unknown] = Sequence(request)

    def _is_unusual(self) -> bool:
        tables = self._tables
        settings = tables.settings
        return bool(
            not settings.readable
            or settings.reject_pull_consumer_enable
            or settings.disable_consume_if_consumer_read_slowly
            or tables.groups.forbidden
        )

    def _holds(self, sequence: Sequence) -> bool:
        """Whether the handler would decide about a pull as it did about the one that made it known."""
        tables, name, topic = self._tables, sequence.name, sequence.reading.topic
        if tables.groups.get(name) is not sequence.group or tables.topics.get(topic) is not sequence.topic:
            return False
        online = tables.clients.consumers.get(name)
        if online is not None and online.message_model is MessageModel.BROADCASTING:
            return False  # each of its members has offsets of its own
        if sequence.brings_subscription:
            return True
        return online is not None and online.subscriptions.get(topic) is sequence.selection.subscription
