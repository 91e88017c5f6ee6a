"""The store creates and removes only folders of topics, in its root, for any topic name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from small_store import opened, small_store

from store_probe import StoreProbe
from tianzhou.errors import StoreError
from tianzhou.store import MessageStore, NewRecord, PutStatus
from tianzhou.store.queues.queues import EXTENSIONS, QUEUES, queue_folder, topic_folder
from tianzhou.store.startup.replay import impossible_place
from tianzhou.store.upkeep.cleaner import is_topic_folder

HOSTILE = ("..", ".", "", "/", "/tmp", "../../outside", "T/../..", "a\0b", "x" * 256, "é" * 128, "\ud800")


def put(store: MessageStore, topic: str, body: bytes = b"x") -> PutStatus:
    return store.append(NewRecord(topic, 0, body, b"UNIQ_KEY\x01K", uniq_key="K")).status


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_text("mine")
    return folder


@pytest.mark.parametrize("topic", HOSTILE, ids=repr)
def test_no_path_is_made_of_such_a_name(tmp_path: Path, topic: str) -> None:
    with opened(small_store(tmp_path / "store")) as store:
        assert put(store, topic) is PutStatus.MESSAGE_ILLEGAL
        with pytest.raises(StoreError, match="no folder can have the name"):
            topic_folder(tmp_path, QUEUES, topic)
        with pytest.raises(StoreError, match="no folder can have the name"):
            store.queue_kinds.make(topic, 0)
        with pytest.raises(StoreError, match="no folder can have the name"):
            store.arrived(topic, 0)
        assert impossible_place(topic, 0) is not None


def test_a_queue_has_no_negative_number(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="-1"):
        queue_folder(tmp_path, QUEUES, "T", -1)


def test_deleting_what_is_no_topic_removes_nothing(tmp_path: Path, outside: Path) -> None:
    with opened(small_store(tmp_path / "store", enable_consume_queue_ext=True)) as store:
        assert put(store, "T") is PutStatus.PUT_OK
        before = sorted(tmp_path.rglob("*"))
        for topic in (*HOSTILE, str(outside), "../outside", "../../outside", "../commitlog", "T/0"):
            store.delete_topic(topic)
        assert sorted(tmp_path.rglob("*")) == before
        assert store.max_offset("T", 0) == 1
        store.delete_topic("T")
        assert not (tmp_path / "store" / QUEUES / "T").exists()
        assert (outside / "precious").exists()


def test_the_cleaner_itself_judges_what_it_is_told_to_remove(
    tmp_path: Path, outside: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(small_store(tmp_path / "store")) as store:
        root = tmp_path / "store"
        for folder in (outside, root, root / QUEUES, root / QUEUES / "..", root / "commitlog", root / "config" / "T"):
            folder.mkdir(exist_ok=True, parents=True)
            StoreProbe(store).cleaner.remove([folder], [])
            assert folder.is_dir()
            assert f"{folder} is no folder of a topic" in caplog.text
        assert not is_topic_folder(root, root / EXTENSIONS / "absent")


def test_of_a_link_only_the_link_is_removed(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "store"
    (root / QUEUES).mkdir(parents=True)
    (outside / "0").mkdir()
    (root / QUEUES / "T").symlink_to(outside)
    with opened(small_store(root)) as store:
        store.delete_topic("T")
        assert not os.path.lexists(root / QUEUES / "T")
        assert (outside / "precious").exists()


def test_a_link_within_a_topics_folder_leads_nowhere_when_it_is_deleted(tmp_path: Path, outside: Path) -> None:
    with opened(small_store(tmp_path / "store")) as store:
        put(store, "T")
        (tmp_path / "store" / QUEUES / "T" / "7").symlink_to(outside)
        store.delete_topic("T")
    assert not (tmp_path / "store" / QUEUES / "T").exists()
    assert (outside / "precious").exists()


def test_a_folder_whose_name_is_no_text_is_left_alone(tmp_path: Path) -> None:
    queue = os.fsencode(tmp_path / "store" / QUEUES) + b"/\xff\xfe/0"
    os.makedirs(queue)
    with opened(small_store(tmp_path / "store")) as store:
        assert any("is left alone" in note for note in store.report.notes)
        assert put(store, "T") is PutStatus.PUT_OK
    assert os.path.isdir(queue)


def test_a_record_that_names_no_possible_folder_is_left_out(tmp_path: Path, outside: Path) -> None:
    with opened(small_store(tmp_path / "store")) as store:
        put(store, "aa/aaaaaaaa".replace("/", "_"), b"first")
        put(store, "T", b"second")
    log = next((tmp_path / "store" / "commitlog").iterdir())
    data = log.read_bytes()
    log.write_bytes(data.replace(b"aa_aaaaaaaa", b"../../other", 1))
    for path in (tmp_path / "store" / QUEUES).glob("*/*/*"):
        path.unlink()
    (tmp_path / "store" / "abort").touch()
    with opened(small_store(tmp_path / "store")) as store:
        assert any("'../../other'" in note and "left out" in note for note in store.report.notes)
        assert store.max_offset("T", 0) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "store"]
