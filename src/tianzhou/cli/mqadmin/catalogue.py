"""All sub-commands by family, so that a sub-command is found without importing the other families."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from tianzhou.cli.mqadmin.subcommand import Subcommand, Values, nearest
from tianzhou.cli.mqadmin.unsupported import SUMMARY, UNSUPPORTED, refusal
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.cli.mqadmin.answers import Answer

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
    "replication": "haStatus addBroker removeBroker",
    "exports": "exportMetadata exportConfigs exportMetrics exportPopRecord",
    "users": """createUser updateUser deleteUser getUser listUser copyUser createAcl updateAcl deleteAcl getAcl listAcl
        copyAcl""",
    "accounts": "updateAclConfig deleteAclConfig updateGlobalWhiteAddr clusterAclConfigVersion getAclConfig",
}
"""Names of supported sub-commands by module."""


def all_names() -> list[str]:
    """Return the names of all sub-commands, in the order of their families. Unsupported ones come last."""
    return [*(name for names in FAMILIES.values() for name in names.split()), *UNSUPPORTED]


def every() -> list[Subcommand]:
    """Return all sub-commands."""
    return [find(name) for name in all_names()]


async def _refuse(admin: Admin, values: Values) -> Answer:
    del admin
    raise ConfigError(refusal(values.command))


def find(name: str) -> Subcommand:
    """Return the sub-command of a name in any case. An unsupported one has no options.

    Raises:
        ConfigError: there is no such sub-command. The error contains the most similar name.
    """
    for module, names in FAMILIES.items():
        for known in names.split():
            if known.lower() == name.lower():
                commands: tuple[Subcommand, ...] = import_module(f"tianzhou.cli.mqadmin.families.{module}").COMMANDS
                return next(one for one in commands if one.name == known)
    for known, reason in UNSUPPORTED.items():
        if known.lower() == name.lower():
            return Subcommand(known, SUMMARY, "", _refuse, remark=f"Not supported: {reason}.", alone=True)
    near = nearest(name, all_names())
    hint = f"did you mean {near}?" if near else "all are listed by: mqadmin"
    raise ConfigError(f"there is no sub-command {name!r}; {hint}")
