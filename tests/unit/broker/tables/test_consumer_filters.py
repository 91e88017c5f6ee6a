"""Subscriptions of groups in consumerFilter.json: the newest version, stored until a day after the last member left."""

import pytest

from tianzhou.broker.tables.consumer_filters import ConsumerFilters
from tianzhou.errors import ProtocolError
from tianzhou.filter import BloomFilter
from tianzhou.model import SubscriptionData

DAY = 86_400_000


def wish(topic: str, expression: str, version: int = 1, kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic, expression, expression_type=kind, sub_version=version)


def filters(now: int = 1_000, percent: int = 20) -> ConsumerFilters:
    return ConsumerFilters(BloomFilter(percent, 32), now)


def test_only_expressions_are_stored() -> None:
    table = filters()
    assert table.register("G", [wish("A", "a > 1"), wish("B", "x || y", kind="TAG"), wish("C", "")], 10) == []
    entry = table.find("A", "G")
    assert entry is not None
    assert (entry.expression, entry.version, entry.born_ms, entry.dead) == ("a > 1", 1, 10, False)
    assert entry.bloom == table.bloom.data("G#A")
    assert table.find("B", "G") is table.find("C", "G") is table.find("A", "H") is None
    assert list(table.of_topic("A")) == [entry]
    assert list(table.of_topic("B")) == []


def test_versions() -> None:
    table = filters()
    table.register("G", [wish("A", "a > 1", 5)], 10)
    table.register("G", [wish("A", "a > 2", 4)], 20)
    table.register("G", [wish("A", "a > 3", 5)], 30)
    entry = table.find("A", "G")
    assert entry is not None
    assert (entry.expression, entry.born_ms) == ("a > 1", 10)
    table.register("G", [wish("A", "a > 1", 6)], 40)
    assert (entry.version, entry.born_ms) == (6, 10)  # same expression: earlier results stay valid
    table.register("G", [wish("A", "a > 2", 7)], 50)
    newer = table.find("A", "G")
    assert newer is not None
    assert (newer.expression, newer.version, newer.born_ms) == ("a > 2", 7, 50)


def test_a_newer_expression_that_is_wrong_takes_the_older_away() -> None:
    table = filters()
    table.register("G", [wish("A", "a > 1", 1)], 10)
    problems = table.register("G", [wish("A", "a >", 2)], 20)
    (problem,) = problems
    assert problem.startswith("subscription of group G to topic A: 'a >' cannot be used: expected a property")
    assert problem.endswith("but the expression ends at position 3")
    assert table.find("A", "G") is None
    assert table.register("G", [wish("A", "a >", 2)], 30) == []  # said once
    assert len(table.register("G", [wish("A", "a >", 3)], 40)) == 1
    assert "XPATH is unknown" in table.register("G", [wish("A", "a", 4, kind="XPATH")], 50)[0]
    assert "from position 6 on it is ignored" in table.register("G", [wish("A", "a = 1 b = 2", 5)], 60)[0]
    assert table.find("A", "G") is not None


def test_groups_without_members_are_forgotten_after_a_day() -> None:
    table = filters()
    table.register("G", [wish("A", "a > 1"), wish("B", "b > 1")], 10)
    table.register("G", [wish("A", "a > 1")], 20)
    gone, kept = table.find("B", "G"), table.find("A", "G")
    assert gone is not None
    assert kept is not None
    assert (gone.dead_ms, kept.dead) == (20, False)
    table.unregister("G", 30)
    assert (gone.dead_ms, kept.dead_ms) == (20, 30)
    table.clean(20 + DAY, DAY)
    assert table.find("B", "G") is None
    table.register("G", [wish("A", "a > 1")], 40)
    assert not kept.dead
    table.unregister("G", 50)
    table.clean(50 + DAY, DAY)
    assert table.to_json() == {"filterDataByTopic": {}}


def test_the_file_is_rocketmqs_and_comes_back_as_left() -> None:
    table = filters()
    table.register("cg", [wish("orders", "a > 3", 1_700)], 1_600)
    value = table.to_json()
    assert value == {
        "filterDataByTopic": {
            "orders": {
                "groupFilterData": {
                    "cg": {
                        "bloomFilterData": {"bitNum": 112, "bitPos": [22, 11, 13]},
                        "bornTime": 1_600,
                        "clientVersion": 1_700,
                        "consumerGroup": "cg",
                        "dead": False,
                        "deadTime": 0,
                        "expression": "a > 3",
                        "expressionType": "SQL92",
                        "topic": "orders",
                    }
                },
                "topic": "orders",
            }
        }
    }
    later = filters(now=100_000)
    later.load(value)
    entry = later.find("orders", "cg")
    assert entry is not None
    assert (entry.dead_ms, entry.dead) == (70_000, True)
    later.register("cg", [wish("orders", "a > 3", 1_700)], 100_001)
    assert not entry.dead
    soon = filters(now=1_700)
    soon.load(value)
    assert soon.to_json()["filterDataByTopic"]["orders"]["groupFilterData"]["cg"]["deadTime"] == 1_600
    resized = filters(percent=1)
    resized.load(value)
    assert resized.find("orders", "cg") is None
    with pytest.raises(ProtocolError, match=r"consumerFilter\.json"):
        filters().load(
            {"filterDataByTopic": {"T": {"groupFilterData": {"G": {"expression": "a = 1", "expressionType": "SQL92"}}}}}
        )


def test_bits_of_a_record_are_those_of_the_groups_that_want_it() -> None:
    table = filters()
    for group, expression in (("G", "a > 1"), ("H", "a > 5"), ("I", "b = 1")):
        table.register(group, [wish("T", expression)], 10)
    assert table.bitmap("T", {"a": "3"}.get) == table.bloom.bitmap([table.bloom.data("G#T")])
    assert table.bitmap("T", {}.get) == bytes(14)
    assert table.bitmap("other", {"a": "3"}.get) == b""
