"""Bodies encoded in slices equal bodies encoded at once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from tianzhou.model import (
    BrokerData,
    ClusterInfo,
    ConsumeType,
    DataVersion,
    MessageQueue,
    QueueData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRoute,
)
from tianzhou.wire.bodies.beans import Bean, Wrapper
from tianzhou.wire.bodies.clients import (
    CONSUMER_CONNECTION,
    LOCK_REQUEST,
    LOCKED_QUEUES,
    PRODUCER_CONNECTION,
    PRODUCER_TABLE,
    Connection,
    ConsumerConnection,
    LockRequest,
    ProducerInfo,
)
from tianzhou.wire.bodies.groups import GROUP_LIST, SUBSCRIPTION_GROUP_TABLE, SubscriptionGroupTable
from tianzhou.wire.bodies.offsets import (
    BROKER_CONSUME_STATS,
    CONSUME_STATS,
    CORRECTION_OFFSETS,
    OFFSET_TABLE,
    TIME_SPANS,
    TOPIC_STATS,
    BrokerConsumeStats,
    ConsumeStats,
    QueueProgress,
    QueueTimeSpan,
    TopicOffset,
    TopicStats,
    write_consumer_offsets,
)
from tianzhou.wire.bodies.route import CLUSTER_INFO, ROUTE, STANDARD_ROUTE
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.bodies.topics import DATA_VERSION, TOPIC_LIST, TOPIC_TABLE, TopicList, TopicTable
from tianzhou.wire.json_dialect import Members, dumps, dumps_slices

MANY = 2_000
QUEUES = [MessageQueue(f"T{n % 3}", "b-\u00fc", n) for n in range(MANY)]
NAMES = [f"n\u2028{n}" for n in range(MANY)]
VERSION = DataVersion(3, 17)
CLIENTS = [Connection(f"c{n}", "1.2.3.4:5", "PYTHON", 479) for n in range(MANY)]
PRODUCERS = {f"P{n}": [ProducerInfo(f"c{n}", "/1.2.3.4:5", last_update_timestamp=n)] for n in range(MANY)}
TOPICS = {f"T{n}": TopicConfig(f"T{n}", n, 4, attributes={"a": "\u00fc"} if n % 2 else {}) for n in range(MANY)}
GROUPS = {f"G{n}": SubscriptionGroupConfig(f"G{n}", attributes={"k": "v"} if n % 2 else {}) for n in range(MANY)}
TOPICS_AND_VERSION = TopicTable(TOPICS, VERSION, topic_queue_mapping_info_map={"T": {"epoch": 1}})
GROUP_TABLE = SubscriptionGroupTable(GROUPS, VERSION, {"G1": {"T": 4}})
STATS = TopicStats({queue: TopicOffset(1, 2, 3) for queue in QUEUES}, 1.5)
PROGRESS = ConsumeStats({queue: QueueProgress(4, 3, 2, 4) for queue in QUEUES}, 0.25)
ALL_PROGRESS = BrokerConsumeStats([{"G": [PROGRESS, ConsumeStats()]}, {"H": []}], "a:1", 3, 2)
SPANS = [QueueTimeSpan(queue, 1, 2, 3, 4) for queue in QUEUES]
WIDE = TopicRoute(
    [QueueData(f"b{n}", 4, 4, 6, 0) for n in range(MANY)],
    [BrokerData(f"b{n}", "c\u00fc", {1: "h:2", 0: "h:1"}) for n in range(MANY)],
    filter_server_table={"h:1": ["f:1"]},
)
CLUSTER = ClusterInfo({broker.broker_name: broker for broker in WIDE.broker_datas}, {"c": ["b1", "b2"]})
LOCK = LockRequest("c", "G", QUEUES, only_this_broker=True)
MEMBERS = ConsumerConnection(
    CLIENTS,
    {"T": SubscriptionData("T", "a")},
    ConsumeType.CONSUME_PASSIVELY,
    different_subscriptions={"c1": {"T": "b"}},
)
SHARED = ConsumerConnection([], MEMBERS.subscription_table, ConsumeType.CONSUME_PASSIVELY, different_subscriptions={})
AGREED = ConsumerConnection(CLIENTS[:2])


Written = tuple[Generator[None, None, bytes], bytes]
"""A body encoded in slices, and the same body encoded at once."""


def both(codec: Bean[Any] | Wrapper[Any], value: Any) -> Callable[[], Written]:
    return lambda: (codec.slices(value), codec.dumps(value))


# Each worker collects this file, so a body is encoded only by its test.
BODIES: dict[str, Callable[[], Written]] = {
    "locked queues": both(LOCKED_QUEUES, QUEUES),
    "no locked queues": both(LOCKED_QUEUES, []),
    "lock request": both(LOCK_REQUEST, LOCK),
    "consumers": lambda: (
        CONSUMER_CONNECTION.slices_of(SHARED, iter(CLIENTS), iter([("c1", {"T": "b"})])),
        CONSUMER_CONNECTION.dumps(MEMBERS),
    ),
    "consumers that agree": lambda: (
        CONSUMER_CONNECTION.slices_of(ConsumerConnection(), iter(CLIENTS[:2]), iter(())),
        CONSUMER_CONNECTION.dumps(AGREED),
    ),
    "producers": both(PRODUCER_CONNECTION, CLIENTS),
    "all producers": lambda: (PRODUCER_TABLE.slices(PRODUCERS.items()), PRODUCER_TABLE.dumps(PRODUCERS)),
    "topics": both(TOPIC_TABLE, TOPICS_AND_VERSION),
    "groups": both(SUBSCRIPTION_GROUP_TABLE, GROUP_TABLE),
    "names of groups": both(GROUP_LIST, NAMES),
    "names of topics": both(TOPIC_LIST, TopicList(NAMES, "a:1")),
    "names of topics alone": both(TOPIC_LIST, TopicList(NAMES)),
    "topic figures": both(TOPIC_STATS, STATS),
    "progress": both(CONSUME_STATS, PROGRESS),
    "progress of all": both(BROKER_CONSUME_STATS, ALL_PROGRESS),
    "time spans": both(TIME_SPANS, SPANS),
    "offsets": both(OFFSET_TABLE, dict.fromkeys(QUEUES, 7)),
    "corrections": both(CORRECTION_OFFSETS, dict.fromkeys(range(MANY), 7)),
    "all offsets": lambda: (
        write_consumer_offsets({"offsetTable": [(name, {1: 2, 0: 1}) for name in NAMES]}, VERSION),
        dumps(
            {"dataVersion": DATA_VERSION.encode(VERSION), "offsetTable": {name: {0: 1, 1: 2} for name in NAMES}},
            sort_keys=False,
        ),
    ),
    "a route": both(ROUTE, WIDE),
    "a route in standard form": both(STANDARD_ROUTE, WIDE),
    "the cluster": both(CLUSTER_INFO, CLUSTER),
    "a table": lambda: (KV_TABLE.slices({name: name for name in NAMES}), KV_TABLE.dumps({n: n for n in NAMES})),
}  # fmt: skip


def finish(work: Generator[None, None, bytes]) -> tuple[bytes, int]:
    """Return the result of the work, and the number of its pauses."""
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_in_slices_is_the_body(kind: str) -> None:
    slices, whole = BODIES[kind]()
    written, pauses = finish(slices)
    assert written == whole
    assert pauses >= len(whole) // 60_000


def test_values_within_lists_and_members_are_made_when_they_are_written() -> None:
    made: list[int] = []

    def row(number: int) -> dict[str, Any]:
        made.append(number)
        return {"n": number, "none": None}

    lazy = {"rows": map(row, range(1_000)), "m": Members(iter([(1, iter("ab")), ("x", None), ("y", {"z": iter(())})]))}
    work = dumps_slices(lazy)
    next(work)
    assert 0 < len(made) < 200
    assert finish(work)[0] == dumps(
        {"rows": [{"n": n} for n in range(1_000)], "m": {1: ["a", "b"], "y": {"z": []}}}, sort_keys=False
    )
