"""Copies and who leads: HA, controllers and broker containers of RocketMQ 5 (client.md §23.7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from tianzhou.cli.mqadmin import java_text
from tianzhou.cli.mqadmin.answers import Answer, Table, done, moment
from tianzhou.cli.mqadmin.families.brokers import settings_text
from tianzhou.cli.mqadmin.families.cluster import INTERVAL, repeated
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import CLUSTER, ONE_TARGET, TARGET, addresses
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
    """Show how far the copies of a log are."""

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


# --- controllers ---------------------------------------------------------------------------------------------


def get_sync_state_set(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    """Show which brokers are in sync with their masters."""

    async def once() -> Answer:
        name, cluster = values.optional("brokerName"), values.optional("clusterName")
        names = [name] if name else sorted(await admin.cluster.masters(cluster))
        leader = await admin.controllers.leader(values.get("controllerAddress"))
        found = await admin.controllers.sync_states(leader, names)
        return Answer("\n".join(sync_state_text(broker, one) for broker, one in found.items()), found)

    return repeated(values, once)


def sync_state_text(broker: str, one: Mapping[str, Any]) -> str:
    """Return the sync state set of a broker name, in the form of Apache's tool.

    Args:
        broker: name of the broker.
        one: the JSON object that a controller sends for it.
    """
    head = {
        "#brokerName": broker,
        "#MasterBrokerId": java_text.text(one.get("masterBrokerId")),
        "#MasterAddr": java_text.text(one.get("masterAddress")),
        "#MasterEpoch": java_text.text(one.get("masterEpoch")),
        "#SyncStateSetEpoch": java_text.text(one.get("syncStateSetEpoch")),
        "#SyncStateSetNums": len(one.get("inSyncReplicas") or ()),
    }
    lines = ["", *(f"{name}\t{value}" for name, value in head.items())]
    for title, key in (("InSyncReplica", "inSyncReplicas"), ("NotInSyncReplica", "notInSyncReplicas")):
        for replica in one.get(key) or ():
            lines += ["", f"{title}:\t{java_text.replica(replica)}"]
    return "\n".join(lines)


async def get_controller_metadata(admin: Admin, values: Values) -> Answer:
    """Show a controller's group and leader."""
    found = await admin.controllers.metadata(values.get("controllerAddress"))
    lines = [
        f"\n#ControllerGroup\t{found['group']}",
        f"#ControllerLeaderId\t{found['controllerLeaderId']}",
        f"#ControllerLeaderAddress\t{found['controllerLeaderAddress']}",
        *(f"#Peer:\t{peer}" for peer in (found["peers"] or "").split(";") if peer),
    ]
    return Answer("\n".join(lines), found)


async def get_controller_config(admin: Admin, values: Values) -> Answer:
    """Show the settings of controllers."""
    found = {one: await admin.controllers.config(one) for one in values.listed("controllerAddress", ";")}
    blocks = [f"============{address}============\n{settings_text(one)}" for address, one in found.items()]
    return Answer("\n".join(blocks), found)


async def update_controller_config(admin: Admin, values: Values) -> Answer:
    """Change a setting of controllers."""
    key, value, controllers = values.get("key"), values.get("value"), values.listed("controllerAddress", ";")
    for address in controllers:
        await admin.controllers.update_config(address, {key: value})
    text = f"update controller config success![{', '.join(controllers)}]\n{key} : {value}"
    return done(text, controllers=controllers, changed={key: value})


async def elect_master(admin: Admin, values: Values) -> Answer:
    """Make a broker the master of its name."""
    cluster, name, broker_id = values.get("clusterName"), values.get("brokerName"), values.number("brokerId")
    leader = await admin.controllers.leader(values.get("controllerAddress"))
    found = await admin.controllers.elect(leader, cluster, name, broker_id)
    lines = [
        f"\n#ClusterName\t{cluster}",
        f"#BrokerName\t{name}",
        f"#BrokerMasterAddr\t{found['masterAddress']}",
        f"#MasterEpoch\t{found['masterEpoch']}",
        f"#SyncStateSetEpoch\t{found['syncStateSetEpoch']}",
    ]
    members = (found.get("brokerMemberGroup") or {}).get("brokerAddrs") or {}
    lines += [f"\t#Broker\t{one}\t{address}" for one, address in members.items()]
    return Answer("\n".join(lines), found)


async def clean_broker_metadata(admin: Admin, values: Values) -> Answer:
    """Have a controller forget brokers."""
    name, living = values.get("brokerName"), values.truth("cleanLivingBroker")
    if not living and not values.optional("clusterName"):
        raise ConfigError("--clusterName is missing; it may be left out with --cleanLivingBroker only")
    leader = await admin.controllers.leader(values.get("controllerAddress"))
    ids = values.optional("brokerControllerIdsToClean")
    await admin.controllers.clean(leader, name, values.optional("clusterName"), ids, living)
    return done(f"clear broker {name} metadata from controller success!", broker_name=name, broker_ids=ids)


# --- containers ----------------------------------------------------------------------------------------------


async def add_broker(admin: Admin, values: Values) -> Answer:
    """Have a container start one more broker."""
    container, path = values.get("brokerContainerAddr"), values.get("brokerConfigPath")
    await admin.servers.add_to_container(container, path)
    return done(f"add broker to {container} success", container=container, config_path=path)


async def remove_broker(admin: Admin, values: Values) -> Answer:
    """Have a container stop one of its brokers."""
    container, identity = values.get("brokerContainerAddr"), values.get("brokerIdentity")
    parts = identity.split(":")
    if len(parts) != 3 or not parts[2].isdecimal():
        raise ConfigError(f"--brokerIdentity {identity}: write it as clusterName:brokerName:brokerId")
    await admin.servers.remove_from_container(container, parts[0], parts[1], int(parts[2]))
    return done(f"remove broker from {container} success", container=container, broker=identity)


_CONTROLLER = Option("a", "controllerAddress", "The controller, host:port.", required=True)
_CONTROLLERS = Option("a", "controllerAddress", "Controllers, host:port, joined by ';'.", required=True)
_CONTAINER = Option("c", "brokerContainerAddr", "The container, host:port.", required=True)
_NAME = Option("bn", "brokerName", "Name of the broker.", required=True)
_WORDS = "Needs a controller of RocketMQ 5; Tianzhou has none, its DLedger groups elect their leaders themselves."
_BOX = "Needs a broker container of RocketMQ 5; of Tianzhou, `tianzhou serve --brokers` runs several brokers."
_EXAMPLE = "-a 127.0.0.1:9878"


def _controller(name: str, summary: str, example: str, work: Any, *options: Option, **more: Any) -> Subcommand:
    return Subcommand(name, summary, f"{_EXAMPLE}{example}", work, options, remark=_WORDS, **more)


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
    _controller(
        "getSyncStateSet",
        "Show which brokers are in sync with their masters, as a controller knows it.",
        " -b broker-a",
        get_sync_state_set,
        _CONTROLLER,
        CLUSTER,
        Option("b", "brokerName", "Name of the broker."),
        INTERVAL,
        one_of=("brokerName", "clusterName"),
        first_wins=True,
    ),
    _controller(
        "getControllerMetaData", "Show a controller's group and its leader.", "", get_controller_metadata, _CONTROLLER
    ),
    _controller("getControllerConfig", "Show the settings of controllers.", "", get_controller_config, _CONTROLLERS),
    _controller(
        "updateControllerConfig",
        "Change a setting of controllers.",
        " -k scanNotActiveBrokerInterval -v 5000",
        update_controller_config,
        _CONTROLLERS,
        Option("k", "key", "The setting.", required=True),
        Option("v", "value", "Its value.", required=True),
    ),
    _controller(
        "electMaster",
        "Make a broker the master of its name.",
        " -c DefaultCluster -bn broker-a -b 2",
        elect_master,
        _CONTROLLER,
        Option("b", "brokerId", "Id of the broker at the controller.", required=True),
        _NAME,
        Option("c", "clusterName", "Its cluster.", required=True),
    ),
    _controller(
        "cleanBrokerMetadata",
        "Have a controller forget brokers.",
        " -bn broker-a -c DefaultCluster -b 2",
        clean_broker_metadata,
        _CONTROLLER,
        Option("b", "brokerControllerIdsToClean", "Ids of brokers, joined by ';'; all when not given."),
        _NAME,
        Option("c", "clusterName", "Their cluster."),
        Option("l", "cleanLivingBroker", "Also those that are alive.", flag=True),
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
