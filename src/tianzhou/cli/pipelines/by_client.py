"""Pipelines of little work, done by the client in this process: their options, and the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tianzhou.cli.signals import run_client

if TYPE_CHECKING:
    from tianzhou.cli.pipelines.clusters import Cluster
    from tianzhou.client import Producer
    from tianzhou.client.consumer.pull.pull_consumer import PullConsumer

T = TypeVar("T")
Condition = Callable[[Mapping[str, Any]], bool]

SparkOption = Annotated[
    bool,
    typer.Option(
        "--spark", help="Take Spark in any case. Else little work is done without it, in seconds instead of a minute."
    ),
]


class Client:
    """A consumer, and a producer once something is sent.

    Args:
        cluster: where they work.
        stack: closes them.
    """

    def __init__(self, cluster: Cluster, stack: AsyncExitStack) -> None:
        self._cluster, self._stack = cluster, stack

    async def consumer(self) -> PullConsumer:
        """A consumer that commits nothing."""
        from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
        from tianzhou.pipelines.few_messages import GROUP

        consumer = PullConsumer(GROUP, self._cluster.namesrv, auto_commit=False, **self._cluster.client_options)
        return await self._stack.enter_async_context(consumer)

    async def producer(self) -> Producer:
        """A producer."""
        from tianzhou.client import Producer
        from tianzhou.pipelines.few_messages import GROUP

        producer = Producer(GROUP, self._cluster.namesrv, **self._cluster.client_options)
        return await self._stack.enter_async_context(producer)


def with_client(cluster: Cluster, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run something with the client; returns what it returns.

    Args:
        cluster: where it works.
        work: gets the client.
    """

    async def main() -> T:
        async with AsyncExitStack() as stack:
            return await work(Client(cluster, stack))

    return run_client(main())


def condition(where: str | None, columns: Mapping[str, type]) -> Condition | None:
    """Whether a message is wanted; None when only Spark can say.

    Args:
        where: a condition of SQL, None for all messages.
        columns: what it may name.
    """
    from tianzhou.pipelines.conditions import condition_of

    return (lambda _: True) if where is None else condition_of(where, columns)
