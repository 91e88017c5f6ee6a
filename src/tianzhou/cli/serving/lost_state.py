"""`--accept-lost-state`: a start without state files that cannot be read (docs/adr/0028)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tianzhou.damaged_files import ACCEPT_OPTION, accept_lost_state
from tianzhou.data_folder import stores_in
from tianzhou.errors import ConfigError


def accept_in(folders: Iterable[Path]) -> None:
    """Allow the next start to continue without the unreadable state files of these folders.

    Args:
        folders: folders of state files; missing folders are left out.

    Raises:
        ConfigError: a folder cannot be written.
    """
    for folder in folders:
        if not folder.is_dir():
            continue
        try:
            accept_lost_state(folder)
        except OSError as error:
            raise ConfigError(f"{ACCEPT_OPTION}: cannot write to {folder}: {error.strerror}") from error


def state_folders(data: Path) -> list[Path]:
    """Return the folders of state files in a data folder of `tianzhou serve`.

    Args:
        data: the data folder.
    """
    return [data / "namesrv", *(store / "config" for store in stores_in(data))]
