"""Checkpoints of Parquet archives: one process at a time, and the table that belongs to each.

Spark writes nothing for a micro-batch whose number the table's `_spark_metadata` has. With another checkpoint than the
table's own, it would leave out the messages of such batches without an error. So this module rejects such a checkpoint
before Spark starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tianzhou.errors import ConfigError
from tianzhou.pipelines.folder_lock import held

CHECKPOINT: Final = "_checkpoint"
LISTS: Final = "_spark_metadata"
LOCK: Final = ".archive.lock"
_COMPACT: Final = ".compact"
_NUMBER: Final = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
_SCHEME: Final = re.compile(r"[^/]*:")


def is_local(path: str) -> bool:
    """Whether a path is a folder of this machine for Spark, too; a URI or an empty path is not."""
    return bool(path) and not path.startswith("//") and _SCHEME.match(path) is None


def last_batch(names: Iterable[str]) -> int:
    """Return the greatest number of a micro-batch among names of Spark's log files; -1 without any."""
    return max((int(one) for name in names if _NUMBER.fullmatch(one := name.removesuffix(_COMPACT))), default=-1)


@contextmanager
def held_checkpoint(to: str, checkpoint: str | None) -> Iterator[None]:
    """Hold the lock of an archive's checkpoint for this process. A folder that is not a local path is not locked.

    Args:
        to: the folder of the table.
        checkpoint: the folder of the checkpoint; None for the one below `to`.

    Raises:
        ConfigError: another process holds the checkpoint, or the table is that of another checkpoint.
    """
    if not (is_local(to) and is_local(checkpoint or to)):
        yield
        return
    # Do not resolve symbolic links, because Spark rejects a table whose files are listed below two folders.
    table = Path(os.path.abspath(to))  # noqa: PTH100 - see above
    place = Path(os.path.abspath(checkpoint)) if checkpoint else table / CHECKPOINT  # noqa: PTH100 - see above
    with held(place, LOCK, "archive", needed=False):
        listed, begun = last_batch(_names(table / LISTS)), last_batch(_names(place / "offsets"))
        if listed > begun:
            raise ConfigError(
                f"--to {table}: has files up to batch {listed} of another checkpoint than {place}, whose last is "
                f"{begun if begun >= 0 else 'none'}; give the one it was written with, or another folder"
            )
        yield


def _names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()] if folder.is_dir() else []
