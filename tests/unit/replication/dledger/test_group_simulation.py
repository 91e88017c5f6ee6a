"""Groups with lost and reordered messages, and nodes that lose power (docs/reference/simulation.md)."""

from __future__ import annotations

import pytest
from group_story import KINDS, Story, story

from seeds import seeds


@pytest.mark.parametrize("seed", seeds(2 * len(KINDS), 10 * len(KINDS)))
def test_nothing_that_was_acknowledged_is_lost_whatever_happens(seed: int) -> None:
    # A violation raises `Broken`; the test below checks that enough events happen.
    story(seed).run()


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(4842, id="a_leader_of_a_former_term_serves_no_longer_and_lacks_later_entries"),
        pytest.param(5049, id="a_leader_of_apaches_compares_below_the_entries_that_a_node_lost"),
        pytest.param(8952, id="a_majority_lost_entries_while_a_folder_of_an_earlier_life_was_there"),
        pytest.param(9221, id="nodes_of_apaches_stand_against_each_other_for_fifty_terms"),
        pytest.param(9293, id="a_leader_of_apaches_has_deleted_the_entries_at_which_a_node_differs"),
    ],
)
def test_stories_that_failed_once_hold(seed: int) -> None:
    story(seed).run()


def test_the_stories_are_not_dull() -> None:
    figures = [Story(seed).run(80) for seed in range(5000, 5004)]
    assert sum(each.acknowledged for each in figures) > 50
    assert sum(each.elections for each in figures) > 8
    assert sum(each.crashes for each in figures) > 8


def test_one_node_that_syncs_loses_nothing() -> None:
    for seed in range(4):
        Story(seed, 1, sync=True).run(80)
