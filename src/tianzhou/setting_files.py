"""Settings file of a running server: every key, and which of them were changed while it ran."""

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
    """Settings of a file.

    Attributes:
        values: all keys.
        changed: keys changed while the server ran; None in files of other versions and servers.
    """

    values: dict[str, str] = field(default_factory=dict)
    changed: frozenset[str] | None = None


def decoded(data: bytes) -> str:
    """Text of a configuration file, whatever the encoding of its comments."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # As Java's Properties do: comments in GBK then hurt nobody.
        return data.decode("latin-1")


def read_settings(path: Path) -> SavedSettings:
    """Read a settings file; no file is no settings.

    Raises:
        ConfigError: it cannot be read.
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
    """Replace the settings file atomically; the previous version stays beside it as `.bak`, as RocketMQ keeps it.

    Keys that are none of the server's, such as `tls.*`, stay in it. Blocks until the file is synced.

    Args:
        path: the file.
        values: every key.
        changed: keys that were changed now.

    Raises:
        ConfigError: it cannot be written; the old version is still there.
    """
    before = SavedSettings()
    with contextlib.suppress(ConfigError):  # a file that cannot be read is replaced by one that can
        before = read_settings(path)
    text = format_properties({**before.values, **values})
    marked = sorted(set(changed) | (before.changed or frozenset()))
    try:
        make_folders(path.parent)
        # It may hold secrets: only the operator lets others read it.
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
