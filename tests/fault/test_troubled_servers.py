"""Servers with failing tasks: `status` reports them while they run, the exit code after their stop."""

from __future__ import annotations

import json
from pathlib import Path

from processes import Tianzhou, serve

from tianzhou.sync import Admin
from waiting import until


def test_a_state_file_that_cannot_be_written_is_shown_and_makes_the_stop_fail(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        namesrv = server.ready()["namesrv"]
        config = tmp_path / "data" / "store" / "config"
        with Admin(namesrv) as admin:
            admin.topics.create("orders")
            # The temporary file of every write cannot be opened.
            (config / "subscriptionGroup.json.tmp").mkdir()
            try:
                admin.groups.create("workers")
            except Exception as error:  # noqa: BLE001 - its text is what counts
                told = str(error)
            assert "subscriptionGroup.json cannot be written" in told
            admin.topics.create("others")

        def troubles() -> list[dict[str, object]]:
            with Tianzhou(tmp_path, "status", "-n", namesrv, "-o", "json") as asked:
                code = asked.wait()
                (one,) = json.loads(asked.out)["brokers"]
                assert code == (1 if one["troubles"] else 0)
                return list(one["troubles"])

        (trouble,) = until(troubles)
        assert trouble["task"] == "state file subscriptionGroup.json"
        assert "IsADirectoryError" in str(trouble["why"])
        with Tianzhou(tmp_path, "status", "-n", namesrv) as asked:
            assert asked.wait() == 1
            assert "state file subscriptionGroup.json fails since" in asked.err
        code, _ = server.interrupt()
    assert code == 1
    assert "stopped, but not all is well: state file subscriptionGroup.json failed" in server.err
    assert "subscriptionGroup.json could not be written" in server.err
    # The other tables are present, and the store was stopped cleanly.
    assert "others" in (config / "topics.json").read_text()
    (config / "subscriptionGroup.json.tmp").rmdir()
    with serve(tmp_path) as server:
        server.ready()
        assert server.interrupt()[0] == 0
        assert "recover" not in server.err


def test_a_file_that_holds_something_else_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        server.ready()
        assert server.interrupt()[0] == 0
    for name in ("consumerOffset.json", "delayOffset.json", "topics.json"):
        file = tmp_path / "data" / "store" / "config" / name
        text = file.read_bytes()
        backup = file.with_name(f"{name}.bak")
        backup.unlink(missing_ok=True)
        file.write_bytes(b"[1,2]")
        with serve(tmp_path) as server:
            assert server.wait() == 1
            (line,) = [line for line in server.err.splitlines() if line.startswith("tianzhou: ")]
            assert f"{name}: expected a JSON object, found list; " in line
            assert "put back a copy of each file, or start once with --accept-lost-state" in line
            server.assert_no_traceback()
        backup.write_bytes(text)
        with serve(tmp_path) as server:
            server.ready()
            assert server.interrupt()[0] == 0
            assert server.err.count("the damaged file is saved as") == 1
        assert len(list(file.parent.glob(f"{name}.damaged-*"))) == 1
    file.write_bytes(bytes(20))
    backup.unlink(missing_ok=True)
    with serve(tmp_path, "--accept-lost-state") as server:
        server.ready()
        assert server.interrupt()[0] == 0
        assert f"{name}: the file holds 20 NUL bytes" in server.err
