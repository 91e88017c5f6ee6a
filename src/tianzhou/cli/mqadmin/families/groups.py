"""Consumer groups: create, change, delete, settings, PULL or POP (client.md §23.2)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tianzhou.cli.mqadmin import java_text
from tianzhou.cli.mqadmin.answers import Answer, done, pairs
from tianzhou.cli.mqadmin.families.topics import FILE, attributes_of, queue_count, read_list
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import GROUP, ONE_TARGET, TARGET, addresses
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.admin import Admin


async def update_sub_group(admin: Admin, values: Values) -> Answer:
    """Create a group, or replace its configuration."""
    settings: dict[str, Any] = {
        "consume_enable": values.truth("consumeEnable", True),
        "consume_from_min_enable": values.truth("consumeFromMinEnable"),
        "consume_broadcast_enable": values.truth("consumeBroadcastEnable"),
        "consume_message_orderly": values.truth("consumeMessageOrderly"),
        "retry_queue_nums": queue_count(values, "retryQueueNums", 1, least=0),
        "retry_max_times": values.number("retryMaxTimes", 16),
        "broker_id": values.number("brokerId", 0),
        "which_broker_when_consume_slowly": values.number("whichBrokerWhenConsumeSlowly", 1),
        "notify_consumer_ids_changed_enable": values.truth("notifyConsumerIdsChanged", True),
        "attributes": {
            ("-" if value is None else "+") + name: value or ""
            for name, value in attributes_of(values.get("attributes")).items()
        },
    }
    policy = values.get("groupRetryPolicy")
    if policy:
        try:
            settings["group_retry_policy"] = dict(json.loads(policy))
        except (ValueError, TypeError):
            raise ConfigError(
                '--groupRetryPolicy is no JSON object; write it as {"type":"CUSTOMIZED","customizedRetryPolicy":'
                '{"next":[1000,5000]}}'
            ) from None
    changed = await addresses(admin, values)
    for address in changed:
        config = await admin.groups.create(values.get("groupName"), broker_addr=address, **settings)
    lines = [f"create subscription group to {address} success." for address in changed]
    text = "\n".join([*lines, java_text.group_config(config)])
    return done(text, brokers=changed, config=java_text.group_fields(config))


async def update_sub_group_list(admin: Admin, values: Values) -> Answer:
    """Create the groups of a file."""
    from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP

    configs = [SUBSCRIPTION_GROUP.decode(one, f"group {n}") for n, one in enumerate(read_list(values.get("filename")))]
    changed = await addresses(admin, values) if configs else []
    for address in changed:
        await admin.groups.create_several(configs, address)
    what = "group" if values.optional("brokerAddr") else "subscription group"
    text = "\n".join(
        f"submit batch of {what} config to {one} success, please check the result later." for one in changed
    )
    return done(text, brokers=changed, groups=[config.group_name for config in configs])


async def delete_sub_group(admin: Admin, values: Values) -> Answer:
    """Delete a group."""
    from tianzhou.model import names

    group, cluster, broker = values.get("groupName"), values.optional("clusterName"), values.optional("brokerAddr")
    offsets = values.truth("removeOffset")
    changed = await addresses(admin, values)
    lines = []
    for address in changed:
        await admin.groups.delete(group, remove_offsets=offsets, remove_topics=False, broker_addr=address)
        where = "." if broker else f" in cluster [{cluster}]."
        lines.append(f"delete subscription group [{group}] from broker [{address}]{where[:-1]} success.")
    if cluster and not broker:
        for topic in (names.retry_topic(group), names.dead_letter_topic(group)):
            if await admin.topics.exists(topic):
                await admin.topics.delete(topic, cluster=cluster)
                lines.append(f"delete topic [{topic}] from cluster [{cluster}] success.")
                lines.append(f"delete topic [{topic}] from NameServer success.")
    return done("\n".join(lines), group=group, brokers=changed)


async def get_consumer_config(admin: Admin, values: Values) -> Answer:
    """Show the settings of a group."""
    found = await admin.groups.config(values.get("groupName"))
    info = await admin.cluster.info()
    blocks, value = [], []
    for name, config in found.items():
        fields = java_text.group_fields(config)
        if config.subscription_data_set is None:
            fields["subscriptionDataSet"] = ""
        cluster = info.broker_addr_table[name].cluster if name in info.broker_addr_table else ""
        blocks.append(f"{'=' * 29}{cluster}:{name}{'=' * 29}")
        blocks += pairs(fields.items(), 40, "=  ")
        value.append({"cluster": cluster, "broker_name": name} | fields)
    return Answer("\n".join(blocks), value)


async def set_consume_mode(admin: Admin, values: Values) -> Answer:
    """Set whether the members of a group pull a topic, or pop it."""
    topic, group, mode = values.get("topicName"), values.get("groupName"), values.get("mode").upper()
    if mode not in ("PULL", "POP"):
        raise ConfigError(f"--mode {mode}: expected PULL or POP")
    shared = values.number("popShareQueueNum", 0)
    changed = await addresses(admin, values)
    for address in changed:
        await admin.groups.set_request_mode(group, topic, mode, address, pop_share_queue_num=shared)
    lines = [f"set consume mode to {address} success." for address in changed]
    lines.append(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{shared}]")
    return done("\n".join(lines), brokers=changed, topic=topic, group=group, mode=mode)


COMMANDS = (
    Subcommand(
        "updateSubGroup",
        "Create a consumer group, or replace its configuration.",
        "-c DefaultCluster -g billing -r 5",
        update_sub_group,
        (
            *TARGET,
            GROUP,
            Option("s", "consumeEnable", "false for a group that may not consume."),
            Option("m", "consumeFromMinEnable", "true for one that may begin at the first offset."),
            Option("d", "consumeBroadcastEnable", "true for one that may broadcast."),
            Option("o", "consumeMessageOrderly", "true for one that consumes in order."),
            Option("q", "retryQueueNums", "Queues of its retry topic, 1 when not given."),
            Option("r", "retryMaxTimes", "How often a message is tried again, 16 when not given."),
            Option("p", "groupRetryPolicy", "When it is tried again, as JSON."),
            Option("i", "brokerId", "The broker it consumes from; 0 is the master."),
            Option("w", "whichBrokerWhenConsumeSlowly", "The broker it consumes from when it is slow; 1 is a slave."),
            Option("a", "notifyConsumerIdsChanged", "false: members are not told of others that come and go."),
            Option("", "attributes", "Attributes: +name=value sets one, -name removes one; joined by commas."),
        ),
        one_of=ONE_TARGET,
        first_wins=True,
    ),
    Subcommand(
        "updateSubGroupList",
        "Create the consumer groups of a file, or replace their configuration.",
        "-c DefaultCluster -f groups.json",
        update_sub_group_list,
        (*TARGET, FILE),
        one_of=ONE_TARGET,
    ),
    Subcommand(
        "deleteSubGroup",
        "Delete a consumer group; with -c also its retry and dead letter topics.",
        "-c DefaultCluster -g billing -r true",
        delete_sub_group,
        (*TARGET, GROUP, Option("r", "removeOffset", "true: also how far it has consumed.")),
        one_of=ONE_TARGET,
        first_wins=True,
    ),
    Subcommand(
        "getConsumerConfig",
        "Show the settings of a consumer group.",
        "-g billing",
        get_consumer_config,
        (GROUP,),
    ),
    Subcommand(
        "setConsumeMode",
        "Have the members of a group pull a topic, or pop it.",
        "-c DefaultCluster -t orders -g billing -m PULL",
        set_consume_mode,
        (
            *TARGET,
            Option("t", "topicName", "The topic.", required=True),
            GROUP,
            Option("m", "mode", "PULL or POP.", required=True),
            Option("q", "popShareQueueNum", "Queues that a member shares when it pops."),
        ),
        one_of=ONE_TARGET,
        first_wins=True,
        remark="POP needs a broker of RocketMQ 5; Tianzhou does not serve it and says so.",
    ),
)
