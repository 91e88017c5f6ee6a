"""Records, queues of bytes and configuration files that Apache's brokers left on disk."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from functools import cache

import pytest
from golden_stores import CASES, GOLDEN, check_body, manifest_of

from tianzhou.errors import CorruptRecord
from tianzhou.records import codec
from tianzhou.records.codec import Record
from tianzhou.records.layout import MAGIC_BLANK
from tianzhou.wire import json_dialect, pulled


@cache
def files_of(case: str) -> dict[str, bytes]:
    found = {}
    with tarfile.open(GOLDEN / f"{case}.tar.xz") as archive:
        for member in archive:
            name = member.name.removeprefix("store/")
            if member.isfile() and name.startswith(("commitlog/", "config/", "compaction/")):
                content = archive.extractfile(member)
                assert content is not None
                found[name] = content.read()
    return found


def records_of(case: str) -> Iterator[tuple[Record, bytes]]:
    for name, log in sorted(files_of(case).items()):
        if not name.startswith("commitlog/"):
            continue
        view = memoryview(log)
        at = 0
        while at < len(log):
            size, magic = codec.peek(log, at)
            if magic == MAGIC_BLANK:
                assert at + size == len(log)
                break
            if (size, magic) == (0, 0):
                # The rest of the last segment is untouched.
                with pytest.raises(CorruptRecord) as caught:
                    codec.decode_record(view, at)
                assert caught.value.size == -1
                break
            found = codec.decode_record(view, at, check_crc=True)
            assert found.physical_offset == int(name[-20:]) + at
            assert found == codec.decode_record(log, at)
            yield found, log[at : at + size]
            at += size


@pytest.mark.parametrize("case", CASES)
def test_records_come_out_byte_for_byte(case: str) -> None:
    n = 0
    for found, stored in records_of(case):
        assert found.size == len(stored)
        assert codec.encode_record(found) == stored
        n += 1
    assert n > 0


OF_RECORD = {
    "topic": "topic", "queue_id": "queueId", "commitlog_offset": "commitLogOffset", "store_size": "storeSize",
    "offset_msg_id": "msgId", "born_timestamp": "bornTimestamp", "store_timestamp": "storeTimestamp",
    "born_host": "bornHost", "store_host": "storeHost", "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset", "body_crc": "bodyCRC",
}  # fmt: skip
"""Attributes of a message, and how manifests call them."""


@pytest.mark.parametrize("case", CASES)
def test_records_say_what_the_official_decoder_found(case: str) -> None:
    stored = {found.physical_offset: found for found, _ in records_of(case)}
    expected = manifest_of(case)["messages"]
    for wanted in expected:
        found = stored[wanted["commitLogOffset"]]
        messages = pulled.to_message(found, "broker-a")
        if "inner" in wanted:
            assert len(messages) == len(wanted["inner"])
        for message, inner in zip(messages, wanted.get("inner", [wanted]), strict=True):
            assert message.queue_offset == inner["queueOffset"]
            assert message.flag == inner["flag"]
            assert message.properties == inner["properties"]
            assert message.msg_id == inner["uniqKey"] if "uniqKey" in inner else message.offset_msg_id
            assert message.tags == inner.get("tags")
            assert message.keys == inner.get("keys", "")
            check_body(message.body, inner)
            for name, member in OF_RECORD.items():
                assert getattr(message, name) == wanted[member], name
            assert message.sys_flag == wanted["sysFlag"] & ~1


def test_property_crcs_hold() -> None:
    checked = 0
    for found, stored in records_of("propcrc"):
        assert codec.verify_property_crc(stored)
        rebuilt = bytearray(stored)
        properties = codec.reserve_property_crc(found.properties)
        assert len(properties) == len(found.properties)
        rebuilt[-20:] = bytes(20)
        codec.fill_property_crc(rebuilt)
        assert rebuilt == stored
        checked += 1
    assert checked > 50
    assert not any(codec.verify_property_crc(stored) for _, stored in records_of("lmq"))


@pytest.mark.parametrize("case", CASES)
def test_configuration_files_come_out_byte_for_byte(case: str) -> None:
    compact = ("timermetrics", "transactionMetrics")
    for name, content in files_of(case).items():
        if name.startswith("commitlog/") or "timercheck" in name or not content:
            continue
        value = json_dialect.loads(content)
        if any(word in name for word in compact):
            assert json_dialect.dumps(value, sort_keys=False) == content, name
        else:
            assert json_dialect.dumps_pretty(value) == content, name
