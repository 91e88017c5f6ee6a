"""State files: the tables as RocketMQ's JSON files below `config` (store.md §15).

A damaged file is replaced by its previous version. When that one is damaged too, the broker does not start, unless an
operator accepts the loss (docs/adr/0028).

Tables are encoded on the loop, large ones a few entries per turn, and written by a thread, as each write waits for the
disk. Files are written one by one. A failed write is retried and does not delay the other files. An entry that cannot
be encoded is skipped and logged.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tianzhou.broker.rebuilt_note import write_note
from tianzhou.broker.rebuilt_state import (
    DELAYS,
    FILTERS,
    GROUPS,
    LIGHT_OFFSETS,
    OFFSETS,
    SEND_LIMITS,
    TABLES,
    TOPICS,
    RebuiltState,
    StoredQueues,
    rebuilt_groups,
    rebuilt_offsets,
    rebuilt_topics,
    shape_problem,
)
from tianzhou.broker.state import Tables
from tianzhou.broker.state_inventory import StateInventory
from tianzhou.broker.tables.topic_json_cache import TopicJsonCache
from tianzhou.clock import Clock, SystemClock
from tianzhou.damaged_files import ACCEPT_OPTION, end_acceptance, is_lost_state_accepted
from tianzhou.errors import ProtocolError, StateLost, StoreError
from tianzhou.escaping import shown
from tianzhou.shortages import words
from tianzhou.slices import each_in_turns
from tianzhou.store.files.config_file import JsonFile, Source
from tianzhou.store.store import MessageStore
from tianzhou.supervision import Supervisor
from tianzhou.troubles import reason
from tianzhou.watermark import Watermark
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP_TABLE, SubscriptionGroupTable
from tianzhou.wire.bodies.topics import DATA_VERSION, TOPIC_CONFIG, TOPIC_TABLE
from tianzhou.wire.json_dialect import dumps, dumps_pretty
from tianzhou.wire.json_pieces import pretty_entries, pretty_pieces, pretty_table

RETRY_S = 1.0
PUT_BACK = "; put back a copy of the file"

_log = logging.getLogger(__name__)


class StateFile:
    """A state file and the progress of writing its table's changes.

    Args:
        file: the JSON file.
        pieces: returns the file's text piece by piece.
        value: the table as one JSON value, to find entries that cannot be encoded; None where `pieces` skips them.

    Attributes:
        due: whether it has to be written.
        requests: number of requests to write it.
        left_out: entries that cannot be encoded, and the reasons.
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
        """Return once the disk has all changes made so far.

        Args:
            further: number of further write requests to wait for.

        Raises:
            StoreError: a change is not on the disk; the text names the consequence.
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
        clock: clock for the times of failures.
        supervisor: supervisor that records failed writes.

    Attributes:
        unwritten: texts about losses at the stop; empty when all was written.
        older: state files with content older than the last write, because the previous version was read or the table
            was rebuilt.
    """

    def __init__(
        self, tables: Tables, folder: Path, clock: Clock | None = None, supervisor: Supervisor | None = None
    ) -> None:
        self._tables = tables
        self._folder = folder
        self._clock = clock or SystemClock()
        self.older: list[str] = []
        self._inventory = StateInventory(folder)
        self._lock = folder.parent / "lock"
        self._in_store = self._lock.exists()
        self._supervisor = supervisor or Supervisor("broker", clock)
        self.unwritten: list[str] = []
        ordinary, light = JsonFile(folder / OFFSETS), JsonFile(folder / LIGHT_OFFSETS)
        # RocketMQ uses another file with enableLmq. Read the other one too, so that groups have their offsets after a
        # change of the setting.
        offsets, self._other_offsets = (light, ordinary) if tables.offsets.light else (ordinary, light)
        self._topic_json = TopicJsonCache(lambda topic: pretty_entries({topic.topic_name: TOPIC_CONFIG.encode(topic)}))

        def pretty(file: JsonFile, value: Callable[[], Mapping[str, Any]]) -> StateFile:
            return StateFile(file, lambda: pretty_pieces(value()), value)

        self._topics = StateFile(JsonFile(folder / TOPICS), self._topics_pieces, None)
        self._groups = pretty(JsonFile(folder / GROUPS), self._groups_json)
        self._offsets = pretty(offsets, tables.offsets.to_json)
        self._delays = pretty(JsonFile(folder / DELAYS), tables.delays.to_file)
        self._filters = pretty(JsonFile(folder / FILTERS), tables.filters.to_json)
        self._send_limits = pretty(JsonFile(folder / SEND_LIMITS), tables.send_limits.to_json)
        self._metrics = StateFile(
            JsonFile(folder / "transactionMetrics"), lambda: iter([dumps(tables.transaction_metrics.to_json())]), None
        )
        # Write positions first: a stop may have little time, and positions cannot be rebuilt.
        self._files = (
            self._offsets, self._delays, self._topics, self._groups, self._filters, self._send_limits, self._metrics,
        )  # fmt: skip
        # RocketMQ 4.9 has no file of metrics, and no RocketMQ has one of send limits, so write them only when needed.
        self._has_metrics = False
        self._requested = Watermark()
        self._thread = ThreadPoolExecutor(1, "tianzhou-tables")

    def load(self, stored: StoredQueues | None = None) -> None:
        """Load the tables from the files; from then on write topics, groups and send limits when they change.

        A damaged file is replaced by its previous version. A table is lost when both versions are damaged. Lost tables
        are rebuilt only where an operator has accepted the loss (`accept_lost_state`).

        Args:
            stored: queues of the store; None to rebuild no table.

        Raises:
            StateLost: tables are lost, and no operator has accepted that.
            StoreUnreadable: this process has no permission to read a file.
        """
        lost: dict[JsonFile, str] = {}
        for file, take in (
            (self._topics, self._take_topics),
            (self._groups, self._take_groups),
            (self._delays, self._tables.delays.load),
            (self._filters, self._tables.filters.load),
            (self._send_limits, self._tables.send_limits.load),
        ):
            self._load_one(file.file, take, lost)
        offsets, load_offsets = self._offsets.file, self._tables.offsets.load
        if not self._load_one(offsets, load_offsets, lost) and offsets not in lost:
            self._load_one(self._other_offsets, load_offsets, lost)
        self._note_missing(lost)
        self._load_metrics()
        accepted = is_lost_state_accepted(self._folder)
        if lost and not accepted:
            raise StateLost(_refusal(self._folder, lost.values()))
        if stored is not None:
            self._rebuild(lost, stored, accepted=accepted)
            end_acceptance(self._folder)
        for one in self._files:
            if one.file.source is Source.BACKUP:
                self._request(one)
        self._tables.topics.listeners.append(lambda _: self._request(self._topics))
        self._tables.groups.listeners.append(lambda: self._request(self._groups))
        self._tables.send_limits.listeners.append(lambda: self._request(self._send_limits))

    def _load_one(self, file: JsonFile, take: Callable[[dict[Any, Any]], object], lost: dict[JsonFile, str]) -> bool:
        """Load a table from its file; return whether the file exists."""

        def take_whole(value: dict[Any, Any]) -> None:
            if problem := shape_problem(file.path.name, value):
                raise ProtocolError(problem)
            take(value)

        try:
            found = file.load(take_whole, put_aside=True)
        except StateLost as error:
            lost[file] = str(error).removesuffix(PUT_BACK)
            return False
        if file.source is Source.BACKUP:
            self.older.append(file.path.name)
        return found is not None

    def _note_missing(self, lost: dict[JsonFile, str]) -> None:
        """Add missing files that this folder had before to `lost`."""
        self._inventory.load()
        offsets = self._offsets.file if self._offsets.file.path.name in self._inventory else self._other_offsets
        for file in (*(one.file for one in self._files if one is not self._offsets), offsets):
            if file.source is Source.NOTHING and file not in lost and file.path.name in self._inventory:
                lost[file] = f"{file.path} and {file.backup_path.name}: there are no such files, and there were before"

    def _rebuild(self, lost: Mapping[JsonFile, str], stored: StoredQueues, *, accepted: bool) -> None:
        """Rebuild lost tables from the log, note that on the disk, and write the tables."""
        root, tables, now_ms = self._folder.parent, self._tables, self._clock.now_ms()
        reasons = {file.path.name: why for file, why in lost.items()}
        if stored.is_empty:
            for file, why in lost.items():
                aside = ", ".join(path.name for path in file.put_both_aside()) or "not there"
                _log.error("%s; the store is empty, so the table begins anew; the damaged files are %s", why, aside)
            return
        absent = self._topics.file.source is Source.NOTHING and not stored.follows
        if absent and TOPICS not in reasons and stored.unknown_topics(tables.topics):
            reasons[TOPICS] = "there is no such file, and the store has queues"
        if not reasons:
            if accepted:
                _log.warning("%s: no state file is lost; %s had no effect", self._folder, ACCEPT_OPTION)
            return
        state = self._rebuilt(reasons, stored, now_ms)
        write_note(root, state, now_ms)
        for line in state.lines():
            _log.error("%s", line)
        for file in lost:
            file.put_both_aside()
        for one in self._files:
            if one.file.path.name in reasons:
                self._write_text(one.file, b"".join(one.pieces()))
        self.older += reasons

    def _rebuilt(self, reasons: Mapping[str, str], stored: StoredQueues, now_ms: int) -> RebuiltState:
        tables, offsets = self._tables, {OFFSETS, LIGHT_OFFSETS} & reasons.keys()
        topics = rebuilt_topics(stored, tables.topics, tables.settings.default_topic_queue_nums)
        if TOPICS not in reasons:
            topics = []
        tables.topics.put_all(topics, now_ms, bounded=False)
        groups = []
        if GROUPS in reasons:
            of_offsets = {key.partition("@")[2] for key in tables.offsets.keys()}  # noqa: SIM118 - no mapping
            groups = rebuilt_groups(stored, sorted(of_offsets), tables.groups.all().keys())
            tables.groups.put_all(groups, now_ms, bounded=False)
        positions: dict[str, dict[int, int]] = {}
        for group, topic, queue_id, offset in rebuilt_offsets(stored) if offsets else ():
            tables.offsets.commit(group, topic, queue_id, offset, now_ms, bounded=False)
            positions.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        counts = {topic.topic_name: topic.read_queue_nums for topic in topics}
        return RebuiltState(reasons, counts, tuple(group.group_name for group in groups), positions)

    def _load_metrics(self) -> None:
        # The file has only figures, which are counted again, so a damaged one does not prevent the start.
        try:
            value = self._metrics.file.load(self._tables.transaction_metrics.load, put_aside=True)
            self._has_metrics = value is not None
        except StateLost as error:
            self._has_metrics = True
            self._metrics.file.put_both_aside()
            _log.warning("%s; its counts start again", error)

    def write_metrics(self, now_ms: int) -> None:
        """Request a write of transactionMetrics if the numbers of waiting half messages changed."""
        tables = self._tables
        if tables.transaction_metrics.update(tables.transactions.counts, tables.topics.__contains__, now_ms):
            self._has_metrics = True
            self._request(self._metrics)

    def write_offsets(self) -> None:
        """Request a write of the offsets if they changed."""
        if self._tables.offsets.dirty:
            self._request(self._offsets)

    def write_delays(self) -> None:
        """Request a write of delayOffset.json; an unchanged text is not written."""
        self._request(self._delays)

    def write_filters(self) -> None:
        """Request a write of consumerFilter.json; an unchanged text is not written."""
        self._request(self._filters)

    async def settled(self) -> None:
        """Return once all changes so far in the tables of topics, groups and limits are on the disk.

        Raises:
            StoreError: a change is not on the disk; the text names the consequence.
        """
        for file in (self._topics, self._groups, self._send_limits):
            await file.settled()

    async def all_written(self) -> None:
        """Return once all changes so far in all tables are on the disk, offsets and delays too.

        Offsets and delays are written periodically; this waits for their next write.

        Raises:
            StoreError: a change is not on the disk; the text names the consequence.
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
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write_text, file.file, text)
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

    def _write_text(self, file: JsonFile, text: bytes) -> None:
        """Write a file, unless the store's folder was removed while the broker ran.

        Raises:
            OSError: the write failed, or the store's folder was removed.
        """
        if self._in_store and not self._lock.exists():
            why = "the store's folder was removed while the broker ran"
            raise FileNotFoundError(errno.ENOENT, why, str(self._lock))
        file.write(text)
        if file.path.name in TABLES:
            self._inventory.note(file.path.name)

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
        """Write all files at the stop."""
        self._thread.shutdown()
        for file in self._files:
            limits_unused = self._send_limits.file.source is Source.NOTHING and not self._tables.send_limits.version
            if (file is self._metrics and not self._has_metrics) or (file is self._send_limits and limits_unused):
                continue
            try:
                try:
                    text = b"".join(file.pieces())
                    self._note_left_out(file)
                except Exception:
                    if file.value is None:
                        raise
                    text = _salvaged(file)
                self._write_text(file.file, text)
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


def stored_queues(store: MessageStore) -> StoredQueues:
    """Return the queues of an opened store.

    Args:
        store: the store.
    """
    queues = {
        topic: {queue_id: store.min_offset(topic, queue_id) for queue_id in store.queues(topic)}
        for topic in store.topics()
    }
    return StoredQueues(store.end_offset, queues, store.queue_kinds.batch_topics, store.settings.may_follow)


def _refusal(folder: Path, problems: Iterable[str]) -> str:
    return (
        f"state files of the store {folder.parent} cannot be read: {'; '.join(problems)}; put back a copy of each "
        f"file, or start once with {ACCEPT_OPTION}: the broker then rebuilds from the log what it can, lists it, "
        "and keeps the damaged files under other names"
    )


def _salvaged(file: StateFile) -> bytes:
    """Return the text of a table without entries that cannot be encoded; note these in `left_out`."""
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
