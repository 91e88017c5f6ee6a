"""Selections of pulls: filters of records by the pull's own subscription or its group's."""

from __future__ import annotations

from typing import Any, Final

from tianzhou.broker.messages.message_filter import (
    Selection,
    by_entry,
    by_expression,
    by_original_topic,
    check_served,
    compile_property_filter,
    expression_problem,
)  # fmt: skip
from tianzhou.broker.messages.pull_codes import PullForbidden
from tianzhou.broker.messages.pull_request import PullRequest, reading_of
from tianzhou.broker.services import Services
from tianzhou.broker.tables.clients import Subscription
from tianzhou.broker.tables.consumer_filters import TAG_TYPES
from tianzhou.errors import BrokerError, FilterSyntaxError
from tianzhou.filter import COMPILED, parse_tags
from tianzhou.limits import FILTER_LENGTH
from tianzhou.model import MessageModel, names
from tianzhou.remoting.turns import Turns
from tianzhou.wire.codes import SUBSCRIPTION, ResponseCode

CHARACTER_S: Final = 5e-7
"""Approximate seconds of parsing a character of an expression."""
LONG: Final = 2048
"""Characters above which parsing a tag expression counts as work that needs a turn."""

FORBIDDEN_BROADCAST: Final = 4
FORBIDDEN_SUBSCRIPTION: Final = 5


class PullSelections:
    """Source of pulls' selections, which bounds the time of expressions in one turn of the loop.

    Args:
        services: the broker's services.

    Attributes:
        turns: allowance of time for pulls that select by expressions.
        in_turn: whether the present pull has waited for its turn.
    """

    def __init__(self, services: Services) -> None:
        self._tables = services.tables
        self._clock = services.clock
        self.turns = Turns()
        self.in_turn = False

    def find(self, header: Any) -> Selection:
        """Return the selection of a pull. Args: header: of the pull.

        Raises:
            BrokerError: the group has no such subscription, or the expression cannot be used.
            NotYet: the pull has to wait for its turn.
        """
        if header.sys_flag & SUBSCRIPTION:
            return self._own(header)
        tables = self._tables
        name = header.consumer_group
        online = tables.clients.consumers.get(name)
        if online is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist, group: {name}"
            )
        group = tables.groups.get(name)
        if (
            online.message_model is MessageModel.BROADCASTING
            and group is not None
            and not group.consume_broadcast_enable
        ):
            raise PullForbidden(FORBIDDEN_BROADCAST, f"the consumer group[{name}] can not consume by broadcast way")
        if tables.groups.forbidden and not tables.groups.may_read(name, header.topic):
            raise PullForbidden(
                FORBIDDEN_SUBSCRIPTION, f"the consumer group[{name}] is forbidden for topic[{header.topic}]"
            )
        subscription = online.subscriptions.get(header.topic)
        if subscription is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist, group: {name}, topic: {header.topic}",
            )
        if subscription.data.sub_version < header.sub_version:
            raise BrokerError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if subscription.data.expression_type in TAG_TYPES or subscription.data.class_filter_mode:
            return Selection(subscription.codes, subscription=subscription)
        return self._registered(header, subscription)

    def is_current(self, request: PullRequest) -> bool:
        """Whether a selection is based on the group's present subscription or on the pull's own."""
        header, subscription = request.header, request.selection.subscription
        if subscription is None:
            return True
        online = self._tables.clients.consumers.get(header.consumer_group)
        return online is not None and online.subscriptions.get(header.topic) is subscription

    def select_again(self, request: PullRequest) -> None:
        """Apply the group's present subscription to a pull, from its requested offset.

        The present subscription may select records that the former one skipped.

        Raises:
            BrokerError: as `find`.
        """
        request.selection = self.find(request.header)
        request.reading = reading_of(request.header, request.selection)

    def _own(self, header: Any) -> Selection:
        """Return the selection of a pull with a subscription of its own."""
        kind, expression = header.expression_type, header.subscription
        if expression is not None and len(expression) > LONG:
            tables = self._tables
            most = tables.settings.max_filter_expression_length
            tables.refusals.check(FILTER_LENGTH, len(expression), most)
            if kind in TAG_TYPES:
                self._begin(expression)
        note, now_ms = self._tables.clients.note_pull, self._clock.now_ms()
        if kind in TAG_TYPES:
            try:
                codes = parse_tags(expression).codes
            except FilterSyntaxError as error:
                raise BrokerError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
            note(header.consumer_group, header.topic, expression or "*", "TAG", now_ms)
            return Selection(codes)
        settings = self._tables.settings
        self._begin(expression or "")
        compiled = compile_property_filter(settings, self._tables.refusals, kind, expression)
        note(header.consumer_group, header.topic, expression, kind, now_ms)
        if settings.filter_support_retry and header.topic.startswith(names.RETRY_PREFIX):
            return by_original_topic(self._tables.filters, header.topic)
        return by_expression(compiled)

    def _registered(self, header: Any, subscription: Subscription) -> Selection:
        """Return a group's selection by the expression from its heartbeats."""
        group, topic = header.consumer_group, header.topic
        settings, filters = self._tables.settings, self._tables.filters
        data, entry = subscription.data, filters.find(topic, group)
        if entry is None:
            raise BrokerError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"the broker has no filter of group {group} for topic {topic}: its expression may be wrong"
                f"{expression_problem(data)}",
            )
        if entry.version < header.sub_version:
            raise BrokerError(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        check_served(settings, data.expression_type)
        self._begin()
        if settings.filter_support_retry and topic.startswith(names.RETRY_PREFIX):
            return by_original_topic(filters, topic)._replace(subscription=subscription)
        return by_entry(entry, filters)._replace(subscription=subscription)

    def _begin(self, expression: str = "") -> None:
        """Spend the time of parsing an expression; raise NotYet when the pull has to wait for its turn."""
        unread = len(expression) > LONG and expression not in COMPILED
        if not self.in_turn and (unread or not self.turns.free()):
            raise NotYet
        self.turns.spend(len(expression) * CHARACTER_S)


class NotYet(Exception):
    """A pull has to wait for its turn."""
