"""Groups whose messages are lost and overtake each other, whose nodes lose power (docs/reference/simulation.md)."""

from __future__ import annotations

import pytest
from group_story import KINDS, Story, story

from seeds import seeds


@pytest.mark.parametrize("seed", seeds(2 * len(KINDS), 10 * len(KINDS)))
def test_nothing_that_was_acknowledged_is_lost_whatever_happens(seed: int) -> None:
    # What may not happen raises `Broken`; that enough happens is looked at below.
    story(seed).run()


def test_a_leader_of_a_former_term_that_serves_no_longer_may_lack_later_entries() -> None:
    story(4842).run()


def test_a_node_that_lost_entries_gets_them_back_although_apaches_leader_compares_below_them() -> None:
    story(5049).run()


def test_the_stories_are_not_dull() -> None:
    figures = [Story(seed).run(80) for seed in range(5000, 5004)]
    assert sum(each.acknowledged for each in figures) > 50
    assert sum(each.elections for each in figures) > 8
    assert sum(each.crashes for each in figures) > 8


def test_one_node_that_syncs_loses_nothing() -> None:
    for seed in range(4):
        Story(seed, 1, sync=True).run(80)
