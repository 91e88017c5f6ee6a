"""All sub-commands by the family that has them, so that one is found without importing the others."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tianzhou.cli.mqadmin.subcommand import Subcommand, nearest
from tianzhou.errors import ConfigError

FAMILIES: Final = {
    "topics": """updateTopic updateTopicList deleteTopic updateTopicPerm topicList topicRoute topicStatus
        topicClusterList updateOrderConf allocateMQ""",
    "groups": "updateSubGroup updateSubGroupList deleteSubGroup getConsumerConfig setConsumeMode",
    "offsets": "consumerProgress consumerStatus resetOffsetByTime skipAccumulatedMessage cloneGroupOffset",
    "connections": "consumerConnection producerConnection producer",
    "messages": "queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgByOffset queryMsgTraceById",
    "reading": "printMsg printMsgByQueue consumeMessage dumpCompactionLog",
    "sending": "sendMessage checkMsgSendRT sendMsgStatus",
    "cluster": "clusterList brokerStatus clusterRT",
    "brokers": """getBrokerConfig updateBrokerConfig cleanExpiredCQ cleanUnusedTopic deleteExpiredCommitLog
        brokerConsumeStats resetMasterFlushOffset getBrokerEpoch getColdDataFlowCtrInfo
        updateColdDataFlowCtrGroupConfig removeColdDataFlowCtrGroupConfig setCommitLogReadAheadMode""",
    "name_servers": "getNamesrvConfig updateNamesrvConfig updateKvConfig deleteKvConfig wipeWritePerm addWritePerm",
    "queues": "queryCq checkRocksdbCqWriteProgress",
    "stats": "statsAll",
    "monitoring": "startMonitoring",
    "replication": """haStatus getSyncStateSet getControllerMetaData getControllerConfig updateControllerConfig
        electMaster cleanBrokerMetadata addBroker removeBroker""",
    "exports": "exportMetadata exportConfigs exportMetrics exportPopRecord",
    "users": """createUser updateUser deleteUser getUser listUser copyUser createAcl updateAcl deleteAcl getAcl listAcl
        copyAcl""",
    "accounts": "updateAclConfig deleteAclConfig updateGlobalWhiteAddr clusterAclConfigVersion getAclConfig",
    "not_here": "updateStaticTopic remappingStaticTopic exportMetadataInRocksDB rocksDBConfigToJson",
}
"""Names of sub-commands by module."""


def all_names() -> list[str]:
    """The names of all sub-commands, in the order of their families."""
    return [name for names in FAMILIES.values() for name in names.split()]


def every() -> list[Subcommand]:
    """All sub-commands."""
    return [find(name) for name in all_names()]


def find(name: str) -> Subcommand:
    """The sub-command of a name, whatever the case of its letters.

    Raises:
        ConfigError: there is none; the text names the nearest.
    """
    for module, names in FAMILIES.items():
        for known in names.split():
            if known.lower() == name.lower():
                commands: tuple[Subcommand, ...] = import_module(f"tianzhou.cli.mqadmin.families.{module}").COMMANDS
                return next(one for one in commands if one.name == known)
    near = nearest(name, all_names())
    hint = f"did you mean {near}?" if near else "all are listed by: mqadmin"
    raise ConfigError(f"there is no sub-command {name!r}; {hint}")
