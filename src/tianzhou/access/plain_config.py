"""Files of access control of RocketMQ 4.x, `plain_acl.yml` and those of `conf/acl/`, read and made (broker.md §22.1).

A file is read by PyYAML's safe loader, from text of bounded size. Aliases are refused and nesting is bounded, so that a
short file cannot become a large one in memory; so are tags, which the safe loader does not know.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tianzhou.access.addresses import parse_pattern
from tianzhou.access.resources import Permission
from tianzhou.errors import ConfigError, Faults
from tianzhou.escaping import shown
from tianzhou.model import DataVersion

MAX_FILE: Final = 4 << 20
"""Bytes a file may have."""
MAX_DEPTH: Final = 8
"""Lists and mappings inside each other; RocketMQ's own files have four."""
SHORTEST_KEY: Final = 7
"""Characters of an access key or a secret key, at least (RocketMQ: longer than 6)."""
_TOP: Final = ("globalWhiteRemoteAddresses", "accounts", "dataVersion")
_ACCOUNT: Final = (
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
)
_PERMISSIONS: Final = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}


class Account(msgspec.Struct, frozen=True):
    """An account of RocketMQ 4.x; its `repr` hides the secret.

    Attributes:
        access_key: its name.
        secret_key: what its requests are signed with.
        white_remote_address: addresses that need no signature, as `tianzhou.access.addresses` reads them.
        admin: whether it is an administrator.
        default_topic_perm: for topics that are not listed; empty means DENY.
        default_group_perm: for groups that are not listed; empty means DENY.
        topic_perms: `topic=PUB|SUB`.
        group_perms: `group=SUB`.
    """

    access_key: str
    secret_key: str
    white_remote_address: str = ""
    admin: bool = False
    default_topic_perm: str = ""
    default_group_perm: str = ""
    topic_perms: tuple[str, ...] = ()
    group_perms: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Account(access_key={self.access_key!r}, secret_key=<hidden>, admin={self.admin})"


class PlainConfig(msgspec.Struct, frozen=True):
    """What one file says.

    Attributes:
        global_white_remote_addresses: addresses whose requests are not checked.
        accounts: its accounts, each access key once.
        data_version: of the file.
        warnings: what was read and has no effect, for the log.
    """

    global_white_remote_addresses: tuple[str, ...] = ()
    accounts: tuple[Account, ...] = ()
    data_version: DataVersion = DataVersion()
    warnings: tuple[str, ...] = ()


def parse_permission(text: str) -> Permission:
    """The permission of `DENY`, `PUB`, `SUB` or `PUB|SUB`; empty means DENY (broker.md §22.1).

    Raises:
        ConfigError: it is none of them. RocketMQ takes it for DENY.
    """
    name = text.strip()
    if not name:
        return Permission.DENY
    found = _PERMISSIONS.get(name)
    if found is None:
        raise ConfigError(f"permission {shown(text)!r}: expected one of {', '.join(_PERMISSIONS)}")
    return found


def parse_resource_permission(text: str) -> tuple[str, Permission]:
    """Name and permission of `name=PUB|SUB`.

    Raises:
        ConfigError: it is of another form, or the permission is none.
    """
    name, equals, permission = text.partition("=")
    if not equals or not name.strip() or "=" in permission or not permission.strip():
        raise ConfigError(f"permission {shown(text)!r}: expected name=permission, as orders=PUB|SUB")
    return name.strip(), parse_permission(permission)


def check_account(account: Account) -> None:
    """Check an account's keys as RocketMQ does, and its permissions. No error text contains the secret.

    Raises:
        ConfigError: a key is too short, or a pattern or permission is invalid; lists all faults.
    """
    faults = Faults(f"account {shown(account.access_key)!r}: ")
    if len(account.access_key) < SHORTEST_KEY:
        faults.note(f"accessKey has to be longer than {SHORTEST_KEY - 1} characters")
    if len(account.secret_key) < SHORTEST_KEY:
        faults.note(f"secretKey has to be longer than {SHORTEST_KEY - 1} characters")
    with faults.noted():
        parse_pattern(account.white_remote_address)
    for permission in (account.default_topic_perm, account.default_group_perm):
        with faults.noted():
            parse_permission(permission)
    for text in (*account.topic_perms, *account.group_perms):
        with faults.noted():
            parse_resource_permission(text)
    faults.check()


def parse_config(text: str, source: str) -> PlainConfig:
    """Return the content of a file; an empty file has no accounts.

    Args:
        text: the file's text.
        source: its path, for errors and warnings.

    Raises:
        ConfigError: the file is no YAML of this form; lists file and place of each fault, and never a secret.
    """
    if len(text) > MAX_FILE:
        raise ConfigError(f"{source}: {len(text)} characters, at most {MAX_FILE} are read; split it into conf/acl/")
    found = _loaded(text, source)
    if found is None:
        return PlainConfig()
    if not isinstance(found, dict):
        raise ConfigError(f"{source}: expected keys {', '.join(_TOP)}, not a {type(found).__name__}")
    warnings = [f"{source}: {_unknown(key, _TOP)}" for key in found if key not in _TOP]
    faults = Faults()
    of_patterns = Faults(f"{source}: {_TOP[0]}: ")
    white = _texts(found.get(_TOP[0]), f"{source}: {_TOP[0]}", faults)
    for pattern in white:
        with of_patterns.noted():
            parse_pattern(pattern)
    faults.texts += of_patterns.texts
    accounts: dict[str, Account] = {}
    for number, row in enumerate(_rows(found.get("accounts"), f"{source}: accounts", faults), 1):
        account = _account(row, f"{source}: account {number}", faults)
        who = f"{source}: account {shown(account.access_key)!r}"
        warnings += [f"{who}: {_unknown(key, _ACCOUNT)}" for key in row if key not in _ACCOUNT]
        if account.access_key in accounts:
            warnings.append(f"{who}: listed twice, the first one counts")
        accounts.setdefault(account.access_key, account)
    version = _version(found, source, faults)
    faults.check()
    return PlainConfig(white, tuple(accounts.values()), version, tuple(warnings))


def format_config(config: PlainConfig) -> str:
    """The YAML of a file, as RocketMQ 4.9 reads it; comments of a former text are gone, as with RocketMQ's own."""
    import yaml

    version = config.data_version
    content = {
        "globalWhiteRemoteAddresses": list(config.global_white_remote_addresses),
        "accounts": [_row(account) for account in config.accounts],
        "dataVersion": [{"counter": version.counter, "timestamp": version.timestamp}],
    }
    text: str = yaml.safe_dump(content, sort_keys=False, default_flow_style=False, allow_unicode=True, width=1 << 20)
    return text


def _row(account: Account) -> dict[str, object]:
    row: dict[str, object] = {
        "accessKey": account.access_key,
        "secretKey": account.secret_key,
        "whiteRemoteAddress": account.white_remote_address,
        "admin": account.admin,
    }
    if account.default_topic_perm:
        row["defaultTopicPerm"] = account.default_topic_perm
    if account.default_group_perm:
        row["defaultGroupPerm"] = account.default_group_perm
    if account.topic_perms:
        row["topicPerms"] = list(account.topic_perms)
    if account.group_perms:
        row["groupPerms"] = list(account.group_perms)
    return row


def _loaded(text: str, source: str) -> Any:
    import yaml

    try:
        # The events come first: an alias is found before anything is built of it, depth before Python's stack ends.
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ConfigError(f"{source}: line {event.start_mark.line + 1}: aliases are not read; write it out")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                raise ConfigError(f"{source}: line {event.start_mark.line + 1}: nested more than {MAX_DEPTH} deep")
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        # PyYAML's own text quotes the line, which may hold a secret.
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else "somewhere"
        raise ConfigError(f"{source}: {where}: this is no YAML that can be read; correct the line") from None
    except (ValueError, TypeError, RecursionError):
        raise ConfigError(f"{source}: a value cannot be read; put texts into quotes") from None


def _account(row: dict[Any, Any], where: str, faults: Faults) -> Account:
    own = Faults()
    account = Account(
        access_key=_text(row, "accessKey", where, own),
        secret_key=_text(row, "secretKey", where, own),
        white_remote_address=_text(row, "whiteRemoteAddress", where, own),
        admin=_switch(row, "admin", where, own),
        default_topic_perm=_text(row, "defaultTopicPerm", where, own),
        default_group_perm=_text(row, "defaultGroupPerm", where, own),
        topic_perms=_texts(row.get("topicPerms"), f"{where}: topicPerms", own),
        group_perms=_texts(row.get("groupPerms"), f"{where}: groupPerms", own),
    )
    try:
        check_account(account)
    except ConfigError as error:
        for text in error.texts:
            if not own.mentioned(text):  # a faulty key is read as empty, so it would be reported as too short too
                own.note(f"{where}: {text}")
    faults.texts += own.texts
    return account


def _rows(value: Any, where: str, faults: Faults) -> Iterator[dict[Any, Any]]:
    if value is None:
        return
    if not isinstance(value, list):
        faults.note(f"{where}: expected a list, each with `- ` in front")
        return
    for number, row in enumerate(value, 1):
        if isinstance(row, dict):
            yield row
        else:
            faults.note(f"{where}, number {number}: expected keys and values")


def _text(row: dict[Any, Any], key: str, where: str, faults: Faults) -> str:
    value = row.get(key)
    if value is None:
        return ""
    # A key of digits only is a number to YAML, and RocketMQ reads it as text.
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    faults.note(f"{where}: {key} has to be a text; put it into quotes", key)
    return ""


def _switch(row: dict[Any, Any], key: str, where: str, faults: Faults) -> bool:
    value = row.get(key)
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    faults.note(f"{where}: {key} has to be true or false")
    return False


def _texts(value: Any, where: str, faults: Faults) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        faults.note(f"{where}: expected a list, each with `- ` in front")
        return ()
    if not all(isinstance(one, str) for one in value):
        faults.note(f"{where}: each has to be a text; put it into quotes")
    return tuple(one for one in value if isinstance(one, str))


def _version(found: dict[Any, Any], source: str, faults: Faults) -> DataVersion:
    rows = list(_rows(found.get("dataVersion"), f"{source}: dataVersion", faults))
    numbers = [rows[0].get(key, 0) for key in ("counter", "timestamp")] if rows else [0, 0]
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 63:
            faults.note(f"{source}: dataVersion: counter and timestamp have to be whole numbers")
            return DataVersion(0, 0)
    return DataVersion(*numbers)


def _unknown(key: object, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(key)[:64], known, n=1)
    return f"unknown key {shown(str(key), 64)!r} has no effect" + (f"; did you mean {near[0]}?" if near else "")
