"""Replies to pulls, encoded from the results of reads (broker.md §9.4)."""

from __future__ import annotations

from typing import Any, Final

from tianzhou._hot import pull_reply
from tianzhou.broker.messages.pull_codes import OUTSIDE, back_to_committed, pull_code, status_name, without_correction
from tianzhou.broker.messages.pull_request import PullRequest, suggested_broker
from tianzhou.broker.services import Services
from tianzhou.records.layout import AT, POSITION
from tianzhou.remoting.connection import Reply
from tianzhou.store.results import GetResult, GetStatus
from tianzhou.wire.codes import SUSPEND, ResponseCode

WORK_S: Final = 3e-7
"""Approximate seconds of one comparison of an expression."""


class PullAnswers:
    """Encoder of replies to pulls, which also counts the messages for consumers.

    Args:
        services: the broker's services.
    """

    def __init__(self, services: Services) -> None:
        self._tables, self._store, self._stats = services.tables, services.store, services.stats
        self._replication = services.replication

    def answer(
        self, request: PullRequest, found: GetResult, remark: str | None = None, cold_ms: int | None = None
    ) -> Reply:
        """Return the reply to a pull.

        Args:
            request: the pull.
            found: result of the read.
            remark: remark of the reply; None for the name of the result's status.
            cold_ms: milliseconds that the read waited for the disk; None when it did not.
        """
        header, group = request.header, request.group
        name = header.topic
        self._tables.offsets.pulled(header.consumer_group, name, header.queue_id, found.next_offset)
        status, next_offset = found.status, found.next_offset
        # Enum members are slow keys, so compare the ordinary status directly.
        if status is GetStatus.FOUND:
            code, status_text = ResponseCode.SUCCESS, "FOUND"
            self._stats.found += 1
            traffic = self._stats.got(name, header.consumer_group)
            traffic.add(header.queue_id, found.count, len(found.records))
            if cold_ms is not None:
                traffic.add_cold(header.queue_id, found.count, len(found.records), cold_ms)
            settings = self._tables.settings
            if settings.disable_consume_if_consumer_read_slowly and self._store.settings.disk_fall_recorded:
                last = found.parts[-1]
                behind = self._store.end_offset - POSITION.unpack_from(last, AT["physical_offset"])[0] - len(last)
                self._stats.behind[name, header.consumer_group, header.queue_id] = behind
        else:
            code, status_text = self._code(found, header.queue_offset), status_name(status)
            self._stats.missed += 1
            if code is ResponseCode.PULL_NOT_FOUND:
                # A consumer whose offset is beyond this copy's end retains its offset.
                next_offset = max(next_offset, header.queue_offset)
            if self._replication.near_master:
                # A consumer at the end of a slave's queue returns to the master (broker.md §9.5).
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        suggested = suggested_broker(self._tables.settings, group, found)
        return pull_reply(
            request.command.opaque,
            code,
            remark or status_text,
            next_offset,
            found.min_offset,
            found.max_offset,
            suggested,
            group.group_sys_flag,
            request.topic.topic_sys_flag,
            found.records,
        )

    def dictated(self, request: PullRequest, offset: int) -> Reply:
        """Return the reply that makes the consumer continue at another offset than it requested.

        Args:
            request: the pull.
            offset: queue offset to continue at.
        """
        header = request.header
        found = GetResult(
            GetStatus.OFFSET_TOO_SMALL,
            offset,
            max(self._store.min_offset(header.topic, header.queue_id), 0),
            max(self._store.max_offset(header.topic, header.queue_id), 0),
        )
        return self.answer(request, found, "OFFSET_RESET")

    def bounded(self, request: PullRequest, found: GetResult) -> GetResult:
        """Return the result of a read, without a corrected offset when this broker must not correct offsets."""
        header, offset = request.header, request.reading.offset
        if not self._replication.corrects_offsets:
            return without_correction(found, offset)
        if found.status is not GetStatus.OFFSET_OVERFLOW_BADLY:
            return found
        committed = self._tables.offsets.committed(header.consumer_group, header.topic, header.queue_id)
        return back_to_committed(found, committed)

    def may_wait(self, header: Any, found: GetResult) -> bool:
        """Whether a pull may wait for messages instead of a reply now.

        Args:
            header: header fields of the pull.
            found: result of the read.
        """
        # Nearly all waiting pulls are at the end of their queue; a look-up of other statuses is slow.
        at_end = found.status is GetStatus.OFFSET_OVERFLOW_ONE
        code = ResponseCode.PULL_NOT_FOUND if at_end else self._code(found, header.queue_offset)
        suspends = code is ResponseCode.PULL_NOT_FOUND and header.sys_flag & SUSPEND != 0
        return suspends and not self._replication.near_master

    def _code(self, found: GetResult, offset: int) -> ResponseCode:
        unknown = found.status in OUTSIDE and not self._replication.corrects_offsets
        return ResponseCode.PULL_NOT_FOUND if unknown else pull_code(found.status, offset)
