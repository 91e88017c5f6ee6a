"""Our allocation strategies and local offset files, compared with those of Apache's Java client; strategies of Go's
client.

A digest of Java's answers is recorded (`recorded.py`). `./test --slow` runs Java itself.
"""

from __future__ import annotations

import functools
import random
import subprocess
from pathlib import Path

import pytest
import toolchain
from jvm import ask_java
from recorded import digest, is_as_recorded, recorded

from tianzhou.client import Averagely, ByCircle, ByMachineRoom, ConsistentHash, FixedQueues, NearbyRoom
from tianzhou.client.consumer.allocation import AllocateStrategy, sorted_client_ids, sorted_queues
from tianzhou.model import MessageQueue
from tianzhou.wire.bodies.offsets import OFFSET_TABLE

CASES = 400
"""Groups per strategy; the share of each member of each group is compared."""
ROOMS = ("east", "west", "north")


def text(queues: list[MessageQueue]) -> str:
    return " ".join(f"{queue.topic}:{queue.broker_name}:{queue.queue_id}" for queue in queues)


def room_of(name: str) -> str:
    return name.split("-")[0]


def any_strategy(name: str, rng: random.Random, queues: list[MessageQueue]) -> tuple[AllocateStrategy, str]:
    """Return our strategy, and the arguments with which the Java program creates the same."""
    match name:
        case "AVG":
            return Averagely(), ""
        case "AVG_BY_CIRCLE":
            return ByCircle(), ""
        case "CONSISTENT_HASH":
            nodes = rng.choice([1, 10, 10, 37])
            return ConsistentHash(nodes), str(nodes)
        case "MACHINE_ROOM":
            rooms = rng.sample(ROOMS, rng.randint(1, 3))
            return ByMachineRoom(rooms), " ".join(rooms)
        case "MACHINE_ROOM_NEARBY":
            inner = rng.choice(["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
            ours = {"AVG": Averagely(), "AVG_BY_CIRCLE": ByCircle(), "CONSISTENT_HASH": ConsistentHash()}[inner]
            return NearbyRoom(ours, lambda queue: room_of(queue.broker_name), room_of), inner
        case _:
            fixed = rng.sample(queues, rng.randint(1, len(queues)))
            return FixedQueues(fixed), text(fixed)


def any_group(name: str, rng: random.Random) -> tuple[list[MessageQueue], list[str]]:
    """Return queues and members, unsorted, with typical names and with rarer characters."""
    separator = "@" if name == "MACHINE_ROOM" else "-"
    brokers = [f"{rng.choice(ROOMS)}{separator}{rng.choice(['a', 'B', '10', '9'])}" for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.2:
        brokers.append("plain")
    topic = rng.choice(["T", "topic_1", "%RETRY%G"])
    queues = sorted({MessageQueue(topic, broker, i) for broker in brokers for i in range(rng.randint(1, 20))})
    ids = set()
    for _ in range(rng.randint(1, 12)):
        tail = rng.choice([str(rng.randrange(10**6)), "\uff5e\U0001f600"[rng.randrange(2)], "DEFAULT"])
        ids.add(f"{rng.choice(ROOMS[:2])}-10.0.{rng.randrange(20)}.{rng.randrange(256)}@{tail}#{rng.randrange(10**9)}")
    members = sorted(ids)
    rng.shuffle(queues)
    rng.shuffle(members)
    return queues, members


STRATEGIES = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY", "CONFIG")


@functools.cache
def shares(name: str, version: str) -> tuple[list[str], list[str]]:
    """Return questions about a strategy, and our answers."""
    rng = random.Random(f"{name} {version}")
    lines, ours = [], []
    for _ in range(CASES):
        queues, members = any_group(name, rng)
        strategy, extra = any_strategy(name, rng, queues)
        for member in [*members, "nobody-here"]:
            if name in {"CONFIG", "MACHINE_ROOM_NEARBY"} and member == "nobody-here":
                continue
            lines.append("\t".join(["share", name, extra, member, " ".join(members), text(queues)]))
            share = strategy.allocate(member, sorted_queues(queues), sorted_client_ids(members))
            ours.append("=" + text(share))
    return lines, ours


def questions(version: str) -> list[str]:
    """Return the questions about all strategies."""
    return [line for name in STRATEGIES for line in shares(name, version)[0]]


TABLE = {
    MessageQueue(topic, broker, i): i * 10**11
    for topic in ("T", "天舟", "%RETRY%G")
    for broker in ("broker-a", 'quo"te')
    for i in range(3)
}
"""Offsets in the file of a broadcasting consumer."""
OFFSETS = [f"offsets\t{OFFSET_TABLE.dumps(TABLE).decode()}"]


@pytest.mark.parametrize("version", toolchain.JAVA_CLIENTS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_members_of_both_kinds_decide_alike(name: str, version: str) -> None:
    """Java and our client compute the same share of a member."""
    _, ours = shares(name, version)
    assert digest(ours) == recorded(f"shares-{version}", questions(version))[name], "./test --slow says which"


@pytest.mark.parametrize("version", toolchain.JAVA_CLIENTS)
def test_offset_files_are_read_by_both(version: str) -> None:
    """Apache's client reads the file of a broadcasting consumer of ours, and ours reads the client's file."""
    answer = recorded(f"offset-file-{version}", OFFSETS)
    assert not answer.startswith("error"), answer
    assert OFFSET_TABLE.loads(answer.replace("\\n", "\n").encode()) == TABLE


@pytest.mark.slow
@pytest.mark.parametrize("version", toolchain.JAVA_CLIENTS)
def test_java_decides_as_recorded(version: str, tmp_path: Path) -> None:
    asked = questions(version)
    *answers, offsets = ask_java("Shares", version, asked + OFFSETS, tmp_path)
    found, source = {}, f"Java client {version}"
    for name in STRATEGIES:
        lines, ours = shares(name, version)
        theirs, answers = answers[: len(lines)], answers[len(lines) :]
        different = [one for one in zip(lines, ours, theirs, strict=True) if one[1] != one[2]]
        assert not different, f"{len(different)} of {len(lines)}: {different[0]}"
        found[name] = digest(theirs)
    is_as_recorded(f"shares-{version}", found, source=source, questions=asked)
    is_as_recorded(f"offset-file-{version}", offsets, source=source, questions=OFFSETS)


def ask_go(lines: list[str]) -> list[str]:
    """Return the decisions of Go's client, one per line."""
    try:
        stranger = toolchain.go_program()
    except toolchain.ToolchainMissingError as error:
        pytest.skip(str(error))
    text = "".join(f"{line}\n" for line in lines).encode()
    result = subprocess.run([str(stranger), "shares"], input=text, capture_output=True, timeout=120, check=True)
    return result.stdout.decode().splitlines()


def cases_for_go(name: str) -> tuple[list[str], list[str]]:
    """Return questions, and our decisions; Go's client sorts members and queues before it calls its strategies."""
    rng = random.Random(name)
    lines, ours = [], []
    for _ in range(CASES):
        queues, members = any_group(name, rng)
        if name == "MACHINE_ROOM":
            queues = [queue for queue in queues if "@" in queue.broker_name] or [MessageQueue("T", "east@a", 0)]
        strategy, extra = any_strategy(name, rng, queues)
        if name == "MACHINE_ROOM":
            strategy, extra = ByMachineRoom(ROOMS), " ".join(ROOMS)
        queues, members = sorted_queues(queues), sorted_client_ids(members)
        for member in members:
            lines.append("\t".join(["share", name, extra, member, " ".join(members), text(queues)]))
            ours.append("=" + text(strategy.allocate(member, queues, members)))
    return lines, ours


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "MACHINE_ROOM", "CONFIG"])
def test_go_decides_as_we_do(name: str) -> None:
    """By machine room it agrees when all rooms are named; for a part of them it returns wrong queues."""
    lines, ours = cases_for_go(name)
    theirs = ask_go(lines)
    different = [(line, a, b) for line, a, b in zip(lines, ours, theirs, strict=True) if a != b]
    assert not different, f"{len(different)} of {len(lines)}: {different[0]}"


@pytest.mark.parametrize("name", ["CONSISTENT_HASH", "MACHINE_ROOM_NEARBY"])
def test_two_of_gos_strategies_are_its_own(name: str) -> None:
    """It hashes differently, and shares evenly where it should use rooms, so do not mix clients in such a group."""
    lines, ours = cases_for_go(name)
    assert ask_go(lines) != ours
