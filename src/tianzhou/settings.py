"""Settings as dataclasses, bound to RocketMQ's configuration keys in this one place.

A settings class is a plain dataclass in snake_case. Its RocketMQ key is the camelCase of the field's name, or
the field's metadata `key` where RocketMQ spells it otherwise (`brokerIP1`). Files are Java properties
(wire.md §1.13 end).
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar, get_type_hints

from tianzhou.errors import ConfigError

S = TypeVar("S")


def key_of(field: dataclasses.Field[Any]) -> str:
    """The RocketMQ key of a settings field."""
    explicit = field.metadata.get("key")
    if explicit:
        return str(explicit)
    head, *tail = field.name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def keyed(key: str, default: Any) -> Any:
    """A dataclass field whose RocketMQ key is not the camelCase of its name."""
    return dataclasses.field(default=default, metadata={"key": key})


def parse_properties(text: str, *, source: str = "properties") -> dict[str, str]:
    r"""Read Java-properties text: `key=value` lines, `#` and `!` comments, `\` escapes and continuations.

    Args:
        text: the whole text.
        source: file name for error messages.

    Raises:
        ConfigError: a line has no key.
    """
    result: dict[str, str] = {}
    logical = re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t]*", r"\1", text)
    for number, raw in enumerate(logical.splitlines(), 1):
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        match = re.match(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]?\s*(.*)", line)
        if match is None:
            raise ConfigError(f"{source}, line {number}: no key in {raw!r}; write key=value")
        result[_unescape(match[1])] = _unescape(match[2])
    return result


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        body = match[1]
        if body[0] == "u" and len(body) == 5:
            return chr(int(body[1:], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(body, body)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", replace, text)


def format_properties(values: Mapping[str, str]) -> str:
    """Properties text as RocketMQ's servers write it: one `key=value` a line, unescaped."""
    return "".join(f"{key}={value}\n" for key, value in values.items())


def bind(cls: type[S], values: Mapping[str, str], *, source: str = "configuration") -> S:
    """Make a settings object from text values; keys the class does not know are left to `unknown_keys`.

    Raises:
        ConfigError: a value cannot be read as its field's type; names key, value and what is accepted.
    """
    return apply(cls(), values, source=source)


def apply(settings: S, values: Mapping[str, str], *, source: str = "configuration") -> S:
    """A copy of `settings` with the text `values` set.

    Raises:
        ConfigError: as `bind`.
    """
    hints = get_type_hints(type(settings))
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        key = key_of(field)
        if key in values:
            changes[field.name] = _convert(hints[field.name], values[key], key, source)
    try:
        return dataclasses.replace(settings, **changes)  # type: ignore[type-var]
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from error


def _convert(kind: Any, text: str, key: str, source: str) -> Any:
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{source}: {key}={text}: expected true or false")
        return text.lower() == "true"
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            noun = "a whole number" if kind is int else "a number"
            raise ConfigError(f"{source}: {key}={text}: expected {noun}") from None
    return text


def dump(*settings: object) -> dict[str, str]:
    """Every key of the given settings objects with its value as text, sorted by key."""
    result: dict[str, str] = {}
    for one in settings:
        for field in dataclasses.fields(one):  # type: ignore[arg-type]
            value = getattr(one, field.name)
            result[key_of(field)] = str(value).lower() if isinstance(value, bool) else str(value)
    return dict(sorted(result.items()))


def unknown_keys(values: Iterable[str], *classes: type) -> dict[str, str | None]:
    """Keys that none of the settings classes has, each with the nearest known key (None: nothing is near)."""
    known = {key_of(field) for cls in classes for field in dataclasses.fields(cls)}
    unknown: dict[str, str | None] = {}
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
            unknown[key] = near[0] if near else None
    return unknown


def differing(*settings: object) -> list[str]:
    """The keys of the settings whose values are not the defaults."""
    shown, defaults = dump(*settings), dump(*(type(one)() for one in settings))
    return [key for key, value in shown.items() if value != defaults[key]]


def idle_keys(keys: Iterable[str], idle: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Those of the keys that change nothing, by the reason why.

    Args:
        keys: what somebody has set.
        idle: reason to all the keys it holds for.
    """
    wanted = sorted(keys)
    found = {reason: [key for key in wanted if key in those] for reason, those in idle.items()}
    return {reason: those for reason, those in found.items() if those}


def idle_lines(keys: Iterable[str], idle: Mapping[str, Collection[str]]) -> list[str]:
    """What to tell somebody who has set keys that change nothing: a line per reason."""
    return [f"no effect: {', '.join(those)}: {reason}" for reason, those in idle_keys(keys, idle).items()]
