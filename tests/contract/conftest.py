"""The contract suites share fixtures and checks that are no tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis_server import RedisServer
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


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A redis-server that the tests of a worker share, when the machine has one."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(redis_server: RedisServer) -> str:
    """The URL of `redis_server`."""
    return redis_server.url
