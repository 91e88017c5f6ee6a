"""Which header field of which request carries which kind of name, and the check before a handler sees the request.

A field is known by its name, so that a new request code is judged before anybody has thought of it; where a code means
something else by a name, `_OF_CODE` says so. What is missing or empty is left to the handler: for some codes that is an
answer of its own (docs/spec/traps.md, 23).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from tianzhou.model import name_rules as rules
from tianzhou.model.name_rules import NameRule
from tianzhou.wire.command import Command
from tianzhou.wire.fields import HOT_CODES, request_fields

Answer = TypeVar("Answer")

FREE: Final = None
"""Stands for a text that names nothing: it is parsed, compared or handed on, and bounded by whoever does so."""

BY_FIELD: Final[Mapping[str, NameRule | None]] = {
    "topic": rules.TOPIC,
    "defaultTopic": rules.TOPIC,
    "originTopic": rules.TOPIC,
    "group": rules.GROUP,
    "groupName": rules.GROUP,
    "consumerGroup": rules.GROUP,
    "producerGroup": rules.GROUP,
    "srcGroup": rules.GROUP,
    "destGroup": rules.GROUP,
    "compareGroup": rules.GROUP,
    "topicList": rules.LIST,
    "filterGroups": rules.LIST,
    "clientID": rules.CLIENT_ID,
    "clientId": rules.CLIENT_ID,
    "clientAddr": rules.CLIENT_ID,
    "proxyFrowardClientId": rules.CLIENT_ID,
    "Owner": rules.CLIENT_ID,
    "clusterName": rules.CLUSTER,
    "cluster": rules.CLUSTER,
    "brokerClusterName": rules.CLUSTER,
    "brokerName": rules.BROKER,
    "bname": rules.BROKER,
    "coordinator": rules.BROKER,
    "brokerAddr": rules.ADDRESS,
    "brokerAddress": rules.ADDRESS,
    "haServerAddr": rules.ADDRESS,
    "haBrokerAddr": rules.ADDRESS,
    "masterAddress": rules.ADDRESS,
    "masterHaAddress": rules.ADDRESS,
    "minBrokerAddr": rules.ADDRESS,
    "offlineBrokerAddr": rules.ADDRESS,
    "bornHost": rules.ADDRESS,
    "storeHost": rules.ADDRESS,
    "__ZONE_NAME": rules.ZONE,
    "namespace": rules.NAMESPACE,
    "ns": rules.NAMESPACE,
    "key": rules.KV_KEY,
    "msgId": rules.MESSAGE_ID,
    "offsetMsgId": rules.MESSAGE_ID,
    "originMsgId": rules.MESSAGE_ID,
    "transactionId": rules.MESSAGE_ID,
    "statsName": rules.STATISTIC,
    "statsKey": rules.STATISTIC,
    "writer": rules.WRITER,
    "attempt": rules.WRITER,
    "username": rules.WRITER,
    "subject": rules.WRITER,
    "accessKey": rules.WRITER,
    "properties": FREE,
    "subscription": FREE,
    "expressionType": FREE,
    "expType": FREE,
    "exp": FREE,
    "extraInfo": FREE,
    "attemptId": FREE,
    "attributes": FREE,
    "topicFilterType": FREE,
    "value": FREE,
    "recallHandle": FREE,
    "configPath": FREE,
    "configType": FREE,
    "typeName": FREE,
    "READ_AHEAD_MODE": FREE,
    "__ZONE_MODE": FREE,
    "registerCheckCode": FREE,
    "brokerControllerIdsToClean": FREE,
    "secretKey": FREE,
    "whiteRemoteAddress": FREE,
    "defaultTopicPerm": FREE,
    "defaultGroupPerm": FREE,
    "topicPerms": FREE,
    "groupPerms": FREE,
    "globalWhiteAddrs": FREE,
    "aclFileFullPath": FREE,
    "filter": FREE,
    "policyType": FREE,
    "resource": FREE,
    "subjectFilter": FREE,
    "resourceFilter": FREE,
}
"""Every text field of a request header by its name."""

_OF_CODE: Final[Mapping[int, Mapping[str, NameRule | None]]] = {
    12: {"key": FREE},  # a message's key, of which only the hash counts
    31002: {"writer": FREE, "attempt": FREE, "coordinator": FREE},  # judged where units are, with blank ones
    105: {"topic": FREE},  # clients know "no route" only by TOPIC_NOT_EXIST, so the handler says it
}
_UNLISTED: Final = ("Owner",)
"""Fields that old clients add to requests of any code."""


@functools.cache
def name_fields(code: int) -> tuple[tuple[str, NameRule], ...]:
    """The header fields of a request code that are names, as they are called on the wire, and their rules."""
    special = _OF_CODE.get(code, {})
    texts = [(field.wire, field.name) for field in request_fields(code) if field.kind == "s"]
    texts += [(name, name) for name in _UNLISTED]
    found = [(wire, special.get(name, BY_FIELD[name])) for wire, name in texts]
    return tuple((wire, rule) for wire, rule in found if rule is not None)


def behind_names(code: int, handle: Callable[[Any, Command], Answer]) -> Callable[[Any, Command], Answer]:
    """A handler that sees only requests whose names are names.

    Sends and pulls are handed on as they are: their topics and groups are looked up, and judged where they come to be.
    """
    if code in HOT_CODES:
        return handle
    names = name_fields(code)

    def judged(connection: Any, request: Command) -> Answer:
        fields = request.fields
        for wire, rule in names:
            text = fields.get(wire)
            if text:
                rule.check(text)
        return handle(connection, request)

    return judged
