"""Differences of our mqadmin and our servers from Apache's: the contents of `docs/reference/mqadmin.md`, proved by
tests.

Each direction is a tool at a cluster. When the tool is ours, its answers are compared with those of Apache's 5.3.3 tool
at the same kind of cluster; when the cluster is ours, with the answers that the same tool gets from Apache's 5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

OURS_TO_TIANZHOU, OURS_TO_497, OURS_TO_533 = "ours → Tianzhou", "ours → 4.9.7", "ours → 5.3.3"
APACHE_497, APACHE_533 = "4.9.7 → Tianzhou", "5.3.3 → Tianzhou"
DIRECTIONS: Final = (OURS_TO_TIANZHOU, OURS_TO_497, OURS_TO_533, APACHE_497, APACHE_533)

_OURS: Final = {
    "updateTopic-system": "a system topic is refused before it is sent, with the reason",
    "allocateMQ": "queues are in the order in which consumers share them",
    "queryMsgByUniqueKey-all": "`-a` works; Apache's fails with 208",
    "queryMsgByUniqueKey-consume": "`-g -d` has it consumed; Apache's fails in the same process",
    "brokerConsumeStats-order": "`-o true` works; Apache's fails in the same process",
    "cloneGroupOffset": "copies offsets to a group that is not there yet, where Apache's fails",
    "exportPopRecord": "`-d true` sends no request; Apache's reads it as false",
}
_CODES: Final = "a group that is not there is code 26, as of 5.3.3; of 4.9.7 Apache's says 1"
_NEWER: Final = "works; Apache's 5.3.3 asks in a way that 4.9.7 does not know"

DIFFERENCES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        OURS_TO_TIANZHOU: _OURS,
        OURS_TO_533: _OURS,
        OURS_TO_497: _OURS
        | dict.fromkeys(
            (
                "topicStatus", "consumerProgress", "consumerProgress-topic", "consumerProgress-clients", "queryMsgById",
                "queryMsgByUniqueKey", "queryMsgByOffset",
            ),
            _NEWER,
        )
        | dict.fromkeys(
            (
                "resetOffsetByTime-offline", "resetOffsetByTime-now", "resetOffsetByTime-queue",
                "resetOffsetByTime-nobody", "skipAccumulatedMessage",
            ),
            _CODES,
        )
        | {"exportMetrics": "works; Apache's 5.3.3 fails at a figure that 4.9.7 does not have"},
        APACHE_533: {
            "setConsumeMode": "POP is not served: code 3",
            "exportPopRecord": "POP is not served: code 3",
        },
        APACHE_497: {
            "clusterList": "works; at Apache's 5.3.3 it fails at a figure that is spelled otherwise there",
            "exportMetrics": "works; at Apache's 5.3.3 it fails at a figure that is spelled otherwise there",
        },
    }
)  # fmt: skip
"""Names of `mqadmin_commands.COMMANDS` with different answers, and the reasons, by direction."""

_POLICY: Final = "passwords are never shown"
_SECRETS: Final = "secrets are never shown"
_COPIED: Final = "not there: Tianzhou's brokers never show a password, so there is nothing to copy"
ACCESS_DIFFERENCES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        OURS_TO_533: {"getUser": _POLICY, "listUser": _POLICY},
        OURS_TO_TIANZHOU: {"getUser": _POLICY, "listUser": _POLICY, "copyUser": _COPIED},
        APACHE_533: {"getUser": _POLICY, "listUser": _POLICY},
        OURS_TO_497: {"getAclConfig": _SECRETS},
        APACHE_497: {"getAclConfig": _SECRETS},
    }
)
"""The same for sub-commands about users and accounts (`test_mqadmin_users.py`), by sub-command."""

NOT_IN_497: Final = frozenset(
    {
        "addBroker",
        "checkRocksdbCqWriteProgress",
        "cleanBrokerMetadata",
        "copyAcl",
        "copyUser",
        "createAcl",
        "createUser",
        "deleteAcl",
        "deleteUser",
        "dumpCompactionLog",
        "electMaster",
        "exportMetadataInRocksDB",
        "exportPopRecord",
        "getAcl",
        "getBrokerEpoch",
        "getColdDataFlowCtrInfo",
        "getControllerConfig",
        "getControllerMetaData",
        "getSyncStateSet",
        "getUser",
        "haStatus",
        "listAcl",
        "listUser",
        "remappingStaticTopic",
        "removeBroker",
        "removeColdDataFlowCtrGroupConfig",
        "resetMasterFlushOffset",
        "rocksDBConfigToJson",
        "setCommitLogReadAheadMode",
        "setConsumeMode",
        "updateAcl",
        "updateColdDataFlowCtrGroupConfig",
        "updateControllerConfig",
        "updateStaticTopic",
        "updateSubGroupList",
        "updateTopicList",
        "updateUser",
    }
)
"""Sub-commands missing in Apache's 4.9.7 tool."""
ONLY_IN_497: Final = frozenset(
    {"updateAclConfig", "deleteAclConfig", "updateGlobalWhiteAddr", "clusterAclConfigVersion", "getAclConfig"}
)
"""Sub-commands only in Apache's 4.9.7 tool."""


def differs(direction: str, name: str) -> bool:
    """Whether the answer to a command is known to differ."""
    return name in DIFFERENCES[direction]
