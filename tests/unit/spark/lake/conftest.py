"""Iceberg catalogs of the tests of lake tables: a test opens each catalog once."""

from __future__ import annotations

import functools
import threading
from importlib.util import find_spec
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def one_catalog_per_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open each Iceberg catalog once per thread of a test.

    A table opens its catalog for each call. The catalog's SQL library then compiles all statements again, a third of
    the processor time of these tests. Tables and files are still read again for each call.
    """
    if find_spec("pyiceberg") is None:
        return
    from tianzhou.spark.lake import iceberg

    load = iceberg.load_catalog

    @functools.cache
    def opened(_: int, name: str, options: tuple[tuple[str, str], ...]) -> Any:
        return load(name, **dict(options))

    def load_once(name: str, **options: str) -> Any:
        return opened(threading.get_ident(), name, tuple(sorted(options.items())))

    monkeypatch.setattr(iceberg, "load_catalog", load_once)
