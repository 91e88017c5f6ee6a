"""Queue allocation: the results of RocketMQ's own strategies, and invariants of all strategies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.client.consumer.allocation import (
    Averagely,
    ByCircle,
    ByMachineRoom,
    ConsistentHash,
    FixedQueues,
    NearbyRoom,
    changes,
    sorted_client_ids,
    sorted_queues,
)
from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue


def queues_of(count, broker="b", topic="T"):
    return [MessageQueue(topic, broker, i) for i in range(count)]


def ids(queues):
    return [queue.queue_id for queue in queues]


@pytest.mark.parametrize(
    ("queues", "members", "expected"),
    [
        (8, 1, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (8, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (2, 3, [[0], [1], []]),
        (3, 3, [[0], [1], [2]]),
    ],
)
def test_averagely_gives_consecutive_slices(queues, members, expected):
    clients = [f"c{i}" for i in range(members)]
    assert [ids(Averagely().allocate(c, queues_of(queues), clients)) for c in clients] == expected


@pytest.mark.parametrize(
    ("queues", "members", "expected"),
    [(8, 3, [[0, 3, 6], [1, 4, 7], [2, 5]]), (2, 3, [[0], [1], []]), (4, 1, [[0, 1, 2, 3]])],
)
def test_by_circle_deals_queue_by_queue(queues, members, expected):
    clients = [f"c{i}" for i in range(members)]
    assert [ids(ByCircle().allocate(c, queues_of(queues), clients)) for c in clients] == expected


def test_machine_room_takes_only_brokers_of_its_rooms():
    queues = queues_of(4, "east@a") + queues_of(2, "west@b") + queues_of(1, "plain")
    strategy = ByMachineRoom(["east"])
    assert strategy.allocate("c0", queues, ["c0", "c1", "c2"]) == [queues[0], queues[3]]
    assert strategy.allocate("c2", queues, ["c0", "c1", "c2"]) == [queues[2]]


def test_nearby_room_prefers_its_own_and_shares_rooms_without_members():
    queues = queues_of(4, "east-a") + queues_of(4, "west-b") + queues_of(2, "north-c")
    strategy = NearbyRoom(Averagely(), lambda q: q.broker_name.split("-")[0], lambda c: c.split("-")[0])
    clients = sorted_client_ids(["east-1", "east-2", "west-1"])
    shares = {c: strategy.allocate(c, sorted_queues(queues), clients) for c in clients}
    assert {(q.broker_name, q.queue_id) for q in shares["east-1"]} == {("east-a", 0), ("east-a", 1), ("north-c", 0)}
    assert {(q.broker_name, q.queue_id) for q in shares["west-1"]} == {("west-b", i) for i in range(4)}
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"


def test_a_resolver_without_an_answer_is_reported():
    strategy = NearbyRoom(Averagely(), lambda q: "", lambda c: "east")
    with pytest.raises(ConfigError, match="no machine room for T@b:0"):
        strategy.allocate("c", queues_of(1), ["c"])


def test_fixed_queues_ignore_everybody():
    mine = queues_of(2)
    assert FixedQueues(mine).allocate("stranger", queues_of(9), ["a"]) == mine


members = st.lists(st.text("abc@#019", min_size=1, max_size=8), min_size=1, max_size=9, unique=True)
all_queues = st.lists(
    st.builds(MessageQueue, st.just("T"), st.sampled_from(["a", "b"]), st.integers(0, 20)), max_size=30, unique=True
)


@pytest.mark.parametrize("strategy", [Averagely(), ByCircle(), ConsistentHash()], ids=lambda s: s.name)
@given(clients=members, queues=all_queues)
def test_every_queue_has_exactly_one_owner(strategy, clients, queues):
    clients, queues = sorted_client_ids(clients), sorted_queues(queues)
    shares = [strategy.allocate(c, queues, clients) for c in clients]
    assert sorted(q for share in shares for q in share) == sorted(queues)


@pytest.mark.parametrize("strategy", [Averagely(), ByCircle()], ids=lambda s: s.name)
@given(clients=members, queues=all_queues)
def test_shares_differ_by_at_most_one(strategy, clients, queues):
    clients, queues = sorted_client_ids(clients), sorted_queues(queues)
    sizes = [len(strategy.allocate(c, queues, clients)) for c in clients]
    assert max(sizes) - min(sizes) <= 1


@given(clients=members, queues=all_queues)
def test_a_leaving_member_moves_only_its_own_queues_on_the_ring(clients, queues):
    clients, queues = sorted_client_ids(clients), sorted_queues(queues)
    gone, left = clients[0], clients[1:]
    for client in left:
        before = set(ConsistentHash().allocate(client, queues, clients))
        assert before <= set(ConsistentHash().allocate(client, queues, left))
    assert not ConsistentHash().allocate(gone, queues, left)


@pytest.mark.parametrize("strategy", [Averagely(), ByCircle(), ConsistentHash()], ids=lambda s: s.name)
def test_who_is_no_member_gets_nothing(strategy):
    assert strategy.allocate("stranger", queues_of(4), ["a", "b"]) == []


def test_client_ids_sort_as_java_sorts_them():
    # Java compares UTF-16 units, where a character beyond the first plane starts with a unit below U+E000.
    assert sorted_client_ids(["\uff5e", "\U0001f600", "a"]) == ["a", "\U0001f600", "\uff5e"]


def test_changes_say_what_to_give_up_and_what_to_take():
    a, b, c = queues_of(3)
    assert changes([a, b], [b, c]) == ([a], [c])
    assert changes([], [c, a]) == ([], [a, c])
