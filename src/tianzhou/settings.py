"""Settings as dataclasses, and their mapping to RocketMQ's configuration keys.

A settings class is a plain dataclass in snake_case. The RocketMQ key of a field is its name in camelCase, or the
field's metadata `key` if RocketMQ's spelling differs (`brokerIP1`). Files are Java properties (wire.md §1.13 end).
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeVar, get_type_hints

from tianzhou.errors import ConfigError, Faults
from tianzhou.escaping import shown

S = TypeVar("S")
MASK: Final = "******"
"""Text that replaces a secret in output."""
# Cached, because computing them takes longer than the rest of a request for settings.
_KINDS: Final[dict[type, dict[str, Any]]] = {}
_FIELDS: Final[dict[type, tuple[tuple[str, dataclasses.Field[Any]], ...]]] = {}
MAX_SUGGESTED_LENGTH: Final = 64
"""Maximum length of an unknown key, in characters, for which a known key is suggested."""
MAX_SUGGESTIONS: Final = 8
"""Maximum number of unknown keys per text for which a known key is suggested."""
_KEY_IN_ERROR: Final = re.compile(r"[\w.]*")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_HALF_CHARACTER: Final = re.compile("[\ud800-\udfff]")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_ESCAPES: Final = {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\f": r"\f", "=": r"\=", ":": r"\:",
                   "#": r"\#", "!": r"\!"}  # fmt: skip
_IN_KEY: Final = re.compile(r"[\\=:\s\ud800-\udfff]|^[#!]")
_IN_VALUE: Final = re.compile(r"[\\\n\r\t\f\ud800-\udfff]|^\s+|\s+$".replace(r"\s+", r"\s"))


def key_of(field: dataclasses.Field[Any]) -> str:
    """Return the RocketMQ key of a settings field."""
    explicit = field.metadata.get("key")
    if explicit:
        return str(explicit)
    head, *tail = field.name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def keyed(key: str, default: Any, *, secret: bool = False) -> Any:
    """Return a dataclass field whose RocketMQ key is not its name in camelCase.

    Args:
        key: the key.
        default: default value.
        secret: see `secret`.
    """
    return dataclasses.field(default=default, repr=not secret, metadata={"key": key, "secret": secret})


def formerly(key: str, default: Any) -> Any:
    """Return a dataclass field that had another key in RocketMQ 4.9. That key applies if the present one is not set.

    Args:
        key: the former key.
        default: default value.
    """
    return dataclasses.field(default=default, metadata={"former": key})


def secret(default: str) -> Any:
    """Return a dataclass field of a secret, such as a password. `repr`, `-p` and servers' replies do not show it."""
    return dataclasses.field(default=default, repr=False, metadata={"secret": True})


def parse_properties(text: str, *, source: str = "properties", faults: Faults | None = None) -> dict[str, str]:
    r"""Parse text of Java properties: `key=value` lines, `#` and `!` comments, `\` escapes and continuations.

    Args:
        text: the whole text.
        source: name of the file, for errors.
        faults: collector of faulty lines, which the result omits; None raises the faults.

    Raises:
        ConfigError: lines have no key; the text lists all these lines.
    """
    result: dict[str, str] = {}
    found = Faults.of(faults)
    logical = re.sub(r"(?<!\\)((?:\\\\)*)\\(?:\r\n|\r|\n)[ \t\f]*", r"\1", text)
    for number, raw in enumerate(_LINE_END.split(logical), 1):
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        match = re.match(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]?\s*(.*)", line, re.DOTALL)
        if match is None:
            found.note(f"{source}, line {number}: no key in {shown(repr(raw))}; write key=value")
            continue
        key, value = _unescape(match[1]), _unescape(match[2])
        if _HALF_CHARACTER.search(key + "\0" + value):
            found.note(f"{source}, line {number}: {shown(key)} holds half a character; write it whole")
            continue
        result[key] = value
    if faults is None:
        found.check()
    return result


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        body = match[1]
        if body[0] == "u" and len(body) == 5:
            return chr(int(body[1:], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(body, body)

    plain = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", replace, text, flags=re.DOTALL)
    # Java writes a character beyond 16 bits as two escapes.
    return _PAIR.sub(lambda pair: pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), plain)


def format_properties(values: Mapping[str, str]) -> str:
    """Return properties text in the form of RocketMQ's servers: one `key=value` per line.

    Only characters that would be read differently are escaped, as Java's `Properties` does.
    """
    return "".join(f"{_escape(key, _IN_KEY)}={_escape(value, _IN_VALUE)}\n" for key, value in values.items())


def _escape(text: str, special: re.Pattern[str]) -> str:
    return special.sub(lambda match: _ESCAPES.get(match[0], f"\\u{ord(match[0]):04x}"), text)


def bind(cls: type[S], values: Mapping[str, str], *, source: str = "configuration", faults: Faults | None = None) -> S:
    """Create a settings object from text values. Unknown keys are ignored; see `unknown_keys`.

    Args:
        cls: the class.
        values: texts by key.
        source: origin of the values, for messages.
        faults: collector of faulty values, whose fields get their defaults; None raises the faults.

    Raises:
        ConfigError: values do not have their fields' types; the text has key, value and accepted values of each.
    """
    return apply(cls(), values, source=source, faults=faults)


def apply(settings: S, values: Mapping[str, str], *, source: str = "configuration", faults: Faults | None = None) -> S:
    """Return a copy of `settings` with the text `values` set. Arguments and errors are those of `bind`."""
    hints = _kinds(type(settings))
    changes: dict[str, Any] = {}
    found = Faults.of(faults)
    for key, field in keyed_fields(type(settings)):
        if key not in values and field.metadata.get("former") in values:
            key = field.metadata["former"]
        if key in values:
            if field.metadata.get("secret") and values[key].strip() == MASK:
                found.note(f"{source}: {key}={MASK}: stands for a secret where it is shown; write the secret", key)
                continue
            with found.noted(key):
                changes[field.name] = _convert(hints[field.name], values[key], key, source)
    made = _replaced(settings, changes, source, found)
    if faults is None:
        found.check()
    return made


def _replaced(settings: S, changes: dict[str, Any], source: str, faults: Faults) -> S:
    """Return a copy with the changes that the class accepts."""
    names = {key: field.name for key, field in keyed_fields(type(settings))}
    while True:
        try:
            return dataclasses.replace(settings, **changes)  # type: ignore[type-var]
        except ValueError as error:
            # The text begins with the faulty key. Remove its value, so that the class checks the other values.
            key = _KEY_IN_ERROR.match(str(error))[0]  # type: ignore[index]
            faults.note(f"{source}: {error}", key)
            if changes.pop(names.get(key, ""), None) is None:
                return settings


def _kinds(cls: type) -> dict[str, Any]:
    if cls not in _KINDS:
        _KINDS[cls] = get_type_hints(cls)
    return _KINDS[cls]


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


def dump(*settings: object, hide_secrets: bool = False) -> dict[str, str]:
    """Return the values of settings objects as text, sorted by key.

    Args:
        settings: the objects.
        hide_secrets: whether to replace a secret that is set by `MASK`.
    """
    result: dict[str, str] = {}
    for one in settings:
        for key, field in keyed_fields(type(one)):
            value = getattr(one, field.name)
            hidden = hide_secrets and field.metadata.get("secret") and value != field.default
            result[key] = MASK if hidden else str(value).lower() if isinstance(value, bool) else str(value)
    return dict(sorted(result.items()))


def keyed_fields(cls: type) -> tuple[tuple[str, dataclasses.Field[Any]], ...]:
    """Return the fields of a settings class, each with its key."""
    if cls not in _FIELDS:
        _FIELDS[cls] = tuple((key_of(field), field) for field in dataclasses.fields(cls))
    return _FIELDS[cls]


def keys_of(*classes: type) -> frozenset[str]:
    """Return the keys of settings classes."""
    return frozenset(key for cls in classes for key, _ in keyed_fields(cls))


def nearest(key: str, known: Iterable[str]) -> str | None:
    """Return the known key most similar to a misspelt one; None when none is similar."""
    if len(key) > MAX_SUGGESTED_LENGTH:
        return None
    found = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
    return found[0] if found else None


def unknown_keys(values: Iterable[str], *classes: type) -> dict[str, str | None]:
    """Return the keys that no settings class has, each with the most similar known key; None when none is similar."""
    known = keys_of(*classes)
    former = {field.metadata.get("former") for cls in classes for _, field in keyed_fields(cls)}
    unknown = [key for key in values if key not in known and key not in former]
    # Searching a similar key takes milliseconds, and a peer may send thousands of keys.
    return {key: nearest(key, known) if at < MAX_SUGGESTIONS else None for at, key in enumerate(unknown)}


def differing(*settings: object) -> list[str]:
    """Return the keys of settings whose values are not the defaults."""
    shown, defaults = dump(*settings), dump(*(type(one)() for one in settings))
    return [key for key, value in shown.items() if value != defaults[key]]


def ignored_keys(keys: Iterable[str], ignored: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Return the configured keys without effect, by reason.

    Args:
        keys: keys that were set.
        ignored: the keys of each reason.
    """
    ordered = sorted(keys)
    found = {reason: [key for key in ordered if key in affected] for reason, affected in ignored.items()}
    return {reason: affected for reason, affected in found.items() if affected}


def ignored_lines(keys: Iterable[str], ignored: Mapping[str, Collection[str]]) -> list[str]:
    """Return messages about configured keys without effect, one line per reason."""
    return [f"no effect: {', '.join(names)}: {reason}" for reason, names in ignored_keys(keys, ignored).items()]
