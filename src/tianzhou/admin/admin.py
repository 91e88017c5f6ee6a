"""The way into all admin operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from tianzhou.admin.access import Access
from tianzhou.admin.accounts import Accounts
from tianzhou.admin.brokers import Brokers
from tianzhou.admin.cluster import Cluster
from tianzhou.admin.controllers import Controllers
from tianzhou.admin.dead_letters import DeadLetters
from tianzhou.admin.delays import Delays
from tianzhou.admin.groups import Groups
from tianzhou.admin.messages import Messages
from tianzhou.admin.reach import Reach
from tianzhou.admin.servers import Servers
from tianzhou.admin.topics import Topics
from tianzhou.admin.transactions import Transactions
from tianzhou.client.group_client import Startable, shared_or_own
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import ClientKeywords


class Admin(Startable):
    """Admin operations, sorted by noun; an async context manager.

    Args:
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default it owns one.
        timeout_ms: limit of each request.
        client_options: as of `ClientInstance`, when it owns one.

    Attributes:
        topics: create, change, delete, list, describe topics.
        groups: consumer groups: list, create, delete, lag, reset.
        cluster: brokers and name servers: status, configuration, write permission, KV entries.
        messages: find messages, and read queues.
        dead_letters: what groups have given up on: count, list, send again.
        transactions: half messages that are not decided.
        delays: delayed messages that wait.
        access: users and policies of RocketMQ 5.3.
        accounts: accounts of RocketMQ 4.x.
        brokers: one broker at a time: tables, statistics, upkeep.
        controllers: controllers of RocketMQ 5.
        servers: what one server by itself says.
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
        reach = Reach(self._instance, timeout_ms)
        self.cluster = Cluster(reach)
        self.topics = Topics(reach)
        self.groups = Groups(reach)
        self.messages = Messages(reach)
        self.dead_letters = DeadLetters(reach)
        self.transactions = Transactions(reach)
        self.delays = Delays(reach)
        self.access = Access(reach)
        self.accounts = Accounts(reach)
        self.brokers = Brokers(reach)
        self.controllers = Controllers(reach)
        self.servers = Servers(reach)

    @property
    def instance(self) -> ClientInstance:
        """The client instance it works with."""
        return self._instance

    async def start(self) -> None:
        """Get ready; nothing is sent yet."""
        await self._instance.start()

    async def stop(self) -> None:
        """Close what it owns."""
        if self._owns_instance:
            await self._instance.close()
