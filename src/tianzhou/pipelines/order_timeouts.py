"""Order time-outs: orders that were not paid in time, by joining two topics in a state with timers.

An example to copy: `{"order": "7"}` in one topic, `{"order": "7"}` in another when it is paid. Both are read by one
query: a state waits per order, and its timer fires when the watermark passes it. The watermark follows the slowest
queue. With `by_clock` the timer fires by Spark's clock, also when nothing is sent.
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
    """What one order waits for.

    Args:
        timeout_ms: how long an order may stay unpaid.
        grace_ms: with timers by the clock, how much later than its time, or than the reading of an order, a timer
            fires; None for timers by the watermark.
    """

    def __init__(self, timeout_ms: int, grace_ms: int | None = None) -> None:
        self._timeout_ms = timeout_ms
        self._grace_ms = grace_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark's: make the state."""
        self._handle = handle
        self._seen = handle.getValueState("seen", "ordered BIGINT, paid BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Spark's: orders and payments of one key."""
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
        # A query that was down reads orders whose time is over before it reads their payments.
        now_ms: int = timer_values.getCurrentProcessingTimeInMs()
        return max(due_ms, now_ms) + self._grace_ms

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Spark's: time is over for an order, or for a payment whose order never came."""
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
        # By the clock a timer's time depends on when its order was read, which the state does not have.
        times_ms = [before_ms + self._timeout_ms] if self._grace_ms is None else list(self._handle.listTimers())
        for due_ms in times_ms:
            self._handle.deleteTimer(due_ms)

    def close(self) -> None:
        """Spark's: nothing to close."""


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
    """One row per order: `paid`, `timed out`, or `no order` for a payment without one.

    Args:
        rows: messages of both topics, as a stream; by the store's time read with `includeSlowestTimestamp=true`.
        orders: the topic of the orders; all else are payments.
        key: JSON path of the order's id.
        timeout_s: how long an order may stay unpaid.
        late: how much later than others a message may come and still count; with `by_clock`, how much later than its
            time an order times out.
        time: STORE or BORN: the time of orders and payments.
        by_clock: time orders out by Spark's clock instead of the watermark. Rows need not have `slowestTimestamp`.
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
    """Start watching; outcomes become JSON messages of a topic, tagged `paid`, `timed-out` or `no-order`.

    Args:
        topics: the cluster.
        orders: the topic of the orders.
        payments: the topic of the payments.
        to: the topic the outcomes are sent to; their key is the order's id.
        checkpoint: the folder that keeps how far it is, and the state.
        key: see `outcomes`.
        timeout_s: see `outcomes`.
        late: see `outcomes`.
        time: see `outcomes`.
        by_clock: see `outcomes`; only with `follow`, because such a query never has all outcomes.
        follow: go on with what is sent later.
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
    conf.set(PROVIDER, STATE_STORE)  # timers need it; a query keeps the settings it was started with
    try:
        return topics.start(lines, checkpoint, topic=to, follow=follow)
    finally:
        conf.set(PROVIDER, before)
