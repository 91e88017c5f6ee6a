"""Commands for mqadmin, in their order, and the comparison of their answers.

Left out are commands about users and accounts, which need a cluster with access control (`test_mqadmin_users.py`),
commands without a cluster (RocksDB's and `dumpCompactionLog`), commands about static topics, which ours does not have,
and `startMonitoring` and `clusterRT`, which do not end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

CODE, HEAD, KEYS, SETTINGS, NOTHING = "CODE", "HEAD", "KEYS", "SETTINGS", "NOTHING"
"""Compared part of an answer: error codes, its first line, its keys, Apache's keys (ours must have them, too); or no
answer at all.
"""

TOPIC, GROUP, PRODUCERS = "AdmT", "AdmG", "AdmP"


class Asked(NamedTuple):
    """A command.

    Attributes:
        name: name in test ids.
        line: the arguments; `{…}` is a value that differs from server to server.
        only: the part of the answer that must be equal at both servers; None for all of it.
        afresh: whether Apache's tool needs a new process for it.
    """

    name: str
    line: str
    only: str | None = None
    afresh: bool = False


COMMANDS = [
    Asked("updateTopic-cluster", "updateTopic -n {ns} -c {cluster} -t AdmT2 -r 3 -w 3"),
    Asked("updateTopic-broker", "updateTopic -n {ns} -b {broker} -t AdmT3 -r 2 -w 4 -p 6 -u true -s true"),
    Asked("updateTopic-grow", "updateTopic -n {ns} -c {cluster} -t AdmT2 -r 5 -w 5"),
    Asked("updateTopic-shrink", "updateTopic -n {ns} -c {cluster} -t AdmT2 -r 5 -w 2"),
    Asked("updateTopic-order", "updateTopic -n {ns} -c {cluster} -t AdmOrdered -r 4 -w 4 -o true"),
    Asked("updateTopic-attributes", "updateTopic -n {ns} -c {cluster} -t AdmFifo -a +message.type=FIFO"),
    Asked("updateTopic-bad-attribute", "updateTopic -n {ns} -b {broker} -t AdmBad -a +message.type=NONE", only=CODE),
    Asked("updateTopic-system", "updateTopic -n {ns} -b {broker} -t TBW102", only=CODE),
    Asked("updateTopicPerm", "updateTopicPerm -n {ns} -c {cluster} -t AdmT2 -p 4"),
    Asked("updateTopicPerm-broker", "updateTopicPerm -n {ns} -b {broker} -t AdmT2 -p 6"),
    Asked("updateTopicList", "updateTopicList -n {ns} -b {broker} -f {topics_file}"),
    Asked("topicList", "topicList -n {ns}"),
    Asked("topicList-cluster", "topicList -n {ns} -c"),
    Asked("topicRoute", "topicRoute -n {ns} -t AdmT"),
    Asked("topicRoute-list", "topicRoute -n {ns} -l -t AdmT"),
    Asked("topicRoute-missing", "topicRoute -n {ns} -t AdmNowhere", only=CODE),
    Asked("topicStatus", "topicStatus -n {ns} -t AdmT"),
    Asked("topicStatus-missing", "topicStatus -n {ns} -t AdmNowhere", only=CODE),
    Asked("topicClusterList", "topicClusterList -n {ns} -t AdmT"),
    Asked("updateOrderConf-put", "updateOrderConf -n {ns} -t AdmOrdered -m put -v broker-a:4"),
    Asked("updateOrderConf-get", "updateOrderConf -n {ns} -t AdmOrdered -m get"),
    Asked("updateOrderConf-delete", "updateOrderConf -n {ns} -t AdmOrdered -m delete"),
    Asked("updateOrderConf-none", "updateOrderConf -n {ns} -t AdmOrdered -m get", only=CODE),
    Asked("allocateMQ", "allocateMQ -n {ns} -t AdmT -i 10.0.0.1,10.0.0.2"),
    Asked("updateSubGroup-broker", "updateSubGroup -n {ns} -b {broker} -g AdmG2 -r 3 -q 2"),
    Asked("updateSubGroup-cluster", "updateSubGroup -n {ns} -c {cluster} -g AdmG3 -s false"),
    Asked("updateSubGroupList", "updateSubGroupList -n {ns} -b {broker} -f {groups_file}"),
    Asked("getConsumerConfig", "getConsumerConfig -n {ns} -g AdmG2"),
    Asked("consumerProgress", "consumerProgress -n {ns} -g AdmG"),
    Asked("consumerProgress-topic", "consumerProgress -n {ns} -g AdmG -t AdmT"),
    Asked("consumerProgress-clients", "consumerProgress -n {ns} -g AdmG -s true"),
    Asked("consumerProgress-all", "consumerProgress -n {ns}"),
    Asked("consumerProgress-nobody", "consumerProgress -n {ns} -g AdmNobody", only=CODE),
    Asked("consumerStatus", "consumerStatus -n {ns} -g AdmG"),
    Asked("consumerStatus-client", "consumerStatus -n {ns} -g AdmG -i {client}"),
    Asked("consumerStatus-nobody", "consumerStatus -n {ns} -g AdmNobody", only=CODE),
    Asked("consumerConnection", "consumerConnection -n {ns} -g AdmG"),
    Asked("consumerConnection-broker", "consumerConnection -n {ns} -g AdmG -b {broker}"),
    Asked("consumerConnection-nobody", "consumerConnection -n {ns} -g AdmNobody", only=CODE),
    Asked("producerConnection", "producerConnection -n {ns} -g AdmP -t AdmT"),
    Asked("producerConnection-nobody", "producerConnection -n {ns} -g AdmNobody -t AdmT", only=CODE),
    Asked("producer", "producer -n {ns} -b {broker}"),
    Asked("queryMsgById", "queryMsgById -n {ns} -t AdmT -i {offset_id}"),
    Asked("queryMsgById-missing", "queryMsgById -n {ns} -t AdmT -i {missing_id}", only=CODE),
    Asked("queryMsgById-consume", "queryMsgById -n {ns} -t AdmT -i {offset_id} -g AdmG -d {client}"),
    Asked("queryMsgByKey", "queryMsgByKey -n {ns} -t AdmT -k key3"),
    Asked("queryMsgByKey-missing", "queryMsgByKey -n {ns} -t AdmT -k nokey", only=CODE),
    Asked("queryMsgByUniqueKey", "queryMsgByUniqueKey -n {ns} -t AdmT -i {unique_id}"),
    Asked("queryMsgByUniqueKey-all", "queryMsgByUniqueKey -n {ns} -t AdmT -i {unique_id} -a"),
    Asked("queryMsgByUniqueKey-consume", "queryMsgByUniqueKey -n {ns} -t AdmT -i {unique_id} -g AdmG -d {client}"),
    Asked("queryMsgByOffset", "queryMsgByOffset -n {ns} -t AdmT -b broker-a -i 0 -o 1"),
    Asked("queryMsgTraceById", "queryMsgTraceById -n {ns} -i {unique_id}", only=CODE),
    Asked("printMsg", "printMsg -n {ns} -t AdmT -d true"),
    Asked("printMsg-tag", "printMsg -n {ns} -t AdmT -s TagB"),
    Asked("printMsgByQueue", "printMsgByQueue -n {ns} -t AdmT -a broker-a -i 0 -p true -d true -f true"),
    Asked("consumeMessage", "consumeMessage -n {ns} -t AdmT"),
    Asked("consumeMessage-queue", "consumeMessage -n {ns} -t AdmT -b broker-a -i 1 -o 0 -c 2", afresh=True),
    Asked("sendMessage-queue", "sendMessage -n {ns} -t AdmT -p hello -b broker-a -i 2"),
    Asked("queryCq", "queryCq -n {ns} -t AdmT -q 0 -i 0 -c 3 -b {broker}"),
    Asked("queryCq-group", "queryCq -n {ns} -t AdmT -q 0 -i 0 -c 3 -b {broker} -g AdmG"),
    Asked("brokerConsumeStats", "brokerConsumeStats -n {ns} -b {broker}"),
    Asked("brokerConsumeStats-order", "brokerConsumeStats -n {ns} -b {broker} -o true"),
    Asked("statsAll", "statsAll -n {ns} -t AdmT"),
    Asked("statsAll-active", "statsAll -n {ns} -a", only=HEAD),
    Asked("cloneGroupOffset", "cloneGroupOffset -n {ns} -s AdmG -d AdmClone -t AdmT -o true"),
    Asked("consumerProgress-clone", "consumerProgress -n {ns} -g AdmClone"),
    Asked("resetOffsetByTime-offline", "resetOffsetByTime -n {ns} -g AdmClone -t AdmT -s 0"),
    Asked("resetOffsetByTime-now", "resetOffsetByTime -n {ns} -g AdmClone -t AdmT -s now -f true"),
    Asked("resetOffsetByTime-queue", "resetOffsetByTime -n {ns} -g AdmClone -t AdmT -b {broker} -q 0 -o 1 -s -1"),
    Asked("resetOffsetByTime-online", "resetOffsetByTime -n {ns} -g AdmG -t AdmT -s 0"),
    Asked("skipAccumulatedMessage", "skipAccumulatedMessage -n {ns} -g AdmClone -t AdmT"),
    Asked("resetOffsetByTime-nobody", "resetOffsetByTime -n {ns} -g AdmNobody -t AdmT -s 0", only=CODE),
    Asked("clusterList", "clusterList -n {ns}"),
    Asked("clusterList-stats", "clusterList -n {ns} -m", only=HEAD),
    Asked("brokerStatus", "brokerStatus -n {ns} -b {broker}", only=KEYS),
    Asked("brokerStatus-cluster", "brokerStatus -n {ns} -c {cluster}", only=KEYS),
    Asked("getBrokerConfig", "getBrokerConfig -n {ns} -b {broker}", only=SETTINGS),
    Asked("updateBrokerConfig", "updateBrokerConfig -n {ns} -b {broker} -k regionId -v here"),
    Asked("updateBrokerConfig-black", "updateBrokerConfig -n {ns} -b {broker} -k brokerConfigPath -v /x", only=CODE),
    Asked("getNamesrvConfig", "getNamesrvConfig -n {ns}", only=SETTINGS),
    Asked("updateNamesrvConfig", "updateNamesrvConfig -n {ns} -k waitSecondsForService -v 46"),
    Asked("updateNamesrvConfig-black", "updateNamesrvConfig -n {ns} -k kvConfigPath -v /x", only=CODE),
    Asked("updateKvConfig", "updateKvConfig -n {ns} -s AdmSpace -k one -v 1"),
    Asked("deleteKvConfig", "deleteKvConfig -n {ns} -s AdmSpace -k one"),
    Asked("wipeWritePerm", "wipeWritePerm -n {ns} -b broker-a", only=HEAD),
    Asked("wipeWritePerm-route", "topicRoute -n {ns} -t AdmT"),
    Asked("addWritePerm", "addWritePerm -n {ns} -b broker-a", only=HEAD),
    Asked("addWritePerm-route", "topicRoute -n {ns} -t AdmT"),
    Asked("cleanExpiredCQ", "cleanExpiredCQ -n {ns} -b {broker}"),
    Asked("cleanExpiredCQ-cluster", "cleanExpiredCQ -n {ns} -c {cluster}"),
    Asked("cleanUnusedTopic", "cleanUnusedTopic -n {ns} -b {broker}"),
    Asked("deleteExpiredCommitLog", "deleteExpiredCommitLog -n {ns} -b {broker}"),
    Asked("haStatus", "haStatus -n {ns} -b {broker}"),
    Asked("haStatus-cluster", "haStatus -n {ns} -c {cluster}"),
    Asked("resetMasterFlushOffset", "resetMasterFlushOffset -n {ns} -b {broker} -o 0"),
    Asked("getBrokerEpoch", "getBrokerEpoch -n {ns} -b broker-a", only=CODE),
    Asked("updateColdDataFlowCtr", "updateColdDataFlowCtrGroupConfig -n {ns} -b {broker} -g AdmG -v 1000"),
    Asked("getColdDataFlowCtrInfo", "getColdDataFlowCtrInfo -n {ns} -b {broker}"),
    Asked("removeColdDataFlowCtr", "removeColdDataFlowCtrGroupConfig -n {ns} -b {broker} -g AdmG"),
    Asked("setCommitLogReadAheadMode", "setCommitLogReadAheadMode -n {ns} -b {broker} -m 0"),
    Asked("checkRocksdbCqWriteProgress", "checkRocksdbCqWriteProgress -n {ns} -c {cluster} -t AdmT"),
    Asked("queryMsgById-send", "queryMsgById -n {ns} -t AdmT -i {offset_id} -s true"),
    Asked("sendMessage", "sendMessage -n {ns} -t AdmT -p hello -k key9 -c TagC", afresh=True),
    Asked("checkMsgSendRT", "checkMsgSendRT -n {ns} -t AdmRT -a 4 -s 10"),
    Asked("sendMsgStatus", "sendMsgStatus -n {ns} -b broker-a -c 3"),
    Asked("exportMetadata", "exportMetadata -n {ns} -c {cluster} -f {export} -t -g"),
    Asked("exportConfigs", "exportConfigs -n {ns} -c {cluster} -f {export}"),
    Asked("exportMetrics", "exportMetrics -n {ns} -c {cluster} -f {export}"),
    Asked("setConsumeMode", "setConsumeMode -n {ns} -b {broker} -t AdmT -g AdmG2 -m PULL"),
    Asked("exportPopRecord", "exportPopRecord -n {ns} -b {broker} -d true"),
    Asked("getSyncStateSet", "getSyncStateSet -n {ns} -a {broker} -b broker-a", only=CODE),
    Asked("getControllerMetaData", "getControllerMetaData -a {broker}", only=CODE),
    Asked("getControllerConfig", "getControllerConfig -a {broker}", only=CODE),
    Asked("updateControllerConfig", "updateControllerConfig -a {broker} -k one -v 1", only=CODE),
    Asked("electMaster", "electMaster -a {broker} -b 1 -bn broker-a -c {cluster}", only=CODE),
    Asked("cleanBrokerMetadata", "cleanBrokerMetadata -a {broker} -bn broker-a -c {cluster}", only=CODE),
    Asked("addBroker", "addBroker -c {broker} -b /nowhere.conf", only=CODE),
    Asked("removeBroker", "removeBroker -c {broker} -b DefaultCluster:broker-a:0", only=CODE),
    Asked("deleteSubGroup", "deleteSubGroup -n {ns} -b {broker} -g AdmG2 -r true"),
    Asked("deleteSubGroup-cluster", "deleteSubGroup -n {ns} -c {cluster} -g AdmG3"),
    Asked("getConsumerConfig-deleted", "getConsumerConfig -n {ns} -g AdmG2", only=NOTHING),
    Asked("deleteTopic", "deleteTopic -n {ns} -c {cluster} -t AdmT2"),
    Asked("deleteTopic-order", "deleteTopic -n {ns} -c {cluster} -t AdmOrdered"),
    Asked("deleteTopic-system", "deleteTopic -n {ns} -c {cluster} -t TBW102", only=CODE),
    Asked("topicList-after", "topicList -n {ns}"),
]

_CODE = re.compile(r"CODE: (-?\d+)")
_ERASED = [
    # Times of handlers, which only Tianzhou's members report, and which are measured.
    (re.compile(r"^(?:handler:\S+|cores) +: .*$", re.MULTILINE), ""),
    (re.compile(r"(?<![0-9A-F])[0-9A-F]{32,}"), "<id>"),
    (re.compile(r"127\.0\.0\.1@\S+?(?=[\s,)\]}\"]|$)"), "<client>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\d{4}-\d\d-\d\d[ #T]\d\d:\d\d:\d\d(?:[,:.]\d{3})?"), "<time>"),
    (re.compile(r"\b20\d{12}(?:\d{3})?\b"), "<time>"),
    (re.compile(r"\b1\d{12}\b"), "<ms>"),
    (re.compile(r"\b\d+\.\d+(?:E-?\d+)?\b(?!\.)"), "<number>"),
    (re.compile(r"(?<=#MasterCommitLogMaxOffset)\s+\d+"), " <offset>"),
    (re.compile(r"\brt=\d+ms|(?<=spentTimeMills=)\d+|(?<= true )\s*\d+$", re.MULTILINE), "<ms>"),
]
# A tool's producer begins with a random queue.
_QUEUE_OF_ITS_CHOICE = {"queryMsgById-send", "sendMessage"}
# Apache's broker samples, so its message counts of 24 hours or a second depend on the time. So does the lag of its
# timer in seconds.
_SAMPLED = {
    "statsAll": r"\d+\s+\d+$",
    "consumerProgress-all": r"\d+(?=\s+\d+$)",
    "clusterList": r"\b\d+(?=-\d+\(\d+\.\d+w,)",
}


def comparable(asked: Asked, answer: str, places: Mapping[str, str]) -> list[str]:
    """Return the part of an answer that both servers must have, as sorted lines.

    Args:
        asked: the command.
        answer: its output.
        places: values that differ from server to server, with their names.
    """
    if asked.only == CODE:
        return sorted(set(_CODE.findall(answer))) or ["no code"]
    if _FAILED.search(answer):
        # Errors of Apache's tools contain a stack trace, those of ours a remedy.
        return ["failed", *sorted(set(_CODE.findall(answer)))]
    for text, name in places.items():
        answer = answer.replace(text, f"<{name}>")
    answer = _without_topics_as_groups(answer)
    for pattern, name in _ERASED:
        answer = pattern.sub(name, answer)
    if asked.name in _QUEUE_OF_ITS_CHOICE:
        answer = re.sub(r"queueId=\d|(?<=broker-a )\s*\d\b", "queueId", answer)
        answer = re.sub(r"queueOffset=\d+", "queueOffset", answer)
    if asked.name in _SAMPLED:
        answer = re.sub(_SAMPLED[asked.name], "", answer, flags=re.MULTILINE)
    # The heads of columns stay in place.
    lines = [
        line.rstrip() if line.startswith("#") else re.sub(r"\s+", " ", _MAP.sub(_sorted_map, line)).strip()
        for line in answer.splitlines()
    ]
    lines = [line.rstrip(",") for line in lines if line and not line.startswith("at ")]
    if asked.only == HEAD:
        return [re.sub(r"OK, \d+", "OK", line) for line in lines[:1]]
    if asked.only in (KEYS, SETTINGS):
        return sorted({re.split(r"[ :=]", line)[0] for line in lines} - _OURS)
    # Java's consumers commit 0 for a retry topic without messages. Ours does so when the broker does not have the
    # topic: 4.9.7 and this broker have it, 5.3.3 does not (docs/spec/traps.md, 7). The pull consumer of Apache's tool
    # has a retry topic.
    absent = f"%RETRY%{GROUP} broker-a 0 0 0 ", "%RETRY%TOOLS_CONSUMER"
    return sorted(line for line in lines if not line.startswith(absent))


def _sorted_map(found: re.Match[str]) -> str:
    """Return a Java map as text with sorted entries, because its order is that of hashes."""
    return "{" + ", ".join(sorted(found[1].split(", "))) + "}"


_MAP = re.compile(r"\{([^{}]*=[^{}]*)\}")
_FAILED = re.compile(r"^(FAILED: |[\w.]+Exception: |usage: mqadmin )|^The sub command \w+ not exist", re.MULTILINE)
_OURS = frozenset({"damagedLogStretches", "damagedLogStretchesPutRight", "getTransferedTps", "tianzhouVersion"})
"""Figures that 5.3.3 does not have: one in 4.9's spelling, without which 4.9's tools fail, and our own version."""


def _without_topics_as_groups(answer: str) -> str:
    """Remove output in which Apache's broker treats a topic as a group (docs/spec/broker.md, trap 15)."""
    answer = re.sub(rf"MessageTrack \[consumerGroup={TOPIC}, .*?(?:\)\]|null\])", "", answer, flags=re.DOTALL)
    return re.sub(rf"^(?:DefaultCluster\s+)?{TOPIC}\s+{TOPIC}\b.*$", "", answer, flags=re.MULTILINE)
