"""Topics are created, changed and deleted by RocketMQ's rules, and reserved ones are protected."""

import pytest

from tianzhou.broker.tables.topic_attributes import apply_changes, parse_changes
from tianzhou.broker.tables.topics import BrokerTopicTable, system_topics
from tianzhou.errors import BrokerError
from tianzhou.model import TopicConfig
from tianzhou.model.name_rules import topic_name_problem


def table(auto_create: bool = True) -> BrokerTopicTable:
    return BrokerTopicTable(system_topics(cluster="C", broker="b", auto_create=auto_create, default_queues=8), now_ms=1)


def create(
    topics: BrokerTopicTable, topic: str, template: str = "TBW102", queues: int = 4, auto: bool = True
) -> TopicConfig | None:
    return topics.create_by_send(topic, template, queues, 5, auto_create=auto)


def test_the_topics_of_a_fresh_broker_are_apaches() -> None:
    assert set(table().all()) == {
        "RMQ_SYS_TRANS_HALF_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "TBW102", "rmq_sys_REVIVE_LOG_C",
        "SELF_TEST_TOPIC", "C", "SCHEDULE_TOPIC_XXXX", "C_REPLY_TOPIC", "rmq_sys_wheel_timer",
        "rmq_sys_SYNC_BROKER_MEMBER_b", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "b",
    }  # fmt: skip
    assert table().all()["TBW102"].perm == 7


def test_a_send_creates_the_topic_from_the_template() -> None:
    topics = table()
    heard: list[str] = []
    topics.listeners.append(heard.extend)
    assert create(topics, "orders") == TopicConfig("orders", 4, 4, 6)
    assert create(topics, "many", queues=100) == TopicConfig("many", 8, 8, 6)
    assert create(topics, "none", queues=-3) == TopicConfig("none", 0, 0, 6)
    assert heard == ["orders", "many", "none"]
    assert (topics.version.counter, topics.version.timestamp) == (3, 5)
    assert create(topics, "orders", queues=1) == TopicConfig("orders", 4, 4, 6)
    assert topics.version.counter == 3


def test_no_template_no_inheritance_no_topic() -> None:
    topics = table(auto_create=False)
    assert create(topics, "orders", auto=False) is None
    topics.put(TopicConfig("plain", 4, 4, 6), 2)
    assert create(topics, "orders", template="plain") is None
    assert create(topics, "%RETRY%g", template="plain") == TopicConfig("%RETRY%g", 1, 1, 6)


def test_switching_auto_creation_off_takes_the_inherit_bit_at_the_next_use() -> None:
    topics = table()
    assert create(topics, "late", auto=False) is None
    assert topics.all()["TBW102"].perm == 6
    assert create(topics, "later", auto=True) is None


def test_put_of_the_same_config_changes_nothing() -> None:
    topics = table()
    assert topics.put(TopicConfig("a", 1, 1), 9)
    assert not topics.put(TopicConfig("a", 1, 1), 10)
    assert topics.version.timestamp == 9


def test_delete_tells_what_was_there() -> None:
    topics = table()
    topics.put(TopicConfig("a"), 1)
    assert topics.delete(["a", "never"], 2) == ["a"]
    assert "a" not in topics


@pytest.mark.parametrize(
    "topic", ["TBW102", "rmq_sys_anything", "C", "b", "CHECKPOINT_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"]
)
def test_system_topics_are_protected(topic: str) -> None:
    assert table().is_system(topic)


@pytest.mark.parametrize(
    ("name", "word"),
    [("", "blank"), ("  ", "blank"), (None, "blank"), ("a b", "illegal"), ("käse", "illegal"), ("a" * 128, "longer")],
)
def test_bad_names_are_named(name: str | None, word: str) -> None:
    assert word in (topic_name_problem(name) or "")
    assert topic_name_problem("%RETRY%Fine_-|9") is None


def test_attribute_changes() -> None:
    assert parse_changes("+message.type=FIFO, -reserve.time") == {"message.type": "FIFO", "reserve.time": None}
    assert parse_changes("") == {}
    assert apply_changes(None, {"message.type": "FIFO"}) == {"message.type": "FIFO"}
    assert apply_changes({"reserve.time": "5"}, {"reserve.time": None}) == {}


@pytest.mark.parametrize(
    ("current", "text"),
    [
        (None, "+colour=red"), (None, "+message.type=ODD"), (None, "-message.type"), ({}, "+queue.type=BatchCQ"),
        ({}, "+reserve.time=soon"), ({}, "message.type=FIFO"), ({}, "+message.type=FIFO,-message.type"),
    ],
)  # fmt: skip
def test_attribute_changes_that_are_refused(current: dict[str, str] | None, text: str) -> None:
    with pytest.raises(BrokerError):
        apply_changes(current, parse_changes(text))
