"""`store backup|restore` of a broker's folder with its configuration, and of a data folder."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tianzhou.client import Producer
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.model import Message

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the data folder of a stopped broker with one message. Small files make its many copies cheap."""

    async def main() -> None:
        small = {"mappedFileSizeCommitLog": "1048576", "maxHashSlotNum": "100", "maxIndexNum": "400"}
        settings = EmbeddedSettings(tmp_path / "data", namesrv_port=0, broker_port=0, values=small)
        async with EmbeddedServer(settings) as server, Producer("p", server.namesrv_address) as producer:
            await producer.send(Message("orders", b"x"))

    asyncio.run(main())
    return tmp_path / "data"


@pytest.fixture
def conf(tmp_path: Path, data: Path) -> Path:
    """Return the configuration of a broker on the store, with its accounts in the same folder."""
    etc = tmp_path / "etc"
    (etc / "acl").mkdir(parents=True)
    for name in ("plain_acl.yml", "acl/more.yml"):
        (etc / name).write_text("accounts: []\n")
    (etc / "broker.conf").write_text(
        f"brokerName=broker-a\nstorePathRootDir={data / 'store'}\naclConfigPath={etc / 'plain_acl.yml'}\n"
    )
    return etc / "broker.conf"


def test_the_configuration_and_accounts_go_with_the_store(data: Path, conf: Path, tmp_path: Path, run: Run) -> None:
    backup = tmp_path / "backup"
    code, out, _ = run("store", "backup", data / "store", "-c", conf, "--to", backup, "-o", "json")
    shown = json.loads(out)
    assert (code, shown["settings"], shown["of"]) == (0, 3, str(data / "store"))
    for name in ("broker.conf", "plain_acl.yml", "acl/more.yml"):
        copied = backup / "settings" / name
        assert copied.read_bytes() == (conf.parent / name).read_bytes()
        assert stat.S_IMODE(copied.stat().st_mode) == 0o600
    code, out, err = run("store", "restore", backup, "--to", tmp_path / "again")
    assert code == 0
    assert f"{backup / 'settings' / 'broker.conf'} was {conf}" in err
    code, out, _ = run("store", "dump", tmp_path / "again", "-t", "orders", "-o", "json")
    assert (code, json.loads(out)["body"]) == (0, "x")


def test_a_data_folder_goes_as_a_whole(data: Path, tmp_path: Path, run: Run) -> None:
    assert run("store", "backup", data, "--to", tmp_path / "backup")[0] == 0
    assert run("store", "restore", tmp_path / "backup", "--to", tmp_path / "again")[0] == 0
    assert (tmp_path / "again" / "tianzhou.json").read_bytes() == (data / "tianzhou.json").read_bytes()
    assert (tmp_path / "again" / "store" / "abort").exists()
    assert run("store", "check", tmp_path / "again")[0] == 0


@pytest.fixture
def of_two(data: Path) -> Path:
    """Return a data folder of two brokers, stopped."""
    shutil.copytree(data / "store", data / "broker-b" / "store")
    (data / "tianzhou.json").write_text('{"layout": 2}\n')
    return data


def test_the_stores_of_several_brokers_go_together(of_two: Path, tmp_path: Path, run: Run) -> None:
    code, out, _ = run("store", "backup", of_two, "--to", tmp_path / "backup", "-o", "json")
    assert (code, json.loads(out)["stores"]) == (0, 2)
    assert run("store", "restore", tmp_path / "backup", "--to", tmp_path / "again")[0] == 0
    for store in ("store", "broker-b/store"):
        assert (tmp_path / "again" / store / "abort").exists()
        assert not (tmp_path / "backup" / "files" / store / "checkpoint").exists()
        code, out, _ = run("store", "dump", tmp_path / "again" / store, "-t", "orders", "-o", "json")
        assert (code, json.loads(out)["body"]) == (0, "x")
    assert run("store", "backup", of_two / "broker-b" / "store", "--to", tmp_path / "one")[0] == 0


def test_a_configuration_belongs_to_one_store(of_two: Path, conf: Path, tmp_path: Path, run: Run) -> None:
    code, _, err = run("store", "backup", of_two, "-c", conf, "--to", tmp_path / "backup")
    assert (code, "the stores of 2 brokers" in err, "leave -c out" in err) == (2, True, True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("storePathRootDir=", "storePathRootDir=/elsewhere"), "storePathRootDir is /elsewhere"),
        (("brokerName=broker-a", "brokerNam=broker-a"), "brokerNam"),
    ],
)
def test_the_configuration_of_another_store_is_refused(
    data: Path, conf: Path, tmp_path: Path, run: Run, change: tuple[str, str], words: str
) -> None:
    conf.write_text(conf.read_text().replace(*change))
    code, _, err = run("store", "backup", data / "store", "-c", conf, "--to", tmp_path / "backup")
    assert words in err
    assert code != 0 or change[0].startswith("brokerName")


def test_what_is_no_store_or_no_backup_is_an_error(tmp_path: Path, run: Run) -> None:
    code, _, err = run("store", "backup", tmp_path, "--to", tmp_path / "backup")
    assert (code, "is no store" in err) == (2, True)
    code, _, err = run("store", "restore", tmp_path, "--to", tmp_path / "again")
    assert (code, "is no backup" in err) == (1, True)
