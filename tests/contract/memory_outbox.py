"""An outbox store in memory, for tests in virtual time. It passes the contract of all stores (`outbox`)."""

from __future__ import annotations

from collections.abc import Sequence

from tianzhou.client.producer.outbox.outbox_store import MAX_FRAMES, OVERHEAD_BYTES, Frame, bytes_of
from tianzhou.errors import ConfigError


class MemoryOutbox:
    """A store whose payloads survive its producer, but not its process.

    Args:
        shared: the data; stores with the same data are one outbox.

    Attributes:
        aside: records that were set aside.
    """

    def __init__(self, shared: dict[str, list[Frame]] | None = None) -> None:
        self._shared = shared if shared is not None else {}
        self._next = 0
        self._is_open = False
        self.aside: list[bytes] = []

    @property
    def _frames(self) -> list[Frame]:
        return self._shared.setdefault("frames", [])

    @property
    def place(self) -> str:
        return "memory"

    @property
    def count(self) -> int:
        return len(self._frames)

    @property
    def bytes(self) -> int:
        return bytes_of([frame.payload for frame in self._frames])

    @property
    def lost(self) -> int:
        return 0

    async def open(self, producer: str) -> None:
        if self._shared.get("holders"):
            raise ConfigError("outbox memory is in use by another producer; give each its own")
        self._shared["holders"] = [Frame(producer.encode(), 0)]
        self._is_open = True
        self._next = self._frames[-1].number + 1 if self._frames else 1

    async def append(self, payloads: Sequence[bytes]) -> None:
        self._frames.extend(Frame(payload, number) for number, payload in enumerate(payloads, self._next))
        self._next += len(payloads)

    async def peek(self, max_bytes: int) -> list[Frame]:
        found: list[Frame] = []
        for frame in self._frames[:MAX_FRAMES]:
            found.append(frame)
            max_bytes -= len(frame.payload) + OVERHEAD_BYTES
            if max_bytes <= 0:
                break
        return found

    async def remove(self, frames: Sequence[Frame]) -> None:
        gone = {frame.number for frame in frames}
        self._shared["frames"] = [frame for frame in self._frames if frame.number not in gone]

    async def set_aside(self, record: bytes) -> None:
        self.aside.append(record)

    async def close(self) -> None:
        if self._is_open:
            self._shared["holders"] = []
        self._is_open = False
