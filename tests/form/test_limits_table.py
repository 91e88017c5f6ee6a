"""The page of limits agrees with the programs, and each limit has a test that exceeds it by one."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import limits_table
import pytest

from tianzhou.broker.settings import BrokerSettings
from tianzhou.limits import LIMITS
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.settings import key_of
from tianzhou.store.settings import StoreSettings

ROOT = Path(__file__).resolve().parents[2]
OF_SERVER = {
    "broker": ((BrokerSettings, StoreSettings),),
    "name server": ((NamesrvSettings,),),
    "both": ((BrokerSettings, StoreSettings), (NamesrvSettings,)),
}


def test_the_page_is_what_the_programs_say() -> None:
    page = (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
    assert page == limits_table.page(), (
        "print it again: PYTHONPATH=src python tests/form/limits_table.py > docs/reference/limits.md"
    )


@pytest.mark.parametrize(
    "name", sorted(name for name, one in LIMITS.items() if not one.fixed and one.server != "client")
)
def test_a_limit_with_a_key_is_a_setting_with_its_default(name: str) -> None:
    limit = LIMITS[name]
    for classes in OF_SERVER[limit.server]:
        found = [field for one in classes for field in dataclasses.fields(one) if key_of(field) == name]
        assert [field.default for field in found] == [limit.default]


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_a_test_goes_one_over_each_limit(name: str) -> None:
    pattern = re.compile(rf'over_limit\(\s*"{re.escape(name)}"')
    tests = (ROOT / "tests").rglob("test_*.py")
    assert any(pattern.search(path.read_text(encoding="utf-8")) for path in tests), (
        f'mark the test that goes one over it with @pytest.mark.over_limit("{name}")'
    )
