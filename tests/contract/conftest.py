"""The contract suites share fixtures and checks that are no tests."""

from __future__ import annotations

import pytest
from scripted import ScriptedBroker, ScriptedCluster

from open_fixtures import open_for_test


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> ScriptedCluster:
    """A scripted cluster of one broker, open while the test runs."""
    return open_for_test(request, ScriptedCluster())


@pytest.fixture
def broker(cluster: ScriptedCluster) -> ScriptedBroker:
    """The broker of `cluster`."""
    return cluster.brokers[0]
