"""`store dump|check` on whole, damaged and odd folders."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tianzhou.cli import main as entry
from tianzhou.client import Producer
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.model import Message

SENT = 25


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 25 messages, stopped cleanly."""
    data = tmp_path_factory.mktemp("written") / "data"

    async def main() -> None:
        settings = EmbeddedSettings(data, namesrv_port=0, broker_port=0)
        async with EmbeddedServer(settings) as server, Producer("tests", server.namesrv_address) as producer:
            for number in range(SENT):
                await producer.send(Message("orders", b"body %d" % number, "A", f"key-{number}"))

    asyncio.run(main())
    return data


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    # The files are long and nearly empty.
    subprocess.run(["cp", "-a", "--sparse=always", written, tmp_path / "data"], check=True)
    return tmp_path / "data"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def runner(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tianzhou", "store", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            entry.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return runner


def damage(data: Path, run) -> None:
    """Make the fourth record unreadable."""
    at = lines(run("dump", data, "-o", "json")[1])[3]["offset"]
    log = next((data / "store" / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(at + 4)
        file.write(b"XXXX")


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_store_that_was_stopped_cleanly_is_sound(data: Path, run) -> None:
    code, out, err = run("check", data, "-o", "json")
    report = json.loads(out)
    assert (code, err) == (0, "")
    assert report["sound"] is True
    assert report["problems"] == []
    assert report["records"] == SENT
    assert run("check", data / "store")[0] == 0  # the store itself may be named as well


def test_damage_is_found_and_named(data: Path, run) -> None:
    damage(data, run)
    code, out, err = run("check", data)
    assert code == 1
    assert "sound           false\n" in out
    assert "problem: commit log" in out
    assert "--dry-run shows what can be done" in err
    assert json.loads(run("check", data, "-o", "json")[1])["problems"][0]["kind"] == "damaged-record"
    code, out, err = run("dump", data, "-o", "json")
    assert code == 0
    assert len(lines(out)) == SENT - 1
    assert "no intact record between" in err


def test_damage_is_repaired_and_what_was_there_is_kept(data: Path, run) -> None:
    damage(data, run)
    code, out, _ = run("repair", data, "--dry-run")
    assert code == 0
    assert "commit log: cover the damaged bytes" in out
    assert run("check", data)[0] == 1  # nothing was changed
    code, out, err = run("repair", data)
    assert (code, out.splitlines()[-1]) == (0, "sound  true")
    kept = err.removeprefix("what was changed is kept as it was in ").rstrip("\n")
    assert Path(kept).is_dir()
    assert run("check", data)[0] == 0
    assert run("repair", data, "-o", "json")[0] == 0
    assert "nothing to repair" in run("repair", data, "--dry-run")[2]


def test_a_damaged_checkpoint_is_found(data: Path, run) -> None:
    (data / "store" / "checkpoint").write_bytes(b"garbage")
    code, out, _ = run("check", data)
    assert code == 1
    assert "checkpoint" in out
    code, _, err = run("dump", data, "--part", "checkpoint")
    assert code == 1
    assert "7 bytes long" in err


def test_records_are_dumped_and_narrowed_down(data: Path, run) -> None:
    found = lines(run("dump", data, "-o", "json")[1])
    assert [row["body"] for row in found] == [f"body {number}" for number in range(SENT)]
    assert {row["tags"] for row in found} == {"A"}
    one_queue = lines(run("dump", data, "-t", "orders", "-q", found[0]["queue_id"], "-o", "json")[1])
    assert [row["queue_offset"] for row in one_queue] == list(range(len(one_queue)))
    assert lines(run("dump", data, "--from", found[3]["offset"], "--max", 2, "-o", "json")[1]) == found[3:5]
    text = run("dump", data, "--max", 1)[1]
    assert "topic=orders" in text
    assert "body=body 0" in text


@pytest.mark.parametrize("args", [["-t", "nothing"], ["-q", "99"], ["--from", "99999999"]])
def test_nothing_found_is_said(data: Path, run, args: list[str]) -> None:
    assert run("dump", data, *args) == (0, "", "nothing found\n")


def test_queues_index_and_checkpoint_are_dumped(data: Path, run) -> None:
    records = {row["offset"] for row in lines(run("dump", data, "-o", "json")[1])}
    assert {row["offset"] for row in lines(run("dump", data, "--part", "queue", "-o", "json")[1])} == records
    index = lines(run("dump", data, "--part", "index", "-o", "json")[1])
    assert {row["offset"] for row in index} == records
    assert json.loads(run("dump", data, "--part", "checkpoint", "-o", "json")[1])["physic_msg_timestamp"] > 0


def test_a_folder_in_use_is_said_and_read(tmp_path: Path, run) -> None:
    async def main() -> None:
        settings = EmbeddedSettings(tmp_path / "data", namesrv_port=0, broker_port=0)
        async with EmbeddedServer(settings) as server, Producer("tests", server.namesrv_address) as producer:
            await producer.send(Message("orders", b"one"))
            # The command has an event loop of its own kind of life: in a thread, as another process would.
            code, out, err = await asyncio.to_thread(run, "dump", tmp_path / "data", "-o", "json")
            assert (code, len(lines(out)), err) == (0, 1, "")
            _, _, err = await asyncio.to_thread(run, "check", tmp_path / "data")
            assert "is in use; what is written meanwhile may be reported as a problem" in err

    asyncio.run(main())
