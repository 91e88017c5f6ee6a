"""How far behind a stream is, and what it reads, from what Spark reports about it. Pure.

Spark's Kafka source puts such figures into `metrics` of a query's progress, and its topics into `description`. Sources
written in Python cannot: PySpark 4.3 asks them for neither. Their offsets have it all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue
from tianzhou.spark.source.offsets import from_json


def lag(progress: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """How many messages each queue held that the query had not read when its progress was reported.

    Args:
        progress: `query.lastProgress`, or one of `query.recentProgress`; other sources in it are passed over.
    """
    behind: dict[MessageQueue, int] = {}
    for source in progress["sources"]:
        try:
            _, done = from_json(_offset(source["endOffset"]))
            _, there = from_json(_offset(source["latestOffset"]))
        except ConfigError:
            continue
        behind |= {queue: max(0, end - done.get(queue, 0)) for queue, end in there.items()}
    return behind


def metrics(progress: Mapping[str, Any]) -> dict[str, str]:
    """The figures of Spark's Kafka source, under its names and as text as there.

    `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest` over all queues of the query; empty
    when the progress tells of no queue.

    Args:
        progress: see `lag`.
    """
    behind = lag(progress).values()
    if not behind:
        return {}
    average = sum(behind) / len(behind)
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(average),
    }


def description(progress: Mapping[str, Any]) -> str:
    """What the query reads: topics with the brokers and numbers of their queues, as `orders (broker-a: 4 queues)`.

    Args:
        progress: see `lag`.
    """
    queues: dict[str, dict[str, int]] = {}
    for source in progress["sources"]:
        try:
            _, there = from_json(_offset(source["endOffset"]))
        except ConfigError:
            continue
        for queue in sorted(there):
            brokers = queues.setdefault(queue.topic, {})
            brokers[queue.broker_name] = brokers.get(queue.broker_name, 0) + 1
    return ", ".join(f"{topic} ({', '.join(map(_counted, brokers.items()))})" for topic, brokers in queues.items())


def _counted(broker: tuple[str, int]) -> str:
    name, count = broker
    return f"{name}: {count} queue{'s' if count != 1 else ''}"


def _offset(value: Any) -> Mapping[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    return found if isinstance(found, Mapping) else {}
