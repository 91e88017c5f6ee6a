"""Access of tests to the inside of a message store, and to the steps of the store's background tasks.

Tests use the public methods of `MessageStore` where these suffice. A `StoreProbe` reads the private attributes, so that
tests do not name them. A change of the store's inside then changes this file, not the tests
(`tests/form/suite/test_private_names.py` counts the private names in tests).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tianzhou.store import MessageStore
from tianzhou.store.dispatch import catchup
from tianzhou.store.dispatch.dispatch import Dispatcher
from tianzhou.store.files import folder
from tianzhou.store.files.segments import Segment
from tianzhou.store.index.index import Index
from tianzhou.store.log.commitlog import CommitLog


class StoreProbe:
    """The inside of one store.

    Args:
        store: the store; it may be open or closed.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    # the log, the queues, the index

    @property
    def log(self) -> CommitLog:
        """The commit log."""
        return self._store._log

    @property
    def index(self) -> Index | None:
        """The key index; None where the store has none."""
        return self._store._index

    def queue(self, topic: str, number: int) -> Any:
        """Return an open queue of a topic; None where the store has no such queue."""
        return self._store._queues.find(topic, number)

    def queues(self, topic: str | None = None) -> list[Any]:
        """Return the open queues of a topic, or of all topics, in the order of topics and numbers."""
        table = self._store._queues.table
        topics = sorted(table) if topic is None else [topic]
        return [queue for name in topics for _, queue in sorted(table[name].items())]

    def contents(self, topic: str | None = None) -> tuple[list[bytes], list[bytes], list[tuple[int, ...]], list[bytes]]:
        """Return the data that decides reads: bytes of the log, bytes and ends of queues, bytes of the index.

        Args:
            topic: the topic of the queues; all topics by default.
        """
        queues = self.queues(topic)
        return (
            [bytes(segment.view) for segment in self.log.files],
            [bytes(segment.view) for queue in queues for segment in queue.files],
            [(queue.next_offset, queue.max_offset, queue.max_physical, queue.dirty) for queue in queues],
            self.index_bytes(),
        )

    def index_bytes(self) -> list[bytes]:
        """Return the bytes of each index file."""
        return [bytes(file._map) for file in self.index.files] if self.index else []

    def begin_index_files_by(self, patch: pytest.MonkeyPatch, begin: Callable[[], Any]) -> Callable[[], Any]:
        """Replace the function that begins new files of the index; return the former function."""
        index: Any = self._store._index
        former: Callable[[], Any] = index._begin
        patch.setattr(type(index), "_begin", lambda _: begin())
        return former

    # from the log to the queues

    @property
    def dispatcher(self) -> Dispatcher:
        """The part that appends queue units and index entries for the records of the log."""
        return self._store._dispatcher

    def dispatch_all(self) -> None:
        """Dispatch all waiting records now."""
        self.dispatcher.drain()

    # to the disk

    def flush_log(self) -> None:
        """Write the whole log to the disk now."""
        self._store._flusher.flush_now()

    def request_flush(self) -> None:
        """Request that the flush task writes the log to the disk."""
        self._store._flusher.request()

    def replace_flush(self, flush: Callable[..., Any]) -> None:
        """Replace the function that the flush task calls."""
        self._store._flusher.flush = flush  # type: ignore[method-assign]

    def fail_flush(self, error: OSError) -> None:
        """Mark the flush of the log as failed with this error."""
        self._store._flusher.fail(error)

    @property
    def flusher(self) -> Any:
        """The part that writes the log to the disk."""
        return self._store._flusher

    @property
    def flush_failed(self) -> bool:
        """Whether a flush of the log has failed permanently."""
        return bool(self._store._flusher.failed)

    async def flush_queues(self, *, thorough: bool) -> None:
        """Write queues and index to the disk.

        Args:
            thorough: whether to write queues with few new units too.
        """
        await self._store._upkeep._flush_queues(thorough=thorough)

    def fail_upkeep(self) -> None:
        """Mark the flush of queues as failed."""
        self._store._upkeep.failed = True

    @property
    def note_keeper(self) -> Any:
        """The part that decides when to rewrite the note about proved files."""
        return self._store._upkeep._notes

    def noted_to(self, log_end: int) -> None:
        """Mark the note as written for this end of the log; -1 makes the next note due at once."""
        self.note_keeper._noted = log_end

    # catching up, cleaning, dying

    @property
    def catch_up(self) -> Any:
        """The run that adds missing records to the index; None when the index is complete."""
        return self._store._upkeep.catch_up

    def keep_from_catching_up(self) -> None:
        """Prevent the run that completes the index, as if the process died before it."""
        self._store._upkeep._begin_catch_up = lambda index, position: None  # type: ignore[method-assign]

    @property
    def cleaner(self) -> Any:
        """The part that deletes expired files and watches the free space."""
        return self._store._cleaner

    async def clean(self) -> None:
        """Delete expired files now."""
        await self._store._cleaner.clean()

    async def check_space(self) -> None:
        """Compare the free space of the disk with its limits now."""
        await self._store._cleaner.check_space()

    def clean_queues_after(self, wait: Callable[[], Awaitable[object]]) -> None:
        """Make the cleaner wait between deleting segments of the log and units of queues.

        Args:
            wait: function that returns when the cleaner may delete units.
        """
        clean_queues = self._store._cleaner._clean_queues

        async def waiting(smallest: int) -> None:
            await wait()
            await clean_queues(smallest)

        self._store._cleaner._clean_queues = waiting  # type: ignore[method-assign]

    def clean_by(self, patch: pytest.MonkeyPatch, in_thread: Callable[..., Any]) -> None:
        """Replace the function that runs the cleaner's steps in a thread."""
        patch.setattr(type(self._store._cleaner), "_in_thread", in_thread)

    @property
    def held_segments(self) -> int:
        """Number of deleted segments that readers still hold."""
        return len(self._store._cleaner._hung)

    @property
    def cold_reads(self) -> Any:
        """The part that finds the bytes of a read that are no longer in memory."""
        return self._store._cold

    def bound_memory(self, size: int) -> None:
        """Limit the bytes that a pull may read from memory."""
        self._store._limits.memory_bound = size

    def unlock(self) -> None:
        """Release the lock of the folder without closing the store, like the death of the process."""
        self._store._folder.unlock()

    def release(self) -> None:
        """Release folder and files without a write, like the death of the process."""
        self._store._release()


def catch_up_slowly(patch: pytest.MonkeyPatch, records: int = 1, slice_s: float | None = 0.0) -> None:
    """Make runs that complete an index read few records in each step.

    Args:
        patch: restores the usual pace.
        records: number of records of a step.
        slice_s: seconds of one turn of the loop after which the run starts no further step; None for the usual time.
    """
    patch.setattr(catchup, "_STEP_RECORDS", records)
    if slice_s is not None:
        patch.setattr(catchup, "_SLICE_SECONDS", slice_s)


def retry_catch_up_after(patch: pytest.MonkeyPatch, pause_s: float) -> None:
    """Set the seconds after which runs that complete an index retry a refused step."""
    patch.setattr(catchup, "_RETRY_SECONDS", pause_s)


def is_mapped(segment: Segment) -> bool:
    """Whether a file of a store is mapped into memory."""
    return segment._map is not None


def use_boot_id(patch: pytest.MonkeyPatch, path: Path) -> None:
    """Make stores read the machine's boot id from a file of the test."""
    patch.setattr(folder, "_BOOT_ID", path)
