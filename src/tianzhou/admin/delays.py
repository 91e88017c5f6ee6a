"""Undelivered delayed messages: their number per level, and the due times of the next ones (broker.md §12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tianzhou.admin.queue_reading import ReadAllowance, read_range
from tianzhou.admin.reach import Reach
from tianzhou.errors import ClientError
from tianzhou.model import MessageExt, MessageQueue, names
from tianzhou.settings import parse_properties
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.codes import RequestCode

MOST_READ = 500
"""Maximum number of waiting messages to read of a level of one broker, the earliest due first."""
DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_PROGRESS = "scheduleMessageOffset_"


@dataclass(frozen=True, slots=True)
class Due:
    """A delayed message.

    Attributes:
        due_ms: delivery time, in ms since the epoch.
        topic: the topic of the delivery.
        msg_id: its message id.
        queue_offset: its offset in the level's queue.
    """

    due_ms: int
    topic: str
    msg_id: str
    queue_offset: int


@dataclass(frozen=True, slots=True)
class DelayLevel:
    """Waiting messages in one delay level of a broker.

    Attributes:
        broker_name: name of the broker.
        level: the delay level, from 1.
        delay_ms: the level's delay in ms.
        waiting: number of messages that are not delivered yet.
        next: the messages that are due first, in order; at most `MOST_READ`.
    """

    broker_name: str
    level: int
    delay_ms: int
    waiting: int
    next: list[Due]


def progress(runtime: Mapping[str, str]) -> dict[int, tuple[int, int]]:
    """Return each level's positions from a broker's runtime info: the next message to deliver, and the queue's end."""
    found: dict[int, tuple[int, int]] = {}
    for key, value in runtime.items():
        level, (done, _, end) = key.removeprefix(_PROGRESS), value.partition(",")
        if key.startswith(_PROGRESS) and all(_is_number(text) for text in (level, done, end)):
            found[int(level)] = int(done), int(end)
    return dict(sorted(found.items()))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def due_of(messages: Iterable[MessageExt], delay_ms: int) -> list[Due]:
    """Return the messages of a level with their due times."""
    return [
        Due(
            message.store_timestamp + delay_ms,
            message.properties.get(names.REAL_TOPIC, ""),
            message.msg_id,
            message.queue_offset,
        )
        for message in messages
    ]


class Delays:
    """Operations on delayed messages.

    Args:
        reach: finds the servers and sends the requests.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def levels(self, failures: dict[str, str] | None = None) -> list[DelayLevel]:
        """Return the levels of all brokers, also levels in which no message waits.

        Args:
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.
        """
        masters = dict(sorted((await self._reach.masters()).items()))
        found = await self._reach.each_broker(masters, self._levels_of, failures)
        return [level for levels in found.values() for level in levels]

    async def message(self, broker_name: str, level: int, queue_offset: int) -> tuple[Due, MessageExt]:
        """Return the due time of a waiting delayed message, and the message as it is stored.

        Args:
            broker_name: the broker.
            level: the delay level, from 1.
            queue_offset: offset in the level's queue.

        Raises:
            ClientError: the broker has no master, has no such level, or has delivered the message.
        """
        address = (await self._reach.masters()).get(broker_name)
        if address is None:
            raise ClientError(f"broker {broker_name} has no master now; start it, or check the name of the broker")
        runtime = await self._reach.load(address, RequestCode.GET_BROKER_RUNTIME_INFO, KV_TABLE)
        begin, end = progress(runtime).get(level, (0, 0))
        if not begin <= queue_offset < end:
            raise ClientError(
                f"no message waits at offset {queue_offset} of level {level} of broker {broker_name}; it is delivered, "
                "and the topic has it under the same message id"
            )
        delay_ms = (await self._delays_ms(address))[level - 1]
        queue = MessageQueue(names.SCHEDULE_TOPIC, broker_name, level - 1)
        read = await read_range(self._reach, address, queue, queue_offset, queue_offset + 1, ReadAllowance(32 << 20))
        if not read or read[0].queue_offset != queue_offset:
            raise ClientError(
                f"broker {broker_name} does not return the message at offset {queue_offset}; read it again"
            )
        return due_of(read[:1], delay_ms)[0], read[0]

    async def _delays_ms(self, address: str) -> Sequence[int]:
        """Return the delays of a broker's levels."""
        # imported here because it loads the modules of the store
        from tianzhou.store.settings import parse_delay_levels

        reply = await self._reach.call(address, RequestCode.GET_BROKER_CONFIG)
        config = parse_properties(bytes(reply.body).decode(), source=address)
        return parse_delay_levels(config.get("messageDelayLevel") or DEFAULT_LEVELS)

    async def _levels_of(self, broker_name: str, address: str) -> list[DelayLevel]:
        runtime = await self._reach.load(address, RequestCode.GET_BROKER_RUNTIME_INFO, KV_TABLE)
        delays_ms = await self._delays_ms(address)
        found, allowance = [], ReadAllowance(32 << 20)
        for level, (begin, end) in progress(runtime).items():
            if not 1 <= level <= len(delays_ms):
                continue
            queue = MessageQueue(names.SCHEDULE_TOPIC, broker_name, level - 1)
            last = min(end, begin + MOST_READ)
            messages = await read_range(self._reach, address, queue, begin, last, allowance) if end > begin else []
            delay_ms = delays_ms[level - 1]
            found.append(DelayLevel(broker_name, level, delay_ms, max(0, end - begin), due_of(messages, delay_ms)))
        return found
