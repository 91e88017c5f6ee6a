"""Tables of options, and one parser for all of them. Pure.

A table is a dataclass whose fields are made by `option`, `required` or `several`. Each field has the option's name, its
rule, its converter and its default. Every mistake is a `ConfigError` that contains the option, its value and the rule.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from tianzhou.errors import ConfigError, FilterSyntaxError
from tianzhou.filter.tags import parse_tags
from tianzhou.model.server_addresses import address_fault
from tianzhou.model.timestamps import MAX_BORN_AHEAD_MS
from tianzhou.spark.rows.rules import CORRUPT_BODIES, FAIL

T = TypeVar("T")
D = TypeVar("D")

BATCH: Final = "batch read"
STREAM: Final = "stream"
LONGEST_NAME: Final = 127
NAME_RULE: Final = f"letters, digits and % | _ -, at most {LONGEST_NAME} characters"
TAGS_RULE: Final = "tags joined by ||, or * for all"

# Names that Spark itself adds to the user's options of a source or a sink.
_SPARKS_OWN: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_SECRET: Final = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d)?", re.ASCII)
_UNITS: Final = {None: 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MOST_MS: Final = 1 << 53
"""Maximum number of milliseconds in an option."""
_RULES, _READ = "rules", "read"
ACCESS_KEY_VARIABLE: Final = "TIANZHOU_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "TIANZHOU_SECRET_KEY"
REDACTED: Final = "*********(redacted)"
"""The text that replaces a secret, as in Spark's own redaction."""


def option(name: str, rule: str, convert: Callable[[str], T], default: D) -> T | D:
    """Return a field for one option.

    Args:
        name: name of the option.
        rule: the allowed values, for messages.
        convert: converts the text to the value. It raises `ValueError`, `KeyError`, `re.error` or `FilterSyntaxError`
            for a malformed text.
        default: the value if the option is missing.
    """
    return several({name: rule}, lambda raw: raw.read(name, default, convert))


def required(name: str, rule: str, convert: Callable[[str], T]) -> T:
    """Return a field for an option that must be given, see `option`."""

    def read(raw: RawOptions) -> T:
        raw.need(name)
        return raw.read(name, None, convert)  # type: ignore[return-value]

    return several({name: rule}, read)


def switch(name: str, default: T, more: str = "") -> bool | T:
    """Return a field for an option that is `true` or `false`. `more` is appended to its rule."""
    return option(name, "true or false" + more, flag, default)


def count(name: str, default: T, more: str = "") -> int | T:
    """Return a field for an option that is a whole number from 1. `more` is appended to its rule."""
    return option(name, "a whole number from 1" + more, number(1), default)


def several(rules: Mapping[str, str], read: Callable[[RawOptions], T], *, secret: bool = False) -> T:
    """Return a field whose value is computed from several options, or from one option in a special way.

    Args:
        rules: the rule of each option that no earlier field has.
        read: computes the value; raises `ConfigError` for malformed options.
        secret: whether the `repr` of the table leaves out the value.
    """
    made: T = field(repr=not secret, metadata={_RULES: rules, _READ: read})
    return made


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the question whether a similar name was meant, or "" if no name is similar.

    Args:
        name: as written, in any case.
        known: the valid names.
        cutoff: minimum similarity, 0 to 1.
    """
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return f" (did you mean {by_lower[near[0]]}?)" if near else ""


def shown(name: str, value: str | None) -> str:
    """Return an option for messages: `name=value`, with a secret value redacted.

    The pattern of secret names is that of Spark's `spark.redaction.regex`. It is a search, so the value of a misspelled
    name is redacted too.
    """
    return f"{name}={REDACTED if _SECRET.search(name) and value else value}"


def with_credentials(values: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return options with the credentials of the environment, unless the options contain credentials.

    Tasks run on nodes with other environments, so the driver reads its own environment and passes the credentials on in
    the options.

    Args:
        values: options as written.
        environment: environment of this process, with or without `TIANZHOU_ACCESS_KEY` and `TIANZHOU_SECRET_KEY`.
    """
    names = {"accessKey": ACCESS_KEY_VARIABLE, "secretKey": SECRET_KEY_VARIABLE}
    if {name.lower() for name in names} & {key.lower() for key in values}:
        return dict(values)
    return dict(values) | {name: environment[of] for name, of in names.items() if environment.get(of)}


class MisreadOption(ValueError):
    """The text of an option is invalid. The message contains the reason."""


def rules_of(table: type) -> dict[str, str]:
    """Return the rule of each option of a table."""
    return {name: rule for one in fields(table) for name, rule in one.metadata[_RULES].items()}


class RawOptions:
    """The options as a user wrote them, with names in any case.

    Args:
        values: as written.
        table: the dataclass of the valid options.
        mode: the kind of query, where the values depend on it; None if it is not known yet.
        prefixes: in lower case. Names with one of these prefixes are accepted without being in the table, see `below`.

    Raises:
        ConfigError: an option is not in the table; suggests the most similar name.
    """

    def __init__(
        self, values: Mapping[str, str], table: type, mode: str | None = None, prefixes: tuple[str, ...] = ()
    ) -> None:
        self.mode = mode
        self._written = values
        self._values = {key.lower(): value for key, value in values.items()}
        self._known = rules_of(table)
        by_lower = {name.lower() for name in self._known}
        for key in values:
            if key.lower() not in by_lower | _SPARKS_OWN and not key.lower().startswith(prefixes):
                raise self._unknown(key, values[key])

    def parse(self, table: type[T]) -> T:
        """Read all fields of the table, in their order.

        Raises:
            ConfigError: an option is missing or malformed.
        """
        columns: Any = fields(table)  # type: ignore[arg-type]
        return table(**{one.name: one.metadata[_READ](self) for one in columns})

    def _unknown(self, key: str, value: str) -> ConfigError:
        return ConfigError(
            f"there is no option {shown(key, value)}{nearest(key, self._known)}; there are {', '.join(self._known)}"
        )

    def verbatim(self, name: str) -> str | None:
        """Return an option as written, None if it is missing."""
        return self._values.get(name.lower())

    def text(self, name: str) -> str | None:
        """Return an option without surrounding blanks, None if it is missing."""
        value = self.verbatim(name)
        return None if value is None else value.strip()

    def below(self, prefix: str) -> dict[str, str]:
        """Return the options with a prefix, as written, without the prefix."""
        return {name[len(prefix) :]: value for name, value in self._written.items() if name.lower().startswith(prefix)}

    def need(self, name: str) -> str:
        """Require an option.

        Raises:
            ConfigError: the option is missing or empty.
        """
        value = self.text(name)
        if not value:
            raise ConfigError(f"the option {name} is missing; expected {self._known[name]}")
        return value

    def bad(self, name: str, why: str = "") -> ConfigError:
        """Return the error for an invalid value of an option.

        Args:
            name: name of the option.
            why: the reason, if the rule does not explain it.
        """
        return ConfigError(f"{shown(name, self.text(name))}: {why + '; ' if why else ''}expected {self._known[name]}")

    def either(self, one: str, other: str) -> tuple[str | None, str | None]:
        """Return the values of two options that exclude each other.

        Raises:
            ConfigError: both are given.
        """
        first, second = self.text(one), self.text(other)
        if first is not None and second is not None:
            raise ConfigError(f"{one}={first} and {other}={second} are both given; give one of them")
        return first, second

    def read(self, name: str, default: D, convert: Callable[[str], T]) -> T | D:
        """Return an option's value, see `option`.

        Raises:
            ConfigError: the text is malformed.
        """
        value = self.text(name)
        if value is None:
            return default
        try:
            return convert(value)
        except MisreadOption as error:
            raise self.bad(name, str(error)) from None
        except (ValueError, KeyError, re.error, FilterSyntaxError):
            raise self.bad(name) from None


def tags(text: str) -> str:
    """Check a tag expression, and return it."""
    parse_tags(text)
    return text


def number(least: int) -> Callable[[str], int]:
    """Return a converter of whole numbers from `least`."""

    def convert(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise ValueError(text)
        return int(text)

    return convert


def duration_ms(text: str) -> int:
    """Convert a time like 500ms, 30s, 15m, 1h or 1d to milliseconds."""
    found = _DURATION.fullmatch(text)
    if found is None or (value := int(found[1]) * _UNITS[found[2]]) > MOST_MS:
        raise ValueError(text)
    return value


def flag(text: str) -> bool:
    """Convert `true` or `false`, in any case."""
    return {"true": True, "false": False}[text.lower()]


def addresses(text: str) -> str:
    """Check name servers, as `host:port` joined by `;` or `,`, and return the text."""
    for part in text.replace(",", ";").split(";"):
        fault = address_fault(part.strip()) if part.strip() else "one of the addresses is empty"
        if fault:
            raise MisreadOption(f"{part.strip()!r} is no address: {fault}" if part.strip() else fault)
    return text


def name(text: str) -> str:
    """Check the name of a topic or group, and return it."""
    if not _NAME.fullmatch(text) or len(text) > LONGEST_NAME:
        raise ValueError(text)
    return text


def names(text: str) -> tuple[str, ...]:
    """Split names at commas. Repeated names are returned once."""
    return tuple(map(name, name_list(text)))


def name_list(text: str) -> tuple[str, ...]:
    """Split a text at commas. Repeated parts are returned once."""
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(parts):
        raise ValueError(text)
    return parts


def one_of(*words: str) -> Callable[[str], str]:
    """Return a converter that accepts some words, in any case."""
    return lambda text: {word: word for word in words}[text.lower()]


def _tls_config_file(raw: RawOptions) -> str | None:
    file = raw.text("tlsConfigFile")
    if file is not None and not file:
        raise raw.bad("tlsConfigFile")
    if file is not None and not raw.read("tls", None, flag):
        # Without this error, a user who gives a trust store but not tls=true would connect without TLS.
        raise ConfigError(f"tlsConfigFile={file}: is read with tls=true only; give that too, or leave the file out")
    return file


def _secret_key(raw: RawOptions) -> str | None:
    for name in ("accessKey", "secretKey", "securityToken"):
        if raw.text(name) == "":
            raise raw.bad(name)
    keys = {name: raw.text(name) for name in ("accessKey", "secretKey")}
    missing = [name for name, value in keys.items() if value is None]
    if missing and (len(missing) == 1 or raw.text("securityToken") is not None):
        given = next(name for name in ("accessKey", "secretKey", "securityToken") if raw.text(name) is not None)
        raise ConfigError(
            f"{given} is given without {' and '.join(missing)}; give accessKey and secretKey together, as options or "
            f"as {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} in the environment of the driver"
        )
    return keys["secretKey"]


def _namespace_v2(raw: RawOptions) -> str | None:
    raw.either("namespace", "namespaceV2")
    return raw.read("namespaceV2", None, name)


def max_born_ahead() -> int:
    """Return a field for `maxBornAhead`, in ms."""
    rule = "a time like 1h or 1d, by which bornTimestamp may be later than storeTimestamp"
    return option("maxBornAhead", rule, duration_ms, MAX_BORN_AHEAD_MS)


def corrupt_bodies() -> str:
    """Return a field for `corruptBodies`."""
    return option("corruptBodies", " or ".join(CORRUPT_BODIES), one_of(*CORRUPT_BODIES), FAIL)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of all sources and sinks that connect to servers.

    Attributes:
        namesrv_addr: name servers, `host:port` joined by `;`.
        tls: whether to use TLS; None for the setting in each process's environment.
        tls_config_file: path of a file with RocketMQ's `tls.*` keys, the same on every machine; None for the path in
            the environment.
        access_key: the account that signs requests. None signs with the account of the process's environment, or not at
            all.
        secret_key: secret of the account.
        security_token: temporary token of a cloud service, sent with each request.
        namespace: prefix of the names of topics and groups, see `tianzhou.client.namespaces`.
        namespace_v2: namespace of RocketMQ 5, sent with each request. It leaves names unchanged.
    """

    namesrv_addr: str = required("namesrvAddr", "name servers as host:port, several joined by ; or ,", addresses)
    tls: bool | None = switch("tls", None)
    tls_config_file: str | None = several(
        {"tlsConfigFile": "a file of RocketMQ's tls.* keys, under this name on every machine"}, _tls_config_file
    )
    access_key: str | None = several(
        {"accessKey": "the name of an account, with secretKey"}, lambda raw: raw.text("accessKey"), secret=True
    )
    secret_key: str | None = several(
        {"secretKey": "the secret of accessKey", "securityToken": "a token of a cloud service, with accessKey"},
        _secret_key,
        secret=True,
    )
    security_token: str | None = several({}, lambda raw: raw.text("securityToken"), secret=True)
    namespace: str | None = option("namespace", f"a namespace: {NAME_RULE}", name, None)
    namespace_v2: str | None = several({"namespaceV2": f"a namespace of RocketMQ 5: {NAME_RULE}"}, _namespace_v2)
