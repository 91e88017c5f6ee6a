"""Response codes and remarks of put results (broker.md §7.3)."""

from __future__ import annotations

from tianzhou.store.results import PutResult, PutStatus
from tianzhou.wire.codes import ResponseCode

_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}
_REMARKS = {
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "in-sync replicas not enough",
    PutStatus.CREATE_MAPPED_FILE_FAILED: "create mapped file failed, server is busy or broken.",
    PutStatus.OS_PAGE_CACHE_BUSY: "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
}
_UNCONFIRMED = (
    f"{_REMARKS[PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH]}: no majority of the DLedger group has confirmed this message, "
    "and it is not known whether the group keeps it; send it again"
)
_STORED = frozenset(
    {
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    }
)


def is_stored(status: PutStatus) -> bool:
    """Whether the message is in the store, even if it is not flushed or replicated."""
    return status in _STORED


def code_of(status: PutStatus) -> ResponseCode:
    """Return the response code of a put status."""
    return _CODES.get(status, ResponseCode.SYSTEM_ERROR)


def unsettled_remark(status: PutStatus) -> str | None:
    """Return the remark of a stored message that may not be safe; None when the code is sufficient."""
    return _UNCONFIRMED if status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH else None


def remark_of(result: PutResult) -> str:
    """Return the remark of a put that stored no message."""
    return " ".join(part for part in (_REMARKS.get(result.status), result.remark) if part) or result.status.name
