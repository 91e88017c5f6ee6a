"""Offsets that the broker dictates in the answer to the next pull of a queue (broker.md §9.3)."""

from __future__ import annotations

from typing import Any

from tianzhou.broker.replication.replication import Replication
from tianzhou.broker.state import Tables
from tianzhou.broker.tables.broadcast_offsets import BY_PROXY
from tianzhou.model import ConsumeType, MessageModel
from tianzhou.model.name_rules import CLIENT_ID
from tianzhou.remoting.connection import Connection
from tianzhou.store.store import MessageStore


class DictatedOffsets:
    """Offsets that were reset at the broker, and offset 0 of topics that were deleted and created again.

    A slave learns of topics later than its master, so only a master decides that a position belongs to a deleted topic.

    Args:
        tables: the broker's tables.
        replication: the broker's role.
    """

    def __init__(self, tables: Tables, replication: Replication) -> None:
        self._tables = tables
        self._replication = replication
        self._offsets, self._voids = tables.offsets, tables.void_positions

    def wait(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether an offset waits for the group's next pull of a queue, so that commits are ignored."""
        return self._offsets.reset_waits(group, topic, queue_id) or self.is_remade(group, topic, queue_id)

    def is_remade(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether members of a group may still have positions of a topic that was deleted."""
        return self._voids.waits(group, topic, queue_id) and not self._replication.is_slave

    def take(self, connection: Connection, header: Any) -> int | None:
        """Return the offset for the answer to a pull; None when the pull's own offset counts.

        Args:
            connection: connection of the member.
            header: header fields of the pull.
        """
        place = header.consumer_group, header.topic, header.queue_id
        if self._offsets.reset_waits(*place):
            return self._offsets.take_reset(*place) or 0
        if not self.is_remade(*place):
            return None
        broadcaster = self.broadcaster(connection, header)
        return 0 if self._voids.is_void(*place, header.queue_offset, broadcaster) else None

    def broadcaster(self, connection: Connection, header: Any) -> str | None:
        """Return the id of the client that a pull is for, if this client gets all messages of its group; else None."""
        if header.request_source == BY_PROXY:
            client_id: str | None = header.proxy_froward_client_id
            CLIENT_ID.check(client_id or "")
            return client_id
        online = self._tables.clients.consumers.get(header.consumer_group)
        if online is None or online.message_model is not MessageModel.BROADCASTING:
            return None
        client = online.clients.get(connection)
        return None if client is None or online.consume_type is ConsumeType.CONSUME_ACTIVELY else client.client_id

    def topic_missing(self, header: Any, store: MessageStore) -> None:
        """Note a pull from a missing topic.

        The topic was deleted while the member ran. This broker may have been restarted since, or was not the master
        then.

        Args:
            header: header fields of the pull.
            store: the message store; a topic that lost only its configuration still has queues there.
        """
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if header.queue_offset <= 0 or group not in self._tables.clients.consumers or store.queues(topic):
            return
        if not self._replication.is_slave and self._tables.offsets.committed(group, topic, queue_id) is None:
            self._tables.void_positions.topic_deleted(topic, group, [queue_id])

    def topic_deleted(self, topic: str) -> list[tuple[str, str, int]]:
        """Note that a topic is about to be deleted; return groups, topic and queues whose held pulls have to end."""
        places = []
        for group, queues in self._tables.offsets.positions(topic).items():
            if group in self._tables.clients.consumers:
                self._tables.void_positions.topic_deleted(topic, group, queues)
                places += [(group, topic, queue_id) for queue_id in sorted(queues)]
        return places
