"""Tables of a group of our processes: kill -9 of the leader right after each OK, and restarts with lost folders."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from frames import call
from groups import NAME, OURS, QUICK_ELECTIONS, Group, group
from own import SOURCE

from waiting import until

CREATE_TOPIC, DELETE_TOPIC, ALL_TOPICS = 17, 215, 21
CREATE_GROUP, ALL_GROUPS = 200, 201
COMMIT, ALL_OFFSETS = 15, 43
GROUP = "Shipping"


class Tables:
    """The ledger of acknowledged changes, and the tables of each member."""

    def __init__(self, running: Group) -> None:
        self._running = running
        self.topics: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.groups: set[str] = set()
        self.offset = 0

    def create_topic(self, address: str, name: str, queues: int) -> None:
        fields = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        reply = call(address, CREATE_TOPIC, fields)
        assert reply.code == 0, reply.remark
        self.topics[name] = queues

    def delete_topic(self, address: str, name: str) -> None:
        reply = call(address, DELETE_TOPIC, {"topic": name})
        assert reply.code == 0, reply.remark
        del self.topics[name]
        self.deleted.add(name)

    def create_group(self, address: str, name: str) -> None:
        reply = call(address, CREATE_GROUP, {}, json.dumps({"groupName": name, "retryMaxTimes": 7}).encode())
        assert reply.code == 0, reply.remark
        self.groups.add(name)

    def commit(self, address: str, offset: int) -> None:
        fields = {"consumerGroup": GROUP, "topic": "probe", "queueId": 0, "commitOffset": offset}
        reply = call(address, COMMIT, fields)
        assert reply.code == 0, reply.remark
        self.offset = offset

    def differences(self, address: str) -> list[str]:
        """Return the missing objects of a member, and its objects of deleted topics."""
        topics: dict[str, Any] = call(address, ALL_TOPICS).json()["topicConfigTable"]
        groups: dict[str, Any] = call(address, ALL_GROUPS).json()["subscriptionGroupTable"]
        offsets: dict[str, Any] = call(address, ALL_OFFSETS).json()["offsetTable"]
        found = [f"topic {name}" for name, n in self.topics.items() if topics.get(name, {}).get("readQueueNums") != n]
        found += [f"deleted topic {name}" for name in self.deleted & topics.keys()]
        found += [f"group {name}" for name in self.groups - groups.keys()]
        present = offsets.get(f"probe@{GROUP}", {}).get("0", 0)
        return found if present >= self.offset else [*found, f"offset {present} for {self.offset}"]

    def all_agree(self) -> bool:
        try:
            return not any(self.differences(member.address) for member in self._running.members)
        except OSError:
            return False


def test_changes_answered_ok_survive_the_death_of_each_leader_and_lost_folders(tmp_path: Path) -> None:
    with group(tmp_path, (OURS, OURS, OURS), QUICK_ELECTIONS) as running:
        tables = Tables(running)
        leader = running.leader()
        address = running.members[leader].address
        for _ in range(60):
            running.sends(address)
        tables.create_group(address, GROUP)
        for number, lost in enumerate(("nothing", "folder", "config", "nothing", "folder")):
            tables.commit(address, 10 * (number + 1))
            until(tables.all_agree, "all members have the tables", within_s=60)
            tables.create_topic(address, f"first-{number}", 3)
            tables.create_topic(address, f"second-{number}", 4)
            if number:
                tables.delete_topic(address, f"second-{number - 1}")
            if lost == "folder":
                # An empty folder removes one copy of the entries; both others have them.
                until(tables.all_agree, "all members have the tables", within_s=60)
            else:
                tables.create_group(address, f"group-{number}")
            running.members[leader].kill()
            if lost == "folder":
                shutil.rmtree(running.folder / f"n{leader}")
            elif lost == "config":
                shutil.rmtree(running.folder / f"n{leader}" / "config")
            running.members[leader].launch()
            leader = running.leader()
            address = running.members[leader].address
            # The next leader has everything from its first moment on; offsets are logged every 0.5 s.
            assert tables.differences(address) == [], f"round {number}, lost: {lost}"
            until(tables.all_agree, f"round {number}: all members have the tables", within_s=60)


@pytest.mark.slow
def test_drain_holds_over_a_change_of_the_leader(tmp_path: Path) -> None:
    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tianzhou", "drain", "-b", NAME, "-n", running.namesrv, "--notice", "0", *words],
            env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def permissions() -> list[int]:
        reply = call(running.namesrv, 105, {"topic": "orders"})
        return [one["perm"] for one in reply.json()["queueDatas"]] if reply.code == 0 else []

    with group(tmp_path, (OURS, OURS, OURS), QUICK_ELECTIONS) as running:
        leader = running.leader()
        tables = Tables(running)
        tables.create_topic(running.members[leader].address, "orders", 2)
        until(lambda: permissions() == [6], "the topic is routable", within_s=30)
        drained = command()
        assert drained.returncode in {0, 1}, drained.stderr
        until(lambda: permissions() == [4], "producers leave", within_s=30)
        running.members[leader].kill()

        def another_leads() -> bool:
            return running.registered().get(0) not in {None, running.members[leader].address}

        until(another_leads, "another member leads", within_s=60)
        for _ in range(20):
            assert permissions() in ([4], [])
        running.members[leader].launch()
        until(lambda: running.members[leader].address in running.registered().values(), "it is back", within_s=60)
        assert permissions() == [4]
        undone = command("--undo")
        assert undone.returncode == 0, undone.stderr
        until(lambda: permissions() == [6], "producers come back", within_s=30)
