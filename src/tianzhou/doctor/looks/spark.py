"""Observation of a Spark stream: its software on this machine, and its checkpoint folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from tianzhou.doctor.looks.asking import Asking
from tianzhou.doctor.looks.topic import see_topic
from tianzhou.doctor.observations import CheckpointSeen, ClusterSeen, SparkSeen
from tianzhou.errors import ConfigError
from tianzhou.spark.sessions import java_runtime
from tianzhou.spark.source.offsets import Positions, from_json

MOST_BYTES: Final = 64 * 1024 * 1024
"""Maximum size in bytes of an offsets file that is read."""


def see_spark(now_ms: int, folder: Path | None = None, environ: Mapping[str, str] = os.environ) -> SparkSeen:
    """Read the installed versions of pyspark and Java, and a checkpoint.

    Args:
        now_ms: time of this machine's clock in ms.
        folder: the checkpoint folder.
        environ: environment variables that locate Java.
    """
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        version = ""
    java, why = 0, ""
    try:
        java = java_runtime.find(environ).version
    except ConfigError as error:
        why = str(error)
    return SparkSeen(now_ms, version, java, why, see_checkpoint(folder) if folder is not None else None)


def see_checkpoint(folder: Path) -> CheckpointSeen:
    """Read the offsets that a query has stored in its checkpoint folder on this machine."""
    path = str(folder)
    try:
        planned, committed = _newest(folder / "offsets"), _newest(folder / "commits")
        if planned < 0:
            return CheckpointSeen(path, f"{folder / 'offsets'} has no batch; name the checkpointLocation of a query")
        file = folder / "offsets" / str(planned)
        size = file.stat().st_size
        if size > MOST_BYTES:
            return CheckpointSeen(path, f"{file} has {size} bytes, more than any checkpoint of ours")
        lines = file.read_text(encoding="utf-8").splitlines()
        starts, ends = _offsets(lines[2:])
        if not ends:
            return CheckpointSeen(path, f"{file} has no offsets of this source")
        return CheckpointSeen(path, "", planned, committed, round(file.stat().st_mtime * 1000), ends, starts)
    except (OSError, ValueError) as error:
        return CheckpointSeen(path, f"{error}; name the checkpointLocation of a query, on this machine")


def _newest(folder: Path) -> int:
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _offsets(lines: list[str]) -> tuple[Positions, Positions]:
    """Return the start and end positions of all Tianzhou sources in the batch."""
    starts: Positions = {}
    ends: Positions = {}
    for line in lines:
        try:
            value: Any = json.loads(line)
            start, end = from_json(value)
        except (ValueError, ConfigError, AttributeError, TypeError, RecursionError):
            continue
        starts |= start
        ends |= end
    return starts, ends


async def with_bounds(asking: Asking, cluster: ClusterSeen, seen: CheckpointSeen) -> CheckpointSeen:
    """Return the checkpoint with its queues' present offsets. Return it unchanged when no name server answers."""
    if all(one.info is None for one in cluster.name_servers):
        return seen
    bounds: dict[Any, tuple[int, int]] = {}
    for topic in sorted({queue.topic for queue in seen.ends}):
        found = await see_topic(asking, cluster, topic, samples=False)
        bounds |= {queue: (at.min_offset, at.max_offset) for queue, at in found.offsets.items()}
    return replace(seen, bounds=bounds, known=True)
