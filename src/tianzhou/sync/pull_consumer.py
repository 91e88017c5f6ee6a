# Written by scripts/facade from the async classes; change those, then run it again.
"""The blocking pull consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tianzhou import client
from tianzhou.client.consumer.allocation import AllocateStrategy
from tianzhou.client.consumer.pull.queue_watch import QueuesListener
from tianzhou.client.consumer.pulling import RawPull
from tianzhou.client.consumer.rebalancer import SharesChanged
from tianzhou.client.hooks import ConsumeHook, FilterHook
from tianzhou.client.instance import ClientInstance
from tianzhou.model import ConsumeFromWhere, MessageExt, MessageModel, MessageQueue, PullResult
from tianzhou.sync.background import Blocking


class QueueReader(Blocking):
    """The part of a `PullConsumer` that keeps no position.

    Args:
        asynchronous: the async one.
    """

    _async: client.QueueReader

    def __init__(self, asynchronous: client.QueueReader) -> None:
        super().__init__(asynchronous)

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._async.group

    @property
    def instance(self) -> ClientInstance:
        """The client instance it works with; it belongs to the background loop."""
        return self._async.instance

    def queues(self, topic: str) -> list[MessageQueue]:
        """The topic's readable queues, sorted, as the name server knows them now.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """The first offset the queue still holds."""
        return self._run(self._async.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the queue's next message will get."""
        return self._run(self._async.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at or after a time; with `upper` the last at or before it.

        Args:
            queue: the queue.
            timestamp_ms: milliseconds since the epoch.
            upper: see above; brokers before 5.0 do not know it.
        """
        return self._run(self._async.offset_by_time(queue, timestamp_ms, upper=upper))

    def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """When the queue's first message was stored, milliseconds since the epoch; None when it holds none."""
        return self._run(self._async.earliest_store_time(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset of a queue, None when it has none."""
        return self._run(self._async.committed(queue))

    def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store offsets of the group, and wait until they are stored.

        Args:
            offsets: the next offset to read, by queue.

        Raises:
            ClientError: some could not be stored; the log has the reasons.
        """
        self._run(self._async.commit_offsets(offsets))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = 32,
        *,
        tags: str | None = "*",
        sql: str | None = None,
        suspend_ms: int = 0,
        timeout_ms: int | None = None,
        max_bytes: int | None = None,
        broker_id: int = 0,
    ) -> PullResult:
        """Pull once from a queue.

        Args:
            queue: the queue.
            offset: the first wanted offset.
            max_messages: at most so many; brokers give at most 32 at once from memory, 8 from disk.
            tags: tag expression, `A || B`.
            sql: SQL92 expression instead of tags.
            suspend_ms: how long the broker may hold the request while there is no new message.
            timeout_ms: limit of the request; by default the consumer's `pull_timeout_ms` beyond `suspend_ms`.
            max_bytes: at most so many bytes of records, where the broker knows this wish.
            broker_id: the replica to ask, 0 for the master.

        Raises:
            BrokerError: the broker refuses.
            RemotingError: it does not answer.
        """
        return self._run(
            self._async.pull(
                queue,
                offset,
                max_messages,
                tags=tags,
                sql=sql,
                suspend_ms=suspend_ms,
                timeout_ms=timeout_ms,
                max_bytes=max_bytes,
                broker_id=broker_id,
            )
        )

    def pull_raw(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = 32,
        *,
        tags: str | None = "*",
        sql: str | None = None,
        suspend_ms: int = 0,
        timeout_ms: int | None = None,
        max_bytes: int | None = None,
        broker_id: int = 0,
    ) -> RawPull:
        """As `pull`, with the records still as bytes for decoders of their own (wire.md §5), and past `filter_hooks`.

        Brokers filter tags by hash only, so a decoder that asks for tags has to compare them itself.
        """
        return self._run(
            self._async.pull_raw(
                queue,
                offset,
                max_messages,
                tags=tags,
                sql=sql,
                suspend_ms=suspend_ms,
                timeout_ms=timeout_ms,
                max_bytes=max_bytes,
                broker_id=broker_id,
            )
        )


class PullConsumer(QueueReader):
    """Reads queues at the caller's pace; a context manager.

    Three ways to use it. `pull` with queue and offset keeps no state. `subscribe`, then `poll` and `commit`, shares
    the queues of topics with the other members of the group, and keeps a position per queue. `assign` instead of
    `subscribe` reads the queues one chooses, whatever others do. Positions are always the next offset to read.

    Args:
        group: the consumer group; offsets are kept under it.
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default the consumer owns one.
        message_model: whether members that subscribe share the messages, or each gets all.
        consume_from_where: where `poll` begins on queues the group has no offset of.
        consume_timestamp_ms: the time for CONSUME_FROM_TIMESTAMP, milliseconds since the epoch.
        allocate_message_queue_strategy: how members share the queues; all have to use the same.
        pull_batch_size: most messages `poll` asks a broker for at once.
        pull_timeout_ms: limit of a pull that does not wait for messages.
        auto_commit: whether `poll` commits now and then what former polls returned.
        auto_commit_interval_ms: how often.
        topic_check_interval_ms: how often `watch_queues` looks.
        local_offset_dir: where offsets are kept when broadcasting; by default `~/.rocketmq_offsets`.
        instance_name: names this member in that folder when broadcasting; keep it the same over restarts.
        queues_changed: called with a topic, all its queues and those that are ours, after our share has changed.
        filter_hooks: called with what each pull brings, to take out what nobody shall get.
        consume_hooks: called before `poll` returns messages, before and after at once because nobody tells what becomes
            of them; see `tianzhou.client.hooks`.
        trace: note what `poll` returns in the trace topic, see `tianzhou.client.tracing.trace`.
        trace_topic: the trace topic; by default `RMQ_SYS_TRACE_TOPIC`.
        trace_msg_batch_num: so many calls are noted in one message; 20 at most.
        access_channel: `LOCAL`, or `CLOUD` for the trace form of the cloud service.
        client_options: further arguments of `ClientInstance`, when the consumer owns it.
    """

    _async: client.PullConsumer

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        instance: ClientInstance | None = None,
        message_model: MessageModel = MessageModel.CLUSTERING,
        consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        allocate_message_queue_strategy: AllocateStrategy | None = None,
        pull_batch_size: int = 32,
        pull_timeout_ms: int = 10_000,
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        topic_check_interval_ms: int = 30_000,
        local_offset_dir: Path | str | None = None,
        instance_name: str = "DEFAULT",
        queues_changed: SharesChanged | None = None,
        filter_hooks: Iterable[FilterHook] = (),
        consume_hooks: Iterable[ConsumeHook] = (),
        trace: bool = False,
        trace_topic: str | None = None,
        trace_msg_batch_num: int = 10,
        access_channel: str = "LOCAL",
        **client_options: Any,
    ) -> None:
        Blocking.__init__(
            self,
            client.PullConsumer(
                group,
                namesrv_addr,
                instance=instance,
                message_model=message_model,
                consume_from_where=consume_from_where,
                consume_timestamp_ms=consume_timestamp_ms,
                allocate_message_queue_strategy=allocate_message_queue_strategy,
                pull_batch_size=pull_batch_size,
                pull_timeout_ms=pull_timeout_ms,
                auto_commit=auto_commit,
                auto_commit_interval_ms=auto_commit_interval_ms,
                topic_check_interval_ms=topic_check_interval_ms,
                local_offset_dir=local_offset_dir,
                instance_name=instance_name,
                queues_changed=queues_changed,
                filter_hooks=filter_hooks,
                consume_hooks=consume_hooks,
                trace=trace,
                trace_topic=trace_topic,
                trace_msg_batch_num=trace_msg_batch_num,
                access_channel=access_channel,
                **client_options,
            ),
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._async.__aexit__(kind, error, trace))

    def start(self) -> None:
        """Get ready, and join the group when topics are subscribed.

        Raises:
            ClientError: it is stopped.
            BrokerError: a broker cannot serve an SQL subscription.
        """
        self._run(self._async.start())

    def stop(self) -> None:
        """Commit what polls have returned when `auto_commit` is on, leave the group, close what it owns."""
        self._run(self._async.stop())

    def watch_queues(self, topic: str, listener: QueuesListener) -> None:
        """Have `listener` called with the topic and its readable queues whenever these have changed.

        Args:
            topic: the topic.
            listener: is called in the background thread; it replaces a former one of this topic.
        """
        self._call(self._async.watch_queues, topic, listener)

    def subscribe(self, topic: str, tags: str | None = "*", *, sql: str | None = None) -> None:
        """Have `poll` read our share of a topic's queues; the topic need not exist yet.

        All members of a group have to subscribe to the same topics with the same expressions.

        Args:
            topic: the topic.
            tags: tag expression, `A || B`; `*` for all messages.
            sql: SQL92 expression instead of tags.

        Raises:
            ClientError: queues are assigned by hand, the consumer is stopped, or topic or expression are wrong.
        """
        self._call(self._async.subscribe, topic, tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """Give up a topic's queues; the brokers learn of it with the next heartbeat."""
        self._call(self._async.unsubscribe, topic)

    def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = "*", sql: str | None = None) -> None:
        """Choose the queues that `poll` reads; replaces what was chosen before.

        Positions of queues that stay are kept; the others begin at the group's offset, or where
        `consume_from_where` says.

        Args:
            queues: the queues.
            tags: tag expression for all of them.
            sql: SQL92 expression instead of tags.

        Raises:
            ClientError: the consumer is stopped, or the expression is wrong.
        """
        self._call(self._async.assign, queues, tags=tags, sql=sql)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues `poll` reads."""
        return self._call(lambda: self._async.assignment)

    def position(self, queue: MessageQueue) -> int:
        """The next offset `poll` will return of an assigned queue.

        Raises:
            ClientError: the queue is not assigned.
        """
        return self._run(self._async.position(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue an assigned queue at an offset; what was fetched of it already is dropped.

        Raises:
            ClientError: the queue is not assigned, or holds no such offset and will not next.
        """
        self._run(self._async.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue an assigned queue at its first offset."""
        self._run(self._async.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue an assigned queue behind its last message."""
        self._run(self._async.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Continue an assigned queue at the first message stored at or after a time, milliseconds since the epoch."""
        self._run(self._async.seek_to_time(queue, timestamp_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop fetching from queues; what was fetched already is still returned."""
        self._call(self._async.pause, queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch from paused queues again."""
        self._call(self._async.resume, queues)

    def poll(self, timeout_ms: float = 5_000) -> list[MessageExt]:
        """The next messages of our queues, those of one pull; empty when none come in time.

        Args:
            timeout_ms: how long to wait for some.

        Raises:
            ClientError: the consumer does not run, or has neither subscribed nor an assigned queue.
        """
        return self._run(self._async.poll(timeout_ms))

    def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Store the positions, which are behind everything that polls have returned.

        Args:
            queues: only of these; None for all.

        Raises:
            ClientError: some could not be stored, or the consumer is stopped.
        """
        self._run(self._async.commit(queues))

    def send_back(self, message: MessageExt, delay_level: int = 0) -> None:
        """Have a message delivered again later: it goes to the group's retry topic, or at last to its dead letters.

        Push consumers of the group read that topic; one that polls has to subscribe to `%RETRY%` and the group's name.

        Args:
            message: the message, as delivered.
            delay_level: when; 0 lets the broker decide by the number of attempts, -1 makes a dead letter of it.

        Raises:
            ClientError: no broker takes it, or the consumer is stopped.
        """
        self._run(self._async.send_back(message, delay_level))
