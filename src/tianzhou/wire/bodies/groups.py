"""Consumer groups: one configuration (200, 352), several (225), the table of all (201), wire.md §9.3."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tianzhou.model import DataVersion, SubscriptionGroupConfig
from tianzhou.wire.bodies.beans import ANY, INTEGER, PLAIN, SORTED, TEXT, Bean, Wrapper, list_of, map_of, row_of
from tianzhou.wire.bodies.topics import DATA_VERSION

SUBSCRIPTION_GROUP: Final = Bean(SubscriptionGroupConfig, subscription_data_set=list_of(map_of(TEXT, ANY)))
SUBSCRIPTION_GROUPS: Final = Wrapper[list[SubscriptionGroupConfig]](
    "group list", "groupConfigList", list_of(SUBSCRIPTION_GROUP.kind), list, SORTED
)
"""Several groups to create (225)."""
GROUP_LIST: Final = Wrapper[list[str]]("group list", "groupList", list_of(TEXT), list)
"""Names of groups (300)."""


@dataclass(slots=True)
class SubscriptionGroupTable:
    """All groups of a broker and the version of that table; `forbidden_table` maps group to topic to bit set."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)


SUBSCRIPTION_GROUP_TABLE: Final = Bean(
    SubscriptionGroupTable,
    {},
    PLAIN,
    subscription_group_table=map_of(TEXT, row_of(SUBSCRIPTION_GROUP)),
    data_version=DATA_VERSION.kind,
    forbidden_table=map_of(TEXT, map_of(TEXT, INTEGER)),
)
