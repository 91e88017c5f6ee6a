"""Rule files of RocketMQ 4.x on the disk: read, watched by content, and changed for administrators (broker.md §22.1).

The files of the folder come first, then `plain_acl.yml`, as RocketMQ reads them. Whatever cannot be used leaves the
rules before in force.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tianzhou.access.plain_config import MAX_FILE, Account, PlainConfig, check_account, format_config, parse_config
from tianzhou.access.plain_rules import PlainRules
from tianzhou.access.requests import AccessRequest
from tianzhou.access.resources import PlainNeed
from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import ConfigError, Faults
from tianzhou.file_modes import OWN_ONLY, replace_file
from tianzhou.model import DataVersion
from tianzhou.remoting.side_thread import ASIDE

WATCH_S: Final = 5.0
"""Seconds between two looks at the files, as RocketMQ's."""
MAX_FILES: Final = 256
"""Files below `conf/acl/` that are read."""
_ENDINGS: Final = (".yml", ".yaml")
_log = logging.getLogger(__name__)


class _Read(NamedTuple):
    contents: dict[Path, bytes]
    configs: dict[Path, PlainConfig]
    rules: PlainRules


class PlainFiles:
    """The rules of the files, as they are now (`AccessRules`).

    Args:
        file: `plain_acl.yml`.
        folder: `conf/acl`; it need not be there.
        needs: what a request needs of an account.
        clock: time of changes, for the version of a file.
        own: an account of the server's own, which is in no file.

    Raises:
        ConfigError: there is no file, no account in them, or one cannot be read. RocketMQ makes an empty file instead,
            and refuses everybody.
    """

    def __init__(
        self,
        file: Path,
        folder: Path,
        needs: Callable[[AccessRequest], PlainNeed],
        clock: Clock | None = None,
        own: Account | None = None,
    ) -> None:
        self.file = file
        self._folder = folder
        self._needs = needs
        self._own = PlainConfig(accounts=(own,)) if own is not None else PlainConfig()
        self._clock = clock or SystemClock()
        self._changing = asyncio.Lock()
        self._broken = ""
        contents = _contents(file, folder)
        if not contents:
            raise ConfigError(
                f"aclEnable=true: there is neither {file} nor a .yml file below {folder}; make one with an account that"
                " has admin: true, or remove aclEnable"
            )
        self._read = self._parsed(contents)
        self._warn()

    @property
    def rules(self) -> PlainRules:
        """The rules in force."""
        return self._read.rules

    @property
    def configs(self) -> dict[Path, PlainConfig]:
        """What the files say, in the order of their reading."""
        return self._read.configs

    @property
    def broken(self) -> str:
        """Why the files as they are now are not in force; empty when they are."""
        return self._broken

    @property
    def epoch(self) -> object:
        """See `AccessRules.epoch`: the rules in force."""
        return self._read.rules

    def secret_of(self, account: str) -> str | None:
        """See `PlainRules.secret_of`."""
        return self._read.rules.secret_of(account)

    def identify(self, request: AccessRequest) -> str:
        """See `PlainRules.identify`."""
        return self._read.rules.identify(request)

    def check(self, request: AccessRequest) -> str:
        """See `PlainRules.check`."""
        return self._read.rules.check(request)

    def check_parts(self, request: AccessRequest, parts: Iterable[AccessRequest]) -> Iterator[None]:
        """See `AccessRules.check_parts`."""
        return self._read.rules.check_parts(request, parts)

    def is_admin(self, account: str) -> bool:
        """See `PlainRules.is_admin`."""
        return self._read.rules.is_admin(account)

    def versions(self) -> dict[str, DataVersion]:
        """Version of each file by its path."""
        return {str(path): config.data_version for path, config in self._read.configs.items()}

    async def watch(self) -> None:
        """Look at the files every `WATCH_S` seconds, for ever; for `Supervisor.own`."""
        while True:
            await asyncio.sleep(WATCH_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Put the files in force when their content has changed; broken ones are logged once."""
        async with self._changing:
            try:
                found = await ASIDE.run(self._look)
            except (ConfigError, OSError) as error:
                if str(error) != self._broken:
                    self._broken = str(error)
                    _log.error("access rules stay as they were: %s", error)
                return
            if self._broken:
                self._broken = ""
                _log.warning("access rules of %s can be read again", self.file)
            if found is not None:
                self._take(found)

    async def update_account(self, access_key: str, changed: Callable[[Account], Account]) -> None:
        """Change an account in the file that has it, or make one in `plain_acl.yml`.

        Args:
            access_key: its name.
            changed: the account as it shall be, from what it is.

        Raises:
            ConfigError: it cannot be so, or the files cannot be read.
            OSError: the file cannot be written.
        """
        async with self._changing:
            configs = (await self._now()).configs
            path = _file_of(configs, access_key)
            account = changed(_account_of(configs, access_key) or Account(access_key, ""))
            check_account(account)
            target = path or self.file
            config = configs.get(target, PlainConfig())
            others = [one for one in config.accounts if one.access_key != access_key]
            await self._write(target, msgspec.structs.replace(config, accounts=(*others, account)))

    async def delete_account(self, access_key: str) -> bool:
        """Delete an account from the file that has it; whether there was one.

        Raises:
            ConfigError: it is the last account, or the files cannot be read.
            OSError: the file cannot be written.
        """
        async with self._changing:
            configs = (await self._now()).configs
            path = _file_of(configs, access_key)
            if path is None:
                return False
            others = tuple(one for one in configs[path].accounts if one.access_key != access_key)
            await self._write(path, msgspec.structs.replace(configs[path], accounts=others))
            return True

    async def update_white_list(self, patterns: tuple[str, ...], path: str = "") -> bool:
        """Replace the global white list of a file; whether the file is one of the rules'.

        Args:
            patterns: see `tianzhou.access.addresses.parse_pattern`.
            path: the file, of those that are read; empty means `plain_acl.yml`.

        Raises:
            ConfigError: a pattern is wrong, or the files cannot be read.
            OSError: the file cannot be written.
        """
        async with self._changing:
            configs = (await self._now()).configs
            target = Path(path) if path else self.file
            if target != self.file and target not in configs:
                return False
            config = configs.get(target, PlainConfig())
            await self._write(target, msgspec.structs.replace(config, global_white_remote_addresses=patterns))
            return True

    async def _now(self) -> _Read:
        """What the disk has: what somebody has edited since the last look must not be lost."""
        return await ASIDE.run(self._look) or self._read

    async def _write(self, path: Path, config: PlainConfig) -> None:
        config = msgspec.structs.replace(config, data_version=config.data_version.next(self._clock.now_ms()))
        text = format_config(config).encode()
        self._take(await ASIDE.run(self._written, path, text))

    def _written(self, path: Path, text: bytes) -> _Read:
        contents = _contents(self.file, self._folder)
        found = self._parsed({**contents, path: text})
        # A link stays one: what it points to is replaced.
        real = path.resolve()
        replace_file(real, text, mode=None if real.exists() else OWN_ONLY)
        return found

    def _look(self) -> _Read | None:
        contents = _contents(self.file, self._folder)
        return None if contents == self._read.contents else self._parsed(contents)

    def _parsed(self, contents: dict[Path, bytes]) -> _Read:
        configs = {}
        faults = Faults()
        for path, content in contents.items():
            try:
                text = content.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                faults.note(f"{path}: byte {error.start} is no UTF-8; store the file as UTF-8")
                continue
            with faults.noted():
                configs[path] = parse_config(text, str(path))
        faults.check()
        rules = PlainRules([self._own, *configs.values()], self._needs)
        if not any(config.accounts for config in configs.values()):
            raise ConfigError(f"{', '.join(map(str, contents)) or self.file}: no account; write one under accounts")
        return _Read(contents, configs, rules)

    def _take(self, found: _Read) -> None:
        self._read = found
        _log.info(
            "access rules of %d files with %d accounts are in force", len(found.configs), len(found.rules.accounts)
        )
        self._warn()

    def _warn(self) -> None:
        seen: dict[str, Path] = {}
        for path, config in self._read.configs.items():
            for warning in config.warnings:
                _log.warning("%s", warning)
            for account in config.accounts:
                if (first := seen.setdefault(account.access_key, path)) != path:
                    _log.warning("%s: account %s is in %s, too, and counts there", path, account.access_key, first)
            try:
                if path.stat().st_mode & 0o077:
                    _log.warning("%s: other users can read or change these secrets; chmod 600 it", path)
            except OSError:
                continue


def _file_of(configs: dict[Path, PlainConfig], access_key: str) -> Path | None:
    for path, config in configs.items():
        if any(account.access_key == access_key for account in config.accounts):
            return path
    return None


def _account_of(configs: dict[Path, PlainConfig], access_key: str) -> Account | None:
    for config in configs.values():
        for account in config.accounts:
            if account.access_key == access_key:
                return account
    return None


def _contents(file: Path, folder: Path) -> dict[Path, bytes]:
    contents = {path: _bytes_of(path) for path in _files_below(folder, file)}
    if file.exists():
        contents[file] = _bytes_of(file)
    return contents


def _files_below(folder: Path, file: Path) -> list[Path]:
    found: list[Path] = []
    apart = {file, file.parent / "tools.yml"}
    inside = folder.resolve()
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            # A link out of the folder would make any file of the machine a rule file.
            if not name.endswith(_ENDINGS) or path in apart or not path.resolve().is_relative_to(inside):
                continue
            if len(found) == MAX_FILES:
                raise ConfigError(f"{folder}: more than {MAX_FILES} files; put accounts together in fewer")
            found.append(path)
    return found


def _bytes_of(path: Path) -> bytes:
    # Without O_NONBLOCK, somebody's pipe would be waited for.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ConfigError(f"{path}: this is no ordinary file; remove it or give it another ending")
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise ConfigError(f"{path}: more than {MAX_FILE} bytes; split it into several files")
    return content
