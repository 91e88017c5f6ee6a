"""Bodies for administrators: state of the replication (907), and limits of groups that read old messages (2003)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tianzhou.wire.bodies.beans import Bean, list_of


@dataclass(slots=True)
class HaClient:
    """A replica's connection to its master.

    Attributes:
        ha_halted: reason why the replica copies nothing until an operator decides; None while it may copy. The member
            is Tianzhou's own.
    """

    ha_halted: str | None = None
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_addr: str | None = None
    master_flush_offset: int = 0
    max_offset: int = 0
    transferred_byte_in_second: int = 0


@dataclass(slots=True)
class HaConnection:
    """A master's connection to one replica."""

    addr: str = ""
    diff: int = 0
    in_sync: bool = False
    slave_ack_offset: int = 0
    transfer_from_where: int = 0
    transferred_byte_in_second: int = 0


@dataclass(slots=True)
class HaStatus:
    """Progress of replicas (907, wire.md §9.12)."""

    master: bool = True
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HaConnection] = field(default_factory=list)
    ha_client_runtime_info: HaClient = field(default_factory=HaClient)


HA_STATUS: Final = Bean(
    HaStatus, ha_connection_info=list_of(Bean(HaConnection).kind), ha_client_runtime_info=Bean(HaClient).kind
)


@dataclass(slots=True)
class ColdReadLimits:
    """Bytes a second that groups may read of messages outside the memory (2003); requests set the ones in `configs`."""

    configs: dict[str, int] = field(default_factory=dict)
    cg_cold_read_threshold: int = 0
    global_cold_read_threshold: int = 0
    global_acc: int = 0


class _ColdReadLimits(Bean[ColdReadLimits]):
    def encode(self, value: ColdReadLimits) -> dict[str, Any]:
        """Return the members in the order in which Apache writes them."""
        members = super().encode(value)
        order = ("configTable", "cgColdReadThreshold", "globalColdReadThreshold", "globalAcc")
        return {"runtimeTable": {}} | {name: members[name] for name in order}


COLD_READ_LIMITS: Final = _ColdReadLimits(ColdReadLimits, {"configs": "configTable"})
