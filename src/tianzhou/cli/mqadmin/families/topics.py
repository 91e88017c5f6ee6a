"""Topics: create, change, delete, list, routes, offsets, order (client.md §23.1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tianzhou.cli.mqadmin import java_text
from tianzhou.cli.mqadmin.answers import Answer, NotFoundError, Table, cut, done, moment
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import ONE_TARGET, TARGET, TOPIC, addresses
from tianzhou.errors import BrokerError, ConfigError

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.model import TopicConfig

LARGEST_FILE: Final = 16 * 1024 * 1024
"""Maximum size in bytes of a file of configurations."""
ORDER: Final = "ORDER_TOPIC_CONFIG"


def read_list(file: str) -> list[dict[str, Any]]:
    """Return the objects of a file with a JSON list.

    Raises:
        ConfigError: the file cannot be read, or has another form.
    """
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(LARGEST_FILE + 1)
        found = json.loads(data) if len(data) <= LARGEST_FILE else None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--filename {file}: {error}; expected a JSON list of objects") from error
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ConfigError(f"--filename {file}: expected a JSON list of objects, of at most {LARGEST_FILE} bytes")
    return found


def attributes_of(text: str) -> dict[str, str | None]:
    """Parse changes of attributes, `+a=b,-c`. A removed attribute is None.

    Raises:
        ConfigError: a part has another form.
    """
    changes: dict[str, str | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part[1:].partition("=")
        if part[0] == "+" and equals:
            changes[name] = value
        elif part[0] == "-" and not equals:
            changes[name] = None
        else:
            raise ConfigError(f"--attributes {part}: write +NAME=VALUE to set one, -NAME to remove one")
    return changes


def permission(values: Values) -> int:
    """Return the value of `--perm`, 6 if it is not given.

    Raises:
        ConfigError: a topic cannot have this permission.
    """
    from tianzhou.admin.topics import PERMISSIONS

    perm = values.number("perm", 6)
    if perm not in PERMISSIONS:
        raise ConfigError(f"--perm {perm}: 0 is no access, 2 writing, 4 reading, 6 and 7 both")
    return perm


def queue_count(values: Values, name: str, default: int, *, least: int = 1) -> int:
    """Return a number of queues.

    Args:
        values: values of the options.
        name: long name of the option.
        default: the number if the option is not given.
        least: the smallest number.

    Raises:
        ConfigError: the number is out of range. The error contains the option.
    """
    from tianzhou.admin.topics import MAX_QUEUES

    count = values.number(name, default)
    if not least <= count <= MAX_QUEUES:
        raise ConfigError(f"--{name} {count}: expected {least} to {MAX_QUEUES}")
    return count


async def update_topic(admin: Admin, values: Values) -> Answer:
    """Create or change a topic on a broker, or on all masters of a cluster."""
    from tianzhou.model import TopicConfig

    changes = attributes_of(values.get("attributes"))
    config = TopicConfig(
        values.get("topic"),
        queue_count(values, "readQueueNums", 8),
        queue_count(values, "writeQueueNums", 8),
        permission(values),
        topic_sys_flag=values.truth("unit") + 2 * values.truth("hasUnitSub"),
        order=values.truth("order"),
    )
    made = await admin.topics.create(
        config.topic_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        order=config.order,
        attributes=changes,
        topic_sys_flag=config.topic_sys_flag,
        cluster=values.optional("clusterName"),
        broker_addr=values.optional("brokerAddr"),
    )
    lines = [f"create topic to {address} success." for address in made]
    if config.order:
        stored = await admin.cluster.get_kv(ORDER, config.topic_name)
        scope = "cluster" if values.optional("clusterName") else "broker"
        lines.append(f"set {scope} orderConf. isOrder=true, orderConf=[{stored}]")
    shown = {f"{'-' if value is None else '+'}{name}": value or "" for name, value in changes.items()}
    text = "\n".join([*lines, java_text.topic_config(config, shown)])
    return done(text, brokers=made, config=_value(config) | {"attributes": changes})


def _value(config: TopicConfig) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(config)


async def update_topic_list(admin: Admin, values: Values) -> Answer:
    """Create or change the topics of a file."""
    from tianzhou.wire.bodies.topics import TOPIC_CONFIG

    configs = [TOPIC_CONFIG.decode(one, f"topic {n}") for n, one in enumerate(read_list(values.get("filename")))]
    changed = await addresses(admin, values) if configs else []
    for address in changed:
        await admin.servers.create_topics(address, configs)
    text = "\n".join(
        f"submit batch of topic config to {one} success, please check the result later." for one in changed
    )
    return done(text, brokers=changed, topics=[config.topic_name for config in configs])


async def update_topic_perm(admin: Admin, values: Values) -> Answer:
    """Change the permission of a topic."""
    topic, perm = values.get("topic"), permission(values)
    route = await admin.topics.route(topic)
    by_name = {data.broker_name: data for data in route.queue_datas}
    only = values.optional("brokerAddr")
    lines, changed = [], []
    for broker in route.broker_datas:
        address, data = broker.master, by_name.get(broker.broker_name)
        if address is None or data is None or (only is not None and address != only):
            continue
        if only is None and broker.cluster != values.get("clusterName"):
            continue
        config = (await admin.topics.config(topic))[broker.broker_name]
        before, config.perm = config.perm, perm
        if before == perm and only is not None:
            lines.append("new perm equals to the old one!")
            continue
        await admin.topics.put(address, config)
        lines.append(f"update topic perm from {before} to {perm} in {address} success.")
        if only is not None:
            lines.append(f"{java_text.topic_config(config)}.")
        changed.append({"broker_addr": address, "before": before, "after": perm})
    if not lines:
        where = only or values.get("clusterName")
        raise ConfigError(f"topic {topic} has no master at {where}; see mqadmin topicRoute -t {topic}")
    return Answer("\n".join(lines), changed)


async def delete_topic(admin: Admin, values: Values) -> Answer:
    """Delete a topic with its messages."""
    topic, cluster = values.get("topic"), values.get("clusterName")
    await admin.topics.delete(topic, cluster=cluster)
    text = f"delete topic [{topic}] from cluster [{cluster}] success.\ndelete topic [{topic}] from NameServer success."
    return done(text, topic=topic, cluster=cluster)


_LIST = Table("%-20s  %-48s  %-48s", "#Cluster Name|#Topic|#Consumer Group", "%-20s  %-64s  %-64s")


async def topic_list(admin: Admin, values: Values) -> Answer:
    """List topics."""
    names = await admin.topics.names()
    if not values.truth("clusterModel"):
        return Answer("\n".join(names), names)
    rows = []
    for topic in names:
        if topic.startswith(("%RETRY%", "%DLQ%")):
            continue
        try:
            clusters, groups = await admin.topics.clusters(topic), await admin.topics.groups(topic)
        except BrokerError:
            clusters, groups = await admin.topics.clusters(topic), []
        rows += [(cut(cluster, 20), topic, group) for cluster in clusters for group in groups or [""]]
    return _LIST.answer(rows)


_ROUTE = Table(
    "%-45s %-32s %-50s %-10s %-11s %-5s", "#ClusterName|#BrokerName|#BrokerAddrs|#ReadQueue|#WriteQueue|#Perm"
)


async def topic_route(admin: Admin, values: Values) -> Answer:
    """Show the brokers and queues of a topic."""
    from tianzhou.wire.bodies.route import ROUTE
    from tianzhou.wire.json_dialect import loads

    route = await admin.topics.route(values.get("topic"))
    value = loads(ROUTE.dumps(route))
    if not values.truth("list"):
        return Answer(java_text.pretty(value), json.loads(json.dumps(value)))
    by_name = {data.broker_name: data for data in route.queue_datas}
    rows = [
        (
            broker.cluster,
            broker.broker_name,
            java_text.table({str(key): broker.broker_addrs[key] for key in sorted(broker.broker_addrs)}),
            data.read_queue_nums,
            data.write_queue_nums,
            data.perm,
        )
        for broker in sorted(route.broker_datas, key=lambda one: one.broker_name)
        if (data := by_name.get(broker.broker_name)) is not None
    ]
    total = ("Total:", len(rows), "", sum(row[3] for row in rows), sum(row[4] for row in rows), "")
    return _ROUTE.answer(rows, after="-" * 158 + "\n" + _ROUTE.row(total))


_STATUS = Table("%-32s  %-4s  %-20s  %-20s    %s", "#Broker Name|#QID|#Min Offset|#Max Offset|#Last Updated")


async def topic_status(admin: Admin, values: Values) -> Answer:
    """Show first and next offset of the queues of a topic."""
    stats = await admin.topics.stats(values.get("topic"))
    rows = [
        (
            cut(queue.broker_name, 32),
            queue.queue_id,
            one.min_offset,
            one.max_offset,
            moment(one.last_update_timestamp, milliseconds=True) if one.last_update_timestamp > 0 else "",
        )
        for queue, one in sorted(stats.offset_table.items())
    ]
    return _STATUS.answer(rows, after=f"\nTopic Put TPS: {stats.topic_put_tps}")


async def topic_cluster_list(admin: Admin, values: Values) -> Answer:
    """Show the clusters that have a topic."""
    names = await admin.topics.clusters(values.get("topic"))
    return Answer("\n".join(names), names)


async def update_order_conf(admin: Admin, values: Values) -> Answer:
    """Read or write the numbers of queues per broker of an ordered topic."""
    topic, method = values.get("topic"), values.get("method")
    if method == "get":
        found = await admin.cluster.get_kv(ORDER, topic)
        if found is None:
            raise NotFoundError(22, f"No config item, Namespace: {ORDER} Key: {topic}")
        return done(f"get orderConf success. topic=[{topic}], orderConf=[{found}] ", topic=topic, order_conf=found)
    if method == "put":
        conf = values.get("orderConf")
        if not conf:
            raise ConfigError("--orderConf is missing; write it as brokerName:queues;brokerName:queues")
        await admin.cluster.put_kv(ORDER, topic, conf)
        return done(f"update orderConf success. topic=[{topic}], orderConf=[{conf}]", topic=topic, order_conf=conf)
    if method != "delete":
        raise ConfigError(f"--method {method}: expected put, get or delete")
    await admin.cluster.delete_kv(ORDER, topic)
    return done(f"delete orderConf success. topic=[{topic}]", topic=topic)


async def allocate_mq(admin: Admin, values: Values) -> Answer:
    """Show the queues that consumers at some addresses would get."""
    from tianzhou.client.cluster.routes import subscribe_queues
    from tianzhou.client.consumer.allocation import Averagely

    topic, ips = values.get("topic"), values.listed("ipList")
    queues = subscribe_queues(topic, await admin.topics.route(topic))
    shares = {
        ip: [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
            for queue in Averagely().allocate(ip, queues, ips)
        ]
        for ip in ips
    }
    return Answer(json.dumps({"result": shares}, separators=(",", ":")), {"result": shares})


FILE: Final = Option("f", "filename", "JSON file with a list of configurations.", required=True)
COMMANDS = (
    Subcommand(
        "updateTopic",
        "Create a topic, or replace its configuration.",
        "-n 127.0.0.1:9876 -c DefaultCluster -t orders -r 4 -w 4",
        update_topic,
        (
            *TARGET,
            TOPIC,
            Option("r", "readQueueNums", "Queues to read on each broker, 8 when not given."),
            Option("w", "writeQueueNums", "Queues to write on each broker, 8 when not given."),
            Option("p", "perm", "0 for no access, 2 for writing, 4 for reading, 6 (when not given) or 7 for both."),
            Option("o", "order", "true for a topic whose queues keep their order while brokers come and go."),
            Option("u", "unit", "true for a topic of a unit."),
            Option("s", "hasUnitSub", "true for a topic that units subscribe to."),
            Option("a", "attributes", "Attributes: +name=value sets one, -name removes one; joined by commas."),
        ),
        one_of=ONE_TARGET,
    ),
    Subcommand(
        "updateTopicList",
        "Create the topics of a file, or replace their configuration.",
        "-c DefaultCluster -f topics.json",
        update_topic_list,
        (*TARGET, FILE),
        one_of=ONE_TARGET,
    ),
    Subcommand(
        "deleteTopic",
        "Delete a topic with its messages from the brokers of a cluster and from the name servers.",
        "-c DefaultCluster -t orders",
        delete_topic,
        (Option("c", "clusterName", "The cluster it is deleted from.", required=True), TOPIC),
    ),
    Subcommand(
        "updateTopicPerm",
        "Change what clients may do with a topic.",
        "-c DefaultCluster -t orders -p 4",
        update_topic_perm,
        (
            *TARGET,
            TOPIC,
            Option("p", "perm", "0 for no access, 2 for writing, 4 for reading, 6 or 7 for both.", required=True),
        ),
        one_of=ONE_TARGET,
        first_wins=True,
    ),
    Subcommand(
        "topicList",
        "List topics, system topics included.",
        "-n 127.0.0.1:9876",
        topic_list,
        (Option("c", "clusterModel", "With their clusters and the groups that consume them.", flag=True),),
    ),
    Subcommand(
        "topicRoute",
        "Show which brokers have a topic's queues.",
        "-t orders",
        topic_route,
        (TOPIC, Option("l", "list", "As a table.", flag=True)),
    ),
    Subcommand(
        "topicStatus",
        "Show first and next offset of a topic's queues, and when their last message came.",
        "-t orders",
        topic_status,
        (TOPIC, Option("c", "cluster", "Taken for Apache's sake: the route is found by the topic.")),
    ),
    Subcommand("topicClusterList", "Name the clusters that have a topic.", "-t orders", topic_cluster_list, (TOPIC,)),
    Subcommand(
        "updateOrderConf",
        "Read or write how many queues each broker has of a topic that keeps its order.",
        "-t orders -m put -v broker-a:4",
        update_order_conf,
        (
            TOPIC,
            Option("m", "method", "put, get or delete.", required=True),
            Option("v", "orderConf", "Queues by broker, broker-a:4;broker-b:4."),
        ),
    ),
    Subcommand(
        "allocateMQ",
        "Show which queues of a topic consumers at some addresses would get.",
        "-t orders -i 10.0.0.1,10.0.0.2",
        allocate_mq,
        (TOPIC, Option("i", "ipList", "Addresses, joined by commas.", required=True)),
    ),
)
