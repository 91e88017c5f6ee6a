"""Entry point of the administration operations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from tianzhou.admin.reach import Reach
from tianzhou.client.group_client import Startable, shared_or_own
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import ClientKeywords

if TYPE_CHECKING:
    from tianzhou.admin.access import Access
    from tianzhou.admin.accounts import Accounts
    from tianzhou.admin.cluster import Cluster
    from tianzhou.admin.dead_letters import DeadLetters
    from tianzhou.admin.delays import Delays
    from tianzhou.admin.groups import Groups
    from tianzhou.admin.messages import Messages
    from tianzhou.admin.send_limits import SendLimits
    from tianzhou.admin.servers import Servers
    from tianzhou.admin.topics import Topics
    from tianzhou.admin.transactions import Transactions
    from tianzhou.admin.undeliverable import Undeliverable


class Admin(Startable):
    """Administration operations, grouped by noun; an async context manager.

    A group of operations is imported at its first use, because a command needs only one or two groups.

    Args:
        namesrv_addr: addresses of the name servers, see `ClientInstance`.
        instance: a client instance to share; by default, `Admin` creates and owns one.
        timeout_ms: limit of each request, in ms.
        client_options: options of the owned `ClientInstance`.
    """

    def __init__(
        self,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        instance: ClientInstance | None = None,
        timeout_ms: int = 5_000,
        **client_options: Unpack[ClientKeywords],
    ) -> None:
        self._owns_instance = instance is None
        self._instance = shared_or_own(instance, namesrv_addr, client_options, type(self))
        self._reach = Reach(self._instance, timeout_ms)

    @property
    def instance(self) -> ClientInstance:
        """The client instance that sends the requests."""
        return self._instance

    async def start(self) -> None:
        """Start the client instance. No request is sent yet."""
        await self._instance.start()

    async def stop(self) -> None:
        """Close the client instance, unless it is shared."""
        if self._owns_instance:
            await self._instance.close()

    @cached_property
    def topics(self) -> Topics:
        """Create, change, delete, list, describe topics."""
        from tianzhou.admin.topics import Topics

        return Topics(self._reach)

    @cached_property
    def groups(self) -> Groups:
        """Consumer groups: list, create, delete, lag, reset."""
        from tianzhou.admin.groups import Groups

        return Groups(self._reach)

    @cached_property
    def cluster(self) -> Cluster:
        """Brokers and name servers: status, configuration, write permission, KV entries."""
        from tianzhou.admin.cluster import Cluster

        return Cluster(self._reach)

    @cached_property
    def messages(self) -> Messages:
        """Find messages, and read queues."""
        from tianzhou.admin.messages import Messages

        return Messages(self._reach)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """Dead letters of groups: count, list, send again."""
        from tianzhou.admin.dead_letters import DeadLetters

        return DeadLetters(self._reach)

    @cached_property
    def transactions(self) -> Transactions:
        """Undecided half messages."""
        from tianzhou.admin.transactions import Transactions

        return Transactions(self._reach)

    @cached_property
    def undeliverable(self) -> Undeliverable:
        """Messages that brokers have set aside because they cannot deliver them."""
        from tianzhou.admin.undeliverable import Undeliverable

        return Undeliverable(self._reach)

    @cached_property
    def send_limits(self) -> SendLimits:
        """Send limits that brokers enforce: set, list, delete."""
        from tianzhou.admin.send_limits import SendLimits

        return SendLimits(self._reach)

    @cached_property
    def delays(self) -> Delays:
        """Delayed messages that are not delivered yet."""
        from tianzhou.admin.delays import Delays

        return Delays(self._reach)

    @cached_property
    def access(self) -> Access:
        """Users and policies of RocketMQ 5.3."""
        from tianzhou.admin.access import Access

        return Access(self._reach)

    @cached_property
    def accounts(self) -> Accounts:
        """Accounts of RocketMQ 4.x."""
        from tianzhou.admin.accounts import Accounts

        return Accounts(self._reach)

    @cached_property
    def servers(self) -> Servers:
        """Operations on a single broker or name server, by its address: state, statistics, maintenance."""
        from tianzhou.admin.servers import Servers

        return Servers(self._reach)

    @cached_property
    def brokers(self) -> Servers:
        """Alias of `servers`. Operations on brokers were separate in earlier versions."""
        return self.servers
