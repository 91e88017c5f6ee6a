"""Brokers: settings, upkeep, statistics, limits (client.md §23.4)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from tianzhou.cli.mqadmin import java_text
from tianzhou.cli.mqadmin.answers import Answer, Table, done, moment, pairs
from tianzhou.cli.mqadmin.families.cluster import INTERVAL, repeated
from tianzhou.cli.mqadmin.families.offsets import last_time
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import BROKER, CLUSTER, ONE_TARGET, TARGET, addresses
from tianzhou.errors import ConfigError, TianzhouError

if TYPE_CHECKING:
    from tianzhou.admin import Admin


def settings_text(values: dict[str, str]) -> str:
    """Return settings as text in the form of Apache's tools, one per line."""
    return "\n".join(pairs(values.items(), 50, "=  "))


async def get_broker_config(admin: Admin, values: Values) -> Answer:
    """Show the settings of brokers."""
    address = values.optional("brokerAddr")
    if address is not None:
        found = await admin.cluster.broker_config(address)
        return Answer(f"============{address}============\n{settings_text(found)}", {address: found})
    info, cluster = await admin.cluster.info(), values.get("clusterName")
    masters = await admin.cluster.masters(cluster)
    blocks, value = [], {}
    for name, master in sorted(masters.items()):
        members = sorted(info.broker_addr_table[name].broker_addrs.items())
        for broker_id, one in members:
            value[one] = await admin.cluster.broker_config(one)
            title = f"Master: {one}" if broker_id == 0 else f"My Master: {master} Slave: {one}"
            blocks.append(f"============{title}============\n{settings_text(value[one])}")
        if len(members) == 1:
            blocks.append(f"============My Master: {master}=====The broker has no slaves============")
    return Answer("\n".join(blocks), value)


async def update_broker_config(admin: Admin, values: Values) -> Answer:
    """Change a setting of running brokers."""
    key, value = values.get("key"), values.get("value")
    changed = await addresses(admin, values, slaves=values.truth("updateAllBroker"))
    lines = []
    for address in changed:
        await admin.cluster.update_broker_config(address, {key: value})
        lines.append(f"update broker config success, {address}")
    return done("\n".join(lines), brokers=changed, changed={key: value})


def _upkeep(name: str) -> Any:
    async def work(admin: Admin, values: Values) -> Answer:
        asked = await addresses(admin, values)
        for address in asked:
            await getattr(admin.servers, name)(address)
        return done("success", brokers=asked, success=True)

    return work


_STATS = Table(
    "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s",
    "#Topic|#Group|#Broker Name|#QID|#Broker Offset|#Consumer Offset|#Diff|#LastTime",
)


async def broker_consume_stats(admin: Admin, values: Values) -> Answer:
    """Show the progress of all groups on one broker."""
    values.number("timeoutMillis", 0)  # The value has no effect, but a malformed one is an error.
    found = await admin.servers.all_consume_stats(values.get("brokerAddr"), ordered=values.truth("order"))
    least = values.number("level", 0)
    rows = [
        (
            queue.topic, group, queue.broker_name, queue.queue_id, one.broker_offset, one.consumer_offset,
            one.broker_offset - one.consumer_offset, last_time(one.last_timestamp),
        )
        for groups in found.consume_stats_list
        for group, listed in groups.items()
        for stats in listed
        for queue, one in sorted(stats.offset_table.items())
        if one.last_timestamp > 0 and one.broker_offset - one.consumer_offset >= least
    ]  # fmt: skip
    answer = _STATS.answer(rows, after=f"\nDiff Total: {found.total_diff}")
    return Answer(answer.text, {"queues": answer.value, "diff_total": found.total_diff})


async def reset_master_flush_offset(admin: Admin, values: Values) -> Answer:
    """Set the flushed offset of a master's log at a slave."""
    address, offset = values.get("brokerAddr"), values.number("offset")
    if offset < 0:
        raise ConfigError(f"--offset {offset} is out of range: a log begins at 0")
    await admin.servers.reset_flush_offset(address, offset)
    return done(f"reset master flush offset to {offset} success", broker_addr=address, offset=offset)


def get_broker_epoch(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    """Show the epochs of brokers' logs."""

    async def once() -> Answer:
        info, name, cluster = await admin.cluster.info(), values.optional("brokerName"), values.optional("clusterName")
        names = [name] if name else sorted(await admin.cluster.masters(cluster))
        blocks, value = [], {}
        for one in names:
            if one not in info.broker_addr_table:
                raise TianzhouError(f"the name server knows no broker {one}; see mqadmin clusterList")
            for _, address in sorted(info.broker_addr_table[one].broker_addrs.items()):
                found = await admin.servers.epochs(address)
                value[address] = found
                blocks.append(epochs_text(address, found))
        return Answer("\n".join(blocks), value)

    return repeated(values, once)


def epochs_text(address: str, found: Mapping[str, Any]) -> str:
    """Return the epochs of a broker's log, in the form of Apache's tool.

    The last epoch is still open, so its end is the end of the log.

    Args:
        address: address of the broker.
        found: the JSON object from the broker.
    """
    epochs = [dict(entry) for entry in found.get("epochList") or ()]
    if epochs:
        epochs[-1]["endOffset"] = found.get("maxOffset")
    lines = [
        "",
        f"#clusterName\t{java_text.text(found.get('clusterName'))}",
        f"#brokerName\t{java_text.text(found.get('brokerName'))}",
        f"#brokerAddr\t{address}",
        f"#brokerId\t{java_text.text(found.get('brokerId'))}",
        *(f"#Epoch: {java_text.epoch_entry(entry)}" for entry in epochs),
    ]
    return "\n".join(lines)


async def get_cold_data_flow_ctr_info(admin: Admin, values: Values) -> Answer:
    """Show the limits of groups for reads of old data."""
    of_cluster = values.optional("brokerAddr") is None
    blocks, value = [], {}
    for address in await addresses(admin, values):
        value[address] = await admin.servers.cold_read_limits(address)
        title = f"Master: {address}" if of_cluster else address
        blocks.append(f" ============{title}============\n{java_text.pretty(_cold_reads(value[address]))}")
    return Answer("\n".join(blocks), value)


def _cold_reads(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a broker's reply with readable times, in the form of Apache's tool."""
    table = {}
    for name, entry in (found.get("runtimeTable") or {}).items():
        shown = {key: value for key, value in entry.items() if key not in _COLD_TIMES}
        shown |= {title: moment(int(entry.get(key) or 0)) for key, title in _COLD_TIMES.items()}
        table[name] = shown
    return {**found, "runtimeTable": table}


async def update_cold_data_flow_ctr(admin: Admin, values: Values) -> Answer:
    """Set the limit of a group for reads of old data."""
    group, threshold = values.get("consumerGroup"), values.number("threshold")
    if threshold < 0:
        raise ConfigError(f"--threshold {threshold}: expected 0 or more bytes a second")
    changed = await addresses(admin, values)
    lines = []
    for address in changed:
        await admin.servers.set_cold_read_limit(address, group, threshold)
        lines.append(f"updateColdDataFlowCtrGroupConfig success, {address}")
    return done("\n".join(lines), brokers=changed, group=group, threshold=threshold)


async def remove_cold_data_flow_ctr(admin: Admin, values: Values) -> Answer:
    """Remove the limit of a group for reads of old data, so that the common limit applies."""
    group, changed = values.get("consumerGroup"), await addresses(admin, values)
    lines = []
    for address in changed:
        await admin.servers.remove_cold_read_limit(address, group)
        lines.append(f"remove broker cold read threshold success, {address}")
    return done("\n".join(lines), brokers=changed, group=group)


async def set_commit_log_read_ahead_mode(admin: Admin, values: Values) -> Answer:
    """Switch read-ahead in the files of the log."""
    mode, lines, value = values.get("commitLogReadAheadMode"), [], {}
    if mode not in ("0", "1"):
        raise ConfigError(f"--commitLogReadAheadMode {mode}: 0 reads ahead, 1 does not")
    of_cluster = values.optional("brokerAddr") is None
    for address in await addresses(admin, values):
        value[address] = await admin.servers.set_read_ahead(address, mode)
        title = f"Master: {address}" if of_cluster else address
        lines.append(f" ============{title}============\ncommitLog set readAhead mode rstStr{value[address]}")
    return Answer("\n".join(lines), value)


_COLD_TIMES = {"lastColdReadTimeMills": "lastColdReadTimeFormat", "createTimeMills": "createTimeFormat"}
_COLD_GROUP = Option("g", "consumerGroup", "The consumer group.", required=True)
_CLUSTERS = (BROKER, Option("c", "cluster", "All masters of a cluster; of all clusters when nothing is given."))
COMMANDS = (
    Subcommand(
        "getBrokerConfig",
        "Show the settings of a broker, or of a cluster's masters and slaves.",
        "-b 127.0.0.1:10911",
        get_broker_config,
        TARGET,
        one_of=ONE_TARGET,
        first_wins=True,
    ),
    Subcommand(
        "updateBrokerConfig",
        "Change a setting of a running broker.",
        "-b 127.0.0.1:10911 -k fileReservedTime -v 48",
        update_broker_config,
        (
            *TARGET,
            Option("k", "key", "The setting.", required=True),
            Option("v", "value", "Its value.", required=True),
            Option("a", "updateAllBroker", "true: with -c also slaves."),
        ),
        one_of=ONE_TARGET,
        first_wins=True,
    ),
    Subcommand(
        "cleanExpiredCQ",
        "Delete consume queues of topics that are gone.",
        "-b 127.0.0.1:10911",
        _upkeep("clean_expired_queues"),
        _CLUSTERS,
    ),
    Subcommand(
        "cleanUnusedTopic",
        "Delete what is kept of topics that are gone.",
        "-b 127.0.0.1:10911",
        _upkeep("clean_unused_topics"),
        _CLUSTERS,
    ),
    Subcommand(
        "deleteExpiredCommitLog",
        "Delete expired files of the log now, whatever the hour.",
        "-b 127.0.0.1:10911",
        _upkeep("delete_expired_logs"),
        _CLUSTERS,
    ),
    Subcommand(
        "brokerConsumeStats",
        "Show how far all groups are on one broker.",
        "-b 127.0.0.1:10911 -l 1",
        broker_consume_stats,
        (
            Option("b", "brokerAddr", "The broker, host:port.", required=True),
            Option("l", "level", "Only queues with so many messages to come."),
            Option("o", "order", "true: only groups that consume in order."),
            Option("t", "timeoutMillis", "Taken for Apache's sake."),
        ),
    ),
    Subcommand(
        "resetMasterFlushOffset",
        "Tell a slave how far its master's log is flushed.",
        "-b 127.0.0.1:10911 -o 0",
        reset_master_flush_offset,
        (
            Option("b", "brokerAddr", "The slave, host:port.", required=True),
            Option("o", "offset", "The offset in the log.", required=True),
        ),
    ),
    Subcommand(
        "getBrokerEpoch",
        "Show the epochs of a broker's log, of brokers whose master a controller elects.",
        "-b broker-a",
        get_broker_epoch,
        (CLUSTER, Option("b", "brokerName", "Name of the broker."), INTERVAL),
        one_of=("brokerName", "clusterName"),
        first_wins=True,
        remark="Tianzhou has no controllers: its brokers answer as Apache's do without one.",
    ),
    Subcommand(
        "getColdDataFlowCtrInfo",
        "Show what groups may read of data that has left the memory.",
        "-b 127.0.0.1:10911",
        get_cold_data_flow_ctr_info,
        TARGET,
        one_of=ONE_TARGET,
        first_wins=True,
    ),
    Subcommand(
        "updateColdDataFlowCtrGroupConfig",
        "Set what a group may read of such data.",
        "-b 127.0.0.1:10911 -g billing -v 1048576",
        update_cold_data_flow_ctr,
        (*TARGET, _COLD_GROUP, Option("v", "threshold", "Bytes a second.", required=True)),
        one_of=ONE_TARGET,
        first_wins=True,
        remark="Tianzhou keeps and shows the value; its reads of old data wait beside all others.",
    ),
    Subcommand(
        "removeColdDataFlowCtrGroupConfig",
        "Have a group read as much of such data as all may.",
        "-b 127.0.0.1:10911 -g billing",
        remove_cold_data_flow_ctr,
        (*TARGET, _COLD_GROUP),
        one_of=ONE_TARGET,
        first_wins=True,
    ),
    Subcommand(
        "setCommitLogReadAheadMode",
        "Switch reading ahead in the files of the log.",
        "-b 127.0.0.1:10911 -m 0",
        set_commit_log_read_ahead_mode,
        (*TARGET, Option("m", "commitLogReadAheadMode", "0 reads ahead, 1 does not.", required=True)),
        one_of=ONE_TARGET,
        first_wins=True,
    ),
)
