"""The source against our own server and Apache's 5.3.3: the same checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apache import ApacheBroker, ApacheNamesrv
from source_suite import CHECKS, OF_SPARK, Check, Peer
from toolchain import ToolchainMissingError


@pytest.fixture(scope="module")
def own(server) -> Iterator[Peer]:
    peer = Peer(server.address)
    yield peer
    peer.close()


@pytest.fixture(scope="module")
def apache(tmp_path_factory) -> Iterator[Peer]:
    folder = tmp_path_factory.mktemp("apache")
    namesrv, broker = ApacheNamesrv(home=folder / "namesrv"), None
    try:
        namesrv.start()
        broker = ApacheBroker(namesrv.address, home=folder / "broker")
        broker.start()
        peer = Peer(namesrv.address)
        yield peer
        peer.close()
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    finally:
        for running in (broker, namesrv):
            if running is not None:
                running.kill()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_source_with_our_server(check: Check, spark, own: Peer, tmp_path: Path) -> None:
    check(spark, own, tmp_path)


WITH_APACHE = [pytest.param(check, marks=pytest.mark.slow) if check in OF_SPARK else check for check in CHECKS]


@pytest.mark.interop
@pytest.mark.parametrize("check", WITH_APACHE, ids=lambda check: check.__name__)
def test_the_source_with_apache(check: Check, spark, apache: Peer, tmp_path: Path) -> None:
    check(spark, apache, tmp_path)
