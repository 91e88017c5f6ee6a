"""The kinds of queues, and their creation (store.md §5, §6, §7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tianzhou.errors import StoreError, TianzhouError
from tianzhou.model import names
from tianzhou.model.name_rules import folder_name_problem
from tianzhou.store.files.config_file import JsonFile
from tianzhou.store.files.maps import QueueMaps
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.batchqueue import BatchQueue
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.extension import ExtendedQueue, Extension
from tianzhou.store.queues.multi_dispatch import is_light
from tianzhou.store.settings import StoreSettings

QUEUES: Final = "consumequeue"
BATCH_QUEUES: Final = "batchconsumequeue"
EXTENSIONS: Final = "consumequeue_ext"

QueueTable = dict[str, dict[int, ConsumeQueue]]


class QueueMaker:
    """Creates queue objects of the kind that the topic requires.

    Args:
        settings: folders and sizes.
        log: the commit log, for filters that read records.
        maps: counts the maps of all queues, and unmaps some when there are too many.

    Attributes:
        batch_topics: topics of queue type BatchCQ.
        maps: the argument.
        filter_bitmap: returns the bitmap of the filters that match a record, by the topic and the record's bytes; None
            without filters. Used for the extension units only.
    """

    def __init__(self, settings: StoreSettings, log: CommitLog, maps: QueueMaps | None = None) -> None:
        self._settings = settings
        self._log = log
        self.maps = QueueMaps() if maps is None else maps
        self.batch_topics: set[str] = set()
        self.filter_bitmap: Callable[[str, memoryview], bytes] | None = None

    def make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue object for a topic and queue number, without files yet.

        Raises:
            StoreError: the topic's name cannot be a folder name.
        """
        settings = self._settings
        directory = queue_folder(settings.root, self._family(topic), topic, queue_id)
        how: dict[str, Any] = {"version_2": settings.auto_message_version_on_topic_len, "maps": self.maps}
        if topic in self.batch_topics:
            return BatchQueue(directory, topic, queue_id, settings.batch_queue_segment_size, **how)
        size = settings.queue_segment_size
        if settings.enable_consume_queue_ext and not is_light(topic):
            folder = queue_folder(settings.root, EXTENSIONS, topic, queue_id)
            extension = Extension(folder, settings.mapped_file_size_consume_queue_ext, self.maps)
            queue: ConsumeQueue = ExtendedQueue(
                directory, topic, queue_id, size, extension=extension, bitmap=self._bitmap, **how
            )
        else:
            queue = ConsumeQueue(directory, topic, queue_id, size, **how)
        queue.delayed = topic == names.SCHEDULE_TOPIC
        queue.log_file_size = settings.mapped_file_size_commit_log
        return queue

    def _family(self, topic: str) -> str:
        return BATCH_QUEUES if topic in self.batch_topics else QUEUES

    def folders(self, topic: str) -> list[Path]:
        """Return all folders for files of a topic's queues, existing or not.

        Raises:
            StoreError: the topic's name cannot be a folder name.
        """
        root = self._settings.root
        return [topic_folder(root, family, topic) for family in (self._family(topic), EXTENSIONS)]

    def _bitmap(self, topic: str, physical_offset: int, size: int) -> bytes:
        if self.filter_bitmap is None:
            return b""
        # Not `CommitLog.read`, because the log's end is unknown during recovery.
        segment = self._log.files.find(physical_offset)
        if segment is None:
            return b""
        at = physical_offset - segment.start
        return self.filter_bitmap(topic, segment.view[at : at + size])


def topic_folder(root: Path, family: str, topic: str) -> Path:
    """Return the folder of a topic's queues. This is the only function that makes a path from a topic name.

    Args:
        root: the store.
        family: the folder of all queues of one kind.
        topic: any text.

    Raises:
        StoreError: the topic's name cannot be a folder name.
    """
    problem = folder_name_problem(topic)
    if problem is not None:
        raise StoreError(f"{problem}; topics consist of letters, digits, %, |, - and _")
    return root / family / topic


def queue_folder(root: Path, family: str, topic: str, queue_id: int) -> Path:
    """Return the folder of a queue's files; see `topic_folder`."""
    if queue_id < 0:
        raise StoreError(f"no folder can be of queue {queue_id}; queue ids begin at 0")
    return topic_folder(root, family, topic) / str(queue_id)


def each_queue(queues: QueueTable) -> Iterator[ConsumeQueue]:
    """Yield all queues of a table."""
    for of_topic in queues.values():
        yield from of_topic.values()


def queue_of(queues: QueueTable, kinds: QueueMaker, topic: str, queue_id: int) -> ConsumeQueue:
    """Return a queue of the table; create it if it is missing."""
    queue = queues.get(topic, {}).get(queue_id)
    if queue is None:
        queue = kinds.make(topic, queue_id)
        queues.setdefault(topic, {})[queue_id] = queue
    return queue


def batch_topics_in(root: Path) -> set[str]:
    """Return the topics of queue type BatchCQ by the content of a store folder.

    `topics.json` contains the type; topics that it does not contain have the type of their queue folders. Recovery
    needs the types before the broker loads its topics, because the broker must own the folder first.
    """
    folder = root / BATCH_QUEUES
    found = {path.parts[-3] for path in folder.glob("*/*/*")} if folder.is_dir() else set()
    present = {topic for topic in found if folder_name_problem(topic) is None}
    known: dict[str, Any] = {}

    def take(table: dict[Any, Any]) -> None:
        configs = table.get("topicConfigTable") or {}
        known.update({topic: config.get("attributes") for topic, config in configs.items()})

    try:
        # The owner of the file reports its errors.
        JsonFile(root / "config" / "topics.json").load(take, silent=True)
    except TianzhouError:
        return present
    return {topic for topic, attributes in known.items() if is_batch_type(attributes)} | present - known.keys()


def is_batch_type(attributes: Any) -> bool:
    """Whether a topic's attributes request queues of the kind `BatchQueue`."""
    return isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ"
