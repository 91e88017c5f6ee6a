"""Export of a cluster's topics, groups, settings and figures to files (client.md §23.7)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tianzhou.cli.mqadmin import java_text
from tianzhou.cli.mqadmin.answers import Answer, done
from tianzhou.cli.mqadmin.own_files import write_own
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import ONE_TARGET, TARGET, addresses
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.admin import Admin

FOLDER: Final = "/tmp/rocketmq/export"
SHOWN_SETTINGS: Final = (
    "brokerId", "traceOn", "flushDiskType", "msgTraceTopicName", "traceTopicEnable", "messageDelayLevel",
    "autoCreateTopicEnable", "brokerRole", "slaveReadEnable", "fileReservedTime", "brokerClusterName", "brokerName",
    "maxMessageSize", "useTLS", "autoCreateSubscriptionGroup",
)  # fmt: skip
"""Settings in an exported file, the same as those of Apache's tool."""


def _write(values: Values, name: str, content: Any) -> Answer:
    file = Path(values.get("filePath") or FOLDER) / name
    try:
        write_own(file, java_text.pretty(content).encode())
    except OSError as error:
        raise ConfigError(f"--filePath {file}: {error.strerror}; name a folder of your own") from error
    return done(f"export {file} success", file=str(file))


async def export_metadata(admin: Admin, values: Values) -> Answer:
    """Write topics and groups to a file."""
    from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP
    from tianzhou.wire.bodies.topics import TOPIC_CONFIG

    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    special, system = values.truth("specialTopic"), await admin.topics.system_names()
    system_groups = set(await admin.groups.names(system=True)) - set(await admin.groups.names())
    for address in await addresses(admin, values):
        for name, config in sorted((await admin.servers.topic_configs(address)).items()):
            if name not in system and (special or not name.startswith(("%RETRY%", "%DLQ%"))):
                known = topics.setdefault(name, TOPIC_CONFIG.encode(config))
                if known != TOPIC_CONFIG.encode(config):
                    known["writeQueueNums"] += config.write_queue_nums
                    known["readQueueNums"] += config.read_queue_nums
        for name, group in sorted((await admin.servers.group_configs(address)).items()):
            if name not in system_groups:
                groups.setdefault(name, SUBSCRIPTION_GROUP.encode(group))
    content: dict[str, Any] = {"exportTime": int(time.time() * 1000)}
    only_topics, only_groups = values.truth("topic"), values.truth("subscriptionGroup")
    if not only_groups or only_topics:
        content["topicConfigTable"] = topics
    if not only_topics:
        content["subscriptionGroupTable"] = groups
    name = "topic.json" if only_topics else "subscriptionGroup.json" if only_groups else "metadata.json"
    return _write(values, name, content)


async def export_configs(admin: Admin, values: Values) -> Answer:
    """Write the settings of a cluster's brokers to a file."""
    cluster = values.get("clusterName")
    info, masters = await admin.cluster.info(), await admin.cluster.masters(cluster)
    configs = {}
    for name, master in sorted(masters.items()):
        found = await admin.cluster.broker_config(master)
        configs[name] = {key: found[key] for key in SHOWN_SETTINGS if key in found}
    slaves = sum(len(info.broker_addr_table[name].broker_addrs) - 1 for name in masters)
    scale = {
        "namesrvSize": len(admin.cluster.name_servers),
        "slaveBrokerSize": slaves,
        "masterBrokerSize": len(masters),
    }
    return _write(values, "configs.json", {"clusterScale": scale, "brokerConfigs": configs})


_FIGURES: Final = {
    # name: figure of the broker, its key
    "NormalIn": ("BROKER_PUT_NUMS", None),
    "NormalOut": ("BROKER_GET_NUMS", None),
    "TransIn": ("TOPIC_PUT_NUMS", "RMQ_SYS_TRANS_HALF_TOPIC"),
    "ScheduleIn": ("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX"),
}


async def export_metrics(admin: Admin, values: Values) -> Answer:
    """Write figures of a cluster's brokers to a file."""
    from tianzhou.wire.codes import version_name

    cluster, report = values.get("clusterName"), {}
    all_tps, all_day = dict.fromkeys(_FIGURES, 0.0), dict.fromkeys(_FIGURES, 0)
    for name, master in sorted((await admin.cluster.masters(cluster)).items()):
        runtime = await admin.cluster.runtime(master)
        system = await admin.topics.system_names()
        topics = [
            one for one in await admin.servers.topic_configs(master) if one not in system and not one.startswith("%")
        ]
        groups = set(await admin.servers.group_configs(master)) & set(await admin.groups.names())
        clients = set()
        for group in sorted(groups):
            connection = await admin.groups.connections(group, broker_addr=master)
            for one in connection.connection_set if connection is not None else ():
                clients.add(f"{one.language}%{version_name(one.version)}")
        tps, day = {}, {}
        for what, (figure, key) in _FIGURES.items():
            stats = await admin.servers.stats(master, figure, key or cluster)
            tps[what], day[what] = stats.stats_minute.tps, stats.stats_day.sum
            all_tps[what] += tps[what]
            all_day[what] += day[what]
        ratio = {key: runtime.get(key, "") for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")}
        report[name] = {
            "runtimeEnv": {"cpuNum": str(os.cpu_count() or 1)},
            "runtimeQuota": {
                "diskRatio": ratio,
                "tps": _camel(tps, "", "Tps"),
                "oneDayNum": _one_day(day),
                "messageAverageSize": runtime.get("putMessageAverageSize", "0"),
                "topicSize": len(topics),
                "groupSize": len(groups),
            },
            "runtimeVersion": {"rocketmqVersion": runtime.get("brokerVersionDesc", ""), "clientInfo": sorted(clients)},
        }
    total = {"totalTps": _camel(all_tps, "total", "Tps"), "totalOneDayNum": _one_day(all_day)}
    return _write(values, "metrics.json", {"evaluateReport": report, "totalData": total})


def _camel(figures: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    return {(before + name if before else name[0].lower() + name[1:]) + after: value for name, value in figures.items()}


def _one_day(figures: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in figures.items():
        kind, way = (name[:-3], "Out") if name.endswith("Out") else (name[:-2], "In")
        found[f"{kind.lower()}OneDay{way}Num"] = value
    return found


async def export_pop_record(admin: Admin, values: Values) -> Answer:
    """Request that brokers write records of POP consumers in the form of RocketMQ 5.0."""
    dry, info = values.truth("dryRun"), await admin.cluster.info()
    names = {
        address: one.broker_name for one in info.broker_addr_table.values() for address in one.broker_addrs.values()
    }
    lines, value = [], []
    for address in await addresses(admin, values):
        if not dry:
            await admin.servers.export_pop_records(address)
        name = names.get(address, "")
        lines.append(f"Export broker records, brokerName={name}, brokerAddr={address}, dryRun={java_text.truth(dry)}")
        value.append({"broker_name": name, "broker_addr": address, "dry_run": dry})
    return Answer("\n".join(lines), value)


_FILE = Option("f", "filePath", f"The folder, {FOLDER} when not given.")
_CLUSTER = Option("c", "clusterName", "The cluster.", required=True)
COMMANDS = (
    Subcommand(
        "exportMetadata",
        "Write topics and consumer groups to a JSON file.",
        "-c DefaultCluster -f ./export",
        export_metadata,
        (
            *TARGET,
            _FILE,
            Option("t", "topic", "Only topics, to topic.json.", flag=True),
            Option("g", "subscriptionGroup", "Only groups, to subscriptionGroup.json.", flag=True),
            Option("s", "specialTopic", "Also retry and dead letter topics.", flag=True),
        ),
        one_of=ONE_TARGET,
        first_wins=True,
    ),
    Subcommand(
        "exportConfigs",
        "Write settings of a cluster's brokers to configs.json.",
        "-c DefaultCluster -f ./export",
        export_configs,
        (_CLUSTER, _FILE),
    ),
    Subcommand(
        "exportMetrics",
        "Write figures of a cluster's brokers to metrics.json.",
        "-c DefaultCluster -f ./export",
        export_metrics,
        (_CLUSTER, _FILE),
    ),
    Subcommand(
        "exportPopRecord",
        "Have brokers of RocketMQ 5 write what POP consumers have taken in the form of their predecessors.",
        "-b 127.0.0.1:10911 -d true",
        export_pop_record,
        (*TARGET, Option("d", "dryRun", "true: only show who would.")),
        one_of=ONE_TARGET,
        first_wins=True,
        remark="Tianzhou does not serve POP, so it refuses.",
    ),
)
