"""Seeds of randomised tests: a few in each run, more in `./test --slow`."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(each_run: int, slow: int, first: int = 0) -> list[Any]:
    """Return the values of a parameter `seed`.

    Args:
        each_run: number of seeds of each run.
        slow: number of further seeds, which `./test --slow` alone runs.
        first: the first seed.
    """
    numbers = range(first, first + each_run + slow)
    return [*numbers[:each_run], *(pytest.param(seed, marks=pytest.mark.slow) for seed in numbers[each_run:])]
