"""The body of a change entry: changes of the broker's tables as JSON (docs/adr/0024). Pure.

An entry contains values after the change, never differences. So a member may apply entries again from any earlier one
on, and gets the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tianzhou.errors import ProtocolError

TOPIC: Final = "topic"
GROUP: Final = "group"
FORBIDDEN: Final = "forbidden"
USER: Final = "user"
SETTING: Final = "setting"
WAITING: Final = "waiting"
DELAY: Final = "delay"
SEND_LIMIT: Final = "sendLimit"
TABLES: Final = (TOPIC, GROUP, FORBIDDEN, USER, SETTING, WAITING, DELAY, SEND_LIMIT)
"""Tables whose entries are set and deleted by key; the table of offsets has members of its own in an entry."""


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """Position of an entry in a snapshot of all tables.

    Attributes:
        id: the snapshot, unique in the log.
        first: whether this is the first entry of the snapshot.
        last: whether this is the last entry of the snapshot.
        complete: whether the leader had all tables. A member then deletes the entries that the snapshot lacks.
    """

    id: str
    first: bool
    last: bool
    complete: bool


@dataclass(slots=True)
class TableChange:
    """Changes of the tables.

    Attributes:
        sets: new values by table and key.
        deleted: keys of deleted entries by table.
        forgotten: each `topic@group` whose offsets are deleted before the entry's other offsets are set.
        larger: committed offsets by `topic@group` and queue. The larger of the entry's and the member's offset counts.
        exact: offsets that were reset and offsets of a snapshot, by `topic@group` and queue. The entry's offset counts.
        snapshot: place of the entry in a snapshot; None for a change.
    """

    sets: dict[str, dict[str, Any]] = field(default_factory=dict)
    deleted: dict[str, list[str]] = field(default_factory=dict)
    forgotten: list[str] = field(default_factory=list)
    larger: dict[str, dict[int, int]] = field(default_factory=dict)
    exact: dict[str, dict[int, int]] = field(default_factory=dict)
    snapshot: TableSnapshot | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the entry would have no effect."""
        return not (self.sets or self.deleted or self.forgotten or self.larger or self.exact or self.snapshot)


def encode_change(change: TableChange) -> bytes:
    """Return the body of a change entry."""
    members: dict[str, Any] = {
        name: value for name in ("sets", "deleted", "forgotten", "larger", "exact") if (value := getattr(change, name))
    }
    if change.snapshot is not None:
        one = change.snapshot
        members["snapshot"] = {"id": one.id, "first": one.first, "last": one.last, "complete": one.complete}
    return msgspec.json.encode(members)


def decode_change(body: bytes) -> TableChange:
    """Return the changes of a body.

    Raises:
        ProtocolError: the body has another form; another version of Tianzhou may have written it.
    """
    try:
        found = msgspec.json.decode(body)
        mark = found.get("snapshot")
        return TableChange(
            {table: dict(entries) for table, entries in found.get("sets", {}).items()},
            {table: list(keys) for table, keys in found.get("deleted", {}).items()},
            list(found.get("forgotten", ())),
            offsets_of(found.get("larger", {})),
            offsets_of(found.get("exact", {})),
            None if mark is None else TableSnapshot(mark["id"], mark["first"], mark["last"], mark["complete"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"a change entry of {len(body)} bytes holds no changes of tables: {error}") from error


def offsets_of(value: Mapping[str, Mapping[Any, Any]]) -> dict[str, dict[int, int]]:
    """Return offsets by `topic@group` and queue, of a JSON value whose keys are text.

    Raises:
        TypeError, ValueError, AttributeError: the value has another shape.
    """
    return {key: {int(queue): int(offset) for queue, offset in queues.items()} for key, queues in value.items()}


class OpenSnapshot:
    """A snapshot whose last entry has not arrived, and the keys that exist at its end.

    Args:
        mark: the first entry's place.
        index: index of the first entry.

    Attributes:
        mark: the first entry's place.
        index: index of the first entry.
        keys: keys by table that the snapshot and the changes since its first entry have set.
        offsets: each `topic@group` that the snapshot and the changes since its first entry have set.
    """

    def __init__(self, mark: TableSnapshot, index: int) -> None:
        self.mark = mark
        self.index = index
        self.keys: dict[str, set[str]] = {table: set() for table in TABLES}
        self.offsets: set[str] = set()

    def add(self, change: TableChange) -> None:
        """Note the keys that an entry sets and deletes."""
        for table, keys in change.deleted.items():
            self.keys.get(table, set()).difference_update(keys)
        for table, entries in change.sets.items():
            self.keys.get(table, set()).update(entries)
        self.offsets.difference_update(change.forgotten)
        self.offsets.update(change.larger)
        self.offsets.update(change.exact)


def following_snapshot(present: OpenSnapshot | None, change: TableChange, index: int) -> OpenSnapshot | None:
    """Return the snapshot that is open after an entry, before its last entry has its effect.

    Args:
        present: the open snapshot before the entry.
        change: the entry's changes.
        index: the entry's index.
    """
    mark = change.snapshot
    if mark is not None and mark.first:
        present = OpenSnapshot(mark, index)
    elif mark is not None and (present is None or present.mark.id != mark.id):
        # The snapshot's first entries are no longer in the log, or another leader has begun a new snapshot.
        return present
    if present is not None:
        present.add(change)
    return present
