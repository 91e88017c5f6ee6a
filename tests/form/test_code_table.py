"""The page of request codes agrees with the programs, and every served code has a test."""

from __future__ import annotations

import re

import code_table as table
import pytest

PRINT = "print it again: PYTHONPATH=src python tests/form/code_table.py > docs/reference/codes.md"
SERVED = table.broker_handlers() | table.namesrv_handlers() | table.client_handlers()


def test_the_page_is_what_the_programs_say() -> None:
    page = (table.ROOT / "docs" / "reference" / "codes.md").read_text(encoding="utf-8")
    assert page == table.page(), PRINT


def test_every_code_is_served_or_has_a_reason() -> None:
    listed = set(table.listed_codes()) | set(table.own_codes())
    assert len(listed) > 130
    assert listed - SERVED.keys() == table.REASONS.keys(), "name the reason in REASONS"
    assert SERVED.keys() - listed == set()


def test_declared_codes_nobody_serves_are_served_by_nobody() -> None:
    # Name servers serve 904, as well as controllers.
    assert SERVED.keys() & set(table.listed_codes(("3.6", "3.7"))) == {904}


def test_every_served_code_has_a_test() -> None:
    assert sorted(SERVED.keys() - table.TESTS.keys()) == [], "name a test in TESTS"
    assert table.TESTS.keys() - SERVED.keys() == set()


@pytest.mark.parametrize("where", sorted(set(table.TESTS.values())))
def test_the_tests_named_exist(where: str) -> None:
    file, _, name = where.partition("::")
    source = (table.ROOT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"^(?:async )?def {re.escape(name)}\(", source, re.MULTILINE), where
