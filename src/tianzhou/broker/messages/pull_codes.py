"""Response codes and remarks for the results of pulls (broker.md §9.4)."""

from __future__ import annotations

from tianzhou.errors import BrokerError
from tianzhou.store.results import GetResult, GetStatus
from tianzhou.wire.codes import ResponseCode

_MISSING_QUEUE = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
OUTSIDE = (*_MISSING_QUEUE, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_TOO_SMALL)
"""Statuses of a read outside the queue's bounds: a master answers with a corrected offset."""
_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_NAMES = {GetStatus.NO_MATCHED_LOGIC_QUEUE: GetStatus.NO_MESSAGE_IN_QUEUE.name}
"""Status names in remarks.

A queue of a topic without files counts as empty, because Apache's broker creates its files on request.
"""


def status_name(status: GetStatus) -> str:
    """Return the name of a status in remarks."""
    return _NAMES.get(status, status.name)


def pull_code(status: GetStatus, offset: int) -> ResponseCode:
    """Return the response code for a read's status and offset (broker.md §9.4)."""
    if status in _MISSING_QUEUE:
        return ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return _CODES[status]


def without_correction(found: GetResult, offset: int) -> GetResult:
    """Return the result of a read at a copy that must not correct offsets: the requested offset stays the next one.

    A copy that is late ends before the messages that its consumers have consumed, and a copy that began late lacks the
    oldest messages. A consumer that took over such a bound would get messages twice, or would skip messages.

    Args:
        found: result of the read.
        offset: the requested queue offset.
    """
    if found.status not in OUTSIDE:
        return found
    return GetResult(found.status, offset, found.min_offset, found.max_offset)


def back_to_committed(found: GetResult, committed: int | None) -> GetResult:
    """Return the result of a read beyond the end of a queue, so that the consumer continues at its group's offset.

    Such a consumer has read messages that the queue has lost. New messages may have their offsets since, and the end of
    the queue may be after these messages.

    Args:
        found: the result, whose next offset is the end of the queue.
        committed: offset that the group has committed; None for none.
    """
    if committed is None or not found.min_offset <= committed < found.next_offset:
        return found
    return GetResult(found.status, committed, found.min_offset, found.max_offset)


class PullForbidden(BrokerError):
    """A pull that is refused with NO_PERMISSION.

    Args:
        kind: `forbiddenType` of the reply.
        remark: the reply's remark.
    """

    def __init__(self, kind: int, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.kind = kind
