"""How many files and connections this process may have."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)


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
