"""Marks in a store's folder: the offset at which to cut a slave's log, and an operator's permission (broker.md §17.1).

A running store must not lose messages that it has served, so its log is cut at the next open. The mark stays until the
cut is done and synced.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from tianzhou.file_modes import make_folders, replace_file
from tianzhou.store.files.directories import sync_directory
from tianzhou.store.log.commitlog import CommitLog

logger = logging.getLogger(__name__)

NAME: Final = "cut.json"
PERMISSION: Final = "cut-allowed"
"""Name of the file that permits one cut, whatever the settings are."""


class Mark(msgspec.Struct, frozen=True):
    """The place of a cut.

    Attributes:
        at: log offset after the last byte that stays.
        end: end of the log at the decision.
        why: reason of the cut, for the log.
        kept: text with the place of the copies of the cut records.
        allowed: whether an operator has permitted this cut.
    """

    at: int
    end: int
    why: str
    kept: str = "the messages behind are no more at this slave"
    allowed: bool = False


def write_mark(root: Path, mark: Mark) -> None:
    """Write and sync a mark.

    Raises:
        OSError: the disk refused the write.
    """
    replace_file(root / NAME, msgspec.json.encode(mark) + b"\n")


def read_mark(root: Path) -> Mark | None:
    """Return the mark in a folder; None without a readable one, so that the cut is decided once more."""
    try:
        return msgspec.json.decode((root / NAME).read_bytes(), type=Mark)
    except (OSError, msgspec.DecodeError):
        return None


def remove_mark(root: Path) -> None:
    """Remove a mark.

    Raises:
        OSError: the disk refused.
    """
    if (root / NAME).exists():
        (root / NAME).unlink()
        sync_directory(root)


def allow_cut(root: Path) -> None:
    """Permit the slave with this folder to cut its log once, whatever `durability` and `haSlaveCutMax` are.

    Args:
        root: the store's root.

    Raises:
        OSError: the disk refused the write.
    """
    make_folders(root)
    replace_file(root / PERMISSION, b"the next cut of this log is allowed, once\n")


def is_cut_allowed(root: Path) -> bool:
    """Whether an operator has permitted the next cut.

    Args:
        root: the store's root.
    """
    return (root / PERMISSION).exists()


def forbid_cut(root: Path) -> None:
    """Revoke the permission, if there is one.

    Args:
        root: the store's root.

    Raises:
        OSError: the disk refused.
    """
    if is_cut_allowed(root):
        (root / PERMISSION).unlink()
        sync_directory(root)


def cut_log(log: CommitLog, mark: Mark) -> bool:
    """Cut a log that was just loaded; return whether the log had bytes after the mark.

    Args:
        log: the log.
        mark: the place of the cut.

    Raises:
        OSError: the disk refused.
    """
    segments = log.files.segments
    if not segments or not segments[0].start <= mark.at < segments[-1].end:
        return False
    logger.error(
        "the commit log is cut at %d, it ended at %d: %s; %s",
        mark.at,
        mark.end,
        mark.why,
        mark.kept,
    )
    log.files.truncate(mark.at)
    return True
