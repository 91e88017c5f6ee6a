"""The interface of outbox stores. This package has two implementations: SQLite files and Redis streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

OVERHEAD_BYTES: Final = 8
"""Additional bytes that each payload counts."""
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
    """An ordered store of byte strings that survives its process.

    An outbox makes one call at a time, and calls `open` first and `close` last. A store may be opened again after that.
    """

    @property
    def place(self) -> str:
        """Name of the store in logs and errors: its folder, or its address without a password."""
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
        """Number of stored payloads that are damaged or missing, as noticed since `open`.

        The store also logs an error with the cause.
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
        """Store payloads behind the others, all or none. After the return they survive the end of the process.

        Raises:
            OutboxFull: the store has no room.
            OutboxUnavailable: the store does not answer, or another producer uses it. The payloads may be stored.
        """
        ...

    async def peek(self, max_bytes: int) -> list[Frame]:
        """Return the first payloads, in order, of about `max_bytes` bytes, and at least one.

        The list is empty only when `count` is 0.

        Raises:
            TianzhouError: the store cannot be read now.
        """
        ...

    async def remove(self, frames: Sequence[Frame]) -> None:
        """Remove the first payloads, as returned by `peek`.

        Raises:
            TianzhouError: the store cannot be written now.
        """
        ...

    async def set_aside(self, record: Payload) -> None:
        """Store a line of JSON about a message that brokers reject for good, for an operator.

        Raises:
            TianzhouError: the store cannot be written now.
        """
        ...

    async def close(self) -> None:
        """Close the store. Its payloads remain for the next `open`."""
        ...


def bytes_of(payloads: Sequence[bytes]) -> int:
    """Return the bytes of payloads in an outbox, with `OVERHEAD_BYTES` for each."""
    return sum(map(len, payloads)) + len(payloads) * OVERHEAD_BYTES
