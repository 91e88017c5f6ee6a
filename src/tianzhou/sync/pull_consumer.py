# Written by scripts/facade; change what it is written from, then run it again.
"""The blocking pull consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from tianzhou import client
from tianzhou.client.consumer.pull.queue_pull import QueuePull
from tianzhou.client.consumer.pull.queue_watch import QueuesListener
from tianzhou.client.consumer.pulling import RawPull
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import PullKeywords
from tianzhou.model import MessageExt, MessageQueue, PullResult
from tianzhou.sync.background import Blocking


class QueueReader(Blocking):
    """The part of a `PullConsumer` that has no positions.

    Args:
        asynchronous: the async one.
    """

    _async: client.QueueReader

    def __init__(self, asynchronous: client.QueueReader) -> None:
        super().__init__(asynchronous)

    @property
    def group(self) -> str:
        """The producer or consumer group."""
        return self._async.group

    @property
    def instance(self) -> ClientInstance:
        """The client instance that it uses. It belongs to the background loop."""
        return self._async.instance

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the topic's readable queues, sorted, from a name server's present route.

        Raises:
            ClientError: the topic does not exist.
        """
        return self._run(self._async.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the first offset that the queue still has."""
        return self._run(self._async.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will get."""
        return self._run(self._async.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """Return the first offset stored at or after a time; with `upper` the last one at or before it.

        Args:
            queue: the queue.
            timestamp_ms: milliseconds since the epoch.
            upper: see above; brokers before 5.0 ignore it.
        """
        return self._run(self._async.offset_by_time(queue, timestamp_ms, upper=upper))

    def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """Return the store time of the queue's first message, ms since the epoch; None for an empty queue."""
        return self._run(self._async.earliest_store_time(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset of a queue; None without one."""
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
            offset: offset to begin at.
            max_messages: maximum number of messages; brokers return at most 32 at once from memory, 8 from disk.
            tags: tag expression, `A || B`.
            sql: SQL92 expression instead of tags.
            suspend_ms: ms that the broker may hold the request while there is no new message.
            timeout_ms: timeout of the request; by default `suspend_ms` plus the consumer's `pull_timeout_ms`.
            max_bytes: maximum bytes of records, for brokers that support it.
            broker_id: id of the replica to ask; 0 is the master.

        Raises:
            BrokerError: the broker rejects the pull.
            RemotingError: the broker does not answer.
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

    def pull_raw(self, request: QueuePull) -> RawPull:
        """As `pull`, but return the records as bytes, and do not call `filter_hooks` (wire.md §5).

        Brokers filter tags by hash only, so the caller that decodes the records has to compare the tags.

        Args:
            request: the pull.
        """
        return self._run(self._async.pull_raw(request))


class PullConsumer(QueueReader):
    """A consumer whose caller pulls or polls messages; a context manager.

    There are three ways to use it. `pull` with queue and offset stores no state. `subscribe`, then `poll` and `commit`,
    shares the queues of topics with the other members of the group, and stores a position per queue. `assign` instead
    of `subscribe` reads the queues that the caller selects, independent of other members. A position is always the next
    offset to read.

    Args:
        group: the consumer group; offsets are stored under it.
        namesrv_addr: name servers, see `ClientInstance`.
        instance: an instance to share; by default the consumer owns one.
        keywords: see `tianzhou.client.consumer.pull.options.PullOptions` and, when the consumer owns its instance,
            `tianzhou.client.options.ClientOptions`.

    Raises:
        ConfigError: an option is unknown, or its value is not allowed.
    """

    _async: client.PullConsumer

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        instance: ClientInstance | None = None,
        **keywords: Unpack[PullKeywords],
    ) -> None:
        Blocking.__init__(self, client.PullConsumer(group, namesrv_addr, instance=instance, **keywords))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._async.__aexit__(kind, error, trace))

    def start(self) -> None:
        """Start the consumer, and join the group when topics are subscribed.

        Raises:
            ClientError: the consumer is stopped.
            BrokerError: a broker cannot serve an SQL subscription.
        """
        self._run(self._async.start())

    def stop(self) -> None:
        """Commit the positions when `auto_commit` is on, leave the group, and close the owned instance."""
        self._run(self._async.stop())

    def watch_queues(self, topic: str, listener: QueuesListener) -> None:
        """Call `listener` with the topic and its readable queues whenever these have changed.

        Args:
            topic: the topic.
            listener: called in the background thread; it replaces a former listener of this topic.
        """
        self._call(self._async.watch_queues, topic, listener)

    def subscribe(self, topic: str, tags: str | None = "*", *, sql: str | None = None) -> None:
        """Let `poll` read this member's share of a topic's queues; the topic need not exist yet.

        All members of a group have to subscribe to the same topics with the same expressions.

        Args:
            topic: the topic.
            tags: tag expression, `A || B`; `*` for all messages.
            sql: SQL92 expression instead of tags.

        Raises:
            ClientError: queues are assigned with `assign`, the consumer is stopped, or topic or expression are wrong.
        """
        self._call(self._async.subscribe, topic, tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic and stop reading its queues; the brokers learn of it with the next heartbeat."""
        self._call(self._async.unsubscribe, topic)

    def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = "*", sql: str | None = None) -> None:
        """Select the queues that `poll` reads; this replaces a former selection.

        Queues of the former selection continue at their positions. The others begin at the group's offset, or at
        `consume_from_where` without one.

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
        """The queues that `poll` reads."""
        return self._call(lambda: self._async.assignment)

    def position(self, queue: MessageQueue) -> int:
        """Return the next offset that `poll` will return for an assigned queue.

        Raises:
            ClientError: the queue is not assigned.
        """
        return self._run(self._async.position(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue an assigned queue at another offset, and drop its prefetched messages.

        Raises:
            ClientError: the queue is not assigned, or the offset is not between its first offset and its end.
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
        """Stop fetching from queues; prefetched messages are still returned."""
        self._call(self._async.pause, queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch from paused queues again."""
        self._call(self._async.resume, queues)

    def poll(self, timeout_ms: float = 5_000) -> list[MessageExt]:
        """Return the messages of one pull from the consumer's queues; an empty list when none arrive in time.

        Args:
            timeout_ms: maximum ms to wait for messages.

        Raises:
            ClientError: the consumer is not running, or has no subscription and no assigned queue.
        """
        return self._run(self._async.poll(timeout_ms))

    def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Store the positions, which are behind all messages that polls have returned.

        Args:
            queues: only these queues; None for all.

        Raises:
            ClientError: some could not be stored, or the consumer is stopped.
        """
        self._run(self._async.commit(queues))

    def send_back(self, message: MessageExt, delay_level: int = 0) -> None:
        """Request a later delivery of a message: it goes to the group's retry topic, and finally to its dead letters.

        Push consumers of the group read that topic. A consumer that polls has to subscribe to `%RETRY%` and the group's
        name.

        Args:
            message: the message, as delivered.
            delay_level: the delay level; 0 lets the broker choose by the number of attempts, -1 makes it a dead letter.

        Raises:
            ClientError: no broker accepts it, or the consumer is stopped.
        """
        self._run(self._async.send_back(message, delay_level))
