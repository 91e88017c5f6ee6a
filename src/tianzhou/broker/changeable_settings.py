"""Valid values of a broker's and its store's settings, and the settings that can be changed at run time. Pure.

Each key is in one of three places: `AT_ONCE` has keys that take effect at once, `ignored_settings` has keys without
effect, and `FIXED` has keys that need a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tianzhou.access.settings import FIXED as FIXED_OF_ACCESS
from tianzhou.access.settings import auth_problems
from tianzhou.broker.ignored_settings import IGNORED
from tianzhou.broker.zero_loss import contradictions
from tianzhou.client.cluster.identity import name_server_addresses
from tianzhou.errors import ConfigError
from tianzhou.limits import LIMITS
from tianzhou.metrics.settings import CHOICES as CHOICES_OF_METRICS
from tianzhou.metrics.settings import FIXED as FIXED_OF_METRICS
from tianzhou.metrics.settings import RANGES as RANGES_OF_METRICS
from tianzhou.metrics.settings import metrics_problems
from tianzhou.remoting.gates.page_gate import KEY as METRICS_KEY
from tianzhou.remoting.gates.page_gate import parse_addresses
from tianzhou.remoting.gates.peer_addresses import TrustedProxies
from tianzhou.setting_rules import INT_MAX, LONG_MAX, Range, Rules, SettingProblem, level_problems
from tianzhou.store.settings import SHORTEST_INTERVAL_MS, parse_delay_levels, parse_hours


def _keys(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIXED: Final[dict[str, tuple[str, ...]]] = {
    "who a broker is and where it is reached is settled at its start": _keys(
        """
        brokerClusterName brokerName brokerId listenPort bindAddress brokerIP1 brokerIP2 haListenPort brokerRole
        enableDLegerCommitLog dLegerGroup dLegerPeers dLegerSelfId
        preferredLeaderId dLegerHeartBeatTimeIntervalMs dLegerMaxHeartBeatLeak dLegerMinVoteIntervalMs
        dLegerMaxVoteIntervalMs enableBatchPush
        """
    ),
    "a path is never taken from a request": _keys(
        """
        storePathRootDir storePathCommitLog readOnlyCommitLogStorePaths storePathDLedgerCommitLog storePathEpochFile
        storePathBrokerIdentity brokerConfigPath rocketmqHome messageStorePlugIn
        """
    ),
    "what is in the store already depends on it": _keys(
        """
        mappedFileSizeCommitLog mappedFileSizeConsumeQueue mapperFileSizeBatchConsumeQueue enableConsumeQueueExt
        mappedFileSizeConsumeQueueExt bitMapLengthConsumeQueueExt maxHashSlotNum maxIndexNum messageDelayLevel storeType
        enableLmq enableMultiDispatch enabledAppendPropCRC forceVerifyPropCRC expectConsumerNumUseFilter
        maxErrorRateOfBloomFilter
        """
    ),
    "who is let in, and whom the broker trusts, is never taken from a request": _keys(
        """
        enableRemoteAdmin proxyProtocolTrusted configBlackList useTLS socksProxyConfig
        fetchNamesrvAddrByAddressServer rocketmq.namesrv.domain rocketmq.namesrv.domain.subgroup storeFileMode
        controllerAddr fetchControllerAddrByDnsLookup replicationAllowedAddresses haMasterAddress
        """
    )
    + FIXED_OF_ACCESS,
    "where metrics go, and who may see them, is never taken from a request": FIXED_OF_METRICS,
    "this version would not start with it": _keys("enableControllerMode"),
    "it is read at the start only": _keys(
        """
        clusterTopicEnable brokerTopicEnable traceTopicEnable msgTraceTopicName reviveQueueNum timerWheelEnable
        connectTimeoutMillis serverChannelMaxIdleTimeSeconds consumerOffsetUpdateVersionStep
        delayOffsetUpdateVersionStep disappearTimeAfterStart checkCRCOnRecover lingerMicros flushDiskType durability
        messageIndexEnable checkStoreOnStart
        """
    ),
}
"""Reasons why keys cannot be changed at run time, with the keys."""

_LIMITS: Final = frozenset(
    name
    for name, limit in LIMITS.items()
    if not limit.fixed and limit.server in ("broker", "both") and name not in FIXED["it is read at the start only"]
)

AT_ONCE: Final = _LIMITS | frozenset(
    _keys(
        """
        brokerPermission namesrvAddr fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval updateNameServerAddrPeriod
        registerNameServerPeriod registerBrokerTimeoutMills forceRegister compressedRegister syncBrokerMemberGroupPeriod
        regionId autoCreateTopicEnable defaultTopicQueueNums autoCreateSubscriptionGroup enableCreateSysGroup traceOn
        validateSystemTopicWhenUpdateTopic enableMixedMessageType clearRetryTopicWhenDeleteTopic
        sendThreadPoolQueueCapacity brokerFastFailureEnable waitTimeMillsInSendQueue waitTimeMillsInPullQueue
        waitTimeMillsInLitePullQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInTransactionQueue
        waitTimeMillsInAdminBrokerQueue startAcceptSendRequestTimeStamp disableConsumeIfConsumerReadSlowly
        consumerFallbehindThreshold storeReplyMessageEnable rejectTransactionMessage longPollingEnable
        shortPollingTimeMills slaveReadEnable litePullMessageEnable rejectPullConsumerEnable
        notifyConsumerIdsChangedEnable realTimeNotifyConsumerChange useServerSideResetOffset lockInStrictMode
        enableBroadcastOffsetStore broadcastOffsetExpireSecond broadcastOffsetExpireMaxSecond
        flushConsumerOffsetInterval channelExpiredTimeout subscriptionExpiredTimeout enableRegisterProducer
        enablePropertyFilter enableCalcFilterBitMap filterDataCleanTimeSpan filterSupportRetry transactionTimeOut
        transactionCheckMax transactionCheckInterval transactionMetricFlushInterval transactionOpMsgMaxSize
        transactionOpBatchInterval enableDetailStat enableScheduleMessageStats autoDeleteUnusedStats
        maxStatsIdleTimeInMinutes stagedMessageTimeOut stagedWriterReservedDays
        dataReadAheadEnable maxMessageSize maxFilterMessageSize osPageCacheBusyTimeOutMills
        autoMessageVersionOnTopicLen flushIntervalCommitLog flushCommitLogLeastPages flushCommitLogThoroughInterval
        syncFlushTimeout flushIntervalConsumeQueue flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval
        cleanResourceInterval deleteWhen fileReservedTime deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval
        deleteFileBatchMax redeleteHangedFileInterval diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio
        diskSpaceWarningLevelRatio diskSpaceEnoughFreeBytes cleanFileForciblyEnable replicasPerDiskPartition
        logicalDiskSpaceCleanForciblyThreshold maxMsgsNumBatch defaultQueryMaxNum maxTransferBytesOnMessageInMemory
        maxTransferCountOnMessageInMemory maxTransferBytesOnMessageInDisk maxTransferCountOnMessageInDisk
        accessMessageInMemoryMaxRatio travelCqFileNumWhenGetMessage diskFallRecorded flushDelayOffsetInterval
        maxLmqConsumeQueueNum totalReplicas haSendHeartbeatInterval haHousekeepingInterval haTransferBatchSize
        haMaxGapNotInSync slaveTimeout inSyncReplicas minInSyncReplicas enableAutoInSyncReplicas haFlowControlEnable
        maxHaTransferByteInSecond syncFromLastFile haSlaveCutMax haSlaveCutKeepMax offsetCheckInSlave logLevels
        """
    )
)
"""Keys whose changes take effect at once."""


def _ranges() -> Iterator[tuple[str, Range]]:
    for text, least, most in (
        # Counts, and times that are no intervals.
        (
            """
            sendThreadPoolQueueCapacity waitTimeMillsInSendQueue waitTimeMillsInPullQueue waitTimeMillsInLitePullQueue
            waitTimeMillsInHeartbeatQueue waitTimeMillsInTransactionQueue waitTimeMillsInAdminBrokerQueue
            shortPollingTimeMills broadcastOffsetExpireSecond broadcastOffsetExpireMaxSecond syncBrokerMemberGroupPeriod
            transactionTimeOut transactionCheckMax osPageCacheBusyTimeOutMills flushCommitLogLeastPages
            flushCommitLogThoroughInterval flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval
            fileReservedTime deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval redeleteHangedFileInterval
            maxLmqConsumeQueueNum stagedWriterReservedDays reviveQueueNum
            """,
            0,
            INT_MAX,
        ),
        (
            """
            startAcceptSendRequestTimeStamp consumerFallbehindThreshold diskSpaceEnoughFreeBytes haSlaveCutMax
            haSlaveCutKeepMax
            """,
            0,
            LONG_MAX,
        ),
        (
            """
            deleteFileBatchMax replicasPerDiskPartition maxMsgsNumBatch defaultQueryMaxNum
            maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInMemory maxTransferBytesOnMessageInDisk
            maxTransferCountOnMessageInDisk travelCqFileNumWhenGetMessage totalReplicas syncFlushTimeout
            consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep connectTimeoutMillis
            serverChannelMaxIdleTimeSeconds expectConsumerNumUseFilter flushIntervalCommitLog
            registerBrokerTimeoutMills channelExpiredTimeout subscriptionExpiredTimeout filterDataCleanTimeSpan
            stagedMessageTimeOut transactionOpMsgMaxSize registerNameServerPeriod slaveTimeout inSyncReplicas
            minInSyncReplicas maxHaTransferByteInSecond haMaxGapNotInSync
            """,
            1,
            INT_MAX,
        ),
        # Intervals of repeated work.
        (
            """
            flushConsumerOffsetInterval transactionCheckInterval transactionMetricFlushInterval
            transactionOpBatchInterval flushIntervalConsumeQueue cleanResourceInterval flushDelayOffsetInterval
            fetchNamesrvAddrInterval updateNameServerAddrPeriod
            """,
            SHORTEST_INTERVAL_MS,
            INT_MAX,
        ),
        ("haSendHeartbeatInterval haHousekeepingInterval", 100, INT_MAX),
        ("dLegerHeartBeatTimeIntervalMs dLegerMinVoteIntervalMs dLegerMaxVoteIntervalMs", 20, 3_600_000),
        ("dLegerMaxHeartBeatLeak", 1, 1000),
        # RocketMQ's slaves read into a buffer of 4 MiB.
        ("haTransferBatchSize", 1024, 4_000_000),
        ("maxFilterMessageSize", 20, INT_MAX),
        ("brokerPermission", 0, 7),
        ("brokerId", -1, LONG_MAX),
        ("defaultTopicQueueNums", 1, 65_535),
        (" ".join(sorted(_LIMITS)), 1, INT_MAX),
        ("maxStatsIdleTimeInMinutes disappearTimeAfterStart", -1, INT_MAX),
        ("listenPort", 0, 65_535),
        ("haListenPort", 0, 65_536),
        ("maxMessageSize", 10, INT_MAX),
        ("mappedFileSizeCommitLog", 1024, INT_MAX),
        ("mappedFileSizeConsumeQueue", 1, INT_MAX - 20),
        ("mapperFileSizeBatchConsumeQueue", 1, INT_MAX - 46),
        ("mappedFileSizeConsumeQueueExt", 64, INT_MAX),
        ("maxHashSlotNum", 1, 500_000_000),
        ("maxIndexNum", 2, 100_000_000),
        ("maxErrorRateOfBloomFilter", 1, 99),
        ("lingerMicros", 0, 100_000),
        ("diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio", 0, 100),
        ("accessMessageInMemoryMaxRatio", 0, 100),
        ("logicalDiskSpaceCleanForciblyThreshold", 0, 1),
    ):
        for key in text.split():
            yield key, (least, most)


def _across(values: Mapping[str, str]) -> Iterable[SettingProblem]:
    for key, parse in (("deleteWhen", parse_hours), ("messageDelayLevel", parse_delay_levels)):
        try:
            parse(values[key])
        except ValueError as error:
            yield SettingProblem(key, values[key], str(error).partition(": ")[2] or "cannot be read")
    if not values["messageDelayLevel"].split():
        yield SettingProblem("messageDelayLevel", "", "give one level at least, as in 1s 5s 10s")
    try:
        TrustedProxies.parse(values["proxyProtocolTrusted"])
    except ConfigError as error:
        yield SettingProblem("proxyProtocolTrusted", values["proxyProtocolTrusted"], str(error).partition(": ")[2])
    if values["namesrvAddr"].strip():
        try:
            name_server_addresses(values["namesrvAddr"])
        except ConfigError as error:
            yield SettingProblem("namesrvAddr", values["namesrvAddr"], "; ".join(error.texts))
    if not values["brokerName"].strip():
        yield SettingProblem("brokerName", "", "give it a name, or remove the key for this machine's")
    yield from auth_problems(values)
    yield from (SettingProblem(*problem) for problem in metrics_problems(values))
    try:
        parse_addresses(values[METRICS_KEY])
    except ConfigError as error:
        yield SettingProblem(METRICS_KEY, values[METRICS_KEY], str(error).partition(": ")[2])
    yield from level_problems(values)
    yield from contradictions(values)


RULES: Final = Rules(
    "broker",
    AT_ONCE | {key for keys in IGNORED.values() for key in keys} - {key for keys in FIXED.values() for key in keys},
    FIXED,
    dict(_ranges()) | RANGES_OF_METRICS,
    {
        "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH"),
        "brokerRole": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
        **CHOICES_OF_METRICS,
    },
    _across,
    frozenset(FIXED["it is read at the start only"]),
)
"""Rules for the values of a broker's and its store's settings."""
