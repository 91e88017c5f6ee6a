"""The page of settings agrees with the programs: every key has an effect and is read, or has a reason for none."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import settings_table as table

from tianzhou import limits
from tianzhou.settings import key_of

PRINT = "print it again: PYTHONPATH=src python tests/form/settings_table.py > docs/reference/settings.md"
SHOWN_ONLY = {
    # Figures and replies show them, but no code depends on them.
    "pullThreadPoolQueueCapacity", "litePullThreadPoolQueueCapacity", "queryThreadPoolQueueCapacity",
    "ackThreadPoolQueueCapacity", "endTransactionPoolQueueCapacity", "cgColdReadThreshold", "globalColdReadThreshold",
    # Computed from the filter's size.
    "bitMapLengthConsumeQueueExt",
}  # fmt: skip


def sources() -> str:
    root = table.ROOT / "src" / "tianzhou"
    # Clients have options of the same names, which are not the servers' settings.
    paths = [path for path in sorted(root.rglob("*.py")) if not path.is_relative_to(root / "client")]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


SOURCE = sources()
# Search for all keys in one pass, because one search per key would read the whole source four hundred times.
READ = {
    # Code reads a setting as an attribute, or by its name in quotation marks as the flow control does.
    *re.findall(r"\.(\w+)\b(?!\s*=[^=])", SOURCE),
    *re.findall(r'"(\w+)(?=")', SOURCE),
}
"""Names of all attributes that are read, and all names in quotation marks."""
CHECKED = set(re.findall(r"(?:check|allows|most)\(\s*(\w+)", SOURCE))
"""Constants of limits that `Bounds` reads, for its callers."""
CONSTANTS = {limit.name: name for name, limit in vars(limits).items() if isinstance(limit, limits.Limit)}


def test_the_page_is_what_the_programs_say() -> None:
    page = (table.ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert page == table.page(), PRINT


@pytest.mark.parametrize("section", table.SECTIONS, ids=lambda section: section[0])
def test_every_key_has_either_an_effect_or_a_reason(section: Any) -> None:
    _, settings, effects, idle = section
    keys, why = set(table.keys_of(settings)), table.reasons(idle)
    assert sorted(keys - effects.keys() - why.keys()) == [], "say what they do"
    assert sorted(effects.keys() - keys) == [], "there are no such keys"
    assert sorted(effects.keys() & why.keys()) == [], "they do something, or they do not"


def test_no_reason_stands_twice_or_for_keys_that_are_not_there() -> None:
    for idle, classes in (
        (table.ignored_settings.IGNORED, (table.BrokerSettings, table.StoreSettings)),
        (table.namesrv_settings.IGNORED, (table.NamesrvSettings,)),
    ):
        listed = [key for keys in idle.values() for key in keys]
        assert sorted(set(listed)) == sorted(listed)
        assert set(listed) <= {key for settings in classes for key in table.keys_of(settings)}


@pytest.mark.parametrize("section", table.SECTIONS[:3], ids=lambda section: section[0])
def test_what_has_an_effect_is_read_and_what_has_none_is_not(section: Any) -> None:
    _, settings, effects, idle = section
    why = table.reasons(idle)
    for field in dataclasses.fields(settings):
        key, name = key_of(field), field.name
        is_read = name in READ or CONSTANTS.get(key, key) in CHECKED
        if key in effects:
            assert is_read, f"{key}: nobody reads {name}; give the reason in ignored_settings.IGNORED"
        elif key not in SHOWN_ONLY:
            assert not is_read, f"{key}: somebody reads {name}; it is said to have no effect: {why[key]}"
