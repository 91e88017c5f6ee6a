"""Each folder belongs to one store: its root, and every folder of its log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_store import opened, small_store

from store_reads import read_now
from tianzhou.errors import StoreLocked
from tianzhou.store import GetStatus, MessageStore, NewRecord
from tianzhou.store.files.folder import StoreFolder


def store_of(root: Path, log: str = "", read_only: str = "") -> MessageStore:
    return small_store(root, store_path_commit_log=log, read_only_commit_log_store_paths=read_only)


@pytest.mark.parametrize("second", ["{log}", "{other},{log}", "{link}", "{log}/../log"])
def test_a_second_store_on_the_same_log_folder_is_refused_by_name(tmp_path: Path, second: str) -> None:
    log, other, link = (tmp_path / name for name in ("log", "other", "link"))
    with opened(store_of(tmp_path / "a", str(log))) as first:
        link.symlink_to(log)
        with pytest.raises(StoreLocked) as refusal:
            store_of(tmp_path / "b", second.format(log=log, other=other, link=link)).open()
        assert f"store {tmp_path / 'b'}" in str(refusal.value)
        assert "is in use by another store of this process" in str(refusal.value)
        assert "storePathCommitLog" in str(refusal.value)
        first.append(NewRecord("T", 0, b"kept", b""))
    with opened(store_of(tmp_path / "b", str(log))):
        pass


def test_the_log_folder_of_another_store_s_root_is_refused(tmp_path: Path) -> None:
    with opened(store_of(tmp_path / "a")):
        for taken in (tmp_path / "a", tmp_path / "a" / "commitlog"):
            with pytest.raises(StoreLocked):
                store_of(tmp_path / "b", str(taken)).open()


def test_a_folder_may_be_named_twice_by_the_same_store(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with opened(store_of(tmp_path / "a", f"{log},{log}/.", str(log))) as store:
        store.append(NewRecord("T", 0, b"kept", b""))
        assert read_now(store, "T", 0, 0, 1).status is GetStatus.FOUND


def test_read_only_folders_may_be_shared_but_not_with_their_writer(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    readers = [store_of(tmp_path / name, str(tmp_path / name / "own"), str(shared)) for name in "ab"]
    for reader in readers:
        reader.open()
    writer = store_of(tmp_path / "c", str(shared))
    with pytest.raises(StoreLocked):
        writer.open()
    for reader in readers:
        reader.close_now()
    writer.open()
    with pytest.raises(StoreLocked):
        readers[0].open()
    writer.close_now()


def test_nothing_is_put_into_a_log_folder_to_lock_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with opened(store_of(tmp_path / "a", str(log))):
        assert list(log.iterdir()) == []


def test_another_process_is_named_by_its_number(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = (
        "import sys; from pathlib import Path; from tianzhou.store.files.folder import StoreFolder\n"
        "folder = StoreFolder(Path(sys.argv[1])); folder.lock(); folder.lock_directories([Path(sys.argv[2])])\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "a", log],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(StoreLocked, match=f"{log} is in use by process {other.pid};"):
            store_of(tmp_path / "b", str(log)).open()
        other.kill()
    with opened(store_of(tmp_path / "b", str(log))):
        pass


def test_what_is_unlocked_is_free_although_a_child_has_its_descriptor(tmp_path: Path) -> None:
    folder, next_folder = StoreFolder(tmp_path / "a"), StoreFolder(tmp_path / "b")
    folder.lock_directories([tmp_path / "log"])
    # The descriptors of a child between its fork and its first step.
    copies = [os.dup(fd) for fd in folder._directories]
    folder.unlock()
    next_folder.lock_directories([tmp_path / "log"])
    next_folder.unlock()
    for fd in copies:
        os.close(fd)


def test_a_forked_child_keeps_no_lock(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with opened(store_of(tmp_path / "a", str(log))):
        held, release = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(release)
            os.read(held, 1)
            os._exit(0)
    with opened(store_of(tmp_path / "b", str(log))):
        pass
    os.close(held)
    os.close(release)
    os.waitpid(child, 0)
