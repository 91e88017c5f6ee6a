"""How many maps the files of queues may have in this process, and which are given up for others.

The system bounds the number of maps of a process (`vm.max_map_count`, 65 530 by default), however small each is.
A map of a queue's file can be had again at any time, so a store of more queues than that keeps those it used last.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import threading
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from tianzhou.store.files import pages

logger = logging.getLogger(__name__)

_SYSTEM_LIMIT: Final = Path("/proc/sys/vm/max_map_count")
_LEAST: Final = 64
_LEAST_SPARE: Final = 1024
_NO_LIMIT: Final = 1 << 62


def system_limit(path: Path = _SYSTEM_LIMIT) -> int:
    """How many maps the system lets a process have; 0 where it does not say, because it has no such limit."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def most_for_queues(limit: int) -> int:
    """How many of a process's maps may be those of queues: the log, libraries, threads and memory need some, too.

    Args:
        limit: what the system allows a process; 0 for no limit.
    """
    return max(_LEAST, limit - max(limit >> 3, _LEAST_SPARE)) if limit else _NO_LIMIT


class Mapping(Protocol):
    """A file whose map may be given up while nobody uses it."""

    def let_go(self) -> None:
        """Forget the map; the next use makes another."""


class QueueMaps:
    """The maps that the files of a store's queues have, the oldest first. For one thread.

    The oldest goes first, however much it is used: it then comes back as the newest, and there is no more of that than
    of files mapped for other reasons. A use of a map costs nothing.

    Args:
        limit: how many maps the system lets a process have; None to ask it, 0 for no limit.

    Attributes:
        most: how many there may be.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = system_limit() if limit is None else limit
        self.most = most_for_queues(self.limit)
        self._open: dict[Mapping, None] = {}
        self._thread = 0

    def __len__(self) -> int:
        return len(self._open)

    def map_file(self, fd: int, size: int) -> mmap.mmap:
        """As `pages.map_file`, giving up other maps when there are too many.

        Raises:
            OSError: it cannot be mapped.
        """
        try:
            return pages.map_file(fd, size)
        except OSError as error:
            if error.errno != errno.ENOMEM or not self.shed():
                raise self._explained(error) from None
        try:
            return pages.map_file(fd, size)
        except OSError as error:
            raise self._explained(error) from None

    def add(self, mapping: Mapping) -> None:
        """Note that a file has been mapped; when there are more than may be, the oldest are given up."""
        self._thread = threading.get_ident()
        self._open[mapping] = None
        if len(self._open) > self.most:
            self._give_up(len(self._open) - self.most)

    def discard(self, mapping: Mapping) -> None:
        """Note that a file's map was closed."""
        self._open.pop(mapping, None)

    def shed(self) -> bool:
        """The system gives out no more maps: give up a quarter of those there are; false when there is none to give.

        Queues are of the thread of their store; on another one nothing is done.
        """
        count = -(-len(self._open) // 4)
        if not count or self._thread != threading.get_ident():
            return False
        self.most = max(len(self._open) - count, 1)
        logger.warning(
            "the system gives this process no more maps; %d of %d queue files are let go, and no more than %d are "
            "mapped at once from now on (vm.max_map_count=%s)",
            count, len(self._open), self.most, self.limit or "unknown",
        )  # fmt: skip
        self._give_up(count)
        return True

    def _give_up(self, count: int) -> None:
        for mapping in list(islice(self._open, count)):
            del self._open[mapping]
            mapping.let_go()

    def _explained(self, error: OSError) -> OSError:
        return out_of_maps(self.limit) if error.errno == errno.ENOMEM else error


def out_of_maps(limit: int) -> OSError:
    """What is raised when the system maps no more files."""
    advice = f"sysctl -w vm.max_map_count={max(4 * limit, 262_144)}"
    return OSError(
        errno.ENOMEM,
        f"{os.strerror(errno.ENOMEM)}: the process has as many maps as vm.max_map_count={limit or 'unknown'} allows, "
        f"or the machine has no memory left; {advice}",
    )
