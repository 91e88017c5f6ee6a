"""Selections of pulls: which records of a queue a pull gets, by its own subscription or by the one of its group."""

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
"""Seconds that reading a character of an expression takes, about."""
LONG: Final = 2048
"""Characters above which an expression of tags counts as work that other pulls may have to wait for."""

FORBIDDEN_BROADCAST: Final = 4
FORBIDDEN_SUBSCRIPTION: Final = 5


class PullSelections:
    """Finds what pulls select, and bounds the time that expressions take in one turn of the loop.

    Args:
        services: of the broker.

    Attributes:
        turns: allowance of time for pulls that select by expressions.
        in_turn: whether the pull that is being served has waited for its turn.
    """

    def __init__(self, services: Services) -> None:
        self._tables = services.tables
        self._clock = services.clock
        self.turns = Turns()
        self.in_turn = False

    def find(self, header: Any) -> Selection:
        """Return what a pull selects.

        Args:
            header: of the pull.

        Raises:
            BrokerError: the group has no such subscription, or the expression cannot be used.
            NotYet: other pulls that select by expressions come first.
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
        """Whether a selection is still what the group asks for, or was brought by the pull itself."""
        header, subscription = request.header, request.selection.subscription
        if subscription is None:
            return True
        online = self._tables.clients.consumers.get(header.consumer_group)
        return online is not None and online.subscriptions.get(header.topic) is subscription

    def select_again(self, request: PullRequest) -> None:
        """Apply the present subscription of the group to a pull, from the offset that it asked for.

        Records that the former subscription passed over may be wanted now.

        Raises:
            BrokerError: as `find`.
        """
        request.selection = self.find(request.header)
        request.reading = reading_of(request.header, request.selection)

    def _own(self, header: Any) -> Selection:
        """Return what a pull selects that brings its subscription along."""
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
        """Return what a group selects by an expression that its heartbeats have announced."""
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
        """Spend the time that reading an expression takes; raise NotYet when it is not this pull's turn."""
        unread = len(expression) > LONG and expression not in COMPILED
        if not self.in_turn and (unread or not self.turns.free()):
            raise NotYet
        self.turns.spend(len(expression) * CHARACTER_S)


class NotYet(Exception):
    """Other pulls that take long come first."""
