"""Marks in a store's folder: where a slave's log is to be cut, and that an operator allows it (broker.md §17.1).

A store that serves never loses what it has shown, so the end of its log goes when it is opened next. The mark stays
until that is done and on the disk, whatever happens in between.
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
"""File that allows one cut, whatever the settings say."""


class Mark(msgspec.Struct, frozen=True):
    """Where to cut.

    Attributes:
        at: log offset behind the last byte that stays.
        end: where the log ended when it was decided.
        why: what had been found, for the log.
        kept: where the records are that are cut off, in words.
        allowed: whether an operator has allowed this cut.
    """

    at: int
    end: int
    why: str
    kept: str = "the messages behind are no more at this slave"
    allowed: bool = False


def write_mark(root: Path, mark: Mark) -> None:
    """Bring a mark to the disk.

    Raises:
        OSError: the disk refused.
    """
    replace_file(root / NAME, msgspec.json.encode(mark) + b"\n")


def read_mark(root: Path) -> Mark | None:
    """The mark in a folder; None without one, or when it cannot be read: then it is decided once more."""
    try:
        return msgspec.json.decode((root / NAME).read_bytes(), type=Mark)
    except (OSError, msgspec.DecodeError):
        return None


def remove_mark(root: Path) -> None:
    """Take a mark away.

    Raises:
        OSError: the disk refused.
    """
    if (root / NAME).exists():
        (root / NAME).unlink()
        sync_directory(root)


def allow_cut(root: Path) -> None:
    """Allow the slave that has a folder to cut its log once, whatever `durability` and `haSlaveCutMax` say.

    Args:
        root: the store's root.

    Raises:
        OSError: the disk refused.
    """
    make_folders(root)
    replace_file(root / PERMISSION, b"the next cut of this log is allowed, once\n")


def is_cut_allowed(root: Path) -> bool:
    """Whether an operator has allowed the next cut.

    Args:
        root: the store's root.
    """
    return (root / PERMISSION).exists()


def forbid_cut(root: Path) -> None:
    """Take the permission away, if there is one.

    Args:
        root: the store's root.

    Raises:
        OSError: the disk refused.
    """
    if is_cut_allowed(root):
        (root / PERMISSION).unlink()
        sync_directory(root)


def cut_log(log: CommitLog, mark: Mark) -> bool:
    """Cut a log that was just loaded; whether there was anything behind the mark.

    Args:
        log: the log.
        mark: where to cut.

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
