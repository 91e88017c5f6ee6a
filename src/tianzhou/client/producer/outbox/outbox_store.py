"""The contract of outbox stores. SQLite files and Redis streams are the kinds of this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

OVERHEAD_BYTES: Final = 8
"""Bytes that a payload counts beside its own length."""
MAX_FRAMES: Final = 256
"""Maximum number of payloads that `OutboxStore.peek` returns."""


Payload: TypeAlias = bytes
"""A stored byte string."""


class Frame(NamedTuple):
    """A stored payload and its number. Later payloads have higher numbers."""

    payload: bytes
    number: int


@runtime_checkable
class OutboxStore(Protocol):
    """An ordered store of byte strings that outlives its process.

    An outbox makes one call at a time, and calls `open` first and `close` last. A store may be opened again after that.
    """

    @property
    def place(self) -> str:
        """Name of the store in messages: its folder, or its address without a password."""
        ...

    @property
    def count(self) -> int:
        """Number of stored payloads."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of the stored payloads, with `OVERHEAD_BYTES` for each."""
        ...

    @property
    def lost(self) -> int:
        """Number of stored payloads that have been damaged or are missing, as noticed since `open`.

        The store also logs an error with the cause when it notices them.
        """
        ...

    async def open(self, producer: str) -> None:
        """Open the store for one producer, and count its payloads.

        Args:
            producer: the producer group.

        Raises:
            ConfigError: the store cannot be used, or another producer uses it.
        """
        ...

    async def append(self, payloads: Sequence[Payload]) -> None:
        """Store payloads behind the others, all of them or none. They survive the end of the process on return.

        Raises:
            OutboxFull: the store has no room.
            OutboxUnavailable: the store does not answer, or another producer has taken it. The payloads may be stored.
        """
        ...

    async def peek(self, max_bytes: int) -> list[Frame]:
        """Return the first payloads, in order: as many as have `max_bytes` bytes, and one at least.

        The list is empty only when `count` is 0.

        Raises:
            TianzhouError: the store cannot be read now.
        """
        ...

    async def remove(self, frames: Sequence[Frame]) -> None:
        """Remove the first payloads, as `peek` has returned them.

        Raises:
            TianzhouError: the store cannot be written now.
        """
        ...

    async def set_aside(self, record: Payload) -> None:
        """Store a line of JSON about a message that brokers refuse for good, where an operator finds it.

        Raises:
            TianzhouError: the store cannot be written now.
        """
        ...

    async def close(self) -> None:
        """Close the store. Its payloads remain for the next `open`."""
        ...


def bytes_of(payloads: Sequence[bytes]) -> int:
    """Return the bytes that payloads count in an outbox."""
    return sum(map(len, payloads)) + len(payloads) * OVERHEAD_BYTES
