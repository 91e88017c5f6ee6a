"""Bodies of a broker's registrations: the complete table of topics, or the changed topics."""

from __future__ import annotations

from collections.abc import Iterable

from tianzhou.broker.state import Tables
from tianzhou.broker.tables.topic_json_cache import TopicJsonCache
from tianzhou.broker.tables.topics import READ_WRITE
from tianzhou.model import TopicConfig
from tianzhou.slices import in_turns
from tianzhou.wire.bodies.register import RegisterBody, RegisterCodec, encode_registered_topic, join_register_body
from tianzhou.wire.bodies.topics import TopicTable


def registered_topic(config: TopicConfig, broker_permission: int) -> TopicConfig:
    """Return a topic's registered form: a broker that is not read-write reduces every permission."""
    if broker_permission == READ_WRITE:
        return config
    perm = config.perm & broker_permission
    return TopicConfig(config.topic_name, config.read_queue_nums, config.write_queue_nums, perm)


class TopicBodies:
    """Encoder of a broker's topics for its name servers; each topic is encoded once.

    Args:
        tables: the broker's tables.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._topic_json = TopicJsonCache(self._text)
        self._json_permission = tables.settings.broker_permission
        self._cached_body: tuple[object, bytes] = (None, b"")

    def of(self, topics: Iterable[str]) -> bytes:
        """Return the body with the existing ones of the named topics."""
        table = self._tables.topics
        some = [topic for topic in map(table.all().get, topics) if topic is not None]
        return join_register_body(table.version, map(self._text, some))

    async def full(self) -> bytes:
        """Return the body with all topics; a large table is encoded in turns of the loop.

        The body has all changes up to the return, because there is no await after it was encoded.
        """
        topics, settings = self._tables.topics, self._tables.settings
        if settings.broker_permission != self._json_permission:
            self._json_permission = settings.broker_permission
            self._topic_json.forget()
        if not settings.compressed_register:
            await in_turns(self._topic_json.refresh(topics.all()))
        cache_key = topics.version, self._json_permission, settings.compressed_register
        if self._cached_body[0] != cache_key:
            if settings.compressed_register:
                registered = {name: registered_topic(one, self._json_permission) for name, one in topics.all().items()}
                body = RegisterCodec(compressed=True).dumps(RegisterBody(TopicTable(registered, topics.version)))
            else:
                body = join_register_body(topics.version, self._topic_json.all(topics.all()))
            self._cached_body = cache_key, body
        return self._cached_body[1]

    def _text(self, topic: TopicConfig) -> bytes:
        return encode_registered_topic(registered_topic(topic, self._json_permission))
