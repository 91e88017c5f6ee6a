"""Routes (105, 217), cluster information (106) and broker member groups (901), wire.md §8.1, §8.2, §8.9."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from tianzhou.model import BrokerData, ClusterInfo, QueueData, TopicRoute
from tianzhou.wire.bodies.beans import (
    ANY,
    BOOLEAN,
    INTEGER,
    TEXT,
    Bean,
    Kind,
    list_of,
    load_member,
    map_of,
    read_object,
)
from tianzhou.wire.hashing import Octets
from tianzhou.wire.json_dialect import dumps, dumps_slices, dumps_standard

_ADDRESSES: Final = map_of(INTEGER, TEXT)
_SORTED_ADDRESSES: Final = Kind(lambda addresses: dict(sorted(addresses.items())), _ADDRESSES.read)

_QUEUE_DATA: Final = Bean(
    QueueData,
    broker_name=TEXT,
    read_queue_nums=INTEGER,
    write_queue_nums=INTEGER,
    perm=INTEGER,
    topic_sys_flag=INTEGER,
)
_BROKER_DATA: Final = Bean(
    BrokerData,
    broker_name=TEXT,
    cluster=TEXT,
    broker_addrs=_SORTED_ADDRESSES,
    enable_acting_master=BOOLEAN,
    zone_name=TEXT,
)


def _read_queue_data(value: Any, where: str) -> QueueData:
    members = read_object(value, where)
    if "topicSysFlag" not in members and "topicSynFlag" in members:
        # The name up to 4.8, and the Go client's.
        members = members | {"topicSysFlag": members["topicSynFlag"]}
    return _QUEUE_DATA.decode(members, where)


_ROUTE: Final = Bean(
    TopicRoute,
    queue_datas=list_of(Kind(_QUEUE_DATA.encode, _read_queue_data)),
    broker_datas=list_of(_BROKER_DATA.kind),
    order_topic_conf=TEXT,
    filter_server_table=map_of(TEXT, list_of(TEXT)),
    topic_queue_mapping_by_broker=map_of(TEXT, ANY),
)
_CLUSTER: Final = Bean(
    ClusterInfo,
    broker_addr_table=map_of(TEXT, _BROKER_DATA.kind),
    cluster_addr_table=map_of(TEXT, list_of(TEXT)),
)


def encode_route(route: TopicRoute, standard: bool) -> bytes:
    """The route of a topic.

    Args:
        route: what the name server knows.
        standard: quoted broker ids and escaped text, for callers from version 401 on or that ask for it; the
            others get fastjson's dialect.
    """
    members = _ROUTE.encode(route)
    return dumps_standard(members, sort_keys=False) if standard else dumps(members, sort_keys=False)


def write_route(route: TopicRoute, standard: bool) -> Generator[None, None, bytes]:
    """As `encode_route`, in slices."""
    return dumps_slices(_ROUTE.lazily(route), standard=standard)


def decode_route(data: Octets) -> TopicRoute:
    """The route in either form; raises ProtocolError."""
    return _ROUTE.loads(data)


def encode_cluster_info(info: ClusterInfo) -> bytes:
    """All brokers and clusters; always with bare broker ids."""
    return _CLUSTER.dumps(info)


def write_cluster_info(info: ClusterInfo) -> Generator[None, None, bytes]:
    """As `encode_cluster_info`, in slices."""
    return _CLUSTER.slices(info)


def decode_cluster_info(data: Octets) -> ClusterInfo:
    """All brokers and clusters; raises ProtocolError."""
    return _CLUSTER.loads(data)


def encode_member_group(broker: BrokerData) -> bytes:
    """The members of one broker name (901)."""
    members = {
        "brokerAddrs": _SORTED_ADDRESSES.write(broker.broker_addrs),
        "brokerName": broker.broker_name,
        "cluster": broker.cluster,
    }
    return dumps({"brokerMemberGroup": members})


def decode_member_group(data: Octets) -> BrokerData | None:
    """The members of one broker name, None when the reply has none; raises ProtocolError."""
    found: BrokerData | None = load_member(data, "member group", "brokerMemberGroup", _BROKER_DATA.kind)
    return found
