"""The command line in the test's process, and configuration files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tianzhou.cli import main as entry


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process; exit code, stdout, stderr."""

    def runner(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tianzhou", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            entry.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return runner


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a configuration file; the home directory is a folder of the test."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def write(content: str | bytes, name: str = "broker.conf") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
