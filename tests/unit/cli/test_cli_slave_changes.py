"""`tianzhou broker --promote` and `--allow-cut`: an operator's actions on a halted slave."""

from __future__ import annotations

from pathlib import Path

import pytest

from tianzhou.cli.serving.server_settings import broker_settings
from tianzhou.cli.serving.slave_changes import changed_slave, promoted
from tianzhou.errors import ConfigError
from tianzhou.store.startup.marked_cut import is_cut_allowed

SLAVE = """# a comment stays
brokerName=broker-a
brokerId = 1
brokerRole=SLAVE
haMasterAddress=10.0.0.1:10912
durability=zero-loss
fileReservedTime=48
"""


def changed(config: Path, **options: bool) -> None:
    choice = {"promote": False, "allow_cut": False} | options
    changed_slave(broker_settings(config, ""), config, "", **choice)


def conf(folder: Path, text: str = SLAVE) -> Path:
    file = folder / "slave.conf"
    file.write_text(f"{text}storePathRootDir={folder / 'store'}\nnamesrvAddr=127.0.0.1:1\n")
    return file


def test_a_promoted_configuration_is_a_masters_and_keeps_all_other_lines() -> None:
    lines = promoted(SLAVE, "slave.conf").splitlines()
    assert lines == [
        "# a comment stays", "brokerName=broker-a", "durability=zero-loss", "fileReservedTime=48",
        "brokerRole=SYNC_MASTER", "brokerId=0",
    ]  # fmt: skip
    assert "brokerRole=ASYNC_MASTER" in promoted(SLAVE.replace("durability", "#"), "slave.conf")


def test_a_slave_is_promoted_once_and_its_former_file_stays(tmp_path: Path) -> None:
    file = conf(tmp_path)
    before = file.read_text()
    changed(file, promote=True)
    assert (tmp_path / "slave.conf.bak").read_text() == before
    settings, store_settings, _ = broker_settings(file, "")
    assert (settings.broker_id, store_settings.broker_role, store_settings.ha_master_address) == (0, "SYNC_MASTER", "")
    with pytest.raises(ConfigError, match="brokerRole=SYNC_MASTER is no slave's"):
        changed(file, promote=True)


def test_a_cut_is_allowed_in_the_folder_of_a_slave_only(tmp_path: Path) -> None:
    changed(conf(tmp_path), allow_cut=True)
    assert is_cut_allowed(tmp_path / "store")
    with pytest.raises(ConfigError, match="give one of them"):
        changed(conf(tmp_path), promote=True, allow_cut=True)
    with pytest.raises(ConfigError, match="brokerRole=ASYNC_MASTER is no slave's"):
        changed(conf(tmp_path, "brokerName=broker-a\n"), allow_cut=True)


def test_a_promotion_needs_a_file(tmp_path: Path) -> None:
    found = broker_settings(conf(tmp_path), "")
    with pytest.raises(ConfigError, match="-c FILE"):
        changed_slave(found, None, "", promote=True, allow_cut=False)
