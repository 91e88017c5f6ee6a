"""The settings file of a running server: all keys, and the keys that were changed while it ran."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tianzhou.damaged_files import blank
from tianzhou.errors import ConfigError
from tianzhou.file_modes import OWN_ONLY, make_folders, replace_file
from tianzhou.settings import format_properties, parse_properties

_CHANGED: Final = "# Changed while the server ran: "


@dataclass(frozen=True, slots=True)
class SavedSettings:
    """Settings in a file.

    Attributes:
        values: values of all keys.
        changed: keys changed while the server ran; None in files of other versions and servers.
    """

    values: dict[str, str] = field(default_factory=dict)
    changed: frozenset[str] | None = None


def decoded(data: bytes) -> str:
    """Decode a configuration file. Comments may have any encoding."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # As Java's Properties do. Then comments in GBK do no harm.
        return data.decode("latin-1")


def read_settings(path: Path) -> SavedSettings:
    """Read a settings file. A missing file has no settings.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return SavedSettings({}, frozenset())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; make it readable") from error
    backup = path.with_name(path.name + ".bak")
    if (problem := blank(data)) and (b"\0" in data or (backup.exists() and backup.stat().st_size)):
        # The server writes every key, so it never writes such a file.
        raise ConfigError(
            f"{path} is damaged: {problem}; copy {backup.name} to {path.name} to use the version before its last "
            "change, or delete both to begin with default settings"
        )
    text = decoded(data)
    lines = [line for line in text.splitlines() if line.startswith(_CHANGED)]
    changed = frozenset(lines[0].removeprefix(_CHANGED).split()) if lines else None
    return SavedSettings(parse_properties(text, source=str(path)), changed)


def write_settings(path: Path, values: Mapping[str, str], changed: Collection[str]) -> None:
    """Replace the settings file atomically. The previous version stays beside it as `.bak`, as in RocketMQ.

    Keys of other components, such as `tls.*`, stay in the file. The call blocks until the file is synced.

    Args:
        path: path of the file.
        values: values of all keys.
        changed: keys changed now.

    Raises:
        ConfigError: the file cannot be written; the old version is unchanged.
    """
    before = SavedSettings()
    with contextlib.suppress(ConfigError):  # an unreadable file is replaced by a readable one
        before = read_settings(path)
    text = format_properties({**before.values, **values})
    marked = sorted(set(changed) | (before.changed or frozenset()))
    try:
        make_folders(path.parent)
        # The file may contain secrets. Only an operator may give other users access.
        mode = path.stat().st_mode & 0o777 if path.exists() else OWN_ONLY
        lines = f"{_CHANGED}{' '.join(marked)}\n{text}".encode()
        replace_file(path, lines, mode=mode, backup=path.with_name(path.name + ".bak"))
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}; nothing was changed. Make its folder writable"
        ) from error
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
