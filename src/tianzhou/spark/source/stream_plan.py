"""The start, the end and the ranges of each micro-batch of a stream."""

from __future__ import annotations

from typing import Any

from tianzhou.model import MessageQueue
from tianzhou.spark.source import marks as m
from tianzhou.spark.source import offsets
from tianzhou.spark.source.offsets import MessageLoss, Positions, QueueBounds, Span
from tianzhou.spark.source.pacing import Pacing
from tianzhou.spark.source.positions import check_found
from tianzhou.spark.source.queue_watch import START_PATIENCE_MS, Connect, Watch
from tianzhou.spark.source.read_options import ReadOptions
from tianzhou.spark.source.span_reader import LossPolicy, locate


class StreamPlan:
    """The micro-batches of a stream, in order.

    Every offset contains the start of its batch (see `offsets`). So a batch that is run again after a restart reads the
    same messages, and so does the first batch.

    Args:
        options: the options of a stream.
        connect: returns the process's `BlockingQueueReader`.
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
        self._marked_at = -1  # number of the watch's search at which the marks were last checked

    def initial(self) -> dict[str, Any]:
        """Return the start of a query without a checkpoint. It is determined once.

        Raises:
            ClientError: a topic does not exist.
            ConfigError: the options contain queues or positions that do not exist.
        """
        if self._initial is None:
            bounds = self._watch.begin(may_be_empty=True)
            start = locate(self._options.starting, bounds, self._connect(self._options))
            check_found(self._options.starting_strategy, start, bounds)
            begin = offsets.to_json(start, start)
            marked = m.marked({}, start, bounds, self._connect(self._options).store_times)
            self._initial = m.with_marks(begin, marked)
        return self._initial

    def end_at_what_is_there(self) -> None:
        """Store the present ends of the queues. Later messages are not read.

        A missing topic is no error here. `initial` reports it for a new query, and `latest` for a query that continues
        from a checkpoint.

        Raises:
            RemotingError: the servers do not answer.
        """
        self._target = offsets.ends(self._watch.now(START_PATIENCE_MS))

    def latest(self, start: dict[str, Any], most: int | None = None, *, may_wait: bool = False) -> dict[str, Any]:
        """Return the end of the next micro-batch; `start` itself if there are no messages, or too few yet.

        Args:
            start: the end of the last micro-batch.
            most: maximum messages; None for all available ones.
            may_wait: whether few messages may wait for more, see `minOffsetsPerTrigger`.

        Raises:
            DataLoss: messages after `start` are lost, and `failOnDataLoss` is on.
        """
        _, position = offsets.from_json(start)
        self._watch.now()
        gone = self._watch.gone(position)
        bounds, reader = self._watch.last, self._connect(self._options)
        begin, losses = offsets.begin(position, bounds)
        for loss in gone:
            del begin[loss.queue]
        end = self._end(begin, bounds)
        marks = {queue: mark for queue, mark in m.marks_of(start).items() if queue in begin}
        due = self._marked_at != self._watch.looks
        if due and (end != begin or losses):
            read = {queue: begin[queue] for queue in begin if end[queue] > begin[queue]}
            suspects = {**read, **{loss.queue: position[loss.queue] for loss in losses}}
            others = m.check(marks, suspects, bounds, reader.store_times)
            if others:
                losses = [*(loss for loss in losses if loss.queue not in others), *others.values()]
                begin |= m.newer(marks, others, bounds, reader.offsets_by_time)
                end = self._end(begin, bounds)
                marks = {queue: mark for queue, mark in marks.items() if queue not in others}
        self._on_loss([*losses, *gone])
        if self._target is None and may_wait and not losses and not gone and self._held(begin, end):
            return start
        if most is not None:
            end = offsets.limit(begin, end, most)
        if end == begin and not losses and not gone:
            return start
        if due or self._options.include_slowest_timestamp:
            marks = m.marked(marks, end, bounds, reader.store_times)
            self._marked_at = self._watch.looks
        wanted = {queue: at for queue, at in end.items() if self._options.selection.wants(queue)}
        before_ms = m.reached_of(start).after_ms
        reached = m.Reached(before_ms, m.slowest(marks, wanted, bounds, before_ms))
        self._planned = m.with_marks(offsets.to_json(begin, end), marks, reached)
        return self._planned

    def _end(self, begin: Positions, bounds: dict[MessageQueue, QueueBounds]) -> Positions:
        end = offsets.available(begin, bounds)
        return end if self._target is None else offsets.up_to(self._target, begin, end)

    def _held(self, begin: Positions, end: Positions) -> bool:
        now_s = self._connect(self._options).monotonic()
        return self._pacing.holds(sum(end.values()) - sum(begin.values()), now_s)

    def seen(self) -> dict[str, Any] | None:
        """Return the ends of the queues at the last search; None before the first search."""
        ends = offsets.ends(self._watch.last)
        return offsets.to_json(ends, ends) if ends else None

    def spans(self, end: dict[str, Any]) -> list[Span]:
        """Return the ranges of a micro-batch, which begin at the `from` of `end`.

        Args:
            end: the offset of its end.

        Raises:
            DataLoss: the batch is run again, and some of its messages have been lost since.
            OffsetOutOfRange: a queue's start is after its end.
        """
        spans = offsets.spans(*offsets.from_json(end))
        # An earlier run of the query planned the batch, so check that its messages still exist.
        return spans if end == self._planned else self._clip(spans, m.marks_of(end))

    def _clip(self, spans: list[Span], marks: m.Marks) -> list[Span]:
        self._watch.now()
        gone = {loss.queue: loss for loss in self._watch.gone({span.queue: span.start for span in spans})}
        bounds: dict[MessageQueue, QueueBounds] = self._watch.last
        left: list[Span] = []
        losses: list[MessageLoss] = []
        starts = {span.queue: span.start for span in spans}
        others = m.check(marks, starts, bounds, self._connect(self._options).store_times)
        for span in spans:
            if span.queue in others:
                losses.append(others[span.queue])
                continue
            if span.queue in gone:
                losses.append(MessageLoss(span.queue, span.start, span.end, gone[span.queue].reason))
                continue
            if span.queue not in bounds:  # Its broker is away. The task waits for it.
                left.append(span)
                continue
            rest, lost = offsets.clip(span, bounds[span.queue])
            left.append(rest)
            losses += lost
        self._on_loss(losses)
        return left
