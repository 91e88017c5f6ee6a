"""Header fields that carry names, by kind of name, and the check before a handler sees a request.

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
