"""The question before dead letters are sent again, and the lag of the groups of a topic."""

from __future__ import annotations

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from tianzhou.admin.progress import GroupLag, QueueLag
from tianzhou.console.changes import resending, topic_lag
from tianzhou.model import MessageExt, MessageQueue
from tianzhou.model.names import RETRY_TOPIC


def letter(topic: str) -> MessageExt:
    properties = {RETRY_TOPIC: topic} if topic else {}
    return MessageExt("%DLQ%billing", b"x", 0, properties, "b", 0, 0, 0, 0, 0, "h", 0, "h", 0, 0, 1, 0, "id")


LETTERS = [letter("orders"), letter("orders"), letter("refunds"), letter("")]


def test_the_question_names_how_many_dead_letters_go_where() -> None:
    to_group = resending.resend_preview(LETTERS, "")
    assert (to_group.count, to_group.nameless) == (3, 1)
    assert resending.topic_rows(to_group) == [
        {"topic": "orders", "count": 2}, {"topic": "-", "count": 1}, {"topic": "refunds", "count": 1},
    ]  # fmt: skip
    to_topic = resending.resend_preview(LETTERS, "repairs")
    assert (to_topic.count, to_topic.nameless) == (4, 0)
    assert [len(resending.sendable(LETTERS, to)) for to in ("", "repairs")] == [3, 4]
    assert resending.named_groups(["a", "b"]) == "a, b"
    assert resending.named_groups([str(number) for number in range(21)]).endswith("19, …")


def test_the_groups_with_the_largest_lag_are_read_first() -> None:
    lags = {"b": 5, "c": 70, "elsewhere": 1_000}
    assert topic_lag.groups_to_read(["a", "b", "c"], lags) == ["c", "b", "a"]
    many = [f"g{number:03}" for number in range(60)]
    assert topic_lag.groups_to_read(many, {"g059": 1})[:2] == ["g059", "g000"]
    assert len(topic_lag.groups_to_read(many, {})) == topic_lag.MAX_GROUPS


def test_rows_of_a_group_have_the_offsets_and_the_member_of_each_queue() -> None:
    queues = [
        QueueLag(MessageQueue("orders", "broker-a", 0), 12, 5, client_id="10.0.0.7@1"),
        QueueLag(MessageQueue("orders", "broker-b", 0), 3, 3),
    ]
    assert topic_lag.queue_rows(GroupLag("billing", queues)) == [
        {"key": "broker-a:0", "broker": "broker-a", "queue": 0, "consumed": 5, "max": 12, "lag": 7,
         "member": "10.0.0.7@1"},
        {"key": "broker-b:0", "broker": "broker-b", "queue": 0, "consumed": 3, "max": 3, "lag": 0, "member": ""},
    ]  # fmt: skip
