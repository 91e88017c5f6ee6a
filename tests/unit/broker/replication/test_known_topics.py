"""Topics that a slave learns only from its log: the queues it would write as a master can also be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tianzhou.broker.replication.replication import Replication
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.tables.topics import BrokerTopicTable
from tianzhou.model import TopicConfig
from tianzhou.store.settings import StoreSettings
from tianzhou.testing.clock import VirtualClock


def slave() -> tuple[BrokerTopicTable, Any]:
    """Return a slave's topics, and the function its log calls for every new queue."""
    settings, topics = StoreSettings(broker_role="SLAVE"), BrokerTopicTable()
    store: Any = SimpleNamespace(settings=settings, copy=SimpleNamespace(on_new_queue=None))
    replication = Replication(store, BrokerSettings(), VirtualClock(), 10911)
    replication._know_topics(cast("Any", SimpleNamespace(topics=topics)))
    return topics, store.copy.on_new_queue


def queues(topics: BrokerTopicTable, topic: str) -> tuple[int, int]:
    """Return the numbers of read queues and write queues."""
    found = topics.get(topic)
    assert found is not None
    return found.read_queue_nums, found.write_queue_nums


def test_as_many_queues_are_written_as_read() -> None:
    topics, know = slave()
    know("orders", 1)
    assert queues(topics, "orders") == (8, 8)
    know("orders", 3)
    know("orders", 0)
    assert queues(topics, "orders") == (8, 8)
    know("orders", 11)
    assert queues(topics, "orders") == (12, 12)


def test_what_the_masters_table_says_of_writing_stays() -> None:
    topics, know = slave()
    topics.put(TopicConfig("orders", 4, 2), 0)
    know("orders", 5)
    assert queues(topics, "orders") == (6, 2)


def test_a_retry_topic_has_one_queue() -> None:
    topics, know = slave()
    know("%RETRY%g", 0)
    assert queues(topics, "%RETRY%g") == (1, 1)
