"""The limit of memory maps for queue files, and the eviction of the oldest maps.

The system limits the number of maps of a process (`vm.max_map_count`, 65 530 by default), however small each is. A file
can be mapped again at any time, so a store with more queues than that keeps only the newest maps.
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
    """Return the system's limit of maps per process; 0 where the system has no such limit."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def most_for_queues(limit: int) -> int:
    """Return the maximum number of maps for queues; the log, libraries, threads and memory need some, too.

    Args:
        limit: the system's limit per process; 0 for no limit.
    """
    return max(_LEAST, limit - max(limit >> 3, _LEAST_SPARE)) if limit else _NO_LIMIT


class Mapping(Protocol):
    """A file whose map may be evicted while no reader uses it."""

    def let_go(self) -> None:
        """Drop the map; the next use maps the file again."""


class QueueMaps:
    """The maps of a store's queue files, the oldest first. For one thread.

    The oldest map is evicted first, even if it is used often. Its next use maps the file again as the newest. Such maps
    are at most as frequent as those that cause the evictions. A use of a map needs no bookkeeping.

    Args:
        limit: the system's limit of maps per process; None to read it, 0 for no limit.

    Attributes:
        limit: the system's limit; 0 for no limit.
        most: maximum number of maps.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = system_limit() if limit is None else limit
        self.most = most_for_queues(self.limit)
        self._open: dict[Mapping, None] = {}
        self._thread = 0

    def __len__(self) -> int:
        return len(self._open)

    def map_file(self, fd: int, size: int) -> mmap.mmap:
        """Map a file as `pages.map_file`, and evict other maps when there are too many.

        Raises:
            OSError: the file cannot be mapped.
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
        """Add a mapped file; above the limit, evict the oldest maps."""
        self._thread = threading.get_ident()
        self._open[mapping] = None
        if len(self._open) > self.most:
            self._give_up(len(self._open) - self.most)

    def discard(self, mapping: Mapping) -> None:
        """Remove a file whose map was closed."""
        self._open.pop(mapping, None)

    def shed(self) -> bool:
        """Evict a quarter of the maps after the system refused one; return False without maps to evict.

        Queues belong to the thread of their store; on another thread this has no effect.
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
    """Return the error for a file that the system does not map."""
    advice = f"sysctl -w vm.max_map_count={max(4 * limit, 262_144)}"
    return OSError(
        errno.ENOMEM,
        f"{os.strerror(errno.ENOMEM)}: the process has as many maps as vm.max_map_count={limit or 'unknown'} allows, "
        f"or the machine has no memory left; {advice}",
    )
