"""Reading a topic at every replica by itself: by pulls at its address, or key by key where it serves no pulls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from tianzhou.admin.messages import FOREVER_MS, MAX_MESSAGES
from tianzhou.admin.queue_reading import TOOLS_GROUP
from tianzhou.bench.proof.comparison import QueueReading, Reading
from tianzhou.client.cluster import rpc
from tianzhou.client.consumer import pulling
from tianzhou.client.consumer.subscription import build_subscription
from tianzhou.client.instance import ClientInstance
from tianzhou.errors import BrokerError, ConfigError, TianzhouError
from tianzhou.model import MessageQueue, PullStatus
from tianzhou.wire.codes import ResponseCode

_log = logging.getLogger(__name__)

AT_ONCE = 256
"""Messages wished for in a pull; brokers have limits of their own."""
PULL_TIMEOUT_MS = 5_000
MOST_MESSAGES = 20_000_000
"""Messages of a topic at one replica, above which a proof would need more memory than it should."""
QUERIES_AT_ONCE = 32
_NO_PULLS = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
"""Answers of a replica that serves no pulls, as Apache's slaves without `slaveReadEnable` (broker.md §17.4)."""


class ReplicaReader:
    """One replica of a topic, read again and again from where it was read to.

    Args:
        instance: connections.
        topic: the topic.
        broker: the replica's broker name.
        address: where it listens.
        begins: where to begin in each queue.

    Attributes:
        reading: what was read so far.
    """

    def __init__(
        self, instance: ClientInstance, topic: str, broker: str, address: str, begins: Mapping[int, int]
    ) -> None:
        self._instance = instance
        self._topic = topic
        self._begins = dict(begins)
        self._intern: dict[str, str] = {}
        self._by_pulls = True
        self._count = 0
        self.reading = Reading(broker, address)

    async def read(self, keys: Iterable[str], intern: dict[str, str]) -> None:
        """Read on to the present end of all queues; why that does not succeed is in `reading.why`.

        Args:
            keys: those to ask for, one by one, when it serves no pulls.
            intern: keys that are known, so that all replicas share one text of each.

        Raises:
            ConfigError: the topic holds more than can be compared.
        """
        self._intern = intern
        reading = self.reading
        try:
            if self._by_pulls:
                await self._read_queues()
            else:
                await self._ask_for(keys)
        except BrokerError as error:
            reading.whole, reading.why = False, str(error)
            if error.code in _NO_PULLS and self._by_pulls and not any(one.keys for one in reading.queues.values()):
                self._by_pulls = False
                reading.queues.clear()
                await self.read(keys, intern)
        except TianzhouError as error:
            reading.whole, reading.why = False, str(error)
        else:
            reading.whole, reading.why = True, ""

    async def _read_queues(self) -> None:
        await asyncio.gather(*(self._read_queue(queue_id) for queue_id in self._begins))

    async def _read_queue(self, queue_id: int) -> None:
        reading = self.reading
        queue = MessageQueue(self._topic, reading.broker, queue_id)
        found = reading.queues.get(queue_id)
        offset = found.end if found is not None else self._begins[queue_id]
        while True:
            raw = await pulling.pull(
                self._instance.remoting,
                reading.address,
                TOOLS_GROUP,
                queue,
                offset,
                max_messages=AT_ONCE,
                subscription=build_subscription(self._topic),
                timeout_ms=PULL_TIMEOUT_MS,
            )
            if found is None:
                # It may have deleted what is old, and a copy may not have come so far.
                found = reading.queues[queue_id] = QueueReading(max(offset, min(raw.min_offset, raw.max_offset)))
                offset = found.begin
            if raw.status is PullStatus.FOUND:
                messages = pulling.messages_of(raw.body, reading.broker)
                for message in messages:
                    key = message.msg_id
                    found.add(message.queue_offset, self._intern.setdefault(key, key))
                self._count += len(messages)
                if self._count > MOST_MESSAGES:
                    raise ConfigError(
                        f"topic {self._topic} holds more than {MOST_MESSAGES} messages; prove with a topic of its own"
                    )
            if raw.next_offset <= offset or raw.status is PullStatus.NO_NEW_MSG:
                return
            offset = raw.next_offset

    async def _ask_for(self, keys: Iterable[str]) -> None:
        reading = self.reading
        turns = asyncio.Semaphore(QUERIES_AT_ONCE)

        async def ask(key: str) -> None:
            async with turns:
                found = await rpc.query_messages(
                    self._instance.remoting,
                    reading.address,
                    self._topic,
                    key,
                    max_num=MAX_MESSAGES,
                    begin_ms=0,
                    end_ms=FOREVER_MS,
                    unique_key=True,
                    broker_name=reading.broker,
                )
            places = [(one.queue_id, one.queue_offset) for one in found if one.msg_id == key]
            if places:
                reading.found[key] = places

        await asyncio.gather(*(ask(key) for key in keys if key not in reading.found))


class Replicas:
    """All replicas of a topic that were ever seen, whoever of them lives.

    Args:
        instance: connections and routes.
        topic: the topic.
        begins: where to begin, by queue; queues of brokers that come later begin at their first message.
    """

    def __init__(self, instance: ClientInstance, topic: str, begins: Mapping[MessageQueue, int]) -> None:
        self._instance = instance
        self._topic = topic
        self._begins: dict[str, dict[int, int]] = {}
        self._readers: dict[tuple[str, str], ReplicaReader] = {}
        self._intern: dict[str, str] = {}
        for queue, begin in begins.items():
            self._begins.setdefault(queue.broker_name, {})[queue.queue_id] = begin

    @property
    def readings(self) -> list[Reading]:
        """What each replica holds, in order of names and addresses."""
        return [self._readers[place].reading for place in sorted(self._readers)]

    async def look(self) -> None:
        """Ask the name server which replicas there are; those that are gone by now stay known."""
        try:
            route = await self._instance.refresh_route(self._topic)
        except TianzhouError as error:
            _log.info("the replicas of %s are looked for again later: %s", self._topic, error)
            return
        if route is None:
            return
        for data in route.queue_datas:
            begins = self._begins.setdefault(data.broker_name, {})
            for queue_id in range(max(data.read_queue_nums, data.write_queue_nums)):
                begins.setdefault(queue_id, 0)
        for broker in route.broker_datas:
            for address in broker.broker_addrs.values():
                place = broker.broker_name, address
                if place not in self._readers and broker.broker_name in self._begins:
                    begins = self._begins[broker.broker_name]
                    self._readers[place] = ReplicaReader(self._instance, self._topic, *place, begins)

    async def read(self, keys: Iterable[str]) -> None:
        """Read on at every replica at the same time.

        Args:
            keys: those to ask for where no pulls are served.

        Raises:
            ConfigError: the topic holds more than can be compared.
        """
        wanted = list(keys)
        await asyncio.gather(*(reader.read(wanted, self._intern) for reader in self._readers.values()))
