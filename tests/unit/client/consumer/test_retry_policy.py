"""The next step for a message that was not consumed, by a handler's retry policy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.client import RetryPolicy
from tianzhou.client.consumer.push.retry_policy import DELAY_LEVELS_S, Fate, NextStep, check_policy, next_step
from tianzhou.errors import ConfigError
from tianzhou.store.settings import StoreSettings, parse_delay_levels

AGAIN, DEAD, DROP = Fate.AGAIN, Fate.DEAD_LETTER, Fate.DROP


def test_the_levels_are_those_of_brokers():
    assert tuple(level_s * 1000 for level_s in DELAY_LEVELS_S) == parse_delay_levels(
        StoreSettings().message_delay_level
    )


@pytest.mark.parametrize(
    ("policy", "reconsume_times", "wanted_level", "step"),
    [
        (RetryPolicy(), 0, 0, NextStep(AGAIN, 0, None, 16)),
        (RetryPolicy(), 15, 0, NextStep(AGAIN, 0, None, 16)),
        (RetryPolicy(), 16, 0, NextStep(DEAD)),
        (RetryPolicy(max_attempts=1), 0, 0, NextStep(DEAD)),
        (RetryPolicy(max_attempts=1, dead_letter=False), 0, 0, NextStep(DROP)),
        (RetryPolicy(max_attempts=3), 1, 0, NextStep(AGAIN, 0, None, 2)),
        (RetryPolicy(max_attempts=3), 2, 0, NextStep(DEAD)),
        (RetryPolicy(max_attempts=3), 7, 0, NextStep(DEAD)),
        (RetryPolicy(max_attempts=4, delays_s=[1, 10]), 0, 0, NextStep(AGAIN, 1, 1_000, 3)),
        (RetryPolicy(max_attempts=4, delays_s=[1, 10]), 1, 0, NextStep(AGAIN, 3, 10_000, 3)),
        (RetryPolicy(max_attempts=4, delays_s=[1, 10]), 2, 0, NextStep(AGAIN, 3, 10_000, 3)),
        (RetryPolicy(max_attempts=2, delays_s=5), 0, 0, NextStep(AGAIN, 2, 5_000, 1)),
        (RetryPolicy(max_attempts=2, delays_s=0.5), 0, 0, NextStep(AGAIN, 0, 500, 1)),
        (RetryPolicy(max_attempts=2, delays_s=2, levels_s=[1, 2]), 0, 0, NextStep(AGAIN, 2, 2_000, 1)),
        (RetryPolicy(max_attempts=4, delays_s=[1, 10]), 0, 7, NextStep(AGAIN, 7, 1_000, 3)),
        (RetryPolicy(max_attempts=4, dead_letter=False), 0, -1, NextStep(DEAD)),
    ],
)
def test_the_next_step(policy, reconsume_times, wanted_level, step):
    assert next_step(policy, reconsume_times, 16, wanted_level) == step


@given(
    max_attempts=st.integers(1, 40),
    delays_s=st.lists(st.sampled_from(DELAY_LEVELS_S), min_size=1, max_size=20),
    dead_letter=st.booleans(),
)
def test_a_message_that_always_fails_is_called_for_as_often_as_allowed(max_attempts, delays_s, dead_letter):
    policy = RetryPolicy(max_attempts=max_attempts, delays_s=delays_s, dead_letter=dead_letter)
    check_policy(policy, "T", orderly=False, is_broadcast=False)
    steps = []
    while not steps or steps[-1].fate is AGAIN:
        steps.append(next_step(policy, len(steps), 16))
    assert len(steps) == max_attempts
    assert steps[-1].fate is (DEAD if dead_letter else DROP)
    for place, step in enumerate(steps[:-1]):
        assert DELAY_LEVELS_S[step.delay_level - 1] == delays_s[min(place, len(delays_s) - 1)]
        # The broker's decision by the number in the request (broker.md §8.5) agrees.
        assert place < step.max_times == max_attempts - 1


@given(
    max_attempts=st.integers(1, 30),
    first_s=st.floats(0.01, 7_200),
    factor=st.sampled_from([1, 1.5, 2, 3, 10]),
    longest_s=st.floats(1, 100_000),
    orderly=st.booleans(),
)
def test_growing_pauses_are_levels_that_never_shrink(max_attempts, first_s, factor, longest_s, orderly):
    if orderly:
        longest_s = min(longest_s, 30)
    first_s = min(first_s, longest_s)
    policy = RetryPolicy.exponential(max_attempts, first_s=first_s, factor=factor, longest_s=longest_s)
    check_policy(policy, "T", orderly=orderly, is_broadcast=False)
    pauses_s = [policy.delay_s(attempt) for attempt in range(1, max_attempts + 1)]
    assert pauses_s == sorted(pauses_s)
    assert set(pauses_s) <= set(DELAY_LEVELS_S)
    assert pauses_s[-1] <= longest_s
    usable = [level_s for level_s in DELAY_LEVELS_S if level_s <= longest_s]
    for place, pause_s in enumerate(pauses_s):
        wanted_s = first_s * factor**place
        assert pause_s == next((level_s for level_s in usable if level_s >= wanted_s), usable[-1])


def test_growing_pauses_by_default():
    policy = RetryPolicy.exponential(8)
    assert policy.delays_s == (10, 30, 60, 120, 180, 360, 1_200, 1_800)
    assert RetryPolicy.exponential(5, first_s=5, factor=1).delays_s == (5,)
    assert RetryPolicy.exponential(9, first_s=1, factor=3, longest_s=30).delays_s == (1, 5, 10, 30)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_attempts": 0}, "max_attempts is 0; it has to be 1 to 2147483647"),
        ({"max_attempts": 1.5}, "max_attempts is 1.5; it has to be a whole number"),
        ({"delays_s": []}, "delays_s is empty; give one pause at least"),
        ({"delays_s": [1, -1]}, "delays_s is -1; it has to be at least 0"),
        ({"delays_s": ["1"]}, "delays_s is '1'; it has to be a number"),
        ({"levels_s": []}, "levels_s is empty"),
    ],
)
def test_values_out_of_range(options, text):
    with pytest.raises(ConfigError, match=text):
        RetryPolicy(**options)


def test_a_longest_pause_that_no_level_is_as_short_as():
    with pytest.raises(ConfigError, match=r"longest_s is 0.5; the shortest delay level is 1 s"):
        RetryPolicy.exponential(3, first_s=0.1, longest_s=0.5)


@pytest.mark.parametrize(
    ("policy", "orderly", "is_broadcast", "text"),
    [
        (RetryPolicy(delays_s=15), False, False, "has 15 s, and RocketMQ has delay levels only; take 10 or 30 s"),
        (RetryPolicy(delays_s=[1, 9_999]), False, False, "take 7200 s, or RetryPolicy.exponential"),
        (RetryPolicy(delays_s=0.2), False, False, "take 1 s"),
        (RetryPolicy(delays_s=60), True, False, "rests 0.01 to 30 s, as all behind the message waits"),
        (RetryPolicy(delays_s=0), True, False, "rests 0.01 to 30 s"),
        (RetryPolicy(max_attempts=2), False, True, "a broadcast message is not delivered again"),
        (RetryPolicy(max_attempts=2), True, True, "a broadcast message cannot become a dead letter"),
    ],
)
def test_what_rocketmq_cannot_do(policy, orderly, is_broadcast, text):
    with pytest.raises(ConfigError, match=f"the retry policy of topic T: .*{text}"):
        check_policy(policy, "T", orderly=orderly, is_broadcast=is_broadcast)


@pytest.mark.parametrize(
    ("policy", "orderly", "is_broadcast"),
    [
        (RetryPolicy(delays_s=[1, 7_200]), False, False),
        (RetryPolicy(delays_s=15, levels_s=[15]), False, False),
        (RetryPolicy(delays_s=[0.01, 0.5, 30]), True, False),
        (RetryPolicy(dead_letter=False), True, True),
    ],
)
def test_what_it_can(policy, orderly, is_broadcast):
    check_policy(policy, "T", orderly=orderly, is_broadcast=is_broadcast)
