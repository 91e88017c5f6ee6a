"""Deletions requested by operators: expired files (306, 329), queues of deleted topics (316) (store.md §12)."""

from __future__ import annotations

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.rebuilt_note import NAME, rebuilt_tables
from tianzhou.errors import BrokerError
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command

LIGHT_PREFIX = "%LMQ%"


class RetentionHandler(Handler):
    """Handler that starts deletions and answers when they have begun, as Apache's broker does."""

    @serves(RequestCode.DELETE_EXPIRED_COMMITLOG)
    def delete_expired(self, connection: Connection, command: Command) -> Reply:
        """Delete expired log segments at once and in the next runs, independent of `deleteWhen`."""
        self._store.delete_expired()
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    def clean_queues(self, connection: Connection, command: Command) -> Reply:
        """Delete the queue files whose messages have expired.

        The last file of a queue stays. Apache's broker deletes the queue when all its messages have expired. The queue
        would then begin again at offset 0, and groups with larger offsets would skip new messages.
        """
        self._store.clean_queues()
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.CLEAN_UNUSED_TOPIC)
    def clean_topics(self, connection: Connection, command: Command) -> Reply:
        """Delete the queues of topics that are not in the topic table; refuse while the table is a rebuilt one."""
        root = self._store.settings.root
        if lost := rebuilt_tables(root):
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"no queue is deleted: this broker started after it had lost {lost}, and the topic table may lack "
                f"topics; create those that are missing, then delete {root / 'config' / NAME} and try again",
            )
        self._store.delete_other_topics(self._is_used)
        return command.reply(ResponseCode.SUCCESS)

    def _is_used(self, topic: str) -> bool:
        topics = self._tables.topics
        return topic in topics or topics.is_system(topic) or topic.startswith(LIGHT_PREFIX)
