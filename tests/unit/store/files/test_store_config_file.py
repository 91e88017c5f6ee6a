"""Configuration files and their predecessors (store.md §15.1)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tianzhou.errors import StateLost, StoreUnreadable
from tianzhou.store.files.config_file import JsonFile


def test_what_was_written_is_read_and_the_version_before_is_kept(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "config" / "consumerOffset.json")
    assert file.load() is None
    file.persist({"offsetTable": {"T@g": {0: 1, 1: 2}}})
    file.persist({"offsetTable": {"T@g": {0: 5, 1: 2}}})
    assert file.path.read_bytes() == b'{\n\t"offsetTable":{\n\t\t"T@g":{0:5,1:2\n\t\t}\n\t}\n}'
    assert JsonFile(file.path).load() == {"offsetTable": {"T@g": {0: 5, 1: 2}}}
    assert b"{0:1,1:2" in file.backup_path.read_bytes()
    assert sorted(path.name for path in file.path.parent.iterdir()) == [
        "consumerOffset.json",
        "consumerOffset.json.bak",
    ]


def test_the_same_text_is_not_written_again(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.persist({"a": 1})
    file.persist({"a": 2})
    stamp = file.path.stat().st_mtime_ns
    file.persist({"a": 2})
    assert file.path.stat().st_mtime_ns == stamp
    assert b"1" in file.backup_path.read_bytes()


@pytest.mark.parametrize("text", [b"", b" \n", bytes(30), b'{"a":', b"\xff\xfe"])
def test_a_broken_file_gives_way_to_its_predecessor(
    tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.persist({"a": 1})
    file.persist({"a": 2})
    file.path.write_bytes(text)
    with caplog.at_level(logging.WARNING):
        assert JsonFile(file.path).load() == {"a": 1}
    assert "f.json.bak" in caplog.text


def test_when_both_are_broken_the_error_names_them_and_the_fix(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.path.write_bytes(b'{"a":')
    file.backup_path.write_bytes(b"nonsense }")
    with pytest.raises(StateLost, match=r"f\.json: .*f\.json\.bak: .*put back a copy"):
        file.load()
    file.backup_path.unlink()
    with pytest.raises(StateLost, match=r"f\.json: .*f\.json\.bak: there is no such file; put back a copy"):
        file.load()


def test_a_damaged_file_that_cannot_be_renamed_never_becomes_the_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.persist({"a": 1})
    file.persist({"a": 2})
    file.path.write_bytes(bytes(20))

    def refuse(path: Path, target: Path) -> Path:
        raise OSError(1, "Operation not permitted")

    again = JsonFile(file.path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        assert again.load(put_aside=True) == {"a": 1}
    again.persist({"a": 3})
    assert b"1" in file.backup_path.read_bytes()
    assert JsonFile(file.path).load() == {"a": 3}


def test_a_file_that_may_not_be_read_is_not_taken_for_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.persist({"a": 1})
    file.persist({"a": 2})
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path == file.path:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(StoreUnreadable, match=r"f\.json cannot be read: Permission denied; it belongs to user"):
        JsonFile(file.path).load(put_aside=True)
    assert file.path.exists()


def test_a_file_that_the_disk_cannot_read_gives_way_to_its_predecessor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.persist({"a": 1})
    file.persist({"a": 2})
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path == file.path:
            raise OSError(5, "Input/output error", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert JsonFile(file.path).load(put_aside=True) == {"a": 1}


def test_a_write_that_fails_leaves_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.persist({"a": 1})

    def refuse(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="Input/output"):
        file.persist({"a": 2})
    assert JsonFile(file.path).load() == {"a": 1}
