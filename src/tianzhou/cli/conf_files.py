"""`broker.conf` and `namesrv.conf`: reading, printing, and errors for invalid settings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tianzhou.cli.output import Output, print_json, print_note, print_text
from tianzhou.errors import ConfigError, Faults
from tianzhou.escaping import shown
from tianzhou.setting_files import decoded
from tianzhou.setting_rules import Rules, check
from tianzhou.settings import (
    bind,
    differing,
    dump,
    format_properties,
    ignored_keys,
    ignored_lines,
    keys_of,
    parse_properties,
    unknown_keys,
)

NO_TIMERS: Final = (
    "this version delivers no messages at arbitrary times (timers) and refuses those that ask for it; use delay levels"
)
_PATH_KEY: Final = re.compile("path|paths|home|dir$", re.IGNORECASE)
_NOT_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")

# Settings that must not be ignored silently, because messages or secrets might be lost.
_REFUSED: Final = {
    ("enableControllerMode", "true"): "this version has no controller",
    ("enableControllerInNamesrv", "true"): "this version has no controller",
    ("storeType", "defaultRocksDB"): "this version keeps RocketMQ's default store only",
}


def read_conf(path: Path | None, *classes: type, faults: Faults | None = None) -> dict[str, str]:
    """Return the values of a configuration file. Print a warning for each key that no settings class has.

    Paths in it may begin with `~` and contain `${user.home}`.

    Args:
        path: the file; None gives no values.
        classes: settings classes of the known keys.
        faults: collects the faults of lines and values, and the result omits these lines; None raises the faults.

    Raises:
        ConfigError: the file cannot be read, or sets a feature that this version lacks. The error contains each faulty
            line.
    """
    if path is None:
        return {}
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"-c {path}: {error.strerror}; name a file of lines key=value") from error
    if _NOT_TEXT.search(data):
        raise ConfigError(f"-c {path}: is no text; name a file of lines key=value")
    found = Faults.of(faults)
    values = parse_properties(decoded(data), source=str(path), faults=found)
    with found.noted():
        check_served(values, str(path))
    # It is the default, and files that a server or `-p` has written contain every key, which no user has chosen.
    chosen = 2 * len(values) < len(keys_of(*classes))
    if chosen and values.get("timerWheelEnable", "").strip().lower() == "true":
        print_note(f"warning: {path}: timerWheelEnable=true: {NO_TIMERS}")
    for key, near in unknown_keys(values, *classes).items():
        hint = f"; did you mean {near}?" if near else ""
        print_note(f"warning: {path}: unknown key {key} is ignored{hint}")
    return _expanded(values, str(path), found, is_raised=faults is None)


def _expanded(values: Mapping[str, str], source: str, faults: Faults, *, is_raised: bool) -> dict[str, str]:
    expanded = {}
    for key, value in values.items():
        with faults.noted(key):
            expanded[key] = expand(key, value, source) if _PATH_KEY.search(key) else value
    if is_raised:
        faults.check()
    return expanded


def read_assignments(option: str, texts: Iterable[str], *classes: type, faults: Faults | None = None) -> dict[str, str]:
    """Return the values of `KEY=VALUE` texts of a command line.

    Args:
        option: the option with the texts, for messages.
        texts: the texts.
        classes: settings classes of the known keys.
        faults: collects the faults; None raises them.

    Raises:
        ConfigError: some texts are malformed, have unknown keys, or set a feature that this version lacks.
    """
    found = Faults.of(faults)
    values: dict[str, str] = {}
    for text in texts:
        with found.noted():
            key, value = assignment(text, f"{option} ")
            values[key] = value
    for key, near in unknown_keys(values, *classes).items():
        hint = f"did you mean {near}?" if near else "docs/reference/settings.md lists all keys"
        found.note(f"{option} {shown(key)}: there is no such key; {hint}")
    with found.noted():
        check_served(values, option)
    return _expanded(values, option, found, is_raised=faults is None)


def assignment(text: str, where: str = "") -> tuple[str, str]:
    """Parse `KEY=VALUE`.

    Args:
        text: the text.
        where: prefix of messages.

    Raises:
        ConfigError: the text has another form.
    """
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"{where}{shown(text)}: write KEY=VALUE, as in fileReservedTime=48")
    return key.strip(), value.strip()


def expand(key: str, value: str, source: str) -> str:
    """Return a path with `~` and `${user.home}` replaced. Relative paths remain relative to the working directory.

    Raises:
        ConfigError: the path contains another `${…}`.
    """
    text = value.replace("${user.home}", str(Path.home()))
    if "${" in text:
        raise ConfigError(f"{source}: {key}={value}: only ${{user.home}} is replaced; write the path out")
    if text == "~" or text.startswith("~/"):
        text = str(Path.home()) + text[1:]
    return text


def check_served(values: Mapping[str, str], source: str) -> None:
    """Reject settings that this version would silently ignore.

    Raises:
        ConfigError: there are such settings. The error contains the key, value and reason of each.
    """
    faults = Faults()
    for (key, refused), why in _REFUSED.items():
        if values.get(key, "").strip().lower() == refused.lower():
            faults.note(f"{source}: {key}={values[key]}: {why}; remove the key to go on without it")
    faults.check()


def check_given(rules: Rules, kinds: Iterable[type], values: Mapping[str, str], source: str, faults: Faults) -> None:
    """Note each value that is unreadable or out of its range. The server checks combinations of values.

    Args:
        rules: the rules of a server.
        kinds: the classes of its settings.
        values: the given values; other keys have their defaults.
        source: origin of the values, for messages.
        faults: collects the faults.
    """
    given = replace(rules, across=lambda _: ())
    check(given, *(bind(kind, values, source=source, faults=faults) for kind in kinds), source=source, faults=faults)


def check_port(name: str, port: int, *, least: int = 0) -> int:
    """Check a port, and return it.

    Args:
        name: flag or key, for the message.
        port: the value; 0 for any free port.
        least: minimum of other values.

    Raises:
        ConfigError: the port is out of range.
    """
    if port != 0 and not max(least, 1) <= port <= 65_535:
        raise ConfigError(f"{name} {port}: expected {max(least, 1)} to 65535, or 0 for any free port")
    return port


def print_ignored(
    source: str, ignored: Mapping[str, Collection[str]], *settings: object, written: Collection[str] = ()
) -> None:
    """Warn on stderr of settings that have no effect here, with one line per reason.

    Args:
        source: origin of the settings.
        ignored: keys without effect, by reason.
        settings: the settings.
        written: keys that a server has written itself.
    """
    for line in ignored_lines(sorted(set(differing(*settings)) - set(written)), ignored):
        print_note(f"warning: {source}: {line}")


def print_settings(
    settings: list[Any], only: set[str] | None, output: Output, ignored: Mapping[str, Collection[str]]
) -> None:
    """Print settings under RocketMQ's keys, with secrets masked, and note those without effect.

    Args:
        settings: the settings.
        only: the keys to print; None for all.
        output: form of the output.
        ignored: keys without effect, by reason.
    """
    values = {key: value for key, value in dump(*settings, hide_secrets=True).items() if only is None or key in only}
    without_effect = {
        key: reason
        for reason, keys in ignored_keys(differing(*settings), ignored).items()
        for key in keys
        if key in values
    }
    if output is Output.json:
        print_json({**values, "withoutEffect": without_effect} if without_effect else values)
        return
    lines = [f"# no effect, {reason}: {key}\n" for key, reason in without_effect.items()]
    print_text((format_properties(values) + "".join(lines)).rstrip("\n"))
