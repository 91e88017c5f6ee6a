"""Exactly-once writes: tasks stage their rows, and the driver lets a coordinator decide the batch (docs/adr/0006).

A task first asks whether its batch was decided in an earlier run of the query, and then does nothing. Consumers do not
see staged rows. The driver requests the decision from the coordinator and lets it be published. Every repetition, by
Spark or after a crash, finds the same decision.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from tianzhou.client.staging import MessageRefused, Origin, Staging, StagingTask
from tianzhou.errors import TianzhouError
from tianzhou.model import Message, MessageQueue
from tianzhou.spark import connections
from tianzhou.spark.sink.key_queues import AGAIN_S, KeyQueues, QueueAway, queues_of_keys
from tianzhou.spark.sink.options import WriteOptions
from tianzhou.spark.sink.outgoing import OutgoingMessage, not_sent
from tianzhou.wire.bodies.staging import AttemptList, BatchDecision, StagedAttempt, attempt_name

_log = logging.getLogger(__name__)

ROWS_AT_ONCE: Final = 2_048
BATCH_PREFIX: Final = "batch:"
"""Prefix of the key of a batch write. No query's id has it."""

Connect = Callable[[WriteOptions], tuple[connections.SparkProcess, Staging]]


class BatchName(NamedTuple):
    """The name of a batch. It is the same in each run of the query."""

    writer: str
    number: int


@dataclass
class Staged(WriterCommitMessage):
    """A task's message to the driver.

    Attributes:
        rows: number of rows that the task has staged.
        writer: the query, or the key of a batch write.
        batch: number of the batch.
        coordinator: the broker that decides the batch.
        attempt: name of the attempt; empty if the batch was decided before.
        units: number of units at each broker.
    """

    rows: int
    writer: str
    batch: int
    coordinator: str
    attempt: str = ""
    units: dict[str, int] = field(default_factory=dict)


class BatchNotWritten(TianzhouError):
    """A batch could not be decided. None of it is visible, or the part that is decided becomes visible later."""


def stage(
    options: WriteOptions,
    rows: Iterator[OutgoingMessage],
    name: BatchName,
    partition: int,
    connect: Connect = connections.staging,
) -> Staged:
    """Stage the rows of a task.

    Args:
        options: the sink's options.
        rows: the messages.
        name: the batch.
        partition: number of the task's partition, for messages.
        connect: returns the process's client.

    Raises:
        RowNotSent: a row cannot be staged. The error contains its number.
        CannotStage: a broker cannot write exactly once.
    """
    process, staging = connect(options)
    coordinator = process.run(staging.coordinator(name.writer))
    state = process.run(staging.state(coordinator, name.writer))
    if state.decided >= name.number:
        return Staged(0, *name, coordinator)
    context = TaskContext.get()
    number = context.attemptNumber() if context is not None else 0
    # Spark counts attempts from 0 in each run of a query.
    attempt_id = attempt_name(state.refusals, f"{partition}.{number}.{uuid.uuid4().hex}")
    task = StagingTask(staging, *name, coordinator, attempt_id)
    count = 0
    try:
        while some := list(itertools.islice(rows, ROWS_AT_ONCE)):
            process.run(
                task.add(process.run(_placed(staging, some, queues_of_keys(options), options.sharding_wait_ms)))
            )
            count += len(some)
        attempt = process.run(task.finish())
    except MessageRefused as error:
        raise not_sent(error.index, partition, error) from error
    finally:
        process.run(task.close())
    if task.decided:
        return Staged(0, *name, coordinator)
    return Staged(count, *name, coordinator, attempt.name, attempt.units)


async def _placed(
    staging: Staging, rows: Sequence[OutgoingMessage], keys: KeyQueues, wait_ms: int
) -> list[tuple[Message, MessageQueue | int | Origin | None]]:
    """Return rows with their queues.

    Rows with a sharding key whose broker is away wait for it, `wait_ms` at most.
    """
    until_s = time.monotonic() + wait_ms / 1000
    placed: list[tuple[Message, MessageQueue | int | Origin | None]] = []
    for row in rows:
        where: MessageQueue | int | Origin | None = row.queue_id
        while where is None and row.message.sharding_key is not None:
            wire_topic = staging.plans.wire_topic(row.message.topic)
            try:
                where = keys.choose(row.message, (await staging.plans.make(wire_topic)).queues)
            except QueueAway:
                if time.monotonic() >= until_s:
                    raise
                await asyncio.sleep(AGAIN_S)
                await staging.instance.refresh_route(wire_topic)
        placed.append((row.message, where))
    return placed


def commit(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], connect: Connect = connections.staging
) -> None:
    """Decide a batch and publish it.

    Args:
        options: the sink's options.
        messages: messages of the tasks.
        connect: returns the process's client.

    Raises:
        BatchNotWritten: the tasks or the coordinator contradict each other.
        BrokerError: a broker rejects a request.
    """
    staged = _staged(messages)
    if not staged:
        return
    process, staging = connect(options)
    wanted = _decision(staged)
    if not all(message.attempt for message in staged):
        # Some tasks have staged no rows because the batch was decided. Check that it was.
        state = process.run(staging.state(wanted.coordinator, wanted.writer))
        if state.decided < wanted.batch:
            raise BatchNotWritten(
                f"batch {wanted.batch} of {wanted.writer}: broker {wanted.coordinator} reported it as decided, "
                "and has forgotten that; was its store replaced? Run the batch again"
            )
    decision = process.run(staging.decide(wanted))
    if decision.batch == wanted.batch:
        process.run(staging.publish(decision))
    else:
        _warn_of_old(wanted, decision.batch)


def _warn_of_old(batch: BatchDecision, decided: int) -> None:
    """Log a warning for a batch that writes nothing because a later batch is decided.

    The numbers start again with a new checkpoint. A repetition of the last batch is normal and logs nothing.
    """
    key = batch.writer.removeprefix(BATCH_PREFIX)
    cause = (
        f"batchKey={key} belongs to another write, or its numbers begin anew, as in a foreachBatch with a new "
        "checkpoint; give a new checkpoint another batchKey"
        if key != batch.writer
        else "the checkpoint was put back from a copy; begin with a new one to write these batches again"
    )
    _log.warning(
        "batch %d of %s writes nothing: batches up to %d are written already. If that is no repetition, %s",
        *(batch.batch, batch.writer, decided, cause),
    )


def abort(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], connect: Connect = connections.staging
) -> None:
    """Discard the staged rows, unless the batch was decided. In that case its next run finds the decision.

    Args:
        options: the sink's options.
        messages: messages of the tasks that finished.
        connect: returns the process's client.
    """
    attempts = [message for message in _staged(messages) if message.attempt]
    if not attempts:
        return
    process, staging = connect(options)
    first = attempts[0]
    names = [message.attempt for message in attempts]
    attempt_list = AttemptList(first.writer, first.batch, first.coordinator, names)
    brokers = sorted({broker for message in attempts for broker in message.units})
    process.run(staging.give_up(attempt_list, brokers))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _decision(staged: Sequence[Staged]) -> BatchDecision:
    found = {(message.writer, message.batch, message.coordinator) for message in staged}
    if len(found) != 1:
        reports = "; ".join(f"batch {batch} of {writer} at {broker}" for writer, batch, broker in sorted(found))
        raise BatchNotWritten(f"the tasks do not agree on what they have written: {reports}; run the batch again")
    ((writer, batch, coordinator),) = found
    attempts = [StagedAttempt(message.attempt, message.units) for message in staged if message.attempt]
    return BatchDecision(writer, batch, coordinator, attempts)
