"""Pipeline commands without Spark at servers with access control, and in a namespace, configured by options alone."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tianzhou.cli import main as entry
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.model import Message
from tianzhou.sync import Admin, Producer

SECRET = "s3cr3t-of-the-job"
ACCOUNTS = f"""accounts:
- {{accessKey: administrator, secretKey: admin-secret, admin: true}}
- {{accessKey: nightly-job, secretKey: {SECRET}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}}
"""
ADMIN = {"access_key": "administrator", "secret_key": "admin-secret"}
Run = Callable[..., tuple[int, str, str]]


@dataclass
class Guarded:
    """A server with accounts."""

    address: str

    def bodies(self, topic: str) -> list[bytes]:
        with Admin(self.address, **ADMIN) as admin:
            found = admin.messages.by_time(topic, 0, 1 << 62, limit=100) if admin.topics.exists(topic) else []
        return sorted(message.body for message in found)

    def send(self, topic: str, count: int, **properties: str) -> None:
        with Admin(self.address, **ADMIN) as admin:
            admin.topics.create(topic, read_queue_nums=1, write_queue_nums=1)
        with Producer("tests", self.address, **ADMIN) as producer:
            for number in range(count):
                producer.send(Message(topic, b"%d" % number, keys=f"k{number}", properties=dict(properties)))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "plain_acl.yml").write_text(ACCOUNTS)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    settings = EmbeddedSettings(folder, namesrv_port=0, broker_port=0, values={"aclEnable": "true"})
    server = EmbeddedServer(settings)

    def run(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    run(server.__aenter__())
    yield Guarded(server.namesrv_address)
    run(server.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


@pytest.fixture
def run(guarded: Guarded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `tianzhou pipeline ARGS…`, in which Spark cannot be imported."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for name in ("TIANZHOU_ACCESS_KEY", "TIANZHOU_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)

    def runner(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["tianzhou", "pipeline", *args, "-n", guarded.address])
        with pytest.raises(SystemExit) as ended:
            entry.main()
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err
        return int(ended.value.code or 0), said.out, said.err

    return runner


@pytest.fixture
def signed(tmp_path: Path) -> tuple[str, ...]:
    """Options that sign, with the secret in a file."""
    file = tmp_path / "job.secret"
    file.write_text(f"{SECRET}\n")
    return "--access-key", "nightly-job", "--secret-key-file", str(file)


def test_single_messages_are_replayed_signed(guarded: Guarded, run: Run, signed) -> None:
    guarded.send("tenant%bills", 2)
    with Admin(guarded.address, **ADMIN) as admin:
        (wanted,) = admin.messages.by_key("tenant%bills", "k1")
    code, _, err = run("replay", "bills", "--id", wanted.msg_id, "--namespace", "tenant", *signed)
    assert code == 0, err
    assert guarded.bodies("tenant%bills") == [b"0", b"1", b"1"]


def test_lines_of_files_are_sent_signed_by_the_environments_secret(
    guarded: Guarded, run: Run, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded.send("tenant%lines", 0)
    (tmp_path / "a.log").write_text("one\ntwo\n")
    monkeypatch.setenv("TIANZHOU_SECRET_KEY", SECRET)
    code, _, err = run(
        *("logs", str(tmp_path / "*.log"), "--to", "lines", "--positions", str(tmp_path / "p"), "--once"),
        *("--access-key", "nightly-job", "--namespace", "tenant"),
    )
    assert code == 0, err
    assert guarded.bodies("tenant%lines") == [b"one", b"two"]
