"""Tables in the log of a group: a leader appends changes, each member applies committed ones (docs/adr/0024)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from tianzhou.broker.replication.member_tables import LoggedTables, MemberTables
from tianzhou.broker.replication.replication import AllWritten
from tianzhou.broker.replication.table_entries import (
    OpenSnapshot,
    TableChange,
    TableSnapshot,
    decode_change,
    encode_change,
    following_snapshot,
)
from tianzhou.broker.replication.tables_note import NoteFile, TablesNote
from tianzhou.broker.state import Tables
from tianzhou.broker.tables.consumer_offsets import split_key
from tianzhou.broker.undeliverable.ledger import DeliveryTries
from tianzhou.clock import Clock
from tianzhou.errors import BrokerError, ConfigError, ProtocolError, StoreError
from tianzhou.remoting.users.user_store import UserStore
from tianzhou.store.entries.change_entries import ChangeEntry
from tianzhou.store.store import MessageStore
from tianzhou.supervision import Supervisor
from tianzhou.watermark import Watermark
from tianzhou.wire.codes import ResponseCode

WORK: Final = "tables in the group's log"
NOTE: Final = "note of the tables in the group's log"
PERIOD_S: Final = 0.5
"""Seconds between two entries with committed offsets; a crash of the leader loses the offsets of this time."""
COMMIT_LIMIT_S: Final = 3.0
"""Seconds that a change of a table waits for a majority of the group."""
ENTRIES_PER_CHUNK: Final = 100
"""Maximum topics, groups or users of one change entry, which are encoded in one turn of the loop."""
OFFSETS_PER_CHUNK: Final = 1_000
"""Maximum offsets of one change entry."""
MAX_UNCOMMITTED_BYTES: Final = 4 << 20
"""Maximum bytes of a snapshot that wait for a majority; the rest of the snapshot is appended later."""
SNAPSHOT_DISTANCE: Final = 10
"""Bytes of the log from one snapshot to the next, as a multiple of the snapshot's bytes: snapshots of large tables
take a tenth of the log at most."""

_log = logging.getLogger(__name__)


class TablesLog:
    """The tables of one member of a group, in step with the group's log.

    Args:
        tables: the broker's tables, loaded from its files.
        store: the message store, whose log consists of entries.
        files: the table files.
        users: the broker's users; None when it has none.
        clock: wall-clock time.
        note_period_s: returns the seconds between two notes of the table files' position.

    Attributes:
        member: the tables by key.
        complete: whether the tables are known to be complete.
        logged_term: term of the last change entry that this member has applied; -1 without one.
        agreed_term: term of the leader whose complete tables this member has, without own changes that are in no entry;
            -1 without one.
    """

    def __init__(
        self,
        tables: Tables,
        store: MessageStore,
        files: AllWritten,
        users: UserStore | None,
        clock: Clock,
        note_period_s: Callable[[], float] = lambda: 5.0,
    ) -> None:
        assert store.entries is not None
        assert store.changes is not None
        self._tables = tables
        self._store = store
        self._entries = store.entries
        self._changes = store.changes
        self._files = files
        self._clock = clock
        self._note_period_s = note_period_s
        self.member = MemberTables(tables, users, clock.now_ms)
        self._logged = LoggedTables(self.member)
        folder: Path = store.settings.root / "config"
        self._has_tables = (folder / "topics.json").exists()
        self._note_file = NoteFile(folder)
        self._note = TablesNote()
        self._open: OpenSnapshot | None = None
        self._first_change = 1 << 62
        self._replayed = asyncio.Event()
        self._wake = asyncio.Event()
        self._applying = asyncio.Lock()
        self._appending = asyncio.Lock()
        self._term = -1  # the term that this member leads; -1 while it does not
        self._appended: tuple[Watermark, int] | None = None
        self._snapshot_keys: list[tuple[str, str]] | None = None
        self._snapshot_at = 0
        self._snapshot_bytes = 0
        self.complete = False
        self.logged_term = -1
        self.agreed_term = -1

    # a member's start

    def load(self) -> None:
        """Read the note; to be called before the member takes part in its group."""
        note = self._note_file.read()
        if self._files.older:
            # Table files of an earlier version lack changes that the note counts as applied.
            _log.warning("the group's log is read again from its begin: %s are older than the note", self._files.older)
            note = TablesNote() if note is None else TablesNote(settings=note.settings, waiting=note.waiting)
            # Write the note before the table files are written again, or their old content would look complete.
            self._note_file.write(note)
        self.complete = self._has_tables if note is None else note.complete
        if note is not None:
            self._note = note
            self.member.take_settings(note.settings)
            self._tables.offsets.set_waiting(note.waiting, ())
        elif not self._has_tables:
            # Without the note, the next start would treat the table files as those of an older version.
            self._note_file.write(self._note)
        self._changes.arrived = self._wake.set

    async def _replay(self) -> None:
        """Apply the changes in the log after the note's position."""
        begin, last = self._entries.begin_index, self._entries.committed_index
        first = max(self._note.index + 1, begin, 0)
        if not self._is_of_this_log(self._note):
            # The folder of the tables belongs to another state of the log, so apply the complete log.
            first = max(begin, 0)
            has_note = self._note.index >= 0
            if begin >= 0 and has_note and self._note.index != begin - 1:
                self.complete = False  # until a complete snapshot in the log
        else:
            self.agreed_term = self._note.agreed_term
        if begin >= 0 and first <= last:
            for found in self._changes.scan(first, last):
                if found is None:
                    await asyncio.sleep(0)
                else:
                    await self._apply(found)
        self._replayed.set()

    def _is_of_this_log(self, note: TablesNote) -> bool:
        try:
            return note.index >= 0 and self._entries.term_at(note.index) == note.term
        except StoreError:
            return False

    # applying

    async def caught_up(self) -> None:
        """Return once all committed changes are applied."""
        await self._replayed.wait()
        async with self._applying:
            await self._apply_found()

    async def _apply_found(self) -> None:
        while (found := self._changes.next()) is not None:
            tries = DeliveryTries()
            while True:
                try:
                    await self._apply(found)
                except (OSError, StoreError, ConfigError) as error:  # a file cannot be written
                    _log.error("entry %d with changes of tables is not applied: %s; trying again", found.index, error)
                except Exception as error:  # noqa: BLE001 - the changes behind this one must not wait for ever
                    # The next snapshot has the changes of a skipped entry.
                    if tries.failed(found.index):
                        _log.exception("entry %d with changes of tables cannot be applied; it is left out", found.index)
                        break
                    _log.error("entry %d with changes of tables is not applied: %s; trying again", found.index, error)
                else:
                    break
                await asyncio.sleep(1.0)

    async def _apply(self, entry: ChangeEntry) -> None:
        try:
            change = decode_change(entry.body)
        except ProtocolError as error:
            _log.error("entry %d: %s", entry.index, error)
            return
        await self.member.apply(change)
        self._open = following_snapshot(self._open, change, entry.index)
        mark = change.snapshot
        if mark is not None and mark.last and self._open is not None and self._open.mark.id == mark.id:
            if mark.complete:
                await self.member.delete_others(self._open)
                self.complete = True
                self.agreed_term = entry.term
            self._open = None
        self.logged_term = max(self.logged_term, entry.term)
        self._first_change = min(self._first_change, entry.index)

    # a leader

    def begin_term(self, term: int) -> None:
        """Start to log changes; to be called after all committed entries are applied and before requests are served.

        Args:
            term: the term that this member leads.
        """
        offsets = self._tables.offsets
        offsets.unlogged, offsets.forgotten = {}, set()
        if not self.complete:
            self.complete = self._changes.began_with_tables(self._first_change)
        self._snapshot_keys = self._logged.begin()
        self._term = term
        self._appended = None
        self._wake.set()

    def end_term(self) -> None:
        """Stop logging changes; commits that are in no entry are sent to the next leader."""
        offsets = self._tables.offsets
        if self._term >= 0:
            offsets.own = {key: set(queues) for key, queues in (offsets.unlogged or {}).items()}
        offsets.unlogged, offsets.forgotten = None, set()
        self._term = self.agreed_term = -1
        self._open = None
        self._snapshot_keys = None

    @property
    def leads(self) -> bool:
        """Whether this member logs the changes of its tables."""
        return self._term >= 0

    async def publish(self) -> None:
        """Append the changes of the tables, and wait until a majority of the group has them.

        Raises:
            BrokerError: the outcome is unknown: the change may be lost.
        """
        try:
            if not self.leads:
                raise StoreError("this broker does not lead its DLedger group any more")
            async with asyncio.timeout(COMMIT_LIMIT_S):
                await self._append_changes()
                if self._appended is not None:
                    replicated, end = self._appended
                    await replicated.reach(end)
        except (StoreError, OSError, TimeoutError) as error:
            why = f"no majority had it within {COMMIT_LIMIT_S:g} s" if isinstance(error, TimeoutError) else str(error)
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"the change is made at this broker, but it is not known whether the group keeps it: {why}; look "
                "whether the change is there when the group has a leader, and repeat it if not",
            ) from error

    async def _append_changes(self) -> None:
        async with self._appending:
            try:
                for table, keys in self._logged.changed():
                    for chunk in _chunks(keys, ENTRIES_PER_CHUNK):
                        change, values = self._logged.change_of(table, chunk)
                        self._append(change)
                        self._logged.note(table, chunk, values)
                        await asyncio.sleep(0)
                await self._append_offsets()
            except BaseException:
                self._logged.recheck()
                raise

    async def _append_offsets(self) -> None:
        offsets = self._tables.offsets
        while self.leads and (offsets.unlogged or offsets.forgotten):
            assert offsets.unlogged is not None
            change, taken, count = TableChange(forgotten=list(offsets.forgotten)), [], 0
            for key, marks in offsets.unlogged.items():
                topic, group = split_key(key)
                queues = offsets.queues(group, topic)
                for lowered, target in ((False, change.larger), (True, change.exact)):
                    if found := {one: queues[one] for one, mark in marks.items() if mark is lowered and one in queues}:
                        target[key] = found
                taken.append(key)
                if (count := count + len(marks)) >= OFFSETS_PER_CHUNK:
                    break
            self._append(change)
            offsets.forgotten.clear()
            for key in taken:
                del offsets.unlogged[key]
            await asyncio.sleep(0)

    def _append(self, change: TableChange) -> None:
        """Append an entry.

        Raises:
            StoreError: this member no longer leads.
            OSError: the write fails.
        """
        if change.is_empty:
            return
        if not self.leads:
            raise StoreError("this broker does not lead its DLedger group any more")
        replicated = self._store.durability.replicated
        self._appended = replicated, self._changes.append(encode_change(change), self._clock.now_ms())
        if self._store.appended is not None:
            self._store.appended()

    # snapshots

    def _snapshot_is_due(self) -> bool:
        size, end = self._store.settings.mapped_file_size_commit_log, self._store.end_offset
        far = end - self._snapshot_at >= SNAPSHOT_DISTANCE * self._snapshot_bytes
        return self._snapshot_keys is not None or (far and end // size != self._snapshot_at // size)

    async def _append_snapshot(self) -> None:
        """Append all tables in chunks, one in each turn of the loop; changes may be appended in between."""
        term, begin = self._term, self._store.end_offset
        keys = self._snapshot_keys
        if keys is None:
            keys = self.member.keys()
        number, written = f"{term}-{begin}", 0
        chunks = self._snapshot_chunks(keys)
        present: Callable[[], TableChange] | None = next(chunks)
        first = True
        while present is not None:
            change = present()
            following = next(chunks, None)
            change.snapshot = TableSnapshot(number, first, following is None, self.complete)
            async with self._appending:
                if self._term != term:
                    return
                before = self._store.end_offset
                self._append(change)
                written += self._store.end_offset - before
            present, first = following, False
            await asyncio.sleep(0)
            await self._let_group_follow()
        self._snapshot_keys = None
        self._snapshot_at, self._snapshot_bytes = begin, written

    async def _let_group_follow(self) -> None:
        waiting = self._store.end_offset - self._entries.committed_position
        if waiting > MAX_UNCOMMITTED_BYTES and self._appended is not None:
            replicated, end = self._appended
            await replicated.reach(end - MAX_UNCOMMITTED_BYTES // 2)

    def _snapshot_chunks(self, keys: list[tuple[str, str]]) -> Iterator[Callable[[], TableChange]]:
        """Yield functions that return the chunks with the values at the time of the call; at least one."""

        def of_table(table: str, chunk: list[str]) -> Callable[[], TableChange]:
            def chunk_of() -> TableChange:
                change, _ = self._logged.change_of(table, chunk)
                change.deleted.clear()
                return change

            return chunk_of

        def of_offsets(chunk: list[str]) -> Callable[[], TableChange]:
            offsets = self._tables.offsets
            return lambda: TableChange(
                exact={key: dict(queues) for key in chunk if (queues := offsets.queues(*reversed(split_key(key))))}
            )

        by_table: dict[str, list[str]] = {}
        for table, key in keys:
            by_table.setdefault(table, []).append(key)
        offsets = self._tables.offsets
        keys_of_offsets = offsets.keys()
        yield TableChange
        for table, names in by_table.items():
            for chunk in _chunks(names, ENTRIES_PER_CHUNK):
                yield of_table(table, chunk)
        chunk, count = [], 0
        for key in keys_of_offsets:
            chunk.append(key)
            count += len(offsets.queues(*reversed(split_key(key))))
            if count >= OFFSETS_PER_CHUNK:
                yield of_offsets(chunk)
                chunk, count = [], 0
        if chunk:
            yield of_offsets(chunk)

    # tasks

    async def run(self, supervisor: Supervisor) -> None:
        """Append or apply changes until cancelled."""
        await self._replay()
        while True:
            self._wake.clear()
            if self.leads:
                with supervisor.trial(WORK):
                    await self._lead()
            else:
                async with self._applying:
                    await self._apply_found()
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_S):
                    await self._wake.wait()

    async def keep_note(self, supervisor: Supervisor) -> None:
        """Write the note of the table files' position periodically until cancelled."""
        await self._replayed.wait()
        while True:
            await asyncio.sleep(self._note_period_s())
            with supervisor.trial(NOTE):
                await self.write_note()

    async def _lead(self) -> None:
        term = self._term
        try:
            if self._snapshot_is_due():
                await self._append_snapshot()
            await self._append_changes()
        except StoreError:
            if self._term == term and self._entries.leading:
                raise

    async def write_note(self) -> None:
        """Write the table files, then the note of their position.

        Raises:
            StoreError, OSError: the write fails.
        """
        async with self._applying:
            note = self._present_note()
        if note == self._note:
            return
        await self._files.all_written()
        await asyncio.to_thread(self._note_file.write, note)
        self._note = note

    def _present_note(self) -> TablesNote:
        index = self._changes.taken_upto()
        if self._open is not None and not self.leads:
            index = min(index, self._open.index - 1)
        try:
            term = self._entries.term_at(index) if index >= 0 else -1
        except StoreError:
            index = term = -1
        waiting = {key: dict(queues) for key, queues in self._tables.offsets.resets.items()}
        return TablesNote(index, term, self.complete, dict(self.member.settings), waiting, self.agreed_term)


def _chunks(keys: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(keys)
    while chunk := list(islice(rest, size)):
        yield chunk
