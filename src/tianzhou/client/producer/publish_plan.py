"""What a producer keeps at hand to send: per topic its queues, their addresses and frame templates (client.md §5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tianzhou.client.cluster.routes import publish_queues
from tianzhou.client.hooks import MessageKind
from tianzhou.client.instance import ClientInstance
from tianzhou.client.namespaces.namespaces import unwrap, wrap
from tianzhou.client.producer.frames import FrameTemplate
from tianzhou.client.producer.selector import RoundRobin
from tianzhou.client.validation import check_sendable
from tianzhou.errors import TianzhouError, TopicUnavailable
from tianzhou.model import Message, MessageQueue, TopicRoute
from tianzhou.wire.codes import RequestCode

SINGLE = int(RequestCode.SEND_MESSAGE_V2)
BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
REPLY = int(RequestCode.SEND_REPLY_MESSAGE_V2)


class Target(NamedTuple):
    """A queue, the address of its broker's master (empty while unknown), and how to frame messages for it."""

    queue: MessageQueue
    address: str
    template: FrameTemplate


class Plan:
    """What sending to one topic needs, derived from its route once.

    Args:
        route: the topic's route.
        version: the route table's version when the plan was made.
        targets: the writable queues, in the order they take turns.
        start: the first one's index.
    """

    __slots__ = ("_count", "_ring", "queues", "route", "targets", "turn", "version")

    def __init__(self, route: TopicRoute, version: int, targets: list[Target], start: int) -> None:
        self.route = route
        self.version = version
        self.targets = {target.queue: target for target in targets}
        self.queues = list(self.targets)
        self.turn = RoundRobin(start)
        self._ring = targets
        self._count = len(targets)

    def next_target(self) -> Target:
        """The next queue in turn, for first attempts."""
        turn = self.turn
        turn.index = index = turn.index + 1
        return self._ring[index % self._count]


class Failed(NamedTuple):
    """An attempt that did not end well."""

    error: TianzhouError
    queue: MessageQueue
    started_s: float


class Outgoing(NamedTuple):
    """A message ready to be framed for whatever queue it goes to.

    `messages` is what it was made of, `stamped` what stamp hooks have added to each of them.
    """

    topic: str
    code: int
    unique_keys: str
    born_ms: int
    flag: int
    sys_flag: int
    properties: str
    body: bytes
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    messages: Sequence[Message] = ()
    kind: MessageKind = MessageKind.NORMAL
    stamped: Sequence[dict[str, str]] = ()


class Plans:
    """The plans of one producer, made when first needed and again when routes have changed.

    Topics are named as the servers know them, inside a namespace too; the queues of a plan as users know them.

    Args:
        instance: knows the routes, and the namespace.
        group: the producer group, as the servers know it.
        default_topic: the topic whose route and permission an unknown topic borrows.
        default_queue_nums: how many queues it takes of that.
    """

    def __init__(self, instance: ClientInstance, group: str, default_topic: str, default_queue_nums: int) -> None:
        self._instance = instance
        self._group = group
        self._default_topic = default_topic
        self._default_queue_nums = default_queue_nums
        self.table: dict[str, Plan] = {}
        """Plans by topic; valid are those of the route table's present version."""

    def wire_topic(self, topic: str) -> str:
        """A topic as the servers know it."""
        return wrap(self._instance.namespace, topic)

    async def make(self, topic: str) -> Plan:
        """The valid plan of a topic, named as the servers know it.

        Raises:
            TopicUnavailable: it has no queue that can be written, or does not exist and cannot be made by sending.
        """
        plan = self.table.get(topic)
        routes = self._instance.routes
        if plan is not None and plan.version == routes.version:
            return plan
        check_sendable(topic)
        route = await self._instance.route(
            topic, default_topic=self._default_topic, queue_nums=self._default_queue_nums
        )
        if route is None:
            raise TopicUnavailable(
                f"topic {topic} does not exist, and no broker creates topics on sending; create it, or set "
                "autoCreateTopicEnable=true at the broker, or start one if none runs"
            )
        if plan is not None and plan.route is route:
            plan.version = routes.version
            return plan
        users_topic = unwrap(self._instance.namespace, topic)
        queues = publish_queues(users_topic, route)
        if not queues:
            routes.forget(topic)  # so that the next send asks again
            raise TopicUnavailable(
                f"topic {topic} has no queue that can be written now; check its permission and that its brokers have "
                "a master"
            )
        start = self._instance.rng.randrange(len(queues))
        targets = [self.target(queue, topic) for queue in queues]
        plan = self.table[topic] = Plan(route, routes.version, targets, start)
        return plan

    def target(self, queue: MessageQueue, topic: str) -> Target:
        """How to reach a queue.

        Args:
            queue: the queue.
            topic: its topic as the servers know it.
        """
        master = self._instance.routes.master(queue.broker_name)
        return Target(
            queue,
            self._instance.send_address(master) if master else "",
            FrameTemplate(
                self._group,
                queue,
                self._default_topic,
                self._default_queue_nums,
                topic=topic,
                unit_mode=self._instance.unit_mode,
            ),
        )
