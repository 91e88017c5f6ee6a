"""`tianzhou serve --replicas 3` as real processes: one command starts a group, and a killed leader loses no message."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from processes import ROOT, Tianzhou
from test_several_brokers import child, pids, served

from waiting import until


def asked(folder: Path, namesrv: str, *args: object) -> tuple[int, Any]:
    """Return a command's exit code, and its JSON output."""
    with Tianzhou(folder, *args, "-o", "json", namesrv=namesrv) as asking:
        code = asking.wait()
        return code, json.loads(asking.out)


def ids(folder: Path, namesrv: str) -> dict[int, str]:
    """Return the addresses of all members known to the name server, by broker id."""
    return {one["id"]: one["address"] for one in asked(folder, namesrv, "status")[1]["brokers"]}


def of_the_page() -> list[str]:
    """Return the options of the command that starts a group on a laptop, from the page about zero loss."""
    text = (ROOT / "docs" / "howto" / "zero-loss.md").read_text(encoding="utf-8")
    (options,) = re.findall(r"^\$ tianzhou serve (.*--replicas.*)$", text, re.MULTILINE)
    return str(options).split()


def test_three_members_are_one_broker_and_every_message_is_on_all_of_them(tmp_path: Path) -> None:
    with served(tmp_path, *of_the_page()) as (server, ready):
        assert [one["name"] for one in ready["brokers"]] == ["n0", "n1", "n2"]
        assert "durability=zero-loss: flushDiskType=SYNC_FLUSH" in server.err
        assert 0 in ids(tmp_path, ready["namesrv"])
        code, found = asked(tmp_path, ready["namesrv"], "prove", "orders", "--count", 500, "--copies", 3)
        assert (code, found["proven"], found["on_majority"]) == (0, True, 500)
        assert {one["messages"] for one in found["replicas"]} == {500}
        assert server.interrupt(signal.SIGTERM)[0] == 0
    assert (tmp_path / "group").is_dir()
    with served(tmp_path, "--data", "./group") as (_, again):
        # The folder records the number of members.
        assert [one["name"] for one in again["brokers"]] == ["n0", "n1", "n2"]


def test_a_killed_leader_costs_no_message_and_comes_back(tmp_path: Path) -> None:
    with served(tmp_path, "--replicas", 3, "--set", "durability=zero-loss") as (server, ready):
        namesrv = ready["namesrv"]
        ledger = tmp_path / "ledger"
        prove = ("prove", "orders", "--seconds", 4, "--rate", 200, "--copies", 3, "--ledger", ledger, "-o", "json")
        with Tianzhou(tmp_path, *prove, namesrv=namesrv) as proving:
            until(lambda: ledger.exists() and ledger.read_text().count("\n") > 200, "some are acknowledged")
            leader = ids(tmp_path, namesrv)[0]
            name = next(one["name"] for one in ready["brokers"] if one["address"] == leader)
            os.kill(pids(ready)[name], signal.SIGKILL)
            until(lambda: f"{name} serves again" in server.err)
            assert proving.wait() == 0, proving.out
            found = json.loads(proving.out)
        assert found["proven"]
        assert found["failed_sends"] == {}
        assert child(server, name) not in (None, pids(ready)[name])
