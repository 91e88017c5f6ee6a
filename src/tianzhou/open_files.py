"""How many files and connections this process may have."""

from __future__ import annotations

import logging
import resource
from typing import Final

logger = logging.getLogger(__name__)

SPARE: Final = 64
"""So many descriptors are left to the server's own files, whatever its peers take."""
_LEAST_SHARE: Final = 4
"""Of a small limit, a fourth is left to the server."""


def allow_more_files() -> int:
    """Let this process have as many files as the system lets it, which is often a hundred times the default.

    Returns:
        The limit now, when it was raised; 0 when it was as high as it may be.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return 0
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    logger.info("limit of open files raised from %d to %d", soft, hard)
    return hard


def ceiling() -> int:
    """The lowest number of a descriptor that no connection of a peer may have.

    The system gives out the lowest number that is free. One at or above the ceiling therefore says that all below are
    taken, and that what is left is needed: by the next segment of the log, by the state files.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return 1 << 62
    return limit - min(SPARE, limit // _LEAST_SHARE)
