"""Options as somebody gave them, and how each kind of value is read. Pure.

Every mistake is a `ConfigError` that names the option, its value and what is allowed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from tianzhou.errors import ConfigError, FilterSyntaxError
from tianzhou.filter.tags import parse_tags

T = TypeVar("T")

LONGEST_NAME: Final = 127
NAME_RULE: Final = f"letters, digits and % | _ -, at most {LONGEST_NAME} characters"
NAMESRV_RULE: Final = "name servers as host:port, several joined by ; or ,"
TLS_FILE_RULE: Final = "a file of RocketMQ's tls.* keys, under this name on every machine"

# What Spark itself hands to a source or a sink beside the options of the user.
_SPARKS_OWN: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})
_HOST: Final = re.compile(r"[^\s,;/]+")
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


class Given:
    """The options as given, whatever the case of their names.

    Args:
        values: as given.
        known: the options there are, and what is expected of each.

    Raises:
        ConfigError: one is given that is not known; names the nearest that is.
    """

    def __init__(self, values: Mapping[str, str], known: Mapping[str, str]) -> None:
        self._values = {key.lower(): value for key, value in values.items()}
        self._known = known
        by_lower = {name.lower() for name in known}
        for key in values:
            if key.lower() not in by_lower | _SPARKS_OWN:
                self._refuse_unknown(key, values[key])

    def _refuse_unknown(self, key: str, value: str) -> None:
        near = difflib.get_close_matches(key.lower(), [name.lower() for name in self._known], n=1, cutoff=0.6)
        hint = next((f" (did you mean {name}?)" for name in self._known if name.lower() in near), "")
        raise ConfigError(f"there is no option {key}={value}{hint}; there are {', '.join(self._known)}")

    def text(self, name: str) -> str | None:
        """The option without blanks around it, None when it is not given."""
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def rule(self, name: str) -> str:
        """What is expected of an option."""
        return self._known[name]

    def need(self, name: str) -> str:
        """An option that must be there.

        Raises:
            ConfigError: it is not, or is empty.
        """
        value = self.text(name)
        if not value:
            raise ConfigError(f"the option {name} is missing; expected {self._known[name]}")
        return value

    def bad(self, name: str, why: str = "") -> ConfigError:
        """The error for an option whose value cannot be.

        Args:
            name: the option.
            why: what is wrong with it, where that is not plain.
        """
        return ConfigError(f"{name}={self.text(name)}: {why + '; ' if why else ''}expected {self._known[name]}")

    def either(self, one: str, other: str) -> tuple[str | None, str | None]:
        """The values of two options of which at most one may be given.

        Raises:
            ConfigError: both are.
        """
        first, second = self.text(one), self.text(other)
        if first is not None and second is not None:
            raise ConfigError(f"{one}={first} and {other}={second} are both given; give one of them")
        return first, second

    def read(self, name: str, default: T, convert: Callable[[str], T]) -> T:
        """An option's value, `default` when it is not given.

        Args:
            name: the option.
            default: what it is otherwise.
            convert: makes the value of the text; raises `ValueError` or `FilterSyntaxError` when it cannot be.

        Raises:
            ConfigError: the text cannot be a value.
        """
        value = self.text(name)
        if value is None:
            return default
        try:
            return convert(value)
        except (ValueError, FilterSyntaxError):
            raise self.bad(name) from None


def tags(text: str) -> str:
    """A tag expression."""
    parse_tags(text)
    return text


def number(least: int) -> Callable[[str], int]:
    """What reads whole numbers from `least`."""

    def convert(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise ValueError(text)
        return int(text)

    return convert


def flag(text: str) -> bool:
    """`true` or `false`, in any case."""
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def addresses(text: str) -> str:
    """Name servers as `host:port`, joined by `;` or `,`."""
    for part in text.replace(",", ";").split(";"):
        host, colon, port = part.strip().rpartition(":")
        if not (_HOST.fullmatch(host) and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError(text)
    return text


def name(text: str) -> str:
    """The name of a topic or group."""
    if not _NAME.fullmatch(text) or len(text) > LONGEST_NAME:
        raise ValueError(text)
    return text


def names(text: str) -> tuple[str, ...]:
    """Names joined by commas, each once."""
    return tuple(dict.fromkeys(name(part.strip()) for part in text.split(",")))


def tls(given: Given) -> tuple[bool | None, str | None]:
    """The options `tls` and `tlsConfigFile`.

    Raises:
        ConfigError: one of them is wrong, or the file is given without `tls=true`.
    """
    wanted = given.read("tls", None, flag)
    file = given.text("tlsConfigFile")
    if file is not None and not file:
        raise given.bad("tlsConfigFile")
    if file is not None and not wanted:
        # Whoever names whom to trust would otherwise speak plain.
        raise ConfigError(f"tlsConfigFile={file}: is read with tls=true only; give that too, or leave the file out")
    return wanted, file
