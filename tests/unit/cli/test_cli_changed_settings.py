"""Every setting that a running server accepts, its next start accepts; every setting that a start refuses, a server
refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from property_examples import costly
from tianzhou.broker.changeable_settings import AT_ONCE
from tianzhou.broker.changeable_settings import RULES as BROKER_RULES
from tianzhou.broker.settings import BrokerSettings
from tianzhou.cli.conf_files import check_served, read_conf
from tianzhou.cli.serving.server_settings import broker_settings
from tianzhou.errors import TianzhouError
from tianzhou.limits import Refusals
from tianzhou.namesrv.changeable_settings import RULES as NAME_SERVER_RULES
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.setting_files import write_settings
from tianzhou.setting_rules import check
from tianzhou.setting_updates import judge, read_update
from tianzhou.settings import bind, dump, format_properties, keyed_fields, keys_of, parse_properties
from tianzhou.store.settings import StoreSettings

VALUES = [
    "", " ", "-1", "0", "1", "9", "101", "65536", "2147483648", "9223372036854775808", "1" * 30, "1e9", "nan", "inf",
    "true", "false", "x", "x;y", "127.0.0.1:9876", "127.0.0.1:99999", "25", "04;23", "1s 2s", "a\\", "a=b", "#x", "~",
    "${user.home}", "${x}", "SLAVE", "SYNC_FLUSH", "defaultRocksDB", "中", "٣",
]  # fmt: skip
BROKER_KEYS = sorted(keys_of(BrokerSettings, StoreSettings))
NO_NUMBERS = ("", "x", "1s 2s")
SOME_FLAGS = ("", "true", "false", "1", "x")


def values_to_try(every: bool) -> dict[str, list[str]]:
    """Return values for each changeable key of a broker.

    Args:
        every: whether numbers and flags get each text of `VALUES`. Otherwise they get each text that their type can
            hold and a few others, which the broker refuses for the same reason as it refuses the remaining texts.
    """
    kinds = {key: type(value) for one in (BrokerSettings(), StoreSettings()) for key, value in shown_types(one)}
    chosen = {int: [one for one in VALUES if is_whole(one) or one in NO_NUMBERS], bool: list(SOME_FLAGS)}
    return {key: VALUES if every else chosen.get(kinds[key], VALUES) for key in sorted(AT_ONCE)}


def shown_types(settings: BrokerSettings | StoreSettings) -> Iterator[tuple[str, object]]:
    for key, field in keyed_fields(type(settings)):
        yield key, getattr(settings, field.name)


def is_whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def accepted_by_broker(values: dict[str, str], root: Path) -> dict[str, str] | None:
    settings = replace(BrokerSettings(), broker_name="b"), replace(StoreSettings(), store_path_root_dir=str(root))
    try:
        read = read_update(format_properties(values).encode(), Refusals())
        return dump(*judge(BROKER_RULES, read, settings, (), str).settings)
    except TianzhouError:
        return None


def started_again(values: dict[str, str], root: Path) -> None:
    file = root / "broker.conf"
    write_settings(file, values, values)
    settings, store_settings, _ = broker_settings(file, "")
    shown = dump(settings, store_settings)
    for key, value in values.items():
        assert shown[key] == value or key in {"brokerConfigPath", "storePathCommitLog", "haListenPort"}, key


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["fitting", "every"])
def test_a_start_takes_what_a_running_broker_takes(tmp_path: Path, every: bool) -> None:
    unchanged = accepted_by_broker({}, tmp_path)
    assert unchanged is not None
    unread = parse_properties(format_properties(unchanged))
    assert unread == unchanged
    for key, values in values_to_try(every).items():
        for value in values:
            accepted = accepted_by_broker({key: value}, tmp_path)
            if accepted is None or value == accepted[key] == "":
                continue
            # The test has read the lines of all other keys above.
            changed = {name: shown for name, shown in accepted.items() if shown != unchanged[name]}
            text = unread | parse_properties(format_properties(changed))
            assert text == accepted
            check_served(text, "start")
            settings, store_settings = bind(BrokerSettings, text), bind(StoreSettings, text)
            check(BROKER_RULES, settings, store_settings, source="start")
            assert dump(settings, store_settings) == accepted


@costly(0.4)
@given(st.dictionaries(st.sampled_from(BROKER_KEYS), st.sampled_from(VALUES), min_size=1, max_size=3))
def test_so_it_does_for_several_keys_together(tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]) -> None:
    root = tmp_path_factory.mktemp("start")
    accepted = accepted_by_broker(values, root)
    if accepted is not None:
        started_again(accepted, root)


@pytest.mark.parametrize("key", sorted(keys_of(NamesrvSettings)))
def test_a_start_takes_what_a_running_name_server_takes(key: str, tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    for value in VALUES:
        try:
            read = read_update(format_properties({key: value}).encode(), Refusals())
            update = judge(NAME_SERVER_RULES, read, (NamesrvSettings(),), (), str)
        except TianzhouError:
            continue
        write_settings(file, dump(*update.settings), update.changed)
        again = bind(NamesrvSettings, read_conf(file, NamesrvSettings), source=str(file))
        check(NAME_SERVER_RULES, again, source=str(file))
        changed = update.changed - {"kvConfigPath", "configStorePath"}
        assert {name: dump(again)[name] for name in changed} == {name: dump(*update.settings)[name] for name in changed}
