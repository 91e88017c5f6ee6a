"""`tianzhou pipeline logs` as a process that is killed while files grow and are rotated."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import defaultdict
from pathlib import Path

from processes import Tianzhou

from waiting import until


def collector(server, folder: Path, topic: str, *more: str) -> Tianzhou:
    """Start the command on the log files of a folder."""
    args = ["pipeline", "logs", folder / "*.log", "--to", topic, "--positions", folder / "positions", "--poll", "0.05"]
    return Tianzhou(folder, *args, "-n", server.address, *more)


def until_sent(server, topic: str, lines: set[str]) -> None:
    until(lambda: lines <= {m.body.decode() for m in server.messages(topic)}, "the lines are sent", every_s=0.05)


def test_killed_again_and_again_while_files_are_rotated(server, topic, tmp_path):
    """No line is lost; a repeated line is recognisable; each file's lines stay in order."""
    rng = random.Random(7)
    written: dict[str, list[str]] = defaultdict(list)
    number = 0

    def write(name: str) -> None:
        nonlocal number
        with (tmp_path / f"{name}.log").open("a") as file:
            for _ in range(rng.randrange(1, 60)):
                number += 1
                file.write(f"{name} {number}\n")
                written[name].append(f"{name} {number}")

    for turn in range(4):
        with collector(server, tmp_path, topic) as process:
            for name in ("a", "b"):
                write(name)
            until_sent(server, topic, {lines[-1] for lines in written.values()})
            for step in range(6):
                for name in ("a", "b"):
                    log = tmp_path / f"{name}.log"
                    write(name)
                    if step == 2 and name == "a":
                        log.rename(tmp_path / f"a.log.{turn}")
                    if step == 4 and name == "b":
                        shutil.copy(log, tmp_path / f"b.log.{turn}")
                        os.truncate(log, 0)
                time.sleep(0.12)
            process.process.kill()
    with collector(server, tmp_path, topic, "--once", "-o", "json") as last:
        assert last.wait() == 0, last.err
        assert '"lines": ' in last.out

    found = server.messages(topic)
    for name, lines in written.items():
        own = [m for m in found if m.properties["file"].endswith(f"/{name}.log")]
        assert {m.body.decode() for m in own} == set(lines)
        assert len({m.queue_id for m in own}) == 1
        first_seen = list(dict.fromkeys(m.body.decode() for m in own))
        assert first_seen == lines
        # A reader that needs each line once drops repeated positions.
        places = {(m.properties["inode"], m.properties["position"], m.body) for m in own}
        assert len({body for *_, body in places}) == len(lines)


def test_the_broker_may_be_away_for_a_while(own_server, tmp_path):
    topic = own_server.create("logs")
    (tmp_path / "a.log").write_text("one\n")
    with collector(own_server, tmp_path, topic) as process:
        until_sent(own_server, topic, {"one"})
        own_server.restart()
        with (tmp_path / "a.log").open("a") as file:
            file.write("two\n")
        until_sent(own_server, topic, {"two"})
        assert {m.body for m in own_server.messages(topic)} == {b"one", b"two"}
        assert process.interrupt()[0] == 130


def test_mistakes_are_explained(topic, cli, tmp_path):
    code, _, err = cli("pipeline", "logs", "x", "--to", "no/topic", "--positions", str(tmp_path / "p"), "--once")
    assert code != 0
    assert "no/topic" in err
    (tmp_path / "p").write_text("{}")
    code, _, err = cli("pipeline", "logs", "x", "--to", topic, "--positions", str(tmp_path / "p"), "--once")
    assert (code, "is no file of positions" in err) == (2, True), err
