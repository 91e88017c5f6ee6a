"""The audit log: who changed what through the console, one JSON object a line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from tianzhou.file_modes import OWN_ONLY

FILE_NAME: Final = "console-audit.log"
MOST_BYTES: Final = 16 << 20
"""Size above which the file becomes `.1`, in the place of the one before."""
LONGEST: Final = 500


class AuditLog:
    """Appends to the log.

    Args:
        path: the file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, time: str, who: str, address: str, action: str, subject: str, outcome: str) -> None:
        """Write one line; call it in a thread.

        Args:
            time: ISO 8601.
            who: the account.
            address: where they are.
            action: what they did, such as `delete topic`.
            subject: to what.
            outcome: `begun`, `done`, or why it failed.

        Raises:
            OSError: the file cannot be written; the action must not begin then.
        """
        entry = {"time": time, "who": who, "from": address, "action": action, "subject": subject, "outcome": outcome}
        line = json.dumps({key: value[:LONGEST] for key, value in entry.items()}, ensure_ascii=True) + "\n"
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, OWN_ONLY)
        try:
            os.write(fd, line.encode())
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        if size > MOST_BYTES:
            self.path.replace(self.path.with_name(self.path.name + ".1"))

    def tail(self, lines: int) -> list[dict[str, str]]:
        """The last entries, the newest first; call it in a thread."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - lines * 1024))
                found = file.read().decode(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            return []
        entries = []
        for line in reversed(found):
            try:
                entries.append(json.loads(line))
            except ValueError:
                continue
        return entries
