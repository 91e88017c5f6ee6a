"""Fixture `desk` for tests of a name server."""

from __future__ import annotations

from pathlib import Path

import pytest
from name_server_desk import Desk

from open_fixtures import open_for_test


@pytest.fixture
def desk(tmp_path: Path, request: pytest.FixtureRequest) -> Desk:
    """A name server with default settings and a client of it, open while the test runs."""
    return open_for_test(request, Desk(tmp_path))
