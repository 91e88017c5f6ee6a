"""Metric families of a broker's state: clients, topics, store, copies, delays, limits, troubles (broker.md §24)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tianzhou import __version__, _hot
from tianzhou.broker.delays.delay import waiting_room
from tianzhou.broker.metrics.traffic import flag
from tianzhou.broker.services import Services
from tianzhou.broker.tables.clients import RegisteredClient
from tianzhou.broker.undeliverable.keeper import UndeliverableKeeper
from tianzhou.metrics.families import PER_STEP, Family, Kind, Steps, counter, gauge, gauges
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.load import server_steps
from tianzhou.store.upkeep.cleaner import disk_use
from tianzhou.wire.bodies.replication import HaClient, HaStatus
from tianzhou.wire.codes import language_name, version_name

_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}


class BrokerState:
    """Source of metric families from a broker's tables and store.

    Args:
        services: the broker's services.
        groups: returns the connections of each port.
        waiting_sends: number of sends that wait for the disk or for copies.
        long_polls: number of pulls that wait for messages.
        most: maximum samples of a family.
    """

    def __init__(
        self,
        services: Services,
        groups: Callable[[], Iterable[tuple[int, ConnectionGroup[Any]]]],
        waiting_sends: Callable[[], int],
        long_polls: Callable[[], int],
        most: int,
    ) -> None:
        self._services = services
        self._keeper = UndeliverableKeeper(services)
        self._groups = groups
        self._waiting_sends, self._long_polls = waiting_sends, long_polls
        self._most = most

    def clients(self) -> Steps:
        """Yield families of producers' and consumers' connections."""
        table = self._services.tables.clients
        producers = self._gauges(
            "rocketmq_producer_connections", "Producers that are connected.", "language", "version"
        )
        counts: Counter[tuple[str, str]] = Counter()
        for number, clients in enumerate(list(table.producers.values()), 1):
            counts.update(_software(one) for one in clients.values())
            if number % PER_STEP == 0:
                yield None
        for software, count in counts.items():
            producers.add(count, *software)
        yield producers
        consumers = self._gauges(
            "rocketmq_consumer_connections", "Consumers that are connected.",
            "consumer_group", "language", "version", "consume_mode", "is_system",
        )  # fmt: skip
        for number, group in enumerate(list(table.consumers.values()), 1):
            counts = Counter(_software(one) for one in group.clients.values())
            mode = _MODES.get(group.consume_type.name, "push")
            for software, count in counts.items():
                consumers.add(count, group.name, *software, mode, flag(group.name.startswith("CID_RMQ_SYS_")))
            if number % PER_STEP == 0:
                yield None
        yield consumers

    def tables(self) -> Steps:
        """Yield families of topics, groups, half messages, delays and waiting requests."""
        tables, store = self._services.tables, self._services.store
        yield gauge("rocketmq_topic_number", "Topics.", len(tables.topics))
        yield gauge("rocketmq_consumer_group_number", "Consumer groups.", len(tables.groups.all()))
        yield gauge(
            "rocketmq_broker_permission", "2 may be written to, 4 may be read from.", tables.settings.broker_permission
        )
        yield gauges(
            "rocketmq_processor_watermark", "Requests that wait, by executor.", "processor",
            {"send": self._waiting_sends(), "pull": self._long_polls()},
        )  # fmt: skip
        yield gauge("tianzhou_long_polls", "Pulls that wait for messages.", self._long_polls())
        half = self._gauges("rocketmq_half_messages", "Half messages that wait for their end.", "topic")
        for topic, count in list(tables.transactions.counts.items()):
            half.add(count, topic)
        yield half
        yield gauge("tianzhou_half_messages", "Half messages of all topics.", len(tables.transactions))
        yield gauge("tianzhou_staged_writers", "Writers of staged messages.", len(tables.staging))
        aside = self._gauges(
            "tianzhou_undeliverable_messages",
            "Messages that are set aside because they cannot be delivered.",
            "ledger",
            "topic",
        )
        self._keeper.waiting()  # drops expired messages from the counts
        for named, count in list(tables.undeliverable.counts.items()):
            aside.add(count, *named)
        yield aside
        yield counter("tianzhou_undeliverable_total", "Messages that were set aside.", tables.undeliverable.total)
        yield gauge("tianzhou_send_limits", "Limits of senders.", len(tables.send_limits))
        text = "Messages that a limit of senders has refused."
        refused = Family("tianzhou_limited_messages_total", Kind.COUNTER, text, ("scope", "name"), self._most)
        for key, one in list(tables.send_limits.refused.items()):
            scope, _, name = key.partition(":")
            refused.add(one.count, scope, name)
        yield refused
        waiting = self._gauges("tianzhou_delayed_messages", "Messages that wait for their delay.", "level")
        for level in tables.delays.levels:
            left = store.max_offset(*waiting_room(level)) - tables.delays.offset(level)
            waiting.add(max(left, 0), str(level))
        yield waiting

    def storage(self) -> Steps:
        """Yield families of the store and its disks."""
        store, stats = self._services.store, self._services.stats
        begin, end = max(store.begin_offset, 0), store.end_offset
        local = {"storage_type": "local", "storage_medium": "disk"}
        yield gauge("rocketmq_storage_size", "Bytes of the commit log.", end - begin, **local)
        yield gauge(
            "rocketmq_storage_flush_behind_bytes", "Bytes of the log that the disk has not got yet.",
            max(end - store.flushed.value, 0), **local,
        )  # fmt: skip
        yield gauge(
            "rocketmq_storage_dispatch_behind_bytes", "Bytes of the log that are in no queue yet.",
            store.dispatch_behind_bytes, **local,
        )  # fmt: skip
        flushes = Family("tianzhou_flush_seconds", Kind.HISTOGRAM, "How long flushes of the log took.")
        flushes.add(store.flush_times.copy())
        yield flushes
        yield gauge("tianzhou_store_writable", "1 while messages are taken.", int(store.writable))
        yield counter("tianzhou_put_failures_total", "Sends that stored nothing.", stats.failed)
        yield gauge("tianzhou_put_longest_ms", "The longest put since the start.", stats.put_latency.longest_ms)
        yield counter("tianzhou_pulls_total", "Pulls that were answered.", stats.found + stats.missed)
        yield counter("tianzhou_pulls_found_total", "Those that brought messages.", stats.found)
        yield gauge("tianzhou_damaged_stretches", "Stretches of the log that are broken now.", store.damage.stretches)
        used = self._gauges("tianzhou_disk_used_ratio", "Share of the disk in use.", "path")
        free = self._gauges("tianzhou_disk_free_bytes", "Bytes of the disk that are free.", "path")
        for path in store.settings.commit_log_directories:
            use = disk_use(path)
            used.add(use.ratio, use.path)
            free.add(use.free, use.path)
        yield from (used, free)

    def copies(self) -> Steps:
        """Yield families of the slaves' lag, or of this slave's."""
        replication = self._services.replication
        status: HaStatus = replication.status()
        yield gauge("tianzhou_broker_is_master", "1 at a master.", int(status.master))
        lag = self._gauges("tianzhou_replication_lag_bytes", "Bytes of the log that a slave has not got yet.", "slave")
        rate = self._gauges("tianzhou_replication_bytes_per_second", "Bytes a slave gets a second.", "slave")
        for one in status.ha_connection_info:
            lag.add(max(one.diff, 0), one.addr)
            rate.add(one.transferred_byte_in_second, one.addr)
        yield from (lag, rate)
        if status.master:
            yield gauge("tianzhou_slaves", "Slaves that are connected.", len(status.ha_connection_info))
            yield gauge("tianzhou_in_sync_slaves", "Those that are in sync.", status.in_sync_slave_nums)
            halted = replication.halted_slaves.count(self._services.clock.monotonic())
            yield gauge("tianzhou_halted_slaves", "Slaves that copy nothing until an operator decides.", halted)
        else:
            silent = silent_s(
                status.ha_client_runtime_info,
                self._services.clock.now_ms(),
                grouped=self._services.store.settings.enable_d_leger_commit_log,
            )
            yield gauge("tianzhou_master_silent_seconds", "Seconds since the master was heard of; -1: never.", silent)

    def limits(self) -> Steps:
        """Yield families of memory that peers hold, refusals and failing tasks."""
        services = self._services
        yield from server_steps(self._groups(), services.tables.refusals, services.supervisor.troubles)
        yield gauge(
            "tianzhou_build_info", "1; the labels say what runs.", 1, version=__version__, hot=_hot.MODE,
            broker_id=str(services.replication.broker_id),
        )  # fmt: skip

    def _gauges(self, name: str, text: str, *labels: str) -> Family:
        return Family(name, Kind.GAUGE, text, labels, self._most)


def silent_s(client: HaClient, now_ms: int, *, grouped: bool) -> float:
    """Return the seconds since a slave heard from its master; -1 when it follows no master.

    Args:
        client: its connection to the master.
        now_ms: the time.
        grouped: whether it is a member of a group, which elects another leader when it does not hear the present one.
    """
    if client.last_read_timestamp:
        return max(now_ms - client.last_read_timestamp, 0) / 1000
    return 0.0 if grouped and client.master_addr else -1.0


def _software(client: RegisteredClient) -> tuple[str, str]:
    return language_name(client.language).lower(), version_name(client.version).lower()
