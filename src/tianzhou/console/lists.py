"""One page of a long list: filter, order and page, and the address that stores these choices. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

PAGE_SIZES: Final = (20, 50, 100)
"""Numbers of rows per page that a visitor may choose."""
NORMAL: Final = "normal"
"""Kind of topics and groups that users have created."""
SYSTEM: Final = "system"
"""Kind of topics and groups that servers use internally."""
NO_KIND: Final = "none"
"""Value in an address for a list without a chosen kind."""
UNKNOWN: Final = "-"
"""Text for a figure that has not been measured."""
Words = Callable[..., str]
"""Type of `View.text`, which returns a text in the visitor's language."""
MINUTE_S: Final = 60
HOUR_S: Final = 3_600
DAY_S: Final = 86_400


class NamedEntry(Protocol):
    """An entry of a list."""

    @property
    def name(self) -> str:
        """Name, unique in the list."""

    @property
    def kind(self) -> str:
        """One of the list's kinds."""


N = TypeVar("N", bound=NamedEntry)
SortKey = Callable[[Any], Any]
"""Function that returns an entry's value in a column; None where it is unknown."""


@dataclass(frozen=True, slots=True)
class ListState:
    """A visitor's choices on a list: filter, order and page.

    Attributes:
        words: text that a shown name must contain, in any case; empty for all names.
        kinds: kinds that the list shows.
        sort: column that sorts the list; empty for the order of names.
        descending: whether the largest value of that column comes first.
        page: number of the page, from 1.
        size: number of rows of a page.
    """

    words: str = ""
    kinds: tuple[str, ...] = ()
    sort: str = ""
    descending: bool = False
    page: int = 1
    size: int = PAGE_SIZES[0]

    def changed(self, **values: Any) -> ListState:
        """Return the state with other values. It shows the first page unless `values` contains `page`."""
        return replace(self, **{"page": 1, **values})


def state_of(query: Mapping[str, str], kinds: Collection[str], default: str, columns: Collection[str]) -> ListState:
    """Return the state that an address describes. Defaults replace invalid values.

    Args:
        query: parameters of the address.
        kinds: all kinds of the list.
        default: the kind that the list shows when the address names none.
        columns: columns that can sort the list.
    """
    chosen = tuple(kind for kind in kinds if kind in query.get("kind", "").split(","))
    sort = query.get("sort", "")
    page, size = query.get("page", ""), query.get("rows", "")
    return ListState(
        words=query.get("filter", ""),
        kinds=chosen or (() if query.get("kind") == NO_KIND else (default,)),
        sort=sort if sort in columns else "",
        descending=query.get("desc") == "1" and sort in columns,
        page=max(int(page), 1) if page.isascii() and page.isdecimal() and len(page) < 10 else 1,
        size=int(size) if size in map(str, PAGE_SIZES) else PAGE_SIZES[0],
    )


def query_of(state: ListState, default: str) -> dict[str, str]:
    """Return the parameters of an address that describes a state. Defaults become empty texts.

    Args:
        state: the state.
        default: the kind that the list shows when the address names none.
    """
    return {
        "filter": state.words,
        "kind": "" if state.kinds == (default,) else ",".join(state.kinds) or NO_KIND,
        "sort": state.sort,
        "desc": "1" if state.descending else "",
        "page": "" if state.page == 1 else str(state.page),
        "rows": "" if state.size == PAGE_SIZES[0] else str(state.size),
    }


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list.

    Attributes:
        entries: entries of the page.
        count: number of entries of all pages.
        page: number of the page, from 1; the last page when the list has fewer pages than the visitor requested.
    """

    entries: Sequence[Any]
    count: int
    page: int


def cut(entries: Iterable[N], state: ListState, keys: Mapping[str, SortKey]) -> ListPage:
    """Return the page of a list that a state describes. Unknown values come last in both orders.

    Args:
        entries: all entries, in the order of their names.
        state: filter, order and page that the visitor chose.
        keys: functions that return an entry's value, by column.
    """
    words = state.words.strip().lower()
    kinds = frozenset(state.kinds)
    found = [one for one in entries if one.kind in kinds and (not words or words in one.name.lower())]
    if (key := keys.get(state.sort)) is not None:
        values = [(key(one), one) for one in found]
        known = sorted(
            (pair for pair in values if pair[0] is not None), key=lambda pair: pair[0], reverse=state.descending
        )
        found = [one for _, one in known] + [one for value, one in values if value is None]
    last = max(-(-len(found) // state.size), 1)
    page = min(state.page, last)
    return ListPage(found[(page - 1) * state.size : page * state.size], len(found), page)


def counts_of(entries: Iterable[NamedEntry]) -> dict[str, int]:
    """Return the number of entries of each kind."""
    counts: dict[str, int] = {}
    for one in entries:
        counts[one.kind] = counts.get(one.kind, 0) + 1
    return counts


def rate_text(rate: float | None) -> str:
    """Return a rate as text: without decimals from 100 on, with one below."""
    if rate is None:
        return UNKNOWN
    if 0 < rate < 0.05:
        return "< 0.1"
    return f"{rate:,.0f}" if rate >= 100 or rate == 0 else f"{rate:,.1f}"


def count_text(count: int | None) -> str:
    """Return a count as text, with commas between thousands."""
    return UNKNOWN if count is None else f"{count:,}"


def age_of(at_ms: int, now_ms: int) -> tuple[str, int]:
    """Return an age as a unit (`s`, `min`, `h` or `d`) and a number.

    Args:
        at_ms: the past time, in milliseconds since 1970; a future time counts as now.
        now_ms: the time now.
    """
    seconds = max(now_ms - at_ms, 0) // 1000
    if seconds < MINUTE_S:
        return "s", seconds
    if seconds < HOUR_S:
        return "min", seconds // MINUTE_S
    return ("h", seconds // HOUR_S) if seconds < 2 * DAY_S else ("d", seconds // DAY_S)


def ago(at_ms: int, asked_ms: int, now_ms: int, words: Words) -> str:
    """Return an age as text in the visitor's language; empty for a time of 0.

    Args:
        at_ms: the past time, in milliseconds since 1970; 0 for none.
        asked_ms: time of the last measurement; 0 before the first one.
        now_ms: the time now.
        words: returns texts in the visitor's language.
    """
    if not at_ms:
        return "" if asked_ms else UNKNOWN
    unit, count = age_of(at_ms, now_ms)
    return words(f"age.{unit}", count=f"{count:,}")
