"""Configurations with several faults: one error names every fault."""

from dataclasses import dataclass

import pytest

from tianzhou.access.plain_config import parse_config
from tianzhou.broker.changeable_settings import RULES
from tianzhou.broker.settings import BrokerSettings
from tianzhou.cli import servers
from tianzhou.cli.conf_files import read_assignments, read_conf
from tianzhou.cli.serving import server_settings
from tianzhou.embedded import configured
from tianzhou.errors import ConfigError, Faults
from tianzhou.remoting.tls import load_tls
from tianzhou.setting_rules import Rules, SettingProblem, check
from tianzhou.setting_updates import judge
from tianzhou.settings import bind, parse_properties
from tianzhou.store.settings import StoreSettings


def faults_of(call, *arguments, **named):
    with pytest.raises(ConfigError) as caught:
        call(*arguments, **named)
    return caught.value.texts


def test_one_fault_is_its_text_and_several_are_a_list():
    assert str(ConfigError("a is b")) == "a is b"
    assert str(ConfigError("a is b", "c is d")) == "2 faults:\n  a is b\n  c is d"


def test_a_fault_is_named_once_and_those_of_an_error_one_by_one():
    faults = Faults("x: ")
    with faults.noted():
        raise ConfigError("a", "b")
    faults.note("a")
    assert faults_of(faults.check) == ("x: a", "x: b")
    Faults().check()


def test_properties_name_all_lines_without_a_key():
    texts = faults_of(parse_properties, "=1\na=1\n: 2\nb=\\ud800\n", source="f")
    assert [text.partition(":")[0] for text in texts] == ["f, line 1", "f, line 3", "f, line 4"]


@dataclass
class Some:
    low: int = 5
    high: int = 9
    on: bool = True


def below(values):
    if int(values["low"]) > int(values["high"]):
        yield SettingProblem("low", values["low"], f"above high={values['high']}")


ORDER = Rules("s", frozenset(), {}, {"high": (0, 10)}, across=below)


def test_values_of_a_wrong_kind_and_out_of_range_are_named_together():
    faults = Faults()
    some = bind(Some, {"on": "yes", "low": "x", "high": "11"}, source="f", faults=faults)
    check(ORDER, some, source="f", faults=faults)
    assert faults_of(faults.check) == (
        "f: low=x: expected a whole number",
        "f: on=yes: expected true or false",
        "f: high=11: must be at most 10",
    )


def test_a_combination_with_a_value_that_was_not_read_is_no_further_fault():
    faults = Faults()
    some = bind(Some, {"high": "x", "low": "10"}, source="f", faults=faults)  # the default of `high` stays: 9
    check(ORDER, some, source="f", faults=faults)
    assert faults_of(faults.check) == ("f: high=x: expected a whole number",)


BAD = """
listenPort=abc
flushDiskType=SOMETIMES
=
mappedFileSizeCommitLog=many
brokerIP1=0.0.0.0
namesrvAddr=a:1;b
storePathRootDir=${elsewhere}/store
maxMessageSize=1
tls.server.mode=enforcing
tls.test.mode.enable=maybe
enableControllerMode=true
"""


def test_a_broker_names_each_wrong_line_of_its_file_at_once(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text(BAD)
    texts = faults_of(server_settings.broker_settings, path, "")
    keys = (
        "line 4:",
        "enableControllerMode",
        "storePathRootDir",
        "listenPort",
        "brokerIP1",
        "namesrvAddr",
        "mappedFileSizeCommitLog",
    )
    named = [[key for key in (*keys, "flushDiskType", "maxMessageSize", "tls.test.mode.enable") if key in text]
             for text in texts]  # fmt: skip
    assert sorted(key for found in named for key in found) == sorted(
        (*keys, "flushDiskType", "maxMessageSize", "tls.test.mode.enable")
    )
    assert all(len(found) == 1 for found in named)
    assert all(str(path) in text for text in texts)


def test_a_group_with_another_fault_has_no_more_faults_than_it_has(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text(
        "enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912\n"
        "dLegerSelfId=n1\nmaxMessageSize=1\nflushDiskType=X\n"
    )
    texts = faults_of(server_settings.broker_settings, path, "")
    assert sorted(text.rpartition(": ")[0].rpartition(": ")[2] for text in texts) == [
        "flushDiskType=X",
        "maxMessageSize=1",
    ]


def test_a_name_server_names_each_wrong_line_of_its_file_at_once(tmp_path, capsys):
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort=70000\n=x\nmaxBrokers=none\ntls.test.mode.enable=2\n")
    texts = faults_of(servers.namesrv, path)
    assert len(texts) == 4
    for part in ("line 2", "listenPort", "maxBrokers", "tls.test.mode.enable"):
        assert sum(part in text for text in texts) == 1


def test_serve_names_faults_of_its_file_and_flags_at_once(tmp_path):
    path = tmp_path / "serve.conf"
    path.write_text("brokerName=x\nmaxQueues=soon\nmaxTopics=many\nflushDiskType=NEVER\n")
    faults = Faults()
    server_settings.serve_values(path, ["maxTopics=10", "nokey", "maxTopicz=1", "maxBrokers=-1"], faults)
    named = ["brokerName", "maxQueues", "flushDiskType", "nokey", "maxTopicz", "maxBrokers"]
    texts = faults_of(faults.check)
    assert len(texts) == len(named)
    for key in named:
        assert sum(f"{key}=" in text or f"{key}:" in text for text in texts) == 1, key


def test_flags_name_each_fault():
    texts = faults_of(read_assignments, "--set", ["a", "nosuch=1", "storePathRootDir=${x}"], StoreSettings)
    assert len(texts) == 3
    assert all(text.startswith("--set") for text in texts)


def test_a_file_that_is_read_alone_names_each_fault(tmp_path):
    path = tmp_path / "c"
    path.write_text("=1\n=2\n")
    assert len(faults_of(read_conf, path, StoreSettings)) == 2


def test_values_of_a_running_server_are_named_together(tmp_path):
    settings = BrokerSettings(), StoreSettings()
    texts = faults_of(judge, RULES, {"fileReservedTime": "x", "maxMessageSize": "y"}, settings, (), str)
    assert len(texts) == 2
    texts = faults_of(judge, RULES, {"syncFlushTimeout": "0", "maxMessageSize": "-1"}, settings, (), str)
    assert len(texts) == 2
    texts = faults_of(configured, RULES, {"fileReservedTime": "x", "maxMessageSize": "-1"}, settings, tmp_path / "none")
    assert len(texts) == 2


def test_a_tls_file_and_the_values_before_it_are_named_together(tmp_path):
    path = tmp_path / "tls.properties"
    path.write_text("tls.test.mode.enable=1\n=\n")
    texts = faults_of(load_tls, {"tls.config.file": str(path), "tls.enable": "x"}, source="f")
    assert ["tls.enable" in texts[0], "line 2" in texts[1], "tls.test.mode.enable" in texts[2]] == [True] * 3
    assert len(faults_of(load_tls, {"tls.config.file": str(path / "no"), "tls.enable": "x"}, source="f")) == 2


ACCOUNTS = """
globalWhiteRemoteAddresses: ["10.0.0.*", "10.0.0.0/8.x", 5]
accounts:
  - accessKey: short
    secretKey: "12345678"
    admin: perhaps
  - accessKey: rocketmq
    secretKey: "1"
    defaultTopicPerm: READ
    topicPerms: ["a=WRITE", "b"]
  - not an account
  - accessKey: rocketmq3
    secretKey: [1]
  - accessKey: rocketmq2
    secretKey: "87654321"
"""


def test_a_file_of_accounts_warns_of_each_oddity_and_shows_no_secret():
    text = """
accounts:
  - accessKey: rocketmq
    secretKey: "12345678"
    defaultTopicPerm: READ
    topicPerms: ["a=WRITE"]
    87654321x: true
  - accessKey: rocketmq3
    secretKey: [87654321]
"""
    warnings = parse_config(text, "acl.yml").warnings
    for part in ("line 5: account 1: defaultTopicPerm: permission 'READ'", "line 6: account 1: topicPerms",
                 "line 7: account 1: unknown key", "line 9: account 2 is left out: secretKey is no text"):  # fmt: skip
        assert sum(part in warning for warning in warnings) == 1, part
    assert len(warnings) == 4
    assert not any("12345678" in warning or "87654321" in warning for warning in warnings)


def test_a_file_of_accounts_names_each_fault_and_no_secret():
    texts = faults_of(parse_config, ACCOUNTS, "acl.yml")
    assert all(text.startswith("acl.yml") for text in texts)
    for part in (
        "10.0.0.0/8.x",
        "each has to be a text",
        "admin",
        "secretKey has to be longer",
        "'b'",
        "account 3",
        "accessKey has",
    ):
        assert sum(part in text for text in texts) == 1, part
    assert not any("12345678" in text or "87654321" in text for text in texts)
