"""One of two name servers is a stopped process: a broker starts, topics come and go, and the name server catches up
later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import frames
from processes import Tianzhou

from waiting import until

START_LIMIT_S = 20.0
"""The request that the stopped name server leaves without a reply has 24 s."""


@contextlib.contextmanager
def stopped(process: Tianzhou) -> Iterator[None]:
    """Stop a process of this test by its id, and let it continue."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def test_a_broker_starts_and_changes_topics_beside_a_stopped_name_server(tmp_path: Path) -> None:
    with (
        Tianzhou(tmp_path, "namesrv", "--port", 0, "-o", "json") as hanging,
        contextlib.ExitStack() as stack,
    ):
        (home := tmp_path / "healthy").mkdir()
        healthy = stack.enter_context(Tianzhou(home, "namesrv", "--port", 0, "-o", "json"))
        first, second = (f"127.0.0.1:{one.ready()['port']}" for one in (hanging, healthy))
        where = f"{first};{second}"
        conf = tmp_path / "broker.conf"
        conf.write_text(f"brokerIP1=127.0.0.1\nlistenPort=0\nstorePathRootDir={tmp_path / 'store'}\n")
        with stopped(hanging):
            broker = stack.enter_context(Tianzhou(home, "broker", "-c", conf, "-n", where, "-o", "json"))
            began = time.monotonic()
            address = broker.ready()["address"]
            assert time.monotonic() - began < START_LIMIT_S
            for number in range(3):
                frames.call(address, frames.UPDATE_AND_CREATE_TOPIC, _topic(f"orders{number}"))
                # The reply comes once the running name servers have the topic.
                assert frames.masters(second, f"orders{number}") == [address]
            created = Tianzhou(home, "topic", "create", "bills", namesrv=where)
            with created:
                assert created.wait() == 0, created.err
            assert frames.masters(second, "bills") == [address]
            until(lambda: f"name server {first} has not registered this broker" in broker.err, "the log names it")
            assert second not in broker.err
        # Later it has everything, and the log reports it.
        until(lambda: frames.masters(first, "bills") == [address], "the stopped name server has the topics")
        until(lambda: f"name server {first} knows this broker again" in broker.err, "the log says so")
        assert broker.err.count(f"name server {first} has not registered this broker") == 1


def _topic(name: str) -> dict[str, object]:
    return {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
