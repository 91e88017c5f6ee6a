"""Segments: the former format of outboxes, before SQLite files. They are read so that no message is lost.

The folder had numbered segments of frames (length, checksum, payload, big-endian) and a file `position` with the
segment and offset of the first unsent frame.
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path
from struct import Struct

_log = logging.getLogger(__name__)
_HEAD = Struct(">II")


def read_segments(folder: Path) -> tuple[list[Path], list[bytes]]:
    """Return the segments in a folder, and their unsent payloads, in order."""
    segments = sorted(path for path in folder.glob("*.log") if path.stem.isdecimal())
    try:
        wanted, offset = map(int, (folder / "position").read_text(encoding="ascii").split())
    except (OSError, ValueError):
        wanted, offset = -1, 0  # sends all messages again, so that none is skipped
    payloads = []
    for path in segments:
        number = int(path.stem)
        if number < wanted:
            continue
        data = path.read_bytes()
        at = offset if number == wanted else 0
        while at + _HEAD.size <= len(data):
            size, crc = _HEAD.unpack_from(data, at)
            payload = data[at + _HEAD.size : at + _HEAD.size + size]
            if len(payload) < size or zlib.crc32(payload) != crc:
                break
            payloads.append(payload)
            at += _HEAD.size + size
        if at < len(data):
            _log.error("outbox %s is damaged at byte %d: the %d bytes from there are lost", path, at, len(data) - at)
    return segments, payloads
