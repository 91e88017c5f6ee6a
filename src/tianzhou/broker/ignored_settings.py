"""RocketMQ's broker settings that are accepted, saved and shown without effect, and the reasons.

A server with one of them in its configuration logs this once (`tianzhou.settings.ignored_lines`).
docs/reference/settings.md lists all keys with their effect.
"""

from __future__ import annotations

from typing import Final

from tianzhou.access.settings import IGNORED as IGNORED_OF_ACCESS


def _keys(text: str) -> tuple[str, ...]:
    return tuple(text.split())


IGNORED: Final[dict[str, tuple[str, ...]]] = {
    "one event loop serves everything, there are no pools of threads or buffers to size": _keys(
        """
        sendMessageThreadPoolNums putMessageFutureThreadPoolNums putThreadPoolQueueCapacity pullMessageThreadPoolNums
        pullThreadPoolQueueCapacity litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
        ackMessageThreadPoolNums ackThreadPoolQueueCapacity processReplyMessageThreadPoolNums
        replyThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
        adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity clientManageThreadPoolNums
        clientManagerThreadPoolQueueCapacity consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
        loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity heartbeatThreadPoolNums
        heartbeatThreadPoolQueueCapacity endTransactionThreadPoolNums endTransactionPoolQueueCapacity
        recoverThreadPoolNums recoverConcurrently asyncSendEnable transferMsgByHeap enableFastChannelEventProcess
        serverWorkerThreads serverCallbackExecutorThreads serverSelectorThreads serverOnewaySemaphoreValue
        serverAsyncSemaphoreValue serverNettyWorkerGroupEnable serverPooledByteBufAllocatorEnable
        useEpollNativeSelector clientWorkerThreads clientCallbackExecutorThreads clientOnewaySemaphoreValue
        clientAsyncSemaphoreValue clientPooledByteBufAllocatorEnable disableCallbackExecutor disableNettyWorkerGroup
        maxAsyncPutMessageRequests enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit
        scheduleAsyncDeliverMaxResendNum2Blocked enableBuildConsumeQueueConcurrently
        batchDispatchRequestThreadPoolNums useReentrantLockWhenPutMessage useABSLock topicQueueLockNum
        spinLockCollisionRetreatOptimalDegree
        """
    ),
    "sockets keep the system's sizes, and who does not read is always waited for": _keys(
        """
        serverSocketSndBufSize serverSocketRcvBufSize serverSocketBacklog writeBufferHighWaterMark
        writeBufferLowWaterMark clientSocketSndBufSize clientSocketRcvBufSize clientCloseSocketIfTimeout
        channelNotActiveInterval clientChannelMaxIdleTimeSeconds socksProxyConfig enableNetWorkFlowControl
        enableReconnectForGoAway maxReconnectIntervalTimeSeconds enableShutdownGracefully shutdownWaitTimeSeconds
        isScanAvailableNameSrv
        """
    ),
    "it steers the Java program: its folder, logs, classes and containers": _keys(
        """
        messageStorePlugIn isolateLogEnable printChannelGroups printChannelGroupsMinNum debugLockEnable
        isBrokerContainer isInBrokerContainer configManagerVersion
        """
    ),
    "RocketMQ 5.3.3 does nothing with it either": _keys(
        """
        flushConsumerOffsetHistoryInterval cleanOfflineBrokerInterval enableCleanExpiredOffset highSpeedMode
        maxTopicLength pullBatchMaxMessageCount dispatchFromSenderThread maxSlaveResendLength mappedFileSwapEnable
        commitLogSwapMapInterval commitLogForceSwapMapInterval commitLogSwapMapReserveFileNum
        logicQueueSwapMapInterval logicQueueForceSwapMapInterval logicQueueSwapMapReserveFileNum
        cleanSwapedMapInterval maxRecoveryCommitlogFiles dispatchCqThreads dispatchCqCacheNum enableAsyncReput
        maxBatchDeleteFilesNum putMsgIndexHightWater bitMapLengthConsumeQueueExt putMessageTimeout
        """
    ),
    "messages go into the mapped file at once, and pages are prepared ahead in any case": _keys(
        """
        transientStorePoolEnable transientStorePoolSize fastFailIfNoBufferInStorePool commitIntervalCommitLog
        commitCommitLogLeastPages commitCommitLogThoroughInterval wakeCommitWhenPutMessage warmMapedFileEnable
        flushLeastPagesWhenWarmMapedFile putConsumeQueueDataByFileChannel
        """
    ),
    "the store goes about flushing, deleting and replaying in its own way": _keys(
        """
        flushCommitLogTimed wakeFlushWhenPutMessage destroyMapedFileIntervalForcibly recheckReputOffsetFromCq
        readUnCommitted messageIndexSafe searchBcqByCacheEnable correctLogicMinOffsetForceInterval
        correctLogicMinOffsetSleepInterval
        """
    ),
    "acting masters and controllers are not built": _keys(
        """
        brokerHeartbeatInterval sendHeartbeatTimeoutMillis brokerNotActiveTimeoutMillis compatibleWithOldNameSrv
        enableSlaveActingMaster enableRemoteEscape skipPreOnline enableControllerMode controllerAddr
        fetchControllerAddrByDnsLookup syncBrokerMetadataPeriod checkSyncStateSetPeriod syncControllerMetadataPeriod
        controllerHeartBeatTimeoutMills brokerElectionPriority duplicationEnable
        allAckInSyncStateSet haMaxTimeSlaveNotCatchup syncMasterFlushOffsetWhenStartup maxChecksumRange asyncLearner
        storePathEpochFile storePathBrokerIdentity
        """
    ),
    "reads of cold data are not held back, they wait beside the loop": _keys(
        """
        coldDataFlowControlEnable coldDataScanEnable timerColdDataCheckIntervalMs sampleSteps coldCtrStrategyEnable
        usePIDColdCtrStrategy cgColdReadThreshold globalColdReadThreshold accessMessageInMemoryHotRatio
        """
    ),
    "POP consumption and shares decided by the broker (5.x) are not built": _keys(
        """
        popPollingSize popPollingMapSize maxPopPollingSize reviveInterval reviveMaxSlow reviveScanTime
        enableSkipLongAwaitingAck reviveAckWaitMs enablePopLog enablePopBufferMerge popCkStayBufferTime
        popCkStayBufferTimeOut popCkMaxBufferSize popCkOffsetMaxQueueSize enablePopBatchAck
        popLongPollingForceNotifyInterval initPopOffsetByCheckMsgInMem enableRetryTopicV2
        retrieveMessageFromPopRetryTopicV1 popFromRetryProbability popResponseReturnActualRetryTopic
        enablePopMessageThreshold popInflightMessageThreshold skipWhenCKRePutReachMaxTimes appendAckAsync
        appendCkAsync popConsumerKVServiceInit popConsumerKVServiceEnable popConsumerKVServiceLog
        popConsumerFSServiceInit popReviveMaxReturnSizePerRead popReviveMaxAttemptTimes
        enableNotifyBeforePopCalculateLag enableNotifyAfterPopOrderLockRelease waitTimeMillsInAckQueue
        serverLoadBalancerEnable defaultMessageRequestMode defaultPopShareQueueNum
        loadBalancePollNameServerInterval
        """
    ),
    "timers of any length and the recall of messages (5.x) are not built": _keys(
        """
        timerPrecisionMs timerRollWindowSlot timerMaxDelaySec mappedFileSizeTimerLog timerFlushIntervalMs
        timerGetMessageThreadNum timerPutMessageThreadNum timerCongestNumEachSlot timerStopEnqueue timerStopDequeue
        timerSkipUnknownError timerEnableRetryUntilSuccess timerWarmEnable timerCheckMetricsWhen
        timerEnableCheckMetrics timerMetricSmallThreshold timerEnableDisruptor timerInterceptDelayLevel
        timerProgressLogIntervalMs recallMessageEnable allowRecallWhenBrokerNotWriteable
        """
    ),
    "compaction topics and static topics (5.x) are not built": _keys(
        """
        enableCompaction compactionMappedFileSize compactionCqMappedFileSize compactionScheduleInternal
        compactionThreadNum maxOffsetMapSize forwardTimeout useStaticSubscription enableSplitRegistration
        splitRegistrationSize enableSingleTopicRegister
        """
    ),
    "the store is RocketMQ's default one, without RocksDB": _keys(
        """
        storeType bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin enableRocksDBLog
        memTableFlushIntervalMs realTimePersistRocksDBConfig rocksdbCompressionType rocksdbCQDoubleWriteEnable
        rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec
        """
    ),
    "no account is charged, and lags are counted, not estimated (5.x)": _keys(
        """
        accountStatsEnable accountStatsPrintZeroValues enableLmqStats commercialBaseCount commercialSizePerMsg
        estimateAccumulation maxConsumeQueueScan sampleCountThreshold
        """
    ),
    **IGNORED_OF_ACCESS,
}
"""Keys of a broker and its store without effect, by the reason."""
