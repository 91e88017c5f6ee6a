"""Topic configurations: alone (351), as a list (18), and as a table with its version (21), wire.md §9.1, §9.2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tianzhou.model import DataVersion, TopicConfig
from tianzhou.wire.bodies.beans import IN_ORDER, PLAIN, SORTED, TEXT, Bean, Wrapper, list_of, map_of, row_of

DATA_VERSION: Final = Bean(DataVersion)
TOPIC_CONFIG: Final = Bean(TopicConfig, {}, SORTED)
# The shapes of 4.9, which has neither attributes nor the state version.
LEGACY_TOPIC_CONFIG: Final = Bean(TopicConfig, {}, IN_ORDER, ("attributes",))
LEGACY_DATA_VERSION: Final = Bean(DataVersion, {}, IN_ORDER, ("state_version",))
TOPIC_CONFIGS: Final = Wrapper[list[TopicConfig]](
    "topic list", "topicConfigList", list_of(TOPIC_CONFIG.kind), list, SORTED
)
"""Several topics to create (18)."""


@dataclass(slots=True)
class TopicTable:
    """All topics of a broker (21) and the version of that table.

    The mapping members belong to static topics; their values are raw JSON values.
    """

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, Any] = field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, Any] = field(default_factory=dict)


TOPIC_TABLE: Final = Bean(
    TopicTable,
    {},
    PLAIN,
    topic_config_table=map_of(TEXT, row_of(TOPIC_CONFIG)),
    data_version=DATA_VERSION.kind,
    mapping_data_version=DATA_VERSION.kind,
)
LEGACY_TOPIC_TABLE: Final = Bean(
    TopicTable,
    {},
    IN_ORDER,
    ("mapping_data_version", "topic_queue_mapping_detail_map", "topic_queue_mapping_info_map"),
    topic_config_table=map_of(TEXT, LEGACY_TOPIC_CONFIG.kind),
    data_version=LEGACY_DATA_VERSION.kind,
)


@dataclass(slots=True)
class TopicList:
    """Names of topics (206, 224, 304, 305, 343); `broker_addr` is any broker that has them."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


TOPIC_LIST: Final = Bean(TopicList, topic_list=list_of(TEXT), broker_addr=TEXT)
