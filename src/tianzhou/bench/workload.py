"""Workload files of openmessaging-benchmark. Pure.

Keys, defaults and meanings are those of the `Workload` class of that project. Values are checked. For an unknown key
the result contains a note with the most similar known key. For a key without a counterpart it contains a note with the
behaviour that applies instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tianzhou.bench.payloads import Keys
from tianzhou.bench.series import HOW_TO_INSTALL
from tianzhou.bench.spec import BenchKind, LoadSpec, Payload
from tianzhou.errors import ConfigError

DEFAULT_WARM_UP_MINUTES = 1
GIB = 1024**3
KEY_DISTRIBUTORS = {
    "NO_KEY": Keys.none,
    "KEY_ROUND_ROBIN": Keys.round_robin,
    "RANDOM_NANO": Keys.random,
}
WHOLE = {
    "topics": 1,
    "partitionsPerTopic": 1,
    "messageSize": 0,
    "randomizedPayloadPoolSize": 0,
    "subscriptionsPerTopic": 0,
    "producersPerTopic": 0,
    "consumerPerSubscription": 0,
    "producerRate": 0,
    "consumerBacklogSizeGB": 0,
    "testDurationMinutes": 1,
    "warmupDurationMinutes": 0,
}
"""The keys with whole numbers, and the minimum of each."""
RATIOS = ("randomBytesRatio", "backlogDrainRatio")
OTHERS = ("name", "keyDistributor", "useRandomizedPayloads", "payloadFile")
KNOWN = (*WHOLE, *RATIOS, *OTHERS)
NOT_HERE = {
    "partitionsPerTopicList": "each topic gets partitionsPerTopic queues",
    "producersPerTopicList": "each topic gets producersPerTopic producers",
    "producerRateList": "the rate is producerRate throughout",
    "producerStartRate": "with producerRate 0 messages are sent as fast as they can be",
    "producerIncrementRate": "the rate is producerRate throughout",
    "producerIncrementSeconds": "the rate is producerRate throughout",
    "acceptableBacklog": "with producerRate 0 messages are sent as fast as they can be",
    "messageRateReceivedForSubscription": "all consumers get all messages of their topic",
    "producerPauseBeforeDrain": "producers go on while the backlog is drained",
    "producerPauseDuringDrain": "producers go on while the backlog is drained",
    "randomTopicNames": "topics are numbered",
    "logIntervalMillis": "progress is shown every second",
}
"""Keys of the project's versions and forks that have no effect here, and the behaviour that applies instead."""


def parse(text: str, source: str) -> Mapping[str, Any]:
    """Parse the keys of a workload file.

    Args:
        text: content of the file.
        source: name of the file, for messages.

    Raises:
        ConfigError: the text is not YAML of keys and values, or the YAML library is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise ConfigError(f"--workload needs PyYAML; {HOW_TO_INSTALL}") from None
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        place = f", line {where.line + 1}" if where is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise ConfigError(f"--workload {source}: no YAML{place}: {problem}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"--workload {source}: holds no keys; expected lines as `topics: 1`")
    return {str(key): value for key, value in found.items()}


def apply(keys: Mapping[str, Any], source: str, topic: str) -> tuple[LoadSpec, list[str]]:
    """Return the run that the file describes, and notes on keys without effect.

    Args:
        keys: see `parse`.
        source: name of the file, for messages.
        topic: name of the topic, or the prefix of the names of several topics.

    Raises:
        ConfigError: a value is invalid.
    """
    notes = [note for key in keys if (note := _note(key, source))]

    def wrong(key: str, expected: str) -> ConfigError:
        return ConfigError(f"--workload {source}: {key}: {keys[key]!r}: expected {expected}")

    def whole(key: str, default: int) -> int:
        value = keys.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < WHOLE[key]:
            raise wrong(key, f"a whole number from {WHOLE[key]}")
        return value

    def ratio(key: str, default: float) -> float:
        value = keys.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise wrong(key, "a number from 0 to 1")
        return float(value)

    topics = whole("topics", 1)
    distributor = keys.get("keyDistributor") or "NO_KEY"
    if distributor not in KEY_DISTRIBUTORS:
        raise wrong("keyDistributor", f"one of {', '.join(KEY_DISTRIBUTORS)}")
    randomized = keys.get("useRandomizedPayloads")
    if randomized not in (None, True, False):
        raise wrong("useRandomizedPayloads", "true or false")
    file = keys.get("payloadFile")
    if file is not None and not isinstance(file, str):
        raise wrong("payloadFile", "the path of a file")
    if "testDurationMinutes" not in keys:
        raise ConfigError(f"--workload {source}: testDurationMinutes is missing; give how long to measure")
    payload = Payload(whole("messageSize", 1024), file=file or "", whole=True)
    if randomized:
        payload = replace(
            payload,
            file="",
            random_ratio=ratio("randomBytesRatio", 0.0),
            pool=max(whole("randomizedPayloadPoolSize", 1), 1),
        )
    if payload.size == 0 and not payload.file:
        raise ConfigError(f"--workload {source}: messageSize: 0: messages without a body cannot be sent; give a size")
    producers, groups = whole("producersPerTopic", 1), whole("subscriptionsPerTopic", 1)
    consumers = whole("consumerPerSubscription", 1)
    receives = bool(groups and consumers)
    if not producers:
        raise ConfigError(
            f"--workload {source}: producersPerTopic: 0: nothing would be sent; to measure consumers alone use "
            "tianzhou bench consume"
        )
    backlog = whole("consumerBacklogSizeGB", 0)
    spec = LoadSpec(
        BenchKind.mixed if receives else BenchKind.produce,
        topics=(topic,) if topics == 1 else tuple(f"{topic}-{number:03d}" for number in range(topics)),
        queues=whole("partitionsPerTopic", 1),
        seconds=60.0 * whole("testDurationMinutes", 1),
        warm_up_s=60 * whole("warmupDurationMinutes", DEFAULT_WARM_UP_MINUTES),
        rate=whole("producerRate", 0),
        connections=producers,
        payload=payload,
        keys=KEY_DISTRIBUTORS[distributor],
        groups=max(groups, 1),
        consumers=max(consumers, 1),
        backlog_bytes=backlog * GIB if receives else 0,
        drain_ratio=ratio("backlogDrainRatio", 1.0),
        name=str(keys.get("name") or ""),
    )
    return spec, notes


def _note(key: str, source: str) -> str | None:
    if key in KNOWN:
        return None
    if key in NOT_HERE:
        return f"--workload {source}: {key} changes nothing here: {NOT_HERE[key]}"
    near = difflib.get_close_matches(key, [*KNOWN, *NOT_HERE], n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"--workload {source}: {key} is no key of a workload and is left out{meant}"
