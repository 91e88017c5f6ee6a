"""What a caller can do about an answer that is no success (wire.md §2). Pure."""

from __future__ import annotations

from tianzhou.errors import BrokerError
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command

HINTS: dict[int, str] = {
    ResponseCode.SYSTEM_ERROR: "the broker's log has the cause",
    ResponseCode.SYSTEM_BUSY: "the broker sheds load: send less, or try again later",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "this server is too old for the request, or of another kind",
    ResponseCode.MESSAGE_ILLEGAL: "a size, property or delay limit of the broker is exceeded; the remark says which",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker takes no writes: its disk is full, it is a slave or it stops",
    ResponseCode.NO_PERMISSION: "check the permission of broker, topic and group, and the credentials",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic, or switch autoCreateTopicEnable on at the broker",
    ResponseCode.QUERY_NOT_FOUND: "nothing is stored under that name",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "correct the filter expression",
    ResponseCode.SUBSCRIPTION_NOT_EXIST: "the broker has no heartbeat of this group with this topic yet; one is sent",
    ResponseCode.SUBSCRIPTION_NOT_LATEST: "the broker holds an older subscription; a heartbeat is sent",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create the group, or switch autoCreateSubscriptionGroup on",
    ResponseCode.INVALID_PARAMETER: "queue id, topic name or another value is out of range; the remark says which",
    ResponseCode.CONSUMER_NOT_ONLINE: "no member of the group is connected",
    ResponseCode.CONSUME_MSG_TIMEOUT: "the client did not answer within ten seconds",
    ResponseCode.GO_AWAY: "the server shuts down; the next attempt goes elsewhere",
}


_NO_SQL = "does not support consumer to filter message by"


def broker_error(reply: Command, address: str = "") -> BrokerError:
    """The error for a reply whose code means failure.

    Args:
        reply: the reply.
        address: who sent it, `host:port`.
    """
    remark, hint = reply.remark or "no remark", HINTS.get(reply.code, "")
    if _NO_SQL in remark:
        hint = "set enablePropertyFilter=true at the broker"
    return BrokerError(reply.code, remark, hint=hint, address=address)


def check(reply: Command, address: str = "") -> Command:
    """The reply itself when it is a success.

    Raises:
        BrokerError: its code is not 0.
    """
    if reply.code != ResponseCode.SUCCESS:
        raise broker_error(reply, address)
    return reply
