"""The commands of the pages about groups, typed as printed; only ports and folders are the test's."""

from __future__ import annotations

import re
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

from processes import Tianzhou
from typist import Typist, blocks_of

from waiting import until


def all_answer(typist: Typist) -> bool:
    """Whether `status` shows members, and each replies and has no failing task."""
    members = typist.members("broker-b")
    return bool(members) and all(one["error"] is None and not one["troubles"] for one in members)


def test_a_topic_that_is_created_before_the_election_names_the_group_that_lacks_the_topic(tmp_path: Path) -> None:
    with ExitStack() as stack:
        typist = Typist(tmp_path, stack)
        typist.start(["namesrv"])
        group, *_ = blocks_of("from-a-pair-to-a-group.md")
        typist.write("one.conf", typist.here(f"namesrvAddr=127.0.0.1:9876\nstorePathRootDir={tmp_path}/one\n"))
        typist.start(["broker", "-c", "one.conf"])
        # One member of three has no majority.
        typist.type(group[: group.index("$ tianzhou broker -c n1.conf")])
        until(lambda: typist.members("broker-b"), "the member is registered")
        for words in (["orders"], ["payments", "--cluster", "DefaultCluster"]):
            with Tianzhou(tmp_path, "topic", "create", *words, namesrv=f"127.0.0.1:{typist.port('9876')}") as command:
                assert command.wait() == 0, command.err
                assert f"broker broker-b had no master, so topic {words[0]} was not created on it" in command.err


def test_what_is_left_of_a_group_becomes_one_of_three_again_as_the_page_says(tmp_path: Path) -> None:
    with ExitStack() as stack:
        typist = Typist(tmp_path, stack)
        typist.start(["namesrv"])
        group, *_ = blocks_of("from-a-pair-to-a-group.md")
        typist.type(group)
        until(lambda: typist.leads("broker-b"), "the group has a master")
        typist.run(["prove", "orders", "--count", "300", "--copies", "3", "--ledger", "acknowledged.txt"], "")
        for name in ("n1", "n2"):
            typist.running[f"broker -c {name}.conf"].interrupt(signal.SIGKILL)
            shutil.rmtree(tmp_path / "group" / name)
        until(lambda: not typist.leads("broker-b"), "nobody leads")
        left = typist.running["broker -c n0.conf"]
        until(lambda: re.search("was not heard for too long|too few nodes have answered", left.err), "it says why")
        # A member copies its leader's tables every half second, so it reports the dead leader until the next copy.
        until(lambda: all_answer(typist), "the member that is left has stopped asking its former leader")
        look, alone, missing, three, proof = blocks_of("two-of-three-gone.md")
        # The page has the first line, and the exit code 1 of the command.
        assert "the group has no leader" in typist.output(look.split()[2:], 1).splitlines()[0]
        assert left.interrupt(signal.SIGTERM)[0] == 0
        typist.type(alone)
        until(lambda: typist.leads("broker-b"), "it leads alone")
        typist.type(missing)
        assert typist.running["broker -c alone.conf"].interrupt(signal.SIGTERM)[0] == 0
        first, second, third = three.splitlines()
        typist.type(f"{first}\n{second}\n")
        until(lambda: typist.leads("broker-b"), "n0 leads")
        typist.type(f"{third}\n")
        typist.type(proof)
        typist.type(missing.replace("--copies 1", "--copies 3"))
