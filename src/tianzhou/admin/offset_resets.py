"""Resets of a group's offsets at one broker, with and without connected members (wire.md §7.10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tianzhou.admin.progress import OffsetChange
from tianzhou.admin.reach import Reach
from tianzhou.client.cluster import rpc
from tianzhou.errors import BrokerError, ClientError, TianzhouError
from tianzhou.model import MessageQueue
from tianzhou.settings import parse_properties
from tianzhou.wire.bodies.clients import ConsumerConnection
from tianzhou.wire.bodies.offsets import OFFSET_TABLE
from tianzhou.wire.codes import V5_0_0, RequestCode, ResponseCode

LATEST_TIMESTAMP: Final = -1
SERVER_SIDE: Final = "useServerSideResetOffset"
"""Key of a broker's configuration: whether the broker stores resets and answers the next pull with them."""
OF_OLD_BROKERS: Final = "which brokers before 5.0 can only reset by time"
OF_PASSING_BROKERS: Final = "which brokers with useServerSideResetOffset=false can only reset by time"


class OffsetResets:
    """Resets of offsets at brokers of all versions.

    Args:
        reach: finds the servers and sends the requests.
        connections: returns the connected members of a group; None when no member is connected.
    """

    def __init__(self, reach: Reach, connections: Callable[[str], Awaitable[ConsumerConnection | None]]) -> None:
        self._reach = reach
        self._connections = connections

    async def carry_out(
        self, address: str, group: str, topic: str, changes: Sequence[OffsetChange], timestamp: int | None
    ) -> None:
        """Move a group to new offsets at one broker.

        Args:
            address: address of the broker.
            group: the group.
            topic: the topic.
            changes: the queues of the broker with their new offsets.
            timestamp: destination of a reset of all queues, for a broker that passes the reset on to the members: ms
                since the epoch, 0 for the earliest, `LATEST_TIMESTAMP` for the latest; None for any other destination.

        Raises:
            ClientError: the broker passes resets on to connected members, and `timestamp` is None.
            BrokerError: the broker refuses.
        """
        if await self._reach.version(address) < V5_0_0:
            if timestamp is None:
                await self._check_offline(group, OF_OLD_BROKERS)
            elif await self._order(address, group, topic, timestamp) is not None:
                return
            await self._update(address, group, changes)
        elif timestamp is None and await self._passes_on(address):
            await self._check_offline(group, OF_PASSING_BROKERS)
            await self._update(address, group, changes)
        else:
            await self._by_queue(address, group, topic, changes, timestamp)

    async def _passes_on(self, address: str) -> bool:
        """Whether a broker of RocketMQ 5 passes resets on to the members, as brokers of RocketMQ 4 do."""
        try:
            reply = await self._reach.call(address, RequestCode.GET_BROKER_CONFIG)
            values = parse_properties(bytes(reply.body).decode())
        except (TianzhouError, ValueError):
            return False
        return values.get(SERVER_SIDE, "").strip().lower() == "false"

    async def _by_queue(
        self, address: str, group: str, topic: str, changes: Sequence[OffsetChange], timestamp: int | None
    ) -> None:
        for number, change in enumerate(changes):
            found = await self._order(address, group, topic, timestamp, change)
            if found is None:
                await self._update(address, group, changes[number:])
                return
            if timestamp is not None and found and found != {change.queue: change.after}:
                # The broker passes resets on: it has sent all members to `timestamp`, in all queues.
                return

    async def _update(self, address: str, group: str, changes: Sequence[OffsetChange]) -> None:
        for change in changes:
            await rpc.update_offset(self._reach.remoting, address, group, change.queue, change.after)

    async def _check_offline(self, group: str, limit: str) -> None:
        connection = await self._connections(group)
        if connection is not None:
            members = ", ".join(sorted(c.client_id for c in connection.connection_set))
            raise ClientError(
                f"group {group} has connected members ({members}), {limit}, to the earliest or to the latest, and in "
                "all queues; stop them first, or choose one of these"
            )

    async def _order(
        self, address: str, group: str, topic: str, timestamp: int | None, change: OffsetChange | None = None
    ) -> dict[MessageQueue, int] | None:
        """Send a reset request and return the offsets of the reply; None when the broker needs members and has none.

        A broker that passes resets on ignores the queue and the offset of `change`, and uses `timestamp`.
        """
        try:
            reply = await self._reach.call(
                address,
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                group=group,
                topic=topic,
                timestamp=LATEST_TIMESTAMP if timestamp is None else timestamp,
                is_force=True,
                queue_id=None if change is None else change.queue.queue_id,
                offset=None if change is None else change.after,
            )
        except BrokerError as error:
            # 206: no member is connected. 26 and 1: the group has never consumed here, but its offset can be set.
            if error.code in {
                ResponseCode.CONSUMER_NOT_ONLINE,
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                ResponseCode.SYSTEM_ERROR,
            }:
                return None
            raise
        return OFFSET_TABLE.loads(reply.body) if reply.body else {}
