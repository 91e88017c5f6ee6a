"""Configuration files and their predecessors (store.md §15.1)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tianzhou.errors import StoreUnreadable
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
    assert ("f.json.bak" in caplog.text) == bool(text.strip(b" \n\0"))


def test_when_both_are_broken_the_error_names_them_and_the_fix(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.path.write_bytes(b'{"a":')
    file.backup_path.write_bytes(b"nonsense }")
    with pytest.raises(StoreUnreadable, match=r"f\.json: .*f\.json\.bak: .*move both away"):
        file.load()


def test_a_write_that_fails_leaves_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = JsonFile(tmp_path / "f.json")
    file.persist({"a": 1})

    def refuse(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="Input/output"):
        file.persist({"a": 2})
    assert JsonFile(file.path).load() == {"a": 1}
