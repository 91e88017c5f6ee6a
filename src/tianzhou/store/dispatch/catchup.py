"""The catch-up of the index with the log while the store serves (store.md §8, §10.4).

After a power failure, or when index files are missing, the keys of much of the log may have to be indexed again. Queues
do not wait for that. Until the index has caught up with the dispatcher, new records get no entries; then the dispatcher
takes over. Entries are thus always in the order of the log, as in RocketMQ.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from time import perf_counter
from typing import Final

from tianzhou.records.layout import ROLLBACK, TRANSACTION_BITS
from tianzhou.records.walk import Finding, LogItem, Run, walk
from tianzhou.shortages import advice
from tianzhou.store.dispatch.dispatch import Dispatcher
from tianzhou.store.files.retention import readable_size
from tianzhou.store.files.segments import Segment
from tianzhou.store.index.index import Index
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.settings import StoreSettings

logger = logging.getLogger(__name__)

_STEP_RECORDS: Final = 128
_SLICE_SECONDS: Final = 0.002
_WINDOW: Final = 1 << 20
_RETRY_SECONDS: Final = 1.0
_WARN_SECONDS: Final = 60.0


class IndexCatchUp:
    """Reads the log from the end of the index to the dispatcher's position.

    Args:
        log: the commit log.
        dispatcher: receives the index when the index has caught up.
        index: the index.
        settings: checks of records.
        position: log offset before which the index is complete.
        on_done: called when the index has caught up.

    Attributes:
        position: log offset up to which the index is complete.
        done: whether it has caught up.
        begun: whether an event loop runs the catch-up.
    """

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        index: Index,
        settings: StoreSettings,
        position: int,
        on_done: Callable[[], None],
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._index = index
        self._settings = settings
        self._on_done = on_done
        self._began_at = position
        self._warned_at = 0.0
        self.position = position
        self.done = False
        self.begun = False
        dispatcher.index = None
        index.on_query = self._queried

    @property
    def behind(self) -> int:
        """Bytes of the log still to index."""
        return 0 if self.done else max(self._dispatcher.position - self.position, 0)

    def go_back(self, position: int) -> None:
        """Index again from a log offset on, because the files of later records are dropped."""
        self.position = min(self.position, position)
        self._began_at = min(self._began_at, position)

    def _queried(self) -> None:
        """Complete the index for a query without an event loop; otherwise warn about the missing part."""
        if not self.begun:
            self.finish()
            return
        now = perf_counter()
        if now - self._warned_at >= _WARN_SECONDS or not self._warned_at:
            self._warned_at = now
            logger.warning(
                "%s: a query by key is answered without messages behind %d of the commit log: the index is being "
                "rebuilt, %s are to go",
                self._settings.root,
                self.position,
                readable_size(self.behind),
            )

    def finish(self) -> None:
        """Catch up completely, however long it takes.

        Raises:
            OSError: an index file cannot be created, or the disk is full.
        """
        while not self.done:
            self.slice(1e9)

    async def run(self, executor: Executor) -> None:
        """Catch up in slices of the event loop, at most half of its time; a thread waits for the disk.

        Args:
            executor: waits for the disk.
        """
        self.begun = True
        if self.behind:
            logger.warning(
                "%s: the index is rebuilt from %d of the commit log on, %s of it; queries by key lack what comes "
                "behind until then",
                self._settings.root,
                self.position,
                readable_size(self.behind),
            )
        loop = asyncio.get_running_loop()
        while not self.done:
            try:
                window = self._window()
                if window is not None and not window[0].resident(*window[1:]):
                    await loop.run_in_executor(executor, _fetch, *window)
                began = perf_counter()
                self.slice(_SLICE_SECONDS, window[2] if window is not None else 1 << 63)
                await asyncio.sleep(perf_counter() - began)
            except OSError as error:
                logger.error(
                    "the index in %s cannot be written (%s); %s, it is tried again every second",
                    self._settings.root,
                    error,
                    advice(error),
                )
                await asyncio.sleep(_RETRY_SECONDS)

    def _window(self) -> tuple[Segment, int, int] | None:
        """Return the part of a segment to read next."""
        segment = self._log.files.find(self.position)
        if segment is None:
            return None
        start = self.position - segment.start
        return segment, start, min(start - start % _WINDOW + _WINDOW, segment.size)

    def slice(self, seconds: float, upto: int = 1 << 63) -> None:
        """Continue for a while.

        Args:
            seconds: approximate maximum time.
            upto: end position in the present segment.

        Raises:
            OSError: an index file cannot be created, or the disk is full.
        """
        stop = perf_counter() + seconds
        log, files = self._log, self._log.files
        begun_in = files.find(self.position)
        try:
            while True:
                self.position = max(self.position, log.min_offset)
                target = self._dispatcher.position
                if self.position >= target or not files.segments:
                    self._complete()
                    return
                segment = files.find(self.position)
                if segment is not begun_in or (segment is not None and self.position - segment.start >= upto):
                    return
                if not self._pass_damage():
                    self._step(segment, min(target, self._next_damage()), upto)
                if perf_counter() >= stop:
                    return
        finally:
            self._index.write_header()

    def _pass_damage(self) -> bool:
        for start, end in self._log.damaged:
            if start <= self.position < end:
                self.position = end
                return True
        return False

    def _next_damage(self) -> int:
        return min((start for start, _ in self._log.damaged if start > self.position), default=1 << 63)

    def _step(self, segment: Segment | None, end: int, upto: int) -> None:
        """Index the next records that begin before `end`."""
        settings, files, index = self._settings, self._log.files, self._index
        at = max(files.index_of(self.position), 0)
        steps = walk(
            files.segments,
            at,
            self.position - files.segments[at].start,
            trusted_end=end,
            check_crc=settings.check_crc_on_recover,
            force_record_crc=settings.force_verify_prop_crc,
            most=_STEP_RECORDS,
            stop=end if segment is None else min(end, segment.start + upto),
            framed_from=self._log.framed_from,
        )
        step = next(steps, LogItem(Finding.NOTHING, end))
        run: Run = []
        following = end
        if not isinstance(step, LogItem):
            run, following = step, step[-1][0] + step[-1][1]
        elif step.finding is not Finding.NOTHING and step.offset < end:
            run, following = [step.entry] if step.entry is not None else [], step.offset + step.size
        for offset, _, topic, _, _, sys_flag, stored, properties in run:
            if sys_flag & TRANSACTION_BITS != ROLLBACK and offset >= index.end_offset:
                index.put_record(topic, properties, offset, stored)
        self.position = following

    def _complete(self) -> None:
        self.done = True
        self._index.on_query = None
        self._dispatcher.index = self._index
        self._on_done()
        gone_over = self._dispatcher.position - self._began_at
        if gone_over > 0:
            logger.info("%s: the index is complete, %s of log read", self._settings.root, readable_size(gone_over))


def _fetch(segment: Segment, start: int, end: int) -> None:
    try:
        segment.fetch(start, end)
    except FileNotFoundError:
        return  # expired meanwhile
