"""A slave becomes the master by the page about pairs, while messages are sent and consumed."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from operator_load import OperatorLoad
from typist import Typist, blocks_of

from waiting import until

PAGE = "master-slave.md"


def with_durability(block: str, durability: str) -> str:
    """Return a block whose configuration files have an additional line `durability=…`; the unchanged block for an empty
    text.
    """
    if not durability:
        return block
    return re.sub(r"^brokerRole=.*\n", rf"\g<0>durability={durability}\n", block, flags=re.MULTILINE)


@pytest.mark.parametrize("durability", ["", pytest.param("zero-loss", marks=pytest.mark.slow)])
def test_the_slave_of_a_killed_master_becomes_the_master_and_the_former_one_its_slave(
    tmp_path: Path, durability: str
) -> None:
    with ExitStack() as stack:
        typist = Typist(tmp_path, stack)
        for block in blocks_of(PAGE, ""):
            typist.type(with_durability(block, durability))
        typist.run(["topic", "create", "orders"], "")
        slave = typist.running["broker -c slave.conf"]
        typist.run(["prove", "before", "--count", "100", "--copies", "2"], "")
        load = stack.enter_context(OperatorLoad(f"127.0.0.1:{typist.port('9876')}", "orders"))
        load.go_on()
        typist.running["broker -c master.conf"].interrupt(signal.SIGKILL)
        assert slave.interrupt(signal.SIGTERM)[0] == 0
        promote, former = blocks_of(PAGE, "promote")
        typist.type(promote)
        until(lambda: typist.leads("broker-a"), "status shows the new master")
        if durability:
            # The former master has messages without an acknowledgement to any producer, until an operator decides.
            former = former.replace("-c master.conf &", "-c master.conf --allow-cut &")
        typist.type(former)
        load.go_on()
        if durability:
            load.finish()  # the group that reads meanwhile passes over no message
        else:
            # A master without zero loss lets consumers read a message before the slave has it, and the new master
            # reuses its queue offset for another message. The group may skip that one.
            load.stop_sending()
        assert not load.failed
        # Both brokers have each message.
        (tmp_path / "acknowledged.txt").write_text("".join(f"{key}\n" for key in load.keys))
        typist.run(["prove", "orders", "--acked", "acknowledged.txt", "--copies", "2"], "")
