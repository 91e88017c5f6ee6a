"""The blocking pull consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tianzhou import client
from tianzhou.client.consumer.pull.queue_watch import QueuesListener
from tianzhou.client.consumer.pulling import RawPull
from tianzhou.client.instance import ClientInstance
from tianzhou.model import MessageExt, MessageQueue, PullResult
from tianzhou.sync.background import Blocking


class QueueReader(Blocking):
    """The part of a `PullConsumer` that keeps no position.

    Args:
        reader: the async one.
    """

    def __init__(self, reader: client.QueueReader) -> None:
        super().__init__()
        self._reader = reader

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._reader.group

    @property
    def instance(self) -> ClientInstance:
        """The client instance it works with; it belongs to the background loop."""
        return self._reader.instance

    def queues(self, topic: str) -> list[MessageQueue]:
        """See `tianzhou.client.QueueReader.queues`."""
        return self._run(self._reader.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """See `tianzhou.client.QueueReader.min_offset`."""
        return self._run(self._reader.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """See `tianzhou.client.QueueReader.max_offset`."""
        return self._run(self._reader.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """See `tianzhou.client.QueueReader.offset_by_time`."""
        return self._run(self._reader.offset_by_time(queue, timestamp_ms, upper=upper))

    def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """See `tianzhou.client.QueueReader.earliest_store_time`."""
        return self._run(self._reader.earliest_store_time(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """See `tianzhou.client.QueueReader.committed`."""
        return self._run(self._reader.committed(queue))

    def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """See `tianzhou.client.QueueReader.commit_offsets`."""
        self._run(self._reader.commit_offsets(offsets))

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
        """See `tianzhou.client.QueueReader.pull`."""
        return self._run(
            self._reader.pull(
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
        """See `tianzhou.client.QueueReader.pull_raw`."""
        return self._run(
            self._reader.pull_raw(
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

    Args:
        group: the consumer group.
        namesrv_addr: name servers, `host:port` joined by `;`.
        options: as of `tianzhou.client.PullConsumer`.
    """

    def __init__(self, group: str, namesrv_addr: str | Sequence[str] | None = None, **options: Any) -> None:
        self._consumer = client.PullConsumer(group, namesrv_addr, **options)
        super().__init__(self._consumer)

    @property
    def assignment(self) -> list[MessageQueue]:
        """See `tianzhou.client.PullConsumer.assignment`."""
        return self._call(lambda: self._consumer.assignment)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """See `tianzhou.client.PullConsumer.start`."""
        self._run(self._consumer.start())

    def stop(self) -> None:
        """See `tianzhou.client.PullConsumer.stop`."""
        self._run(self._consumer.stop())

    def watch_queues(self, topic: str, listener: QueuesListener) -> None:
        """See `tianzhou.client.PullConsumer.watch_queues`; the listener is called in the background thread."""
        self._call(self._consumer.watch_queues, topic, listener)

    def subscribe(self, topic: str, tags: str | None = "*", *, sql: str | None = None) -> None:
        """See `tianzhou.client.PullConsumer.subscribe`."""
        self._call(self._consumer.subscribe, topic, tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """See `tianzhou.client.PullConsumer.unsubscribe`."""
        self._call(self._consumer.unsubscribe, topic)

    def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = "*", sql: str | None = None) -> None:
        """See `tianzhou.client.PullConsumer.assign`."""
        self._call(self._consumer.assign, queues, tags=tags, sql=sql)

    def position(self, queue: MessageQueue) -> int:
        """See `tianzhou.client.PullConsumer.position`."""
        return self._run(self._consumer.position(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """See `tianzhou.client.PullConsumer.seek`."""
        self._run(self._consumer.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """See `tianzhou.client.PullConsumer.seek_to_begin`."""
        self._run(self._consumer.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """See `tianzhou.client.PullConsumer.seek_to_end`."""
        self._run(self._consumer.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """See `tianzhou.client.PullConsumer.seek_to_time`."""
        self._run(self._consumer.seek_to_time(queue, timestamp_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """See `tianzhou.client.PullConsumer.pause`."""
        self._call(self._consumer.pause, queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """See `tianzhou.client.PullConsumer.resume`."""
        self._call(self._consumer.resume, queues)

    def poll(self, timeout_ms: float = 5_000) -> list[MessageExt]:
        """See `tianzhou.client.PullConsumer.poll`."""
        return self._run(self._consumer.poll(timeout_ms))

    def send_back(self, message: MessageExt, delay_level: int = 0) -> None:
        """See `tianzhou.client.PullConsumer.send_back`."""
        self._run(self._consumer.send_back(message, delay_level))

    def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """See `tianzhou.client.PullConsumer.commit`."""
        self._run(self._consumer.commit(queues))
