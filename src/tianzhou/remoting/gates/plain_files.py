"""Rule files of RocketMQ 4.x on the disk: read, watched by content, and changed for administrators (broker.md §22.1).

The files of the folder come first, then `plain_acl.yml`, as RocketMQ reads them. When a file is unreadable, its former
rules stay in force. The same holds for a file without data, because an editor may be writing it. The other files are
still read. A file that is deleted, or lists no accounts, revokes its rules.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tianzhou.access.addresses import FailingPatternError, parse_pattern
from tianzhou.access.plain_config import MAX_FILE, Account, PlainConfig, check_account, format_config, parse_data
from tianzhou.access.plain_rules import PlainRules
from tianzhou.access.requests import AccessRequest, Identity
from tianzhou.access.resources import PlainNeed
from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import ConfigError
from tianzhou.file_modes import OWN_ONLY, replace_file
from tianzhou.model import DataVersion
from tianzhou.remoting.side_thread import ASIDE

WATCH_S: Final = 5.0
"""Seconds between two checks of the files, as RocketMQ's."""
MAX_FILES: Final = 256
"""Maximum number of files below `conf/acl/` that are read."""
_ENDINGS: Final = (".yml", ".yaml")
_log = logging.getLogger(__name__)


NO_DATA: Final = (
    "it has no data, as while it is written; write `accounts: []` into it to revoke its accounts, or delete it"
)


class _Read(NamedTuple):
    """The files at one check.

    Attributes:
        contents: bytes by path, or the reason that a file cannot be read, as text.
        configs: content of the files; the former content of a file that cannot be read.
        faults: reasons that the present content of a file is not in force, by path.
        rules: rules of all files.
    """

    contents: dict[Path, bytes | str]
    configs: dict[Path, PlainConfig]
    faults: dict[Path, str]
    rules: PlainRules


class PlainFiles:
    """The rules of the present files (`AccessRules`).

    Args:
        file: `plain_acl.yml`.
        folder: `conf/acl`; it may be missing.
        needs: returns the permissions that a request needs.
        clock: time of changes, for the version of a file.
        own: the server's own account, which is in no file.

    Raises:
        ConfigError: a file cannot be read at the start. With a file without data, or without any file, every request is
            refused, as with RocketMQ.
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
        self._read = self._parsed(_contents(file, folder), {})
        if self._read.faults:
            raise ConfigError(*self._read.faults.values())
        self._warn()

    @property
    def rules(self) -> PlainRules:
        """The rules in force."""
        return self._read.rules

    @property
    def configs(self) -> dict[Path, PlainConfig]:
        """Parsed content of the files, in reading order."""
        return self._read.configs

    @property
    def faults(self) -> dict[Path, str]:
        """Reason why a file's present content is not in force, by path. Its former rules stay in force."""
        return self._read.faults

    @property
    def epoch(self) -> object:
        """See `AccessRules.epoch`: the rules in force."""
        return self._read.rules

    def secret_of(self, account: str) -> str | None:
        """See `PlainRules.secret_of`."""
        return self._read.rules.secret_of(account)

    def identify(self, request: AccessRequest) -> Identity:
        """See `PlainRules.identify`."""
        return self._read.rules.identify(request)

    def may(self, identity: Identity, request: AccessRequest, *, part_of: int = 0) -> bool:
        """See `PlainRules.may`."""
        return self._read.rules.may(identity, request, part_of=part_of)

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

    async def watch(self, looked: Callable[[], object]) -> None:
        """Check the files every `WATCH_S` seconds, for ever; for `Supervisor.own`.

        Args:
            looked: called after each check.
        """
        while True:
            await asyncio.sleep(WATCH_S)
            await self.refresh()
            looked()

    async def refresh(self) -> None:
        """Put the files in force when their content has changed. Log each fault once."""
        async with self._changing:
            found = await ASIDE.run(self._look)
            if found is not None:
                self._take(found)

    async def update_account(self, access_key: str, changed: Callable[[Account], Account]) -> None:
        """Change an account in its file, or create an account in `plain_acl.yml`.

        Args:
            access_key: name of the account.
            changed: returns the changed account for the present one.

        Raises:
            ConfigError: the changed account is invalid, or the files cannot be read.
            OSError: the file cannot be written.
        """
        async with self._changing:
            found = await self._now()
            configs = found.configs
            path = _file_of(configs, access_key)
            account = changed(_account_of(configs, access_key) or Account(access_key, ""))
            check_account(account)
            target = path or self.file
            config = configs.get(target, PlainConfig())
            others = [one for one in config.accounts if one.access_key != access_key]
            await self._write(found, target, msgspec.structs.replace(config, accounts=(*others, account)))

    async def delete_account(self, access_key: str) -> bool:
        """Delete an account from its file. Return whether it existed.

        Raises:
            ConfigError: it is the last account, or the file cannot be read.
            OSError: the file cannot be written.
        """
        async with self._changing:
            found = await self._now()
            path = _file_of(found.configs, access_key)
            if path is None:
                return False
            if sum(len(config.accounts) for config in found.configs.values()) == 1:
                raise ConfigError(f"{path}: no account would be left to make another one with; make that first")
            config = found.configs[path]
            others = tuple(one for one in config.accounts if one.access_key != access_key)
            await self._write(found, path, msgspec.structs.replace(config, accounts=others))
            return True

    async def update_white_list(self, patterns: tuple[str, ...], path: str = "") -> bool:
        """Replace the global white list of a file. Return whether the file is one of the rule files.

        Args:
            patterns: see `tianzhou.access.addresses.parse_pattern`.
            path: path of a rule file; empty means `plain_acl.yml`.

        Raises:
            ConfigError: a pattern is invalid, or the file cannot be read.
            OSError: the file cannot be written.
        """
        for pattern in patterns:
            parse_pattern(pattern)
        async with self._changing:
            found = await self._now()
            target = Path(path) if path else self.file
            if target != self.file and target not in found.configs:
                return False
            config = found.configs.get(target, PlainConfig())
            await self._write(found, target, msgspec.structs.replace(config, global_white_remote_addresses=patterns))
            return True

    async def _now(self) -> _Read:
        """Return the present files on the disk, so that a write does not lose edits made since the last check."""
        return await ASIDE.run(self._look) or self._read

    async def _write(self, found: _Read, path: Path, config: PlainConfig) -> None:
        if path in found.faults:
            raise ConfigError(found.faults[path])
        config = msgspec.structs.replace(config, data_version=config.data_version.next(self._clock.now_ms()))
        text = format_config(config).encode()
        self._take(await ASIDE.run(self._written, path, text))

    def _written(self, path: Path, text: bytes) -> _Read:
        contents = _contents(self.file, self._folder, self._read.configs)
        found = self._parsed({**contents, path: text}, self._read.configs)
        if path in found.faults:
            raise ConfigError(found.faults[path])
        # Keep a symbolic link: replace the file that it points to.
        real = path.resolve()
        replace_file(real, text, mode=None if real.exists() else OWN_ONLY)
        return found

    def _look(self) -> _Read | None:
        before = self._read
        try:
            contents = _contents(self.file, self._folder, before.configs)
        except (ConfigError, OSError) as error:
            # Even the list of files is unknown.
            contents = {**before.contents, self._folder: str(error)}
        return None if contents == before.contents else self._parsed(contents, before.configs)

    def _parsed(self, contents: dict[Path, bytes | str], before: dict[Path, PlainConfig]) -> _Read:
        configs: dict[Path, PlainConfig] = {}
        faults: dict[Path, str] = {}
        for path, content in contents.items():
            try:
                config = _parse(path, content)
                if config is None and before.get(path, PlainConfig()) != PlainConfig():
                    raise ConfigError(f"{path}: {NO_DATA}")
            except FailingPatternError as error:
                # RocketMQ refuses all requests with this pattern, so the former rules must not stay in force.
                faults[path] = "; ".join(error.texts)
                config = PlainConfig()
            except ConfigError as error:
                faults[path] = "; ".join(error.texts)
                config = before.get(path)
            else:
                config = config or PlainConfig()
            if config is not None:
                configs[path] = config
        rules = PlainRules([self._own, *configs.values()], self._needs)
        return _Read(contents, configs, faults, rules)

    def _take(self, found: _Read) -> None:
        before, self._read = self._read, found
        for path, fault in found.faults.items():
            if before.faults.get(path) != fault:
                stay = found.configs.get(path, PlainConfig()) != PlainConfig()
                state = "stay as they were" if stay else "let nobody in"
                _log.error("access rules of %s %s: %s", path, state, fault)
        for path in before.faults:
            if path not in found.faults:
                _log.warning("access rules of %s can be read again", path)
        for path in before.configs:
            if path not in found.configs:
                _log.warning("%s is deleted: its accounts and white list are revoked", path)
        if found.configs != before.configs:
            _log.info(
                "access rules of %d files with %d accounts are in force", len(found.configs), len(found.rules.accounts)
            )
            self._warn()

    def _warn(self) -> None:
        if not any(config.accounts for config in self._read.configs.values()):
            _log.warning(
                "%s: no account: every peer is refused whose address is in no white list; write accounts into it",
                self.file,
            )
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


def _parse(path: Path, content: bytes | str) -> PlainConfig | None:
    """Return the parsed content of a file; None when the file has no data.

    Raises:
        ConfigError: it cannot be read; the text names the file.
    """
    if isinstance(content, str):
        raise ConfigError(content)
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is no UTF-8; store the file as UTF-8") from None
    return parse_data(text, str(path))


def _contents(file: Path, folder: Path, before: Iterable[Path] = ()) -> dict[Path, bytes | str]:
    """Return the content of each file, or the reason why it cannot be read.

    Args:
        file: `plain_acl.yml`.
        folder: folder of the further files.
        before: files of the last check. Files in a folder that cannot be listed count as present.
    """
    hidden: list[OSError] = []
    found: dict[Path, bytes | str] = {}
    for path in (*_files_below(folder, file, hidden.append), file):
        try:
            found[path] = _bytes_of(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except ConfigError as error:
            found[path] = str(error)
        except OSError as error:
            found[path] = f"{path}: {error.strerror or error}; let the server's user read it"
    for failure in hidden:
        for path in before:
            if path not in found and path.is_relative_to(str(failure.filename)):
                found[path] = f"{failure.filename}: {failure.strerror or failure}; let the server's user read it"
    return found


def _files_below(folder: Path, file: Path, hidden: Callable[[OSError], object]) -> list[Path]:
    found: list[Path] = []
    apart = {file, file.parent / "tools.yml"}
    inside = folder.resolve()

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # the folder may be missing
            hidden(error)

    for place, folders, names in os.walk(folder, onerror=note):
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
    # Without O_NONBLOCK, opening a named pipe would block.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ConfigError(f"{path}: this is no ordinary file; remove it or give it another ending")
    with os.fdopen(fd, "rb") as file:
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise ConfigError(f"{path}: more than {MAX_FILE} bytes; split it into several files")
    return content
