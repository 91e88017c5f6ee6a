"""The source against our own server and Apache's 5.3.3: the same checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apache import ApacheBroker, ApacheNamesrv
from source_suite import (
    CHECKS,
    Check,
    Peer,
    every_message_of_what_is_chosen_comes_once,
    fewer_queues_are_a_loss_only_of_what_was_unread,
)
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


IN_EACH_RUN = (every_message_of_what_is_chosen_comes_once, fewer_queues_are_a_loss_only_of_what_was_unread)
WITH_APACHE = [check if check in IN_EACH_RUN else pytest.param(check, marks=pytest.mark.slow) for check in CHECKS]


@pytest.mark.interop
@pytest.mark.parametrize("check", WITH_APACHE, ids=lambda check: check.__name__)
def test_the_source_with_apache(check: Check, spark, apache: Peer, tmp_path: Path) -> None:
    check(spark, apache, tmp_path)
