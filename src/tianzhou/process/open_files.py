"""Limits of open files and connections of this process."""

from __future__ import annotations

import logging
import resource
from typing import Final

logger = logging.getLogger(__name__)

SPARE: Final = 64
"""Descriptors reserved for the server's own files."""
_LEAST_SHARE: Final = 4
"""A small limit leaves one in this number to the server."""


def allow_more_files() -> int:
    """Raise the limit of open files to the system's maximum, often a hundred times the default.

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
    """Lowest descriptor number that no connection of a peer may have.

    The system gives out the lowest free number. One at or above the ceiling therefore means that all below are taken,
    and that the rest is needed: by the next segment of the log, by the state files.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return 1 << 62
    return limit - min(SPARE, limit // _LEAST_SHARE)
