"""Foreign clients against the server: every one sends, and every one reads the messages of every other one.

The traffic happens once, in the fixture `exchange`; the tests check different parts of its result.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
from exchange import MADE, QUEUES, Exchange, Need, broadcast_topics, fails_first
from frames import create_topic
from strangers import JAVA, KEYED_MODES, STRANGERS, Line, Program, content, received

from waiting import until

NAMES = list(STRANGERS)
MAKING_TOPICS = [name for name in NAMES if STRANGERS[name].makes_topics]
BATCH_SIZE = 32  # messages of a batch
GROUP_SIZE = 50  # messages that share the second key
SAMPLE = 10  # every SAMPLE-th message is looked up singly


def check_content(line: Line) -> None:
    """Check all fields that are determined by the index."""
    expected = content(line["i"])
    got = (line["bodyLength"], line["bodySha256"], line["tags"], line["keys"], line["property"])
    assert got == (expected.length, expected.sha256, expected.tags, expected.keys, expected.note)


def check_times(line: Line) -> None:
    """Check that the times are recent and in order."""
    assert abs(time.time() * 1000 - line["bornTimestamp"]) < 900_000, line
    assert line["bornTimestamp"] <= line["storeTimestamp"], line


def check_identity(line: Line, sent: Line) -> None:
    """Check that a received message has the position and the ids in its sender's result."""
    for name in ("queueId", "queueOffset", "offsetMsgId"):
        if sent.get(name) is not None and line.get(name) is not None:
            assert line[name] == sent[name], (name, line, sent)
    if sent.get("mode") in KEYED_MODES:
        assert line["uniqueKey"] == sent["msgId"], (line, sent)
        assert line["msgId"] == sent["msgId"], (line, sent)


def check_all(lines: list[Line], sent: list[Line]) -> None:
    """Check that lines are exactly the sent messages: no loss, no duplicate, no change."""
    counts = Counter(line["i"] for line in lines)
    expected = {line["i"]: line for line in sent}
    lost = sorted(expected.keys() - counts.keys())
    assert not lost, f"{len(lost)} lost: {lost[:10]}"
    strange = sorted(counts.keys() - expected.keys())
    assert not strange, f"{len(strange)} never sent: {strange[:10]}"
    twice = sorted(i for i, count in counts.items() if count > 1)
    assert not twice, f"{len(twice)} received more than once: {twice[:10]}"
    for line in lines:
        check_content(line)
        check_times(line)
        check_identity(line, expected[line["i"]])


def pulled(inspectors: dict[str, Program], inspector: str, topic: str) -> list[Line]:
    """Return the messages that a pull consumer finds in a topic, from the first to the last offset of each queue."""
    return inspectors[inspector].ask(f"pull {topic}", 60)


@pytest.mark.parametrize("name", NAMES)
def test_every_send_is_acknowledged(exchange: Exchange, need: Need, name: str) -> None:
    """Each send is acknowledged with SEND_OK, and has its own position."""
    need(name)
    sent = exchange.sent[name]
    assert sorted(line["i"] for line in sent) == list(range(STRANGERS[name].sends))
    answered = [line for line in sent if line["mode"] != "oneway"]
    assert {line["status"] for line in answered} == {"SEND_OK"}
    placed = [(line["queueId"], line["queueOffset"]) for line in answered if "queueId" in line]
    assert len(set(placed)) == len(placed)
    offset_ids = [line["offsetMsgId"] for line in answered if line.get("offsetMsgId") is not None]
    assert len(set(offset_ids)) == len(offset_ids)
    unique_keys = [line["msgId"] for line in answered if line["mode"] in KEYED_MODES]
    assert len(set(unique_keys)) == len(unique_keys)
    if STRANGERS[name].inspects:
        assert len(placed) == len(offset_ids) == len(answered)


@pytest.mark.parametrize("name", ["java-5.3.3", "java-5.3.3-binary", "java-4.9.7"])
def test_unique_keys_of_batches(exchange: Exchange, need: Need, name: str) -> None:
    """The 4.9.7 client gives each message of a batch its own key, the 5.3.3 client gives the whole batch one."""
    need(name)
    sent = {line["i"]: line for line in exchange.sent[name] if line["mode"] == "batch"}
    lines = [line for line in exchange.received(name, "clustering", STRANGERS[name].topic) if line["i"] in sent]
    assert len(lines) == len(sent)
    if name == "java-4.9.7":
        assert all(line["uniqueKey"] == sent[line["i"]]["msgId"] for line in lines)
    else:
        first = min(sent)
        keys = {((line["i"] - first) // BATCH_SIZE, line["uniqueKey"]) for line in lines}
        batches = -(-len(sent) // BATCH_SIZE)
        assert len(keys) == len({key for _, key in keys}) == batches


@pytest.mark.parametrize("consumer", NAMES)
@pytest.mark.parametrize("producer", NAMES)
def test_clustering_group_reads_all_once(exchange: Exchange, need: Need, producer: str, consumer: str) -> None:
    """A group gets every message once, unchanged."""
    need(producer, consumer)
    lines = exchange.received(consumer, "clustering", STRANGERS[producer].topic)
    check_all(lines, exchange.sent[producer])
    assert {line["reconsumeTimes"] for line in lines} == {0}


@pytest.mark.parametrize("name", [name for name, stranger in STRANGERS.items() if stranger.members == 2])
def test_members_of_a_group_share_the_queues(exchange: Exchange, need: Need, name: str) -> None:
    """Two members get the same number of queues of each topic, and no queue goes to both."""
    need(name)
    for stranger in exchange.present:
        lines = exchange.received(name, "clustering", stranger.topic)
        owners = {(line["queueId"], line["consumer"]) for line in lines}
        assert len(owners) == QUEUES
        assert sorted(Counter(consumer for _, consumer in owners).values()) == [QUEUES // 2, QUEUES // 2]


@pytest.mark.parametrize("name", JAVA)
def test_broadcasting_reads_all_everywhere(exchange: Exchange, need: Need, name: str) -> None:
    """Each broadcasting consumer gets every message."""
    need(name)
    for stranger in exchange.present:
        if stranger.topic not in broadcast_topics(exchange, STRANGERS[name]):
            continue
        need(stranger.name)
        lines = exchange.received(name, "broadcasting", stranger.topic)
        consumers = sorted({line["consumer"] for line in lines})
        assert len(consumers) == 2
        for consumer in consumers:
            check_all([line for line in lines if line["consumer"] == consumer], exchange.sent[stranger.name])


@pytest.mark.parametrize("name", JAVA)
def test_refused_messages_come_again(exchange: Exchange, need: Need, name: str) -> None:
    """A message refused by the handler arrives once more through the retry topic, with the same unique key."""
    need(name)
    lines = exchange.received(name, "retry", STRANGERS[name].topic)
    check_all([line for line in lines if line["reconsumeTimes"] == 0], exchange.sent[name])
    first = {line["i"]: line for line in lines if line["reconsumeTimes"] == 0}
    again = [line for line in lines if line["reconsumeTimes"] > 0]
    refused = [i for i in range(STRANGERS[name].sends) if fails_first(i)]
    assert sorted(line["i"] for line in again) == refused
    for line in again:
        check_content(line)
        assert line["reconsumeTimes"] == 1
        assert line["uniqueKey"] == first[line["i"]]["uniqueKey"]
        assert line["bornTimestamp"] == first[line["i"]]["bornTimestamp"]
        assert line["offsetMsgId"] != first[line["i"]]["offsetMsgId"]
        assert line["storeTimestamp"] - first[line["i"]]["storeTimestamp"] >= 1000 - 500


@pytest.mark.parametrize("inspector", JAVA)
@pytest.mark.parametrize("producer", NAMES)
def test_pull_finds_contiguous_queues(
    exchange: Exchange, need: Need, inspectors: dict[str, Program], producer: str, inspector: str
) -> None:
    """A pull from the first to the last offset finds every message, without a gap and in order."""
    need(producer, inspector)
    lines = pulled(inspectors, inspector, STRANGERS[producer].topic)
    bounds = {line["queueId"]: (line["min"], line["max"]) for line in lines if line["event"] == "queue"}
    assert sorted(bounds) == list(range(QUEUES))
    for queue_id, (first, end) in bounds.items():
        found = [line for line in lines if line["event"] == "received" and line["queueId"] == queue_id]
        assert first == 0
        assert [line["queueOffset"] for line in found] == list(range(end))
        times = [line["storeTimestamp"] for line in found]
        assert times == sorted(times)
    assert {line["status"] for line in lines if line["event"] == "queueEnd"} <= {"NO_NEW_MSG", "NO_MATCHED_MSG"}
    messages = received(lines)
    check_all(messages, exchange.sent[producer])
    offset_ids = [line["offsetMsgId"] for line in lines if line["event"] == "received"]
    assert len(set(offset_ids)) == len(offset_ids)


@pytest.mark.parametrize("producer", NAMES)
def test_large_bodies_were_compressed(
    exchange: Exchange, need: Need, inspectors: dict[str, Program], producer: str
) -> None:
    """Bodies from 4 KiB on travel compressed, except in batches; the 4.9.7 client shows the stored flag."""
    need(producer, "java-4.9.7")
    for line in received(pulled(inspectors, "java-4.9.7", STRANGERS[producer].topic)):
        mode = STRANGERS[producer].mode(line["i"])
        assert bool(line["sysFlag"] & 1) == (content(line["i"]).compressed and mode != "batch"), line


@pytest.mark.parametrize("inspector", JAVA)
@pytest.mark.parametrize("producer", NAMES)
def test_messages_are_viewable_by_both_ids(
    exchange: Exchange, need: Need, inspectors: dict[str, Program], producer: str, inspector: str
) -> None:
    """A message is found by its offset id and by its unique key."""
    need(producer, inspector)
    topic = STRANGERS[producer].topic
    program = inspectors[inspector]
    sample = [line for line in exchange.sent[producer] if line["mode"] != "oneway" and line["i"] % SAMPLE == 0]
    assert sample
    for sent in sample:
        views = []
        if sent.get("offsetMsgId") is not None:
            views += program.ask(f"view {topic} {sent['offsetMsgId']}")
        if sent["mode"] in KEYED_MODES:
            views += program.ask(f"unique {topic} {sent['msgId']}")
        assert views
        for line in views:
            assert line["i"] == sent["i"]
            assert line["topic"] == topic
            check_content(line)
            check_identity(line, sent)


@pytest.mark.parametrize("inspector", JAVA)
@pytest.mark.parametrize("producer", NAMES)
def test_messages_are_found_by_key(
    exchange: Exchange, need: Need, inspectors: dict[str, Program], producer: str, inspector: str
) -> None:
    """A query by a key returns the messages that carry it, and no other."""
    need(producer, inspector)
    topic = STRANGERS[producer].topic
    program = inspectors[inspector]
    last = STRANGERS[producer].sends // GROUP_SIZE - 1
    for group in (0, last // 2, last):
        lines = program.ask(f"query {topic} group-{group} 64")
        assert sorted(line["i"] for line in lines) == list(range(group * GROUP_SIZE, (group + 1) * GROUP_SIZE))
        for line in lines:
            check_content(line)
    for i in (0, STRANGERS[producer].sends - 1):
        assert [line["i"] for line in program.ask(f"query {topic} key-{i} 32")] == [i]
    with pytest.raises(AssertionError, match="no message"):
        program.ask(f"query {topic} key-none 32")


@pytest.mark.parametrize("inspector", JAVA)
def test_unique_keys_are_viewable_soon(
    exchange: Exchange, need: Need, inspectors: dict[str, Program], inspector: str
) -> None:
    """Messages are found by their unique keys, most within two seconds of the acknowledgement."""
    need(inspector)
    topic = f"interop_fresh_{inspector.replace('.', '_')}"
    create_topic(exchange.server.namesrv, exchange.server.broker, topic, QUEUES)
    elapsed_ms = []
    for i in range(5):
        sent, found = inspectors[inspector].ask(f"fresh {topic} {i}")
        assert found["i"] == i
        elapsed_ms.append(found["elapsedMs"])
        check_identity(found, sent)
    assert sorted(elapsed_ms)[2] <= 2000, elapsed_ms


@pytest.mark.parametrize("name", MAKING_TOPICS)
def test_topics_are_created_by_the_first_send(
    exchange: Exchange, need: Need, inspectors: dict[str, Program], name: str
) -> None:
    """A client may send to a topic that does not exist yet."""
    need(name, "java-5.3.3")
    topic, sent = STRANGERS[name].made_topic, exchange.made[name]
    assert len(sent) == MADE
    until(lambda: len(received(pulled(inspectors, "java-5.3.3", topic))) >= MADE, "all are stored")
    check_all(received(pulled(inspectors, "java-5.3.3", topic)), sent)
