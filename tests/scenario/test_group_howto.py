"""The commands of the pages about groups are typed as they are printed there; only ports and folders are the test's."""

from __future__ import annotations

import json
import re
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

from test_replication_howto import BLOCK, HOWTO, Typist

from waiting import until


def blocks(page: str) -> list[str]:
    """All blocks of commands of a page."""
    text = (HOWTO / page).read_text(encoding="utf-8")
    return [re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for _, indent, block in BLOCK.findall(text)]


def leads(typist: Typist) -> bool:
    """Whether a member has id 0; one that was just killed may be listed, and not be reached."""
    return any(one["id"] == 0 for one in json.loads(typist.output(["status", "-o", "json"], 1))["brokers"])


def test_what_is_left_of_a_group_becomes_one_of_three_again_as_the_page_says(tmp_path: Path) -> None:
    with ExitStack() as stack:
        typist = Typist(tmp_path, stack)
        typist.start(["namesrv"])
        group, *_ = blocks("from-a-pair-to-a-group.md")
        typist.type(group)
        until(lambda: leads(typist), "the group has a master")
        typist.run(["prove", "orders", "--count", "300", "--copies", "3", "--ledger", "acknowledged.txt"], "")
        for name in ("n1", "n2"):
            typist.running[f"broker -c {name}.conf"].interrupt(signal.SIGKILL)
            shutil.rmtree(tmp_path / "group" / name)
        until(lambda: not leads(typist), "nobody leads")
        left = typist.running["broker -c n0.conf"]
        until(lambda: re.search("was not heard for too long|too few nodes have answered", left.err), "it says why")
        look, alone, missing, three, proof = blocks("two-of-three-gone.md")
        typist.type(look)
        assert left.interrupt(signal.SIGTERM)[0] == 0
        typist.type(alone)
        until(lambda: leads(typist), "it leads alone")
        typist.type(missing)
        assert typist.running["broker -c alone.conf"].interrupt(signal.SIGTERM)[0] == 0
        first, second, third = three.splitlines()
        typist.type(f"{first}\n{second}\n")
        until(lambda: leads(typist), "n0 leads")
        typist.type(f"{third}\n")
        typist.type(proof)
        typist.type(missing.replace("--copies 1", "--copies 3"))
