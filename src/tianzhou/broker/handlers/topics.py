"""Requests of tools about topics: create and delete (17, 18, 215), show (21, 351, 305), figures (202, 300)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.large_bodies import decoded
from tianzhou.broker.messages.dictated_offsets import DictatedOffsets
from tianzhou.broker.services import Services
from tianzhou.broker.tables.topic_attributes import MESSAGE_TYPE, apply_changes, parse_changes
from tianzhou.errors import BrokerError
from tianzhou.limits import QUEUES_OF_TOPIC
from tianzhou.model import MessageQueue, TopicConfig, names
from tianzhou.model.name_rules import topic_name_problem
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.turns import Pace, Slices
from tianzhou.wire.bodies.groups import GROUP_LIST
from tianzhou.wire.bodies.offsets import TOPIC_STATS, TopicOffset, TopicStats
from tianzhou.wire.bodies.topics import TOPIC_CONFIG, TOPIC_CONFIGS, TOPIC_LIST, TOPIC_TABLE, TopicList, TopicTable
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class TopicHandler(Handler):
    """Handler that changes and shows the topic table.

    Args:
        services: the broker's services.
        settled: waits until a change is on the disk, and for a limited time until name servers have it.
    """

    def __init__(self, services: Services, settled: Callable[[], Awaitable[None]]) -> None:
        super().__init__(services)
        self._settled = settled
        self._dictated = DictatedOffsets(self._tables, self._replication)

    @serves(RequestCode.UPDATE_AND_CREATE_TOPIC)
    async def create(self, connection: Connection, command: Command) -> Reply:
        """Create or replace a topic; answer when the name servers have it."""
        header = read_header(command)
        self._check_name(header.topic)
        if header.topic_filter_type not in FILTER_TYPES:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"topicFilterType={header.topic_filter_type}: expected {' or '.join(FILTER_TYPES)}",
            )
        before = self._tables.topics.get(header.topic)
        config = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag,
            header.order,
            apply_changes(None if before is None else before.attributes, parse_changes(header.attributes)),
        )
        self._check_type(config)
        if self._tables.topics.put(config, self._clock.now_ms()):
            await self._settled()
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
    async def create_all(self, connection: Connection, command: Command) -> Reply:
        """Create or replace several topics as one change."""
        configs = decoded(command, TOPIC_CONFIGS.loads)
        if not command.body:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "the body holds no topicConfigList")
        async with Pace(self._turns) as pace:
            for config in configs:
                self._check_name(config.topic_name)
                self._check_type(config)
                before = self._tables.topics.get(config.topic_name)
                # The attributes in a list are changes, too: the keys have signs, as in `+message.type`.
                changes = {
                    key[1:] if key[:1] in "+-" else key: None if key[:1] == "-" else value
                    for key, value in config.attributes.items()
                }
                config.attributes = apply_changes(None if before is None else before.attributes, changes)
                await pace.rest()
            changed = self._tables.topics.put_all(configs, self._clock.now_ms())
        if changed:
            await self._settled()
        return command.reply(ResponseCode.SUCCESS)

    def _check_name(self, topic: str) -> None:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise BrokerError(ResponseCode.INVALID_PARAMETER, problem)
        protected = self._tables.settings.validate_system_topic_when_update_topic
        if protected and self._tables.topics.is_system(topic):
            raise BrokerError(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")

    def _check_type(self, config: TopicConfig) -> None:
        for key, count in (("readQueueNums", config.read_queue_nums), ("writeQueueNums", config.write_queue_nums)):
            where = f"{key} of topic {config.topic_name}"
            if count < 0:
                raise BrokerError(ResponseCode.INVALID_PARAMETER, f"{where}: {count}; give 0 or more")
            self._tables.refusals.check(QUEUES_OF_TOPIC, count, self._tables.settings.max_queues_per_topic, where)
        mixed = config.attributes.get(MESSAGE_TYPE) == "MIXED"
        if mixed and not self._tables.settings.enable_mixed_message_type:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported. (enableMixedMessageType is off)"
            )

    @serves(RequestCode.DELETE_TOPIC_IN_BROKER)
    async def delete(self, connection: Connection, command: Command) -> Reply:
        """Delete a topic with its queues and offsets."""
        topic = command.fields.get("topic", "")
        if not topic or topic.isspace():
            raise BrokerError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if self._tables.topics.is_system(topic):
            raise BrokerError(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")
        deleted = [topic]
        if self._tables.settings.clear_retry_topic_when_delete_topic:
            deleted += self._pop_retry_topics(topic)
        gone = self._tables.topics.delete(deleted, self._clock.now_ms())
        places = [place for name in deleted for place in self._dictated.topic_deleted(name)]
        for name in deleted:
            self._tables.offsets.forget_topic(name)
            self._tables.filters.forget_topic(name)
            self._stats.forget_topic(name)
            self._store.delete_topic(name)
        for place in places:
            self._tables.offsets.on_reset(*place)
        if gone:
            await self._settled()
        return command.reply(ResponseCode.SUCCESS)

    def _pop_retry_topics(self, topic: str) -> Iterable[str]:
        for group in self._tables.offsets.groups_of(topic):
            for joint in "_+":
                name = f"{names.retry_topic(group)}{joint}{topic}"
                if name in self._tables.topics:
                    yield name

    @serves(RequestCode.GET_ALL_TOPIC_CONFIG)
    def all(self, connection: Connection, command: Command) -> Slices[Reply]:
        """Return the complete table."""
        topics = self._tables.topics
        body = yield from TOPIC_TABLE.slices(TopicTable(dict(topics.all()), topics.version))
        return self._table_reply(command, body)

    @serves(RequestCode.GET_TOPIC_CONFIG)
    def one(self, connection: Connection, command: Command) -> Reply:
        """Return one topic's configuration."""
        return command.reply(ResponseCode.SUCCESS, body=TOPIC_CONFIG.dumps(self._existing(read_header(command).topic)))

    def _existing(self, topic: str) -> TopicConfig:
        config = self._tables.topics.get(topic)
        if config is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return config

    @serves(RequestCode.GET_TOPIC_STATS_INFO)
    async def figures(self, connection: Connection, command: Command) -> Reply:
        """Return the bounds of all queues, including empty ones."""
        config = self._existing(read_header(command).topic)
        topic, store = config.topic_name, self._store
        stats = TopicStats(topic_put_tps=self._stats.put_rate(topic, self._clock.now_ms()))
        async with Pace(self._turns) as pace:
            for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
                low = max(store.min_offset(topic, queue_id), 0)
                high = max(store.max_offset(topic, queue_id), 0)
                last = await store.find(store.lookups.time_steps(topic, queue_id, high - 1)) if high > low else 0
                queue = MessageQueue(topic, self._tables.settings.broker_name, queue_id)
                stats.offset_table[queue] = TopicOffset(low, high, max(last, 0))
                await pace.rest()
            body = await pace.through(TOPIC_STATS.slices(stats))
        return command.reply(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
    def consumers(self, connection: Connection, command: Command) -> Slices[Reply]:
        """Return the groups that read the topic: connected groups, and groups with offsets."""
        topic = read_header(command).topic
        groups = dict.fromkeys(self._tables.clients.subscribers(topic))
        groups |= dict.fromkeys(self._tables.offsets.groups_of(topic))
        return command.reply(ResponseCode.SUCCESS, body=(yield from GROUP_LIST.slices(groups)))

    @serves(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def system(self, connection: Connection, command: Command) -> Reply:
        """Return the names of the system topics."""
        names = TopicList(self._tables.topics.system_names())
        return command.reply(ResponseCode.SUCCESS, body=TOPIC_LIST.dumps(names))
