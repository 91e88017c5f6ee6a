"""Rules of settings: ranges, choices, and which settings may change while the server runs. Pure.

Each server has one `Rules`. The start and requests that change settings use the same checks, so that a request cannot
set a value that the next start would reject.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tianzhou.errors import ConfigError, Faults
from tianzhou.escaping import shown
from tianzhou.log_levels import KEY, parse_levels
from tianzhou.settings import dump, keyed_fields

INT_MAX: Final = 2_147_483_647
LONG_MAX: Final = 9_223_372_036_854_775_807
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """An invalid value.

    Attributes:
        key: the key.
        value: the value as text.
        expected: the valid values.
    """

    key: str
    value: str
    expected: str

    def __str__(self) -> str:
        return f"{self.key}={shown(self.value)}: {self.expected}"


Across = Callable[[Mapping[str, str]], Iterable[SettingProblem]]
"""Type of a check of settings together: it takes the values of all keys, and returns the invalid ones."""


@dataclass(frozen=True)
class Rules:
    """Rules for the settings of one kind of server.

    Attributes:
        server: "broker" or "name server", for messages.
        changeable: keys that a request may change while the server runs.
        fixed: the other keys, by reason.
        ranges: minimum and maximum of numbers; other numbers are limited only by their type.
        choices: valid values of texts.
        across: check of combinations.
        at_next_start: fixed keys that a request may write to the settings file for the next start.
    """

    server: str
    changeable: frozenset[str]
    fixed: Mapping[str, tuple[str, ...]]
    ranges: Mapping[str, Range] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    across: Across = lambda values: ()
    at_next_start: frozenset[str] = frozenset()

    def why_fixed(self, key: str) -> str:
        """Return why a key may not be changed while the server runs."""
        return next((reason for reason, keys in self.fixed.items() if key in keys), "it is read at the start only")


def check(rules: Rules, *settings: object, source: str, faults: Faults | None = None) -> None:
    """Reject invalid settings at a server's start.

    Args:
        rules: the rules of the server's settings.
        settings: the settings objects of one server.
        source: origin of the values, for messages.
        faults: collector of invalid values, except for consequences of faults that it already contains; None raises the
            faults.

    Raises:
        ConfigError: values are invalid; the text has key, value and valid values of each.
    """
    found = Faults.of(faults)
    invalid: set[str] = set()
    for problem in problems(rules, *settings):
        if not found.mentioned(str(problem)):
            found.note(f"{source}: {problem}")
            invalid.add(problem.key)
    found.keys |= invalid
    if faults is None:
        found.check()


def problems(rules: Rules, *settings: object) -> Iterator[SettingProblem]:
    """Yield the invalid values of settings.

    Args:
        rules: the rules of the server's settings.
        settings: the settings objects of one server.
    """
    for one in settings:
        for key, each in keyed_fields(type(one)):
            value = getattr(one, each.name)
            if isinstance(value, bool):
                continue
            if isinstance(value, int | float):
                least, most = rules.ranges.get(key, (-LONG_MAX, LONG_MAX))
                if not (math.isfinite(value) and least <= value <= most):
                    yield SettingProblem(key, str(value), f"expected {least:g} to {most:g}" if value != value else
                                  _expected(value, least, most))  # fmt: skip
            elif (allowed := rules.choices.get(key)) and value not in allowed:
                yield SettingProblem(key, value, f"expected {' or '.join(allowed)}")
    yield from rules.across(dump(*settings))


def _expected(value: float, least: float, most: float) -> str:
    if math.isfinite(value) and value < least:
        return f"must be at least {least}"
    return f"must be at most {most}"


def level_problems(values: Mapping[str, str]) -> Iterator[SettingProblem]:
    """Yield the setting of log levels if it is invalid."""
    try:
        parse_levels(values[KEY])
    except ConfigError as error:
        yield SettingProblem(KEY, values[KEY], str(error).partition(": ")[2])
