"""Bytes of the HA port: what slaves report, and stretches of the commit log for them (broker.md §17.1).

A slave reports how far its log reaches, 8 bytes each. The master sends stretches: 8 bytes where the stretch begins in
the log, 4 bytes its size, the bytes of the log. A stretch of size 0 is a heartbeat.
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
"""Bytes of a stretch that no master exceeds: RocketMQ's slaves have a buffer of 4 MiB."""


def encode_report(offset: int) -> bytes:
    """Bytes of a report.

    Args:
        offset: where the slave's log ends.
    """
    return _REPORT.pack(offset)


def encode_head(offset: int, size: int) -> bytes:
    """Bytes before a stretch.

    Args:
        offset: where the stretch begins in the log.
        size: bytes of it; 0 for a heartbeat.
    """
    return _HEAD.pack(offset, size)


class ReportReader:
    """Takes a slave's reports out of what its connection brings.

    Attributes:
        begun: bytes of a report that has not come whole.
    """

    def __init__(self) -> None:
        self.begun = b""

    def feed(self, data: bytes | memoryview) -> int | None:
        """The newest report in the bytes that came; None when none is complete."""
        whole = self.begun + bytes(data)
        count = len(whole) // _REPORT.size
        self.begun = whole[count * _REPORT.size :]
        return None if not count else int(_REPORT.unpack_from(whole, (count - 1) * _REPORT.size)[0])


class Stretch(msgspec.Struct, gc=False):
    """Bytes of the log, as far as they have come; a heartbeat has none.

    Attributes:
        offset: where they begin in the log.
        body: the bytes; valid until the next ones are fed.
    """

    offset: int
    body: memoryview


class StretchReader:
    """Takes stretches out of what a master's connection brings; a long one comes in several parts."""

    def __init__(self) -> None:
        self._head = b""
        self._offset = 0
        self._left = 0

    def feed(self, data: bytes | memoryview) -> Iterator[Stretch]:
        """The stretches and parts of stretches in the bytes that came.

        Raises:
            ProtocolError: a head is none.
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
