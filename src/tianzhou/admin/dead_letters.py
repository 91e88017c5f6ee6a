"""Dead letters of consumer groups: count, list, send again (broker.md §8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tianzhou.admin.messages import FOREVER_MS, Messages
from tianzhou.admin.reach import Reach, masters_among
from tianzhou.client.cluster.routes import subscribe_queues
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageExt, SendStatus
from tianzhou.model.dead_letters import resent
from tianzhou.model.names import dead_letter_topic

PRODUCER_GROUP = "tianzhou-dead-letters"
MOST_AT_ONCE = 10_000
"""Dead letters that one call lists."""


@dataclass(frozen=True, slots=True)
class Resent:
    """How far sending again has come.

    Attributes:
        sent: how many are sent.
        failed: how many are not.
        error: why the first of these failed; empty without any.
    """

    sent: int = 0
    failed: int = 0
    error: str = ""


class DeadLetters:
    """What groups have given up on.

    Args:
        reach: finds and asks the servers.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._messages = Messages(reach)

    async def count(self, group: str, failures: dict[str, str] | None = None) -> int:
        """Return the number of dead letters of a group that brokers still hold; 0 when it never had any.

        Args:
            group: the group.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.
        """
        topic = dead_letter_topic(group)
        route = await self._reach.route(topic)
        if route is None:
            return 0
        queues = subscribe_queues(topic, route)

        async def of(name: str, _: str) -> int:
            bounds = [await self._messages.bounds(queue) for queue in queues if queue.broker_name == name]
            return sum(high - low for low, high in bounds)

        return sum((await self._reach.each_broker(masters_among(route.broker_datas), of, failures)).values())

    async def list(
        self,
        group: str,
        *,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
        limit: int = 200,
        failures: dict[str, str] | None = None,
    ) -> list[MessageExt]:
        """Return dead letters of a group, the newest first; none when it never had any.

        Args:
            group: the group.
            begin_ms: stored at or after this time, milliseconds since the epoch.
            end_ms: stored at or before this time.
            limit: most messages, 10,000 at most.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.
        """
        topic = dead_letter_topic(group)
        if await self._reach.route(topic) is None:
            return []
        most = min(limit, MOST_AT_ONCE)
        return await self._messages.by_time(topic, begin_ms, end_ms, limit=most, failures=failures)

    async def resend(
        self,
        letters: Iterable[MessageExt],
        *,
        to: str | None = None,
        progress: Callable[[Resent], None] | None = None,
    ) -> Resent:
        """Send dead letters again as new messages (`tianzhou.model.dead_letters.resent`).

        The dead letters stay where they are: sending them twice is two messages each. A letter that fails does not
        hold the others up. Cancel the call to stop; messages that are sent stay sent.

        Args:
            letters: dead letters, as `list` returns them.
            to: the topic they go to, all of whose groups get them; None for the group that they are of alone, as first
                deliveries with all its retries.
            progress: is called after each letter.
        """
        from tianzhou.client import Producer  # only who sends needs what sends

        sent = failed = 0
        first_error = ""
        async with Producer(PRODUCER_GROUP, instance=self._reach.instance) as producer:
            for letter in letters:
                try:
                    result = await producer.send(resent(letter, to))
                except TianzhouError as error:
                    failed += 1
                    first_error = first_error or str(error)
                else:
                    confirmed = result.status is SendStatus.SEND_OK
                    sent += confirmed
                    failed += not confirmed
                    first_error = first_error or ("" if confirmed else result.status.name)
                if progress is not None:
                    progress(Resent(sent, failed, first_error))
        return Resent(sent, failed, first_error)
