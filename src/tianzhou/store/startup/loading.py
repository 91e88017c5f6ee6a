"""The load of a store's files: their presence, order and sizes (store.md §1, §2, §10.1)."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from tianzhou.errors import StoreUnreadable
from tianzhou.model.name_rules import folder_name_problem
from tianzhou.store.files.directories import sync_directory
from tianzhou.store.files.segments import Segment, segment_files, segment_name
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.log.recovery import judge_sizes
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.extension import ExtendedQueue
from tianzhou.store.queues.queues import BATCH_QUEUES, QUEUES, QueueMaker, QueueTable, batch_topics_in, queue_of
from tianzhou.store.settings import StoreSettings


class StoreLoader:
    """Finds the segments of log and queues; it reads none of them.

    Args:
        settings: settings of the store.
        log: the commit log, empty.
        queues: filled with the queues found.
        kinds: creates the queues; gets the topics of queue type BatchCQ in the folder.
        notes: receives descriptions of wrong files.

    Attributes:
        read_from: log offset from which the log must be read because of truncated files; very large without any.
        incomplete: queues with dropped files.
    """

    def __init__(
        self, settings: StoreSettings, log: CommitLog, queues: QueueTable, kinds: QueueMaker, notes: list[str]
    ) -> None:
        self._settings = settings
        self._log = log
        self._queues = queues
        self._kinds = kinds
        self._notes = notes
        self.read_from = 1 << 63
        self.incomplete: list[ConsumeQueue] = []

    def load_queues(self, *, torn: bool = False) -> None:
        """Load the queues of both kinds; the log must have been loaded.

        Args:
            torn: whether the machine has failed since their last write, so that a file may have any length.

        Raises:
            StoreUnreadable: they were written with other settings.
        """
        settings = self._settings
        self._kinds.batch_topics |= batch_topics_in(settings.root)
        self.incomplete += self._load_family(QUEUES, settings.queue_segment_size, "mappedFileSizeConsumeQueue", torn)
        self.incomplete += self._load_family(
            BATCH_QUEUES, settings.batch_queue_segment_size, "mapperFileSizeBatchConsumeQueue", torn
        )

    def load_log(self) -> None:
        """Load the segments of the log; a truncated one is filled with zeros.

        Raises:
            StoreUnreadable: a segment is missing, or they were written with other settings.
        """
        settings = self._settings
        size = settings.mapped_file_size_commit_log
        found: list[tuple[int, Path, int]] = []
        for directory in dict.fromkeys(settings.commit_log_directories + settings.read_only_directories):
            found += segment_files(directory)
        found.sort()
        if found and found[-1][2] == 0:
            found.pop()[1].unlink()
        verdict = judge_sizes([(start, length) for start, _, length in found], size)
        if verdict.written_with is not None:
            raise StoreUnreadable(
                f"{found[0][1].parent}: written with mappedFileSizeCommitLog={verdict.written_with}, configured is "
                f"{size}; set mappedFileSizeCommitLog={verdict.written_with}"
            )
        for number in verdict.damaged:
            start, path, length = found[number]
            self.read_from = min(self.read_from, start)
            os.truncate(path, size)
            self._notes.append(f"{path} was cut short at {length} bytes; lengthened to {size} with zeros")
        expected = found[0][0] if found else 0
        for start, path, _ in found:
            if start < expected:
                raise StoreUnreadable(
                    f"{path}: a segment of this offset is in another commit-log directory, too; remove one of them"
                )
            if start > expected:
                missing = path.with_name(segment_name(expected))
                raise StoreUnreadable(
                    f"{missing} is missing between its neighbours; put it back, or, to go on without its messages, "
                    f"put zeros there: truncate -s {size} {missing}; touch {self._settings.root}/abort"
                )
            self._log.files.adopt(Segment(path, start, size))
            expected = start + size
            if settings.enable_d_leger_commit_log and path.parent in settings.commit_log_directories:
                self._log.framed_from = min(self._log.framed_from, start)

    def _load_family(self, family: str, size: int, key: str, torn: bool) -> list[ConsumeQueue]:
        """Load the queues of one kind; return those with dropped files.

        Args:
            family: folder below the root.
            size: bytes of their segments.
            key: name of the setting of that size.
            torn: see `load_queues`.
        """
        root = self._settings.root / family
        found: dict[tuple[str, int], list[tuple[int, Path, int]]] = {}
        if root.is_dir():
            for topic_directory in sorted(root.iterdir()):
                if not topic_directory.is_dir():
                    continue
                if (problem := folder_name_problem(topic_directory.name)) is not None:
                    self._notes.append(f"a folder in {root} is left alone: {problem}, as of a topic")
                    continue
                for directory in topic_directory.iterdir():
                    if directory.is_dir() and directory.name.isascii() and directory.name.isdigit():
                        files = sorted(segment_files(directory))
                        found[topic_directory.name, int(directory.name)] = files
        self._refuse_other_queue_size(root, found, size, key, torn)
        incomplete = []
        for (topic, queue_id), files in sorted(found.items()):
            if files and (topic in self._kinds.batch_topics) != (family == BATCH_QUEUES):
                kind, right = ("SimpleCQ", QUEUES) if family == BATCH_QUEUES else ("BatchCQ", BATCH_QUEUES)
                raise StoreUnreadable(
                    f"{root / topic}: the topic's queue type is {kind}, its queues belong into {right}; "
                    "delete this folder: what the log has is rebuilt from it"
                )
            queue = queue_of(self._queues, self._kinds, topic, queue_id)
            if isinstance(queue, ExtendedQueue):
                self._load_extension(queue)
            expected = files[0][0] if files else 0
            for number, (start, path, length) in enumerate(files):
                if length == size and start == expected:
                    queue.files.adopt(Segment(path, start, size))
                    expected = start + size
                    continue
                # The following files are useless without this one, and the log can rebuild all of them.
                for _, later, _ in files[number:]:
                    later.unlink()
                sync_directory(path.parent)
                if length or number + 1 < len(files):
                    incomplete.append(queue)
                    what = "is missing" if start != expected else f"is {length} bytes long instead of {size}"
                    which = path.with_name(f"{expected:020d}") if start != expected else path
                    self._notes.append(f"queue file {which} {what}; the queue is rebuilt from the log")
                break
        return incomplete

    def _load_extension(self, queue: ExtendedQueue) -> None:
        files = queue.extension.files
        (directory,) = files.directories
        expected = None
        for start, path, length in sorted(segment_files(directory)):
            if length == files.size and expected in {None, start}:
                files.adopt(Segment(path, start, length))
                expected = start + length
            else:
                # If a unit points there, the queue is rebuilt.
                path.unlink()

    def _refuse_other_queue_size(
        self, root: Path, found: dict[tuple[str, int], list[tuple[int, Path, int]]], size: int, key: str, torn: bool
    ) -> None:
        lengths = Counter(length for there in found.values() for _, _, length in there if length)
        if size not in lengths and len(lengths) == 1:
            ((other, files),) = lengths.items()
            # A single file may be truncated by a power failure.
            if other % (46 if root.name == BATCH_QUEUES else 20) == 0 and (files > 1 or not torn):
                raise StoreUnreadable(
                    f"{root}: the queues were written with {key}={other}, configured is {size}; "
                    f"set {key}={other}, or delete the folder: it is rebuilt from the log"
                )
        if any(length > size for length in lengths):
            raise StoreUnreadable(
                f"{root}: there are queue files of {max(lengths)} bytes, {key}={size}; "
                "set the size the folder was written with, or delete the folder: it is rebuilt from the log"
            )
