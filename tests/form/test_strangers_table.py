"""The page of foreign clients lists the features of each, and an existing test proves each cell."""

from __future__ import annotations

import pytest
import strangers_table as table

FEATURES = {feature.name: feature for feature in table.FEATURES}


def test_the_page_is_what_the_tests_say() -> None:
    print_again = "print it again: .venv/bin/python tests/form/strangers_table.py"
    assert table.PAGE.read_text(encoding="utf-8") == table.page(), print_again


def test_no_feature_is_listed_twice() -> None:
    assert len(FEATURES) == len(table.FEATURES)


@pytest.mark.parametrize("name", FEATURES)
def test_each_cell_has_a_test_or_a_reason(name: str) -> None:
    feature = FEATURES[name]
    for test in feature.tests:
        assert table.versions_of(test), test
    for client in table.CLIENTS:
        proved = bool(list(table.proofs(feature, client)))
        assert proved is (client not in feature.missing), f"{client}: a test or a reason, and not both"
    for check in feature.ours:
        assert list(table.ours(feature, "5.3.3")), check
