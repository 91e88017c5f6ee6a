"""The whole cluster: its brokers, their reports and their response times (client.md §23.4, §23.5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from tianzhou.cli.mqadmin.answers import Answer, Table, cut, pairs
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.cli.mqadmin.targets import ONE_TARGET, TARGET, addresses
from tianzhou.errors import TianzhouError

if TYPE_CHECKING:
    from tianzhou.admin import Admin, BrokerStatus

INTERVAL = Option("i", "interval", "Repeat after so many seconds, until Ctrl-C.")
_LIST = Table(
    "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %-11s  %-12s  %-8s  %-10s",
    "#Cluster Name|#Broker Name|#BID|#Addr|#Version|#InTPS(LOAD)|#OutTPS(LOAD)|#Timer(Progress)|#PCWait(ms)|#Hour"
    "|#SPACE|#ACTIVATED",
)
_MORE = Table(
    "%-16s  %-32s %14s %14s %14s %14s",
    "#Cluster Name|#Broker Name|#InTotalYest|#OutTotalYest|#InTotalToday|#OutTotalToday",
)


async def repeated(values: Values, once: Any) -> AsyncIterator[Answer]:
    """Yield one result, or with `-i` one after each interval."""
    pause = values.number("interval", 0)
    while True:
        yield await once()
        if pause <= 0:
            return
        await asyncio.sleep(pause)


def cluster_list(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    """List brokers."""

    async def once() -> Answer:
        brokers = await admin.cluster.status(values.optional("clusterName"))
        if values.truth("moreStats"):
            return _MORE.answer(map(_totals, brokers))
        now_ms = int(time.time() * 1000)
        return _LIST.answer(_broker(one, now_ms) for one in brokers)

    return repeated(values, once)


def _number(runtime: Mapping[str, str], key: str, default: float = 0) -> float:
    try:
        return float(runtime[key].split()[0])
    except (KeyError, IndexError, ValueError):
        return default


def _whole(runtime: Mapping[str, str], key: str) -> int:
    return int(_number(runtime, key))


def _load(runtime: Mapping[str, str], queue: str) -> str:
    return f"{runtime.get(f'{queue}Size', 'N')},{runtime.get(f'{queue}HeadWaitTimeMills', 'N')}ms"


def _broker(one: BrokerStatus, now_ms: int) -> tuple[Any, ...]:
    runtime = one.runtime
    loads = [_load(runtime, f"{pool}ThreadPoolQueue") for pool in ("send", "pull", "ack")]
    timer = (
        f"{_whole(runtime, 'timerReadBehind')}-{_whole(runtime, 'timerOffsetBehind')}"
        f"({_whole(runtime, 'timerCongestNum') / 10_000:.1f}w, {_number(runtime, 'timerEnqueueTps'):.1f}, "
        f"{_number(runtime, 'timerDequeueTps'):.1f})"
    )
    earliest = _number(runtime, "earliestMessageTimeStamp", -1)
    hours = (now_ms - earliest) / 3_600_000 if earliest > 0 or runtime else 0.0
    return (
        cut(one.cluster, 22),
        cut(one.broker_name, 22),
        one.broker_id,
        one.address,
        one.version,
        f"{one.put_tps:9.2f}({loads[0]})",
        f"{one.get_tps:9.2f}({loads[1]}|{loads[2]})",
        timer,
        f"{_whole(runtime, 'pageCacheLockTimeMills'):11d}",
        f"{hours:2.2f}",
        f"{max(one.disk_ratio, 0):.4f}",
        f"{runtime.get('brokerActive', 'false'):>10}",
    )


def _totals(one: BrokerStatus) -> tuple[Any, ...]:
    runtime = one.runtime
    put, get = ([_whole(runtime, f"msg{kind}Total{when}") for when in _WHEN] for kind in ("Put", "Get"))
    return (
        one.cluster,
        one.broker_name,
        put[1] - put[0],
        get[1] - get[0],
        put[2] - put[1],
        get[2] - get[1],
    )


_WHEN = ("YesterdayMorning", "TodayMorning", "TodayNow")


async def broker_status(admin: Admin, values: Values) -> Answer:
    """Show the reports of brokers about themselves."""
    of_cluster = values.optional("brokerAddr") is None
    lines, value = [], {}
    for address in await addresses(admin, values, slaves=True):
        runtime = await admin.cluster.runtime(address)
        value[address] = dict(sorted(runtime.items()))
        prefix = f"{address:<24} " if of_cluster else ""
        lines += [prefix + line for line in pairs(sorted(runtime.items()), 32, ": ")]
    return Answer("\n".join(lines), value)


_RT = Table(
    "%-24s  %-24s  %-4s  %-8s  %-8s",
    "#Cluster Name|#Broker Name|#RT|#successCount|#failCount",
    "%-24s  %-24s  %-8s  %-16s  %-16s",
)


def cluster_rt(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    """Measure the duration of sends repeatedly, broker by broker."""
    return _cluster_rt(admin, values)


async def _cluster_rt(admin: Admin, values: Values) -> AsyncIterator[Answer]:
    from tianzhou.client.producer.producer import Producer
    from tianzhou.model import Message, MessageQueue

    amount, body = values.number("amount", 100), b"a" * values.number("size", 128)
    pause, as_log = values.number("interval", 10), values.truth("print log")
    async with Producer("CLUSTER_RT", instance=admin.instance) as producer:
        while True:
            rows = []
            for cluster in [values.get("cluster")] if values.optional("cluster") else await admin.cluster.names():
                for broker in sorted(await admin.cluster.masters(cluster)):
                    total = good = bad = 0.0
                    for _ in range(amount):
                        begin = time.monotonic()
                        try:
                            await producer.send(Message(broker, body), queue=MessageQueue(broker, broker, 0))
                        except TianzhouError:
                            bad += 1
                            continue
                        total, good = total + (time.monotonic() - begin) * 1000, good + 1
                    rows.append((cluster, broker, f"{total / good:.2f}" if good else "0.00", int(good), int(bad)))
            if as_log:
                now, room = time.strftime("%Y-%m-%d %H:%M:%S"), values.get("machine room", "noname")
                lines = [f"{now}|{room}|{row[0]}|{row[1]}|{float(row[2]):.0f}" for row in rows]
                yield Answer("\n".join(lines), _RT.objects(rows))
            else:
                yield _RT.answer(rows)
            await asyncio.sleep(pause)


COMMANDS = (
    Subcommand(
        "clusterList",
        "List the brokers of all clusters: version, rates, load, disk.",
        "-n 127.0.0.1:9876",
        cluster_list,
        (
            Option("c", "clusterName", "Only this cluster."),
            Option("m", "moreStats", "Messages of yesterday and of today.", flag=True),
            INTERVAL,
        ),
    ),
    Subcommand(
        "brokerStatus",
        "Show what a broker reports about itself, key by key.",
        "-b 127.0.0.1:10911",
        broker_status,
        TARGET,
        one_of=ONE_TARGET,
    ),
    Subcommand(
        "clusterRT",
        "Measure how long sends to each broker take, again and again until Ctrl-C.",
        "-c DefaultCluster -a 10 -i 5",
        cluster_rt,
        (
            Option("a", "amount", "Messages for each broker, 100 when not given."),
            Option("s", "size", "Bytes of a message, 128 when not given."),
            Option("c", "cluster", "Only this cluster."),
            Option("i", "interval", "Seconds between two rounds, 10 when not given."),
            Option("p", "print log", "true: as lines of a log."),
            Option("m", "machine room", "A name that the lines of the log have."),
        ),
    ),
)
