"""Errors for failure replies, with a remedy for the caller (wire.md §2). Pure."""

from __future__ import annotations

import re

from tianzhou.errors import BrokerError
from tianzhou.wire.codes import OF_NAME_SERVERS, RequestCode, ResponseCode, request_name, server_of
from tianzhou.wire.command import Command

EVERY_BROKER = frozenset(
    {
        RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT,
        RequestCode.GET_BROKER_CONFIG, RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.GET_MAX_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
    }
)  # fmt: skip
"""Requests that brokers of all versions serve."""

HINTS: dict[int, str] = {
    ResponseCode.SYSTEM_BUSY: "the broker sheds load: send less, or try again later",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "this server does not serve the request; it may be older than this client",
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


_DEFECT = re.compile(r"(Error|Exception)\b")
_NOT_SUPPORTED = re.compile(r"request type (\d+) not supported(.*)", re.DOTALL)
_PORTS = "a name server's port is 9876 as a rule, a broker's 10911"
_NO_SQL = "does not support consumer to filter message by"


def broker_error(reply: Command, address: str = "") -> BrokerError:
    """Return the error for a failure reply.

    Args:
        reply: the reply.
        address: its sender, `host:port`.
    """
    remark, hint = reply.remark or "no remark", HINTS.get(reply.code, "")
    if _NO_SQL in remark:
        hint = "set enablePropertyFilter=true at the broker"
    elif reply.code == ResponseCode.NO_PERMISSION and "configuration file" in remark:
        hint = ""  # the remark names the key
    elif reply.code == ResponseCode.SYSTEM_ERROR and (not reply.remark or _DEFECT.search(remark)):
        hint = "the server's log has the cause"
    elif reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and (found := _NOT_SUPPORTED.search(remark)):
        own_remedy = found[2] and " is served by a " not in found[2]
        hint = "" if own_remedy else _wrong_server(int(found[1]), found[2]) or hint
    return BrokerError(reply.code, remark, hint=hint, address=address)


def _wrong_server(code: int, rest: str) -> str:
    """Return the hint that a request went to the wrong kind of server; empty when its code does not show that."""
    if rest:
        return _PORTS  # the remark names the kind of server
    wanted = server_of(code)
    if code in OF_NAME_SERVERS:
        return f"{request_name(code)} is served by a {wanted}, and this seems to be a broker; {_PORTS}"
    if code in EVERY_BROKER:
        return f"{request_name(code)} is served by a {wanted}, and this seems to be a name server; {_PORTS}"
    return ""


def check(reply: Command, address: str = "") -> Command:
    """Return a success reply unchanged.

    Raises:
        BrokerError: the reply's code is not 0.
    """
    if reply.code != ResponseCode.SUCCESS:
        raise broker_error(reply, address)
    return reply
