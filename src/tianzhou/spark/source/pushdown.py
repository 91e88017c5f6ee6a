"""The messages that a query needs, derived from its conditions on columns. Pure.

Spark evaluates every condition again, so the result may be too wide. Times are widened by `TIME_MARGIN_MS`, because
brokers look up times only approximately.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil, floor
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from tianzhou.model import MessageQueue
from tianzhou.spark.source.offsets import Span

TIME_MARGIN_MS: Final = 10_000
"""Margin in ms. A queue's store times ascend, except that a broker's clock may be set back by a little."""

_BELOW: Final = -(1 << 63)
_ABOVE: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Needed:
    """The messages that a query can need.

    Attributes:
        topics: the topics, None for all.
        brokers: the brokers, None for all.
        queue_ids: the queue ids, None for all.
        first_queue: the lowest queue id.
        last_queue: the highest queue id.
        first: the lowest queue offset.
        last: the highest queue offset.
        since_ms: earliest store time, ms since the epoch; None for no bound.
        until_ms: latest store time, ms since the epoch; None for no bound.
        tags: the tags, None for all messages with and without a tag.
    """

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    first_queue: int = _BELOW
    last_queue: int = _ABOVE
    first: int = _BELOW
    last: int = _ABOVE
    since_ms: int | None = None
    until_ms: int | None = None
    tags: frozenset[str] | None = None

    def narrow(self, span: Span) -> Span | None:
        """Return the part of a range that is needed by its queue and offsets, None if no part is."""
        if not self._wants(span.queue):
            return None
        start, end = max(span.start, self.first), min(span.end, self.last + 1)
        return Span(span.queue, start, end) if start < end else None

    def _wants(self, queue: MessageQueue) -> bool:
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.brokers is None or queue.broker_name in self.brokers)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
            and self.first_queue <= queue.queue_id <= self.last_queue
        )


def needed(filters: Iterable[Filter]) -> Needed:
    """Return the messages that fulfil all conditions.

    Args:
        filters: conditions, all of which must hold. Conditions of other forms are ignored.
    """
    found = Needed()
    for condition in filters:
        attribute: tuple[str, ...] = getattr(condition, "attribute", ())
        if len(attribute) != 1:
            continue
        values = _values(condition)
        match attribute[0].lower():
            case "topic":
                found = replace(found, topics=_among(found.topics, values, str))
            case "brokername":
                found = replace(found, brokers=_among(found.brokers, values, str))
            case "tags":
                found = replace(found, tags=_tags(found.tags, values))
            case "queueid" | "partition":
                low, high = _range(condition, values)
                found = replace(
                    found,
                    queue_ids=_among(found.queue_ids, values, int),
                    first_queue=max(found.first_queue, low),
                    last_queue=min(found.last_queue, high),
                )
            case "queueoffset" | "offset":
                low, high = _range(condition, values)
                found = replace(found, first=max(found.first, low), last=min(found.last, high))
            case "storetimestamp" | "timestamp":
                found = _within(found, condition, values)
    return found


def _values(condition: Filter) -> tuple[Any, ...] | None:
    """Return the values of which the column must have one; None if the condition has another form."""
    if isinstance(condition, EqualTo | EqualNullSafe):
        return (condition.value,)
    if isinstance(condition, In):
        return tuple(condition.value)
    return None


def _fits(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _among(known: frozenset[Any] | None, values: tuple[Any, ...] | None, kind: type) -> frozenset[Any] | None:
    if values is None or not all(_fits(value, kind) for value in values):
        return known
    return frozenset(values) if known is None else known & frozenset(values)


def _tags(known: frozenset[str] | None, values: tuple[Any, ...] | None) -> frozenset[str] | None:
    # A tag of a tag expression has no blanks around it and contains no separator. A null in a list matches no row.
    values = None if values is None else tuple(value for value in values if value is not None)
    if not values or not all(_fits(value, str) and _expressible(value) for value in values):
        return known
    return _among(known, values, str)


def _expressible(tag: str) -> bool:
    return tag not in ("", "*") and tag == tag.strip() and "||" not in tag


def _range(condition: Filter, values: tuple[Any, ...] | None) -> tuple[int, int]:
    if values is not None:
        if not values or not all(_fits(value, int) for value in values):
            return _BELOW, _ABOVE
        return min(values), max(values)
    value = getattr(condition, "value", None)
    if isinstance(value, int) and not isinstance(value, bool):
        match condition:
            case GreaterThan():
                return value + 1, _ABOVE
            case GreaterThanOrEqual():
                return value, _ABOVE
            case LessThan():
                return _BELOW, value - 1
            case LessThanOrEqual():
                return _BELOW, value
    return _BELOW, _ABOVE


def _within(found: Needed, condition: Filter, values: tuple[Any, ...] | None) -> Needed:
    times = (getattr(condition, "value", None),) if values is None else values
    if not times or not all(isinstance(time, datetime) and time.tzinfo is not None for time in times):
        return found
    stamps = [time.timestamp() * 1000 for time in times]
    since, until = floor(min(stamps)) - TIME_MARGIN_MS, ceil(max(stamps)) + TIME_MARGIN_MS
    if values is not None or isinstance(condition, GreaterThan | GreaterThanOrEqual):
        found = replace(found, since_ms=since if found.since_ms is None else max(found.since_ms, since))
    if values is not None or isinstance(condition, LessThan | LessThanOrEqual):
        found = replace(found, until_ms=until if found.until_ms is None else min(found.until_ms, until))
    return found
