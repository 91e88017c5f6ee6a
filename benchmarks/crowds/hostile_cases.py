"""Requests of ten thousand hostile connections, one case for each limit of a server, for `hostile_crowd.py`."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil

from tianzhou import limits
from tianzhou.limits import LIMITS, Limit
from tianzhou.model import ConsumerData, HeartbeatData, SubscriptionData
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command, encode

TOPIC = "Hostile"
"""Existing topic with `QUEUES` queues and a message of `LARGE_BODY` bytes in its first queue."""
QUEUES = 256
LARGE_BODY = 1 << 20
PASSWORD = "a-secret-of-the-measurement"
USER = "friend"

CROWD = 10_000
"""Number of connections that together exceed the default limits. For a smaller crowd the limits shrink in
proportion.
"""

FILTERING_GROUPS = 1_000
"""Number of groups that announce SQL92 expressions, many each. The limit on expressions also bounds the groups."""

Frames = Callable[[int], Iterator[bytes]]
"""Function that yields the pieces one connection sends; its argument is the connection's number."""


@dataclass(frozen=True)
class Case:
    """A case: one limit of the server, and the connections that exceed it.

    Attributes:
        name: name on the command line and in the table.
        counter: figure that must grow, without `refused_`; empty where no figure grows.
        frames: generator of the frames of each connection.
        namesrv: whether the name server is the victim.
        settings: settings of the victim, beside its defaults.
        window: requests in flight on a connection.
        reads: whether the connection reads replies.
        hold_s: seconds that connections stay open after the last frame was sent, or after the last reply.
        addresses: number of source addresses.
        signs: whether access control is on.
    """

    name: str
    counter: str
    frames: Frames
    namesrv: bool = False
    settings: dict[str, object] = field(default_factory=dict)
    window: int = 4
    reads: bool = True
    hold_s: float = 2.0
    addresses: int = 8
    signs: bool = False

    def conf(self, connections: int) -> dict[str, object]:
        """Return the settings of the victim; a smaller crowd gets limits that are smaller in proportion."""
        share = min(connections / CROWD, 1)
        if self.counter == limits.ADDRESS_CONNECTIONS.name:
            return {self.counter: connections // 2}
        limit = LIMITS.get(self.counter)
        scaled = limit is not None and not limit.fixed and share < 1 and limit.unit not in ("ms", "seconds")
        return ({self.counter: ceil(limit.default * share)} if scaled and limit else {}) | self.settings


def request(code: int, body: bytes = b"", **fields: object) -> bytes:
    """Return an encoded request; header fields have their names on the wire."""
    return encode(Command(code, opaque=1, fields={name: str(value) for name, value in fields.items()}, body=body))


def _each(limit: Limit, share: float = 1) -> int:
    """Return the number of objects each connection requests, so that all connections together request 10 % more than
    the limit.
    """
    return ceil(limit.default * share * 1.1 / CROWD)


def _topic(name: str, queues: int) -> bytes:
    return request(
        RequestCode.UPDATE_AND_CREATE_TOPIC, topic=name, defaultTopic="TBW102", readQueueNums=queues,
        writeQueueNums=queues, perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false",
    )  # fmt: skip


def _topics(number: int) -> Iterator[bytes]:
    for one in range(_each(limits.TOPICS)):
        yield _topic(f"hostile-{number}-{one}", 1)


def _queues(number: int) -> Iterator[bytes]:
    for one in range(_each(limits.QUEUES, 1 / 200)):
        yield _topic(f"hostile-{number}-{one}", 200)


def _group(name: str) -> bytes:
    body = json.dumps({"groupName": name, "retryQueueNums": 1}).encode()
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


def _groups(number: int) -> Iterator[bytes]:
    for one in range(_each(limits.GROUPS)):
        yield _group(f"hostile-{number}-{one}")


def _beat(number: int, producers: list[str], consumers: list[ConsumerData]) -> bytes:
    body = HEARTBEAT.dumps(HeartbeatData(f"hostile@{number}", producers, consumers))
    return request(RequestCode.HEART_BEAT, body)


def _members(number: int) -> Iterator[bytes]:
    yield _beat(number, [f"hostile-{number}-{one}" for one in range(_each(limits.MEMBERS))], [])


def _subscriptions(number: int) -> Iterator[bytes]:
    size = _each(limits.SUBSCRIPTIONS)
    expression = "||".join(f"{number}-{tag}" for tag in range(size))[:size]
    subscription = SubscriptionData(TOPIC, expression, sub_version=1)
    yield _beat(number, [], [ConsumerData(f"hostile-{number % 1_000}", subscription_data_set=[subscription])])


def _consumer_groups(number: int) -> Iterator[bytes]:
    subscription = SubscriptionData(TOPIC, sub_version=1)
    for one in range(_each(limits.GROUPS)):
        yield _beat(number, [], [ConsumerData(f"hostile-{number}-{one}", subscription_data_set=[subscription])])


def _filters(number: int) -> Iterator[bytes]:
    subscriptions = [
        SubscriptionData(f"hostile-{one}", f"a{number} > {one}", sub_version=1, expression_type="SQL92")
        for one in range(_each(limits.FILTERS, CROWD / FILTERING_GROUPS))
    ]
    if number < FILTERING_GROUPS:
        yield _beat(number, [], [ConsumerData(f"hostile-{number}", subscription_data_set=subscriptions)])


def _large_heartbeats(number: int) -> Iterator[bytes]:
    names = (f"hostile-{number}-{one}" for one in range(4_000))
    subscriptions = [SubscriptionData(f"t{one}", sub_version=1) for one in range(4_000)]
    yield _beat(number, list(names), [ConsumerData(f"hostile-{number}", subscription_data_set=subscriptions)])
    yield request(RequestCode.HEART_BEAT, b'{"clientID":"' + b"c" * 2_097_152 + b'"}')


def _long_heartbeats(number: int) -> Iterator[bytes]:
    """Yield heartbeats that take long to process, so that the next ones wait with their bytes in memory."""
    subscriptions = [SubscriptionData(f"{'t' * 90}-{one}", sub_version=1) for one in range(500)]
    for one in range(4):
        yield _beat(number, [], [ConsumerData(f"hostile-{number}-{one}", subscription_data_set=subscriptions)])


def _send(queue: int, body: bytes, properties: str = "", flag: int = 0) -> bytes:
    return request(
        RequestCode.SEND_MESSAGE_V2, body, a="hostile", b=TOPIC, c="TBW102", d=4, e=queue, f=flag, g=1, h=0,
        i=properties, j=0, k="false", m="false",
    )  # fmt: skip


def _properties(number: int) -> Iterator[bytes]:
    for size in (32_000, 32_768, 32_768, 65_000):
        yield _send(number % QUEUES, b"body", "p\x01" + "v" * size + "\x02")


def _offsets(number: int) -> Iterator[bytes]:
    for one in range(_each(limits.OFFSETS)):
        group = f"hostile-{number}-{one // QUEUES}"
        if one % QUEUES == 0:
            yield _group(group)
        yield request(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=group, topic=TOPIC, queueId=one % QUEUES, commitOffset=0
        )


def _kv(number: int) -> Iterator[bytes]:
    for one in range(_each(limits.KV_ENTRIES)):
        yield request(RequestCode.PUT_KV_CONFIG, namespace="hostile", key=f"{number}-{one}", value="v" * 40)


def _half_frames(_number: int) -> Iterator[bytes]:
    yield (16_777_212).to_bytes(4, "big") + (100).to_bytes(4, "big") + b"x" * 65_536


def _pull(queue: int, offset: int, wait_ms: int, group: str) -> bytes:
    return request(
        RequestCode.PULL_MESSAGE, consumerGroup=group, topic=TOPIC, queueId=queue, queueOffset=offset, maxMsgNums=1,
        sysFlag=6 if wait_ms else 4, commitOffset=0, suspendTimeoutMillis=wait_ms, subscription="*", subVersion=0,
        expressionType="TAG",
    )  # fmt: skip


def _unread(number: int) -> Iterator[bytes]:
    for _ in range(8):
        yield _pull(0, 0, 0, f"hostile-{number % 100}")


def _long_polls(number: int) -> Iterator[bytes]:
    for one in range(_each(limits.LONG_POLLS)):
        yield _pull(1 + (number + one) % (QUEUES - 1), 0, 20_000, f"hostile-{number % 100}")


def _locks(number: int) -> Iterator[bytes]:
    wanted = range(_each(limits.LOCKS))
    queues = [{"topic": TOPIC, "brokerName": "broker-a", "queueId": one} for one in wanted]
    lock = {"clientId": f"hostile@{number}", "consumerGroup": f"hostile-{number}", "mqSet": queues}
    yield request(RequestCode.LOCK_BATCH_MQ, json.dumps(lock).encode())


def _half_messages(number: int) -> Iterator[bytes]:
    for _ in range(_each(limits.HALF_MESSAGES)):
        yield _send(number % QUEUES, b"half", "TRAN_MSG\x01true\x02PGROUP\x01hostile\x02", 4)


def _in_flight(number: int) -> Iterator[bytes]:
    for _ in range(64):
        yield _send(number % QUEUES, b"b" * 1024, "")


def _registrations(number: int) -> Iterator[bytes]:
    topics = {
        f"hostile-{one}": {"topicName": f"hostile-{one}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        for one in range(_each(limits.ROUTES, 1 / 2))
    }
    version = {"counter": 1, "timestamp": 1, "stateVersion": 0}
    wrapper = {"dataVersion": version, "topicConfigTable": topics, "topicQueueMappingInfoMap": {}}
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    host = f"10.{number // 250}.{number % 250}.1"
    for one in range(2):
        yield request(
            RequestCode.REGISTER_BROKER, body, brokerName=f"hostile-{number}-{one}", brokerId=0,
            brokerAddr=f"{host}:{10_000 + one}", clusterName="Hostile", haServerAddr="10.0.0.1:1",
        )  # fmt: skip


def _hello(_number: int) -> Iterator[bytes]:
    context = _TLS
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        yield outgoing.read()


_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _silent(_number: int) -> Iterator[bytes]:
    return iter(())


def _unsigned(number: int) -> Iterator[bytes]:
    for one in range(20):
        yield request(
            RequestCode.SEND_MESSAGE_V2, b"body", a="hostile", b=TOPIC, c="TBW102", d=4, e=number % QUEUES, f=0, g=1,
            h=0, i="", j=0, k="false", m="false", AccessKey=USER, Signature=f"{number}-{one}",
        )  # fmt: skip


CASES = {
    case.name: case
    for case in (
        Case(
            "silent connections",
            "firstRequestTimeoutMillis",
            _silent,
            settings={"firstRequestTimeoutMillis": 10_000},
            hold_s=16,
        ),
        Case("connections of an address", "maxConnectionsPerAddress", _silent, addresses=1),
        Case("TLS handshakes", "maxHandshakeSeconds", _hello, hold_s=14),
        Case("half requests", "", _half_frames, hold_s=5),
        Case("unread replies", "maxUnreadReplyBytes", _unread, reads=False, hold_s=5, window=8),
        Case(
            "requests in flight",
            "maxRequestsPerConnection",
            _in_flight,
            window=64,
            settings={"flushDiskType": "SYNC_FLUSH", "maxRequestsPerConnection": 16},
        ),
        Case("requests of all", "maxHeldRequestBytes", _long_heartbeats),
        Case("wrong signatures", "access", _unsigned, signs=True),
        Case("large heartbeats", "maxHeartbeatSize", _large_heartbeats, window=1),
        Case("topics", "maxTopics", _topics),
        Case("queues", "maxQueues", _queues),
        Case("groups", "maxGroups", _groups),
        Case("consumer groups", "maxGroups", _consumer_groups),
        Case("members", "maxMembers", _members),
        Case("subscriptions", "maxSubscriptionCharacters", _subscriptions),
        Case("filters", "maxConsumerFilters", _filters),
        Case("properties", "maxPropertiesBytes", _properties),
        Case("offsets", "maxConsumerOffsets", _offsets, window=32),
        Case("locks", "maxLocks", _locks),
        Case("long polls", "maxLongPolls", _long_polls, window=1_000_000, hold_s=5),
        Case(
            "half messages",
            "maxHalfMessages",
            _half_messages,
            window=16,
            settings={"waitTimeMillsInSendQueue": 60_000},  # the default would refuse half of them
        ),
        Case("KV entries", "maxKvEntries", _kv, namesrv=True),
        Case("registrations", "maxBrokers", _registrations, namesrv=True, window=1),
    )
}
"""All cases by name."""
