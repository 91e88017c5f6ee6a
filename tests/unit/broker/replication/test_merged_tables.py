"""A follower copies tables only from a serving master, merges them, and deletes only what that master has shown it."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tianzhou.broker.rebuilt_note import rebuilt_tables, write_note
from tianzhou.broker.rebuilt_state import RebuiltState
from tianzhou.broker.replication.metadata_sync import APACHE_COMPLETE_S, MetadataSync
from tianzhou.broker.replication.table_answers import COMPLETE, REBUILT, SERVING, START, TERM, refusal
from tianzhou.broker.send_limits.table import SendLimitTable
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.state import Tables, make_tables
from tianzhou.model import DataVersion, SubscriptionGroupConfig, TopicConfig
from tianzhou.model.send_limit import LimitScope, limit_of
from tianzhou.store.settings import StoreSettings
from tianzhou.testing.clock import VirtualClock, run
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP_TABLE, SubscriptionGroupTable
from tianzhou.wire.bodies.topics import TOPIC_TABLE, TopicTable
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header
from tianzhou.wire.json_dialect import dumps

pytestmark = pytest.mark.runner.with_args(run)


def ours(start: int = 1, *, serving: bool = True, term: int | None = None) -> dict[str, str]:
    """Return the header fields of a master of ours in one of its starts."""
    fields = {SERVING: "true" if serving else "false", START: str(start)}
    return fields if term is None else fields | {TERM: str(term)}


class Master:
    """The tables that a master answers with."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.topics: dict[str, TopicConfig] = {}
        self.groups: dict[str, SubscriptionGroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}
        self.offsets: dict[str, dict[str, int]] = {}
        self.delays: dict[str, int] = {}
        self.limits = SendLimitTable()
        self.version = 0
        self.commits: list[tuple[str, int]] = []

    def change(self, *topics: str, groups: tuple[str, ...] = (), **offsets: int) -> None:
        """Replace the tables."""
        self.version += 1
        self.topics = {name: TopicConfig(name, 4, 4) for name in topics}
        self.groups = {name: SubscriptionGroupConfig(name) for name in groups}
        self.offsets = {f"orders@{group}": {"0": offset} for group, offset in offsets.items()}

    def restart_empty(self) -> None:
        """Lose everything, as on a fresh volume."""
        self.change()
        self.version = 1

    async def invoke(self, address: str, command: Command, limit_ms: float) -> Command:
        if command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            header = read_header(command)
            self.commits.append((header.consumer_group, header.commit_offset))
            return command.reply(0)
        version = DataVersion(self.version, self.version)
        body = {
            RequestCode.GET_ALL_TOPIC_CONFIG: TOPIC_TABLE.dumps(TopicTable(self.topics, version)),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SUBSCRIPTION_GROUP_TABLE.dumps(
                SubscriptionGroupTable(self.groups, version, self.forbidden)
            ),
            RequestCode.GET_ALL_CONSUMER_OFFSET: dumps({"offsetTable": self.offsets}),
            RequestCode.GET_ALL_DELAY_OFFSET: dumps({"offsetTable": self.delays}),
            RequestCode.READ_SEND_LIMITS: dumps(self.limits.to_json()),
        }[RequestCode(command.code)]
        return command.reply(0, None, dict(self.fields), body)


class Follower:
    """A member or slave with its own tables."""

    def __init__(self, master: Master, term: int = -1, log: Any = None, root: Path = Path("no-store")) -> None:
        self.term = term
        self.address = "leader:1"
        self.tables: Tables = make_tables(BrokerSettings(), StoreSettings(), 1)
        self.tables.offsets.own = {}
        self.deleted: list[str] = []
        store = SimpleNamespace(
            end_offset=0,
            delete_topic_before=lambda name, _: not self.deleted.append(name),
            settings=SimpleNamespace(root=root),
        )
        self.clock = VirtualClock()
        self.sync = MetadataSync(
            self.tables, cast("Any", master), self.clock, lambda: self.address, cast("Any", store),
            term=lambda: self.term, log=log,
        )  # fmt: skip

    def offset(self, group: str) -> int | None:
        return self.tables.offsets.committed(group, "orders", 0)


@pytest.fixture
def master() -> Master:
    found = Master()
    found.change("orders", "bills", groups=("one", "two"), one=25, two=7)
    return found


def has_everything(follower: Follower) -> bool:
    tables = follower.tables
    known = {"orders", "bills"} <= tables.topics.all().keys() and {"one", "two"} <= tables.groups.all().keys()
    return known and (follower.offset("one"), follower.offset("two")) == (25, 7)


async def test_tables_that_a_master_rebuilt_replace_and_delete_no_entry_of_its_slave(master: Master) -> None:
    follower = Follower(master)
    master.fields = ours(1)
    master.topics["orders"] = TopicConfig("orders", 4, 4, attributes={"message.type": "FIFO"})
    await follower.sync.round()
    master.fields = ours(2) | {REBUILT: "true"}
    master.change("orders", "new", groups=("one",))
    await follower.sync.round()
    topic = follower.tables.topics.get("orders")
    assert topic is not None
    assert topic.attributes == {"message.type": "FIFO"}, "the master has lost it"
    assert "new" in follower.tables.topics
    assert has_everything(follower)
    master.fields = ours(2)
    await follower.sync.round()
    topic = follower.tables.topics.get("orders")
    assert topic is not None
    assert topic.attributes == {}, "an operator has completed the master's tables"


async def test_a_slave_that_lost_its_tables_has_them_again_from_a_master_whose_tables_are_whole(
    master: Master, tmp_path: Path
) -> None:
    follower = Follower(master, root=tmp_path)
    write_note(tmp_path, RebuiltState({"topics.json": "gone"}), 1)
    master.fields = ours(1) | {REBUILT: "true"}
    await follower.sync.round()
    assert rebuilt_tables(tmp_path) == "topics.json"
    master.fields = ours(1)
    await follower.sync.round()
    assert rebuilt_tables(tmp_path) == ""


async def test_a_former_leader_with_an_empty_folder_deletes_nothing(master: Master) -> None:
    master.fields = ours(1, term=3)
    follower = Follower(master, term=3)
    await follower.sync.round()
    assert has_everything(follower)
    master.restart_empty()
    master.fields = ours(2, serving=False, term=3)
    await follower.sync.round()
    assert has_everything(follower)


async def test_a_master_that_lost_its_folder_and_serves_again_deletes_nothing(master: Master) -> None:
    master.fields = ours(1)
    follower = Follower(master)
    await follower.sync.round()
    master.restart_empty()
    master.fields = ours(2)
    for _ in range(3):
        await follower.sync.round()
    assert has_everything(follower)
    assert follower.deleted == []


async def test_a_leader_of_apache_that_lost_its_folder_deletes_nothing(master: Master) -> None:
    follower = Follower(master, term=3)
    await follower.sync.round()
    master.restart_empty()
    await follower.sync.round()
    assert has_everything(follower)


async def test_an_older_table_of_apache_adds_entries_and_changes_none(master: Master) -> None:
    follower = Follower(master)
    await follower.sync.round()
    master.topics = {"orders": TopicConfig("orders", 1, 1), "older": TopicConfig("older", 1, 1)}
    master.version = 0
    await follower.sync.round()
    found = follower.tables.topics.all()
    assert found["orders"].read_queue_nums == 4
    assert "older" in found


async def test_a_kept_older_folder_moves_no_offset_back(master: Master) -> None:
    master.fields = ours(1, term=3)
    follower = Follower(master, term=3)
    await follower.sync.round()
    master.change("orders", "bills", groups=("one", "two"), one=5, two=7)
    master.fields = ours(2, term=4)
    follower.term = 4
    await follower.sync.round()
    assert follower.offset("one") == 25


async def test_a_master_that_deletes_and_resets_is_followed(master: Master) -> None:
    master.fields = ours(1)
    master.forbidden = {"one": {"orders": 4, "bills": 4}}
    follower = Follower(master)
    await follower.sync.round()
    assert follower.tables.groups.forbidden == {"one": {"orders": 4, "bills": 4}}
    master.forbidden = {"one": {"bills": 4}}
    master.change("orders", groups=("one",), one=3)
    await follower.sync.round()
    assert "bills" not in follower.tables.topics.all()
    assert "two" not in follower.tables.groups.all()
    assert follower.tables.groups.forbidden == {"one": {"bills": 4}}
    assert follower.offset("one") == 3
    assert follower.deleted == ["bills"]


async def test_a_member_that_lacks_tables_asks_until_a_leader_that_has_all_of_them_has_answered(master: Master) -> None:
    log = SimpleNamespace(complete=False)
    follower = Follower(master, term=3, log=log)
    master.fields = ours(1, term=3) | {COMPLETE: "false"}
    await follower.sync.round()
    assert has_everything(follower)
    assert not log.complete
    master.fields = ours(1, term=3) | {COMPLETE: "true"}
    await follower.sync.round()
    assert log.complete
    # From now on the group's log has the changes, in their order.
    master.change("orders", "bills", "new", groups=("one", "two"), one=30, two=7)
    await follower.sync.round()
    assert "new" not in follower.tables.topics.all()
    assert follower.offset("one") == 25
    # Offsets that were committed here reach the leader all the same.
    follower.tables.offsets.commit("one", "orders", 0, 40, 1)
    await follower.sync.round()
    assert follower.tables.offsets.own == {}
    assert master.commits == [("one", 40)]


async def test_a_leader_of_apache_that_stays_for_long_has_all_tables(master: Master) -> None:
    log = SimpleNamespace(complete=False)
    follower = Follower(master, term=3, log=log)
    await follower.sync.round()
    assert not log.complete
    follower.clock.advance(APACHE_COMPLETE_S)
    await follower.sync.round()
    assert log.complete


async def test_positions_of_delay_levels_never_fall(master: Master) -> None:
    follower = Follower(master)
    master.delays = {"1": 9, "2": 4}
    await follower.sync.round()
    master.delays = {"1": 2}
    await follower.sync.round()
    assert follower.tables.delays.offsets() == {1: 9, 2: 4}


async def test_offsets_of_random_restarts_never_fall(master: Master) -> None:
    """The master commits, and now and then starts with an older copy of its table."""
    rng = random.Random(42)
    follower = Follower(master, term=1)
    start, copies, highest = 1, [0], 0
    for _ in range(200):
        present = int(master.offsets.get("orders@one", {}).get("0", 0))
        if rng.random() < 0.2:
            start += 1
            present = rng.choice(copies)
            follower.term += 1
        else:
            present += rng.randrange(5)
        copies.append(present)
        master.fields = ours(start, term=follower.term)
        master.change("orders", one=present)
        await follower.sync.round()
        offset = follower.offset("one") or 0
        assert offset >= highest
        highest = max(highest, offset)


@pytest.mark.parametrize(
    ("fields", "term", "taken"),
    [
        ({}, 3, True),
        (ours(term=3), 3, True),
        (ours(), -1, True),
        (ours(term=2), 3, False),
        (ours(term=4), 3, False),
        (ours(), 3, False),
        (ours(serving=False, term=3), 3, False),
        (ours(serving=False), -1, False),
    ],
)
def test_tables_are_taken_from_a_serving_master_of_the_present_term(
    fields: dict[str, str], term: int, *, taken: bool
) -> None:
    assert (refusal(fields, term) == "") is taken


async def test_limits_of_senders_are_merged_and_deleted_by_what_the_master_has_listed(master: Master) -> None:
    follower = Follower(master)
    a, b, own = (limit_of(LimitScope.TOPIC, name, 5) for name in ("a", "b", "own"))
    follower.tables.send_limits.put([own])

    async def after_a_round() -> set[str]:
        await follower.sync.round()
        return set(follower.tables.send_limits.all())

    master.limits.put([a, b])
    assert await after_a_round() == {"topic:own"}, "a broker of Apache's is not asked"
    master.fields = ours(1)
    assert await after_a_round() == {"topic:a", "topic:b", "topic:own"}
    master.limits.delete(["topic:b"])
    assert await after_a_round() == {"topic:a", "topic:own"}
    # The master starts again without its table, and then from a rebuilt one: no entry is known to be deleted.
    master.limits.delete(["topic:a"])
    master.fields = ours(2)
    assert await after_a_round() == {"topic:a", "topic:own"}
    master.limits.put([limit_of(LimitScope.TOPIC, "a", 9), b])
    master.fields = ours(3) | {REBUILT: "true"}
    assert await after_a_round() == {"topic:a", "topic:b", "topic:own"}
    assert follower.tables.send_limits.all()["topic:a"] == a
