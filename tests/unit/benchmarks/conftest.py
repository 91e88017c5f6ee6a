"""The modules of `benchmarks/`, which are scripts and no package, as fixtures."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def module(name: str) -> Callable[..., Any]:
    @pytest.fixture
    def load(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        monkeypatch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module(name)

    return load


tables, lines, stored = module("tables"), module("lines"), module("stored")
clients, seeds = module("clients"), module("faults.seeds")
measured, feed, spark = module("spark_session"), module("spark_feed"), module("spark")
