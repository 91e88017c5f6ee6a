"""Sends of one connection that wait for the disk: above the limit, the broker stops reading until half of them have
replies.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from broker_bench import Bench

from tianzhou.store.files.segments import Segment
from tianzhou.testing.clock import VirtualClock


async def test_a_connection_whose_sends_wait_for_the_disk_is_not_read_from_until_half_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use a real loop, which serves requests while its disk thread waits. A virtual loop does the disk work itself."""
    released = threading.Event()
    original = Segment.sync

    def slow(self: Segment, start: int, end: int) -> None:
        assert released.wait(20)
        original(self, start, end)

    settings = {"max_requests_per_connection": 3}
    async with Bench(tmp_path, VirtualClock(), settings, {"flush_disk_type": "SYNC_FLUSH"}) as bench:
        greedy, other = bench.peer(), bench.peer()
        await other.create_topic("T")
        monkeypatch.setattr(Segment, "sync", slow)
        waiting = [greedy.post_send("T", b"x") for _ in range(4)]
        waiting_too = other.post_send("T", b"y")
        assert (greedy.transport.reading, other.transport.reading) == (False, True)
        assert await other.refused() == {"maxRequestsPerConnection": "1"}
        released.set()
        assert [(await greedy.reply(one)).code for one in waiting] == [0] * 4
        assert (await other.reply(waiting_too)).code == 0
        assert greedy.transport.reading
