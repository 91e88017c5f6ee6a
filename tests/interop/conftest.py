"""Fixtures of the tests with foreign clients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import at_once
import exchange as exchanges
import pytest
from apache import ApacheNamesrv
from servers import Server, serve
from strangers import Program
from toolchain import ToolchainMissingError


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers set below."""
    config.addinivalue_line("markers", "interop: foreign clients and brokers (Java, Go, C++), real processes")
    config.addinivalue_line(
        "markers", f"{at_once.MARKER}(fixtures): runs together with others of its file (at_once.py)"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything below this directory `interop`."""
    here = Path(__file__).resolve().parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.interop)


_together = at_once.Together()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test marked `at_once` together with others."""
    if pyfuncitem.get_closest_marker(at_once.MARKER) is None:
        return None
    return True if _together.run(pyfuncitem) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Wait for tests that run together before the servers of their file end."""
    _together.before(item, nextitem)


@pytest.fixture(scope="session")
def server_kind() -> str:
    """Return the serving broker's kind: `tianzhou`, or `apache` when `TIANZHOU_INTEROP_SERVER` is set to it."""
    return os.environ.get("TIANZHOU_INTEROP_SERVER", "tianzhou")


@pytest.fixture(scope="session")
def namesrv() -> Iterator[ApacheNamesrv]:
    """Yield Apache's name server of 5.3.3, which all files of a worker share. It forgets a killed broker."""
    try:
        with ApacheNamesrv() as running:
            yield running
    except ToolchainMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def server(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a name server and a broker, running for one test module."""
    try:
        with serve(server_kind, tmp_path_factory.mktemp("server"), clean=False, takes_tls=True) as running:
            yield running
    except ToolchainMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def exchange(server: Server) -> exchanges.Exchange:
    """Return the result of the exchange between all foreign clients."""
    return exchanges.run(server)


@pytest.fixture(scope="module")
def inspectors(exchange: exchanges.Exchange) -> Iterator[dict[str, Program]]:
    """Yield a Java program of each version that pulls, views and queries on command."""
    programs: dict[str, Program] = {}
    try:
        for stranger in exchange.present:
            if stranger.inspects:
                group = stranger.group("inspect")
                programs[stranger.name] = Program(stranger, "inspect", exchange.server.namesrv, group)
        for program in programs.values():
            program.await_start()
        yield programs
        for program in programs.values():
            program.finish()
    finally:
        for program in programs.values():
            program.__exit__()


@pytest.fixture(scope="module")
def need(exchange: exchanges.Exchange) -> exchanges.Need:
    """Return a function that skips when a foreign client is missing and fails when it did not do its part."""

    def check(*names: str) -> None:
        for name in names:
            if name in exchange.missing:
                pytest.skip(f"{name}: {exchange.missing[name]}")
        for name in names:
            if name in exchange.broken:
                pytest.fail(f"{name}: {exchange.broken[name]}")

    return check
