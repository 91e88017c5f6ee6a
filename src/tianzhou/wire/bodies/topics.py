"""Topic configurations, alone (351), listed (18) and as a table (21), with its version (wire.md §9.1, §9.2)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tianzhou.model import DataVersion, TopicConfig
from tianzhou.wire.bodies.beans import ANY, BOOLEAN, INTEGER, TEXT, Bean, list_of, load_member, map_of
from tianzhou.wire.hashing import Octets
from tianzhou.wire.json_dialect import Members, Written, dumps, dumps_plain, dumps_slices

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
TOPIC_CONFIG: Final = Bean(TopicConfig, **_TOPIC_MEMBERS, attributes=map_of(TEXT, TEXT))
# As 4.9 has them; it knows neither attributes nor the state version.
LEGACY_TOPIC_CONFIG: Final = Bean(TopicConfig, **_TOPIC_MEMBERS)
LEGACY_DATA_VERSION: Final = Bean(DataVersion, counter=INTEGER, timestamp=INTEGER)


def encode_data_version(version: DataVersion) -> bytes:
    """The version stamp of a table (322, and a header field of 26)."""
    return DATA_VERSION.dumps(version)


def decode_data_version(data: Octets) -> DataVersion:
    """The version stamp of a table; raises ProtocolError."""
    return DATA_VERSION.loads(data)


def encode_topic_config(config: TopicConfig, mapping_detail: Mapping[str, Any] | None = None) -> bytes:
    """One topic; `mapping_detail` is the queue mapping of a static topic (wire.md §9.4)."""
    members = TOPIC_CONFIG.encode(config)
    if mapping_detail is not None:
        members["mappingDetail"] = mapping_detail
    return dumps(members)


def decode_topic_config(data: Octets) -> TopicConfig:
    """One topic; raises ProtocolError."""
    return TOPIC_CONFIG.loads(data)


def encode_topic_config_list(configs: Iterable[TopicConfig]) -> bytes:
    """Several topics to create (18)."""
    return dumps({"topicConfigList": [TOPIC_CONFIG.encode(config) for config in configs]})


def decode_topic_config_list(data: Octets) -> list[TopicConfig]:
    """Several topics to create; raises ProtocolError."""
    return load_member(data, "topic list", "topicConfigList", list_of(TOPIC_CONFIG.kind)) or []


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
    topic_config_table=map_of(TEXT, TOPIC_CONFIG.kind),
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


def encode_topic_table(table: TopicTable) -> bytes:
    """All topics of a broker."""
    return dumps_plain(TOPIC_TABLE.encode(table))


def write_topic_table(table: TopicTable) -> Generator[None, None, bytes]:
    """As `encode_topic_table`, in slices."""
    members = TOPIC_TABLE.lazily(table)
    members["topicConfigTable"] = Members(
        (name, Written(dumps_plain(TOPIC_CONFIG.encode(config)), "utf-8"))
        for name, config in table.topic_config_table.items()
    )
    return dumps_slices(members)


def decode_topic_table(data: Octets) -> TopicTable:
    """All topics of a broker; raises ProtocolError."""
    return TOPIC_TABLE.loads(data)


@dataclass(slots=True)
class TopicList:
    """Names of topics (206, 224, 304, 305, 343); `broker_addr` is some broker that has them."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


_TOPIC_LIST: Final = Bean(TopicList, topic_list=list_of(TEXT), broker_addr=TEXT)


def encode_topic_list(topics: Iterable[str], broker_addr: str | None = None) -> bytes:
    """Names of topics."""
    return _TOPIC_LIST.dumps(TopicList(list(topics), broker_addr))


def write_topic_list(topics: Iterable[str], broker_addr: str | None = None) -> Generator[None, None, bytes]:
    """As `encode_topic_list`, in slices."""
    return dumps_slices({"brokerAddr": broker_addr, "topicList": iter(topics)})


def decode_topic_list(data: Octets) -> TopicList:
    """Names of topics; raises ProtocolError."""
    return _TOPIC_LIST.loads(data)
