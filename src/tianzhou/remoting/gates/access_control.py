"""Access control of one server: its rules, the gate in front of its handlers, and its own account towards others.

`authenticationEnabled` selects users and policies of RocketMQ 5.3. Otherwise `aclEnable` selects the accounts of 4.x.
With neither there is no access control, and it costs nothing.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

from tianzhou.access.body_names import BY_BODY
from tianzhou.access.needs import needs, plain_needs
from tianzhou.access.plain_config import Account
from tianzhou.access.requests import AccessRequest, AccessRules
from tianzhou.access.resources import PlainNeed
from tianzhou.access.settings import UNAUTHENTICATED, AuthSettings
from tianzhou.access.users import User, UserType
from tianzhou.clock import Clock
from tianzhou.errors import ConfigError
from tianzhou.limits import Bounds
from tianzhou.remoting.client import RpcHook
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.remoting.gates.plain_files import PlainFiles
from tianzhou.remoting.signing import signing
from tianzhou.remoting.users.user_store import UserStore
from tianzhou.supervision import Supervisor

FILE_NAME: Final = "plain_acl.yml"
FOLDER_NAME: Final = "acl"
"""Folder beside `plain_acl.yml` with further files."""
READING: Final = "reading the files of access rules"
"""Name of the work that fails while the content of a rule file is not in force."""
_log = logging.getLogger(__name__)


class Credentials(NamedTuple):
    """Name and secret that a server signs its own requests with."""

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r})"


def credentials_by_chance() -> Credentials:
    """Return random credentials that the servers of one process share and no other process can guess."""
    return Credentials(f"tianzhou-{secrets.token_hex(8)}", secrets.token_urlsafe(32))


class Supervises(Protocol):
    """Starts an owned task of the server."""

    def __call__(self, name: str, work: Callable[[], Any]) -> object:
        """Run the work until the server ends."""


class AccessControl:
    """Access control of one server.

    Args:
        settings: the server's settings.
        folder: the server's state folder.
        cluster: the server's cluster, empty for a name server.
        bounds: limits in force, and the counter of refusals.
        clock: time of changes.
        own: credentials that the servers of this process sign with, unless the settings name others.

    Attributes:
        files: the rule files of 4.x accounts; None with users.
        users: the users; None with 4.x accounts.
        gate: the gate in front of the handlers.
        hooks: RPC hooks that sign the server's own requests.

    Raises:
        ConfigError: rules cannot be read; names the file or key, and the remedy.
    """

    def __init__(
        self,
        settings: AuthSettings,
        folder: Path,
        cluster: str,
        bounds: Bounds,
        clock: Clock,
        own: Credentials | None = None,
    ) -> None:
        self._servers: list[Supervisor] = []
        self.files: PlainFiles | None = None
        self.users: UserStore | None = None
        configured = settings.inner_credentials
        file = plain_file(settings, folder)
        alone = own if configured is None else None
        if settings.access_switches.any:
            user = alone and User(*alone, UserType.SUPER)
            accounts = partial(_former_accounts, file, clock)
            self.users = UserStore(settings, folder, partial(needs, cluster=cluster), bounds, accounts, user)
        else:
            account = alone and Account(*alone, admin=True)
            self.files = PlainFiles(
                file, file.parent / FOLDER_NAME, partial(plain_needs, cluster=cluster), clock, account
            )
        rules: AccessRules = self.users.rules if self.users is not None else cast("PlainFiles", self.files)
        self.gate = AccessGate(rules, bounds.refusals, BY_BODY)
        signs = configured or own
        hook = signing(*signs) if signs else None
        self.hooks: list[RpcHook] = [hook] if hook else []
        if not signs:
            _log.warning(
                "innerClientAuthenticationCredentials is not set: requests of this server to name servers and other "
                "brokers are not signed, and refused where they check who asks"
            )

    async def start(self, own: Supervises) -> None:
        """Load users, or watch the rule files.

        Raises:
            ConfigError: the users cannot be read.
        """
        if self.users is not None:
            await self.users.start()
        elif self.files is not None:
            own("access rules", partial(self.files.watch, self._report))

    def report_to(self, server: Supervisor) -> None:
        """Report unreadable rule files as failing work of a server: for its metrics, `status` and `doctor`."""
        self._servers.append(server)

    def _report(self) -> None:
        faults = self.files.faults if self.files is not None else {}
        for server in self._servers:
            if faults:
                server.note_failure(READING, ConfigError(*faults.values()))
            else:
                server.well(READING)

    async def close(self) -> None:
        """Wait until begun changes are on the disk."""
        if self.users is not None:
            await self.users.close()


def access_control(
    settings: AuthSettings,
    folder: Path,
    cluster: str,
    bounds: Bounds,
    clock: Clock,
    own: Credentials | None = None,
) -> AccessControl | None:
    """Return the access control that a server's settings select; None when every peer may make every request.

    Raises:
        ConfigError: as `AccessControl`, or authorization is enabled without authentication.
    """
    switches = settings.access_switches
    if switches.authorization and not switches.authentication:
        raise ConfigError(f"authorizationEnabled=true: {UNAUTHENTICATED}")
    if not (switches.any or settings.acl_enable):
        return None
    if switches.any and settings.acl_enable:
        _log.warning("aclEnable=true has no effect with authenticationEnabled=true: users and policies are checked")
    return AccessControl(settings, folder, cluster, bounds, clock, own)


def prepared_users(
    access: AccessControl | None, settings: AuthSettings, folder: Path, cluster: str, bounds: Bounds
) -> UserStore | None:
    """Return the users that a server manages before it authenticates peers by them; None without such users.

    `authenticationMetadataProvider` makes a server store users while `authenticationEnabled` is not set.

    Args:
        access: access control of the server.
        settings: the server's settings.
        folder: the server's state folder.
        cluster: the server's cluster, empty for a name server.
        bounds: limits in force.
    """
    if not settings.keeps_users or (access is not None and access.users is not None):
        return None
    return UserStore(settings, folder, partial(needs, cluster=cluster), bounds)


async def kept_users(
    stack: AsyncExitStack,
    access: AccessControl | None,
    settings: AuthSettings,
    folder: Path,
    cluster: str,
    bounds: Bounds,
) -> UserStore | None:
    """Return the users that a server manages on request; None for a server without users.

    Args:
        stack: closes the store of prepared users.
        access: see `prepared_users`.
        settings: see `prepared_users`.
        folder: see `prepared_users`.
        cluster: see `prepared_users`.
        bounds: see `prepared_users`.

    Raises:
        ConfigError: prepared users cannot be read.
    """
    users = prepared_users(access, settings, folder, cluster, bounds)
    if users is None:
        return None if access is None else access.users
    await users.start()
    stack.push_async_callback(users.close)
    return users


def plain_file(settings: AuthSettings, folder: Path) -> Path:
    """Return the path of `plain_acl.yml`: `aclConfigPath`, else below `rocketmqHome`, else in the state folder."""
    if settings.acl_config_path:
        return Path(settings.acl_config_path).expanduser()
    if settings.rocketmq_home:
        return Path(settings.rocketmq_home).expanduser() / "conf" / FILE_NAME
    return folder / FILE_NAME


def _former_accounts(file: Path, clock: Clock) -> list[Account]:
    """Return the 4.x accounts that become users."""
    try:
        configs = PlainFiles(file, file.parent / FOLDER_NAME, _nothing, clock).configs
    except ConfigError as error:
        _log.warning("migrateAuthFromV1Enabled: no accounts become users: %s", error)
        return []
    if not configs:
        _log.warning("migrateAuthFromV1Enabled: no accounts become users: there is no %s", file)
    return [account for config in configs.values() for account in config.accounts]


def _nothing(request: AccessRequest) -> PlainNeed:
    return PlainNeed({})
