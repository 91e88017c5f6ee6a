"""How far behind a stream is, from what Spark reports about it. Pure."""

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


def _offset(value: Any) -> Mapping[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    return found if isinstance(found, Mapping) else {}
