"""Observation of name servers and brokers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.doctor.looks.address import see_address
from tianzhou.doctor.looks.asking import Asking
from tianzhou.doctor.observations import (
    AddressSeen,
    BrokerSeen,
    ClusterSeen,
    DelayedSeen,
    HalfSeen,
    NameServerSeen,
    PortKind,
)
from tianzhou.model import BrokerData, MessageExt, MessageQueue, names

CHECK_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Consumer group whose offset in the half topic shows which transactions are decided (broker.md §13)."""
LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+) days?, (\d+) hours?, (\d+) minutes?, (\d+) seconds?")
_SCHEDULE: Final = "scheduleMessageOffset_"


async def see_cluster(asking: Asking, timeout_ms: float, *, access: bool = False) -> ClusterSeen:
    """Read the brokers that name servers know, and the status of each broker.

    Args:
        asking: sends the requests.
        timeout_ms: limit of each attempt to connect, in ms.
        access: whether to read also configurations of name servers and the access without credentials.
    """
    servers = asking.admin.servers

    async def name_server(address: str) -> NameServerSeen:
        info = await asking.ask(address, "brokers", lambda: servers.cluster_info(address), None)
        config = None
        if access and info is not None:
            config = await asking.ask(address, "configuration", lambda: servers.namesrv_config(address), None)
        return NameServerSeen(address, info, config, asking.why(address, "brokers"))

    name_servers = await asking.each(asking.admin.cluster.name_servers, name_server)
    before_ms = asking.now_ms
    statuses = await asking.admin.cluster.status_of(_all_brokers(name_servers))
    after_ms = asking.now_ms

    async def broker(status: BrokerStatus) -> BrokerSeen:
        if status.error is not None:
            asking.unreachable(status.address, status.error)
            return BrokerSeen(status)
        address = status.address
        config = await asking.ask(address, "configuration", lambda: asking.admin.cluster.broker_config(address), None)
        seen = None
        if access:
            seen = await see_port(asking, address, PortKind.BROKER, timeout_ms, both=True)
        return BrokerSeen(
            status,
            config,
            _ahead_ms(status, before_ms, after_ms),
            seen,
            await _delayed(asking, status, (config or {}).get("messageDelayLevel", LEVELS)),
            await _half(asking, status),
        )

    return ClusterSeen(after_ms, name_servers, await asking.each(statuses, broker))


def _all_brokers(name_servers: Iterable[NameServerSeen]) -> list[BrokerData]:
    """Return the brokers that any name server knows."""
    found: dict[tuple[str, str], BrokerData] = {}
    for one in name_servers:
        for name, data in sorted((one.info.broker_addr_table if one.info is not None else {}).items()):
            known = found.setdefault((data.cluster, name), BrokerData(name, data.cluster))
            known.broker_addrs |= {
                broker_id: address
                for broker_id, address in data.broker_addrs.items()
                if broker_id not in known.broker_addrs
            }
    return list(found.values())


def _ahead_ms(status: BrokerStatus, before_ms: int, after_ms: int) -> int | None:
    """Return a broker's clock minus this machine's in ms.

    Brokers report time in whole seconds, so a difference below a second counts as 0.
    """
    boot, ran = status.runtime.get("bootTimestamp", ""), _DURATION.search(status.runtime.get("runtime", ""))
    if not boot.isdigit() or ran is None:
        return None
    days, hours, minutes, seconds = map(int, ran.groups())
    said = int(boot) + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000
    if said > after_ms:
        return said - after_ms
    return min(said + 1_000 - before_ms, 0)


def level_delays_ms(levels: str) -> list[int]:
    """Return the delays of `messageDelayLevel` in ms; empty when the value is invalid."""
    found = [re.fullmatch(r"(\d+)([smhd])", part) for part in levels.split()]
    return [int(one[1]) * _UNITS_MS[one[2]] for one in found if one is not None] if all(found) else []


async def _delayed(asking: Asking, status: BrokerStatus, levels: str) -> list[DelayedSeen]:
    delays, found = level_delays_ms(levels), []
    for key, value in status.runtime.items():
        level, (at, _, end) = key.removeprefix(_SCHEDULE), value.partition(",")
        if not (key.startswith(_SCHEDULE) and level.isdigit() and at.isdigit() and end.isdigit()):
            continue
        waiting, number = int(end) - int(at), int(level)
        if waiting <= 0 or not 0 < number <= len(delays) or not status.is_master:
            continue
        queue = MessageQueue(names.SCHEDULE_TOPIC, status.broker_name, number - 1)
        stored_ms = await _stored_ms(asking, status.address, queue, int(at))
        if stored_ms is not None:
            found.append(DelayedSeen(number, waiting, asking.now_ms - stored_ms - delays[number - 1]))
    return found


async def _half(asking: Asking, status: BrokerStatus) -> HalfSeen | None:
    if not status.is_master:
        return None
    servers, address = asking.admin.servers, status.address
    stats = await asking.ask(
        address, "half messages", lambda: servers.consume_stats(address, CHECK_GROUP, names.HALF_TOPIC), None
    )
    if stats is None:
        return None
    waiting = oldest_ms = 0
    for queue, progress in stats.offset_table.items():
        left = progress.broker_offset - progress.consumer_offset
        if left > 0:
            waiting += left
            stored_ms = await _stored_ms(asking, address, queue, progress.consumer_offset)
            oldest_ms = max(oldest_ms, 0 if stored_ms is None else asking.now_ms - stored_ms)
    return HalfSeen(waiting, oldest_ms)


async def _stored_ms(asking: Asking, address: str, queue: MessageQueue, offset: int) -> int | None:
    none: list[MessageExt] = []
    messages = await asking.ask(
        address, f"message {offset} of {queue}", lambda: asking.admin.servers.messages(address, queue, offset, 1), none
    )
    return messages[0].store_timestamp if messages else None


async def see_name_server_ports(asking: Asking, timeout_ms: float) -> list[AddressSeen]:
    """Return the results of connecting to each name server."""
    return await asking.each(
        asking.admin.cluster.name_servers,
        lambda address: see_port(asking, address, PortKind.NAME_SERVER, timeout_ms, both=True),
    )


async def see_port(
    asking: Asking, address: str, expected: PortKind, timeout_ms: float, *, both: bool = False
) -> AddressSeen:
    """Call `see_address` when fewer than `AT_ONCE` requests are running."""
    instance = asking.admin.instance
    return await asking.in_turn(lambda: see_address(instance, address, expected, timeout_ms, both=both))
