"""Filters of pulls that the store calls while it reads (broker.md §11.2)."""

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
from tianzhou.filter.values import Lookup
from tianzhou.limits import FILTER_LENGTH, Refusals
from tianzhou.model import SubscriptionData, names
from tianzhou.records.codec import properties_of
from tianzhou.store.queues.extension import ExtensionUnit
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.properties import decode_properties, get_property

LOOKUPS: Final = 4
"""Maximum properties of an expression that are looked up in the text one by one; for more, all are decoded."""
MAX_WORK: Final = 32_768
"""Maximum comparisons of a read; `BYTES_PER_STEP` bytes of properties count as one.

A read filters at least one record.
"""
BYTES_PER_STEP: Final = 16
SCANNED_BYTES_PER_STEP: Final = 4096


class RecordFilter:
    """Filter of records by an expression, up to `MAX_WORK`.

    Args:
        compiled: the expression; None accepts all.

    Attributes:
        work: comparisons since `begin`.
    """

    __slots__ = ("compiled", "work")

    def __init__(self, compiled: SqlFilter | None) -> None:
        self.compiled = compiled
        self.work = 0

    def begin(self) -> None:
        """Reset the work at the start of a read."""
        self.work = 0

    def __call__(self, record: memoryview) -> bool | None:
        """Whether a record matches; None when the allowance is used up."""
        if self.work >= MAX_WORK:
            return None
        raw = properties_of(record)
        compiled = self._filter(raw)
        if compiled is None:
            self.work += 1
            return True
        self.work += compiled.terms * (1 + len(raw) // SCANNED_BYTES_PER_STEP) + len(raw) // BYTES_PER_STEP
        return compiled.matches(_lookup(compiled, raw))

    def _filter(self, raw: bytes) -> SqlFilter | None:
        return self.compiled


class RetryRecordFilter(RecordFilter):
    """Filter of a retry topic by the group's expressions for the original topics (`filterSupportRetry`).

    Args:
        filters: expressions of all groups.
        retry_topic: the group's retry topic.
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
    """Selection of a read.

    Attributes:
        codes: only units with one of these tags codes; None for all.
        accept: record filter; a None result of it ends the read; None accepts all.
        accept_unit: filter of extension units, applied before records are read; None accepts all.
        subscription: the group's subscription on which it is based; None for a pull's own.
    """

    codes: frozenset[int] | None
    accept: RecordFilter | None = None
    accept_unit: Callable[[ExtensionUnit], bool] | None = None
    subscription: Subscription | None = None


def compile_property_filter(
    settings: BrokerSettings, refusals: Refusals, kind: str | None, expression: str | None
) -> SqlFilter:
    """Compile an SQL92 expression, if `enablePropertyFilter` is set.

    Args:
        settings: the broker's settings, with the maximum length.
        refusals: counts of refused longer expressions.
        kind: the expression type.
        expression: the text.

    Raises:
        BrokerError: expressions are not evaluated, or this one is wrong.
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
    """Check that expressions other than tags are evaluated here.

    Raises:
        BrokerError: `enablePropertyFilter` is off.
    """
    if kind not in TAG_TYPES and not settings.enable_property_filter:
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {kind} (enablePropertyFilter is false)",
        )


def by_expression(compiled: SqlFilter) -> Selection:
    """Return the selection by a pull's own expression."""
    return Selection(None, RecordFilter(compiled))


def by_entry(entry: ConsumerFilter, filters: ConsumerFilters) -> Selection:
    """Return the selection by a group's registered expression; Bloom bits in queue units save reads of records."""
    suits = partial(_may_match, entry) if filters.bloom.fits(entry.bloom) else None
    return Selection(None, RecordFilter(entry.compiled), suits)


def by_original_topic(filters: ConsumerFilters, retry_topic: str) -> Selection:
    """Return the selection of a retry topic by the expressions of the original topics (`filterSupportRetry`)."""
    return Selection(None, RetryRecordFilter(filters, retry_topic))


def bitmap_of(settings: BrokerSettings, filters: ConsumerFilters, topic: str, record: memoryview) -> bytes:
    """Return the Bloom bits of the groups whose expressions match a record; empty when bitmaps are off."""
    if not settings.enable_calc_filter_bit_map or not filters.of_topic(topic):
        return b""
    return filters.bitmap(topic, decode_properties(properties_of(record)).get)


def _lookup(compiled: SqlFilter, raw: bytes) -> Lookup:
    if len(compiled.names) <= LOOKUPS:
        return partial(get_property, raw)
    return decode_properties(raw).get


def _may_match(entry: ConsumerFilter, unit: ExtensionUnit) -> bool:
    # Accept the unit when its bits are not usable; the record filter decides.
    if unit.store_timestamp <= entry.born_ms or len(unit.bitmap) * 8 != entry.bloom.bit_num:
        return True
    return holds(unit.bitmap, entry.bloom)


def expression_problem(data: SubscriptionData) -> str:
    """Return why a subscription's expression is invalid, in brackets to append to a text; empty when it is valid."""
    try:
        compile_expression(data.expression_type, data.sub_string)
    except FilterSyntaxError as error:
        return f" ({error})"
    return ""
