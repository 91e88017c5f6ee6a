"""The notes a broker leaves itself in the store's folder; RocketMQ leaves them alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tianzhou.store.config_file import JsonFile
from tianzhou.store.index import Index
from tianzhou.store.queues import QueueTable
from tianzhou.store.settings import StoreSettings

MARKER_NAME: Final = "clean.json"
DAMAGE_NAME: Final = "damaged.json"


def read_marker(root: Path) -> dict[str, Any] | None:
    """What the last clean stop noted; None without a note, or when it makes no sense."""
    try:
        marker = json.loads(root.joinpath(MARKER_NAME).read_bytes())
        marked_queues(marker)
        return {**marker, "logEnd": int(marker["logEnd"]), "indexEnd": int(marker["indexEnd"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_marker(settings: StoreSettings, log_end: int, queues: QueueTable, index: Index | None) -> None:
    """Leave a note of what a clean stop left, so that the next start can tell what has gone missing since."""
    table: dict[str, dict[str, list[int]]] = {}
    for topic, of_topic in queues.items():
        for queue_id, queue in of_topic.items():
            if queue.files.segments:
                first = queue.files.segments[0].start // queue.unit_size
                table.setdefault(topic, {})[str(queue_id)] = [first, queue.max_offset]
    marker = {"logEnd": log_end, "indexEnd": index.end_offset if index is not None else -1, "queues": table}
    settings.root.joinpath(MARKER_NAME).write_text(json.dumps(marker) + "\n")


def marked_queues(marker: dict[str, Any]) -> dict[tuple[str, int], tuple[int, int]]:
    """First offset in the files and max offset of each queue at the stop."""
    return {
        (topic, int(queue_id)): (int(first), int(maximum))
        for topic, of_topic in marker["queues"].items()
        for queue_id, (first, maximum) in of_topic.items()
    }


def read_damage(root: Path) -> list[tuple[int, int]]:
    """Start and end of the damaged stretches of the log that earlier starts found."""
    try:
        told = json.loads((root / DAMAGE_NAME).read_bytes())
        return [(int(start), int(stop)) for start, stop in told["damaged"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def write_damage(root: Path, damaged: list[tuple[int, int]]) -> None:
    """Leave a note of the damaged stretches: a clean start does not read the log."""
    path = root / DAMAGE_NAME
    if damaged:
        JsonFile(path).write(json.dumps({"damaged": damaged}).encode() + b"\n")
    else:
        path.unlink(missing_ok=True)
