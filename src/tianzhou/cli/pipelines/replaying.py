"""`pipeline replay`: its options, its progress, and the last offset of a replay into its own topic."""

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
"""File of a checkpoint: where each queue ended when a replay into its own topic began."""
OTHER_FORM: Final = "replay.json"
"""File of a checkpoint that a version wrote which replayed few messages without Spark."""


@dataclass(frozen=True)
class ReplayWanted:
    """Options of a replay.

    Attributes:
        source: the topic to read.
        target: the topic to send to.
        checkpoint: the folder that keeps how far it is.
        since_ms: stored at or after this time, milliseconds since the epoch; None for the oldest on.
        until_ms: stored before this time; None for all there are now.
        tags: a tag expression; None for all.
        where: a condition of SQL; None for all.
        per_second: maximum messages in a second; None for as fast as can be.
        corrupt_bodies: treatment of a message whose body cannot be unpacked: fail or skip.
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
        end: offset behind the last message.
    """

    queue: MessageQueue
    begin: int
    end: int

    @property
    def count(self) -> int:
        """The number of offsets."""
        return self.end - self.begin


def spans_now(topic: str, since_ms: int | None, cluster: PipelineCluster) -> list[QueueSpan]:
    """Return what each queue of a topic holds now.

    Args:
        topic: the topic.
        since_ms: see `ReplayWanted`.
        cluster: where it is.
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
    """Return how many messages of spans are behind a stream's offset.

    Args:
        spans: result of `spans_now`.
        end: the offset as Spark reports it; None before there is one.
    """
    from tianzhou.spark.source.offsets import from_json

    if not end or end == "null":
        return 0
    at = from_json(json.loads(end))[1]
    return sum(min(max(at.get(span.queue, 0) - span.begin, 0), span.count) for span in spans)


@contextmanager
def held_replay(wanted: ReplayWanted, spans: Sequence[QueueSpan]) -> Iterator[Mapping[tuple[str, int], int] | None]:
    """Hold the checkpoint of a replay for this process, unless it is a URI.

    Yields where each queue ends, by broker name and queue id, for a replay into its own topic, which must not send
    again what it has sent itself; None for another one. The ends stay in the checkpoint, so that every run has those of
    the first.

    Args:
        wanted: the replay.
        spans: the messages that its topic holds now.

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
