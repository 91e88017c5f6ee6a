"""Plans of a producer for its sends: per topic the queues, their addresses and frame templates (client.md §5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tianzhou.client.cluster.routes import publish_queues
from tianzhou.client.instance import ClientInstance
from tianzhou.client.namespaces.namespaces import unwrap, wrap
from tianzhou.client.producer.options import ProducerOptions
from tianzhou.client.producer.selector import RoundRobin
from tianzhou.client.validation import check_sendable
from tianzhou.errors import NoWritableQueue, TopicUnavailable
from tianzhou.model import MessageQueue, TopicRoute
from tianzhou.wire.templates import SendTemplate


class PublishTarget(NamedTuple):
    """A queue, the address of its broker's master (empty while unknown), and how to frame messages for it."""

    queue: MessageQueue
    address: str
    template: SendTemplate


class PublishPlan:
    """The targets of one topic's messages, derived from its route once.

    Args:
        route: the topic's route.
        version: the route table's version when the plan was made.
        targets: the writable queues, in the order they take turns.
        start: the first one's index.
    """

    __slots__ = ("queues", "ring", "route", "targets", "turn", "version")

    def __init__(self, route: TopicRoute, version: int, targets: list[PublishTarget], start: int) -> None:
        self.route = route
        self.version = version
        self.targets = {target.queue: target for target in targets}
        self.queues = list(self.targets)
        self.turn = RoundRobin(start)
        self.ring = targets
        """The targets in the order they take turns."""

    def next_target(self) -> PublishTarget:
        """The next queue in turn, for first attempts."""
        return self.ring[self.turn.next_index(len(self.ring))]


class PublishPlans:
    """The plans of one producer, made when first needed and again when routes have changed.

    Topics are named as the servers know them, inside a namespace too; the queues of a plan as users know them.

    Args:
        instance: knows the routes, and the namespace.
        group: the producer group, as the servers know it.
        options: what a topic is made like that does not exist.
        check_usable: raises while its owner cannot send.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: ProducerOptions,
        check_usable: Callable[[], None] = lambda: None,
    ) -> None:
        self._instance = instance
        self._group = group
        self._default_topic = options.create_topic_key
        self._default_queue_nums = options.default_topic_queue_nums
        self._check_usable = check_usable
        self.table: dict[str, PublishPlan] = {}
        """Plans by topic; valid are those of the route table's present version."""

    def wire_topic(self, topic: str) -> str:
        """A topic as the servers know it."""
        return wrap(self._instance.namespace, topic)

    async def make(self, topic: str) -> PublishPlan:
        """The valid plan of a topic, named as the servers know it.

        Raises:
            ClientError: the owner cannot send.
            NoWritableQueue: the topic has no queue that can be written now.
            TopicUnavailable: the topic does not exist, and no broker creates it.
        """
        self._check_usable()
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
            raise NoWritableQueue(
                f"topic {topic} has no queue that can be written now; check its permission and that its brokers have "
                "a master"
            )
        start = self._instance.rng.randrange(len(queues))
        targets = [self.target(queue, topic) for queue in queues]
        plan = self.table[topic] = PublishPlan(route, routes.version, targets, start)
        return plan

    def target(self, queue: MessageQueue, topic: str) -> PublishTarget:
        """The target of messages to a queue.

        Args:
            queue: the queue.
            topic: its topic as the servers know it.
        """
        master = self._instance.routes.master(queue.broker_name)
        return PublishTarget(
            queue,
            self._instance.send_address(master) if master else "",
            SendTemplate(
                self._group,
                queue,
                self._default_topic,
                self._default_queue_nums,
                topic=topic,
                unit_mode=self._instance.unit_mode,
            ),
        )
