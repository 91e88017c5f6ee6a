"""Sub-commands of Apache's mqadmin that are not supported, each with the reason and the alternative. Pure."""

from __future__ import annotations

from typing import Final

_STATIC: Final = (
    "static topics are of RocketMQ 5 and not served here: make a plain topic with updateTopic, or use Apache's mqadmin "
    "for a cluster of Apache's"
)
_ROCKSDB: Final = (
    "the files are RocksDB's, which neither Tianzhou's store nor this tool uses: exportMetadata writes topics and "
    "groups as JSON, and Apache's mqadmin reads RocksDB"
)
_CONTROLLER: Final = (
    "Tianzhou has no controllers, its DLedger groups elect their leaders themselves: see them with clusterList and "
    "tianzhou broker list, or use Apache's mqadmin for a controller of Apache's"
)
UNSUPPORTED: Final = {
    "updateStaticTopic": _STATIC,
    "remappingStaticTopic": _STATIC,
    "exportMetadataInRocksDB": _ROCKSDB,
    "rocksDBConfigToJson": _ROCKSDB,
    "getSyncStateSet": _CONTROLLER,
    "getControllerMetaData": _CONTROLLER,
    "getControllerConfig": _CONTROLLER,
    "updateControllerConfig": _CONTROLLER,
    "electMaster": _CONTROLLER,
    "cleanBrokerMetadata": _CONTROLLER,
}
"""Reasons by the name of the sub-command."""
SUMMARY: Final = "Not supported by Tianzhou."


def refusal(name: str) -> str:
    """Return the error of an unsupported sub-command in the form of Apache's tools. Scripts search for the code.

    Args:
        name: one of `UNSUPPORTED`.
    """
    return f"CODE: 3  DESC: {name} is not supported: {UNSUPPORTED[name]}"
