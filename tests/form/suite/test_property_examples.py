"""Profiles set the numbers of examples, and single tests set none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import property_examples
from property_examples import COMMIT_EXAMPLES, FEWEST_EXAMPLES, SLOW_EXAMPLES, costly

TESTS = Path(__file__).parents[2]


def test_no_test_states_a_number_of_examples() -> None:
    own = {Path(property_examples.__file__), Path(__file__)}
    stating = [
        str(path.relative_to(TESTS))
        for path in sorted(TESTS.rglob("*.py"))
        if path not in own and re.search(r"\bmax_examples\b", path.read_text())
    ]
    assert stating == [], "leave max_examples out, or take @costly of tests/property_examples.py"


@pytest.mark.parametrize("name", ["quick", "commit", "usual", "slow"])
def test_no_profile_has_a_deadline(name: str) -> None:
    assert settings.get_profile(name).deadline is None


@pytest.mark.parametrize(("name", "examples"), [("commit", COMMIT_EXAMPLES), ("slow", SLOW_EXAMPLES)])
def test_costly_properties_take_a_part_of_the_profile(name: str, examples: int) -> None:
    profile = settings.get_profile(name)
    assert costly(0.2, profile=profile).max_examples == examples // 5
    assert costly(0.0001, profile=profile).max_examples == FEWEST_EXAMPLES
    assert costly(0.2, profile=profile).deadline is None
    sharing = costly(0.2, fixtures=True, profile=profile).suppress_health_check
    assert HealthCheck.function_scoped_fixture in sharing
    assert HealthCheck.function_scoped_fixture not in costly(0.2, profile=profile).suppress_health_check
