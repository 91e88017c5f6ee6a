"""Stores of Apache's brokers, their manifests, and helpers to write them again."""

from __future__ import annotations

import base64
import hashlib
import json
import tarfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tianzhou.records.codec import Record, decode_record
from tianzhou.settings import bind
from tianzhou.store import MessageStore, NewRecord, StoreSettings
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.ids import host_text, offset_msg_id
from tianzhou.wire.properties import decode_properties, get_property

GOLDEN = Path(__file__).parents[1] / "golden" / "store"
CASES = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz"))
GIVEN_BY_THE_STORE = ("INNER_BASE", "INNER_MULTI_QUEUE_OFFSET")


@cache
def manifest_of(case: str) -> dict[str, Any]:
    """Return the manifest of a store, from Apache's answers."""
    manifest: dict[str, Any] = json.loads((GOLDEN / f"{case}.json").read_bytes())
    return manifest


def unpacked(case: str, folder: Path) -> Path:
    """Return the folder of a store, unpacked into another folder."""
    with tarfile.open(GOLDEN / f"{case}.tar.xz") as archive:
        archive.extractall(folder)
    return folder / "store"


def settings_of(case: str, root: Path) -> StoreSettings:
    """Return the settings of the broker that wrote the store, for a store in another folder."""
    settings = bind(StoreSettings, manifest_of(case)["brokerConf"])
    settings.store_path_root_dir = str(root)
    return settings


def queue_of(message: dict[str, Any]) -> tuple[str, int]:
    """Return the queue from which a message of a manifest was pulled."""
    return message.get("pulledFromTopic", message["topic"]), message.get("pulledFromQueueId", message["queueId"])


def check_body(body: bytes, expected: dict[str, Any]) -> None:
    assert len(body) == expected["bodyLength"]
    if "body" in expected:
        assert body == base64.b64decode(expected["body"])
    else:
        assert hashlib.sha256(body).hexdigest() == expected["bodySha256"].lower()


def check_record(record: Record, expected: dict[str, Any]) -> None:
    """Check that a record agrees with a manifest's message."""
    found = {
        "topic": record.topic, "queueId": record.queue_id, "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset, "storeSize": record.size, "flag": record.flag,
        "sysFlag": record.sys_flag, "bornTimestamp": record.born_timestamp,
        "bornHost": host_text(record.born_host, record.born_port), "storeTimestamp": record.store_timestamp,
        "storeHost": host_text(record.store_host, record.store_port), "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset, "bodyCRC": record.body_crc,
        "properties": decode_properties(record.properties),
        "msgId": offset_msg_id(record.store_host, record.store_port, record.physical_offset),
    }  # fmt: skip
    assert found == {name: expected[name] for name in found}


def check_keys(store: MessageStore, manifest: dict[str, Any]) -> None:
    """Check that look-ups by key have Apache's results."""
    for asked in manifest["queryByKey"]:
        bounds = int(asked["max"]), int(asked["begin"]), int(asked["end"])
        result = at_once(store.lookups.key_steps(asked["topic"], asked["key"], *bounds))
        assert result.physical_offsets == asked["physicalOffsets"]
        assert [decode_record(part).physical_offset for part in result.parts] == asked["physicalOffsets"]
        if "ext" in asked:
            assert str(result.index_last_update_timestamp) == asked["ext"]["indexLastUpdateTimestamp"]
            assert str(result.index_last_update_phyoffset) == asked["ext"]["indexLastUpdatePhyoffset"]


class RecordedClock:
    """A clock that returns the times of the golden records in turn."""

    def __init__(self) -> None:
        self.now = 0

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


def as_new(record: Record) -> NewRecord:
    """Return the record as a broker puts it, without the values that the store assigns."""
    properties = record.properties
    for name in GIVEN_BY_THE_STORE:
        value = get_property(properties, name)
        if value is not None:
            properties = properties.replace(f"{name}\x01{value}\x02".encode(), f"{name}\x01?\x02".encode())
    known = {name: getattr(record, name) for name in NewRecord.__struct_fields__ if hasattr(record, name)}
    return NewRecord(
        **known | {"properties": properties},
        tags_code=tags_code(get_property(properties, "TAGS")),
        keys=get_property(properties, "KEYS") or "",
        uniq_key=get_property(properties, "UNIQ_KEY") or "",
    )


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check_same_files(ours: Path, golden: Path, folders: Iterable[str]) -> None:
    """Check that the files of two stores are equal; names of index files may differ, because they contain the creation
    time.
    """
    for folder in folders:
        assert files_below(ours / folder) == files_below(golden / folder)
    assert list(files_below(ours / "index").values()) == list(files_below(golden / "index").values())
    assert (ours / "checkpoint").read_bytes() == (golden / "checkpoint").read_bytes()
