"""Small DLedger stores whose group has one member, which commits the indexes that a test gives."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from small_store import small_settings

from tianzhou.store import MessageStore
from tianzhou.store.entries.entry_log import EntryLog

GROUP_ID = "a" * 32
GROUP = {
    "enable_d_leger_commit_log": True, "d_leger_group": "g", "d_leger_peers": "n0-h:1", "d_leger_self_id": "n0",
}  # fmt: skip


def group_store(folder: Path, clock: Any = None, **changes: Any) -> MessageStore:
    """Return a store that is not open yet."""
    return MessageStore(small_settings(folder, **{**GROUP, **changes}), clock)


def copied(folder: Path, to: Path) -> Path:
    """Return a copy of a store, with sparse files; the files of an open store are those after a crash of its
    process.
    """
    subprocess.run(["cp", "-a", "--sparse=always", folder, to], check=True)
    return to


def entries_of(store: MessageStore) -> EntryLog:
    """Return the store's entry log."""
    assert store.entries is not None
    return store.entries


def commit(store: MessageStore, index: int | None = None) -> None:
    """Commit up to an entry; None for the last one."""
    entries = entries_of(store)
    entries.committed(entries.end_index if index is None else index)


def lead(store: MessageStore, term: int) -> None:
    """Let the store lead, and accept puts."""
    entries = entries_of(store)
    entries.lead(term)
    entries.append_opening(term, store.clock.now_ms(), GROUP_ID, f"{term:032x}")
    commit(store)
    assert entries.serve()
    store.flags.opened()


def all_entries(store: MessageStore) -> list[bytes]:
    """Return every entry in the log."""
    entries = entries_of(store)
    return [entries.entry(index) for index in range(max(entries.begin_index, 0), entries.end_index + 1)]
