"""Bodies about clients of a broker, and bodies of requests to clients (wire.md §7.2, §7.4, §7.11, §9.7, §10.8)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tianzhou.model import ConsumeFromWhere, ConsumeType, MessageModel, MessageQueue, SubscriptionData
from tianzhou.wire.bodies.beans import ANY, PLAIN, QUEUE, TEXT, Bean, MemberKind, Wrapper, list_of, map_of, read_text
from tianzhou.wire.bodies.heartbeat import CONSUME_FROM_WHERE, CONSUME_TYPE, MESSAGE_MODEL, SUBSCRIPTION
from tianzhou.wire.json_dialect import Members, dumps_slices

CONSUMER_IDS: Final = Wrapper[list[str]]("consumer list", "consumerIdList", list_of(TEXT), list, PLAIN)
"""Client ids of a group's members (38)."""
LOCKED_QUEUES: Final = Wrapper[list[MessageQueue]]("locked queues", "lockOKMQSet", list_of(QUEUE), list)
"""The queues that are locked now (reply of 41)."""


@dataclass(slots=True)
class LockRequest:
    """A consumer's request to lock (41) or unlock (42) queues for ordered consumption."""

    client_id: str
    consumer_group: str
    queues: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool = False


LOCK_REQUEST: Final = Bean(LockRequest, {"queues": "mqSet"}, queues=list_of(QUEUE))


@dataclass(slots=True)
class Connection:
    """One client of a group; `language` is the name of its language code (wire.md §1.7)."""

    client_id: str
    client_addr: str = ""
    language: str = "JAVA"
    version: int = 0


@dataclass(slots=True)
class ConsumerConnection:
    """The members of a consumer group and their common settings (203).

    Attributes:
        subscription_conflicts: number of times that members had different subscriptions. The member is Tianzhou's own,
            and Apache's clients ignore it.
        different_subscriptions: client id to topic to expression, when the members' subscriptions differ now. The
            member is Tianzhou's own, too.
    """

    connection_set: list[Connection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_conflicts: int | None = None
    different_subscriptions: dict[str, dict[str, str]] | None = None


_CONNECTION: Final = Bean(Connection)


class _ConsumerConnection(Bean[ConsumerConnection]):
    def slices_of(
        self,
        shared: ConsumerConnection,
        members: Iterable[Connection],
        different: Iterable[tuple[str, Mapping[str, str]]],
    ) -> Generator[None, None, bytes]:
        """Encode the body in slices.

        Args:
            shared: the common settings.
            members: the connections.
            different: client ids and their subscriptions, when they differ.
        """
        written = self.lazily(shared)
        written["connectionSet"] = map(_CONNECTION.encode, members)
        if shared.different_subscriptions is not None:
            written["differentSubscriptions"] = Members(iter(different))
        return dumps_slices(written)


CONSUMER_CONNECTION: Final = _ConsumerConnection(
    ConsumerConnection,
    connection_set=list_of(_CONNECTION.kind),
    subscription_table=map_of(TEXT, SUBSCRIPTION.kind),
    consume_type=CONSUME_TYPE,
    message_model=MESSAGE_MODEL,
    consume_from_where=CONSUME_FROM_WHERE,
    different_subscriptions=map_of(TEXT, map_of(TEXT, TEXT)),
)


PRODUCER_CONNECTION: Final = Wrapper[list[Connection]](
    "producer connection", "connectionSet", list_of(_CONNECTION.kind), list
)
"""The members of a producer group (204)."""


@dataclass(slots=True)
class ProducerInfo:
    """One member of a producer group in the table of all producers (328)."""

    client_id: str
    remote_ip: str = ""
    language: str = "JAVA"
    version: int = 0
    last_update_timestamp: int = 0


_PRODUCER_INFO: Final = Bean(ProducerInfo, {"remote_ip": "remoteIP"})
PRODUCER_TABLE: Final = Wrapper[dict[str, list[ProducerInfo]]](
    "producer table", "data", map_of(TEXT, list_of(_PRODUCER_INFO.kind)), dict
)
"""All producers of a broker by group (328)."""


@dataclass(slots=True)
class ProcessQueueInfo:
    """A consumer's messages and offsets of one queue."""

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
    """Rates of a consumer in one topic, per second, and times in ms."""

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: int = 0


@dataclass(slots=True)
class ConsumerRunningInfo:
    """A consumer's report about its state (307)."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, dict[str, Any]] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


_PROCESS_QUEUE_INFO: Final = Bean(
    ProcessQueueInfo, {"cached_msg_size_in_mib": "cachedMsgSizeInMiB", "dropped": "droped"}
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
)
RUNNING_INFO: Final = Bean(
    ConsumerRunningInfo,
    subscription_set=list_of(SUBSCRIPTION.kind),
    mq_table=map_of(QUEUE, _PROCESS_QUEUE_INFO.kind),
    mq_pop_table=map_of(QUEUE, map_of(TEXT, ANY)),
    status_table=map_of(TEXT, _CONSUME_STATUS.kind),
)


CONSUME_RESULTS: Final = ("CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION", "CR_RETURN_NULL")


@dataclass(slots=True)
class DirectConsumption:
    """Result of consuming one message directly (309); `consume_result` is one of CONSUME_RESULTS."""

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


DIRECT_CONSUMPTION: Final = Bean(DirectConsumption, consume_result=MemberKind(str, _read_result))


@dataclass(slots=True)
class AssignmentQuery:
    """A client's request for the queues that it shall consume (400)."""

    client_id: str
    consumer_group: str
    topic: str
    strategy_name: str = "AVG"
    message_model: MessageModel = MessageModel.CLUSTERING


@dataclass(slots=True)
class Assignment:
    """One queue to consume; queue id -1 with mode `POP` means all queues of the broker."""

    message_queue: MessageQueue
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


@dataclass(slots=True)
class MessageRequestMode:
    """Mode in which a group requests a topic's messages, `PULL` or `POP` (401)."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = 0


ASSIGNMENT_QUERY: Final = Bean(AssignmentQuery, message_model=MESSAGE_MODEL)
_ASSIGNMENT: Final = Bean(Assignment)
ASSIGNMENTS: Final = Wrapper[list[Assignment] | None](
    "assignments", "messageQueueAssignments", list_of(_ASSIGNMENT.kind), lambda: None
)
"""The queues that a client shall consume (reply of 400); None means that its queues do not change."""
MESSAGE_REQUEST_MODE: Final = Bean(MessageRequestMode)
