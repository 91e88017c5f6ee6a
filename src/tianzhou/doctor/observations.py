"""Observations: what was read from a cluster, its clients and a machine, before anybody judges it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.model import (
    ClusterInfo,
    MessageModel,
    MessageQueue,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRoute,
)
from tianzhou.wire.bodies.clients import ConsumerRunningInfo, ProcessQueueInfo
from tianzhou.wire.bodies.offsets import TopicOffset

# --- servers


class PortKind(Enum):
    """What answers at an address."""

    BROKER = "broker"
    NAME_SERVER = "name server"
    NOT_ROCKETMQ = "something else"
    NOTHING = "nothing"


class Failure(Enum):
    """Why an address cannot be used, as far as connecting says."""

    NONE = "none"
    NAME_UNKNOWN = "name unknown"
    NO_ADDRESS = "no address"
    REFUSED = "refused"
    NO_ROUTE = "no route"
    SILENT = "silent"
    CLOSED = "closed"
    TLS_ONLY = "TLS only"
    NO_TLS = "no TLS"
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True)
class AddressSeen:
    """What happens when a client connects to an address.

    Attributes:
        address: `host:port`.
        expected: what should be there.
        kind: what is there.
        failure: why nothing useful is.
        why: the error's text.
        plain: whether it serves connections without TLS; None when that was not tried.
        tls: whether it serves TLS; likewise.
        unsigned: whether it serves a request that nobody has signed; likewise.
        signed: whether it serves one as the client that looks signs it; None when that one signs nothing.
        refusal: what it says to a request that it refuses.
    """

    address: str
    expected: PortKind
    kind: PortKind = PortKind.NOTHING
    failure: Failure = Failure.NONE
    why: str = ""
    plain: bool | None = None
    tls: bool | None = None
    unsigned: bool | None = None
    signed: bool | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class NameServerSeen:
    """A name server: what it knows, or why it does not answer."""

    address: str
    info: ClusterInfo | None = None
    config: Mapping[str, str] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class DelayedSeen:
    """Delayed messages of a level.

    Attributes:
        level: from 1.
        waiting: how many are not delivered yet.
        late_ms: how long the time of the next one is over; negative when it is not.
    """

    level: int
    waiting: int
    late_ms: int


@dataclass(frozen=True, slots=True)
class HalfSeen:
    """Half messages of transactions without a decision: how many at most, and how old the oldest is."""

    waiting: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """A broker.

    Attributes:
        status: where it is and what it reports about itself.
        config: its configuration; None when it does not say.
        clock_ahead_ms: its clock minus that of who looks, to about a second; None when unknown.
        access: what a connection to it shows; None when it was not tried.
        delayed: delayed messages, by level.
        half: half messages; None when there are none, or nobody knows.
    """

    status: BrokerStatus
    config: Mapping[str, str] | None = None
    clock_ahead_ms: int | None = None
    access: AddressSeen | None = None
    delayed: Sequence[DelayedSeen] = ()
    half: HalfSeen | None = None

    @property
    def subject(self) -> str:
        """What findings call it."""
        one = self.status
        return f"broker {one.broker_name}" + (f" ({one.broker_id})" if one.broker_id else "")

    def setting(self, key: str, default: str = "") -> str:
        """A value of its configuration."""
        return (self.config or {}).get(key, default)

    def number(self, key: str, default: float) -> float:
        """A number of its configuration; the default when it is none."""
        return number(self.setting(key), default)

    def figure(self, key: str, default: float = 0.0) -> float:
        """A number that it reports about itself; of several the first."""
        return number((self.status.runtime.get(key, "").split() or [""])[0], default)


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """Name servers and brokers.

    Attributes:
        now_ms: the clock of who looks.
        name_servers: all that the client was given.
        brokers: all that any of them knows.
    """

    now_ms: int
    name_servers: Sequence[NameServerSeen]
    brokers: Sequence[BrokerSeen]

    @property
    def masters(self) -> Iterator[BrokerSeen]:
        """Brokers that take messages and answer."""
        return (one for one in self.brokers if one.status.is_master and one.status.error is None)


# --- topics


@dataclass(frozen=True, slots=True)
class MessageSeen:
    """A message, without its body."""

    queue: MessageQueue
    offset: int
    msg_id: str
    tags: str | None
    properties: Mapping[str, str]
    born_ms: int
    stored_ms: int
    born_host: str
    reconsume_times: int


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic.

    Attributes:
        topic: its name.
        routes: its route at each name server that answered; None where it has none.
        configs: its configuration on each master that answered.
        offsets: of its queues.
        put_tps: messages that come in per second.
        newest: the newest messages of its queues.
        masters: names of all masters of the cluster that answered.
        auto_create: those that make a topic when it is sent to.
    """

    topic: str
    routes: Mapping[str, TopicRoute | None] = field(default_factory=dict)
    configs: Mapping[str, TopicConfig] = field(default_factory=dict)
    offsets: Mapping[MessageQueue, TopicOffset] = field(default_factory=dict)
    put_tps: float = 0.0
    newest: Sequence[MessageSeen] = ()
    masters: frozenset[str] = frozenset()
    auto_create: frozenset[str] = frozenset()

    @property
    def route(self) -> TopicRoute | None:
        """Its route, of the first name server that has it."""
        return next((route for route in self.routes.values() if route is not None), None)

    @property
    def exists(self) -> bool:
        """Whether any server has it."""
        return self.route is not None or bool(self.configs)


# --- groups


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """A member of a group.

    Attributes:
        client_id: its id.
        addresses: where its connections come from, by broker; several at one broker are several processes.
        language: of its client.
        version: of its client, an ordinal.
        running: what it says about itself; None when it does not.
        why: why it does not.
    """

    client_id: str
    addresses: Mapping[str, Sequence[str]]
    language: str
    version: int
    running: ConsumerRunningInfo | None = None
    why: str = ""

    @property
    def subject(self) -> str:
        """What findings call it."""
        return f"member {self.client_id}"

    def queue(self, queue: MessageQueue) -> ProcessQueueInfo | None:
        """What it says of a queue; None when the queue is not its own."""
        return None if self.running is None else self.running.mq_table.get(queue)

    def property(self, name: str) -> str:
        """A value of its options; empty when it does not say."""
        return "" if self.running is None else self.running.properties.get(name, "")


@dataclass(frozen=True, slots=True)
class ProgressSeen:
    """How far a group is in a queue.

    Attributes:
        queue: which.
        minimum: its first offset.
        maximum: the offset its next message will get.
        committed: the next offset that the group will consume.
        consumed_ms: when the last message that it consumed was stored; 0 for none.
        waits_ms: how long the next message that it will consume has been there; 0 when there is none.
    """

    queue: MessageQueue
    minimum: int
    maximum: int
    committed: int
    consumed_ms: int = 0
    waits_ms: int = 0

    @property
    def lag(self) -> int:
        """Messages stored and not yet consumed."""
        return max(self.maximum - max(self.committed, self.minimum), 0)


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A consumer group.

    Attributes:
        group: its name.
        now_ms: the clock of who looks.
        configs: its configuration on each master that has it.
        members: all that are connected.
        subscriptions: by topic.
        differing: client id to topic to expression, when members differ.
        message_model: whether members share the messages; None without members.
        progress: of all queues of the topics that it has consumed or subscribes.
        consume_tps: messages of each topic that brokers give it per second.
        topics: those that it subscribes.
        retried: the newest messages of its retry topic.
        dead_letters: how many messages it has given up.
        retention_hours: for how long each master keeps messages.
    """

    group: str
    now_ms: int
    configs: Mapping[str, SubscriptionGroupConfig] = field(default_factory=dict)
    members: Sequence[MemberSeen] = ()
    subscriptions: Mapping[str, SubscriptionData] = field(default_factory=dict)
    differing: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    message_model: MessageModel | None = None
    progress: Sequence[ProgressSeen] = ()
    consume_tps: Mapping[str, float] = field(default_factory=dict)
    topics: Mapping[str, TopicSeen] = field(default_factory=dict)
    retried: Sequence[MessageSeen] = ()
    dead_letters: int = 0
    retention_hours: Mapping[str, float] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """What findings call it."""
        return f"group {self.group}"

    @property
    def lag(self) -> int:
        """Messages stored and not yet consumed, of all queues."""
        return sum(one.lag for one in self.progress)

    @property
    def broadcasting(self) -> bool:
        """Whether each member gets all messages."""
        return self.message_model is MessageModel.BROADCASTING


# --- Spark and machines


@dataclass(frozen=True, slots=True)
class CheckpointSeen:
    """The checkpoint folder of a stream.

    Attributes:
        path: where.
        why: why it cannot be read; empty when it can.
        batch: number of the last batch that was planned; -1 for none.
        committed: number of the last batch that was done; -1 for none.
        planned_ms: when that batch was planned.
        ends: the next offset of each queue after it.
        starts: where it began.
        bounds: first and next offset of those queues that are there now.
        known: whether the cluster was asked for them.
    """

    path: str
    why: str = ""
    batch: int = -1
    committed: int = -1
    planned_ms: int = 0
    ends: Mapping[MessageQueue, int] = field(default_factory=dict)
    starts: Mapping[MessageQueue, int] = field(default_factory=dict)
    bounds: Mapping[MessageQueue, tuple[int, int]] = field(default_factory=dict)
    known: bool = False


@dataclass(frozen=True, slots=True)
class SparkSeen:
    """What a stream needs on this machine.

    Attributes:
        now_ms: the clock of who looks.
        pyspark: its version; empty when it is not installed.
        java: version of Java; 0 when there is none that can be used.
        why_no_java: why not.
        checkpoint: the checkpoint that was named.
    """

    now_ms: int
    pyspark: str
    java: int
    why_no_java: str = ""
    checkpoint: CheckpointSeen | None = None


@dataclass(frozen=True, slots=True)
class HostSeen:
    """This machine, as a server needs it; None and empty texts where the system does not say.

    Attributes:
        open_files: limit of descriptors, to which a server raises its own.
        max_map_count: limit of a process's mappings.
        address_space: limit of a process's addresses, bytes.
        file_size: limit of a file that it writes, bytes.
        listen_queue: connections that may wait until a server takes them (net.core.somaxconn).
        processors: of which this process may use, a fraction by a quota.
        zone_reclaim: vm.zone_reclaim_mode.
        clock_synchronised: whether the system says that something sets its clock.
        swap_total: bytes.
        swappiness: 0 to 200.
        huge_pages: of transparent huge pages: `always`, `madvise` or `never`.
        memory_total: bytes.
        memory_limit: bytes that the container of this process may have.
        memory_available: bytes.
        store: the folder that was named.
        filesystem: of that folder, as `ext4`.
        mount_options: likewise.
        disk_total: bytes of its disk.
        disk_free: likewise.
        scheduler: of its block device.
        read_ahead_kb: likewise.
        rotational: whether the device turns.
        sync_ms: how long a sync of a page takes in that folder, the median of several.
        optimised: whether the interpreter was built with profile-guided optimisation; None when unknown.
        debug_build: whether it was built for debugging.
        hot_mode: `compiled` or `pure`.
    """

    open_files: int | None = None
    max_map_count: int | None = None
    address_space: int | None = None
    file_size: int | None = None
    listen_queue: int | None = None
    processors: float | None = None
    zone_reclaim: int | None = None
    clock_synchronised: bool | None = None
    swap_total: int | None = None
    swappiness: int | None = None
    huge_pages: str = ""
    memory_total: int | None = None
    memory_limit: int | None = None
    memory_available: int | None = None
    store: str = ""
    filesystem: str = ""
    mount_options: frozenset[str] = frozenset()
    disk_total: int | None = None
    disk_free: int | None = None
    scheduler: str = ""
    read_ahead_kb: int | None = None
    rotational: bool | None = None
    sync_ms: float | None = None
    optimised: bool | None = None
    debug_build: bool = False
    hot_mode: str = "compiled"


@dataclass(frozen=True, slots=True)
class SecretFileSeen:
    """A file with secrets, on this machine: its path, and the permission bits of group and others."""

    path: str
    mode: int


def number(text: str, default: float) -> float:
    """A number that somebody wrote; the default when it is none."""
    try:
        return float(text)
    except ValueError:
        return default
