"""Requests that wait for replies, and reply messages (client.md §7.1, wire.md §4.8)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from tianzhou.errors import ReplyError
from tianzhou.model import Message, MessageExt, names
from tianzhou.wire.command import Command
from tianzhou.wire.compression import COMPRESSED, decompress
from tianzhou.wire.fields import read_header
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.pulled import MAX_UNPACKED

_log = logging.getLogger(__name__)


class PendingReplies:
    """Requests of one client that wait for their replies, by correlation id."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, correlation_id: str) -> asyncio.Future[MessageExt]:
        """Return a future for the reply to a request; `forget` ends the wait."""
        waiter = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        return waiter

    def wants(self, correlation_id: str) -> bool:
        """Whether a request with this correlation id waits for its reply."""
        return correlation_id in self._waiting

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for the reply to a request."""
        self._waiting.pop(correlation_id, None)

    def arrived(self, reply: MessageExt) -> None:
        """Complete the future of the request that a reply answers. Drop a reply without a waiting request."""
        correlation_id = reply.properties.get(names.CORRELATION_ID, "")
        waiter = self._waiting.pop(correlation_id, None)
        if waiter is None:
            _log.info("a reply came too late or to nobody: correlation id %r, topic %s", correlation_id, reply.topic)
        elif not waiter.done():
            waiter.set_result(reply)

    def close(self) -> None:
        """Cancel all waiting requests."""
        for waiter in self._waiting.values():
            waiter.cancel()
        self._waiting.clear()


def pushed_reply(command: Command, now_ms: int, pending: PendingReplies, limit_bytes: int = MAX_UNPACKED) -> MessageExt:
    """Return the reply in a PUSH_REPLY_MESSAGE_TO_CLIENT (326).

    Args:
        command: the broker's request.
        now_ms: time of its arrival.
        pending: the waiting requests; the body of a reply without a waiting request is not unpacked.
        limit_bytes: maximum size of the unpacked body.

    Raises:
        ProtocolError: the header or the compressed body cannot be decoded.
    """
    header = read_header(command)
    properties = decode_properties((header.properties or "").encode("utf-8", "surrogatepass"))
    properties[names.ARRIVE_TIME] = str(now_ms)
    body, sys_flag = bytes(command.body), header.sys_flag
    size = len(body)
    if sys_flag & COMPRESSED and pending.wants(properties.get(names.CORRELATION_ID, "")):
        body = decompress(body, sys_flag, limit_bytes)
        sys_flag &= ~COMPRESSED
    return MessageExt(
        header.topic,
        body,
        header.flag,
        properties,
        header.bname or "",
        header.queue_id,
        -1,
        -1,
        sys_flag,
        header.born_timestamp,
        header.born_host.rpartition("/")[2],
        header.store_timestamp,
        header.store_host.rpartition("/")[2],
        header.reconsume_times,
        0,
        0,
        size,
        "",
    )


def create_reply_message(
    request: MessageExt,
    body: bytes,
    *,
    tags: str | None = None,
    keys: str | Iterable[str] = "",
    properties: Mapping[str, str] | None = None,
) -> Message:
    """Return the message that answers a request; any producer can send it.

    Args:
        request: the delivered message whose sender waits for a reply.
        body: the reply's payload.
        tags: the reply's tag.
        keys: the reply's keys.
        properties: user properties of the reply.

    Raises:
        ReplyError: the message is no request, or did not come from a broker.
    """
    cluster = request.properties.get(names.CLUSTER)
    correlation_id = request.properties.get(names.CORRELATION_ID)
    if not cluster:
        raise ReplyError(
            f"message {request.msg_id} of topic {request.topic} has no property CLUSTER, which brokers set; "
            "only delivered messages can be replied to"
        )
    if not correlation_id:
        raise ReplyError(
            f"message {request.msg_id} of topic {request.topic} has no property CORRELATION_ID: its sender did not use "
            "Producer.request and waits for no reply"
        )
    copied = {
        name: value
        for name in (names.REPLY_TO_CLIENT, names.TTL)
        if (value := request.properties.get(name)) is not None
    }
    return Message(
        names.reply_topic(cluster),
        body,
        tags,
        keys,
        properties={
            **(properties or {}),
            names.MSG_TYPE: names.REPLY_TYPE,
            names.CORRELATION_ID: correlation_id,
            **copied,
        },
    )
