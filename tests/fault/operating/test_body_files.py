"""Files sent as one message, and bodies written unchanged: `produce --body-file` and `consume --out`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Tianzhou, serve

from tianzhou.cli.messages.body_files import BodyFolder
from tianzhou.errors import ConfigError
from tianzhou.model import MessageExt

BINARY = bytes(range(256)) * 20 + b"\n\r\n\x00"


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("server")) as server:
        yield server.ready()["namesrv"]


@pytest.fixture
def command(namesrv: str, tmp_path: Path) -> object:
    def run(*words: object, body: bytes | None = None) -> tuple[int, str, str]:
        stdin = subprocess.DEVNULL if body is None else subprocess.PIPE
        with Tianzhou(tmp_path, *words, namesrv=namesrv, stdin=stdin) as process:
            if body is not None:
                process.stdin.write(body)
                process.stdin.close()
            code = process.wait(60)
            return code, process.out, process.err

    return run


def test_a_file_and_stdin_are_one_message_each_and_come_back_byte_by_byte(command, tmp_path: Path) -> None:
    source = tmp_path / "scan.pdf"
    source.write_bytes(BINARY)
    code, out, _ = command("produce", "scans", "--body-file", source, "--keys", "scan")
    assert (code, out.partition(" ")[0]) == (0, "SEND_OK")
    code, out, _ = command("produce", "scans", "--body-file", "-", "-o", "json", body=b"typed\nin two lines\n")
    assert (code, json.loads(out)["status"]) == (0, "SEND_OK")
    code, out, err = command("consume", "scans", "--from-beginning", "--max", "2", "--out", "bodies/new", "-o", "json")
    assert (code, err) == (0, "")
    documents = [json.loads(line) for line in out.splitlines()]
    bodies = {Path(one["file"]): (tmp_path / one["file"]).read_bytes() for one in documents}
    assert sorted(bodies.values()) == sorted([BINARY, b"typed\nin two lines\n"])
    assert [one["size"] for one in documents] == [len(bodies[Path(one["file"])]) for one in documents]
    assert not any("body" in one for one in documents)
    for one in documents:
        assert Path(one["file"]).name == f"{one['broker']}-{one['queue_id']}-{one['queue_offset']}.body"
        assert (tmp_path / one["file"]).stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_there_stays_and_its_message_is_not_consumed(command, tmp_path: Path) -> None:
    assert command("produce", "kept", "--body-file", "-", body=b"first")[0] == 0
    read = ("consume", "kept", "--group", "keeper", "--from-beginning", "--max", "1", "--out", "out")
    looked = ("consume", "kept", "--from-beginning", "--max", "1", "--out", "out")
    code, out, err = command(*looked)
    assert (code, err) == (0, "1 message\n")
    [file] = (tmp_path / "out").iterdir()
    assert out.rstrip().endswith(f"out/{file.name} (5 bytes)")
    file.write_bytes(b"mine")
    refusal = f"--out out: {file.name} is there already and is not overwritten; remove it, or name another folder"
    for words in (looked, read):
        code, _, err = command(*words)
        assert (code, err) == (2, f"tianzhou: {refusal}\n")
    assert file.read_bytes() == b"mine"
    file.unlink()
    assert command(*read)[0] == 0
    assert file.read_bytes() == b"first"


def message(broker_name: str, body: bytes = b"x") -> MessageExt:
    host = "127.0.0.1:1"
    return MessageExt("T", body, 0, {}, broker_name, 1, 2, 3, 0, 4, host, 5, host, 6, 0, 7, 8, "id")


@pytest.mark.parametrize("name", ["..", "../../etc", "/etc/passwd", "a\nb\x00", "世界", ""])
def test_a_brokers_name_cannot_lead_out_of_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    BodyFolder(folder).write(message(name))
    [file] = folder.iterdir()
    assert (file.name.endswith("-1-2.body"), file.read_bytes()) == (True, b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_that_somebody_planted_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    folder = BodyFolder(tmp_path / "out")
    os.symlink(target, tmp_path / "out" / "b-1-2.body")
    with pytest.raises(ConfigError, match="is not overwritten"):
        folder.write(message("b"))
    assert not target.exists()


def test_nothing_stays_of_a_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = BodyFolder(tmp_path / "out")

    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            os.close(self.descriptor)

        def write(self, body):
            raise OSError(28, "No space left on device")

    def open_full(descriptor, mode):
        full = Full()
        full.descriptor = descriptor
        return full

    monkeypatch.setattr("tianzhou.cli.messages.body_files.os.fdopen", open_full)
    with pytest.raises(OSError, match="No space left") as caught:
        folder.write(message("b"))
    assert caught.value.filename == str(tmp_path / "out" / "b-1-2.body")
    assert list((tmp_path / "out").iterdir()) == []
