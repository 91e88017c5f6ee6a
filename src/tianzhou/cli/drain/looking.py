"""Queries of servers for the state of a broker during a drain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tianzhou.cli.drain.leftovers import GroupLeft, Leftovers
from tianzhou.errors import BrokerError, ClientError

if TYPE_CHECKING:
    from tianzhou.admin import Admin

AT_ONCE = 16
"""Number of concurrent queries about groups."""
READ = 4
"""The bit of a topic's permission that lets consumers read."""
WRITE = 2
"""The bit of a topic's permission that lets producers write."""


async def master_of(admin: Admin, broker_name: str) -> str:
    """Return the address of a broker's master.

    Raises:
        ClientError: the broker does not exist, or has no master now.
    """
    masters = await admin.cluster.masters()
    if broker_name in masters:
        return masters[broker_name]
    known = ", ".join(sorted((await admin.cluster.info()).broker_addr_table))
    raise ClientError(f"there is no broker {broker_name} with a master; the name servers know {known}: give one by -b")


async def set_permission_of_group(admin: Admin, address: str, *, writable: bool) -> str:
    """Set `brokerPermission` at the leader of a DLedger group, and for its next leaders. Other brokers are not changed.

    Name servers remove the permission from the topics of the present leader only. The next leader would register with
    it.

    Returns:
        The reason why members may have another permission after an election; empty if they cannot.

    Raises:
        TianzhouError: the leader does not answer.
    """
    runtime = await admin.cluster.runtime(address)
    if "dLegerGroup" not in runtime:
        return ""
    wanted = str(READ | WRITE if writable else READ)
    if (await admin.cluster.broker_config(address)).get("brokerPermission") == wanted:
        return ""
    try:
        await admin.cluster.update_broker_config(address, {"brokerPermission": wanted})
    except BrokerError as error:
        return f"brokerPermission={wanted} is not set at {address}, so the next leader registers as before: {error}"
    return ""


async def look(admin: Admin, broker_name: str) -> Leftovers:
    """Query the state of a broker.

    Raises:
        TianzhouError: the broker, or a name server, does not answer.
    """
    from tianzhou.admin.delays import progress

    address = await master_of(admin, broker_name)
    runtime = await admin.cluster.runtime(address)
    groups = await _groups(admin, address)
    waiting = sum(max(0, end - done) for done, end in progress(runtime).values())
    (transactions,) = await admin.transactions.open(broker_name)
    return Leftovers(
        broker_name,
        address,
        await _writable(admin, broker_name, address),
        _number(runtime.get("putTps", "")),
        groups,
        waiting,
        len(transactions.halves),
        transactions.unread,
        0 if "tianzhouVersion" in runtime else None,
    )


async def _writable(admin: Admin, broker_name: str, address: str) -> tuple[str, ...]:
    """Return the name servers whose routes allow writes to a topic of the broker."""
    topics = await admin.servers.topic_configs(address)
    found = []
    for name_server in admin.cluster.name_servers:
        for topic in (name for name, config in topics.items() if config.perm & WRITE):
            route = await admin.servers.route(name_server, topic)
            queues = [] if route is None else [one for one in route.queue_datas if one.broker_name == broker_name]
            if queues:
                if any(one.perm & WRITE for one in queues):
                    found.append(name_server)
                break  # A name server removes and restores the permission for all topics of a broker together.
    return tuple(found)


async def _groups(admin: Admin, address: str) -> tuple[GroupLeft, ...]:
    from tianzhou.admin.groups import SYSTEM_GROUPS

    names = sorted(set(await admin.servers.group_configs(address)) - SYSTEM_GROUPS)
    found: list[GroupLeft] = []
    for start in range(0, len(names), AT_ONCE):
        part = names[start : start + AT_ONCE]
        stats = await asyncio.gather(*(admin.servers.consume_stats(address, group) for group in part))
        for group, progress in zip(part, stats, strict=True):
            lag = _lag((one.broker_offset, one.consumer_offset) for one in progress.offset_table.values())
            if lag:
                connected = await admin.servers.connections(address, group)
                found.append(GroupLeft(group, lag, 0 if connected is None else len(connected.connection_set)))
    return tuple(sorted(found, key=lambda one: (-one.lag, one.group)))


def _lag(positions: Iterable[tuple[int, int]]) -> int:
    return sum(max(0, end - done) for end, done in positions)


def _number(text: str) -> float:
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return 0.0
