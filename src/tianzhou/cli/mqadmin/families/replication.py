"""Copies of a log, and broker containers of RocketMQ 5 (client.md §23.7)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from tianzhou.cli.mqadmin.answers import Answer, Table, done, moment
from tianzhou.cli.mqadmin.families.cluster import INTERVAL, repeated
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import ONE_TARGET, TARGET, addresses
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.wire.bodies.replication import HaStatus

_SLAVES = Table(
    "%-32s  %-16s %16s %16s %16s %16s",
    "#SlaveAddr|#SlaveAckOffset|#Diff|#TransferSpeed(KB/s)|#Status|#TransferFromWhere",
    "%-32s  %-16d %16d %16.2f %16s %16d",
)


def ha_status(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    """Show the progress of the copies of a log."""

    async def once() -> Answer:
        from dataclasses import asdict

        texts, value = [], {}
        for address in await addresses(admin, values):
            status = await admin.cluster.copies(address)
            value[address] = asdict(status)
            texts.append(_ha_text(address, status))
        return Answer("\n".join(texts), value)

    return repeated(values, once)


def _ha_text(address: str, status: HaStatus) -> str:
    if not status.master:
        client = status.ha_client_runtime_info
        lines = {
            "#MasterAddr": client.master_addr,
            "#CommitLogMaxOffset": client.max_offset,
            "#TransferSpeed(KB/s)": f"{client.transferred_byte_in_second / 1024:.2f}",
            "#LastReadTime": moment(client.last_read_timestamp),
            "#LastWriteTime": moment(client.last_write_timestamp),
            "#MasterFlushOffset": client.master_flush_offset,
        }
        return "\n".join(f"{name}\t{text}" for name, text in lines.items())
    connections = sorted(status.ha_connection_info, key=lambda one: one.addr)
    head = {
        "#MasterAddr": address,
        "#MasterCommitLogMaxOffset": status.master_commit_log_max_offset,
        "#SlaveNum": len(connections),
        "#InSyncSlaveNum": status.in_sync_slave_nums,
    }
    rows = [
        (
            one.addr, one.slave_ack_offset, one.diff, one.transferred_byte_in_second / 1024,
            "OK" if one.in_sync else "Fall Behind", one.transfer_from_where,
        )
        for one in connections
    ]  # fmt: skip
    return "\n".join([*(f"{name}\t{text}" for name, text in head.items()), _SLAVES.text(rows)])


# --- containers ----------------------------------------------------------------------------------------------


async def add_broker(admin: Admin, values: Values) -> Answer:
    """Request that a container starts a broker."""
    container, path = values.get("brokerContainerAddr"), values.get("brokerConfigPath")
    await admin.servers.add_to_container(container, path)
    return done(f"add broker to {container} success", container=container, config_path=path)


async def remove_broker(admin: Admin, values: Values) -> Answer:
    """Request that a container stops a broker."""
    container, identity = values.get("brokerContainerAddr"), values.get("brokerIdentity")
    parts = identity.split(":")
    if len(parts) != 3 or not parts[2].isdecimal():
        raise ConfigError(f"--brokerIdentity {identity}: write it as clusterName:brokerName:brokerId")
    await admin.servers.remove_from_container(container, parts[0], parts[1], int(parts[2]))
    return done(f"remove broker from {container} success", container=container, broker=identity)


_CONTAINER = Option("c", "brokerContainerAddr", "The container, host:port.", required=True)
_BOX = "Needs a broker container of RocketMQ 5; of Tianzhou, `tianzhou serve --brokers` runs several brokers."

COMMANDS = (
    Subcommand(
        "haStatus",
        "Show how far the slaves of a master are, or how far a slave is.",
        "-b 127.0.0.1:10911",
        ha_status,
        (*TARGET, INTERVAL),
        one_of=ONE_TARGET,
        first_wins=True,
    ),
    Subcommand(
        "addBroker",
        "Have a broker container start one more broker.",
        "-c 127.0.0.1:10811 -b /etc/rocketmq/broker-b.conf",
        add_broker,
        (_CONTAINER, Option("b", "brokerConfigPath", "Its configuration, on the container's machine.", required=True)),
        remark=_BOX,
    ),
    Subcommand(
        "removeBroker",
        "Have a broker container stop one of its brokers.",
        "-c 127.0.0.1:10811 -b DefaultCluster:broker-b:0",
        remove_broker,
        (_CONTAINER, Option("b", "brokerIdentity", "clusterName:brokerName:brokerId.", required=True)),
        remark=_BOX,
    ),
)
