"""Actions of operators at a group: restarts, changed folders, a wrong list of members, a full disk."""

from __future__ import annotations

import json
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from frames import Reply, call  # of the tests

from faults.members import GaveUpError, Group

ALL_TOPICS, COMMIT_OFFSET, QUERY_OFFSET, CREATE_GROUP = 21, 15, 14, 200
CONSUMER_GROUP = "operators"
FOREIGN_MESSAGES = 300
WRONG_S = 5.0
"""Seconds until the operator corrects a wrong folder or list."""
REFUSING_S = 12.0
"""Seconds for which the leader's disk rejects writes: longer than the leader waits before it transfers the
leadership.
"""
_SMALL_FILE = 1 << 20
"""Maximum file size in bytes on the full disk: less than a segment."""


class Operator:
    """A sequence of operator actions, chosen at random.

    Args:
        group: running members.
        topic: a topic of the group with committed offsets.
        chance: random generator.

    Attributes:
        lost: table changes that the group acknowledged and then lost.
    """

    def __init__(self, group: Group, topic: str, chance: random.Random) -> None:
        self._group = group
        self._topic = topic
        self._chance = chance
        self._topics: list[str] = []
        self._offset = 0
        self.lost: list[str] = []

    def prepare(self) -> None:
        """Create a foreign folder for each member; call it before the members run.

        The folder is from an earlier group with the same names and other entries.
        """
        group = self._group
        for number in range(group.size):
            group.launch(number, dLegerPeers=group.peer(number))
            group.create_topic(self._topic, 8, among=[number])
            subprocess.run(
                [sys.executable, "-m", "tianzhou", "produce", self._topic, "--body", "foreign", "--count",
                 str(FOREIGN_MESSAGES), "--namesrv", group.namesrv],
                check=True, env=group.environment, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            group.stop(number)
            shutil.move(group.store(number), self._foreign(number))

    def _foreign(self, number: int) -> Path:
        return self._group.folder / f"foreign-n{number}"

    def _older(self, number: int) -> Path:
        return self._group.folder / f"older-n{number}"

    # changes of tables

    def change_tables(self, leader: int) -> None:
        """Create a topic and commit an offset."""
        name = f"Made{len(self._topics)}"
        self._group.create_topic(name, 1)
        self._topics.append(name)
        address = self._group.addresses[leader]
        if not self._offset:
            body = json.dumps({"groupName": CONSUMER_GROUP}).encode()
            self._asked(call(address, CREATE_GROUP, body=body, timeout=5))
        self._offset += 10
        fields = {
            "consumerGroup": CONSUMER_GROUP, "topic": self._topic, "queueId": 0, "commitOffset": self._offset,
        }  # fmt: skip
        self._asked(call(address, COMMIT_OFFSET, fields, timeout=5))

    def _asked(self, reply: Reply) -> None:
        """Raise when a request was not carried out."""
        if reply.code != 0:
            raise GaveUpError(f"a change of a table was refused: {reply}")

    def check_tables(self, leader: int) -> None:
        """Note the topics and the offset that the leader lacks."""
        address = self._group.addresses[leader]
        has = call(address, ALL_TOPICS, timeout=5).json()["topicConfigTable"]
        self.lost += [f"topic {name} at n{leader}" for name in self._topics if name not in has]
        fields = {"consumerGroup": CONSUMER_GROUP, "topic": self._topic, "queueId": 0}
        reply = call(address, QUERY_OFFSET, fields, timeout=5)
        found = int(reply.fields["offset"]) if reply.code == 0 else -1
        if found < self._offset:
            self.lost.append(f"offset {self._offset} at n{leader}, which has {found}")

    # actions

    def draw(self) -> str:
        """Return the name of a random action."""
        return self._chance.choice(list(self._actions()))

    def begin(self, action: str, leader: int) -> Callable[[], None]:
        """Carry an action out, and return the function that ends it."""
        followers = [number for number in range(self._group.size) if number != leader]
        return self._actions()[action](leader, self._chance.choice(followers))

    def _actions(self) -> dict[str, Callable[[int, int], Callable[[], None]]]:
        return {
            "restart of the leader": lambda leader, follower: self._restarted(leader),
            "restart of a follower": lambda leader, follower: self._restarted(follower),
            "empty folder of the leader": lambda leader, follower: self._replaced(leader),
            "empty folder of a follower": lambda leader, follower: self._replaced(follower),
            "older folder of a follower": lambda leader, follower: self._set_back(follower),
            "foreign folder of a follower": lambda leader, follower: self._exchanged(follower),
            "foreign folder of the leader": lambda leader, follower: self._exchanged(leader),
            "wrong list of a follower": lambda leader, follower: self._misled(follower),
            "wrong list of the leader": lambda leader, follower: self._misled(leader),
            "full disk of the leader": lambda leader, follower: self._filled(leader),
        }

    def _restarted(self, number: int) -> Callable[[], None]:
        self._group.stop(number)
        return lambda: self._group.launch(number)

    def _replaced(self, number: int) -> Callable[[], None]:
        self._group.stop(number)
        shutil.rmtree(self._group.store(number))
        return lambda: self._group.launch(number)

    def _set_back(self, number: int) -> Callable[[], None]:
        """Start the member on the folder copy of the previous such action, and copy its present folder."""
        group = self._group
        group.stop(number)
        fresh = self._older(number).with_suffix(".new")
        subprocess.run(["cp", "-a", "--sparse=always", group.store(number), fresh], check=True)
        if self._older(number).exists():
            shutil.rmtree(group.store(number))
            shutil.move(self._older(number), group.store(number))
        fresh.rename(self._older(number))
        return lambda: group.launch(number)

    def _exchanged(self, number: int) -> Callable[[], None]:
        group = self._group
        group.stop(number)
        shutil.rmtree(group.store(number))
        subprocess.run(["cp", "-a", "--sparse=always", self._foreign(number), group.store(number)], check=True)
        group.launch(number)
        group.await_start(number)
        time.sleep(WRONG_S)

        def correct() -> None:
            group.stop(number)
            shutil.rmtree(group.store(number))
            group.launch(number)

        return correct

    def _misled(self, number: int) -> Callable[[], None]:
        group = self._group
        group.stop(number)
        group.launch(number, dLegerPeers=group.peer(number))
        group.await_start(number)
        time.sleep(WRONG_S)

        def correct() -> None:
            group.stop(number)
            group.launch(number)

        return correct

    def _filled(self, number: int) -> Callable[[], None]:
        pid = self._group.pid(number)
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_SMALL_FILE, before[1]))
        time.sleep(REFUSING_S)
        return lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE, before) and None
