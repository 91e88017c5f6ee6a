"""Rows of the list of topics: kinds, types, figures, and the operations offered to a visitor. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tianzhou.console.lists import NORMAL, SYSTEM, SortKey, Words, ago, count_text, rate_text
from tianzhou.console.measures import TopicFigures, line_of
from tianzhou.model import TopicConfig
from tianzhou.model.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX

RETRY: Final = "retry"
DLQ: Final = "dlq"
KINDS: Final = (NORMAL, RETRY, DLQ, SYSTEM)
MESSAGE_TYPE: Final = "message.type"
"""Attribute with the type of messages that a topic accepts, at brokers of RocketMQ 5."""
TYPES: Final = (NORMAL, "fifo", "delay", "transaction", "mixed", RETRY, DLQ, SYSTEM)
LOOKS: Final = ("status", "route", "consumers", "messages")
"""Operations that change nothing. The first three are parts of the topic's page."""
LAG: Final = "lag"
"""Operation that shows the lag of each group by queue; only for normal topics."""
COLUMNS: Final = ("topic", "type", "queues", "messages", "in", "groups", "last")


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic of the list.

    Attributes:
        name: name of the topic.
        kind: one of `KINDS`.
        type: one of `TYPES`: the message type of a normal topic, otherwise the topic's kind.
        queues: number of queues at all brokers; None when no broker has reported the topic's configuration.
        is_writable: whether a broker accepts messages for the topic.
        brokers: names of the brokers that have reported the topic's configuration.
    """

    name: str
    kind: str
    type: str
    queues: int | None = None
    is_writable: bool = True
    brokers: tuple[str, ...] = ()


def kind_of(name: str, reserved: Collection[str]) -> str:
    """Return the kind of a topic.

    Args:
        name: name of the topic.
        reserved: names of the topics that brokers, clusters and their tools use internally.
    """
    if name.startswith(RETRY_PREFIX):
        return RETRY
    if name.startswith(DLQ_PREFIX):
        return DLQ
    return SYSTEM if name in reserved or name.startswith(SYSTEM_PREFIX) else NORMAL


def topic_entries(
    names: Iterable[str], reserved: Iterable[str], tables: Mapping[str, Mapping[str, TopicConfig]]
) -> list[TopicEntry]:
    """Return all topics, sorted by name.

    Args:
        names: topics that the name servers list.
        reserved: see `kind_of`.
        tables: configuration by topic, for each broker name.
    """
    of_system = frozenset(reserved)
    return [_entry(name, kind_of(name, of_system), _configs(name, tables)) for name in sorted(names)]


def _configs(name: str, tables: Mapping[str, Mapping[str, TopicConfig]]) -> dict[str, TopicConfig]:
    return {broker: table[name] for broker, table in tables.items() if name in table}


def _entry(name: str, kind: str, configs: Mapping[str, TopicConfig]) -> TopicEntry:
    if not configs:
        return TopicEntry(name, kind, kind)
    return TopicEntry(
        name,
        kind,
        _type_of(configs.values()) if kind == NORMAL else kind,
        sum(max(config.read_queue_nums, config.write_queue_nums) for config in configs.values()),
        any(config.writable for config in configs.values()),
        tuple(configs),
    )


def _type_of(configs: Iterable[TopicConfig]) -> str:
    for config in configs:
        said = config.attributes.get(MESSAGE_TYPE, "").lower()
        if said in TYPES:
            return said
        if config.order:
            return "fifo"
    return NORMAL


def topic_operations(entry: TopicEntry, may_change: bool) -> tuple[str, ...]:
    """Return the operations offered to a visitor for a topic, in the order of the menu.

    Args:
        entry: the topic.
        may_change: whether the visitor may change anything.
    """
    if entry.kind == SYSTEM:
        return LOOKS
    if not may_change:
        return (*LOOKS, LAG) if entry.kind == NORMAL else LOOKS
    if entry.kind != NORMAL:
        return (*LOOKS, "configuration", "delete")
    send = ("send",) if entry.is_writable else ()
    return (*LOOKS, LAG, "configuration", *send, "reset", "skip", "delete")


def topic_keys(figures: Mapping[str, TopicFigures], groups: Mapping[str, int], words: Words) -> dict[str, SortKey]:
    """Return the sort key of each column of the list of topics.

    Args:
        figures: measurements by topic.
        groups: number of consumer groups by topic.
        words: returns texts in the visitor's language.
    """
    none = TopicFigures()
    types = {one: words(f"topic.type.{one}") for one in TYPES}

    def of(entry: TopicEntry) -> TopicFigures:
        return figures.get(entry.name, none)

    return {
        "topic": lambda entry: entry.name,
        "type": lambda entry: types[entry.type],
        "queues": lambda entry: entry.queues,
        "messages": lambda entry: of(entry).messages,
        "in": lambda entry: of(entry).rate,
        "groups": lambda entry: groups.get(entry.name, 0),
        "last": lambda entry: of(entry).last_ms or None,
    }


def topic_row(
    entry: TopicEntry, figures: TopicFigures | None, groups: int, words: Words, now_ms: int, may_change: bool
) -> dict[str, Any]:
    """Return the row of a topic.

    Args:
        entry: the topic.
        figures: measurements of the topic; None before the first measurement.
        groups: number of its consumer groups.
        words: returns texts in the visitor's language.
        now_ms: the time now, in milliseconds since 1970.
        may_change: whether the visitor may change anything.
    """
    found = figures if figures is not None else TopicFigures()
    return {
        "key": entry.name,
        "topic": entry.name,
        "type": words(f"topic.type.{entry.type}"),
        "queues": count_text(entry.queues),
        "messages": count_text(found.messages),
        "in": rate_text(found.rate),
        "line": line_of(found.counter.points()),
        "old": found.is_old,
        "groups": count_text(groups),
        "last": ago(found.last_ms, found.asked_ms, now_ms, words),
        "last_ms": found.last_ms,
        "operations": topic_operations(entry, may_change),
    }
