"""Routes (105, 217), cluster information (106) and broker member groups (901), wire.md §8.1, §8.2, §8.9."""

from __future__ import annotations

from typing import Any, Final

from tianzhou.model import BrokerData, ClusterInfo, QueueData, TopicRoute
from tianzhou.wire.bodies.beans import (
    IN_ORDER,
    INTEGER,
    STANDARD,
    TEXT,
    Bean,
    MemberKind,
    Wrapper,
    list_of,
    map_of,
    read_object,
)

_ADDRESSES: Final = map_of(INTEGER, TEXT)
_SORTED_ADDRESSES: Final = MemberKind(lambda addresses: dict(sorted(addresses.items())), _ADDRESSES.read)

_QUEUE_DATA: Final = Bean(QueueData)
_BROKER_DATA: Final = Bean(BrokerData, broker_addrs=_SORTED_ADDRESSES)


def _read_queue_data(value: Any, where: str) -> QueueData:
    members = read_object(value, where)
    if "topicSysFlag" not in members and "topicSynFlag" in members:
        # This is the name up to 4.8, and in the Go client.
        members = members | {"topicSysFlag": members["topicSynFlag"]}
    return _QUEUE_DATA.decode(members, where)


_ROUTE_MEMBERS: Final = {
    "queue_datas": list_of(MemberKind(_QUEUE_DATA.encode, _read_queue_data)),
    "broker_datas": list_of(_BROKER_DATA.kind),
    "filter_server_table": map_of(TEXT, list_of(TEXT)),
}
ROUTE: Final = Bean(TopicRoute, **_ROUTE_MEMBERS)
"""The route of a topic in fastjson's dialect. Its decoder accepts both forms."""
STANDARD_ROUTE: Final = Bean(TopicRoute, {}, STANDARD, **_ROUTE_MEMBERS)
"""The route with quoted broker ids and escaped text, for callers from version 401 on or on request."""
CLUSTER_INFO: Final = Bean(
    ClusterInfo, broker_addr_table=map_of(TEXT, _BROKER_DATA.kind), cluster_addr_table=map_of(TEXT, list_of(TEXT))
)
"""All brokers and clusters, always with unquoted broker ids."""
_MEMBER_GROUP: Final = Bean(
    BrokerData, {}, IN_ORDER, ("enable_acting_master", "zone_name"), broker_addrs=_SORTED_ADDRESSES
)
MEMBER_GROUP: Final = Wrapper[BrokerData | None](
    "member group", "brokerMemberGroup", MemberKind(_MEMBER_GROUP.encode, _BROKER_DATA.decode), lambda: None
)
"""The members of one broker name (901); None when the reply has none."""
