"""A store of ours, then Apache's, then ours again, each killed: our note is outdated in the end.

Apache's 4.9.7 does not change the abort marker of another broker. Only the file `lock` shows that it had the store.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from frames import create_topic
from servers import Ports, serve
from test_store_after_kill import QUEUES, TOPIC, audit, load
from toolchain import ToolchainMissingError

from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.startup.proved_note import lock_time, read_note
from tianzhou.testing.ledger import Ledger

pytestmark = pytest.mark.at_once
MESSAGES = 200
"""Minimum number of messages that each server acknowledges."""


@pytest.mark.parametrize("other", ["apache", "apache-4.9.7"])
@pytest.mark.slow
def test_a_note_of_ours_is_not_believed_after_apache(other: str, server_kind: str, tmp_path: Path) -> None:
    if server_kind == "apache":
        pytest.skip("this is about two different servers")
    data_dir, ports, ledger = tmp_path / "data", Ports.free(), Ledger()
    store_dir = data_dir / "store"

    try:
        with serve("tianzhou", data_dir, ports, clean=False) as server:
            create_topic(server.namesrv, server.broker, TOPIC, QUEUES)
            asyncio.run(load(server.namesrv, ledger, "ours", MESSAGES))
            deadline = time.monotonic() + 20
            while (note := read_note(store_dir)) is None or note.log_end == 0:
                assert time.monotonic() < deadline, "no note was left"
                time.sleep(0.1)
        note = read_note(store_dir)
        assert note is not None
        assert note.lock == lock_time(store_dir)
        with serve(other, data_dir, ports, clean=False) as server:
            asyncio.run(load(server.namesrv, ledger, "apache", MESSAGES))
        assert (store_dir / "abort").exists()
        assert read_note(store_dir) == note
        assert note.lock != lock_time(store_dir)
        with serve("tianzhou", data_dir, ports, clean=True) as server:
            asyncio.run(audit(server.namesrv, ledger))
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    report = check_store(StoreScan(store_dir))
    assert report.problems == []
    assert report.index_entries >= report.records > 200
