"""Workload files of openmessaging-benchmark: their meaning here, and messages about them."""

from __future__ import annotations

from typing import Any

import pytest

from tianzhou.bench.payloads import Keys
from tianzhou.bench.spec import BenchKind, LoadSpec, Payload
from tianzhou.bench.workload import KNOWN, NOT_HERE, apply, parse
from tianzhou.errors import ConfigError

WHOLE = """
name: two topics with everything
topics: 2
partitionsPerTopic: 16
keyDistributor: KEY_ROUND_ROBIN
messageSize: 2048
useRandomizedPayloads: true
randomBytesRatio: 0.5
randomizedPayloadPoolSize: 100
subscriptionsPerTopic: 3
consumerPerSubscription: 4
producersPerTopic: 5
producerRate: 50000
consumerBacklogSizeGB: 2
backlogDrainRatio: 0.9
testDurationMinutes: 5
warmupDurationMinutes: 2
"""


def read(text: str, topic: str = "bench") -> tuple[LoadSpec, list[str]]:
    return apply(parse(text, "w.yaml"), "w.yaml", topic)


def test_every_key_has_its_place() -> None:
    given, notes = read(WHOLE, "load")
    assert notes == []
    assert given == LoadSpec(
        BenchKind.mixed,
        topics=("load-000", "load-001"),
        queues=16,
        seconds=300.0,
        warm_up_s=120,
        rate=50_000,
        connections=5,
        payload=Payload(2048, random_ratio=0.5, pool=100, whole=True),
        keys=Keys.round_robin,
        groups=3,
        consumers=4,
        backlog_bytes=2 * 1024**3,
        drain_ratio=0.9,
        name="two topics with everything",
    )


def test_what_is_left_out_is_as_there() -> None:
    given, notes = read("topics: 1\ntestDurationMinutes: 1\n")
    assert notes == []
    assert (given.topics, given.queues, given.warm_up_s, given.seconds) == (("bench",), 1, 60, 60.0)
    assert (given.keys, given.rate, given.groups, given.consumers, given.connections) == (Keys.none, 0, 1, 1, 1)


def test_a_payload_file_is_one_body() -> None:
    given, _ = read('payloadFile: "payload/payload-1Kb.data"\nmessageSize: 1024\ntestDurationMinutes: 1\n')
    assert given.payload == Payload(1024, file="payload/payload-1Kb.data", whole=True)


@pytest.mark.parametrize("key", ["subscriptionsPerTopic", "consumerPerSubscription"])
def test_without_consumers_it_only_produces(key: str) -> None:
    given, _ = read(f"{key}: 0\ntestDurationMinutes: 1\nconsumerBacklogSizeGB: 7\n")
    assert (given.kind, given.backlog_bytes) == (BenchKind.produce, 0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("producerRates: 5", "producerRates is no key of a workload and is left out; did you mean producerRate?"),
        ("xyzzy: 5", "xyzzy is no key of a workload and is left out"),
        ("producerRateList: []", "producerRateList changes nothing here: the rate is producerRate throughout"),
    ],
)
def test_keys_that_change_nothing_are_named(line: str, said: str) -> None:
    _, notes = read(f"{line}\ntestDurationMinutes: 1\n")
    assert notes == [f"--workload w.yaml: {said}"]


def test_no_key_is_both_known_and_without_effect() -> None:
    assert not set(KNOWN) & set(NOT_HERE)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topics: 0", "topics: 0: expected a whole number from 1"),
        ("topics: many", "topics: 'many': expected a whole number from 1"),
        ("producerRate: -5", "producerRate: -5: expected a whole number from 0"),
        ("messageSize: true", "messageSize: True: expected a whole number from 0"),
        ("messageSize: 0", "messageSize: 0: messages without a body cannot be sent; give a size"),
        ("backlogDrainRatio: 1.5", "backlogDrainRatio: 1.5: expected a number from 0 to 1"),
        ("keyDistributor: SOME", "keyDistributor: 'SOME': expected one of NO_KEY, KEY_ROUND_ROBIN, RANDOM_NANO"),
        ("useRandomizedPayloads: 3", "useRandomizedPayloads: 3: expected true or false"),
        ("payloadFile: 3", "payloadFile: 3: expected the path of a file"),
        (
            "producersPerTopic: 0",
            "producersPerTopic: 0: nothing would be sent; to measure consumers alone use tianzhou bench consume",
        ),
    ],
)
def test_wrong_values_are_refused(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(f"testDurationMinutes: 1\n{line}\n")
    assert str(error.value) == f"--workload w.yaml: {said}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topics: 1", "testDurationMinutes is missing; give how long to measure"),
        ("", "holds no keys; expected lines as `topics: 1`"),
        ("- 1", "holds no keys; expected lines as `topics: 1`"),
        ("topics: [", "no YAML, line "),
    ],
)
def test_what_is_no_workload_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(text)
    assert str(error.value).startswith("--workload w.yaml: ")
    assert said in str(error.value)


def test_all_keys_at_once_are_read_without_a_word() -> None:
    keys: dict[str, Any] = dict.fromkeys(KNOWN, 1) | {
        "name": "n", "keyDistributor": "NO_KEY", "useRandomizedPayloads": False, "payloadFile": "f",
    }  # fmt: skip
    _, notes = apply(keys, "w.yaml", "t")
    assert notes == []
