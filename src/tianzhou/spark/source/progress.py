"""A stream's lag, figures and topics, from the progress that Spark reports. Pure.

Spark's Kafka source has such figures in `metrics` of a query's progress, and its topics in `description`. PySpark 4.3
asks sources written in Python for neither, but their offsets contain the facts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue
from tianzhou.spark.source.offsets import from_json


def lag(progress: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """Return the number of unread messages of each queue at the time of the progress report.

    Args:
        progress: `query.lastProgress`, or an element of `query.recentProgress`. Other sources in it are ignored.
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
    """Return the figures of Spark's Kafka source, under its names and as text.

    They are `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest` over all queues of the
    query. The result is empty if the progress contains no queue.

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
    """Return what the query reads: topics with brokers and their numbers of queues, like `orders (broker-a: 4 queues)`.

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
