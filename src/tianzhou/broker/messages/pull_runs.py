"""Runs of pulls: pulls served without decoding, under a plan that their handler made (docs/adr/0033).

The decisions about pulls of one consumer from one queue differ only by offset. The handler passes its decisions about a
pull to `PullRuns`. While they hold, and the messages are in memory or do not exist yet, a further pull costs only a
look-up and a read.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from time import monotonic
from typing import Any, Final

from tianzhou._hot import PullCursor, PullRun, pull_key, pull_reply
from tianzhou.broker.messages.held_pulls import HeldPulls
from tianzhou.broker.messages.pull_request import PullRequest, reading_of, suggested_broker
from tianzhou.broker.services import Services
from tianzhou.errors import LimitExceeded
from tianzhou.model import MessageModel
from tianzhou.remoting.connection import FLUSH_BYTES, Connection
from tianzhou.remoting.session import MAX_FRAME
from tianzhou.store.results import GetResult, GetStatus
from tianzhou.wire.codes import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, ResponseCode

_SUCCESS: Final = int(ResponseCode.SUCCESS)
MAX_PLANS: Final = 10_000
"""Maximum number of plans of pulls. The table is cleared when one more arrives."""
MAX_KEY_BYTES: Final = 1024
"""Maximum size of a plan's key in bytes. Pulls with a longer key (a long filter expression) take the handler."""
SAMPLE_EVERY_S: Final = 0.01
"""Minimum seconds between two timed runs."""


class PullPlan(PullCursor):
    """The decisions about the pulls of one consumer from one queue.

    They are valid while group, topic and subscription are the same objects (`PullRun.holds`).

    Args:
        request: a pull that was served.
    """

    __slots__ = ("command", "expression", "header", "reading", "selection", "waits")

    def __init__(self, request: PullRequest) -> None:
        self.header = header = request.header
        brings = bool(header.sys_flag & SUBSCRIPTION)
        self.selection, self.reading = request.selection, reading_of(header, request.selection)
        self.reading.goes_on = True
        super().__init__(
            header.consumer_group,
            header.topic,
            header.queue_id,
            self.reading.max_messages,
            self.reading.tag_codes,
            bool(header.sys_flag & COMMIT_OFFSET),
            request.group,
            request.topic,
            None if brings else request.selection.subscription,
        )
        self.expression = (header.subscription or "*") if brings else None
        self.waits = bool(header.sys_flag & SUSPEND)
        self.command: Any = copy(request.command)
        self.command.body = b""  # the body may be a view of the read buffer

    def request(self, opaque: int, offset: int, commit_offset: int) -> PullRequest:
        """Return a further pull under this plan."""
        command, header = self.command.__copy__(), self.header.__copy__()
        command.opaque, command.header = opaque, header
        header.queue_offset, header.commit_offset = offset, commit_offset
        reading = reading_of(header, self.selection)
        return PullRequest(command, header, self.group, self.topic, self.selection, reading)


class PullRuns:
    """Server of the ordinary pulls at the front of a read.

    Args:
        services: the broker's services.
        held: owner of pulls that wait at the end of their queue.

    Attributes:
        listener: callback with samples of a pull's duration, ms.
    """

    def __init__(self, services: Services, held: HeldPulls) -> None:
        self._tables, self._store, self._stats = services.tables, services.store, services.stats
        self._clock, self._access, self._replication = services.clock, services.access, services.replication
        tables = services.tables
        self._run = PullRun(
            tables.groups.all(),
            tables.topics.all(),
            tables.clients.consumers,
            tables.offsets.resets,
            MessageModel.BROADCASTING,
            self._commit,
        )
        self._plans: dict[bytes, Any] = self._run.cursors
        self._unknown: bytes | None = None
        self._hold = held.hold_at_once
        self._sample_due = 0.0
        self.listener: Callable[[float], None] = lambda _: None

    def serve(self, connection: Connection, buffer: bytearray, start: int, end: int) -> tuple[int, list[bytes]]:
        """Serve the pulls at the front of a read, up to one that is not ordinary.

        A pull is ordinary when its plan is known, and its queue has messages in memory or no new ones. When the replies
        exceed one write, they are sent, and more pulls are served while the peer reads its replies.

        Args:
            connection: connection of the consumer.
            buffer: the read.
            start: start of its first frame.
            end: end of the read.

        Returns:
            Start of the first frame that was not served, and the replies to the frames before it.
        """
        after, replies = self._serve_one_write(connection, buffer, start, end)
        while start < after < end and sum(map(len, replies)) >= FLUSH_BYTES and connection.room() is None:
            connection.send_all(replies)
            start, replies = after, []
            if connection.room() is None:
                after, replies = self._serve_one_write(connection, buffer, start, end)
        return after, replies

    def _serve_one_write(
        self, connection: Connection, buffer: bytearray, start: int, end: int
    ) -> tuple[int, list[bytes]]:
        """Serve pulls, as `serve` does, until their replies fill one write."""
        replies: list[bytes] = []
        if self._is_unusual():
            return start, replies
        accounts = None if self._access is None else self._access.pulls_from(connection)
        answer, reads_slaves, most = self._run.answer, self._tables.settings.slave_read_enable, FLUSH_BYTES
        began, served = monotonic(), 0
        while most > 0:
            start, count, size, found = answer(
                buffer, start, end, MAX_FRAME, most, began, reads_slaves, replies, accounts
            )
            served, most = served + count, most - size
            if found is None:
                break
            plan = self._plans.get(found[1])
            if plan is None or not self._run.holds(plan):
                self._unknown = found[1]
                break
            size = self._look(connection, plan, found, replies)
            if size < 0:
                break
            start, served, most = found[0], served + (size > 0), most - size
        self._stats.found += served
        if served and began >= self._sample_due:
            self._sample_due = (now := monotonic()) + SAMPLE_EVERY_S
            self.listener((now - began) * 1000 / served)
        return start, replies

    def _look(
        self, connection: Connection, plan: PullPlan, pull: tuple[int, bytes, int, int, int], replies: list[bytes]
    ) -> int:
        """Answer a pull under a plan, or hold it, and note the offset of the next pulls in the plan.

        Returns:
            Bytes of the messages in the reply; 0 when the pull waits; -1 when the handler has to serve it.
        """
        _, _, opaque, offset, commit = pull
        tables, name, topic, queue_id = self._tables, plan.name, plan.topic_name, plan.queue_id
        plan.forget()
        if tables.offsets.reset_waits(name, topic, queue_id):
            return -1
        reading = plan.reading
        reading.offset = offset
        got = self._store.read(reading)
        if type(got) is not GetResult:
            return -1  # the disk has to be read
        if got.status is not GetStatus.FOUND and not (got.status is GetStatus.OFFSET_OVERFLOW_ONE and plan.waits):
            return -1
        if plan.commits and not self._commit(plan, commit):
            return -1
        notes = None
        if plan.expression is not None:
            tables.clients.note_pull(name, topic, plan.expression, "TAG", self._clock.now_ms())
            notes = tables.clients.pulled(name)
        if not got.count:
            return 0 if self._hold(connection, plan.request(opaque, offset, commit), got) else -1
        tables.offsets.pulled(name, topic, queue_id, got.next_offset)
        traffic, size = self._stats.got(topic, name), len(got.records)
        traffic.add(queue_id, got.count, size)
        group = plan.group
        suggested = suggested_broker(tables.settings, group, got)
        replies += pull_reply(
            opaque, _SUCCESS, "FOUND", got.next_offset, got.min_offset, got.max_offset, suggested,
            group.group_sys_flag, plan.topic.topic_sys_flag, got.records,
        )  # fmt: skip
        note, reached = None if notes is None else notes.get(topic), tables.offsets.pull_offsets(name, topic, queue_id)
        plan.found(reading.ready, notes, note, reached, traffic.counts, traffic.of_queue(queue_id))
        return size

    def _commit(self, plan: PullCursor, offset: int) -> bool:
        """Commit a pull's offset; return False when a limit refuses it, so that the handler raises the error."""
        now_ms = self._clock.now_ms()
        try:
            self._tables.offsets.commit(plan.name, plan.topic_name, plan.queue_id, offset, now_ms)
        except LimitExceeded:
            return False
        return True

    def learn(self, request: PullRequest) -> None:
        """Add a plan for pulls like this one, if a pull without a plan ended the last run."""
        unknown, self._unknown = self._unknown, None
        header, selection = request.header, request.selection
        if unknown is None or len(unknown) > MAX_KEY_BYTES or unknown != pull_key(header):
            return
        if selection.accept is not None or selection.accept_unit is not None:
            return
        if self._tables.void_positions.waits(header.consumer_group, header.topic, header.queue_id):
            return  # each member of a broadcast group begins on its own
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        self._plans[unknown] = PullPlan(request)

    def _is_unusual(self) -> bool:
        tables = self._tables
        settings = tables.settings
        return bool(
            not settings.readable
            or self._replication.refuses_pulls
            or settings.reject_pull_consumer_enable
            or settings.disable_consume_if_consumer_read_slowly
            or tables.groups.forbidden
        )
