"""SQL92 expressions of consumer groups, which outlive their members (broker.md §11.3).

Bits in queue units refer to the expressions. A group that returns within a day can use the bits of messages that were
stored while it had no members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from tianzhou.errors import FilterSyntaxError, ProtocolError
from tianzhou.escaping import shown
from tianzhou.filter import SQL92, BloomData, BloomFilter, SqlFilter, parse_sql
from tianzhou.filter.values import Lookup
from tianzhou.limits import FILTER_TEXT, FILTERS, Bounds
from tianzhou.model import SubscriptionData

TAG_TYPES: Final = (None, "", "TAG")
"""Expression types of subscriptions that have no entry here."""
RECENTLY_DEAD_MS: Final = 30_000
MOST_COMPLAINTS: Final = 10_000
"""Maximum invalid expressions remembered so that each is logged once."""


@dataclass(slots=True)
class ConsumerFilter:
    """SQL92 expression of a group for a topic.

    Attributes:
        topic: the topic.
        group: the group.
        expression: text of the expression.
        version: time of the subscription by the client's clock, ms.
        born_ms: time from which on stored records have bits for this expression.
        dead_ms: time at which the group's last member left; 0 while there is one.
        bloom: its bits in queue units.
        compiled: the compiled expression.
    """

    topic: str
    group: str
    expression: str
    version: int
    born_ms: int
    bloom: BloomData
    compiled: SqlFilter
    dead_ms: int = 0

    @property
    def dead(self) -> bool:
        """Whether the group has no member."""
        return self.dead_ms >= self.born_ms


class ConsumerFilters:
    """Table of SQL92 expressions by topic and group.

    Args:
        bloom: Bloom filter that assigns the bits.
        now_ms: wall-clock time of the start. Groups loaded from the disk count as without members from about this time
            on.
        bounds: limits of the number and the total length of expressions.
    """

    def __init__(self, bloom: BloomFilter, now_ms: int, bounds: Bounds | None = None) -> None:
        self.bloom = bloom
        self._bounds = bounds or Bounds()
        self._count = self._characters = 0
        self._started_ms = now_ms
        self._topics: dict[str, dict[str, ConsumerFilter]] = {}
        self._groups: dict[str, set[str]] = {}
        self._complained: dict[tuple[str, str], int] = {}

    def find(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return a group's expression for a topic, whether it has members or not."""
        of_topic = self._topics.get(topic)
        return None if of_topic is None else of_topic.get(group)

    def of_topic(self, topic: str) -> Collection[ConsumerFilter]:
        """Return the expressions of all groups for a topic."""
        of_topic = self._topics.get(topic)
        return () if of_topic is None else of_topic.values()

    def register(self, group: str, subscriptions: Iterable[SubscriptionData], now_ms: int) -> list[str]:
        """Add or update the expressions of a group from a heartbeat.

        Args:
            group: the group.
            subscriptions: all its subscriptions.
            now_ms: wall-clock time.

        Returns:
            Descriptions of invalid expressions; each is returned once.

        Raises:
            LimitExceeded: there are too many expressions, or they are too long.
        """
        problems = []
        topics = set()
        for data in subscriptions:
            topics.add(data.topic)
            if data.expression_type in TAG_TYPES or not data.sub_string:
                continue
            if problem := self._register_one(group, data, now_ms):
                key = data.topic, group
                if self._complained.get(key) != data.sub_version:
                    if len(self._complained) >= MOST_COMPLAINTS:
                        self._complained.clear()
                    self._complained[key] = data.sub_version
                    problems.append(f"subscription of group {group} to topic {data.topic}: {problem}")
        for topic in self._groups.get(group, ()):
            entry = self.find(topic, group)
            if topic not in topics and entry is not None and not entry.dead:
                entry.dead_ms = now_ms
        return problems

    def _register_one(self, group: str, data: SubscriptionData, now_ms: int) -> str | None:
        known = self.find(data.topic, group)
        if known is not None and data.sub_version <= known.version:
            if data.sub_version == known.version:
                known.dead_ms = 0
            return None
        bloom = self.bloom.data(f"{group}#{data.topic}")
        if known is not None and known.expression == data.sub_string and known.bloom == bloom:
            known.version, known.dead_ms = data.sub_version, 0
            return None
        where, before = (
            f"expression of group {group} for topic {data.topic}",
            0 if known is None else len(known.expression),
        )
        self._bounds.check(FILTERS, self._count + (known is None), where)
        self._bounds.check(FILTER_TEXT, self._characters - before + len(data.sub_string), where)
        try:
            compiled = compile_expression(data.expression_type, data.sub_string)
        except FilterSyntaxError as error:
            self._drop(data.topic, group)
            return f"{shown(data.sub_string)!r} cannot be used: {error}"
        self._put(ConsumerFilter(data.topic, group, data.sub_string, data.sub_version, now_ms, bloom, compiled))
        if compiled.ignored is None:
            return None
        begun = f"only the beginning of {shown(data.sub_string)!r} counts"
        return f"{begun}, from position {compiled.ignored} on it is ignored"

    def unregister(self, group: str, now_ms: int) -> None:
        """Note that a group has lost its last member."""
        for topic in self._groups.get(group, ()):
            entry = self.find(topic, group)
            if entry is not None and not entry.dead:
                entry.dead_ms = now_ms

    def forget_topic(self, topic: str) -> None:
        """Drop the expressions for a deleted topic; heartbeats of connected groups add them again."""
        for entry in list(self.of_topic(topic)):
            self._drop(topic, entry.group)

    def clean(self, now_ms: int, keep_ms: int) -> None:
        """Drop the expressions of groups that have had no members for `keep_ms`."""
        for topic in list(self._topics):
            for entry in list(self._topics[topic].values()):
                if entry.dead and now_ms - entry.dead_ms >= keep_ms:
                    self._drop(topic, entry.group)

    def bitmap(self, topic: str, get: Lookup) -> bytes:
        """Return the Bloom bits of the groups whose expressions match a record; empty for a topic without expressions.

        Args:
            topic: the record's topic.
            get: returns a property of the record.
        """
        entries = self.of_topic(topic)
        if not entries:
            return b""
        return self.bloom.bitmap(entry.bloom for entry in entries if entry.compiled.matches(get))

    def _put(self, entry: ConsumerFilter) -> None:
        self._uncount(self.find(entry.topic, entry.group))
        self._count += 1
        self._characters += len(entry.expression)
        self._topics.setdefault(entry.topic, {})[entry.group] = entry
        self._groups.setdefault(entry.group, set()).add(entry.topic)
        self._complained.pop((entry.topic, entry.group), None)

    def _uncount(self, entry: ConsumerFilter | None) -> None:
        if entry is not None:
            self._count -= 1
            self._characters -= len(entry.expression)

    def _drop(self, topic: str, group: str) -> None:
        self._uncount(self.find(topic, group))
        for table, key, item in ((self._topics, topic, group), (self._groups, group, topic)):
            items = table.get(key)
            if items is not None:
                items.pop(item, None) if isinstance(items, dict) else items.discard(item)
                if not items:
                    del table[key]

    # the file (store.md §15.7)

    def to_json(self) -> dict[str, Any]:
        """Return the value for consumerFilter.json."""
        return {
            "filterDataByTopic": {
                topic: {
                    "groupFilterData": {group: _entry_json(of_topic[group]) for group in sorted(of_topic)},
                    "topic": topic,
                }
                for topic, of_topic in sorted(self._topics.items())
            }
        }

    def load(self, value: dict[str, Any]) -> None:
        """Load the content of consumerFilter.json; all its groups count as without members.

        Raises:
            ProtocolError: the content has another form.
        """
        try:
            entries = [
                entry
                for of_topic in (value.get("filterDataByTopic") or {}).values()
                for one in ((of_topic or {}).get("groupFilterData") or {}).values()
                if one and (entry := self._entry(one)) is not None
            ]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"consumerFilter.json: not filters of groups by topic ({error!r})") from None
        if any(not self.bloom.fits(entry.bloom) for entry in entries):
            # The file was written under other settings, so its bits are invalid. Heartbeats add the expressions again.
            return
        for entry in entries:
            if not entry.dead_ms:
                entry.dead_ms = max(entry.born_ms, self._started_ms - RECENTLY_DEAD_MS)
            self._put(entry)

    def _entry(self, value: dict[str, Any]) -> ConsumerFilter | None:
        expression = str(value["expression"])
        try:
            compiled = compile_expression(value.get("expressionType"), expression)
        except FilterSyntaxError:
            return None
        bloom = value.get("bloomFilterData") or {}
        return ConsumerFilter(
            str(value["topic"]),
            str(value["consumerGroup"]),
            expression,
            int(value.get("clientVersion", 0)),
            int(value.get("bornTime", 0)),
            BloomData(int(bloom.get("bitNum", 0)), tuple(map(int, bloom.get("bitPos") or ()))),
            compiled,
            int(value.get("deadTime", 0)),
        )


def compile_expression(kind: str | None, expression: str | None) -> SqlFilter:
    """Compile an expression of a type that is not `TAG`.

    Raises:
        FilterSyntaxError: there is no such type, or the expression is wrong.
    """
    if kind != SQL92:
        raise FilterSyntaxError(f"expression type {kind} is unknown; use TAG or SQL92")
    return parse_sql(expression or "")


def _entry_json(entry: ConsumerFilter) -> dict[str, Any]:
    return {
        "bloomFilterData": {"bitNum": entry.bloom.bit_num, "bitPos": list(entry.bloom.bit_pos)},
        "bornTime": entry.born_ms,
        "clientVersion": entry.version,
        "consumerGroup": entry.group,
        "dead": entry.dead,
        "deadTime": entry.dead_ms,
        "expression": entry.expression,
        "expressionType": SQL92,
        "topic": entry.topic,
    }
