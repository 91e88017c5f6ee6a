"""Clients inside a namespace, over the fast port, and from a time on; and their messages by subscribed tags.

With `TIANZHOU_INTEROP_SERVER=apache` the tests run against Apache's broker, which shows their validity.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import frames
import pytest
from apache import ApacheBroker, ApacheNamesrv
from both import broker_of
from frames import create_topic
from own import OwnBroker
from ways import (
    COUNT,
    CPP,
    GO,
    JAVA,
    NAMES,
    NODE,
    QUEUES,
    Servers,
    await_shares,
    got,
    send,
    take,
    topic_for,
    wait,
)

from waiting import until

CONF = {"messageDelayLevel": " ".join(["1s"] * 18), "enablePropertyFilter": "true"}
# Small files that may be deleted immediately.
OLD = {
    "brokerName": "broker-old", "mappedFileSizeCommitLog": 65_536, "mappedFileSizeConsumeQueue": 2_000,
    "fileReservedTime": 0, "cleanResourceInterval": 1_000,
}  # fmt: skip
FIRST_CLEANING_S = 90
"""Brokers begin to clean a minute after their start."""
SPACE = "space"
MAX_OFFSET, MIN_OFFSET = 30, 31
DELETE_EXPIRED_FILES = 329
BEGINNING_AT_A_TIME = (*JAVA, GO, NODE)
OLD_TOPICS = {name: f"ways_time_{name}".replace(".", "_") for name in BEGINNING_AT_A_TIME}
ESTABLISHED = "01"


@pytest.fixture(scope="module")
def servers(server_kind: str, namesrv: ApacheNamesrv, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield a broker with delays of a second."""
    with broker_of(server_kind, tmp_path_factory.mktemp("places"), CONF, namesrv) as addresses:
        yield Servers(*addresses)


@pytest.fixture(scope="module")
def old(server_kind: str, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield another broker, with a topic for each client whose first messages are to expire; from other topics new
    groups get all.
    """
    folder = tmp_path_factory.mktemp("old")
    made = OwnBroker if server_kind == "tianzhou" else ApacheBroker
    broker = made(servers.namesrv, store_dir=folder / "store", home=folder, conf=OLD)
    try:
        broker.start()
        for topic in OLD_TOPICS.values():
            create_topic(servers.namesrv, broker.address, topic, QUEUES)
        create_topic(servers.namesrv, broker.address, "ways_filler", 1)
        places = [(topic, queue) for topic in OLD_TOPICS.values() for queue in range(QUEUES)]
        for topic, queue in places:
            frames.send(broker.address, topic, queue, b"gone", {})
        for _ in range(2 * 65_536 // 4_000):
            frames.send(broker.address, "ways_filler", 0, b"x" * 4_000, {})
        for topic, queue in places:
            frames.send(broker.address, topic, queue, b"there", {})
        assert frames.call(broker.address, DELETE_EXPIRED_FILES).code == 0
        yield Servers(servers.namesrv, broker.address)
    finally:
        broker.kill()


def stored(servers: Servers, topic: str, queues: int = QUEUES) -> int:
    """Return the number of messages in a topic."""
    replies = [frames.call(servers.broker, MAX_OFFSET, {"topic": topic, "queueId": i}) for i in range(queues)]
    return sum(int(reply.fields["offset"]) for reply in replies)


@pytest.mark.at_once
@pytest.mark.parametrize("name", [*JAVA, GO, NODE])
def test_a_namespace_keeps_names_apart(servers: Servers, name: str) -> None:
    """The broker sees the names with the namespace; refused messages are delivered again."""
    topic = topic_for(name, servers, "space")
    create_topic(servers.namesrv, servers.broker, f"{SPACE}%{topic}", QUEUES)
    # Otherwise clients would find it half a minute later.
    create_topic(servers.namesrv, servers.broker, f"%RETRY%{SPACE}%{topic}_g", 1)
    with (
        take(name, servers, "again", topic, namespace=SPACE) as inside,
        take(JAVA[0] if name != JAVA[0] else GO, servers, "plain", topic) as outside,
    ):
        send(name, servers, topic, "plain", COUNT, namespace=SPACE)
        wait(inside, lambda lines: {one["i"] for one in lines if not one["failed"]} == set(range(COUNT)), "not all")
        inside.finish()
        lines = got(inside.lines)
        outside.finish()
        assert got(outside.lines) == []
    assert stored(servers, f"{SPACE}%{topic}") == COUNT
    assert stored(servers, topic) == 0
    assert stored(servers, f"%RETRY%{SPACE}%{topic}_g", 1) == COUNT // 10
    assert Counter(line["i"] for line in lines if not line["failed"]) == Counter(range(COUNT))
    assert sorted(line["i"] for line in lines if line["failed"]) == list(range(7, COUNT, 10))
    # Java's handlers see the name without the namespace.
    assert {line["topic"] for line in lines} == {topic if name in JAVA else f"{SPACE}%{topic}"}


def connections_to(port: int) -> int:
    """Return the number of established connections of this machine to a port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(fields[1].endswith(f":{port:04X}") and fields[3] == ESTABLISHED for fields in map(str.split, lines))


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="connections are looked up in /proc")
@pytest.mark.parametrize("name", JAVA)
def test_clients_use_the_fast_port(servers: Servers, name: str) -> None:
    """Clients of the VIP channel send, query and send back on the fast port, and pull on the main port."""
    fast = int(servers.broker.rpartition(":")[2]) - 2
    topic = topic_for(name, servers, "vip")
    before = connections_to(fast)
    with take(name, servers, "again", topic, vip="true") as taking:
        await_shares(taking, servers, topic, 1, everyone=False)
        send(name, servers, topic, "plain", COUNT, vip="true")
        wait(taking, lambda lines: {one["i"] for one in lines if not one["failed"]} == set(range(COUNT)), "not all")
        # Its messages sent back used the fast port, and its queue queries, too.
        assert connections_to(fast) > before
        taking.finish()
        lines = got(taking.lines)
    assert Counter(line["i"] for line in lines if not line["failed"]) == Counter(range(COUNT))
    assert sorted(line["i"] for line in lines if line["failed"]) == list(range(7, COUNT, 10))


@pytest.mark.at_once
@pytest.mark.parametrize("name", NAMES)
def test_only_wanted_tags_come(servers: Servers, name: str) -> None:
    """Messages stored before a member started, and messages stored while it runs, from any sender."""
    topic = topic_for(name, servers, "tags")
    send(name, servers, topic, "plain", COUNT)
    wanted = [i for i in range(COUNT) if i % 4 in (1, 3)]
    with take(name, servers, "plain", topic, tags="tag1 || tag3") as taking:
        wait(taking, lambda lines: len(lines) >= len(wanted), "not all arrived")
        await_shares(taking, servers, topic, 1, everyone=False, tag="tag3")
        send(NODE if name != NODE else CPP, servers, topic, "plain", COUNT)
        wait(taking, lambda lines: len(lines) >= 2 * len(wanted), "not all arrived")
        taking.finish()
        lines = got(taking.lines)
    assert Counter(line["i"] for line in lines) == Counter(wanted * 2)
    assert {line["tags"] for line in lines} == {"tag1", "tag3"}


@pytest.mark.at_once
def test_node_selects_with_sql(servers: Servers) -> None:
    """For the other clients, this is in `test_stranger_filters.py`."""
    topic = topic_for(NODE, servers, "sql")
    send(NODE, servers, topic, "plain", COUNT)
    with take(NODE, servers, "plain", topic, sql="index BETWEEN 10 AND 19 AND TAGS <> 'tag0'") as taking:
        wanted = [i for i in range(10, 20) if i % 4]
        wait(taking, lambda lines: len(lines) >= len(wanted), "not all arrived")
        time.sleep(1)
        taking.finish()
    assert Counter(line["i"] for line in got(taking.lines)) == Counter(wanted)


@pytest.mark.at_once
@pytest.mark.slow
@pytest.mark.parametrize("name", BEGINNING_AT_A_TIME)
def test_a_new_group_begins_at_a_time(old: Servers, name: str) -> None:
    """Messages stored before the time are not delivered; the time has a resolution of seconds."""
    topic = OLD_TOPICS[name]

    def begins_at_1(queue: int) -> bool:
        reply = frames.call(old.broker, MIN_OFFSET, {"topic": topic, "queueId": queue})
        return reply.fields["offset"] == "1"

    until(lambda: all(map(begins_at_1, range(QUEUES))), "the first ones are gone", within_s=FIRST_CLEANING_S)
    send(name, old, topic, "plain", COUNT)
    begin = math.floor(time.time()) + 1
    time.sleep(begin + 0.2 - time.time())
    send(name, old, topic, "plain", COUNT)
    zone = UTC if name == GO else None
    options = {"from": f"{datetime.fromtimestamp(begin, zone):%Y%m%d%H%M%S}"}
    with take(name, old, "plain", topic, **options) as taking:
        wait(taking, lambda lines: len(lines) >= COUNT, "not all arrived")
        time.sleep(1)
        taking.finish()
        lines = got(taking.lines)
    assert Counter(line["i"] for line in lines) == Counter(range(COUNT))
    assert all(line["storeTimestamp"] >= begin * 1000 for line in lines)
