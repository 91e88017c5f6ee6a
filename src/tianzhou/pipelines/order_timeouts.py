"""Order time-outs: orders that were not paid in time, found by a join of two topics in a state with timers.

An example to copy: `{"order": "7"}` in one topic, `{"order": "7"}` in another when it is paid. One query reads both
topics. It has a state per order, whose timer fires when the watermark passes it. The watermark follows the slowest
queue. With `by_clock` the timer fires by Spark's clock, even if no messages are sent.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tianzhou.pipelines.event_time import (
    AT,
    BY_SLOWEST,
    STORE,
    delay_ms,
    not_behind_slowest,
    slowest_columns,
    time_of,
    with_slowest_watermark,
)
from tianzhou.pipelines.topics import Topics, text_body

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
RESULT = "order STRING, outcome STRING, ordered TIMESTAMP, paid TIMESTAMP"


class Waiting(StatefulProcessor):
    """The state of one order.

    Args:
        timeout_ms: time in ms for which an order may remain unpaid.
        grace_ms: for timers by the clock, time in ms by which a timer fires after its due time, or after the order was
            read; None for timers by the watermark.
    """

    def __init__(self, timeout_ms: int, grace_ms: int | None = None) -> None:
        self._timeout_ms = timeout_ms
        self._grace_ms = grace_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Create the state. Called by Spark."""
        self._handle = handle
        self._seen = handle.getValueState("seen", "ordered BIGINT, paid BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Process orders and payments of one key. Called by Spark."""
        ordered, paid = self._seen.get() or (None, None)
        before = ordered if ordered is not None else paid
        for row in rows:
            if row["isOrder"]:
                ordered = row["ms"] if ordered is None else min(ordered, row["ms"])
            else:
                paid = row["ms"] if paid is None else min(paid, row["ms"])
        if ordered is not None and paid is not None and paid < ordered + self._timeout_ms:
            self._stop_timer(before)
            self._seen.clear()
            yield _result(key, "paid", ordered, paid)
            return
        began = ordered if ordered is not None else paid
        if began != before:
            self._stop_timer(before)
            self._handle.registerTimer(self._due_ms(began, timerValues))
        self._seen.update((ordered, paid))

    def _due_ms(self, began_ms: int, timer_values: Any) -> int:
        """Return the time of an order's timer, milliseconds since the epoch."""
        due_ms = began_ms + self._timeout_ms
        if self._grace_ms is None:
            return due_ms
        # After downtime the query reads overdue orders before it reads their payments.
        now_ms: int = timer_values.getCurrentProcessingTimeInMs()
        return max(due_ms, now_ms) + self._grace_ms

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Process an order that timed out, or a payment without an order. Called by Spark."""
        del timerValues, expiredTimerInfo
        seen = self._seen.get()
        if seen is None:
            return
        ordered, paid = seen
        self._seen.clear()
        yield _result(key, "no order" if ordered is None else "timed out", ordered, paid)

    def _stop_timer(self, before_ms: int | None) -> None:
        if before_ms is None:
            return
        # By the clock a timer's time depends on when its order was read, which is not in the state.
        times_ms = [before_ms + self._timeout_ms] if self._grace_ms is None else list(self._handle.listTimers())
        for due_ms in times_ms:
            self._handle.deleteTimer(due_ms)

    def close(self) -> None:
        """Do nothing. Called by Spark."""


def _result(key: Any, outcome: str, ordered: int | None, paid: int | None) -> Row:
    def moment(ms: int | None) -> dt.datetime | None:
        return None if ms is None else dt.datetime.fromtimestamp(ms / 1000, dt.UTC)

    return Row(order=key[0], outcome=outcome, ordered=moment(ordered), paid=moment(paid))


def outcomes(
    rows: DataFrame,
    orders: str,
    *,
    key: str,
    timeout_s: int,
    late: str,
    time: str = STORE,
    by_clock: bool = False,
) -> DataFrame:
    """Return one row per order: `paid`, `timed out`, or `no order` for a payment without one.

    Args:
        rows: a stream of messages of both topics. For the time STORE it must be read with
            `includeSlowestTimestamp=true`.
        orders: the topic of the orders. Messages of other topics are payments.
        key: JSON path of the order's id.
        timeout_s: time in seconds for which an order may remain unpaid.
        late: time by which a message may be later than others and still count; with `by_clock`, time by which an order
            times out after its due time.
        time: STORE or BORN: the time of orders and payments.
        by_clock: whether timers use Spark's clock instead of the watermark. Then rows need not have `slowestTimestamp`.
    """
    at = time_of(rows, time)
    chosen = rows.select(
        f.get_json_object(text_body(), key).alias("order"),
        (f.col("topic") == orders).alias("isOrder"),
        f.unix_millis(at).alias("ms"),
        at.alias("own"),
        *slowest_columns(rows),
    ).where("`order` IS NOT NULL AND ms IS NOT NULL")
    if by_clock:
        waiting = Waiting(timeout_s * 1000, delay_ms(chosen, late, "own"))
        return chosen.groupBy("order").transformWithState(waiting, RESULT, "Append", "ProcessingTime")
    if time == STORE:
        marked = with_slowest_watermark(chosen, not_behind_slowest(chosen, f.col("own")), late=late)
    else:
        marked = chosen.withColumnRenamed("own", AT).withWatermark(AT, late)
    return marked.groupBy("order").transformWithState(Waiting(timeout_s * 1000), RESULT, "Append", "EventTime")


def order_timeouts(
    topics: Topics,
    orders: str,
    payments: str,
    to: str,
    checkpoint: str,
    *,
    key: str = "$.order",
    timeout_s: int = 900,
    late: str = "10 seconds",
    time: str = STORE,
    by_clock: bool = False,
    follow: bool = False,
) -> StreamingQuery:
    """Start the query. Outcomes become JSON messages of a topic, tagged `paid`, `timed-out` or `no-order`.

    Args:
        topics: the cluster.
        orders: the topic of the orders.
        payments: the topic of the payments.
        to: the topic of the outcomes; their key is the order's id.
        checkpoint: the folder of the query's checkpoint, with its positions and the state.
        key: see `outcomes`.
        timeout_s: see `outcomes`.
        late: see `outcomes`.
        time: see `outcomes`.
        by_clock: see `outcomes`; only with `follow`, because such a query never has all outcomes.
        follow: whether to continue with later messages.
    """
    by_slowest = BY_SLOWEST if time == STORE and not by_clock else {}
    rows = topics.stream(orders, payments, startingOffsets="earliest", **by_slowest)
    found = outcomes(rows, orders, key=key, timeout_s=timeout_s, late=late, time=time, by_clock=by_clock)
    lines = found.select(
        f.to_json(f.struct("*")).alias("body"),
        f.col("order").alias("keys"),
        f.replace("outcome", f.lit(" "), f.lit("-")).alias("tags"),
    )
    conf = topics.spark.conf
    before = conf.get(PROVIDER) or STATE_STORE
    conf.set(PROVIDER, STATE_STORE)  # Timers need it. A query uses the settings of its start.
    try:
        return topics.start(lines, checkpoint, topic=to, follow=follow)
    finally:
        conf.set(PROVIDER, before)
