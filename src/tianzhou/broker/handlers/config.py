"""The configuration: shown (26) and changed (25) (broker.md §20.3)."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from tianzhou.broker.idle_settings import IDLE
from tianzhou.broker.tables import Tables
from tianzhou.clock import Clock
from tianzhou.errors import BrokerError, ConfigError
from tianzhou.model import DataVersion
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.settings import (
    apply,
    differing,
    dump,
    format_properties,
    idle_lines,
    key_of,
    parse_properties,
    unknown_keys,
)
from tianzhou.store.store import MessageStore
from tianzhou.wire.bodies import encode_data_version
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_reply

_log = logging.getLogger(__name__)
_ALWAYS_REFUSED = frozenset({"configBlackList", "brokerConfigPath"})


class ConfigHandler:
    """Shows and changes settings.

    Args:
        tables: the broker's state.
        store: its settings are part of the configuration.
        clock: wall-clock time.
        config_file: where the configuration is kept; every update rewrites it whole.
        changed: called after settings were changed, with their keys.
    """

    def __init__(
        self,
        tables: Tables,
        store: MessageStore,
        clock: Clock,
        config_file: Path,
        changed: Callable[[set[str]], None],
    ) -> None:
        self._tables = tables
        self._store = store
        self._clock = clock
        self._config_file = config_file
        self._changed = changed
        self._version = DataVersion(0, clock.now_ms())

    def routes(self) -> dict[int, Callable[[Connection, Command], Reply | Awaitable[Reply]]]:
        """Request codes and who serves them."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.config,
        }

    def config(self, connection: Connection, command: Command) -> Reply:
        """Every key with its value."""
        version = encode_data_version(self._version).decode()
        body = format_properties(dump(self._tables.settings, self._store.settings)).encode()
        return command.reply(ResponseCode.SUCCESS, None, write_reply(command.code, version=version), body)

    def update_config(self, connection: Connection, command: Command) -> Reply:
        """Set the keys that exist, and write the whole configuration to its file."""
        settings = self._tables.settings
        try:
            values = parse_properties(bytes(command.body).decode("utf-8"), source="request")
        except (UnicodeDecodeError, ConfigError) as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the configuration cannot be read: {error}") from None
        refused = _ALWAYS_REFUSED | {key.strip() for key in settings.config_black_list.split(";")}
        for key in values:
            if key in refused:
                raise BrokerError(ResponseCode.NO_PERMISSION, f"Can not update config in black list: {key}")
        try:
            # All are read before any is set.
            updated = [(one, apply(one, values, source="request")) for one in (settings, self._store.settings)]
        except ConfigError as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        for key, near in unknown_keys(values, type(settings), type(self._store.settings)).items():
            _log.warning("configuration update: unknown key %s ignored%s", key, f"; meant {near}?" if near else "")
        changed: set[str] = set()
        for one, fresh in updated:
            changed |= _assign(one, fresh)
        if changed:
            self._version = self._version.next(self._clock.now_ms())
            self._write()
            self._changed(changed)
            for line in idle_lines(changed.intersection(differing(settings, self._store.settings)), IDLE):
                _log.warning("configuration update: %s", line)
        return command.reply(ResponseCode.SUCCESS)

    def _write(self) -> None:
        text = format_properties(dump(self._tables.settings, self._store.settings))
        path = self._config_file
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".tmp")
        fresh.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copyfile(path, path.with_name(path.name + ".bak"))
        fresh.replace(path)


def _assign(settings: Any, updated: Any) -> set[str]:
    """Take over the values of an updated copy, in place; returns the keys whose value changed."""
    changed: set[str] = set()
    for field in fields(settings):
        value = getattr(updated, field.name)
        if value != getattr(settings, field.name):
            setattr(settings, field.name, value)
            changed.add(key_of(field))
    return changed
