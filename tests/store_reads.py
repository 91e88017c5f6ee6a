"""Reading a store's queue by position, for tests that have no `ReadRequest` at hand."""

from __future__ import annotations

from typing import Any

from tianzhou.store import GetResult, MessageStore, ReadRequest


def read_now(store: MessageStore, *wish: Any, **wishes: Any) -> GetResult:
    """Read at once by a `ReadRequest` with these fields: topic, queue, offset, maximum messages, …"""
    return store.read(ReadRequest(*wish, **wishes), blocks=True)
