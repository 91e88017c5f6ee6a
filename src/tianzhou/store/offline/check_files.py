"""The check of a store's small files: offsets of groups, topics, checkpoint, our own note (store.md §9, §15)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tianzhou.errors import StoreUnreadable
from tianzhou.model import names
from tianzhou.store.files.checkpoint import Checkpoint
from tianzhou.store.files.config_file import JsonFile, Source
from tianzhou.store.offline.check_report import CheckReport, Kind, WrongOffset
from tianzhou.store.startup.proved_note import StoreNote, read_note

MaxOffset = Callable[[str, int], int | None]
_SLACK_MS: Final = 1000


def read_json(path: Path, report: CheckReport | None = None) -> dict[str, Any]:
    """Return a configuration file as its owner reads it; empty without a file.

    Args:
        path: the file.
        report: receives a problem when only the predecessor can be read, or none of both.
    """
    file = JsonFile(path)
    try:
        value = file.load(silent=True)
    except StoreUnreadable as error:
        if report is not None:
            report.add(Kind.CONFIG, str(error))
        return {}
    if report is not None and file.source is Source.BACKUP:
        report.add(Kind.CONFIG, f"{path} cannot be read; its predecessor {file.backup_path.name} is used")
    return value if isinstance(value, dict) else {}


def topics_of(root: Path, report: CheckReport | None = None) -> dict[str, Any] | None:
    """Return the configured topics; None when the store has no table of them."""
    table = read_json(root / "config" / "topics.json", report).get("topicConfigTable")
    return table if isinstance(table, dict) else None


def check_offsets(root: Path, report: CheckReport, max_offset: MaxOffset) -> None:
    """Report offsets after the end of their queue: later messages would be skipped or read again.

    Args:
        root: the store.
        report: receives the problems.
        max_offset: returns the next offset of a queue; None without one.
    """
    for name, member in (("consumerOffset.json", "offsetTable"), ("lmqConsumerOffset.json", "lmqOffsetTable")):
        path = root / "config" / name
        table = read_json(path, report).get(member)
        for key, offsets in table.items() if isinstance(table, dict) else ():
            topic, _, group = str(key).partition("@")
            rows = offsets.items() if isinstance(offsets, dict) else [(0, offsets)]
            for number, offset in rows:
                maximum = max_offset(topic, int(number))
                if maximum is not None and int(offset) > maximum:
                    whole = key if isinstance(offsets, dict) else None
                    wrong = WrongOffset(path, member, whole, int(number), int(offset), maximum)
                    _add_offset(report, wrong, f"group {group} is at {offset} of {topic}/{number}")
    path = root / "config" / "delayOffset.json"
    table = read_json(path, report).get("offsetTable")
    for level, offset in table.items() if isinstance(table, dict) else ():
        maximum = max_offset(names.SCHEDULE_TOPIC, int(level) - 1)
        if maximum is not None and int(offset) > maximum:
            wrong = WrongOffset(path, "offsetTable", None, int(level), int(offset), maximum)
            _add_offset(report, wrong, f"delay level {level} is at {offset}")


def _add_offset(report: CheckReport, wrong: WrongOffset, who: str) -> None:
    report.wrong_offsets.append(wrong)
    report.add(Kind.OFFSET, f"{wrong.path.name}: {who}, its queue ends at {wrong.maximum}", expected=not report.clean)


def check_checkpoint(root: Path, report: CheckReport) -> None:
    """Report a checkpoint that claims more than the store has."""
    path = root / "checkpoint"
    checkpoint = Checkpoint(path)
    wrong = checkpoint.load()
    if wrong:
        report.checkpoint_wrong = True
        report.add(Kind.CHECKPOINT, wrong[0])
        return
    limit = report.newest + _SLACK_MS
    for name, stamp in (
        ("physicMsgTimestamp", checkpoint.physic_msg_timestamp),
        ("logicsMsgTimestamp", checkpoint.logics_msg_timestamp),
        ("indexMsgTimestamp", checkpoint.index_msg_timestamp),
    ):
        if stamp < 0 or stamp > limit:
            report.checkpoint_wrong = True
            report.add(Kind.CHECKPOINT, f"{path}: {name} is {stamp}, the newest record was stored at {report.newest}")


def check_note(root: Path, report: CheckReport) -> StoreNote | None:
    """Report a log that ends before the noted end of the last clean stop; return the note of such a stop, else None."""
    note = read_note(root) if report.clean else None
    if note is None or note.log_end < report.log_end:
        return None
    if note.log_end > report.log_end:
        text = f"the log ended at {note.log_end} when it was stopped, its last intact record now ends at "
        report.add(Kind.LOST_END, text + str(report.log_end))
    return note
