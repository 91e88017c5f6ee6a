"""From routes to queues and addresses."""

from tianzhou.client.cluster.routes import RouteTable, borrowed, publish_queues, subscribe_queues
from tianzhou.model import BrokerData, MessageQueue, QueueData, TopicRoute


def route(*queues, brokers=None, order=None):
    brokers = brokers or {name: {0: f"{name}:10911"} for name, *_ in queues}
    return TopicRoute(
        [QueueData(name, read, write, perm) for name, read, write, perm in queues],
        [BrokerData(name, "c", dict(addresses)) for name, addresses in brokers.items()],
        order,
    )


def test_producers_see_writable_queues_of_brokers_with_a_master():
    found = route(
        ("b", 4, 2, 6), ("a", 1, 1, 2), ("r", 4, 4, 4), ("s", 4, 4, 6),
        brokers={"a": {0: "a:1"}, "b": {0: "b:1"}, "r": {0: "r:1"}, "s": {1: "s:2"}},
    )  # fmt: skip
    assert publish_queues("T", found) == [
        MessageQueue("T", "a", 0),
        MessageQueue("T", "b", 0),
        MessageQueue("T", "b", 1),
    ]


def test_an_order_configuration_names_the_queues():
    found = route(("a", 4, 4, 6), order="b:1;a:2;broken")
    assert publish_queues("T", found) == [
        MessageQueue("T", "b", 0),
        MessageQueue("T", "a", 0),
        MessageQueue("T", "a", 1),
    ]


def test_consumers_see_readable_queues_sorted_also_without_a_master():
    found = route(("b", 2, 1, 4), ("a", 1, 4, 6), ("w", 4, 4, 2), brokers={"b": {1: "b:2"}, "a": {0: "a:1"}})
    assert subscribe_queues("T", found) == [
        MessageQueue("T", "a", 0),
        MessageQueue("T", "b", 0),
        MessageQueue("T", "b", 1),
    ]


def test_an_unknown_topic_borrows_at_most_the_queues_requested():
    made = borrowed(route(("a", 8, 8, 7), ("b", 2, 2, 7)), 4)
    assert [(d.read_queue_nums, d.write_queue_nums) for d in made.queue_datas] == [(4, 4), (2, 2)]


def test_only_a_real_change_counts():
    table = RouteTable()
    assert table.put("T", route(("a", 4, 4, 6), ("b", 4, 4, 6)))
    assert not table.put("T", route(("b", 4, 4, 6), ("a", 4, 4, 6)))
    assert table.put("T", route(("a", 8, 4, 6), ("b", 4, 4, 6)))
    assert table.version == 2
    table.forget("T")
    assert "T" not in table
    assert table.version == 3


def test_addresses_by_replica():
    table = RouteTable()
    table.put("T", route(("a", 1, 1, 6), brokers={"a": {0: "a:0", 1: "a:1"}, "b": {2: "b:2"}}))
    assert (table.master("a"), table.master("b"), table.master("x")) == ("a:0", None, None)
    assert table.readable("a", 1) == "a:1"
    assert table.readable("a", 5) == "a:0"
    assert table.readable("b") == "b:2"
    assert table.readable("b", 1) == "b:2"
    assert table.addresses() == ["a:0", "a:1", "b:2"]
    assert table.addresses(masters_only=True) == ["a:0"]


def test_brokers_that_left_every_route_are_forgotten():
    table = RouteTable()
    table.put("T", route(("a", 1, 1, 6), ("b", 1, 1, 6)))
    table.put("T", route(("a", 1, 1, 6)))
    table.prune()
    assert table.addresses() == ["a:10911"]
