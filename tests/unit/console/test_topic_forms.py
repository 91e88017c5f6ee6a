"""Values of the forms of topics and groups: fields that refuse bad numbers and names, and rows of a preview."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from tianzhou.admin import DroppedQueue, QueueNumbers, QueuePlan
from tianzhou.admin.cluster import BrokerStatus
from tianzhou.console.forms import values
from tianzhou.console.forms.values import TopicChange
from tianzhou.console.texts import LANGUAGES, english, text
from tianzhou.model import SubscriptionGroupConfig, TopicConfig

BROKERS = [
    BrokerStatus("east", "broker-a", 0, "127.0.0.1:1"),
    BrokerStatus("east", "broker-a", 1, "127.0.0.1:2"),
    BrokerStatus("west", "broker-b", 0, "127.0.0.1:3"),
]


@pytest.mark.parametrize("value", [None, "", "8", True, -1, 0, 1.5, 65_536, 99_999_999, math.inf, math.nan])
def test_a_bad_number_of_queues_is_a_problem_of_its_field(value: object) -> None:
    assert values.queues_problem(value, english) == "Give a whole number from 1 to 65,535."


@pytest.mark.parametrize("value", [1, 8.0, 1_000, 65_535])
def test_a_good_number_of_queues_is_none(value: float) -> None:
    assert values.queues_problem(value, english) is None


def test_retries_of_a_group_are_bounded_at_their_field() -> None:
    for value in (-1, 0, 1_000):
        assert values.number_problem(value, values.LEAST_RETRIES, values.MOST_RETRIES, english) is None
    for bad in (None, -2, 1_001):
        assert values.number_problem(bad, values.LEAST_RETRIES, values.MOST_RETRIES, english)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("orders", None),
        (" orders ", None),
        ("a|b-c_%d", None),
        ("", "Give a name."),
        (None, "Give a name."),
        ("two words", "Use letters, digits and the characters % | _ - only."),
        ("x" * 128, "A name has at most 127 characters."),
        ("%RETRY%foo", "Brokers create the topics that begin with %RETRY% themselves; choose another name."),
        ("%DLQ%foo", "Brokers create the topics that begin with %DLQ% themselves; choose another name."),
        ("%LMQ%foo", "Brokers create the topics that begin with %LMQ% themselves; choose another name."),
        ("TBW102", "TBW102 is a name of the system; choose another one."),
        ("rmq_sys_mine", "rmq_sys_mine is a name of the system; choose another one."),
        ("DefaultCluster", "DefaultCluster is a name of the system; choose another one."),
    ],
)
def test_names_that_a_visitor_may_not_create_as_topics(name: str | None, problem: str | None) -> None:
    assert values.topic_problem(name, {"DefaultCluster"}, english) == problem


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        ("billing", True), ("%RETRY%billing", False), ("%DLQ%billing", False), ("TOOLS_CONSUMER", False),
        ("CID_RMQ_SYS_MINE", False), ("DEFAULT_CONSUMER", False), ("", False), ("a b", False), ("x" * 256, False),
    ],
)  # fmt: skip
def test_names_that_a_visitor_may_not_create_as_groups(name: str, is_good: bool) -> None:
    assert (values.group_problem(name, {"TOOLS_CONSUMER"}, english) is None) == is_good


def test_where_a_topic_is_created() -> None:
    assert values.creation_targets(BROKERS, english) == {
        "": "all clusters",
        "cluster:east": "cluster east",
        "cluster:west": "cluster west",
        "broker:broker-a": "broker broker-a",
        "broker:broker-b": "broker broker-b",
    }
    assert values.creation_arguments("", BROKERS) == {}
    assert values.creation_arguments("cluster:east", BROKERS) == {"cluster": "east"}
    assert values.creation_arguments("broker:broker-a", BROKERS) == {"broker_addr": "127.0.0.1:1"}
    assert values.creation_arguments("new:broker-b", BROKERS) == {"broker_addr": "127.0.0.1:3"}


def test_where_a_topic_is_changed() -> None:
    assert values.change_targets(["broker-a"], BROKERS, english) == {
        "": "all brokers that have it",
        "new:broker-b": "add it to broker broker-b",
    }
    assert list(values.change_targets(["broker-a", "broker-b"], BROKERS, english)) == [
        "", "broker:broker-a", "broker:broker-b",
    ]  # fmt: skip


def test_a_setting_that_was_not_touched_stays_on_each_broker() -> None:
    shown = TopicConfig("orders", 4, 4, 6)
    other = TopicConfig("orders", 8, 8, 6, attributes={"message.type": "FIFO"})
    change = values.changed(shown, 4, 4, 4, "")
    assert change == TopicChange(perm=4)
    assert change.attributes is None
    rows = values.change_rows({"a": shown, "b": other}, change, english)
    assert [(row["broker"], row["setting"], row["now"], row["then"]) for row in rows] == [
        ("a", "May", "read and write", "read"),
        ("b", "May", "read and write", "read"),
    ]


def test_old_and_new_settings_stand_beside_each_other() -> None:
    shown = TopicConfig("orders", 4, 4, 7)
    configs = {"a": shown, "b": TopicConfig("orders", 6, 2, 6, attributes={"message.type": "FIFO"})}
    change = values.changed(shown, 6, 2, 6, "FIFO")
    assert change.attributes == {"message.type": "FIFO"}
    rows = values.change_rows(configs, change, english)
    assert [(row["broker"], row["setting"], row["now"], row["then"]) for row in rows] == [
        ("a", "Read queues", "4", "6"),
        ("a", "Write queues", "4", "2"),
        ("a", "May", "7", "read and write"),
        ("a", "Message type", "any", "ordered"),
    ]
    assert len({row["key"] for row in rows}) == 4
    assert values.change_rows(configs, TopicChange(), english) == []
    assert TopicChange(message_type="").attributes == {"message.type": None}, "any type removes the attribute"


PLAN = QueuePlan(
    "orders",
    {"a": (QueueNumbers(8, 8), QueueNumbers(4, 4)), "b": (QueueNumbers(5, 4), QueueNumbers(4, 4))},
    [DroppedQueue("a", 4, 3, 3), DroppedQueue("a", 5, 0, 9), DroppedQueue("a", 6, 7, 7, {"billing": 1_200})],
)


def test_a_plan_names_its_steps_and_the_queues_that_go() -> None:
    assert [values.step_words(step, english) for step in PLAN.steps] == [
        "Write 4 queues on a.",
        "Read 4 queues on a, b, once every group has consumed the queues that go.",
    ]
    assert values.dropped_words(PLAN) == "a:4-7, b:4"
    assert values.unread_words(PLAN.unread(), english) == "billing: 1,200"
    assert [(row["queue"], row["messages"], row["unread"]) for row in values.dropped_rows(PLAN.dropped, english)] == [
        ("a:6", 7, "billing: 1,200"),
        ("a:4", 3, ""),
    ]
    grown = QueuePlan("orders", {"a": (QueueNumbers(4, 4), QueueNumbers(8, 8))})
    assert [values.step_words(step, english) for step in grown.steps] == [
        "Read 8 queues on a.", "Write 8 queues on a.",
    ]  # fmt: skip
    assert values.dropped_words(grown) == ""


def test_numbers_that_differ_are_explained() -> None:
    configs = {"a": TopicConfig("T", 8, 4), "b": TopicConfig("T", 4, 4), "c": TopicConfig("T", 2, 3)}
    assert values.uneven_words(configs, english) == [
        "a reads queues that are not written any more: 4-7. Set the read queues to 4 to take them away.",
        "c writes queues that are not read: 2. Consumers do not get their messages.",
    ]


def test_a_change_of_a_group_shows_old_and_new() -> None:
    shown = SubscriptionGroupConfig("billing", retry_max_times=3)
    configs = {"a": shown, "b": SubscriptionGroupConfig("billing", retry_max_times=16)}
    settings = values.changed_settings(shown, False, shown.consume_broadcast_enable, 16)
    assert settings == {"consume_enable": False, "retry_max_times": 16}
    rows = values.group_rows(configs, settings, english)
    assert [(row["broker"], row["setting"], row["now"], row["then"]) for row in rows] == [
        ("a", "May consume", "yes", "no"),
        ("a", "Deliveries before it is a dead letter", "3", "16"),
        ("b", "May consume", "yes", "no"),
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_words_of_the_forms_are_there(language: str) -> None:
    def words(key: str, **given: object) -> str:
        return text(language, key, **given)

    for perm in (*values.PERMISSIONS, 7):
        assert values.perm_words(perm, words)
    for kind in (*values.MESSAGE_TYPES, "ODD"):
        assert values.type_words(kind, words)
    assert len(values.addition_rows("b", 1, 2, 6, "", words)) == 4
    for noun in ("topic", "group"):
        for key in ("exists", "missing"):
            assert "N1" in words(f"{noun}.{key}", name="N1")
        assert words(f"{noun}.missing.open")
        assert words(f"{noun}.exists.open", name="N1")
