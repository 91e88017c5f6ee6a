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
"""Maximum number of dead letters that one call returns."""


@dataclass(frozen=True, slots=True)
class Resent:
    """Progress of sending dead letters again.

    Attributes:
        sent: number of sent messages.
        failed: number of failed messages.
        error: the error of the first failed message; empty without a failure.
    """

    sent: int = 0
    failed: int = 0
    error: str = ""


class DeadLetters:
    """Operations on dead letters of consumer groups.

    Args:
        reach: finds the servers and sends the requests.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._messages = Messages(reach)

    async def count(self, group: str, failures: dict[str, str] | None = None) -> int:
        """Return the number of dead letters of a group that brokers still store; 0 when there were never any.

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
        """Return dead letters of a group, the newest first; empty when there were never any.

        Args:
            group: the group.
            begin_ms: earliest store time, in ms since the epoch, inclusive.
            end_ms: latest store time, in ms since the epoch, inclusive.
            limit: maximum number of messages, at most 10,000.
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

        The dead letters are not removed, so sending them twice creates two messages each. A failed letter does not stop
        the others. Cancelling the call keeps the messages that are already sent.

        Args:
            letters: dead letters, as `list` returns them.
            to: the topic to send to, for all its groups; None sends only to the letters' own group, as first deliveries
                with all retries.
            progress: called after each letter.
        """
        from tianzhou.client import Producer  # imported here because only sending needs the client

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
