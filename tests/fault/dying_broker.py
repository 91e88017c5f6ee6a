"""Brokers that die in tests: the bench of the broker's unit tests, in flying time, and what a dying process leaves."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

from tianzhou.testing.clock import VirtualClock, run

BROKER_TESTS = Path(__file__).resolve().parents[1] / "unit" / "broker"


def load(name: str) -> ModuleType:
    """A module of the broker's unit tests, which are no package."""
    spec = importlib.util.spec_from_file_location(f"dying_{name}", next(BROKER_TESTS.rglob(f"{name}.py")))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bench_module = load("conftest")


def copy_store(source: Path, target: Path) -> None:
    """Copy what a process would leave; a thread of the store may just be taking a file away."""

    def copy_file(name: str, to: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(name, to)

    shutil.copytree(source, target, copy_function=copy_file)


def flush_in_the_loop(store: Any) -> None:
    """A thread needs real time, while time here flies."""

    async def flush() -> None:
        flusher.flush_now()

    flusher = store._flusher
    flusher.flush = flush


def in_bench(folder: Path, now_ms: int | None, body: Any, **store: Any) -> None:
    """Run `body(bench)` with a broker on a folder, from a time on; `store` are settings of its store."""
    clock = VirtualClock() if now_ms is None else VirtualClock(now_ms)

    async def main() -> None:
        async with bench_module.Bench(folder, clock, {}, store) as bench:
            flush_in_the_loop(bench.store)
            await body(bench)

    run(main(), clock)
