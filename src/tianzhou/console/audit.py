"""The audit log of changes through the console, one JSON object per line."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tianzhou.file_modes import OWN_ONLY

FILE_NAME: Final = "console-audit.log"
MOST_BYTES: Final = 16 << 20
"""Size in bytes above which the file is renamed to `.1`, which replaces the previous one."""
LONGEST: Final = 500
"""Maximum number of characters of each text of an entry."""
TAIL_BYTES: Final = 8 << 20
"""Maximum number of bytes that one call reads from the end of a file."""
_BLOCK: Final = 256 << 10


class AuditLog:
    """Writer and reader of the audit log.

    Args:
        path: path of the file; its folder is created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def write(
        self,
        time: str,
        who: str,
        address: str,
        action: str,
        subject: str,
        outcome: str,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Write one entry. Call it in a thread.

        Args:
            time: time of the entry in ISO 8601.
            who: name of the account.
            address: IP address of the visitor.
            action: name of the action, such as `delete topic`.
            subject: the object of the action.
            outcome: `begun`, `done`, or why the action failed.
            details: further JSON values of the entry, not shortened. They cannot replace the values above.

        Raises:
            OSError: the file cannot be written; then the action must not begin.
        """
        entry = {"time": time, "who": who, "from": address, "action": action, "subject": subject, "outcome": outcome}
        cut = {key: value[:LONGEST] for key, value in entry.items()}
        line = json.dumps({**(details or {}), **cut}, ensure_ascii=True) + "\n"
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = line.encode()
        with self._lock:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, OWN_ONLY)
            try:
                begin = os.fstat(fd).st_size
                if (written := os.write(fd, data)) < len(data):
                    # The remains of a torn line would make the next line unreadable as well.
                    os.ftruncate(fd, begin)
                    raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes of the line were written")
            finally:
                os.close(fd)
            if begin + len(data) > MOST_BYTES:
                self.path.replace(self.path.with_name(self.path.name + ".1"))

    def tail(self, lines: int) -> list[dict[str, Any]]:
        """Return the last entries, the newest first. Call it in a thread.

        Args:
            lines: maximum number of entries. The previous file is read when the present one has fewer.
        """
        found = _last_lines(self.path, lines)
        if len(found) < lines:
            found += _last_lines(self.path.with_name(self.path.name + ".1"), lines - len(found))
        entries = []
        for line in found:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                entries.append(entry)
        return entries


def _last_lines(path: Path, lines: int) -> list[str]:
    """Return the last lines of a file, the newest first; empty when the file does not exist."""
    block = b""
    try:
        with path.open("rb") as file:
            begin = os.fstat(file.fileno()).st_size
            # One newline more than lines: the first line of the block may be cut.
            while begin > 0 and len(block) < TAIL_BYTES and block.count(b"\n") <= lines:
                step = min(_BLOCK, begin)
                begin -= step
                file.seek(begin)
                block = file.read(step) + block
    except FileNotFoundError:
        return []
    return block.decode(errors="replace").splitlines()[: -lines - 1 : -1]
