"""The lowest layer of a send: one attempt, as a frame to one queue's broker, with its hooks (client.md §5)."""

from __future__ import annotations

from types import TracebackType
from typing import TypeAlias

from tianzhou._hot.client_sends import send_result
from tianzhou._hot.headers import SendReplyHeader
from tianzhou.client.cluster.remedies import broker_error
from tianzhou.client.hooks import Hooks, SendContext, begin, check_forbidden, end
from tianzhou.client.instance import ClientInstance
from tianzhou.client.producer.publish_plan import PublishTarget
from tianzhou.client.producer.send_request import SINGLE, PreparedMessage
from tianzhou.model import SendResult, SendStatus
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply

_STATUSES = {status.value: status for status in SendStatus}


class Transport:
    """Sender that makes one attempt to one queue.

    Args:
        instance: reaches the brokers.
    """

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._remoting = instance.remoting
        self._next_opaque = instance.remoting.group.opaques.next

    async def send(self, target: PublishTarget, prepared: PreparedMessage, timeout_ms: float) -> SendResult:
        """One attempt.

        Raises:
            ClientError: the broker has no master.
            BrokerError: the broker rejected the message.
            RemotingError: no answer arrived.
        """
        if not target.address:
            target = await self.located(target, prepared.topic)
        opaque = self._next_opaque()
        frame = _frame(target, prepared, opaque)
        reply = await self._remoting.invoke_frame(target.address, opaque, frame, timeout_ms)
        return self.result(reply, target, prepared.unique_keys)

    async def send_oneway(self, target: PublishTarget, prepared: PreparedMessage) -> None:
        """Send without waiting for an answer.

        Raises:
            ClientError: the broker has no master.
            RemotingError: the broker cannot be reached.
        """
        target = await self.located(target, prepared.topic)
        frame = _frame(target, prepared, self._next_opaque(), oneway=True)
        await self._remoting.send_frame(target.address, frame)

    async def located(self, target: PublishTarget, topic: str) -> PublishTarget:
        """A queue with the address where its broker takes messages.

        Args:
            target: the queue.
            topic: its topic, by the servers' name.

        Raises:
            ClientError: the broker has no master now.
        """
        if target.address:
            return target
        master = await self._instance.master(target.queue.broker_name, topic)
        return target._replace(address=self._instance.send_address(master))

    def result(self, reply: Command, target: PublishTarget, unique_keys: str) -> SendResult:
        """The result in a broker's reply.

        Raises:
            BrokerError: the broker rejected the message.
        """
        status = _STATUSES.get(reply.code)
        if status is None:
            address = target.address
            if reply.code == ResponseCode.GO_AWAY and (connection := self._remoting.connected(address)) is not None:
                connection.close()
            raise broker_error(reply, address)
        header = reply.header
        if type(header) is not SendReplyHeader:
            header = read_reply(SINGLE, reply)
        return send_result(status, unique_keys, target.queue, header)


class HookedTransport:
    """A transport that calls the user's hooks before and after each attempt.

    Args:
        transport: the transport that sends.
        group: the producer group, by its users' name.
        hooks: the user's hooks.
    """

    def __init__(self, transport: Transport, group: str, hooks: Hooks) -> None:
        self._transport = transport
        self._group = group
        self._hooks = hooks

    async def send(self, target: PublishTarget, prepared: PreparedMessage, timeout_ms: float) -> SendResult:
        """As `Transport.send`; what a `check_forbidden` hook raises prevents it."""
        target = await self._transport.located(target, prepared.topic)
        with _Observed(self._hooks, self._context(target, prepared)) as context:
            result = context.result = await self._transport.send(target, prepared, timeout_ms)
        return result

    async def send_oneway(self, target: PublishTarget, prepared: PreparedMessage) -> None:
        """As `Transport.send_oneway`; what a `check_forbidden` hook raises prevents it."""
        target = await self._transport.located(target, prepared.topic)
        with _Observed(self._hooks, self._context(target, prepared, oneway=True)):
            await self._transport.send_oneway(target, prepared)

    def _context(self, target: PublishTarget, prepared: PreparedMessage, *, oneway: bool = False) -> SendContext:
        return SendContext(
            self._group,
            prepared.messages,
            target.queue,
            target.address,
            prepared.kind,
            oneway,
            len(prepared.body),
            prepared.unique_keys,
        )


class _Observed:
    """A block in which an attempt is made; it calls the hooks before and after it."""

    __slots__ = ("_afters", "_context", "_hooks")

    def __init__(self, hooks: Hooks, context: SendContext) -> None:
        self._hooks = hooks
        self._context = context

    def __enter__(self) -> SendContext:
        check_forbidden(self._hooks.forbidden, self._context)
        self._afters = begin(self._hooks.send, self._context)
        return self._context

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._context.error = error
        end(self._afters, self._context)


AnyTransport: TypeAlias = Transport | HookedTransport


def _frame(target: PublishTarget, prepared: PreparedMessage, opaque: int, *, oneway: bool = False) -> bytes:
    return target.template.frame(
        opaque,
        prepared.born_ms,
        prepared.properties,
        prepared.body,
        flag=prepared.flag,
        sys_flag=prepared.sys_flag,
        code=prepared.code,
        oneway=oneway,
        reconsume_times=prepared.reconsume_times,
        max_reconsume_times=prepared.max_reconsume_times,
    )
