"""Messages of a store as rows, and rows as messages of another store (`tianzhou store export|import`).

A row has all fields of a message except its place: import assigns a new offset and store time.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import ConfigError, ProtocolError, StoreError, StoreUnreadable
from tianzhou.model import MessageExt, names
from tianzhou.model.timestamps import BORN_TIMESTAMP_MS, STORE_TIMESTAMP_MS
from tianzhou.records.codec import decode_record
from tianzhou.records.layout import PREPARED, ROLLBACK, TRANSACTION_BITS
from tianzhou.records.walk import LogEntry, LogItem
from tianzhou.store.files.config_file import JsonFile
from tianzhou.store.offline.check_files import topics_of
from tianzhou.store.offline.files import ReadOnlySegment, segment_paths
from tianzhou.store.offline.index_files import read_index_headers, slots_of
from tianzhou.store.offline.scan import StoreScan, member_folder
from tianzhou.store.results import NewRecord, PutStatus
from tianzhou.store.settings import StoreSettings
from tianzhou.store.store import MessageStore
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.ids import address_bytes
from tianzhou.wire.properties import encode_properties, get_property
from tianzhou.wire.pulled import to_message

KEPT_FLAGS: Final = ~0x7F1
"""Bits of sysFlag in a row, without those about the record's compression and the length of its addresses."""
_SYSTEM: Final = ("rmq_sys_", "RMQ_SYS_", "CID_", "TBW102", names.SCHEDULE_TOPIC)
_PLACED: Final = frozenset({names.CRC32, "INNER_MULTI_QUEUE_OFFSET"})
COLUMNS: Final = (
    "topic", "queueId", "queueOffset", "physicalOffset", "flag", "sysFlag", "bornTimestamp", "bornHost",
    "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "properties", "body",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages to export; None selects all.

    Attributes:
        topics: these topics; None selects all except those of the system.
        queue_id: this queue.
        since: minimum store time, ms.
        until: store time before which messages are selected, ms.
        begin: first queue offset.
        end: queue offset after the last one.
        key: a key or unique key of the message.
    """

    topics: frozenset[str] | None = None
    queue_id: int | None = None
    since: int | None = None
    until: int | None = None
    begin: int | None = None
    end: int | None = None
    key: str | None = None

    def wants(self, entry: LogEntry) -> bool:
        """Whether a record is selected."""
        return (
            (self.topics is None or entry.topic in self.topics)
            and (self.queue_id is None or entry.queue_id == self.queue_id)
            and (self.since is None or entry.store_timestamp >= self.since)
            and (self.until is None or entry.store_timestamp < self.until)
            and (self.begin is None or entry.queue_offset >= self.begin)
            and (self.end is None or entry.queue_offset < self.end)
            and (self.key is None or has_key(entry.properties, self.key))
        )


def has_key(properties: bytes, key: str) -> bool:
    """Whether a message can be found by the key."""
    keys = (get_property(properties, names.KEYS) or "").split(" ")
    return key in keys or key == get_property(properties, names.UNIQ_KEY)


def visible_topics(scan: StoreScan) -> frozenset[str]:
    """Return the topics of an export without a choice: existing topics of users."""
    others = scan.root / "batchconsumequeue"
    found = {topic for topic, _ in scan.queues()} | set(topics_of(scan.root) or ())
    found |= {path.name for path in others.iterdir()} if others.is_dir() else set()
    return frozenset(topic for topic in found if not topic.startswith(_SYSTEM))


def selected(
    scan: StoreScan,
    selection: Selection,
    progress: Callable[[int], None] | None = None,
    on_damage: Callable[[LogItem], None] | None = None,
) -> Iterator[tuple[LogEntry, memoryview]]:
    """Yield the records of a selection, in the order of the log; records that no consumer sees are left out.

    Args:
        scan: the store.
        selection: the selection.
        progress: called with the number of processed bytes of the log.
        on_damage: called with every damaged stretch that is skipped.
    """
    begin = -1
    for number, (entry, view) in enumerate(scan.records(on_damage=on_damage)):
        begin = entry.offset if begin < 0 else begin
        if progress is not None and number & 4095 == 0:
            progress(entry.offset - begin)
        if entry.sys_flag & TRANSACTION_BITS not in {PREPARED, ROLLBACK} and selection.wants(entry):
            yield entry, view


def rows(record: memoryview) -> list[dict[str, Any]]:
    """Return the messages of a record, members as in `COLUMNS`; a body that is no text is `bodyBase64` instead.

    Raises:
        ProtocolError: the body cannot be unpacked.
    """
    return [_row(message) for message in to_message(decode_record(record), "")]


def _row(message: MessageExt) -> dict[str, Any]:
    row = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.commitlog_offset,
        "flag": message.flag,
        "sysFlag": message.sys_flag & KEPT_FLAGS,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": dict(message.properties),
    }
    try:
        row["body"] = message.body.decode()
    except UnicodeDecodeError:
        row["bodyBase64"] = base64.b64encode(message.body).decode()
    return row


def record_of(row: dict[str, Any]) -> NewRecord:
    """Return the message of a row, to be stored; fields of its old place are left out.

    Raises:
        ConfigError: a member is missing or has another type; the text has its name.
    """
    try:
        body = base64.b64decode(row["bodyBase64"]) if "bodyBase64" in row else row["body"]
        properties = {str(k): str(v) for k, v in dict(row.get("properties") or {}).items() if k not in _PLACED}
        born: Any = row.get("bornTimestamp")
        if born is None:  # the time is outside of the range of dates
            born = properties.pop(BORN_TIMESTAMP_MS, 0)
        if row.get("storeTimestamp") is None:
            properties.pop(STORE_TIMESTAMP_MS, None)
        host, _, port = str(row.get("bornHost") or "127.0.0.1:0").rpartition(":")
        return NewRecord(
            str(row["topic"]),
            int(row.get("queueId", 0)),
            body.encode() if isinstance(body, str) else bytes(body),
            encode_properties(properties),
            flag=int(row.get("flag", 0)),
            sys_flag=int(row.get("sysFlag", 0)) & KEPT_FLAGS,
            born_timestamp=int(born),
            born_host=address_bytes(host),
            born_port=int(port),
            reconsume_times=int(row.get("reconsumeTimes", 0)),
            tags_code=tags_code(properties.get(names.TAGS)),
            keys=properties.get(names.KEYS, ""),
            uniq_key=properties.get(names.UNIQ_KEY, ""),
        )
    except KeyError as error:
        raise ConfigError(f"member {error} is missing; a row has at least topic and body") from error
    except (TypeError, ValueError, ProtocolError) as error:
        raise ConfigError(f"a member has the wrong type ({error})") from error


def settings_of(root: Path, segment_bytes: int | None = None) -> StoreSettings:
    """Return settings that fit the files of a store; RocketMQ's defaults for missing files.

    Args:
        root: the store.
        segment_bytes: length of commit-log files in a store without any.

    Raises:
        StoreUnreadable: the store belongs to a member of a DLedger group.
    """
    if (member := member_folder(root)) is not None:
        raise StoreUnreadable(
            f"{member} holds the log of a member of a DLedger group, to which only the group's leader adds: send the "
            "messages to the group"
        )
    settings = StoreSettings(store_path_root_dir=str(root))
    lengths = {path.stat().st_size for path in segment_paths(root / "commitlog")} - {0}
    if lengths:
        settings.mapped_file_size_commit_log = max(lengths)
    elif segment_bytes is not None:
        settings.mapped_file_size_commit_log = segment_bytes
    for family, key in (("consumequeue", "consume_queue"), ("batchconsumequeue", "batch_consume_queue")):
        for path in root.glob(f"{family}/*/*/*"):
            if path.stat().st_size:
                prefix = "mapped" if family == "consumequeue" else "mapper"
                setattr(settings, f"{prefix}_file_size_{key}", path.stat().st_size)
                break
    for header in read_index_headers(root):
        file = ReadOnlySegment(header.path)
        slots = slots_of(header, file) if header.count > 1 else None
        if slots is not None:
            settings.max_hash_slot_num = slots
            settings.max_index_num = (len(file.view) - 40 - 4 * slots) // 20
            break
    return settings


class Importer:
    """Adds messages to a store that no broker has open.

    Args:
        root: the store; it is created if it is missing.
        segment_bytes: length of commit-log files in a new store.
        clock: source of store times.

    Attributes:
        counts: messages added to each topic and queue.
    """

    def __init__(self, root: Path, segment_bytes: int | None = None, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._root = root
        self._store = MessageStore(settings_of(root, segment_bytes), self._clock)
        self.counts: Counter[tuple[str, int]] = Counter()

    def __enter__(self) -> Self:
        self._store.open()
        return self

    def add(self, row: dict[str, Any]) -> None:
        """Store one message.

        Raises:
            ConfigError: the row is invalid.
            StoreError: the store refuses it.
        """
        record = record_of(row)
        result = self._store.append(record)
        if result.status is not PutStatus.PUT_OK:
            raise StoreError(f"{record.topic}/{record.queue_id}: {result.remark or result.status.name}")
        self.counts[record.topic, record.queue_id] += 1

    def __exit__(self, *_: object) -> None:
        self._store.close_now()
        self._add_topics()

    def _add_topics(self) -> None:
        """Add new topics to the broker's table, and raise the numbers of queues."""
        wanted: Counter[str] = Counter()
        for topic, queue_id in self.counts:
            wanted[topic] = max(wanted[topic], queue_id + 1)
        file = JsonFile(self._root / "config" / "topics.json")
        value = file.load() or {}
        table = value.setdefault("topicConfigTable", {})
        changed = False
        for topic, queues in wanted.items():
            config = table.get(topic)
            if config is None:
                config = table[topic] = {
                    "attributes": {}, "order": False, "perm": 6, "readQueueNums": 0, "topicFilterType": "SINGLE_TAG",
                    "topicName": topic, "topicSysFlag": 0, "writeQueueNums": 0,
                }  # fmt: skip
            for member in ("readQueueNums", "writeQueueNums"):
                if config.get(member, 0) < queues:
                    config[member] = queues
                    changed = True
        if changed:
            version = value.get("dataVersion") or {"counter": 0, "stateVersion": 0}
            value["dataVersion"] = {**version, "counter": version["counter"] + 1, "timestamp": self._clock.now_ms()}
            file.persist(value)
