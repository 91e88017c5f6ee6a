"""Tables of one member and their log: replay after any crash, and snapshots that delete entries."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tianzhou.broker.replication.tables_log import COMMIT_LIMIT_S, TablesLog
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.state import make_tables
from tianzhou.broker.state_files import StateFiles
from tianzhou.errors import BrokerError
from tianzhou.model import SubscriptionGroupConfig, TopicConfig
from tianzhou.store import MessageStore, NewRecord
from tianzhou.store.settings import StoreSettings
from tianzhou.supervision import Supervisor
from tianzhou.testing.clock import VirtualClock, run

GROUP_ID = "a" * 32

pytestmark = pytest.mark.runner.with_args(run)


class Member:
    """A member whose group commits up to the index that the test gives."""

    def __init__(self, folder: Path) -> None:
        self.settings = StoreSettings(
            store_path_root_dir=str(folder), mapped_file_size_commit_log=32_768, mapped_file_size_consume_queue=400,
            max_hash_slot_num=50, max_index_num=100, enable_d_leger_commit_log=True, d_leger_group="g",
            d_leger_peers="n0-h:1", d_leger_self_id="n0",
        )  # fmt: skip
        clock = VirtualClock()
        self.store = MessageStore(self.settings, clock)
        self.store.open()
        self.tables = make_tables(BrokerSettings(), self.settings, 1)
        self.supervisor = Supervisor("test", clock)
        self.files = StateFiles(self.tables, folder / "config", clock, self.supervisor)
        self.files.load()
        self.log = TablesLog(self.tables, self.store, self.files, None, clock, lambda: 0.2)
        self.log.load()
        self.commits = True

    async def run(self) -> None:
        self.supervisor.own("files", self.files.run)
        self.supervisor.own("log", lambda: self.log.run(self.supervisor))
        self.supervisor.own("commits", self._commit)
        await self.log.caught_up()

    async def _commit(self) -> None:
        entries = self.store.entries
        assert entries is not None
        while True:
            if self.commits:
                entries.committed(entries.end_index)
            await asyncio.sleep(0.01)

    async def lead(self, term: int) -> None:
        entries = self.store.entries
        assert entries is not None
        entries.lead(term)
        entries.append_opening(term, 1, GROUP_ID, f"{term:032x}")
        entries.committed(entries.end_index)
        await entries.served()
        self.store.flags.opened()
        await self.log.caught_up()
        self.log.begin_term(term)
        await asyncio.sleep(2)

    def follow(self) -> None:
        assert self.store.entries is not None
        self.store.entries.follow()
        self.log.end_term()

    async def create(self, *names: str) -> None:
        self.tables.topics.put_all([TopicConfig(name, 3, 3) for name in names], 1)
        await self.log.publish()

    async def write_note(self) -> None:
        self.files.write_offsets()
        self.files.write_delays()
        writing = asyncio.ensure_future(self.log.write_note())
        while not writing.done():
            await asyncio.sleep(0.1)
            self.files.write_offsets()
            self.files.write_delays()
        await writing

    def topics(self) -> set[str]:
        return {name for name in self.tables.topics.all() if not self.tables.topics.is_system(name)}

    def raw(self) -> bytes:
        entries = self.store.entries
        assert entries is not None
        return b"".join(entries.entry(index) for index in range(entries.begin_index, entries.end_index + 1))


@asynccontextmanager
async def member(folder: Path) -> AsyncIterator[Member]:
    found = Member(folder)
    await found.run()
    try:
        yield found
    finally:
        await found.supervisor.end()
        await found.store.close()


def all_offsets(of: Member) -> dict[str, dict[int, int]]:
    offsets = of.tables.offsets
    return {
        key: dict(offsets.queues(key.split("@")[1], key.split("@")[0])) for key in offsets.snapshot()["offsetTable"]
    }


async def test_changes_are_replayed_from_the_log_alone(tmp_path: Path) -> None:
    async with member(tmp_path) as one:
        await one.lead(1)
        await one.create("a", "b", "c")
        one.tables.topics.delete(["b"], 1)
        one.tables.groups.put(SubscriptionGroupConfig("G", retry_max_times=7), 1)
        one.tables.offsets.commit("G", "a", 2, 40, 1)
        one.tables.offsets.commit("G", "c", 0, 9, 1)
        await one.log.publish()
        one.tables.offsets.reset("G", "a", 2, 4, 1)
        await one.log.publish()
    shutil.rmtree(tmp_path / "config")
    async with member(tmp_path) as again:
        assert again.topics() == {"a", "c"}
        group = again.tables.groups.get("G")
        assert group is not None
        assert group.retry_max_times == 7
        assert again.tables.offsets.committed("G", "a", 2) == 4
        assert again.tables.offsets.committed("G", "c", 0) == 9
        assert again.tables.offsets.reset_waits("G", "a", 2)
        assert again.log.complete


async def test_an_older_folder_of_tables_is_brought_up_to_date(tmp_path: Path) -> None:
    async with member(tmp_path) as one:
        await one.lead(1)
        await one.create("a", "b")
        one.tables.offsets.commit("G", "a", 0, 5, 1)
        await one.log.publish()
        await one.write_note()
        shutil.copytree(tmp_path / "config", tmp_path / "older")
        one.tables.topics.delete(["b"], 1)
        await one.create("c")
        one.tables.offsets.commit("G", "a", 0, 25, 1)
        await one.log.publish()
    shutil.rmtree(tmp_path / "config")
    shutil.move(tmp_path / "older", tmp_path / "config")
    async with member(tmp_path) as again:
        assert again.topics() == {"a", "c"}
        assert again.tables.offsets.committed("G", "a", 0) == 25


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json", "tablesInLog.json"])
async def test_a_damaged_table_file_costs_no_change_of_the_log(tmp_path: Path, name: str) -> None:
    """Its `.bak` is older than the tables' note, which is intact on the disk."""
    async with member(tmp_path) as one:
        await one.lead(1)
        await one.create("a", "b")
        one.tables.offsets.commit("G", "a", 0, 5, 1)
        await one.log.publish()
        await one.write_note()
        older = {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir()}
        one.tables.topics.delete(["b"], 1)
        await one.create("c")
        one.tables.offsets.commit("G", "a", 0, 25, 1)
        await one.log.publish()
        await one.write_note()
    (tmp_path / "config" / name).write_bytes(bytes(50))
    (tmp_path / "config" / f"{name}.bak").write_bytes(older[name])
    for _ in range(2):
        async with member(tmp_path) as again:
            assert again.topics() == {"a", "c"}
            assert again.tables.offsets.committed("G", "a", 0) == 25
    (aside,) = (tmp_path / "config").glob(f"{name}.damaged-*")
    assert aside.read_bytes() == bytes(50)


async def test_a_snapshot_deletes_what_the_leader_has_not(tmp_path: Path) -> None:
    async with member(tmp_path / "leader") as leader, member(tmp_path / "late") as late:
        late.tables.topics.put(TopicConfig("deleted long ago"), 1)
        late.tables.offsets.commit("G", "deleted long ago", 0, 3, 1)
        await leader.lead(1)
        await leader.create("a")
        assert late.store.entries is not None
        late.store.entries.append_raw(leader.raw())
        await asyncio.sleep(2)
        assert late.topics() == {"a"}
        assert late.tables.offsets.committed("G", "deleted long ago", 0) is None
        assert late.log.complete


async def test_a_leader_that_may_lack_tables_deletes_nothing(tmp_path: Path) -> None:
    """Its log comes from an older version, without table changes, and its folder of tables was empty."""
    async with member(tmp_path / "leader") as leader, member(tmp_path / "other") as other:
        assert leader.store.entries is not None
        leader.store.entries.lead(1)
        leader.store.entries.append_opening(1, 1, GROUP_ID, f"{1:032x}")
        leader.store.entries.committed(0)
        await leader.store.entries.served()
        leader.store.flags.opened()
        leader.store.append(NewRecord("a", 0, b"message", b""))
        leader.store.entries.committed(1)
        leader.store.entries.follow()
        other.tables.topics.put(TopicConfig("a"), 1)
        await leader.lead(2)
        assert not leader.log.complete
        assert other.store.entries is not None
        other.store.entries.append_raw(leader.raw())
        await asyncio.sleep(2)
        assert other.topics() == {"a"}


async def test_a_change_without_a_majority_is_not_answered_ok_and_goes_with_the_next_leader(tmp_path: Path) -> None:
    async with member(tmp_path) as one:
        await one.lead(1)
        await one.create("a")
        one.commits = False
        before = asyncio.get_running_loop().time()
        with pytest.raises(BrokerError, match="not known whether the group keeps it"):
            await one.create("b")
        assert asyncio.get_running_loop().time() - before == pytest.approx(COMMIT_LIMIT_S, abs=0.5)
        waiting = asyncio.ensure_future(one.create("c"))
        await asyncio.sleep(0.1)
        one.follow()
        with pytest.raises(BrokerError, match="not known whether the group keeps it"):
            await waiting
        with pytest.raises(BrokerError, match="does not lead"):
            await one.create("d")


async def test_commits_that_no_entry_has_are_handed_to_the_next_leader(tmp_path: Path) -> None:
    async with member(tmp_path) as one:
        await one.lead(1)
        one.tables.offsets.commit("G", "a", 0, 7, 1)
        one.follow()
        assert one.tables.offsets.own == {"a@G": {0}}
        # The next leader has less; entries ahead of it stay here until it has them.
        one.tables.offsets.take_logged({"a@G": {0: 5}}, {})
        one.tables.offsets.take_logged({}, {"a@G": {0: 6}})
        assert one.tables.offsets.committed("G", "a", 0) == 7
        one.tables.offsets.take_logged({"a@G": {0: 8}}, {})
        assert one.tables.offsets.committed("G", "a", 0) == 8


async def test_consumers_that_commit_where_they_are_do_not_grow_the_log(tmp_path: Path) -> None:
    async with member(tmp_path) as one:
        await one.lead(1)
        one.tables.offsets.commit("G", "a", 0, 7, 1)
        await asyncio.sleep(2)
        end = one.store.end_offset
        for _ in range(20):
            one.tables.offsets.commit("G", "a", 0, 7, 1)
            await asyncio.sleep(0.5)
        assert one.store.end_offset == end


async def test_large_tables_are_logged_in_many_entries(tmp_path: Path) -> None:
    async with member(tmp_path / "leader") as leader, member(tmp_path / "other") as other:
        await leader.lead(1)
        await leader.create(*(f"topic-{number}" for number in range(350)))
        for number in range(2_500):
            leader.tables.offsets.commit(f"G{number % 5}", f"topic-{number % 50}", number // 250, number, 1)
        await leader.log.publish()
        entries = leader.store.entries
        assert entries is not None
        sizes = [len(entries.entry(index)) for index in range(entries.end_index + 1)]
        assert max(sizes) < 32_768
        assert other.store.entries is not None
        other.store.entries.append_raw(leader.raw())
        await asyncio.sleep(2)
        assert other.topics() == leader.topics()
        assert all_offsets(other) == all_offsets(leader)
        assert len(all_offsets(other)) == 50


async def test_a_member_agrees_with_a_leader_whose_whole_tables_it_has(tmp_path: Path) -> None:
    async with member(tmp_path) as one:
        await one.lead(3)
        await one.create("a")
        one.follow()
        # The log may not contain its own changes.
        assert one.log.agreed_term == -1
    shutil.rmtree(tmp_path / "config")
    async with member(tmp_path) as follower:
        assert follower.log.agreed_term == 3
        await follower.write_note()
    async with member(tmp_path) as again:
        assert again.log.agreed_term == 3
