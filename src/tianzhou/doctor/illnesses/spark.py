"""Faults of a stopped Spark stream: its checkpoint, its topic, and its software."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tianzhou.doctor.findings import Finding, Illness, Severity
from tianzhou.doctor.illnesses.group import duration
from tianzhou.doctor.observations import CheckpointSeen, SparkSeen

OLDEST_PYSPARK: Final = (4, 3)
OLDEST_JAVA: Final = 17
STUCK_MS: Final = 600_000
"""Milliseconds that a batch may take before the stream counts as stopped."""
SHOWN: Final = 5

NO_PYSPARK = Illness(
    "pyspark-missing",
    Severity.error,
    "pyspark is not installed for this interpreter.",
    "Install it: pip install 'tianzhou[spark]'",
)
OLD_PYSPARK = Illness(
    "pyspark-too-old",
    Severity.error,
    "pyspark {version} is older than {oldest}, the oldest that the format works with.",
    "Install a newer one: pip install 'pyspark>={oldest}'",
)
NO_JAVA = Illness(
    "java-missing",
    Severity.error,
    "Spark finds no Java {oldest} or newer on this machine.",
    "Install one and name it in JAVA_HOME: {why}",
)
UNREADABLE = Illness(
    "checkpoint-unreadable",
    Severity.error,
    "The checkpoint {path} cannot be read as one of a stream of this source.",
    "{why}",
)
TOPIC_GONE = Illness(
    "checkpoint-topic-gone",
    Severity.error,
    "The stream of {path} reads {count} queues that are not there any more: topic {topic} was deleted, or its broker "
    "is gone.",
    "Bring the broker or topic back, or start again with a new checkpoint folder.",
)
LOST = Illness(
    "checkpoint-data-lost",
    Severity.error,
    "The stream of {path} has not read {lost} messages of topic {topic} that are deleted by now: its next batch fails.",
    "Set failOnDataLoss=false to go on with what is left, or start again with a new checkpoint; keep messages longer "
    "(fileReservedTime) or read more often.",
)
BEYOND = Illness(
    "checkpoint-beyond-end",
    Severity.error,
    "The stream of {path} stands beyond the end of topic {topic}: the topic was made again, or its store lost its end.",
    "Start again with a new checkpoint folder; docs/howto/spark-source.md says what is read then.",
)
STUCK = Illness(
    "batch-not-finished",
    Severity.warning,
    "Batch {batch} of the stream of {path} was planned {since} ago and is not finished.",
    "Is the query running? See its log and stage page; what a batch gets is bounded by maxOffsetsPerTrigger.",
)
FAR_BEHIND = Illness(
    "stream-behind",
    Severity.warning,
    "The stream of {path} has {lag} messages to read, more than its last batch {factor:.0f} times over.",
    "Raise maxOffsetsPerTrigger, minPartitions or the number of executors' cores.",
)
BEHIND_BATCHES: Final = 100

ILLNESSES: Final = (NO_PYSPARK, OLD_PYSPARK, NO_JAVA, UNREADABLE, TOPIC_GONE, LOST, BEYOND, STUCK, FAR_BEHIND)


def findings(seen: SparkSeen) -> Iterator[Finding]:
    """Yield the faults of a stream."""
    version = tuple(map(int, re.findall(r"\d+", seen.pyspark)[:2]))
    if not seen.pyspark:
        yield NO_PYSPARK.found("spark")
    elif version < OLDEST_PYSPARK:
        oldest = ".".join(map(str, OLDEST_PYSPARK))
        yield OLD_PYSPARK.found("spark", {"pyspark": seen.pyspark}, version=seen.pyspark, oldest=oldest)
    if seen.java < OLDEST_JAVA:
        yield NO_JAVA.found("spark", {"java": seen.java}, oldest=OLDEST_JAVA, why=seen.why_no_java)
    if seen.checkpoint is not None:
        yield from _checkpoint(seen.checkpoint, seen.now_ms)


def _checkpoint(seen: CheckpointSeen, now_ms: int) -> Iterator[Finding]:
    subject, path = f"checkpoint {seen.path}", seen.path
    if seen.why:
        yield UNREADABLE.found(subject, {"error": seen.why}, path=path, why=seen.why)
        return
    if seen.batch > seen.committed and seen.planned_ms and now_ms - seen.planned_ms >= STUCK_MS:
        since = now_ms - seen.planned_ms
        evidence = {"planned": seen.batch, "committed": seen.committed, "planned_ago_ms": since}
        yield STUCK.found(subject, evidence, path=path, batch=seen.batch, since=duration(since))
    if not seen.known:
        return
    for topic in sorted({queue.topic for queue in seen.ends}):
        words = {"path": path, "topic": topic}
        ends = {queue: end for queue, end in seen.ends.items() if queue.topic == topic}
        if gone := [str(queue) for queue in ends if queue not in seen.bounds]:
            yield TOPIC_GONE.found(subject, {"queues": gone[:SHOWN]}, count=len(gone), **words)
        bounds = {queue: (end, *seen.bounds[queue]) for queue, end in ends.items() if queue in seen.bounds}
        if lost := {str(queue): first - end for queue, (end, first, _) in bounds.items() if end < first}:
            yield LOST.found(subject, {"queues": dict(list(lost.items())[:SHOWN])}, lost=sum(lost.values()), **words)
        beyond = {str(queue): {"read": end, "next": last} for queue, (end, _, last) in bounds.items() if end > last}
        if beyond:
            yield BEYOND.found(subject, {"queues": dict(list(beyond.items())[:SHOWN])}, **words)
        lag = sum(max(last - max(end, first), 0) for end, first, last in bounds.values())
        size = sum(end - seen.starts.get(queue, end) for queue, end in ends.items())
        if size > 0 and lag > BEHIND_BATCHES * size:
            evidence = {"lag": lag, "last_batch": size}
            yield FAR_BEHIND.found(subject, evidence, path=path, lag=lag, factor=lag / size)
