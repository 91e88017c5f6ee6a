"""The tables of a member of a group, as keys and values that change entries hold (`table_entries`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from tianzhou.access.user_table import user_entry
from tianzhou.broker.replication.table_entries import (
    DELAY,
    FORBIDDEN,
    GROUP,
    SEND_LIMIT,
    SETTING,
    TABLES,
    TOPIC,
    USER,
    WAITING,
    OpenSnapshot,
    TableChange,
    offsets_of,
)
from tianzhou.broker.state import Tables
from tianzhou.errors import TianzhouError
from tianzhou.model.send_limit import decode_limit
from tianzhou.remoting.users.user_store import UserStore
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP
from tianzhou.wire.bodies.topics import TOPIC_CONFIG

BROKER_PERMISSION: Final = "brokerPermission"
"""Setting that the members share once a request has changed it."""

_log = logging.getLogger(__name__)


class MemberTables:
    """Access to the tables of this broker by table name and key.

    Args:
        tables: the broker's tables.
        users: its users and policies; None when it has none.
        now_ms: wall-clock time.

    Attributes:
        settings: values of settings that the members share, by RocketMQ's key.
    """

    def __init__(self, tables: Tables, users: UserStore | None, now_ms: Callable[[], int]) -> None:
        self._tables = tables
        self._users = users
        self._now_ms = now_ms
        self.settings: dict[str, int] = {}

    def note_setting(self) -> None:
        """Note the broker's changed permission as a setting that the members share."""
        self.settings[BROKER_PERMISSION] = self._tables.settings.broker_permission

    # reading

    def version(self, table: str) -> object:
        """Return a value that differs when a table may have changed."""
        tables = self._tables
        if table == TOPIC:
            return tables.topics.version
        if table in {GROUP, FORBIDDEN}:
            return tables.groups.version, len(tables.groups.forbidden)
        if table == USER:
            return None if self._users is None else id(self._users.table)
        if table == SEND_LIMIT:
            return tables.send_limits.version
        return object()  # small tables: compared each time

    def entries(self, table: str) -> Mapping[str, Any]:
        """Return the keys of a table with values that are equal only for equal entries; read-only."""
        tables = self._tables
        if table == TOPIC:
            return tables.topics.all()
        if table == GROUP:
            return tables.groups.all()
        if table == FORBIDDEN:
            return {group: dict(topics) for group, topics in tables.groups.forbidden.items()}
        if table == USER:
            users = None if self._users is None else self._users.table
            return {} if users is None else {name: (user, users.acls.get(name)) for name, user in users.users.items()}
        if table == SETTING:
            return dict(self.settings)
        if table == SEND_LIMIT:
            return tables.send_limits.all()
        if table == WAITING:
            return {key: dict(queues) for key, queues in tables.offsets.resets.items()}
        return {str(level): offset for level, offset in self.delays().items()}

    def keys(self) -> list[tuple[str, str]]:
        """Return the tables and keys of all entries."""
        return [(table, key) for table in TABLES for key in self.entries(table)]

    def delays(self) -> dict[int, int]:
        """Return the positions of delay levels whose deliveries are flushed."""
        table: dict[int, int] = self._tables.delays.to_file()["offsetTable"]
        return table

    def encoded(self, table: str, key: str, value: Any) -> Any:
        """Return the JSON value of an entry."""
        if table == TOPIC:
            return TOPIC_CONFIG.encode(value)
        if table == GROUP:
            return SUBSCRIPTION_GROUP.encode(value)
        if table == USER:
            assert self._users is not None
            return user_entry(self._users.table, key)
        return value.to_json() if table == SEND_LIMIT else value

    # changing

    async def apply(self, change: TableChange) -> None:
        """Apply the changes of an entry.

        Raises:
            ConfigError: the users' file cannot be written; applying the entry again is safe.
        """
        users = change.sets.get(USER, {}), change.deleted.get(USER, [])
        if self._users is not None and any(users):
            await self._users.take_entries(*users)
        for table in TABLES:
            sets, deleted = change.sets.get(table), change.deleted.get(table)
            if table != USER and (sets or deleted):
                try:
                    self._apply(table, sets or {}, deleted or [])
                except (TianzhouError, TypeError, ValueError, KeyError, AttributeError) as error:
                    _log.error("a change of the table %s in the group's log cannot be taken: %s", table, error)
        offsets = self._tables.offsets
        if change.forgotten or change.larger or change.exact:
            offsets.take_logged(change.larger, change.exact, change.forgotten)

    def _apply(self, table: str, sets: Mapping[str, Any], deleted: Iterable[str]) -> None:
        tables, now_ms = self._tables, self._now_ms()
        if table == TOPIC:
            found = [TOPIC_CONFIG.decode(value) for value in sets.values()]
            tables.topics.put_all(found, now_ms, bounded=False)
            gone = [name for name in deleted if not tables.topics.is_system(name)]
            tables.topics.delete(gone, now_ms)
            for name in gone:
                tables.filters.forget_topic(name)
        elif table == GROUP:
            tables.groups.put_all([SUBSCRIPTION_GROUP.decode(value) for value in sets.values()], now_ms, bounded=False)
            for name in deleted:
                tables.groups.delete(name, now_ms)
        elif table == FORBIDDEN:
            values = {group: {topic: int(bits) for topic, bits in topics.items()} for group, topics in sets.items()}
            tables.groups.set_forbidden(values, deleted, now_ms)
        elif table == SETTING:
            self.take_settings({key: int(value) for key, value in sets.items()})
        elif table == SEND_LIMIT:
            tables.send_limits.put([decode_limit(key, value) for key, value in sets.items()], bounded=False)
            tables.send_limits.delete(deleted)
        elif table == WAITING:
            tables.offsets.set_waiting(offsets_of(sets), deleted)
        elif table == DELAY:
            tables.delays.merge({"offsetTable": dict(sets)})

    def take_settings(self, settings: Mapping[str, int]) -> None:
        """Apply settings that the members share."""
        permission = settings.get(BROKER_PERMISSION)
        if permission is None:
            return
        self.settings[BROKER_PERMISSION] = permission
        if self._tables.settings.broker_permission != permission:
            _log.warning(
                "brokerPermission=%d is in force, as a request has set it for the group; the configuration file of this"
                " member says %d", permission, self._tables.settings.broker_permission,
            )  # fmt: skip
            self._tables.settings.broker_permission = permission
            self._tables.topics.touch(self._now_ms())

    async def delete_others(self, snapshot: OpenSnapshot) -> None:
        """Delete the entries that are neither in a complete snapshot nor in the changes since its begin.

        Raises:
            ConfigError: the users' file cannot be written.
        """
        for table in (TOPIC, GROUP, FORBIDDEN, USER, WAITING, SEND_LIMIT):
            if table == USER and not snapshot.keys[USER]:
                continue  # the leader's access control is off
            gone = [key for key in self.entries(table) if key not in snapshot.keys[table]]
            if gone:
                await self.apply(TableChange(deleted={table: gone}))
        self._tables.offsets.keep_only(snapshot.offsets)


class LoggedTables:
    """Comparison of a leader's tables with the entries in the log.

    Args:
        tables: tables of this member.
    """

    def __init__(self, tables: MemberTables) -> None:
        self._tables = tables
        self._versions: dict[str, object] = {}
        self._logged: dict[str, dict[str, Any]] = {}

    def begin(self) -> list[tuple[str, str]]:
        """Assume that the log has the present tables; return their tables and keys for a snapshot."""
        self._versions = {table: self._tables.version(table) for table in TABLES}
        self._logged = {table: dict(self._tables.entries(table)) for table in TABLES}
        return self._tables.keys()

    def changed(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each table with changed entries and their keys."""
        for table in TABLES:
            version = self._tables.version(table)
            if version == self._versions.get(table):
                continue
            present, logged = self._tables.entries(table), self._logged[table]
            # Compare identities first, because most values are the same objects.
            keys = [key for key, value in present.items() if (last := logged.get(key)) is not value and last != value]
            keys += [key for key in logged if key not in present]
            if keys:
                yield table, keys
            self._versions[table] = version

    def recheck(self) -> None:
        """Compare all tables the next time, because the log may lack changes that `changed` returned."""
        self._versions.clear()

    def change_of(self, table: str, keys: Iterable[str]) -> tuple[TableChange, dict[str, Any]]:
        """Return the change that sets entries to their present values, and these values by key."""
        present, change = self._tables.entries(table), TableChange()
        values = {key: present[key] for key in keys if key in present}
        if values:
            change.sets[table] = {key: self._tables.encoded(table, key, value) for key, value in values.items()}
        if gone := [key for key in keys if key not in present]:
            change.deleted[table] = gone
        return change, values

    def note(self, table: str, keys: Iterable[str], values: Mapping[str, Any]) -> None:
        """Note that the log has the values of entries."""
        for key in keys:
            if key in values:
                self._logged[table][key] = values[key]
            else:
                self._logged[table].pop(key, None)
