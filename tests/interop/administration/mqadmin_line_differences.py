"""Command lines that our mqadmin at our servers ends otherwise than Apache's 5.3.3 at Apache's, by the reason."""

from __future__ import annotations

from typing import Final

from mqadmin_lines import Line

DIFFERENCES: Final[dict[str, tuple[str, ...]]] = {
    "`-b` with `-o true` works; Apache's fails, because the topic has no order entry yet": (
        "updateTopic -b {broker} -t AdmOrdered2 -r 2 -w 2 -o true",
    ),
    "a number of queues that no message could use is refused by the option's name; Apache's broker takes it": (
        "updateTopic -b {broker} -t AdmNone -r 0 -w 0",
        "updateTopic -b {broker} -t AdmNone -r -1 -w 4",
        "updateTopic -b {broker} -t AdmNone -r 4 -w -1",
        "updateSubGroup -b {broker} -g AdmG9 -q -1",
    ),
    "the route is found by the topic; Apache's looks for a topic of the cluster's name": (
        "topicStatus --topic AdmT --cluster NoCluster",
    ),
    "queues are in the order in which consumers share them; Apache's are in the order of a hash map": (
        "allocateMQ -t AdmT -i 10.0.0.1",
        "allocateMQ -t AdmT -i 10.0.0.1,10.0.0.2",
        "allocateMQ --topic AdmT --ipList 10.0.0.3,10.0.0.1,10.0.0.2,10.0.0.4,10.0.0.5",
    ),
    "a value that begins with a dash is read, and refused by the broker; Apache's misses the value": (
        "updateSubGroup -b {broker} -g AdmG7 --attributes -color",
    ),
    "a name that no group can have is refused; Apache's broker takes it": ("updateSubGroup -b {broker} -g Adm/Slash",),
    "POP is not served: code 3": (
        "setConsumeMode -b {broker} -t AdmT -g AdmG2 -m PULL",
        "setConsumeMode -b {broker} -c NoCluster -t AdmT -g AdmG2 -m PULL",
        "setConsumeMode --brokerAddr {broker} --topicName AdmT --groupName AdmG2 --mode POP --popShareQueueNum 2",
        "exportPopRecord --clusterName {cluster} --dryRun false",
        "exportPopRecord -b {broker} -c NoCluster",
    ),
    "a topic that is not there is refused with code 17; Apache's prints an empty table": (
        "consumerProgress -g AdmG -t AdmNowhere",
    ),
    "an offset at which there is no message is refused; Apache's prints nothing": (
        "queryMsgByOffset -t AdmT -b broker-a -i 0 -o 2",
        "queryMsgByOffset -t AdmT -b broker-a -i 0 -o 99",
    ),
    "an offset out of range is refused with the range; Apache's prints a line, and may print other messages": (
        "consumeMessage -t AdmT -b broker-a -i 0 -o 99",
        "consumeMessage -t AdmT -b broker-a -i 0 -o -1",
    ),
    "an offset out of range is refused with the range; Apache's says `reset consumer offset to` and resets nothing": (
        "resetOffsetByTime -g AdmClone -t AdmT -s now -b {broker} -q 1 -o -5",
        "resetOffsetByTime -g AdmClone -t AdmT -s now -b {broker} -q 9 -o 0",
    ),
    "an offset below 0 is refused; Apache's broker takes it": ("resetMasterFlushOffset -b {broker} -o -1",),
    "the offset behind the end of the queue is refused; Apache's broker takes it, and the group misses a message": (
        "resetOffsetByTime -g AdmClone -t AdmT -s now -b {broker} -q 1 -o 3",
    ),
    "a character set that is not there is refused; Apache's prints no messages": ("printMsg -t AdmT -c nonsense",),
    "`-c` counts messages; Apache's counts one more for each queue": ("consumeMessage -t AdmT -c 3",),
    "`-b` without `-i` reads the queues of that broker; Apache's reads all": ("consumeMessage -t AdmT -b broker-z",),
    "the flag is read, and changes nothing; Apache's fails": ("resetOffsetByTime -g AdmClone -t AdmT -s 0 --cplus",),
    "a broker that is not there is refused; Apache's sends elsewhere": (
        "sendMessage -t AdmSent -p hello -b broker-z",
        "sendMsgStatus -b broker-z -c 1",
    ),
    "a broker that is not there is refused; Apache's prints nothing": ("getBrokerEpoch -b broker-z",),
    "copies offsets to a group that is not there yet; Apache's fails": (
        "cloneGroupOffset -s AdmG -d AdmAbsent -t AdmT -o true",
    ),
    "prints what it sees; Apache's writes it to a log": ("startMonitoring",),
    "a cluster that is not there is refused; Apache's prints the head of the table, or nothing": (
        "clusterList -c NoCluster",
        "exportPopRecord -c NoCluster",
    ),
    "without `-b` and `-c` it prints its usage; Apache's prints nothing": (
        "getBrokerConfig",
        "getColdDataFlowCtrInfo",
        "setCommitLogReadAheadMode -m 0",
        "exportPopRecord",
    ),
    "a setting that only a start reads is refused; Apache's broker says `success`, and nothing changes": (
        "updateBrokerConfig -b {broker} -k flushDiskType -v SYNC_FLUSH",
        "updateNamesrvConfig -k listenPort -v 1",
    ),
    "refused; Apache's broker takes it at once, and registers under the new name or a closed port": (
        "updateBrokerConfig -b {broker} -k listenPort -v 1",
        "updateBrokerConfig -b {broker} -k brokerName -v other",
    ),
    "a value that cannot be is refused; Apache's server says `success`, and ignores it or breaks with it": (
        "updateBrokerConfig -b {broker} -k fileReservedTime -v soon",
        "updateBrokerConfig -b {broker} -k fileReservedTime -v -1",
        "updateNamesrvConfig -k waitSecondsForService -v soon",
        "updateColdDataFlowCtrGroupConfig -b {broker} -g AdmG -v -1",
        "updateColdDataFlowCtrGroupConfig -b {broker} -g AdmG -v many",
        "createUser -b {broker} -u carol -p secret-three -t Nobody",
        "updateUser -b {broker} -u alice -s asleep",
    ),
    "`-b` without `-t` and `-g` writes both; Apache's writes nothing": (
        "exportMetadata --brokerAddr {broker} --filePath {export} --specialTopic",
        "exportMetadata -b {broker} -c NoCluster -f {export}",
    ),
    "`-d true` sends no request; Apache's reads it as false": ("exportPopRecord -b {broker} -d true",),
    "static topics are not served": (
        "updateStaticTopic -t AdmStatic -b broker-a -qn 4",
        "remappingStaticTopic -t AdmStatic -b broker-a",
        "remappingStaticTopic --topic AdmStatic --clusters {cluster} --mapFile {missing_file} --forceReplace true",
    ),
    "passwords are never shown": (
        "getUser -b {broker} -u alice",
        "getUser --clusterName {cluster} --username bob",
        "listUser -b {broker}",
        "listUser --clusterName {cluster} --filter ali",
    ),
    "an unknown user, or a user without policies, is answered with code 3001 or 3002; Apache's prints nothing": (
        "getUser -b {broker} -u nobody",
        "getAcl --clusterName {cluster} --subject User:bob",
    ),
    "an action that there is not is refused with code 29; Apache's broker answers 16": (
        "createAcl -b {broker} -s User:alice -r Topic:orders -a Fly -d Allow",
    ),
    "Tianzhou's brokers send no passwords, so there is nothing to copy": (
        "copyUser -f {broker} -t {broker} -u alice",
        "copyUser -f {broker} -t {broker}",
    ),
    "the help is this tool's own": ("help topicList", "help"),
}


def reason(line: Line) -> str | None:
    """Return why a line ends otherwise; None when it has to end as at Apache's."""
    return next((why for why, texts in DIFFERENCES.items() if line.text in texts), None)
