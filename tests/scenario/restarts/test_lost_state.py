"""A broker whose state files are damaged, missing or another user's: the files it reads, refuses, rebuilds and
preserves.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_broker import ask, pull, run, send, small_broker

from tianzhou.broker.rebuilt_note import NAME as NOTE
from tianzhou.damaged_files import accept_lost_state
from tianzhou.errors import StateLost, StoreUnreadable
from tianzhou.records.codec import decode_records
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.json_dialect import dumps_pretty, loads

pytestmark = pytest.mark.runner.with_args(run)

FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "consumerFilter.json")
MEMBERS = {
    "topics.json": "topicConfigTable", "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable", "delayOffset.json": "offsetTable", "consumerFilter.json": "filterDataByTopic",
}  # fmt: skip


def null_table(file: Path) -> None:
    value = loads(file.read_bytes())
    value[MEMBERS[file.name]] = None
    # Members with the value None are not written, but the text has them.
    del value[MEMBERS[file.name]]
    file.write_bytes(dumps_pretty(value)[:-1] + b',"%s":null}' % MEMBERS[file.name].encode())


def row_of_null(file: Path) -> None:
    file.write_text(json.dumps({MEMBERS[file.name]: {"1": None}}))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "NUL bytes": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "a list": lambda file: file.write_bytes(b"[1]"),
    "null table": null_table,
    "null row": row_of_null,
    "gone": lambda file: file.unlink(),
}


PAIRS = sorted(
    {(FILES[number % len(FILES)], damage) for number, damage in enumerate(DAMAGES)}
    | {(name, "empty") for name in FILES}
)
"""Each damage with one file, and each file with one damage."""


async def used_store(folder: Path) -> Path:
    """Create a store with a topic, a group, offsets and a message sent back; return its `config` folder."""
    async with small_broker(folder) as broker, RemotingClient() as client:
        address = broker.address
        for number in range(4):
            await send(client, address, b"%d" % number, topic="orders", default_topic_queue_nums=4)
        await send(client, address, b"again", topic="%RETRY%G", queue_id=0)
        await pull(client, address, topic="orders")
        await ask(client, address, 15, consumer_group="G", topic="orders", queue_id=0, commit_offset=3)
        await ask(client, address, 15, consumer_group="G", topic="%RETRY%G", queue_id=0, commit_offset=1)
    return folder / "broker-a" / "config"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a used store, stopped cleanly; tests work on copies."""
    folder = tmp_path_factory.mktemp("made")
    run(used_store(folder))  # type: ignore[arg-type]
    return folder


@pytest.fixture
def config(made: Path, tmp_path: Path) -> Path:
    """Return the `config` folder of a copy of the used store, in which each file has an equal `.bak`."""
    shutil.copytree(made / "broker-a", tmp_path / "broker-a")
    folder = tmp_path / "broker-a" / "config"
    for name in FILES:
        shutil.copy(folder / name, folder / f"{name}.bak")
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damaged_files_give_way_to_their_backups_in_one_line_each_and_are_saved(
    config: Path, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    harmed = FILES if damage != "null row" else FILES[:3]  # rows of delayOffset.json are numbers
    left = {}
    for name in harmed:
        DAMAGES[damage](config / name)
        left[name] = [(config / name).read_bytes()] if (config / name).exists() else []
    with caplog.at_level(logging.ERROR):
        async with small_broker(tmp_path) as broker, RemotingClient() as client:
            assert broker.tables.offsets.committed("G", "orders", 0) == 3
            assert broker.tables.topics.get("orders").write_queue_nums == 4  # type: ignore[union-attr]
            assert "G" in broker.tables.groups
            figures = KV_TABLE.loads((await ask(client, broker.address, 28)).body)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(harmed)
    for name in harmed:
        assert any(f"the version before it, {name}.bak, is used" in line for line in lines)
        assert [path.read_bytes() for path in config.glob(f"{name}.damaged-*")] == left[name]
    assert ("damagedStateFiles" in figures) == (damage != "gone")
    assert "rebuiltState" not in figures
    caplog.clear()
    async with small_broker(tmp_path) as broker:
        assert broker.tables.offsets.committed("G", "orders", 0) == 3
    assert caplog.records == [], "the files are whole again"


@pytest.mark.parametrize(("name", "damage"), PAIRS)
async def test_without_a_readable_backup_the_start_is_refused_in_words_and_nothing_is_changed(
    config: Path, tmp_path: Path, name: str, damage: str
) -> None:
    for file in (config / name, config / f"{name}.bak"):
        DAMAGES[damage](file) if file.suffix == ".json" else file.write_bytes(b"\0" * 40)
    if damage == "gone":
        (config / f"{name}.bak").unlink()
    before = {path.name: path.read_bytes() for path in config.iterdir()}
    with pytest.raises(StateLost) as refusal:
        async with small_broker(tmp_path):
            pass
    told = str(refusal.value)
    assert f"{name}.bak" in told
    assert str(config / name) in told
    assert "--accept-lost-state" in told
    assert "\n" not in told
    assert {path.name: path.read_bytes() for path in config.iterdir()} == before


async def test_an_accepted_loss_is_rebuilt_from_the_log_listed_and_deletes_nothing(
    config: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in FILES:
        (config / name).write_bytes(bytes(100))
        (config / f"{name}.bak").unlink()
    accept_lost_state(config)
    async with RemotingClient() as client:
        with caplog.at_level(logging.ERROR):
            async with small_broker(tmp_path) as broker:
                address = broker.address
                topic = broker.tables.topics.get("orders")
                assert topic is not None
                assert topic.write_queue_nums >= 1
                assert "G" in broker.tables.groups
                assert broker.tables.offsets.committed("G", "%RETRY%G", 0) == 0, "no message sent back is skipped"
                assert broker.tables.offsets.committed("G", "orders", 0) is None
                reply = await pull(client, address, topic="orders")
                assert [record.body for record in decode_records(reply.body)] == [b"0", b"1", b"2", b"3"]
                figures = KV_TABLE.loads((await ask(client, address, 28)).body)
                assert set(figures["rebuiltState"].split(", ")) == set(FILES)
                refused = await ask(client, address, 316)
                assert refused.code == 1
                assert NOTE in (refused.remark or "")
        text = caplog.text
        assert "topics.json was lost" in text
        assert "orders (" in text
        assert "%RETRY%G@G 0:0" in text
        assert "tianzhou offset reset" in text
        assert len(list(config.glob("*.damaged-*"))) == len(FILES)
        note = json.loads((config / NOTE).read_bytes())
        assert set(note["lost"]) == set(FILES)
        assert "orders" in note["topics"]
        assert not (config / "accept-lost-state").exists(), "the next loss is refused again"
        # The tables that the broker has now are intact; only an operator knows whether they are complete.
        async with small_broker(tmp_path) as broker:
            assert "orders" in broker.tables.topics
            assert (await ask(client, broker.address, 316)).code == 1
            (config / NOTE).unlink()
            assert (await ask(client, broker.address, 316)).code == 0
            assert "rebuiltState" not in KV_TABLE.loads((await ask(client, broker.address, 28)).body)


async def test_queues_of_a_store_without_a_topic_table_outlive_the_cleaning_of_unused_topics(
    config: Path, tmp_path: Path
) -> None:
    """For a store that another broker wrote, or whose `config` folder was not copied."""
    shutil.rmtree(config)
    async with small_broker(tmp_path) as broker, RemotingClient() as client:
        assert (await ask(client, broker.address, 316)).code == 1
        reply = await pull(client, broker.address, topic="orders")
        assert len(list(decode_records(reply.body))) == 4


async def test_a_store_without_messages_begins_anew_when_the_loss_is_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with small_broker(tmp_path):
        pass
    config = tmp_path / "broker-a" / "config"
    (config / "topics.json").write_bytes(bytes(30))
    (config / "topics.json.bak").unlink(missing_ok=True)
    with pytest.raises(StateLost, match=r"topics\.json: the file holds 30 NUL bytes"):
        async with small_broker(tmp_path):
            pass
    accept_lost_state(config)
    with caplog.at_level(logging.ERROR):
        async with small_broker(tmp_path) as broker, RemotingClient() as client:
            await send(client, broker.address)
    assert "the store is empty" in caplog.text
    assert len(list(config.glob("topics.json.damaged-*"))) == 1


@pytest.mark.parametrize("name", ["topics.json", "topics.json.bak"])
async def test_a_file_of_another_user_is_no_damage_and_stays(
    config: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config / "topics.json").write_bytes(b"" if name.endswith("bak") else (config / "topics.json").read_bytes())
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(StoreUnreadable, match=r"belongs to user .*; let this user read and write the file") as refusal:
        async with small_broker(tmp_path):
            pass
    assert "move" not in str(refusal.value)
    monkeypatch.undo()
    assert (config / name).exists()
    assert list(config.glob("topics.json.damaged-*")) == []


async def test_a_broker_whose_folder_is_removed_acknowledges_nothing_and_makes_no_new_folder(tmp_path: Path) -> None:
    broker = small_broker(tmp_path, {"flush_disk_type": "SYNC_FLUSH"})
    async with RemotingClient() as client, broker:
        assert (await send(client, broker.address)).code == 0
        # In one step, because the broker may be writing a file of the folder.
        (tmp_path / "broker-a").rename(tmp_path / "removed")
        shutil.rmtree(tmp_path / "removed")
        unsafe = await send(client, broker.address)
        assert unsafe.code == 10, "FLUSH_DISK_TIMEOUT"
        refused = await send(client, broker.address)
        assert refused.code == 14, "SERVICE_NOT_AVAILABLE"
        assert "broker-a" in (refused.remark or "")
        assert "was removed, moved or replaced" in (refused.remark or "")
        await ask(client, broker.address, 15, consumer_group="G", topic="T", queue_id=0, commit_offset=1)
    assert not (tmp_path / "broker-a" / "config").exists()
    assert any("removed while the broker ran" in one for one in broker.left_undone)


async def test_the_oldest_damaged_files_make_room(config: Path, tmp_path: Path) -> None:
    for number in range(7):
        (config / "topics.json").write_bytes(b"%d" % number)
        async with small_broker(tmp_path):
            pass
        shutil.copy(config / "topics.json", config / "topics.json.bak")
    kept = {path.read_bytes() for path in config.glob("topics.json.damaged-*")}
    assert kept == {b"2", b"3", b"4", b"5", b"6"}
