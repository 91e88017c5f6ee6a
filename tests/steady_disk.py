"""A disk of the tests' folders that appears half empty to servers that tests start."""

from __future__ import annotations

import os
import shutil
import tempfile

_ask_system = shutil.disk_usage
_device = os.stat(tempfile.gettempdir()).st_dev


def _half_empty_at_least(path: int | str | os.PathLike[str]) -> shutil._ntuple_diskusage:
    """Return the usage of a disk, with at most half of the tests' own disk in use."""
    usage = _ask_system(path)
    if os.stat(path).st_dev != _device:
        return usage
    used = min(usage.used, usage.total // 2)
    return type(usage)(usage.total, used, max(usage.free, usage.total - used))


def have_half_empty_disk() -> None:
    """Replace `shutil.disk_usage` in this process."""
    shutil.disk_usage = _half_empty_at_least
