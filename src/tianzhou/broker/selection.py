"""Which records a pull selects, as functions that the store calls while it reads (broker.md §11.2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from tianzhou.broker.clients import Subscription
from tianzhou.broker.consumer_filters import TAG_TYPES, ConsumerFilter, ConsumerFilters, compile_expression
from tianzhou.broker.settings import BrokerSettings
from tianzhou.errors import BrokerError, FilterSyntaxError
from tianzhou.filter import SqlFilter
from tianzhou.filter.bloom import holds
from tianzhou.filter.evaluation import Lookup
from tianzhou.model import names
from tianzhou.store.extension import ExtensionUnit
from tianzhou.store.logscan import properties_of
from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.properties import decode_properties, get_property

FEW: Final = 4
"""So many properties are looked for one by one; for more all are decoded."""


class Selection(NamedTuple):
    """What a read is to return.

    Attributes:
        codes: only units with one of these tags codes; None for all.
        accept: only records for which it holds; None for all.
        accept_unit: only records whose extension unit it accepts, looked at before they are; None for all.
        subscription: what it was made of, when that is a group's and not a pull's own.
    """

    codes: frozenset[int] | None
    accept: Callable[[memoryview], bool] | None = None
    accept_unit: Callable[[ExtensionUnit], bool] | None = None
    subscription: Subscription | None = None


def compile_wish(settings: BrokerSettings, kind: str | None, expression: str | None) -> SqlFilter:
    """Compile an expression that is not of tags, as far as this broker evaluates such.

    Args:
        settings: say whether it does.
        kind: the expression type.
        expression: the text.

    Raises:
        BrokerError: it does not, or the expression is wrong.
    """
    check_served(settings, kind)
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
    return Selection(None, partial(_matches, compiled))


def by_entry(entry: ConsumerFilter, filters: ConsumerFilters) -> Selection:
    """Records that fulfil a group's expression; bits in queue units spare the look at others."""
    suits = partial(_may_match, entry) if filters.bloom.fits(entry.bloom) else None
    return Selection(None, partial(_matches, entry.compiled), suits)


def by_original_topic(filters: ConsumerFilters, retry_topic: str) -> Selection:
    """Records of a retry topic that fulfil what the group said of the topic they came from (`filterSupportRetry`)."""
    group = retry_topic.removeprefix(names.RETRY_PREFIX)

    def matches(record: memoryview) -> bool:
        raw = properties_of(record)
        entry = filters.find(get_property(raw, names.RETRY_TOPIC) or "", group)
        return entry is None or entry.compiled.matches(_lookup(entry.compiled, raw))

    return Selection(None, matches)


def bitmap_of(settings: BrokerSettings, filters: ConsumerFilters, topic: str, record: memoryview) -> bytes:
    """The bits of the groups that want a record, for its extension unit; empty when they are not wanted."""
    if not settings.enable_calc_filter_bit_map or not filters.of_topic(topic):
        return b""
    return filters.bitmap(topic, decode_properties(properties_of(record)).get)


def _matches(compiled: SqlFilter, record: memoryview) -> bool:
    return compiled.matches(_lookup(compiled, properties_of(record)))


def _lookup(compiled: SqlFilter, raw: bytes) -> Lookup:
    if len(compiled.names) <= FEW:
        return partial(get_property, raw)
    return decode_properties(raw).get


def _may_match(entry: ConsumerFilter, unit: ExtensionUnit) -> bool:
    # Whatever is doubtful passes: the record itself decides then.
    if unit.store_timestamp <= entry.born_ms or len(unit.bitmap) * 8 != entry.bloom.bit_num:
        return True
    return holds(unit.bitmap, entry.bloom)
