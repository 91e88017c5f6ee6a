"""Heartbeats (34) and checks of a client's configuration (46), wire.md §7.1, §7.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tianzhou.model import ConsumeFromWhere, ConsumerData, ConsumeType, HeartbeatData, MessageModel, SubscriptionData
from tianzhou.wire.bodies.beans import INTEGER, TEXT, Bean, MemberKind, enum_of, list_of, set_of

SUBSCRIPTION: Final = Bean(SubscriptionData, tags_set=set_of(TEXT), code_set=set_of(INTEGER))
CONSUME_TYPE: Final = enum_of(ConsumeType)
MESSAGE_MODEL: Final = enum_of(MessageModel, (MessageModel.BROADCASTING, MessageModel.CLUSTERING))
_LAST, _FIRST, _TIME = ConsumeFromWhere
CONSUME_FROM_WHERE: Final = enum_of(
    ConsumeFromWhere,
    # Three deprecated values lie between; clients treat each as a neighbouring one.
    (_LAST, _LAST, _FIRST, _LAST, _FIRST, _TIME),
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST=_LAST,
    CONSUME_FROM_MIN_OFFSET=_FIRST,
    CONSUME_FROM_MAX_OFFSET=_LAST,
)


@dataclass(slots=True)
class _Producer:
    group_name: str


_PRODUCER: Final = Bean(_Producer)
_PRODUCERS: Final = list_of(_PRODUCER.kind)
_CONSUMER: Final = Bean(
    ConsumerData,
    consume_type=CONSUME_TYPE,
    message_model=MESSAGE_MODEL,
    consume_from_where=CONSUME_FROM_WHERE,
    subscription_data_set=list_of(SUBSCRIPTION.kind),
)
HEARTBEAT: Final = Bean(
    HeartbeatData,
    {"client_id": "clientID", "producer_groups": "producerDataSet", "consumers": "consumerDataSet"},
    producer_groups=MemberKind(
        lambda groups: [{"groupName": group} for group in groups],
        lambda value, where: [producer.group_name for producer in _PRODUCERS.read(value, where)],
    ),
    consumers=list_of(_CONSUMER.kind),
)


@dataclass(slots=True)
class ClientConfigCheck:
    """A client's question whether a broker can evaluate its subscription (46)."""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


CLIENT_CONFIG_CHECK: Final = Bean(ClientConfigCheck, subscription_data=SUBSCRIPTION.kind)
