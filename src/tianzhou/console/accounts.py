"""Accounts of the console: a file of names, roles and password hashes (argon2id)."""

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
"""Hash that stands in for an unknown name, so that its check takes as long as one of a known name."""


class ConsoleRole(enum.StrEnum):
    """ConsoleRole of an account: view the cluster, or change it as well."""

    VIEWER = "viewer"
    ADMIN = "admin"


class ConsoleAccount(msgspec.Struct, frozen=True):
    """An account of the console.

    Attributes:
        name: name of the account.
        role: role of the account.
        password_hash: argon2id hash in PHC's format.
    """

    name: str
    role: ConsoleRole
    password_hash: str

    def __repr__(self) -> str:
        return f"ConsoleAccount({self.name!r}, {self.role.value!r})"


Accounts = dict[str, ConsoleAccount]
"""Accounts by name."""


def make_account(name: str, password: str, role: ConsoleRole) -> ConsoleAccount:
    """Return an account with a hash of its password.

    Raises:
        ConfigError: the name or the password is invalid.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name; use up to 64 letters, digits and . _ @ -, beginning with a letter or digit"
        )
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise ConfigError(f"the password of {name} has {len(password)} characters; give it {SHORTEST_PASSWORD} or more")
    return ConsoleAccount(name, role, _hasher.hash(password))


def check_password(accounts: Accounts, name: str, password: str) -> ConsoleAccount | None:
    """Return the account if the name and the password are right. A check of an unknown name takes as long.

    It needs some 50 ms of a processor, so call it in a thread.
    """
    account = accounts.get(name)
    try:
        _hasher.verify(_STRANGER if account is None else account.password_hash, password[:LONGEST_PASSWORD])
    except (Argon2Error, InvalidHashError):
        return None
    return account


def load_accounts(path: Path) -> Accounts:
    """Return the accounts in a file; empty when the file does not exist.

    Raises:
        ConfigError: the file cannot be read.
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
    """Write the accounts to a file that only its owner may read.

    Raises:
        ConfigError: there are too many accounts.
        OSError: the file cannot be written.
    """
    if len(accounts) > MOST_ACCOUNTS:
        raise ConfigError(f"{len(accounts)} console accounts, {MOST_ACCOUNTS} are allowed; delete some")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, msgspec.json.format(msgspec.json.encode(list(accounts.values()))), mode=OWN_ONLY)
