"""Reader and writer of RocketMQ 4.x's access control files, `plain_acl.yml` and those in `conf/acl/` (broker.md §22.1).

The reader interprets a file as RocketMQ 4.9 does. It warns, with the line, about values that RocketMQ interprets
differently from their appearance, and rejects files that RocketMQ cannot read. Requests that change accounts are
checked more strictly.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from tianzhou.access.addresses import FailingPatternError, parse_pattern, read_pattern
from tianzhou.access.resources import Permission
from tianzhou.access.yaml_values import Value, load_values
from tianzhou.errors import ConfigError, Faults
from tianzhou.escaping import shown
from tianzhou.model import DataVersion

MAX_FILE: Final = 4 << 20
"""Maximum size of a file, in characters."""
SHORTEST_KEY: Final = 7
"""Minimum length of an access key and of a secret key, in characters (RocketMQ: longer than 6)."""
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
_BLANKS: Final = "".join(map(chr, range(0x21)))
"""Characters that Java's `trim` removes."""
_FOLDED: Final = {key.lower(): key for key in _ACCOUNT} | {"isadmin": "admin"}
_TRUE: Final = frozenset({"true", "1", "y", "t"})
_FALSE: Final = frozenset({"", "null", "false", "0", "n", "f"})
_MAX_PLAIN_FLOAT: Final = 1e7
"""Java writes numbers below this value without an exponent, as Python does."""


class Account(msgspec.Struct, frozen=True):
    """An account of RocketMQ 4.x; its `repr` hides the secret.

    Attributes:
        access_key: access key, which names the account.
        secret_key: key that signs the account's requests.
        white_remote_address: client addresses that need no signature, in a form of `tianzhou.access.addresses`.
        admin: whether the account has administrator permissions.
        default_topic_perm: permission on topics that are not listed; empty means DENY.
        default_group_perm: permission on groups that are not listed; empty means DENY.
        topic_perms: permissions on single topics, as `topic=PUB|SUB`.
        group_perms: permissions on single groups, as `group=SUB`.
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
    """The content of one file.

    Attributes:
        global_white_remote_addresses: client addresses whose requests are not checked.
        accounts: accounts of the file, each access key once.
        data_version: version of the file's data.
        warnings: log lines about values that RocketMQ ignores, or interprets differently from their appearance.
    """

    global_white_remote_addresses: tuple[str, ...] = ()
    accounts: tuple[Account, ...] = ()
    data_version: DataVersion = DataVersion()
    warnings: tuple[str, ...] = ()


def parse_permission(text: str) -> Permission:
    """Return the permission of `DENY`, `PUB`, `SUB` or `PUB|SUB`; empty means DENY (broker.md §22.1).

    Raises:
        ConfigError: the text is none of these. RocketMQ reads it as DENY.
    """
    name = text.strip()
    if not name:
        return Permission.DENY
    found = _PERMISSIONS.get(name)
    if found is None:
        raise ConfigError(f"permission {shown(text)!r}: expected one of {', '.join(_PERMISSIONS)}")
    return found


def parse_resource_permission(text: str) -> tuple[str, Permission]:
    """Return name and permission of `name=PUB|SUB`.

    Raises:
        ConfigError: the text has another form, or the permission is invalid.
    """
    name, equals, permission = text.partition("=")
    if not equals or not name.strip() or "=" in permission or not permission.strip():
        raise ConfigError(f"permission {shown(text)!r}: expected name=permission, as orders=PUB|SUB")
    return name.strip(), parse_permission(permission)


def check_account(account: Account) -> None:
    """Check an account in a request. Keys are checked as in RocketMQ, permissions and addresses more strictly.

    No error text contains the secret.

    Raises:
        ConfigError: a key is too short, or a pattern or permission is invalid; the text lists all faults.
    """
    faults = Faults(f"account {shown(account.access_key)!r}: ")
    for text in _key_faults(account):
        faults.note(text)
    with faults.noted():
        parse_pattern(account.white_remote_address)
    for permission in (account.default_topic_perm, account.default_group_perm):
        with faults.noted():
            parse_permission(permission)
    for text in (*account.topic_perms, *account.group_perms):
        with faults.noted():
            parse_resource_permission(text)
    faults.check()


def _key_faults(account: Account) -> Iterator[str]:
    for key, value in (("accessKey", account.access_key), ("secretKey", account.secret_key)):
        if len(value) < SHORTEST_KEY:
            yield f"{key} has to be longer than {SHORTEST_KEY - 1} characters"


def both(first: Account, second: Account) -> Account:
    """Return an account with the first one's secret and the permissions that both listings of it allow.

    RocketMQ uses the first listing after its start, and the last one after the file has changed.
    """
    white, other = first.white_remote_address, second.white_remote_address
    return Account(
        first.access_key,
        first.secret_key,
        white if white == other else "",
        first.admin and second.admin,
        _common(first.default_topic_perm, second.default_topic_perm, first, second),
        _common(first.default_group_perm, second.default_group_perm, first, second),
        _common_list(first, second, lambda one: (one.topic_perms, one.default_topic_perm)),
        _common_list(first, second, lambda one: (one.group_perms, one.default_group_perm)),
    )


def _common(one: str, other: str, first: Account, second: Account) -> str:
    """Return the permission that two texts of two listings have in common."""
    found = Permission.PUB | Permission.SUB
    for text, account in ((one, first), (other, second)):
        if not account.admin or account.topic_perms or account.group_perms:
            found &= parse_permission(text)
    return next((word for word, permission in _PERMISSIONS.items() if permission == found), "DENY")


def _common_list(
    first: Account, second: Account, of: Callable[[Account], tuple[tuple[str, ...], str]]
) -> tuple[str, ...]:
    (own, default), (others, other_default) = of(first), of(second)
    before, after = (dict(text.split("=") for text in texts) for texts in (own, others))
    return tuple(
        f"{name}={_common(before.get(name, default), after.get(name, other_default), first, second)}"
        for name in {**before, **after}
    )


def parse_config(text: str, source: str) -> PlainConfig:
    """Return the content of a file; a file without data has no accounts.

    Args:
        text: the file's text.
        source: its path, for errors and warnings.

    Raises:
        FailingPatternError: RocketMQ reads the file, and then fails at every request because of a pattern.
        ConfigError: RocketMQ cannot read the file either; the text lists file and place of each fault, and never a
            secret.
    """
    return parse_data(text, source) or PlainConfig()


def parse_data(text: str, source: str) -> PlainConfig | None:
    """Return the content of a file as `parse_config` does; None when the file has only blanks and comments."""
    if len(text) > MAX_FILE:
        raise ConfigError(f"{source}: {len(text)} characters, at most {MAX_FILE} are read; split it into conf/acl/")
    document = load_values(text, source)
    if document is None or document.data is None:
        return None
    if not isinstance(document.data, dict):
        raise ConfigError(f"{source}: expected keys {', '.join(_TOP)}, not a {type(document.data).__name__}")
    return _FileReader(source).read(document.data)


def format_config(config: PlainConfig) -> str:
    """Return the YAML text of a file for RocketMQ 4.9. Comments of an earlier text are lost, as in RocketMQ."""
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


class _FileReader:
    """A reader of one file, which collects faults and warnings."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._faults = Faults()
        self._warnings: list[str] = []
        self._fails = False

    def read(self, found: dict[str, Value]) -> PlainConfig:
        """Return the content of the file.

        Raises:
            ConfigError: the file has faults.
        """
        for key, value in found.items():
            if key not in _TOP:
                self._warn(value.line, _unknown(key, _TOP))
        white = tuple(self._white(found.get(_TOP[0])))
        accounts: dict[str, Account] = {}
        two_secrets: set[str] = set()
        for number, row in enumerate(self._list(found.get("accounts"), "accounts"), 1):
            account = self._account(row, f"account {number}")
            if account is None:
                continue
            name, before = account.access_key, accounts.get(account.access_key)
            if before is None:
                accounts[name] = account
                continue
            self._warn(row.line, f"account {shown(name)!r}: listed twice, it may only what both lists allow")
            if before.secret_key != account.secret_key:
                two_secrets.add(name)
            accounts[name] = both(before, account)
        for name in two_secrets:
            del accounts[name]
        version = self._version(found.get("dataVersion"))
        if self._fails:
            raise FailingPatternError(*self._faults.texts)
        self._faults.check()
        return PlainConfig(white, tuple(accounts.values()), version, tuple(self._warnings))

    def _place(self, line: int) -> str:
        return f"{self._source}: line {line}: "

    def _warn(self, line: int, text: str) -> None:
        self._warnings.append(self._place(line) + text)

    def _fault(self, line: int, text: str) -> None:
        self._faults.note(self._place(line) + text)

    def _list(self, value: Value | None, where: str) -> list[Value]:
        if value is None or value.data is None:
            return []
        if not isinstance(value.data, list):
            self._fault(value.line, f"{where}: expected a list, each with `- ` in front")
            return []
        return value.data

    def _white(self, value: Value | None) -> Iterator[str]:
        for one in self._list(value, _TOP[0]):
            text = "" if one.data is None else _java_text(one)
            if text is None or not isinstance(one.data, str | None):
                self._fault(one.line, f"{_TOP[0]}: each has to be a text; put it into quotes")
                continue
            try:
                self._pattern(one.line, text, _TOP[0])
            except FailingPatternError as error:
                self._fault(one.line, f"{_TOP[0]}: {error}")
                self._fails = True
            yield text

    def _pattern(self, line: int, text: str, where: str) -> None:
        try:
            oddity = read_pattern(text).oddity
        except FailingPatternError:
            raise
        except ConfigError as error:
            for fault in error.texts:
                self._fault(line, f"{where}: {fault}")
        else:
            if oddity:
                self._warn(line, f"{where}: address pattern {shown(text)!r}: {oddity}, as with RocketMQ")

    def _account(self, row: Value, where: str) -> Account | None:
        """Return an account; None after a fault, or when no client can sign with its keys."""
        if not isinstance(row.data, dict) or row.odd_keys:
            self._fault(row.line, f"{where}: expected keys and values")
            return None
        values = self._by_key(row.data, where)
        keys = [self._key(values.get(key), key, where) for key in ("accessKey", "secretKey")]
        address = self._address(values.get("whiteRemoteAddress"), where)
        if None in keys or address is None:
            return None
        account = Account(
            access_key=keys[0] or "",
            secret_key=keys[1] or "",
            white_remote_address=address,
            admin=self._switch(values.get("admin"), where),
            default_topic_perm=self._default(values.get("defaultTopicPerm"), f"{where}: defaultTopicPerm"),
            default_group_perm=self._default(values.get("defaultGroupPerm"), f"{where}: defaultGroupPerm"),
            topic_perms=tuple(self._permissions(values.get("topicPerms"), f"{where}: topicPerms")),
            group_perms=tuple(self._permissions(values.get("groupPerms"), f"{where}: groupPerms")),
        )
        for text in _key_faults(account):
            self._fault(row.line, f"{where}: {text}")
        return account

    def _by_key(self, row: dict[str, Value], where: str) -> dict[str, Value]:
        """Return values by RocketMQ's key names. RocketMQ ignores case, `_` and `-` in keys."""
        found: dict[str, Value] = {}
        for key, value in row.items():
            name = _FOLDED.get(key.replace("_", "").replace("-", "").lower())
            if name is None:
                self._warn(value.line, f"{where}: {_unknown(key, _ACCOUNT)}")
                continue
            if name != key:
                self._warn(value.line, f"{where}: key {shown(key, 64)!r} is read as {name}; write {name}")
            found[name] = value
        return found

    def _key(self, value: Value | None, key: str, where: str) -> str | None:
        """Return an access key or a secret key; None when RocketMQ's spelling of the value is unknown."""
        if value is None or value.data is None:
            return ""
        text = _java_text(value)
        if text is None:
            self._warn(value.line, f"{where} is left out: {key} is no text; put it into quotes")
        # YAML reads a key of digits as a number. RocketMQ reads it as text.
        elif not isinstance(value.data, str | int) or isinstance(value.data, bool):
            self._warn(value.line, f"{where}: {key} is no text; put it into quotes")
        return text

    def _address(self, value: Value | None, where: str) -> str | None:
        """Return the addresses of an account; None when they make RocketMQ fail at each of its requests."""
        if value is None or value.data is None:
            return ""
        text = _java_text(value)
        if text is None:
            self._warn(value.line, f"{where} is left out: whiteRemoteAddress is no text; join addresses by commas")
            return None
        try:
            self._pattern(value.line, text, f"{where}: whiteRemoteAddress")
        except FailingPatternError as error:
            self._warn(value.line, f"{where} is left out: {error}")
            return None
        return text

    def _switch(self, value: Value | None, where: str) -> bool:
        data = None if value is None else value.data
        if value is None or data is None or isinstance(data, bool):
            return bool(data)
        text = data.lower() if isinstance(data, str) else str(data)
        if isinstance(data, list | dict) or (isinstance(data, str) and text not in _TRUE | _FALSE):
            self._fault(value.line, f"{where}: admin has to be true or false")
            return False
        admin = text in _TRUE
        if text not in ("true", "false"):
            self._warn(value.line, f"{where}: admin is read as {str(admin).lower()}; write true or false")
        return admin

    def _default(self, value: Value | None, where: str) -> str:
        if value is None or value.data is None or value.data == "":
            return ""
        return self._word(value.line, _java_text(value) or "", where)

    def _permissions(self, value: Value | None, where: str) -> Iterator[str]:
        for one in self._list(value, where):
            text = _java_text(one) if one.data is not None else None
            items = [item for item in (text or "").split("=") if item]
            if len(items) != 2:
                self._fault(
                    one.line, f"{where}: permission {shown(text or '')!r}: expected name=permission, as orders=PUB|SUB"
                )
                continue
            name, word = (item.strip(_BLANKS) for item in items)
            if text != f"{items[0]}={items[1]}":
                self._warn(one.line, f"{where}: {shown(text or '')!r} is read as {shown(name)}={shown(word)}")
            yield f"{name}={self._word(one.line, word, where)}"

    def _word(self, line: int, text: str, where: str) -> str:
        """Return a permission that RocketMQ knows. RocketMQ reads any other word as DENY."""
        word = text.strip(_BLANKS)
        if word in _PERMISSIONS:
            return word
        self._warn(
            line,
            f"{where}: permission {shown(word)!r} is read as DENY, as with RocketMQ: write one of"
            f" {', '.join(_PERMISSIONS)}",
        )
        return "DENY"

    def _version(self, value: Value | None) -> DataVersion:
        rows = self._list(value, "dataVersion")
        if value is None or not rows:
            return DataVersion(0, 0)
        first = rows[0]
        found = first.data if isinstance(first.data, dict) else None
        numbers = [_whole(found.get(key)) for key in ("counter", "timestamp")] if found is not None else [None]
        if None in numbers:
            self._fault(first.line, "dataVersion: counter and timestamp have to be whole numbers")
            return DataVersion(0, 0)
        return DataVersion(*(number or 0 for number in numbers))


def _whole(value: Value | None) -> int | None:
    """Return a number of a version, 0 when it is missing; None when the value is no number."""
    if value is None or value.data is None:
        return 0
    data = value.data
    if isinstance(data, str) and data.isascii() and data.isdigit() and len(data) <= 19:
        data = int(data)
    return data if isinstance(data, int) and not isinstance(data, bool) and 0 <= data < 1 << 63 else None


def _java_text(value: Value) -> str | None:
    """Return a value as RocketMQ converts it to text; None when the result depends on the machine."""
    data: Any = value.data
    if isinstance(data, str):
        return data
    if data is None:
        return "null"
    if isinstance(data, bool):
        return str(data).lower()
    if isinstance(data, int):
        return str(data)
    if isinstance(data, float):
        return str(data) if data == 0 or 1e-3 <= abs(data) < _MAX_PLAIN_FLOAT else None
    return None


def _unknown(key: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(key[:64], known, n=1)
    # A key that resembles no known key may be a misplaced secret.
    return (
        f"unknown key {shown(key, 64)!r} has no effect; did you mean {near[0]}?"
        if near
        else "unknown key, without effect"
    )
