"""Archive of few messages by the client: micro-batches of what `archive` does, without Spark.

What it writes is Spark's: the checkpoint of its query and the files and lists of its file sink. Spark goes on with what
is here, and this with what Spark has done; killed at any moment, either goes on where the other was, each message once.
A batch is begun with its file in `offsets`, in the table with its list in `_spark_metadata`, and done with its file in
`commits`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tianzhou.pipelines.archive_folders import ArchiveFolders
from tianzhou.pipelines.archive_log import Logged, Step, next_step
from tianzhou.pipelines.archive_parts import ROWS, PartFiles, body_bytes
from tianzhou.pipelines.few_messages import FEW
from tianzhou.spark.option_values import STREAM, with_credentials
from tianzhou.spark.rows.columns import to_batches
from tianzhou.spark.rows.compiled_columns import CompiledColumns
from tianzhou.spark.source.offsets import Positions, from_json
from tianzhou.spark.source.queue_watch import Connect
from tianzhou.spark.source.read_options import ReadOptions, parse_read
from tianzhou.spark.source.span_reader import read_span
from tianzhou.spark.source.stream_plan import StreamPlan

COLUMNS: Final = tuple(ROWS.names)

Progress = Callable[[int], None]
"""Called with the messages written so far."""


def options_of(
    topics: Sequence[str],
    servers: Mapping[str, str | bool | None],
    environment: Mapping[str, str],
    *,
    most: int,
    skip_lost: bool,
) -> ReadOptions:
    """The options of the source that `archive` reads with.

    Args:
        topics: the topics.
        servers: options that say where they are, who asks, and what becomes of bodies; None leaves one out.
        environment: of the process.
        most: most messages in a micro-batch.
        skip_lost: go on when messages were deleted before they were archived.

    Raises:
        ConfigError: one cannot be.
    """
    values = {
        **servers,
        "subscribe": ",".join(topics),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": most,
        "failOnDataLoss": not skip_lost,
    }
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value is not None
    }
    return parse_read(with_credentials(texts, environment), STREAM)


@dataclass
class Done:
    """What a run has done so far.

    Attributes:
        rows: messages written.
        bytes: the bytes of their bodies.
        positions: where each queue goes on.
    """

    rows: int = 0
    bytes: int = 0
    positions: Positions = field(default_factory=dict)


class FewArchived:
    """An archive that goes on by micro-batches; the caller holds its folders.

    Memory: see `archive_parts`; it does not grow with the topics.

    Args:
        options: what is read, see `options_of`.
        connect: gives the process's `QueueReader`.
        folders: of the archive.
    """

    def __init__(self, options: ReadOptions, connect: Connect, folders: ArchiveFolders) -> None:
        self._options, self._connect, self._folders = options, connect, folders
        self._plan = StreamPlan(options, connect)
        rules = options.row_rules
        self._decode = partial(to_batches, compiled=CompiledColumns(ROWS, COLUMNS, rules=rules), rules=rules)
        self.done = Done()
        self._step = Step(0)
        self._last: Logged | None = None
        self._at: dict[str, Any] = {}

    def begin(self) -> int:
        """Find out where the archive is; returns how many messages there are to write.

        Raises:
            UnknownForm: only Spark knows how to go on.
            ConfigError: the table is that of another checkpoint.
            TianzhouError: the servers do not answer, or a topic does not exist.
        """
        folders = self._folders
        self._step = next_step(folders.logs(), str(folders.to), str(folders.checkpoint))
        number = self._step.number if self._step.begun else self._step.number - 1
        self._last = folders.logged(number) if number >= 0 else None
        self._plan.end_at_what_is_there()
        self._at = self._plan.initial() if self._last is None else self._last.offset
        self.done.positions = from_json(self._at)[1]
        again = self._last is not None and self._step.begun and not self._step.listed
        return self._plan.waiting(self._at) + (_count(self._at) if again else 0)

    def run(self, progress: Progress = lambda _: None) -> Done:
        """Write what there was when the run began.

        Args:
            progress: see `Progress`.

        Raises:
            DataLoss: messages were deleted before they were archived, and that is not to be skipped.
            ConfigError: another archive writes to the same folders.
            UnknownForm: only Spark knows how to go on.
            TianzhouError: the servers do not answer.
        """
        self._folders.begin()
        try:
            while self._next(progress):
                pass
        finally:
            self._folders.end()
        return self.done

    def _next(self, progress: Progress) -> bool:
        step = self._step
        if not step.begun:
            end = self._plan.latest(self._at, self._options.max_offsets_per_trigger)
            if end == self._at and step.number:  # the first batch says where the archive began, if nothing else
                return False
            self._last = Logged(end, self._last.conf) if self._last else Logged(end)
            self._folders.log_begin(step.number, self._last)
            self._at = end
        if not step.listed:
            self._write(step.number, progress)
        self._folders.log_end(step.number)
        self.done.positions = from_json(self._at)[1]
        self._step = Step(step.number + 1)
        return True

    def _write(self, number: int, progress: Progress) -> None:
        reader, parts = self._connect(self._options), PartFiles(self._folders.to, self._folders.drafts)
        rows = size = 0
        for span in self._plan.spans(self._at):
            for batch in read_span(reader, span, self._options, ROWS, COLUMNS, self._decode):
                parts.add(span.queue.topic, batch)
                rows, size = rows + batch.num_rows, size + body_bytes(batch)
                progress(self.done.rows + rows)
        self._folders.log_files(number, parts.finish())
        self.done.rows, self.done.bytes = self.done.rows + rows, self.done.bytes + size


def _count(offset: Mapping[str, Any]) -> int:
    start, end = from_json(offset)
    return sum(at - start.get(queue, at) for queue, at in end.items())


def is_little(waiting: int) -> bool:
    """Whether the client is done with so many messages before Spark has begun."""
    return waiting <= FEW
