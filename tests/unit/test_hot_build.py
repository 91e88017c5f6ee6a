"""Builds on machines that cannot compile the hot functions (`scripts/hatch_build.py`)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "hatch_build.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the build script as on a machine without Python's headers."""
    spec = importlib.util.spec_from_file_location("hatch_build", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def compile_in(folder: Path, target: Path) -> Path:
        raise RuntimeError("fatal error: Python.h: No such file or directory")

    monkeypatch.setattr(module, "compile_in", compile_in)
    for name in ("TIANZHOU_PURE", "TIANZHOU_REQUIRE_COMPILED"):
        monkeypatch.delenv(name, raising=False)
    return module


def build(script: ModuleType) -> tuple[list[str], dict[str, Any]]:
    """Build a wheel; return the messages that hatchling shows and the build data of the wheel."""
    said: list[str] = []
    hook = type("Hook", (script.CompileHot,), {"__init__": lambda self: None, "app": None})()
    type(hook).app = SimpleNamespace(display_warning=said.append, display_info=said.append)
    data: dict[str, Any] = {"force_include": {}}
    hook.initialize("standard", data)
    return said, data


def test_a_build_without_headers_is_pure_with_a_warning(script: ModuleType) -> None:
    said, data = build(script)
    assert data == {"force_include": {}}
    assert len(said) == 2
    assert all("stay pure Python" in one and "Python.h" in one and "python3-dev" in one for one in said)


def test_a_build_that_must_be_compiled_fails_and_names_cause_and_remedy(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIANZHOU_REQUIRE_COMPILED", "1")
    with pytest.raises(script.NotCompiledError) as caught:
        build(script)
    assert "TIANZHOU_REQUIRE_COMPILED is set" in str(caught.value)
    assert "tianzhou/_hot: fatal error: Python.h" in str(caught.value)
    assert "gcc, libc6-dev, python3-dev" in str(caught.value)


def test_zero_requires_no_compiled_build(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIANZHOU_REQUIRE_COMPILED", "0")
    assert len(build(script)[0]) == 2


def test_a_build_that_must_be_compiled_and_pure_is_refused(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIANZHOU_REQUIRE_COMPILED", "1")
    monkeypatch.setenv("TIANZHOU_PURE", "1")
    with pytest.raises(script.NotCompiledError, match="TIANZHOU_PURE are both set; unset one"):
        build(script)
