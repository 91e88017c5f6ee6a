"""What follows when a part of the store fails or works again: flags, lines of the log, troubles."""

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
    """Puts flags up and takes them down as the store's parts fail and recover.

    Args:
        settings: name the folder.
        flags: what refuses puts.
        supervisor: knows what is wrong with the store's tasks.
        maps: of queue files; some are given up when memory is short.

    Attributes:
        refused_append: why the disk refused the last append, where no flag says it; empty when it did not.
    """

    def __init__(self, settings: StoreSettings, flags: RunningFlags, supervisor: Supervisor, maps: QueueMaps) -> None:
        self._root = settings.root
        self._flags = flags
        self._supervisor = supervisor
        self._maps = maps
        self.refused_append = ""

    def flush_failed(self, error: Exception) -> None:
        """The disk refused the commit log, which only a restart can make good."""
        cause, remedy = why_refused(error)
        text = f"store {self._root}: {cause}; the store only reads: {remedy}, then restart the broker"
        self._flags.put_up(RunningFlag.NOT_WRITABLE, text)
        logger.critical("%s", text)
        self._supervisor.failed(WORK, error, "nothing more is stored until a restart")

    def dispatch_failed(self, error: Exception, flag: RunningFlag) -> None:
        """Queues or index, whichever the flag says, cannot be written."""
        what = "the index" if flag is RunningFlag.INDEX_ERROR else "the queues"
        self.memory_short(error)
        text = f"{what} in {self._root} cannot be written ({words(error)}); it is tried again every second"
        if self._flags.put_up(flag, text):
            logger.error("%s", text)
        self._supervisor.failed(_FILLING, error)

    def dispatch_recovered(self) -> None:
        """Queues and index can be written again."""
        self._flags.take_down(RunningFlag.QUEUE_ERROR)
        self._flags.take_down(RunningFlag.INDEX_ERROR)
        self._supervisor.well(_FILLING)
        logger.warning("%s: queues and index can be written again", self._root)

    def space_changed(self, text: str | None) -> None:
        """The disk is full, as the text says; or, without one, has space again."""
        if text is None:
            self._flags.take_down(RunningFlag.DISK_FULL)
            logger.warning("%s: the disk has space again, messages are accepted", self._root)
        elif self._flags.put_up(RunningFlag.DISK_FULL, text):
            logger.error("%s", text)

    @property
    def disk_refusal(self) -> str:
        """Why the disk refuses writes now; empty when it takes them."""
        return self._flags.text_of(_DISK) or self.refused_append

    def append_refused(self, text: str) -> None:
        """Note why the disk refused an append."""
        self.refused_append = text

    def disk_answers(self) -> None:
        """Note that the disk takes writes again."""
        if self.refused_append:
            logger.warning("%s: the disk takes writes again", self._root)
        self.refused_append = ""

    def memory_short(self, error: Exception) -> None:
        """Give up maps of queue files if an error says that there is no memory for more."""
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            self._maps.shed()
