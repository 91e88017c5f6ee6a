"""Consume queues: their units (client.md §23.5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tianzhou.cli.mqadmin import java_text
from tianzhou.cli.mqadmin.answers import Answer, NotFoundError
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import NAME_SERVERS, TOPIC
from tianzhou.errors import ClientError

if TYPE_CHECKING:
    from tianzhou.admin import Admin

_LINE = "=" * 38


async def query_cq(admin: Admin, values: Values) -> Answer:
    """Show units of a consume queue."""
    from tianzhou.wire.bodies.offsets import QUEUE_UNITS
    from tianzhou.wire.json_dialect import loads

    topic, index = values.get("topic"), values.number("index")
    broker = values.optional("broker")
    if broker is None:
        route = await admin.topics.route(topic)
        broker = next((one.master for one in route.broker_datas if one.master is not None), None)
    if broker is None:
        raise NotFoundError(17, f"no broker of topic {topic} has a master now")
    group = values.optional("consumer")
    found = await admin.servers.queue_units(
        broker, topic, values.number("queue"), index, values.number("count", 10), group
    )
    if not found.min_queue_index <= index <= found.max_queue_index:
        raise ClientError(
            f"--index {index} is out of range: queue {values.number('queue')} of topic {topic} at {broker} holds "
            f"{found.min_queue_index} to {found.max_queue_index}"
        )
    value = json.loads(json.dumps(loads(QUEUE_UNITS.dumps(found))))
    lines = []
    if found.subscription_data is not None:
        lines += ["Subscription data: ", java_text.pretty(value["subscriptionData"]), _LINE]
    if found.filter_data:
        lines += ["Filter data: ", found.filter_data, _LINE]
    lines += ["Queue data: ", f"max: {found.max_queue_index}, min: {found.min_queue_index}", _LINE]
    for number, one in enumerate(found.queue_data or (), index):
        unit = (
            f"ConsumeQueueData{{physicOffset={one.physic_offset}, physicSize={one.physic_size}, "
            f"tagsCode={one.tags_code}, extendDataJson='{one.extend_data_json or 'null'}', "
            f"bitMap='{one.bit_map or 'null'}', eval={java_text.truth(one.eval)}, msg='{one.msg or 'null'}'}}"
        )
        lines += [f"idx: {number}", unit, _LINE]
    return Answer("\n".join(lines), value)


_PROGRESS = {0: "check ok", 1: "check not ok", 2: "check doing, please wait and get the result from log..."}


async def check_rocksdb_cq(admin: Admin, values: Values) -> Answer:
    """Show the state of consume queues in RocksDB."""
    lines, value = [], {}
    for name, address in sorted((await admin.cluster.masters(values.get("cluster"))).items()):
        found = await admin.servers.rocksdb_progress(address, values.get("topic"), values.number("checkFrom", 0))
        value[name] = found
        lines.append(f"{name} {_PROGRESS.get(found.get('checkStatus', -1), found.get('checkResult'))} ")
    return Answer("\n".join(lines), value)


COMMANDS = (
    Subcommand(
        "queryCq",
        "Show units of a consume queue, and whether a group's filter takes them.",
        "-t orders -q 0 -i 0 -c 3",
        query_cq,
        (
            TOPIC,
            Option("q", "queue", "The queue.", required=True),
            Option("i", "index", "The first unit.", required=True),
            Option("c", "count", "How many, 10 when not given."),
            Option("b", "broker", "The broker, host:port; the first of the topic when not given."),
            Option("g", "consumer", "The consumer group whose filter is tried."),
        ),
    ),
    Subcommand(
        "checkRocksdbCqWriteProgress",
        "Show how far consume queues in RocksDB are, of brokers of RocketMQ 5 that have such.",
        "-c DefaultCluster -t orders",
        check_rocksdb_cq,
        (
            Option("c", "cluster", "The cluster.", required=True),
            Option("t", "topic", "Only this topic."),
            Option("cf", "checkFrom", "Messages stored at or after it, milliseconds."),
            NAME_SERVERS,
        ),
        remark="Tianzhou's store does not use RocksDB: its brokers answer as Apache's do without RocksDB.",
    ),
)
