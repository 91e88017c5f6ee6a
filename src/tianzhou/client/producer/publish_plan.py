"""Send plans of a producer: for each topic its queues, their addresses and frame templates (client.md §5)."""

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
    """A queue, the address of its broker's master (empty while unknown), and the template of its frames."""

    queue: MessageQueue
    address: str
    template: SendTemplate


class PublishPlan:
    """The targets of one topic's messages, derived from its route.

    Args:
        route: the topic's route.
        version: version of the route table when the plan was created.
        targets: the writable queues, in round-robin order.
        start: index of the first one.
    """

    __slots__ = ("queues", "ring", "route", "targets", "turn", "version")

    def __init__(self, route: TopicRoute, version: int, targets: list[PublishTarget], start: int) -> None:
        self.route = route
        self.version = version
        self.targets = {target.queue: target for target in targets}
        self.queues = list(self.targets)
        self.turn = RoundRobin(start)
        self.ring = targets
        """The targets in round-robin order."""

    def next_target(self) -> PublishTarget:
        """Return the next queue in turn, for first attempts."""
        return self.ring[self.turn.next_index(len(self.ring))]


class PublishPlans:
    """The plans of one producer, created at the first use and again after changes of routes.

    Topics have the servers' names, also inside a namespace. The queues of a plan have the users' names.

    Args:
        instance: knows the routes, and the namespace.
        group: the producer group, by the servers' name.
        options: they have the values for creating a topic.
        check_usable: raises while the producer cannot send.
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
        """Plans by topic. A plan is valid while it has the route table's present version."""

    def wire_topic(self, topic: str) -> str:
        """Return a topic by the servers' name."""
        return wrap(self._instance.namespace, topic)

    async def make(self, topic: str) -> PublishPlan:
        """Return the valid plan of a topic, by the servers' name.

        Raises:
            ClientError: the producer cannot send.
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
            routes.forget(topic)  # so that the next send requests the route again
            raise NoWritableQueue(
                f"topic {topic} has no queue that can be written now; check its permission and that its brokers have "
                "a master"
            )
        start = self._instance.rng.randrange(len(queues))
        targets = [self.target(queue, topic) for queue in queues]
        plan = self.table[topic] = PublishPlan(route, routes.version, targets, start)
        return plan

    def target(self, queue: MessageQueue, topic: str) -> PublishTarget:
        """Return the target of messages to a queue.

        Args:
            queue: the queue.
            topic: its topic, by the servers' name.
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
