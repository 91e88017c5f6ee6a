"""`pipeline replay`: its arguments, its progress, and the end of a replay into its own topic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tianzhou.cli.signals import run_client
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.cli.pipelines.clusters import PipelineCluster
    from tianzhou.model import MessageQueue

GROUP: Final = "tianzhou-cli"
LOCK: Final = "replay.json.lock"
ENDS: Final = "replay-ends.json"
"""File in a checkpoint with the end of each queue at the start of a replay into its own topic."""
OTHER_FORM: Final = "replay.json"
"""File in a checkpoint of an older version, which replayed few messages without Spark."""


@dataclass(frozen=True)
class ReplayWanted:
    """The arguments of a replay.

    Attributes:
        source: the topic to read.
        target: the topic to send to.
        checkpoint: the folder of the query's checkpoint.
        since_ms: earliest store time, milliseconds since the epoch; None for the oldest message.
        until_ms: store time before which messages are sent; None for all present messages.
        tags: a tag expression; None for all.
        where: a condition of SQL; None for all.
        per_second: maximum messages per second; None for no limit.
        corrupt_bodies: rule for a message whose body cannot be unpacked: fail or skip.
    """

    source: str
    target: str
    checkpoint: str
    since_ms: int | None
    until_ms: int | None
    tags: str | None
    where: str | None
    per_second: int | None
    corrupt_bodies: str


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """Messages of a queue.

    Attributes:
        queue: the queue.
        begin: offset of the first message.
        end: the offset after the last message.
    """

    queue: MessageQueue
    begin: int
    end: int

    @property
    def count(self) -> int:
        """Number of offsets."""
        return self.end - self.begin


def spans_now(topic: str, since_ms: int | None, cluster: PipelineCluster) -> list[QueueSpan]:
    """Return the present messages of each queue of a topic.

    Args:
        topic: the topic.
        since_ms: see `ReplayWanted`.
        cluster: the cluster of the topic.
    """

    async def work() -> list[QueueSpan]:
        from tianzhou.client.consumer.pull.pull_consumer import PullConsumer

        spans = []
        async with PullConsumer(GROUP, cluster.namesrv, auto_commit=False, **cluster.client_options) as consumer:
            for queue in await consumer.queues(topic):
                end, begin = await consumer.max_offset(queue), await consumer.min_offset(queue)
                if since_ms is not None:
                    begin = max(begin, await consumer.offset_by_time(queue, since_ms))
                spans.append(QueueSpan(queue, min(begin, end), end))
        return spans

    return run_client(work())


def passed(spans: Sequence[QueueSpan], end: str | None) -> int:
    """Return the number of messages of spans before a stream's offset.

    Args:
        spans: result of `spans_now`.
        end: the offset in Spark's progress; None before the first progress.
    """
    from tianzhou.spark.source.offsets import from_json

    if not end or end == "null":
        return 0
    at = from_json(json.loads(end))[1]
    return sum(min(max(at.get(span.queue, 0) - span.begin, 0), span.count) for span in spans)


@contextmanager
def held_replay(wanted: ReplayWanted, spans: Sequence[QueueSpan]) -> Iterator[Mapping[tuple[str, int], int] | None]:
    """Hold the lock of a replay's checkpoint for this process, unless the checkpoint is a URI.

    For a replay into its own topic, yield the end of each queue by broker name and queue id, because it must not send
    its own messages again. For other replays yield None. The ends are stored in the checkpoint, so that every run has
    those of the first.

    Args:
        wanted: the replay.
        spans: the present messages of its topic.

    Raises:
        ConfigError: another process holds the checkpoint, or it has another form.
    """
    from tianzhou.pipelines.archive_checkpoint import is_local
    from tianzhou.pipelines.folder_lock import held

    own = wanted.source == wanted.target
    ends = {(span.queue.broker_name, span.queue.queue_id): span.end for span in spans} if own else None
    if not is_local(wanted.checkpoint):
        yield ends
        return
    folder = Path(wanted.checkpoint)
    if (folder / OTHER_FORM).exists():
        raise ConfigError(
            f"--checkpoint {folder}: is that of a replay without Spark ({OTHER_FORM}), by an earlier version; finish "
            "it with that version, or give this one a folder of its own"
        )
    with held(folder, LOCK, "replay", needed=False):
        yield None if ends is None else _first_ends(folder / ENDS, ends)


def _first_ends(file: Path, ends: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
    if file.exists():
        return {(broker, queue): end for broker, queue, end in json.loads(file.read_text(encoding="utf-8"))}
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps([[*queue, end] for queue, end in ends.items()]), encoding="utf-8")
    draft.replace(file)
    return ends
