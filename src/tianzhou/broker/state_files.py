"""The tables on disk: RocketMQ's JSON files below `config` (store.md §15).

Texts are made on the loop, where the tables are, large ones a few entries at a time, and written by a thread of their
own: each write waits for the disk, and the loop must not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tianzhou.broker.tables import Tables
from tianzhou.broker.topic_texts import TopicTexts
from tianzhou.errors import ProtocolError, StoreUnreadable
from tianzhou.store.config_file import JsonFile
from tianzhou.watermark import Watermark
from tianzhou.wire.bodies import SUBSCRIPTION_GROUP_TABLE, TOPIC_TABLE, SubscriptionGroupTable
from tianzhou.wire.bodies.topics import DATA_VERSION, TOPIC_CONFIG
from tianzhou.wire.json_dialect import dumps
from tianzhou.wire.json_pieces import pretty_entries, pretty_pieces, pretty_table

RETRY_S = 1.0

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
        ordinary, light = JsonFile(folder / "consumerOffset.json"), JsonFile(folder / "lmqConsumerOffset.json")
        # RocketMQ keeps them elsewhere with enableLmq. Whoever turns it on or off goes on from where groups were.
        self._offsets, self._other_offsets = (light, ordinary) if tables.offsets.light else (ordinary, light)
        self._delays = JsonFile(folder / "delayOffset.json")
        self._filters = JsonFile(folder / "consumerFilter.json")
        self._metrics = JsonFile(folder / "transactionMetrics")
        self._topic_texts = TopicTexts(lambda topic: pretty_entries({topic.topic_name: TOPIC_CONFIG.encode(topic)}))
        self._pieces: dict[JsonFile, Callable[[], Iterator[bytes]]] = {
            self._topics: self._topics_pieces,
            self._groups: lambda: pretty_pieces(self._groups_json()),
            self._offsets: lambda: pretty_pieces(tables.offsets.to_json()),
            self._delays: lambda: pretty_pieces(tables.delays.to_file()),
            self._filters: lambda: pretty_pieces(tables.filters.to_json()),
            self._metrics: lambda: iter([dumps(tables.transaction_metrics.to_json())]),
        }
        # RocketMQ 4.9 has no such file; who never had a transaction does not get one.
        self._has_metrics = False
        self._due: set[JsonFile] = set()
        self._asked = Watermark()
        self._written = Watermark()
        self._thread = ThreadPoolExecutor(1, "tianzhou-tables")

    def load(self) -> None:
        """Fill the tables from the files, and from now on write topics and groups whenever they change.

        Raises:
            StoreUnreadable: a file and the copy of its version before can both not be read.
            ProtocolError: a file is JSON but not what it should hold.
        """
        for file, take in (
            (self._topics, self._take_topics),
            (self._groups, self._take_groups),
            (self._offsets, self._tables.offsets.load),
            (self._delays, self._tables.delays.load),
            (self._filters, self._tables.filters.load),
        ):
            value = file.load()
            if value is None and file is self._offsets:
                value = self._other_offsets.load()
            if value is not None:
                take(value)
        self._load_metrics()
        self._tables.topics.listeners.append(lambda _: self._ask(self._topics))
        self._tables.groups.listeners.append(lambda: self._ask(self._groups))

    def _load_metrics(self) -> None:
        # Figures only, and counted anew: no reason not to start.
        try:
            value = self._metrics.load()
            self._has_metrics = value is not None
            if value is not None:
                self._tables.transaction_metrics.load(value)
        except (StoreUnreadable, ProtocolError, ValueError) as error:
            self._has_metrics = True
            _log.warning("%s; its figures are counted anew", error)

    def write_metrics(self, now_ms: int) -> None:
        """Have transactionMetrics written, if other numbers of half messages wait than before."""
        tables = self._tables
        if tables.transaction_metrics.update(tables.transactions.counts, tables.topics.__contains__, now_ms):
            self._has_metrics = True
            self._ask(self._metrics)

    def write_offsets(self) -> None:
        """Have the offsets written, if anything in it changed."""
        if self._tables.offsets.dirty:
            self._ask(self._offsets)

    def write_delays(self) -> None:
        """Have delayOffset.json written; an unchanged text is not written again."""
        self._ask(self._delays)

    def write_filters(self) -> None:
        """Have consumerFilter.json written; an unchanged text is not written again."""
        self._ask(self._filters)

    async def settled(self) -> None:
        """Return once everything that changed so far is on the disk."""
        await self._written.reach(self._asked.value)

    async def run(self) -> None:
        """Write until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._asked.reach(self._written.value + 1)
            asked, due = self._asked.value, list(self._due)
            self._due.clear()
            texts = [(file, await self._text(file)) for file in due]
            try:
                await loop.run_in_executor(self._thread, _write, texts)
            except OSError as error:
                _log.error("the broker's tables cannot be written: %s; trying again", error)
                self._due.update(due)
                await asyncio.sleep(RETRY_S)
            else:
                self._written.advance(asked)

    async def _text(self, file: JsonFile) -> bytes:
        pieces = []
        for piece in self._pieces[file]():
            pieces.append(piece)
            await asyncio.sleep(0)
        return b"".join(pieces)

    def close(self) -> None:
        """Write everything, at the stop."""
        self._thread.shutdown()
        files = [file for file in self._pieces if file is not self._metrics or self._has_metrics]
        try:
            _write([(file, b"".join(self._pieces[file]())) for file in files])
        except OSError as error:
            _log.error("the broker's tables could not be written at the stop: %s", error)

    def _ask(self, file: JsonFile) -> None:
        self._due.add(file)
        self._asked.advance(self._asked.value + 1)

    def _take_topics(self, value: Any) -> None:
        found = TOPIC_TABLE.decode(value, "topics.json")
        self._tables.topics.load(found.topic_config_table, found.data_version)

    def _take_groups(self, value: Any) -> None:
        found = SUBSCRIPTION_GROUP_TABLE.decode(value, "subscriptionGroup.json")
        self._tables.groups.load(found.subscription_group_table, found.forbidden_table, found.data_version)

    def _topics_pieces(self) -> Iterator[bytes]:
        topics = self._tables.topics
        for _ in self._topic_texts.refresh(topics.all()):
            yield b""
        head = {"dataVersion": DATA_VERSION.encode(topics.version)}
        yield pretty_table(head, "topicConfigTable", self._topic_texts.all(topics.all()))

    def _groups_json(self) -> Any:
        groups = self._tables.groups
        return SUBSCRIPTION_GROUP_TABLE.encode(
            SubscriptionGroupTable(dict(groups.all()), groups.version, groups.forbidden)
        )


def _write(texts: list[tuple[JsonFile, bytes]]) -> None:
    for file, text in texts:
        file.write(text)
