"""Runtime info of the broker (28), and figures of a topic, group or queue over time (315) (broker.md §20)."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import Any, Final

from tianzhou import __version__
from tianzhou.admin.copy_faults import UNDELIVERABLE, UNDELIVERABLE_REASON, UNDELIVERABLE_TOPICS
from tianzhou.admin.send_limits import LIMITED_BY
from tianzhou.broker.delays.delay import waiting_room
from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.rebuilt_note import kept_damaged_files, rebuilt_tables
from tianzhou.broker.services import Services
from tianzhou.broker.undeliverable.keeper import UndeliverableKeeper
from tianzhou.errors import BrokerError
from tianzhou.escaping import shown
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.wire.bodies.tables import BROKER_STATS, KV_TABLE
from tianzhou.wire.codes import VERSION, RequestCode, ResponseCode, version_name
from tianzhou.wire.command import Command

SHOWN_LIMITS: Final = 10
"""Maximum limits of senders in the runtime info."""
SHOWN_TOPICS: Final = 10
"""Maximum topics of undeliverable messages in the runtime info."""


class RuntimeInfoHandler(Handler):
    """Handler that returns figures."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._troubles = services.supervisor.troubles
        self._replication = services.replication
        self._keeper = UndeliverableKeeper(services)

    @serves(RequestCode.VIEW_BROKER_STATS_DATA)
    def item(self, connection: Connection, command: Command) -> Reply:
        """Return one figure over the last minute, hour and day."""
        name, key = command.fields.get("statsName", "null"), command.fields.get("statsKey", "null")
        found = self._stats.view(name, key)
        if found is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        return command.reply(ResponseCode.SUCCESS, body=BROKER_STATS.dumps(found))

    @serves(RequestCode.GET_BROKER_RUNTIME_INFO)
    async def runtime(self, connection: Connection, command: Command) -> Reply:
        """Return the figures as text under the keys that tools read (broker.md §20.2)."""
        earliest = await self._store.find(self._store.lookups.record_time_steps(max(self._store.begin_offset, 0)))
        return command.reply(ResponseCode.SUCCESS, body=KV_TABLE.dumps(self._figures(earliest)))

    def _figures(self, earliest: int) -> dict[str, str]:
        now = self._clock.now_ms()
        settings, stats, store = self._tables.settings, self._stats, self._store
        rates = {name: " ".join(map(str, values)) for name, values in stats.rates(now).items()}
        total = [a + b for a, b in zip(*(stats.rates(now)[name] for name in ("found", "missed")), strict=True)]
        puts, size = stats.put_count, stats.put_bytes
        figures: dict[str, Any] = {
            "bootTimestamp": stats.started_ms,
            "runtime": _duration(now - stats.started_ms),
            "brokerActive": "true",
            "damagedLogStretches": store.damage.stretches,
            "damagedLogStretchesPutRight": store.damage.put_right,
            **self._undeliverable(),
            **self._limited(now),
            "brokerVersion": VERSION,
            "brokerVersionDesc": version_name(VERSION),
            "tianzhouVersion": __version__,
            "startAcceptSendRequestTimeStamp": settings.start_accept_send_request_time_stamp,
            "putTps": rates["put"],
            "getFoundTps": rates["found"],
            "getMissTps": rates["missed"],
            "getTotalTps": " ".join(map(str, total)),
            "getTransferredTps": rates["transferred"],
            "getTransferedTps": rates["transferred"],  # the spelling of 4.9's tools, which fail without the key
            "putMessageTimesTotal": puts,
            "putMessageFailedTimes": stats.failed,
            "putMessageSizeTotal": size,
            "putMessageAverageSize": size / puts if puts else 0.0,
            "putMessageDistributeTime": stats.put_latency.classes,
            "putMessageEntireTimeMax": int(stats.put_latency.longest_ms),
            "getMessageEntireTimeMax": stats.longest_get_ms,
            "putLatency99": f"{stats.put_latency.percentile(0.99):.2f}",
            "putLatency999": f"{stats.put_latency.percentile(0.999):.2f}",
            "msgPutTotalYesterdayMorning": stats.mornings[0],
            "msgPutTotalTodayMorning": stats.mornings[1],
            "msgPutTotalTodayNow": stats.user_put_count,
            "msgGetTotalYesterdayMorning": stats.mornings[2],
            "msgGetTotalTodayMorning": stats.mornings[3],
            "msgGetTotalTodayNow": stats.user_get_count,
            "commitLogMinOffset": max(store.begin_offset, 0),
            "commitLogMaxOffset": store.end_offset,
            "dispatchBehindBytes": store.dispatch_behind_bytes,
            "dispatchMaxBuffer": 0,
            "earliestMessageTimeStamp": earliest,
            "remainHowManyDataToFlush": _size(max(store.end_offset - store.flushed.value, 0)),
            "remainTransientStoreBufferNumbs": 2_147_483_647,
            "pageCacheLockTimeMills": 0,
            "timerReadBehind": 0,
            "timerOffsetBehind": 0,
            "timerCongestNum": 0,
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
            "EndTransactionQueueSize": 0,
            "EndTransactionThreadPoolQueueCapacity": settings.end_transaction_pool_queue_capacity,
        }
        for pool in ("send", "pull", "litePull", "query", "ack"):
            figures[f"{pool}ThreadPoolQueueSize"] = 0
            figures[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = 0
        figures["sendThreadPoolQueueCapacity"] = settings.send_thread_pool_queue_capacity
        figures["pullThreadPoolQueueCapacity"] = settings.pull_thread_pool_queue_capacity
        figures["litePullThreadPoolQueueCapacity"] = settings.lite_pull_thread_pool_queue_capacity
        figures["queryThreadPoolQueueCapacity"] = settings.query_thread_pool_queue_capacity
        figures["ackThreadPoolQueueCapacity"] = settings.ack_thread_pool_queue_capacity
        figures |= self._disk() | self._replication.runtime_info()
        figures |= {f"refused_{name}": count for name, count in sorted(self._tables.refusals.counts.items())}
        if present := self._troubles.present():
            figures["taskTroubles"] = json.dumps(
                [{"task": one.name, "why": one.why, "count": one.count, "sinceMs": one.since_ms} for one in present]
            )
        root = store.settings.root
        figures |= {"rebuiltState": lost} if (lost := rebuilt_tables(root)) else {}
        figures |= {"damagedStateFiles": ", ".join(kept)} if (kept := kept_damaged_files(root)) else {}
        delays = self._tables.delays
        for level in delays.levels:
            end = max(store.max_offset(*waiting_room(level)), 0)
            if end or delays.offset(level):
                figures[f"scheduleMessageOffset_{level}"] = f"{delays.offset(level)},{end}"
        return {key: str(value) for key, value in figures.items()}

    def _undeliverable(self) -> dict[str, Any]:
        ledger = self._tables.undeliverable
        count = self._keeper.waiting()
        if not count:
            return {}
        topics = Counter[str]()
        for named, number in ledger.counts.items():
            topics[named.topic or "(none)"] += number
        listed = ", ".join(f"{topic} {number}" for topic, number in topics.most_common(SHOWN_TOPICS))
        return {UNDELIVERABLE: count, UNDELIVERABLE_TOPICS: listed, UNDELIVERABLE_REASON: ledger.reason}

    def _limited(self, now_ms: int) -> dict[str, Any]:
        table = self._tables.send_limits
        found = [
            f"{limit} ({limit.text}): {one.count} messages refused, the last of {shown(one.name)}"
            for key, one in list(table.recent(now_ms).items())[:SHOWN_LIMITS]
            if (limit := table.all().get(key)) is not None
        ]
        return {LIMITED_BY: "; ".join(found)} if found else {}

    def _disk(self) -> dict[str, Any]:
        # The first message creates the directory; until then use the disk of its nearest existing parent.
        usages = [
            (path, shutil.disk_usage(next(p for p in (path, *path.parents) if p.exists())))
            for path in self._store.settings.commit_log_directories
        ]
        # Count like `df`: space reserved for the system is neither used nor free.
        ratios = {str(path): usage.used / ((usage.used + usage.free) or 1) for path, usage in usages}
        total = sum(usage.total for _, usage in usages)
        free = total - sum(usage.used for _, usage in usages)
        worst = f"{max(ratios.values(), default=0.0):.2f}"
        return {
            "commitLogDiskRatio": worst,
            **{f"commitLogDiskRatio_{path}": f"{ratio:.2f}" for path, ratio in ratios.items()},
            "consumeQueueDiskRatio": worst,
            "commitLogDirCapacity": f"Total : {_size(total)}, Free : {_size(free)}.",
        }


def _duration(ms: int) -> str:
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    value, units = count / 1024, ["TiB", "GiB", "MiB", "KiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop()
    return f"{value:.1f} {units[-1]}"
