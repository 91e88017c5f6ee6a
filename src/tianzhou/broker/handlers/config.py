"""Requests that show (26) and change (25) the configuration (broker.md §20.3)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from tianzhou.broker.changeable_settings import RULES
from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.ignored_settings import IGNORED
from tianzhou.broker.services import Services
from tianzhou.model import DataVersion
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.settings_request import SettingsRequests, log_update
from tianzhou.setting_updates import Update
from tianzhou.settings import differing, dump, format_properties
from tianzhou.wire.bodies.topics import DATA_VERSION
from tianzhou.wire.codes import AT_NEXT_START, RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_reply

_log = logging.getLogger(__name__)
_ALWAYS_REFUSED: Final = frozenset({"configBlackList", "brokerConfigPath"})


class ConfigHandler(Handler):
    """Handler that shows and changes settings.

    Args:
        services: the broker's services.
        config_file: the configuration file; every update rewrites it completely.
        changed: callback with the keys after settings were changed.
    """

    def __init__(self, services: Services, config_file: Path, changed: Callable[[set[str]], None]) -> None:
        super().__init__(services)
        self._config_file = config_file
        self._changed = changed
        self._version = DataVersion(0, self._clock.now_ms())
        settings = self._tables.settings, self._store.settings
        self._requests = SettingsRequests(RULES, self._tables.refusals, lambda: settings, self._take)

    @serves(RequestCode.GET_BROKER_CONFIG)
    def config(self, connection: Connection, command: Command) -> Reply:
        """Return every key with its value."""
        version = DATA_VERSION.dumps(self._version).decode()
        body = format_properties(dump(self._tables.settings, self._store.settings, hide_secrets=True)).encode()
        return command.reply(ResponseCode.SUCCESS, None, write_reply(command.code, version=version), body)

    @serves(RequestCode.UPDATE_BROKER_CONFIG)
    async def update_config(self, connection: Connection, command: Command) -> Reply:
        """Set the existing keys, and write the complete configuration to its file."""
        settings = self._tables.settings
        at_next_start = command.fields.get(AT_NEXT_START) == "true"
        serve = self._requests.keep if at_next_start else self._requests.change
        update = await serve(
            bytes(command.body),
            self._config_file,
            black_list=_ALWAYS_REFUSED | {key.strip() for key in settings.config_black_list.split(";")},
            refusal=lambda key: f"Can not update config in black list: {key}",
        )
        if at_next_start:
            keys = ", ".join(sorted(update.changed))
            _log.info("%s: settings for the next start were written by %s: %s", self._config_file, connection, keys)
            return command.reply(ResponseCode.SUCCESS, None, {AT_NEXT_START: "true"})
        log_update(_log, connection, update, differing(settings, self._store.settings), IGNORED)
        return command.reply(ResponseCode.SUCCESS)

    def _take(self, update: Update) -> None:
        for one, fresh in zip((self._tables.settings, self._store.settings), update.settings, strict=True):
            _assign(one, fresh)
        if update.changed:
            self._version = self._version.next(self._clock.now_ms())
            self._changed(set(update.changed))


def _assign(settings: Any, updated: Any) -> None:
    """Assign the values of an updated copy in place."""
    for field in fields(settings):
        value = getattr(updated, field.name)
        if value != getattr(settings, field.name):
            setattr(settings, field.name, value)
