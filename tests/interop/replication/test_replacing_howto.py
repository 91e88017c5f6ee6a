"""The commands of docs/howto/replacing-apache.md are typed at Apache's brokers; ports and folders are the test's."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from apache import ApacheBroker
from frames import members
from groups import OURS, Group, group
from own import name_server
from toolchain import SERVERS, ToolchainMissingError
from typist import Typist, blocks_of

from waiting import until

pytestmark = pytest.mark.at_once

PAGE = "replacing-apache.md"


def typist_at(folder: Path, namesrv: str, stack: ExitStack) -> Typist:
    """Return a typist in a folder, for a name server."""
    typist = Typist(folder, stack)
    typist.ports["9876"] = namesrv.rpartition(":")[2]
    return typist


@pytest.mark.slow
def test_a_broker_that_is_alone_is_replaced_on_its_files(tmp_path: Path) -> None:
    alone, *_ = blocks_of(PAGE)
    store = tmp_path / "apache" / "store"
    try:
        with ExitStack() as stack:
            namesrv = stack.enter_context(name_server(tmp_path))
            typist = typist_at(tmp_path, namesrv, stack)
            apache = ApacheBroker(namesrv, store_dir=store, home=tmp_path / "apache")
            stack.callback(apache.kill)
            apache.start()
            typist.run(["prove", "orders", "--count", "200", "--ledger", "acknowledged"], "")
            apache.stop()
            conf = (tmp_path / "apache" / "server.conf").read_text()
            (tmp_path / "broker.conf").write_text(f"{conf}bindAddress=127.0.0.1\n")
            typist.type(alone)
            until(lambda: apache.address in members(namesrv, "orders"), "ours has taken its place")
            typist.run(["prove", "orders", "--acked", "acknowledged"], "")
            typist.run(["prove", "orders", "--count", "200"], "")
    except ToolchainMissingError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize("version", SERVERS)
def test_a_member_of_a_group_is_replaced(version: str, tmp_path: Path) -> None:
    _, member, proof = blocks_of(PAGE)
    try:
        with ExitStack() as stack:
            running: Group = stack.enter_context(group(tmp_path, (version,) * 3))
            typist = typist_at(tmp_path, running.namesrv, stack)
            typist.run(["prove", "orders", "--count", "200", "--copies", "3", "--ledger", "acknowledged"], "")
            leader = running.leader()
            number = 2 if leader != 2 else 1
            running.members[number].stop()
            shutil.rmtree(running.members[number].store_dir)
            ours = running.member(number, OURS)
            text = "".join(f"{key}={value}\n" for key, value in ours.conf.items())
            (tmp_path / "n2.conf").write_text(f"{text}bindAddress=127.0.0.1\n")
            ours.home.mkdir()
            typist.type(member)
            typist.type(proof)
            typist.run(["prove", "orders", "--acked", "acknowledged", "--copies", "3"], "")
    except ToolchainMissingError as error:
        pytest.skip(str(error))
