"""Groups, consumer offsets, clients, locks, delay levels, retries: the pure tables and decisions."""

from typing import Any

import pytest

from tianzhou.broker.delays.delay import DelayLedger
from tianzhou.broker.messages.retry import DeadLetter, Retry, after_send_back, is_dead_on_arrival, limit_of
from tianzhou.broker.tables.clients import ClientTable, Departure, RegisteredClient
from tianzhou.broker.tables.consumer_offsets import ConsumerOffsetTable
from tianzhou.broker.tables.groups import GroupTable
from tianzhou.broker.tables.locks import QueueLockTable
from tianzhou.model import ConsumerData, MessageModel, MessageQueue, SubscriptionData
from tianzhou.store.settings import parse_delay_levels

LEVELS = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")


def test_groups_come_to_be_when_allowed() -> None:
    groups = GroupTable()
    assert groups.find("g", 1) is not None
    assert groups.version.counter == 1
    assert groups.find("bad name", 1) is None
    assert groups.find("x" * 256, 1) is None
    closed = GroupTable(auto_create=False)
    assert closed.find("g", 1) is None
    assert closed.find("CID_RMQ_SYS_THING", 1) is not None
    assert closed.find("TOOLS_CONSUMER", 1) is not None


def test_reading_can_be_forbidden_per_topic() -> None:
    groups = GroupTable()
    groups.set_readable("g", "t", False, 1)
    assert not groups.may_read("g", "t")
    assert groups.may_read("g", "other")
    assert groups.forbidden == {"g": {"t": 4}}
    groups.set_readable("g", "t", True, 2)
    assert groups.may_read("g", "t")
    assert groups.forbidden == {}


def test_offsets_beyond_the_ends_of_queues_are_lowered_to_them() -> None:
    offsets = ConsumerOffsetTable()
    for topic, queue_id, offset in (("t", 0, 10), ("t", 1, 7), ("t", 2, 3), ("gone", 0, 5), ("%LMQ%x", 0, 9)):
        offsets.commit("g", topic, queue_id, offset, 1)
    steps = offsets.lower_to_ends(lambda topic, queue_id: {"t": [10, 5, 8]}.get(topic, [0])[queue_id], 2)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == 2
    assert offsets.queues("g", "t") == {0: 10, 1: 5, 2: 3}
    assert offsets.queues("g", "gone") == {0: 0}
    assert offsets.queues("g", "%LMQ%x") == {0: 9}


def test_offsets_may_go_back_and_survive_their_json() -> None:
    offsets = ConsumerOffsetTable(version_step=2)
    assert offsets.committed("g", "t", 0) is None
    offsets.commit("g", "t", 0, 10, 7)
    offsets.commit("g", "t", 0, 4, 8)
    offsets.commit("g", "%RETRY%g", 1, 3, 9)
    assert offsets.committed("g", "t", 0) == 4
    assert offsets.dirty
    stored = offsets.to_json()
    assert not offsets.dirty
    assert stored["offsetTable"] == {"t@g": {0: 4}, "%RETRY%g@g": {1: 3}}
    assert stored["dataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": 8}
    other = ConsumerOffsetTable()
    other.load({"offsetTable": {"t@g": {"0": 4}}})
    assert other.committed("g", "t", 0) == 4
    assert other.topics_of("g") == ["t"]
    assert other.groups_of("t") == ["g"]


def test_a_reset_answers_one_pull_and_wins_until_then() -> None:
    offsets = ConsumerOffsetTable()
    offsets.commit("g", "t", 0, 10, 1)
    offsets.reset("g", "t", 0, 3, 2)
    assert offsets.reset_waits("g", "t", 0)
    assert offsets.committed("g", "t", 0) == 3
    assert offsets.take_reset("g", "t", 0) == 3
    assert offsets.take_reset("g", "t", 0) is None
    assert not offsets.reset_waits("g", "t", 0)
    assert offsets.committed("g", "t", 0) == 3


def test_cloned_and_forgotten_offsets() -> None:
    offsets = ConsumerOffsetTable()
    offsets.commit("g", "t", 0, 10, 1)
    offsets.commit("g", "u", 0, 5, 1)
    list(offsets.clone("g", "h", "t", 2))
    assert offsets.committed("h", "t", 0) == 10
    assert offsets.committed("h", "u", 0) is None
    offsets.forget_topic("t")
    assert offsets.committed("h", "t", 0) is None
    assert offsets.committed("g", "u", 0) == 5
    offsets.forget_group("g")
    assert offsets.committed("g", "u", 0) is None


def said(group: str, *topics: str, version: int = 1, expression: str = "*") -> ConsumerData:
    return ConsumerData(
        group, subscription_data_set=[SubscriptionData(t, expression, sub_version=version) for t in topics]
    )


def client(connection: str, name: str | None = None, seen: int = 0) -> RegisteredClient:
    return RegisteredClient(connection, name or connection, 0, 479, seen, seen)


def test_members_are_notified_when_someone_joins_or_topics_change() -> None:
    clients = ClientTable()
    assert clients.add_consumer(said("g", "t"), client("c1"))
    assert not clients.add_consumer(said("g", "t", version=2), client("c1"))
    assert clients.add_consumer(said("g", "t", version=2), client("c2"))
    assert clients.add_consumer(said("g", "t", "u", version=2), client("c2"))
    assert clients.add_consumer(said("g", "t", version=2), client("c1"))
    assert set(clients.consumers["g"].subscriptions) == {"t"}


def test_a_newer_subscription_replaces_an_older_one_only() -> None:
    clients = ClientTable()
    clients.add_consumer(said("g", "t", version=5, expression="TagA"), client("c1"))
    clients.add_consumer(said("g", "t", version=4, expression="TagB"), client("c1"))
    assert clients.consumers["g"].subscriptions["t"].codes == {2598919}
    clients.add_consumer(said("g", "t", version=6, expression="TagB"), client("c1"))
    assert clients.consumers["g"].subscriptions["t"].codes == {2598920}
    assert clients.subscribers("t") == ["g"]


def test_the_last_heartbeat_speaks_for_the_group() -> None:
    clients = ClientTable()
    clients.add_consumer(said("g", "t"), client("c1"))
    clients.add_consumer(
        ConsumerData("g", message_model=MessageModel.BROADCASTING), client("c2"), keep_subscriptions=True
    )
    assert clients.consumers["g"].message_model is MessageModel.BROADCASTING
    assert set(clients.consumers["g"].subscriptions) == {"t"}


def test_a_client_on_two_connections_counts_once() -> None:
    clients = ClientTable()
    clients.add_consumer(said("g", "t"), client("old", "me"))
    clients.add_consumer(said("g", "t"), client("new", "me"))
    assert clients.consumers["g"].client_ids() == ["me"]
    assert clients.remove_connection("old") == [Departure("g", "me")]
    assert clients.is_member("g", "me")


def test_a_lost_connection_leaves_every_group() -> None:
    clients = ClientTable()
    clients.add_consumer(said("g", "t"), client("c1"))
    clients.add_consumer(said("h", "t"), client("c1"))
    clients.add_producer("p", client("c1"))
    assert clients.remove_connection("c1") == [Departure("g", "c1"), Departure("h", "c1")]
    assert clients.consumers == {}
    assert clients.producers == {}
    assert clients.remove_connection("c1") == []


def test_silence_is_counted_from_the_last_heartbeat_of_any_kind() -> None:
    clients = ClientTable()
    clients.add_consumer(said("g", "t"), client("c1", seen=0))
    clients.add_producer("p", client("c1", seen=100))
    clients.add_producer("p", client("c2", seen=0))
    assert clients.silent(150, 100) == {"c2"}
    assert clients.silent(100, 100) == set()


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue("t", "b", queue_id)


def test_a_connection_that_ends_is_looked_for_in_its_own_groups_alone() -> None:
    class Walked(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            pytest.fail("all groups were gone through")

        __iter__ = values = items

    clients = ClientTable()
    keys = [f"c{number}" for number in range(100)]
    for number, key in enumerate(keys):
        client = RegisteredClient(key, f"id{number}", 0, 0, 0, 0)
        clients.add_consumer(ConsumerData(f"g{number}"), client)
        clients.add_consumer(ConsumerData("all"), client)
        clients.add_producer(f"p{number}", client)
    clients.consumers, clients.producers = Walked(clients.consumers.items()), Walked(clients.producers.items())
    assert clients.remove_connection(keys[7]) == [Departure("all", "id7"), Departure("g7", "id7")]
    assert clients.find_producer("id7") is None
    assert "g7" not in clients.consumers
    assert "p7" not in clients.producers
    assert clients.remove_connection(keys[7]) == []
    assert clients.remove_connection(keys[8]) == [Departure("all", "id8"), Departure("g8", "id8")]


def test_a_lock_belongs_to_one_client_until_it_expires() -> None:
    locks = QueueLockTable()
    assert locks.lock("g", "a", [queue(0), queue(1)], 0) == [queue(0), queue(1)]
    assert locks.lock("g", "b", [queue(0), queue(2)], 30_000) == [queue(2)]
    assert locks.lock("other", "b", [queue(0)], 0) == [queue(0)]
    assert locks.lock("g", "a", [queue(0)], 30_000) == [queue(0)]
    assert locks.lock("g", "b", [queue(0), queue(1)], 60_001) == [queue(1)]
    assert locks.held("g", 60_001)
    assert not locks.held("g", 200_000)


def test_only_own_locks_are_freed() -> None:
    locks = QueueLockTable()
    locks.lock("g", "a", [queue(0)], 0)
    locks.unlock("g", "b", [queue(0)])
    assert locks.lock("g", "b", [queue(0)], 1) == []
    locks.unlock("g", "a", [queue(0)])
    assert locks.lock("g", "b", [queue(0)], 1) == [queue(0)]


def test_locks_of_a_client_that_left_are_free_at_once() -> None:
    locks = QueueLockTable()
    locks.lock("g", "a", [queue(0), queue(1)], 0)
    assert locks.release("g", "a") == 2
    assert locks.lock("g", "b", [queue(0)], 1) == [queue(0)]


def test_when_a_delayed_message_is_due() -> None:
    ledger = DelayLedger(LEVELS)
    assert ledger.capped(99) == 18
    assert ledger.due_ms(3, stored_ms=100_000, now_ms=101_000) == 110_000
    assert ledger.due_ms(3, stored_ms=100_000, now_ms=90_000) == 90_000, "the clock was set back"


def test_delivered_positions_survive_their_json() -> None:
    ledger = DelayLedger(LEVELS, version_step=2)
    ledger.advance(3, 7, 1)
    ledger.advance(3, 8, 2)
    assert ledger.to_json() == {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 2},
        "offsetTable": {3: 8},
    }
    other = DelayLedger(LEVELS)
    other.load({"offsetTable": {"3": 8}})
    assert other.offset(3) == 8
    assert other.fit(3, 0, 5) == 5
    assert other.fit(1, 4, 9) == 4


def test_the_sixteen_steps() -> None:
    steps = [after_send_back(n, 0, 16) for n in range(17)]
    assert steps[:16] == [Retry(level) for level in range(3, 19)]
    assert steps[16] == DeadLetter()
    assert after_send_back(0, -1, 16) == DeadLetter()
    assert after_send_back(5, 7, 16) == Retry(7)


def test_retry_limits() -> None:
    assert limit_of(16, 3, 121) == 3
    assert limit_of(16, 3, 120) == 16
    assert limit_of(16, None, 479) == 16
    assert not is_dead_on_arrival(16, 16, False)
    assert is_dead_on_arrival(17, 16, False)
    assert is_dead_on_arrival(1, 16, True)
