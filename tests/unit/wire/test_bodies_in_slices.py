"""Bodies that are written in slices read as those that are written at once."""

from __future__ import annotations

from collections.abc import Generator
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
from tianzhou.wire import bodies
from tianzhou.wire.json_dialect import Members, dumps, dumps_slices

MANY = 2_000
QUEUES = [MessageQueue(f"T{n % 3}", "b-\u00fc", n) for n in range(MANY)]
NAMES = [f"n\u2028{n}" for n in range(MANY)]
VERSION = DataVersion(3, 17)
CLIENTS = [bodies.Connection(f"c{n}", "1.2.3.4:5", "PYTHON", 479) for n in range(MANY)]
PRODUCERS = {f"P{n}": [bodies.ProducerInfo(f"c{n}", "/1.2.3.4:5", last_update_timestamp=n)] for n in range(MANY)}
TOPICS = {f"T{n}": TopicConfig(f"T{n}", n, 4, attributes={"a": "\u00fc"} if n % 2 else {}) for n in range(MANY)}
GROUPS = {f"G{n}": SubscriptionGroupConfig(f"G{n}", attributes={"k": "v"} if n % 2 else {}) for n in range(MANY)}
TOPIC_TABLE = bodies.TopicTable(TOPICS, VERSION, topic_queue_mapping_info_map={"T": {"epoch": 1}})
GROUP_TABLE = bodies.SubscriptionGroupTable(GROUPS, VERSION, {"G1": {"T": 4}})
STATS = bodies.TopicStats({queue: bodies.TopicOffset(1, 2, 3) for queue in QUEUES}, 1.5)
PROGRESS = bodies.ConsumeStats({queue: bodies.QueueProgress(4, 3, 2, 4) for queue in QUEUES}, 0.25)
ALL_PROGRESS = bodies.BrokerConsumeStats([{"G": [PROGRESS, bodies.ConsumeStats()]}, {"H": []}], "a:1", 3, 2)
SPANS = [bodies.QueueTimeSpan(queue, 1, 2, 3, 4) for queue in QUEUES]
ROUTE = TopicRoute(
    [QueueData(f"b{n}", 4, 4, 6, 0) for n in range(MANY)],
    [BrokerData(f"b{n}", "c\u00fc", {1: "h:2", 0: "h:1"}) for n in range(MANY)],
    filter_server_table={"h:1": ["f:1"]},
)
CLUSTER = ClusterInfo({broker.broker_name: broker for broker in ROUTE.broker_datas}, {"c": ["b1", "b2"]})
LOCK = bodies.LockRequest("c", "G", QUEUES, only_this_broker=True)
MEMBERS = bodies.ConsumerConnection(
    CLIENTS,
    {"T": SubscriptionData("T", "a")},
    ConsumeType.CONSUME_PASSIVELY,
    different_subscriptions={"c1": {"T": "b"}},
)
SHARED = bodies.ConsumerConnection(
    [], MEMBERS.subscription_table, ConsumeType.CONSUME_PASSIVELY, different_subscriptions={}
)
AGREED = bodies.ConsumerConnection(CLIENTS[:2])

BODIES: dict[str, tuple[Generator[None, None, bytes], bytes]] = {
    "locked queues": (bodies.write_locked_queues(QUEUES), bodies.encode_locked_queues(QUEUES)),
    "no locked queues": (bodies.write_locked_queues([]), bodies.encode_locked_queues([])),
    "lock request": (bodies.write_lock_request(LOCK), bodies.encode_lock_request(LOCK)),
    "consumers": (
        bodies.write_consumer_connection(SHARED, iter(CLIENTS), iter([("c1", {"T": "b"})])),
        bodies.encode_consumer_connection(MEMBERS),
    ),
    "consumers that agree": (
        bodies.write_consumer_connection(bodies.ConsumerConnection(), iter(CLIENTS[:2]), iter(())),
        bodies.encode_consumer_connection(AGREED),
    ),
    "producers": (bodies.write_producer_connection(CLIENTS), bodies.encode_producer_connection(CLIENTS)),
    "all producers": (bodies.write_producer_table(PRODUCERS.items()), bodies.encode_producer_table(PRODUCERS)),
    "topics": (bodies.write_topic_table(TOPIC_TABLE), bodies.encode_topic_table(TOPIC_TABLE)),
    "groups": (bodies.write_subscription_group_table(GROUP_TABLE), bodies.encode_subscription_group_table(GROUP_TABLE)),
    "names of groups": (bodies.write_group_list(NAMES), bodies.encode_group_list(NAMES)),
    "names of topics": (bodies.write_topic_list(NAMES, "a:1"), bodies.encode_topic_list(NAMES, "a:1")),
    "names of topics alone": (bodies.write_topic_list(NAMES), bodies.encode_topic_list(NAMES)),
    "topic figures": (bodies.write_topic_stats(STATS), bodies.encode_topic_stats(STATS)),
    "progress": (bodies.write_consume_stats(PROGRESS), bodies.encode_consume_stats(PROGRESS)),
    "progress of all": (
        bodies.write_broker_consume_stats(ALL_PROGRESS), bodies.encode_broker_consume_stats(ALL_PROGRESS)
    ),
    "time spans": (bodies.write_time_spans(SPANS), bodies.encode_time_spans(SPANS)),
    "offsets": (
        bodies.write_offset_table(dict.fromkeys(QUEUES, 7)), bodies.encode_offset_table(dict.fromkeys(QUEUES, 7))
    ),
    "corrections": (
        bodies.write_correction_offsets(dict.fromkeys(range(MANY), 7)),
        bodies.encode_correction_offsets(dict.fromkeys(range(MANY), 7)),
    ),
    "all offsets": (
        bodies.write_consumer_offsets({"offsetTable": [(name, {1: 2, 0: 1}) for name in NAMES]}, VERSION),
        dumps(
            {"dataVersion": bodies.DATA_VERSION.encode(VERSION), "offsetTable": {name: {0: 1, 1: 2} for name in NAMES}},
            sort_keys=False,
        ),
    ),
    "a route": (bodies.write_route(ROUTE, standard=False), bodies.encode_route(ROUTE, standard=False)),
    "a route in standard form": (bodies.write_route(ROUTE, standard=True), bodies.encode_route(ROUTE, standard=True)),
    "the cluster": (bodies.write_cluster_info(CLUSTER), bodies.encode_cluster_info(CLUSTER)),
    "a table": (bodies.write_kv_table({name: name for name in NAMES}), bodies.encode_kv_table({n: n for n in NAMES})),
}  # fmt: skip


def finish(work: Generator[None, None, bytes]) -> tuple[bytes, int]:
    """What work comes to, and how often it let others be served."""
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_in_slices_is_the_body(kind: str) -> None:
    slices, whole = BODIES[kind]
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
