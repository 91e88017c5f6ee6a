"""Header fields that carry names, by kind of name, and the check before a handler sees a request.

The field's name determines its rule, so new request codes are checked as well. `_OF_CODE` has the exceptions: codes
where a field has another meaning. The check passes missing and empty fields to the handler, because some codes have an
answer of their own for them (docs/spec/traps.md, 23).
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
"""Marks a text that is no name. Its reader parses, compares or forwards it and limits its length."""

BY_FIELD: Final[Mapping[str, NameRule | None]] = {
    name: rule
    for rule, names in (
        (rules.TOPIC, "topic defaultTopic originTopic"),
        (rules.GROUP, "group groupName consumerGroup producerGroup srcGroup destGroup compareGroup"),
        (rules.LIST, "topicList filterGroups"),
        (rules.CLIENT_ID, "clientID clientId clientAddr proxyFrowardClientId Owner"),
        (rules.CLUSTER, "clusterName cluster brokerClusterName"),
        (rules.BROKER, "brokerName bname coordinator"),
        (
            rules.ADDRESS,
            """brokerAddr brokerAddress haServerAddr haBrokerAddr masterAddress masterHaAddress minBrokerAddr
            offlineBrokerAddr bornHost storeHost""",
        ),
        (rules.ZONE, "__ZONE_NAME"),
        (rules.NAMESPACE, "namespace ns"),
        (rules.KV_KEY, "key"),
        (rules.MESSAGE_ID, "msgId offsetMsgId originMsgId transactionId"),
        (rules.STATISTIC, "statsName statsKey"),
        (rules.WRITER, "writer attempt username subject accessKey"),
        (
            FREE,
            """properties subscription expressionType expType exp extraInfo attemptId attributes topicFilterType value
            recallHandle configPath configType typeName READ_AHEAD_MODE __ZONE_MODE registerCheckCode
            brokerControllerIdsToClean secretKey whiteRemoteAddress defaultTopicPerm defaultGroupPerm topicPerms
            groupPerms globalWhiteAddrs aclFileFullPath filter policyType resource subjectFilter resourceFilter
            AccessKey Signature SecurityToken""",
        ),
    )
    for name in names.split()
}
"""Every text field of a request header by its name."""

_OF_CODE: Final[Mapping[int, Mapping[str, NameRule | None]]] = {
    12: {"key": FREE},  # a message's key; only its hash is used
    31002: {"writer": FREE, "attempt": FREE, "coordinator": FREE},  # the handler of units checks these
    105: {"topic": FREE},  # clients expect TOPIC_NOT_EXIST for "no route", so the handler checks the topic
}
_UNLISTED: Final = ("Owner",)
"""Fields that old clients add to requests of any code."""


@functools.cache
def name_fields(code: int) -> tuple[tuple[str, NameRule], ...]:
    """Return the header fields of a request code that are names, by their names on the wire, with their rules."""
    special = _OF_CODE.get(code, {})
    texts = [(field.wire, field.name) for field in request_fields(code) if field.kind == "s"]
    texts += [(name, name) for name in _UNLISTED]
    found = [(wire, special.get(name, BY_FIELD[name])) for wire, name in texts]
    return tuple((wire, rule) for wire, rule in found if rule is not None)


def behind_names(code: int, handle: Callable[[Any, Command], Answer]) -> Callable[[Any, Command], Answer]:
    """Return a handler that gets only requests with valid names.

    Sends and pulls are not checked here: their handlers look topics and groups up, and check new ones.
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
