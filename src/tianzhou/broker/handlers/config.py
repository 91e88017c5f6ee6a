"""The configuration: shown (26) and changed (25) (broker.md §20.3)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from tianzhou.broker.changeable_settings import RULES
from tianzhou.broker.ignored_settings import IGNORED
from tianzhou.broker.state import Tables
from tianzhou.clock import Clock
from tianzhou.model import DataVersion
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.settings_request import SettingsRequests, log_update
from tianzhou.setting_updates import Update
from tianzhou.settings import differing, dump, format_properties
from tianzhou.store.store import MessageStore
from tianzhou.wire.bodies.topics import DATA_VERSION
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_reply

_log = logging.getLogger(__name__)
_ALWAYS_REFUSED: Final = frozenset({"configBlackList", "brokerConfigPath"})


class ConfigHandler:
    """Shows and changes settings.

    Args:
        tables: the broker's state.
        store: its settings are part of the configuration.
        clock: wall-clock time.
        config_file: the configuration file; every update rewrites it whole.
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
        self._requests = SettingsRequests(RULES, tables.refusals, lambda: (tables.settings, store.settings), self._take)

    def routes(self) -> dict[int, Callable[[Connection, Command], Reply | Awaitable[Reply]]]:
        """Handlers by request code."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.config,
        }

    def config(self, connection: Connection, command: Command) -> Reply:
        """Every key with its value."""
        version = DATA_VERSION.dumps(self._version).decode()
        body = format_properties(dump(self._tables.settings, self._store.settings, hide_secrets=True)).encode()
        return command.reply(ResponseCode.SUCCESS, None, write_reply(command.code, version=version), body)

    async def update_config(self, connection: Connection, command: Command) -> Reply:
        """Set the keys that exist, and write the whole configuration to its file."""
        settings = self._tables.settings
        update = await self._requests.change(
            bytes(command.body),
            self._config_file,
            black_list=_ALWAYS_REFUSED | {key.strip() for key in settings.config_black_list.split(";")},
            refusal=lambda key: f"Can not update config in black list: {key}",
        )
        log_update(_log, connection, update, differing(settings, self._store.settings), IGNORED)
        return command.reply(ResponseCode.SUCCESS)

    def _take(self, update: Update) -> None:
        for one, fresh in zip((self._tables.settings, self._store.settings), update.settings, strict=True):
            _assign(one, fresh)
        if update.changed:
            self._version = self._version.next(self._clock.now_ms())
            self._changed(set(update.changed))


def _assign(settings: Any, updated: Any) -> None:
    """Take over the values of an updated copy, in place."""
    for field in fields(settings):
        value = getattr(updated, field.name)
        if value != getattr(settings, field.name):
            setattr(settings, field.name, value)
