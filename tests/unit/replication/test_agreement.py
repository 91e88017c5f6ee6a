"""Detection of the point where a slave's log and its master's diverge (broker.md §17.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import StoreError
from tianzhou.replication.agreement import OVERLAP, Agreement, CutRefused, Parting, cut_limit_bytes
from tianzhou.store.settings import StoreSettings

MIB = 1 << 20


def agreement(most: int = 64 * MIB) -> Agreement:
    return Agreement(StoreSettings(ha_slave_cut_max=most))


def test_what_differs_behind_a_record_that_is_equal_is_cut_off() -> None:
    one = agreement()
    first = one.first(0, MIB)
    assert one.cut(0, MIB, Parting(first, MIB - 100), proved=True) == MIB - 100


def test_equal_bytes_without_a_record_prove_nothing() -> None:
    one = agreement()
    first = one.first(0, 8 * MIB)
    assert one.cut(0, 8 * MIB, Parting(first, 8 * MIB - 100), proved=False) is None
    assert one.first(0, 8 * MIB) == 8 * MIB - 16 * OVERLAP


def test_a_master_that_says_where_it_ends_is_asked_for_what_is_before() -> None:
    one = agreement()
    first = one.first(0, 50 * MIB)
    assert one.cut(0, 50 * MIB, Parting(first, 10 * MIB), proved=False) is None
    assert one.first(0, 50 * MIB) == 10 * MIB - OVERLAP


def test_what_the_master_has_deleted_is_not_compared() -> None:
    one = agreement()
    parting = Parting(one.first(0, MIB), MIB - 100, master_begins=True)
    assert one.cut(0, MIB, parting, proved=False) is None
    assert one.first(0, MIB) == MIB - 100
    with pytest.raises(StoreError, match="has no record, from"):
        one.cut(0, MIB, Parting(MIB - 100, MIB - 100), proved=False)


@pytest.mark.parametrize(
    ("most", "parting", "proved", "message"),
    [
        (MIB, Parting(1, 2 * MIB), True, "agrees with its master's up to 2097152: 2097152 bytes"),
        (0, Parting(4 * MIB - OVERLAP, 4 * MIB - 1), True, "haSlaveCutMax=0"),
        (MIB, Parting(2 * MIB, 2 * MIB), False, "differs from its master's at 2097152: 2097152 bytes"),
        (64 * MIB, Parting(1, 1), False, "never were of one group, or the master lost everything"),
        (64 * MIB, Parting(1, 5 * MIB, master_begins=True), False, "what is between is gone"),
    ],
)
def test_what_an_operator_has_to_decide(most: int, parting: Parting, *, proved: bool, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        agreement(most).cut(0, 4 * MIB, parting, proved=proved)


@given(st.integers(1, 40 * MIB), st.data())
def test_the_search_ends_at_the_place_where_the_logs_part(end: int, data: st.DataObject) -> None:
    """Records of up to 1 MiB; the master's log is equal up to `parts` and then another one, or ends there."""
    parts = data.draw(st.integers(0, end - 1))
    record = data.draw(st.integers(100, MIB))
    master_ends = data.draw(st.booleans())
    one = agreement()
    for _ in range(12):
        first = one.first(0, end)
        at = parts if master_ends or parts >= first else first
        whole = -(-first // record) * record + record
        try:
            found = one.cut(0, end, Parting(first, at), proved=whole <= at)
        except StoreError:
            assert parts < 2 * record + 1
            return
        if found is not None:
            assert found == parts
            return
    raise AssertionError("the search does not end")


def test_with_zero_loss_nothing_is_cut_and_the_search_goes_on_for_the_place() -> None:
    one = Agreement(StoreSettings(durability="zero-loss", ha_slave_cut_max=1))
    first = one.first(0, 8 * MIB)
    assert one.cut(0, 8 * MIB, Parting(first, first), proved=False) is None
    with pytest.raises(CutRefused) as refused:
        one.cut(0, 8 * MIB, Parting(one.first(0, 8 * MIB), 15 * MIB // 2), proved=True)
    assert (refused.value.at, refused.value.end) == (15 * MIB // 2, 8 * MIB)


def test_a_cut_that_an_operator_allows_has_no_limit() -> None:
    settings = StoreSettings(durability="zero-loss", ha_slave_cut_max=0)
    limit_bytes = cut_limit_bytes(settings, allowed=True)
    assert Agreement(settings).cut(0, MIB, Parting(1, MIB // 2), proved=True, limit_bytes=limit_bytes) == MIB // 2
    assert cut_limit_bytes(settings, allowed=False) == 0
    assert cut_limit_bytes(StoreSettings(ha_slave_cut_max=7), allowed=False) == 7
