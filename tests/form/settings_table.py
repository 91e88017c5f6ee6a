"""Every setting of broker, store and name server, with its effect or the reason for none: docs/reference/settings.md.

Keys and defaults come from the settings classes, reasons from the programs' own tables of keys without effect; this
file has the effect of the others. Print the page by
`PYTHONPATH=src python tests/form/settings_table.py > docs/reference/settings.md`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tianzhou.broker import ignored_settings
from tianzhou.broker.settings import BrokerSettings
from tianzhou.limits import LIMITS
from tianzhou.namesrv import settings as namesrv_settings
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.tls import TlsSettings
from tianzhou.settings import key_of
from tianzhou.store.settings import StoreSettings

ROOT = Path(__file__).resolve().parents[2]

DEFAULTS: dict[str, str] = {
    "brokerName": "the host's name",
    "namesrvAddr": "`$NAMESRV_ADDR`",
    "rocketmqHome": "`$ROCKETMQ_HOME`",
    "storePathRootDir": "`~/store`",
    "slaveReadEnable": "`false`; `true` at a slave and at a member of a group",
}
"""Defaults that depend on the machine or on the role."""

BROKER: dict[str, str] = {
    "logLevels": "Tianzhou's own: levels of the log, `INFO` or `tianzhou.remoting=DEBUG`, several by commas; may be"
    " changed while it runs",
    "brokerClusterName": "the cluster's name, a topic and the key of figures too",
    "brokerName": "its name in routes",
    "brokerId": "0, a master's; another is set to 0 with a warning",
    "namesrvAddr": "where it registers, several joined by `;`; may be changed while it runs",
    "listenPort": "main port; the fast one is 2 below",
    "bindAddress": "address both ports listen on",
    "brokerIP1": "address that clients connect to; empty: the first address that is not loopback",
    "brokerIP2": "host of the HA address at name servers; empty: as brokerIP1",
    "brokerPermission": "4 read + 2 write, for all topics",
    "fetchNamesrvAddrByAddressServer": "without namesrvAddr: ask the address server",
    "rocketmq.namesrv.domain": "the address server, `host` or `host:port` (8080); a system property of the Java broker",
    "rocketmq.namesrv.domain.subgroup": "which list of the address server; a system property of the Java broker",
    "fetchNameSrvAddrByDnsLookup": "register at all addresses the names in namesrvAddr stand for",
    "fetchNamesrvAddrInterval": "ms between two questions to the address server",
    "updateNameServerAddrPeriod": "ms between two look-ups of names",
    "registerNameServerPeriod": "ms between two registrations, 10 s to 60 s",
    "registerBrokerTimeoutMills": "ms a registration may take",
    "forceRegister": "false: register only where the name server's data is not the present one",
    "compressedRegister": "registrations are deflated; orders and flags of topics are left out of that form",
    "syncBrokerMemberGroupPeriod": "ms for which the other members are known, with lockInStrictMode",
    "regionId": "`MSG_REGION` of replies",
    "configBlackList": "keys updateBrokerConfig may not change",
    "brokerConfigPath": "file updateBrokerConfig writes",
    "autoCreateTopicEnable": "sending makes topics",
    "defaultTopicQueueNums": "queues of a topic made so, at most",
    "clusterTopicEnable": "there is a topic named like the cluster",
    "brokerTopicEnable": "there is a topic named like the broker",
    "autoCreateSubscriptionGroup": "using a group makes it",
    "enableCreateSysGroup": "also those that begin with CID_RMQ_SYS_",
    "traceTopicEnable": "there is a topic for traces",
    "msgTraceTopicName": "its name",
    "traceOn": "`TRACE_ON` of replies",
    "validateSystemTopicWhenUpdateTopic": "system topics cannot be changed",
    "enableMixedMessageType": "topics of type MIXED are allowed",
    "clearRetryTopicWhenDeleteTopic": "deleting a topic deletes the POP retry topics made of it",
    "sendThreadPoolQueueCapacity": "so many sends may wait for the disk, further ones are refused",
    "brokerFastFailureEnable": "requests that have waited too long are refused",
    "waitTimeMillsInSendQueue": "ms a send may have waited",
    "waitTimeMillsInPullQueue": "ms a pull may have waited",
    "waitTimeMillsInLitePullQueue": "ms a lite pull may have waited",
    "waitTimeMillsInHeartbeatQueue": "ms a heartbeat may have waited",
    "waitTimeMillsInTransactionQueue": "ms the end of a transaction may have waited",
    "waitTimeMillsInAdminBrokerQueue": "ms any other request may have waited",
    "startAcceptSendRequestTimeStamp": "sends before this time (ms) are refused",
    "disableConsumeIfConsumerReadSlowly": "groups too far behind the end of the log lose consumeEnable",
    "consumerFallbehindThreshold": "so many bytes are too far",
    "storeReplyMessageEnable": "replies are stored as well as pushed",
    "rejectTransactionMessage": "half messages are refused",
    "longPollingEnable": "pulls wait for messages as long as they want",
    "shortPollingTimeMills": "ms they wait otherwise",
    "slaveReadEnable": "pulls of cold messages get whichBrokerWhenConsumeSlowly; a slave and a follower of a group"
    " answer pulls with code 2 while it is `false`, as RocketMQ 5.3.3; may be changed while the broker runs",
    "litePullMessageEnable": "false: lite pulls are forbidden",
    "rejectPullConsumerEnable": "only members of push groups may pull",
    "notifyConsumerIdsChangedEnable": "members are notified when their group changes",
    "realTimeNotifyConsumerChange": "false: they are notified 15 s later",
    "useServerSideResetOffset": "resets are stored here and answer the next pull",
    "lockInStrictMode": "with totalReplicas above 1: most brokers of this name have to grant a lock",
    "enableBroadcastOffsetStore": "where broadcast consumers pull is kept as group `G@broadcast`, for proxies",
    "broadcastOffsetExpireSecond": "s such a consumer counts after it went",
    "broadcastOffsetExpireMaxSecond": "s it counts without pulling",
    "flushConsumerOffsetInterval": "ms between two writes of consumerOffset.json",
    "consumerOffsetUpdateVersionStep": "commits per version of that file",
    "delayOffsetUpdateVersionStep": "deliveries per version of delayOffset.json",
    "channelExpiredTimeout": "ms without a heartbeat after which a client's connection is closed",
    "subscriptionExpiredTimeout": "ms for which what a pull subscribed is shown",
    "enableRegisterProducer": "false, with rejectTransactionMessage: producers are not noted",
    "enablePropertyFilter": "SQL92 expressions are served",
    "enableCalcFilterBitMap": "queue extensions get bits of the filters that let a message through",
    "expectConsumerNumUseFilter": "groups these bits are made for",
    "maxErrorRateOfBloomFilter": "percent of messages looked at in vain",
    "filterDataCleanTimeSpan": "ms after which the filter of a group that is gone is forgotten",
    "filterSupportRetry": "retries are filtered by the original topic's expression",
    "transactionTimeOut": "ms a producer has for its first decision",
    "transactionCheckMax": "how often it is checked",
    "transactionCheckInterval": "ms between two rounds of questions",
    "transactionMetricFlushInterval": "ms between two looks at what transactionMetrics has to say",
    "transactionOpMsgMaxSize": "bytes of marks that share a message",
    "transactionOpBatchInterval": "ms marks wait for others",
    "reviveQueueNum": "queues of the topic `rmq_sys_REVIVE_LOG_…`, which no process reads here",
    "enableDetailStat": "request 315 knows figures of single queues",
    "enableScheduleMessageStats": "what is delivered late is counted",
    "autoDeleteUnusedStats": "figures of deleted topics and groups go with them",
    "maxStatsIdleTimeInMinutes": "figures that stood still for so long are dropped, at least 30; -1: never",
    "connectTimeoutMillis": "ms to connect to a name server",
    "useTLS": "name servers are spoken to in TLS",
    "stagedMessageTimeOut": "Tianzhou's own: ms after which the coordinator of staged messages is queried",
    "stagedWriterReservedDays": "Tianzhou's own: days for which a writer's last batch is remembered",
    "proxyProtocolTrusted": "Tianzhou's own: load balancers whose PROXY header says the address that access control and"
    " limits go by; addresses and networks joined by `;`; by default none",
    "replicationAllowedAddresses": "Tianzhou's own: addresses and CIDR ranges, by commas, that may connect to the HA"
    " port and to the port of a group's members; empty takes everybody",
    "enableRemoteAdmin": "Tianzhou's own: requests that can lose messages or stop the service are taken from other"
    " machines, too",
    "lingerMicros": "Tianzhou's own: µs for which the broker stays awake for a client that asks one thing at a time",
}

STORE: dict[str, str] = {
    "storePathRootDir": "root of the store",
    "storePathCommitLog": "folders of the log, several joined by `,`; empty: `commitlog` in the root",
    "readOnlyCommitLogStorePaths": "folders of the log that are read only",
    "storeFileMode": "permissions of new files, not of those that are there; `0640` lets the group read",
    "mappedFileSizeCommitLog": "bytes of a segment of the log",
    "mappedFileSizeConsumeQueue": "bytes of a segment of a queue",
    "mapperFileSizeBatchConsumeQueue": "the same of a queue of batches",
    "enableConsumeQueueExt": "queues have extensions",
    "mappedFileSizeConsumeQueueExt": "bytes of a segment of an extension",
    "dataReadAheadEnable": "the system reads the log ahead; mqadmin's setCommitLogReadAheadMode",
    "maxMessageSize": "bytes of a body",
    "maxFilterMessageSize": "bytes of queue units a pull looks at",
    "longPollingEnable": "see the broker's key",
    "osPageCacheBusyTimeOutMills": "ms a put may take before sends are refused",
    "autoMessageVersionOnTopicLen": "topics above 127 characters are stored as version 2",
    "enabledAppendPropCRC": "records carry a CRC of the whole as a property",
    "forceVerifyPropCRC": "records without one are damaged",
    "flushDiskType": "SYNC_FLUSH acknowledges after the disk has it",
    "flushIntervalCommitLog": "ms between two flushes",
    "flushCommitLogLeastPages": "pages below which a flush waits",
    "flushCommitLogThoroughInterval": "ms it waits at most",
    "syncFlushTimeout": "ms a send waits for the disk",
    "flushIntervalConsumeQueue": "ms between two flushes of queues",
    "flushConsumeQueueLeastPages": "pages below which that waits",
    "flushConsumeQueueThoroughInterval": "ms it waits at most",
    "cleanResourceInterval": "ms between two looks for what may be deleted",
    "deleteWhen": "hours in which expired segments go",
    "fileReservedTime": "hours a segment is kept",
    "deleteCommitLogFilesInterval": "ms between two deletions of segments",
    "deleteConsumeQueueFilesInterval": "the same of queues",
    "deleteFileBatchMax": "segments that go in a row",
    "redeleteHangedFileInterval": "ms until a file that could not be deleted is tried again",
    "diskMaxUsedSpaceRatio": "percent of the disk above which expired segments go at any hour",
    "diskSpaceCleanForciblyRatio": "percent above which segments go that are not expired",
    "diskSpaceWarningLevelRatio": "percent above which sends are refused",
    "diskSpaceEnoughFreeBytes": "Tianzhou's own: a disk with so much free is not full; 0: off",
    "cleanFileForciblyEnable": "segments that are not expired may go",
    "replicasPerDiskPartition": "brokers that share the disk",
    "logicalDiskSpaceCleanForciblyThreshold": "share of the disk at which each deletes its part",
    "checkCRCOnRecover": "bodies are checked after a crash",
    "checkStoreOnStart": "check everything before serving, also after a clean stop; a damaged store is refused",
    "messageIndexEnable": "messages can be found by key",
    "maxHashSlotNum": "slots of an index file",
    "maxIndexNum": "entries of an index file",
    "maxMsgsNumBatch": "messages of a query at most",
    "defaultQueryMaxNum": "messages of a query by unique key",
    "maxTransferBytesOnMessageInMemory": "bytes of a pull",
    "maxTransferCountOnMessageInMemory": "messages of a pull",
    "maxTransferBytesOnMessageInDisk": "bytes of a pull of cold messages",
    "maxTransferCountOnMessageInDisk": "messages of one",
    "accessMessageInMemoryMaxRatio": "percent of the memory beyond which messages count as cold",
    "travelCqFileNumWhenGetMessage": "segments of a queue a pull looks through for a match",
    "offsetCheckInSlave": "a slave answers a pull outside the bounds of its queue with a corrected offset, as a master"
    " does; else the consumer keeps its offset, and waits for the master",
    "diskFallRecorded": "how far pulls are behind is noted, for disableConsumeIfConsumerReadSlowly",
    "messageDelayLevel": "delays of levels 1, 2, …",
    "flushDelayOffsetInterval": "ms between two writes of delayOffset.json",
    "enableLmq": "names of light queues are groups and topics",
    "enableMultiDispatch": "messages go to the light queues they name",
    "maxLmqConsumeQueueNum": "light queues at most",
    "timerWheelEnable": "there is the topic `rmq_sys_wheel_timer`, which no process reads here: timers are not served",
    "disappearTimeAfterStart": "ms after the start before the broker registers",
    "enableDLegerCommitLog": "be a member of a DLedger group, which elects its master",
    "dLegerGroup": "name of the group; the brokers' name",
    "dLegerPeers": "members of the group, `n0-host:port;n1-host:port;…`; the ports are for members only",
    "dLegerSelfId": "which of them this is; with `n1`, its brokerId is 2 while it does not lead",
    "preferredLeaderId": "members that shall lead when they can, `n0;n1`",
    "enableBatchPush": "send Apache's members several entries at once",
    "storePathDLedgerCommitLog": "folder of a member's log; not set, `dledger-<id>/data` in the store's",
    "dLegerHeartBeatTimeIntervalMs": "Tianzhou's own: ms between two signs of life of a leader",
    "dLegerMaxHeartBeatLeak": "Tianzhou's own: so many of them without one, and another leader is elected",
    "dLegerMinVoteIntervalMs": "Tianzhou's own: least ms between two candidacies of a member",
    "dLegerMaxVoteIntervalMs": "Tianzhou's own: most ms between them",
    "haListenPort": "port where slaves connect; not set, the one above `listenPort`",
    "haMasterAddress": "at a slave: `host:port` of its master's HA port, instead of the one that name servers answer;"
    " topics, groups and offsets still come from the master that they name",
    "brokerRole": "ASYNC_MASTER, SYNC_MASTER (waits for slaves) or SLAVE, which copies its master",
    "haSendHeartbeatInterval": "ms after which something is sent at the HA port, by either side",
    "haHousekeepingInterval": "ms of silence at the HA port after which the connection is ended",
    "haTransferBatchSize": "bytes of the log sent to a slave at once; more to one that is far behind",
    "haMaxGapNotInSync": "bytes a slave may be behind to count as in sync (4.9: haSlaveFallbehindMax)",
    "haSlaveCutMax": "bytes of its end that a slave whose log differs from its master's cuts off by itself; 0 for none;"
    " with `durability=zero-loss` none in any case",
    "haSlaveCutKeepMax": "Tianzhou's own: bytes of cut records that a slave keeps in the folder `cut` of its store; the"
    " oldest cuts are removed first; 0 for none",
    "slaveTimeout": "ms a SYNC_MASTER waits for slaves",
    "durability": "Tianzhou's own: `zero-loss` sets flushDiskType=SYNC_FLUSH, brokerRole=SYNC_MASTER,"
    " inSyncReplicas=2, minInSyncReplicas=2, enableAutoInSyncReplicas=false and cleanFileForciblyEnable=false, and"
    " refuses what contradicts them; a slave with it cuts nothing by itself",
    "inSyncReplicas": "brokers that have to have a message, the master among them; a SYNC_MASTER waits for a slave",
    "minInSyncReplicas": "brokers in sync, the master among them, without which a SYNC_MASTER refuses messages",
    "enableAutoInSyncReplicas": "ask for no more slaves than are in sync",
    "haFlowControlEnable": "send each slave no more than maxHaTransferByteInSecond",
    "maxHaTransferByteInSecond": "bytes a second for each slave, with haFlowControlEnable",
    "syncFromLastFile": "send an empty slave the last segment only, as RocketMQ does; else the whole log",
    "totalReplicas": "members of which lockInStrictMode wants more than half",
}

NAMESRV: dict[str, str] = {
    "logLevels": "Tianzhou's own: levels of the log, `INFO` or `tianzhou.remoting=DEBUG`, several by commas; may be"
    " changed while it runs",
    "bindAddress": "address it listens on",
    "listenPort": "port",
    "kvConfigPath": "file of the KV configuration",
    "configStorePath": "file updateNamesrvConfig writes",
    "configBlackList": "keys updateNamesrvConfig may not change",
    "orderMessageEnable": "routes tell which topics are ordered",
    "returnOrderTopicConfigToBroker": "brokers get the list of ordered topics",
    "proxyProtocolTrusted": "Tianzhou's own: load balancers whose PROXY header says the address that access control and"
    " limits go by; addresses and networks joined by `;`; by default none",
    "requireSignedLookups": "Tianzhou's own: with access control, routes and lists of topics and brokers are answered"
    " to accounts alone; otherwise to every peer, as Apache's name servers do",
    "enableRemoteAdmin": "Tianzhou's own: requests that change things for all are taken from other machines, too; a"
    " broker with a higher state version may take the place of a living one",
    "scanNotActiveBrokerInterval": "ms between two looks for silent brokers",
    "supportActingMaster": "the smallest id of a broker without master stands for it",
    "notifyMinBrokerIdChanged": "members are notified when the smallest id changes",
    "enableTopicList": "lists of unit topics are given",
    "enableAllTopicList": "the list of all topics is given",
    "deleteTopicWithBrokerRegistration": "a topic a registration leaves out is deleted",
    "needWaitForService": "no routes right after the start",
    "waitSecondsForService": "s they are held back",
    "clusterTest": "routes that are not known here are queried at the name servers at `$NAMESRV_ADDR`, or of those the"
    " address server lists for productEnvName",
    "productEnvName": "with clusterTest, and without `$NAMESRV_ADDR`: whose name servers the address server at"
    " `$ROCKETMQ_NAMESRV_DOMAIN` lists",
}

TLS: dict[str, str] = {
    "tls.enable": "our own connections speak TLS, to name servers and to other brokers",
    "tls.replication.enable": "true or false: connections of slaves to the HA port and of members to each other; "
    "empty: as tls.enable. Tianzhou's own",
    "tls.metrics.enable": "the page of metrics goes by tls.server.mode; false: it speaks plain, as RocketMQ's. "
    "Tianzhou's own",
    "tls.server.mode": "disabled, permissive (a connection that begins with it) or enforcing, at all ports; enforcing "
    "turns tls.enable on",
    "tls.config.file": "a file with the other keys",
    "tls.test.mode.enable": "certificates are made on the spot and not checked",
    "tls.server.need.client.auth": "none, optional or require",
    "tls.server.keyPath": "the key of our certificate",
    "tls.server.keyPassword": "its password",
    "tls.server.certPath": "our certificate",
    "tls.server.authClient": "clients' certificates are checked",
    "tls.server.trustCertPath": "whose certificates are trusted in clients",
    "tls.server.accountFrom": "off, or CN or SAN: which name of a client's verified certificate is its account; "
    "Tianzhou's own",
    "tls.client.keyPath": "the key we show as a client",
    "tls.client.keyPassword": "its password",
    "tls.client.certPath": "the certificate we show as a client",
    "tls.client.authServer": "servers' certificates are checked",
    "tls.client.checkHostName": "with it, whether they are for the host connected to; Tianzhou's own",
    "tls.client.trustCertPath": "whose certificates are trusted in servers",
}


def limits_in(settings: type) -> dict[str, str]:
    """Return the limits among the keys, with the values they bound."""
    keys = {key_of(field) for field in dataclasses.fields(settings)}
    return {
        name: f"[limit](limits.md): most {limit.unit}: {limit.bounds}"
        for name, limit in LIMITS.items()
        if name in keys and not limit.fixed
    }


ACCESS: dict[str, str] = {
    "rocketmqHome": "with aclEnable: its folder `conf` has `plain_acl.yml`",
    "aclEnable": "requests have to be signed by an account of `plain_acl.yml` that may (RocketMQ 4.x); without effect "
    "with authenticationEnabled",
    "aclConfigPath": "Tianzhou's own: where `plain_acl.yml` is; empty: `conf/plain_acl.yml` in rocketmqHome, without it"
    " the folder of the other state files; further files in the folder `acl` beside it",
    "authConfigPath": "folder of `users.json`; empty: that of the other state files",
    "authenticationEnabled": "requests have to be signed by a user (RocketMQ 5.3)",
    "authenticationMetadataProvider": "LocalAuthenticationMetadataProvider of RocketMQ: users and policies are kept "
    "also while authenticationEnabled is not set",
    "authenticationWhitelist": "request codes that need no signature, joined by `,`; with authorizationEnabled they"
    " need one all the same, unless they are on its list, too",
    "authorizationEnabled": "users may do only what their policies allow, and have to sign",
    "authorizationWhitelist": "request codes that need no policy",
    "initAuthenticationUser": "JSON with username and password of a super user that is made at the start, if there is"
    " none of the name",
    "innerClientAuthenticationCredentials": "JSON with accessKey and secretKey that requests to other servers are"
    " signed with; made a super user, too",
    "migrateAuthFromV1Enabled": "accounts of 4.x that are no users yet become users at the start",
}


METRICS: dict[str, str] = {
    "metricsExporterType": "DISABLE, PROM (a page for Prometheus), OTLP_GRPC (a collector) or LOG; howto/monitoring.md",
    "metricsPromExporterHost": "address of the page; empty: brokerIP1 of a broker, bindAddress of a name server, and"
    " 127.0.0.1 with `tianzhou serve`",
    "metricsPromExporterPort": "its port, 0 for any free one; with `tianzhou serve` that of the first broker, further"
    " brokers come behind it and the name server one below",
    "metricsOtelCardinalityLimit": "samples of a family; further ones are left out and counted",
    "metricsLabel": "labels of all samples, `name:value,name:value`",
    "metricsGrpcExporterTarget": "the collector, as in `http://127.0.0.1:4317`",
    "metricsGrpcExporterHeader": "headers for it, `name:value,name:value`",
    "metricGrpcExporterTimeOutInMills": "ms an export may take",
    "metricGrpcExporterIntervalInMills": "ms between two exports",
    "metricLoggingExporterIntervalInMills": "ms between two dumps into the log",
    "metricsInDelta": "to a collector: what came since the last export, instead of since the start",
    "metricsAllowedAddresses": "Tianzhou's own: addresses and CIDR ranges, by commas, that may read the page, without"
    " credentials; all other peers may not; empty: everybody, or with access control who may look at the cluster",
}
"""Settings of both servers."""

SECTIONS: list[tuple[str, type, dict[str, str], dict[str, tuple[str, ...]]]] = [
    ("Broker", BrokerSettings, BROKER | ACCESS | METRICS | limits_in(BrokerSettings), ignored_settings.IGNORED),
    ("Store", StoreSettings, STORE | limits_in(StoreSettings), ignored_settings.IGNORED),
    ("Name server", NamesrvSettings, NAMESRV | ACCESS | METRICS | limits_in(NamesrvSettings), namesrv_settings.IGNORED),
    ("TLS, of brokers and name servers", TlsSettings, TLS, {}),
]


def keys_of(settings: type) -> list[str]:
    """Return the keys of a settings class, in its order."""
    return [key_of(field) for field in dataclasses.fields(settings)]


def reasons(idle: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the reasons of keys without effect, by key."""
    return {key: reason for reason, keys in idle.items() for key in keys}


def _default(field: dataclasses.Field[object]) -> str:
    key = key_of(field)
    if key in DEFAULTS:
        return DEFAULTS[key]
    if field.default is dataclasses.MISSING:
        return "by the number of cores"
    text = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    return f"`{text}`" if text else ""


def page() -> str:
    """Return the text of docs/reference/settings.md."""
    lines = [
        "# Settings",
        "",
        "Every key of RocketMQ's `broker.conf` and `namesrv.conf`, its default, and its effect here. Servers",
        "accept, store and show all keys (`tianzhou broker -p`, mqadmin's getBrokerConfig), so existing files and",
        "tools work. The table has the reason of a key without an effect. A server warns once when such a key gets",
        "another value than its default, at the start and by updateBrokerConfig or updateNamesrvConfig; `-p` shows",
        "the warning. The start refuses a key whose missing effect would be a silent loss (DLedger, credentials).",
        "",
        "The page is printed by `PYTHONPATH=src python tests/form/settings_table.py`.",
    ]
    for title, settings, effects, idle in SECTIONS:
        why = reasons(idle)
        fields = dataclasses.fields(settings)
        without = sum(key_of(field) not in effects for field in fields)
        lines += ["", f"## {title}", "", f"{len(fields)} keys, {without} without effect.", ""]
        lines += ["| key | default | effect |", "|---|---|---|"]
        for field in fields:
            key = key_of(field)
            lines.append(f"| {key} | {_default(field)} | {effects.get(key) or f'none: {why[key]}'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
