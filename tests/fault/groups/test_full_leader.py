"""A leader with a full disk transfers the leadership to a member with free disk space, and becomes a follower."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[2] / folder) for folder in ("fault", "interop")]

from group_load import Load, await_caught_up, create_topic, stored
from groups import OURS, Group
from own import asked, name_server
from small_disk import small_disk
from test_disk_full import fill

from waiting import until

MOST_S = 15.0
"""Maximum seconds without an acknowledged send: five of patience, and the time in which a loaded machine elects."""
MIB = 1 << 20


def test_a_leader_with_a_full_disk_hands_over_and_comes_back(tmp_path: Path) -> None:
    with ExitStack() as stack:
        for number in range(3):
            # The place of the store's folder.
            (tmp_path / f"m{number}").mkdir()
            disk = stack.enter_context(small_disk("tmpfs", tmp_path / f"m{number}", 96, 0))
            (tmp_path / f"n{number}").symlink_to(disk)
        namesrv = stack.enter_context(name_server(tmp_path))
        conf = {
            "mappedFileSizeCommitLog": 4 * MIB, "mappedFileSizeConsumeQueue": 4000, "maxHashSlotNum": 1000,
            "maxIndexNum": 4000, "diskSpaceWarningLevelRatio": 99, "diskSpaceCleanForciblyRatio": 99,
        }  # fmt: skip
        running = Group(namesrv, tmp_path, conf)
        running.make((OURS,) * 3)
        stack.callback(running.kill)
        running.start()
        create_topic(running)
        with Load(namesrv) as load:
            until(lambda: len(load.acknowledged) > 50, "some are acknowledged")
            number = running.leader()
            full = running.members[number]
            ballast = fill(tmp_path / f"n{number}")
            began_s = time.monotonic()
            # The rest of a prepared segment may still have space for some messages.
            big = lambda: running.sends(full.address, "probe", bytes(100_000)) is None  # noqa: E731
            until(big, "the full disk refuses", within_s=60)
            leader = running.leader(other_than=number, within_s=60)
            print(f"n{leader} led {time.monotonic() - began_s:.1f} s after the disk of n{number} was full")
            before = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > before + 50, "others take messages")
            ballast.unlink()
            await_caught_up(running, number)
            # It may lead again: the two others stop, one after the other, in order.
            until(lambda: "may lead again" in full.console(), "its disk takes writes again", within_s=60)
            running.members[leader].stop()
            running.members[leader].launch()
            running.leader(other_than=leader)
        print(f"longest time without an acknowledged send: {load.longest_gap_s():.1f} s")
        assert load.longest_gap_s() < MOST_S
        assert asked(namesrv, "status")[0] == 0
        for one in range(3):
            await_caught_up(running, one)
            assert set(load.acknowledged) <= set(stored(running.members[one].address))
