"""Records that were damaged on the disk: their detection, report and repair (store.md §3.5).

Starts and reads detect them. No consumer gets them; they are logged once and noted in the store's folder. Where another
node has the same log, its bytes replace them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tianzhou.errors import TianzhouError
from tianzhou.records.codec import crc_property_fits
from tianzhou.records.layout import BLANK_SIZE
from tianzhou.records.walk import Finding, LogEntry, read_item
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.startup.opening import merged
from tianzhou.store.startup.proved_note import write_damage
from tianzhou.supervision import start_owned

logger = logging.getLogger(__name__)

Repairs = Callable[[int, int], Awaitable[bytes | None]]
"""Returns bytes of another node at a log offset, of a size, all in one segment; None when no node has them."""

RETRY_S: Final = 30.0
"""Maximum seconds before other nodes are asked again for missing bytes; the first retries are faster."""
_MOST_TRIES: Final = 20
READER_WAITS_S: Final = 3.0
"""Seconds that a read waits for a repaired record before it skips the broken one."""
MOST_ASKED: Final = 64 << 20
"""Maximum bytes of a damaged stretch to request; a longer one needs a copy of the log."""


class LogDamage:
    """The known damage of the log.

    Args:
        log: the commit log; its `damaged` is updated.
        root: root folder of the store.
        aside: runs a function on another thread.

    Attributes:
        on_put_right: called with repaired records; None without a callback.
        repairs: requests bytes from other nodes; None without any.
        named: number of stretches found broken while the store served.
        put_right: number of stretches replaced with another node's bytes.
    """

    def __init__(
        self,
        log: CommitLog,
        root: Path,
        aside: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self._log = log
        self._root = root
        self._aside = aside
        self.on_put_right: Callable[[list[LogEntry]], None] | None = None
        self._news: asyncio.Event | None = None
        self._unwritten = False
        self._at_work: dict[tuple[int, int], asyncio.Task[bool]] = {}
        self._repairs: Repairs | None = None
        self._tries = 0
        self.named = self.put_right = 0

    @property
    def repairs(self) -> Repairs | None:
        """The source of repairs, see the class."""
        return self._repairs

    @repairs.setter
    def repairs(self, repairs: Repairs | None) -> None:
        self._repairs = repairs
        self._log.awaited = [] if repairs is None else list(self._log.damaged)
        self._tries = 0
        self._wake()

    @property
    def stretches(self) -> int:
        """Number of broken stretches of the log now."""
        return len(self._log.damaged)

    def add(self, start: int, stop: int, why: str) -> None:
        """Mark a stretch of the log as broken.

        Args:
            start: its first log offset.
            stop: the log offset after it.
            why: the reason, and the record's queue.
        """
        if self._is_known(start, stop):
            return
        self._log.damaged = merged([*self._log.damaged, (start, stop)])
        if self._repairs is not None:
            self._log.awaited = merged([*self._log.awaited, (start, stop)])
        self._tries = 0
        self.named += 1
        logger.error(
            "%s: bytes %d to %d of the commit log hold no intact record: %s; they are passed over",
            self._root,
            start,
            stop,
            why,
        )
        self._unwritten = True
        if self._news is None:
            self.write()
        self._wake()

    def _is_known(self, start: int, stop: int) -> bool:
        return any(begin <= start and stop <= end for begin, end in self._log.damaged)

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()

    def write(self) -> None:
        """Write the note of new damage, because a start after a clean stop does not read the log."""
        if not self._unwritten:
            return
        self._unwritten = False
        try:
            write_damage(self._root, self._log.damaged)
        except OSError as error:
            logger.warning("%s: no note of the damage can be written: %s", self._root, error)

    async def run(self) -> None:
        """Write notes, and repair broken records, until cancelled."""
        self._news = news = asyncio.Event()
        news.set()
        try:
            while True:
                with suppress(TimeoutError):
                    asks = self._log.damaged and self._repairs is not None
                    await asyncio.wait_for(news.wait(), min(RETRY_S, float(2**self._tries)) if asks else None)
                news.clear()
                if self._unwritten:
                    await self._aside(self.write)
                self._tries = min(self._tries + 1, _MOST_TRIES)
                for start, _ in tuple(self._log.damaged):
                    await self.repair(start)
        finally:
            self._news = None

    async def repair(self, offset: int) -> bool:
        """Repair the broken stretch around a log offset, if another node has it; return whether it is whole now.

        Raises:
            StoreError: the store was closed meanwhile.
        """
        stretch = next((one for one in self._log.damaged if one[0] <= offset < one[1]), None)
        if stretch is None or self._repairs is None:
            return stretch is None
        task = self._at_work.get(stretch)
        if task is None:
            task = start_owned(self._put_right(*stretch), "store", name="store-damage")
            self._at_work[stretch] = task
            task.add_done_callback(lambda _: self._at_work.pop(stretch, None))
        # A reader that disconnects must not cancel the repair for the others.
        return await asyncio.shield(task)

    async def repair_soon(self, offset: int) -> bool:
        """Repair as `repair`, for a read, with a short time limit."""
        try:
            return await asyncio.wait_for(self.repair(offset), READER_WAITS_S)
        except TimeoutError:
            return False

    async def _put_right(self, start: int, stop: int) -> bool:
        try:
            return await self._ask_for(start, stop)
        finally:
            # Reads wait for the first answer only, and then skip the stretch.
            self._log.awaited = _without(self._log.awaited, start, stop)

    async def _ask_for(self, start: int, stop: int) -> bool:
        repairs = self._repairs
        if repairs is None or stop - start > MOST_ASKED:
            return False
        try:
            data = await self._fetch(repairs, start, stop)
        except (TianzhouError, OSError) as error:
            logger.warning("%s: nobody gives bytes %d to %d of the commit log: %s", self._root, start, stop, error)
            return False
        return data is not None and await self._take(start, stop, data)

    async def take(self, start: int, data: bytes) -> bool:
        """Replace broken bytes with those of another node; return whether they were whole records.

        Args:
            start: log offset of the first byte.
            data: the bytes.

        Raises:
            StoreError: the store was closed meanwhile.
        """
        self.add(start, start + len(data), "another node has whole records there")
        return await self._take(start, start + len(data), data)

    async def _take(self, start: int, stop: int, data: bytes) -> bool:
        if not self._is_known(start, stop):
            return False
        entries = self._replace(start, stop, data)
        if entries is None:
            logger.warning(
                "%s: what another node has at %d to %d of the commit log is not intact either", self._root, start, stop
            )
            return False
        self._log.damaged = _without(self._log.damaged, start, stop)
        self._log.awaited = _without(self._log.awaited, start, stop)
        self.put_right += 1
        logger.warning(
            "%s: bytes %d to %d of the commit log were put right with those of another node, %d messages",
            self._root,
            start,
            stop,
            len(entries),
        )
        if self.on_put_right is not None:
            self.on_put_right(entries)
        await self._aside(lambda: self._sync(start, stop))
        self._unwritten = True
        self._wake()
        return True

    async def _fetch(self, repairs: Repairs, start: int, stop: int) -> bytes | None:
        """Return the bytes of a stretch from other nodes, segment by segment; None when no node has a part."""
        found = []
        for segment in tuple(self._log.files.segments):
            begin, end = max(start, segment.start), min(stop, segment.end)
            if begin < end:
                part = await repairs(begin, end - begin)
                if part is None:
                    return None
                found.append(part)
        return b"".join(found)

    def _replace(self, start: int, stop: int, data: bytes) -> list[LogEntry] | None:
        """Replace broken bytes; return the records in the new ones, None when they are not whole."""
        if len(data) != stop - start:
            return None
        found: list[LogEntry] = []
        parts = []
        for segment in self._log.files.segments:
            begin, end = max(start, segment.start), min(stop, segment.end)
            if begin >= end:
                continue
            part = data[begin - start : end - start]
            entries = whole_records(begin, part, ends_segment=end == segment.end)
            if entries is None:
                return None
            found += entries
            parts.append((segment, begin - segment.start, part))
        for segment, at, part in parts:
            segment.map[at : at + len(part)] = part
        return found

    def _sync(self, start: int, stop: int) -> None:
        for segment in self._log.files.segments:
            begin, end = max(start, segment.start), min(stop, segment.end)
            if begin < end:
                segment.sync(begin - segment.start, end - segment.start)

    def close(self) -> None:
        """Cancel the repairs, and write the note."""
        for task in self._at_work.values():
            task.cancel()
        self.write()


def _without(stretches: list[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
    return [
        part
        for begin, end in stretches
        for part in ((begin, min(end, start)), (max(begin, stop), end))
        if part[0] < part[1]
    ]


def whole_records(start: int, data: bytes, *, ends_segment: bool) -> list[LogEntry] | None:
    """Return the records that bytes of a log consist of, None when there are other bytes among them.

    Args:
        start: log offset of the first byte.
        data: the bytes.
        ends_segment: whether the last byte is the last of its segment, so that a blank may end them.
    """
    found: list[LogEntry] = []
    # A segment has room for a blank after each record, and `read_item` checks for it.
    view = memoryview(data + bytes(BLANK_SIZE))
    at = 0
    while at < len(data):
        item = read_item(view, at, start)
        if item.finding is Finding.BLANK and ends_segment:
            break
        if item.entry is None or not crc_property_fits(view[at : at + item.size]):
            return None
        found.append(item.entry)
        at += item.size
    return found
