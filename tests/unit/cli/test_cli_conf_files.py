"""broker.conf and namesrv.conf in the style of RocketMQ's users, and the resulting settings."""

from __future__ import annotations

import pytest

from tianzhou.broker.settings import BrokerSettings
from tianzhou.cli.conf_files import check_port, read_conf
from tianzhou.cli.serving.server_settings import broker_settings
from tianzhou.errors import ConfigError
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.store.settings import StoreSettings

AS_DOCUMENTED = """\
# Licensed to whom it may concern
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
namesrvAddr=127.0.0.1:9876;127.0.0.1:9877
storePathRootDir=~/rocketmq/store
"""


def test_the_file_of_rocketmqs_documentation_is_read_without_a_word(conf, tmp_path, capsys) -> None:
    path = conf(AS_DOCUMENTED)
    broker, store, _ = broker_settings(path, "")
    assert (broker.broker_name, broker.broker_id, broker.listen_port) == ("broker-a", 0, 10911)
    assert broker.namesrv_addresses == ["127.0.0.1:9876", "127.0.0.1:9877"]
    assert (store.file_reserved_time, store.flush_disk_type) == (48, "ASYNC_FLUSH")
    root = tmp_path / "home" / "rocketmq" / "store"
    assert store.root == root
    assert store.commit_log_directories == [root / "commitlog"]
    assert capsys.readouterr().err == ""


def test_what_rocketmq_derives_is_derived(conf) -> None:
    path = conf("listenPort=20911\nstorePathRootDir=relative/store\n")
    broker, store, _ = broker_settings(path, "127.0.0.1:9876")
    assert store.ha_listen_port == 20912
    assert store.store_path_commit_log == "relative/store/commitlog"
    assert broker.broker_config_path == str(path)  # changes at run time go to the same file
    assert broker.namesrv_addr == "127.0.0.1:9876"
    assert broker_settings(None, "")[0].broker_config_path.endswith("store/config/broker.properties")


def test_the_flag_goes_before_the_file(conf) -> None:
    path = conf("namesrvAddr=127.0.0.1:1\n")
    assert broker_settings(path, "127.0.0.1:2")[0].namesrv_addr == "127.0.0.1:2"


def test_home_is_replaced_in_paths_only(conf, tmp_path) -> None:
    path = conf("storePathRootDir=${user.home}/store\nbrokerName=${user.home}\n")
    values = read_conf(path, BrokerSettings, StoreSettings)
    assert values == {"storePathRootDir": f"{tmp_path}/home/store", "brokerName": "${user.home}"}


@pytest.mark.parametrize(
    "content",
    [
        "\ufeffbrokerName=b\n".encode(),
        b"brokerName=b\r\n",
        b"# \xc4\xe3\xba\xc3, a comment in GBK\nbrokerName=b\n",
        b"brokerName: b",
        b"brokerName b",
        b"  brokerName = \\\n   b",
    ],
)
def test_files_as_they_come_are_read(conf, content: bytes) -> None:
    assert read_conf(conf(content), BrokerSettings) == {"brokerName": "b"}


def test_unknown_keys_are_named_with_the_nearest(conf, capsys) -> None:
    path = conf("listnPort=1\ncompletelyOther=2\nmapedFileSizeCommitLog=3\n")
    read_conf(path, BrokerSettings, StoreSettings)
    assert capsys.readouterr().err.splitlines() == [
        f"warning: {path}: unknown key listnPort is ignored; did you mean listenPort?",
        f"warning: {path}: unknown key completelyOther is ignored",
        f"warning: {path}: unknown key mapedFileSizeCommitLog is ignored; did you mean mappedFileSizeCommitLog?",
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("brokerRole=SLAVE", "brokerRole=SLAVE with brokerId=0: a slave's is 1 or more"),
        ("brokerRole=SLAVE\nbrokerId=1", "brokerRole=SLAVE without namesrvAddr"),
        ("haMasterAddress=10.0.0.1", "haMasterAddress=10.0.0.1: expected host:port, as in 10.0.0.1:10912"),
        ("haMasterAddress=10.0.0.1:99999", "haMasterAddress=10.0.0.1:99999: expected host:port"),
        ("enableDLegerCommitLog = TRUE", "dLegerGroup is not set"),
        ("enableControllerMode=true", "no controller"),
        ("authorizationEnabled=true", "authorizationEnabled=true: needs authenticationEnabled=true"),
        ("authenticationEnabled=true\ninitAuthenticationUser=me", 'expected {"username":"…","password":"…"}'),
        ("storeType=defaultRocksDB", "default store only"),
        ("listenPort=1", "listenPort 1: expected 3 to 65535"),
        ("brokerName=", "brokerName is empty"),
        ("namesrvAddr=here", "is no host:port"),
        ("brokerIP1=224.0.0.1", "brokerIP1=224.0.0.1: nobody can connect to it"),
        ("bindAddress=127.0.0.1\nbrokerIP1=203.0.113.9", "listen on loopback only"),
        ("fileReservedTime=long", "expected a whole number"),
        ("storePathRootDir=${ROCKETMQ_HOME}/store", "only ${user.home} is replaced"),
        ("durability=zero-loss\nflushDiskType=ASYNC_FLUSH", "flushDiskType=ASYNC_FLUSH: durability=zero-loss wants"),
        ("durability=all", "durability=all: expected zero-loss"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(conf, line: str, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        broker_settings(conf(line + "\n"), "")
    assert text in str(refused.value)


def test_switches_that_are_off_are_no_obstacle(conf) -> None:
    broker_settings(conf("aclEnable=false\nenableDLegerCommitLog=false\nstoreType=default\n"), "")


def test_one_key_sets_all_that_zero_loss_needs(conf) -> None:
    _, store, _ = broker_settings(conf("durability=zero-loss\n"), "")
    assert (store.flush_disk_type, store.broker_role, store.in_sync_replicas) == ("SYNC_FLUSH", "SYNC_MASTER", 2)


def test_values_that_are_corrected_are_logged(conf, capsys) -> None:
    broker, _, _ = broker_settings(conf("brokerId=3\nbrokerRole=SYNC_MASTER\n"), "")
    assert broker.broker_id == 0
    assert "brokerId=3: a master's is 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "reads"),
    [
        ("", False),
        ("brokerRole=SLAVE\nbrokerId=1\n", True),
        ("brokerRole=SLAVE\nbrokerId=1\nslaveReadEnable=false\n", False),
        ("enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers=n0-h:1\ndLegerSelfId=n0\n", True),
        ("slaveReadEnable=true\n", True),
    ],
)
def test_a_slave_serves_pulls_until_its_file_says_otherwise(conf, lines: str, reads: bool) -> None:
    broker, _, _ = broker_settings(conf(f"namesrvAddr=127.0.0.1:9876\n{lines}"), "")
    assert broker.slave_read_enable is reads


def test_a_slave_with_its_masters_ha_address_needs_no_name_server(conf, capsys) -> None:
    _, store, _ = broker_settings(conf("brokerId=1\nbrokerRole=SLAVE\nhaMasterAddress=[::1]:10912\n"), "")
    assert store.ha_master_address == "[::1]:10912"
    assert "haMasterAddress without namesrvAddr: this slave copies the log only" in capsys.readouterr().err


def test_a_slave_keeps_its_number(conf) -> None:
    broker, store, _ = broker_settings(conf("brokerId=3\nbrokerRole=SLAVE\nnamesrvAddr=127.0.0.1:9876\n"), "")
    assert (broker.broker_id, store.broker_role) == (3, "SLAVE")


def test_a_name_servers_file(conf, tmp_path) -> None:
    path = conf("listenPort=9877\nkvConfigPath=~/kv.json\n")
    assert read_conf(path, NamesrvSettings) == {"listenPort": "9877", "kvConfigPath": f"{tmp_path}/home/kv.json"}


def test_ports() -> None:
    assert [check_port("p", port) for port in (0, 1, 65_535)] == [0, 1, 65_535]
    for port in (-1, 65_536):
        with pytest.raises(ConfigError, match="expected 1 to 65535, or 0 for any free port"):
            check_port("p", port)
    with pytest.raises(ConfigError, match="expected 3 to 65535"):
        check_port("p", 2, least=3)
