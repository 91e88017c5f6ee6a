"""Topics, groups, offsets and delivery positions of the master, at its slave (broker.md §17.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tianzhou.broker.state import Tables
from tianzhou.clock import Clock
from tianzhou.errors import BrokerError, TianzhouError
from tianzhou.model import DataVersion
from tianzhou.records.checksum import Octets
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP_TABLE
from tianzhou.wire.bodies.topics import TOPIC_TABLE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.json_dialect import loads

PERIOD_S: Final = 1.0
"""Seconds between two rounds. RocketMQ lets a minute pass (4.9: ten seconds); a fail-over forgets its commits."""
_REST: Final = 20
"""How many times as long as a round takes the next one waits at least."""
_TIMEOUT_MS: Final = 5000


class MetadataSync:
    """Asks the master for its tables, again and again.

    Args:
        tables: the slave's, made equal to the master's.
        client: reaches the master.
        clock: stamps changes.
        master: the master's address; empty while there is none.
    """

    def __init__(self, tables: Tables, client: RemotingClient, clock: Clock, master: Callable[[], str]) -> None:
        self._tables = tables
        self._client = client
        self._clock = clock
        self._master = master
        self._seen: dict[int, DataVersion] = {}

    async def run(self) -> None:
        """Follow the master until cancelled.

        Raises:
            TianzhouError: a table cannot be had; the caller begins again.
        """
        while True:
            began_s = self._clock.monotonic()
            if self._master():
                await self.round()
            # Large tables take their time, of which others need the most.
            await asyncio.sleep(max(PERIOD_S, _REST * (self._clock.monotonic() - began_s)))

    async def round(self) -> None:
        """Take over every table once; those that can be had are, whatever becomes of the others.

        Raises:
            TianzhouError: one of them cannot be had.
        """
        failure: TianzhouError | None = None
        for code, take in (
            (RequestCode.GET_ALL_TOPIC_CONFIG, self._topics),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._groups),
            (RequestCode.GET_ALL_CONSUMER_OFFSET, self._offsets),
            (RequestCode.GET_ALL_DELAY_OFFSET, self._delays),
        ):
            try:
                reply = await self._client.invoke(self._master(), Command(code), _TIMEOUT_MS)
                if reply.code != ResponseCode.SUCCESS:
                    raise BrokerError(reply.code, reply.remark or "", address=self._master())
                take(reply.body)
            except TianzhouError as error:
                failure = error
        if failure is not None:
            raise failure

    def _topics(self, body: Octets) -> None:
        found = TOPIC_TABLE.loads(body)
        if self._seen.get(RequestCode.GET_ALL_TOPIC_CONFIG) == found.data_version:
            return
        topics, now_ms = self._tables.topics, self._clock.now_ms()
        topics.put_all(found.topic_config_table.values(), now_ms)
        gone = [name for name in topics.all() if name not in found.topic_config_table and not topics.is_system(name)]
        topics.delete(gone, now_ms)
        self._seen[RequestCode.GET_ALL_TOPIC_CONFIG] = found.data_version

    def _groups(self, body: Octets) -> None:
        found = SUBSCRIPTION_GROUP_TABLE.loads(body)
        if self._seen.get(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG) == found.data_version:
            return
        groups, now_ms = self._tables.groups, self._clock.now_ms()
        groups.put_all(found.subscription_group_table.values(), now_ms)
        for name in [name for name in groups.all() if name not in found.subscription_group_table]:
            groups.delete(name, now_ms)
        groups.forbidden = {group: dict(topics) for group, topics in found.forbidden_table.items()}
        self._seen[RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = found.data_version

    def _offsets(self, body: Octets) -> None:
        self._tables.offsets.take_over(loads(body))

    def _delays(self, body: Octets) -> None:
        self._tables.delays.load(loads(body))
