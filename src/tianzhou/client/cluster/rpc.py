"""The small requests of clients and tools, one function each (client.md §2.1, wire.md §7).

A function sends one request over a `RemotingClient` to one address and returns a plain value. The caller selects the
address and handles a missing answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tianzhou.client.cluster.remedies import check
from tianzhou.errors import ProtocolError
from tianzhou.limits import MEMBERS_OF_ANSWER
from tianzhou.model import HeartbeatData, MessageExt, MessageQueue, SubscriptionData
from tianzhou.records.codec import decode_records
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.offsets import CONSUMER_OFFSETS
from tianzhou.wire.codes import V5_0_0, RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply, write_header
from tianzhou.wire.pulled import to_message

API_TIMEOUT_MS = 3000
OFFSET_TIMEOUT_MS = 5000
LOCK_TIMEOUT_MS = 3000
QUERY_TIMEOUT_MS = 18_000


def request(code: int, body: bytes = b"", **header: Any) -> Command:
    """Return a request with header fields in snake_case; None values are omitted."""
    return Command(code, fields=write_header(code, **header), body=body)


async def call(
    remoting: RemotingClient,
    address: str,
    code: int,
    *,
    body: bytes = b"",
    timeout_ms: float = API_TIMEOUT_MS,
    **header: Any,
) -> Command:
    """Send a request and return its reply. The reply is a success.

    Raises:
        BrokerError: the answer's code is not 0.
        RemotingError: no answer arrived.
    """
    return check(await remoting.invoke(address, request(code, body, **header), timeout_ms), address)


def _named(queue: MessageQueue) -> dict[str, Any]:
    """Return the header fields that name a queue."""
    return {"topic": queue.topic, "queue_id": queue.queue_id, "bname": queue.broker_name}


async def query_offset(remoting: RemotingClient, address: str, group: str, queue: MessageQueue) -> int | None:
    """Return the group's offset of a queue as the broker answers it; None when the group has none (wire.md §7.3).

    When the group has no committed offset, RocketMQ's broker answers 0 while message 0 of the queue is in its memory.
    """
    return (await _query_offset(remoting, address, group, queue, None))[0]


async def query_committed(
    remoting: RemotingClient, address: str, group: str, queue: MessageQueue
) -> tuple[int | None, bool]:
    """Return the offset that the group committed for a queue; None when the group committed none.

    Returns:
        The offset, and whether the group has certainly committed this offset. This is uncertain when the broker answers
        0 and is older than 5.0, because such a broker ignores the flag that requests committed offsets only.
    """
    offset, version = await _query_offset(remoting, address, group, queue, False)
    return offset, offset != 0 or version >= V5_0_0


async def _query_offset(
    remoting: RemotingClient, address: str, group: str, queue: MessageQueue, zero_if_not_found: bool | None
) -> tuple[int | None, int]:
    code = RequestCode.QUERY_CONSUMER_OFFSET
    command = request(code, consumer_group=group, set_zero_if_not_found=zero_if_not_found, **_named(queue))
    reply = await remoting.invoke(address, command, OFFSET_TIMEOUT_MS)
    if reply.code == ResponseCode.QUERY_NOT_FOUND:
        return None, reply.version
    offset = int(read_reply(code, check(reply, address)).offset)
    return offset if offset >= 0 else None, reply.version


async def all_committed(remoting: RemotingClient, address: str) -> dict[str, dict[int, int]]:
    """Return all offsets that groups committed at a broker: `topic@group` to queue id to next offset (wire.md §7.10).

    Topics and groups have the names that the broker uses. The result omits offsets of light queues.
    """
    reply = await call(remoting, address, RequestCode.GET_ALL_CONSUMER_OFFSET, timeout_ms=OFFSET_TIMEOUT_MS)
    return CONSUMER_OFFSETS.loads(reply.body).offset_table


def update_offset_request(group: str, queue: MessageQueue, offset: int) -> Command:
    """Return the request that commits an offset."""
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, consumer_group=group, commit_offset=offset, **_named(queue))


async def update_offset(remoting: RemotingClient, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    """Commit an offset and wait for the broker's confirmation."""
    check(await remoting.invoke(address, update_offset_request(group, queue, offset), OFFSET_TIMEOUT_MS), address)


async def max_offset(
    remoting: RemotingClient, address: str, queue: MessageQueue, timeout_ms: float = API_TIMEOUT_MS
) -> int:
    """Return the offset that the queue's next message will get."""
    return await _offset(remoting, address, RequestCode.GET_MAX_OFFSET, queue, timeout_ms)


async def min_offset(
    remoting: RemotingClient, address: str, queue: MessageQueue, timeout_ms: float = API_TIMEOUT_MS
) -> int:
    """Return the first offset that the queue still has."""
    return await _offset(remoting, address, RequestCode.GET_MIN_OFFSET, queue, timeout_ms)


async def search_offset(
    remoting: RemotingClient,
    address: str,
    queue: MessageQueue,
    timestamp_ms: int,
    *,
    upper: bool = False,
    timeout_ms: float = API_TIMEOUT_MS,
) -> int:
    """Return the first offset stored at or after a time, or with `upper` the last at or before it (wire.md §7.3)."""
    code, side = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "UPPER" if upper else "LOWER"
    return await _offset(remoting, address, code, queue, timeout_ms, timestamp=timestamp_ms, boundary_type=side)


async def _offset(
    remoting: RemotingClient, address: str, code: int, queue: MessageQueue, timeout_ms: float, **header: Any
) -> int:
    reply = await call(remoting, address, code, timeout_ms=timeout_ms, **_named(queue), **header)
    return int(read_reply(code, reply).offset)


async def earliest_store_time(
    remoting: RemotingClient, address: str, queue: MessageQueue, timeout_ms: float = API_TIMEOUT_MS
) -> int | None:
    """Return the store time of the queue's first message, ms since the epoch; None for an empty queue."""
    code = RequestCode.GET_EARLIEST_MSG_STORETIME
    reply = await call(remoting, address, code, timeout_ms=timeout_ms, **_named(queue))
    timestamp = int(read_reply(code, reply).timestamp)
    return timestamp if timestamp >= 0 else None


async def consumer_ids(
    remoting: RemotingClient, address: str, group: str, timeout_ms: float = API_TIMEOUT_MS
) -> list[str]:
    """Return the client ids of a group's members that one broker knows; empty when it knows none (wire.md §7.2)."""
    from tianzhou.wire.bodies.clients import CONSUMER_IDS

    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    reply = await remoting.invoke(address, request(code, consumer_group=group), timeout_ms)
    if reply.code == ResponseCode.SYSTEM_ERROR:
        return []
    found = CONSUMER_IDS.loads(check(reply, address).body)
    if len(found) > MEMBERS_OF_ANSWER.default:
        raise MEMBERS_OF_ANSWER.error(
            len(found), MEMBERS_OF_ANSWER.default, f"the members of group {group} from {address}"
        )
    return found


async def heartbeat(
    remoting: RemotingClient, address: str, data: HeartbeatData, timeout_ms: float = API_TIMEOUT_MS
) -> None:
    """Send a heartbeat to a broker (wire.md §7.1)."""
    from tianzhou.wire.bodies.heartbeat import HEARTBEAT

    await call(remoting, address, RequestCode.HEART_BEAT, body=HEARTBEAT.dumps(data), timeout_ms=timeout_ms)


async def unregister(
    remoting: RemotingClient, address: str, client_id: str, *, timeout_ms: float = API_TIMEOUT_MS, **group: Any
) -> None:
    """Unregister this client from `producer_group=…` or `consumer_group=…` at a broker (wire.md §7.2)."""
    code = RequestCode.UNREGISTER_CLIENT
    await call(remoting, address, code, timeout_ms=timeout_ms, client_id=client_id, **group)


async def check_client_config(
    remoting: RemotingClient, address: str, client_id: str, group: str, subscription: SubscriptionData
) -> None:
    """Ask a broker whether it can evaluate a subscription (wire.md §7.2).

    Raises:
        BrokerError: the expression does not compile, or property filters are switched off.
    """
    from tianzhou.wire.bodies.heartbeat import CLIENT_CONFIG_CHECK, ClientConfigCheck

    body = CLIENT_CONFIG_CHECK.dumps(ClientConfigCheck(client_id, group, subscription))
    await call(remoting, address, RequestCode.CHECK_CLIENT_CONFIG, body=body)


async def send_back(
    remoting: RemotingClient,
    address: str,
    group: str,
    message: MessageExt,
    *,
    delay_level: int,
    max_reconsume_times: int,
) -> None:
    """Request that a broker deliver a message to the group again later (wire.md §7.6).

    Args:
        remoting: carries the request.
        address: the master of the broker that stores the message.
        group: the consumer group.
        message: the message, as delivered.
        delay_level: a level above 0; 0 lets the broker choose; -1 sends the message to the dead letters.
        max_reconsume_times: number of attempts after which the message becomes a dead letter.
    """
    await call(
        remoting,
        address,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        timeout_ms=OFFSET_TIMEOUT_MS,
        offset=message.commitlog_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.msg_id,
        origin_topic=message.topic,
        unit_mode=False,
        max_reconsume_times=max_reconsume_times,
        bname=message.broker_name,
    )


async def lock_queues(
    remoting: RemotingClient, address: str, client_id: str, group: str, queues: Iterable[MessageQueue]
) -> list[MessageQueue]:
    """Lock queues of one broker for ordered consumption, or renew the locks (wire.md §7.4).

    Returns:
        The queues that this client has locked now.
    """
    from tianzhou.wire.bodies.clients import LOCK_REQUEST, LOCKED_QUEUES, LockRequest

    body = LOCK_REQUEST.dumps(LockRequest(client_id, group, list(queues)))
    reply = await call(remoting, address, RequestCode.LOCK_BATCH_MQ, body=body, timeout_ms=LOCK_TIMEOUT_MS)
    return LOCKED_QUEUES.loads(reply.body)


async def unlock_queues(
    remoting: RemotingClient, address: str, client_id: str, group: str, queues: Iterable[MessageQueue]
) -> None:
    """Release this client's locks on queues of one broker and wait for the confirmation (wire.md §7.4)."""
    from tianzhou.wire.bodies.clients import LOCK_REQUEST, LockRequest

    body = LOCK_REQUEST.dumps(LockRequest(client_id, group, list(queues)))
    await call(remoting, address, RequestCode.UNLOCK_BATCH_MQ, body=body, timeout_ms=LOCK_TIMEOUT_MS)


async def view_message(
    remoting: RemotingClient,
    address: str,
    physical_offset: int,
    *,
    topic: str | None = None,
    broker_name: str = "",
    timeout_ms: float = API_TIMEOUT_MS,
) -> MessageExt:
    """Return the message stored at a commit-log offset (wire.md §7.5).

    Raises:
        ProtocolError: the answer has no record.
    """
    reply = await call(
        remoting, address, RequestCode.VIEW_MESSAGE_BY_ID, timeout_ms=timeout_ms, offset=physical_offset, topic=topic
    )
    for record in decode_records(reply.body):
        return to_message(record, broker_name)[0]
    raise ProtocolError(f"{address} answered a message query with {len(reply.body)} bytes that hold no message")


async def query_messages(
    remoting: RemotingClient,
    address: str,
    topic: str,
    key: str,
    *,
    max_num: int,
    begin_ms: int,
    end_ms: int,
    unique_key: bool = False,
    broker_name: str = "",
) -> list[MessageExt]:
    """Return the messages under a key in a broker's index (wire.md §7.5).

    The index compares hashes, so callers must check the key.
    """
    code = RequestCode.QUERY_MESSAGE
    reply = await remoting.invoke(
        address,
        request(
            code,
            topic=topic,
            key=key,
            max_num=max_num,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            # Omitted when false, because brokers do not agree on whether the signature covers it.
            unique_key_query=unique_key or None,
        ),
        QUERY_TIMEOUT_MS,
    )
    if reply.code == ResponseCode.QUERY_NOT_FOUND:
        return []
    records = decode_records(check(reply, address).body)
    return [message for record in records for message in to_message(record, broker_name)]
