"""Members of a group are notified of changes: a few immediately, thousands without a storm."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tianzhou.broker.rebalance_notifier import NOTICES_PER_TURN, PAUSE_S, RebalanceNotifier
from tianzhou.broker.tables.clients import ClientTable, ConsumerGroup, RegisteredClient
from tianzhou.errors import ConnectionLost
from tianzhou.model import ConsumerData, SubscriptionData
from tianzhou.testing.virtual_loop import run_virtual
from tianzhou.wire.command import Command

pytestmark = pytest.mark.runner.with_args(run_virtual)


class Member:
    """A connection that counts its notices."""

    def __init__(self, turns: list[int], *, lost: bool = False) -> None:
        self.told = 0
        self.turns = turns
        self.lost = lost

    def invoke_oneway(self, command: Command) -> None:
        assert command.fields == {"consumerGroup": "G"}
        if self.lost:
            raise ConnectionLost("gone")
        self.told += 1
        self.turns[-1] += 1


async def test_a_small_group_is_notified_of_each_change_at_once() -> None:
    members: Any = [Member([0]) for _ in range(NOTICES_PER_TURN)]
    members[3].lost = True
    notifier = RebalanceNotifier(lambda group: members if group == "G" else [])
    for change in range(1, 4):
        notifier.notify("G")
        assert {member.told for member in members} == {0, change}
    notifier.notify("other")


async def test_thousands_that_join_mean_no_millions_of_notices_and_the_last_change_is_sent() -> None:
    turns = [0]
    members: list[Any] = []
    notifier = RebalanceNotifier(lambda _: list(members))
    loop = asyncio.get_running_loop()

    async def join() -> None:
        for _ in range(3_000):
            members.append(Member(turns))
            notifier.notify("G")
            turns.append(0)
            await asyncio.sleep(0)

    await join()
    await asyncio.sleep(1 + 2 * len(members) * PAUSE_S)
    told = sum(member.told for member in members)
    assert told < 20 * len(members)
    assert max(turns[:-1]) <= NOTICES_PER_TURN
    assert members[-1].told >= 1  # notified after it had joined, like every member
    before = [member.told for member in members]
    began = loop.time()
    notifier.notify("G")
    notifier.notify("G")
    await asyncio.sleep(len(members) * PAUSE_S / 2)
    assert [member.told for member in members] == [told + 1 for told in before]
    await asyncio.sleep(len(members) * PAUSE_S)
    assert [member.told for member in members] == [told + 2 for told in before], "the second change"
    assert loop.time() - began < 1
    await asyncio.sleep(10)
    assert [member.told for member in members] == [told + 2 for told in before], "and then nothing"


class Unread(dict[Any, Any]):
    """A table whose iteration fails the test."""

    def values(self) -> Any:
        raise AssertionError("looked through all members")

    items = __iter__ = values


def heartbeat(table: ClientTable, number: int, expression: str = "*", connection: int | None = None) -> bool:
    said = ConsumerData("G", subscription_data_set=[SubscriptionData("T", expression, sub_version=1)])
    where = number if connection is None else connection
    return table.add_consumer(said, RegisteredClient(where, f"c{number}", 0, 0, 1, 1))


def shown(group: ConsumerGroup) -> bool:
    """Whether there is a new change; it then counts as shown."""
    new_conflict, group.new_conflict = group.new_conflict, False
    return new_conflict


def made(group: ConsumerGroup) -> bool:
    return group.ids_body is not None


def test_members_that_come_speak_and_go_are_not_compared_with_all_others() -> None:
    table = ClientTable()
    assert heartbeat(table, 0)
    group = table.consumers["G"]
    group.clients = Unread(group.clients)
    group.subscribed = Unread(group.subscribed)
    for number in range(1, 1_000):
        assert heartbeat(table, number)
    for number in range(1_000):
        assert not heartbeat(table, number)
        assert table.is_member("G", f"c{number}")
    assert (group.conflicts, shown(group)) == (0, False)
    for number in range(500, 1_000):
        heartbeat(table, number, "a")
    assert group.conflicts == 500
    assert shown(group)
    assert group.examples() == {"c0": {"T": ("*", "TAG")}, "c500": {"T": ("a", "TAG")}}
    heartbeat(table, 7, "a")
    assert not shown(group), "somebody wants that already"
    heartbeat(table, 8, "b")
    assert shown(group)
    assert len(group.client_ids()) == 1_000
    assert {departure.client_id for n in range(999) for departure in table.remove_connection(n)} == {
        f"c{n}" for n in range(999)
    }
    assert group.client_ids() == ["c999"]
    assert group.differing() == []


def test_a_member_on_two_connections_stays_until_both_are_gone() -> None:
    table = ClientTable()
    heartbeat(table, 1)
    heartbeat(table, 1, connection=50)
    heartbeat(table, 2)
    group: ConsumerGroup = table.consumers["G"]
    group.ids_body = b"made"
    table.remove_connection(1)
    assert (group.client_ids(), made(group)) == (["c1", "c2"], True)
    found = table.find_consumer("G", "c1")
    assert found is not None
    assert found.connection == 50
    # The same connection under another name.
    heartbeat(table, 3, connection=50)
    assert (group.client_ids(), made(group)) == (["c2", "c3"], False)
    assert not table.is_member("G", "c1")
    table.remove_connection(50)
    assert group.client_ids() == ["c2"]
