"""Without the packages of the extra `bench`, the error names the missing one and the command that installs it."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

from tianzhou.bench import plot, series, workload
from tianzhou.errors import ConfigError

HOW = r"install it with: pip install 'tianzhou\[bench\]'"


def test_without_the_histogram(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdrh.histogram", None)
    with pytest.raises(ConfigError, match=f"bench needs the package hdrhistogram; {HOW}"):
        series.RunSeries(0)


def test_without_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match=f"--workload needs PyYAML; {HOW}"):
        workload.parse("topics: 1", "w.yaml")


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name == "matplotlib" else found(name, package)

    monkeypatch.setattr(plot, "find_spec", without)
    with pytest.raises(ConfigError, match=f"--png needs matplotlib; {HOW}"):
        plot.check_can_plot()
