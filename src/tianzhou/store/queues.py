"""Which kind of queue a topic has, and making it (store.md §5, §6, §7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tianzhou.errors import TianzhouError
from tianzhou.model import names
from tianzhou.store.batchqueue import BatchQueue
from tianzhou.store.commitlog import CommitLog
from tianzhou.store.config_file import JsonFile
from tianzhou.store.consumequeue import ConsumeQueue
from tianzhou.store.extension import ExtendedQueue, Extension
from tianzhou.store.light import is_light
from tianzhou.store.settings import StoreSettings

QUEUES: Final = "consumequeue"
BATCH_QUEUES: Final = "batchconsumequeue"
EXTENSIONS: Final = "consumequeue_ext"

QueueTable = dict[str, dict[int, ConsumeQueue]]


class QueueMaker:
    """Makes queue objects of the kind that the topic asks for.

    Args:
        settings: folders and sizes.
        log: where records are, for the filters that look at them.

    Attributes:
        batch_topics: topics of queue type BatchCQ.
        filter_bitmap: tells which filters match a record, given the topic and the record's bytes; None without
            filters. Used for the extension units only.
    """

    def __init__(self, settings: StoreSettings, log: CommitLog) -> None:
        self._settings = settings
        self._log = log
        self.batch_topics: set[str] = set()
        self.filter_bitmap: Callable[[str, memoryview], bytes] | None = None

    def make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue object for a topic and queue number, with no files yet."""
        settings = self._settings
        version_2 = settings.auto_message_version_on_topic_len
        directory = self.folder(topic) / str(queue_id)
        if topic in self.batch_topics:
            size = settings.batch_queue_segment_size
            return BatchQueue(directory, topic, queue_id, size, version_2=version_2)
        size = settings.queue_segment_size
        if settings.enable_consume_queue_ext and not is_light(topic):
            extension = Extension(
                settings.root / EXTENSIONS / topic / str(queue_id), settings.mapped_file_size_consume_queue_ext
            )
            queue: ConsumeQueue = ExtendedQueue(
                directory, topic, queue_id, size, extension=extension, bitmap=self._bitmap, version_2=version_2
            )
        else:
            queue = ConsumeQueue(directory, topic, queue_id, size, version_2=version_2)
        queue.delayed = topic == names.SCHEDULE_TOPIC
        queue.log_file_size = settings.mapped_file_size_commit_log
        return queue

    def folder(self, topic: str) -> Path:
        """Where the queues of a topic have their folders."""
        return self._settings.root / (BATCH_QUEUES if topic in self.batch_topics else QUEUES) / topic

    def folders(self, topic: str) -> list[Path]:
        """All folders with files of a topic's queues, whether they are there or not."""
        return [self.folder(topic), self._settings.root / EXTENSIONS / topic]

    def _bitmap(self, topic: str, physical_offset: int, size: int) -> bytes:
        if self.filter_bitmap is None:
            return b""
        # Not `CommitLog.read`: the log's end is not known yet while it is being recovered.
        segment = self._log.files.find(physical_offset)
        if segment is None:
            return b""
        at = physical_offset - segment.start
        return self.filter_bitmap(topic, segment.view[at : at + size])


def each_queue(queues: QueueTable) -> Iterator[ConsumeQueue]:
    """All queues of a table."""
    for of_topic in queues.values():
        yield from of_topic.values()


def queue_of(queues: QueueTable, kinds: QueueMaker, topic: str, queue_id: int) -> ConsumeQueue:
    """A queue of the table, made when it is not there yet."""
    of_topic = queues.setdefault(topic, {})
    queue = of_topic.get(queue_id)
    if queue is None:
        queue = of_topic[queue_id] = kinds.make(topic, queue_id)
    return queue


def batch_topics_in(root: Path) -> set[str]:
    """Topics that are of queue type BatchCQ by what lies in a store folder.

    `topics.json` says so; of topics that it does not know, the queues do. The broker knows its topics only once the
    folder is its own; recovery has to know before.
    """
    folder = root / BATCH_QUEUES
    present = {path.parts[-3] for path in folder.glob("*/*/*")} if folder.is_dir() else set()
    try:
        table: Any = JsonFile(root / "config" / "topics.json").load()
        configs = (table or {}).get("topicConfigTable") or {}
        configured = {topic for topic, config in configs.items() if is_batch_type(config.get("attributes"))}
        return configured | present - configs.keys()
    except (TianzhouError, AttributeError):
        # Whoever needs the file itself will say what is wrong with it.
        return present


def is_batch_type(attributes: Any) -> bool:
    """Whether a topic's attributes make its queues those of `BatchQueue`."""
    return isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ"
