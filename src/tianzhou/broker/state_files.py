"""The tables on disk: RocketMQ's JSON files below `config` (store.md §15)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tianzhou.broker.tables import Tables
from tianzhou.store.config_file import JsonFile
from tianzhou.wire.bodies import (
    SUBSCRIPTION_GROUP_TABLE,
    TOPIC_TABLE,
    SubscriptionGroupTable,
    TopicTable,
)

_log = logging.getLogger(__name__)


class StateFiles:
    """Loads the tables at start and writes them when they change.

    Args:
        tables: the broker's state.
        folder: the store's `config` folder.
    """

    def __init__(self, tables: Tables, folder: Path) -> None:
        self._tables = tables
        self._topics = JsonFile(folder / "topics.json")
        self._groups = JsonFile(folder / "subscriptionGroup.json")
        self._offsets = JsonFile(folder / "consumerOffset.json")
        self._delays = JsonFile(folder / "delayOffset.json")
        self._delays_written: dict[str, Any] | None = None

    def load(self) -> None:
        """Fill the tables from the files.

        Raises:
            StoreUnreadable: a file and the copy of its version before can both not be read.
        """
        tables = self._tables
        self._take(self._topics, self._load_topics)
        self._take(self._groups, self._load_groups)
        self._take(self._offsets, tables.offsets.load)
        self._take(self._delays, tables.delays.load)
        self._delays_written = tables.delays.to_json()

    def watch(self) -> None:
        """From now on, write topics and groups whenever they change."""
        self._tables.topics.listeners.append(lambda _: self.write_topics())
        self._tables.groups.listeners.append(self.write_groups)

    def _take(self, file: JsonFile, load: Callable[[Any], None]) -> None:
        value = file.load()
        if value is not None:
            load(value)

    def _load_topics(self, value: Any) -> None:
        found = TOPIC_TABLE.decode(value, "topics.json")
        self._tables.topics.load(found.topic_config_table, found.data_version)

    def _load_groups(self, value: Any) -> None:
        found = SUBSCRIPTION_GROUP_TABLE.decode(value, "subscriptionGroup.json")
        self._tables.groups.load(found.subscription_group_table, found.forbidden_table, found.data_version)

    def write_topics(self) -> None:
        """Write topics.json."""
        topics = self._tables.topics
        members = TOPIC_TABLE.encode(TopicTable(dict(topics.all()), topics.version))
        kept = ("dataVersion", "topicConfigTable")
        self._topics.persist({member: members[member] for member in kept})

    def write_groups(self) -> None:
        """Write subscriptionGroup.json."""
        groups = self._tables.groups
        table = SubscriptionGroupTable(dict(groups.all()), groups.version, groups.forbidden)
        self._groups.persist(SUBSCRIPTION_GROUP_TABLE.encode(table))

    def write_offsets(self) -> None:
        """Write consumerOffset.json, if anything in it changed."""
        if self._tables.offsets.dirty:
            self._offsets.persist(self._tables.offsets.to_json())

    def write_delays(self) -> None:
        """Write delayOffset.json, if anything in it changed."""
        value = self._tables.delays.to_json()
        if value != self._delays_written:
            self._delays.persist(value)
            self._delays_written = value

    def write_all(self) -> None:
        """Write everything, at the stop."""
        self.write_topics()
        self.write_groups()
        self.write_offsets()
        self.write_delays()
