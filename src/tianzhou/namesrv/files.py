"""Text files that are either the old or the new version, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tianzhou.errors import ConfigError


def replace_text(path: Path, text: str) -> None:
    """Write a file anew; the version before stays beside it as `.bak`, as RocketMQ keeps it.

    Raises:
        ConfigError: it cannot be written; names the file and the reason.
    """
    fresh, backup = path.with_name(path.name + ".tmp"), path.with_name(path.name + ".bak")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            path.replace(backup)
        fresh.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; make its directory writable") from error


def candidates(path: Path) -> list[tuple[Path, str]]:
    """The file and its `.bak` with their texts, those that exist, in the order to be tried.

    Raises:
        ConfigError: one exists and cannot be read.
    """
    found = []
    for file in (path, path.with_name(path.name + ".bak")):
        try:
            found.append((file, file.read_text(encoding="utf-8", errors="surrogateescape")))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}; make it readable") from error
    return found
