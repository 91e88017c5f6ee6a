"""`tianzhou serve` accepts settings, changes them while it runs, and has them again at its next start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from processes import Tianzhou, serve


def tianzhou(folder: Path, namesrv: str, *args: object) -> tuple[int, str, str]:
    with Tianzhou(folder, *args, namesrv=namesrv) as process:
        return process.wait(), process.out, process.err


def shown(folder: Path, namesrv: str, *args: object) -> dict[str, dict[str, str]]:
    code, out, err = tianzhou(folder, namesrv, "config", "get", *args, "-o", "json")
    assert (code, err) == (0, "")
    found: dict[str, dict[str, str]] = json.loads(out)
    return found


def values(folder: Path, namesrv: str, *args: object) -> Any:
    """Return the values that all servers have in common."""
    (found,) = {json.dumps(one) for one in shown(folder, namesrv, *args).values()}
    return json.loads(found)


@pytest.mark.parametrize("brokers", [1, 2])
def test_what_is_changed_while_it_runs_is_there_again(tmp_path: Path, brokers: int) -> None:
    keys = "fileReservedTime", "maxMessageSize"
    with serve(tmp_path, "--brokers", brokers) as server:
        namesrv = server.ready()["namesrv"]
        assert values(tmp_path, namesrv, *keys) == {"fileReservedTime": "72", "maxMessageSize": "4194304"}
        code, out, err = tianzhou(tmp_path, namesrv, "config", "set", "fileReservedTime=99", "maxMessageSize=1000")
        assert (code, err) == (0, "")
        assert out.startswith("fileReservedTime=99 at 127.0.0.1:")
        assert tianzhou(tmp_path, namesrv, "config", "set", "--namesrv-server", "orderMessageEnable=true")[0] == 0
        for text, reason in (
            ("fileReservedTyme=1", "did you mean fileReservedTime?"),
            ("fileReservedTime=-1", "must be at least 0"),
            ("storePathRootDir=/tmp/x", "a path is never taken from a request"),
            ("fileReservedTime", "write KEY=VALUE"),
        ):
            code, _, err = tianzhou(tmp_path, namesrv, "config", "set", "maxMessageSize=7777", text)
            assert code != 0
            assert reason in err
        assert values(tmp_path, namesrv, *keys) == {"fileReservedTime": "99", "maxMessageSize": "1000"}
        assert server.interrupt()[0] == 0
    home = tmp_path / "data"
    with (home / "broker.conf").open("a") as file:
        file.write("storePathRootDir=/tmp/elsewhere\n")  # not one of the changed keys: ignored
    # Options given now override earlier changes; -c overrides only the defaults.
    (tmp_path / "more.conf").write_text("maxMessageSize=2000\nflushDiskType=SYNC_FLUSH\nregionId=east\n")
    told = "-c", "more.conf", "--set", "regionId=west"
    with serve(tmp_path, *told) as server:
        namesrv = server.ready()["namesrv"]
        assert values(tmp_path, namesrv, *keys, "flushDiskType", "regionId") == {
            "fileReservedTime": "99", "maxMessageSize": "2000", "flushDiskType": "SYNC_FLUSH", "regionId": "west",
        }  # fmt: skip
        assert values(tmp_path, namesrv, "--namesrv-server", "orderMessageEnable") == {"orderMessageEnable": "true"}
        assert len(shown(tmp_path, namesrv, "regionId")) == brokers
        assert server.err == ""
        assert server.interrupt()[0] == 0


def test_a_file_that_makes_no_sense_any_more_keeps_nobody_from_starting(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        assert tianzhou(tmp_path, server.ready()["namesrv"], "config", "set", "fileReservedTime=99")[0] == 0
        server.interrupt()
    file = tmp_path / "data" / "broker.conf"
    text = file.read_text().replace(
        "# Changed while the server ran: ", "# Changed while the server ran: listenPort gone "
    )
    file.write_text(
        text.replace("fileReservedTime=99", "fileReservedTime=-5\ngone=1").replace("listenPort=", "listenPort=1")
    )
    with serve(tmp_path) as server:
        namesrv = server.ready()["namesrv"]
        assert values(tmp_path, namesrv, "fileReservedTime") == {"fileReservedTime": "72"}
        for said in (
            "unknown key gone is ignored",
            "fileReservedTime=-5: must be at least 0; it is ignored",
            "listenPort=1",
        ):
            assert said in server.err
        server.interrupt()
    file.write_bytes(b"=\n")
    with serve(tmp_path) as server:
        server.ready()
        assert "what was changed while the server ran last does not count" in server.err
        server.interrupt()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ("--set", "fileReservedTyme=1"),
            "--set fileReservedTyme: there is no such key; did you mean fileReservedTime?",
        ),
        (("--set", "fileReservedTime"), "--set fileReservedTime: write KEY=VALUE"),
        (("--set", "cleanResourceInterval=0"), "cleanResourceInterval=0: must be at least 10"),
        (("--set", "listenPort=1"), "`tianzhou serve` decides that itself: give --namesrv-port and --broker-port"),
        (("--set", "storePathRootDir=x"), "everything is in the folder of --data"),
        (("--set", "aclEnable=true", "--set", "aclConfigPath=."), "this is no ordinary file"),
        (("--set", "authorizationEnabled=true"), "authorizationEnabled=true: needs authenticationEnabled=true"),
        (("--set", "tls.server.mode=sometimes"), "expected one of disabled, permissive, enforcing"),
        (("-c", "missing.conf"), "-c missing.conf: No such file or directory"),
    ],
)
def test_what_cannot_be_is_refused_with_words(tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    code, _, err = tianzhou(tmp_path, "", "serve", "--data", "data", "--namesrv-port", 0, "--broker-port", 0, *args)
    assert code == 2
    assert words in err


def test_the_wrong_kind_of_server_is_named(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        ready = server.ready()
        code, _, err = tianzhou(tmp_path, ready["broker"], "topic", "list")
        assert code == 1
        assert "this is a broker, and GET_ALL_TOPIC_LIST_FROM_NAMESERVER is served by a name server" in err
        assert f"give its address, as {ready['namesrv']}" in err
        code, _, err = tianzhou(tmp_path, ready["namesrv"], "config", "get", "-b", ready["namesrv"])
        assert code == 1
        assert "this is a name server, and GET_BROKER_CONFIG is served by a broker" in err
        assert f"give its address, as {ready['broker']}" in err
        server.interrupt()
