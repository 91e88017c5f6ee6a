"""Members of a group are replaced one by one while it serves, and groups grow (docs/howto)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from group_load import Load, await_caught_up, create_topic, ends, equal_logs, stored
from groups import OURS, Group, group
from own import OwnBroker, name_server
from toolchain import SERVERS, ToolchainMissingError

from waiting import until


def replace_all(running: Group, kind: str, load: Load, *, empty: bool) -> None:
    """Replace every member under load, followers first.

    Args:
        running: the group.
        kind: kind of all new members.
        load: running load.
        empty: whether a new member begins with an empty folder.
    """
    leader = running.leader()
    for number in [*(number for number in range(3) if number != leader), leader]:
        running.members[number].stop()
        if empty:
            shutil.rmtree(running.members[number].store_dir)
        running.members[number] = running.member(number, kind)
        running.members[number].launch()
        await_caught_up(running, number)
        before = len(load.acknowledged)
        until(lambda n=before: len(load.acknowledged) > n + 100, "it goes on", within_s=60)


def whole(running: Group, acknowledged: Sequence[bytes]) -> None:
    """Check that all members have the same log, and that ours serve all acknowledged messages."""
    until(lambda: equal_logs(running), "all members have the same log", within_s=60)
    for number, member in enumerate(running.members):
        if isinstance(member, OwnBroker):
            await_caught_up(running, number)
            assert sorted(set(acknowledged) - set(stored(member.address))) == []


@pytest.mark.slow
@pytest.mark.parametrize("version", SERVERS)
def test_apaches_members_are_replaced_while_they_serve_and_back(version: str, tmp_path: Path) -> None:
    try:
        with group(tmp_path, (version,) * 3) as running:
            create_topic(running)
            with Load(running.namesrv) as load:
                until(lambda: len(load.acknowledged) > 100, "messages are acknowledged", within_s=60)
                replace_all(running, OURS, load, empty=True)
                there = list(load.acknowledged)
                # Again on the folders that ours have written.
                replace_all(running, version, load, empty=False)
                replace_all(running, OURS, load, empty=False)
            assert len(load.acknowledged) > len(there) > 300
            whole(running, load.acknowledged)
    except ToolchainMissingError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_a_group_of_five_bears_the_loss_of_two(tmp_path: Path) -> None:
    with group(tmp_path, (OURS,) * 5) as running:
        create_topic(running)
        with Load(running.namesrv) as load:
            until(lambda: len(load.acknowledged) > 100, "messages are acknowledged", within_s=60)
            dead = [running.leader()]
            running.members[dead[0]].kill()
            dead.append(running.leader(other_than=dead[0]))
            running.members[dead[1]].kill()
            third = running.leader(other_than=dead[1])
            before = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > before + 100, "three of five go on", within_s=60)
            running.members[third].kill()
            # With two of five members, no member leads, by the reply of each.
            left = [member for number, member in enumerate(running.members) if number not in {*dead, third}]
            until(lambda: not any(running.sends(member.address) for member in left), "nobody leads", within_s=60)
            stopped = len(load.acknowledged)
            for number in (*dead, third):
                running.members[number] = running.member(number, OURS)
                running.members[number].launch()
            until(lambda: len(load.acknowledged) > stopped + 100, "five go on", within_s=90)
            for number in range(5):
                await_caught_up(running, number)
        whole(running, load.acknowledged)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OURS, SERVERS[0]])
def test_a_group_of_one_becomes_three_and_five(kind: str, tmp_path: Path) -> None:
    """The members with the log start first, with as many empty ones as a majority needs; the others when there is a
    master.
    """
    sent: list[bytes] = []
    with name_server(tmp_path) as namesrv:
        running = Group(namesrv, tmp_path)
        running.make([kind])
        try:
            running.start()
            create_topic(running)
            for kinds, first in (((OURS, OURS), 2), ((OURS, OURS), 3)):
                with Load(running.namesrv, f"{first}-") as load:
                    until(lambda n=load: len(n.acknowledged) > 100, "messages are acknowledged", within_s=60)
                sent += load.acknowledged
                before = ends(running.members[running.leader()].address)
                running.grow(kinds)
                for member in running.members[:first]:
                    member.launch()
                running.leader()
                for number, member in enumerate(running.members[first:], first):
                    member.launch()
                    await_caught_up(running, number)
                assert before is not None
                assert all(
                    one >= other for one, other in zip(ends(running.members[-1].address) or [], before, strict=True)
                )
            with Load(running.namesrv) as load:
                until(lambda: len(load.acknowledged) > 100, "five take messages", within_s=60)
            whole(running, sent + load.acknowledged)
        except ToolchainMissingError as error:
            pytest.skip(str(error))
        finally:
            running.kill()
