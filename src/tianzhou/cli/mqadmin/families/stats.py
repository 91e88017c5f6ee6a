"""Rates of topics and groups (client.md §23.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tianzhou.cli.mqadmin.answers import Answer, Table
from tianzhou.cli.mqadmin.families.offsets import RETRY
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values
from tianzhou.errors import TianzhouError

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.wire.bodies.tables import BrokerStats

_ALL = Table(
    "%-64s  %-64s %12s %11s %11s %14s %14s",
    "#Topic|#Consumer Group|#Accumulation|#InTPS|#OutTPS|#InMsg24Hour|#OutMsg24Hour",
    "%-64s  %-64s %12d %11.2f %11.2f %14d %14d",
)


async def stats_all(admin: Admin, values: Values) -> Answer:
    """Show the numbers of stored and consumed messages by topic and group."""
    only, active = values.optional("topic"), values.truth("activeTopic")
    rows: list[tuple[Any, ...]] = []
    for topic in await admin.topics.names():
        if topic.startswith((RETRY, "%DLQ%")) or (only is not None and topic != only):
            continue
        try:
            rows += await _of_topic(admin, topic, active)
        except TianzhouError:
            continue
    keys = ("topic", "consumer_group", "accumulation", "in_tps", "out_tps", "in_msg_24_hour", "out_msg_24_hour")
    return Answer(_text(rows), [dict(zip(keys, row, strict=True)) for row in rows])


def _text(rows: list[tuple[Any, ...]]) -> str:
    lines = [_ALL.text([])]
    for row in rows:
        if row[1] is None:
            lines.append(f"{row[0]:<64}  {'':<64} {0:>12} {row[3]:>11.2f} {'':>11} {row[5]:>14} {'NO_CONSUMER':>14}")
        else:
            lines.append(_ALL.row(row))
    return "\n".join(lines)


async def _of_topic(admin: Admin, topic: str, active: bool) -> list[tuple[Any, ...]]:
    masters = [one.master for one in (await admin.topics.route(topic)).broker_datas if one.master is not None]
    groups = await admin.topics.groups(topic)
    in_tps, in_day = await _sums(admin, masters, "TOPIC_PUT_NUMS", topic)
    if not groups:
        return [] if active and not in_day else [(topic, None, 0, in_tps, 0.0, in_day, 0)]
    rows = []
    for group in groups:
        out_tps, out_day = await _sums(admin, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        if active and not in_day and not out_day:
            continue
        try:
            behind = (await admin.groups.lag(group, topic)).total
        except TianzhouError:
            behind = 0
        rows.append((topic, group, behind, in_tps, out_tps, in_day, out_day))
    return rows


async def _sums(admin: Admin, masters: list[str], name: str, key: str) -> tuple[float, int]:
    found = [await admin.servers.stats(master, name, key) for master in masters]
    return sum(one.stats_minute.tps for one in found), sum(map(_day, found))


def _day(one: BrokerStats) -> int:
    """Return the messages of 24 hours, or of the shorter time that the figures cover."""
    return one.stats_day.sum or one.stats_hour.sum or one.stats_minute.sum


COMMANDS = (
    Subcommand(
        "statsAll",
        "Show how many messages come in and go out, by topic and group.",
        "-t orders",
        stats_all,
        (
            Option("a", "activeTopic", "Only topics with messages in the last 24 hours.", flag=True),
            Option("t", "topic", "Only this topic."),
        ),
    ),
)
