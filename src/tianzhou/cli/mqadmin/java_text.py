"""Values in the form of Java's `toString`, as in the output of Apache's tools. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tianzhou.model import MessageExt, MessageQueue, SendResult, SubscriptionGroupConfig, TopicConfig


def truth(value: bool) -> str:
    """Return `true` or `false`."""
    return "true" if value else "false"


def text(value: Any) -> str:
    """Return a value in the form of Java's `%s`: `null` for None, `true` and `false`."""
    if value is None:
        return "null"
    return truth(value) if isinstance(value, bool) else str(value)


def epoch_entry(entry: Mapping[str, Any]) -> str:
    """Return an epoch of a broker's log.

    Args:
        entry: epoch, start and end offset, with the keys of the protocol.
    """
    return (
        f"EpochEntry{{epoch={entry.get('epoch')}, startOffset={entry.get('startOffset')}, "
        f"endOffset={entry.get('endOffset')}}}"
    )


def table(values: Mapping[str, Any]) -> str:
    """Return a map as `{a=1, b=2}`."""
    return "{" + ", ".join(f"{key}={value}" for key, value in values.items()) + "}"


def perm(bits: int) -> str:
    """Return a permission as `RW-`."""
    return ("R" if bits & 4 else "-") + ("W" if bits & 2 else "-") + ("X" if bits & 1 else "-")


def topic_config(config: TopicConfig, attributes: Mapping[str, str] | None = None) -> str:
    """Return a topic's configuration.

    Args:
        config: the configuration.
        attributes: attributes to show instead of the topic's own, such as those of a change with their signs.
    """
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={truth(config.order)}, attributes={table(config.attributes if attributes is None else attributes)}]"
    )


def retry_policy(policy: Mapping[str, Any]) -> str:
    """Return a group's retry policy."""
    parts = [f"type={policy.get('type', 'CUSTOMIZED')}"]
    exponential, customized = policy.get("exponentialRetryPolicy"), policy.get("customizedRetryPolicy")
    parts.append(
        "exponentialRetryPolicy=" + ("null" if not exponential else f"ExponentialRetryPolicy{table(exponential)}")
    )
    shown = "null" if not customized else f"CustomizedRetryPolicy{{next={customized.get('next')}}}"
    return "GroupRetryPolicy{" + ", ".join([*parts, f"customizedRetryPolicy={shown}"]) + "}"


def group_fields(config: SubscriptionGroupConfig) -> dict[str, str]:
    """Return the fields of a group's configuration, in the order of Java's class."""
    return {
        "groupName": config.group_name,
        "consumeEnable": truth(config.consume_enable),
        "consumeFromMinEnable": truth(config.consume_from_min_enable),
        "consumeBroadcastEnable": truth(config.consume_broadcast_enable),
        "consumeMessageOrderly": truth(config.consume_message_orderly),
        "retryQueueNums": str(config.retry_queue_nums),
        "retryMaxTimes": str(config.retry_max_times),
        "groupRetryPolicy": retry_policy(config.group_retry_policy),
        "brokerId": str(config.broker_id),
        "whichBrokerWhenConsumeSlowly": str(config.which_broker_when_consume_slowly),
        "notifyConsumerIdsChangedEnable": truth(config.notify_consumer_ids_changed_enable),
        "groupSysFlag": str(config.group_sys_flag),
        "consumeTimeoutMinute": str(config.consume_timeout_minute),
        "subscriptionDataSet": "null" if config.subscription_data_set is None else str(config.subscription_data_set),
        "attributes": table(config.attributes),
    }


def group_config(config: SubscriptionGroupConfig) -> str:
    """Return a group's configuration on one line."""
    return f"SubscriptionGroupConfig{table(group_fields(config))}"


def queue(one: MessageQueue) -> str:
    """Return a queue."""
    return f"MessageQueue [topic={one.topic}, brokerName={one.broker_name}, queueId={one.queue_id}]"


def send_result(result: SendResult) -> str:
    """Return the result of a send."""
    return (
        f"SendResult [sendStatus={result.status.name}, msgId={result.msg_id}, "
        f"offsetMsgId={result.offset_msg_id}, messageQueue={queue(result.queue)}, "
        f"queueOffset={result.queue_offset}, recallHandle=null]"
    )


def message(one: MessageExt) -> str:
    """Return a message with all its fields."""
    body = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in one.body)
    transaction = one.properties.get("__transactionId__")
    return (
        f"MessageExt [brokerName={one.broker_name}, queueId={one.queue_id}, storeSize={one.store_size}, "
        f"queueOffset={one.queue_offset}, sysFlag={one.sys_flag}, bornTimestamp={one.born_timestamp}, "
        f"bornHost=/{one.born_host}, storeTimestamp={one.store_timestamp}, storeHost=/{one.store_host}, "
        f"msgId={one.offset_msg_id}, commitLogOffset={one.commitlog_offset}, bodyCRC={one.body_crc}, "
        f"reconsumeTimes={one.reconsume_times}, preparedTransactionOffset={one.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{one.topic}', flag={one.flag}, properties={table(one.properties)}, "
        f"body=[{body}], transactionId='{transaction or 'null'}'}}]"
    )


def message_value(one: MessageExt) -> dict[str, Any]:
    """Return a message for JSON. A body that is not UTF-8 is in `body_hex`, as hexadecimal."""
    try:
        body: dict[str, str] = {"body": one.body.decode()}
    except UnicodeDecodeError:
        body = {"body_hex": one.body.hex()}
    return {
        "msg_id": one.msg_id,
        "offset_msg_id": one.offset_msg_id,
        "topic": one.topic,
        "tags": one.tags,
        "keys": one.keys,
        "broker_name": one.broker_name,
        "queue_id": one.queue_id,
        "queue_offset": one.queue_offset,
        "commitlog_offset": one.commitlog_offset,
        "reconsume_times": one.reconsume_times,
        "born_timestamp": one.born_timestamp,
        "born_host": one.born_host,
        "store_timestamp": one.store_timestamp,
        "store_host": one.store_host,
        "sys_flag": one.sys_flag,
        "properties": dict(one.properties),
        **body,
    }


def pretty(value: Any, depth: int = 0) -> str:
    """Return a JSON value in fastjson's pretty form: tabs, and numeric keys without quotes and line feeds."""
    import json

    inner = "\n" + "\t" * (depth + 1)
    if isinstance(value, dict) and value:
        parts = [
            (f"{key}:" if isinstance(key, int) else f"{inner}{json.dumps(str(key), ensure_ascii=False)}:")
            + pretty(one, depth + 1)
            for key, one in value.items()
        ]
        return "{" + ",".join(parts) + "\n" + "\t" * depth + "}"
    if isinstance(value, list) and value:
        return "[" + ",".join(inner + pretty(one, depth + 1) for one in value) + "\n" + "\t" * depth + "]"
    return json.dumps(value, ensure_ascii=False)
