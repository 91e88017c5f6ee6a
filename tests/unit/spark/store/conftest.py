"""Fixtures for tests of a store's files: `new_store` opens stores, `store` is one."""

from __future__ import annotations

import pytest


@pytest.fixture
def new_store(tmp_path):
    """Opens a store in a folder of its own, with settings of `StoreSettings`; closed at the end of the test."""
    from written_store import Store

    stores = []

    def opened(**settings):
        stores.append(Store(tmp_path / f"store-{len(stores)}", **settings))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()


@pytest.fixture
def store(new_store):
    """A store with default settings."""
    return new_store()
