"""The full check of a store before it serves, for a disk that is not trusted (`checkStoreOnStart`).

After a clean stop a start trusts the files, because a read of all of them would take long. Later damage is detected
when it is read (`tianzhou.store.log.checked`).
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Final

from tianzhou.errors import StoreUnreadable
from tianzhou.store.files.retention import readable_size
from tianzhou.store.settings import StoreSettings

logger = logging.getLogger(__name__)

_REPORT_SECONDS: Final = 5.0
_SHOWN: Final = 3


def check_everything(settings: StoreSettings) -> None:
    """Check the whole store, and log the progress.

    Args:
        settings: settings of the store, whose folder exists.

    Raises:
        StoreUnreadable: a file is damaged; the text has its name and the remedy.
    """
    from tianzhou.store.offline.check import check_store
    from tianzhou.store.offline.scan import StoreScan

    entry_log = settings.commit_log_directories if settings.enable_d_leger_commit_log else []
    scan = StoreScan(settings.root, [*settings.commit_log_directories, *settings.read_only_directories], entry_log)
    total = scan.log_bytes()
    began = reported = perf_counter()
    logger.info("%s: %s of log are checked before they are served", settings.root, readable_size(total))

    def progress(done: int) -> None:
        nonlocal reported
        if perf_counter() - reported >= _REPORT_SECONDS:
            reported = perf_counter()
            logger.info("%s: %d %% checked", settings.root, 100 * done // max(total, 1))

    report = check_store(scan, settings.max_hash_slot_num, progress)
    if report.problems:
        shown = "; ".join(problem.text for problem in report.problems[:_SHOWN])
        further = f" (and {len(report.problems) - _SHOWN} more)" if len(report.problems) > _SHOWN else ""
        raise StoreUnreadable(
            f"store {settings.root} is damaged: {shown}{further}; run `tianzhou store repair {settings.root}`, or set "
            "checkStoreOnStart=false to serve it as it is"
        )
    logger.info(
        "%s: %d messages in %d queues checked in %.1f s, all sound",
        settings.root,
        report.records,
        report.queues,
        perf_counter() - began,
    )
