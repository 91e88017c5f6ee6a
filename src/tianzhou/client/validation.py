"""Checks of names, messages and options before a send (client.md §6.1). Pure; errors have limit, value and remedy."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

from tianzhou.errors import ClientError, ConfigError
from tianzhou.model import Message, MessageExt, MessageQueue, names
from tianzhou.model.name_rules import LONGEST_GROUP, LONGEST_TOPIC
from tianzhou.wire.compression import LZ4, ZLIB, ZSTD

MAX_MESSAGE_SIZE = 4 * 1024 * 1024

COMPRESSION_KINDS: Mapping[str, int] = {"ZLIB": ZLIB, "LZ4": LZ4, "ZSTD": ZSTD}

CommitMode: TypeAlias = Literal["async", "sync"]
"""Whether the next batch of a queue waits until the broker has confirmed the offset of the last one ("sync")."""

HOW_TO_START = "start it with 'async with' ('with' in tianzhou.sync) or start()"
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"

NOT_SENDABLE = frozenset(
    {
        names.SCHEDULE_TOPIC,
        names.HALF_TOPIC,
        names.OP_HALF_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
SYSTEM_TOPICS = NOT_SENDABLE | {names.AUTO_CREATE_TOPIC, "BenchmarkTest", names.TRACE_TOPIC, "CHECKPOINT_TOPIC"}

# Reserved names that users may set on purpose for a feature, as in RocketMQ's own client (client.md §2.3).
_SETTABLE = frozenset(
    {
        "INNER_NUM",
        "INNER_BASE",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "TRANSACTION_CHECK_TIMES",
        "__transactionId__",
        "__SHARDINGKEY",
        "TRACE_CONTEXT",
        "REDIRECT",
        "PROPERTY_FORWARD_QUEUE_ID",
        "INNER_MULTI_DISPATCH",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_DELIVER_MS",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "MSG_TYPE",
        "BUYER_ID",
        "INSTANCE_ID",
        "TRAN_MSG",
        "PGROUP",
    }
)
_REFUSED = names.RESERVED - _SETTABLE


def check_topic(topic: str) -> None:
    """Check a topic's name.

    Raises:
        ClientError: the name is blank, too long, or has characters that RocketMQ does not allow.
    """
    _check_name("topic", topic, LONGEST_TOPIC)


def check_new_topic(topic: str) -> None:
    """Check the name of a new topic, which must not be a system topic.

    Raises:
        ClientError: the name cannot be used.
    """
    check_topic(topic)
    if topic in SYSTEM_TOPICS or topic.startswith("rmq_sys_"):
        raise ClientError(f"topic {topic} belongs to the system; choose another name")


def check_group(group: str, *, default: str) -> None:
    """Check a group's name.

    Args:
        group: the name.
        default: RocketMQ's name for clients without a group name; it is rejected.

    Raises:
        ClientError: the name cannot be used.
    """
    _check_name("group", group, LONGEST_GROUP)
    if group == default:
        raise ClientError(f"group {group} is a placeholder that all unnamed clients share; choose your own name")


def _check_name(noun: str, name: str, limit: int) -> None:
    if name is not None and not isinstance(name, str):
        raise ClientError(f"the {noun} is {name!r}, of type {type(name).__name__}; give its name as str")
    if not name or not name.strip():
        raise ClientError(f"the {noun} is blank; give it a name")
    if len(name) > limit:
        raise ClientError(f"{noun} {name[:40]!r}… has {len(name)} characters, the limit is {limit}; shorten it")
    if names.NAME_PATTERN.fullmatch(name) is None:
        raise ClientError(f"{noun} {name!r} may only hold letters, digits and the characters % | _ -")


def check_sendable(topic: str) -> None:
    """Check that clients may send to a topic.

    Raises:
        ClientError: the name is wrong, or the topic belongs to the broker.
    """
    check_topic(topic)
    if topic in NOT_SENDABLE:
        raise ClientError(f"topic {topic} is written by the broker alone; send to another topic")


def check_body(body: object, limit: int) -> None:
    """Check a message's body.

    Raises:
        ClientError: the body is no bytes object, is empty, or is longer than `limit`.
    """
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise ClientError(f"a message body is bytes, got {type(body).__name__}; encode it first, as in text.encode()")
    if not len(body):
        raise ClientError("the message body is empty; a message needs at least one byte")
    if len(body) > limit:
        raise ClientError(
            f"the message body has {len(body)} bytes, the limit is {limit} (max_message_size; brokers have their "
            "own maxMessageSize); make it smaller or raise both"
        )


def check_properties(properties: Iterable[tuple[str, str]]) -> None:
    """Check user properties.

    Raises:
        ClientError: a name is reserved, or a name or value is blank, is no text, or has a separator.
    """
    for name, value in properties:
        if not isinstance(name, str) or not isinstance(value, str):
            raise ClientError(f"property {name!r}={value!r}: names and values are str; convert them first")
        if not name.strip() or not value.strip():
            raise ClientError(f"property {name!r}={value!r} has a blank name or value, which RocketMQ drops")
        if name in _REFUSED:
            raise ClientError(f"property {name} belongs to the system; use the Message field for it or another name")
        check_separators("property name", name, "\x01\x02")
        check_separators(f"property {name}", value)


MIN_RATE: Final = 0.001
MAX_RATE: Final = 1e12
"""Minimum and maximum of a producer's rate, in messages or bytes a second."""


def check_number(name: str, value: object, low: float, high: float | None = None) -> None:
    """Check a setting that is a number.

    Raises:
        ConfigError: the value is no number, or is out of its range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name} is {value!r}; it has to be a number")
    if not value >= low or (high is not None and value > high):  # no comparison with NaN is true
        range_ = f"{low} to {high}" if high is not None else f"at least {low}"
        raise ConfigError(f"{name} is {value}; it has to be {range_}")


def check_rate(name: str, rate: object, burst_name: str, burst: object) -> None:
    """Check the rate of a limit and its burst; both may be None.

    Raises:
        ConfigError: a value is no number or is out of its range, or there is a burst without a rate.
    """
    if rate is None:
        if burst is not None:
            raise ConfigError(f"{burst_name} is {burst} without {name}; give {name} as well")
        return
    check_number(name, rate, MIN_RATE, MAX_RATE)
    if burst is not None:
        check_number(burst_name, burst, 1, MAX_RATE)


def check_word(name: str, value: object, words: Collection[str]) -> None:
    """Check a setting that is one of a few words.

    Raises:
        ConfigError: the value is none of them.
    """
    if value not in words:
        raise ConfigError(f"{name} is {value!r}; use one of {', '.join(words)}")


def check_choice(name: str, value: object, kind: type[enum.Enum]) -> None:
    """Check a setting that is a member of an enum.

    Raises:
        ConfigError: the value is no member.
    """
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is {value!r}; use one of {', '.join(str(member) for member in kind)}")


def check_commit_mode(mode: str) -> None:
    """Check the commit mode of a push consumer.

    Raises:
        ConfigError: the value is no `CommitMode`.
    """
    if mode not in get_args(CommitMode):
        raise ConfigError(f"commit is {mode!r}; use one of {', '.join(get_args(CommitMode))}")


def check_compression(kind: str, level: int) -> None:
    """Check the compression options of a producer.

    Raises:
        ConfigError: the kind is unknown, or the level out of range.
    """
    if kind not in COMPRESSION_KINDS:
        raise ConfigError(f"compress_type {kind!r} is unknown; use one of {', '.join(COMPRESSION_KINDS)}")
    if not 0 <= level <= 9:
        raise ConfigError(f"compress_level is {level}; it has to be 0 to 9")


def check_separators(noun: str, text: str, separators: str = "\x02") -> None:
    """Check that a text has no character that separates properties on the wire (wire.md §4.3).

    A value may contain U+0001, which ends a name. No text may contain U+0002, which ends a pair.

    Raises:
        ClientError: the text has a separator.
    """
    for separator in separators:
        if separator in text:
            raise ClientError(f"{noun} {text!r} holds U+{ord(separator):04X}, which separates properties on the wire")


def check_is_message(message: object) -> None:
    """Check that an object to send is a message.

    Raises:
        ClientError: the object is no message; the error has the remedy.
    """
    if isinstance(message, Message):
        return
    if isinstance(message, MessageExt):
        raise ClientError(
            "a delivered message cannot be sent as it is; make a new one, as in Message(topic, delivered.body, "
            "properties=delivered.user_properties)"
        )
    kind = type(message).__name__
    raise ClientError(f"a message to send is a tianzhou.Message, got {kind}; make one, as in Message('topic', b'body')")


def check_queue(queue: object) -> None:
    """Check that an object is a queue.

    Raises:
        ClientError: the object is no queue.
    """
    if not isinstance(queue, MessageQueue):
        raise ClientError(
            f"a queue is a MessageQueue, got {queue!r}; take one of those that queues(topic) gives, or make one of "
            "topic, broker name and queue id"
        )


def check_message(message: Message, max_message_size: int) -> None:
    """Check a message before a send.

    Raises:
        ClientError: a broker would reject the message; the error has the cause and the remedy.
    """
    check_is_message(message)
    check_sendable(message.topic)
    check_body(message.body, max_message_size)
    check_attributes(message)


def check_attributes(message: Message) -> None:
    """Check all attributes of a message except topic and body.

    Raises:
        ClientError: a property, tag or key cannot be sent.
    """
    if message.properties:
        if not isinstance(message.properties, Mapping):
            raise ClientError(f"properties are a dict of str to str, got {type(message.properties).__name__}")
        properties = message.properties.items()
        if names.RETRY_TOPIC in message.properties and str(message.topic).startswith(names.RETRY_PREFIX):
            # Members use it as the message's topic (client.md §13.4).
            properties = {name: value for name, value in properties if name != names.RETRY_TOPIC}.items()
        check_properties(properties)
    if not isinstance(message.delay_level, int):
        raise ClientError(f"delay_level is {message.delay_level!r}; it is a number, 1 to 18 by default, 0 for no delay")
    if message.tags:
        if not isinstance(message.tags, str):
            raise ClientError(f"tags is {message.tags!r}; a message has one tag, a str (several labels go into keys)")
        check_separators("tag", message.tags)
        if "||" in message.tags:
            raise ClientError(f"tag {message.tags!r} holds '||', which joins tags in subscriptions; a message has one")
    if message.keys:
        check_separators("keys", _key_text(message))
    if message.sharding_key:
        if not isinstance(message.sharding_key, str):
            raise ClientError(f"sharding_key is {message.sharding_key!r}; it is a str, as in str(order_id)")
        check_separators("sharding_key", message.sharding_key)


def _key_text(message: Message) -> str:
    try:
        if not isinstance(message.keys, str) and iter(message.keys) is message.keys:
            raise ClientError("keys can be read only once; give a list, because a send may be repeated")
        return message.key_text()
    except TypeError:
        raise ClientError(f"keys is {message.keys!r}; they are one str or several, convert them first") from None


def check_batch(messages: Sequence[Message], max_message_size: int) -> None:
    """Check the messages of one batch (client.md §6.3).

    Raises:
        ClientError: the messages cannot be in one batch.
    """
    if not messages:
        raise ClientError("the batch is empty; give it at least one message")
    first = messages[0]
    check_message(first, max_message_size)
    if first.topic.startswith(names.RETRY_PREFIX):
        raise ClientError(f"messages to retry topic {first.topic} cannot be sent as a batch; send them one by one")
    for message in messages:
        if message is not first:
            check_message(message, max_message_size)
        if message.topic != first.topic:
            raise ClientError(f"a batch has one topic, this one has {first.topic} and {message.topic}; split it")
        if message.wait_store_ok != first.wait_store_ok:
            raise ClientError("all messages of a batch have the same wait_store_ok; split it")
        if message.delay_level > 0 or any(name.startswith("TIMER_") for name in message.properties):
            raise ClientError("delayed messages cannot be sent in a batch; send them one by one")
