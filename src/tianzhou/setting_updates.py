"""Requests that change settings. A request is validated as a whole before any change is applied. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tianzhou.errors import ConfigError, Faults, SettingFixed
from tianzhou.escaping import escaped, shown
from tianzhou.limits import CONFIG_UPDATE_BYTES, CONFIG_UPDATE_KEYS, CONFIG_VALUE_LENGTH, Refusals
from tianzhou.setting_rules import Rules, problems
from tianzhou.settings import MASK, apply, dump, parse_properties, unknown_keys

REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Update:
    """The validated changes of a request.

    Attributes:
        settings: copies of the settings objects with the new values, in the same order.
        changed: keys whose values change.
        unknown: unknown keys, each with the most similar known key.
    """

    settings: tuple[Any, ...]
    changed: frozenset[str]
    unknown: Mapping[str, str | None]


def read_update(body: bytes, refusals: Refusals) -> dict[str, str]:
    """Parse keys and values of a request.

    Raises:
        ConfigError: the body is invalid, or contains control characters.
        LimitExceeded: the body is too large.
    """
    refusals.check(CONFIG_UPDATE_BYTES, len(body), CONFIG_UPDATE_BYTES.default)
    lines = 1 + body.count(b"\n") + body.count(b"\r")
    refusals.check(CONFIG_UPDATE_KEYS, lines, CONFIG_UPDATE_KEYS.default)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the configuration cannot be read: {error}") from None
    values = parse_properties(text, source=REQUEST)
    for key, value in values.items():
        refusals.check(CONFIG_VALUE_LENGTH, max(len(key), len(value)), CONFIG_VALUE_LENGTH.default, key)
        if escaped(key) != key or escaped(value) != value:
            raise ConfigError(
                f"{REQUEST}: {shown(key)}={shown(value)}: holds a control character; give the value without it"
            )
    return values


def judge(
    rules: Rules,
    values: Mapping[str, str],
    settings: Iterable[Any],
    black_list: Collection[str],
    refusal: Callable[[str], str],
    *,
    at_next_start: bool = False,
) -> Update:
    """Validate a request and apply it to copies of the settings.

    Unknown keys are ignored, as at Apache's servers.

    Args:
        rules: the rules of the server's settings.
        values: new values by key.
        settings: the settings in force.
        black_list: keys that no request may change.
        refusal: returns the text for a key of the black list.
        at_next_start: whether the values apply from the next start on; they may then include `rules.at_next_start`.

    Raises:
        SettingFixed: a key may not be changed while the server runs.
        ConfigError: a value is invalid.
    """
    present = tuple(settings)
    for key in values:
        if key in black_list:
            raise SettingFixed(refusal(key))
    before = dump(*present)
    # A client that sends displayed values back has seen only the mask of secrets.
    wanted = dict(values)
    if any(value.strip() == MASK for value in values.values()):
        masked = dump(*present, hide_secrets=True)
        wanted = {key: value for key, value in values.items() if not value.strip() == masked.get(key) == MASK}
    faults = Faults()
    updated = tuple(apply(one, wanted, source=REQUEST, faults=faults) for one in present)
    after = dump(*updated)
    changed = frozenset(key for key in after if after[key] != before[key])
    for key in sorted(changed - rules.changeable - (rules.at_next_start if at_next_start else frozenset())):
        value = shown(dump(*updated, hide_secrets=True)[key])
        raise SettingFixed(
            f"{key}={value}: may not be changed while the {rules.server} runs ({rules.why_fixed(key)}); "
            f"{_way(rules, key, value)} and start the {rules.server} again"
        )
    for problem in problems(rules, *updated) if changed else ():
        # The next start rejects a file with any problem.
        if problem.key in changed or at_next_start:
            faults.note(f"{REQUEST}: {problem}")
    faults.check()
    return Update(updated, changed, unknown_keys(values, *map(type, present)))


def _way(rules: Rules, key: str, value: str) -> str:
    by_file = "set it in the configuration file"
    return f"run `tianzhou config set --at-next-start {key}={value}`" if key in rules.at_next_start else by_file


def with_saved(rules: Rules, values: Mapping[str, str], settings: Iterable[Any]) -> tuple[tuple[Any, ...], list[str]]:
    """Return settings with the changes that the server saved in its file while it last ran.

    The file never prevents a start: invalid values are ignored.

    Args:
        rules: the rules of the server's settings.
        values: values in the file.
        settings: settings to apply the values to.

    Returns:
        The settings, and a message for each ignored key.
    """
    present, left_out = tuple(settings), []
    for key, near in unknown_keys(values, *map(type, present)).items():
        left_out.append(f"unknown key {shown(key)} is ignored" + (f"; meant {near}?" if near else ""))
    for key, value in values.items():
        try:
            present = judge(rules, {key: value}, present, (), str, at_next_start=True).settings
        except ConfigError as error:
            left_out.append(f"{shown(str(error).removeprefix(f'{REQUEST}: '))}; it is ignored")
    return present, left_out
