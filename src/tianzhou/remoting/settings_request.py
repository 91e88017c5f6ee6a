"""Settings changed by request while a server runs: saved and applied as a whole, or not at all (wire.md §8)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from tianzhou.escaping import shown
from tianzhou.limits import Refusals
from tianzhou.remoting.connection import Connection
from tianzhou.setting_files import write_settings
from tianzhou.setting_rules import Rules
from tianzhou.setting_updates import Update, judge, read_update
from tianzhou.settings import MAX_SUGGESTIONS, dump, ignored_lines
from tianzhou.supervision import start_owned


class SettingsRequests:
    """Handler of requests that change a server's settings; it handles one at a time.

    Args:
        rules: rules for the values of settings.
        refusals: counts requests that are too large.
        present: returns the settings in force.
        take: applies changed settings; must not raise.
    """

    def __init__(
        self,
        rules: Rules,
        refusals: Refusals,
        present: Callable[[], Iterable[Any]],
        take: Callable[[Update], None],
    ) -> None:
        self._rules = rules
        self._refusals = refusals
        self._present = present
        self._take = take
        self._one_at_a_time = asyncio.Lock()
        self._at_next_start: dict[str, str] = {}

    async def change(
        self, body: bytes, file: Path, *, black_list: Collection[str], refusal: Callable[[str], str]
    ) -> Update:
        """Save the changed settings to the file, then apply them.

        Args:
            body: body of the request.
            file: the settings file.
            black_list: keys that may never be changed.
            refusal: returns the error text for a key of `black_list`.

        Raises:
            SettingFixed: a key may not be changed while the server runs.
            ConfigError: a value is invalid, or the file cannot be written.
            LimitExceeded: the request is too large.
        """

        async def change() -> Update:
            async with self._one_at_a_time:
                values = read_update(body, self._refusals)
                update = judge(self._rules, values, self._present(), black_list, refusal)
                if update.changed:
                    for key in update.changed:
                        self._at_next_start.pop(key, None)
                    # In a thread, because the disk may be slow.
                    written = dump(*update.settings) | self._at_next_start
                    await asyncio.to_thread(write_settings, file, written, update.changed)
                self._take(update)
                return update

        # Shield against a lost connection, because file and memory must not differ afterwards.
        return await asyncio.shield(start_owned(change(), f"settings file {file}"))

    async def keep(
        self, body: bytes, file: Path, *, black_list: Collection[str], refusal: Callable[[str], str]
    ) -> Update:
        """Save settings to the file for the next start, and leave the running settings alone.

        Args:
            body: see `change`.
            file: see `change`.
            black_list: see `change`.
            refusal: see `change`.

        Raises:
            SettingFixed: a key may never be changed by request.
            ConfigError: a value is invalid, a start would refuse the file, or the file cannot be written.
            LimitExceeded: the request is too large.
        """

        async def keep() -> Update:
            async with self._one_at_a_time:
                values = read_update(body, self._refusals)
                update = judge(
                    self._rules, self._at_next_start | values, self._present(), black_list, refusal, at_next_start=True
                )
                after = dump(*update.settings)
                kept = self._at_next_start | {key: after[key] for key in values if key in after}
                before = dump(*self._present())
                await asyncio.to_thread(write_settings, file, before | kept, kept.keys())
                self._at_next_start = kept
                return update

        return await asyncio.shield(start_owned(keep(), f"settings file {file}"))


def log_update(
    log: logging.Logger,
    connection: Connection,
    update: Update,
    set_keys: Collection[str],
    ignored: Mapping[str, Collection[str]],
) -> None:
    """Log the changed settings, the peer that changed them, and the changes without effect.

    Args:
        log: logger of the server.
        connection: the peer that changed them.
        update: the changes.
        set_keys: the keys whose values differ from the defaults now.
        ignored: maps a reason to the keys without effect.
    """
    values = dump(*update.settings, hide_secrets=True)
    if update.changed:
        texts = ", ".join(f"{key}={shown(values[key])}" for key in sorted(update.changed))
        log.info("configuration update by %s: %s", connection, texts)
    for at, (key, near) in enumerate(update.unknown.items()):
        if at == MAX_SUGGESTIONS:
            log.warning("configuration update: %d more unknown keys ignored", len(update.unknown) - at)
            break
        meant = f"; meant {near}?" if near else ""
        log.warning("configuration update: unknown key %s ignored%s", shown(key), meant)
    for line in ignored_lines(update.changed.intersection(set_keys), ignored):
        log.warning("configuration update: %s", line)
