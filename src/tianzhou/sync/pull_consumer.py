"""The blocking pull consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tianzhou import client
from tianzhou.client.instance import ClientInstance
from tianzhou.client.pulling import RawPull
from tianzhou.model import MessageExt, MessageQueue, PullResult
from tianzhou.sync.background import Blocking


class PullConsumer(Blocking):
    """Reads queues at the caller's pace; a context manager.

    Args:
        group: the consumer group.
        namesrv_addr: name servers, `host:port` joined by `;`.
        options: as of `tianzhou.client.PullConsumer`.
    """

    def __init__(self, group: str, namesrv_addr: str | Sequence[str] | None = None, **options: Any) -> None:
        super().__init__()
        self._consumer = client.PullConsumer(group, namesrv_addr, **options)

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._consumer.group

    @property
    def instance(self) -> ClientInstance:
        """The client instance it works with; it belongs to the background loop."""
        return self._consumer.instance

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

    def queues(self, topic: str) -> list[MessageQueue]:
        """See `tianzhou.client.PullConsumer.queues`."""
        return self._run(self._consumer.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """See `tianzhou.client.PullConsumer.min_offset`."""
        return self._run(self._consumer.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """See `tianzhou.client.PullConsumer.max_offset`."""
        return self._run(self._consumer.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """See `tianzhou.client.PullConsumer.offset_by_time`."""
        return self._run(self._consumer.offset_by_time(queue, timestamp_ms, upper=upper))

    def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """See `tianzhou.client.PullConsumer.earliest_store_time`."""
        return self._run(self._consumer.earliest_store_time(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """See `tianzhou.client.PullConsumer.committed`."""
        return self._run(self._consumer.committed(queue))

    def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """See `tianzhou.client.PullConsumer.commit_offsets`."""
        self._run(self._consumer.commit_offsets(offsets))

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
        """See `tianzhou.client.PullConsumer.pull`."""
        return self._run(
            self._consumer.pull(
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
        """See `tianzhou.client.PullConsumer.pull_raw`."""
        return self._run(
            self._consumer.pull_raw(
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

    def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = "*", sql: str | None = None) -> None:
        """See `tianzhou.client.PullConsumer.assign`."""
        self._call(self._consumer.assign, queues, tags=tags, sql=sql)

    def position(self, queue: MessageQueue) -> int:
        """See `tianzhou.client.PullConsumer.position`."""
        return self._run(self._consumer.position(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """See `tianzhou.client.PullConsumer.seek`."""
        self._call(self._consumer.seek, queue, offset)

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """See `tianzhou.client.PullConsumer.seek_to_begin`."""
        self._run(self._consumer.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """See `tianzhou.client.PullConsumer.seek_to_end`."""
        self._run(self._consumer.seek_to_end(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """See `tianzhou.client.PullConsumer.pause`."""
        self._call(self._consumer.pause, queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """See `tianzhou.client.PullConsumer.resume`."""
        self._call(self._consumer.resume, queues)

    def poll(self, timeout_ms: float = 5_000) -> list[MessageExt]:
        """See `tianzhou.client.PullConsumer.poll`."""
        return self._run(self._consumer.poll(timeout_ms))

    def commit(self) -> None:
        """See `tianzhou.client.PullConsumer.commit`."""
        self._run(self._consumer.commit())
