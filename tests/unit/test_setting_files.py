"""Settings in files: read back unchanged, and always either the old or the new version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import ConfigError
from tianzhou.setting_files import read_settings, write_settings
from tianzhou.settings import format_properties, parse_properties

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
AWKWARD = st.text(" \t\n\r\f\\=:#!\u0085\u2028\x1e\u00a0é😀xu0", max_size=12)


@given(st.dictionaries((TEXT | AWKWARD).filter(bool), TEXT | AWKWARD, max_size=5))
def test_what_is_written_is_what_is_read(values: dict[str, str]) -> None:
    assert parse_properties(format_properties(values)) == values


def test_plain_values_stand_as_they_are() -> None:
    values = {"namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876", "a": "x = y", "metricsLabel": "é#!", "deleteWhen": ""}
    assert (
        format_properties(values) == "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876\na=x = y\nmetricsLabel=é#!\ndeleteWhen=\n"
    )


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=\\uD83D\\uDE00\n", {"a": "😀"}),  # as Java writes it
        ("a=1\x0bb=2\u2028c=3", {"a": "1\x0bb=2\u2028c=3"}),  # lines end like in Java
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a\\=b\\:c=1", {"a=b:c": "1"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


@pytest.mark.parametrize("text", ["a=\\ud800", "\\udfff=1", "a=\\uDE00\\uD83D"])
def test_half_characters_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="half a character; write it whole"):
        parse_properties(text)


def test_a_file_says_what_was_changed_while_the_server_ran(tmp_path: Path) -> None:
    file = tmp_path / "new" / "broker.conf"
    write_settings(file, {"fileReservedTime": "9", "regionId": "a\nstorePathRootDir=/x"}, ["fileReservedTime"])
    write_settings(file, {"fileReservedTime": "9", "regionId": "b"}, ["regionId"])
    found = read_settings(file)
    assert found.values == {"fileReservedTime": "9", "regionId": "b"}
    assert found.changed == {"fileReservedTime", "regionId"}
    before = read_settings(file.with_name("broker.conf.bak"))
    assert before.values["regionId"] == "a\nstorePathRootDir=/x"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert sorted(entry.name for entry in file.parent.iterdir()) == ["broker.conf", "broker.conf.bak"]


def test_what_an_operator_wrote_besides_stays(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes("# 注释\ntls.server.keyPath=/keys/a.pem\nregionId=x\n".encode("gbk"))
    file.chmod(0o640)
    assert read_settings(file).changed is None
    write_settings(file, {"regionId": "y"}, ["regionId"])
    assert read_settings(file).values == {"tls.server.keyPath": "/keys/a.pem", "regionId": "y"}
    assert file.stat().st_mode & 0o777 == 0o640
    assert file.with_name("broker.conf.bak").stat().st_mode & 0o777 == 0o640


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "broker.conf"
    write_settings(file, {"a": "1"}, [])

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(ConfigError, match=r"cannot write .*No space left on device; nothing was changed"):
            write_settings(file, {"a": "2"}, ["a"])
    assert read_settings(file).values == {"a": "1"}
    assert not file.with_name("broker.conf.tmp").exists()
    write_settings(file, {"a": "3"}, ["a"])
    assert read_settings(file).values == {"a": "3"}


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "broker.conf", tmp_path / "precious"
    elsewhere.write_text("precious")
    file.with_name("broker.conf.tmp").symlink_to(elsewhere)
    write_settings(file, {"a": "1"}, [])
    assert elsewhere.read_text() == "precious"
    assert read_settings(file).values == {"a": "1"}


def test_a_damaged_file_is_not_taken_for_default_settings(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_bytes(b"")
    assert read_settings(file).values == {}, "an operator may have made an empty file"
    file.write_bytes(bytes(40))
    with pytest.raises(
        ConfigError, match=r"broker\.properties is damaged: .*40 NUL bytes.*copy broker\.properties\.bak"
    ):
        read_settings(file)
    file.unlink()
    write_settings(file, {"brokerName": "a"}, ["brokerName"])
    write_settings(file, {"brokerName": "b"}, ["brokerName"])
    file.write_bytes(b"")
    with pytest.raises(ConfigError, match=r"broker\.properties is damaged: the file is empty"):
        read_settings(file)
