"""Pull requests and their replies (wire.md §6)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from tianzhou._hot.headers import PullReplyHeader
from tianzhou.client.cluster import rpc
from tianzhou.client.cluster.remedies import broker_error
from tianzhou.client.consumer.subscription import tag_wanted
from tianzhou.client.namespaces.request_names import message_inside
from tianzhou.errors import ProtocolError
from tianzhou.model import MessageExt, MessageQueue, PullStatus, SubscriptionData, names
from tianzhou.remoting.client import RemotingClient
from tianzhou.unpacked_bodies import UnpackedBodies
from tianzhou.wire.codes import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.delivered import pair_behind
from tianzhou.wire.fields import read_reply
from tianzhou.wire.pulled import MAX_UNPACKED, decode_messages
from tianzhou.wire.templates import PullTemplate

FARTHEST_AHEAD = 1_000_000
"""Maximum distance of a reply's next offset behind the queue's end. It is not 0 because new messages may be stored."""
STATUSES = {status.value: status for status in PullStatus}


class RawPull(NamedTuple):
    """The reply to a pull, with the records as bytes.

    Attributes:
        status: see `PullStatus`.
        next_offset: offset of the next pull.
        min_offset: the queue's first offset.
        max_offset: the offset that the queue's next message will get.
        body: consecutive records (wire.md §5); empty unless the status is FOUND.
        suggested_broker_id: id of the replica that the broker suggests for the next pull.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes
    suggested_broker_id: int = 0


async def pull(
    remoting: RemotingClient,
    address: str,
    group: str,
    queue: MessageQueue,
    offset: int,
    *,
    max_messages: int = 32,
    max_bytes: int | None = None,
    subscription: SubscriptionData | None = None,
    sub_version: int = 0,
    commit_offset: int | None = None,
    suspend_ms: int = 0,
    timeout_ms: float = 10_000,
) -> RawPull:
    """Pull once from a queue.

    Args:
        remoting: carries the request.
        address: address of the broker.
        group: the consumer group.
        queue: the queue.
        offset: offset to begin at.
        max_messages: maximum number of messages; brokers have limits of their own.
        max_bytes: maximum bytes of records, for brokers that support it.
        subscription: subscription to send with the pull; with None the broker uses that of the heartbeat.
        sub_version: version of the subscription in the heartbeat.
        commit_offset: offset to commit with the pull; None for no commit.
        suspend_ms: ms that the broker may hold the pull until a message arrives.
        timeout_ms: timeout of the whole request; has to exceed `suspend_ms`.

    Raises:
        BrokerError: the broker rejects the pull.
        ProtocolError: its answer is invalid.
        RemotingError: the broker does not answer.
    """
    request = pull_request(
        group,
        queue,
        offset,
        max_messages=max_messages,
        max_bytes=max_bytes,
        subscription=subscription,
        sub_version=sub_version,
        commit_offset=commit_offset,
        suspend_ms=suspend_ms,
    )
    reply = await remoting.invoke(address, request, timeout_ms)
    return raw_pull(reply, bytes(reply.body), address, offset)


def pull_request(
    group: str,
    queue: MessageQueue,
    offset: int,
    *,
    max_messages: int,
    max_bytes: int | None = None,
    subscription: SubscriptionData | None,
    sub_version: int = 0,
    commit_offset: int | None = None,
    suspend_ms: int = 0,
) -> Command:
    """Return the request of a pull; the arguments are those of `pull`."""
    flags = 0
    if commit_offset is not None:
        flags |= COMMIT_OFFSET
    if suspend_ms:
        flags |= SUSPEND
    if subscription is not None:
        flags |= SUBSCRIPTION
    return rpc.request(
        RequestCode.PULL_MESSAGE,
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=max_messages,
        sys_flag=flags,
        commit_offset=commit_offset or 0,
        suspend_timeout_millis=suspend_ms,
        subscription=subscription.sub_string if subscription is not None else None,
        sub_version=sub_version,
        expression_type=subscription.expression_type if subscription is not None else "TAG",
        max_msg_bytes=max_bytes,
        bname=queue.broker_name,
    )


def raw_pull(reply: Command, body: bytes, address: str, offset: int) -> RawPull:
    """Return the result in a reply to a pull.

    Args:
        reply: its header.
        body: its records.
        address: the broker that answered.
        offset: offset at which the pull began.

    Raises:
        BrokerError: the broker rejected the pull.
        ProtocolError: its answer is invalid.
    """
    status = STATUSES.get(reply.code)
    if status is None:
        raise broker_error(reply, address)
    header = reply.header
    if type(header) is not PullReplyHeader:
        header = read_reply(RequestCode.PULL_MESSAGE, reply)
    following = header.next_begin_offset
    if not 0 <= following <= max(offset, header.max_offset) + FARTHEST_AHEAD:
        raise ProtocolError(
            f"{address} answers a pull at offset {offset} with {following} as the next one, though the queue ends at"
            f" {header.max_offset}"
        )
    return RawPull(
        status,
        following,
        header.min_offset,
        header.max_offset,
        body,
        header.suggest_which_broker_id,
    )


class QueuePulls:
    """Pulls of one queue. Only a few numbers of their requests change, so they cost less than `pull`.

    Args:
        group: the consumer group.
        queue: the queue.
        subscription: the subscription of the queue's topic.
        max_messages: maximum number of messages of a pull.
        max_bytes: maximum bytes of records.
        suspend_ms: ms that the broker may hold the pull until a message arrives.
        timeout_ms: timeout of a request.
        post_subscription: whether to send the subscription with each pull.
    """

    __slots__ = ("_frame", "_options", "_timeout_ms", "queue", "subscription")

    def __init__(
        self,
        group: str,
        queue: MessageQueue,
        subscription: SubscriptionData,
        *,
        max_messages: int,
        max_bytes: int | None,
        suspend_ms: int,
        timeout_ms: float,
        post_subscription: bool,
    ) -> None:
        self.queue = queue
        self.subscription = subscription
        self._timeout_ms = timeout_ms
        self._options: dict[str, Any] = {
            "max_messages": max_messages,
            "max_bytes": max_bytes,
            "subscription": subscription if post_subscription else None,
            "sub_version": subscription.sub_version,
            "suspend_ms": suspend_ms,
        }
        self._frame = PullTemplate(group, queue, **self._options).frame
        self._options |= {"group": group, "timeout_ms": timeout_ms}

    async def pull(
        self, remoting: RemotingClient, address: str, offset: int, commit_offset: int | None = None
    ) -> RawPull:
        """Pull once from this queue; see `pull`."""
        connection = None if remoting.hooked else remoting.connected(address)
        if connection is not None:
            opaque = remoting.group.opaques.next()
            frame = self._frame(opaque, offset, commit_offset)
            reply = await connection.invoke_frame(opaque, frame, self._timeout_ms)
            if reply.code != ResponseCode.GO_AWAY:
                return raw_pull(reply, bytes(reply.body), address, offset)
        return await pull(
            remoting, address, queue=self.queue, offset=offset, commit_offset=commit_offset, **self._options
        )


def messages_of(
    body: bytes,
    broker_name: str,
    tags: Collection[str] = (),
    namespace: str | None = None,
    bounds: tuple[int, int] | None = None,
    limit_bytes: int = MAX_UNPACKED,
    unpacked: UnpackedBodies | None = None,
) -> list[MessageExt]:
    """Return the messages in a pull's body, without messages whose tag only shares the hash of a wanted tag.

    Args:
        body: the records.
        broker_name: the broker that sent them.
        tags: the wanted tags; empty for all.
        namespace: the client's namespace, whose prefix is removed from the names.
        bounds: the queue's first offset, and the offset of its next message; they become the properties MIN_OFFSET
            and MAX_OFFSET.
        limit_bytes: maximum size of an unpacked body.
        unpacked: bound on the unpacked bodies that messages store; by default the bound of the process.
    """
    added = b""
    if bounds is not None:
        added = pair_behind(names.MIN_OFFSET, str(bounds[0])) + pair_behind(names.MAX_OFFSET, str(bounds[1]))
    result = decode_messages(body, broker_name, limit_bytes, added, unpacked)
    if tags:
        result = [message for message in result if tag_wanted(tags, message.tags)]
    if namespace:
        result = [message_inside(namespace, message) for message in result]
    return result
