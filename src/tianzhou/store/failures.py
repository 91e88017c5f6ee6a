"""The consequences of failures and recoveries of the store's parts: flags, log lines, troubles."""

from __future__ import annotations

import errno
import logging
from typing import Final

from tianzhou.shortages import words
from tianzhou.store.files.maps import QueueMaps
from tianzhou.store.flags import RunningFlag, RunningFlags
from tianzhou.store.log.flush import WORK, why_refused
from tianzhou.store.settings import StoreSettings
from tianzhou.supervision import Supervisor

logger = logging.getLogger(__name__)

_FILLING: Final = "filling the queues"
_DISK: Final = RunningFlag.NOT_WRITABLE | RunningFlag.QUEUE_ERROR | RunningFlag.INDEX_ERROR | RunningFlag.DISK_FULL
"""Flags that a disk raises."""


class StoreFailures:
    """Raises and lowers flags as the store's parts fail and recover.

    Args:
        settings: has the folder's name.
        flags: refuse puts.
        supervisor: records failures of the store's tasks.
        maps: maps of queue files; some are evicted when memory is short.

    Attributes:
        refused_append: why the disk refused the last append, where no flag shows it; empty when it did not.
    """

    def __init__(self, settings: StoreSettings, flags: RunningFlags, supervisor: Supervisor, maps: QueueMaps) -> None:
        self._root = settings.root
        self._flags = flags
        self._supervisor = supervisor
        self._maps = maps
        self.refused_append = ""

    def flush_failed(self, error: Exception) -> None:
        """Handle a refused flush of the commit log, which only a restart can repair."""
        cause, remedy = why_refused(error)
        text = f"store {self._root}: {cause}; the store only reads: {remedy}, then restart the broker"
        self._flags.put_up(RunningFlag.NOT_WRITABLE, text)
        logger.critical("%s", text)
        self._supervisor.failed(WORK, error, "nothing more is stored until a restart")

    def dispatch_failed(self, error: Exception, flag: RunningFlag) -> None:
        """Handle queues or an index, by the flag, that cannot be written."""
        what = "the index" if flag is RunningFlag.INDEX_ERROR else "the queues"
        self.memory_short(error)
        text = f"{what} in {self._root} cannot be written ({words(error)}); it is tried again every second"
        if self._flags.put_up(flag, text):
            logger.error("%s", text)
        self._supervisor.failed(_FILLING, error)

    def dispatch_recovered(self) -> None:
        """Note that queues and index can be written again."""
        self._flags.take_down(RunningFlag.QUEUE_ERROR)
        self._flags.take_down(RunningFlag.INDEX_ERROR)
        self._supervisor.well(_FILLING)
        logger.warning("%s: queues and index can be written again", self._root)

    def space_changed(self, text: str | None) -> None:
        """Handle a full disk, with its text; or, without one, a disk that has space again."""
        if text is None:
            self._flags.take_down(RunningFlag.DISK_FULL)
            logger.warning("%s: the disk has space again, messages are accepted", self._root)
        elif self._flags.put_up(RunningFlag.DISK_FULL, text):
            logger.error("%s", text)

    @property
    def disk_refusal(self) -> str:
        """Why the disk refuses writes now; empty when it accepts them."""
        return self._flags.text_of(_DISK) or self.refused_append

    def append_refused(self, text: str) -> None:
        """Note why the disk refused an append."""
        self.refused_append = text

    def disk_answers(self) -> None:
        """Note that the disk accepts writes again."""
        if self.refused_append:
            logger.warning("%s: the disk takes writes again", self._root)
        self.refused_append = ""

    def memory_short(self, error: Exception) -> None:
        """Evict maps of queue files if the error is a lack of memory."""
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            self._maps.shed()
