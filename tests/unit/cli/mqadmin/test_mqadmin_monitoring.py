"""Output of `mqadmin startMonitoring`, by the reports of members."""

from __future__ import annotations

import pytest

from tianzhou.admin.progress import QueueLag
from tianzhou.cli.mqadmin.families.monitoring import LATE_MESSAGES, differs, moved, standing_still, undone
from tianzhou.model import MessageQueue
from tianzhou.model.subscription import SubscriptionData
from tianzhou.wire.bodies.clients import ConsumerRunningInfo, ProcessQueueInfo

NOW_MS = 1_000_000
QUEUE = MessageQueue("orders", "broker-a", 1)


def member(*subscriptions: str, started_ms: int = 0, kind: str = "CONSUME_PASSIVELY") -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        {"PROP_CONSUME_TYPE": kind, "PROP_CONSUMER_START_TIMESTAMP": str(started_ms), "PROP_CONSUMEORDERLY": "false"},
        [SubscriptionData(topic="orders", sub_string=one) for one in subscriptions],
    )


@pytest.mark.parametrize(
    ("members", "different"),
    [
        ((member("a"), member("a")), False),
        ((member("a"), member("b")), True),
        ((member("a"), member()), True),
        ((member(),), True),
        # New members, and pull consumers, may differ.
        ((member("a", started_ms=NOW_MS - 1_000), member("b")), False),
        ((member("a", kind="CONSUME_ACTIVELY"), member("b")), False),
    ],
)
def test_subscriptions_that_differ(members: tuple[ConsumerRunningInfo, ...], different: bool) -> None:
    assert differs({str(number): one for number, one in enumerate(members)}, NOW_MS) is different


@pytest.mark.parametrize(
    ("state", "orderly", "words"),
    [
        (
            ProcessQueueInfo(cached_msg_count=3, last_consume_timestamp=NOW_MS - 90_000),
            "false",
            "maybe blocked, 90000ms",
        ),
        (ProcessQueueInfo(cached_msg_count=3, last_consume_timestamp=NOW_MS - 30_000), "false", ""),
        (ProcessQueueInfo(last_consume_timestamp=0), "false", ""),
        (ProcessQueueInfo(last_lock_timestamp=NOW_MS - 5_000), "true", "can't lock for a while, 5000ms"),
        (ProcessQueueInfo(locked=True), "true", ""),
        (ProcessQueueInfo(locked=True, dropped=True, try_unlock_times=4), "true", "unlock 4 times, still failed"),
    ],
)
def test_queues_that_stand_still(state: ProcessQueueInfo, orderly: str, words: str) -> None:
    info = member("*")
    info.properties["PROP_CONSUMEORDERLY"] = orderly
    info.mq_table = {QUEUE: state}
    found = standing_still(info, NOW_MS)
    assert len(found) == bool(words)
    assert all(words in line and "brokerName=broker-a, queueId=1" in line for line in found)


def test_what_is_to_be_consumed_yet() -> None:
    queues = [
        QueueLag(QUEUE, 12, 10, 5_000, None, 10),
        QueueLag(MessageQueue("orders", "broker-a", 2), 9, 8, 6_000, None, 8),
    ]
    answer = undone("billing", "orders", queues, 700, online=True)
    assert answer is not None
    assert "undoneMsgsTotal=3, undoneMsgsSingleMQ=2, undoneMsgsDelayTimeMills=700" in answer.text
    assert undone("billing", "orders", queues, 0, online=False) is None
    late = [QueueLag(QUEUE, LATE_MESSAGES + 11, 10, 5_000, None, 10)]
    answer = undone("billing", "orders", late, 0, online=False)
    assert answer is not None
    assert answer.text.startswith(f"[billing] is {LATE_MESSAGES + 1} messages behind on topic orders")


def test_events_of_offsets_that_are_gone() -> None:
    body = (
        b'{"consumerGroup":"billing","messageQueue":{"brokerName":"broker-a","queueId":1,"topic":"orders"},'
        b'"offsetNew":7,"offsetRequest":3}'
    )
    answer = moved(body, NOW_MS)
    assert answer is not None
    assert "consumerGroup=billing" in answer.text
    assert "offsetRequest=3, offsetNew=7], eventTimestamp=1000000]" in answer.text
    assert moved(b"no event", NOW_MS) is None
