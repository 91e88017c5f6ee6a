"""Observations: values read from a cluster, its clients and a machine, which `illnesses` judge later. Pure."""

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
    """Kinds of servers at an address."""

    BROKER = "broker"
    NAME_SERVER = "name server"
    NOT_ROCKETMQ = "something else"
    NOTHING = "nothing"


class Failure(Enum):
    """Why an address cannot be used, as far as an attempt to connect shows."""

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
    """The result of connecting to an address as a client.

    Attributes:
        address: `host:port`.
        expected: kind of the server that should listen there.
        kind: kind of the server that listens there.
        failure: why the address cannot be used.
        why: the error's text.
        plain: whether it serves connections without TLS; None when that was not tried.
        tls: whether it serves TLS; None when that was not tried.
        unsigned: whether it serves a request without a signature; None when that was not tried.
        signed: whether it serves a request with the client's signature; None when the client has no credentials.
        refusal: the remark with which it refuses a request.
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
    """A name server: its brokers and configuration, or the error if it does not answer."""

    address: str
    info: ClusterInfo | None = None
    config: Mapping[str, str] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class DelayedSeen:
    """Delayed messages of one level.

    Attributes:
        level: the delay level, from 1.
        waiting: number of messages that are not delivered yet.
        late_ms: ms since the next message was due; negative when it is not due yet.
    """

    level: int
    waiting: int
    late_ms: int


@dataclass(frozen=True, slots=True)
class HalfSeen:
    """Half messages of undecided transactions: an upper bound of their number, and the age of the oldest in ms."""

    waiting: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """A broker.

    Attributes:
        status: its addresses and its report about itself.
        config: its configuration; None when it does not answer that request.
        clock_ahead_ms: its clock minus the clock of this machine in ms, accurate to about a second; None when unknown.
        access: the result of connecting to it; None when that was not tried.
        delayed: delayed messages, by level.
        half: half messages; None when there are none, or when the broker did not answer.
    """

    status: BrokerStatus
    config: Mapping[str, str] | None = None
    clock_ahead_ms: int | None = None
    access: AddressSeen | None = None
    delayed: Sequence[DelayedSeen] = ()
    half: HalfSeen | None = None

    @property
    def subject(self) -> str:
        """Its name in findings."""
        one = self.status
        return f"broker {one.broker_name}" + (f" ({one.broker_id})" if one.broker_id else "")

    def setting(self, key: str, default: str = "") -> str:
        """Return a value of its configuration, or the default when the key is missing."""
        return (self.config or {}).get(key, default)

    def number(self, key: str, default: float) -> float:
        """Return a number of its configuration, or the default when the value is not a number."""
        return number(self.setting(key), default)

    def figure(self, key: str, default: float = 0.0) -> float:
        """Return a number of its report about itself. Of several numbers, return the first."""
        return number((self.status.runtime.get(key, "").split() or [""])[0], default)


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """Name servers and brokers of a cluster.

    Attributes:
        now_ms: time of this machine's clock in ms.
        name_servers: all name servers that the client was given.
        brokers: all brokers that any name server knows.
    """

    now_ms: int
    name_servers: Sequence[NameServerSeen]
    brokers: Sequence[BrokerSeen]

    @property
    def masters(self) -> Iterator[BrokerSeen]:
        """Masters that answer."""
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
        routes: its route at each name server that answered; None where it has no route.
        configs: its configuration on each master that answered.
        offsets: first and next offset of each queue.
        put_tps: incoming messages per second.
        newest: the newest messages of its queues.
        masters: names of all masters of the cluster that answered.
        auto_create: names of the masters that create a topic when a message is sent to it.
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
        """The route of the first name server that has one."""
        return next((route for route in self.routes.values() if route is not None), None)

    @property
    def exists(self) -> bool:
        """Whether any server has the topic."""
        return self.route is not None or bool(self.configs)


# --- groups


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """A member of a consumer group.

    Attributes:
        client_id: its client id.
        addresses: addresses of its connections, by broker; several addresses at one broker are several processes.
        language: programming language of its client.
        version: version of its client, an ordinal.
        running: its report about itself; None when it did not answer.
        why: why it did not answer.
    """

    client_id: str
    addresses: Mapping[str, Sequence[str]]
    language: str
    version: int
    running: ConsumerRunningInfo | None = None
    why: str = ""

    @property
    def subject(self) -> str:
        """Its name in findings."""
        return f"member {self.client_id}"

    def queue(self, queue: MessageQueue) -> ProcessQueueInfo | None:
        """Return its report about a queue; None when the queue is not assigned to it."""
        return None if self.running is None else self.running.mq_table.get(queue)

    def property(self, name: str) -> str:
        """Return an option of the member; empty when the member did not report it."""
        return "" if self.running is None else self.running.properties.get(name, "")


@dataclass(frozen=True, slots=True)
class ProgressSeen:
    """A group's progress in one queue.

    Attributes:
        queue: the queue.
        minimum: first offset of the queue.
        maximum: next offset that the queue will assign.
        committed: the next offset that the group will consume.
        consumed_ms: store time of the last consumed message in ms; 0 when no message was consumed.
        waits_ms: ms since the next message to consume was stored; 0 when there is no such message.
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
        now_ms: time of this machine's clock in ms.
        configs: its configuration on each master that has it.
        members: all connected members.
        subscriptions: its subscriptions, by topic.
        differing: client id to topic to expression, when members' subscriptions differ.
        message_model: whether members share the messages; None without members.
        progress: progress in all queues of its consumed or subscribed topics.
        consume_tps: messages that brokers deliver to it per second, by topic.
        topics: its subscribed topics.
        retried: the newest messages of its retry topic.
        dead_letters: number of messages in its dead-letter queue.
        retention_hours: hours for which each master stores messages.
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
        """Its name in findings."""
        return f"group {self.group}"

    @property
    def lag(self) -> int:
        """Messages stored and not yet consumed, of all queues."""
        return sum(one.lag for one in self.progress)

    @property
    def broadcasting(self) -> bool:
        """Whether each member receives all messages."""
        return self.message_model is MessageModel.BROADCASTING


# --- Spark and machines


@dataclass(frozen=True, slots=True)
class CheckpointSeen:
    """The checkpoint folder of a Spark stream.

    Attributes:
        path: path of the folder.
        why: why it cannot be read; empty when it can be read.
        batch: number of the last planned batch; -1 when there is none.
        committed: number of the last committed batch; -1 when there is none.
        planned_ms: time when the last batch was planned, in ms.
        ends: the next offset of each queue after the last planned batch.
        starts: the first offset of each queue in that batch.
        bounds: first and next offset of those queues that exist now.
        known: whether a name server answered, so that `bounds` is complete.
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
    """The software that a Spark stream needs on this machine, and its checkpoint.

    Attributes:
        now_ms: time of this machine's clock in ms.
        pyspark: version of pyspark; empty when it is not installed.
        java: version of Java; 0 when no usable Java was found.
        why_no_java: why no usable Java was found.
        checkpoint: the named checkpoint; None when none was named.
    """

    now_ms: int
    pyspark: str
    java: int
    why_no_java: str = ""
    checkpoint: CheckpointSeen | None = None


@dataclass(frozen=True, slots=True)
class HostSeen:
    """This machine's resources for a server. Values are None or empty where the system does not report them.

    Attributes:
        open_files: hard limit of file descriptors, to which a server raises its own limit.
        max_map_count: limit of a process's memory mappings.
        address_space: limit of a process's address space, in bytes.
        file_size: limit of a written file's size, in bytes.
        listen_queue: maximum number of connections that wait to be accepted (net.core.somaxconn).
        processors: processors that this process may use; a fraction under a CPU quota.
        zone_reclaim: vm.zone_reclaim_mode.
        clock_synchronised: whether the kernel reports a synchronised clock.
        swap_total: size of the swap space, in bytes.
        swappiness: vm.swappiness, 0 to 200.
        huge_pages: mode of transparent huge pages: `always`, `madvise` or `never`.
        memory_total: memory of the machine, in bytes.
        memory_limit: memory limit of this process's container, in bytes.
        memory_available: available memory, in bytes.
        store: the named folder.
        filesystem: file system of that folder, such as `ext4`.
        mount_options: mount options of that file system.
        disk_total: size of its disk, in bytes.
        disk_free: free space of its disk, in bytes.
        scheduler: I/O scheduler of its block device.
        read_ahead_kb: read-ahead of its block device, in KiB.
        rotational: whether the block device is a rotating disk.
        sync_ms: median time to sync one page in that folder, in ms.
        optimised: whether the interpreter was built with profile-guided optimisation; None when unknown.
        debug_build: whether the interpreter is a debug build.
        hot_mode: implementation of the hot functions: `compiled` or `pure`.
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
    """A file with secrets on this machine: its path and its permission bits."""

    path: str
    mode: int


def number(text: str, default: float) -> float:
    """Return a text as a number, or the default when it is not a number."""
    try:
        return float(text)
    except ValueError:
        return default
