"""Consumer groups: one configuration (200, 352), several (225), the table of all (201), wire.md §9.3."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Final

from tianzhou.model import DataVersion, SubscriptionGroupConfig
from tianzhou.wire.bodies.beans import (
    ANY,
    BOOLEAN,
    INTEGER,
    TEXT,
    Bean,
    list_of,
    load_member,
    map_of,
)
from tianzhou.wire.bodies.topics import DATA_VERSION
from tianzhou.wire.hashing import Octets
from tianzhou.wire.json_dialect import Members, Written, dumps, dumps_plain, dumps_slices

SUBSCRIPTION_GROUP: Final = Bean(
    SubscriptionGroupConfig,
    group_name=TEXT,
    consume_enable=BOOLEAN,
    consume_from_min_enable=BOOLEAN,
    consume_broadcast_enable=BOOLEAN,
    consume_message_orderly=BOOLEAN,
    retry_queue_nums=INTEGER,
    retry_max_times=INTEGER,
    broker_id=INTEGER,
    which_broker_when_consume_slowly=INTEGER,
    notify_consumer_ids_changed_enable=BOOLEAN,
    group_sys_flag=INTEGER,
    consume_timeout_minute=INTEGER,
    attributes=map_of(TEXT, TEXT),
    group_retry_policy=map_of(TEXT, ANY),
    subscription_data_set=list_of(map_of(TEXT, ANY)),
)


def encode_subscription_group(config: SubscriptionGroupConfig) -> bytes:
    """One group."""
    return SUBSCRIPTION_GROUP.dumps(config)


def decode_subscription_group(data: Octets) -> SubscriptionGroupConfig:
    """One group; raises ProtocolError."""
    return SUBSCRIPTION_GROUP.loads(data)


def encode_subscription_group_list(configs: Iterable[SubscriptionGroupConfig]) -> bytes:
    """Several groups to create (225)."""
    return dumps({"groupConfigList": [SUBSCRIPTION_GROUP.encode(config) for config in configs]})


def decode_subscription_group_list(data: Octets) -> list[SubscriptionGroupConfig]:
    """Several groups to create; raises ProtocolError."""
    return load_member(data, "group list", "groupConfigList", list_of(SUBSCRIPTION_GROUP.kind)) or []


@dataclass(slots=True)
class SubscriptionGroupTable:
    """All groups of a broker and the version of that table; `forbidden_table` is group to topic to bit set."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)


SUBSCRIPTION_GROUP_TABLE: Final = Bean(
    SubscriptionGroupTable,
    subscription_group_table=map_of(TEXT, SUBSCRIPTION_GROUP.kind),
    data_version=DATA_VERSION.kind,
    forbidden_table=map_of(TEXT, map_of(TEXT, INTEGER)),
)


def encode_subscription_group_table(table: SubscriptionGroupTable) -> bytes:
    """All groups of a broker."""
    return dumps_plain(SUBSCRIPTION_GROUP_TABLE.encode(table))


def write_subscription_group_table(table: SubscriptionGroupTable) -> Generator[None, None, bytes]:
    """As `encode_subscription_group_table`, in slices."""
    members = SUBSCRIPTION_GROUP_TABLE.lazily(table)
    members["subscriptionGroupTable"] = Members(
        (name, Written(dumps_plain(SUBSCRIPTION_GROUP.encode(config)), "utf-8"))
        for name, config in table.subscription_group_table.items()
    )
    return dumps_slices(members)


def decode_subscription_group_table(data: Octets) -> SubscriptionGroupTable:
    """All groups of a broker; raises ProtocolError."""
    return SUBSCRIPTION_GROUP_TABLE.loads(data)


def encode_group_list(groups: Iterable[str]) -> bytes:
    """Names of groups (300)."""
    return dumps({"groupList": list(groups)})


def write_group_list(groups: Iterable[str]) -> Generator[None, None, bytes]:
    """As `encode_group_list`, in slices."""
    return dumps_slices({"groupList": iter(groups)})


def decode_group_list(data: Octets) -> list[str]:
    """Names of groups; raises ProtocolError."""
    return load_member(data, "group list", "groupList", list_of(TEXT)) or []
