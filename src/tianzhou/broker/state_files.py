"""State files: the tables as RocketMQ's JSON files below `config` (store.md §15).

Tables are encoded on the loop, large ones a few entries per turn, and written by a thread, as each write waits for the
disk. Files are written one by one, and a failed write is tried again: the others do not wait for it. An entry that
cannot be encoded is left out, and logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tianzhou.broker.state import Tables
from tianzhou.broker.tables.topic_json_cache import TopicJsonCache
from tianzhou.clock import Clock
from tianzhou.errors import StoreError, StoreUnreadable
from tianzhou.escaping import shown
from tianzhou.shortages import words
from tianzhou.slices import each_in_turns
from tianzhou.store.files.config_file import JsonFile
from tianzhou.supervision import Supervisor
from tianzhou.troubles import reason
from tianzhou.watermark import Watermark
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP_TABLE, SubscriptionGroupTable
from tianzhou.wire.bodies.topics import DATA_VERSION, TOPIC_CONFIG, TOPIC_TABLE
from tianzhou.wire.json_dialect import dumps, dumps_pretty
from tianzhou.wire.json_pieces import pretty_entries, pretty_pieces, pretty_table

RETRY_S = 1.0

_log = logging.getLogger(__name__)


class StateFile:
    """A state file, and how far the changes of its table have been written.

    Args:
        file: the JSON file.
        pieces: makes its text, piece by piece.
        value: the table as one JSON value, to find entries that cannot be encoded; None where `pieces` leaves them out.

    Attributes:
        due: whether it has to be written.
        requests: number of requests to write it.
        left_out: entries that cannot be encoded, and why.
    """

    def __init__(
        self, file: JsonFile, pieces: Callable[[], Iterator[bytes]], value: Callable[[], Mapping[str, Any]] | None
    ) -> None:
        self.file = file
        self.pieces = pieces
        self.value = value
        self.due = False
        self.requests = 0
        self.left_out: dict[str, str] = {}
        self._tried = Watermark()
        self._problem: tuple[int, int, str] = (0, 0, "")

    @property
    def name(self) -> str:
        """Name for operators."""
        return f"state file {self.file.path.name}"

    async def settled(self, further: int = 0) -> None:
        """Return once the disk has what was changed so far.

        Args:
            further: how many further requests to write the file to wait for.

        Raises:
            StoreError: it has not, or not all; the text says what that means.
        """
        target = self.requests + further
        if self._tried.value >= target:
            return
        await self._tried.reach(target)
        first, last, why = self._problem
        if first < target <= last:
            raise StoreError(why)

    def tried(self, upto: int, problem: str = "") -> None:
        """Note an attempt to write the changes up to request `upto`."""
        if problem:
            self._problem = (self._tried.value, upto, problem)
        self._tried.advance(upto)


class StateFiles:
    """Loads the tables at start and writes them when they change.

    Args:
        tables: the broker's state.
        folder: the store's `config` folder.
        clock: time of failures.
        supervisor: learns of failed writes.

    Attributes:
        unwritten: what was lost at the stop, in words; empty when nothing was.
    """

    def __init__(
        self, tables: Tables, folder: Path, clock: Clock | None = None, supervisor: Supervisor | None = None
    ) -> None:
        self._tables = tables
        self._supervisor = supervisor or Supervisor("broker", clock)
        self.unwritten: list[str] = []
        ordinary, light = JsonFile(folder / "consumerOffset.json"), JsonFile(folder / "lmqConsumerOffset.json")
        # RocketMQ has another file with enableLmq. Groups keep their offsets when it is turned on or off.
        offsets, self._other_offsets = (light, ordinary) if tables.offsets.light else (ordinary, light)
        self._topic_json = TopicJsonCache(lambda topic: pretty_entries({topic.topic_name: TOPIC_CONFIG.encode(topic)}))

        def pretty(file: JsonFile, value: Callable[[], Mapping[str, Any]]) -> StateFile:
            return StateFile(file, lambda: pretty_pieces(value()), value)

        self._topics = StateFile(JsonFile(folder / "topics.json"), self._topics_pieces, None)
        self._groups = pretty(JsonFile(folder / "subscriptionGroup.json"), self._groups_json)
        self._offsets = pretty(offsets, tables.offsets.to_json)
        self._delays = pretty(JsonFile(folder / "delayOffset.json"), tables.delays.to_file)
        self._filters = pretty(JsonFile(folder / "consumerFilter.json"), tables.filters.to_json)
        self._metrics = StateFile(
            JsonFile(folder / "transactionMetrics"), lambda: iter([dumps(tables.transaction_metrics.to_json())]), None
        )
        # Positions first: at a stop that has but little time, they are what cannot be made again.
        self._files = (self._offsets, self._delays, self._topics, self._groups, self._filters, self._metrics)
        # RocketMQ 4.9 has no such file; who never had a transaction does not get one.
        self._has_metrics = False
        self._requested = Watermark()
        self._thread = ThreadPoolExecutor(1, "tianzhou-tables")

    def load(self) -> None:
        """Fill the tables from the files, and from now on write topics and groups whenever they change.

        Raises:
            StoreUnreadable: a file and the copy of its version before can both not be read, or are not what they
                should be.
        """
        for file, take in (
            (self._topics, self._take_topics),
            (self._groups, self._take_groups),
            (self._delays, self._tables.delays.load),
            (self._filters, self._tables.filters.load),
        ):
            file.file.load(take, put_aside=True)
        if self._offsets.file.load(self._tables.offsets.load, put_aside=True) is None:
            self._other_offsets.load(self._tables.offsets.load, put_aside=True)
        self._load_metrics()
        self._tables.topics.listeners.append(lambda _: self._request(self._topics))
        self._tables.groups.listeners.append(lambda: self._request(self._groups))

    def _load_metrics(self) -> None:
        # Figures only, which are counted again: no reason not to start.
        try:
            value = self._metrics.file.load(self._tables.transaction_metrics.load, put_aside=True)
            self._has_metrics = value is not None
        except StoreUnreadable as error:
            self._has_metrics = True
            _log.warning("%s; its counts start again", error)

    def write_metrics(self, now_ms: int) -> None:
        """Have transactionMetrics written, if the numbers of waiting half messages changed."""
        tables = self._tables
        if tables.transaction_metrics.update(tables.transactions.counts, tables.topics.__contains__, now_ms):
            self._has_metrics = True
            self._request(self._metrics)

    def write_offsets(self) -> None:
        """Have the offsets written, if anything in it changed."""
        if self._tables.offsets.dirty:
            self._request(self._offsets)

    def write_delays(self) -> None:
        """Have delayOffset.json written; an unchanged text is not written again."""
        self._request(self._delays)

    def write_filters(self) -> None:
        """Have consumerFilter.json written; an unchanged text is not written again."""
        self._request(self._filters)

    async def settled(self) -> None:
        """Return once everything that changed so far in the tables of topics and groups is on the disk.

        Raises:
            StoreError: some of it is not; the text says what that means.
        """
        for file in (self._topics, self._groups):
            await file.settled()

    async def all_written(self) -> None:
        """Return once everything that changed so far in the tables is on the disk, offsets and delays too.

        Offsets and delays are written periodically; this waits for the next time.

        Raises:
            StoreError: some of it is not; the text says what that means.
        """
        offsets = self._offsets.settled(1 if self._tables.offsets.dirty else 0)
        await asyncio.gather(self.settled(), offsets, self._delays.settled(1))

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            seen = self._requested.value
            for file in self._files:
                if file.due:
                    await self._write(file)
            if any(file.due for file in self._files) and self._requested.value == seen:
                await asyncio.sleep(RETRY_S)
            else:
                await self._requested.reach(seen + 1)

    async def _write(self, file: StateFile) -> None:
        requests, known = file.requests, set(file.left_out)
        file.due = False
        try:
            text = await self._text(file)
            await asyncio.get_running_loop().run_in_executor(self._thread, file.file.write, text)
        except Exception as error:  # noqa: BLE001 - the other files have to be written all the same
            file.due = True
            file.tried(
                requests,
                f"{file.file.path} cannot be written ({words(error)}); the change counts now, and is lost if the "
                "broker stops before that is mended; it is tried again every second",
            )
            self._supervisor.failed(file.name, error)
            return
        new_problems = [f"{entry} ({why})" for entry, why in file.left_out.items() if entry not in known]
        if new_problems:
            problem = (
                f"{file.file.path.name}: no text can be made of {'; '.join(new_problems[:3])}; left out of the file"
            )
            _log.error("%s", problem)
            file.tried(requests, f"{problem}, so that it is lost when the broker stops")
        else:
            file.tried(requests)
        if file.left_out:
            first = next(iter(file.left_out.items()))
            self._supervisor.failed(
                file.name, StoreError(f"{len(file.left_out)} entries left out: {first[0]} ({first[1]})")
            )
        else:
            self._supervisor.well(file.name)

    async def _text(self, file: StateFile) -> bytes:
        try:
            text = b"".join([piece async for piece in each_in_turns(file.pieces(), 1)])
        except Exception:
            if file.value is None:
                raise
            return _salvaged(file)
        self._note_left_out(file)
        return text

    def _note_left_out(self, file: StateFile) -> None:
        problems = self._topic_json.problems if file is self._topics else {}
        file.left_out = {f"topic {shown(name)}": why for name, why in problems.items()}

    def close(self) -> None:
        """Write everything, at the stop."""
        self._thread.shutdown()
        for file in self._files:
            if file is self._metrics and not self._has_metrics:
                continue
            try:
                try:
                    text = b"".join(file.pieces())
                    self._note_left_out(file)
                except Exception:
                    if file.value is None:
                        raise
                    text = _salvaged(file)
                file.file.write(text)
            except Exception as error:  # noqa: BLE001 - the other files have to be written all the same
                _log.error("%s could not be written at the stop: %s", file.file.path, words(error))
                self.unwritten.append(f"{file.file.path} could not be written ({reason(error)})")
            else:
                for entry, why in file.left_out.items():
                    self.unwritten.append(f"{file.file.path.name} has no {entry} ({why})")

    def _request(self, file: StateFile) -> None:
        file.due = True
        file.requests += 1
        self._requested.advance(self._requested.value + 1)

    def _take_topics(self, value: Any) -> None:
        found = TOPIC_TABLE.decode(value, "topics.json")
        for topic in self._tables.topics.load(found.topic_config_table, found.data_version):
            _log.warning("topics.json: topic %s has more queues than any may have; the rest is left out", topic)

    def _take_groups(self, value: Any) -> None:
        found = SUBSCRIPTION_GROUP_TABLE.decode(value, "subscriptionGroup.json")
        table = found.subscription_group_table
        for group in self._tables.groups.load(table, found.forbidden_table, found.data_version):
            _log.warning("subscriptionGroup.json: group %s has too many retry queues; the rest is left out", group)

    def _topics_pieces(self) -> Iterator[bytes]:
        topics = self._tables.topics
        for _ in self._topic_json.refresh(topics.all()):
            yield b""
        head = {"dataVersion": DATA_VERSION.encode(topics.version)}
        yield pretty_table(head, "topicConfigTable", self._topic_json.all(topics.all()))

    def _groups_json(self) -> Any:
        groups = self._tables.groups
        return SUBSCRIPTION_GROUP_TABLE.encode(
            SubscriptionGroupTable(dict(groups.all()), groups.version, groups.forbidden)
        )


def _salvaged(file: StateFile) -> bytes:
    """The text of a table without the entries that cannot be encoded, which are noted in `left_out`."""
    assert file.value is not None
    left_out: dict[str, str] = {}

    def has_text(where: str, value: Mapping[Any, Any]) -> bool:
        try:
            dumps_pretty(value)
        except Exception as error:  # noqa: BLE001 - whatever keeps it from being written
            left_out[shown(where)] = reason(error)
            return False
        return True

    whole: dict[str, Any] = {}
    for member, content in file.value().items():
        if isinstance(content, Mapping):
            whole[member] = {key: one for key, one in content.items() if has_text(f"{member} {key}", {"_": {key: one}})}
        elif has_text(member, {"_": content}):
            whole[member] = content
    file.left_out = left_out
    return dumps_pretty(whole)
