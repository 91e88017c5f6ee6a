"""Where each micro-batch of a stream begins and ends, and what it reads: the same for Spark and without it."""

from __future__ import annotations

from typing import Any

from tianzhou.model import MessageQueue
from tianzhou.spark.source import offsets
from tianzhou.spark.source.offsets import Bounds, Loss, Positions, Span
from tianzhou.spark.source.pacing import Pacing
from tianzhou.spark.source.positions import check_found
from tianzhou.spark.source.queue_watch import START_PATIENCE_MS, Connect, Watch
from tianzhou.spark.source.read_options import ReadOptions
from tianzhou.spark.source.span_reader import LossPolicy, locate


class StreamPlan:
    """The micro-batches of a stream, one after the other.

    Every offset carries where its batch begins (see `offsets`), so a batch that is run again after a restart
    reads the same messages, the very first one included.

    Args:
        options: the options of a stream.
        connect: gives the process's `QueueReader`.
    """

    def __init__(self, options: ReadOptions, connect: Connect) -> None:
        self._options = options
        self._connect = connect
        self._on_loss = LossPolicy(options.fail_on_data_loss)
        self._initial: dict[str, Any] | None = None
        self._target: Positions | None = None
        self._watch = Watch(options, connect)
        self._pacing = Pacing(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        self._planned: dict[str, Any] | None = None

    def initial(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins; it is found out once.

        Raises:
            ClientError: a topic does not exist.
            ConfigError: the options name queues or positions that do not exist.
        """
        if self._initial is None:
            bounds = self._watch.begin(may_be_empty=True)
            start = locate(self._options.starting, bounds, self._connect(self._options))
            check_found(self._options.starting_strategy, start, bounds)
            self._initial = offsets.to_json(start, start)
        return self._initial

    def end_at_what_is_there(self) -> None:
        """Remember where the queues end now; nothing behind that is read.

        A topic that is missing is no error here: `initial` says so to a query that begins, and `latest` knows where a
        query that goes on was in it.

        Raises:
            RemotingError: the servers do not answer.
        """
        self._target = offsets.ends(self._watch.now(START_PATIENCE_MS))

    def waiting(self, start: dict[str, Any]) -> int:
        """How many messages there are behind `start`, by what was last seen; those that are gone do not count.

        Args:
            start: an offset.
        """
        _, position = offsets.from_json(start)
        begin, _ = offsets.begin(position, self._watch.last)
        end = offsets.available(begin, self._watch.last)
        return sum(end.values()) - sum(begin.values())

    def latest(self, start: dict[str, Any], most: int | None = None, *, may_wait: bool = False) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` itself when there is nothing to read, or too little yet.

        Args:
            start: where the last one ended.
            most: most messages in it; None for all there are.
            may_wait: whether few messages may wait for more, as `minOffsetsPerTrigger` says.

        Raises:
            DataLoss: messages behind `start` are gone, and that is not to be skipped.
        """
        _, position = offsets.from_json(start)
        self._watch.now()
        gone = self._watch.gone(position)
        bounds = self._watch.last
        begin, losses = offsets.begin(position, bounds)
        self._on_loss([*losses, *gone])
        for loss in gone:
            del begin[loss.queue]
        end = offsets.available(begin, bounds)
        if self._target is not None:
            end = offsets.up_to(self._target, begin, end)
        elif may_wait and not losses and not gone and self._held(begin, end):
            return start
        if most is not None:
            end = offsets.limit(begin, end, most)
        if end == begin and not losses and not gone:
            return start
        self._planned = offsets.to_json(begin, end)
        return self._planned

    def _held(self, begin: Positions, end: Positions) -> bool:
        now_s = self._connect(self._options).monotonic()
        return self._pacing.holds(sum(end.values()) - sum(begin.values()), now_s)

    def seen(self) -> dict[str, Any] | None:
        """Where the queues ended when last looked at; None before the first look."""
        ends = offsets.ends(self._watch.last)
        return offsets.to_json(ends, ends) if ends else None

    def spans(self, end: dict[str, Any]) -> list[Span]:
        """The ranges of a micro-batch, from what `end` says about its beginning.

        Args:
            end: the offset where it ends.

        Raises:
            DataLoss: the batch is run again, and some of its messages are gone by now.
            OffsetOutOfRange: a queue would start behind its end.
        """
        spans = offsets.spans(*offsets.from_json(end))
        # Planned by an earlier run of the query: look whether all is still there.
        return spans if end == self._planned else self._clip(spans)

    def _clip(self, spans: list[Span]) -> list[Span]:
        self._watch.now()
        gone = {loss.queue: loss for loss in self._watch.gone({span.queue: span.start for span in spans})}
        bounds: dict[MessageQueue, Bounds] = self._watch.last
        left, losses = [], []
        for span in spans:
            if span.queue in gone:
                losses.append(Loss(span.queue, span.start, span.end, gone[span.queue].reason))
                continue
            if span.queue not in bounds:  # its broker is away: the task waits for it
                left.append(span)
                continue
            rest, lost = offsets.clip(span, bounds[span.queue])
            left.append(rest)
            losses += lost
        self._on_loss(losses)
        return left
