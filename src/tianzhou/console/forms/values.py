"""Values of the forms of topics and groups: checks of fields, and rows of a preview. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tianzhou.admin.queue_numbers import DroppedQueue, QueuePlan, QueueStep, QueueUse
from tianzhou.client.validation import DEFAULT_CONSUMER_GROUP, DEFAULT_PRODUCER_GROUP, SYSTEM_TOPICS
from tianzhou.console.lists import Words
from tianzhou.console.topic_list import MESSAGE_TYPE
from tianzhou.limits import QUEUES_OF_TOPIC
from tianzhou.model import SubscriptionGroupConfig, TopicConfig, names
from tianzhou.model.name_rules import LONGEST_GROUP, LONGEST_TOPIC

if TYPE_CHECKING:
    from tianzhou.admin.cluster import BrokerStatus

MAX_QUEUES: Final = QUEUES_OF_TOPIC.default
"""Maximum number of queues of a topic, unless its brokers have another `maxQueuesPerTopic`."""
LEAST_RETRIES: Final = -1
"""Minimum of a group's retries. -1 means that the group has no limit of its own."""
MOST_RETRIES: Final = 1_000
DERIVED_PREFIXES: Final = (names.RETRY_PREFIX, names.DLQ_PREFIX, names.LMQ_PREFIX)
"""Prefixes of topics that brokers create themselves."""
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
PERMISSIONS: Final = (6, 4, 2)
MESSAGE_TYPES: Final = ("", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
"""Valid message types of a topic; empty accepts every type."""
MOST_SHOWN: Final = 50
"""Maximum number of queues in a preview."""
CLUSTER: Final = "cluster:"
BROKER: Final = "broker:"
NEW: Final = "new:"


def whole_number(value: object, least: int, most: int) -> int | None:
    """Return the value of a field as a whole number; None for a fraction, another type or a number out of range.

    Args:
        value: value of the field: a number, or None for an empty field.
        least: the smallest number.
        most: the largest number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        return None
    return int(value) if value == int(value) else None


def number_problem(value: object, least: int, most: int, words: Words) -> str | None:
    """Return the problem of a number field in words; None for a valid value. See `whole_number`."""
    if whole_number(value, least, most) is not None:
        return None
    return words("form.number", least=f"{least:,}", most=f"{most:,}")


def queues_problem(value: object, words: Words) -> str | None:
    """Return the problem of a number of queues in words; None for a valid number."""
    return number_problem(value, 1, MAX_QUEUES, words)


def topic_problem(name: str | None, reserved: Collection[str], words: Words) -> str | None:
    """Return why a visitor may not create a topic with a name; None when the name is valid.

    Args:
        name: the name, as typed.
        reserved: names of topics that the cluster uses internally.
        words: returns texts in the visitor's language.
    """
    text = (name or "").strip()
    if (problem := _name_problem(text, LONGEST_TOPIC, words)) is not None:
        return problem
    if text in SYSTEM_TOPICS or text in reserved or text.startswith(names.SYSTEM_PREFIX):
        return words("form.name.reserved", name=text)
    return None


def group_problem(name: str | None, reserved: Collection[str], words: Words) -> str | None:
    """Return why a visitor may not create a group with a name; None when the name is valid.

    Args:
        name: the name, as typed.
        reserved: names of groups that exist on every broker.
        words: returns texts in the visitor's language.
    """
    text = (name or "").strip()
    if (problem := _name_problem(text, LONGEST_GROUP, words)) is not None:
        return problem
    if text in {*reserved, DEFAULT_CONSUMER_GROUP, DEFAULT_PRODUCER_GROUP} or text.startswith(SYSTEM_GROUP_PREFIX):
        return words("form.name.reserved", name=text)
    return None


def _name_problem(name: str, longest: int, words: Words) -> str | None:
    if not name:
        return words("form.name.blank")
    if names.NAME_PATTERN.fullmatch(name) is None:
        return words("form.name.characters")
    if len(name) > longest:
        return words("form.name.long", most=longest)
    prefix = next((one for one in DERIVED_PREFIXES if name.startswith(one)), None)
    return None if prefix is None else words("form.name.derived", prefix=prefix)


# --- where -------------------------------------------------------------------------------------------------------


def creation_targets(brokers: Iterable[BrokerStatus], words: Words) -> dict[str, str]:
    """Return the places where a topic can be created: all clusters, each cluster, each broker with a master.

    Args:
        brokers: broker processes of the last snapshot.
        words: returns texts in the visitor's language.

    Returns:
        Labels by choice, see `creation_arguments`.
    """
    masters = [one for one in brokers if one.is_master]
    clusters = sorted({one.cluster for one in masters})
    found = {"": words("topic.where.all")}
    found |= {f"{CLUSTER}{name}": words("topic.where.cluster", name=name) for name in clusters}
    return found | {f"{BROKER}{one.broker_name}": words("topic.where.broker", name=one.broker_name) for one in masters}


def creation_arguments(choice: str, brokers: Iterable[BrokerStatus]) -> dict[str, str]:
    """Return the arguments of `Topics.create` for a choice of `creation_targets` or `change_targets`."""
    if choice.startswith(CLUSTER):
        return {"cluster": choice.removeprefix(CLUSTER)}
    name = choice.removeprefix(BROKER).removeprefix(NEW)
    address = next((one.address for one in brokers if one.is_master and one.broker_name == name), None)
    return {} if address is None else {"broker_addr": address}


def change_targets(having: Collection[str], brokers: Iterable[BrokerStatus], words: Words) -> dict[str, str]:
    """Return the places where a topic can be changed, and the brokers that it can be added to.

    Args:
        having: names of the brokers that have the topic.
        brokers: broker processes of the last snapshot.
        words: returns texts in the visitor's language.
    """
    found = {"": words("topic.where.having")}
    if len(having) > 1:
        found |= {f"{BROKER}{name}": words("topic.where.broker", name=name) for name in sorted(having)}
    others = sorted({one.broker_name for one in brokers if one.is_master} - set(having))
    return found | {f"{NEW}{name}": words("topic.where.new", name=name) for name in others}


# --- topics ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicChange:
    """The settings of a topic that a visitor has changed. The other settings are None.

    Attributes:
        read: number of read queues per broker.
        write: number of write queues per broker.
        perm: a sum of 4 (read) and 2 (write).
        message_type: one of `MESSAGE_TYPES`.
    """

    read: int | None = None
    write: int | None = None
    perm: int | None = None
    message_type: str | None = None

    @property
    def attributes(self) -> dict[str, str | None] | None:
        """Changes of the topic's attributes in the form of `Topics.update`."""
        return None if self.message_type is None else {MESSAGE_TYPE: self.message_type or None}


def message_type_of(config: TopicConfig) -> str:
    """Return the message type of a topic, as in `MESSAGE_TYPES`."""
    found = config.attributes.get(MESSAGE_TYPE, "")
    return "" if found == "UNSPECIFIED" else found


def type_words(message_type: str, words: Words) -> str:
    """Return a message type as text."""
    if not message_type:
        return words("topic.accepts.any")
    known = message_type in MESSAGE_TYPES
    return words(f"topic.type.{message_type.lower()}") if known else words("topic.accepts.other", value=message_type)


def perm_words(perm: int, words: Words) -> str:
    """Return a permission as text, or as a number when it has further bits."""
    return words(f"topic.perm.{perm}") if perm in PERMISSIONS else str(perm)


def changed(shown: TopicConfig, read: int, write: int, perm: int, message_type: str) -> TopicChange:
    """Return the settings that differ from the form's first values.

    Brokers may have different numbers of queues. A setting that the visitor has not changed stays on each of them.

    Args:
        shown: the configuration that the form showed first.
        read: number of read queues in the form.
        write: number of write queues in the form.
        perm: permission in the form.
        message_type: message type in the form.
    """
    return TopicChange(
        read if read != shown.read_queue_nums else None,
        write if write != shown.write_queue_nums else None,
        perm if perm != shown.perm else None,
        message_type if message_type != message_type_of(shown) else None,
    )


def change_rows(configs: Mapping[str, TopicConfig], change: TopicChange, words: Words) -> list[dict[str, Any]]:
    """Return the rows that compare old and new settings, one for each setting that differs on a broker.

    Args:
        configs: configurations of the topic by broker name, of the brokers to change.
        change: the visitor's changes.
        words: returns texts in the visitor's language.
    """
    rows: list[dict[str, Any]] = []
    for broker, config in sorted(configs.items()):
        pairs = (
            ("topic.read", str(config.read_queue_nums), None if change.read is None else str(change.read)),
            ("topic.write", str(config.write_queue_nums), None if change.write is None else str(change.write)),
            ("topic.perm", perm_words(config.perm, words),
             None if change.perm is None else perm_words(change.perm, words)),
            ("topic.accepts", type_words(message_type_of(config), words),
             None if change.message_type is None else type_words(change.message_type, words)),
        )  # fmt: skip
        rows += [
            {"key": f"{broker}:{key}", "broker": broker, "setting": words(key), "now": now, "then": then}
            for key, now, then in pairs
            if then is not None and then != now
        ]
    return rows


def addition_rows(
    broker: str, read: int, write: int, perm: int, message_type: str, words: Words
) -> list[dict[str, Any]]:
    """Return the rows of a topic that is added to a broker; see `change_rows`."""
    values = (
        ("topic.read", str(read)), ("topic.write", str(write)), ("topic.perm", perm_words(perm, words)),
        ("topic.accepts", type_words(message_type, words)),
    )  # fmt: skip
    absent = words("change.absent")
    return [
        {"key": f"{broker}:{key}", "broker": broker, "setting": words(key), "now": absent, "then": then}
        for key, then in values
    ]


def step_words(step: QueueStep, words: Words) -> str:
    """Return a step of a plan as a sentence."""
    key = "cut" if step.cuts_reading else "grow" if step.use is QueueUse.READ else "write"
    return words(f"change.step.{key}", number=step.number, brokers=", ".join(step.brokers))


def range_words(first: int, behind: int) -> str:
    """Return the numbers of queues from `first` to the one before `behind`."""
    return str(first) if behind - first == 1 else f"{first}-{behind - 1}"


def dropped_words(plan: QueuePlan) -> str:
    """Return the names of the queues that a plan drops; empty when it drops none."""
    return ", ".join(
        f"{broker}:{range_words(new.read, old.read)}"
        for broker, (old, new) in plan.numbers.items()
        if new.read < old.read
    )


def unread_words(unread: Mapping[str, int], words: Words) -> str:
    """Return unread messages by group as text."""
    return ", ".join(words("change.unread.group", group=group, count=f"{count:,}") for group, count in unread.items())


def dropped_rows(dropped: Sequence[DroppedQueue], words: Words) -> list[dict[str, Any]]:
    """Return the rows of the dropped queues with messages, queues with unread messages first."""
    held = sorted((one for one in dropped if one.messages), key=lambda one: not one.unread)
    return [
        {
            "queue": f"{one.broker_name}:{one.queue_id}",
            "messages": one.messages,
            "unread": unread_words(one.unread, words),
        }
        for one in held
    ]


def uneven_words(configs: Mapping[str, TopicConfig], words: Words) -> list[str]:
    """Return a sentence for each broker with different numbers of read queues and write queues."""
    found = []
    for broker, config in sorted(configs.items()):
        read, write = config.read_queue_nums, config.write_queue_nums
        if read != write:
            key = "topic.reads.more" if read > write else "topic.writes.more"
            queues = range_words(min(read, write), max(read, write))
            found.append(words(key, broker=broker, queues=queues, number=max(write, 1)))
    return found


# --- groups ------------------------------------------------------------------------------------------------------


def changed_settings(
    shown: SubscriptionGroupConfig, enabled: bool, broadcast: bool, retries: int
) -> dict[str, bool | int]:
    """Return the settings of a group that differ from the form's first values, by field.

    Args:
        shown: the configuration that the form showed first.
        enabled: whether the group may consume, in the form.
        broadcast: whether the group may broadcast, in the form.
        retries: number of deliveries before a message is a dead letter, in the form.
    """
    given = {"consume_enable": enabled, "consume_broadcast_enable": broadcast, "retry_max_times": retries}
    return {name: value for name, value in given.items() if getattr(shown, name) != value}


def group_rows(
    configs: Mapping[str, SubscriptionGroupConfig], settings: Mapping[str, bool | int], words: Words
) -> list[dict[str, Any]]:
    """Return the rows that compare old and new settings of a group, for the settings that differ.

    Args:
        configs: configurations of the group by broker name.
        settings: new values by field of `SubscriptionGroupConfig`.
        words: returns texts in the visitor's language.
    """
    keys = {
        "consume_enable": "group.enabled",
        "consume_broadcast_enable": "group.broadcast",
        "retry_max_times": "group.retries",
    }
    return [
        {
            "key": f"{broker}:{name}",
            "broker": broker,
            "setting": words(keys[name]),
            "now": _group_value(getattr(config, name), words),
            "then": _group_value(value, words),
        }
        for broker, config in sorted(configs.items())
        for name, value in settings.items()
        if getattr(config, name) != value
    ]


def _group_value(value: bool | int, words: Words) -> str:
    if isinstance(value, bool):
        return words("group.on" if value else "group.off")
    return str(value)
