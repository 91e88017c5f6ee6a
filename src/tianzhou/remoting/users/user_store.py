"""Users and policies of a server: loaded at the start, stored as a whole before a change counts (docs/adr/0017)."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tianzhou.access.migration import migrated, white_addresses
from tianzhou.access.plain_config import Account
from tianzhou.access.settings import AuthSettings
from tianzhou.access.user_rules import Needs, UserRules
from tianzhou.access.user_table import UserTable, differing, from_file, to_file
from tianzhou.access.users import User, UserType
from tianzhou.damaged_files import blank, unreadable
from tianzhou.errors import BrokerError, ConfigError, ProtocolError, TianzhouError
from tianzhou.escaping import shown
from tianzhou.file_modes import OWN_ONLY, make_synced_folders, replace_file, sync_folder
from tianzhou.limits import ACCESS_BYTES, Bounds
from tianzhou.supervision import start_owned
from tianzhou.wire.bodies.access import UserInfo
from tianzhou.wire.codes import ResponseCode

FILE_NAME: Final = "users.json"
"""File name in the server's state folder."""
FOLLOWED_S: Final = 3.0
"""Seconds that a group member waits for a change that its leader has made."""
_LOOK_S: Final = 0.05
FOLLOWS: Final = (
    "users of a DLedger group are changed at its leader, and this broker does not lead; send the request to the leader"
)
_log = logging.getLogger(__name__)


class UserStore:
    """Users and policies, their file, and the rules that use them.

    A change takes effect once it is on the disk, and is refused when the disk does not accept it. The former version
    stays beside the file as `.bak`. The server never loads `.bak` by itself, because a removed user would return.

    Args:
        settings: the server's settings.
        folder: the server's state folder; `authConfigPath` overrides it.
        needs: returns the resources and actions that a request requires.
        bounds: limits in force.
        accounts: accounts of RocketMQ 4.x that become users at the start, with `migrateAuthFromV1Enabled`.
        own: the server's own user, which is in no file and no list.

    Attributes:
        rules: decide by the stored users and policies.
        table: the stored users and policies.
        follows: whether another group member changes the users and this member copies them.
        agrees: with `follows`, whether the users equal the leader's, without changes that this member made as a former
            leader and that no majority has.
    """

    def __init__(
        self,
        settings: AuthSettings,
        folder: Path,
        needs: Needs,
        bounds: Bounds | None = None,
        accounts: Callable[[], Sequence[Account]] = list,
        own: User | None = None,
    ) -> None:
        self._settings = settings
        self.path = (Path(settings.auth_config_path).expanduser() if settings.auth_config_path else folder) / FILE_NAME
        self._bounds = bounds or Bounds(settings)
        self._accounts = accounts
        self._own = {} if own is None else {own.username: own}
        try:
            self.rules = UserRules(settings.access_switches, needs)
        except ValueError as error:
            raise ConfigError(f"authenticationWhitelist or authorizationWhitelist: {error}") from None
        self.table = UserTable()
        self._one_at_a_time = asyncio.Lock()
        self.follows: Callable[[], bool] = lambda: False
        self.agrees: Callable[[], bool] = lambda: True
        self._changes: set[asyncio.Task[None]] = set()

    @property
    def bounds(self) -> Bounds:
        """Limits in force."""
        return self._bounds

    async def start(self) -> None:
        """Load the stored users, and create missing users that the settings name.

        Raises:
            ConfigError: the file cannot be read, or a setting does not describe a user. The text shows no password.
        """
        loop = asyncio.get_running_loop()
        self._take(await loop.run_in_executor(None, load, self.path))
        await self.change(self._with_named_users)

    async def change(self, work: Callable[[UserTable], UserTable], *, refused_when_done: bool = False) -> None:
        """Store the users that `work` makes from the present users. Changes run one after another.

        A change finishes even when its request's connection is lost.

        Args:
            work: returns the new users for the present users.
            refused_when_done: whether `work` raises BrokerError once the change is made.

        Raises:
            TianzhouError: `work` raised it; the users are unchanged.
            ConfigError: the file cannot be written; the users are unchanged.
        """
        if self.follows():
            await self._followed(work, refused_when_done=refused_when_done)
        else:
            await self._changed_by(work)

    async def _followed(self, work: Callable[[UserTable], UserTable], *, refused_when_done: bool) -> None:
        """Wait until the leader's change has arrived here, because tools send each change to followers, too.

        Raises:
            BrokerError: the change did not arrive in time.
        """
        error = BrokerError(ResponseCode.SYSTEM_ERROR, FOLLOWS)
        for _ in range(round(FOLLOWED_S / _LOOK_S)):
            try:
                if self.agrees() and work(self.table) == self.table:
                    return
            except BrokerError as refused:
                error = refused
                if refused_when_done:
                    return
            await asyncio.sleep(_LOOK_S)
        raise error

    async def _changed_by(self, work: Callable[[UserTable], UserTable]) -> None:
        task = start_owned(self._change(work), "users of access control")
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        await asyncio.shield(task)

    async def take_entries(self, values: Mapping[str, Any], deleted: Iterable[str]) -> None:
        """Copy users from a group's leader. Users that the settings name stay.

        Args:
            values: users by name, as `user_entry` returns them.
            deleted: names of removed users.

        Raises:
            ConfigError: the file cannot be written; the users are unchanged.
        """
        kept = {one[0] for one in (self._settings.init_user, self._settings.inner_credentials) if one is not None}
        gone = [name for name in deleted if name not in kept]
        try:
            await self._changed_by(lambda table: table.with_entries(values, gone))
        except ProtocolError as error:
            _log.error("users of the group's log are not taken: %s", error)

    async def close(self) -> None:
        """Wait until begun changes are on the disk."""
        if self._changes:
            await asyncio.wait(set(self._changes))

    async def _change(self, work: Callable[[UserTable], UserTable]) -> None:
        async with self._one_at_a_time:
            before = self.table
            after = work(before)
            if after is before:
                return
            # The values are immutable, so a thread may read them.
            await asyncio.get_running_loop().run_in_executor(None, store, self.path, after)
            self._take(after)
            changed = differing(before, after)
            _log.info("users: %s", "; ".join(f"{shown(name)} {what}" for name, what in list(changed.items())[:20]))

    def _take(self, table: UserTable) -> None:
        self.table = table
        self.rules.replace({**table.users, **self._own}, table.acls)

    def _with_named_users(self, table: UserTable) -> UserTable:
        for credentials in (self._settings.init_user, self._settings.inner_credentials):
            if credentials is not None and credentials[0] not in table.users:
                table = table.create_user(UserInfo(*credentials, UserType.SUPER.value), self._bounds)
        inner = self._settings.inner_credentials
        if inner is not None and table.users[inner[0]].password != inner[1]:
            _log.warning(
                "innerClientAuthenticationCredentials: user %s has another password by now; requests of this server "
                "to others are refused until the setting has it, too",
                shown(inner[0]),
            )
        return self._with_accounts(table) if self._settings.migrate_auth_from_v1_enabled else table

    def _with_accounts(self, table: UserTable) -> UserTable:
        accounts = [account for account in self._accounts() if account.access_key not in table.users]
        for account in accounts:
            user, policies = migrated(account)
            try:
                table = table.create_user(user, self._bounds)
                if policies:
                    table = table.put_acl(account.access_key, policies, self._bounds)
            except TianzhouError as error:
                _log.error("account %s cannot become a user: %s", shown(account.access_key), error)
        if addresses := white_addresses(accounts):
            _log.warning(
                "users have no white lists of addresses: requests of %s have to be signed from everywhere",
                ", ".join(map(shown, addresses)),
            )
        return table


def load(path: Path) -> UserTable:
    """Return the users and policies of a file; empty when the file never existed.

    Raises:
        ConfigError: the file cannot be read, has other content, or is missing although its `.bak` exists.
    """
    backup = path.with_name(path.name + ".bak")
    try:
        with path.open("rb") as file:
            text = file.read(2 * ACCESS_BYTES.default + 1)
            mode = os.fstat(file.fileno()).st_mode & 0o077
    except FileNotFoundError:
        if not backup.exists():
            return UserTable()
        raise ConfigError(f"{path} is gone, {_remedy(path)}") from None
    except OSError as error:
        raise ConfigError(unreadable(path, error)) from None
    if len(text) > 2 * ACCESS_BYTES.default:
        raise ConfigError(f"{path} is longer than {2 * ACCESS_BYTES.default} bytes; {_remedy(path)}")
    if mode:
        _log.warning("%s has passwords, and other users of this machine may open it; chmod 600 it", path)
    if problem := blank(text):
        raise ConfigError(f"{path}: {problem}; {_remedy(path)}")
    try:
        return from_file(text)
    except ProtocolError as error:
        raise ConfigError(f"{path}: {error}; {_remedy(path)}") from None


def store(path: Path, table: UserTable) -> None:
    """Write users and policies. They are on the disk when this returns.

    Raises:
        ConfigError: they cannot be written; the file is unchanged.
        LimitExceeded: they are too long.
    """
    text = to_file(table)
    try:
        make_synced_folders(path.parent)
        replace_file(path, text, mode=OWN_ONLY, backup=path.with_name(path.name + ".bak"))
        sync_folder(path.parent)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; users and policies stay as they were") from error


def _remedy(path: Path) -> str:
    return (
        f"copy {path.name}.bak to {path.name} to go on with the version before its last change, or move both away to "
        "begin without users"
    )
