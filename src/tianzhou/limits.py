"""Limits on all resources that peers can consume: key, default, and the reply above the limit.

A `Limit` appears in docs/reference/limits.md. The value in force is the settings field of its key, or the default if
there is no key. `Refusals` counts refusals and creates their errors, so that all texts have one form and the server's
metrics include them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tianzhou.errors import LimitExceeded, TooBusy
from tianzhou.escaping import shown


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit.

    Attributes:
        name: name in the counters of refusals; the key of the setting, if there is one.
        default: default value.
        unit: unit of the value, in the plural: "queues", "bytes".
        bounds: the limited resource, as the subject of a sentence: "queues of a topic".
        answer: the reply to a peer that exceeds the limit.
        server: the process that enforces the limit: "broker", "name server", "both" or "client".
        fixed: whether there is no setting, because no other value would work.
        field: name of the settings field.
        passing: whether the excess ends by itself, so that a retry helps.
    """

    name: str
    default: int
    unit: str
    bounds: str
    answer: str
    server: str = "broker"
    fixed: bool = False
    passing: bool = False

    field: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", re.sub("([A-Z])", r"_\1", self.name).lower())

    def error(self, value: int, most: int, where: str = "") -> LimitExceeded:
        """Return the error for a value above the limit.

        Args:
            value: the value.
            most: the limit in force.
            where: the object that exceeds the limit, possibly with a peer's text: `topic orders`.
        """
        fix = "" if self.fixed else f"; raise {self.name} if that is meant"
        whose = shown(where) or self.bounds
        kind = TooBusy if self.passing else LimitExceeded
        return kind(f"{whose}: {value} {self.unit}, at most {most} are allowed{fix}", limit=self)


class Refusals:
    """Counters of refusals because of limits.

    Attributes:
        counts: number of refusals by name of the limit.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def check(self, limit: Limit, value: int, most: int, where: str = "") -> None:
        """Raise an error if a value is above the limit.

        Args:
            limit: the limit.
            value: the value.
            most: the limit in force.
            where: the object that exceeds the limit.

        Raises:
            LimitExceeded: the value is above `most`.
        """
        if value > most:
            raise self.refused(limit, value, most, where)

    def refused(self, limit: Limit, value: int, most: int, where: str = "") -> LimitExceeded:
        """Count a refusal, and return the error to raise."""
        self.counts[limit.name] += 1
        return limit.error(value, most, where)


class Bounds:
    """The limits in force.

    Args:
        settings: settings with fields of limits; a limit without a field has its default value.
        refusals: counters of refusals; None creates new ones.

    Attributes:
        settings: settings in force; replace them when they change.
    """

    def __init__(self, settings: object = None, refusals: Refusals | None = None) -> None:
        self.settings = settings
        self.refusals = Refusals() if refusals is None else refusals

    def most(self, limit: Limit) -> int:
        """Return the value of a limit in force."""
        return int(getattr(self.settings, limit.field, limit.default))

    def check(self, limit: Limit, value: int, where: str = "") -> None:
        """Raise an error if a value is above the limit in force.

        Raises:
            LimitExceeded: the value is above the limit.
        """
        self.refusals.check(limit, value, self.most(limit), where)

    def allows(self, limit: Limit, value: int) -> bool:
        """Whether a value is within the limit. A refusal is counted."""
        if value > self.most(limit):
            self.refusals.counts[limit.name] += 1
            return False
        return True


_BUSY = "code 2, clients try again"

# fmt: off
QUEUES_OF_TOPIC = Limit(
    "maxQueuesPerTopic", 65_535, "queues", "read or write queues of a topic, and the retry queues of a group",
    "code 29; a name server leaves the topic out of what a broker registers", server="both",
)
TOPICS = Limit(
    "maxTopics", 100_000, "topics", "topics", "code 29; a name server leaves them out of what a broker registers",
    server="both",
)
CONNECTIONS = Limit(
    "maxConnections", 65_536, "connections", "connections of a port; descriptors may run out before",
    "it is closed at once, with a line in the log", server="both",
)
ADDRESS_CONNECTIONS = Limit(
    # A quarter of the port's limit. One machine cannot take all connections, and thousands of clients behind one
    # address (NAT, a tunnel, a test on loopback) can still connect. A trusted load balancer (proxyProtocolTrusted)
    # counts as its clients.
    "maxConnectionsPerAddress", 16_384, "connections", "connections of an IPv4 address, or an IPv6 /64, to a port",
    "it is closed at once, with a line in the log", server="both",
)
FRAME_BYTES = Limit(
    "maxFrameBytes", 16_777_216, "bytes", "a request or reply with its length word",
    "the connection is closed, with a line in the log", server="both", fixed=True,
)
IDLE_SECONDS = Limit(
    "serverChannelMaxIdleTimeSeconds", 120, "seconds", "time in which neither side of a connection says anything",
    "it is closed, with a line in the log", server="both",
)
FIRST_FRAME = Limit(
    # Not shorter than in RocketMQ's servers: Java clients of 5.x connect to each name server and may send nothing.
    "firstRequestTimeoutMillis", 120_000, "ms", "time until a new connection has sent its first request whole",
    "it is closed, with a line in the log", server="both",
)
HANDSHAKE_SECONDS = Limit(
    "maxHandshakeSeconds", 10, "seconds", "time for a TLS handshake, and for a PROXY header",
    "it is closed, with a line in the log", server="both", fixed=True,
)
HALF_FRAMES = Limit(
    "maxHalfFrameBytes", 67_108_864, "bytes", "half-received requests of all connections together",
    "connections that need more room are not read from until others are done", server="both", fixed=True,
)
JSON_DEPTH = Limit(
    "maxJsonDepth", 128, "levels", "objects and arrays within each other in a JSON body", "code 1", server="both",
    fixed=True,
)
UNREAD_BYTES = Limit(
    "maxUnreadReplyBytes", 134_217_728, "bytes", "replies that peers do not read, of all connections together",
    "who holds most and reads nothing for 15 s is disconnected; at once above twice as much", server="both",
)
REQUEST_BYTES = Limit(
    "maxHeldRequestBytes", 134_217_728, "bytes",
    "requests whose answers are being worked on, of all connections together",
    "connections that hold many of them are not read from until some are answered", server="both",
)
CONNECTION_REQUESTS = Limit(
    # Clients may have 65 535 requests in flight. None is refused, because the excess waits in the sockets' buffers.
    "maxRequestsPerConnection", 8_192, "requests", "requests of a connection whose answers are being worked on",
    "it is not read from until half of them are answered", server="both",
)
REPLY_BYTES = Limit(
    "maxReplyBytes", 16_777_216, "bytes", "a reply, as clients take no larger frame", "code 29", server="both",
    fixed=True,
)
PROXY_BYTES = Limit(
    "maxProxyValueBytes", 4_096, "bytes", "what is remembered of a connection's PROXY header",
    "values beyond are dropped", server="both", fixed=True,
)

BODY_BYTES = Limit("maxMessageSize", 4_194_304, "bytes", "the body of a message, or a batch", "code 13")
PROPERTIES_BYTES = Limit("maxPropertiesBytes", 32_767, "bytes", "the properties of a message", "code 13", fixed=True)
TOPIC_NAME = Limit(
    "maxTopicNameLength", 127, "characters", "the name of a topic that is created", "code 29", fixed=True
)
GROUP_NAME = Limit(
    "maxGroupNameLength", 255, "characters", "the name of a group that is created", "code 29", fixed=True
)
QUEUES = Limit("maxQueues", 1_000_000, "queues", "queues of a broker, over all topics", "code 29")
GROUPS = Limit("maxGroups", 100_000, "groups", "consumer groups of a broker", "code 29")
FORBIDDEN = Limit("maxForbiddenTopics", 100_000, "entries", "topics that groups are forbidden to read (353)", "code 29")
MEMBERS_OF_GROUP = Limit("maxMembersPerGroup", 65_536, "members", "members of a consumer or producer group", "code 29")
MEMBERS = Limit("maxMembers", 300_000, "members", "members of all consumer and producer groups together", "code 29")
GROUPS_OF_CLIENT = Limit(
    "maxGroupsPerConnection", 10_000, "groups", "groups that a connection is a member of", "code 29"
)
SUBSCRIPTIONS = Limit(
    "maxSubscriptionCharacters", 33_554_432, "characters",
    "topics and expressions of all groups, each once for members that subscribe the same", "code 29",
)
GROUP_CONFIG = Limit("maxGroupConfigBytes", 16_384, "bytes", "the configuration of a group", "code 29")
GROUP_CONFIGS = Limit(
    "maxGroupConfigsBytes", 134_217_728, "bytes", "the configurations of all groups together", "code 29"
)
OFFSETS = Limit("maxConsumerOffsets", 2_000_000, "offsets", "offsets of groups in queues", "code 29")
BROADCAST_OFFSETS = Limit(
    "maxBroadcastOffsets", 200_000, "offsets", "offsets of broadcast consumers in queues", "code 29"
)
FILTERS = Limit("maxConsumerFilters", 100_000, "filters", "SQL92 expressions that groups have announced", "code 29")
FILTER_TEXT = Limit(
    "maxConsumerFilterCharacters", 4_194_304, "characters", "SQL92 expressions that groups have announced, together",
    "code 29",
)
PULLED_TEXT = Limit(
    "maxPulledSubscriptionCharacters", 4_194_304, "characters",
    "subscriptions that pulls brought along, stored for tools",
    "the pull is served, tools are not shown its subscription", fixed=True,
)
FIGURES = Limit(
    "maxFigures", 200_000, "figures", "figures by topic, group and queue (315)",
    "further ones are not counted one by one; totals count them",
)
LOCKS_OF_GROUP = Limit("maxLocksPerGroup", 50_000, "queues", "queues that a group has locked", "code 29")
LOCKS = Limit("maxLocks", 100_000, "queues", "queues that all groups together have locked", "code 29")
LONG_POLLS = Limit(
    "maxLongPolls", 300_000, "pulls", "pulls that wait for messages, of all connections", _BUSY, passing=True
)
CONNECTION_POLLS = Limit(
    # Below the number of requests at which the server stops reading a connection, because heartbeats would then wait,
    # too.
    "maxLongPollsPerConnection", 30_000, "pulls", "pulls of a connection that wait for messages", _BUSY, passing=True
)
CLIENT_REQUESTS = Limit(
    "maxRequestsPerClient", 4_096, "requests",
    "requests of others (307, 309, 221, 324) that wait for one client's answer", _BUSY, passing=True,
)
HALF_MESSAGES = Limit(
    "maxHalfMessages", 1_000_000, "messages", "half messages that wait for a decision", _BUSY, passing=True
)
STAGED_WRITERS = Limit("maxStagedWriters", 10_000, "writers", "writers of staged messages", "code 29")
STAGED_UNITS = Limit("maxStagedUnits", 500_000, "units", "units of staged messages that wait for a decision", "code 29")
SEND_LIMITS = Limit(
    "maxSendLimits", 10_000, "limits", "limits of topics, producer groups and clients (31030)", "code 29"
)
SEND_BUCKETS = Limit(
    "maxSendBuckets", 10_000, "names", "names that each limit `*` of senders counts one by one",
    "further names share one bucket until a place is free",
)
COLD_READ_GROUPS = Limit("maxColdReadLimits", 10_000, "groups", "groups with a limit of cold reads (2001)", "code 29")

BROKERS = Limit(
    "maxBrokers", 10_000, "brokers", "brokers of a name server, and their clusters", "code 29", server="name server"
)
FILTER_SERVERS = Limit(
    "maxFilterServers", 100, "servers", "filter servers of a broker", "code 29", server="name server"
)
ROUTES = Limit(
    "maxRoutes", 2_000_000, "routes", "topics of a name server, each as often as there are brokers that have it",
    "left out of what a broker registers; code 29 for 217", server="name server",
)
MAPPINGS = Limit(
    "maxQueueMappings", 100_000, "mappings", "mappings of static topics", "left out of what a broker registers",
    server="name server",
)
REGISTRATION_BYTES = Limit(
    "maxRegistrationBytes", 16_777_216, "bytes", "a registration, unpacked", "code 29", server="name server"
)
REGISTRATIONS_BYTES = Limit(
    "maxRegistrationsBytes", 33_554_432, "bytes",
    "registrations that are read at the same time, unpacked; and, again, those that are remembered",
    "the next waits until others are read; it is not remembered", server="name server",
)
KV_VALUE = Limit(
    "maxKvValueBytes", 65_536, "bytes", "a value of the KV configuration",
    "code 29; one in the file is left out of routes", server="name server",
)
KV_ENTRIES = Limit(
    "maxKvEntries", 100_000, "entries", "namespaces and keys of the KV configuration", "code 29", server="name server"
)
KV_BYTES = Limit("maxKvBytes", 8_388_608, "bytes", "the KV configuration as a whole", "code 29", server="name server")

QUEUES_OF_ROUTE = Limit(
    "maxQueuesPerRoute", 262_144, "queues", "queues of a topic at all its brokers, in the route a client gets",
    "the route is refused, the one known before stays in use", server="client", fixed=True,
)
BROKERS_OF_ROUTE = Limit(
    "maxBrokersPerRoute", 16_384, "addresses", "brokers' addresses in the route a client gets",
    "the route is refused, the one known before stays in use", server="client", fixed=True,
)
MEMBERS_OF_ANSWER = Limit(
    "maxMembersPerAnswer", 65_536, "members", "members of a group in a broker's answer",
    "the answer is refused, the queues stay shared as they are", server="client", fixed=True,
)
UNPACKED_BODY = Limit(
    "max_unpacked_body_bytes", 67_108_864, "bytes", "a compressed message body, unpacked",
    "looking at the body raises a `ProtocolError`: the message counts as not consumed", server="client",
)
UNPACKED_BODIES = Limit(
    "max_unpacked_bytes", 67_108_864, "bytes", "unpacked bodies of 1 MiB and less that the messages of a client keep",
    "a further body is unpacked at each look, and not kept", server="client",
)
ENTRIES_OF_ANSWER = Limit(
    "maxBatchedPerAnswer", 65_536, "messages", "messages out of batches in the answer to a pull",
    "the batch above it comes as one message whose body cannot be looked at, and so again later", server="client",
    fixed=True,
)

JSON_REFERENCES = Limit(
    "maxJsonReferredValues", 65_536, "values", "what references in a JSON body point at", "code 29", server="both",
    fixed=True,
)

FILTER_LENGTH = Limit("maxFilterExpressionLength", 65_536, "characters", "expression of a subscription", "code 29")
FILTER_TERMS = Limit(
    "maxFilterTerms", 8_192, "properties and values", "comparisons of an SQL92 expression",
    "code 23; of a heartbeat: left out, with a line in the log", fixed=True,
)

CONFIG_UPDATE_BYTES = Limit(
    "configUpdateBytes", 65_536, "bytes", "a change of the configuration", "code 29", server="both", fixed=True
)
CONFIG_UPDATE_KEYS = Limit(
    "configUpdateKeys", 1_000, "lines", "a change of the configuration", "code 29", server="both", fixed=True
)
CONFIG_VALUE_LENGTH = Limit(
    "configValueLength", 4_096, "characters", "a key or value of the configuration", "code 29", server="both",
    fixed=True,
)
JSON_OBJECTS = Limit(
    "maxJsonObjects", 131_072, "objects and arrays", "a large JSON body of a request", "code 29", server="both",
    fixed=True,
)
JSON_SIZE = Limit("maxJsonBodySize", 4_194_304, "bytes", "JSON body of a request", "code 29")
HEARTBEAT_SIZE = Limit("maxHeartbeatSize", 2_097_152, "bytes", "body of a heartbeat", "code 29")
HEARTBEAT_GROUPS = Limit("maxGroupsPerHeartbeat", 4_096, "groups", "groups in a heartbeat", "code 29")
GROUP_SUBSCRIPTIONS = Limit(
    "maxSubscriptionsPerGroup", 4_096, "subscriptions", "subscriptions of a group in a heartbeat", "code 29"
)
METRICS_CONNECTIONS = Limit(
    "maxMetricsConnections", 16, "connections", "connections of the page of metrics", "it is closed at once",
    server="both", fixed=True,
)
METRICS_REQUEST = Limit(
    "maxMetricsRequestBytes", 8_192, "bytes", "the head of a request for the page of metrics", "status 431",
    server="both", fixed=True,
)
USERS = Limit("maxUsers", 10_000, "users", "users of access control", "code 29", server="both")
POLICY_ENTRIES = Limit(
    "maxPolicyEntries", 50_000, "entries", "entries of all users' policies together", "code 29", server="both"
)
SOURCE_IPS = Limit(
    "maxSourceIps", 256, "addresses", "addresses and ranges of an entry of a policy", "code 29", server="both",
    fixed=True,
)
CREDENTIAL_LENGTH = Limit(
    "maxCredentialLength", 1_024, "characters", "the name or password of a user", "code 29", server="both", fixed=True
)
ACCESS_BODY = Limit(
    "maxAccessBodyBytes", 262_144, "bytes", "the body of a change of users or policies", "code 29", server="both",
    fixed=True,
)
ACCESS_BYTES = Limit(
    "maxAccessBytes", 8_388_608, "bytes", "users and policies, as their file has them", "code 29", server="both",
    fixed=True,
)
# fmt: on

LIMITS: Final = {limit.name: limit for limit in list(vars().values()) if isinstance(limit, Limit)}
"""All limits by name, in the order of the reference page."""
