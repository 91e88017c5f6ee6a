"""Properties of a plain message to store: its unique key, keys, tag, and whether the sender waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tianzhou._hot.cursors import NewRecord
from tianzhou.records.layout import INNER_BATCH_BITS

_PAIR_END = 2


class PropertyReader:
    """Reader of the property texts of plain messages (wire.md §4.3).

    Args:
        special: names of properties that no plain message has.
        tail: property pairs that are stored after those of every message.
        tags_code: returns the code of a tag.
    """

    __slots__ = ("_special", "_tags_code", "_tail")

    def __init__(self, special: frozenset[str], tail: bytes, tags_code: Callable[[str | None], int]) -> None:
        self._special = special
        self._tail = tail
        self._tags_code = tags_code

    def record(
        self, header: Any, body: bytes | memoryview, host: bytes, port: int, flags: int
    ) -> tuple[NewRecord, bool] | None:
        """Return the record of a send, and whether the sender waits for the disk; None when the message is not plain.

        A plain message has a unique key, none of the special properties, and a well-formed property string.

        Args:
            header: header of the request, `SendHeader` or `SendHeaderV2`.
            body: body of the message.
            host: the sender's address.
            port: the sender's port.
            flags: system flags to add.
        """
        if header.batch_text == "true" or header.sys_flag & INNER_BATCH_BITS or not body:
            return None
        text = header.properties
        try:
            pairs = dict([pair.split("\x01", 1) for pair in text.split("\x02") if pair])
            properties = text.encode()
        except (ValueError, AttributeError):
            return None
        unique = pairs.get("UNIQ_KEY")
        if not unique or not self._special.isdisjoint(pairs):
            return None
        properties += self._tail if properties[-1] == _PAIR_END else b"\x02" + self._tail
        tag = pairs.get("TAGS")
        record = NewRecord(
            header.topic,
            header.queue_id,
            body,  # type: ignore[arg-type]
            properties,
            header.flag,
            header.sys_flag | flags,
            header.born_timestamp,
            host,
            port,
            header.reconsume_times,
            0,
            self._tags_code(tag) if tag else 0,
            pairs.get("KEYS", ""),
            unique,
        )
        return record, pairs.get("WAIT") != "false"
