"""Clients as a broker sees them, and what they ask each other (wire.md §7.2, §7.4, §7.11, §9.7, §10.8)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tianzhou.model import ConsumeFromWhere, ConsumeType, MessageModel, MessageQueue, SubscriptionData
from tianzhou.wire.bodies.beans import (
    ANY,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    QUEUE,
    TEXT,
    Bean,
    Kind,
    list_of,
    load_member,
    map_of,
    read_text,
)
from tianzhou.wire.bodies.heartbeat import CONSUME_FROM_WHERE, CONSUME_TYPE, MESSAGE_MODEL, SUBSCRIPTION
from tianzhou.wire.hashing import Octets
from tianzhou.wire.json_dialect import Members, dumps, dumps_plain, dumps_slices

_QUEUES: Final = list_of(QUEUE)


def encode_consumer_ids(ids: Iterable[str]) -> bytes:
    """Client ids of a group's members (38)."""
    return dumps_plain({"consumerIdList": list(ids)})


def decode_consumer_ids(data: Octets) -> list[str]:
    """Client ids of a group's members; raises ProtocolError."""
    return load_member(data, "consumer list", "consumerIdList", list_of(TEXT)) or []


@dataclass(slots=True)
class LockRequest:
    """A consumer's wish to lock (41) or unlock (42) queues for ordered consumption."""

    client_id: str
    consumer_group: str
    queues: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool = False


_LOCK_REQUEST: Final = Bean(
    LockRequest,
    {"queues": "mqSet"},
    client_id=TEXT,
    consumer_group=TEXT,
    queues=_QUEUES,
    only_this_broker=BOOLEAN,
)


def encode_lock_request(request: LockRequest) -> bytes:
    """A wish to lock or unlock queues."""
    return _LOCK_REQUEST.dumps(request)


def write_lock_request(request: LockRequest) -> Generator[None, None, bytes]:
    """As `encode_lock_request`, in slices."""
    return _LOCK_REQUEST.slices(request)


def decode_lock_request(data: Octets) -> LockRequest:
    """A wish to lock or unlock queues; raises ProtocolError."""
    return _LOCK_REQUEST.loads(data)


def encode_locked_queues(queues: Iterable[MessageQueue]) -> bytes:
    """The queues that are now locked (reply of 41)."""
    return dumps({"lockOKMQSet": list(queues)}, sort_keys=False)


def write_locked_queues(queues: Iterable[MessageQueue]) -> Generator[None, None, bytes]:
    """As `encode_locked_queues`, in slices."""
    return dumps_slices({"lockOKMQSet": iter(queues)})


def decode_locked_queues(data: Octets) -> list[MessageQueue]:
    """The queues that are now locked; raises ProtocolError."""
    return load_member(data, "locked queues", "lockOKMQSet", _QUEUES) or []


@dataclass(slots=True)
class Connection:
    """One client of a group; `language` is the name of its language code (wire.md §1.7)."""

    client_id: str
    client_addr: str = ""
    language: str = "JAVA"
    version: int = 0


@dataclass(slots=True)
class ConsumerConnection:
    """The members of a consumer group and what they share (203).

    Attributes:
        subscription_conflicts: how often members were found to subscribe different things; a member of our own, which
            others ignore.
        different_subscriptions: client id to topic to expression when members differ now; likewise.
    """

    connection_set: list[Connection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_conflicts: int | None = None
    different_subscriptions: dict[str, dict[str, str]] | None = None


_CONNECTION: Final = Bean(Connection, client_id=TEXT, client_addr=TEXT, language=TEXT, version=INTEGER)
_CONSUMER_CONNECTION: Final = Bean(
    ConsumerConnection,
    connection_set=list_of(_CONNECTION.kind),
    subscription_table=map_of(TEXT, SUBSCRIPTION.kind),
    consume_type=CONSUME_TYPE,
    message_model=MESSAGE_MODEL,
    consume_from_where=CONSUME_FROM_WHERE,
    subscription_conflicts=INTEGER,
    different_subscriptions=map_of(TEXT, map_of(TEXT, TEXT)),
)


def encode_consumer_connection(connection: ConsumerConnection) -> bytes:
    """The members of a consumer group."""
    return _CONSUMER_CONNECTION.dumps(connection)


def write_consumer_connection(
    connection: ConsumerConnection, members: Iterator[Connection], different: Iterator[tuple[str, Mapping[str, str]]]
) -> Generator[None, None, bytes]:
    """As `encode_consumer_connection`, in slices.

    Args:
        connection: what the members share.
        members: the connections.
        different: client ids and what they subscribe, when members differ.
    """
    shared = _CONSUMER_CONNECTION.lazily(connection)
    shared["connectionSet"] = map(_CONNECTION.encode, members)
    if connection.different_subscriptions is not None:
        shared["differentSubscriptions"] = Members(different)
    return dumps_slices(shared)


def decode_consumer_connection(data: Octets) -> ConsumerConnection:
    """The members of a consumer group; raises ProtocolError."""
    return _CONSUMER_CONNECTION.loads(data)


def encode_producer_connection(connections: Iterable[Connection]) -> bytes:
    """The members of a producer group (204)."""
    return dumps({"connectionSet": [_CONNECTION.encode(connection) for connection in connections]})


def write_producer_connection(connections: Iterable[Connection]) -> Generator[None, None, bytes]:
    """As `encode_producer_connection`, in slices."""
    return dumps_slices({"connectionSet": map(_CONNECTION.encode, connections)})


def decode_producer_connection(data: Octets) -> list[Connection]:
    """The members of a producer group; raises ProtocolError."""
    return load_member(data, "producer connection", "connectionSet", list_of(_CONNECTION.kind)) or []


@dataclass(slots=True)
class ProducerInfo:
    """One member of a producer group in the table of all (328)."""

    client_id: str
    remote_ip: str = ""
    language: str = "JAVA"
    version: int = 0
    last_update_timestamp: int = 0


_PRODUCER_INFO: Final = Bean(
    ProducerInfo,
    {"remote_ip": "remoteIP"},
    client_id=TEXT,
    remote_ip=TEXT,
    language=TEXT,
    version=INTEGER,
    last_update_timestamp=INTEGER,
)
_PRODUCER_TABLE: Final = map_of(TEXT, list_of(_PRODUCER_INFO.kind))


def encode_producer_table(table: dict[str, list[ProducerInfo]]) -> bytes:
    """All producers of a broker by group (328)."""
    return dumps({"data": _PRODUCER_TABLE.write(table)}, sort_keys=False)


def write_producer_table(
    table: Iterable[tuple[str, Iterable[ProducerInfo]]],
) -> Generator[None, None, bytes]:
    """As `encode_producer_table`, in slices."""
    groups = ((group, map(_PRODUCER_INFO.encode, producers)) for group, producers in table)
    return dumps_slices({"data": Members(groups)})


def decode_producer_table(data: Octets) -> dict[str, list[ProducerInfo]]:
    """All producers of a broker by group; raises ProtocolError."""
    return load_member(data, "producer table", "data", _PRODUCER_TABLE) or {}


@dataclass(slots=True)
class ProcessQueueInfo:
    """What a consumer holds of one queue."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = 0
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@dataclass(slots=True)
class ConsumeStatus:
    """How fast a consumer is in one topic: per second, and milliseconds."""

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: int = 0


@dataclass(slots=True)
class ConsumerRunningInfo:
    """What a consumer tells about itself (307)."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, dict[str, object]] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


_PROCESS_QUEUE_INFO: Final = Bean(
    ProcessQueueInfo,
    {"cached_msg_size_in_mib": "cachedMsgSizeInMiB", "dropped": "droped"},
    commit_offset=INTEGER,
    cached_msg_min_offset=INTEGER,
    cached_msg_max_offset=INTEGER,
    cached_msg_count=INTEGER,
    cached_msg_size_in_mib=INTEGER,
    transaction_msg_min_offset=INTEGER,
    transaction_msg_max_offset=INTEGER,
    transaction_msg_count=INTEGER,
    locked=BOOLEAN,
    try_unlock_times=INTEGER,
    last_lock_timestamp=INTEGER,
    dropped=BOOLEAN,
    last_pull_timestamp=INTEGER,
    last_consume_timestamp=INTEGER,
)
_CONSUME_STATUS: Final = Bean(
    ConsumeStatus,
    {
        "pull_rt": "pullRT",
        "pull_tps": "pullTPS",
        "consume_rt": "consumeRT",
        "consume_ok_tps": "consumeOKTPS",
        "consume_failed_tps": "consumeFailedTPS",
    },
    pull_rt=DOUBLE,
    pull_tps=DOUBLE,
    consume_rt=DOUBLE,
    consume_ok_tps=DOUBLE,
    consume_failed_tps=DOUBLE,
    consume_failed_msgs=INTEGER,
)
_RUNNING_INFO: Final = Bean(
    ConsumerRunningInfo,
    properties=map_of(TEXT, TEXT),
    subscription_set=list_of(SUBSCRIPTION.kind),
    mq_table=map_of(QUEUE, _PROCESS_QUEUE_INFO.kind),
    mq_pop_table=map_of(QUEUE, map_of(TEXT, ANY)),
    status_table=map_of(TEXT, _CONSUME_STATUS.kind),
    user_consumer_info=map_of(TEXT, TEXT),
    jstack=TEXT,
)


def encode_running_info(info: ConsumerRunningInfo) -> bytes:
    """What a consumer tells about itself."""
    return _RUNNING_INFO.dumps(info)


def decode_running_info(data: Octets) -> ConsumerRunningInfo:
    """What a consumer tells about itself; raises ProtocolError."""
    return _RUNNING_INFO.loads(data)


CONSUME_RESULTS: Final = (
    "CR_SUCCESS",
    "CR_LATER",
    "CR_ROLLBACK",
    "CR_COMMIT",
    "CR_THROW_EXCEPTION",
    "CR_RETURN_NULL",
)


@dataclass(slots=True)
class DirectConsumption:
    """What came of consuming one message at once (309); `consume_result` is one of CONSUME_RESULTS."""

    consume_result: str = "CR_SUCCESS"
    order: bool = False
    auto_commit: bool = True
    remark: str | None = None
    spent_time_mills: int = 0


def _read_result(value: object, where: str) -> str:
    # Go sends the ordinal.
    if isinstance(value, int) and 0 <= value < len(CONSUME_RESULTS):
        return CONSUME_RESULTS[value]
    return read_text(value, where)


_DIRECT: Final = Bean(
    DirectConsumption,
    consume_result=Kind(str, _read_result),
    order=BOOLEAN,
    auto_commit=BOOLEAN,
    remark=TEXT,
    spent_time_mills=INTEGER,
)


def encode_direct_consumption(result: DirectConsumption) -> bytes:
    """What came of consuming one message at once."""
    return _DIRECT.dumps(result)


def decode_direct_consumption(data: Octets) -> DirectConsumption:
    """What came of consuming one message at once; raises ProtocolError."""
    return _DIRECT.loads(data)


@dataclass(slots=True)
class AssignmentQuery:
    """A client's question which queues it is to consume (400)."""

    client_id: str
    consumer_group: str
    topic: str
    strategy_name: str = "AVG"
    message_model: MessageModel = MessageModel.CLUSTERING


@dataclass(slots=True)
class Assignment:
    """One queue to consume; queue id -1 with mode `POP` stands for all of the broker."""

    message_queue: MessageQueue
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


@dataclass(slots=True)
class MessageRequestMode:
    """How a group asks for a topic's messages (401)."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = 0


_ASSIGNMENT_QUERY: Final = Bean(
    AssignmentQuery,
    client_id=TEXT,
    consumer_group=TEXT,
    topic=TEXT,
    strategy_name=TEXT,
    message_model=MESSAGE_MODEL,
)
_ASSIGNMENT: Final = Bean(Assignment, message_queue=QUEUE, mode=TEXT, attachments=map_of(TEXT, TEXT))
_REQUEST_MODE: Final = Bean(MessageRequestMode, topic=TEXT, consumer_group=TEXT, mode=TEXT, pop_share_queue_num=INTEGER)


def encode_assignment_query(query: AssignmentQuery) -> bytes:
    """A client's question which queues it is to consume."""
    return _ASSIGNMENT_QUERY.dumps(query)


def decode_assignment_query(data: Octets) -> AssignmentQuery:
    """A client's question which queues it is to consume; raises ProtocolError."""
    return _ASSIGNMENT_QUERY.loads(data)


def encode_assignments(assignments: Iterable[Assignment]) -> bytes:
    """The queues a client is to consume."""
    rows = [_ASSIGNMENT.encode(assignment) for assignment in assignments]
    return dumps({"messageQueueAssignments": rows}, sort_keys=False)


def decode_assignments(data: Octets) -> list[Assignment] | None:
    """The queues a client is to consume; None says to keep the present ones; raises ProtocolError."""
    found: list[Assignment] | None = load_member(
        data, "assignments", "messageQueueAssignments", list_of(_ASSIGNMENT.kind)
    )
    return found


def encode_message_request_mode(mode: MessageRequestMode) -> bytes:
    """How a group asks for a topic's messages."""
    return _REQUEST_MODE.dumps(mode)


def decode_message_request_mode(data: Octets) -> MessageRequestMode:
    """How a group asks for a topic's messages; raises ProtocolError."""
    return _REQUEST_MODE.loads(data)
