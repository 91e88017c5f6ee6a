"""Local offsets: RocketMQ's own file, preserved over restarts and crashes."""

import asyncio
import stat

import pytest

from tianzhou.client import ClientInstance
from tianzhou.client.consumer.offset_store import OFFSET_DIR_ENV, LocalOffsets, offset_store
from tianzhou.client.consumer.options import ConsumerOptions
from tianzhou.errors import ClientError
from tianzhou.model import MessageModel, MessageQueue

A, B = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)


def run(*steps):
    async def main() -> list:
        return [await step for step in steps]

    return asyncio.run(main())


def test_offsets_outlive_restarts(tmp_path):
    store = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "G")
    assert run(store.load(), store.read(A), store.persist({A: 5}), store.persist({B: 7})) == [None, None, {A}, {B}]
    again = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "G")
    assert run(again.load(), again.read(A), again.read(B)) == [None, 5, 7]
    assert again.path == tmp_path / "10.0.0.1@DEFAULT" / "G" / "offsets.json"


def test_the_file_is_in_javas_form(tmp_path):
    store = LocalOffsets(tmp_path, "c", "G")
    run(store.persist({A: 5}))
    assert store.path.read_bytes() == b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}'
    store.path.write_text(
        '{\n\t"offsetTable":{{\n\t\t"brokerName":"b",\n\t\t"queueId":1,\n\t\t"topic":"T"\n\t}:9\n\t}\n}'
    )
    again = LocalOffsets(tmp_path, "c", "G")
    assert run(again.load(), again.read(B)) == [None, 9]


def test_a_damaged_file_is_replaced_by_its_backup(tmp_path):
    store = LocalOffsets(tmp_path, "c", "G")
    run(store.persist({A: 5}), store.persist({A: 6}))
    store.path.write_bytes(b'{"offsetTab')
    again = LocalOffsets(tmp_path, "c", "G")
    assert run(again.load(), again.read(A)) == [None, 5]


@pytest.mark.parametrize(
    "damage", [b"", bytes(80), b'{"offsetTab', b'{"offsetTable":null}', b'{"offsetTable":[]}', b"[]"]
)
def test_a_damaged_file_is_kept_and_without_a_backup_the_member_does_not_start(tmp_path, caplog, damage):
    store = LocalOffsets(tmp_path, "c", "G")
    run(store.persist({A: 5}), store.persist({A: 6}))
    store.path.write_bytes(damage)
    again = LocalOffsets(tmp_path, "c", "G")
    assert run(again.load(), again.read(A), again.persist({A: 8})) == [None, 5, {A}]
    assert "the version before it, offsets.json.bak, is used" in caplog.text
    (aside,) = store.path.parent.glob("offsets.json.damaged-*")
    assert aside.read_bytes() == damage
    assert run(again.load(), again.read(A)) == [None, 8]
    store.path.write_bytes(damage)
    store.path.with_suffix(".json.bak").write_bytes(b"[")
    new = LocalOffsets(tmp_path, "c", "G")
    with pytest.raises(ClientError, match=r"offsets\.json: .*offsets\.json\.bak: .*move both files away"):
        run(new.load())
    for file in (store.path, store.path.with_suffix(".json.bak")):
        file.rename(file.with_suffix(".old"))
    assert run(new.load(), new.read(A)) == [None, None]


def test_a_file_that_may_not_be_read_is_an_error(tmp_path):
    store = LocalOffsets(tmp_path, "c", "G")
    store.path.mkdir(parents=True)
    with pytest.raises(ClientError, match=r"offsets\.json cannot be read: Is a directory"):
        run(store.load())


def test_nobody_else_may_read_the_files(tmp_path):
    store = LocalOffsets(tmp_path / "new", "c", "G")
    run(store.persist({A: 5}), store.persist({A: 6}))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").rglob("*")}
    assert modes == {"c": 0o700, "G": 0o700, "offsets.json": 0o600, "offsets.json.bak": 0o600}


def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(tmp_path, caplog):
    (tmp_path / "c").write_text("a file where a folder should be")
    store = LocalOffsets(tmp_path, "c", "G")
    assert run(store.persist({A: 5}), store.read(A)) == [set(), 5]
    assert "could not be written" in caplog.text


def test_the_environment_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(OFFSET_DIR_ENV, str(tmp_path))
    assert LocalOffsets(None, "c", "G").path.parent.parent.parent == tmp_path


async def test_inside_a_namespace_the_file_has_the_servers_names(tmp_path):
    instance = ClientInstance("127.0.0.1:1", namespace="space")
    options = ConsumerOptions(message_model=MessageModel.BROADCASTING, local_offset_dir=tmp_path)
    store = offset_store(instance, "G", options)
    assert store.path.parent.name == "space%G"
    await store.persist({A: 5})
    assert b'"topic":"space%T"' in store.path.read_bytes()
    again = offset_store(instance, "G", options)
    await again.load()
    assert await again.read(A) == 5
    outside = offset_store(ClientInstance("127.0.0.1:1"), "G", options)
    await outside.load()
    assert await outside.read(A) is None
