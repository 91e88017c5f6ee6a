"""What the broker is and does: configuration (25, 26) and runtime information (28) (broker.md §20)."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from tianzhou.broker.delay import waiting_room
from tianzhou.broker.stats import BrokerStats
from tianzhou.broker.tables import Tables
from tianzhou.clock import Clock
from tianzhou.errors import BrokerError, ConfigError
from tianzhou.model import DataVersion
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.settings import apply, dump, format_properties, key_of, parse_properties
from tianzhou.store.store import MessageStore
from tianzhou.wire.bodies import encode_data_version, encode_kv_table
from tianzhou.wire.codes import VERSION, RequestCode, ResponseCode, version_name
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_reply

_ALWAYS_REFUSED = frozenset({"configBlackList", "brokerConfigPath"})


class InfoHandler:
    """Shows and changes settings, shows figures.

    Args:
        tables: the broker's state.
        store: its settings are part of the configuration.
        stats: counters.
        clock: wall-clock time.
        config_file: where the configuration is kept; every update rewrites it whole.
        changed: called after settings were changed, with their keys.
    """

    def __init__(
        self,
        tables: Tables,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
        config_file: Path,
        changed: Callable[[set[str]], None],
    ) -> None:
        self._tables = tables
        self._store = store
        self._stats = stats
        self._clock = clock
        self._config_file = config_file
        self._changed = changed
        self._version = DataVersion(0, clock.now_ms())

    def routes(self) -> dict[int, Callable[[Connection, Command], Reply | Awaitable[Reply]]]:
        """Request codes and who serves them."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime,
        }

    def config(self, connection: Connection, command: Command) -> Reply:
        """Every key with its value."""
        version = encode_data_version(self._version).decode()
        body = format_properties(dump(self._tables.settings, self._store.settings)).encode()
        return command.reply(ResponseCode.SUCCESS, None, write_reply(command.code, version=version), body)

    def update_config(self, connection: Connection, command: Command) -> Reply:
        """Set the keys that exist, and write the whole configuration to its file."""
        settings = self._tables.settings
        try:
            values = parse_properties(bytes(command.body).decode("utf-8"), source="request")
        except (UnicodeDecodeError, ConfigError) as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the configuration cannot be read: {error}") from None
        refused = _ALWAYS_REFUSED | {key.strip() for key in settings.config_black_list.split(";")}
        for key in values:
            if key in refused:
                raise BrokerError(ResponseCode.NO_PERMISSION, f"Can not update config in black list: {key}")
        try:
            changed = _assign(settings, values) | _assign(self._store.settings, values)
        except ConfigError as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if changed:
            self._version = self._version.next(self._clock.now_ms())
            self._write()
            self._changed(changed)
        return command.reply(ResponseCode.SUCCESS)

    def _write(self) -> None:
        text = format_properties(dump(self._tables.settings, self._store.settings))
        path = self._config_file
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".tmp")
        fresh.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copyfile(path, path.with_name(path.name + ".bak"))
        fresh.replace(path)

    def runtime(self, connection: Connection, command: Command) -> Reply:
        """Figures as text, under the keys tools look for (broker.md §20.2)."""
        return command.reply(ResponseCode.SUCCESS, body=encode_kv_table(self._figures()))

    def _figures(self) -> dict[str, str]:
        now = self._clock.now_ms()
        settings, stats, store = self._tables.settings, self._stats, self._store
        rates = {name: " ".join(map(str, values)) for name, values in stats.rates(now).items()}
        total = [a + b for a, b in zip(*(stats.rates(now)[name] for name in ("found", "missed")), strict=True)]
        puts, size = stats.put_count, stats.put_bytes
        figures: dict[str, Any] = {
            "bootTimestamp": stats.started_ms,
            "runtime": _duration(now - stats.started_ms),
            "brokerActive": "true",
            "brokerVersion": VERSION,
            "brokerVersionDesc": version_name(VERSION),
            "startAcceptSendRequestTimeStamp": settings.start_accept_send_request_time_stamp,
            "putTps": rates["put"],
            "getFoundTps": rates["found"],
            "getMissTps": rates["missed"],
            "getTotalTps": " ".join(map(str, total)),
            "getTransferredTps": rates["transferred"],
            "putMessageTimesTotal": puts,
            "putMessageFailedTimes": stats.failed,
            "putMessageSizeTotal": size,
            "putMessageAverageSize": size / puts if puts else 0.0,
            "putMessageDistributeTime": "null",
            "putMessageEntireTimeMax": 0,
            "getMessageEntireTimeMax": 0,
            "putLatency99": "0.00",
            "putLatency999": "0.00",
            "msgPutTotalYesterdayMorning": 0,
            "msgPutTotalTodayMorning": 0,
            "msgPutTotalTodayNow": puts,
            "msgGetTotalYesterdayMorning": 0,
            "msgGetTotalTodayMorning": 0,
            "msgGetTotalTodayNow": stats.get_count,
            "commitLogMinOffset": max(store.begin_offset, 0),
            "commitLogMaxOffset": store.end_offset,
            "dispatchBehindBytes": store.dispatch_behind_bytes,
            "dispatchMaxBuffer": 0,
            "earliestMessageTimeStamp": store.store_time_at(max(store.begin_offset, 0)),
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
        figures |= self._disk()
        delays = self._tables.delays
        for level in delays.levels:
            end = max(store.max_offset(*waiting_room(level)), 0)
            if end or delays.offset(level):
                figures[f"scheduleMessageOffset_{level}"] = f"{delays.offset(level)},{end}"
        return {key: str(value) for key, value in figures.items()}

    def _disk(self) -> dict[str, Any]:
        # The directory comes with the first message; until then its disk is that of the nearest one above it.
        usages = [
            (path, shutil.disk_usage(next(p for p in (path, *path.parents) if p.exists())))
            for path in self._store.settings.commit_log_directories
        ]
        ratios = {str(path): usage.used / (usage.total or 1) for path, usage in usages}
        total, free = sum(usage.total for _, usage in usages), sum(usage.free for _, usage in usages)
        worst = f"{max(ratios.values(), default=0.0):.2f}"
        return {
            "commitLogDiskRatio": worst,
            **{f"commitLogDiskRatio_{path}": f"{ratio:.2f}" for path, ratio in ratios.items()},
            "consumeQueueDiskRatio": worst,
            "commitLogDirCapacity": f"Total : {_size(total)}, Free : {_size(free)}.",
        }


def _assign(settings: Any, values: dict[str, str]) -> set[str]:
    """Set the keys the settings have, in place; returns those whose value changed."""
    updated = apply(settings, values, source="request")
    changed = set()
    for field in fields(settings):
        value = getattr(updated, field.name)
        if value != getattr(settings, field.name):
            setattr(settings, field.name, value)
            changed.add(key_of(field))
    return changed


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
