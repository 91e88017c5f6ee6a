"""Conditions under which pages of a log are created one by one."""

from tianzhou.store.log.append_rate import CALM_BYTES_S, MEASURED_BYTES, AppendRate


def test_a_log_is_calm_until_it_grows_fast_and_again_when_it_does_no_more() -> None:
    pace = AppendRate(100.0, 5000)
    assert pace.calm(100.0, 5000)
    assert pace.calm(100.0001, 5000 + MEASURED_BYTES - 1), "too little to go by"
    end = 5000 + CALM_BYTES_S // 5
    assert not pace.calm(100.1, end), "twice as fast as is calm"
    assert not pace.calm(100.1001, end + 10), "too little since then"
    assert pace.calm(100.3, end + CALM_BYTES_S // 10)
    assert pace.calm(100.3, end + CALM_BYTES_S // 10)


def test_after_a_pause_the_little_that_comes_counts_as_little() -> None:
    pace = AppendRate(0.0, 0)
    assert not pace.calm(0.01, CALM_BYTES_S)
    assert pace.calm(60.0, CALM_BYTES_S + 1000)
