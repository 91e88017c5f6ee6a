"""Command lines of mqadmin: parsed like Apache's tools, refused with a readable error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tianzhou.cli.mqadmin.answers import NotFoundError, Table, moment
from tianzhou.cli.mqadmin.catalogue import FAMILIES, all_names, every, find
from tianzhou.cli.mqadmin.failures import failure
from tianzhou.cli.mqadmin.families.brokers import epochs_text
from tianzhou.cli.mqadmin.families.messages import host_of, traced
from tianzhou.cli.mqadmin.families.topics import attributes_of
from tianzhou.cli.mqadmin.java_text import pretty
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, nearest
from tianzhou.cli.mqadmin.tool import listing, run, tools_account
from tianzhou.cli.mqadmin.unsupported import UNSUPPORTED
from tianzhou.errors import BrokerError, ConfigError, UnknownTopic

APACHES = 89 + 5
"""Number of sub-commands of Apache's 5.3.3, plus those only in 4.9.7."""


async def _nothing(*_: object) -> None:
    """Do nothing; the work of a sub-command that is never run."""


ROUTE = find("topicRoute")
PICKY = Subcommand(
    "picky",
    "Try the parser.",
    "-a x",
    _nothing,  # type: ignore[arg-type]
    (
        Option("a", "attributes", "Text."),
        Option("bn", "brokerName", "A name."),
        Option("b", "brokerId", "A number."),
        Option("l", "list", "A flag.", flag=True),
        Option("m", "more", "Another.", flag=True),
        Option("o", "order", "Taken."),
    ),
)


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("-t orders", {"topic": "orders"}),
        ("-torders", {"topic": "orders"}),
        ("-t=orders", {"topic": "orders"}),
        ("--topic orders", {"topic": "orders"}),
        ("--topic=orders", {"topic": "orders"}),
        ("-topic orders", {"topic": "orders"}),
        ("--to orders -l", {"topic": "orders", "list": "true"}),
        ("-l true -t orders", {"topic": "orders", "list": "true"}),
        ("-l false -t orders", {"topic": "orders"}),
        ("-lt orders", {"topic": "orders", "list": "true"}),
        ("-t orders -n a:1;b:2", {"topic": "orders", "namesrvAddr": "a:1;b:2"}),
        ("-t orders -o json", {"topic": "orders", "output": "json"}),
        ("-t orders --json", {"topic": "orders", "json": "true"}),
        ("-t -1", {"topic": "-1"}),
    ],
)
def test_a_command_line_is_read_as_apaches_tools_read_it(line: str, given: dict[str, str]) -> None:
    assert ROUTE.parse(line.split()).given == given


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("-a -message.type", {"attributes": "-message.type"}),
        ("-a +message.type=FIFO", {"attributes": "+message.type=FIFO"}),
        ("-bn broker-a -b 2", {"brokerName": "broker-a", "brokerId": "2"}),
        ("-lm", {"list": "true", "more": "true"}),
        ("-o true --output json", {"order": "true", "output": "json"}),
    ],
)
def test_values_may_begin_with_a_dash_and_letters_be_several(line: str, given: dict[str, str]) -> None:
    assert PICKY.parse(line.split()).given == given


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "-t/--topic is missing"),
        ("-t", "-t/--topic needs a value"),
        ("-t orders -z", "-z: there is no such option"),
        ("-t orders --lisst", "did you mean --list?"),
        ("--t orders", "--t may be --topic or --tls"),
    ],
)
def test_a_wrong_command_line_is_refused_with_usage_and_an_example(line: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ROUTE.parse(line.split())
    assert why in str(refused.value)
    assert "usage: mqadmin topicRoute" in str(refused.value)
    assert str(refused.value).endswith("Example: mqadmin topicRoute -t orders")


def test_words_too_many_are_warned_about_and_change_nothing() -> None:
    values = ROUTE.parse(["-t", "orders", "further", "-l", "words"])
    assert values.given == {"topic": "orders", "list": "true"}
    assert values.warnings == [
        "'further' belongs to no option and is ignored", "'words' belongs to no option and is ignored",
    ]  # fmt: skip
    warned: list[str] = []
    run(["topicRoute", "orders", "-h"], lambda _: None, warned.append)
    assert not warned, "the help needs no warning"
    with pytest.raises(ConfigError):
        run(["dumpCompactionLog", "-f", "/nowhere", "extra"], print, warned.append)
    assert warned == ["mqadmin dumpCompactionLog: warning: 'extra' belongs to no option and is ignored"]


FIRST_WINS = """
updateTopicPerm updateSubGroup deleteSubGroup setConsumeMode getBrokerConfig updateBrokerConfig getBrokerEpoch
getColdDataFlowCtrInfo updateColdDataFlowCtrGroupConfig removeColdDataFlowCtrGroupConfig setCommitLogReadAheadMode
haStatus exportMetadata exportPopRecord
"""
"""Sub-commands for which Apache's tool prefers `-b` over `-c`."""


@pytest.mark.parametrize("name", FIRST_WINS.split())
def test_a_broker_wins_over_a_cluster_where_it_does_at_apaches(name: str) -> None:
    command = find(name)
    needed = [word for one in command.options if one.required for word in (f"-{one.letter}", "1")]
    values = command.parse([*needed, "-c", "C", "-b", "h:1"])
    assert values.get(command.one_of[0]) == "h:1"
    assert command.one_of[1] not in values.given
    assert values.warnings == [f"-c/--clusterName is ignored, because -b/--{command.one_of[0]} is given"]


def test_one_of_two_options_has_to_be_given_and_only_one() -> None:
    with pytest.raises(ConfigError, match="give -b/--brokerAddr or -c/--clusterName"):
        find("brokerStatus").parse([])
    with pytest.raises(ConfigError, match="give only one of them"):
        find("brokerStatus").parse(["-b", "h:1", "-c", "C"])


def test_every_sub_command_of_apaches_is_there_with_an_example_that_can_be_read() -> None:
    commands = every()
    assert [one.name for one in commands] == all_names()
    assert len(commands) == len({one.name for one in commands}) == APACHES
    for one in commands:
        words = one.example.replace("'", "").split()
        assert one.parse(words).given or not words, one.name
        letters = [option.letter for option in one.every_option if option.letter]
        names = [option.name for option in one.every_option]
        assert len(set(letters)) == len(letters), one.name
        assert len(set(names)) == len(names), one.name
        assert {"help", "namesrvAddr", "output", "json"} <= set(names) | {"nameserverAddr"}, one.name
        assert f"Example: mqadmin {one.name}" in one.help
        assert one.summary.endswith(".")
        assert one.summary in listing()


def test_a_family_has_what_the_catalogue_says_and_nothing_else() -> None:
    from importlib import import_module

    for module, names in FAMILIES.items():
        commands = import_module(f"tianzhou.cli.mqadmin.families.{module}").COMMANDS
        assert sorted(one.name for one in commands) == sorted(names.split())


def test_a_name_is_found_whatever_its_case_and_a_wrong_one_is_answered_with_the_nearest() -> None:
    assert find("CLUSTERLIST").name == "clusterList"
    with pytest.raises(ConfigError, match="no sub-command 'topicLst'; did you mean topicList"):
        find("topicLst")
    with pytest.raises(ConfigError, match="all are listed by: mqadmin"):
        find("????????????????????")
    assert nearest("--TOPIK", ["--topic", "--list"]) == "--topic"


def test_help_needs_no_cluster() -> None:
    shown: list[str] = []
    run([], shown.append)
    run(["help", "updatetopic"], shown.append)
    run(["updateTopic", "-h"], shown.append)
    assert "clusterList" in shown[0]
    assert shown[1] == shown[2] == find("updateTopic").help


def test_a_command_imports_what_it_needs() -> None:
    known = "import sys; from tianzhou.cli.mqadmin.tool import run; run(['help', 'topicList'], print)"
    asked = "import tianzhou.cli.main, tianzhou.admin.admin; from tianzhou.cli.mqadmin.families import topics"
    for code, heavy in ((known, "typer asyncio tianzhou.client"), (asked, "typer tianzhou.filter tianzhou.broker")):
        shown = f"{code}; import sys; print([one for one in {heavy.split()} if one in sys.modules])"
        printed = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True).stdout
        assert printed.endswith("[]\n"), printed


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_sub_command_names_the_reason_and_the_remedy(name: str) -> None:
    for words in ([], ["-t", "orders", "-qn", "4", "--unknown"]):
        with pytest.raises(ConfigError) as refused:
            run([name.upper(), *words], print)
        assert failure(refused.value) == f"CODE: 3  DESC: {name} is not supported: {UNSUPPORTED[name]}"
    shown: list[str] = []
    for line in (["help", name], [name, "-h"]):
        run(line, shown.append)
    assert shown[0] == shown[1]
    assert UNSUPPORTED[name] in " ".join(shown[0].split())


def test_attributes_are_set_and_removed() -> None:
    assert attributes_of("+a=b, -c,+d=e=f") == {"a": "b", "c": None, "d": "e=f"}
    assert attributes_of("") == {}
    with pytest.raises(ConfigError, match="write \\+NAME=VALUE"):
        attributes_of("a=b")


def test_numbers_are_named_when_they_are_none() -> None:
    values = find("updateTopic").parse(["-b", "h:1", "-t", "orders", "-r", "many"])
    with pytest.raises(ConfigError, match="updateTopic: --readQueueNums is 'many'; expected a whole number"):
        values.number("readQueueNums", 8)


def test_errors_have_the_code_that_scripts_look_for() -> None:
    refused = BrokerError(26, "no group", hint="create it", address="h:1")
    assert failure(refused) == "CODE: 26  DESC: no group BROKER: h:1\ncreate it"
    assert failure(UnknownTopic("topic x does not exist")) == "CODE: 17  DESC: topic x does not exist"
    assert failure(NotFoundError(208, "nothing")) == "CODE: 208  DESC: nothing"


def test_a_table_is_text_and_objects() -> None:
    table = Table("%-8s  %s", "#Broker Name|#LastTime")
    answer = table.answer([("broker-a", True), ("b", None)], after="end")
    assert answer.text == "#Broker Name  #LastTime\nbroker-a  true\nb         \nend"
    assert answer.value == [{"broker_name": "broker-a", "last_time": True}, {"broker_name": "b", "last_time": None}]


def test_json_for_people_is_fastjsons() -> None:
    value = {"a": {0: "x"}, "b": [], "c": {}, "d": [{"e": 1}]}
    assert pretty(value) == '{\n\t"a":{0:"x"\n\t},\n\t"b":[],\n\t"c":{},\n\t"d":[\n\t\t{\n\t\t\t"e":1\n\t\t}\n\t]\n}'


def test_times_are_those_of_the_machine() -> None:
    assert moment(0)[:2] in ("19", "20")
    assert moment(1_700_000_000_042, milliseconds=True).endswith(",042")


def written(record: str) -> bytes:
    """Return a record of the trace topic (wire.md §13)."""
    return record.replace("|", "\x01").encode() + b"\x02"


def test_traces_are_read_whatever_client_wrote_them() -> None:
    fields = "Pub|1000|region|shop|orders|ID|TagA|k1|10.0.0.1:10911|5|7|0|"
    sent, short = written(fields + "offset|true"), written(fields + "false")
    begun = written("SubBefore|2000|region|billing|request|ID|0|k1")
    over = written("SubAfter|request|ID|3|true|k1|0")
    other = written("Pub|broken") + written("SubAfter|") + written(fields.replace("ID", "OTHER") + "offset|true")
    published, consumed = traced([(sent + other + begun, "h:1"), (short + over, "h:2")], "ID")
    assert [(one["group"], one["cost"], one["status"], one["client_host"]) for one in published] == [
        ("shop", 7, "success", "h"), ("shop", 7, "failed", "h"),
    ]  # fmt: skip
    assert consumed == [
        {"type": "Sub", "group": "billing", "client_host": "h", "time": 2000, "cost": 3, "status": "success"}
    ]


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1:4711", "10.0.0.1"), ("10.0.0.1", "10.0.0.1"), ("[::1]:4711", "::1"), ("::1", "::1"),
        ("host.example", "host.example"), ("", ""),
    ],
)  # fmt: skip
def test_hosts_of_traces_have_no_port(address: str, host: str) -> None:
    assert host_of(address) == host


def test_the_last_epoch_ends_where_the_log_ends() -> None:
    entries = [
        {"epoch": 1, "startOffset": 0, "endOffset": 100}, {"epoch": 2, "startOffset": 100, "endOffset": 2**63 - 1},
    ]  # fmt: skip
    found = {"clusterName": "C", "brokerName": "b", "brokerId": 1, "maxOffset": 250, "epochList": entries}
    assert epochs_text("h:1", found) == (
        "\n#clusterName\tC\n#brokerName\tb\n#brokerAddr\th:1\n#brokerId\t1\n"
        "#Epoch: EpochEntry{epoch=1, startOffset=0, endOffset=100}\n"
        "#Epoch: EpochEntry{epoch=2, startOffset=100, endOffset=250}"
    )
    assert entries[1]["endOffset"] == 2**63 - 1, "the value for programs is the broker's"


def test_the_account_of_apaches_tools_is_read(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "tools.yml"
    environment = {"ROCKETMQ_HOME": str(tmp_path)}
    assert tools_account({}) == tools_account(environment) == (None, None)
    file.write_text("# of tools\naccessKey: rocketmq2\nsecretKey: '12345678'  # theirs\n")
    assert tools_account(environment) == ("rocketmq2", "12345678")
    assert tools_account(environment | {"TIANZHOU_ACCESS_KEY": "other"}) == (None, None)
    file.write_text("accessKey: rocketmq2\n")
    with pytest.raises(ConfigError, match="secretKey is missing"):
        tools_account(environment)
