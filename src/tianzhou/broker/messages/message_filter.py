"""Which records a pull selects, as functions that the store calls while it reads (broker.md §11.2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.tables.clients import Subscription
from tianzhou.broker.tables.consumer_filters import TAG_TYPES, ConsumerFilter, ConsumerFilters, compile_expression
from tianzhou.errors import BrokerError, FilterSyntaxError
from tianzhou.filter import SqlFilter
from tianzhou.filter.bloom import holds
from tianzhou.filter.evaluation import Lookup
from tianzhou.limits import FILTER_LENGTH, Refusals
from tianzhou.model import SubscriptionData, names
from tianzhou.store.log.record_scan import properties_of
from tianzhou.store.queues.extension import ExtensionUnit
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.properties import decode_properties, get_property

FEW: Final = 4
"""So many properties are looked for one by one; for more all are decoded."""
MOST_WORK: Final = 32_768
"""So many comparisons one pull may cost, so many bytes of properties count as one; at least one record is judged."""
BYTES_A_STEP: Final = 16
LOOKED_THROUGH: Final = 4096


class Judge:
    """Looks at records, up to a bound of work.

    Args:
        compiled: what is wanted.

    Attributes:
        work: what has been done since `begin`.
    """

    __slots__ = ("compiled", "work")

    def __init__(self, compiled: SqlFilter | None) -> None:
        self.compiled = compiled
        self.work = 0

    def begin(self) -> None:
        """A read begins, which may cost as much as the one before."""
        self.work = 0

    def __call__(self, record: memoryview) -> bool | None:
        """Whether a record is wanted; None, when it was not looked at because of the bound."""
        if self.work >= MOST_WORK:
            return None
        raw = properties_of(record)
        compiled = self._filter(raw)
        if compiled is None:
            self.work += 1
            return True
        self.work += compiled.terms * (1 + len(raw) // LOOKED_THROUGH) + len(raw) // BYTES_A_STEP
        return compiled.matches(_lookup(compiled, raw))

    def _filter(self, raw: bytes) -> SqlFilter | None:
        return self.compiled


class RetryJudge(Judge):
    """Looks at records of a retry topic by what the group said of the topic they came from (`filterSupportRetry`).

    Args:
        filters: of all groups.
        retry_topic: the group's.
    """

    __slots__ = ("_filters", "_group")

    def __init__(self, filters: ConsumerFilters, retry_topic: str) -> None:
        super().__init__(None)
        self._filters = filters
        self._group = retry_topic.removeprefix(names.RETRY_PREFIX)

    def _filter(self, raw: bytes) -> SqlFilter | None:
        entry = self._filters.find(get_property(raw, names.RETRY_TOPIC) or "", self._group)
        return None if entry is None else entry.compiled


class Selection(NamedTuple):
    """What a read is to return.

    Attributes:
        codes: only units with one of these tags codes; None for all.
        accept: only records for which it holds, up to one it gives None for; None for all.
        accept_unit: only records whose extension unit it accepts, looked at before they are; None for all.
        subscription: what it was made of, when that is a group's and not a pull's own.
    """

    codes: frozenset[int] | None
    accept: Judge | None = None
    accept_unit: Callable[[ExtensionUnit], bool] | None = None
    subscription: Subscription | None = None


def compile_wish(settings: BrokerSettings, refusals: Refusals, kind: str | None, expression: str | None) -> SqlFilter:
    """Compile an expression that is not of tags, as far as this broker evaluates such.

    Args:
        settings: say whether it does, and how long an expression may be.
        refusals: count those that are longer.
        kind: the expression type.
        expression: the text.

    Raises:
        BrokerError: it does not, or the expression is wrong.
        LimitExceeded: it is too long.
    """
    check_served(settings, kind)
    most = settings.max_filter_expression_length
    refusals.check(FILTER_LENGTH, len(expression or ""), most)
    try:
        return compile_expression(kind, expression)
    except FilterSyntaxError as error:
        raise BrokerError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector: {error}") from None


def check_served(settings: BrokerSettings, kind: str | None) -> None:
    """Check that expressions which are not of tags are evaluated here.

    Raises:
        BrokerError: they are not.
    """
    if kind not in TAG_TYPES and not settings.enable_property_filter:
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {kind} (enablePropertyFilter is false)",
        )


def by_expression(compiled: SqlFilter) -> Selection:
    """Records that fulfil an expression which came with the pull."""
    return Selection(None, Judge(compiled))


def by_entry(entry: ConsumerFilter, filters: ConsumerFilters) -> Selection:
    """Records that fulfil a group's expression; bits in queue units spare the look at others."""
    suits = partial(_may_match, entry) if filters.bloom.fits(entry.bloom) else None
    return Selection(None, Judge(entry.compiled), suits)


def by_original_topic(filters: ConsumerFilters, retry_topic: str) -> Selection:
    """Records of a retry topic that fulfil what the group said of the topic they came from (`filterSupportRetry`)."""
    return Selection(None, RetryJudge(filters, retry_topic))


def bitmap_of(settings: BrokerSettings, filters: ConsumerFilters, topic: str, record: memoryview) -> bytes:
    """The bits of the groups that want a record, for its extension unit; empty when they are not wanted."""
    if not settings.enable_calc_filter_bit_map or not filters.of_topic(topic):
        return b""
    return filters.bitmap(topic, decode_properties(properties_of(record)).get)


def _lookup(compiled: SqlFilter, raw: bytes) -> Lookup:
    if len(compiled.names) <= FEW:
        return partial(get_property, raw)
    return decode_properties(raw).get


def _may_match(entry: ConsumerFilter, unit: ExtensionUnit) -> bool:
    # Whatever is doubtful passes: the record itself decides then.
    if unit.store_timestamp <= entry.born_ms or len(unit.bitmap) * 8 != entry.bloom.bit_num:
        return True
    return holds(unit.bitmap, entry.bloom)


def what_is_wrong(data: SubscriptionData) -> str:
    """Why a subscription's expression cannot be used, in brackets behind a text; empty when it can."""
    try:
        compile_expression(data.expression_type, data.sub_string)
    except FilterSyntaxError as error:
        return f" ({error})"
    return ""
