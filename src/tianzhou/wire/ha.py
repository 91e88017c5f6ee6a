"""Codec of the HA port: reports of slaves, and stretches of the commit log for them (broker.md §17.1).

A slave reports the end of its log, in 8 bytes. The master sends stretches: the log offset where the stretch begins in
8 bytes, its size in 4 bytes, and the bytes of the log. A stretch of size 0 is a heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

import msgspec

from tianzhou.errors import ProtocolError

_REPORT: Final = Struct(">q")
_HEAD: Final = Struct(">qi")
HEAD_SIZE: Final = _HEAD.size
LARGEST_STRETCH: Final = 64 << 20
"""Maximum bytes of a stretch; no master exceeds it, because RocketMQ's slaves have a buffer of 4 MiB."""


def encode_report(offset: int) -> bytes:
    """Encode a report.

    Args:
        offset: end of the slave's log.
    """
    return _REPORT.pack(offset)


def encode_head(offset: int, size: int) -> bytes:
    """Encode the head of a stretch.

    Args:
        offset: log offset where the stretch begins.
        size: bytes of the stretch; 0 for a heartbeat.
    """
    return _HEAD.pack(offset, size)


class ReportReader:
    """Decoder of a slave's reports from the bytes of its connection.

    Attributes:
        begun: bytes of an incomplete report.
    """

    def __init__(self) -> None:
        self.begun = b""

    def feed(self, data: bytes | memoryview) -> int | None:
        """Return the newest report in the received bytes; None when no report is complete."""
        whole = self.begun + bytes(data)
        count = len(whole) // _REPORT.size
        self.begun = whole[count * _REPORT.size :]
        return None if not count else int(_REPORT.unpack_from(whole, (count - 1) * _REPORT.size)[0])


class Stretch(msgspec.Struct, gc=False):
    """Received bytes of a stretch; a heartbeat has none.

    Attributes:
        offset: log offset where the bytes begin.
        body: the bytes; valid until the next call of `feed`.
    """

    offset: int
    body: memoryview


class StretchReader:
    """Decoder of stretches from the bytes of a master's connection; a long stretch is yielded in several parts."""

    def __init__(self) -> None:
        self._head = b""
        self._offset = 0
        self._left = 0

    def feed(self, data: bytes | memoryview) -> Iterator[Stretch]:
        """Yield the stretches and parts of stretches in the received bytes.

        Raises:
            ProtocolError: the bytes are no head of a stretch.
        """
        rest = memoryview(data)
        while rest:
            if self._left:
                body, rest = rest[: self._left], rest[self._left :]
                yield Stretch(self._offset, body)
                self._offset += len(body)
                self._left -= len(body)
                continue
            wanted = HEAD_SIZE - len(self._head)
            self._head += bytes(rest[:wanted])
            rest = rest[wanted:]
            if len(self._head) < HEAD_SIZE:
                return
            self._offset, self._left = _HEAD.unpack(self._head)
            self._head = b""
            if self._offset < 0 or not 0 <= self._left <= LARGEST_STRETCH:
                raise ProtocolError(
                    f"a stretch of the log at {self._offset} with {self._left} bytes: this is no HA port of a master"
                )
            if not self._left:
                yield Stretch(self._offset, rest[:0])
