"""Fixtures of the connector's unit tests."""

from __future__ import annotations

import pytest
from fake_queues import FakeQueues
from lake_tables import options_of

from spark_probe import has_compiled_rows, use_pure_rows
from tianzhou.errors import ConnectionLost


@pytest.fixture
def queues() -> FakeQueues:
    return FakeQueues()


@pytest.fixture
def make_queues():
    return FakeQueues


@pytest.fixture
def spark(queues):
    """Return a source over ten messages of one queue and five of another."""
    from source_fixture import A, B, Fixture

    queues.add(A, 10)
    queues.add(B, 5)
    return Fixture(queues)


@pytest.fixture
def lost() -> ConnectionLost:
    return ConnectionLost("the connection to 127.0.0.1:10911 was lost")


@pytest.fixture(params=["pure", "compiled"])
def way(request, monkeypatch) -> str:
    """Return both ways from records to columns, in turn."""
    if request.param == "pure":
        use_pure_rows(monkeypatch)
    elif not has_compiled_rows():
        pytest.skip("rows were not compiled here")
    return request.param


@pytest.fixture(params=["delta", "iceberg"])
def options(request, tmp_path):
    """Return the options with the path of a lake table, for each format in turn."""
    return options_of(request.param, tmp_path)
