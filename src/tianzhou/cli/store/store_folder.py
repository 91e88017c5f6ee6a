"""The stores of a folder, and options of commands that read them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.data_folder import stores_in, which_of
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.store.offline.scan import StoreScan

StoreArgument = Annotated[
    Path, typer.Argument(help="A store folder (storePathRootDir), or the --data folder of `tianzhou serve`.")
]
SlotsOption = Annotated[
    int | None,
    typer.Option(help="maxHashSlotNum of the broker that wrote the index; it is found out otherwise.", min=1),
]
SinceOption = Annotated[
    str | None, typer.Option(help="Not stored before this time (2026-01-31T08:00:00, or ms since 1970).")
]
UntilOption = Annotated[str | None, typer.Option(help="Stored before this time.")]
PROGRESS_FROM = 64 * 1024 * 1024


def root_of(folder: Path) -> Path:
    """Return the store of a folder: the folder itself, or the store inside a folder of `tianzhou serve --data`.

    Raises:
        ConfigError: the folder contains the stores of several brokers.
    """
    stores = stores_in(folder)
    if len(stores) > 1:
        raise ConfigError(which_of(folder, stores))
    return stores[0]


def open_store(folder: Path) -> StoreScan:
    """Open a store as files.

    Raises:
        ConfigError: the folder contains no store.
    """
    from tianzhou.store.offline.scan import StoreScan

    _check_folder(folder)
    root = root_of(folder)
    _check_store(folder, root)
    return StoreScan(root)


def open_stores(folder: Path) -> list[StoreScan]:
    """Open all stores of a folder as files: one, or those of the brokers of a --data folder.

    Raises:
        ConfigError: the folder contains no store.
    """
    from tianzhou.store.offline.scan import StoreScan

    _check_folder(folder)
    roots = stores_in(folder)
    for root in roots:
        _check_store(folder if len(roots) == 1 else root, root)
    return [StoreScan(root) for root in roots]


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; name a storePathRootDir or a --data folder")


def _check_store(named: Path, root: Path) -> None:
    if not (root / "commitlog").is_dir() and not (root / "checkpoint").exists():
        raise ConfigError(
            f"{named}: is no store, it has neither commitlog/ nor checkpoint; "
            "name a storePathRootDir or a --data folder"
        )


def time_of(option: str, text: str | None) -> int | None:
    """Parse a time. Return ms since 1970.

    Raises:
        ConfigError: the text is not a time.
    """
    if text is None or text.isdigit():
        return None if text is None else int(text)
    try:
        return int(dt.datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ConfigError(f"{option} {text}: expected a time as 2026-01-31T08:00:00, or ms since 1970") from None
