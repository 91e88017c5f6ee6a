"""Replication as administrators look at it (907), and the limits of groups that read old messages (2003)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tianzhou.wire.bodies.beans import BOOLEAN, INTEGER, TEXT, Bean, list_of, load_object, map_of
from tianzhou.wire.hashing import Octets
from tianzhou.wire.json_dialect import dumps


@dataclass(slots=True)
class HaClient:
    """A replica's connection to its master."""

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
    """How far replicas are (907, wire.md §9.12)."""

    master: bool = True
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HaConnection] = field(default_factory=list)
    ha_client_runtime_info: HaClient = field(default_factory=HaClient)


_CLIENT: Final = Bean(
    HaClient,
    last_read_timestamp=INTEGER,
    last_write_timestamp=INTEGER,
    master_addr=TEXT,
    master_flush_offset=INTEGER,
    max_offset=INTEGER,
    transferred_byte_in_second=INTEGER,
)
_CONNECTION: Final = Bean(
    HaConnection,
    addr=TEXT,
    diff=INTEGER,
    in_sync=BOOLEAN,
    slave_ack_offset=INTEGER,
    transfer_from_where=INTEGER,
    transferred_byte_in_second=INTEGER,
)
_STATUS: Final = Bean(
    HaStatus,
    master=BOOLEAN,
    master_commit_log_max_offset=INTEGER,
    in_sync_slave_nums=INTEGER,
    ha_connection_info=list_of(_CONNECTION.kind),
    ha_client_runtime_info=_CLIENT.kind,
)


def encode_ha_status(status: HaStatus) -> bytes:
    """How far replicas are."""
    return _STATUS.dumps(status)


def decode_ha_status(data: Octets) -> HaStatus:
    """How far replicas are; raises ProtocolError."""
    return _STATUS.loads(data)


@dataclass(slots=True)
class ColdReadLimits:
    """How many bytes a second groups may read that have left the memory (2003); `configs` are those set by request."""

    configs: dict[str, int] = field(default_factory=dict)
    cg_cold_read_threshold: int = 0
    global_cold_read_threshold: int = 0
    global_acc: int = 0


def encode_cold_read_limits(limits: ColdReadLimits) -> bytes:
    """The limits, in the order Apache writes them."""
    members: Mapping[str, object] = {
        "runtimeTable": {},
        "configTable": limits.configs,
        "cgColdReadThreshold": limits.cg_cold_read_threshold,
        "globalColdReadThreshold": limits.global_cold_read_threshold,
        "globalAcc": limits.global_acc,
    }
    return dumps(dict(members), sort_keys=False)


def decode_cold_read_limits(data: Octets) -> ColdReadLimits:
    """The limits; raises ProtocolError."""
    members = load_object(data, "cold read limits")
    numbers = {
        name: INTEGER.read(members.get(member) or 0, f"cold read limits.{member}")
        for name, member in (
            ("cg_cold_read_threshold", "cgColdReadThreshold"),
            ("global_cold_read_threshold", "globalColdReadThreshold"),
            ("global_acc", "globalAcc"),
        )
    }
    return ColdReadLimits(
        map_of(TEXT, INTEGER).read(members.get("configTable") or {}, "cold read limits.configTable"), **numbers
    )
