"""The procedures of the page about operating a group, typed while messages are sent and consumed."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from operator_load import OperatorLoad
from typist import Typist, blocks_of

from waiting import until

PAGE = "group-operations.md"
MEMBERS = ("n0", "n1", "n2")


class Group:
    """The group of the page about a pair and a group, under load.

    Args:
        folder: folder of its files.
        stack: ends the processes.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.typist = Typist(folder, stack)
        self.typist.start(["namesrv"])
        self.typist.type(blocks_of("from-a-pair-to-a-group.md")[0])
        self.await_leader()
        self.typist.run(["topic", "create", "orders"], "")
        self.load = stack.enter_context(OperatorLoad(f"127.0.0.1:{self.typist.port('9876')}", "orders"))
        self.load.go_on()

    def await_leader(self) -> None:
        """Wait until `status` shows a leader and no member twice."""
        until(lambda: self.typist.leads("broker-b"), "status shows the leader", within_s=60)

    def leader(self) -> str:
        """Return the id of the member that leads."""
        self.await_leader()
        (address,) = [one["address"] for one in self.typist.members("broker-b") if one["id"] == 0]
        ports = {
            self.typist.port(printed): name for printed, name in zip(("30911", "30921", "30931"), MEMBERS, strict=True)
        }
        return ports[address.rpartition(":")[2]]

    def followers(self) -> list[str]:
        """Return the ids of the members that follow."""
        leader = self.leader()
        return [name for name in MEMBERS if name != leader]

    def stop(self, name: str) -> None:
        """Stop a member in order."""
        assert self.typist.running[f"broker -c {name}.conf"].interrupt(signal.SIGTERM)[0] == 0

    def type(self, block: str, name: str = "") -> None:
        """Type a block for a member in the place of the printed n1; wait for a leader before a proof."""
        for command in (block.replace("n1", name) if name else block).splitlines(keepends=True):
            if command.startswith("$ tianzhou prove"):
                self.await_leader()
            self.typist.type(command)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Yield a group under load; in the end each acknowledged message has to be consumed."""
    with ExitStack() as stack:
        made = Group(tmp_path, stack)
        yield made
        repeated = made.load.finish()
        assert not made.load.failed
        print(f"{len(made.load.acknowledged)} acknowledged, {repeated} repeated, gap {made.load.longest_gap_s:.1f} s")


@pytest.mark.slow  # a member that moves is restarted in the same way
def test_members_are_restarted_one_by_one(group: Group) -> None:
    (restart,) = blocks_of(PAGE, "restart")
    for name in [*group.followers(), group.leader()]:
        group.stop(name)
        group.load.go_on()
        group.type(restart, name)


@pytest.mark.parametrize("followers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_members_are_replaced_by_empty_ones_one_by_one(group: Group, followers: int) -> None:
    (replace,) = blocks_of(PAGE, "replace")
    for name in [*group.followers()[:followers], group.leader()]:
        group.stop(name)
        group.load.go_on()
        group.type(replace, name)


def test_a_member_moves_to_another_address(group: Group) -> None:
    written, moved = blocks_of(PAGE, "address")
    if group.leader() == "n2":
        group.stop("n2")
        group.typist.start(["broker", "-c", "n2.conf"])
        until(lambda: group.leader() != "n2", "another member leads", within_s=60)
    group.type(written)
    (restart,) = blocks_of(PAGE, "restart")
    start, _ = restart.splitlines()
    for name in sorted(("n0", "n1"), key=lambda name: name == group.leader()):
        group.stop(name)
        group.type(f"{start}\n", name)
        group.load.go_on()
    group.stop("n2")
    group.type(moved)


def test_a_group_is_restored_from_the_backup_of_a_member(group: Group) -> None:
    (backup,) = blocks_of(PAGE, "backup")
    group.stop("n2")
    kept = set(group.load.acknowledged)
    group.type(backup)
    group.load.go_on()
    namesrv = group.typist.port("9876")
    assert group.load.finish() >= 0
    for name in MEMBERS:
        group.stop(name)
    shutil.rmtree(group.folder / "group")
    alone, two, third = blocks_of(PAGE, "restore")
    group.type(alone)
    group.await_leader()
    assert group.typist.running["broker -c alone.conf"].interrupt(signal.SIGTERM)[0] == 0
    group.type(two)
    group.await_leader()
    group.type(third)
    with OperatorLoad(f"127.0.0.1:{namesrv}", "orders", consumer_group="after_the_restore") as again:
        again.go_on()
        until(lambda: kept <= again.consumed.keys(), "each message of the backup is consumed by a new group")
