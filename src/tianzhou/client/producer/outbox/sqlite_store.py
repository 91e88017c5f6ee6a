"""The default store of an outbox: an SQLite file in a folder of the producer's machine (docs/adr/0011)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tianzhou.client.producer.outbox.outbox_file import OutboxFile
from tianzhou.client.producer.outbox.outbox_store import Frame, Payload
from tianzhou.errors import ClientError


class SqliteOutbox:
    """An outbox in a folder. Each producer needs its own folder, and one process uses it at a time.

    Messages survive `kill -9` and a power failure. All calls run in threads, because the disk may be slow.

    Args:
        folder: folder of the file; it is created when it is missing.
    """

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder)
        self._opened: OutboxFile | None = None

    @property
    def place(self) -> str:
        """See `OutboxStore.place`."""
        return str(self._folder)

    @property
    def count(self) -> int:
        """See `OutboxStore.count`."""
        return self._opened.count if self._opened is not None else 0

    @property
    def bytes(self) -> int:
        """See `OutboxStore.bytes`."""
        return self._opened.bytes if self._opened is not None else 0

    @property
    def lost(self) -> int:
        """See `OutboxStore.lost`."""
        return self._opened.lost if self._opened is not None else 0

    async def open(self, producer: str) -> None:
        """See `OutboxStore.open`; the file does not contain the name of the producer group."""
        self._opened = await asyncio.to_thread(OutboxFile, self._folder)

    async def append(self, payloads: Sequence[Payload]) -> None:
        """See `OutboxStore.append`; the disk has the payloads on return."""
        await asyncio.to_thread(self._file.write, payloads)

    async def peek(self, max_bytes: int) -> list[Frame]:
        """See `OutboxStore.peek`."""
        return await asyncio.to_thread(self._file.peek, max_bytes)

    async def remove(self, frames: Sequence[Frame]) -> None:
        """See `OutboxStore.remove`."""
        await asyncio.to_thread(self._file.advance, frames)

    async def set_aside(self, record: Payload) -> None:
        """See `OutboxStore.set_aside`; the file `refused.jsonl` of the folder has the records."""
        await asyncio.to_thread(self._file.set_aside, record)

    async def close(self) -> None:
        """See `OutboxStore.close`."""
        if self._opened is not None:
            file, self._opened = self._opened, None
            await asyncio.to_thread(file.close)

    @property
    def _file(self) -> OutboxFile:
        if self._opened is None:
            raise ClientError(f"outbox {self._folder} is not open; start the producer first")
        return self._opened
