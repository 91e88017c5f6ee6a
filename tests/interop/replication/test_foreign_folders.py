"""A member of a running group gets the folder of another group, or of a diverged history of its own (docs/adr/0024)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from frames import call
from group_load import TOPIC, Load, await_caught_up, create_topic, stored
from groups import NAME, OURS, QUICK_ELECTIONS, Group, group
from own import OwnBroker

from tianzhou import sync
from tianzhou.model.subscription import ConsumeFromWhere
from waiting import until

KINDS = (OURS, OURS, OURS)
RUNTIME_INFO = 28
FOREIGN = b"foreign"


def info(running: Group, number: int) -> dict[str, str]:
    """Return the runtime info of a member."""
    table: dict[str, str] = call(running.members[number].address, RUNTIME_INFO).json()["table"]
    return table


def consumed(namesrv: str, group_name: str, wanted: set[bytes]) -> list[bytes]:
    """Consume the topic from the beginning until all wanted bodies have arrived; return the bodies."""
    found: list[bytes] = []
    one = sync.PushConsumer(group_name, namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    one.subscribe(TOPIC, handler=lambda message: found.append(message.body))
    with one:
        until(lambda: wanted <= set(found), "all acknowledged messages are consumed", within_s=90, every_s=0.05)
    return found


@contextmanager
def filled(folder: Path, prefix: str, least: int) -> Iterator[tuple[Group, list[bytes]]]:
    """Yield a group that has acknowledged some messages, and whose members have all of them."""
    with group(folder, KINDS, QUICK_ELECTIONS) as running:
        create_topic(running)
        with Load(running.namesrv, prefix) as load:
            until(lambda: len(load.acknowledged) > least, "messages are acknowledged", within_s=60)
        for number in range(3):
            await_caught_up(running, number)
        yield running, load.acknowledged


def folder_of_another_life(folder: Path, number: int) -> Path:
    """Return the store of a member of an ended group with a diverged history."""
    with filled(folder, FOREIGN.decode(), 300) as (running, _):
        running.members[number].stop()
        return running.members[number].store_dir


@pytest.mark.parametrize("life", ["another group", pytest.param("an older version", marks=pytest.mark.slow)])
def test_a_member_with_the_folder_of_another_group_follows_no_further_and_says_why(tmp_path: Path, life: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    strange = folder_of_another_life(other, 2)
    with filled(tmp_path / "own", "own", 100) as (running, before):
        leader = running.leader()
        # The folder goes to a follower; it was that of n2.
        victim = 2 if leader != 2 else 1
        identity = info(running, leader)["dLegerGroupId"]
        assert len(identity) == 32
        with Load(running.namesrv, "own-later") as load:
            running.members[victim].kill()
            store = running.members[victim].store_dir
            shutil.rmtree(store)
            shutil.copytree(strange, store)
            (data,) = store.glob("dledger-n*")
            data = data.rename(store / f"dledger-n{victim}")
            if life == "an older version":
                (data / "group.json").unlink()
            else:
                note = json.loads((data / "group.json").read_text())
                assert note["group"] == NAME
                assert note["id"] != identity
            running.members[victim] = running.member(victim, OURS)
            running.members[victim].launch()
            until(lambda: info(running, victim).get("dLegerHalted"), "it follows no further", within_s=60)
            reason = info(running, victim)["dLegerHalted"]
            assert "follows no further" in reason
            member = running.members[victim]
            assert isinstance(member, OwnBroker)
            assert "follows no further" in member.console()
            if life == "another group":
                assert identity in reason
                assert note["id"] in reason
            # The leader dies and restarts; the member with the foreign folder never leads meanwhile.
            running.members[leader].kill()
            count = len(load.acknowledged)
            running.members[leader] = running.member(leader, OURS)
            running.members[leader].launch()
            assert running.leader() != victim
            until(lambda: len(load.acknowledged) > count + 20, "it goes on", within_s=60)
        wanted = set(before) | set(load.acknowledged)
        found = consumed(running.namesrv, "readers", wanted)
        assert [body for body in found if body.startswith(FOREIGN)] == []
        # The remedy that the reason names: an empty folder.
        running.members[victim].kill()
        shutil.rmtree(store)
        running.members[victim] = running.member(victim, OURS)
        running.members[victim].launch()
        await_caught_up(running, victim)
        assert wanted <= set(stored(running.members[victim].address))
        until(lambda: info(running, victim)["dLegerGroupId"] == identity, "it has the identity", within_s=30)


@pytest.mark.slow
def test_a_member_with_the_folder_of_an_earlier_life_of_its_group_follows_no_further(tmp_path: Path) -> None:
    """All members are restored from a backup and continue; then one of them gets its earlier folder back."""
    with filled(tmp_path / "own", "both", 50) as (running, both):
        stores = [member.store_dir for member in running.members]

        def restart(change: Callable[[], None]) -> None:
            for member in running.members:
                member.stop()
            change()
            running.members[:] = [running.member(number, OURS) for number in range(3)]
            running.start()

        def copy(to: str, back: str = "") -> None:
            for number, store in enumerate(stores):
                if back:
                    store.rename(tmp_path / f"{back}{number}")
                    shutil.copytree(tmp_path / f"{to}{number}", store)
                else:
                    shutil.copytree(store, tmp_path / f"{to}{number}")

        restart(lambda: copy("backup"))
        with Load(running.namesrv, FOREIGN.decode()) as load:
            until(lambda: len(load.acknowledged) > 200, "the earlier life goes on", within_s=60)
        restart(lambda: copy("backup", back="earlier"))
        with Load(running.namesrv, "own") as load:
            until(lambda: len(load.acknowledged) > 50, "the present life goes on", within_s=60)
            victim = 2 if running.leader() != 2 else 1
            running.members[victim].kill()
            shutil.rmtree(stores[victim])
            shutil.copytree(tmp_path / f"earlier{victim}", stores[victim])
            running.members[victim] = running.member(victim, OURS)
            running.members[victim].launch()
            until(lambda: info(running, victim).get("dLegerHalted"), "it follows no further", within_s=60)
            assert "committed" in info(running, victim)["dLegerHalted"]
            count = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > count + 20, "it goes on", within_s=60)
        found = consumed(running.namesrv, "readers", set(both) | set(load.acknowledged))
        assert [body for body in found if body.startswith(FOREIGN)] == []


def test_a_start_with_the_folder_of_a_group_of_another_name_is_refused(tmp_path: Path) -> None:
    with filled(tmp_path, "own", 5) as (running, _):
        running.members[0].stop()
        store = running.members[0].store_dir
        conf = {"dLegerGroup": "broker-b", "enableDLegerCommitLog": "true", "dLegerPeers": "n0-127.0.0.1:1",
                "dLegerSelfId": "n0", "brokerName": "broker-b", "mappedFileSizeCommitLog": 16 << 20}  # fmt: skip
        other = OwnBroker(running.namesrv, store, tmp_path / "other", conf)
        other.launch()
        until(lambda: "belongs to the group" in other.console(), "the start is refused", within_s=60, every_s=0.1)
        for part in ("'broker-a'", "dLegerGroup=broker-b", "empty folder"):
            assert part in other.console()
        other.kill()
