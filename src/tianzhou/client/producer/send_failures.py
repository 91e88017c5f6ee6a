"""Classification of failed sends: whether a later attempt can succeed (docs/howto/outbox.md). Pure.

The outbox and the rounds of `Producer(durable=True)` use this table.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tianzhou.errors import (
    BrokerError,
    NotDurable,
    NoWritableQueue,
    ProtocolError,
    RemotingError,
    TianzhouError,
    TopicUnavailable,
)
from tianzhou.wire.codes import ResponseCode


class FailureKind(Enum):
    """Kind of a failed send.

    Attributes:
        TEMPORARY: the state of the cluster is the cause, and the same message is accepted later.
        UNCERTAIN: the broker reports a defect without its cause, so later attempts may succeed.
        PERMANENT: the message, its sender's permissions or the sender's call is the cause.
    """

    TEMPORARY = "temporary"
    UNCERTAIN = "uncertain"
    PERMANENT = "permanent"


RESPONSE_KINDS: Final[dict[int, FailureKind]] = {
    ResponseCode.SYSTEM_BUSY: FailureKind.TEMPORARY,
    ResponseCode.SERVICE_NOT_AVAILABLE: FailureKind.TEMPORARY,
    ResponseCode.FLOW_CONTROL: FailureKind.TEMPORARY,
    ResponseCode.BROKER_NOT_EXIST: FailureKind.TEMPORARY,
    ResponseCode.NOT_LEADER_FOR_QUEUE: FailureKind.TEMPORARY,
    ResponseCode.GO_AWAY: FailureKind.TEMPORARY,
    ResponseCode.RPC_ADDR_IS_NULL: FailureKind.TEMPORARY,
    ResponseCode.RPC_SEND_TO_CHANNEL_FAILED: FailureKind.TEMPORARY,
    ResponseCode.RPC_TIME_OUT: FailureKind.TEMPORARY,
    ResponseCode.SYSTEM_ERROR: FailureKind.UNCERTAIN,
    ResponseCode.RPC_UNKNOWN: FailureKind.UNCERTAIN,
}
"""Kind of each response code of a send. All other codes are permanent."""
TEMPORARY_REMARKS: Final = (
    (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough"),
    (ResponseCode.NO_PERMISSION, "sending message is forbidden"),
)
"""Codes and parts of remarks of temporary failures: a slave is missing, or an operator closed a broker or a topic.

Brokers of RocketMQ 4.x and 5.x have the same remarks (broker.md §4.1).
"""


def failure_kind(error: TianzhouError) -> FailureKind:
    """Return the kind of a failed send.

    A `TopicUnavailable` of a topic without a route is permanent here. Name servers also forget the topics of brokers
    that are down, so the caller checks whether any broker is registered.

    Args:
        error: the error of the last attempt.
    """
    if isinstance(error, BrokerError):
        if any(error.code == code and text in error.remark for code, text in TEMPORARY_REMARKS):
            return FailureKind.TEMPORARY
        return RESPONSE_KINDS.get(error.code, FailureKind.PERMANENT)
    if isinstance(error, ProtocolError):
        return FailureKind.PERMANENT
    if isinstance(error, (RemotingError, NotDurable, NoWritableQueue)):
        return FailureKind.TEMPORARY
    return FailureKind.PERMANENT


def is_missing_topic(error: TianzhouError) -> bool:
    """Whether a send failed because no name server has a route of the topic."""
    return isinstance(error, TopicUnavailable) and not isinstance(error, NoWritableQueue)
