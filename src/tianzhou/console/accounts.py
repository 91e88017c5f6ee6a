"""People who may log in to the console: a file of names, roles and password hashes (argon2id)."""

from __future__ import annotations

import enum
import re
from pathlib import Path
from typing import Final

import msgspec
from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from tianzhou.errors import ConfigError
from tianzhou.file_modes import OWN_ONLY, replace_file

FILE_NAME: Final = "console-users.json"
SHORTEST_PASSWORD: Final = 10
LONGEST_PASSWORD: Final = 1024
MOST_ACCOUNTS: Final = 1_000
MOST_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_hasher: Final = PasswordHasher()
_STRANGER: Final = _hasher.hash("nobody has this password")
"""What the password of a name nobody has is compared with, so that its answer takes as long."""


class ConsoleRole(enum.StrEnum):
    """What somebody may do: look, or change as well."""

    VIEWER = "viewer"
    ADMIN = "admin"


class ConsoleAccount(msgspec.Struct, frozen=True):
    """Somebody who may log in.

    Attributes:
        name: the name.
        role: what they may do.
        password_hash: argon2id, in PHC's form.
    """

    name: str
    role: ConsoleRole
    password_hash: str

    def __repr__(self) -> str:
        return f"ConsoleAccount({self.name!r}, {self.role.value!r})"


Accounts = dict[str, ConsoleAccount]
"""Accounts by name."""


def make_account(name: str, password: str, role: ConsoleRole) -> ConsoleAccount:
    """An account with a hash of its password.

    Raises:
        ConfigError: name or password cannot be one.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name; use up to 64 letters, digits and . _ @ -, beginning with a letter or digit"
        )
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise ConfigError(f"the password of {name} has {len(password)} characters; give it {SHORTEST_PASSWORD} or more")
    return ConsoleAccount(name, role, _hasher.hash(password))


def check_password(accounts: Accounts, name: str, password: str) -> ConsoleAccount | None:
    """The account of a name if the password is right; takes as long for names nobody has.

    Some 50 ms of a processor: call it in a thread.
    """
    account = accounts.get(name)
    try:
        _hasher.verify(_STRANGER if account is None else account.password_hash, password[:LONGEST_PASSWORD])
    except (Argon2Error, InvalidHashError):
        return None
    return account


def load_accounts(path: Path) -> Accounts:
    """The accounts of a file; none where there is no file.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path} is larger than {MOST_BYTES} bytes; it is no file of console accounts")
        found = msgspec.json.decode(path.read_bytes(), type=list[ConsoleAccount])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}; mend it, or remove it and create the accounts again") from None
    return {account.name: account for account in found}


def save_accounts(path: Path, accounts: Accounts) -> None:
    """Write the accounts, readable by the owner only.

    Raises:
        ConfigError: there are too many.
        OSError: the file cannot be written.
    """
    if len(accounts) > MOST_ACCOUNTS:
        raise ConfigError(f"{len(accounts)} console accounts, {MOST_ACCOUNTS} are allowed; delete some")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, msgspec.json.format(msgspec.json.encode(list(accounts.values()))), mode=OWN_ONLY)
