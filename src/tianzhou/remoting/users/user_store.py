"""Users and policies of a server: loaded at its start, written whole before a change counts (docs/adr/0017)."""

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
"""The file in the folder of a server's state."""
FOLLOWED_S: Final = 3.0
"""Seconds that a member of a group waits for a change that its leader has made."""
_LOOK_S: Final = 0.05
FOLLOWS: Final = (
    "users of a DLedger group are changed at its leader, and this broker does not lead; send the request to the leader"
)
_log = logging.getLogger(__name__)


class UserStore:
    """Users and policies, their file, and the rules that go by them.

    A change counts when the disk has it, and is refused when the disk does not take it. The version before stays
    beside the file as `.bak`. It is never taken by itself: a user that was removed would be back.

    Args:
        settings: of the server.
        folder: where its state is; `authConfigPath` is another.
        needs: resources and actions of a request, for the rules.
        bounds: limits in force.
        accounts: accounts of RocketMQ 4.x that become users at the start, with `migrateAuthFromV1Enabled`.
        own: a user of the server's own, which is in no file and no list.

    Attributes:
        rules: decide by what is stored.
        table: what is stored.
        follows: whether another member of a group changes the users, and this one takes them over.
        agrees: with `follows`, whether the users are those that the group's leader has, without changes that this
            member made as a former leader and that no majority has.
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
        """Load what is stored, and make the users that the settings name and that are not there.

        Raises:
            ConfigError: the file cannot be read, or a setting is no user; the text names it, and no password.
        """
        loop = asyncio.get_running_loop()
        self._take(await loop.run_in_executor(None, load, self.path))
        await self.change(self._with_named_users)

    async def change(self, work: Callable[[UserTable], UserTable], *, refused_when_done: bool = False) -> None:
        """Store what a function makes of the present users; changes are made one after another.

        A request whose connection is lost meanwhile is carried out to its end.

        Args:
            work: makes other users of the present ones.
            refused_when_done: whether `work` raises BrokerError once the change is made.

        Raises:
            TianzhouError: as `work`, which changed nothing.
            ConfigError: the file cannot be written; nothing was changed.
        """
        if self.follows():
            await self._followed(work, refused_when_done=refused_when_done)
        else:
            await self._changed_by(work)

    async def _followed(self, work: Callable[[UserTable], UserTable], *, refused_when_done: bool) -> None:
        """Wait until the change that the leader has made is here: tools ask followers for each change, too.

        Raises:
            BrokerError: it has not come.
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
        """Take users over from the leader of a group; users that the settings name stay.

        Args:
            values: users by name, as `user_entry` gives them.
            deleted: names of users that are removed.

        Raises:
            ConfigError: the file cannot be written; nothing was changed.
        """
        kept = {one[0] for one in (self._settings.init_user, self._settings.inner_credentials) if one is not None}
        gone = [name for name in deleted if name not in kept]
        try:
            await self._changed_by(lambda table: table.with_entries(values, gone))
        except ProtocolError as error:
            _log.error("users of the group's log are not taken: %s", error)

    async def close(self) -> None:
        """Return when changes that have begun are on the disk."""
        if self._changes:
            await asyncio.wait(set(self._changes))

    async def _change(self, work: Callable[[UserTable], UserTable]) -> None:
        async with self._one_at_a_time:
            before = self.table
            after = work(before)
            if after is before:
                return
            # The values never change, so a thread may read them.
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
    """Users and policies of a file; none when there never was one.

    Raises:
        ConfigError: it cannot be read, or holds something else, or is gone while the version before is there.
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
    """Write users and policies; they are on the disk when it returns.

    Raises:
        ConfigError: they cannot be written, and the file is as it was.
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
