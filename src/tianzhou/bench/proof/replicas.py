"""Reading of a topic at each replica: by pulls at its address, or by queries for keys if it does not serve pulls."""

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
"""Maximum messages of a pull. Brokers have limits of their own."""
PULL_TIMEOUT_MS = 5_000
MOST_MESSAGES = 20_000_000
"""Maximum messages of a topic at one replica. More would need too much memory."""
QUERIES_AT_ONCE = 32
_NO_PULLS = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
"""Response codes of a replica that serves no pulls: Apache's slaves without `slaveReadEnable` (broker.md §17.4)."""


class ReplicaReader:
    """A reader of one replica of a topic. Each call continues where the last one ended.

    Args:
        instance: the connections.
        topic: the topic.
        broker: broker name of the replica.
        address: address of the replica.
        begins: the offset at which to begin in each queue.

    Attributes:
        reading: the keys that were read so far.
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
        """Continue to the present end of all queues. If that fails, `reading.why` contains the reason.

        Args:
            keys: the keys to query one by one, if the replica does not serve pulls.
            intern: known keys, so that all replicas share one string per key.

        Raises:
            ConfigError: the topic has too many messages to compare.
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
                # It may have deleted old messages, or a slave may lag behind.
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
    """All replicas of a topic that were ever in its route, alive or not.

    Args:
        instance: connections and routes.
        topic: the topic.
        begins: the offset at which to begin, by queue. Queues of brokers that join later begin at their first message.
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
        """The content of each replica, ordered by name and address."""
        return [self._readers[place].reading for place in sorted(self._readers)]

    async def look(self) -> None:
        """Query the name server for replicas. Replicas that are no longer in the route are not removed."""
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
        """Continue at all replicas concurrently.

        Args:
            keys: the keys to query at replicas that do not serve pulls.

        Raises:
            ConfigError: the topic has too many messages to compare.
        """
        wanted = list(keys)
        await asyncio.gather(*(reader.read(wanted, self._intern) for reader in self._readers.values()))
