"""Programs run on the fastest loop installed."""

from __future__ import annotations

import asyncio
import builtins
from typing import Any

import pytest

from tianzhou.remoting.loop import loop_factory, run


def test_run_returns_what_the_coroutine_returns() -> None:
    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert run(main()) == type(loop_factory()()).__module__


def test_without_uvloop_it_is_asyncios_own(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "uvloop":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert loop_factory() is asyncio.new_event_loop
