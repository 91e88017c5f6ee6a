"""Rows of the list of consumer groups: kinds, figures, and the operations offered to a visitor. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tianzhou.console.lists import NORMAL, SYSTEM, SortKey, Words, ago, count_text, rate_text
from tianzhou.console.measures import GroupFigures, line_of
from tianzhou.model import SubscriptionGroupConfig
from tianzhou.model.subscription import ConsumeType, MessageModel

KINDS: Final = (NORMAL, SYSTEM)
LOOKS: Final = ("status", "members", "dead", "doctor")
"""Operations that change nothing. The first two are parts of the group's page."""
COLUMNS: Final = ("group", "members", "kind", "lag", "oldest", "out", "topics")
WAYS: Final = {
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_POP: "pop",
}


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A consumer group in the list.

    Attributes:
        name: name of the group.
        kind: one of `KINDS`.
        configs: configuration of the group by name of each broker that has it.
    """

    name: str
    kind: str
    configs: Mapping[str, SubscriptionGroupConfig] = field(default_factory=dict)


def group_entries(
    tables: Mapping[str, Mapping[str, SubscriptionGroupConfig]], reserved: Collection[str]
) -> list[GroupEntry]:
    """Return all groups, sorted by name.

    Args:
        tables: configuration by group, for each broker name.
        reserved: names of groups that exist on every broker.
    """
    names = {name for table in tables.values() for name in table}
    return [
        GroupEntry(
            name,
            SYSTEM if name in reserved else NORMAL,
            {broker: table[name] for broker, table in tables.items() if name in table},
        )
        for name in sorted(names)
    ]


def group_operations(entry: GroupEntry, may_change: bool) -> tuple[str, ...]:
    """Return the operations offered to a visitor for a group, in the order of the menu.

    Args:
        entry: the group.
        may_change: whether the visitor may change anything.
    """
    if entry.kind == SYSTEM:
        return LOOKS[:2]
    return (*LOOKS, "configuration", "reset", "skip", "delete") if may_change else LOOKS


def kind_words(figures: GroupFigures, words: Words) -> str:
    """Return a text with the group's consume type, message model and order; empty without connected members.

    Args:
        figures: measurements of the group.
        words: returns texts in the visitor's language.
    """
    parts = [f"group.way.{WAYS[figures.way]}"] if figures.way is not None else []
    if figures.model is not None:
        broadcasting = figures.model is MessageModel.BROADCASTING
        parts.append("group.model.broadcasting" if broadcasting else "group.model.clustering")
    if figures.orderly:
        parts.append("group.orderly")
    return " · ".join(words(part) for part in parts)


def group_keys(figures: Mapping[str, GroupFigures], words: Words) -> dict[str, SortKey]:
    """Return the sort key of each column of the list of groups.

    Args:
        figures: measurements by group.
        words: returns texts in the visitor's language.
    """
    none = GroupFigures()

    def of(entry: GroupEntry) -> GroupFigures:
        return figures.get(entry.name, none)

    return {
        "group": lambda entry: entry.name,
        "members": lambda entry: of(entry).members,
        "kind": lambda entry: kind_words(of(entry), words) or None,
        "lag": lambda entry: of(entry).lag,
        # The longest wait is the largest value.
        "oldest": lambda entry: -of(entry).oldest_ms if of(entry).oldest_ms else None,
        "out": lambda entry: of(entry).rate,
        "topics": lambda entry: len(of(entry).topics) if of(entry).asked_ms else None,
    }


def group_row(
    entry: GroupEntry, figures: GroupFigures | None, words: Words, now_ms: int, may_change: bool
) -> dict[str, Any]:
    """Return the row of a group.

    Args:
        entry: the group.
        figures: measurements of the group; None before the first measurement.
        words: returns texts in the visitor's language.
        now_ms: the time now, in milliseconds since 1970.
        may_change: whether the visitor may change anything.
    """
    found = figures if figures is not None else GroupFigures()
    return {
        "key": entry.name,
        "group": entry.name,
        "members": count_text(found.members),
        "kind": kind_words(found, words),
        "lag": count_text(found.lag),
        "oldest": ago(found.oldest_ms, found.asked_ms, now_ms, words),
        "oldest_ms": found.oldest_ms,
        "out": rate_text(found.rate),
        "line": line_of(found.counter.points()),
        "old": found.is_old,
        "topics": count_text(len(found.topics) if found.asked_ms else None),
        "operations": group_operations(entry, may_change),
    }


def groups_by_topic(figures: Mapping[str, GroupFigures]) -> dict[str, int]:
    """Return the number of groups that consume each topic. A retry topic counts as consumed by its own group.

    Args:
        figures: measurements by group.
    """
    counts: dict[str, int] = {}
    for found in figures.values():
        for topic in found.lags:
            counts[topic] = counts.get(topic, 0) + 1
    return counts
