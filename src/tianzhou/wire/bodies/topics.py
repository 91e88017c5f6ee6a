"""Topic configurations, alone (351), listed (18) and as a table (21), with its version (wire.md §9.1, §9.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tianzhou.model import DataVersion, TopicConfig
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

DATA_VERSION: Final = Bean(DataVersion, counter=INTEGER, timestamp=INTEGER, state_version=INTEGER)
_TOPIC_MEMBERS: Final = {
    "topic_name": TEXT,
    "read_queue_nums": INTEGER,
    "write_queue_nums": INTEGER,
    "perm": INTEGER,
    "topic_filter_type": TEXT,
    "topic_sys_flag": INTEGER,
    "order": BOOLEAN,
}
TOPIC_CONFIG: Final = Bean(TopicConfig, None, SORTED, **_TOPIC_MEMBERS, attributes=map_of(TEXT, TEXT))
# As 4.9 has them; it knows neither attributes nor the state version.
LEGACY_TOPIC_CONFIG: Final = Bean(TopicConfig, **_TOPIC_MEMBERS)
LEGACY_DATA_VERSION: Final = Bean(DataVersion, counter=INTEGER, timestamp=INTEGER)
TOPIC_CONFIGS: Final = Wrapper[list[TopicConfig]](
    "topic list", "topicConfigList", list_of(TOPIC_CONFIG.kind), list, SORTED
)
"""Several topics to create (18)."""


@dataclass(slots=True)
class TopicTable:
    """All topics of a broker (21) and the version of that table.

    The mapping members belong to static topics and are carried as JSON values.
    """

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, Any] = field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, Any] = field(default_factory=dict)


TOPIC_TABLE: Final = Bean(
    TopicTable,
    None,
    PLAIN,
    topic_config_table=map_of(TEXT, one_by_one(TOPIC_CONFIG)),
    data_version=DATA_VERSION.kind,
    mapping_data_version=DATA_VERSION.kind,
    topic_queue_mapping_detail_map=map_of(TEXT, ANY),
    topic_queue_mapping_info_map=map_of(TEXT, ANY),
)
LEGACY_TOPIC_TABLE: Final = Bean(
    TopicTable,
    topic_config_table=map_of(TEXT, LEGACY_TOPIC_CONFIG.kind),
    data_version=LEGACY_DATA_VERSION.kind,
)


@dataclass(slots=True)
class TopicList:
    """Names of topics (206, 224, 304, 305, 343); `broker_addr` is some broker that has them."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


TOPIC_LIST: Final = Bean(TopicList, topic_list=list_of(TEXT), broker_addr=TEXT)
