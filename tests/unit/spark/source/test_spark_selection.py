"""The queues that a query reads: topics, patterns or assigned queues, with exactly one of these options."""

import pickle

import pytest

from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue
from tianzhou.spark.option_values import BATCH
from tianzhou.spark.source.read_options import parse_read

THERE = ["orders", "orders-eu", "bills", "TBW102", "%RETRY%audit", "%DLQ%audit", "rmq_sys_x", "broker-a", "East",
         "East_REPLY_TOPIC", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "OFFSET_MOVED_EVENT"]  # fmt: skip
A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))
ELSEWHERE = MessageQueue("orders", "broker-b", 0)


def selection(**option):
    return parse_read({"namesrvAddr": "a:1", **option}, BATCH).selection


def test_topics_by_name_need_not_be_there():
    chosen = selection(subscribe="orders,bills")
    assert chosen.topics_among([]) == ["orders", "bills"]
    assert chosen.wants(A)
    assert not chosen.wants(MessageQueue("else", "broker-a", 0))


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", ["orders"]),
        ("orders.*", ["orders", "orders-eu"]),
        (".*", ["bills", "orders", "orders-eu"]),
        ("%DLQ%.*", ["%DLQ%audit"]),
        ("nothing", []),
    ],
)
def test_a_pattern_matches_whole_names_of_topics_people_made(pattern, found):
    assert selection(subscribePattern=pattern).topics_among(THERE, ["East", "broker-a"]) == found


def test_queues_of_every_broker_or_of_one():
    everywhere = selection(assign='{"orders": [0, 2]}')
    assert everywhere.topics_among([]) == ["orders"]
    assert [queue for queue in (A, B, C, ELSEWHERE) if everywhere.wants(queue)] == [A, C, ELSEWHERE]
    one = selection(assign='{"orders": {"broker-a": [0, 1]}, "bills": [0]}')
    assert [queue for queue in (A, B, C, ELSEWHERE) if one.wants(queue)] == [A, B]
    one.check([A, B, C, ELSEWHERE, MessageQueue("bills", "broker-b", 0)])
    assert pickle.loads(pickle.dumps(one)) == one


def test_queues_that_do_not_exist_are_named_with_those_that_do():
    with pytest.raises(ConfigError, match=r"assign: there is no queue 7 of orders on broker-a; there are orders@"):
        selection(assign='{"orders": {"broker-a": [0, 7]}}').check([A, B])
    with pytest.raises(ConfigError, match="there is no queue 9 of orders; "):
        selection(assign='{"orders": [9]}').check([A, B])


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("subscribePattern", "orders(", r"missing \).*expected a regular expression that whole topic names match"),
        ("subscribePattern", " ", "the option subscribePattern is missing"),
        ("assign", "orders", "expected JSON like"),
        ("assign", "[]", "expected JSON like"),
        ("assign", "{}", "expected JSON like"),
        ("assign", '{"orders": []}', r"\[\] of orders is no list of queue ids"),
        ("assign", '{"orders": 1}', "1 of orders is no list of queue ids"),
        ("assign", '{"orders": {}}', "no broker of orders is named"),
        ("assign", '{"orders": [0, -1]}', "-1 of orders is no queue id"),
        ("assign", '{"orders": [true]}', "true of orders is no queue id"),
        ("assign", '{"two words": [0]}', "'two words' is no topic"),
    ],
)
def test_a_bad_choice_is_named_with_what_is_allowed(option, value, expected):
    with pytest.raises(ConfigError, match=expected) as caught:
        selection(**{option: value})
    assert option in str(caught.value)
    assert value.strip() in str(caught.value)


def test_exactly_one_way_to_choose():
    with pytest.raises(ConfigError, match=r"option subscribe is missing.*subscribePattern, or queues by assign"):
        selection()
    with pytest.raises(ConfigError, match=r"subscribe=orders and subscribePattern=o\.\* are given; give one of "):
        selection(subscribe="orders", subscribePattern="o.*")
