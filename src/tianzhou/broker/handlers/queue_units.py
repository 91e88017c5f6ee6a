"""Requests of operators for consume queues (321, 354), wire.md §9.10."""

from __future__ import annotations

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.errors import BrokerError
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.wire.bodies.offsets import QUEUE_UNITS, QueueUnit, QueueUnits
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header
from tianzhou.wire.json_dialect import dumps

MOST_UNITS = 10_000
CHECK_NOT_APPLICABLE = 2
_PLACEHOLDER_REMARK = "not set any response code"


class QueueUnitHandler(Handler):
    """Handler that shows units of consume queues."""

    @serves(RequestCode.QUERY_CONSUME_QUEUE)
    def units(self, connection: Connection, command: Command) -> Reply:
        """Return some units of a queue, and whether a group's tags select them."""
        header = read_header(command)
        topic, queue_id, store = header.topic or "", header.queue_id, self._store
        if queue_id not in store.queues(topic):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        shown = QueueUnits(None, max(store.min_offset(topic, queue_id), 0), store.max_offset(topic, queue_id))
        codes: frozenset[int] | None = None
        if header.consumer_group:
            subscription = self._tables.clients.subscription(header.consumer_group, topic)
            if subscription is None:
                shown.filter_data = f"{header.consumer_group}@{topic} is not online!"
            else:
                shown.subscription_data, codes = subscription.data, subscription.codes
                shown.filter_data = "null"
        found = []
        for offset in range(header.index, min(header.index + min(header.count, MOST_UNITS), shown.max_queue_index)):
            unit = store.queue_unit(topic, queue_id, offset)
            if unit is not None:
                found.append(QueueUnit(*unit, eval=codes is not None and unit[2] in codes))
        if not found:
            remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
            return command.reply(ResponseCode.SUCCESS, remark, body=QUEUE_UNITS.dumps(shown))
        shown.queue_data = found
        return command.reply(ResponseCode.SUCCESS, _PLACEHOLDER_REMARK, body=QUEUE_UNITS.dumps(shown))

    @serves(RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS)
    def rocksdb(self, connection: Connection, command: Command) -> Reply:
        """Return that there are no queues in RocksDB."""
        return command.reply(
            ResponseCode.SUCCESS, _PLACEHOLDER_REMARK, body=dumps({"checkStatus": CHECK_NOT_APPLICABLE})
        )
