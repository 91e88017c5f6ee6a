"""Registrations of brokers at a name server (103): their topics, plain or compressed (wire.md §8.3)."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from itertools import islice
from struct import Struct
from typing import Any, Final

from tianzhou.errors import ProtocolError
from tianzhou.model import DataVersion, TopicConfig
from tianzhou.model.name_rules import TOPIC
from tianzhou.records.checksum import Octets
from tianzhou.wire.bodies.beans import (
    INTEGER,
    TEXT,
    list_of,
    load_object,
    map_of,
    read_boolean,
    read_integer,
    read_object,
    read_text,
)
from tianzhou.wire.bodies.topics import (
    DATA_VERSION,
    LEGACY_DATA_VERSION,
    LEGACY_TOPIC_TABLE,
    TOPIC_CONFIG,
    TOPIC_TABLE,
    TopicTable,
)
from tianzhou.wire.codes import V5_0_0, VERSION
from tianzhou.wire.compression import ZLIB, decompress
from tianzhou.wire.json_dialect import dumps, dumps_plain, loads

MAX_UNPACKED: Final = 64 << 20
TOPICS_A_STEP: Final = 256
"""Topics decoded before other tasks run; each takes some 3 µs."""

_LENGTH: Final = Struct(">i")
_SERVERS: Final = list_of(TEXT)
_ATTRIBUTES: Final = map_of(TEXT, TEXT)
_QUEUE_IDS: Final = map_of(INTEGER, INTEGER)


@dataclass(slots=True)
class RegisterBody:
    """A broker's topics and filter servers. The compressed form omits orders and system flags.

    Attributes:
        table: the topics.
        filter_servers: addresses.
        unfit: problems of the topic names that are invalid; these topics are not in the table.
    """

    table: TopicTable = field(default_factory=TopicTable)
    filter_servers: list[str] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RegisterCodec:
    """Codec of registrations for one version and form of sender.

    Attributes:
        version: version of the sender. Below `V5_0_0` bodies have the shape of 4.9, and the compressed form lacks its
            last section.
        compressed: whether bodies are compressed, as the header field of this name states.
    """

    version: int = VERSION
    compressed: bool = False

    def dumps(self, body: RegisterBody) -> bytes:
        """Encode the body of a registration."""
        if self.compressed:
            return zlib.compress(_pack(body, self.version))
        bean = TOPIC_TABLE if self.version >= V5_0_0 else LEGACY_TOPIC_TABLE
        members = {"filterServerList": body.filter_servers, "topicConfigSerializeWrapper": bean.encode(body.table)}
        return dumps_plain(members)

    def is_packed(self, data: Octets) -> bool:
        """Whether a body is compressed, even if its header states otherwise.

        5.3.3 with `compressedRegister` marks compressed bodies as plain.
        """
        return self.compressed or bytes(data[:1]) == b"\x78"

    def loads(self, data: Octets, limit_bytes: int = MAX_UNPACKED) -> RegisterBody:
        """Decode the topics and filter servers of a registration; an absent body is an empty table.

        Args:
            data: the body.
            limit_bytes: maximum size of the unpacked body.

        Raises:
            ProtocolError: the body cannot be decoded.
        """
        steps = self.load_in_steps(data, limit_bytes)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                body: RegisterBody = end.value
                return body

    def load_in_steps(self, data: Octets, limit_bytes: int = MAX_UNPACKED) -> Generator[None, None, RegisterBody]:
        """As `loads`, a few topics at a time. Other tasks can run at each yield."""
        if not data:
            return RegisterBody()
        if self.is_packed(data):
            return _unpack(decompress(data, ZLIB, limit_bytes), self.version)
        members = load_object(data, "register body")
        wrapper = members.get("topicConfigSerializeWrapper")
        if wrapper is None:
            # Versions up to 3.0.10 sent only the table.
            wrapper = members if "topicConfigTable" in members else {}
        topics = wrapper.get("topicConfigTable") if isinstance(wrapper, dict) else None
        if not isinstance(topics, dict) or len(topics) <= TOPICS_A_STEP:
            table = TOPIC_TABLE.decode(wrapper, "register body")
            unfit = _leave_out_unfit(table)
        else:
            yield
            table, unfit = TOPIC_TABLE.decode({**wrapper, "topicConfigTable": {}}, "register body"), []
            left = iter(topics.items())
            while some := dict(islice(left, TOPICS_A_STEP)):
                decoded = TOPIC_TABLE.decode({"topicConfigTable": some}, "register body")
                unfit += _leave_out_unfit(decoded)
                table.topic_config_table.update(decoded.topic_config_table)
                yield
        infos = table.topic_queue_mapping_info_map
        table.topic_queue_mapping_info_map = {
            topic: read_queue_mapping(info, "register body.topicQueueMappingInfoMap") for topic, info in infos.items()
        }
        servers = _SERVERS.read(members.get("filterServerList") or [], "register body.filterServerList")
        return RegisterBody(table, servers, unfit)


REGISTER_BODY: Final = RegisterCodec()
"""Codec of plain bodies as version 5 writes them."""


def encode_registered_topic(config: TopicConfig) -> bytes:
    """Return the JSON text of one topic, for `join_register_body`."""
    return dumps_plain({config.topic_name: TOPIC_CONFIG.encode(config)})[1:-1]


def join_register_body(version: DataVersion, topics: Iterable[bytes]) -> bytes:
    """Return a body as `REGISTER_BODY` encodes it, from topics that are already encoded.

    Args:
        version: version of the table.
        topics: results of `encode_registered_topic`.
    """
    head, table, tail = REGISTER_BODY.dumps(RegisterBody(TopicTable({}, version))).partition(b'"topicConfigTable":{')
    return head + table + b",".join(topics) + tail


def read_queue_mapping(value: Any, where: str) -> dict[str, Any]:
    """Decode the mapping of a static topic's queues on a broker, as clients get it in routes.

    Raises:
        ProtocolError: the value is no object of texts, numbers and one map of queue ids.
    """
    members = read_object(value, where)
    found: dict[str, Any] = {}
    for key in ("bname", "scope", "topic"):
        if members.get(key) is not None:
            found[key] = read_text(members[key], f"{where}.{key}")
    for key in ("epoch", "totalQueues"):
        if members.get(key) is not None:
            found[key] = read_integer(members[key], f"{where}.{key}")
    if members.get("dirty") is not None:
        found["dirty"] = read_boolean(members["dirty"], f"{where}.dirty")
    if members.get("currIdMap") is not None:
        found["currIdMap"] = _QUEUE_IDS.read(members["currIdMap"], f"{where}.currIdMap")
    return dict(sorted(found.items()))


def _leave_out_unfit(table: TopicTable) -> list[str]:
    """Delete topics with invalid names from a table, and return their problems. The broker's other topics stay."""
    problems = {topic: problem for topic in table.topic_config_table if (problem := TOPIC.problem(topic)) is not None}
    for topic in problems:
        del table.topic_config_table[topic]
    return list(problems.values())


def _pack(body: RegisterBody, version: int) -> bytes:
    table = body.table
    modern = version >= V5_0_0
    stamp = DATA_VERSION if modern else LEGACY_DATA_VERSION
    sections = [_sized(stamp.dumps(table.data_version)), _LENGTH.pack(len(table.topic_config_table))]
    for config in table.topic_config_table.values():
        tokens = [
            config.topic_name,
            str(config.read_queue_nums),
            str(config.write_queue_nums),
            str(config.perm),
            config.topic_filter_type,
        ]
        if modern:
            tokens.append(dumps(config.attributes).decode())
        sections.append(_sized(" ".join(tokens).encode()))
    sections.append(_sized(dumps(body.filter_servers)))
    if modern:
        infos = table.topic_queue_mapping_info_map
        sections.append(_LENGTH.pack(len(infos)))
        sections += [_sized(dumps(info)) for info in infos.values()]
    return b"".join(sections)


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


class _Sections:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, what: str) -> int:
        if self.at + 4 > len(self.data):
            raise ProtocolError(f"register body: {what} is missing at byte {self.at} of {len(self.data)}")
        (number,) = _LENGTH.unpack_from(self.data, self.at)
        if not 0 <= number <= len(self.data) - self.at - 4:
            raise ProtocolError(f"register body: {what} is {number} at byte {self.at} of {len(self.data)}")
        self.at += 4
        return int(number)

    def text(self, what: str) -> bytes:
        size = self.number(f"length of {what}")
        self.at += size
        return self.data[self.at - size : self.at]


def _unpack(data: bytes, version: int) -> RegisterBody:
    sections = _Sections(data)
    stamp = sections.text("data version")
    table = TopicTable(data_version=DATA_VERSION.loads(stamp) if stamp else DataVersion())
    for _ in range(sections.number("number of topics")):
        config = _topic(sections.text("topic").decode("utf-8", "replace"))
        table.topic_config_table[config.topic_name] = config
    unfit = _leave_out_unfit(table)
    servers = sections.text("filter servers")
    body = RegisterBody(table, _SERVERS.read(loads(servers), "filter servers") if servers else [], unfit)
    if version >= V5_0_0:
        for _ in range(sections.number("number of queue mappings")):
            info = read_queue_mapping(loads(sections.text("queue mapping")), "queue mapping")
            table.topic_queue_mapping_info_map[str(info.get("topic"))] = info
    return body


def _topic(line: str) -> TopicConfig:
    tokens: list[Any] = line.split(" ", 5)
    if len(tokens) < 5:
        raise ProtocolError(f"register body: topic {line!r} has {len(tokens)} of at least 5 parts")
    name, reads, writes, perm, filter_type, *rest = tokens
    attributes = loads(rest[0].encode()) if rest and rest[0].strip() else None
    return TopicConfig(
        name,
        read_integer(reads, f"topic {name!r}: read queues"),
        read_integer(writes, f"topic {name!r}: write queues"),
        read_integer(perm, f"topic {name!r}: permission"),
        filter_type,
        attributes=_ATTRIBUTES.read(attributes or {}, f"topic {name!r}: attributes"),
    )
