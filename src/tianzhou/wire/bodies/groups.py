"""Consumer groups: one configuration (200, 352), several (225), the table of all (201), wire.md §9.3."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tianzhou.model import DataVersion, SubscriptionGroupConfig
from tianzhou.wire.bodies.beans import (
    ANY,
    BOOLEAN,
    INTEGER,
    PLAIN,
    SORTED,
    TEXT,
    Bean,
    Wrapper,
    list_of,
    map_of,
    one_by_one,
)
from tianzhou.wire.bodies.topics import DATA_VERSION

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
SUBSCRIPTION_GROUPS: Final = Wrapper[list[SubscriptionGroupConfig]](
    "group list", "groupConfigList", list_of(SUBSCRIPTION_GROUP.kind), list, SORTED
)
"""Several groups to create (225)."""
GROUP_LIST: Final = Wrapper[list[str]]("group list", "groupList", list_of(TEXT), list)
"""Names of groups (300)."""


@dataclass(slots=True)
class SubscriptionGroupTable:
    """All groups of a broker and the version of that table; `forbidden_table` is group to topic to bit set."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)


SUBSCRIPTION_GROUP_TABLE: Final = Bean(
    SubscriptionGroupTable,
    None,
    PLAIN,
    subscription_group_table=map_of(TEXT, one_by_one(SUBSCRIPTION_GROUP)),
    data_version=DATA_VERSION.kind,
    forbidden_table=map_of(TEXT, map_of(TEXT, INTEGER)),
)
