"""Helpers for tests that pass a store's own log, queues and index to the compiled twin of the hot functions."""

from __future__ import annotations

import pytest

from tianzhou import _hot

compiled_store = pytest.mark.skipif(
    _hot.MODE == "pure", reason="in pure mode a store's log, queues and index are none that the compiled twin works on"
)
