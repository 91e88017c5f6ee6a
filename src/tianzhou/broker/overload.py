"""Overload: refusals of requests while the broker is busy (broker.md §6)."""

from __future__ import annotations

from typing import Final

from tianzhou.broker.settings import BrokerSettings
from tianzhou.wire.codes import RequestCode as Code

_SEND: Final = (
    Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK, Code.RECALL_MESSAGE,
)  # fmt: skip
_NEVER: Final = frozenset(
    map(
        int,
        (
            Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2, Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID,
            Code.UNREGISTER_CLIENT, Code.CHECK_CLIENT_CONFIG, Code.GET_CONSUMER_LIST_BY_GROUP,
            Code.UPDATE_CONSUMER_OFFSET, Code.QUERY_CONSUMER_OFFSET,
        ),
    )
)  # fmt: skip
"""Requests that are never refused for age, as in Apache's broker; for example, a late commit is still useful."""
_POOLS: Final[dict[int, tuple[str, str]]] = {
    **dict.fromkeys(map(int, _SEND), ("waitTimeMillsInSendQueue", "wait_time_mills_in_send_queue")),
    int(Code.PULL_MESSAGE): ("waitTimeMillsInPullQueue", "wait_time_mills_in_pull_queue"),
    int(Code.LITE_PULL_MESSAGE): ("waitTimeMillsInLitePullQueue", "wait_time_mills_in_lite_pull_queue"),
    int(Code.HEART_BEAT): ("waitTimeMillsInHeartbeatQueue", "wait_time_mills_in_heartbeat_queue"),
    int(Code.END_TRANSACTION): ("waitTimeMillsInTransactionQueue", "wait_time_mills_in_transaction_queue"),
}
_OTHERS: Final = ("waitTimeMillsInAdminBrokerQueue", "wait_time_mills_in_admin_broker_queue")


def waited_too_long(code: int, waited_ms: float, settings: BrokerSettings) -> str | None:
    """Return the refusal of a request that has waited too long; None when it is served.

    Args:
        code: code of the request.
        waited_ms: minimum ms that the request has waited.
        settings: limits.
    """
    if code in _NEVER:
        return None
    key, name = _POOLS.get(code, _OTHERS)
    limit = getattr(settings, name)
    if not settings.broker_fast_failure_enable or waited_ms <= limit:
        return None
    return (
        f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {waited_ms:.0f}ms, "
        f"{key}={limit}; send less, spread the load over more brokers, or raise {key}"
    )


def too_many_waiting(waiting: int, settings: BrokerSettings) -> str | None:
    """Return the refusal of a send while `waiting` others wait for the disk; None when it is served."""
    limit = settings.send_thread_pool_queue_capacity
    if waiting < limit:
        return None
    return (
        f"[OVERLOAD]system busy, start flow control for a while, {waiting} messages wait for the disk, "
        f"sendThreadPoolQueueCapacity={limit}; send less, use a faster disk, or raise it"
    )
