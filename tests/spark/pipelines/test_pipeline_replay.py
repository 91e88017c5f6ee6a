"""`tianzhou pipeline replay`: a time range or single messages again, unchanged, and no faster than the rate."""

from __future__ import annotations

import time
from collections import Counter

import pytest


@pytest.fixture
def target(server, topic) -> str:
    return server.create(f"{topic}-again")


def test_a_time_is_sent_again_as_it_was(server, topic, target, pipeline, cli, tmp_path):
    server.send(topic, ["before"])
    time.sleep(0.02)
    since = round(time.time() * 1000)
    server.send(
        topic,
        range(20),
        tags="A",
        keys=lambda n: f"k{n} all",
        sharding_key=lambda n: f"s{n % 3}",
        properties=lambda n: {"price": str(n)},
    )
    time.sleep(0.02)
    until = int(time.time() * 1000)
    server.send(topic, ["after"])

    checkpoint = str(tmp_path / "checkpoint")
    args = [
        "replay",
        topic,
        "--to",
        target,
        "--since",
        str(since),
        "--until",
        str(until),
        "--checkpoint",
        checkpoint,
    ]
    assert pipeline(*args)["sent"] == 20
    sent = {m.body: m for m in server.messages(topic)}
    again = server.messages(target)
    assert Counter(m.body for m in again) == Counter(str(n).encode() for n in range(20))
    for message in again:
        was = sent[message.body]
        assert (message.tags, message.keys) == (was.tags, was.keys)
        assert message.properties["__SHARDINGKEY"] == was.properties["__SHARDINGKEY"]
        origin = {
            "origin_kind": "replay",
            "origin_topic": topic,
            "origin_id": was.msg_id,
            "origin_place": f"broker-a:{was.queue_id}@{was.queue_offset}",
        }
        assert message.user_properties == {"price": message.body.decode()} | origin
        assert message.msg_id != was.msg_id
    by_key = {}
    for message in again:
        by_key.setdefault(message.properties["__SHARDINGKEY"], set()).add(message.queue_id)
    assert all(len(queues) == 1 for queues in by_key.values())

    code, _, err = cli("pipeline", *args)
    assert (code, len(server.messages(target))) == (0, 20), err
    assert "nothing (more) to send" in err


def test_into_the_same_topic_it_ends(server, topic, pipeline, tmp_path):
    server.send(topic, range(10), tags=lambda n: "even" if n % 2 == 0 else "odd")
    replay = ("replay", topic, "--tags", "even", "--checkpoint", str(tmp_path / "c"))
    # The second run finds the messages of the first one, and sends none.
    for sent in (5, 0):
        assert pipeline(*replay)["sent"] == sent
        assert Counter(m.body for m in server.messages(topic)) == Counter(
            [str(n).encode() for n in (*range(10), 0, 2, 4, 6, 8)]
        )


def test_a_topic_made_again_is_not_taken_for_the_old_one(server, topic, target, pipeline, cli, tmp_path):
    args = ["replay", topic, "--to", target, "--checkpoint", str(tmp_path / "c")]
    server.send(topic, range(5), queue=0)
    assert pipeline(*args)["sent"] == 5
    server.delete(topic)
    server.create(topic)
    server.send(topic, range(8), queue=0)
    code, _, err = cli("pipeline", *args)
    assert code == 1
    assert f"{topic}@broker-a:0 holds other messages than those that were read up to offset 5" in err
    assert len(server.messages(target)) == 5


def test_no_faster_than_the_rate(server, topic, target, pipeline, tmp_path):
    server.send(topic, range(60))
    pipeline(
        "replay", topic, "--to", target, "--rate", "40", "--where", "body < X'36'", "--checkpoint", str(tmp_path / "c")
    )
    again = server.messages(target)
    assert len(again) == len([n for n in range(60) if str(n) < "6"])
    times = sorted(m.store_timestamp for m in again)
    # No second has more than a second's worth and a slice, as test_spark_send_rate.py proves; being late is no fault.
    # Two clocks are compared, in whole milliseconds.
    assert all(b - a >= 990 for a, b in zip(times, times[44:], strict=False))


def test_nor_exactly_once(server, topic, target, pipeline, tmp_path):
    server.send(topic, range(90))
    args = ["--to", target, "--rate", "40", "--delivery", "exactly-once", "--checkpoint", str(tmp_path / "c")]
    assert pipeline("replay", topic, *args)["sent"] == 90
    again = server.messages(target)
    assert Counter(m.body for m in again) == Counter(str(n).encode() for n in range(90))
    times = sorted(m.store_timestamp for m in again)
    assert all(b - a >= 990 for a, b in zip(times, times[40:], strict=False))


def test_single_messages_need_no_spark(server, topic, target, pipeline, cli):
    server.send(topic, range(5), tags="A", keys=lambda n: f"k{n}", properties=lambda _: {"p": "1"})
    ids = {m.body: m.msg_id for m in server.messages(topic)}
    assert pipeline("replay", topic, "--to", target, "--id", ids[b"1"], "--id", ids[b"3"])["sent"] == 2
    again = server.messages(target)
    assert {m.body for m in again} == {b"1", b"3"}
    assert {m.properties["origin_id"] for m in again} == {ids[b"1"], ids[b"3"]}
    assert {(m.tags, m.properties["p"]) for m in again} == {("A", "1")}
    code, _, err = cli("pipeline", "replay", topic, "--to", target, "--id", ids[b"2"], "--id", "ABC")
    assert code == 1
    assert "ABC" in err
    assert len(server.messages(target)) == 2


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([], "--checkpoint is missing: a folder of this replay's own"),
        (["--id", "x", "--rate", "5"], "--id chooses single messages"),
        (["--checkpoint", "c", "--since", "yesterday"], "--since yesterday: expected a time"),
        (["--checkpoint", "c", "--since", "20", "--until", "10"], "--until 10 is not later than --since 20"),
        (["--checkpoint", "c", "--delivery", "once"], "--delivery once: expected at-least-once or exactly-once"),
    ],
)
def test_mistakes_are_explained(topic, cli, args, text):
    code, _, err = cli("pipeline", "replay", topic, *args)
    assert (code, text in err) == (2, True), err


def test_no_topic_has_such_a_name(topic, cli):
    code, _, err = cli("pipeline", "replay", topic, "--checkpoint", "c", "--to", "no where")
    assert (code, "topic 'no where' may only hold letters" in err) == (1, True), err


def test_where_brokers_make_no_topics_the_command_says_how(topic, cli, monkeypatch):
    """Like with autoCreateTopicEnable=false, when brokers have no template topic."""
    monkeypatch.setattr("tianzhou.cli.pipelines.archive_replay.AUTO_CREATE_TOPIC", "no-template")
    code, _, err = cli("pipeline", "replay", topic, "--to", f"{topic}-nowhere", "--checkpoint", "c")
    assert code == 2
    assert f"topic {topic}-nowhere does not exist, and the brokers make none by themselves" in err
    assert f"tianzhou topic create {topic}-nowhere" in err
