"""The commands of the pages about copies, typed as printed; only ports and folders are the test's.

Blocks after `<!-- dledger … -->` need a group: tests/fault/groups/test_replica_group.py has groups.
"""

from __future__ import annotations

import json
import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from typist import BLOCK, HOWTO, Typist, blocks_of

from waiting import until


def test_one_broker_becomes_a_pair_as_the_page_says(tmp_path: Path) -> None:
    with ExitStack() as stack:
        typist = Typist(tmp_path, stack)
        typist.start(["namesrv"])
        typist.write("before.conf", typist.here("brokerName=broker-a\nnamesrvAddr=127.0.0.1:9876\n"
                     "storePathRootDir=/tmp/one/master\n"))  # fmt: skip
        master = typist.start(["broker", "-c", "before.conf"])
        typist.run(["produce", "orders", "--body", "x", "--count", "100"], "")
        slave, proof, conf = blocks_of("from-one-to-a-pair.md", "")
        typist.type(slave)
        typist.type(proof)
        assert master.interrupt(signal.SIGTERM)[0] == 0
        typist.type(conf)
        again = typist.start(["broker", "-c", "master.conf"])
        assert "durability=zero-loss" in again.err
        typist.type(proof)
        copied = tmp_path / "one" / "slave" / "consumequeue" / "orders"
        until(copied.is_dir, "what was there before the slave is on it, too")


def test_the_figures_of_the_page_about_planning_are_those_of_the_command(tmp_path: Path) -> None:
    with ExitStack() as stack:
        typist = Typist(tmp_path, stack)
        typist.start(["namesrv"])
        typist.write("one.conf", typist.here("namesrvAddr=127.0.0.1:9876\nstorePathRootDir=/tmp/store\n"))
        typist.start(["broker", "-c", "one.conf"])
        for block in blocks_of("planning.md", ""):
            typist.type(block)


@pytest.mark.parametrize("page", ["zero-loss.md", "two-of-three-gone.md"])
def test_what_needs_a_group_is_marked(page: str) -> None:
    text = (HOWTO / page).read_text(encoding="utf-8")
    for group, _, block in BLOCK.findall(text):
        if re.search(r"dLeger|--replicas|n[012]\.conf", block):
            assert group, block


def test_a_pair_proves_what_its_page_says_and_a_group_is_put_beside_it_as_the_next_page_says(tmp_path: Path) -> None:
    with ExitStack() as stack:
        typist = Typist(tmp_path, stack)
        for block in blocks_of("zero-loss.md", ""):
            typist.type(block)
        master = typist.running["broker -c master.conf"]
        page = (HOWTO / "zero-loss.md").read_text(encoding="utf-8")
        stands_for = next(line for line in master.err.splitlines() if line.startswith("durability="))
        assert f"    {stands_for}\n" in page
        typist.run(["topic", "create", "orders"], "")
        group, proof, topics = blocks_of("from-a-pair-to-a-group.md", "")
        typist.type(group)
        # A group elects its leader after its members have started; until then a new topic is created on the pair alone.
        three = ["follower", "follower", "leader"]
        until(lambda: typist.leads("broker-b") and typist.roles("broker-b") == three, "status shows the group's leader")
        typist.type(proof)
        typist.type(topics)
        assert typist.roles("broker-b") == three
        described = json.loads(typist.output(["topic", "describe", "orders", "-o", "json"]))
        assert {queue["broker"] for queue in described["queues"]} == {"broker-a", "broker-b"}
