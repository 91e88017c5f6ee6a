"""Connected clients: consumers and producers (client.md §23.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tianzhou.cli.mqadmin.answers import Answer, NotFoundError, Table
from tianzhou.cli.mqadmin.families.offsets import existing_group
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import TOPIC

if TYPE_CHECKING:
    from tianzhou.admin import Admin

_CONSUMERS = Table("%-36s %-22s %-10s %s", "#ClientId|#ClientAddr|#Language|#Version")
_PRODUCERS = Table("%s  %-32s %-22s %-8s %s", "#Index|#ClientId|#ClientAddr|#Language|#Version")
_SUBSCRIPTIONS = Table("%-20s %s", "#Topic|#SubExpression")


async def consumer_connection(admin: Admin, values: Values) -> Answer:
    """Show the members of a consumer group and their subscriptions."""
    from tianzhou.wire.codes import version_name

    group, broker = values.get("consumerGroup"), values.optional("brokerAddr")
    if broker is None:
        await existing_group(admin, group)
    found = await admin.groups.connections(group, broker_addr=broker)
    if found is None:
        raise NotFoundError(206, f"the consumer group[{group}] not online")
    members = [
        (one.client_id, one.client_addr, one.language, version_name(one.version)) for one in found.connection_set
    ]
    topics = [(one.topic, one.sub_string) for _, one in sorted(found.subscription_table.items())]
    manner = {
        "ConsumeType": found.consume_type.value if found.consume_type else "null",
        "MessageModel": found.message_model.value if found.message_model else "null",
        "ConsumeFromWhere": found.consume_from_where.value if found.consume_from_where else "null",
    }
    lines = [_CONSUMERS.text(members), "", "Below is subscription:", _SUBSCRIPTIONS.text(topics), ""]
    lines += [f"{name}: {text}" for name, text in manner.items()]
    value = {"members": _CONSUMERS.objects(members), "subscriptions": _SUBSCRIPTIONS.objects(topics)}
    return Answer("\n".join(lines), value | manner)


async def producer_connection(admin: Admin, values: Values) -> Answer:
    """Show the members of a producer group."""
    from tianzhou.wire.codes import version_name

    group = values.get("producerGroup")
    route = await admin.topics.route(values.get("topic"))
    master = next((one.master for one in route.broker_datas if one.master is not None), None)
    if master is None:
        raise NotFoundError(17, f"no broker of topic {values.get('topic')} has a master now")
    found = await admin.servers.producer_connections(master, group)
    rows = [
        (f"{number:04d}", one.client_id, one.client_addr, one.language, version_name(one.version))
        for number, one in enumerate(found, 1)
    ]
    return Answer("\n".join(map(_PRODUCERS.row, rows)), _PRODUCERS.objects(rows))


async def producer(admin: Admin, values: Values) -> Answer:
    """Show all producers of a broker."""
    table = await admin.servers.producers(values.get("broker"))
    if not table:
        return Answer("producer table is empty", {})
    lines, value = [], {}
    for group, members in sorted(table.items()):
        value[group] = [_producer(one) for one in members]
        lines += [
            f"producer group ({group}) instance : clientId={one.client_id},remoteIP={one.remote_ip}, "
            f"language={one.language}, version={one.version}, lastUpdateTimestamp={one.last_update_timestamp}"
            for one in members
        ]
    return Answer("\n".join(lines), value)


def _producer(one: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(one)


COMMANDS = (
    Subcommand(
        "consumerConnection",
        "Show the connected members of a consumer group and what they subscribe to.",
        "-g billing",
        consumer_connection,
        (
            Option("g", "consumerGroup", "The consumer group.", required=True),
            Option("b", "brokerAddr", "Ask this broker only."),
        ),
    ),
    Subcommand(
        "producerConnection",
        "Show the connected members of a producer group.",
        "-g shop -t orders",
        producer_connection,
        (Option("g", "producerGroup", "The producer group.", required=True), TOPIC),
    ),
    Subcommand(
        "producer",
        "Show all producers that a broker knows.",
        "-b 127.0.0.1:10911",
        producer,
        (Option("b", "broker", "The broker, host:port.", required=True),),
    ),
)
