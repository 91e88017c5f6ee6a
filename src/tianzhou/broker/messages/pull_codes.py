"""Response codes and remarks of what pulls find (broker.md §9.4)."""

from __future__ import annotations

from tianzhou.store.results import GetStatus
from tianzhou.wire.codes import ResponseCode

_MISSING_QUEUE = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
BEYOND = (*_MISSING_QUEUE, GetStatus.OFFSET_OVERFLOW_BADLY)
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
"""A queue that the topic has is there, with or without messages; Apache's broker makes its files on request."""


def status_name(status: GetStatus) -> str:
    """What a remark calls a status."""
    return _NAMES.get(status, status.name)


def pull_code(status: GetStatus, offset: int) -> ResponseCode:
    """The response code for what was found at an offset (broker.md §9.4)."""
    if status in _MISSING_QUEUE:
        return ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return _CODES[status]
