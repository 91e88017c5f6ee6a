"""`store dump|check|repair|export|import` on intact, damaged and unusual folders."""

from __future__ import annotations

import asyncio
import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tianzhou.client import Producer
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.model import Message

SENT = 25


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with 25 messages, stopped cleanly."""
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
    # The files are long and sparse.
    subprocess.run(["cp", "-a", "--sparse=always", written, tmp_path / "data"], check=True)
    return tmp_path / "data"


@pytest.fixture
def run(run):
    """Run a command of `tianzhou store`."""
    return partial(run, "store")


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
    assert run("check", data / "store")[0] == 0  # the store's own path works, too


def test_damage_is_found_and_named(data: Path, run) -> None:
    damage(data, run)
    code, out, err = run("check", data)
    assert code == 1
    assert "sound            false\n" in out
    assert "problem: commit log" in out
    assert "shows what can be done" in err
    assert json.loads(run("check", data, "-o", "json")[1])["problems"][0]["kind"] == "damaged-record"
    code, out, err = run("dump", data, "-o", "json")
    assert code == 0
    assert len(lines(out)) == SENT - 1
    assert "no intact record between" in err


def test_damage_is_repaired_and_what_was_there_is_kept(data: Path, run) -> None:
    damage(data, run)
    code, out, err = run("repair", data)
    assert code == 1
    assert "would do: commit log: cover the damaged bytes" in out
    assert "nothing was changed; --apply does it" in err
    steps = json.loads(run("repair", data, "-o", "json")[1])["steps"]
    assert [line.removeprefix("would do: ") for line in out.splitlines()] == steps
    assert run("check", data)[0] == 1  # the check did not repair
    code, out, err = run("repair", data, "--apply")
    assert (code, out.splitlines()[-1]) == (0, "sound  true")
    assert out.splitlines()[:-1] == [f"done: {step}" for step in steps]
    kept = err.removeprefix("what was changed is kept as it was in ").rstrip("\n")
    assert Path(kept).is_dir()
    assert run("check", data)[0] == 0
    again = json.loads(run("repair", data, "--apply", "-o", "json")[1])
    assert (again["done"], again["kept"], again["sound"]) == ([], None, True)
    assert "nothing to repair" in run("repair", data)[2]


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
def test_nothing_found_is_shown(data: Path, run, args: list[str]) -> None:
    assert run("dump", data, *args) == (0, "", "nothing found\n")


def test_queues_index_and_checkpoint_are_dumped(data: Path, run) -> None:
    records = {row["offset"] for row in lines(run("dump", data, "-o", "json")[1])}
    assert {row["offset"] for row in lines(run("dump", data, "--part", "queue", "-o", "json")[1])} == records
    index = lines(run("dump", data, "--part", "index", "-o", "json")[1])
    assert {row["offset"] for row in index} == records
    assert json.loads(run("dump", data, "--part", "checkpoint", "-o", "json")[1])["physic_msg_timestamp"] > 0


async def test_a_folder_in_use_is_noted_and_read(tmp_path: Path, run) -> None:
    settings = EmbeddedSettings(tmp_path / "data", namesrv_port=0, broker_port=0)
    async with EmbeddedServer(settings) as server, Producer("tests", server.namesrv_address) as producer:
        await producer.send(Message("orders", b"one"))
        # The command runs its own event loop, so start it in a thread, like another process.
        code, out, err = await asyncio.to_thread(run, "dump", tmp_path / "data", "-o", "json")
        assert (code, len(lines(out)), err) == (0, 1, "")
        _, _, err = await asyncio.to_thread(run, "check", tmp_path / "data")
        assert "is in use; what is written meanwhile may be reported as a problem" in err


def test_records_are_chosen_by_offset_key_and_time(data: Path, run) -> None:
    found = lines(run("dump", data, "-o", "json")[1])
    chosen = lines(run("dump", data, "--offsets", "1:3", "-o", "json")[1])
    assert chosen == [row for row in found if 1 <= row["queue_offset"] < 3]
    assert lines(run("dump", data, "--key", "key-7", "-o", "json")[1]) == [found[7]]
    (entry,) = lines(run("dump", data, "--part", "index", "--key", "key-7", "-t", "orders", "-o", "json")[1])
    assert entry["offset"] == found[7]["offset"]
    assert run("dump", data, "--since", "2999-01-01")[2] == "nothing found\n"
    assert len(lines(run("dump", data, "--until", "2999-01-01T00:00:00", "-o", "json")[1])) == SENT
    assert "body" not in lines(run("dump", data, "--body", "none", "-o", "json")[1])[0]
    for args in (["--offsets", "a:b"], ["--since", "yesterday"], ["--part", "index", "--key", "x"]):
        code, _, err = run("dump", data, *args)
        assert (code, err.startswith("tianzhou: --")) == (2, True)


def test_configuration_is_dumped(data: Path, run) -> None:
    rows = lines(run("dump", data, "--part", "config", "-o", "json")[1])
    (orders,) = [row for row in rows if (row["table"], row["name"]) == ("topicConfigTable", "orders")]
    assert orders["file"] == "topics.json"
    assert orders["value"]["topicName"] == "orders"


def without_place(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in ("physicalOffset", "storeTimestamp", "storeHost")}


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_export_comes_back_whole(data: Path, run, tmp_path: Path, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    code, _, err = run("export", data, "--to", tmp_path / f"all.{form}")
    assert (code, err) == (0, "25 messages of 4 queues exported\n")
    code, out, err = run("import", tmp_path / f"all.{form}", "--to", tmp_path / "copy", "-o", "json")
    assert (code, err) == (0, "25 messages imported; offsets and store times are new\n")
    assert {row["topic"]: row["messages"] for row in lines(out)}.keys() == {"orders"}
    assert sum(int(str(row["messages"])) for row in lines(out)) == SENT
    assert run("check", tmp_path / "copy")[0] == 0
    before = lines(run("export", data, "-t", "orders")[1])
    after = lines(run("export", tmp_path / "copy", "-t", "orders")[1])
    order = lambda row: (row["queueId"], row["queueOffset"])  # noqa: E731
    assert sorted(map(without_place, after), key=order) == sorted(map(without_place, before), key=order)
    assert {row["body"] for row in after} == {f"body {number}" for number in range(SENT)}


def test_an_import_adds_to_a_data_folder_which_then_serves_it(data: Path, run, tmp_path: Path) -> None:
    rows = [{"topic": "fresh", "queueId": 5, "body": "ä", "properties": {"TAGS": "B", "KEYS": "one two"}},
            {"topic": "fresh", "bodyBase64": "/wA=", "bornHost": "10.1.2.3:4", "bornTimestamp": 7}]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("import", tmp_path, "--to", data)[0] == 0
    assert run("check", data)[0] == 0

    async def main() -> list[Message]:
        async with EmbeddedServer(EmbeddedSettings(data, namesrv_port=0, broker_port=0)) as server:
            from tianzhou.client import PullConsumer

            async with PullConsumer("tests", server.namesrv_address) as consumer:
                found = []
                for queue in await consumer.queues("fresh"):
                    result = await consumer.pull(queue, 0)
                    found += result.messages
                return found

    found = asyncio.run(main())
    assert sorted((message.queue_id, message.body) for message in found) == [(0, b"\xff\0"), (5, "ä".encode())]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "line 1: is no JSON"),
        ("[1]", "line 1: is no JSON object"),
        ('{"body": "x"}', "member 'topic' is missing"),
        ('{"topic": "t", "queueId": "x", "body": "x"}', "wrong type"),
    ],
)
def test_rows_that_are_none_are_named(run, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "rows.jsonl").write_text(text + "\n")
    code, _, err = run("import", tmp_path / "rows.jsonl", "--to", tmp_path / "to")
    assert code == 2
    assert said in err


def test_what_cannot_be_exported_or_imported_is_named(data: Path, run, tmp_path: Path) -> None:
    assert "add --to FILE" in run("export", data, "--format", "parquet")[2]
    assert "no such file or folder" in run("import", tmp_path / "none", "--to", tmp_path / "to")[2]
    (tmp_path / "rows.jsonl").write_text("")
    assert "is no store" in run("import", tmp_path / "rows.jsonl", "--to", tmp_path)[2]


def test_an_export_of_a_damaged_store_says_what_is_left_out(data: Path, run, tmp_path: Path) -> None:
    damage(data, run)
    code, _, err = run("export", data, "--to", tmp_path / "all.jsonl")
    assert code == 1
    assert "no intact record between" in err
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == SENT - 1
