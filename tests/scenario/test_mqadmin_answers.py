"""Sub-commands of mqadmin against Tianzhou: answers are JSON for programs, refusals have a code or a text.

Each line can be run alone and in any order, because workers share the lines: a line that needs another one before it,
or undoes another, is part of a chain (`first && second`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tianzhou import Message, MessageQueue
from tianzhou.cli.mqadmin.catalogue import all_names
from tianzhou.cli.mqadmin.failures import failure
from tianzhou.cli.mqadmin.families import monitoring
from tianzhou.cli.mqadmin.tool import run
from tianzhou.errors import ConfigError, TianzhouError
from tianzhou.testing import Cluster

Ask = Callable[..., list[Any]]
USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
}
REFUSED = {
    "setConsumeMode -b {broker} -t orders -g billing -m POP": "CODE: 3 ",
    "exportPopRecord -b {broker}": "CODE: 3 ",
    "getBrokerEpoch -b broker-a": "CODE: 1 ",
    "getControllerMetaData -a {broker}": "CODE: 3 ",
    "getSyncStateSet -a {broker} -b broker-a": "CODE: 3 ",
    "getControllerConfig -a {broker}": "CODE: 3 ",
    "updateControllerConfig -a {broker} -k one -v 1": "CODE: 3 ",
    "electMaster -a {broker} -b 1 -bn broker-a -c DefaultCluster": "CODE: 3 ",
    "cleanBrokerMetadata -a {broker} -bn broker-a -c DefaultCluster": "CODE: 3 ",
    "addBroker -c {broker} -b /nowhere": "CODE: 3 ",
    "removeBroker -c {broker} -b DefaultCluster:broker-a:0": "CODE: 3 ",
    "updateStaticTopic -t static -b broker-a -qn 4": "static topics are of RocketMQ 5",
    "remappingStaticTopic -t static -b broker-a": "static topics are of RocketMQ 5",
    "exportMetadataInRocksDB -p /nowhere -t topics": "RocksDB's",
    "rocksDBConfigToJson -p /nowhere -t topics": "RocksDB's",
    "getAclConfig -b {broker}": "CODE: 3 ",
    "clusterAclConfigVersion -b {broker}": "CODE: 3 ",
    "updateAclConfig -b {broker} -a alice -s secret-of-alice": "CODE: 3 ",
    "deleteAclConfig -b {broker} -a alice": "CODE: 3 ",
    "updateGlobalWhiteAddr -b {broker} -g 10.0.0.1": "CODE: 3 ",
    "topicRoute -t nowhere": "CODE: 17 ",
    "consumerProgress -g nobody": "CODE: 17 ",
    "queryMsgByKey -t orders -k nothing": "CODE: 208 ",
    "queryMsgById -t orders -i nonsense": "CODE: 208 ",
    "queryMsgByOffset -t orders -b broker-a -i 0 -o 99": "CODE: 208 ",
    "resetOffsetByTime -g nobody -t orders -s now": "CODE: 26 ",
    "updateTopicPerm -b 127.0.0.1:1 -t orders -p 6": "has no master at 127.0.0.1:1",
    "updateTopicPerm -b {broker} -t orders -p 1": "--perm 1",
    "updateOrderConf -t orders -m put": "--orderConf is missing",
    "updateOrderConf -t orders -m move": "expected put, get or delete",
    "resetOffsetByTime -g billing -t orders -s soon": "expected now, milliseconds",
    "consumeMessage -t orders -i 0": "--queueId needs --brokerName",
    "consumeMessage -t orders -b broker-a -i 0 -o 99": "has offsets from 0 to ",
    "sendMessage -t orders -p x -i 1": "--qid needs --broker",
    "removeBroker -c {broker} -b broker-a": "clusterName:brokerName:brokerId",
    "createUser -b {broker} -u alice": "no password: give -p",
    "createAcl -b {broker} -s alice -r * -a All -d Allow": "write it as User:NAME",
    "updateTopicList -b {broker} -f /nowhere.json": "expected a JSON list",
    "clusterList -o xml": "expected text or json",
}
ANSWERED = """
updateTopic -c DefaultCluster -t made -r 2 -w 2|updateTopicList -b {broker} -f {topics}
updateTopicPerm -b {broker} -t made -p 4|topicList|topicList -c|topicRoute -t orders|topicRoute -t orders -l
topicStatus -t orders|topicClusterList -t orders|allocateMQ -t orders -i 10.0.0.1
updateOrderConf -t made -m put -v broker-a:2 && updateOrderConf -t made -m get && updateOrderConf -t made -m delete
updateSubGroup -b {broker} -g billing -r 3|updateSubGroupList -b {broker} -f {groups}|getConsumerConfig -g billing
consumerProgress|consumerProgress -g reader|consumerProgress -g reader -s true|consumerStatus -g reader
consumerStatus -g reader -i {client}|consumerConnection -g reader|producerConnection -g shop -t orders
producer -b {broker}|cloneGroupOffset -s reader -d billing -t orders -o true
resetOffsetByTime -g billing -t orders -s 0|resetOffsetByTime -g billing -t orders -b {broker} -q 0 -o 1 -s -1
skipAccumulatedMessage -g billing -t orders|queryMsgById -t orders -i {offset_id}
queryMsgById -t orders -i {msg_id} -s true|queryMsgById -t orders -i {offset_id} -f UTF-8
queryMsgById -t orders -i {offset_id} -g reader -d {client}|queryMsgByKey -t orders -k k1
queryMsgByUniqueKey -t orders -i {msg_id}|queryMsgByUniqueKey -t orders -i {msg_id} -a
queryMsgByOffset -t orders -b broker-a -i 0 -o 0|printMsg -t orders|printMsg -t orders -s TagA -b 0 -d false
printMsgByQueue -t orders -a broker-a -i 0 -p true -d true -f true|consumeMessage -t orders -c 1
sendMessage -t orders -p hello -k k9 -c TagC -m true|checkMsgSendRT -t orders -a 3 -s 10
sendMsgStatus -b broker-a -c 2|clusterList|clusterList -m|brokerStatus -b {broker}|brokerStatus -c DefaultCluster
getBrokerConfig -b {broker}|getBrokerConfig -c DefaultCluster|updateBrokerConfig -b {broker} -k fileReservedTime -v 48
cleanExpiredCQ -b {broker}|cleanUnusedTopic -c DefaultCluster|deleteExpiredCommitLog -b {broker}
brokerConsumeStats -b {broker}|resetMasterFlushOffset -b {broker} -o 0
updateColdDataFlowCtrGroupConfig -b {broker} -g made -v 9 && removeColdDataFlowCtrGroupConfig -b {broker} -g made
getColdDataFlowCtrInfo -b {broker}|setCommitLogReadAheadMode -b {broker} -m 0|getNamesrvConfig
updateNamesrvConfig -k waitSecondsForService -v 46|updateKvConfig -s Space -k one -v 1 && deleteKvConfig -s Space -k one
wipeWritePerm -b broker-a && addWritePerm -b broker-a|queryCq -t orders -q 0 -i 0 -c 2
queryCq -t orders -q 0 -i 0 -b {broker} -g reader|checkRocksdbCqWriteProgress -c DefaultCluster -t orders|statsAll
statsAll -a -t orders|haStatus -b {broker}|haStatus -c DefaultCluster|exportMetadata -c DefaultCluster -f {folder}
exportMetadata -b {broker} -f {folder} -t -s|exportMetadata -b {broker} -f {folder} -g
exportConfigs -c DefaultCluster -f {folder}|exportMetrics -c DefaultCluster -f {folder}
exportPopRecord -b {broker} -d true|deleteSubGroup -c DefaultCluster -g billing -r true
deleteTopic -c DefaultCluster -t made
"""
OF_USERS = """
createUser -c DefaultCluster -u alice -p secret-of-alice|updateUser -b {broker} -u alice -s disable
getUser -b {broker} -u alice|listUser -b {broker} -f ali
createAcl -c DefaultCluster -s User:alice -r Topic:orders,Group:* -a Pub,Sub -d Allow -i 10.0.0.1
updateAcl -b {broker} -s User:alice -r Topic:orders -a Pub -d Deny|getAcl -b {broker} -s User:alice
listAcl -b {broker} -s ali|copyAcl -f {broker} -t {broker} -s User:alice
deleteAcl -b {broker} -s User:alice -r Topic:orders|deleteUser -c DefaultCluster -u alice
"""
ELSEWHERE = {"clusterRT", "startMonitoring", "dumpCompactionLog", "queryMsgTraceById", "copyUser"}
"""Sub-commands tested by other tests here, by unit tests (traces), and by interop tests (copies of users)."""


def split(lines: str) -> list[str]:
    return [one for line in lines.split("\n") for one in line.split("|") if one]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def values(home: Path) -> Iterator[dict[str, str]]:
    """Yield a cluster with messages and a consumer of them, and the values of command lines."""
    (home / "topics").write_text(json.dumps([{"topicName": "listed", "readQueueNums": 1, "writeQueueNums": 1}]))
    (home / "groups").write_text(json.dumps([{"groupName": "listed"}]))
    with (
        Cluster(virtual=False, folder=home / "cluster") as cluster,
        cluster.admin() as admin,
        cluster.producer("shop") as producer,
    ):
        admin.topics.create("orders", read_queue_nums=1, write_queue_nums=1)
        queue = MessageQueue("orders", "broker-a", 0)
        sent = [producer.send(Message("orders", b"body", tags="TagA", keys=f"k{n}"), queue) for n in range(2)]
        admin.groups.create("reader")
        admin.groups.reset("reader", "orders", to_earliest=True)
        consumer = cluster.push_consumer("reader")
        consumer.subscribe("orders", handler=lambda _: None)
        with consumer:
            cluster.wait_until(lambda: admin.groups.connections("reader"), "the reader is connected")
            yield {
                "ns": cluster.namesrv_addr,
                "broker": next(iter(cluster.brokers.values())).address,
                "client": consumer.instance.client_id,
                "offset_id": str(sent[0].offset_msg_id),
                "msg_id": str(sent[1].msg_id),
                "topics": str(home / "topics"),
                "groups": str(home / "groups"),
                "folder": str(home / "export"),
            }


@pytest.fixture
def ask(values: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return the documents that a command line prints with `--json`."""
    monkeypatch.chdir(home)
    monkeypatch.delenv("TIANZHOU_PASSWORD", raising=False)

    def asked(line: str, *more: str) -> list[Any]:
        printed: list[str] = []
        run([*(word.format_map(values) for word in line.split()), "-n", values["ns"], *more], printed.append)
        return [json.loads(text) for text in printed]

    return asked


@pytest.fixture
def made(values: dict[str, str]) -> None:
    """Create the topic and the group that lines change and delete."""
    namesrv, broker = values["ns"], values["broker"]
    run(["updateTopic", "-c", "DefaultCluster", "-t", "made", "-r", "2", "-w", "2", "-n", namesrv], lambda _: None)
    run(["updateSubGroup", "-b", broker, "-g", "billing", "-n", namesrv], lambda _: None)


@pytest.mark.parametrize("line", split(ANSWERED))
@pytest.mark.usefixtures("made")
def test_an_answer_is_json_for_programs(ask: Ask, line: str) -> None:
    for one in line.split(" && "):
        assert ask(one, "--json"), f"no document of {one}"


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_refused_says_why(ask: Ask, line: str) -> None:
    with pytest.raises(TianzhouError) as refused:
        ask(line)
    assert REFUSED[line] in failure(refused.value)


class Enough(Exception):
    """Ends a sub-command that does not end by itself."""


def first_answer(*words: str) -> str:
    """Return the first output of a sub-command that does not end."""
    shown: list[str] = []

    def take(text: str) -> None:
        shown.append(text)
        raise Enough

    with pytest.raises(Enough):
        run(words, take)
    return shown[0]


def test_sends_are_measured_again_and_again(values: dict[str, str]) -> None:
    shown = json.loads(first_answer("clusterRT", "-a", "2", "-s", "10", "-i", "60", "--json", "-n", values["ns"]))
    assert [(one["broker_name"], one["success_count"], one["fail_count"]) for one in shown] == [("broker-a", 2, 0)]
    line = first_answer("clusterRT", "-a", "1", "-p", "true", "-m", "room-1", "-n", values["ns"])
    assert line.split("|")[1:4] == ["room-1", "DefaultCluster", "broker-a"]


def test_a_group_that_is_late_is_told(values: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "LATE_MESSAGES", -1)
    assert "messages behind on topic " in first_answer("startMonitoring", "-n", values["ns"])


def test_what_a_group_that_is_there_has_to_consume_yet_is_told(values: dict[str, str]) -> None:
    """Like Apache's tool, which reports all groups with a connected member."""
    line = first_answer("startMonitoring", "-n", values["ns"])
    assert line.startswith("[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup=reader, topic=")
    shown = json.loads(first_answer("startMonitoring", "--json", "-n", values["ns"]))
    assert shown.keys() == {"group", "topic", "behind", "last_timestamp", "most_of_a_queue", "delay_ms"}


def test_the_messages_of_a_file_are_printed(values: dict[str, str], home: Path) -> None:
    del values
    [file] = [one for one in (home / "cluster").rglob("00000000000000000000") if one.parent.name == "commitlog"]
    shown: list[str] = []
    run(["dumpCompactionLog", "-f", str(file)], shown.append)
    assert shown[0].count("topic='orders'") >= 2
    with pytest.raises(ConfigError, match="name a file of a compacted topic"):
        run(["dumpCompactionLog", "-f", "/nowhere"], shown.append)


def test_users_and_policies_are_made_shown_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, str]
) -> None:
    del values
    monkeypatch.setenv("TIANZHOU_ACCESS_KEY", "root")
    monkeypatch.setenv("TIANZHOU_SECRET_KEY", "root-secret")
    with Cluster(virtual=False, folder=tmp_path, settings=USERS) as cluster:
        broker = next(iter(cluster.brokers.values())).address
        shown = {}
        for line in split(OF_USERS):
            printed: list[str] = []
            run([*line.format(broker=broker).split(), "-n", cluster.namesrv_addr], printed.append)
            shown[line.split()[0]] = "\n".join(printed)
    assert shown["createUser"].startswith("create user to 127.0.0.1:")
    assert shown["getUser"].split()[4:] == ["alice", "******", "Normal", "disable"]
    assert "Topic:orders" in shown["getAcl"]
    assert "[Pub]" in shown["getAcl"]
    assert "Deny" in shown["listAcl"]
    assert shown["copyAcl"].startswith("copy acl of User:alice from ")
    assert "secret" not in "".join(shown.values())


def test_every_sub_command_is_run() -> None:
    run_here = {line.split()[0] for line in (*split(ANSWERED.replace(" && ", "|")), *REFUSED, *split(OF_USERS))}
    assert run_here | ELSEWHERE == set(all_names())
